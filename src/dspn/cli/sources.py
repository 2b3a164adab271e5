"""Tables that are read in record batches, and that must not change meanwhile."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, final

import pyarrow as pa

from dspn.cli.reading import (
    STDIN,
    check_columns,
    check_delimiter,
    empty,
    header_cells,
    plainly,
    readable,
    require_same,
    said,
)
from dspn.errors import DataError

_BLOCK: Final = 4 * 2**20
_BATCH_ROWS: Final = 65_536
_LARGEST_HEADER: Final = 16 * 2**20
_ARROW: Final = b"ARROW1"
_EXTENSIONS: Final = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}

Batches = Iterator[Any]


@final
@dataclass(frozen=True, eq=False)
class Source:
    """A table that is open: its columns, and a reader of record batches with some of them.

    `is_text` says that all cells are text as it stands in the file, null where a cell is empty.
    Rows are counted from 1, the first below the header.
    """

    name: str
    schema: Any
    is_text: bool
    read: Callable[[list[str]], Batches]
    share: Callable[[], float | None]
    require_unchanged: Callable[[], None]

    @property
    def said(self) -> str:
        """What messages call it."""
        return said(self.name)

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in their order."""
        return list(self.schema.names)

    def batches(self, wanted: list[str]) -> Batches:
        """The named columns, batch after batch; raises where the file has changed by the end."""
        with readable(self.name, self.columns):
            for batch in self.read(wanted):
                found = batch.select(wanted)
                if not self.is_text:
                    _check_buffers(found, self.said)
                for start in range(0, found.num_rows, _BATCH_ROWS):
                    yield found.slice(start, _BATCH_ROWS)
        self.require_unchanged()


def _check_buffers(batch: Any, name: str) -> None:
    """Raises where a column is damaged; Arrow reads any bytes, and trusts them when it works."""
    for column, cells in zip(batch.schema.names, batch.columns, strict=True):
        try:
            cells.validate(full=True)
        except pa.ArrowException as error:
            raise DataError(
                f"column {column!r} of {name} is damaged: {plainly(error)}; write the file again."
            ) from None
    batch.validate()


@contextmanager
def opened(name: str, delimiter: str | None = None) -> Iterator[Source]:
    """The table in a file, on standard input, or in a pipe that has a name.

    A `delimiter` stands between the cells of text, where it is not what is usual there.
    """
    if name == STDIN:
        yield _piped(name, _standard_input(), delimiter)
        return
    if os.path.isdir(name):
        raise DataError(f"{said(name)} is a directory; name a table in it.")
    make = _piped if os.path.exists(name) and not os.path.isfile(name) else _filed
    # What the caller does with the source may fail too, and not because it cannot be read.
    with readable(name):
        file = open(name, "rb")  # noqa: SIM115 (closed below)
    with file:
        yield make(name, file, delimiter)


def _filed(name: str, file: BinaryIO, delimiter: str | None) -> Source:
    """A table of the format that its extension says."""
    kind, packed = kind_of(name)
    status = os.fstat(file.fileno())
    if not status.st_size:
        raise empty(name)
    with readable(name):
        source = _opened(
            kind,
            name,
            _unpacked(file) if packed else file,
            lambda: min(file.tell() / status.st_size, 1.0),
            lambda: require_same(name, status),
            delimiter,
        )
        check_columns(source.columns, name)
    return source


def kind_of(name: str) -> tuple[str, bool]:
    """The format that the extension says, and whether the file is packed by gzip."""
    base = os.path.basename(name).lower()
    packed = base.endswith(".gz")
    extension = os.path.splitext(base.removesuffix(".gz"))[1]
    if extension not in _EXTENSIONS:
        raise DataError(
            f"{said(name)} must have one of the extensions {', '.join(_EXTENSIONS)}, which say "
            f"what is in it, but has {extension or 'none'!r}; rename it."
        )
    return _EXTENSIONS[extension], packed


def _unpacked(file: BinaryIO) -> BinaryIO:
    import gzip

    return io.BufferedReader(gzip.GzipFile(fileobj=file, mode="rb"))


def _standard_input() -> BinaryIO:
    if sys.stdin is None or sys.stdin.isatty():
        raise DataError(
            "there is nothing on standard input; name a data file, or pipe a table into the "
            "command."
        )
    return sys.stdin.buffer


