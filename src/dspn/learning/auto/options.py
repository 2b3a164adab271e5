"""How much the automatic learner may do, and within which bounds."""

from dataclasses import dataclass
from typing import Final, final

from dspn.learning.fitting import EmOptions
from dspn.options import Options, number_field, part_field, whole_field

WORK_UNIT: Final = 1e9
_ENTRIES_A_UNIT: Final = 5_000
_LEAST_EFFORT: Final = 0.1
_MOST_EFFORT: Final = 50.0
_EM: Final = EmOptions(max_steps=40, min_steps=8, tolerance=1e-5, patience=4, single_precision=True)
_REFIT: Final = EmOptions(max_steps=5, tolerance=1e-7, single_precision=True)


@final
@dataclass(frozen=True)
class Auto(Options):
    """The budget of the automatic learner, and the bounds of what it builds.

    `effort` counts work, not time: one unit is 10^9 edges of a template evaluated at a slice in a
    step of EM, edges of wide sums counted less, which is of the order of a third of a second. The
    same effort leads to the same model on every machine. Without one it follows the data: a unit
    for every 5,000 entries, 50 at most. The share `exploration` of it, at most,
    goes into finding layouts: which variables share an interface. A model has `max_layouts`
    components at most, and a block of variables `max_members` models that are mixed. The search
    ends after `patience` moves in a row that made nothing better.
    """

    effort: float | None = number_field(None, above=0)
    exploration: float = number_field(0.3, least=0, most=1)
    max_interfaces: int = whole_field(1024)
    max_layouts: int = whole_field(5)
    max_members: int = whole_field(6)
    least_weight: float = number_field(0.04, least=0, most=1)
    patience: int = whole_field(12)
    em: EmOptions = part_field(_EM)
    refit: EmOptions = part_field(_REFIT)


AutoOptions = Auto
DEFAULT_AUTO: Final = Auto()


def usual_effort(num_entries: int) -> float:
    """The effort for data of so many entries where none is given."""
    return min(_MOST_EFFORT, max(_LEAST_EFFORT, num_entries / _ENTRIES_A_UNIT))
