"""`dspn watch`: a stream of slices, each answered before the next one is read."""

import csv
import io
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO, final

import pyarrow as pa
from typer import BadParameter

from dspn.atomic import write_atomically
from dspn.cli import source
from dspn.cli.console import ReaderGoneError, counted, note, sentence
from dspn.cli.options import Reading, Watching, parse_levels
from dspn.cli.query import free_name, predictions
from dspn.cli.sink import check_place, csv_lines, plain_json
from dspn.data.cells import code_cells
from dspn.data.files import require_encoding
from dspn.data.layout import Column, Unseen, Writing
from dspn.data.order import require_different
from dspn.data.schema import Schema, Variable, list_names
from dspn.errors import DataError, EvidenceError, ModelFileError
from dspn.inference.filter import Filter, FilterState
from dspn.io.codec import Contents
from dspn.io.files import pack, unpack
from dspn.io.json_values import JSON
from dspn.models.model import Model

Record = dict[str, Any]
_LONGEST_LINE: Final = 16 * 2**20
_SAVE_EVERY_S: Final = 1.0


def watch(model: Path, watching: Watching) -> None:
    """Answers every slice of standard input before the next one is read."""
    alarm = watching.alarm
    if alarm is not None and not 0 < alarm < 1:
        raise BadParameter(f"--alarm must be a probability between 0 and 1, but is {alarm:g}.")
    loaded = source.load_model(model)
    source.require_computable(loaded.schema, "`dspn watch`", is_stream=True)
    remembered = source.remembered_keys(loaded.provenance)
    writing = _writing(watching, remembered)
    streams = _Streams(loaded, watching.state, quiet=watching.quiet)
    keys: dict[str, str] | None = None
    is_first = True
    try:
        for row, record in _records(sys.stdin, watching, loaded.schema):
            try:
                if isinstance(record, DataError):
                    raise record
                if keys is None:
                    keys = _keys(record, watching, remembered)
                values = _slice(record, loaded.schema, watching, writing, row)
                answer = _answer(loaded, streams, watching, keys, row, record, values)
                _write(*answer, watching, writing.decimal or ".", with_header=is_first)
                streams.save_now_and_then()
                is_first = False
            except _UnreadError as error:
                if watching.strict:
                    raise
                note(f"note: {sentence(error)[:-1]}; the line is skipped.", quiet=watching.quiet)
    finally:
        streams.save()


@final
class _UnreadError(DataError):
    """A line of the input that cannot be read, which need not end the stream."""


def _writing(watching: Watching, remembered: dict[str, str]) -> Writing:
    """How cells of text are written, by default as in the table that the model was fitted to."""
    told = {name: own for name, own in remembered.items() if name in ("decimal", "missing")}
    read = Reading(missing=watching.missing, decimal=watching.decimal)
    return source.writing_of(source.as_fitted(read, {source.TABLE: told}, quiet=watching.quiet))


def _keys(record: Record, watching: Watching, remembered: dict[str, str]) -> dict[str, str]:
    """The columns of the streams and times: those of the options, or of the model's table."""
    keys = {}
    for key, given in (("sequence", watching.sequence), ("order", watching.order)):
        column = remembered.get(key) if given is None else given
        if column is not None and (given is not None or column in record):
            keys[key] = column
    if watching.sequence is None and "sequence" in keys:
        reason = "as the model was fitted; -s names another"
        note(f"note: streams by {keys['sequence']!r}, {reason}.", quiet=watching.quiet)
    return keys


