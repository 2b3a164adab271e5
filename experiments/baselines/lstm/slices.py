"""A recurrent net that reads whole slices and writes them variable by variable."""

from dataclasses import dataclass
from functools import partial
from typing import Final, final

from dspn._arguments import require_type, whole_number
from dspn.errors import StructureError
from dspn.learning.lstm.schedule import Schedule, SliceNetSize, Update
from dspn.learning.lstm.session import require_torch
from dspn.learning.lstm.steps import require_complete, require_no_counts, slice_code
from experiments.baselines.base import Baseline, FittedBaseline, Task

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
        require_complete(task.train, "train")
        require_complete(task.validation, "validation")
        require_no_counts(task.schema)
        require_torch("SliceLstm.fit")
        from dspn.learning.lstm.net import SliceNet, blocks_of
        from experiments.baselines.lstm._fitting import fit_best

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
