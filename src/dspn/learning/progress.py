"""What people see while a model is being learned: a live line, or plain lines in a log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Final, TextIO, final

from rich.console import Console
from rich.live import Live
from rich.table import Table

# Seconds between two lines: where something was accepted, and where not.
_NEWS_EVERY_S: Final = 1.0
_LINE_EVERY_S: Final = 10.0


@final
@dataclass(frozen=True)
class Report:
    """Where learning stands: the stage it is in, the best model so far, and the time taken.

    `score` is that of the best model on the validation set, in nats per sequence. `limit` is the
    time allowed, None where there is no limit.
    """

    stage: str
    score: float
    tried: int
    accepted: int
    num_interfaces: int
    num_nodes: int
    num_edges: int
    seconds: float
    limit: float | None = None

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" of {self.limit:.0f}"
        return (
            f"{self.seconds:.0f}{limit} s  {self.stage}: best score {self.score:.3f} nats per "
            f"sequence, {self.accepted} of {self.tried} accepted; {self.num_interfaces} interface "
            f"nodes, {self.num_nodes} nodes, {self.num_edges} edges"
        )


Reporter = Callable[[Report], None]


def _silent(report: Report) -> None:
    """Says nothing."""


def _row(report: Report) -> Table:
    headings = ("stage", "best score", "accepted", "tried", "interfaces", "nodes", "edges", "time")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    limit = "" if report.limit is None else f" of {report.limit:.0f}"
    table.add_row(
        report.stage,
        f"{report.score:.3f}",
        f"{report.accepted:,}",
        f"{report.tried:,}",
        f"{report.num_interfaces:,}",
        f"{report.num_nodes:,}",
        f"{report.num_edges:,}",
        f"{report.seconds:.0f}{limit} s",
    )
    return table


@contextmanager
def reporter(*, quiet: bool = False, stream: TextIO | None = None) -> Iterator[Reporter]:
    """What to hand reports to: a table that is drawn anew on a terminal, lines anywhere else.

    A line is written when the stage changes, every second for as long as something is accepted,
    otherwise every ten, and at the end. Everything goes to standard error unless there is another
    stream.
    """
    if quiet:
        yield _silent
        return
    console = Console(file=sys.stderr if stream is None else stream)
    if console.is_terminal and not console.is_dumb_terminal:
        with Live(console=console, refresh_per_second=4) as live:
            yield lambda report: live.update(_row(report))
        return
    lines = _Lines(console.file)
    try:
        yield lines
    finally:
        lines.finish()


@final
class _Lines:
    """Writes a report as a line where it tells something new."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self.last: Report | None = None
        self.unsaid: Report | None = None

    def __call__(self, report: Report) -> None:
        last = self.last
        self.unsaid = report
        if last is not None and report.stage == last.stage:
            pause = _NEWS_EVERY_S if report.accepted > last.accepted else _LINE_EVERY_S
            if report.seconds - last.seconds < pause:
                return
        self._write(report)

    def finish(self) -> None:
        """Writes the last report, unless it has been written."""
        if self.unsaid is not None:
            self._write(self.unsaid)

    def _write(self, report: Report) -> None:
        with suppress(OSError):  # nobody reads it any more, and learning is not over
            print(report, file=self.stream, flush=True)
        self.last = report
        self.unsaid = None
