"""Sequences that were recorded, with their classes and the split they came with."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats, Ints
from dspn.data import Schema, Sequences
from dspn.errors import DataError


@final
@dataclass(frozen=True, eq=False, repr=False)
class RealData:
    """Recorded sequences as they are in the files.

    `labels` is the class of each sequence, None where there are no classes; `train` and `test` are
    the indices of the official split, None where there is none.
    """

    name: str
    sequences: Sequences
    labels: NDArray[Any] | None = None
    train: Ints | None = None
    test: Ints | None = None

    def __post_init__(self) -> None:
        for field in ("labels", "train", "test"):
            given = getattr(self, field)
            if given is not None:
                own = np.array(given)
                own.flags.writeable = False
                object.__setattr__(self, field, own)

    def __repr__(self) -> str:
        parts = [f"{len(self.sequences)} sequences of {self.sequences.num_variables} variables"]
        if self.labels is not None:
            parts.append(f"{np.unique(self.labels).size} classes")
        if self.train is not None and self.test is not None:
            parts.append(f"split {self.train.size} / {self.test.size}")
        return f"RealData({self.name!r}: {', '.join(parts)})"


def counted(
    name: str, values: Floats, lengths: Ints, schema: Schema, *, num_sequences: int, slices: int
) -> Sequences:
    """The sequences that lie one below the other in `values`; raises unless all are there."""
    if lengths.size != num_sequences or len(values) != slices or lengths.sum() != slices:
        raise DataError(
            f"the files of the data set {name} must hold {num_sequences} sequences with {slices} "
            f"slices in all, but hold {lengths.size} with {len(values)}."
        )
    return Sequences.from_codes(values, np.concatenate([[0], np.cumsum(lengths)]), schema)


def split_at(num_train: int, num_sequences: int) -> tuple[Ints, Ints]:
    """Indices of the first `num_train` sequences, and of the others."""
    everything = np.arange(num_sequences, dtype=np.int64)
    return everything[:num_train], everything[num_train:]
