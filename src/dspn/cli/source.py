"""Input: tables that are read in record batches, and model files with the keys they remember."""

import csv
import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar, final

import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import ipc

from dspn.cli.console import CSV_COLUMN, note, plainly, show_progress
from dspn.cli.options import Format, Reading, Unknown
from dspn.data.chunks import Chunk, Source, chunks
from dspn.data.layout import MISSING, Unseen
from dspn.data.order import Keys, require_columns, require_different
from dspn.data.schema import Schema
from dspn.data.sequences import Sequences
from dspn.errors import DataError, ModelFileError
from dspn.models.model import Model

STDIN: Final = "-"
NOTHING: Final = "there is nothing on standard input;"
TABLE: Final = "table"
TYPED: Final[dict[str, Format]] = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
}
_EXTENSIONS: Final = {".csv": "csv", ".tsv": "tsv", ".txt": "csv", **TYPED}
_BATCH_ROWS: Final = 65_536
_LARGEST_HEADER: Final = 16 * 2**20
_ARROW: Final = b"ARROW1"
_IDENTITY: Final = ("st_size", "st_mtime_ns", "st_ino")
_UNREADABLE: Final = (OSError, EOFError, zlib.error, MemoryError, UnicodeDecodeError)
_DELIMITERS: Final = (";", "\t", "|", ",")

_AS_USUAL: Final = Reading()

Loaded = TypeVar("Loaded")
Read = Callable[[list[str]], Iterator[Any]]


def quoted(name: str) -> str:
    """A file for messages."""
    return "standard input" if name == STDIN else repr(name)


