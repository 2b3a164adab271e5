"""What people see on standard error: notes, and how far long work has come."""

import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, final

from dspn.cli.errors import sentence

_LINE_EVERY_S: Final = 10.0
_BAR_AFTER_S: Final = 1.0


def note(text: object, *, quiet: bool = False) -> None:
    """One line on standard error, for as long as anybody reads it."""
    if not quiet:
        try:
            print(sentence(str(text)), file=sys.stderr, flush=True)
        except OSError:
            forget(sys.stderr)


def forget(stream: IO[str]) -> None:
    """Nothing more reaches a stream that cannot be written to.

    What is still in its buffer would fail once more when the interpreter flushes it.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def console(*, stderr: bool = True) -> Any:
    """A rich console, for tables that people read."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


@contextmanager
def warnings_as_notes(*, quiet: bool = False) -> Iterator[None]:
    """Warnings of the library become one line each; those of other packages are not shown."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        note(f"note: {message}", quiet=quiet)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", category=UserWarning)
        warnings.showwarning = show
        yield


@final
class Progress:
    """How many rows have been done: a bar on a terminal, a line now and then anywhere else."""

    def __init__(self, what: str, *, quiet: bool) -> None:
        self._what = what
        self._quiet = quiet
        self._rows = 0
        self._begun = self._said = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, rows: int, share: float | None) -> None:
        """So many rows more; `share` is the part of the file that has been read."""
        self._rows += rows
        now = time.monotonic()
        if self._quiet:
            return
        if sys.stderr.isatty():
            if now - self._begun > _BAR_AFTER_S:
                self._draw(share)
        elif now - self._said >= _LINE_EVERY_S:
            done = "" if share is None else f" ({100 * share:.0f} %)"
            note(f"{self._what}: {self._rows:,} rows{done}, {now - self._begun:.0f} s")
            self._said = now

    def _draw(self, share: float | None) -> None:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        if self._bar is None:
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[rows]:,} rows"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=console(),
                transient=True,
            )
            self._task = self._bar.add_task(self._what, total=1.0, rows=0)
            self._bar.start()
        total = None if share is None else 1.0
        self._bar.update(self._task, completed=share or 0.0, total=total, rows=self._rows)
