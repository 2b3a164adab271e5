"""Numbers as the bin they fall into; the edges are learned from training data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats, read_only
from dspn._checks import whole_number
from dspn.datasets.preparation.base import (
    FittedPreparation,
    Preparation,
    check_schema,
    checked_data,
    numeric_columns,
    recoded,
)
from dspn.errors import DataError
from dspn.sequences import Schema, Sequences


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


def _fitted(data: Sequences, num_bins: int, edges_of: Callable[[Floats], Floats]) -> Bins:
    """Bins with the edges of what each variable shows in the data."""
    edges: list[Floats | None] = [None] * checked_data(data).num_variables
    for column in numeric_columns(data.schema):
        values = data.values[:, column]
        observed = values[~np.isnan(values)]
        if not observed.size:
            raise DataError(
                f"`data` must show at least one value of variable {data.schema[column].name!r} to "
                "learn bins from, but all of them are missing."
            )
        edges[column] = read_only(edges_of(observed))
    return Bins(data.schema, tuple(edges), num_bins)


@final
@dataclass(frozen=True)
class EqualWidthBins(Preparation):
    """Bins of one width between the smallest and the largest value of the training data."""

    num_bins: int = 7

    def __post_init__(self) -> None:
        whole_number(self.num_bins, "num_bins", DataError)

    def fit(self, data: Sequences) -> Bins:
        """The inner edges of each variable."""
        return _fitted(data, self.num_bins, self._edges)

    def _edges(self, values: Floats) -> Floats:
        return np.linspace(values.min(), values.max(), self.num_bins + 1)[1:-1]


@final
@dataclass(frozen=True)
class QuantileBins(Preparation):
    """Bins with the same number of values of the training data, but for equal values."""

    num_bins: int = 7

    def __post_init__(self) -> None:
        whole_number(self.num_bins, "num_bins", DataError)

    def fit(self, data: Sequences) -> Bins:
        """The inner edges of each variable."""
        return _fitted(data, self.num_bins, self._edges)

    def _edges(self, values: Floats) -> Floats:
        return np.asarray(np.quantile(values, np.arange(1, self.num_bins) / self.num_bins))
