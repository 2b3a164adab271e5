"""Arrays of every accepted layout as one matrix with offsets, and the rules their values keep."""

from __future__ import annotations

import os
import re
import reprlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Bools, Floats, Ints, float_array, require_type, whole_numbers
from dspn.data.schema import LARGEST_WHOLE, Kind, Schema, Variable, list_categories
from dspn.errors import DataError

Ids = tuple[Hashable, ...]
Packed = tuple[NDArray[Any], Ints]
"""A new C-contiguous matrix of float64, bool or object, and the length of each sequence."""

_NUMERIC = "biuf"
_OBJECT = "OUT"
_COUNTS: Final = "counts, whole numbers from 0 to below 2**53"
_BLOCK = 1 << 15  # entries that are checked at a time: they stay in the cache

_YEAR_FIRST: Final = r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}"
_YEAR_LAST: Final = r"\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}"
_MONTH: Final = r"(?i:(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*)"
_MONTH_NAMED: Final = rf"(\d{{1,2}}[- ]{_MONTH}[- ]\d{{4}}|{_MONTH} \d{{1,2}},? \d{{4}})"
_CLOCK: Final = r"\d{1,2}:\d{2}(:\d{2}.*)?"
_DATE: Final = rf"({_YEAR_FIRST}|{_YEAR_LAST}|{_MONTH_NAMED})"
_TIME: Final = re.compile(rf"\s*({_DATE}([T ]+{_CLOCK})?|{_CLOCK})\s*")

MISSING: Final = ("NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None")
"""Words that mean a missing value in the cells of a file."""


@final
@dataclass(frozen=True)
class Writing:
    """How the cells of a text table are written.

    `missing` are the words that mean a missing value. `decimal` is the decimal sign, "." or ",";
    the other one and spaces may then part thousands. Without it numbers have a point and nothing
    between thousands.
    """

    missing: tuple[str, ...] = MISSING
    decimal: str | None = None

    def __post_init__(self) -> None:
        if self.decimal not in (None, ".", ","):
            raise DataError(f"`decimal` must be '.' or ',', but is {self.decimal!r}.")


AS_USUAL: Final = Writing()


@final
@dataclass(frozen=True)
class Ragged:
    """Where sequences begin and end in a contiguous array, and their ids.

    `only` is what messages call the single slice that a stream has read.
    """

    offsets: Ints
    ids: Ids | None
    only: str | None = None

    def place(self, row: int) -> str:
        """Sequence and slice that hold a row, in words."""
        if self.only is not None:
            return self.only
        sequence = int(np.searchsorted(self.offsets, row, side="right")) - 1
        position = row - int(self.offsets[sequence])
        return f"{name_sequence(sequence, self.ids)}, slice {position} (counted from 0)"


def looks_like_time(text: str) -> bool:
    """Whether text is a date, a time of the day, or both."""
    return _TIME.fullmatch(text) is not None


@final
class Unseen(Counter[str]):
    """Numbers of cells, by column, whose category the model does not know."""

    def sentence(self) -> str | None:
        """What was taken as missing, in a sentence; None if nothing was."""
        total = self.total()
        if not total:
            return None
        columns = ", ".join(f"{count:,} in {name!r}" for name, count in self.items())
        cells = "1 cell has a category" if total == 1 else f"{total:,} cells have categories"
        return f"{cells} that the model does not know, taken as missing: {columns}."


@final
@dataclass(frozen=True)
class Column:
    """The name of a column, and where its cells come from.

    Attributes:
        name: Name of the column.
        first_row: Number of the first row, for cells of a file.
        writing: How cells of a file are written.
        unseen: Counts categories that the model does not know, which are then missing; without it
            they are errors.
        ragged: The sequences and slices of the rows, for data in memory, whose text is taken as it
            is; None for a file, where text may stand for numbers.
        is_input: Whether it is an input, which may not be missing.
        numbers: Number of each row in the file, where rows were left out or put in.
    """

    name: str
    first_row: int = 1
    writing: Writing = AS_USUAL
    unseen: Unseen | None = None
    ragged: Ragged | None = None
    is_input: bool = False
    numbers: Ints | None = None

    @property
    def is_file(self) -> bool:
        """Whether the cells come from a file."""
        return self.ragged is None

    def wrong(self, row: int, rule: str, value: Any, remedy: str = "") -> DataError:
        """The error of a cell, `row` counted from 0 in this part of the column."""
        number = self.first_row + row if self.numbers is None else int(self.numbers[row])
        place = f"row {number}" if self.ragged is None else self.ragged.place(row)
        noun = "column" if self.is_file else "input" if self.is_input else "variable"
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
            value = int(value)
        hint = f"; {remedy}" if remedy else ""
        return DataError(
            f"{noun} {self.name!r} must hold {rule}, but is {value!r} in {place}{hint}."
        )


