"""The commands that ask a model about a table, one row for each slice."""

from typing import Annotated

import typer

from dspn.cli.options import As, Digits, Format, Json, ModelFile, Output, Quiet, Seed
from dspn.cli.request import Request, asks


@asks
def score(request: Request) -> None:
    """How probable is each sequence? A row each: log-likelihood in nats, slices, and by slice."""
    from dspn.cli.answers import scores
    from dspn.cli.running import answered

    answered(request, "score", scores)


@asks
def impute(request: Request) -> None:
    """Fill every gap by itself: the most probable category, the median of a count, or the mean.

    The table comes back with all its columns and rows; what was observed stands as it stood.
    """
    from dspn.cli.answers import filled
    from dspn.cli.running import answered

    answered(
        request,
        "impute",
        lambda own, chunk, found: filled(chunk, found, own.impute(found), request.digits),
        all_columns=True,
    )


@asks
def complete(request: Request) -> None:
    """Fill all gaps together: the values and hidden choices that are jointly most probable."""
    from dspn.cli.answers import filled
    from dspn.cli.running import answered

    answered(
        request,
        "complete",
        lambda own, chunk, found: filled(
            chunk, found, own.complete(found).sequences, request.digits
        ),
        all_columns=True,
    )


@asks
def forecast(
    request: Request,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Slices to look ahead.")] = 1,
    levels: Annotated[
        str, typer.Option("--levels", help="Quantiles of numbers, with commas between them.")
    ] = "0.05,0.5,0.95",
) -> None:
    """What comes next? A row for each sequence and step, exact distributions in its columns.

    For each variable: its point (most probable category, median of a count, mean), then the
    probability of each category (sky=rain) or the quantiles (celsius@0.05). An order column of
    whole numbers or of times goes on with the step of its sequence, where that is always the same.
    """
    from dspn.cli.answers import forecasts
    from dspn.cli.parsing import quantile_levels
    from dspn.cli.running import answered

    asked = quantile_levels(levels)
    answered(
        request,
        "forecast",
        lambda own, chunk, found: forecasts(own, chunk, found, steps, asked),
    )


@asks
def surprise(
    request: Request,
    by: Annotated[
        str, typer.Option("--by", help="'slice' for a row each; 'sequence' ranks the sequences.")
    ] = "slice",
) -> None:
    """Is something wrong? How unexpected each slice is given its past, and each entry, in nats.

    A row for each slice: the surprise of each entry given all others, and of the whole slice.
    With --by sequence: a row for each sequence, the most surprising by slice first.
    """
    from dspn.cli.answers import sequence_surprises, surprises
    from dspn.cli.ranking import ranked
    from dspn.cli.running import answered

    if by not in ("slice", "sequence"):
        raise typer.BadParameter(f"--by must be 'slice' or 'sequence', but is {by!r}.")
    if by == "sequence":
        ranked(request, sequence_surprises)
    else:
        answered(request, "surprise", surprises)


def sample(
    model: ModelFile,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Number of sequences.")] = 1,
    length: Annotated[int, typer.Option("--length", min=1, help="Slices of each.")] = 10,
    seed: Seed = None,
    output: Output = "-",
    digits: Digits = None,
    form: As = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw whole sequences from the model, one row for each slice."""
    from dspn.cli.drawing import drawn

    kept = Format.JSON if json else form
    drawn(model, number, length, seed, output, kept, digits=digits, quiet=quiet)
