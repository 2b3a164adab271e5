"""Which columns of weighted rows are independent: a G-test of every pair, then the components.

The G-statistic of a table of weighted counts is 2 n I, n the effective number of rows and I the
mutual information. Three things keep its error rate near the level asked for:

- Rows of unequal weight count as n = (sum w)^2 / sum w^2.
- Categories that hardly occur are merged, the rarest first, until each stands for five effective
  rows, and the statistic is divided by Williams' factor. Without either, a hundred rows in a table
  of 2 by 64 cells are called dependent seventeen times too often at the level of 0.01.
- A row of a soft column belongs to several categories at once, which makes its counts less
  variable than draws. Statistic and degrees of freedom are matched to the first two moments of
  the weighted sum of chi-squares that follows (the correction of Rao and Scott). For hard columns
  they are the usual ones, the categories that occur less one.

Rows are taken as independent of each other. Successive slices seldom are, and the test then finds
more dependence than there is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, final

import numpy as np
from scipy.special import chdtrc, xlogy

from dspn._arrays import Bools, Floats, Ints
from dspn._checks import float_array, whole_number
from dspn.errors import DataError

DEFAULT_ALPHA: Final = 0.01
NUM_BINS: Final = 5
_LEAST_ROWS: Final = 5.0
# Rows of less than this share of the largest weight count for nothing; squares stay in range.
_LEAST_WEIGHT: Final = 1e-12
# Rounding leaves a constant column a trace of about 1e-16.
_NO_FREEDOM: Final = 1e-9


@final
@dataclass(frozen=True, eq=False)
class Column:
    """How far each row belongs to each category of one item, (categories, rows).

    What a row has adds up to 1, or is 0 throughout where the item is missing.
    """

    membership: Floats

    @classmethod
    def of_codes(cls, codes: Floats, num_categories: int) -> "Column":
        """Categories by their codes 0, 1, ...; NaN is missing."""
        values = _vector(codes, "codes")
        count = whole_number(num_categories, "num_categories", DataError)
        observed = np.flatnonzero(~np.isnan(values))
        places = values[observed].astype(np.int64)
        if places.size and (places.min() < 0 or places.max() >= count):
            raise DataError(
                f"`codes` must lie between 0 and {count - 1}, but run from {places.min()} to "
                f"{places.max()}."
            )
        membership = np.zeros((count, values.size))
        membership[places, observed] = 1.0
        return cls(membership)

    @classmethod
    def of_numbers(
        cls, values: Floats, weights: Floats | None = None, *, num_bins: int = NUM_BINS
    ) -> "Column":
        """Bins between the weighted quantiles 1/B, ..., (B - 1)/B; NaN is missing.

        A value equal to a quantile falls below it; equal quantiles are one.
        """
        numbers = _vector(values, "values")
        count = whole_number(num_bins, "num_bins", DataError)
        own = np.ones(numbers.size) if weights is None else _weights(weights, numbers.size)
        edges = _weighted_quantiles(numbers, own, np.arange(1, count) / count)
        codes = np.where(np.isnan(numbers), np.nan, np.searchsorted(edges, numbers))
        return cls.of_codes(codes, edges.size + 1)

    @classmethod
    def of_posterior(cls, posterior: Floats) -> "Column":
        """A hidden item by its posterior, (rows, categories); a row of NaN or zeros is missing."""
        table = float_array(posterior, "posterior", DataError)
        if table.ndim != 2:
            raise DataError(
                f"`posterior` must be a table of rows and categories, but has shape {table.shape}."
            )
        if np.any(table < 0) or np.any(np.isinf(table)):
            raise DataError("`posterior` must be finite and not negative; some entries are not.")
        membership = np.ascontiguousarray(table.T)
        totals = membership.sum(axis=0)
        scale = np.divide(1.0, totals, out=np.zeros(totals.size), where=totals > 0)
        return cls(np.where(scale > 0, membership * scale, 0.0))


def _vector(values: Any, argument: str) -> Floats:
    array = float_array(values, argument, DataError)
    if array.ndim != 1:
        raise DataError(f"`{argument}` must be a vector, but has shape {array.shape}.")
    return array


def _weights(weights: Any, num_rows: int) -> Floats:
    """The weights divided by the largest, so that their squares are in range."""
    own = _vector(weights, "weights")
    if own.size != num_rows:
        raise DataError(
            f"`weights` must have an entry for each of the {num_rows} rows, but has {own.size}."
        )
    if not np.all(np.isfinite(own) & (own >= 0)):
        raise DataError("`weights` must be finite and not negative; some entries are not.")
    largest = own.max(initial=0.0)
    return own / largest if largest > 0 else own


def _weighted_quantiles(values: Floats, weights: Floats, levels: Floats) -> Floats:
    """The least values at which the share of the weight reaches the levels, without repeats."""
    counted = ~np.isnan(values) & (weights > 0)
    order = np.argsort(values[counted], kind="stable")
    own = values[counted][order]
    reached = np.cumsum(weights[counted][order])
    if not own.size:
        return own
    places = np.searchsorted(reached, levels * reached[-1])
    return np.unique(own[np.minimum(places, own.size - 1)])


@final
@dataclass(frozen=True, eq=False)
class _Table:
    """Memberships of all columns, one above the other; column c begins at category starts[c]."""

    memberships: Floats
    starts: Ints
    weights: Floats

    @property
    def sizes(self) -> Ints:
        """Number of categories of each column."""
        return np.diff(self.starts, append=len(self.memberships))

    @cached_property
    def owner(self) -> Floats:
        """1 where a category is the column's, (columns, categories): sums as a matrix product."""
        columns = np.arange(len(self.starts))
        return np.equal.outer(columns, columns.repeat(self.sizes)).astype(np.float64)

    def merged(self) -> "_Table":
        """Rare categories of each column merged, the rarest first, up to five effective rows."""
        observed = self.owner @ self.memberships
        total = observed @ self.weights
        squares = observed @ (self.weights * self.weights)
        share = np.divide(total, squares, out=np.zeros(total.size), where=squares > 0)
        rows = (self.memberships @ self.weights) * share.repeat(self.sizes)
        if rows.min() >= _LEAST_ROWS:
            return self
        order: list[int] = []
        begins: list[int] = []
        starts: list[int] = []
        for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True):
            own = rows[start : start + size]
            starts.append(len(begins))
            begins.extend(start + place for place in _groups(np.sort(own)))
            order.extend((start + np.argsort(own, kind="stable")).tolist())
        gathered = np.add.reduceat(self.memberships[order], begins, axis=0)
        return _Table(gathered, np.array(starts), self.weights)


