"""`dspn evaluate` and `dspn backtest`: how good answers are where the truth is known."""

from typing import Any

import numpy as np
import pyarrow as pa

from dspn.cli import console, sink, source
from dspn.cli.options import Parallel, Request
from dspn.data.dataset import is_dataset
from dspn.data.sequences import Sequences
from dspn.errors import DataError
from dspn.inference.evaluation import Evaluation, Score
from dspn.models.model import Model


def evaluate(gap: int, request: Request, **options: Any) -> None:
    """Writes the scores of hidden entries."""
    model, data = _read(request)
    _write(model.evaluate(data, length=gap, **options), request, ["step"])


def backtest(steps: int, request: Request, **options: Any) -> None:
    """Writes the scores of forecasts from rolling origins."""
    model, data = _read(request)
    _write(model.backtest(data, steps, **options), request, [])


def _read(request: Request) -> tuple[Model, Sequences]:
    """The model, and all sequences of the table."""
    if is_dataset(request.data) or request.parallel != Parallel():
        raise DataError(
            "this command works on one table in memory, without --jobs and --ray; take some of the "
            "sequences of the data set as a table."
        )
    sink.output_format(request.target)
    model, read = source.load_model(request.model), request.read
    with source.open_table(request.data, read) as table:
        ((_, data),) = source.read_chunks(
            *(table, model.schema, model.provenance, read, request.unknown),
            quiet=request.target.quiet,
            whole=True,
        )
    return model, data


def _write(found: Evaluation, request: Request, without: list[str]) -> None:
    columns: dict[str, Any] = {}
    for name in (name for name in Score._fields if name not in without):
        values = [getattr(own, name) for own in found.scores]
        if isinstance(values[0], float):
            numbers = np.array(values)
            columns[name] = pa.array(numbers, mask=np.isnan(numbers))
        else:
            columns[name] = pa.array(values)
    console.note(f"hidden: {found.hidden}", quiet=request.target.quiet)
    table = sink.round_table(pa.table(columns), request.target.digits)
    with sink.write_table(request.target, sink.output_format(request.target)) as out:
        out.write(table)
