"""How numbers change from slice to slice, as further variables."""

import numpy as np

from dspn._arguments import Floats
from dspn.data import Schema, Sequences, Variable
from dspn.errors import DataError
from experiments.datasets.preparation.base import checked_data, numeric_columns


def regression_deltas(data: Sequences) -> Sequences:
    """Adds d_x[t] = (2 (x[t+2] - x[t-2]) + (x[t+1] - x[t-1])) / 10 for every number x.

    That is the slope of the line through five slices, as in speech recognition. Before the first
    slice stands the first one again, behind the last the last. A slope is missing where one of its
    four values is; that of its own slice is none of them, but at the ends.
    """
    checked_data(data)
    ahead, behind = _moved(data, 2) - _moved(data, -2), _moved(data, 1) - _moved(data, -1)
    return _with_further(data, (2 * ahead + behind) / 10, "d_")


def forward_differences(data: Sequences) -> Sequences:
    """Adds step_x[t] = x[t+1] - x[t] for every number x.

    The last one of a sequence is missing, as is one of which either value is.
    """
    checked_data(data)
    steps = _moved(data, 1) - _moved(data, 0)
    steps[data.offsets[1:] - 1] = np.nan
    return _with_further(data, steps, "step_")


def _moved(data: Sequences, by: int) -> Floats:
    """The numbers `by` slices later; those at the ends of a sequence go on beyond them."""
    first, last = (np.repeat(ends, data.lengths) for ends in (data.offsets[:-1], data.offsets[1:]))
    rows = np.clip(np.arange(data.total_slices) + by, first, last - 1)
    return data.values[:, numeric_columns(data.schema)][rows]


def _with_further(data: Sequences, further: Floats, prefix: str) -> Sequences:
    """The sequences with a continuous variable more for each number."""
    names = [prefix + data.schema[column].name for column in numeric_columns(data.schema)]
    taken = [name for name in names if name in data.schema.names]
    if taken:
        raise DataError(
            f"`data` must have no variable {taken[0]!r}, the name of one that is added, but has "
            "one; add differences of a kind once, or leave that variable out by `data.select`."
        )
    schema = Schema((*data.schema, *(Variable.continuous(name) for name in names)))
    return Sequences.from_codes(np.hstack([data.values, further]), data.offsets, schema, data.ids)
