"""Cells of a table as the codes of a variable; every error names the column, the row and the value.

Rows are counted from 1, the first below the header.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dspn._arrays import Bools, Floats
from dspn.cli.console import plainly
from dspn.errors import DataError, DspnError
from dspn.sequences import Kind, Variable

MISSING: Final = ("NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None")
_LARGEST_WHOLE: Final = 2.0**53
_TRUTHS: Final = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0}


@final
class Unseen:
    """Counts the cells, by column, whose category the model does not know."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int) -> None:
        """So many cells more."""
        self._counts[name] += count

    def said(self) -> str | None:
        """What was taken as missing, in a sentence; None if nothing was."""
        total = self._counts.total()
        if not total:
            return None
        columns = ", ".join(f"{count:,} in {name!r}" for name, count in self._counts.items())
        cells = "1 cell has a category" if total == 1 else f"{total:,} cells have categories"
        return f"{cells} that the model does not know, taken as missing: {columns}."


@final
@dataclass(frozen=True)
class Column:
    """A column by name, the first of its rows here, and the words that mean a missing value.

    `unseen` counts categories that the model does not know, which are then missing; without it
    they are errors.
    """

    name: str
    first_row: int = 1
    missing: tuple[str, ...] = MISSING
    unseen: Unseen | None = None

    def is_lenient(self, unknown: Bools) -> bool:
        """Whether there is no error: nothing is unknown, or it is counted instead."""
        if self.unseen is not None:
            self.unseen.add(self.name, int(unknown.sum()))
        return self.unseen is not None or not unknown.any()

    def wrong(self, row: int, rule: str, value: Any, remedy: str = "") -> DataError:
        """The error of a cell, `row` being counted from 0 in this part of the column."""
        hint = f"; {remedy}" if remedy else ""
        return DataError(
            f"column {self.name!r} must hold {rule}, but row {self.first_row + row} has "
            f"{value!r}{hint}."
        )


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


@contextmanager
def convertible(name: str | None, cells: Any) -> Iterator[None]:
    """What Arrow and Python cannot make of cells, in words that name their column and type."""
    try:
        yield
    except DspnError:
        raise
    except (pa.ArrowException, ValueError, KeyError, OverflowError) as error:
        raise DataError(
            f"column {name!r} of type {cells.type} cannot be read: {plainly(error)}; convert it."
        ) from None


def plain(cells: Any) -> Any:
    """One array, without a dictionary."""
    if types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    if types.is_string_view(cells.type):
        cells = cells.cast(pa.large_string())
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def with_columns(table: Any, new: Mapping[str, Any]) -> Any:
    """The table with other cells in some of its columns, in time linear in their number."""
    fields = [
        pa.field(own.name, new[own.name].type) if own.name in new else own for own in table.schema
    ]
    columns = [
        new.get(own.name, column) for own, column in zip(table.schema, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, table.schema.metadata))


def is_text(kind: Any) -> bool:
    """Whether the type of a column is text."""
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_missing(cells: Any) -> Bools:
    """Where an array is null or NaN."""
    found: Bools = cells.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return found


def present_text(cells: Any, column: Column, kept: tuple[Any, ...] = ()) -> Any:
    """Text with null where a cell is empty or says that its value is missing; `kept` does not."""
    words = [word for word in ("", *column.missing) if word not in kept]
    return pc.if_else(pc.is_in(cells, pa.array(words, cells.type)), None, cells)


