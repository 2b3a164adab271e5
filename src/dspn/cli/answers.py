"""What a model says of a chunk, as a table that keeps the keys of the chunk's own."""

from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dspn._arrays import Floats
from dspn.cli.digits import rounded
from dspn.data import Kind, Sequences, Variable
from dspn.data.cells import convertible, is_text, plain, with_columns
from dspn.data.chunks import Chunk
from dspn.data.order import next_values, order_goes_on
from dspn.inference import Marginals, VariableMarginals
from dspn.models import Model


def free_name(name: str, taken: Container[str]) -> str:
    """The name, or one like it that no other column has."""
    while name in taken:
        name += "_"
    return name


def _by_sequence(chunk: Chunk, columns: dict[str, Any]) -> Any:
    named = chunk.keys.sequence or "sequence"
    own = {free_name(name, [named]): values for name, values in columns.items()}
    return pa.table({named: chunk.ids(), **own})


def _by_slice(chunk: Chunk, columns: dict[str, Any]) -> Any:
    """The keys of every row; slices are numbered where no column orders them."""
    keys = {name: plain(chunk.table[name]) for name in chunk.keys.names}
    if chunk.keys.order is None:
        lengths = chunk.grouping.lengths
        starts = np.repeat(chunk.grouping.offsets[:-1], lengths)
        numbers = chunk.as_rows(np.arange(chunk.table.num_rows) - starts)
        keys[free_name("slice", [*keys, *columns])] = pa.array(numbers)
    return pa.table({**keys, **columns})


def scores(model: Model, chunk: Chunk, data: Sequences) -> Any:
    """Log P of each sequence, its number of slices, and the one by the other."""
    found = model.log_likelihood(data)
    columns = {
        "log_likelihood": found,
        "slices": data.lengths,
        "per_slice": found / data.lengths,
    }
    return _by_sequence(chunk, columns)


def surprises(model: Model, chunk: Chunk, data: Sequences) -> Any:
    """The surprise of every slice given its past, and of each of its entries given all others."""
    found = model.surprise(data)
    columns: dict[str, Any] = dict.fromkeys(chunk.keys.names)
    for number, name in enumerate(model.schema.names):
        own = free_name(name, columns)
        columns[own] = chunk.as_rows(np.ascontiguousarray(found.variables[:, number]))
    columns[free_name("slice_surprise", columns)] = chunk.as_rows(found.slices)
    for name in chunk.keys.names:
        del columns[name]
    return _by_slice(chunk, columns)


def sequence_surprises(model: Model, chunk: Chunk, data: Sequences) -> Any:
    """The surprise of each sequence, in all and by slice, and its most surprising slice."""
    found = model.surprise(data).slices
    # An impossible slice is infinite, and what follows it is not known.
    known = np.where(np.isnan(found), -np.inf, found)
    total = np.add.reduceat(np.where(np.isnan(found), 0.0, found), data.offsets[:-1])
    worst = [
        int(start + np.argmax(known[start:end]))
        for start, end in zip(data.offsets[:-1].tolist(), data.offsets[1:].tolist(), strict=True)
    ]
    order = chunk.keys.order
    places: Any = np.array(worst) - data.offsets[:-1]
    if order is not None:
        places = plain(chunk.table[order]).take(pa.array(chunk.grouping.rows[worst]))
    columns = {
        "total": total,
        "slices": data.lengths,
        "per_slice": total / data.lengths,
        "worst": places,
        "worst_surprise": known[worst],
    }
    return _by_sequence(chunk, columns)


def filled(
    chunk: Chunk, observed: Sequences, completed: Sequences, digits: int | None = None
) -> Any:
    """The table with its gaps filled; what was observed stands as it stood."""
    columns = {}
    gaps = chunk.as_rows(np.isnan(observed.values))
    values = chunk.as_rows(completed.values)
    for number, variable in enumerate(observed.schema):
        cells = plain(chunk.table[variable.name])
        kind = _filled_type(cells.type, variable)
        with convertible(variable.name, cells):
            cells = cells.cast(kind)
        if gaps[:, number].any():
            codes = values[:, number]
            if variable.kind is Kind.CONTINUOUS:
                codes = rounded(codes, digits)
            own = decoded(codes, variable).cast(kind, safe=False)
            cells = pc.if_else(pa.array(gaps[:, number]), own, cells)
        columns[variable.name] = cells
    return with_columns(chunk.table, columns)


def _filled_type(kind: Any, variable: Variable) -> Any:
    """The type of a column, or one in which what is filled in has room."""
    own = decoded(np.array([np.nan]), variable).type
    return kind if is_text(kind) or (types.is_floating(kind) and not is_text(own)) else own


def decoded(codes: Floats, variable: Variable) -> Any:
    """What codes stand for, as a column; null where there is none."""
    missing = np.isnan(codes)
    whole = np.where(missing, 0, codes)
    if variable.kind is Kind.COUNT:
        return pa.array(whole.astype(np.int64), mask=missing)
    if variable.kind is Kind.CONTINUOUS:
        return pa.array(codes, mask=missing)
    categories = pa.array(variable.categories)
    return categories.take(pa.array(whole.astype(np.int64), mask=missing))


def prediction(marginals: Marginals) -> dict[str, Any]:
    """Columns for every variable: its point, and probabilities or quantiles.

    The point is that of `impute`: the most probable category, the median, or the mean.
    """
    columns: dict[str, Any] = {}
    for own in marginals.variables:
        columns[own.variable.name] = decoded(own.point(), own.variable)
        columns |= _spread(own)
    return columns


def _spread(own: VariableMarginals) -> dict[str, Any]:
    name = own.variable.name
    if own.probabilities is not None:
        shares = zip(own.variable.categories, own.probabilities.T, strict=True)
        return {f"{name}={category}": np.ascontiguousarray(share) for category, share in shares}
    kind = np.int64 if own.variable.kind is Kind.COUNT else np.float64
    levels = zip(own.levels, own.quantiles.T, strict=True)
    return {f"{name}@{level:g}": values.astype(kind) for level, values in levels}


def forecasts(
    model: Model, chunk: Chunk, data: Sequences, steps: int, levels: Sequence[float]
) -> Any:
    """The distributions of the slices that follow, a row for each step of each sequence."""
    found = model.forecast(data, steps, quantiles=with_median(levels)).marginals
    columns = without_extra(prediction(found), levels)
    named = chunk.keys.sequence or "sequence"
    step = free_name("step", [*chunk.keys.names, named, *columns])
    repeated = np.repeat(np.arange(len(data)), steps)
    order = chunk.keys.order
    ahead = {}
    if order is not None and order_goes_on(chunk.table[order], chunk.keys):
        ahead[order] = next_values(chunk.table[order], chunk.keys, chunk.grouping, steps)
    return pa.table(
        {
            named: chunk.ids().take(pa.array(repeated)),
            step: np.tile(np.arange(1, steps + 1), len(data)),
            **ahead,
            **{free_name(name, [named]): values for name, values in columns.items()},
        }
    )


def with_median(levels: Sequence[float]) -> tuple[float, ...]:
    """The levels, and the median, which is the point of a count."""
    return tuple(levels) if 0.5 in levels else (*levels, 0.5)


def without_extra(columns: dict[str, Any], levels: Sequence[float]) -> dict[str, Any]:
    """The columns without the median where it was not asked for."""
    if 0.5 in levels:
        return columns
    return {name: values for name, values in columns.items() if not name.endswith("@0.5")}
