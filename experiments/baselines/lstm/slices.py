"""A recurrent net that reads whole slices and writes them variable by variable."""

from dataclasses import dataclass
from functools import partial
from typing import Final, final

import numpy as np

from dspn._arguments import Floats, require_type, whole_number
from dspn.data import Kind, Schema, Sequences
from dspn.errors import DataError, StructureError
from dspn.options import require_number
from experiments.baselines.base import Baseline, FittedBaseline, Task
from experiments.baselines.lstm._encoding import Encoding, Steps, require_complete_task
from experiments.baselines.lstm._session import require_torch
from experiments.baselines.lstm.schedule import Schedule, Update


@final
@dataclass(frozen=True, eq=False)
class SliceCode(Encoding):
    """A step is a slice: codes of categories, and standardised numbers."""

    means: Floats
    scales: Floats

    @property
    def log_units(self) -> Floats:
        """Log density in the units of the data, less that in standard deviations."""
        return -np.log(self.scales)

    @property
    def steps_per_slice(self) -> int:
        """A slice is a step."""
        return 1

    def steps(self, data: Sequences) -> Steps:
        """A row of codes and standardised numbers for each slice."""
        values = (data.values - self.means) / self.scales
        return Steps(values.astype(np.float32), data.offsets)


def slice_code(data: Sequences) -> SliceCode:
    """Standardised by mean and deviation; a number that never changes, by its mean alone."""
    continuous = np.array([variable.kind is Kind.CONTINUOUS for variable in data.schema])
    deviations = data.values.std(axis=0)
    means = np.where(continuous, data.values.mean(axis=0), 0.0)
    return SliceCode(means, np.where(continuous & (deviations > 0), deviations, 1.0))


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


DEFAULT_SIZES: Final = (
    SliceNetSize(64, 1, 0.2),
    SliceNetSize(128, 1, 0.4),
    SliceNetSize(256, 1, 0.5),
    SliceNetSize(128, 2, 0.4),
)


@final
@dataclass(frozen=True)
class SliceLstmOptions:
    """The sizes that validation chooses from, and the training of each.

    `num_components` is the number of Gaussians in the mixture of a continuous variable. After
    `patience` passes in a row without a better validation score training goes on from the best net
    with a smaller learning rate, `reductions` times, and then ends. `num_draws` is how often what
    is missing is drawn when a sequence with gaps is scored.
    """

    sizes: tuple[SliceNetSize, ...] = DEFAULT_SIZES
    num_components: int = 5
    learning_rate: float = 0.003
    weight_decay: float = 0.01
    batch_size: int = 32
    truncation: int = 200
    max_epochs: int = 300
    patience: int = 6
    reductions: int = 2
    clip_norm: float = 1.0
    num_threads: int = 1
    device: str = "cpu"
    num_draws: int = 100

    def __post_init__(self) -> None:
        """Refuse numbers out of range, and no sizes."""
        object.__setattr__(self, "sizes", tuple(self.sizes))
        if not self.sizes:
            raise StructureError("`sizes` must hold at least one SliceNetSize, but is empty.")
        for size in self.sizes:
            require_type(size, SliceNetSize, "sizes", StructureError)
        for name in ("num_components", "num_threads", "num_draws"):
            whole_number(getattr(self, name), name, StructureError)
        require_type(self.device, str, "device", StructureError)
        _ = self.schedule

    @property
    def schedule(self) -> Schedule:
        """The same, as training reads it."""
        return Schedule(
            learning_rate=self.learning_rate,
            update=Update.ADAM,
            truncation=self.truncation,
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            patience=self.patience,
            reductions=self.reductions,
            clip_norm=self.clip_norm,
            weight_decay=self.weight_decay,
        )


@final
class SliceLstm(Baseline[FittedBaseline]):
    """P(sequence) as the product of P(variable | those before it in the slice, all slices before).

    An LSTM reads the slices before, and a masked net the variables before in the order of the
    schema. Categories have a softmax, continuous variables a mixture of Gaussians. Sequences have
    to be complete to learn from; where one has gaps, its likelihood is estimated by draws of what
    is missing.
    """

    def __init__(self, options: SliceLstmOptions | None = None) -> None:
        self.options = SliceLstmOptions() if options is None else options
        require_type(self.options, SliceLstmOptions, "options", StructureError)

    @property
    def name(self) -> str:
        """What tables call it."""
        return "LSTM, whole slices"

    def _fitted(self, task: Task) -> FittedBaseline:
        """Trains a net of each size on `train`; keeps the best by `validation`.

        An iteration is a pass over the training sequences, with any of the nets.
        """
        require_complete_task(task)
        _require_no_counts(task.schema)
        require_torch("SliceLstm.fit")
        from experiments.baselines.lstm._fitting import fit_best
        from experiments.baselines.lstm._slice_net import SliceNet, blocks_of

        options = self.options
        blocks = blocks_of(task.schema, options.num_components)
        makers = [partial(SliceNet, blocks, size) for size in options.sizes]
        return fit_best(
            task,
            slice_code(task.train),
            makers,
            options.schedule,
            num_threads=options.num_threads,
            device=options.device,
            num_draws=options.num_draws,
        )


def _require_no_counts(schema: Schema) -> None:
    for variable in schema:
        if variable.kind is Kind.COUNT:
            raise DataError(
                "`train` must have categorical and continuous variables only, but variable "
                f"{variable.name!r} is a count; put its values into bins."
            )
