"""Quantiles of mixtures of Gaussian and of Poisson leaves, many mixtures at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, pdtr, pdtrc

from dspn.errors import EvidenceError
from dspn.leaves.base import NO_WEIGHT, FloatArray

_EPS = float(np.finfo(np.float64).eps)

# A sum of probabilities this close below a level, relatively, has reached it.
ROUNDING = 64 * _EPS

# Cells (mixture, level, leaf) looked at together, which bounds memory whatever the number asked.
_CELLS = 1 << 20
_MAX_STEPS = 300
_RESIDUAL = 1e-14

# Lower or upper tail probability and density of mixture i at the points x, for an index array i.
TailAndDensity = Callable[[NDArray[np.int64], FloatArray], tuple[FloatArray, FloatArray]]


def normalised_mixture(weights: FloatArray, levels: FloatArray) -> tuple[FloatArray, FloatArray]:
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


def gaussian_mixture_quantiles(
    means: FloatArray, deviations: FloatArray, weights: FloatArray, levels: FloatArray
) -> FloatArray:
    """The root x of sum_l w_l Phi((x - mean_l) / deviation_l) = level, (Q, R)."""
    weights, levels = normalised_mixture(weights, levels)
    with np.errstate(all="ignore"):
        return _in_blocks(
            lambda rows: _gaussian_block(means, deviations, rows, levels), weights, len(levels)
        )


def poisson_mixture_quantiles(
    rates: FloatArray, weights: FloatArray, levels: FloatArray
) -> FloatArray:
    """The smallest count x with sum_l w_l P(X <= x; rate_l) >= level, (Q, R)."""
    weights, levels = normalised_mixture(weights, levels)
    with np.errstate(all="ignore"):
        return _in_blocks(lambda rows: _poisson_block(rates, rows, levels), weights, len(levels))


def _in_blocks(
    quantiles: Callable[[FloatArray], FloatArray], weights: FloatArray, num_levels: int
) -> FloatArray:
    """`quantiles` of the rows of weights, as many rows at a time as `_CELLS` allows."""
    num_rows, num_leaves = weights.shape
    height = max(1, _CELLS // max(1, num_leaves * num_levels))
    result = np.empty((num_rows, num_levels))
    for start in range(0, num_rows, height):
        result[start : start + height] = quantiles(weights[start : start + height])
    return result


def _extremes(of_leaves: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest number (R, L) among the leaves of positive weight (Q, L), (Q, R)."""
    present = weights[:, None, :] > 0
    lower = np.where(present, of_leaves, np.inf).min(axis=2)
    upper = np.where(present, of_leaves, -np.inf).max(axis=2)
    return lower, upper


def _gaussian_block(
    means: FloatArray, deviations: FloatArray, weights: FloatArray, levels: FloatArray
) -> FloatArray:
    """Quantiles of Gaussian mixtures; levels above one half are solved in the upper tail."""
    # The root lies between the smallest and the largest quantile of the leaves present.
    lower, upper = _extremes(means + deviations * ndtri(levels)[:, None], weights)
    mixture, column = np.indices(lower.shape).reshape(2, -1)
    sign = np.where(levels > 0.5, -1.0, 1.0)[column]
    mass = np.minimum(levels, 1.0 - levels)[column]

    def evaluate(index: NDArray[np.int64], points: FloatArray) -> tuple[FloatArray, FloatArray]:
        standard = (points[:, None] - means) / deviations
        rows = weights[mixture[index]]
        tail = np.einsum("al,al->a", rows, ndtr(sign[index, None] * standard))
        bells = np.exp(-0.5 * standard * standard) / deviations
        return tail, np.einsum("al,al->a", rows, bells) / math.sqrt(2.0 * math.pi)

    roots = _bracketed_newton(evaluate, sign, mass, lower.ravel(), upper.ravel())
    return roots.reshape(lower.shape)


def _bracketed_newton(
    evaluate: TailAndDensity,
    sign: FloatArray,
    mass: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> FloatArray:
    """Roots of log(tail(x) / mass) in [lower, upper]: Newton's step, or the middle.

    The tail is the lower one where sign is 1, the upper one where it is -1. Every third step is a
    bisection, so that no shape of the mixture can make the search crawl.
    """
    roots = 0.5 * (lower + upper)
    equal = lower == upper
    roots[equal] = lower[equal]
    active = np.flatnonzero(lower < upper)
    for step in range(_MAX_STEPS):
        if active.size == 0:
            break
        point, direction = roots[active], sign[active]
        tail, density = evaluate(active, point)
        residual = np.log(tail / mass[active])
        beyond = direction * residual >= 0
        low = lower[active] = np.where(beyond, lower[active], point)
        high = upper[active] = np.where(beyond, point, upper[active])
        newton = point - direction * tail / density * residual
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


def _poisson_block(rates: FloatArray, weights: FloatArray, levels: FloatArray) -> FloatArray:
    """Quantiles of Poisson mixtures by bisection over the integers."""
    shape = (len(weights), len(levels))
    smallest, largest = _extremes(np.broadcast_to(rates, (len(levels), len(rates))), weights)
    # Bernstein: P(X >= r + t) <= exp(-t^2 / (2 r + 2 t / 3)), P(X <= r - t) <= exp(-t^2 / 2 r).
    above = -np.log(np.maximum(1.0 - levels, _EPS / 4))
    below = -np.log(np.maximum(levels, NO_WEIGHT))
    reach = above / 3 + np.sqrt(above * above / 9 + 2 * above * largest)
    upper = np.ceil(largest + reach).ravel() + 1
    lower = np.maximum(np.floor(smallest - np.sqrt(2 * below * smallest)).ravel() - 1, -1)
    mixture, column = np.indices(shape).reshape(2, -1)
    in_upper_tail = (levels > 0.5)[column]
    target = np.where(levels > 0.5, (1 - levels) * (1 + ROUNDING), levels * (1 - ROUNDING))[column]

    # P(X <= lower) < level <= P(X <= upper) throughout.
    active = np.flatnonzero(upper - lower > 1)
    while active.size:
        middle = np.floor(0.5 * (lower[active] + upper[active]))
        tail_is_upper = in_upper_tail[active]
        counts = middle[:, None]
        tails = np.where(tail_is_upper[:, None], pdtrc(counts, rates), pdtr(counts, rates))
        tail = np.einsum("al,al->a", weights[mixture[active]], tails)
        reached = np.where(tail_is_upper, tail <= target[active], tail >= target[active])
        upper[active] = np.where(reached, middle, upper[active])
        lower[active] = np.where(reached, lower[active], middle)
        between = np.floor(0.5 * (lower[active] + upper[active]))
        active = active[(between > lower[active]) & (between < upper[active])]
    quantiles = upper.reshape(shape)
    quantiles[:, levels == 0] = 0.0
    quantiles[:, levels == 1] = np.where(largest > 0, np.inf, 0.0)[:, levels == 1]
    return quantiles