def _groups(rows: Floats) -> list[int]:
    """Where each group of neighbours with at least five rows together begins; one group at least.

    What is left over at the end joins the last group.
    """
    begins, gathered = [0], 0.0
    for place, count in enumerate(rows.tolist(), start=1):
        gathered += count
        if gathered >= _LEAST_ROWS:
            begins.append(place)
            gathered = 0.0
    return begins[:-1] if len(begins) > 1 else begins


def _table(columns: Sequence[Column], weights: Floats | None) -> _Table:
    """The columns with the rows that have a weight, rare categories merged."""
    num_rows = columns[0].membership.shape[1]
    for number, column in enumerate(columns):
        if column.membership.shape[1] != num_rows:
            raise DataError(
                f"`columns` must have the same rows, but column 0 has {num_rows} and column "
                f"{number} has {column.membership.shape[1]}."
            )
    own = _weights(np.ones(num_rows) if weights is None else weights, num_rows)
    sizes = [len(column.membership) for column in columns]
    memberships = np.concatenate([column.membership for column in columns])
    used = own > _LEAST_WEIGHT
    if not used.all():
        memberships, own = memberships[:, used], own[used]
    return _Table(memberships, np.cumsum([0, *sizes[:-1]]), own).merged()


def _moments(joint: Floats, table: _Table) -> tuple[Floats, Floats]:
    """Traces of M and M^2 for each column, M its covariance in units of a hard column's.

    A hard column of c categories has M = the identity on c - 1 dimensions.
    """
    traces = np.zeros((2, len(table.starts)))
    for number, (start, size) in enumerate(zip(table.starts, table.sizes, strict=True)):
        own = joint[start : start + size, start : start + size]
        total = own.sum()
        if total > 0:
            root = np.sqrt(own.sum(axis=1) / total)
            matrix = own / total / np.outer(root, root) - np.outer(root, root)
            traces[:, number] = np.trace(matrix), (matrix * matrix).sum()
    return traces[0], traces[1]