def _answer(
    model: Model,
    streams: "_Streams",
    watching: Watching,
    keys: dict[str, str],
    row: int,
    record: Record,
    values: list[Any],
) -> tuple[Record, Record]:
    """Takes in one slice; returns its answer, and what is predicted of the next one."""
    sequence, order = keys.get("sequence"), keys.get("order")
    stream_id = None if sequence is None else _stream_id(record, sequence, row)
    stream, count = streams.get(stream_id)
    tails = stream.tails(values)
    step = stream.update(values)
    if step.surprise == float("inf"):
        note(f"note: row {row} is impossible; its stream begins anew.", quiet=watching.quiet)
        stream = streams.begin(stream_id)
    else:
        streams.put(stream_id, stream, count + 1)
    key = {} if sequence is None else {sequence: stream_id}
    if order is not None and order not in key:
        key[order] = record.get(order)
    known = {name: tail for name, tail in zip(model.schema.names, tails.tolist(), strict=True)}
    known = {name: tail for name, tail in known.items() if tail == tail}
    oddest = min(known, key=known.__getitem__) if known else None
    tail = known[oddest] if oddest is not None else None
    numbers: Record = {"slice": count, "surprise": step.surprise}
    numbers |= {"log_likelihood": step.log_likelihood, "oddest": oddest, "tail": tail}
    if watching.alarm is not None:
        alarmed = step.surprise == float("inf") or (tail is not None and tail < watching.alarm)
        numbers["alarm"] = int(alarmed)
        if alarmed and oddest is not None:
            when = f", {order} {record.get(order)}" if order is not None else ""
            which = "" if sequence is None else f" of {stream_id}"
            value = record.get(oddest)
            text = f"alarm: row {row}{which}{when}: {oddest!r} is {value}, tail {tail:.3g}"
            note(text, quiet=watching.quiet)
    numbers = _round_values(numbers, watching.digits)
    taken = [*key, *model.schema.names]
    answer = {**key, **{free_name(name, taken): value for name, value in numbers.items()}}
    columns = predictions(stream.predict, parse_levels(watching.levels))
    following = {name: pa.array(cells)[0].as_py() for name, cells in columns.items()}
    return answer, _round_values(following, watching.digits)


@final
class _Streams:
    """A filter for each stream, and the file that keeps their states."""

    def __init__(self, model: Model, path: Path | None, *, quiet: bool) -> None:
        self._model, self._path = model, path
        self._filters: dict[Any, tuple[Filter, int]] = {}
        self._saved_at, self._is_saved = time.monotonic(), True
        if path is not None:
            check_place(str(path))
            if path.exists():
                self._load(path)
                known = counted(len(self._filters), "stream")
                note(f"note: goes on with {known} of {str(path)!r}.", quiet=quiet)

    def get(self, stream_id: Any) -> tuple[Filter, int]:
        """The filter of a stream, and the number of its slices so far."""
        return self._filters.get(stream_id) or (self._model.filter(), 0)

    def put(self, stream_id: Any, stream: Filter, count: int) -> None:
        """Keeps what a stream has become."""
        self._filters[stream_id] = stream, count
        self._is_saved = False

    def begin(self, stream_id: Any) -> Filter:
        """Forgets a stream; the fresh filter."""
        self._filters.pop(stream_id, None)
        self._is_saved = False
        return self._model.filter()

    def save_now_and_then(self) -> None:
        """Saves if the last time is long ago."""
        if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Writes all states, if there is a file for them and something has changed."""
        if self._path is None or self._is_saved:
            return
        tensors: dict[str, Any] = {}
        streams: list[JSON] = []
        for number, (stream_id, (stream, count)) in enumerate(self._filters.items()):
            streams.append({"id": stream_id, "count": count})
            arrays = stream.state().to_arrays()
            tensors |= {f"{number}/{name}": array for name, array in arrays.items()}
        write_atomically(self._path, pack(Contents(tensors, {"streams": streams})))
        self._saved_at, self._is_saved = time.monotonic(), True

    def _load(self, path: Path) -> None:
        try:
            tensors, metadata, _ = unpack(path.read_bytes())
            streams = metadata["streams"]
            for number, described in enumerate(streams):  # type: ignore[arg-type]
                prefix = f"{number}/"
                own = {
                    name.removeprefix(prefix): array
                    for name, array in tensors.items()
                    if name.startswith(prefix)
                }
                stream = self._model.filter(FilterState.from_arrays(own))
                self._filters[described["id"]] = stream, int(described["count"])  # type: ignore
        except (OSError, ModelFileError, EvidenceError, KeyError, TypeError, ValueError) as error:
            reason = sentence(error).rstrip(".")
            raise DataError(
                "--state must be a file that `dspn watch` wrote with the same model, but "
                f"{str(path)!r} is not: {reason}. Name another file, or remove it."
            ) from None


def _round_values(record: Record, digits: int | None) -> Record:
    return {
        name: float(f"{value:.{digits}g}") if digits and isinstance(value, float) else value
        for name, value in record.items()
    }


def _wrong(number: int, finding: str, unit: str = "row") -> DataError:
    return _UnreadError(f"{unit} {number} of standard input {finding}.")


def _lines(stream: TextIO | None, encoding: str | None, strict: bool) -> Iterator[str]:
    """Lines as soon as they are complete, in UTF-8 or the encoding given, whatever the locale."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding=encoding or "utf-8-sig", errors="surrogateescape")
    for number in itertools.count(1):
        line = "" if stream is None else stream.readline(_LONGEST_LINE)
        if not line:
            return
        if len(line) == _LONGEST_LINE:
            rule = f"must have fewer than {_LONGEST_LINE:,} characters, but has more"
            raise _wrong(number, f"{rule}; is a quotation mark not closed?", unit="line")
        if strict and not source.is_utf8(line):
            rule = f"must be text in {encoding or 'UTF-8'}, but is not"
            raise _wrong(number, f"{rule}; say --encoding, or convert it", unit="line")
        yield line


