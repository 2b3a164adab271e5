"""`dspn fit`: a model of a table."""

from pathlib import Path
from typing import Annotated

import typer

from dspn.cli.options import Data, Json, Quiet
from dspn.cli.request import AS_IT_IS, Reading, reads

Variables = Annotated[
    str | None,
    typer.Option(
        "--variables",
        metavar="NAMES",
        help="Columns that are variables, with commas between them; by default all but the keys.",
    ),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="NAME=KIND",
        help="What a variable is: categorical, binary, continuous or count; may be repeated.",
    ),
]
Interfaces = Annotated[
    int | None,
    typer.Option("--interfaces", min=1, help="Interface nodes, for --learner paper and em."),
]
Limit = Annotated[
    float | None,
    typer.Option("--time-limit", min=0, help="Seconds after which the best so far is taken."),
]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", help="Models trained side by side; -1 for all cores.")
]
FitSeed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]
Effort = Annotated[
    float | None,
    typer.Option(
        "--effort", help="How much the automatic learner may do; by the data if left out."
    ),
]


@reads
def fit(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="*.dspn")],
    read: Reading = AS_IT_IS,
    variables: Variables = None,
    kind: Kinds = None,
    learner: Annotated[str, typer.Option("--learner", help="auto, paper or em.")] = "auto",
    interfaces: Interfaces = None,
    effort: Effort = None,
    time_limit: Limit = None,
    seed: FitSeed = 0,
    validation: Annotated[
        str, typer.Option("--validation", help="The share of sequences held out, or another table.")
    ] = "0.1",
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", help="A directory; the same command again goes on from it."),
    ] = None,
    jobs: Jobs = 1,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn a model of a table: what each variable is, and then which network fits best.

    Ctrl-C ends learning and keeps the best model so far.
    """
    from dspn.cli.learning import Table, Training, fitted
    from dspn.cli.parsing import check_model_name, kinds, names

    check_model_name(output)
    if learner not in ("auto", "paper", "em"):
        raise typer.BadParameter(f"--learner must be auto, paper or em, but is {learner!r}.")
    if learner == "em" and interfaces is None:
        raise typer.BadParameter("--learner em needs the number of --interfaces.")
    table = Table(data, read, names(variables), kinds(kind))
    training = Training(learner, interfaces, effort, time_limit, seed, validation, checkpoint, jobs)
    fitted(table, training, output, json=json, quiet=quiet)
