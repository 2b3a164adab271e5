"""Output: tables in parts, as CSV, JSON lines, Parquet or Arrow, written whole or not at all."""

import csv
import errno
import io
import json
import math
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import WriteOptions, write_csv

from dspn._arguments import Floats
from dspn.atomic import replacing
from dspn.cli.console import ReaderGoneError, counted, note, plainly
from dspn.cli.options import Format, Reading, Target
from dspn.cli.source import TYPED
from dspn.data.cells import as_usual, is_text, with_columns
from dspn.errors import DataError, DspnError

STDOUT: Final = "-"
_AS_USUAL: Final = Reading()
_EXTENSIONS: Final[dict[str, Format]] = {
    ".csv": "csv",
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **TYPED,
}


def output_format(target: Target) -> Format:
    """The format of the options, that of the file's extension, or CSV.

    Raises where the file cannot be written, so that this is known before any work.
    """
    name, extension = target.output, os.path.splitext(target.output)[1].lower()
    check_place(name)
    form: Format | None = "json" if target.json else target.format
    if form is None and name != STDOUT and extension not in _EXTENSIONS:
        raise DataError(
            f"the output {name!r} must have one of the extensions {', '.join(_EXTENSIONS)}, or "
            "--format must say what to write."
        )
    return form or _EXTENSIONS.get(extension, "csv")


def check_place(name: str) -> None:
    """Raises if a file cannot be written."""
    if name == STDOUT:
        return
    target = os.path.realpath(name)
    directory, exists, reason = os.path.dirname(target), os.path.exists(target), None
    if not os.path.isdir(directory):
        reason = f"there is no directory {directory!r}; create it"
    elif os.path.isdir(target):
        reason = "it is a directory; name a file in it"
    elif exists and not os.access(target, os.W_OK):
        reason = "permission denied"
    elif (not exists or os.path.isfile(target)) and not os.access(directory, os.W_OK):
        beside = "where a new file is written before it takes its name"
        reason = f"permission denied in {directory!r}, {beside}"
    if reason is not None:
        raise DataError(f"cannot write {name!r}: {reason}.")


@contextmanager
def write_table(
    target: Target,
    form: Format,
    types: Mapping[str, Any] | None = None,
    read: Reading = _AS_USUAL,
) -> Iterator["Sink"]:
    """A sink for the parts of a table; notes the number of rows when a file is complete.

    Args:
        target: Where the table goes.
        form: Its format.
        types: Columns that are text only because a CSV file has no types, and the types they get
            in other formats; None for whatever type their cells look like.
        read: How the table was read that the answers are about, where CSV has its decimal sign
            and its delimiter.
    """
    with _open_output(target.output) as file:
        sink = Sink(file, form, types, read)
        yield sink
        sink.close()
    if target.output != STDOUT:
        note(f"wrote {target.output}: {counted(sink.rows, 'row')}", quiet=target.quiet)


