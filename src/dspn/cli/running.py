"""A query that goes through a table, chunk by chunk, and writes another."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from dspn.cli.console import Progress, note
from dspn.cli.digits import shortened
from dspn.cli.loading import keys_of, loaded, missing_words
from dspn.cli.options import Unknown
from dspn.cli.request import Request
from dspn.cli.sources import Source, opened
from dspn.cli.writing import check_place, format_of, written
from dspn.data import Kind, Schema, Sequences
from dspn.data.chunks import Chunk, chunks
from dspn.data.coding import Unseen
from dspn.models import Model

Answer = Callable[[Model, Chunk, Sequences], Any]


def parts(
    request: Request,
    source: Source,
    schema: Schema,
    provenance: dict[str, Any],
    what: str,
    *,
    all_columns: bool = False,
    columns: tuple[str, ...] = (),
) -> Iterator[tuple[Chunk, Sequences]]:
    """Chunks of the table with their sequences; shows how far they have come."""
    keys = keys_of(source, request.sequence, request.order, provenance, quiet=request.quiet)
    words = missing_words(request.missing)
    unseen = unseen_counter(request.unknown)
    names, along = [*schema.names, *columns], source.columns if all_columns else []
    with Progress(what, quiet=request.quiet) as progress:
        for chunk in chunks(source, keys, names, sort=request.sort, along=along):
            yield chunk, chunk.sequences(schema, words, unseen)
            progress.advance(chunk.table.num_rows, source.share())
    note_unseen(unseen, quiet=request.quiet)


def unseen_counter(unknown: Unknown) -> Unseen | None:
    """Where unknown categories are counted, if they are to be missing."""
    return Unseen() if unknown is Unknown.MISSING else None


def note_unseen(unseen: Unseen | None, *, quiet: bool) -> None:
    """Says how many cells were taken as missing."""
    said = None if unseen is None else unseen.said()
    if said is not None:
        note(f"note: {said}", quiet=quiet)


def answered(request: Request, what: str, answer: Answer, *, all_columns: bool = False) -> None:
    """Writes the answer to every chunk, in the order of the table."""
    form = format_of(request.output, request.format)
    check_place(request.output)
    model = loaded(request.model)
    with opened(request.data, request.delimiter) as source:
        types = wanted_types(source, model.schema if all_columns else None)
        with written(request.output, form, types, quiet=request.quiet) as sink:
            for chunk, data in parts(
                request, source, model.schema, model.provenance, what, all_columns=all_columns
            ):
                table = answer(model, chunk, data)
                # A table that comes back whole has numbers of its own, which stand as they stood.
                digits = None if all_columns else request.digits
                sink.write(shortened(table, digits, chunk.keys.names))


def wanted_types(source: Source, schema: Schema | None) -> dict[str, Any]:
    """What the columns of a text table become in formats that have types.

    Numbers of the schema become numbers; None stands for whatever looks the same when it is written
    again, so that an id 007 stays as it is.
    """
    if not source.is_text:
        return {}
    types: dict[str, Any] = dict.fromkeys(source.columns)
    for variable in schema or ():
        if variable.kind is Kind.CONTINUOUS:
            types[variable.name] = pa.float64()
        elif not variable.categories:
            types[variable.name] = pa.int64()
        elif isinstance(variable.categories[0], str | bool):
            types[variable.name] = pa.string()
        else:
            types[variable.name] = pa.array(variable.categories).type
    return types
