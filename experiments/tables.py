"""Tables of results: on the console, as Markdown, and in files."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from dspn.io import write_atomically

Cells = Iterable[Sequence[str]]


def markdown_table(headings: Sequence[str], rows: Cells) -> str:
    """The table as Markdown."""
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def show_table(
    title: str, headings: Sequence[str], rows: Cells, console: Console, *, num_words: int
) -> None:
    """Prints the table; the first `num_words` columns hold words, the others figures."""
    shown = Table(title=title, title_justify="left")
    for number, heading in enumerate(headings):
        shown.add_column(heading, justify="left" if number < num_words else "right")
    for row in rows:
        shown.add_row(*row)
    console.print(shown)


@final
@dataclass(frozen=True)
class View:
    """A table as it is shown; `records` has its numbers, `notes` what has to be said of it."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_words: int = 1
    notes: Sequence[str] = ()
    records: Sequence[dict[str, Any]] = field(default_factory=list)

    @property
    def markdown(self) -> str:
        """Title, table and notes."""
        notes = "".join(f"- {note}\n" for note in self.notes)
        table = markdown_table(self.headings, self.rows)
        return f"## {self.title}\n\n{table}" + (f"\n{notes}" if notes else "")

    def show(self, console: Console) -> None:
        """Prints it."""
        show_table(self.title, self.headings, self.rows, console, num_words=self.num_words)
        for note in self.notes:
            console.print(f"- {note}", highlight=False)


def write_view(view: View, picture: Figure | None, directory: Path, name: str) -> None:
    """Writes the table as Markdown and JSON, and its picture where there is one."""
    directory.mkdir(parents=True, exist_ok=True)
    records = {"title": view.title, "notes": list(view.notes), "records": list(view.records)}
    write_atomically(directory / f"{name}.md", view.markdown.encode())
    write_atomically(directory / f"{name}.json", json.dumps(records, indent=1).encode())
    if picture is not None:
        picture.savefig(directory / f"{name}.png")
