"""The tree of strongest dependences between the variables of one slice."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from dspn._arrays import Floats, Ints
from dspn.learning.dependence import NUM_BINS
from dspn.sequences import Kind, Sequences

# Rarer categories of a variable count as one when dependences are measured.
_MOST_CATEGORIES: Final = 16
# Indicators are made for this many slices at a time.
_SLICES_AT_ONCE: Final = 1 << 15


@final
@dataclass(frozen=True)
class SliceTree:
    """A tree over variables: `variables` from the root down, and the place of each one's parent.

    The root has the parent -1.
    """

    variables: tuple[int, ...]
    parents: tuple[int, ...]

    def neighbours(self, place: int) -> tuple[int, ...]:
        """The variables next to that of a place, its parent first."""
        below = [child for child, parent in enumerate(self.parents) if parent == place]
        above = [self.parents[place]] if place else []
        return tuple(self.variables[other] for other in (*above, *below))


def slice_tree(data: Sequences, variables: Sequence[int]) -> SliceTree:
    """The spanning tree of greatest mutual information within a slice (Chow and Liu).

    Its root is the variable with the most information on all others; among equals the first of
    `variables` comes first.
    """
    information = pairwise_information(data, variables)
    root = int(np.argmax(information.sum(axis=1)))
    order, parents = [root], [-1]
    # How much the best edge from the tree to each variable has, and the place it leads from.
    strength, source = information[root].copy(), np.zeros(len(variables), dtype=np.int64)
    strength[root] = -np.inf
    while len(order) < len(variables):
        new = int(np.argmax(strength))
        parents.append(int(source[new]))
        order.append(new)
        better = (information[new] > strength) & ~np.isneginf(strength)
        strength = np.where(better, information[new], strength)
        source[better] = len(order) - 1
        strength[new] = -np.inf
    return SliceTree(tuple(variables[member] for member in order), tuple(parents))


def pairwise_information(data: Sequences, variables: Sequence[int]) -> Floats:
    """I(x_i; x_j) of the variables of one slice, in nats, with 0 on the diagonal.

    From the slices that have both entries, numbers in bins between quantiles, less the excess
    (r - 1)(c - 1) / 2N that a table of r by c cells has on average under independence.
    """
    codes = [_codes(data, variable) for variable in variables]
    widths = [int(own.max(initial=0)) + 1 for own in codes]
    first = np.cumsum([0, *widths])
    tables = _joint_counts(np.stack(codes, axis=1), first)
    found = np.zeros((len(widths), len(widths)))
    for i in range(len(widths)):
        for j in range(i):
            own = tables[first[i] : first[i + 1], first[j] : first[j + 1]]
            found[i, j] = found[j, i] = _information(own)
    return found


def _codes(data: Sequences, variable: int) -> Ints:
    """A small number for each category or bin of a variable, -1 where it is missing."""
    values = data.values[:, variable]
    seen = ~np.isnan(values)
    codes = np.full(values.size, -1, dtype=np.int64)
    if not seen.any():
        return codes
    if data.schema[variable].kind != Kind.CATEGORICAL:
        levels = np.arange(1, NUM_BINS) / NUM_BINS
        edges = np.unique(np.quantile(values[seen], levels, method="inverted_cdf"))
        codes[seen] = np.searchsorted(edges, values[seen])
        return codes
    counts = np.bincount(values[seen].astype(np.int64))
    place = np.empty(counts.size, dtype=np.int64)
    place[np.argsort(-counts, kind="stable")] = np.arange(counts.size)
    codes[seen] = np.minimum(place, _MOST_CATEGORIES - 1)[values[seen].astype(np.int64)]
    return codes


def _joint_counts(codes: Ints, first: NDArray[np.int64]) -> Floats:
    """How often code a of one column and code b of another occur in one row, all columns at once.

    Code a of column i has the place first[i] + a.
    """
    size = int(first[-1])
    total = np.zeros((size, size))
    for start in range(0, len(codes), _SLICES_AT_ONCE):
        own = codes[start : start + _SLICES_AT_ONCE]
        row, column = np.nonzero(own >= 0)
        indicators = np.zeros((len(own), size), dtype=np.float32)
        indicators[row, first[column] + own[row, column]] = 1.0
        # Counts of one run are whole numbers that float32 holds.
        total += indicators.T @ indicators
    return total


def _information(table: Floats) -> float:
    """Mutual information of a table of counts, less its mean excess; 0 for an empty one."""
    total = float(table.sum())
    if total == 0:
        return 0.0
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    entropies = xlogy(rows, rows).sum() + xlogy(columns, columns).sum()
    plain = (xlogy(table, table).sum() - entropies) / total + np.log(total)
    freedom = (np.count_nonzero(rows) - 1) * (np.count_nonzero(columns) - 1)
    return float(plain - freedom / (2.0 * total))
