"""What goes wrong when a file is read, in words that name the file and the row."""

import csv
import io
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from dspn.errors import DataError

STDIN: Final = "-"
_DELIMITERS: Final = (";", "\t", "|", ",")
_ROW: Final = re.compile(r"Row #(\d+): ")
_COLUMN: Final = re.compile(r"^In CSV column #(\d+): ")
_MOST_NAMED: Final = 50


def require_same(name: str, before: os.stat_result) -> None:
    """Raises where a file is not what it was when it was opened."""
    try:
        now = os.stat(name)
    except OSError:
        raise DataError(
            f"{said(name)} was removed while it was being read; nothing was written."
        ) from None
    if (now.st_size, now.st_mtime_ns, now.st_ino) != (
        before.st_size,
        before.st_mtime_ns,
        before.st_ino,
    ):
        raise DataError(
            f"{said(name)} changed while it was being read ({before.st_size} bytes before, "
            f"{now.st_size} now); nothing was written, run the command again."
        )


@contextmanager
def readable(name: str, columns: Sequence[str] = ()) -> Iterator[None]:
    """Errors of the system and of Arrow, in words that name the file, the column and the row."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"there is no file {said(name)}.") from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DataError(f"{said(name)} cannot be read: {plainly(error)}.") from None
    except EOFError:
        raise DataError(f"{said(name)} cannot be read: it is cut off; copy it again.") from None
    except zlib.error as error:
        raise DataError(f"{said(name)} cannot be read: it is damaged ({error}).") from None
    except MemoryError:
        raise DataError(
            f"{said(name)} cannot be read: it does not fit into memory, or is damaged."
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{said(name)} cannot be read: the name of a column must be text in UTF-8, but has "
            f"{error.object!r}."
        ) from None
    except pa.ArrowException as error:
        found = _COLUMN.match(str(error))
        number = int(found[1]) if found else len(columns)
        where = f"column {columns[number]!r}, " if number < len(columns) else ""
        raise DataError(f"{said(name)} cannot be read: {where}{plainly(error)}.") from None


def header_cells(start: bytes, name: str, delimiter: str) -> list[str]:
    """The names of the columns, as the first record of a text table has them."""
    # A carriage return alone ends a line too, here as where Arrow reads the rows.
    text = io.StringIO(start.decode("utf-8-sig"), newline="")
    try:
        names = next(csv.reader(text, delimiter=delimiter), [])
    except csv.Error as error:
        raise DataError(f"the header of {said(name)} cannot be read: {error}.") from None
    if not names:
        raise empty(name)
    if any("\0" in column for column in names):
        raise DataError(
            f"{said(name)} must be text in UTF-8, but its header has characters of code 0, as "
            "UTF-16 and files that hold no text have; convert it first."
        )
    return names


def empty(name: str) -> DataError:
    """The error of a table without a header."""
    return DataError(f"{said(name)} is empty; a table has at least a header and a row.")


def check_columns(names: Sequence[str], name: str) -> None:
    """Raises where two columns have one name."""
    for column, count in Counter(names).items():
        if count > 1:
            raise DataError(
                f"{said(name)} must have different column names, but {column!r} occurs {count} "
                "times; rename one."
            )


def listed(names: Sequence[str]) -> str:
    """Names with commas between them; of very many the first, of a very long one its beginning."""
    more = f", ... ({len(names):,} in all)" if len(names) > _MOST_NAMED else ""
    shown = [name if len(name) < 100 else f"{name[:96]}..." for name in names[:_MOST_NAMED]]
    return ", ".join(shown) + more


def check_delimiter(names: list[str], name: str, delimiter: str) -> None:
    """Raises where the header is one cell that looks like several with something else between."""
    if len(names) != 1:
        return
    for other in _DELIMITERS:
        if other != delimiter and other in names[0]:
            named = "tab" if other == "\t" else repr(other)
            raise DataError(
                f"{said(name)} has one column, {names[0]!r}, which looks like several with "
                f"{named} between them; say --delimiter {named}."
            )


def plainly(error: Exception) -> str:
    """What Arrow or the system says, with rows counted from the first below the header."""
    words = str(getattr(error, "strerror", None) or error).strip().rstrip(".")
    words = re.sub(r"CSV (parse|conversion) error: ?", "", _COLUMN.sub("", words))
    words = _ROW.sub(lambda found: f"row {int(found[1]) - 1}: ", words)
    if "straddling" in words:
        return "one of its rows is too long, or a quotation mark is not closed"
    return words[:1].lower() + words[1:]


def said(name: str) -> str:
    """What messages call a file."""
    return "standard input" if name == STDIN else repr(name)
