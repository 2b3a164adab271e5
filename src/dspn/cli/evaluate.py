"""`dspn evaluate` and `dspn backtest`: how good answers are where the truth is known."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dspn.cli import console, sink, source
from dspn.cli.options import Reading, Target, Unknown
from dspn.data.sequences import Sequences
from dspn.inference.evaluation import Evaluation, Score
from dspn.models.model import Model


def evaluate(gap: int, model: Path, target: Target, **given: Any) -> None:
    """Writes the scores of hidden entries."""
    loaded, data, options = _read(model, target, **given)
    _write(loaded.evaluate(data, length=gap, **options), target, ["step"])


def backtest(steps: int, model: Path, target: Target, **given: Any) -> None:
    """Writes the scores of forecasts from rolling origins."""
    loaded, data, options = _read(model, target, **given)
    _write(loaded.backtest(data, steps, **options), target, [])


def _read(
    model: Path, target: Target, data: str, read: Reading, unknown: Unknown, **options: Any
) -> tuple[Model, Sequences, dict[str, Any]]:
    """The model, all sequences of the table, and the other options."""
    sink.output_format(target)
    loaded = source.load_model(model)
    with source.open_table(data, read) as table:
        own = (table, loaded.schema, loaded.provenance, read, unknown)
        ((_, sequences),) = source.read_chunks(*own, quiet=target.quiet, whole=True)
    return loaded, sequences, options


def _write(found: Evaluation, target: Target, without: list[str]) -> None:
    columns: dict[str, Any] = {}
    for name in (name for name in Score._fields if name not in without):
        values = [getattr(own, name) for own in found.scores]
        if isinstance(values[0], float):
            numbers = np.array(values)
            columns[name] = pa.array(numbers, mask=np.isnan(numbers))
        else:
            columns[name] = pa.array(values)
    console.note(f"hidden: {found.hidden}", quiet=target.quiet)
    table = sink.round_table(pa.table(columns), target.digits)
    with sink.write_table(target, sink.output_format(target)) as out:
        out.write(table)
