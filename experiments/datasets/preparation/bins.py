"""Numbers as the bin they fall into; the edges are learned from training data."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arguments import Floats, read_only, whole_number
from dspn.data import Schema, Sequences
from dspn.errors import DataError
from experiments.datasets.preparation.base import (
    FittedPreparation,
    Preparation,
    check_schema,
    checked_data,
    numeric_columns,
    recoded,
)


@final
@dataclass(frozen=True, eq=False)
class Bins(FittedPreparation):
    """Inner edges of the bins of each variable, in rising order; none for a categorical one.

    A value on an edge belongs to the bin above it. The outer bins have no end.
    """

    schema: Schema
    edges: tuple[Floats | None, ...]
    num_bins: int

    def apply(self, data: Sequences) -> Sequences:
        """The number of the bin of each value; what is missing stays so."""
        check_schema(data, self.schema)
        codes = np.array(data.values)
        for column, edges in enumerate(self.edges):
            if edges is not None:
                values = data.values[:, column]
                found = np.searchsorted(edges, values, side="right")
                codes[:, column] = np.where(np.isnan(values), np.nan, found)
        return recoded(data, codes, self.num_bins)


@dataclass(frozen=True)
class _LearnedBins(Preparation):
    """Bins whose edges follow from the values of each variable in the training data."""

    num_bins: int = 7

    def __post_init__(self) -> None:
        whole_number(self.num_bins, "num_bins", DataError)

    @abstractmethod
    def _edges(self, values: Floats) -> Floats:
        """The inner edges for some observed values."""

    @final
    def fit(self, data: Sequences) -> Bins:
        """The inner edges of each variable."""
        edges: list[Floats | None] = [None] * checked_data(data).num_variables
        for column in numeric_columns(data.schema):
            values = data.values[:, column]
            observed = values[~np.isnan(values)]
            if not observed.size:
                raise DataError(
                    f"`data` must show at least one value of variable {data.schema[column].name!r} "
                    "to learn bins from, but all of them are missing."
                )
            edges[column] = read_only(self._edges(observed))
        return Bins(data.schema, tuple(edges), self.num_bins)


@final
class EqualWidthBins(_LearnedBins):
    """Bins of one width between the smallest and the largest value of the training data."""

    def _edges(self, values: Floats) -> Floats:
        return np.linspace(values.min(), values.max(), self.num_bins + 1)[1:-1]


@final
class QuantileBins(_LearnedBins):
    """Bins with the same number of values of the training data, but for equal values."""

    def _edges(self, values: Floats) -> Floats:
        return np.asarray(np.quantile(values, np.arange(1, self.num_bins) / self.num_bins))
