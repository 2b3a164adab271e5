"""Size of a net, how it is trained, and when that ends."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

from dspn._arguments import require_type, whole_number
from dspn.errors import StructureError
from dspn.options import require_number

RATE_SHARE: Final = 0.3
"""What is left of the learning rate after a reduction."""


class Update(StrEnum):
    """What is done with a gradient."""

    GRADIENT = "gradient"
    ADAM = "adam"


@final
@dataclass(frozen=True)
class Schedule:
    """Training by truncated backpropagation through time, and when it ends.

    An update follows every window of `truncation` steps; the state of the net goes on from window
    to window, its gradient does not. After `patience` passes in a row without a better validation
    score, training goes back to the best net and on with a smaller learning rate, `reductions`
    times, and then ends. No gradient is longer than `clip_norm`; None for any length.
    """

    learning_rate: float
    update: Update
    truncation: int
    batch_size: int
    max_epochs: int
    patience: int
    reductions: int
    clip_norm: float | None
    weight_decay: float

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        for name in ("truncation", "batch_size", "max_epochs", "patience"):
            whole_number(getattr(self, name), name, StructureError)
        whole_number(self.reductions, "reductions", StructureError, least=0)
        require_type(self.update, Update, "update", StructureError)
        require_number("Schedule", "learning_rate", self.learning_rate, above=0)
        require_number("Schedule", "weight_decay", self.weight_decay, least=0)
        if self.clip_norm is not None:
            require_number("Schedule", "clip_norm", self.clip_norm, above=0)


@final
@dataclass(frozen=True)
class SliceNetSize:
    """Size of a net: LSTM units in each layer, layers, and the share of units dropped at random."""

    hidden_size: int
    num_layers: int = 1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        for name in ("hidden_size", "num_layers"):
            whole_number(getattr(self, name), name, StructureError)
        require_number("SliceNetSize", "dropout", self.dropout, least=0)
        if self.dropout >= 1:
            raise StructureError(
                f"`dropout` of SliceNetSize must be below 1, but is {self.dropout!r}; give a "
                "smaller share."
            )
