"""`dspn evaluate` and `dspn backtest`: how good answers are where the truth is known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dspn.cli import console, sink, source
from dspn.cli.options import Reading, Target, Unknown
from dspn.data.schema import list_names
from dspn.data.sequences import Sequences
from dspn.inference.evaluation import Evaluation, Score
from dspn.leaves.told import has_lags
from dspn.models.model import Model


def evaluate(gap: int, model: Path, target: Target, **given: Any) -> None:
    """Writes the scores of hidden entries."""
    loaded, data, written, options = _read(model, target, **given)
    found = _answered(
        "evaluate", lambda own: loaded.evaluate(own, length=gap, **options), data, target
    )
    _note_better_rules(loaded, found, quiet=target.quiet)
    _write(found, target, written, ["step"])


def backtest(steps: int, model: Path, target: Target, **given: Any) -> None:
    """Writes the scores of forecasts from rolling origins."""
    loaded, data, written, options = _read(model, target, **given)
    found = _answered("backtest", lambda own: loaded.backtest(own, steps, **options), data, target)
    _note_better_rules(loaded, found, quiet=target.quiet)
    _write(found, target, written, [])


def _answered(
    title: str, work: Callable[[Sequences], Evaluation], data: Sequences, target: Target
) -> Evaluation:
    with console.show_work(title, work, data, quiet=target.quiet):
        return work(data)


def _read(
    model: Path, target: Target, data: str, read: Reading, unknown: Unknown, **options: Any
) -> tuple[Model, Sequences, Reading, dict[str, Any]]:
    """The model, all sequences of the table, how it is written, and the other options."""
    sink.output_format(target)
    loaded = source.load_model(model)
    with source.open_table(data, read) as table:
        own = (table, loaded.schema, loaded.provenance, read, unknown)
        ((_, sequences),) = source.read_chunks(*own, quiet=target.quiet, whole=True)
        written = source.as_written(table, read, loaded.provenance)
    return loaded, sequences, written, options


def _note_better_rules(model: Model, found: Evaluation, *, quiet: bool) -> None:
    """Notes numbers of which a simple rule knows more, where lags may help the model."""
    errors: dict[tuple[str, int], dict[str, float]] = {}
    for own in found.scores:
        if not np.isnan(own.mae):
            errors.setdefault((own.variable, own.step), {})[own.method] = own.mae
    worse = [name for (name, _), own in errors.items() if min(own.values()) < 0.9 * own["model"]]
    if worse and not has_lags(model.schema):
        names = list_names(list(dict.fromkeys(worse)), 8)
        remedy = "a model with --lags may do better, see `dspn fit --help`"
        console.note(
            f"note: a simple rule is better than the model for {names}; {remedy}.", quiet=quiet
        )


def _write(found: Evaluation, target: Target, written: Reading, without: list[str]) -> None:
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
    with sink.write_table(target, sink.output_format(target), read=written) as out:
        out.write(table)
