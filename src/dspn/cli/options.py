"""Arguments and options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, final

import typer


@final
class Format(StrEnum):
    """How a table is written; JSON has an object on each line."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ARROW = "arrow"


@final
class Unknown(StrEnum):
    """What a category is taken for that the model does not know."""

    ERROR = "error"
    MISSING = "missing"


def _one_character(text: str | None) -> str | None:
    found = {"tab": "\t", "\\t": "\t"}.get(text or "", text)
    if found is not None and (len(found) != 1 or found in '"\r\n'):
        raise typer.BadParameter(
            f"--delimiter must be one character, such as ';', or 'tab', but is {text!r}."
        )
    return found


ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, *.dspn.")]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A long table, one row for each slice: .csv, .tsv, .parquet, .arrow, .feather "
        "(.csv.gz too); - for standard input.",
    ),
]
Sequence = Annotated[
    str | None,
    typer.Option(
        "--sequence",
        "-s",
        metavar="COLUMN",
        help="Column that names the sequence of a row. Without it: the one that the model was "
        "fitted with, if there is one, or else the whole table is one sequence.",
    ),
]
Order = Annotated[
    str | None,
    typer.Option(
        "--order",
        "-t",
        metavar="COLUMN",
        help="Column that orders the slices of a sequence; without it they are in the order of "
        "the rows.",
    ),
]
Sort = Annotated[
    bool,
    typer.Option(
        "--sort", help="The rows of a sequence may lie apart; the whole table is then read first."
    ),
]
Missing = Annotated[
    str | None,
    typer.Option(
        "--missing",
        metavar="WORDS",
        help="Words of a text table that mean a missing value, with commas between them; an empty "
        "cell always does.  [default: NA,N/A,n/a,NaN,nan,null,NULL,None]",
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="CHAR",
        callback=_one_character,
        help="What stands between the cells of a text table, such as ';' or tab; by default a "
        "comma, and a tab in .tsv.",
    ),
]
OnUnknown = Annotated[
    Unknown,
    typer.Option(
        "--unknown", help="A category that the model does not know: an error, or a missing value."
    ),
]
Digits = Annotated[
    int | None,
    typer.Option(
        "--digits",
        min=1,
        max=17,
        help="Significant digits of the numbers that are found; all of them by default.",
    ),
]
Output = Annotated[
    str,
    typer.Option("--output", "-o", metavar="FILE", help="Where the table goes; - is stdout."),
]
As = Annotated[
    Format | None,
    typer.Option("--format", help="Format of the table; by default that of the file's extension."),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes and no progress.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Seed of everything random.")]
