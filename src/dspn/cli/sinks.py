"""Parts of a table, written as CSV, JSON lines, Parquet or Arrow."""

import csv
import io
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO, final

import pyarrow as pa
import pyarrow.compute as pc

from dspn.cli.options import Format
from dspn.cli.reading import plainly
from dspn.data.cells import is_text, with_columns
from dspn.errors import DataError, DspnError


class Sink(ABC):
    """Takes the parts of a table, which all have the same columns."""

    @abstractmethod
    def write(self, table: Any) -> None:
        """One part more."""

    @abstractmethod
    def close(self) -> None:
        """The end of the table."""


@final
class CsvSink(Sink):
    """Cells with quotation marks only where they need them; missing is an empty cell."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._begun = False

    def write(self, table: Any) -> None:
        """One part more."""
        from pyarrow.csv import WriteOptions, write_csv

        table = _without_nan(_without_dictionaries(table))
        if not self._begun:
            self._file.write(_lines([table.column_names]))
            self._begun = True
        buffer = io.BytesIO()
        try:
            # Arrow either marks all text or refuses what needs marks; most text does not.
            options = WriteOptions(include_header=False, quoting_style="none")
            write_csv(table, buffer, options)
            self._file.write(buffer.getvalue())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            columns = [_as_text(own.name, table[own.name]) for own in table.schema]
            self._file.write(_lines(zip(*columns, strict=True)))
        self._file.flush()

    def close(self) -> None:
        """Nothing more to say."""


def _as_text(name: str, column: Any) -> list[str | None]:
    try:
        found: list[str | None] = column.cast(pa.large_string()).to_pylist()
    except pa.ArrowException as error:
        raise DataError(
            f"column {name!r} of type {column.type} cannot be written as CSV: {plainly(error)}; "
            "choose another --format."
        ) from None
    return found


def _lines(rows: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _without_dictionaries(table: Any) -> Any:
    columns = {
        field.name: table.column(number).cast(field.type.value_type)
        for number, field in enumerate(table.schema)
        if pa.types.is_dictionary(field.type)
    }
    return with_columns(table, columns)


def _without_nan(table: Any) -> Any:
    """NaN is a missing value, and an empty cell."""
    columns = {}
    for number, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            column = table.column(number)
            if pc.any(pc.is_nan(column)).as_py():
                columns[field.name] = pc.if_else(pc.is_nan(column), None, column)
    return with_columns(table, columns)


@final
class ArrowSink(Sink):
    """Parquet and Arrow files; the first part says what the columns are."""

    def __init__(self, file: BinaryIO, form: Format) -> None:
        self._file = file
        self._form = form
        self._writer: Any = None
        self._schema: Any = None

    def write(self, table: Any) -> None:
        """One part more."""
        if self._form is Format.ARROW:
            table = _without_dictionaries(table)  # a file has room for one dictionary of a column
        if self._writer is None:
            self._schema = table.schema
            self._writer = self._opened(self._schema)
        self._writer.write_table(table.cast(self._schema))

    def _opened(self, schema: Any) -> Any:
        if self._form is Format.PARQUET:
            from pyarrow.parquet import ParquetWriter

            return ParquetWriter(self._file, schema)
        from pyarrow.ipc import new_file

        return new_file(self._file, schema)

    def close(self) -> None:
        """The end of the table."""
        if self._writer is not None:
            self._writer.close()


@final
class JsonSink(Sink):
    """An object on each line; missing is null, and infinite numbers are "inf" and "-inf"."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, table: Any) -> None:
        """One part more."""
        lines = [json.dumps(plain_json(row), default=str) for row in table.to_pylist()]
        self._file.write("".join(f"{line}\n" for line in lines).encode())
        self._file.flush()

    def close(self) -> None:
        """Nothing more to say."""


@final
class CountingSink(Sink):
    """Counts the rows that go through it."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.rows = 0

    def write(self, table: Any) -> None:
        """One part more."""
        try:
            self._sink.write(table)
        except DspnError:
            raise
        except (pa.ArrowException, ValueError, KeyError, OverflowError) as error:
            raise DataError(
                f"the table cannot be written so: {plainly(error)}; choose another --format."
            ) from None
        self.rows += table.num_rows

    def close(self) -> None:
        """The end of the table."""
        self._sink.close()


def plain_json(value: Any) -> Any:
    """The value with null for NaN, and "inf" and "-inf" for what JSON has no number for."""
    if isinstance(value, dict):
        return {name: plain_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


@final
class TypedSink(Sink):
    """Gives columns of text a type: the one told, or the one that their first part reads as.

    Where no type was told, cells look the same when they are written again, in all parts.
    """

    def __init__(self, sink: Sink, types: Mapping[str, Any]) -> None:
        self._sink = sink
        self._types = types
        self._found: dict[str, Any] = {}

    def write(self, table: Any) -> None:
        """One part more."""
        columns = {
            field.name: self._typed(field.name, table.column(number))
            for number, field in enumerate(table.schema)
            if field.name in self._types and pa.types.is_large_string(field.type)
        }
        self._sink.write(with_columns(table, columns))

    def _typed(self, name: str, column: Any) -> Any:
        told = self._types[name]
        if told is None and name not in self._found:
            self._found[name] = _type_of(column)
        kind = self._found.get(name, told)
        try:
            return _kept(column, kind) if told is None else _converted(column, kind)
        except pa.ArrowInvalid as error:
            raise DataError(
                f"column {name!r} begins as {kind}, but does not stay so ({error}); write CSV, "
                "which has no types."
            ) from None

    def close(self) -> None:
        """The end of the table."""
        self._sink.close()


def _type_of(column: Any) -> Any:
    """Whole numbers and numbers that look the same when they are written again, or text."""
    if column.null_count == len(column):
        return pa.string()  # which has room for whatever the next parts hold
    for kind in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            _kept(column, kind)
            return kind
    return pa.string()


def _kept(column: Any, kind: Any) -> Any:
    """Text as another type; raises where it would not be the same text again."""
    found = column.cast(kind)
    again = found.cast(column.type)
    if not again.equals(column):
        row = pc.index(pc.equal(again, column), False).as_py()
        raise pa.ArrowInvalid(f"{column[row].as_py()!r} would be {again[row].as_py()!r}")
    return found


def _converted(column: Any, kind: Any) -> Any:
    if is_text(kind):
        return column.cast(kind)
    column = pc.utf8_trim_whitespace(column)
    if pa.types.is_integer(kind):
        with suppress(pa.ArrowInvalid):
            return column.cast(kind)
        return column.cast(pa.float64()).cast(kind)
    return column.cast(kind)
