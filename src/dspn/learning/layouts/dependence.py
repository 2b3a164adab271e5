"""How much is lost where two variables are modelled by separate chains, pair by pair.

The chain rule splits the information that the sequences of two variables have about each other
into that of the first slices, and what every further slice adds given the slice before it:

    I(x_i^1; x_j^1) + sum_t I((x_i^t, x_i^{t-1}); (x_j^t, x_j^{t-1})) - I(x_i^{t-1}; x_j^{t-1}).

A term of the sum is I(x_i^t; x_j^{t-1} | x_i^{t-1}) + I(x_j^t; x_i^{t-1} | x_j^{t-1})
+ I(x_i^t; x_j^t | x_i^{t-1}, x_j^{t-1}). Each is information about what a slice adds to its past,
which for independent chains is estimated too high by degrees of freedom / (2 n), however slowly the
chains move; tables of values alone would call two slow chains dependent.
"""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from dspn._arrays import Bools, Floats, Ints
from dspn._checks import require_type
from dspn.data import Kind, Sequences, Variable
from dspn.errors import DataError

_MOST_CATEGORIES: Final = 8
_MOST_BINS: Final = 4
# Fewer rows to a cell of a table, on average, and its bias is no longer known well.
_ROWS_TO_A_CELL: Final = 8.0

Codes = NDArray[np.int16]


@final
@dataclass(frozen=True, eq=False)
class _Coded:
    """The values of one variable as codes 0 to `size` - 1; `size` itself where it is missing."""

    codes: Codes
    size: int


def _largest_size(observed: Bools, later: Ints) -> int:
    """How many categories two such variables may have so that their tables are filled.

    The table of neighbouring slices has size^4 cells; without neighbours there are size^2.
    """
    neighbours = int((observed[later] & observed[later - 1]).sum())
    cells = (neighbours or int(observed.sum())) / _ROWS_TO_A_CELL
    return max(2, int(cells ** (0.25 if neighbours else 0.5)))


def _in_order(counts: Ints, most: int) -> Ints:
    """The part of each category, neighbours together, in at most `most` parts of like size."""
    total = max(int(counts.sum()), 1)
    middle = (np.cumsum(counts) - 0.5 * counts) / total
    part = np.minimum((middle * most).astype(np.int64), most - 1)
    return np.asarray(np.unique(part, return_inverse=True)[1], dtype=np.int64)


def _by_frequency(counts: Ints, most: int) -> Ints:
    """The part of each category: the most frequent have one each, all others the last."""
    part = np.full(counts.size, most - 1, dtype=np.int64)
    frequent = np.argsort(-counts, kind="stable")[: most - 1]
    part[frequent] = np.arange(frequent.size)
    return part


def _ordered(variable: Variable) -> bool:
    """Whether neighbouring codes are neighbouring numbers."""
    numbers = [c for c in variable.categories if not isinstance(c, str | bool)]
    return len(numbers) == variable.num_categories and numbers == sorted(numbers)


def _category_codes(variable: Variable, values: Floats, most: int) -> tuple[Ints, int]:
    """Codes of the categories that occur, merged where they are too many."""
    counts = np.bincount(values.astype(np.int64), minlength=variable.num_categories)
    occurs = np.flatnonzero(counts)
    part = np.zeros(counts.size, dtype=np.int64)
    if occurs.size <= most:
        part[occurs] = np.arange(occurs.size)
    elif _ordered(variable):
        part[occurs] = _in_order(counts[occurs], most)
    else:
        part[occurs] = _by_frequency(counts[occurs], most)
    return part[values.astype(np.int64)], int(part.max()) + 1


def _bin_codes(values: Floats, most: int) -> tuple[Ints, int]:
    """Bins between the quantiles 1/B, ..., (B - 1)/B, of which equal ones are one."""
    levels = np.arange(1, most) / most
    edges = np.unique(np.quantile(values, levels, method="inverted_cdf"))
    # A value equal to an edge falls below it; nothing lies above an edge at the maximum.
    edges = edges[edges < values.max()]
    return np.searchsorted(edges, values), edges.size + 1