@contextmanager
def _reading(name: str, columns: Sequence[str] = ()) -> Iterator[None]:
    """Errors of the system and of Arrow as errors that name the file, the column and the row."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"there is no file {quoted(name)}.") from None
    except BrokenPipeError:
        raise
    except (*_UNREADABLE, pa.ArrowException) as error:
        raise DataError(f"{quoted(name)} cannot be read: {_reason(error, columns)}.") from None


def _reason(error: Exception, columns: Sequence[str]) -> str:
    match error:
        case EOFError():
            return "it is cut off; copy it again"
        case zlib.error():
            return f"it is damaged ({error})"
        case MemoryError():
            return "it does not fit into memory, or is damaged"
        case UnicodeDecodeError():
            return f"the name of a column must be text in UTF-8, but has {error.object!r}"
    match = CSV_COLUMN.match(str(error))
    number = int(match[1]) if match else len(columns)
    where = f"column {columns[number]!r}, " if number < len(columns) else ""
    return where + plainly(error)


@contextmanager
def open_table(name: str, read: Reading = _AS_USUAL) -> Iterator[Source]:
    """The table in a file, on standard input (`-`), or in a named pipe, read with these options."""
    if name == STDIN:
        if sys.stdin is None or sys.stdin.isatty():
            raise DataError(f"{NOTHING} name a data file, or pipe a table into the command.")
        yield _source(name, sys.stdin.buffer, read)
        return
    if os.path.isdir(name):
        raise DataError(f"{quoted(name)} is a directory; name a table in it.")
    is_pipe = os.path.exists(name) and not os.path.isfile(name)
    # What the caller does with the source may fail too, but not because it cannot be read.
    with _reading(name):
        file = open(name, "rb")  # noqa: SIM115 (closed below)
    with file:
        yield _source(name, file, read, None if is_pipe else os.fstat(file.fileno()))


def _source(name: str, file: Any, options: Reading, status: os.stat_result | None = None) -> Source:
    """The table in an open file; `status` is that of a regular file, None for a pipe."""
    with _reading(name):
        if status is None:
            kind, stream = _by_content(file, options.block_size)
        else:
            kind, stream = _by_extension(name, file, status)
        is_text = kind in ("csv", "tsv")
        if is_text:
            schema, read = _text(stream, name, options, "\t" if kind == "tsv" else ",")
        else:
            schema, read = _parquet(stream) if kind == "parquet" else _arrow(stream)
        require_different(quoted(name), schema.names)

    def batches(wanted: list[str]) -> Iterator[Any]:
        with _reading(name, schema.names):
            for batch in read(wanted):
                selected = batch.select(wanted)
                if not is_text:
                    _check_buffers(selected, name)
                for start in range(0, selected.num_rows, _BATCH_ROWS):
                    yield selected.slice(start, _BATCH_ROWS)
        if status is not None:
            _require_unchanged(name, status)

    def share() -> float | None:
        return None if status is None else min(file.tell() / status.st_size, 1.0)

    return Source(quoted(name), schema, is_text, batches, share)


def _check_buffers(batch: Any, name: str) -> None:
    """Raises if a column is damaged; Arrow reads any bytes, and trusts them afterwards."""
    for column, cells in zip(batch.schema.names, batch.columns, strict=True):
        try:
            cells.validate(full=True)
        except pa.ArrowException as error:
            finding = f"column {column!r} of {quoted(name)} is damaged: {plainly(error)}"
            raise DataError(f"{finding}; write the file again.") from None
    batch.validate()


def _require_unchanged(name: str, before: os.stat_result) -> None:
    now = os.stat(name) if os.path.exists(name) else None
    if now is None or any(getattr(now, key) != getattr(before, key) for key in _IDENTITY):
        size = "was removed" if now is None else f"has {now.st_size} now"
        raise DataError(
            f"{quoted(name)} changed while it was being read (it had {before.st_size} bytes, and "
            f"{size}); nothing was written, run the command again."
        )


def _by_extension(name: str, file: BinaryIO, status: os.stat_result) -> tuple[str, BinaryIO]:
    """The format of the extension, and the bytes of the table, unpacked if gzip has packed it."""
    base = os.path.basename(name).lower()
    extension = os.path.splitext(base.removesuffix(".gz"))[1]
    if extension not in _EXTENSIONS:
        raise DataError(
            f"{quoted(name)} must have one of the extensions {', '.join(_EXTENSIONS)}, which say "
            f"what is in it, but has {extension or 'none'!r}; rename it."
        )
    if not status.st_size:
        raise _empty(name)
    if base.endswith(".gz"):
        file = io.BufferedReader(gzip.GzipFile(fileobj=file, mode="rb"))
    return _EXTENSIONS[extension], file


def _by_content(stream: Any, block_size: int) -> tuple[str, BinaryIO]:
    """The format that the first bytes tell, CSV if they tell none, and the bytes of the table."""
    start = stream.read(6)
    for mark, kind in ((b"PAR1", "parquet"), (_ARROW, "arrow")):
        if start.startswith(mark):
            return kind, io.BytesIO(start + stream.read())
    return "csv", io.BufferedReader(_Joined(_blocks(start, stream, block_size)), block_size)


def _parquet(stream: BinaryIO) -> tuple[Any, Read]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(stream, pre_buffer=False)
    return file.schema_arrow, lambda wanted: file.iter_batches(
        _BATCH_ROWS, columns=wanted, use_threads=False
    )


def _arrow(stream: BinaryIO) -> tuple[Any, Read]:
    start = stream.read(6)
    stream.seek(0)
    if start != _ARROW:
        reader = ipc.open_stream(stream)
        return reader.schema, lambda _: iter(reader)
    file = ipc.open_file(stream)
    return file.schema, lambda _: map(file.get_batch, range(file.num_record_batches))


def _text(stream: Any, name: str, options: Reading, usual: str) -> tuple[Any, Read]:
    """Every cell as text: what a number is depends on the variable, and errors name the row.

    An empty line is no row. In a table of one column it is a row with an empty cell, except at the
    end of the file.
    """
    start = _header(stream)
    names = header_cells(start, name, options.delimiter, usual)
    schema = pa.schema([(column, pa.large_string()) for column in names])
    size, several = options.block_size, len(names) > 1

    def read(wanted: list[str]) -> Iterator[Any]:
        blocks = _blocks(start, stream, size)
        file = io.BufferedReader(_Joined(blocks if several else _with_one_end(blocks)), size)
        read = arrow_csv.ReadOptions(use_threads=False, block_size=size)
        parse = arrow_csv.ParseOptions(
            delimiter=options.delimiter or usual,
            newlines_in_values=True,
            ignore_empty_lines=several,
        )
        convert = arrow_csv.ConvertOptions(
            column_types=schema, include_columns=wanted, null_values=[""], strings_can_be_null=True
        )
        batches: Iterator[Any] = arrow_csv.open_csv(pa.PythonFile(file, "r"), read, parse, convert)
        return batches

    return schema, read


def _blocks(start: bytes, stream: Any, size: int) -> Iterator[bytes]:
    """Bytes that were read already, and the blocks of the stream that they were read from."""
    yield start
    while block := stream.read1(size):
        yield block


def _with_one_end(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks with one line end where they end with several."""
    ends = b""
    for block in blocks:
        text = (ends + block).rstrip(b"\r\n")
        ends = (ends + block)[len(text) :]
        yield text
    yield ends[:1]


