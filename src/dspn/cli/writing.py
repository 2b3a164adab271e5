"""Tables that are written whole or not at all."""

import errno
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

from dspn.cli.console import note
from dspn.cli.errors import ReaderGoneError
from dspn.cli.options import Format
from dspn.cli.sinks import ArrowSink, CountingSink, CsvSink, JsonSink, Sink, TypedSink
from dspn.errors import DataError
from dspn.io.atomic import replacing

STDOUT: Final = "-"
_EXTENSIONS: Final = {
    ".csv": Format.CSV,
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
}


def format_of(name: str, given: Format | None) -> Format:
    """The format that is asked for, that of the file's extension, or CSV."""
    if given is not None:
        return given
    extension = os.path.splitext(name)[1].lower()
    if name == STDOUT or extension in _EXTENSIONS:
        return _EXTENSIONS.get(extension, Format.CSV)
    raise DataError(
        f"the output {name!r} must have one of the extensions {', '.join(_EXTENSIONS)}, or "
        "--format must say what to write."
    )


def check_place(name: str) -> None:
    """Raises where a file cannot be written, before any work."""
    if name == STDOUT:
        return
    target = os.path.realpath(name)
    directory = os.path.dirname(target)
    if not os.path.isdir(directory):
        raise DataError(f"cannot write {name!r}: there is no directory {directory!r}; create it.")
    if os.path.isdir(target):
        raise DataError(f"cannot write {name!r}: it is a directory; name a file in it.")
    exists = os.path.exists(target)
    if exists and not os.access(target, os.W_OK):
        raise DataError(f"cannot write {name!r}: permission denied.")
    beside = not exists or os.path.isfile(target)
    if beside and not os.access(directory, os.W_OK):
        raise DataError(
            f"cannot write {name!r}: permission denied in {directory!r}, where a new file is "
            "written before it takes its name."
        )


@contextmanager
def replaced(name: str) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `name` at the end, unless something fails.

    The bytes go to a temporary file beside it, which reaches the disk and is renamed. Standard
    output, devices and pipes are written to as they are.
    """
    if name == STDOUT:
        yield from _standard_output()
        return
    check_place(name)
    target = os.path.realpath(name)
    mode = os.stat(target).st_mode if os.path.exists(target) else None
    direct = mode is not None and not stat.S_ISREG(mode)
    kept = None if mode is None else stat.S_IMODE(mode)
    try:
        with open(target, "wb") if direct else replacing(target, kept) as file:
            yield file
    except OSError as error:
        raise _unwritten(name, error) from error


def _unwritten(name: str, error: OSError) -> Exception:
    if error.errno == errno.EPIPE:
        return ReaderGoneError()
    reason = (error.strerror or str(error)).lower()
    return DataError(f"cannot write {name!r}: {reason}; what was there before is unchanged.")


def _standard_output() -> Iterator[BinaryIO]:
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise ReaderGoneError from None
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"cannot write to standard output: {reason}.") from error


@contextmanager
def written(
    name: str,
    given: Format | None,
    types: Mapping[str, Any] | None = None,
    *,
    quiet: bool = False,
) -> Iterator[Sink]:
    """A sink for the parts of a table, in the format of the file; says when a file is there.

    `types` are columns that are text only because a CSV file has no types, and what they become in
    formats that have; None stands for whatever they look like.
    """
    form = format_of(name, given)
    with replaced(name) as file:
        sink: Sink = _sink(file, form)
        if types and form is not Format.CSV:
            sink = TypedSink(sink, types)
        counting = CountingSink(sink)
        yield counting
        counting.close()
    if name != STDOUT:
        rows = counting.rows
        note(f"wrote {name}: {rows:,} {'row' if rows == 1 else 'rows'}", quiet=quiet)


def _sink(file: BinaryIO, form: Format) -> Sink:
    if form is Format.CSV:
        return CsvSink(file)
    return JsonSink(file) if form is Format.JSON else ArrowSink(file, form)
