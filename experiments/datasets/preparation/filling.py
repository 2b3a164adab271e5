"""Missing values filled with means of training data, hour by hour."""

from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arguments import Floats, read_only
from dspn.data import Kind, Schema, Sequences
from dspn.errors import DataError
from experiments.datasets.preparation.base import (
    FittedPreparation,
    Preparation,
    check_schema,
    checked_data,
)


def _check_lengths(data: Sequences, num_slices: int) -> None:
    other = np.flatnonzero(data.lengths != num_slices)
    if other.size:
        raise DataError(
            f"`data` must have sequences of {num_slices} slices, one for each hour, but sequence "
            f"{other[0]} has {data.lengths[other[0]]}."
        )


@final
@dataclass(frozen=True, eq=False)
class HourFilling(FittedPreparation):
    """The mean of each continuous variable at each hour, (slices, variables)."""

    schema: Schema
    means: Floats

    def apply(self, data: Sequences) -> Sequences:
        """A missing value becomes the mean of its hour; other kinds of variable stay missing."""
        check_schema(data, self.schema)
        _check_lengths(data, len(self.means))
        everywhere = np.tile(self.means, (len(data), 1))
        return data.with_values(np.where(np.isnan(data.values), everywhere, data.values))


@final
@dataclass(frozen=True)
class HourMeans(Preparation):
    """Fills a missing value with the mean, over the training data, of its variable at its hour.

    Sequences have all the same length: slice t is hour t.
    """

    def fit(self, data: Sequences) -> HourFilling:
        """The means."""
        num_slices = int(checked_data(data).lengths[0])
        _check_lengths(data, num_slices)
        values = data.values.reshape(len(data), num_slices, data.num_variables)
        observed = ~np.isnan(values)
        count = observed.sum(axis=0)
        means = np.where(observed, values, 0.0).sum(axis=0) / np.maximum(count, 1)
        continuous = np.array([variable.kind is Kind.CONTINUOUS for variable in data.schema])
        never = (count == 0) & continuous
        if never.any():
            hour, column = (int(found[0]) for found in np.nonzero(never))
            raise DataError(
                f"`data` must show each variable at least once at each hour, but "
                f"{data.schema[column].name!r} is missing at hour {hour} of every sequence."
            )
        return HourFilling(data.schema, read_only(np.where(continuous, means, np.nan)))
