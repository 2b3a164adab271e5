"""Answers as data frames, with the columns, ids and times of the table that was asked about.

Columns are named as the commands name them: `celsius` is the point, `celsius@0.05` a quantile,
`sky=rain` the probability of a category.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.data.layout import TableKeys
from dspn.data.schema import Kind
from dspn.data.sequences import Sequences
from dspn.errors import EvidenceError

if TYPE_CHECKING:
    from dspn.inference.forecast import Forecast
    from dspn.inference.marginals import Imputation, Marginals
    from dspn.inference.surprise import Surprise


def key_columns(data: Sequences, rows: Ints, order: Any = None) -> dict[str, Any]:
    """The id and the order value of some slices, by the names that the table had.

    Args:
        data: The sequences.
        rows: The slices.
        order: Order values of these slices, where the data do not have them.
    """
    keys = data.table_keys or TableKeys("sequence", "slice")
    owners = np.searchsorted(data.offsets, rows, side="right") - 1
    ids: Any = owners if data.ids is None else [data.ids[own] for own in owners.tolist()]
    columns = {keys.sequence: ids}
    if order is None and keys.order_values is not None:
        order = keys.order_values[rows]
        order = order.tolist() if order.dtype == object else order
    name = keys.order or "slice"
    columns[_free(name, columns)] = rows - data.offsets[owners] if order is None else order
    return columns


def _free(name: str, taken: Container[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _joined(keys: Mapping[str, Any], columns: Mapping[str, Any], library: str) -> Any:
    from dspn.data.tables import make_frame

    table = dict(keys)
    for name, cells in columns.items():
        table[_free(name, table)] = cells
    return make_frame(table, library)


def marginal_columns(
    found: Marginals, rows: Ints, known: Sequences | None = None
) -> dict[str, Any]:
    """Columns for every variable: its point, and probabilities or quantiles; null elsewhere.

    Args:
        found: The marginals.
        rows: The slices.
        known: Has the points of entries that are not among the marginals.
    """
    from dspn.data.cells import decode_cells

    columns: dict[str, Any] = {}
    for number, own in enumerate(found.variables):
        variable, places = own.variable, np.searchsorted(rows, own.slices)

        def spread(values: Floats, places: Ints = places) -> Floats:
            cells = np.full(rows.size, np.nan)
            cells[places] = values
            return cells

        if variable.kind == Kind.COUNT and 0.5 not in own.levels:
            columns[variable.name] = spread(own.mean)
        else:
            points = spread(own.point())
            if known is not None:
                points = np.where(np.isnan(points), known.values[rows, number], points)
            columns[variable.name] = decode_cells(points, variable)
        if own.probabilities is not None:
            for category, share in zip(variable.categories, own.probabilities.T, strict=True):
                columns[f"{variable.name}={category}"] = spread(share)
        for level, values in zip(own.levels, own.quantiles.T, strict=True):
            columns[f"{variable.name}@{level:g}"] = spread(values)
    return columns


def marginals_frame(found: Marginals, library: str) -> Any:
    """A row for each slice that has an entry among the marginals."""
    if found.sequences is None:
        raise EvidenceError(
            "these marginals are of a stream, which has no table; take those of each variable."
        )
    slices = [own.slices for own in found.variables]
    rows = np.unique(np.concatenate(slices)) if slices else np.empty(0, dtype=np.int64)
    return _joined(key_columns(found.sequences, rows), marginal_columns(found, rows), library)


def imputation_frame(found: Imputation, library: str) -> Any:
    """A row for each slice: all points, quantiles of those filled, and the names of these."""
    from dspn.data.cells import decode_cells

    rows = np.arange(found.sequences.total_slices)
    columns = marginal_columns(found.marginals, rows)
    for variable, codes in zip(found.sequences.schema, found.sequences.values.T, strict=True):
        columns[variable.name] = decode_cells(codes, variable)
    names = np.array(found.sequences.schema.names, dtype=object)
    columns["filled"] = [" ".join(names[own]) for own in found.filled]
    return _joined(key_columns(found.sequences, rows), columns, library)


def forecast_frame(found: Forecast, library: str) -> Any:
    """A row for each step of each sequence, with the time where the steps so far are all equal."""
    rows = np.flatnonzero(found.future)
    before = found.before
    order = None
    if before is not None and before.table_keys is not None:
        values = before.table_keys.order_values
        if values is not None:
            order = _times_ahead(values, before.offsets, found.steps)
    keys = key_columns(found.sequences, rows, order)
    steps = np.tile(np.arange(1, found.steps + 1), len(found.sequences))
    return _joined(
        keys, {"step": steps, **marginal_columns(found.marginals, rows, found.sequences)}, library
    )


def _times_ahead(values: Any, offsets: Ints, steps: int) -> Any:
    from dspn.data.order import Grouping, Keys, next_values, order_goes_on, with_order_type
    from dspn.data.times import read_times

    times = read_times(values)
    keys = with_order_type(Keys(None, "order"), times)
    if not order_goes_on(times, keys):
        return None
    rows, count = np.arange(int(offsets[-1])), offsets.size - 1
    ahead = next_values(
        times, keys, Grouping(rows, offsets, list(range(count)), offsets[:-1]), steps
    )
    return ahead


def surprise_frame(found: Surprise, library: str) -> Any:
    """A row for each slice: the surprise and the tail of each entry, and that of the slice."""
    data = found.sequences
    columns: dict[str, Any] = {}
    for name, nats in zip(data.schema.names, found.variables.T, strict=True):
        columns[name] = np.ascontiguousarray(nats)
    columns["slice_surprise"] = found.slices
    for name, tails in zip(data.schema.names, found.tails.T, strict=True):
        columns[f"{name}_tail"] = np.ascontiguousarray(tails)
    return _joined(key_columns(data, np.arange(data.total_slices)), columns, library)