def p_values(columns: Sequence[Column], weights: Floats | None = None) -> Floats:
    """P(a G-statistic at least as large | independent) for every pair of columns.

    A pair is tested on the rows in which both are observed. A column with a single category that
    occurs, or with none, is independent of everything: its entries are 1, like the diagonal's.
    """
    if not columns:
        return np.ones((0, 0))
    table = _table(columns, weights)
    weighted = table.memberships * table.weights
    joint = weighted @ table.memberships.T
    observed = table.owner @ weighted
    squares = observed @ observed.T
    # Entry (i, b): category i among the rows in which column b is observed.
    margins = joint @ table.owner.T
    total = table.owner @ margins
    cells = table.owner @ _x_log_x(joint) @ table.owner.T
    single = table.owner @ _x_log_x(margins)
    first, second = (np.multiply.outer(trace, trace) for trace in _moments(joint, table))
    widths = np.maximum(table.sizes - 1.0, 1.0)
    freedom = np.multiply.outer(widths, widths)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rows = total * total / squares
        shares = total.repeat(table.sizes, axis=0) / margins
        spread = table.owner @ np.where(margins > 0, shares, 0.0) - 1.0
        information = (cells - single - single.T + _x_log_x(total)) / total
        williams = 1.0 + spread * spread.T / (6.0 * rows * freedom) * (first / freedom)
        statistic = 2.0 * rows * np.maximum(information, 0.0) / williams
        found = chdtrc(first * first / second, statistic * first / second)
    testable = (total > 0) & (first > _NO_FREEDOM) & np.isfinite(found)
    np.fill_diagonal(testable, False)
    return np.where(testable, found, 1.0)


def _x_log_x(values: Floats) -> Floats:
    return np.asarray(xlogy(values, values), dtype=np.float64)


def dependent_pairs(
    columns: Sequence[Column], weights: Floats | None = None, alpha: float = DEFAULT_ALPHA
) -> Bools:
    """Which pairs are dependent at level alpha, (columns, columns).

    An independent pair is taken for dependent in a share alpha of all samples.
    """
    return p_values(columns, weights) < checked_alpha(alpha)


def components(linked: Bools) -> list[list[int]]:
    """The connected components of a graph, each in rising order, by their first members."""
    if not len(linked):
        return []
    # Imported when it is used, as it takes long to load.
    from scipy.sparse.csgraph import connected_components

    count, labels = connected_components(linked, directed=False)
    found: list[list[int]] = [[] for _ in range(count)]
    for item, label in enumerate(labels.tolist()):
        found[label].append(item)
    return sorted(found)


def independent_subsets(
    columns: Sequence[Column], weights: Floats | None = None, alpha: float = DEFAULT_ALPHA
) -> list[list[int]]:
    """Subsets of columns such that no pair from different subsets is dependent at level alpha."""
    return components(dependent_pairs(columns, weights, alpha))


def checked_alpha(alpha: float) -> float:
    """The level; raises unless it lies strictly between 0 and 1."""
    if not isinstance(alpha, int | float) or not 0 < alpha < 1:
        raise DataError(f"`alpha` must be a number strictly between 0 and 1, but is {alpha!r}.")
    return float(alpha)
