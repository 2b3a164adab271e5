"""The recurrent net of the paper: one input, one layer of LSTM units, one sigmoid."""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Bools, Floats, Ints, require_type, whole_number
from dspn.data import Schema, Sequences
from dspn.errors import DataError, StructureError
from dspn.learning.lstm.schedule import Schedule, Update
from dspn.learning.lstm.session import require_torch
from dspn.learning.lstm.steps import Encoding, Steps, require_complete
from experiments.baselines.base import Baseline, FittedBaseline, Task, require_categorical


@final
@dataclass(frozen=True)
class BitCode(Encoding):
    """Sequences as strings of bits: slice by slice, in a slice variable by variable.

    A category is its code in as many bits as the largest code has, the highest first; a binary
    variable is one bit, and a variable of one category none. A step is a bit and whether it was
    free: a bit that those before it leave no choice (the third of 110, of seven categories) has
    probability one, whatever the net says, so that the probabilities of all slices sum to one.
    """

    schema: Schema

    @property
    def log_units(self) -> Floats:
        """Bits have no unit."""
        return np.zeros(len(self.schema))

    @property
    def steps_per_slice(self) -> int:
        """Number of bits of a slice."""
        return sum(map(len, self.largest))

    @property
    def largest(self) -> tuple[tuple[int, ...], ...]:
        """The bits of the largest code of each variable."""
        return tuple(tuple(map(int, table[-1])) for table, _ in self._tables)

    @cached_property
    def _tables(self) -> tuple[tuple[NDArray[np.float32], Bools], ...]:
        return tuple(_table(variable.num_categories) for variable in self.schema)

    def steps(self, data: Sequences) -> Steps:
        """A row (bit, whether it was free) for each bit."""
        missing = np.isnan(data.values)
        codes: Ints = np.where(missing, 0, data.values).astype(np.int64)
        bits = [table[codes[:, column]] for column, (table, _) in enumerate(self._tables)]
        free = [flags[codes[:, column]] for column, (_, flags) in enumerate(self._tables)]
        both = np.stack([np.concatenate(bits, axis=1), np.concatenate(free, axis=1)], axis=-1)
        values = both.astype(np.float32)
        values[np.repeat(missing, [len(code) for code in self.largest], axis=1)] = np.nan
        return Steps(values.reshape(-1, 2), data.offsets * self.steps_per_slice)


def _table(num_categories: int) -> tuple[NDArray[np.float32], Bools]:
    """Bits of each code, and whether the other value of a bit begins a code too."""
    width = (num_categories - 1).bit_length()
    place = np.arange(width)[::-1]
    prefix = np.arange(num_categories)[:, np.newaxis] >> place
    # The least code that begins as this one does and then has the other bit.
    other = (prefix ^ 1) << place
    return (prefix & 1).astype(np.float32), other < num_categories


@final
@dataclass(frozen=True)
class BitLstmOptions:
    """Size and training of the net; the paper states `truncation` and `learning_rate` alone.

    Training ends after `patience` passes in a row without a better validation score. `num_draws` is
    how often what is missing is drawn when a sequence with gaps is scored.
    """

    hidden_size: int = 64
    truncation: int = 20
    learning_rate: float = 0.01
    update: Update = Update.GRADIENT
    batch_size: int = 8
    max_epochs: int = 200
    patience: int = 10
    num_threads: int = 1
    device: str = "cpu"
    num_draws: int = 100

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        for name in ("hidden_size", "num_threads", "num_draws"):
            whole_number(getattr(self, name), name, StructureError)
        require_type(self.device, str, "device", StructureError)
        _ = self.schedule

    @property
    def schedule(self) -> Schedule:
        """The same, as training reads it; the learning rate stays as it is."""
        return Schedule(
            learning_rate=self.learning_rate,
            update=self.update,
            truncation=self.truncation,
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            patience=self.patience,
            reductions=0,
            clip_norm=None,
            weight_decay=0.0,
        )


@final
class BitLstm(Baseline[FittedBaseline]):
    """P(sequence) as the product over its bits of P(bit | all before), from one sigmoid unit.

    The paper's net has one input, the current value, and one output, the probability of the next.
    A sequence of slices is read here as one string of bits, slice by slice and in a slice variable
    by variable (see `BitCode`), from a state of zeros and an input of one half, which is no bit.
    Sequences have to be categorical, and complete to learn from; where a sequence has gaps, its
    likelihood is estimated by draws of what is missing.
    """

    def __init__(self, options: BitLstmOptions | None = None) -> None:
        self.options = BitLstmOptions() if options is None else options
        require_type(self.options, BitLstmOptions, "options", StructureError)

    @property
    def name(self) -> str:
        """What tables call it."""
        return "LSTM, bit by bit"

    def _fitted(self, task: Task) -> FittedBaseline:
        """Trains the net on `train` until `validation` gets no better; keeps the best.

        An iteration is a pass over the training sequences.
        """
        require_complete(task.train, "train")
        require_complete(task.validation, "validation")
        require_categorical(task.schema, "an LSTM with one sigmoid")
        code = BitCode(task.schema)
        if not code.steps_per_slice:
            raise DataError(
                "`train` must have a variable with two categories or more, but each has one; "
                "there is nothing to learn."
            )
        require_torch("BitLstm.fit")
        from experiments.baselines.lstm._bit_net import BitNet
        from experiments.baselines.lstm._fitting import fit_best

        options = self.options
        makers = [lambda: BitNet(options.hidden_size, code.largest)]
        return fit_best(
            task,
            code,
            makers,
            options.schedule,
            num_threads=options.num_threads,
            device=options.device,
            num_draws=options.num_draws,
        )
