"""`dspn experiment`: the paper's tables, one command each."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(
    no_args_is_help=True,
    help="The paper's tables: run what is missing, go on where a run was stopped, show the table.",
)

_WIDTH = 190  # of tables in a file or pipe

Out = Annotated[Path, typer.Option("--out", "-o", help="Where results and tables are kept.")]
DataDirectory = Annotated[
    Path | None, typer.Option("--data-dir", help="Where the data files are.", envvar="DSPN_DATA")
]
Data = Annotated[
    list[str] | None,
    typer.Option("--data", help="A data set, by the name that results have; may be repeated."),
]
Models = Annotated[
    list[str] | None, typer.Option("--model", help="A model, such as hmm or dspn; may be repeated.")
]
Folds = Annotated[
    int | None, typer.Option(min=1, max=10, help="How many of the ten folds; all or three.")
]
Jobs = Annotated[int, typer.Option(min=1, help="Models trained side by side.")]
Quick = Annotated[bool, typer.Option("--quick", help="A few minutes: less data, folds, effort.")]
TableOnly = Annotated[bool, typer.Option("--table-only", help="Show what is known, run nothing.")]

DEFAULT_OUT = Path("out/experiments")


def _console() -> Console:
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    return console


@app.command()
def table1(
    out: Out = DEFAULT_OUT,
    data: Data = None,
    model: Models = None,
    folds: Folds = None,
    jobs: Jobs = 2,
    quick: Quick = False,
    table_only: TableOnly = False,
) -> None:
    """Gaps to the true model on data drawn from HMM-samples, Water and BAT.

    Example: dspn experiment table1 --quick
    """
    _shown("table1", out, None, data, model, folds, jobs, quick, table_only)


@app.command()
def table2(
    out: Out = DEFAULT_OUT,
    data_dir: DataDirectory = None,
    data: Data = None,
    model: Models = None,
    folds: Folds = None,
    jobs: Jobs = 2,
    quick: Quick = False,
    table_only: TableOnly = False,
) -> None:
    """Test likelihood of all models on the five recorded data sets.

    Example: dspn experiment table2 --data vowels --model hmm --model dspn --folds 3
    """
    _shown("table2", out, data_dir, data, model, folds, jobs, quick, table_only)


@app.command()
def table3(
    out: Out = DEFAULT_OUT,
    data_dir: DataDirectory = None,
    data: Data = None,
    model: Models = None,
    jobs: Jobs = 2,
    quick: Quick = False,
    table_only: TableOnly = False,
) -> None:
    """Seconds of learning by iteration, and of inference with one variable observed.

    Example: dspn experiment table3 --data vowels
    """
    _shown("table3", out, data_dir, data, model, None, jobs, quick, table_only)


@app.command(name="all")
def everything(
    out: Out = DEFAULT_OUT,
    data_dir: DataDirectory = None,
    jobs: Jobs = 2,
    quick: Quick = False,
    table_only: TableOnly = False,
) -> None:
    """All three tables, and a report with tables and pictures.

    Example: dspn experiment all --quick
    """
    from dspn.experiments.book import Book

    console = _console()
    book = Book(out, console, data_dir, num_jobs=jobs, quick=quick, run=not table_only)
    console.print(f"Report: {book.all()}")


def _shown(
    name: str,
    out: Path,
    data_dir: Path | None,
    data: list[str] | None,
    model: list[str] | None,
    folds: int | None,
    jobs: int,
    quick: bool,
    table_only: bool,
) -> None:
    from dspn.experiments.book import Book

    console = _console()
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
    )
    for view in getattr(book, name)():
        view.show(console)
    console.print(f"Written to {book.tables_directory}")
