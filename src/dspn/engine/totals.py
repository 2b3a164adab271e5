"""Logarithms as sums of three floats, so that one huge term does not swallow the others.

An outlier can make a log-likelihood -1e20, of which one float holds multiples of 16,384 only. A
total is an array (TERMS, ...) whose terms add up to the number; some hold what others have rounded
off, so that differences of totals are right to the last digit. Log 0 has -inf
for its first term and 0 for the others.
"""

from typing import Final

import numpy as np

from dspn._arrays import Floats, Ints

TERMS: Final = 3

# log 2 = _HIGH + _LOW. The first has 26 bits, so that its products with whole numbers are exact.
_HIGH: Final = 46516319 / 2**26
_LOW: Final = 1.2996506893889889e-08
_COARSE: Final = 2.0**26
_ROOT_OF_HALF: Final = 0.5**0.5


def two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The float nearest to a + b, and what it lacks."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def total_of(log_values: Floats) -> Floats:
    """Plain logarithms as totals."""
    out = np.zeros((TERMS, *log_values.shape))
    out[0] = log_values
    return out


def plus(total: Floats, *logs: Floats | float) -> Floats:
    """A total with more logarithms added; to add another total, give its terms."""
    first, second, third = total
    with np.errstate(invalid="ignore"):
        for log in logs:
            first, rest = two_sum(first, np.asarray(log))
            second, rest = two_sum(second, rest)
            third = third + rest
    out = np.empty((TERMS, *first.shape))
    out[0], out[1], out[2] = first, second, third
    finite = np.isfinite(first)
    if not finite.all():
        out[1:, ~finite] = 0.0
    return out


def rounded(total: Floats) -> Floats:
    """A total as one float."""
    return np.asarray(total[0] + (total[1] + total[2]))


def difference(a: Floats, b: Floats) -> Floats:
    """A - b as one float: -inf where a is log 0, NaN where both are."""
    with np.errstate(invalid="ignore"):
        return np.asarray((a[0] - b[0]) + ((a[1] - b[1]) + (a[2] - b[2])))


def ordered_sum(values: Floats, axis: int) -> Floats:
    """The sum along an axis, in an order that does not depend on the other axes' sizes."""
    return np.asarray(np.ascontiguousarray(np.moveaxis(values, axis, -1)).sum(axis=-1))


def log_shares(totals: Floats, axis: int = -1) -> tuple[Floats, Floats]:
    """The log of exp(totals) / sum exp(totals) along an axis, and the log of the sum as a total.

    Shares of nothing but log 0 are all -inf. The axis is counted without that of the terms.
    """
    axis %= totals.ndim - 1
    if totals.shape[axis + 1] == 1:
        return np.where(totals[0] > -np.inf, 0.0, -np.inf), totals.squeeze(axis + 1)
    best = np.expand_dims(rounded(totals).argmax(axis=axis), axis)
    reference = np.take_along_axis(totals, best[None], axis=axis + 1)
    logs = difference(totals, np.where(reference > -np.inf, reference, 0.0))
    # Totals of one rounded value may still differ.
    peak = logs.max(axis=axis, keepdims=True)
    peak[peak == -np.inf] = 0.0
    logs = logs - peak
    with np.errstate(divide="ignore"):
        log_sum = np.log(np.expand_dims(ordered_sum(np.exp(logs), axis), axis))
    whole = plus(reference, peak, log_sum).squeeze(axis + 1)
    return logs - np.where(log_sum > -np.inf, log_sum, 0.0), whole


def scaled_logs(values: Floats, exponents: Ints) -> list[Floats]:
    """Terms that add up to log(values) + exponents * log 2; all are 0 where that is log 1."""
    mantissas, own = np.frexp(values)
    small = mantissas < _ROOT_OF_HALF
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(small, 2.0 * mantissas, mantissas))
    *exact, low = powers_of_two(exponents + own - small)
    return [*exact, low + logs]


def powers_of_two(exponents: Ints) -> list[Floats]:
    """Terms that add up to exponents * log 2; all but the last are exact below 2^53."""
    whole = exponents.astype(np.float64)
    coarse = np.trunc(whole / _COARSE) * _COARSE
    exact = [(whole - coarse) * _HIGH]
    if coarse.any():
        exact.insert(0, coarse * _HIGH)
    return [*exact, whole * _LOW]