@final
@dataclass(frozen=True, eq=False)
class TableKeys:
    """Names of the sequence and order columns of a table, and the order column's values.

    `order_values` has one entry for each slice, in the order of the batch; it is None when the
    table had no order column or when the order of some slice is not known.
    """

    sequence: str
    order: str | None = None
    order_values: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if self.order_values is not None:
            self.order_values.flags.writeable = False

    def rows(self, rows: slice | Ints) -> TableKeys:
        """Keys of the rows picked out."""
        if self.order_values is None:
            return self
        return replace(self, order_values=self.order_values[rows])


def name_sequence(sequence: int, ids: Ids | None) -> str:
    """Index of a sequence, with its id where it has one."""
    return f"sequence {sequence}" + (f" (id {ids[sequence]!r})" if ids is not None else "")


def check_ids(ids: Iterable[Hashable] | None, num_sequences: int) -> Ids | None:
    """One hashable id for each sequence, as plain Python values."""
    if ids is None:
        return None
    is_list = isinstance(ids, Iterable) and not isinstance(ids, str | bytes)
    plain = tuple(map(_plain_id, ids)) if is_list else ()
    if len(plain) != num_sequences:
        raise DataError(
            f"`ids` must be a list with one id for each of the {num_sequences} sequences, found "
            f"{len(plain) if is_list else repr(ids)}."
        )
    try:
        hash(plain)
    except TypeError as error:
        raise DataError(
            f"`ids` must be hashable (strings, numbers, tuples, ...), but one is not: {error}."
        ) from None
    return plain


def _plain_id(item: Any) -> Any:
    """A value of NumPy as one of Python; times in microseconds unless they would lose digits."""
    plain = item.item() if isinstance(item, np.generic) else item
    if isinstance(item, np.datetime64 | np.timedelta64) and isinstance(plain, int):
        coarse = item.astype(f"{item.dtype.kind}8[us]")
        return coarse.item() if coarse == item else plain
    return plain


def check_lengths(lengths: Any, ids: Iterable[Hashable] | None = None) -> Ints:
    """Positive whole numbers, at least one."""
    result = whole_numbers(lengths, "lengths", DataError, least=0)
    if result.size == 0:
        raise DataError("`lengths` must hold at least one sequence, found none.")
    if not result.all():
        empty = name_sequence(int(np.argmin(result)), check_ids(ids, result.size))
        raise DataError(
            f"every sequence must have at least one slice, but {empty} has none; leave it out."
        )
    return result


def first_offsets(offsets: Ints, num_slices: int) -> Ints:
    """The offsets of the sequences of the first slices, the last of them cut."""
    return np.unique(np.minimum(offsets, num_slices))


