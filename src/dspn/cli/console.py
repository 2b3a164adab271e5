"""What people see on standard error, and how the errors that end a command are put into words."""

import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, final

from dspn.data.sequences import Sequences
from dspn.errors import DspnError, printable
from dspn.errors import plainly as plainly
from dspn.progress import Share, show_progress

# Data are read in chunks; the number of a sequence within its chunk means nothing to the reader.
_NUMBERED: Final = re.compile(r"sequence \d+ \(id (.+?)\)(?= at|,|;|\.| and| in)")

# Work is tried with a 256th of the slices, then a 64th and a 16th, until that takes so long.
_FIRST_TRY, _LAST_TRY, _LEAST_TRY, _TRIED_S = 256, 16, 16, 0.1
_MOST_SHARE: Final = 0.99


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


def rehearse(work: Callable[[int], object], num_slices: int) -> Callable[[], float] | None:
    """The share of work on data that is done, from the time that it takes with the first slices.

    The time is about linear in the slices. The work is tried with few of them, and with four times
    as many as long as this tells nothing. None where the work is too little, or fails.

    Args:
        work: Does the work with so many of the first slices.
        num_slices: The number of all slices.
    """
    taken, size, tried = 0.0, max(num_slices // _FIRST_TRY, _LEAST_TRY), 1
    with warnings.catch_warnings(), suppress(DspnError):
        warnings.simplefilter("ignore")
        if size <= num_slices // _LAST_TRY:
            work(size)  # kernels are loaded
        while size <= num_slices // _LAST_TRY and taken < _TRIED_S:
            begun = time.monotonic()
            work(size)
            taken, tried, size = time.monotonic() - begun, size, 4 * size
    if not taken:
        return None
    begun, expected = time.monotonic(), taken * num_slices / tried
    return lambda: min((time.monotonic() - begun) / expected, _MOST_SHARE)


@contextmanager
def show_work(
    title: str, work: Callable[[Sequences], object], data: Sequences | None, *, quiet: bool
) -> Iterator[None]:
    """Shows the share of work that is done within it, from trying it with the first of the data."""
    with show_progress(title, quiet=quiet) as tell:
        if data is not None and not quiet:
            tell("", rehearse(lambda size: work(data.first(size)), data.total_slices))
        yield


@contextmanager
def show_rows(title: str, *, quiet: bool) -> Iterator[Callable[[int, Share], None]]:
    """Shows how many rows are done.

    The function that it yields takes a number of further rows, and the share of all rows that are
    done, or None if it is not known.
    """
    total = 0
    with show_progress(title, quiet=quiet) as tell:

        def advance(rows: int, share: Share) -> None:
            nonlocal total
            total += rows
            tell(counted(total, "row") if total else "", share)

        yield advance
