"""Numbers relative to their mean within the sequence."""

import numpy as np

from dspn.data import Schema, Sequences
from experiments.datasets.preparation.base import checked_data, continuous, numeric_columns


def centred(data: Sequences) -> Sequences:
    """Each value less the mean of its variable over the observed slices of its sequence.

    What is missing stays so, and so does a variable that is categorical. Counts become continuous.
    """
    columns = numeric_columns(checked_data(data).schema)
    if not columns:
        return data
    values = data.values[:, columns]
    observed, firsts = ~np.isnan(values), data.offsets[:-1]
    count = np.add.reduceat(observed.astype(np.int64), firsts)
    total = np.add.reduceat(np.where(observed, values, 0.0), firsts)
    means = total / np.maximum(count, 1)
    found = np.array(data.values)
    found[:, columns] = values - np.repeat(means, data.lengths, axis=0)
    schema = Schema(tuple(continuous(variable) for variable in data.schema))
    return Sequences.from_codes(found, data.offsets, schema, data.ids)
