"""The steps that a net reads of a batch of sequences."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Bools, Floats, Ints
from dspn.data.schema import Kind, Schema
from dspn.data.sequences import Sequences
from dspn.errors import DataError

Singles = NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class Steps:
    """What a net reads: row `offsets[i] + t` is step t of sequence i; NaN where it is missing."""

    values: Singles
    offsets: Ints

    @property
    def lengths(self) -> Ints:
        """Number of steps of each sequence."""
        return np.diff(self.offsets)

    @property
    def have_gaps(self) -> Bools:
        """Whether something is missing, of each sequence."""
        rows = np.isnan(self.values).any(axis=1)
        return np.bincount(self._sequence_of_row[rows], minlength=self.lengths.size) > 0

    @property
    def _sequence_of_row(self) -> Ints:
        return np.repeat(np.arange(self.lengths.size), self.lengths)

    def select(self, picked: Bools) -> "Steps":
        """The sequences that are picked."""
        return self._kept(np.repeat(picked, self.lengths), self.lengths[picked])

    def until_observed(self, period: int) -> "Steps":
        """Without the whole periods behind the last step observed: they sum to one.

        Where nothing is observed no step is left.
        """
        owner, place = self._sequence_of_row, np.arange(len(self.values))
        place -= self.offsets[owner]
        observed = ~np.isnan(self.values).all(axis=1)
        lengths = np.zeros_like(self.lengths)
        np.maximum.at(lengths, owner[observed], (place[observed] // period + 1) * period)
        return self._kept(place < lengths[owner], lengths)

    def _kept(self, rows: Bools, lengths: Ints) -> "Steps":
        return Steps(self.values[rows], np.concatenate([[0], np.cumsum(lengths)]))

    def padded(self, picked: Ints) -> Singles:
        """(sequences, steps, width) of the sequences picked, zero behind the end of each."""
        lengths = self.lengths[picked]
        array = np.zeros((picked.size, int(lengths.max()), self.values.shape[1]), np.float32)
        for place, (start, length) in enumerate(zip(self.offsets[picked], lengths, strict=True)):
            array[place, :length] = self.values[start : start + length]
        return array


class Encoding(ABC):
    """Sequences as steps, one to one: what a step costs is what its slice, or part of it, costs."""

    @property
    @abstractmethod
    def log_units(self) -> Floats:
        """Log density of each variable less that of its steps: what the change of units costs."""

    @property
    @abstractmethod
    def steps_per_slice(self) -> int:
        """How many steps in a row are a slice."""

    @abstractmethod
    def steps(self, data: Sequences) -> Steps:
        """The steps of sequences; all steps of an entry that is missing are NaN."""


def require_complete(data: Sequences, argument: str) -> None:
    """Raises where an entry is missing: a net is trained to say every entry after all before."""
    missing = np.isnan(data.values)
    if not missing.any():
        return
    row, column = (int(place[0]) for place in np.nonzero(missing))
    index = int(np.searchsorted(data.offsets, row, side="right")) - 1
    raise DataError(
        f"`{argument}` must be complete, as an LSTM learns from every entry, but "
        f"{int(missing.sum())} entries are missing, the first of them variable "
        f"{data.schema[column].name!r} in slice {row - int(data.offsets[index])} of sequence "
        f"{index}; fill them, or leave such sequences out."
    )


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


def require_no_counts(schema: Schema) -> None:
    """Raises where a variable is a count, which the nets have no distribution for."""
    for variable in schema:
        if variable.kind is Kind.COUNT:
            raise DataError(
                "`train` must have categorical and continuous variables only, but variable "
                f"{variable.name!r} is a count; put its values into bins."
            )


def batches(lengths: Ints, size: int, rng: np.random.Generator | None) -> list[Ints]:
    """Indices of the sequences in batches of about one length; shuffled where there is an `rng`."""
    ties = np.arange(lengths.size) if rng is None else rng.permutation(lengths.size)
    order = np.lexsort((ties, lengths))
    cut = [order[start : start + size] for start in range(0, order.size, size)]
    return cut if rng is None else [cut[place] for place in rng.permutation(len(cut))]
