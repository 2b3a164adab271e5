"""Headings, tables and bars of the demo."""

from typing import Final

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


def heading(console: Console, title: str, code: str = "") -> None:
    """A line across the console with the title at its left, and the call it is about below."""
    console.print()
    console.rule(f"[bold]{escape(title)}[/]", align="left")
    if code:
        console.print(f"[cyan]>>> {escape(code)}[/]\n", soft_wrap=True)


def table(*headings: str, words: int = 1) -> Table:
    """A table whose first `words` columns are words and whose others are numbers."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for number, title in enumerate(headings):
        made.add_column(title, justify="left" if number < words else "right", no_wrap=True)
    return made


def bar(console: Console, length: float) -> str:
    """A bar that is as long as a number of characters, to an eighth where there are blocks."""
    if not console.encoding.startswith("utf"):
        return "#" * round(length)
    eighths = max(round(8 * length), 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def entry(value: float, categories: tuple[object, ...] = (), digits: int = 1) -> str:
    """A value as it is read, a dot where it is missing."""
    if value != value:
        return "."
    return str(categories[int(value)]) if categories else f"{value:.{digits}f}"
