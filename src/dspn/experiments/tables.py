"""Tables of results: on the console, and as Markdown."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

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
