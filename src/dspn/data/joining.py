"""Several batches as one, and some sequences for all."""

from collections.abc import Sequence

import numpy as np

from dspn._arrays import Ints
from dspn.data.batch import Sequences
from dspn.errors import DataError

_SIDE_BY_SIDE = 64


def joined(batches: Sequence[Sequences]) -> Sequences:
    """The sequences of all batches, which share one schema, in their order and without ids."""
    if not batches:
        raise DataError("`batches` must hold at least one batch, but is empty.")
    schema = batches[0].schema
    if any(batch.schema != schema for batch in batches):
        raise DataError("`batches` must all have the same variables and categories.")
    values = np.concatenate([batch.values for batch in batches])
    lengths = np.concatenate([batch.lengths for batch in batches])
    return Sequences.from_codes(values, np.append(0, np.cumsum(lengths)), schema)


def drawn_places(data: Sequences, num_slices: int, rng: np.random.Generator) -> Ints:
    """Places of sequences drawn at random, of about as many slices together; all of a few."""
    if data.total_slices <= num_slices:
        return np.arange(len(data))
    order = rng.permutation(len(data))
    count = int(np.searchsorted(np.cumsum(data.lengths[order]), num_slices)) + 1
    return np.sort(order[:count])


def drawn_part(data: Sequences, num_slices: int, rng: np.random.Generator) -> Sequences:
    """The beginnings of sequences drawn at random, of about as many slices together.

    Where sequences are long there are some tens of beginnings rather than a few whole sequences:
    they tell more, and are evaluated side by side.
    """
    if data.total_slices <= num_slices:
        return data
    order = rng.permutation(len(data))
    count = int(np.searchsorted(np.cumsum(data.lengths[order]), num_slices)) + 1
    found = data[np.sort(order[: max(count, _SIDE_BY_SIDE)])]
    most = max(1, num_slices // len(found))
    return found if found.total_slices <= 2 * num_slices else found.slices(None, most)
