"""What people see on standard error, and how the errors that end a command are put into words."""

import os
import re
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final, final

from dspn.errors import printable

DATA: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130  # the status of shells

_LINE_EVERY_S: Final = 10.0
_BAR_AFTER_S: Final = 1.0
_MOST_NAMED: Final = 50
# Data are read in chunks; the number of a sequence within its chunk means nothing to the reader.
_NUMBERED: Final = re.compile(r"sequence \d+ \(id (.+?)\)(?= at|,|;|\.| and| in)")
_ROW: Final = re.compile(r"Row #(\d+): ")
CSV_COLUMN: Final = re.compile(r"^In CSV column #(\d+): ")


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


def plainly(error: Exception) -> str:
    """The message of Arrow or of the system, with rows counted from the first below the header."""
    words = str(getattr(error, "strerror", None) or error).strip().rstrip(".")
    words = re.sub(r"CSV (parse|conversion) error: ?", "", CSV_COLUMN.sub("", words))
    words = _ROW.sub(lambda match: f"row {int(match[1]) - 1}: ", words)
    if "straddling" in words:
        return "one of its rows is too long, or a quotation mark is not closed"
    return words[:1].lower() + words[1:]


def listed(names: Sequence[str]) -> str:
    """Names separated by commas: at most the first fifty, and the beginning of a very long one."""
    more = f", ... ({len(names):,} in all)" if len(names) > _MOST_NAMED else ""
    shown = [name if len(name) < 100 else f"{name[:96]}..." for name in names[:_MOST_NAMED]]
    return ", ".join(shown) + more


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
    """Shows each warning of the library in one line, and none of other packages."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        note(f"note: {message}", quiet=quiet)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", category=UserWarning)
        warnings.showwarning = show
        yield


@final
class Progress:
    """The number of rows done: a bar on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, title: str, *, quiet: bool) -> None:
        self._title = title
        self._quiet = quiet
        self._rows = 0
        self._begun = self._noted = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, rows: int, share: float | None) -> None:
        """Adds rows; `share` is the fraction of the file that has been read, if it is known."""
        self._rows += rows
        now = time.monotonic()
        if self._quiet:
            return
        if sys.stderr.isatty():
            if now - self._begun > _BAR_AFTER_S:
                self._draw(share)
        elif now - self._noted >= _LINE_EVERY_S:
            done = "" if share is None else f" ({100 * share:.0f} %)"
            note(f"{self._title}: {self._rows:,} rows{done}, {now - self._begun:.0f} s")
            self._noted = now

    def _draw(self, share: float | None) -> None:
        from rich import progress

        if self._bar is None:
            self._bar = progress.Progress(
                *("{task.description}", progress.BarColumn(), "{task.fields[rows]:,} rows"),
                *(progress.TimeElapsedColumn(), progress.TimeRemainingColumn()),
                console=make_console(),
                transient=True,
            )
            self._bar.add_task(self._title, total=1.0, rows=0)
            self._bar.start()
        total = None if share is None else 1.0
        (task,) = self._bar.task_ids
        self._bar.update(task, completed=share or 0.0, total=total, rows=self._rows)
