"""Files that hold tables: CSV and other text, Parquet and Arrow, read in record batches."""

import codecs
import csv
import glob
import gzip
import io
import os
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, final

import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import ipc

from dspn.data.chunks import Source
from dspn.data.order import require_different
from dspn.errors import CSV_COLUMN, DataError, plainly

STDIN: Final = "-"
NOTHING: Final = "there is nothing on standard input;"
TYPED: Final[dict[str, Any]] = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
}
EXTENSIONS: Final = {".csv": "csv", ".tsv": "tsv", ".txt": "csv", **TYPED}
BLOCK_SIZE: Final = 4 * 2**20
_BATCH_ROWS: Final = 65_536
_LARGEST_HEADER: Final = 16 * 2**20
_ARROW: Final = b"ARROW1"
_IDENTITY: Final = ("st_size", "st_mtime_ns", "st_ino")
_UNREADABLE: Final = (OSError, EOFError, zlib.error, MemoryError, UnicodeDecodeError)
_DELIMITERS: Final = (";", "\t", "|", ",")

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
def open_table(
    name: str,
    delimiter: str | None = None,
    block_size: int = BLOCK_SIZE,
    encoding: str | None = None,
) -> Iterator[Source]:
    """The table in a file, on standard input (`-`), or in a named pipe.

    Args:
        name: The file.
        delimiter: The character between the cells of text; None for the usual one.
        block_size: Number of bytes of text that are read at a time.
        encoding: The encoding of text; UTF-8 if None.
    """
    if encoding is not None:
        require_encoding(encoding)
    if name == STDIN:
        if sys.stdin is None or sys.stdin.isatty():
            raise DataError(f"{NOTHING} name a data file, or pipe a table into the command.")
        yield _source(name, sys.stdin.buffer, delimiter, block_size, encoding=encoding)
        return
    if os.path.isdir(name):
        raise DataError(f"{quoted(name)} is a directory; name a table in it.")
    is_pipe = os.path.exists(name) and not os.path.isfile(name)
    # What the caller does with the source may fail too, but not because it cannot be read.
    with _reading(name):
        file = open(name, "rb")  # noqa: SIM115 (closed below)
    with file:
        status = None if is_pipe else os.fstat(file.fileno())
        yield _source(name, file, delimiter, block_size, status, encoding)


def _source(
    name: str,
    file: Any,
    delimiter: str | None,
    block_size: int,
    status: os.stat_result | None = None,
    encoding: str | None = None,
) -> Source:
    """The table in an open file; `status` is that of a regular file, None for a pipe."""
    with _reading(name):
        if status is None:
            kind, stream = _by_content(file, block_size)
        else:
            kind, stream = _by_extension(name, file, status)
        is_text = kind in ("csv", "tsv")
        if is_text:
            usual = "\t" if kind == "tsv" else ","
            if encoding is not None:
                stream = _recoded(stream, encoding, block_size)
            schema, read = _text(stream, name, delimiter, usual, block_size)
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
    if extension not in EXTENSIONS:
        raise DataError(
            f"{quoted(name)} must have one of the extensions {', '.join(EXTENSIONS)}, which say "
            f"what is in it, but has {extension or 'none'!r}; rename it."
        )
    if not status.st_size:
        raise _empty(name)
    if base.endswith(".gz"):
        file = io.BufferedReader(gzip.GzipFile(fileobj=file, mode="rb"))
    return EXTENSIONS[extension], file


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


def _text(stream: Any, name: str, delimiter: str | None, usual: str, size: int) -> tuple[Any, Read]:
    """Every cell as text: what a number is depends on the variable, and errors name the row.

    An empty line is no row. In a table of one column it is a row with an empty cell, except at the
    end of the file.
    """
    start = _header(stream)
    names = header_cells(start, name, delimiter, usual)
    schema = pa.schema([(column, pa.large_string()) for column in names])
    several = len(names) > 1

    def read(wanted: list[str]) -> Iterator[Any]:
        blocks = _blocks(start, stream, size)
        file = io.BufferedReader(_Joined(blocks if several else _with_one_end(blocks)), size)
        read = arrow_csv.ReadOptions(use_threads=False, block_size=size)
        parse = arrow_csv.ParseOptions(
            delimiter=delimiter or usual,
            newlines_in_values=True,
            ignore_empty_lines=several,
        )
        convert = arrow_csv.ConvertOptions(
            column_types=schema, include_columns=wanted, null_values=[""], strings_can_be_null=True
        )
        batches: Iterator[Any] = arrow_csv.open_csv(pa.PythonFile(file, "r"), read, parse, convert)
        return batches

    return schema, read


