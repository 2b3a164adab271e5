"""Sequences by their surprise, the most surprising first."""

import numpy as np
import pyarrow as pa

from dspn.cli.answers import free_name
from dspn.cli.digits import shortened
from dspn.cli.loading import loaded
from dspn.cli.request import Request
from dspn.cli.running import Answer, parts, wanted_types
from dspn.cli.sources import opened
from dspn.cli.writing import check_place, format_of, written


def ranked(request: Request, answer: Answer) -> None:
    """Writes a row for each sequence, by falling surprise of a slice; equal ones as they came."""
    form = format_of(request.output, request.format)
    check_place(request.output)
    model = loaded(request.model)
    with opened(request.data, request.delimiter) as source:
        found = [
            shortened(answer(model, chunk, data), request.digits, [*chunk.keys.names, "worst"])
            for chunk, data in parts(request, source, model.schema, model.provenance, "surprise")
        ]
        types = wanted_types(source, None)
    table = pa.concat_tables(found)
    falling = -np.asarray(table["per_slice"].to_numpy())
    table = table.take(pa.array(np.argsort(falling, kind="stable")))
    rank = pa.array(np.arange(1, table.num_rows + 1))
    table = table.add_column(0, free_name("rank", table.column_names), rank)
    with written(request.output, form, types, quiet=request.quiet) as sink:
        sink.write(table)
