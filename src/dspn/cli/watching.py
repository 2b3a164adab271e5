"""`dspn watch`: a stream of slices, each answered as it comes."""

from typing import Annotated

import typer

from dspn.cli.options import (
    Delimiter,
    Digits,
    Json,
    Missing,
    ModelFile,
    OnUnknown,
    Quiet,
    Unknown,
)


def watch(
    model: ModelFile,
    sequence: Annotated[
        str | None,
        typer.Option(
            "--sequence",
            "-s",
            metavar="COLUMN",
            help="Column that says which of several streams a slice belongs to. Without it: the "
            "one the model was fitted with, if the input has it.",
        ),
    ] = None,
    levels: Annotated[
        str, typer.Option("--levels", help="Quantiles of numbers, with commas between them.")
    ] = "0.05,0.95",
    missing: Missing = None,
    unknown: OnUnknown = Unknown.ERROR,
    delimiter: Delimiter = None,
    digits: Digits = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read slices from standard input; write how surprising each was, and what comes next, at once.

    Input is CSV with a header, or an object of JSON on each line. Output is CSV: the stream, the
    number of the slice, its surprise and the log-likelihood so far in nats, and the distribution of
    the next slice as `dspn forecast` has it; with --json an object on each line.
    """
    from dspn.cli.live import Watch, watched
    from dspn.cli.loading import missing_words
    from dspn.cli.parsing import quantile_levels

    asked, words = quantile_levels(levels), missing_words(missing)
    watched(model, Watch(sequence, asked, words, unknown, delimiter, digits, json, quiet))
