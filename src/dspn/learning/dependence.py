"""How far variables depend on each other, and the layouts of variables that follow from it.

Three questions have one answer each, all from tables of counts:

- `dependent_pairs`: which columns of weighted rows are dependent, by a G-test of every pair;
- `pairwise_information`: the information that two variables of one slice have about each other;
- `dependence`: what is lost where two variables are modelled by separate chains.

**The G-test.** The G-statistic of a table of weighted counts is 2 n I, n the effective number of
rows and I the mutual information. Three things keep its error rate near the level asked for:

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

**Separate chains.** The chain rule splits the information that the sequences of two variables have
about each other into that of the first slices, and what every further slice adds given the slice
before it:

    I(x_i^1; x_j^1) + sum_t I((x_i^t, x_i^{t-1}); (x_j^t, x_j^{t-1})) - I(x_i^{t-1}; x_j^{t-1}).

A term of the sum is I(x_i^t; x_j^{t-1} | x_i^{t-1}) + I(x_j^t; x_i^{t-1} | x_j^{t-1})
+ I(x_i^t; x_j^t | x_i^{t-1}, x_j^{t-1}). Each is information about what a slice adds to its past,
which for independent chains is estimated too high by degrees of freedom / (2 n), however slowly the
chains move; tables of values alone would call two slow chains dependent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, xlogy

from dspn._arguments import Bools, Floats, Ints, float_array, indices, require_type, whole_number
from dspn.data.schema import Kind, Variable
from dspn.data.sequences import Sequences
from dspn.errors import DataError, StructureError

DEFAULT_ALPHA: Final = 0.01
NUM_BINS: Final = 5
_LEAST_ROWS: Final = 5.0
# Rows of less than this share of the largest weight count for nothing; squares stay in range.
_LEAST_WEIGHT: Final = 1e-12
# Rounding leaves a constant column a trace of about 1e-16.
_NO_FREEDOM: Final = 1e-9
# Categories and bins of a variable: in tables of one slice, and of neighbouring slices.
_SLICE_CATEGORIES: Final = 16
_CHAIN_CATEGORIES: Final = 8
_CHAIN_BINS: Final = 4
# Fewer rows to a cell of a table, on average, and its bias is no longer known well.
_ROWS_TO_A_CELL: Final = 8.0
_SYMMETRY_TOLERANCE: Final = 1e-9


# The G-test of weighted columns.


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
        own = _weights(weights, numbers.size)
        counted = ~np.isnan(numbers) & (own > 0)
        edges = _quantiles(numbers[counted], own[counted], count)
        codes = np.where(np.isnan(numbers), np.nan, np.searchsorted(edges, numbers))
        return cls.of_codes(codes, edges.size + 1)

    @classmethod
    def of_variable(
        cls, variable: Variable, values: Floats, weights: Floats | None = None
    ) -> "Column":
        """The column of a variable by its kind: its categories, or bins of its numbers."""
        if variable.kind is Kind.CATEGORICAL:
            return cls.of_codes(values, variable.num_categories)
        return cls.of_numbers(values, weights)

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
    """The weights divided by the largest, so that their squares are in range; 1 without weights."""
    own = np.ones(num_rows) if weights is None else _vector(weights, "weights")
    if own.size != num_rows:
        raise DataError(
            f"`weights` must have an entry for each of the {num_rows} rows, but has {own.size}."
        )
    if not np.all(np.isfinite(own) & (own >= 0)):
        raise DataError("`weights` must be finite and not negative; some entries are not.")
    return own / (own.max(initial=0.0) or 1.0)


def _quantiles(values: Floats, weights: Floats, count: int) -> Floats:
    """The values at the shares 1/B, ..., (B - 1)/B of the weight, each once, in rising order."""
    if not values.size:
        return values
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    places = np.searchsorted(reached, np.arange(1, count) / count * reached[-1])
    return np.unique(values[order][np.minimum(places, values.size - 1)])


def _merge_rare(membership: Floats, weights: Floats) -> Floats:
    """Rare categories of a column merged, the rarest first, up to five effective rows.

    What is left over joins the last group, and there is one group at least.
    """
    observed = membership.sum(axis=0)
    squares = float(observed @ (weights * weights))
    share = float(observed @ weights) / squares if squares > 0 else 0.0
    rows = (membership @ weights) * share
    if rows.min() >= _LEAST_ROWS:
        return membership
    order = np.argsort(rows, kind="stable")
    begins, gathered = [0], 0.0
    for place, count in enumerate(rows[order].tolist(), start=1):
        gathered += count
        if gathered >= _LEAST_ROWS:
            begins.append(place)
            gathered = 0.0
    return np.add.reduceat(membership[order], begins[:-1] or begins, axis=0)


def _traces(joint: Floats) -> tuple[float, float]:
    """Traces of M and M^2 for one column, M its covariance in units of a hard column's.

    A hard column of c categories has M = the identity on c - 1 dimensions.
    """
    total = joint.sum()
    if not total > 0:
        return 0.0, 0.0
    root = np.sqrt(joint.sum(axis=1) / total)
    matrix = joint / total / np.outer(root, root) - np.outer(root, root)
    return float(np.trace(matrix)), float((matrix * matrix).sum())


def p_values(columns: Sequence[Column], weights: Floats | None = None) -> Floats:
    """P(a G-statistic at least as large | independent) for every pair of columns.

    A pair is tested on the rows in which both are observed. A column with a single category that
    occurs, or with none, is independent of everything: its entries are 1, like the diagonal's.
    """
    if not columns:
        return np.ones((0, 0))
    num_rows = columns[0].membership.shape[1]
    for number, column in enumerate(columns):
        if column.membership.shape[1] != num_rows:
            raise DataError(
                f"`columns` must have the same rows, but column 0 has {num_rows} and column "
                f"{number} has {column.membership.shape[1]}."
            )
    own = _weights(weights, num_rows)
    used = own > _LEAST_WEIGHT
    own = own[used]
    merged = [_merge_rare(column.membership[:, used], own) for column in columns]
    sizes = np.array([len(part) for part in merged])
    memberships = np.concatenate(merged)
    # 1 where a category is the column's, (columns, categories): sums as a matrix product.
    owner = np.repeat(np.eye(len(sizes)), sizes, axis=1)
    weighted = memberships * own
    joint = weighted @ memberships.T
    observed = owner @ weighted
    squares = observed @ observed.T
    # Entry (i, b): category i among the rows in which column b is observed.
    margins = joint @ owner.T
    total = owner @ margins
    cells = owner @ xlogy(joint, joint) @ owner.T
    single = owner @ xlogy(margins, margins)
    places = np.split(np.arange(len(memberships)), np.cumsum(sizes)[:-1])
    traces = [_traces(joint[np.ix_(own, own)]) for own in places]
    first, second = (np.multiply.outer(trace, trace) for trace in np.transpose(traces))
    widths = np.maximum(sizes - 1.0, 1.0)
    freedom = np.multiply.outer(widths, widths)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rows = total * total / squares
        shares = total.repeat(sizes, axis=0) / margins
        spread = owner @ np.where(margins > 0, shares, 0.0) - 1.0
        information = (cells - single - single.T + xlogy(total, total)) / total
        williams = 1.0 + spread * spread.T / (6.0 * rows * freedom) * (first / freedom)
        statistic = 2.0 * rows * np.maximum(information, 0.0) / williams
        found = chdtrc(first * first / second, statistic * first / second)
    testable = (total > 0) & (first > _NO_FREEDOM) & np.isfinite(found)
    np.fill_diagonal(testable, False)
    return np.where(testable, found, 1.0)


def checked_alpha(alpha: float) -> float:
    """The level; raises unless it lies strictly between 0 and 1."""
    if not isinstance(alpha, int | float) or not 0 < alpha < 1:
        raise DataError(f"`alpha` must be a number strictly between 0 and 1, but is {alpha!r}.")
    return float(alpha)


def dependent_pairs(
    columns: Sequence[Column], weights: Floats | None = None, alpha: float = DEFAULT_ALPHA
) -> Bools:
    """Which pairs are dependent at level alpha, (columns, columns).

    An independent pair is called dependent in a share alpha of all samples.
    """
    return p_values(columns, weights) < checked_alpha(alpha)


def components(linked: Bools) -> list[list[int]]:
    """The connected components of a graph, each in rising order, by their first members."""
    if not len(linked):
        return []
    # Imported when it is used, as it takes long to load.
    from scipy.sparse.csgraph import connected_components

    count, labels = connected_components(linked, directed=False)
    return sorted(np.flatnonzero(labels == label).tolist() for label in range(count))


def independent_subsets(
    columns: Sequence[Column], weights: Floats | None = None, alpha: float = DEFAULT_ALPHA
) -> list[list[int]]:
    """Subsets of columns such that no pair from different subsets is dependent at level alpha."""
    return components(dependent_pairs(columns, weights, alpha))


# Information between variables, from tables of counts.


class _Codes(NamedTuple):
    """The values of one variable as codes 0 to `size` - 1; `size` itself where it is missing."""

    codes: NDArray[np.int16]
    size: int


def _merge_categories(variable: Variable, counts: Ints, most: int, by_order: bool) -> Ints:
    """The part of each category that occurs, in at most `most` parts.

    `by_order` merges neighbours where the categories are numbers in rising order. Otherwise the
    most frequent categories have a part each, and all others the last.
    """
    numbers = [c for c in variable.categories if not isinstance(c, str | bool)]
    is_ordered = len(numbers) == variable.num_categories and numbers == sorted(numbers)
    if by_order and counts.size <= most:
        return np.arange(counts.size)
    if by_order and is_ordered:
        middle = (np.cumsum(counts) - 0.5 * counts) / max(int(counts.sum()), 1)
        part = np.minimum((middle * most).astype(np.int64), most - 1)
        return np.asarray(np.unique(part, return_inverse=True)[1], dtype=np.int64)
    place = np.empty(counts.size, dtype=np.int64)
    place[np.argsort(-counts, kind="stable")] = np.arange(counts.size)
    return np.minimum(place, most - 1)


def _code(
    variable: Variable, values: Floats, categories: int, bins: int, *, by_order: bool
) -> _Codes:
    """Codes of one column: at most so many categories, or bins between quantiles."""
    observed = ~np.isnan(values)
    own = values[observed]
    found, size = np.zeros(own.size, dtype=np.int64), 1
    if own.size and variable.kind is Kind.CATEGORICAL:
        places = own.astype(np.int64)
        counts = np.bincount(places, minlength=variable.num_categories)
        part = np.zeros(counts.size, dtype=np.int64)
        part[counts > 0] = _merge_categories(variable, counts[counts > 0], categories, by_order)
        found, size = part[places], int(part.max()) + 1
    elif own.size:
        edges = _quantiles(own, np.ones(own.size), bins)
        # A value equal to an edge falls below it; nothing lies above an edge at the maximum.
        edges = edges[edges < own.max()]
        found, size = np.searchsorted(edges, own), edges.size + 1
    codes = np.full(values.size, size, dtype=np.int16)
    codes[observed] = found
    return _Codes(codes, size)


def _count(one: _Codes, other: _Codes) -> Floats:
    """How often the codes meet in the rows in which both are observed, (size, size)."""
    width = other.size + 1
    places = one.codes.astype(np.int64)
    places *= width
    places += other.codes
    counts = np.bincount(places, minlength=(one.size + 1) * width)
    return counts.reshape(one.size + 1, width)[:-1, :-1].astype(np.float64)


def _x_log_x(*tables: Floats) -> float:
    return sum(float(xlogy(table, table).sum()) for table in tables)


def _freedom(table: Floats) -> float:
    """Degrees of freedom of independence in (strata, rows, columns), of what occurs in each."""
    rows, columns = (table.any(axis=axis).sum(axis=1) for axis in (2, 1))
    return float((np.maximum(rows - 1, 0) * np.maximum(columns - 1, 0)).sum())


def _within(table: Floats) -> float:
    """N I of a table of counts, less its bias; it may come out below zero."""
    sums = table.sum(axis=0), table.sum(axis=1)
    return _x_log_x(table, table.sum()) - _x_log_x(*sums) - 0.5 * _freedom(table[None])


def _across(table: Floats, one: int, other: int) -> float:
    """N (I of both slices - I of the earlier slices), less its bias.

    `table` has (before, now) of one variable in its rows, of the other in its columns.
    """
    cells = table.reshape(one, one, other, other)
    before = cells.sum(axis=(1, 3))
    gained = _x_log_x(cells, before.sum(axis=1), before.sum(axis=0))
    lost = _x_log_x(cells.sum(axis=(2, 3)), cells.sum(axis=(0, 1)), before)
    freedom = (
        _freedom(cells.sum(axis=3))
        + _freedom(cells.sum(axis=1).transpose(1, 2, 0))
        + _freedom(cells.transpose(0, 2, 1, 3).reshape(one * other, one, other))
    )
    return gained - lost - 0.5 * freedom


def pairwise_information(data: Sequences, variables: Sequence[int]) -> Floats:
    """I(x_i; x_j) of the variables of one slice, in nats, with 0 on the diagonal.

    From the slices that have both entries, numbers in bins between quantiles, less the excess
    (r - 1)(c - 1) / 2N that a table of r by c cells has on average under independence.
    """
    columns = [
        _code(data.schema[v], data.values[:, v], _SLICE_CATEGORIES, NUM_BINS, by_order=False)
        for v in variables
    ]
    found = np.zeros((len(columns), len(columns)))
    for i, j in combinations(range(len(columns)), 2):
        table = _count(columns[i], columns[j])
        found[i, j] = found[j, i] = _within(table) / max(table.sum(), 1.0)
    return found


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
    later = np.delete(np.arange(data.total_slices), first)

    def code(variable: Variable, values: Floats) -> _Codes:
        """As many codes as fill tables of neighbouring slices (size^4), or of slices (size^2)."""
        observed = ~np.isnan(values)
        pairs = int((observed[later] & observed[later - 1]).sum())
        cells = (pairs or int(observed.sum())) / _ROWS_TO_A_CELL
        most = max(2, int(cells ** (0.25 if pairs else 0.5)))
        limits = min(most, _CHAIN_CATEGORIES), min(most, _CHAIN_BINS)
        return _code(variable, values, *limits, by_order=True)

    def neighbours(column: _Codes) -> _Codes:
        """The codes before * size + now of neighbouring slices; missing where either is."""
        now, before, size = column.codes[later], column.codes[later - 1], column.size
        missing = (now == size) | (before == size)
        codes = np.where(missing, size * size, before * size + now)
        return _Codes(codes.astype(np.int16), size * size)

    columns = [code(variable, data.values[:, i]) for i, variable in enumerate(data.schema)]
    starts = [_Codes(column.codes[first], column.size) for column in columns]
    pairs = [neighbours(column) for column in columns]
    found = np.zeros((len(columns), len(columns)))
    for i, j in combinations([i for i, column in enumerate(columns) if column.size > 1], 2):
        begin, both = _count(starts[i], starts[j]), _count(pairs[i], pairs[j])
        total = _within(begin) + _across(both, columns[i].size, columns[j].size)
        found[i, j] = found[j, i] = max(total / max(begin.sum() + both.sum(), 1.0), 0.0)
    return found


# Layouts: which variables share an interface group.

Layout = tuple[tuple[int, ...], ...]
"""Blocks of variables by number, each in rising order, in the order of their first members."""


def layout_of(blocks: Sequence[Sequence[int]]) -> Layout:
    """The blocks as a layout; raises unless they share out the variables 0, 1, ..., n - 1."""
    try:
        members = [tuple(sorted(indices(block, "blocks", StructureError))) for block in blocks]
    except TypeError:
        raise StructureError(
            "`blocks` must be a list of lists of variables by number, such as [[0, 1], [2]], but "
            f"is {blocks!r}."
        ) from None
    flat = sorted(variable for block in members for variable in block)
    if not flat or flat != list(range(len(flat))) or not all(members):
        raise StructureError(
            "`blocks` must hold each variable exactly once, by numbers from 0 without gaps, and no "
            f"empty block, but is {members}."
        )
    return tuple(sorted(members))


def one_block(num_variables: int) -> Layout:
    """All variables together."""
    return (tuple(range(whole_number(num_variables, "num_variables", StructureError))),)


def singletons(num_variables: int) -> Layout:
    """Every variable by itself."""
    return tuple((variable,) for variable in one_block(num_variables)[0])


def _checked(dependence: Any) -> Floats:
    """The matrix, square, symmetric and finite."""
    matrix = float_array(dependence, "dependence", DataError)
    size = len(matrix) if matrix.ndim == 2 else 1
    if matrix.shape != (size, size) or not size:
        raise DataError(
            f"`dependence` must have a row and a column for each of the {size} variables, but has "
            f"shape {matrix.shape}."
        )
    if not np.isfinite(matrix).all():
        raise DataError("`dependence` must be finite, but some entries are not; estimate it again.")
    if not np.allclose(matrix, matrix.T, rtol=_SYMMETRY_TOLERANCE, atol=_SYMMETRY_TOLERANCE):
        raise DataError(
            "`dependence` must be symmetric, but is not; give the average of it and its transpose."
        )
    return 0.5 * (matrix + matrix.T)


def layouts_by_dependence(dependence: Floats, *, linkage: str = "average") -> tuple[Layout, ...]:
    """Layouts from n blocks to one, each the one before with its two most dependent blocks joined.

    The dependence of two blocks is the "average" or the "maximum" of that of their variables; of
    equal pairs the first is joined.
    """
    links = _checked(dependence)
    if linkage not in ("average", "maximum"):
        raise StructureError(f"`linkage` must be 'average' or 'maximum', but is {linkage!r}.")
    blocks = list(singletons(len(links)))
    found = [layout_of(blocks)]
    while len(blocks) > 1:
        np.fill_diagonal(links, -np.inf)
        i, j = divmod(int(np.argmax(links)), len(blocks))
        if linkage == "average":
            links[i] = links[:, i] = np.average(links[[i, j]], 0, [len(blocks[i]), len(blocks[j])])
        else:
            links[i] = links[:, i] = np.maximum(links[i], links[j])
        links = np.delete(np.delete(links, j, axis=0), j, axis=1)
        blocks[i] += blocks.pop(j)
        found.append(layout_of(blocks))
    return tuple(found)


def joins_by_dependence(
    dependence: Floats, units: Sequence[tuple[int, ...]]
) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """The tree of `layouts_by_dependence` over units of variables, from its leaves on.

    Each item is a block and the two that it is joined from; the last block has all units.
    """
    member = np.zeros((len(units), len(dependence)))
    for n, unit in enumerate(units):
        member[n, list(unit)] = 1.0 / len(unit)
    between = member @ dependence @ member.T
    np.fill_diagonal(between, 0.0)
    found = []
    for before, after in pairwise(layouts_by_dependence(between)):
        parts = sorted(set(before) - set(after))
        one, other = (sorted(own for n in part for own in units[n]) for part in parts)
        found.append((tuple(sorted(one + other)), tuple(one), tuple(other)))
    return found


def layout_neighbours(layout: Layout) -> tuple[Layout, ...]:
    """Every other layout that two blocks joined, one variable moved or one split off lead to.

    Joins come first, then moves, then splits; each layout comes once.
    """
    blocks = layout_of(layout)
    label = {variable: number for number, block in enumerate(blocks) for variable in block}
    everywhere = range(len(blocks))
    joins = [label | dict.fromkeys(blocks[j], i) for i, j in combinations(everywhere, 2)]
    moves = [label | {variable: number} for variable in sorted(label) for number in everywhere]
    splits = [label | {variable: len(blocks)} for variable in sorted(label)]
    found = {}
    for changed in joins + moves + splits:
        groups: dict[int, list[int]] = {}
        for variable, number in changed.items():
            groups.setdefault(number, []).append(variable)
        found[layout_of(list(groups.values()))] = True
    return tuple(other for other in found if other != blocks)