def offsets_of(lengths: Ints) -> Ints:
    """Start of each sequence in the contiguous array, and the end of the last."""
    offsets = np.zeros(lengths.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def check_offsets(offsets: Any, total_slices: int, ids: Iterable[Hashable] | None) -> Ints:
    """Whole numbers that begin at 0, rise strictly and end at the number of slices."""
    array = np.asarray(offsets)
    if array.ndim != 1 or array.size < 2 or array.dtype.kind not in "iu":
        raise DataError(
            "`offsets` must be whole numbers in one dimension, one more than there are sequences "
            f"and at least two, found shape {array.shape} and type {array.dtype}."
        )
    result = array.astype(np.int64)
    lengths = np.diff(result)
    if result[0] != 0 or result[-1] != total_slices or (lengths < 0).any():
        raise DataError(
            f"`offsets` must begin at 0, rise from sequence to sequence and end at {total_slices}, "
            f"the number of rows of `values`, found {reprlib.repr(result.tolist())}."
        )
    check_lengths(lengths, ids)
    return result


def check_matrix(values: Any, num_variables: int) -> Floats:
    """C-contiguous float64 copy of a matrix of numbers with this many columns."""
    remedy = "categories are given by their codes here, and as they are to `Sequences.from_arrays`"
    array = np.array(float_array(values, "values", DataError, remedy=remedy), order="C")
    if array.ndim != 2 or array.shape[1] != num_variables:
        raise DataError(
            f"`values` must have one row for each slice and {num_variables} columns, one for each "
            f"variable of the schema, but has shape {array.shape}."
        )
    return array


def pack_arrays(arrays: Any, ids: Iterable[Hashable] | None, argument: str) -> Packed:
    """Matrix of a list of (T_i, n) arrays, one below the other; messages call it `argument`."""
    _require_list(arrays, argument)
    items = list(arrays)
    if not items:
        raise DataError(f"`{argument}` must hold at least one sequence, found an empty list.")
    matrices = [
        item
        if type(item) is np.ndarray and item.ndim == 2 and item.dtype.kind in _NUMERIC
        else _matrix(item, f"sequence {index} of `{argument}`")
        for index, item in enumerate(items)
    ]
    lengths = check_lengths(np.fromiter(map(len, matrices), np.int64, len(matrices)), ids)
    widths = np.array([matrix.shape[1] for matrix in matrices])
    if (widths != widths[0]).any():
        odd = int(np.argmax(widths != widths[0]))
        raise DataError(
            f"`{argument}` must all have the same number of columns, one for each variable, but "
            f"sequence 0 has {widths[0]} and {name_sequence(odd, check_ids(ids, len(items)))} has "
            f"{widths[odd]}."
        )
    if any(matrix.dtype.kind == "O" for matrix in matrices):
        # NumPy makes numbers of the booleans of [[True, 1.0]]; other sequences have them as objects
        matrices = [
            matrix if hasattr(item, "dtype") else np.asarray(item, object).reshape(matrix.shape)
            for item, matrix in zip(items, matrices, strict=True)
        ]
    return stack(matrices), lengths


def pack_concatenated(x: Any, lengths: Any, ids: Iterable[Hashable] | None) -> Packed:
    """Matrix of sequences that are already one below the other."""
    matrix = _matrix(x, "`x`")
    sizes = check_lengths(lengths, ids)
    if sizes.sum() != len(matrix):
        raise DataError(
            f"`lengths` must sum to the number of rows of `x`, {len(matrix)}, but sum to "
            f"{sizes.sum()}."
        )
    return stack([matrix]), sizes


def pack_padded(array: Any, lengths: Any, ids: Iterable[Hashable] | None) -> Packed:
    """Matrix of the first `lengths[i]` slices of each (T, n) layer; all T without lengths."""
    padded = read_array(array, "`array`")
    if padded.ndim == 2:
        padded = padded[:, :, np.newaxis]
    if padded.ndim != 3:
        raise DataError(
            "`array` must have three dimensions, (sequences, slices, variables), or two for one "
            f"variable, but has shape {padded.shape}."
        )
    num_sequences, num_slices, _ = padded.shape
    sizes = check_lengths(np.full(num_sequences, num_slices) if lengths is None else lengths, ids)
    if sizes.size != num_sequences or sizes.max() > num_slices:
        raise DataError(
            f"`lengths` must hold a length of at most {num_slices} for each of the {num_sequences} "
            f"sequences of `array`, found {sizes.size} of at most {sizes.max()}."
        )
    return stack([padded[np.arange(num_slices) < sizes[:, np.newaxis]]]), sizes


def _require_list(arrays: Any, argument: str) -> None:
    if isinstance(arrays, np.ndarray) and arrays.ndim == 2:
        raise DataError(
            f"`{argument}` must be a list of sequences, found one array of shape {arrays.shape}; "
            "write [array] for a single sequence, or use `Sequences.from_concatenated` with "
            "lengths."
        )
    is_table = hasattr(arrays, "columns")
    if is_table or isinstance(arrays, str | bytes | Mapping) or not isinstance(arrays, Iterable):
        remedy = "; use `Sequences.from_table` for a table" if is_table else ""
        if isinstance(arrays, str | os.PathLike):
            remedy = (
                "; read the file first, as with pandas.read_csv, and say which columns name its "
                "sequences and order their slices, by `sequence` and `order`"
            )
        raise DataError(
            f"`{argument}` must be a list of (T, n) arrays, found {type(arrays).__name__}{remedy}."
        )


def _matrix(item: Any, name: str) -> NDArray[Any]:
    array = read_array(item, name)
    if array.ndim == 1:
        array = array[:, np.newaxis]
    if array.ndim != 2:
        remedy = "; for one sequence of one variable write [values]" if array.ndim == 0 else ""
        raise DataError(
            f"{name} must have two dimensions, (slices, variables), or one for a single "
            f"variable, but has shape {array.shape}{remedy}."
        )
    return array


def read_array(item: Any, name: str) -> NDArray[Any]:
    """An array of numbers and booleans, or of objects; messages call it `name`."""
    if isinstance(item, np.ma.MaskedArray):
        mask, item = np.ma.getmaskarray(item), np.ma.getdata(item).astype(object)
        item[mask] = None
    try:
        array = np.asarray(item)
        if array.dtype.kind in _OBJECT:
            # NumPy makes strings of the numbers of [["a", 1.0]] unless asked for objects.
            array = np.asarray(item, dtype=object)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{name} must be an array with the same number of values in every slice, but cannot "
            f"be read as one: {error}"
        ) from None
    if array.dtype.kind not in _NUMERIC and array.dtype != object:
        raise DataError(
            f"{name} must hold numbers, booleans or strings, found values of type {array.dtype}."
        )
    return array


