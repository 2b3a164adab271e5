"""Coefficients of slices that are products of leaves, from the logarithms of their densities."""

import math

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.cpu.kernels import kernel, maximising
from dspn.engine.cpu.kernels.rows import rounded_off, split_scale
from dspn.engine.cpu.records import LogLeaves
from dspn.leaves.gaussian import LARGEST_SCALE

# Sums of logarithms up to this size round off nothing that matters.
_LARGE = 4096.0
# exp(x) = 2^n exp(r): a number plus this one has n in its last bits; log 2 in two parts.
_WHOLE = 6755399441055744.0
_PER_POWER = 1.4426950408889634
_HIGH = 0.693147180369123816490
_LOW = 1.90821492927058770002e-10
_LEAST = -708.0
_FACTORIALS = tuple(float(math.factorial(n)) for n in range(13, -1, -1))


@maximising
def _largest(values: Floats) -> float:
    """The largest of some numbers."""
    largest = -np.inf
    for value in values:
        largest = max(largest, value)
    return largest


@kernel
def _add_logs(
    leaves: LogLeaves, row: int, numbers: Ints, source: int, end: int, total: Floats
) -> None:
    """Adds the log densities of some variables at a row of the data: Gaussian ones, then others."""
    mean, factor, peak, table = leaves.mean, leaves.factor, leaves.peak, leaves.table
    count = leaves.variables.size
    for g in range(source, min(end, count)):
        x = leaves.values[row, leaves.variables[g]]
        if x == x:
            for c in range(total.size):
                distance = (x - mean[g, c]) * factor[g, c]
                total[c] += peak[g, c] - distance * distance
    for t in range(max(source, count), end):
        number = numbers[t - count]
        for c in range(total.size):
            total[c] += table[number, c]


@kernel
def _less(total: Floats, peak: float) -> float:
    """Subtracts the largest number, unless all are -inf; returns what was subtracted."""
    if peak == -np.inf:
        return 0.0
    for c in range(total.size):
        total[c] -= peak
    return peak


@kernel
def _add_with_care(
    leaves: LogLeaves, row: int, numbers: Ints, total: Floats, part: Floats
) -> tuple[float, float]:
    """`total` relative to its largest number, which is returned with what that has rounded off."""
    high, low = 0.0, 0.0
    count = leaves.variables.size + numbers.size
    total[:] = 0.0
    for source in range(count + 1):
        if source < count:
            part[:] = 0.0
            _add_logs(leaves, row, numbers, source, source + 1, part)
        else:
            part[:] = total
            total[:] = 0.0
        peak = _less(part, _largest(part))
        for c in range(total.size):
            total[c] += part[c]
        low += rounded_off(high, peak)
        high += peak
    return high, low


@kernel
def _exponential(x: float, whole: float) -> float:
    """exp(x - n log 2), where `whole` is n."""
    r = (x - whole * _HIGH) - whole * _LOW
    p = 0.0
    for factorial in _FACTORIALS:
        p = p * r + 1.0 / factorial
    return p


@kernel
def read_moments(leaves: LogLeaves, rows: Ints, moments: Floats) -> None:
    """1, z and z^2 of the Gaussian variables, (slices, 3, variables); 0 where they are missing."""
    for s in range(rows.size):
        for g in range(leaves.variables.size):
            z = (leaves.values[rows[s], leaves.variables[g]] - leaves.origin[g]) / leaves.unit[g]
            is_counted = abs(z) <= LARGEST_SCALE
            moments[s, 0, g] = 1.0 if is_counted else 0.0
            moments[s, 1, g] = z if is_counted else 0.0
            moments[s, 2, g] = z * z if is_counted else 0.0


@kernel
def multiply_leaves(
    leaves: LogLeaves,
    rows: Ints,
    numbers: Ints,
    least: float,
    floor: float,
    column: int,
    out: Floats,
    scale: Floats,
) -> int:
    """Coefficients (slices, columns) of some rows of the data over the largest of each slice.

    They stand in `out` from a column on. Slice s reads the rows `numbers[s]` of the table.
    Logarithms of the divisors go to `scale`. Coefficients whose logarithm is below `least` are 0;
    returns how many of them were more. The floor is added to all.
    """
    size = leaves.mean.shape[1]
    total, power = np.empty(size), np.empty(size)
    bits = power.view(np.int64)
    lost = 0
    for s in range(rows.size):
        row = rows[s]
        total[:] = 0.0
        _add_logs(leaves, row, numbers[s], 0, leaves.variables.size + numbers.shape[1], total)
        high, low = _largest(total), 0.0
        if abs(high) < _LARGE:
            _less(total, high)
        else:
            high, low = _add_with_care(leaves, row, numbers[s], total, power)
        split_scale(scale, s, high, low)
        for c in range(size):
            power[c] = max(total[c], _LEAST) * _PER_POWER + _WHOLE
        for c in range(size):
            out[s, column + c] = _exponential(max(total[c], _LEAST), power[c] - _WHOLE)
        for c in range(size):
            bits[c] = (bits[c] + 1023) << 52
        for c in range(size):
            is_kept = total[c] >= least
            lost += (not is_kept) and total[c] > -np.inf
            value = out[s, column + c] * power[c] if is_kept else 0.0
            out[s, column + c] = value + floor
    return lost