def _coded(variable: Variable, values: Floats, later: Ints) -> _Coded:
    """Codes of one column, as many as its observed values allow; `later` has a slice before it."""
    observed = ~np.isnan(values)
    own = values[observed]
    most = _largest_size(observed, later)
    if not own.size:
        found, size = np.zeros(0, dtype=np.int64), 1
    elif variable.kind == Kind.CATEGORICAL:
        found, size = _category_codes(variable, own, min(most, _MOST_CATEGORIES))
    else:
        found, size = _bin_codes(own, min(most, _MOST_BINS))
    codes = np.full(values.size, size, dtype=np.int16)
    codes[observed] = found
    return _Coded(codes, size)


def _neighbours(column: _Coded, later: Ints) -> _Coded:
    """The codes before * size + now of neighbouring slices; missing where either is."""
    now, before = column.codes[later], column.codes[later - 1]
    missing = (now == column.size) | (before == column.size)
    size = column.size * column.size
    codes = np.where(missing, size, before * column.size + now)
    return _Coded(codes.astype(np.int16), size)


def _table(one: _Coded, other: _Coded) -> Floats:
    """How often the codes meet in the rows in which both are observed, (size, size)."""
    width = other.size + 1
    places = one.codes.astype(np.int64)
    places *= width
    places += other.codes
    counts = np.bincount(places, minlength=(one.size + 1) * width)
    return counts.reshape(one.size + 1, width)[:-1, :-1].astype(np.float64)


def _x_log_x(counts: Floats) -> float:
    return float(xlogy(counts, counts).sum())


def _freedom(table: Floats) -> float:
    """Degrees of freedom of independence in (strata, rows, columns), of what occurs in each."""
    rows, columns = (table.any(axis=axis).sum(axis=1) for axis in (2, 1))
    return float((np.maximum(rows - 1, 0) * np.maximum(columns - 1, 0)).sum())


def _within(table: Floats) -> float:
    """N I of a table of counts, less its bias; it may come out below zero."""
    information = (
        _x_log_x(table)
        - _x_log_x(table.sum(axis=0))
        - _x_log_x(table.sum(axis=1))
        + _x_log_x(table.sum())
    )
    return information - 0.5 * _freedom(table[None])


def _across(table: Floats, one: int, other: int) -> float:
    """N (I of both slices - I of the earlier slices), less its bias.

    `table` has (before, now) of one variable in its rows, of the other in its columns.
    """
    cells = table.reshape(one, one, other, other)
    before = cells.sum(axis=(1, 3))
    rows, columns = cells.sum(axis=(2, 3)), cells.sum(axis=(0, 1))
    information = (
        _x_log_x(cells)
        - _x_log_x(rows)
        - _x_log_x(columns)
        - _x_log_x(before)
        + _x_log_x(before.sum(axis=1))
        + _x_log_x(before.sum(axis=0))
    )
    freedom = (
        _freedom(cells.sum(axis=3))
        + _freedom(cells.sum(axis=1).transpose(1, 2, 0))
        + _freedom(cells.transpose(0, 2, 1, 3).reshape(one * other, one, other))
    )
    return information - 0.5 * freedom


def dependence(data: Sequences) -> Floats:
    """Nats per slice that are lost where variables i and j have separate chains, (n, n).

    Symmetric and not negative, with zeros on the diagonal; near 0 for independent variables.
    Estimated from tables of counts of neighbouring slices in which both variables are observed, and
    of first slices: sequences of one slice have the part within the slice alone. Many categories
    are merged, neighbours where they are numbers in rising order and the rarest otherwise; numbers
    are put into bins between quantiles.
    """
    require_type(data, Sequences, "data", DataError)
    first = data.offsets[:-1]
    is_later: Bools = np.ones(data.total_slices, dtype=np.bool_)
    is_later[first] = False
    later = np.flatnonzero(is_later)
    columns = [_coded(v, data.values[:, i], later) for i, v in enumerate(data.schema)]
    starts = [_Coded(column.codes[first], column.size) for column in columns]
    pairs = [_neighbours(column, later) for column in columns]
    found = np.zeros((len(columns), len(columns)))
    for j in range(len(columns)):
        for i in range(j):
            if columns[i].size == 1 or columns[j].size == 1:
                continue
            begin, both = _table(starts[i], starts[j]), _table(pairs[i], pairs[j])
            count = begin.sum() + both.sum()
            total = _within(begin) + _across(both, columns[i].size, columns[j].size)
            found[i, j] = found[j, i] = max(total / count, 0.0) if count else 0.0
    return found