def require_encoding(encoding: str) -> None:
    """Raises unless Python knows the encoding."""
    try:
        codecs.lookup(encoding)
        is_text = codecs.lookup(encoding)._is_text_encoding
    except LookupError:
        is_text = False
    if not is_text:
        raise DataError(
            "`encoding` must be one that Python knows, such as latin-1, cp1252 or utf-16, but is "
            f"{encoding!r}."
        )


def _recoded(stream: Any, encoding: str, size: int) -> BinaryIO:
    """Text of another encoding in UTF-8."""

    def blocks() -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder(encoding)()
        try:
            for block in _blocks(b"", stream, size):
                yield decoder.decode(block).encode()
            yield decoder.decode(b"", final=True).encode()
        except UnicodeError as error:
            raise DataError(
                f"the text must be in the encoding {encoding}, but is not ({error}); name another."
            ) from None

    return io.BufferedReader(_Joined(blocks()), size)


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
            f"{error.start}); say --encoding, for example --encoding cp1252, or convert it first."
        ) from None
    except csv.Error as error:
        raise DataError(f"the header of {quoted(name)} cannot be read: {error}.") from None
    if not names:
        raise _empty(name)
    if any("\0" in column for column in names):
        raise DataError(
            f"{quoted(name)} must be text in UTF-8, but its header has characters of code 0, as "
            "UTF-16 and files that hold no text have; say --encoding utf-16, or convert it first."
        )
    if len(names) == 1 and names[0].lstrip().startswith("#"):
        raise DataError(
            f"the first line of {quoted(name)} must be the header, but is a comment, "
            f"{names[0][:60]!r}; take out the lines above the header."
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


# Several tables that are one.


@final
@dataclass(frozen=True)
class TableFile:
    """A file with a table."""

    name: str
    delimiter: str | None
    encoding: str | None = None

    @contextmanager
    def open(self) -> Iterator[Source]:
        """The open table."""
        with open_table(self.name, self.delimiter, encoding=self.encoding) as source:
            yield source

    def identity(self) -> list[Any]:
        """What changes when the table does."""
        found = os.stat(self.name)
        return [os.path.abspath(self.name), found.st_size, found.st_mtime_ns]


@final
@dataclass(frozen=True)
class RayTable:
    """A Ray Dataset, read as one table."""

    data: Any
    name: str = "the Ray Dataset"

    @contextmanager
    def open(self) -> Iterator[Source]:
        """The open table."""
        schema = self.data.schema().base_schema

        def batches(wanted: list[str]) -> Iterator[Any]:
            chosen = self.data.select_columns(wanted)
            for table in chosen.iter_batches(batch_format="pyarrow", batch_size=65_536):
                yield from table.select(wanted).to_batches()

        yield Source(self.name, schema, False, batches, lambda: None)

    def identity(self) -> list[Any]:
        """What changes when the data do."""
        return [str(self.data.schema()), self.data.count()]


Table = TableFile | RayTable


def find_tables(source: Any, delimiter: str | None, encoding: str | None = None) -> list[Table]:
    """The tables that files, directories, patterns or a Ray Dataset stand for."""
    if hasattr(source, "iter_batches"):
        return [RayTable(source)]
    is_list = isinstance(source, list | tuple)
    names: list[str] = []
    for item in source if is_list else [source]:
        name = os.fspath(item)
        if os.path.isdir(name):
            found = [os.path.join(name, own) for own in os.listdir(name)]
            found = [own for own in found if _has_table(own)]
        else:
            found = [name] if os.path.exists(name) else glob.glob(name, recursive=True)
        if not found:
            raise DataError(
                f"{name!r} must be a table, a directory of tables or a pattern of their names "
                f"({', '.join(EXTENSIONS)}), but there is no such file."
            )
        names += sorted(found)
    for name, count in Counter(names).items():
        if count > 1:
            raise DataError(f"every file must be named once, but {name!r} is named {count} times.")
    return [TableFile(name, delimiter, encoding) for name in names]


def _has_table(name: str) -> bool:
    base = os.path.basename(name).lower().removesuffix(".gz")
    return os.path.isfile(name) and os.path.splitext(base)[1] in EXTENSIONS
