"""Cells of Arrow columns as raw columns and as codes; every error names the column and the row."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dspn._arguments import Bools, Floats
from dspn.data.coding import (
    BOOLEANS,
    SPACES,
    Raw,
    Reading,
    encode,
    number_pattern,
    number_signs,
    wrong_type,
)
from dspn.data.layout import Column, check_values, value_bounds
from dspn.data.schema import Kind, Variable
from dspn.errors import DataError, DspnError

# From this many cells of text on, only the distinct ones are looked at, where each occurs so often.
_MANY = 1_000
_REPEATED = 8


def is_text(kind: Any) -> bool:
    """Whether the type of a column is text."""
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_plain(kind: Any) -> bool:
    """Whether a type holds text, numbers, truths, dates or times, or a dictionary of them."""
    if types.is_dictionary(kind):
        kind = kind.value_type
    return (
        is_text(kind)
        or types.is_string_view(kind)
        or types.is_null(kind)
        or (types.is_primitive(kind) and not types.is_interval(kind))
        or types.is_decimal(kind)
    )


def plain(cells: Any) -> Any:
    """One array, without a dictionary or runs."""
    if types.is_run_end_encoded(cells.type):
        cells = pc.run_end_decode(cells)
    if types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    if types.is_string_view(cells.type):
        cells = cells.cast(pa.large_string())
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def is_missing(cells: Any) -> Bools:
    """Where an array is null or NaN."""
    found: Bools = cells.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return found


def to_integers(times: Any) -> Any:
    """Dates, times and durations as the integers that Arrow stores."""
    kind = pa.int32() if times.type.bit_width == 32 else pa.int64()
    return times.view(kind).to_numpy(zero_copy_only=False)


def with_columns(table: Any, new: Mapping[str, Any]) -> Any:
    """The table with other cells in some of its columns, in time linear in their number."""
    fields = [pa.field(f.name, new[f.name].type) if f.name in new else f for f in table.schema]
    columns = [
        new.get(name, cells) for name, cells in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, table.schema.metadata))


@contextmanager
def convertible(name: str | None, cells: Any) -> Iterator[None]:
    """Turn what Arrow and Python cannot convert into an error with the column and its type."""
    try:
        yield
    except DspnError:
        raise
    except (pa.ArrowException, ValueError, KeyError, OverflowError) as error:
        reason = str(error).strip().rstrip(".")
        kind = getattr(cells, "type", None) or getattr(cells, "dtype", "object")
        raise DataError(
            f"column {name!r} of type {kind} cannot be read: "
            f"{reason[:1].lower()}{reason[1:]}; convert it."
        ) from None


def as_usual(texts: Any, decimal: str | None) -> Any:
    """Text in which numbers are written as Arrow reads them, and other text is no number."""
    if decimal is None:
        return texts
    other = "," if decimal == "." else "."
    bare = pc.replace_substring_regex(texts, f"[{SPACES}{other}]", "")
    bare = pc.replace_substring(bare, decimal, ".")
    found = pc.match_substring_regex(texts, number_pattern(decimal))
    return pc.if_else(found, bare, pc.if_else(pc.is_null(texts), texts, "?"))


def reads_as_number(cell: str, decimal: str | None = None) -> bool:
    """Whether text is a number, as tables write them."""
    try:
        as_usual(pa.array([cell.strip()]), decimal).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def code_cells(cells: Any, variable: Variable, column: Column) -> Floats:
    """Codes of a variable's cells in a file, NaN where missing; raises where a cell is wrong."""
    with convertible(column.name, cells):
        cells = plain(cells)
        first = variable.categories[0] if variable.categories else 0.0
        if isinstance(first, str) and not is_text(cells.type):
            cells = cells.cast(pa.string())
        is_number = not isinstance(first, str | bool)
        remedy = f"the model has it as {variable.kind}: correct it, or add the word to --missing"
        raw = read_cells(cells, column, variable, is_number, remedy)
        return encode_checked(raw, variable, column)


def encode_checked(raw: Raw, variable: Variable, column: Column) -> Floats:
    """Codes of a raw column; raises where one breaks a rule of the variable."""
    codes, reading = raw
    if variable.categories or reading.labels:
        codes = encode(codes, reading, variable, column)
    check_values(codes[:, np.newaxis], (variable,), column, value_bounds((variable,)))
    return codes


