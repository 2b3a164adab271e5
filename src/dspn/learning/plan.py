"""What is learned, and how: everything that decides a result apart from the data and the seed."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Final, final

from dspn.io import JSON
from dspn.learning.fitting import EmOptions
from dspn.learning.growth import DEFAULT_GROWTH, GrowthOptions
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.scores import LIKELIHOOD, Score
from dspn.learning.search import DEFAULT_SEARCH, SearchOptions
from dspn.options import Options, part_field
from dspn.structure import Root
from dspn.structure.network import checked_root

_REFIT: Final = EmOptions(max_steps=10, tolerance=1e-7)


@final
@dataclass(frozen=True)
class Plan(Options):
    """Growth by Algorithm 1, then search by Algorithm 2; without a `search` growth alone.

    What they find is trained once more by `refit`, on training and validation set together; None
    leaves it as it was scored. With `tied=False` the bottom network has parameters of its own.
    """

    growth: GrowthOptions = part_field(DEFAULT_GROWTH)
    search: SearchOptions | None = part_field(DEFAULT_SEARCH, optional=True)
    refit: EmOptions | None = part_field(_REFIT, optional=True)
    priors: Priors = part_field(DEFAULT_PRIORS)
    score: Score = part_field(LIKELIHOOD, Score)
    root: Root | str = Root.FIRST
    tied: bool = part_field(True)

    def _check(self) -> None:
        object.__setattr__(self, "root", checked_root(self.root))

    def to_json(self) -> dict[str, JSON]:
        """All options by name, to be kept with a model and compared with another plan."""
        return {field.name: described(getattr(self, field.name)) for field in fields(self)}


DEFAULT_PLAN: Final = Plan()


def described(value: object) -> JSON:
    """Options as JSON: a dataclass is an object of its fields and of the name of its class."""
    if isinstance(value, Enum):
        return described(value.value)
    if is_dataclass(value) and not isinstance(value, type):
        own = {field.name: described(getattr(value, field.name)) for field in fields(value)}
        return {"class": type(value).__name__, **own}
    if isinstance(value, Mapping):
        return {str(key): described(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [described(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value)
