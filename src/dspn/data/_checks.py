"""Rules every ragged batch obeys, each with an error that names the place where it is broken."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dspn._checks import float_array, whole_numbers
from dspn.data._kernels import first_broken
from dspn.data.schema import LARGEST_WHOLE, Kind, Schema, Variable
from dspn.errors import DataError

Ids = tuple[Hashable, ...]


@final
@dataclass(frozen=True)
class Ragged:
    """Where sequences begin and end in a contiguous array, and what they are called.

    `only` is what the one slice is called where there is a single one that belongs to a stream.
    """

    offsets: NDArray[np.int64]
    ids: Ids | None
    only: str | None = None

    def place(self, row: int) -> str:
        """Sequence and slice that hold a row, in words."""
        if self.only is not None:
            return self.only
        sequence = int(np.searchsorted(self.offsets, row, side="right")) - 1
        position = row - int(self.offsets[sequence])
        return f"{sequence_in_words(sequence, self.ids)}, slice {position} (counted from 0)"


def sequence_in_words(sequence: int, ids: Ids | None) -> str:
    """Index of a sequence, with its id where it has one."""
    return f"sequence {sequence}" + (f" (id {ids[sequence]!r})" if ids is not None else "")


def checked_ids(ids: Iterable[Hashable] | None, num_sequences: int) -> Ids | None:
    """One hashable id for each sequence, as plain Python values."""
    if ids is None:
        return None
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise DataError(f"`ids` must be a list with one id for each sequence, found {ids!r}.")
    ids = _in_units_of_python(ids)
    to_list = getattr(ids, "tolist", None)
    plain: Ids = tuple(to_list() if to_list is not None else ids)
    plain = tuple(
        _in_units_of_python(item).item() if isinstance(item, np.generic) else item for item in plain
    )
    if len(plain) != num_sequences:
        raise DataError(
            f"`ids` must hold one id for each of the {num_sequences} sequences, found {len(plain)}."
        )
    for index, item in enumerate(plain):
        try:
            hash(item)
        except TypeError:
            raise DataError(
                f"`ids` must be hashable (strings, numbers, tuples, ...), but id {index} is "
                f"{item!r}."
            ) from None
    return plain


def _in_units_of_python(times: Any) -> Any:
    """Times of NumPy in microseconds, as those of finer units become whole numbers of Python.

    Anything else is left as it is, and so are times that would lose digits.
    """
    dtype = getattr(times, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "mM":
        return times
    if np.datetime_data(dtype)[0] not in ("ns", "ps", "fs", "as"):
        return times
    found = times.astype(f"{dtype.kind}8[us]")
    return found if np.array_equal(found, times, equal_nan=True) else times


def checked_lengths(lengths: Any, *, ids: Iterable[Hashable] | None = None) -> NDArray[np.int64]:
    """Positive whole numbers, at least one."""
    result = whole_numbers(lengths, "lengths", DataError, least=0)
    if result.size == 0:
        raise DataError("`lengths` must hold at least one sequence, found none.")
    if not result.all():
        index = int(np.argmin(result != 0))
        named = sequence_in_words(index, checked_ids(ids, result.size))
        raise DataError(
            f"every sequence must have at least one slice, but {named} has none; leave it out."
        )
    return result


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Start of each sequence in the contiguous array, and the end of the last."""
    offsets = np.zeros(lengths.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def checked_offsets(
    offsets: Any, total_slices: int, ids: Iterable[Hashable] | None
) -> NDArray[np.int64]:
    """Whole numbers that begin at 0, rise strictly and end at the number of slices."""
    array = np.asarray(offsets)
    if array.ndim != 1 or array.size < 2 or array.dtype.kind not in "iu":
        raise DataError(
            "`offsets` must be whole numbers in one dimension, one more than there are sequences "
            f"and at least two, found shape {array.shape} and type {array.dtype}."
        )
    result = array.astype(np.int64)
    if result[0] != 0 or result[-1] != total_slices:
        raise DataError(
            f"`offsets` must begin at 0 and end at {total_slices}, the number of rows of `values`, "
            f"but run from {result[0]} to {result[-1]}."
        )
    lengths = np.diff(result)
    if (lengths < 0).any():
        index = int(np.argmax(lengths < 0))
        raise DataError(
            f"`offsets` must rise from sequence to sequence, but offset {index + 1} is "
            f"{result[index + 1]} after {result[index]}."
        )
    checked_lengths(lengths, ids=ids)
    return result


def coded_matrix(values: Any, num_variables: int) -> NDArray[np.float64]:
    """C-contiguous float64 copy of a matrix of numbers with this many columns."""
    remedy = "categories are given by their codes here, and as they are to `Sequences.from_arrays`"
    array = np.array(float_array(values, "values", DataError, remedy=remedy), order="C")
    if array.ndim != 2 or array.shape[1] != num_variables:
        raise DataError(
            f"`values` must have one row for each slice and {num_variables} columns, one for each "
            f"variable of the schema, but has shape {array.shape}."
        )
    return array


def check_values(values: NDArray[np.float64], schema: Schema, ragged: Ragged) -> None:
    """Coded values: category codes in range, whole counts, nothing infinite; NaN is missing."""
    whole = np.array([variable.kind is not Kind.CONTINUOUS for variable in schema])
    upper = np.array([_upper(variable) for variable in schema])
    lower = np.where(whole, 0.0, -np.inf)
    place = first_broken(values, lower, upper, whole)
    if place >= 0:
        row, column = divmod(place, values.shape[1])
        raise _broken_value(float(values[row, column]), schema[column], ragged.place(row))


def _upper(variable: Variable) -> float:
    if variable.kind is Kind.CONTINUOUS:
        return np.inf
    return float(variable.num_categories or LARGEST_WHOLE)


def _broken_value(value: float, variable: Variable, place: str) -> DataError:
    if variable.kind is Kind.CATEGORICAL:
        rule = (
            f"must be a category code, a whole number from 0 to {variable.num_categories - 1} "
            f"(categories {shortened(variable.categories)})"
        )
    elif variable.kind is Kind.COUNT:
        rule = "is a count and must be a whole number from 0 to below 2**53"
    else:
        rule = "must be finite"
    return DataError(
        f"variable {variable.name!r} {rule}, or NaN when missing, but is {value:g} in {place}."
    )


def in_words(variable: Variable) -> str:
    """Kind of a variable, with its categories where it has some."""
    if not variable.categories:
        return str(variable.kind)
    return f"{variable.kind} ({shortened(variable.categories)})"


def shortened(categories: tuple[Any, ...], *, most: int = 6) -> str:
    """Categories as text, the middle ones left out when there are many."""
    if len(categories) <= most:
        return ", ".join(repr(category) for category in categories)
    shown = ", ".join(repr(category) for category in categories[: most - 2])
    return f"{shown}, ..., {categories[-1]!r}"
