"""Slices from a pipe, one at a time, and what a model says of each."""

import csv
import io
import itertools
import json as json_text
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO, final

import pyarrow as pa

from dspn.cli.answers import free_name, prediction, with_median, without_extra
from dspn.cli.console import note
from dspn.cli.errors import ReaderGoneError
from dspn.cli.loading import TABLE, loaded
from dspn.cli.options import Unknown
from dspn.cli.reading import STDIN, check_columns, check_delimiter, header_cells
from dspn.cli.sinks import plain_json
from dspn.data import Variable
from dspn.data.cells import code_cells
from dspn.data.coding import Column, Unseen
from dspn.errors import DataError
from dspn.inference import Filter
from dspn.models import Model

Record = dict[str, Any]
_LONGEST_LINE: Final = 16 * 2**20


@final
@dataclass(frozen=True)
class Watch:
    """How slices are read, what is said of the next one, and how."""

    sequence: str | None
    levels: tuple[float, ...]
    missing: tuple[str, ...]
    unknown: Unknown
    delimiter: str | None
    digits: int | None
    json: bool
    quiet: bool


def watched(path: Path, watch: Watch) -> None:
    """Answers every slice before the next one is read."""
    model = loaded(path)
    sequence, levels, quiet = watch.sequence, with_median(watch.levels), watch.quiet
    filters: dict[Any, tuple[Filter, int]] = {}
    write = _json_writer(sys.stdout) if watch.json else _csv_writer(sys.stdout)
    for row, record in enumerate(_records(sys.stdin, watch.delimiter), start=1):
        if row == 1 and sequence is None:
            sequence = _remembered(model, record, quiet=quiet)
        name = _stream_name(record, sequence, row)
        stream, count = filters.get(name) or (model.filter(), 0)
        step = stream.update(_slice(record, model, watch, row))
        filters[name] = stream, count + 1
        known: dict[str, Any] = {} if sequence is None else {sequence: name}
        taken = [*known, *model.schema.names]
        known[free_name("slice", taken)] = count
        known[free_name("surprise", taken)] = step.surprise
        known[free_name("log_likelihood", taken)] = step.log_likelihood
        if step.surprise == float("inf"):
            note(f"note: row {row} is impossible; its stream begins anew.", quiet=quiet)
            del filters[name]
            stream = model.filter()
        ahead = without_extra(prediction(stream.predict(quantiles=levels)), watch.levels)
        found = {name: pa.array(values)[0].as_py() for name, values in ahead.items()}
        write(_shortened(known, watch.digits, sequence), _shortened(found, watch.digits))


def _shortened(record: Record, digits: int | None, kept: str | None = None) -> Record:
    """The record with its numbers rounded, but for the name of its stream."""
    if digits is None:
        return record
    return {
        name: float(f"{value:.{digits}g}") if isinstance(value, float) and name != kept else value
        for name, value in record.items()
    }


def _remembered(model: Model, record: Record, *, quiet: bool) -> str | None:
    """The column that named the sequences when the model was fitted, where the input has it."""
    kept: Any = model.provenance.get(TABLE)
    name = kept.get("sequence") if isinstance(kept, dict) else None
    if not isinstance(name, str) or name not in record:
        return None
    note(f"note: streams by {name!r}, as the model was fitted; -s names another.", quiet=quiet)
    return name


