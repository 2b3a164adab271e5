"""Slices from a pipe, one at a time, and what a model says of each."""

import csv
import io
import json as json_text
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from dspn.cli.answers import free_name, prediction, with_median, without_extra
from dspn.cli.cells import Column, coded
from dspn.cli.console import note
from dspn.cli.errors import ReaderGoneError
from dspn.cli.loading import loaded
from dspn.cli.sinks import plain_json
from dspn.errors import DataError
from dspn.inference import Filter
from dspn.models import Model
from dspn.sequences import Variable

Record = dict[str, Any]


def watched(
    path: Path,
    sequence: str | None,
    levels: tuple[float, ...],
    missing: tuple[str, ...],
    *,
    json: bool,
    quiet: bool,
) -> None:
    """Answers every slice before the next one is read."""
    model = loaded(path)
    filters: dict[Any, tuple[Filter, int]] = {}
    write = _json_writer(sys.stdout) if json else _csv_writer(sys.stdout)
    for row, record in enumerate(_records(sys.stdin), start=1):
        name = _stream_name(record, sequence, row)
        stream, count = filters.get(name) or (model.filter(), 0)
        step = stream.update(_slice(record, model, missing, row))
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
        ahead = prediction(stream.predict(quantiles=with_median(levels)))
        columns = without_extra(ahead, levels)
        write(known, {name: pa.array(values)[0].as_py() for name, values in columns.items()})


def _records(stream: TextIO) -> Iterator[Record]:
    """Rows by column, as soon as their line is complete."""
    lines = iter(stream.readline, "")
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise DataError("there is nothing on standard input; pipe a table into the command.")
    if first.lstrip().startswith("{"):
        yield from _json_records(first, lines)
        return
    names = next(csv.reader([first.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")]))
    for row, cells in enumerate(csv.reader(lines), start=1):
        if not cells:
            continue
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
        except ValueError as error:
            raise DataError(f"row {row} of standard input is no JSON object: {error}.") from None
        if not isinstance(record, dict):
            raise DataError(f"row {row} of standard input must be a JSON object, found {line!r}.")
        yield record


def _stream_name(record: Record, sequence: str | None, row: int) -> Any:
    if sequence is None:
        return None
    name = record.get(sequence)
    if name in (None, "") or isinstance(name, list | dict):
        raise DataError(
            f"row {row} of standard input must name its stream in {sequence!r}, but has "
            f"{', '.join(f'{key}={value}' for key, value in record.items())[:200]}."
        )
    return name


def _slice(record: Record, model: Model, missing: tuple[str, ...], row: int) -> list[Any]:
    names = model.schema.names
    absent = [name for name in names if name not in record]
    if len(absent) == len(names):
        raise DataError(
            f"row {row} of standard input must have the variables of the model, "
            f"{', '.join(names)}, but has {', '.join(record)}."
        )
    return [_entry(record.get(own.name), own, missing, row) for own in model.schema]


def _entry(cell: Any, variable: Variable, missing: tuple[str, ...], row: int) -> Any:
    """The value of a cell as filters take it, None where it is missing."""
    column = Column(variable.name, row, missing)
    try:
        code = float(coded(pa.array([cell]), variable, column)[0])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise column.wrong(0, f"a value of kind {variable.kind}", cell) from None
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
