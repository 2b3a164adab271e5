"""What one distribution in place of two costs: the fall of the largest log-likelihood, in nats."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dspn._arrays import Floats
from dspn.leaves import Family

# Expected counts below this are taken for none; they cost less than a hundredth of a nat.
_LEAST_COUNT: Final = 1e-3


def _x_log_x(values: Floats) -> Floats:
    found: Floats = values * np.log(np.where(values > 0, values, 1.0))
    return found


def _joined(counts: Floats) -> Floats:
    """Sum_j g(x_aj + x_bj) - g(x_aj) - g(x_bj) with g(x) = x log x, (rows, rows); a < b only.

    A column in which one of the two is zero adds nothing, so sparse rows cost what they hold.
    """
    own = _x_log_x(counts)
    found = np.zeros((len(counts), len(counts)))
    for row in range(len(counts) - 1):
        places = np.flatnonzero(counts[row])
        both = counts[row + 1 :, places] + counts[row, places]
        single = own[row + 1 :, places].sum(axis=1) + own[row].sum()
        found[row, row + 1 :] = (both * np.log(both)).sum(axis=1) - single
    return found


def count_losses(counts: Sequence[Floats]) -> Floats:
    """Loss of categorical distributions over pairs of rows, summed over tables (rows, categories).

    n_a KL(p_a | p_ab) + n_b KL(p_b | p_ab) for two rows of counts whose shares are p_a and p_b and
    together p_ab; upper triangle.
    """
    tables = [np.where(table < _LEAST_COUNT, 0.0, table) for table in counts]
    totals = np.stack([table.sum(axis=1) for table in tables], axis=1)
    return np.maximum(_joined(totals) - _joined(np.concatenate(tables, axis=1)), 0.0)


def leaf_losses(family: Family, statistics: Floats) -> Floats:
    """Loss of leaves over pairs of rows of statistics; upper triangle."""
    own = family.largest_log_likelihood(statistics)
    both = statistics[:, None, :] + statistics[None, :, :]
    losses = own[:, None] + own[None, :] - family.largest_log_likelihood(both)
    return np.triu(np.maximum(losses, 0.0), 1)
