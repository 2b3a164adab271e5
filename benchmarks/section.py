"""One table of the report, for the terminal and for Markdown."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final

from rich import box
from rich.table import Table
from rich.text import Text

DIFFERS: Final = "differs"


@final
@dataclass(frozen=True)
class Section:
    """A table with a heading and a sentence on how to read it."""

    title: str
    note: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def to_rich(self) -> Table:
        table = Table(
            title=self.title,
            caption=self.note,
            box=box.SIMPLE_HEAD,
            title_style="bold",
            caption_justify="left",
            title_justify="left",
        )
        for number, heading in enumerate(self.headings):
            table.add_column(heading, justify="left" if number == 0 else "right")
        for row in self.rows:
            table.add_row(*(_coloured(cell) for cell in row))
        return table

    def to_markdown(self) -> str:
        rule = ["---", *["---:"] * (len(self.headings) - 1)]
        lines = [_line(self.headings), _line(rule), *(_line(row) for row in self.rows)]
        return f"## {self.title}\n\n{self.note}\n\n" + "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _coloured(cell: str) -> Text:
    return Text(cell, style="red" if cell.endswith(DIFFERS) else "")