def read_cells(
    cells: Any,
    column: Column,
    variable: Variable | None = None,
    is_number: bool | None = None,
    remedy: str = "",
) -> Raw:
    """Raw column of Arrow cells.

    Text of data in memory is taken as it is. In a file an empty cell and the words for a missing
    value are missing, and text may stand for numbers.

    Args:
        cells: Cells of the column.
        column: Name and origin of the column.
        variable: Variable whose categories never mean a missing value.
        is_number: Whether text of a file stands for numbers; found out if None.
        remedy: What to do about text that is no number.
    """
    declared = None
    if types.is_dictionary(cells.type) and cells.type.ordered and not column.is_file:
        declared = tuple(cells.dictionary.to_pylist())
    cells = plain(cells)
    if is_text(cells.type) and column.is_file and len(cells) > _MANY:
        with suppress(DataError):  # found again below, where the row is known
            encoded = cells.dictionary_encode()
            if len(encoded.dictionary) <= len(cells) // _REPEATED:
                distinct = encoded.dictionary
                values, reading = read_cells(distinct, column, variable, is_number, remedy)
                index = encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)
                return np.append(values, np.nan)[index], reading
    if is_text(cells.type) and column.is_file:
        kept = () if variable is None else variable.categories
        words = [word for word in ("", *column.writing.missing) if word not in kept]
        cells = pc.if_else(pc.is_in(cells, pa.array(words, cells.type)), None, cells)
        if is_number or (is_number is None and _holds_numbers(cells, column)):
            cells = parse_numbers(cells, column, remedy)
    kind = cells.type
    if is_text(kind):
        return _read_text(cells, declared)
    if types.is_null(kind):
        return np.full(len(cells), np.nan), Reading(declared=declared)
    if types.is_boolean(kind):
        cells = cells.cast(pa.int8())
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        if not column.is_file:
            raise wrong_type(column.name, f"is of type {kind}")
        raise DataError(
            f"column {column.name!r} must hold numbers, but is of type {kind}; convert it, "
            "leave it out with --variables, or name it with --order if it orders the slices."
        )
    values = np.array(cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    return values, Reading(declared=BOOLEANS if types.is_boolean(kind) else declared)


def _read_text(texts: Any, declared: tuple[Any, ...] | None) -> Raw:
    encoded = texts.dictionary_encode()
    words = np.array(encoded.dictionary.to_pylist(), dtype=object)
    rank = np.full(words.size + 1, np.nan)
    rank[np.argsort(words)] = np.arange(words.size)
    index = encoded.indices.fill_null(words.size).to_numpy(zero_copy_only=False)
    return rank[index], Reading(tuple(sorted(words.tolist())) or None, declared=declared)


def _holds_numbers(texts: Any, column: Column) -> bool:
    """Whether a column of text holds numbers, or words; raises where it holds both."""
    decimal = column.writing.decimal
    with suppress(pa.ArrowInvalid):
        as_usual(texts, decimal).cast(pa.float64())
        return True
    present = pc.unique(texts).drop_null().to_pylist()
    is_number = {cell: reads_as_number(cell, decimal) for cell in present}
    if len(set(is_number.values())) < 2:
        return all(is_number.values())
    first = is_number[present[0]]
    odd = next(cell for cell in present if is_number[cell] is not first)
    raise column.wrong(
        int(pc.index(texts, odd).as_py()),
        f"numbers or words, but not both, and begins with {'numbers' if first else 'words'}",
        odd,
        number_signs(present, column)
        or "correct it, add the word to --missing, or say --kind "
        + shlex.quote(f"{column.name}=categorical"),
    )


def parse_numbers(texts: Any, column: Column, remedy: str) -> Any:
    """Text as float64; raises where a cell is not a number."""
    decimal = column.writing.decimal
    with suppress(pa.ArrowInvalid):
        return as_usual(texts, decimal).cast(pa.float64())
    trimmed = pc.utf8_trim_whitespace(texts)
    for row, cell in enumerate(trimmed.to_pylist()):
        if cell is not None and not reads_as_number(cell, decimal):
            written = number_signs([cell], column)
            told = "; ".join(part for part in (remedy, written) if part)
            raise column.wrong(row, "numbers", texts[row].as_py(), told)
    return as_usual(trimmed, decimal).cast(pa.float64())


def decode_cells(codes: Floats, variable: Variable) -> Any:
    """What codes stand for, as an Arrow column; null where an entry is missing."""
    missing = np.isnan(codes)
    if variable.kind is Kind.CONTINUOUS:
        return pa.array(codes, mask=missing)
    whole = pa.array(np.where(missing, 0, codes).astype(np.int64), mask=missing)
    return pa.array(variable.categories).take(whole) if variable.categories else whole