@contextmanager
def _open_output(name: str) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `name` at the end, unless something fails.

    The bytes go to a temporary file beside it, which reaches the disk and is renamed. Standard
    output, devices and pipes are written directly.
    """
    try:
        if name == STDOUT:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        target = os.path.realpath(name)
        mode = os.stat(target).st_mode if os.path.exists(target) else None
        direct = mode is not None and not stat.S_ISREG(mode)
        permissions = None if mode is None else stat.S_IMODE(mode)
        with open(target, "wb") if direct else replacing(target, permissions) as file:
            yield file
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise ReaderGoneError from None
        reason = plainly(error).lower()
        if name == STDOUT:
            raise DataError(f"cannot write to standard output: {reason}.") from error
        rest = "what was there before is unchanged"
        raise DataError(f"cannot write {name!r}: {reason}; {rest}.") from error


@final
class Sink:
    """Writes the parts of a table, which all have the same columns, and counts their rows.

    Args:
        file: Where the bytes go.
        form: The format.
        types: Types for columns of text, as `write_table` has them.
        read: The decimal sign and the delimiter of CSV, as `write_table` has them.
    """

    def __init__(
        self,
        file: Any,
        form: Format,
        types: Mapping[str, Any] | None = None,
        read: Reading = _AS_USUAL,
    ) -> None:
        self.rows = 0
        self._decimal, self._delimiter = read.decimal, read.delimiter or ","
        self._file, self._form = file, form
        self._types = {} if form == "csv" else dict(types or {})
        self._guessed: dict[str, Any] = {}
        self._writer: Any = None

    def write(self, table: Any) -> None:
        """Writes one more part."""
        try:
            table = _map_columns(table, self._typed)
            if self._form in ("csv", "json"):
                self._file.write(self._csv(table) if self._form == "csv" else _json_lines(table))
                self._file.flush()
            else:
                self._write_arrow(table)
        except DspnError:
            raise
        except (pa.ArrowException, ValueError, KeyError, OverflowError) as error:
            reason = f"the table cannot be written so: {plainly(error)}"
            raise DataError(f"{reason}; choose another --format.") from None
        self.rows += table.num_rows

    def close(self) -> None:
        """Ends the table."""
        if self._writer is not None:
            self._writer.close()

    def _csv(self, table: Any) -> bytes:
        """Quotation marks only where a cell needs them; a missing value is an empty cell."""
        table, buffer, mark = _map_columns(table, self._for_csv), io.BytesIO(), self._delimiter
        header = b"" if self.rows else csv_lines([table.column_names], mark)
        try:
            # Arrow either quotes all text or refuses text that needs quotes; most does not.
            how = WriteOptions(include_header=False, quoting_style="none", delimiter=mark)
            write_csv(table, buffer, how)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            columns = [_as_text(name, table[name]) for name in table.column_names]
            return header + csv_lines(zip(*columns, strict=True), mark)
        return header + buffer.getvalue()

    def _for_csv(self, name: str, column: Any) -> Any:
        """No dictionaries, null in place of NaN, which is a missing value, and decimal commas."""
        column = _without_dictionary(name, column)
        if not pa.types.is_floating(column.type):
            return column
        if pc.any(pc.is_nan(column)).as_py():
            column = pc.if_else(pc.is_nan(column), None, column)
        if self._decimal == ",":
            column = pc.replace_substring(column.cast(pa.large_string()), ".", ",")
        return column

    def _write_arrow(self, table: Any) -> None:
        """The first part decides the types of the columns."""
        if self._form == "arrow":  # a file has room for one dictionary of a column
            table = _map_columns(table, _without_dictionary)
        if self._writer is None:
            from pyarrow import ipc, parquet

            make = parquet.ParquetWriter if self._form == "parquet" else ipc.new_file
            self._writer, self._schema = make(self._file, table.schema), table.schema
        self._writer.write_table(table.cast(self._schema))

    def _typed(self, name: str, column: Any) -> Any:
        """A column of text with the type told for it, or the one that its first part reads as.

        Where no type was told, all cells look the same when they are written as text again.
        """
        if name not in self._types or not pa.types.is_large_string(column.type):
            return column
        kind = self._types[name]
        if kind is None:
            kind = self._guessed[name] = self._guessed.get(name) or _guess_type(column)
        try:
            if self._types[name] is None:
                return _convert_back_and_forth(column, kind)
            return _convert(column, kind, self._decimal)
        except pa.ArrowInvalid as error:
            finding = f"column {name!r} begins as {kind}, but does not stay so ({error})"
            raise DataError(f"{finding}; write CSV, which has no types.") from None


def _map_columns(table: Any, change: Callable[[str, Any], Any]) -> Any:
    """The table with each column changed by a function of its name and cells."""
    columns = zip(table.column_names, table.columns, strict=True)
    changed = {name: (column, change(name, column)) for name, column in columns}
    return with_columns(table, {k: new for k, (old, new) in changed.items() if new is not old})


def _without_dictionary(_: str, column: Any) -> Any:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _as_text(name: str, column: Any) -> Any:
    try:
        return column.cast(pa.large_string()).to_pylist()
    except pa.ArrowException as error:
        finding = f"column {name!r} of type {column.type} cannot be written as CSV"
        raise DataError(f"{finding}: {plainly(error)}; choose another --format.") from None


def csv_lines(rows: Any, delimiter: str = ",") -> bytes:
    """Rows of cells as lines of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", delimiter=delimiter).writerows(rows)
    return text.getvalue().encode()


def _json_lines(table: Any) -> bytes:
    rows = (json.dumps(plain_json(row), default=str) for row in table.to_pylist())
    return "".join(f"{row}\n" for row in rows).encode()


def plain_json(value: Any) -> Any:
    """The value with null for NaN, and "inf" and "-inf" for infinite numbers, as JSON has none."""
    if isinstance(value, dict):
        return {name: plain_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _guess_type(column: Any) -> Any:
    """Integers or numbers, if the cells look the same when they are written again, or text."""
    if column.null_count < len(column):  # text has room for whatever the next parts hold
        for kind in (pa.int64(), pa.float64()):
            with suppress(pa.ArrowInvalid):
                _convert_back_and_forth(column, kind)
                return kind
    return pa.string()


def _convert_back_and_forth(column: Any, kind: Any) -> Any:
    """Text as another type; raises if it would not be the same text again."""
    cast = column.cast(kind)
    again = cast.cast(column.type)
    if not again.equals(column):
        row = pc.index(pc.equal(again, column), False).as_py()
        raise pa.ArrowInvalid(f"{column[row].as_py()!r} would be {again[row].as_py()!r}")
    return cast


def _convert(column: Any, kind: Any, decimal: str | None) -> Any:
    column = column if is_text(kind) else as_usual(pc.utf8_trim_whitespace(column), decimal)
    if pa.types.is_integer(kind):
        with suppress(pa.ArrowInvalid):
            return column.cast(kind)
        column = column.cast(pa.float64())
    return column.cast(kind)


def rounded(values: Floats, digits: int | None) -> Floats:
    """The nearest numbers of so many significant digits; None for all digits."""
    if digits is None:
        return values
    # Only text rounds to decimals exactly; a multiple of a power of ten may be off by one bit.
    return np.array([float(f"{value:.{digits}g}") for value in values.tolist()], dtype=np.float64)


def round_table(table: Any, digits: int | None, exact: Collection[str] = ()) -> Any:
    """The table with rounded numbers, except in the columns `exact`."""

    def change(name: str, column: Any) -> Any:
        if name in exact or not pa.types.is_floating(column.type):
            return column
        cells = column.combine_chunks()
        missing = cells.is_null().to_numpy(zero_copy_only=False)
        values = rounded(np.asarray(cells.to_numpy(zero_copy_only=False)), digits)
        return pa.array(values, mask=missing)

    return table if digits is None else _map_columns(table, change)
