"""`dspn inspect` and `dspn validate`: what is in a file, and whether it is sound."""

from pathlib import Path
from typing import Annotated

import typer

from dspn.cli.options import Json, ModelFile, Quiet
from dspn.cli.request import AS_IT_IS, Reading, reads


def inspect(model: ModelFile, json: Json = False) -> None:
    """What is in a model file: variables, networks and their sizes, and where it comes from."""
    from dspn.cli.inspection import inspected, printed

    printed(inspected(model), json=json)


@reads
def validate(
    path: Annotated[str, typer.Argument(metavar="FILE", help="A model file, or a table.")],
    model: Annotated[
        Path | None, typer.Option("--model", help="A model whose variables the table must have.")
    ] = None,
    read: Reading = AS_IT_IS,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Is a model file or a table sound? Says what is wrong, and where; then the status is 1."""
    from dspn.cli.validation import problems_of, said

    found = problems_of(path, model, read)
    said(path, found, json=json, quiet=quiet)
    if found:
        raise typer.Exit(1)
