"""Numbers as bits: above the median of the sequence, or digit by digit."""

import itertools

import numpy as np

from dspn._arguments import Floats, whole_number
from dspn.data import Kind, Schema, Sequences, Variable
from dspn.errors import DataError
from experiments.datasets.preparation.base import checked_data, numeric_columns, recoded


def _medians(values: Floats) -> Floats:
    """The median of what is observed in each column; NaN where nothing is."""
    if not np.isnan(values).any():
        return np.asarray(np.median(values, axis=0))
    ordered = np.sort(values, axis=0)  # NaN last
    count = (~np.isnan(values)).sum(axis=0)
    columns = np.arange(values.shape[1])
    # Without any observation the first index is -1, where NaN is.
    below, above = ordered[(count - 1) // 2, columns], ordered[count // 2 - (count == 0), columns]
    return np.asarray((below + above) / 2)


def median_bits(data: Sequences) -> Sequences:
    """1 where a value lies above the median of its variable within its sequence, else 0.

    The median is taken over the observed values; what is missing stays so, and so does a variable
    that is categorical already.
    """
    columns = numeric_columns(checked_data(data).schema)
    bits = np.array(data.values)
    for begin, end in itertools.pairwise(data.offsets.tolist()):
        values = data.values[begin:end, columns]
        bits[begin:end, columns] = np.where(np.isnan(values), np.nan, values > _medians(values))
    return recoded(data, bits, 2)


def integer_bits(data: Sequences, num_bits: int = 7) -> Sequences:
    """Whole numbers in binary: a slice for each variable in turn, a variable for each bit.

    Slices of x and y become twice as many, of x, y, x, y and so on, each with the bits of one
    number, the highest first. Of a missing number every bit is missing.
    """
    width = whole_number(num_bits, "num_bits", DataError)
    named = [v.name for v in checked_data(data).schema if v.kind is Kind.CATEGORICAL]
    if named:
        raise DataError(
            f"`data` must have numbers only, but {named} are categorical; select others."
        )
    numbers = data.values.reshape(-1, 1)
    fits = np.isnan(numbers) | ((numbers >= 0) & (numbers < 2**width) & (numbers % 1 == 0))
    if not fits.all():
        found = float(numbers[int(np.argmin(fits)), 0])
        raise DataError(
            f"`data` must hold whole numbers from 0 to {2**width - 1} to be written with {width} "
            f"bits, but holds {found:g}."
        )
    powers = 2.0 ** np.arange(width - 1, -1, -1)
    bits = np.where(np.isnan(numbers), np.nan, np.floor(numbers / powers) % 2)
    schema = Schema(tuple(Variable.binary(f"bit{i}") for i in range(width - 1, -1, -1)))
    return Sequences.from_codes(bits, data.offsets * data.num_variables, schema, data.ids)
