"""`dspn watch`: a stream of slices, each answered before the next one is read."""

import csv
import io
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import pyarrow as pa

from dspn.cli import source
from dspn.cli.console import ReaderGoneError, note
from dspn.cli.options import Watching, parse_levels
from dspn.cli.query import free_name, predictions
from dspn.cli.sink import csv_lines, plain_json
from dspn.data.cells import code_cells
from dspn.data.layout import Column, Unseen
from dspn.data.order import require_different
from dspn.data.schema import Schema, Variable
from dspn.errors import DataError
from dspn.inference.filter import Filter

Record = dict[str, Any]
_LONGEST_LINE: Final = 16 * 2**20


def watch(model: Path, watching: Watching) -> None:
    """Answers every slice of standard input before the next one is read."""
    sequence, quiet = watching.sequence, watching.quiet
    levels, words = parse_levels(watching.levels), source.missing_words(watching.missing)
    loaded = source.load_model(model)
    filters: dict[Any, tuple[Filter, int]] = {}
    for row, record in enumerate(_records(sys.stdin, watching.delimiter), start=1):
        if row == 1 and sequence is None:
            sequence = source.remembered_keys(loaded.provenance).get("sequence")
            sequence = sequence if sequence in record else None
            if sequence is not None:
                reason = "as the model was fitted; -s names another"
                note(f"note: streams by {sequence!r}, {reason}.", quiet=quiet)
        stream_id = None if sequence is None else _stream_id(record, sequence, row)
        stream, count = filters.get(stream_id) or (loaded.filter(), 0)
        unseen = Unseen() if watching.unknown == "missing" else None
        step = stream.update(_slice(record, loaded.schema, words, unseen, row))
        source.note_unseen(unseen, f"row {row}: ", quiet=quiet)
        filters[stream_id] = stream, count + 1
        if step.surprise == float("inf"):
            note(f"note: row {row} is impossible; its stream begins anew.", quiet=quiet)
            del filters[stream_id]
            stream = loaded.filter()
        key = {} if sequence is None else {sequence: stream_id}
        numbers = {"surprise": step.surprise, "log_likelihood": step.log_likelihood}
        numbers = _round_values({"slice": count, **numbers}, watching.digits)
        taken = [*key, *loaded.schema.names]
        answer = {**key, **{free_name(name, taken): value for name, value in numbers.items()}}
        columns = predictions(stream.predict, levels)
        following = {name: pa.array(cells)[0].as_py() for name, cells in columns.items()}
        following = _round_values(following, watching.digits)
        _write(answer, following, as_json=watching.json, with_header=row == 1)


def _round_values(record: Record, digits: int | None) -> Record:
    return {
        name: float(f"{value:.{digits}g}") if digits and isinstance(value, float) else value
        for name, value in record.items()
    }


def _wrong(number: int, finding: str, unit: str = "row") -> DataError:
    return DataError(f"{unit} {number} of standard input {finding}.")


def _lines(stream: TextIO | None) -> Iterator[str]:
    """Lines as soon as they are complete, in UTF-8 whatever the locale."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8-sig", errors="surrogateescape")
    for number in itertools.count(1):
        line = "" if stream is None else stream.readline(_LONGEST_LINE)
        if not line:
            return
        if len(line) == _LONGEST_LINE:
            rule = f"must have fewer than {_LONGEST_LINE:,} characters, but has more"
            raise _wrong(number, f"{rule}; is a quotation mark not closed?", unit="line")
        if not source.is_utf8(line):
            raise _wrong(number, "must be text in UTF-8, but is not; convert it", unit="line")
        yield line


def _records(stream: TextIO | None, delimiter: str | None) -> Iterator[Record]:
    """Rows by column, as soon as their line is complete."""
    lines = _lines(stream)
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise DataError(f"{source.NOTHING} pipe a table into the command.")
    if first.lstrip().startswith("{"):
        for row, line in enumerate(itertools.chain([first], lines), start=1):
            if line.strip():
                yield _parse_json(line, row)
        return
    names = source.header_cells(first.encode(), source.STDIN, delimiter)
    require_different(source.quoted(source.STDIN), names)
    row = 0
    try:
        for row, cells in enumerate(csv.reader(lines, delimiter=delimiter or ","), start=1):
            if len(cells or [""]) == len(names):
                yield dict(zip(names, cells or [""], strict=True))
            elif cells or len(names) == 1:
                rule = f"must have {len(names)} cells, as the header has, but has {len(cells)}"
                raise _wrong(row, rule)
    except csv.Error as error:
        raise _wrong(row + 1, f"cannot be read: {error}") from None


def _parse_json(line: str, row: int) -> Record:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _wrong(row, f"is no JSON object: {error}") from None
    if isinstance(record, dict):
        return record
    raise _wrong(row, f"must be a JSON object, found {line!r}")


def _stream_id(record: Record, sequence: str, row: int) -> Any:
    name = record.get(sequence)
    if name in (None, "") or isinstance(name, list | dict) or not source.is_utf8(str(name)):
        rule = f"must name its stream in {sequence!r}, but has {str(record)[:200]}"
        raise _wrong(row, rule)
    return name


def _slice(
    record: Record, schema: Schema, words: tuple[str, ...], unseen: Unseen | None, row: int
) -> list[Any]:
    if record.keys().isdisjoint(schema.names):
        rule = f"must have the variables of the model, {', '.join(schema.names)}"
        raise _wrong(row, f"{rule}, but has {', '.join(record)}")
    return [
        _entry(record.get(variable.name), variable, Column(variable.name, row, words, unseen))
        for variable in schema
    ]


def _entry(cell: Any, variable: Variable, column: Column) -> Any:
    """The value of a cell as filters take it, None if it is missing."""
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


def _write(answer: Record, following: Record, *, as_json: bool, with_header: bool) -> None:
    """Writes an answer to standard output at once: a JSON object, or a row of CSV."""
    if as_json:
        text = json.dumps(plain_json({**answer, "next": following})) + "\n"
    else:
        row = {**answer, **{free_name(name, answer): value for name, value in following.items()}}
        lines = [row.keys(), row.values()] if with_header else [row.values()]
        text = csv_lines(lines).decode()
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGoneError from None
