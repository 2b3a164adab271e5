"""Which sequences a page shows: the most surprising, as many as there is room for."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.data import Kind, Schema, Sequences
from dspn.report._entries import MOST_CATEGORIES
from dspn.report._interfaces import MOST_ROWS

ROOM: Final = 36_000_000
"""Bytes of all records of a page whose number of sequences was not asked for."""

_OTHER_BYTES: Final = 120
_ORDER_BYTES: Final = 24.0


@final
@dataclass(frozen=True, eq=False)
class Choice:
    """Sequences by number, the most surprising first, and -log P per slice of every sequence."""

    shown: Ints
    per_slice: Floats


def chosen(log_likelihood: Floats, data: Sequences, steps: int, most: int | None) -> Choice:
    """The sequences with the largest -log P / T, up to `most` or to the room of a page."""
    per_slice = -log_likelihood / data.lengths
    order = np.argsort(-per_slice, kind="stable")
    if most is None:
        most = int(np.searchsorted(np.cumsum(_sizes(data, steps)[order]), ROOM, side="right"))
    return Choice(order[: max(most, 1)], per_slice)


def _sizes(data: Sequences, steps: int) -> Floats:
    """Bytes of each sequence's record in the page, or a little more."""
    answers = np.array([_answer_bytes(column, data.schema) for column in range(len(data.schema))])
    missing = np.add.reduceat(np.isnan(data.values) @ answers, data.offsets[:-1])
    keys = data.table_keys
    ordered = keys is not None and keys.order_values is not None
    slice_bytes = (
        (_ORDER_BYTES if ordered else 0.0) + 4.0 + 8.0 * len(data.schema) + 2.0 * MOST_ROWS
    )
    own = _OTHER_BYTES + slice_bytes * data.lengths + missing + steps * answers.sum()
    sizes: Floats = own * 4.0 / 3.0
    return sizes


def _answer_bytes(column: int, schema: Schema) -> float:
    variable = schema[column]
    if variable.kind == Kind.CATEGORICAL:
        return 4.0 * min(variable.num_categories, MOST_CATEGORIES)
    return 16.0