def stack(matrices: list[NDArray[Any]]) -> NDArray[Any]:
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


# The rules of values


def check_names(
    names: Iterable[str] | None, schema: Schema | None, argument: str
) -> tuple[str, ...] | None:
    """Names of variables as the schema or the argument of this name gives them; None for neither.

    Args:
        names: The value of the argument.
        schema: The schema, which the names must not contradict.
        argument: What messages call `names`.
    """
    if isinstance(names, str):
        raise DataError(f"`{argument}` must be a list of names; write [{names!r}].")
    given = None if names is None else tuple(map(str, names))
    if given is not None and len(set(given)) < len(given):
        raise DataError(f"`{argument}` must be different names, found {list(given)}.")
    if schema is None:
        return given
    require_type(schema, Schema, "schema", DataError)
    if given is not None and given != schema.names:
        raise DataError(
            f"`{argument}` must be those of `schema`, {list(schema.names)}, when both are given, "
            f"found {list(given)}; leave `{argument}` out."
        )
    return schema.names


Bounds = tuple[Floats, Floats, Bools] | None
"""Least code of each variable, the bound above all codes, and whether codes are whole numbers.

None where no variable has whole numbers, so that codes must only be finite.
"""


def codes_are_values(variable: Variable) -> bool:
    """Whether the values of a variable stand for themselves: numbers, or categories 0, 1, 2, ..."""
    return variable.categories == tuple(range(variable.num_categories))


def value_rule(variable: Variable) -> str:
    """What the values of a variable must be, in words."""
    if variable.kind is Kind.CATEGORICAL:
        return f"one of the categories {list_categories(variable.categories)}"
    return "finite numbers" if variable.kind is Kind.CONTINUOUS else _COUNTS


def value_remedy(variable: Variable, column: Column) -> str:
    """What to do about a value that is not one of the variable's."""
    if variable.kind is Kind.CONTINUOUS:
        if column.is_input:
            return "correct it"
        other = "leave the cell empty" if column.is_file else "leave the entry out (NaN)"
    elif variable.kind is Kind.COUNT:
        other = "learn with this variable as continuous"
    elif column.is_file:
        other = "say --unknown missing to leave such cells out"
    else:
        other = "learn with a schema that has this category"
        if not isinstance(variable.categories[0], str):
            other += " (or a count, if the numbers count)"
        if not column.is_input:
            other += ", or leave the entry out (None)"
    return f"correct it, or {other}"


def value_bounds(variables: Iterable[Variable]) -> Bounds:
    """The bounds that `check_values` holds codes against."""
    whole = np.array([variable.kind is not Kind.CONTINUOUS for variable in variables])
    most = [float(variable.num_categories or LARGEST_WHOLE) for variable in variables]
    lower, upper = np.where(whole, 0.0, np.finfo(np.float64).min), np.where(whole, most, np.inf)
    return (lower, upper, whole) if whole.any() else None


def check_values(
    values: Floats, variables: Sequence[Variable] | Schema, column: Column, bounds: Bounds
) -> None:
    """Raise where a code is out of range, a count is not whole or a number is infinite.

    Args:
        values: Codes, a column for each variable; NaN is missing.
        variables: The variables.
        column: Says how messages name rows; the name is that of the variable.
        bounds: `value_bounds` of the variables.
    """
    width = values.shape[1]
    num_rows = min(len(values), max(1, _BLOCK // width))
    if bounds is not None and num_rows > 1:  # NumPy is slow where it repeats a short row
        lower, upper, whole = bounds
        bounds = np.tile(lower, num_rows), np.tile(upper, num_rows), np.tile(whole, num_rows)
    flat = values.reshape(-1)
    for start in range(0, flat.size, num_rows * width):
        block = flat[start : start + num_rows * width]
        if bounds is None:
            broken = np.isinf(block)
        else:
            lower, upper, whole = bounds
            broken = (block < lower[: block.size]) | (block >= upper[: block.size])
            broken |= whole[: block.size] & (np.floor(block) < block)
        if broken.any():
            place = start + int(np.argmax(broken))
            row, j = divmod(place, width)
            rule = value_rule(variables[j])
            if variables[j].categories:
                rule = f"category codes from 0 to {variables[j].num_categories - 1} for {rule}"
            named = replace(column, name=variables[j].name)
            remedy = value_remedy(variables[j], column)
            raise named.wrong(row, rule, float(flat[place]), remedy)