@final
class _Joined(io.RawIOBase):
    """Blocks of bytes as a stream."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._block = blocks, b""

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer with the next bytes."""
        block = self._block or next(filter(None, self._blocks), b"")
        part, self._block = block[: len(buffer)], block[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _header(stream: BinaryIO) -> bytes:
    """The bytes of the first record, quoted line ends included."""
    lines: list[bytes] = []
    size = marks = 0
    while line := stream.readline(_LARGEST_HEADER):
        if lines or line.strip():
            lines.append(line)
            size, marks = size + len(line), marks + line.count(b'"')
            if marks % 2 == 0 or size > _LARGEST_HEADER:
                break
    return b"".join(lines)


def header_cells(start: bytes, name: str, delimiter: str | None, usual: str = ",") -> list[str]:
    """The names of the columns of a text table.

    Args:
        start: The bytes of the first record; more may follow.
        name: The file, for messages.
        delimiter: The character between the cells; None for the usual one, which is then checked.
        usual: The usual character.
    """
    try:
        # A carriage return alone ends a line too, as it does where Arrow reads the rows.
        text = io.StringIO(start.decode("utf-8-sig"), newline="")
        names = next(csv.reader(text, delimiter=delimiter or usual), [])
    except UnicodeDecodeError as error:
        raise DataError(
            f"{quoted(name)} must be text in UTF-8, but its header is not ({error.reason} at byte "
            f"{error.start}); convert it first."
        ) from None
    except csv.Error as error:
        raise DataError(f"the header of {quoted(name)} cannot be read: {error}.") from None
    if not names:
        raise _empty(name)
    if any("\0" in column for column in names):
        raise DataError(
            f"{quoted(name)} must be text in UTF-8, but its header has characters of code 0, as "
            "UTF-16 and files that hold no text have; convert it first."
        )
    others = [other for other in _DELIMITERS if other != usual and other in names[0]]
    if delimiter is None and len(names) == 1 and others:
        mark = "tab" if others[0] == "\t" else repr(others[0])
        raise DataError(
            f"{quoted(name)} has one column, {names[0]!r}, which looks like several with {mark} "
            f"between them; say --delimiter {mark}."
        )
    return names


def _empty(name: str) -> DataError:
    return DataError(f"{quoted(name)} is empty; a table has at least a header and a row.")


def load_file(path: Path, load: Callable[[Path], Loaded]) -> Loaded:
    """What a model file holds, read by `load`; all leaf families must be those of the library."""
    try:
        return load(path)
    except ModelFileError as error:
        if "families=" not in str(error):
            raise
        raise ModelFileError(
            f"{str(path)!r} has a leaf family that is not one of dspn, and commands know no "
            "others; load the model in Python, by dspn.load(path, families=[...])."
        ) from error


def load_model(path: Path) -> Model:
    """The model in a file."""
    model = load_file(path, Model.load)
    check_texts(path, model.schema)
    return model


def check_texts(path: Path, schema: Schema, classes: Iterable[Any] = ()) -> None:
    """Raises if a name, a category or a class is text that no table can hold."""
    named = (text for variable in schema for text in (variable.name, *variable.categories))
    for text in map(str, chain(named, classes)):
        if not is_utf8(text):
            raise DataError(
                f"{str(path)!r} must have names and categories that a table can hold, but "
                f"{text[:60]!r} has half of a surrogate pair; give it another name."
            )


def is_utf8(text: str) -> bool:
    """Whether text can be encoded: it has no halves of surrogate pairs."""
    return re.search("[\ud800-\udfff]", text) is None


def remember_keys(provenance: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    """The provenance, with the columns that name the sequences and their order."""
    return {**provenance, TABLE: {"sequence": keys.sequence, "order": keys.order}}


def remembered_keys(provenance: Mapping[str, Any] | None) -> dict[str, str]:
    """The key columns, `sequence` and `order`, of the table that a model was fitted to."""
    table: Any = (provenance or {}).get(TABLE)
    columns = table.items() if isinstance(table, dict) else ()
    return {name: column for name, column in columns if isinstance(column, str)}


def find_keys(source: Source, read: Reading, provenance: Any, *, quiet: bool) -> Keys:
    """The key columns: those of the options, or those of the table that the model was fitted to.

    Args:
        source: The table, which must have the columns.
        read: The options.
        provenance: The model's provenance, if there is a model.
        quiet: Do not note that the whole table is one sequence.
    """
    remembered = remembered_keys(provenance)
    columns: dict[str, Any] = {"sequence": read.sequence, "order": read.order}
    for key, option in columns.items():
        columns[key] = remembered.get(key) if option is None else option
        if columns[key] is not None:
            remedy = "" if option else f"the model was fitted with it, name another with --{key}"
            require_columns(source.title, source.columns, [columns[key]], remedy)
    keys = Keys(**columns)
    if keys.sequence is None:
        note("note: without --sequence the whole table is one sequence.", quiet=quiet)
    elif keys.sequence == keys.order:
        raise DataError(f"column {keys.order!r} cannot be both --sequence and --order.")
    return keys


def missing_words(given: str | None) -> tuple[str, ...]:
    """The words that mean a missing value."""
    return MISSING if given is None else tuple(word.strip() for word in given.split(","))


def read_chunks(
    source: Source,
    schema: Schema,
    provenance: Mapping[str, Any] | None,
    read: Reading,
    unknown: Unknown = "error",
    *,
    title: str = "read",
    quiet: bool = False,
    whole: bool = False,
    extra: Iterable[str] = (),
    along: Iterable[str] = (),
) -> Iterator[tuple[Chunk, Sequences]]:
    """Chunks of whole sequences, each with the codes of its variables; shows the progress.

    Args:
        source: The table.
        schema: The variables, which are columns of the table.
        provenance: The model's provenance, which remembers the key columns.
        read: The options for reading.
        unknown: What a category is that the schema does not have.
        title: The word for the progress.
        quiet: No notes and no progress.
        whole: All rows in one chunk.
        extra: Further columns that are needed.
        along: Further columns that may have any type.
    """
    keys = find_keys(source, read, provenance, quiet=quiet)
    words = missing_words(read.missing)
    unseen = Unseen() if unknown == "missing" else None
    names = [*schema.names, *extra]
    with show_progress(title, quiet=quiet) as advance:
        choice: dict[str, Any] = {"sort": read.sort, "whole": whole, "chunk_rows": read.chunk_rows}
        for chunk in chunks(source, keys, names, along=along, **choice):
            yield chunk, chunk.sequences(schema, words, unseen)
            advance(chunk.table.num_rows, source.share())
    note_unseen(unseen, quiet=quiet)


def note_unseen(unseen: Unseen | None, where: str = "", *, quiet: bool) -> None:
    """Notes how many cells had unknown categories that were read as missing, if any had."""
    counts = None if unseen is None else unseen.sentence()
    if counts is not None:
        note(f"note: {where}{counts}", quiet=quiet)
