"""Quantiles of mixtures of leaves, many mixtures at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dspn.errors import EvidenceError

if TYPE_CHECKING:
    from dspn.leaves.base import Family, FloatArray

_EPS = float(np.finfo(np.float64).eps)

# A sum of weights below the smallest normal number carries no information that can be divided by.
NO_WEIGHT = float(np.finfo(np.float64).tiny)
# A sum of probabilities this close below a level, relatively, has reached it.
ROUNDING = 64 * _EPS

# Cells (mixture, level, leaf) computed together, which bounds memory whatever the number asked.
_CELLS = 1 << 20
_MAX_STEPS = 300
_RESIDUAL = 1e-14

# Tail probability of mixture i at the point x, and its density, for arrays of i and x.
TailAndDensity = Callable[["NDArray[np.int64]", "FloatArray"], "tuple[FloatArray, FloatArray]"]


def mixture_quantiles(
    family: Family, parameters: FloatArray, weights: FloatArray, levels: FloatArray
) -> FloatArray:
    """The smallest x with sum_l w_l P(X <= x | l) >= level, (Q, L) and (R,) -> (Q, R).

    It lies between the smallest and the largest quantile of the leaves of positive weight. Levels
    above one half are found in the upper tail, which has more digits there.
    """
    weights, levels = _normalised(weights, levels)
    search = _search_integers if family.is_discrete else _search_reals
    height = max(1, _CELLS // max(1, len(parameters) * len(levels)))
    result = np.empty((len(weights), len(levels)))
    with np.errstate(all="ignore"):
        lower, upper = family.quantile_bounds(parameters, levels)
        for in_upper_tail in (False, True):
            columns = np.flatnonzero((levels > 0.5) == in_upper_tail)
            tails = family.sf if in_upper_tail else family.cdf
            for start in range(0, len(weights) if columns.size else 0, height):
                own = weights[start : start + height]
                present = own[:, None, :] > 0
                low = np.where(present, lower[columns], np.inf).min(axis=2)
                high = np.where(present, upper[columns], -np.inf).max(axis=2)
                mixture, column = np.indices(low.shape).reshape(2, -1)

                def tail_and_density(
                    index: NDArray[np.int64],
                    points: FloatArray,
                    tails: Callable[[FloatArray, FloatArray], FloatArray] = tails,
                    rows: FloatArray = own,
                    mixture: NDArray[np.int64] = mixture,
                ) -> tuple[FloatArray, FloatArray]:
                    shares = rows[mixture[index]]
                    tail = np.einsum("al,al->a", shares, tails(parameters, points))
                    if family.is_discrete:
                        return tail, tail
                    density = np.exp(family.log_prob(parameters, points))
                    return tail, np.einsum("al,al->a", shares, density)

                wanted = levels[columns][column]
                mass = 1.0 - wanted if in_upper_tail else wanted
                sign = -1.0 if in_upper_tail else 1.0
                found = search(tail_and_density, sign, mass, low.ravel(), high.ravel())
                result[start : start + height, columns] = found.reshape(low.shape)
    return result


def _normalised(weights: FloatArray, levels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rows of weights divided by their sums, and the levels, both checked."""
    weights = np.asarray(weights, dtype=np.float64)
    levels = np.asarray(levels, dtype=np.float64)
    if levels.ndim != 1 or not np.all((levels >= 0) & (levels <= 1)):
        raise EvidenceError(
            "`levels` must be a vector of probabilities between 0 and 1, "
            f"but is {levels.tolist()}. Give for example [0.05, 0.5, 0.95]."
        )
    totals = weights.sum(axis=1, keepdims=True)
    wrong = np.any(~(weights >= 0), axis=1) | ~((totals[:, 0] > 0) & np.isfinite(totals[:, 0]))
    if np.any(wrong):
        row = int(np.flatnonzero(wrong)[0])
        raise EvidenceError(
            "`weights` of a mixture must be finite, not negative and not all zero, "
            f"but row {row} is {weights[row].tolist()}. Evidence of probability zero has no "
            "quantiles; leave such rows out."
        )
    return weights / totals, levels


def _search_reals(
    evaluate: TailAndDensity, sign: float, mass: FloatArray, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    """Roots of log(tail(x) / mass) in [lower, upper]: Newton's step, or the middle.

    The tail is the lower one where sign is 1, the upper one where it is -1. Every third step is a
    bisection, so that no shape of the mixture can make the search crawl.
    """
    roots = np.where(lower == upper, lower, 0.5 * (lower + upper))
    active = np.flatnonzero(lower < upper)
    for step in range(_MAX_STEPS):
        if active.size == 0:
            break
        point = roots[active]
        tail, density = evaluate(active, point)
        residual = np.log(tail / mass[active])
        beyond = sign * residual >= 0
        low = lower[active] = np.where(beyond, lower[active], point)
        high = upper[active] = np.where(beyond, point, upper[active])
        newton = point - sign * tail / density * residual
        inside = (newton >= low) & (newton <= high)
        middle = 0.5 * (low + high)
        exact = np.abs(residual) <= _RESIDUAL
        still = (np.abs(newton - point) <= 2 * _EPS * np.abs(point)) & (np.abs(residual) < 1e-10)
        narrow = high - low <= 2 * _EPS * np.maximum(np.abs(low), np.abs(high))
        ready = exact | (inside & still)
        # In a gap between leaves the density vanishes and a step from an exact point leads astray.
        settled = np.where(exact, point, np.where(inside, newton, middle))
        bisect = ~ready & (step % 3 == 2)
        roots[active] = np.where(bisect, middle, settled)
        active = active[~(ready | narrow)]
    return roots


def _search_integers(
    evaluate: TailAndDensity, sign: float, mass: FloatArray, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    """Bisection over the integers, with P(X <= lower) < level <= P(X <= upper) throughout."""
    target = np.maximum(mass * (1 - ROUNDING), NO_WEIGHT) if sign > 0 else mass * (1 + ROUNDING)
    active = np.flatnonzero(upper - lower > 1)
    while active.size:
        middle = np.floor(0.5 * (lower[active] + upper[active]))
        tail, _ = evaluate(active, middle)
        reached = tail >= target[active] if sign > 0 else tail <= target[active]
        upper[active] = np.where(reached, middle, upper[active])
        lower[active] = np.where(reached, lower[active], middle)
        between = np.floor(0.5 * (lower[active] + upper[active]))
        active = active[(between > lower[active]) & (between < upper[active])]
    return upper
