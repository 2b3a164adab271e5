"""`dspn classify`: which class a sequence belongs to."""

from pathlib import Path
from typing import Annotated

import typer

from dspn.cli.examples import epilog
from dspn.cli.fitting import FitSeed, Kinds, Variables
from dspn.cli.options import Data, Quiet
from dspn.cli.request import AS_IT_IS, Reading, Request, asks, reads

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Learn to tell sequences apart by their class, and tell new ones.",
)


@app.command(epilog=epilog("classify fit"))
@reads
def fit(
    data: Data,
    label: Annotated[
        str,
        typer.Option("--label", metavar="COLUMN", help="Column with the class of the sequence."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="*.dspn")],
    read: Reading = AS_IT_IS,
    variables: Variables = None,
    kind: Kinds = None,
    mode: Annotated[
        str, typer.Option("--mode", help="generative, or discriminative for sharper borders.")
    ] = "generative",
    states: Annotated[int, typer.Option("--states", min=1, help="States of each HMM.")] = 8,
    seed: FitSeed = 0,
    quiet: Quiet = False,
) -> None:
    """Learn a model for each class; the class of a sequence is the same in all its rows."""
    from dspn.cli.classes import Labels, fitted
    from dspn.cli.learning import Table
    from dspn.cli.parsing import check_model_name, kinds, names

    check_model_name(output)
    if mode not in ("generative", "discriminative"):
        raise typer.BadParameter(
            f"--mode must be 'generative' or 'discriminative', but is {mode!r}."
        )
    table = Table(data, read, names(variables), kinds(kind))
    fitted(table, Labels(label, mode, states, seed), output, quiet=quiet)


@app.command(epilog=epilog("classify predict"))
@asks
def predict(request: Request) -> None:
    """The class of each sequence, and the probability of every class, a row for each sequence."""
    from dspn.cli.classes import predicted

    predicted(request)
