"""`dspn plot` and `dspn report`: pictures and a page about a model and a table."""

from pathlib import Path
from typing import Annotated

import typer

from dspn.cli.options import Data, ModelFile, OnUnknown, Quiet, Unknown
from dspn.cli.request import AS_IT_IS, Reading, reads

Only = Annotated[
    str | None,
    typer.Option("--only", metavar="ID", help="The sequence to draw; the first without it."),
]


@reads
def plot(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="template, unrolled; of a sequence: filtered, interface, surprise, imputed, "
            "forecast; of a whole table: calibration.",
        ),
    ],
    model: ModelFile,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="A .png, .svg or .pdf file.")
    ],
    data: Annotated[str | None, typer.Argument(metavar="DATA", help="A long table.")] = None,
    only: Only = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Slices to unroll or to forecast, 3 without it; how far ahead calibration looks, "
            "1 without it.",
        ),
    ] = None,
    component: Annotated[
        int | None, typer.Option(min=0, help="Component of a mixture; the heaviest without it.")
    ] = None,
    read: Reading = AS_IT_IS,
    unknown: OnUnknown = Unknown.ERROR,
    quiet: Quiet = False,
) -> None:
    """Draw a model, or what it says of one sequence of a table."""
    from dspn.cli.pictures import Subject, drawn, known_kinds

    if kind not in known_kinds():
        raise typer.BadParameter(
            f"KIND must be one of {', '.join(known_kinds())}, but is {kind!r}."
        )
    if Path(output).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise typer.BadParameter(f"--output must end in .png, .svg or .pdf, but is {output!r}.")
    subject = Subject(model, data, read, unknown, only, steps, component)
    drawn(kind, subject, output, quiet=quiet)


@reads
def report(
    model: ModelFile,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="*.html")],
    title: Annotated[str | None, typer.Option("--title", help="Title of the page.")] = None,
    max_sequences: Annotated[
        int | None, typer.Option("--max-sequences", min=1, help="Most sequences shown in full.")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Slices to look ahead.")] = 10,
    read: Reading = AS_IT_IS,
    unknown: OnUnknown = Unknown.ERROR,
    quiet: Quiet = False,
) -> None:
    """Write one HTML page about a model and a table, which needs nothing else to be read."""
    from dspn.cli.console import note
    from dspn.cli.loading import loaded
    from dspn.cli.pictures import read_whole
    from dspn.cli.writing import check_place
    from dspn.report import write_report

    check_place(str(output))
    found = loaded(model)
    sequences = read_whole(found, data, read, unknown, quiet=quiet)
    write_report(found, sequences, output, title=title, max_sequences=max_sequences, steps=steps)
    count = len(sequences)
    note(f"wrote {output}: {count:,} {'sequence' if count == 1 else 'sequences'}", quiet=quiet)
