"""Arrays of any of the accepted layouts to one matrix and the length of each sequence.

The matrix is new, C-contiguous, and of type float64, bool or object.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspn.data._checks import checked_ids, checked_lengths, sequence_in_words
from dspn.errors import DataError

_NUMERIC = "biuf"
_OBJECT = "OUT"

Packed = tuple[NDArray[Any], NDArray[np.int64]]


def pack_arrays(arrays: Any, ids: Iterable[Hashable] | None, argument: str) -> Packed:
    """Matrix of a list of (T_i, n) arrays, one below the other."""
    given = _listed(arrays, argument)
    if not given:
        raise DataError(f"`{argument}` must hold at least one sequence, found an empty list.")
    matrices = [
        item
        if type(item) is np.ndarray and item.ndim == 2 and item.dtype.kind in _NUMERIC
        else _matrix(item, f"sequence {index} of `{argument}`")
        for index, item in enumerate(given)
    ]
    lengths = checked_lengths(np.fromiter(map(len, matrices), np.int64, len(matrices)), ids=ids)
    kinds = {(matrix.shape[1], matrix.dtype) for matrix in matrices}
    if len({width for width, _ in kinds}) > 1:
        widths = np.array([matrix.shape[1] for matrix in matrices])
        odd = int(np.argmax(widths != widths[0]))
        named = sequence_in_words(odd, checked_ids(ids, len(matrices)))
        raise DataError(
            f"`{argument}` must all have the same number of columns, one for each variable, but "
            f"sequence 0 has {widths[0]} and {named} has {widths[odd]}."
        )
    if any(dtype.kind == "O" for _, dtype in kinds):
        matrices = list(map(_with_booleans, given, matrices))
    return stacked(matrices), lengths


def _with_booleans(item: Any, matrix: NDArray[Any]) -> NDArray[Any]:
    # numpy turns the booleans of [[True, 1.0]] into numbers, which other sequences have as objects.
    if hasattr(item, "dtype"):
        return matrix
    return np.asarray(item, dtype=object).reshape(matrix.shape)


def pack_concatenated(x: Any, lengths: Any, ids: Iterable[Hashable] | None) -> Packed:
    """Matrix of sequences that are already one below the other."""
    matrix = _matrix(x, "`x`")
    sizes = checked_lengths(lengths, ids=ids)
    if sizes.sum() != len(matrix):
        raise DataError(
            f"`lengths` must sum to the number of rows of `x`, {len(matrix)}, but sum to "
            f"{sizes.sum()}."
        )
    return stacked([matrix]), sizes


def pack_padded(array: Any, lengths: Any, ids: Iterable[Hashable] | None) -> Packed:
    """Matrix of the first `lengths[i]` slices of each (T, n) layer; all T without lengths."""
    padded = readable_array(array, "`array`")
    if padded.ndim == 2:
        padded = padded[:, :, np.newaxis]
    if padded.ndim != 3:
        raise DataError(
            "`array` must have three dimensions, (sequences, slices, variables), or two for one "
            f"variable, but has shape {padded.shape}."
        )
    num_sequences, num_slices, _ = padded.shape
    sizes = checked_lengths(
        np.full(num_sequences, num_slices) if lengths is None else lengths, ids=ids
    )
    if sizes.size != num_sequences:
        raise DataError(
            f"`lengths` must hold one length for each of the {num_sequences} sequences of "
            f"`array`, found {sizes.size}."
        )
    if sizes.max() > num_slices:
        longest = int(np.argmax(sizes))
        raise DataError(
            f"`lengths` must not exceed the {num_slices} slices of `array`, but length {longest} "
            f"is {sizes[longest]}."
        )
    return stacked([padded[np.arange(num_slices) < sizes[:, np.newaxis]]]), sizes


def _listed(arrays: Any, argument: str) -> list[Any]:
    if isinstance(arrays, np.ndarray) and arrays.ndim == 2:
        raise DataError(
            f"`{argument}` must be a list of sequences, found one array of shape {arrays.shape}; "
            "write [array] for a single sequence, or use `Sequences.from_concatenated` with "
            "lengths."
        )
    is_table = hasattr(arrays, "columns")
    if is_table or isinstance(arrays, str | bytes | Mapping) or not isinstance(arrays, Iterable):
        remedy = "; use `Sequences.from_table` for a table" if is_table else ""
        raise DataError(
            f"`{argument}` must be a list of (T, n) arrays, found {type(arrays).__name__}{remedy}."
        )
    return list(arrays)


def _matrix(item: Any, named: str) -> NDArray[Any]:
    array = readable_array(item, named)
    if array.ndim == 1:
        array = array[:, np.newaxis]
    if array.ndim != 2:
        raise DataError(
            f"{named} must have two dimensions, (slices, variables), or one for a single "
            f"variable, but has shape {array.shape}."
        )
    return array


def readable_array(item: Any, named: str) -> NDArray[Any]:
    """An array of a kind that can be read: numbers and booleans, or objects."""
    if isinstance(item, np.ma.MaskedArray):
        mask, item = np.ma.getmaskarray(item), np.ma.getdata(item).astype(object)
        item[mask] = None
    try:
        array = np.asarray(item)
        if array.dtype.kind in _OBJECT:
            # numpy turns the numbers of [["a", 1.0]] into strings unless asked for objects.
            array = np.asarray(item, dtype=object)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{named} must be an array with the same number of values in every slice, but cannot "
            f"be read as one: {error}"
        ) from None
    if array.dtype.kind not in _NUMERIC and array.dtype != object:
        raise DataError(
            f"{named} must hold numbers, booleans or strings, found values of type {array.dtype}."
        )
    return array


def stacked(matrices: list[NDArray[Any]]) -> NDArray[Any]:
    """A new C-contiguous array of objects, of booleans if there is nothing else, or of float64."""
    width = matrices[0].shape[1]
    if not width:
        raise DataError("the data must have at least one column, found none.")
    kinds = {matrix.dtype.kind for matrix in matrices}
    kind = object if "O" in kinds else np.bool_ if kinds == {"b"} else np.float64
    if kind is object:
        matrices = [matrix.astype(object) for matrix in matrices]
    joined: NDArray[Any] = np.empty((sum(map(len, matrices)), width), dtype=kind)
    return np.concatenate(matrices, out=joined)
