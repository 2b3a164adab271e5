"""What people see on standard error, and how the errors that end a command are put into words."""

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, final

from dspn.errors import plainly as plainly
from dspn.errors import printable
from dspn.progress import show_progress

# Data are read in chunks; the number of a sequence within its chunk means nothing to the reader.
_NUMBERED: Final = re.compile(r"sequence \d+ \(id (.+?)\)(?= at|,|;|\.| and| in)")


@final
class StoppedError(Exception):
    """Ctrl-C, after the result so far was written; the message says where."""


@final
class ReaderGoneError(Exception):
    """The process that read the output has ended, as after `| head`."""


def sentence(error: BaseException | str) -> str:
    """The message in one line that a terminal can show; sequences are named by their ids alone."""
    text = str(error).strip() or type(error).__name__
    return _NUMBERED.sub(r"sequence \1", printable(re.sub(r"\s+", " ", text), 5000))


def save(path: Path, write: Callable[[Path], None]) -> None:
    """Writes what was learned; Ctrl-C at this moment does not lose it, but is heeded after it."""
    try:
        write(path)
    except KeyboardInterrupt:
        write(path)
        raise StoppedError(f"interrupted; what was learned is in {str(path)!r}.") from None


def counted(count: int, noun: str) -> str:
    """A number and its noun, such as `1 row` and `2,000 rows`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def note(text: object, *, quiet: bool = False) -> None:
    """Writes one line to standard error; if nobody reads it, nothing is written from then on."""
    if not quiet:
        try:
            print(sentence(str(text)), file=sys.stderr, flush=True)
        except OSError:
            forget(sys.stderr)


def forget(stream: IO[str]) -> None:
    """Sends a stream that cannot be written to nowhere.

    Otherwise what is left in its buffer would fail again when the interpreter flushes it.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def make_console(*, stderr: bool = True, width: int | None = None) -> Any:
    """A rich console for tables, of a fixed width where the output is not a terminal."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, soft_wrap=False, markup=False)
    if width is not None and not console.is_terminal:
        console.width = width
    return console


def make_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Any:
    """A rich table."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


@contextmanager
def warnings_as_notes(*, quiet: bool = False) -> Iterator[None]:
    """Within it, each warning of the library is shown in one line, and none of other packages."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        note(f"note: {message}", quiet=quiet)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", category=UserWarning)
        warnings.showwarning = show
        yield


@contextmanager
def show_rows(title: str, *, quiet: bool) -> Iterator[Callable[[int, float | None], None]]:
    """Shows how many rows are done.

    The function that it yields takes a number of further rows, and the share of all rows that are
    done, or None if it is not known.
    """
    total = 0
    with show_progress(title, quiet=quiet) as tell:

        def advance(rows: int, share: float | None) -> None:
            nonlocal total
            total += rows
            tell(counted(total, "row"), share)

        yield advance
