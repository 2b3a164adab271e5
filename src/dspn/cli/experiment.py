"""`dspn experiment`: the paper's tables, one command each."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, final

import typer

_WIDTH: Final = 190  # of tables in a file or pipe


@final
class Table(StrEnum):
    """What is run and shown."""

    TABLE1 = "table1"
    TABLE2 = "table2"
    TABLE3 = "table3"
    CLASSES = "classes"
    ALL = "all"


def experiment(
    table: Annotated[
        Table,
        typer.Argument(
            metavar="TABLE",
            help="table1: data drawn from known processes. table2: likelihood on recorded data. "
            "table3: times. classes: accuracy on the official splits. all: the three tables and "
            "a report.",
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
    from rich.console import Console

    from dspn.experiments.book import Book

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
    if table is Table.ALL:
        console.print(f"Report: {book.all()}")
        return
    for view in getattr(book, table.value)():
        view.show(console)
    console.print(f"Written to {book.tables_directory}")