def _records(
    stream: TextIO | None, watching: Watching, schema: Schema
) -> Iterator[tuple[int, Record | DataError]]:
    """Numbers of rows, and the rows by column, as soon as their line is complete.

    A row that cannot be read is an error that is not raised: the next one may be read.
    """
    delimiter, encoding = watching.delimiter, watching.encoding
    if encoding is not None:
        require_encoding(encoding)
    lines = _lines(stream, encoding, watching.strict)
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise DataError(f"{source.NOTHING} pipe a table into the command.")
    if first.lstrip().startswith("{"):
        for row, line in enumerate(itertools.chain([first], lines), start=1):
            if line.strip():
                yield row, _parse_json(line, row)
        return
    names = source.header_cells(first.encode(errors="surrogateescape"), source.STDIN, delimiter)
    require_different(source.quoted(source.STDIN), names)
    absent = [name for name in schema.names if name not in names]
    if 0 < len(absent) < len(schema.names):
        text = f"note: standard input has no {list_names(absent)}, taken as missing."
        note(text, quiet=watching.quiet)
    reader, row = csv.reader(lines, delimiter=delimiter or ","), 0
    while True:
        row += 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield row, _wrong(row, f"cannot be read: {error}")
            continue
        if len(cells or [""]) == len(names):
            yield row, dict(zip(names, cells or [""], strict=True))
        elif cells or len(names) == 1:
            rule = f"must have {len(names)} cells, as the header has, but has {len(cells)}"
            yield row, _wrong(row, rule)


def _parse_json(line: str, row: int) -> Record | DataError:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return _wrong(row, f"is no JSON object: {error}")
    if isinstance(record, dict):
        return record
    return _wrong(row, f"must be a JSON object, found {line[:200]!r}")


def _stream_id(record: Record, sequence: str, row: int) -> Any:
    name = record.get(sequence)
    if name in (None, "") or isinstance(name, list | dict) or not source.is_utf8(str(name)):
        rule = f"must name its stream in {sequence!r}, but has {str(record)[:200]}"
        raise _wrong(row, rule)
    return name


def _slice(
    record: Record, schema: Schema, watching: Watching, writing: Writing, row: int
) -> list[Any]:
    """The values of a slice; a cell that cannot be read is noted and missing, unless strict."""
    if record.keys().isdisjoint(schema.names):
        rule = f"must have the variables of the model, {', '.join(schema.names)}"
        raise DataError(f"row {row} of standard input {rule}, but has {', '.join(record)}.")
    unseen = Unseen() if watching.unknown == "missing" else None
    values = []
    for variable in schema:
        column = Column(variable.name, row, writing, unseen)
        try:
            values.append(_entry(record.get(variable.name), variable, column))
        except DataError as error:
            if watching.strict:
                raise
            values.append(None)
            note(f"note: {sentence(error)[:-1]}; taken as missing.", quiet=watching.quiet)
    source.note_unseen(unseen, f"row {row}: ", quiet=watching.quiet)
    return values


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


def _write(
    answer: Record, following: Record, watching: Watching, decimal: str, *, with_header: bool
) -> None:
    """Writes an answer to standard output at once: a JSON object, or a row of CSV.

    CSV has decimal commas and the delimiter of what is read where that has decimal commas.
    """
    if watching.json:
        text = json.dumps(plain_json({**answer, "next": following})) + "\n"
    else:
        row = {**answer, **{free_name(name, answer): value for name, value in following.items()}}
        cells = (str(v).replace(".", decimal) if isinstance(v, float) else v for v in row.values())
        lines = [row.keys(), cells] if with_header else [cells]
        mark = watching.delimiter if decimal == "," else None
        text = csv_lines(lines, mark or ",").decode()
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGoneError from None
