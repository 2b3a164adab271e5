"""Headings and tables of the tour."""

from rich import box
from rich.console import Console
from rich.table import Table


def heading(console: Console, title: str) -> None:
    """A line across the console with the title at its left."""
    console.print()
    console.rule(f"[bold]{title}[/]", align="left")
    console.print()


def table(*headings: str, words: int = 1) -> Table:
    """A table whose first `words` columns are words and whose others are numbers."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for number, title in enumerate(headings):
        made.add_column(title, justify="left" if number < words else "right")
    return made
