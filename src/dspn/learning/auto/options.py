"""How much the automatic learner may do, and within which bounds."""

from dataclasses import dataclass
from typing import Final, final

from dspn._checks import require_type, whole_number
from dspn.errors import StructureError
from dspn.learning.em import EmOptions
from dspn.leaves.base import keep_number

WORK_UNIT: Final = 1e9
_ENTRIES_A_UNIT: Final = 5_000
_LEAST_EFFORT: Final = 0.1
_MOST_EFFORT: Final = 50.0
_EM: Final = EmOptions(max_steps=40, min_steps=8, tolerance=1e-5, patience=4, single_precision=True)
_REFIT: Final = EmOptions(max_steps=5, tolerance=1e-7, single_precision=True)


@final
@dataclass(frozen=True)
class AutoOptions:
    """The budget of the automatic learner, and the bounds of what it builds.

    `effort` counts work, not time: one unit is 10^9 edges of a template evaluated at a slice in a
    step of EM, edges of wide sums counted less, which is of the order of a third of a second. The
    same effort leads to the same model on every machine. Without one it follows the data: a unit
    for every 5,000 entries, 50 at most. The share `exploration` of it, at most,
    goes into finding layouts: which variables share an interface. A model has `max_layouts`
    components at most, and a block of variables `max_members` models that are mixed. The search
    ends after `patience` moves in a row that made nothing better.
    """

    effort: float | None = None
    exploration: float = 0.3
    max_interfaces: int = 1024
    max_layouts: int = 5
    max_members: int = 6
    least_weight: float = 0.04
    patience: int = 12
    em: EmOptions = _EM
    refit: EmOptions = _REFIT

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        if self.effort is not None:
            keep_number(self, "effort", least=0, open_end=True)
        for name in ("exploration", "least_weight"):
            keep_number(self, name, least=0, open_end=False)
            if getattr(self, name) > 1:
                raise StructureError(
                    f"`{name}` of AutoOptions must be a share, at most 1, but is "
                    f"{getattr(self, name)!r}."
                )
        for name in ("max_interfaces", "max_layouts", "max_members", "patience"):
            number = whole_number(getattr(self, name), name, StructureError)
            object.__setattr__(self, name, number)
        require_type(self.em, EmOptions, "em", StructureError)
        require_type(self.refit, EmOptions, "refit", StructureError)


DEFAULT_AUTO: Final = AutoOptions()


def usual_effort(num_entries: int) -> float:
    """The effort for data of so many entries where none is given."""
    return min(_MOST_EFFORT, max(_LEAST_EFFORT, num_entries / _ENTRIES_A_UNIT))