def numbers(cells: Any, column: Column, remedy: str = "") -> Floats:
    """The numbers of a column, NaN where missing."""
    cells = plain(cells)
    kind = cells.type
    if is_text(kind):
        cells = _text_as_numbers(present_text(cells, column), column, remedy)
    elif types.is_boolean(kind):
        cells = cells.cast(pa.int8())
    elif types.is_null(kind):
        return np.full(len(cells), np.nan)
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        raise DataError(
            f"column {column.name!r} must hold numbers, but is of type {kind}; convert it, "
            "leave it out with --variables, or name it with --order if it orders the slices."
        )
    found: Floats = np.array(cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    infinite = np.isinf(found)
    if infinite.any():
        row = int(np.argmax(infinite))
        raise column.wrong(row, "finite numbers", float(found[row]), "mark it as missing")
    return found


def _text_as_numbers(cells: Any, column: Column, remedy: str) -> Any:
    try:
        return cells.cast(pa.float64())
    except pa.ArrowInvalid:
        pass
    trimmed = pc.utf8_trim_whitespace(cells)
    for row, cell in enumerate(trimmed.to_pylist()):
        if cell is not None and not reads_as_number(cell):
            raise column.wrong(row, "numbers", cells[row].as_py(), remedy)
    return trimmed.cast(pa.float64())


def reads_as_number(cell: str) -> bool:
    """Whether text is a number, as tables write them."""
    try:
        pa.scalar(cell.strip()).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def coded(cells: Any, variable: Variable, column: Column) -> Floats:
    """The codes of a variable's cells, NaN where missing."""
    with convertible(column.name, cells):
        return _coded(cells, variable, column)


def _coded(cells: Any, variable: Variable, column: Column) -> Floats:
    categories = variable.categories
    if categories and isinstance(categories[0], str):
        return _coded_text(plain(cells), variable, column)
    if categories and isinstance(categories[0], bool):
        return _coded_truths(plain(cells), variable, column)
    found = numbers(cells, column, f"the model has it as {variable.kind}")
    if categories:
        return _coded_numbers(found, variable, column)
    if variable.kind is Kind.COUNT:
        _check_counts(found, column)
    return found


def _check_counts(found: Floats, column: Column) -> None:
    broken = (found < 0) | (np.floor(found) < found) | (found >= _LARGEST_WHOLE)
    if broken.any():
        row = int(np.argmax(broken))
        raise column.wrong(row, "counts, 0, 1, 2 and so on", _shortest(found[row]))


def _shortest(number: float) -> int | float:
    return int(number) if float(number).is_integer() else float(number)


def _unknown(column: Column, row: int, value: Any, variable: Variable) -> DataError:
    listed = ", ".join(map(repr, variable.categories[:6]))
    more = ", ..." if len(variable.categories) > 6 else ""
    remedy = "the model knows no other, mark it as missing, or say --unknown missing"
    return column.wrong(row, f"one of the categories {listed}{more}", value, remedy)


def _lookup(cells: Any, code_of: Callable[[Any], float | None]) -> tuple[Floats, Bools]:
    """The code of each cell, NaN for null, and where there is none; distinct cells count."""
    encoded = cells.dictionary_encode()
    codes = [code_of(value) for value in encoded.dictionary.to_pylist()]
    table = np.array([np.nan if code is None else code for code in codes] + [np.nan])
    unknown = np.array([code is None for code in codes] + [False])
    index = np.array(encoded.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False))
    return table[index], unknown[index]


def _coded_text(cells: Any, variable: Variable, column: Column) -> Floats:
    if types.is_null(cells.type):
        return np.full(len(cells), np.nan)
    texts = cells if is_text(cells.type) else cells.cast(pa.string())
    known = {category: float(code) for code, category in enumerate(variable.categories)}
    found, unknown = _lookup(present_text(texts, column, variable.categories), known.get)
    if not column.is_lenient(unknown):
        row = int(np.argmax(unknown))
        raise _unknown(column, row, texts[row].as_py(), variable)
    return found


def _truth(variable: Variable, cell: str) -> float | None:
    value = _TRUTHS.get(cell.strip().lower())
    return None if value is None else float(variable.categories.index(bool(value)))


def _coded_truths(cells: Any, variable: Variable, column: Column) -> Floats:
    if not is_text(cells.type):
        return _coded_numbers(numbers(cells, column), variable, column)
    found, unknown = _lookup(present_text(cells, column), partial(_truth, variable))
    if not column.is_lenient(unknown):
        row = int(np.argmax(unknown))
        raise column.wrong(row, "true and false", cells[row].as_py())
    return found


def _coded_numbers(found: Floats, variable: Variable, column: Column) -> Floats:
    categories = np.array(variable.categories, dtype=np.float64)
    order = np.argsort(categories)
    place = np.searchsorted(categories, found, sorter=order)
    codes = order[np.minimum(place, categories.size - 1)]
    present = ~np.isnan(found)
    unknown = present & (categories[codes] != found)
    if not column.is_lenient(unknown):
        row = int(np.argmax(unknown))
        raise _unknown(column, row, _shortest(found[row]), variable)
    return np.where(present & ~unknown, codes, np.nan)
