"""`python -m experiments`: the paper's tables, one word each."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, final

import typer
from rich.console import Console

from dspn.cli.app import run as run_command
from experiments.book import Book

_COMMAND: Final = "python -m experiments"
_WIDTH: Final = 190  # of tables in a file or pipe

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


@final
class Table(StrEnum):
    """What is run and shown."""

    TABLE1 = "table1"
    TABLE2 = "table2"
    TABLE3 = "table3"
    CLASSES = "classes"
    BENCH = "bench"
    ALL = "all"


@app.command(
    epilog=f"\b\nExamples:\n  {_COMMAND} all --quick\n"
    f"  {_COMMAND} table2 --data vowels --model hmm --model dspn --folds 3\n"
    f"  {_COMMAND} table3 --table-only"
)
def main(
    table: Annotated[
        Table,
        typer.Argument(
            metavar="TABLE",
            help="table1: data drawn from known processes. table2: likelihood on recorded data. "
            "table3: times. classes: accuracy on the official splits. bench: the default learner "
            "on other data. all: the three tables and a report.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where results and tables are kept.")
    ] = Path("out/experiments"),
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Where the data files are.", envvar="DSPN_DATA"),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="A data set, such as vowels; may be repeated."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="A model, such as hmm or dspn; may be repeated."),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10,
            help="How many of the ten folds; else all, or three where one takes over five minutes.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Models trained side by side.")] = 2,
    device: Annotated[
        str, typer.Option(help="Where nets are trained: cpu, or cuda for a graphics processor.")
    ] = "cpu",
    quick: Annotated[
        bool, typer.Option("--quick", help="A few minutes: less data, folds, effort.")
    ] = False,
    table_only: Annotated[
        bool, typer.Option("--table-only", help="Show what is known, run nothing.")
    ] = False,
) -> None:
    """Run what is missing of the paper's tables, and show them beside what the paper prints.

    Results are kept one by one: a run that was stopped goes on where it was. Runs of different data
    or models may share a directory. What is asked for is shown; all that is known is written, as
    Markdown and JSON, with pictures.
    """
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    book = Book(
        out,
        console,
        data_dir,
        None if data is None else tuple(data),
        None if model is None else tuple(model),
        folds,
        jobs,
        quick,
        not table_only,
        device,
    )
    show(table, book)


def show(table: Table, book: Book) -> None:
    """Runs what is missing of a table, shows it and says where files are."""
    if table is Table.ALL:
        book.console.print(f"Report: {book.all()}")
        return
    for view in getattr(book, table.value)():
        view.show(book.console)
    book.console.print(f"Written to {book.tables_directory}")


def run(arguments: Sequence[str]) -> int:
    """Runs what the arguments ask for and returns the exit status, as that of `dspn`."""
    return run_command(arguments, app, _COMMAND)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
