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
# Smaller logarithms are not those of normal numbers.
_LEAST = -708.0
# Slices that are evaluated side by side.
_LANES = 32
_FACTORIALS = tuple(float(math.factorial(n)) for n in range(13, -1, -1))


@maximising
def _largest(values: Floats) -> float:
    """The largest of some numbers."""
    largest = -np.inf
    for value in values:
        largest = max(largest, value)
    return largest


@kernel
def _add_logs(leaves: LogLeaves, row: int, numbers: Ints, source: int, total: Floats) -> None:
    """Adds the log densities of one variable at a row of the data: Gaussian ones, then others."""
    count = leaves.variables.size
    if source >= count:
        for c in range(total.size):
            total[c] += leaves.table[numbers[source - count], c]
        return
    x = leaves.values[row, leaves.variables[source]]
    if x == x:
        for c in range(total.size):
            distance = (x - leaves.mean[source, c]) * leaves.factor[source, c]
            total[c] += leaves.peak[source, c] - distance * distance


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
            _add_logs(leaves, row, numbers, source, part)
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
def _add_lanes(
    leaves: LogLeaves, rows: Ints, numbers: Ints, first: int, n: int, x: Floats, total: Floats
) -> None:
    """total[c, lane] = sum of the log densities below column c at row `first + lane`."""
    mean, factor, peak, table = leaves.mean, leaves.factor, leaves.peak, leaves.table
    total[:] = 0.0
    for g in range(leaves.variables.size):
        for lane in range(n):
            x[lane] = leaves.values[rows[first + lane], leaves.variables[g]]
        for c in range(total.shape[0]):
            centre, scale, highest = mean[g, c], factor[g, c], peak[g, c]
            for lane in range(n):
                distance = (x[lane] - centre) * scale
                log_density = highest - distance * distance
                total[c, lane] += log_density if x[lane] == x[lane] else 0.0
    for t in range(numbers.shape[1]):
        for lane in range(n):
            number = numbers[first + lane, t]
            for c in range(total.shape[0]):
                total[c, lane] += table[number, c]


@kernel
def _divide_lanes(
    leaves: LogLeaves, rows: Ints, numbers: Ints, first: int, n: int, total: Floats, scale: Floats
) -> None:
    """Subtracts the largest number of each lane, which goes to `scale`."""
    largest = np.full(n, -np.inf)
    for c in range(total.shape[0]):
        for lane in range(n):
            largest[lane] = total[c, lane] if total[c, lane] > largest[lane] else largest[lane]
    for lane in range(n):
        if abs(largest[lane]) < _LARGE:
            split_scale(scale, first + lane, largest[lane], 0.0)
            continue
        own, part = np.empty(total.shape[0]), np.empty(total.shape[0])
        high, low = _add_with_care(leaves, rows[first + lane], numbers[first + lane], own, part)
        split_scale(scale, first + lane, high, low)
        total[:, lane] = own
        largest[lane] = 0.0
    for c in range(total.shape[0]):
        for lane in range(n):
            total[c, lane] -= largest[lane]


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
    total = np.empty((leaves.mean.shape[1], _LANES))
    x, value, power = np.empty(_LANES), np.empty(_LANES), np.empty(_LANES)
    bits = power.view(np.int64)
    lost = 0
    for first in range(0, rows.size, _LANES):
        n = min(_LANES, rows.size - first)
        _add_lanes(leaves, rows, numbers, first, n, x, total)
        _divide_lanes(leaves, rows, numbers, first, n, total, scale)
        for c in range(total.shape[0]):
            for lane in range(n):
                x[lane] = total[c, lane] if total[c, lane] > _LEAST else _LEAST
            for lane in range(n):
                power[lane] = x[lane] * _PER_POWER + _WHOLE
            for lane in range(n):
                value[lane] = _exponential(x[lane], power[lane] - _WHOLE)
            for lane in range(n):
                bits[lane] = (bits[lane] + 1023) << 52
            for lane in range(n):
                is_kept = total[c, lane] >= least
                lost += (not is_kept) and total[c, lane] > -np.inf
                value[lane] = (value[lane] * power[lane] if is_kept else 0.0) + floor
            for lane in range(n):
                out[first + lane, column + c] = value[lane]
    return lost
