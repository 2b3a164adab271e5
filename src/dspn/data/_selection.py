"""Which sequences, or which slices of each, a selection keeps."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspn._checks import whole_number
from dspn.data._checks import Ragged, offsets_of, sequence_in_words
from dspn.errors import DataError

Rows = slice | NDArray[np.int64]


def one_index(key: Any, num_sequences: int) -> int:
    """The sequence that a whole number picks, counted from 0."""
    try:
        index = operator.index(key)
    except TypeError:
        raise DataError(
            "sequences are picked by a whole number, a slice, an index array or a boolean "
            f"mask, found {key!r}."
        ) from None
    if not -num_sequences <= index < num_sequences:
        raise IndexError(f"sequence {index} is out of range: there are {num_sequences}.")
    return index % num_sequences


def many_indices(key: NDArray[Any], num_sequences: int) -> NDArray[np.int64]:
    """The sequences that an index array or a boolean mask picks."""
    if key.dtype.kind == "b" and key.shape == (num_sequences,):
        return np.flatnonzero(key)
    if key.ndim != 1 or (key.size and key.dtype.kind not in "iu"):
        raise DataError(
            f"an index array must hold whole numbers in one dimension and a mask "
            f"{num_sequences} booleans, one for each sequence, found shape {key.shape} "
            f"and type {key.dtype}."
        )
    return np.arange(num_sequences)[key.astype(np.int64)]


def rows_of(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Rows:
    """Rows `starts[i]`, `starts[i] + 1`, ... of each run, one run after the other."""
    offsets = offsets_of(lengths)
    shifts = starts - offsets[:-1]
    if (shifts == shifts[0]).all():
        return slice(int(starts[0]), int(starts[0]) + int(offsets[-1]))
    return np.arange(offsets[-1]) + np.repeat(shifts, lengths)


def cut(
    ragged: Ragged, start: int | None, stop: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First row and length of what `[start:stop]` leaves of each sequence."""
    lengths = np.diff(ragged.offsets)
    first = _bound(start, "start", lengths, 0 * lengths)
    last = _bound(stop, "stop", lengths, lengths)
    if (first >= last).any():
        index = int(np.argmax(first >= last))
        raise DataError(
            f"every sequence must keep at least one slice, but [{start}:{stop}] leaves nothing of "
            f"{sequence_in_words(index, ragged.ids)}, which has {lengths[index]}; leave it out "
            "first."
        )
    return ragged.offsets[:-1] + first, last - first


def _bound(
    given: int | None, argument: str, lengths: NDArray[np.int64], default: NDArray[np.int64]
) -> NDArray[np.int64]:
    """A bound of a Python slice for each length: from the end where negative, clipped."""
    if given is None:
        return default
    number = whole_number(given, argument, DataError, least=None)
    return np.clip(number + lengths if number < 0 else number, 0, lengths)
