"""Functions that several leaf families need, with all digits whatever the argument."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy.special import digamma, gammaln

from dspn._arguments import Floats

# Up to this (x - y) / (x + y) the series of so many terms has all digits.
_NEAR: Final = 0.1
_SERIES_TERMS: Final = 8
# From here on Stirling's series and its derivatives have all digits.
_LARGE: Final = 30.0
_HALF_LOG_TWO_PI: Final = 0.5 * math.log(2.0 * math.pi)
_NEWTON_STEPS: Final = 30


def deviance(x: Floats, y: Floats) -> Floats:
    """X log(x / y) - x + y for positive x and y, which cancels nothing (Loader's saddle point).

    It is small where a probability is not. With v = (x - y) / (x + y) it is (x - y) v +
    2 x v^3 (1/3 + v^2/5 + ...).
    """
    excess = x - y
    ratio = excess / (x + y)
    squared = ratio * ratio
    series = np.zeros_like(ratio)
    for term in range(_SERIES_TERMS, 0, -1):
        series = (series + 1.0 / (2 * term + 1)) * squared
    near = ratio * (excess + 2.0 * x * series)
    far = x * (np.log(x) - np.log(y)) - excess
    return np.where(np.abs(ratio) < _NEAR, near, far)


def stirling_error(x: Floats) -> Floats:
    """Log Gamma(x + 1) - ((x + 1/2) log x - x + log(2 pi) / 2) for positive x."""
    large = np.maximum(x, _LARGE)
    inverse = 1.0 / (large * large)
    terms = 1.0 / 1680.0 - inverse / 1188.0
    terms = 1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse * terms))
    small = np.minimum(x, _LARGE)
    direct = gammaln(small + 1.0) - (small + 0.5) * np.log(small) + small - _HALF_LOG_TWO_PI
    return np.where(x < _LARGE, direct, terms / large)


def digamma_gap(x: Floats) -> Floats:
    """Log x - digamma(x) for positive x; about 1 / (2 x) where x is large."""
    inverse = 1.0 / np.maximum(x, _LARGE)
    squared = inverse * inverse
    terms = 1.0 / 12.0 - squared * (1.0 / 120.0 - squared * (1.0 / 252.0 - squared / 240.0))
    return np.where(x < _LARGE, np.log(x) - digamma(x), inverse * (0.5 + inverse * terms))


def digamma_rise(x: Floats, step: Floats) -> Floats:
    """Digamma(x + step) - digamma(x) for positive x and steps >= 0."""
    log_rise = np.log1p(step / x)
    direct = digamma(x + step) - digamma(x)
    return np.where(x < _LARGE, direct, log_rise + digamma_gap(x) - digamma_gap(x + step))


def shape_of_gap(gap: Floats) -> Floats:
    """The x with log x - digamma(x) = gap, for positive gaps.

    Newton's method for 1/x, in which the gap is nearly a straight line, from a start that is never
    off by more than two percent (Minka).
    """
    shape = (3.0 - gap + np.sqrt((gap - 3.0) ** 2 + 24.0 * gap)) / (12.0 * gap)
    for _ in range(6):
        # The derivative of the gap by 1/x, by differences of the gap: 1/2 for large x, 1 for small.
        step = 1e-4 * shape
        slope = (digamma_gap(shape - step) - digamma_gap(shape + step)) * shape / 2e-4
        shape = 1.0 / np.maximum(1.0 / shape + (gap - digamma_gap(shape)) / slope, 0.1 / shape)
    return shape


def truncated_rate(mean: Floats) -> Floats:
    """The x with x / (1 - exp(-x)) = mean, for positive means.

    Above mean 1 that is the rate of a Poisson distribution without its zero; below, x is negative.
    The logarithm of the left side is concave, so Newton's method never passes by from the left.
    """
    target = np.log(mean)
    found = np.maximum(2.0 * target, mean - 1.0)
    for _ in range(_NEWTON_STEPS):
        near = np.abs(found) < 1e-2
        x, square = np.where(near, 1.0, found), found * found
        series = found * (0.5 - found / 24.0 * (1.0 - square / 120.0))
        rise = 0.5 - found / 12.0 * (1.0 - square / 60.0)
        size = np.abs(x)
        with np.errstate(over="ignore", under="ignore"):
            log = np.log(size) - np.log(-np.expm1(-size)) + np.minimum(x, 0.0)
            slope = 1.0 / x - 1.0 / np.expm1(x)
        found = found + (target - np.where(near, series, log)) / np.where(near, rise, slope)
    return found
