"""Several batches as one."""

from collections.abc import Sequence

import numpy as np

from dspn.errors import DataError
from dspn.sequences.batch import Sequences


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