def _piped(name: str, stream: Any, delimiter: str | None) -> Source:
    """A table of the format that its first bytes tell, CSV if none."""
    with readable(name):
        start = stream.read(6)
        whole: BinaryIO = io.BufferedReader(_Joined(start, stream), _BLOCK)
        kind = "csv"
        if start.startswith(b"PAR1") or start == _ARROW:
            kind = "parquet" if start.startswith(b"PAR1") else "arrow"
            whole = io.BytesIO(whole.read())
        source = _opened(kind, name, whole, lambda: None, lambda: None, delimiter)
        check_columns(source.columns, name)
    return source


@final
class _Joined(io.RawIOBase):
    """Bytes that were read already, and the stream that they were read from."""

    def __init__(self, start: bytes, rest: Any) -> None:
        self._start = start
        self._rest = rest

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer with what comes next."""
        if self._start:
            found = self._start[: len(buffer)]
            self._start = self._start[len(found) :]
        else:
            found = self._rest.read1(len(buffer))
        buffer[: len(found)] = found
        return len(found)


@final
class _WithOneLastEnd(io.RawIOBase):
    """A stream of bytes with one line end where it ends with several."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._ready = b""
        self._ends = b""

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer with what comes next; line ends wait for what follows them."""
        while not self._ready:
            block = self._stream.read1(len(buffer))
            if not block:
                self._ready, self._ends = self._ends[:1], b""
                break
            block = self._ends + block
            self._ready = block.rstrip(b"\r\n")
            self._ends = block[len(self._ready) :]
        found = self._ready[: len(buffer)]
        self._ready = self._ready[len(found) :]
        buffer[: len(found)] = found
        return len(found)


def _opened(
    kind: str,
    name: str,
    stream: BinaryIO,
    share: Callable[[], float | None],
    require_unchanged: Callable[[], None],
    delimiter: str | None,
) -> Source:
    if kind == "parquet":
        schema, read = _parquet(stream)
    elif kind == "arrow":
        schema, read = _arrow(stream)
    else:
        start = _header(stream, name)
        usual = "\t" if kind == "tsv" else ","
        names = header_cells(start, name, delimiter or usual)
        if delimiter is None:
            check_delimiter(names, name, usual)
        schema, read = _csv(stream, start, names, delimiter or usual)
    is_text = kind in ("csv", "tsv")
    return Source(name, schema, is_text, read, share, require_unchanged)


def _parquet(stream: BinaryIO) -> tuple[Any, Callable[[list[str]], Batches]]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(stream, pre_buffer=False)

    def read(wanted: list[str]) -> Batches:
        found: Batches = file.iter_batches(_BATCH_ROWS, columns=wanted, use_threads=False)
        return found

    return file.schema_arrow, read


def _arrow(stream: BinaryIO) -> tuple[Any, Callable[[list[str]], Batches]]:
    import pyarrow.ipc as ipc

    start = stream.read(6)
    stream.seek(0)
    if start != _ARROW:
        reader = ipc.open_stream(stream)
        return reader.schema, lambda _: iter(reader)
    file = ipc.open_file(stream)
    return file.schema, lambda _: map(file.get_batch, range(file.num_record_batches))


def _csv(
    stream: BinaryIO, start: bytes, names: list[str], delimiter: str
) -> tuple[Any, Callable[[list[str]], Batches]]:
    """Every cell as text: what a number is depends on the variable, and errors name the row.

    An empty line is no row, but for a table of one column, where it is a row whose cell is empty;
    at the end of the file it is none there either.
    """
    schema = pa.schema([(column, pa.large_string()) for column in names])

    def read(wanted: list[str]) -> Batches:
        from pyarrow import csv as arrow_csv

        several = len(names) > 1
        whole: BinaryIO = io.BufferedReader(_Joined(start, stream), _BLOCK)
        if not several:
            whole = io.BufferedReader(_WithOneLastEnd(whole), _BLOCK)
        found: Batches = arrow_csv.open_csv(
            pa.PythonFile(whole, "r"),
            arrow_csv.ReadOptions(use_threads=False, block_size=_BLOCK),
            arrow_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=several
            ),
            arrow_csv.ConvertOptions(
                column_types=schema,
                include_columns=wanted,
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        return found

    return schema, read


def _header(stream: BinaryIO, name: str) -> bytes:
    """The bytes of the first record, quoted line ends included."""
    lines: list[bytes] = []
    size = marks = 0
    while not lines or (marks % 2 and size <= _LARGEST_HEADER):
        line = stream.readline(_LARGEST_HEADER)
        if not line:
            break
        if lines or line.strip():
            lines.append(line)
            size, marks = size + len(line), marks + line.count(b'"')
    if not lines:
        raise empty(name)
    start = b"".join(lines)
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{said(name)} must be text in UTF-8, but its header is not ({error.reason} at byte "
            f"{error.start}); convert it first."
        ) from None
    return start