def _lines(stream: TextIO | None) -> Iterator[str]:
    """Lines as soon as they are complete, whatever encoding the locale has."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8-sig", errors="surrogateescape")
    for number in itertools.count(1):
        line = "" if stream is None else stream.readline(_LONGEST_LINE)
        if not line:
            return
        if len(line) == _LONGEST_LINE:
            raise DataError(
                f"line {number} of standard input must have fewer than {_LONGEST_LINE:,} "
                "characters, but has more; is a quotation mark not closed?"
            )
        if not _is_utf8(line):
            raise DataError(
                f"line {number} of standard input must be text in UTF-8, but is not; convert it "
                "first."
            )
        yield line


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _records(stream: TextIO | None, delimiter: str | None) -> Iterator[Record]:
    """Rows by column, as soon as their line is complete."""
    lines = _lines(stream)
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise DataError("there is nothing on standard input; pipe a table into the command.")
    if first.lstrip().startswith("{"):
        yield from _json_records(first, lines)
        return
    names = header_cells(first.encode(), STDIN, delimiter or ",")
    if delimiter is None:
        check_delimiter(names, STDIN, ",")
    check_columns(names, STDIN)
    rows = csv.reader(lines, delimiter=delimiter or ",")
    for row in itertools.count(1):
        try:
            cells = next(rows, None)
        except csv.Error as error:
            raise DataError(f"row {row} of standard input cannot be read: {error}.") from None
        if cells is None:
            return
        if not cells and len(names) > 1:
            continue
        cells = cells or [""]
        if len(cells) != len(names):
            raise DataError(
                f"row {row} of standard input must have {len(names)} cells, as the header has, "
                f"but has {len(cells)}."
            )
        yield dict(zip(names, cells, strict=True))


def _json_records(first: str, lines: Iterator[str]) -> Iterator[Record]:
    row = 0
    for line in (text for part in ([first], lines) for text in part):
        row += 1
        if not line.strip():
            continue
        try:
            record = json_text.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"row {row} of standard input is no JSON object: {error}.") from None
        if not isinstance(record, dict):
            raise DataError(f"row {row} of standard input must be a JSON object, found {line!r}.")
        yield record


def _stream_name(record: Record, sequence: str | None, row: int) -> Any:
    if sequence is None:
        return None
    name = record.get(sequence)
    if name in (None, "") or isinstance(name, list | dict) or not _is_utf8(str(name)):
        raise DataError(
            f"row {row} of standard input must name its stream in {sequence!r}, but has "
            f"{str(record)[:200]}."
        )
    return name


def _slice(record: Record, model: Model, watch: Watch, row: int) -> list[Any]:
    names = model.schema.names
    absent = [name for name in names if name not in record]
    if len(absent) == len(names):
        raise DataError(
            f"row {row} of standard input must have the variables of the model, "
            f"{', '.join(names)}, but has {', '.join(record)}."
        )
    unseen = Unseen() if watch.unknown is Unknown.MISSING else None
    columns = [Column(name, row, watch.missing, unseen) for name in names]
    found = [
        _entry(record.get(own.name), own, column)
        for own, column in zip(model.schema, columns, strict=True)
    ]
    said = None if unseen is None else unseen.said()
    if said is not None:
        note(f"note: row {row}: {said}", quiet=watch.quiet)
    return found


def _entry(cell: Any, variable: Variable, column: Column) -> Any:
    """The value of a cell as filters take it, None where it is missing."""
    try:
        cells = None if isinstance(cell, list | dict) else pa.array([cell])
    except (pa.ArrowException, UnicodeEncodeError, OverflowError):
        cells = None
    if cells is None:
        raise column.wrong(0, f"a value of kind {variable.kind}", cell)
    code = float(code_cells(cells, variable, column)[0])
    if code != code:
        return None
    return variable.categories[int(code)] if variable.categories else code


def _written(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise ReaderGoneError from None


def _json_writer(stream: TextIO) -> Callable[[Record, Record], None]:
    def write(known: Record, ahead: Record) -> None:
        _written(stream, json_text.dumps(plain_json({**known, "next": ahead})) + "\n")

    return write


def _csv_writer(stream: TextIO) -> Callable[[Record, Record], None]:
    begun = False

    def write(known: Record, ahead: Record) -> None:
        nonlocal begun
        row = {**known, **{free_name(name, known): value for name, value in ahead.items()}}
        text = io.StringIO()
        out = csv.writer(text, lineterminator="\n")
        if not begun:
            out.writerow(row)
            begun = True
        out.writerow(row.values())
        _written(stream, text.getvalue())

    return write
