"""Passes for chains: every output is one coefficient times one sum over its own group's inputs.

This is the initial template, an HMM, and any number of such groups side by side. Here a lane's interface vector is
contiguous (each group padded with zeros to a multiple of eight), a slice is one matrix product and one row of
coefficients, and neither needs a transpose.
"""

import numpy as np
from numba import njit

from dspn._arrays import Floats, Ints
from dspn.engine.kernels._options import OPTIONS, REDUCING
from dspn.engine.kernels.tile import (
    add_eight_rows,
    eight_rows,
    max_eight_rows,
    max_one_row,
    one_row,
)
from dspn.engine.kernels.upward import active_lanes, number_slices
from dspn.engine.records import Batch, ChainFlows, ChainShape, ChainState

LEAST_MASS = 1e-250  # below this a mass may lack what underflowed; see `engine.passes`
_RESCALE_EVERY = 4
_FEW = 4  # a rest of fewer lanes than this is run lane by lane, a larger one as a full tile

_MAXIMUM = REDUCING | {"fastmath": {"contract", "reassoc", "nsz", "nnan"}}


@njit(**OPTIONS)
def _mix(
    matrix: Floats, start: int, size: int, v: Floats, out: Floats, column: int, width: int, n: int, floor: float
) -> None:
    """out[l, column ..] = floor + v[l, column ..] matrix, for one group; matrix is size x size."""
    lane = 0
    while n - lane >= _FEW:
        at = lane * width + column
        for i in range(0, size, 8):
            eight_rows(
                matrix, start + i, size, v, at, width, 1, size, out, at + i, width, floor
            )
        lane += 8
    while lane < n:
        at = lane * width + column
        for i in range(0, size, 8):
            one_row(matrix, start + i, size, v, at, width, 1, size, out, at + i, width, floor)
        lane += 1


@njit(**OPTIONS)
def _mix_best(
    matrix: Floats, start: int, size: int, v: Floats, out: Floats, column: int, width: int, n: int
) -> None:
    """out[l, i] = max_j matrix[j, i] + v[l, j], for one group."""
    lane = 0
    while n - lane >= _FEW:
        at = lane * width + column
        for i in range(0, size, 8):
            max_eight_rows(
                matrix, start + i, size, v, at, width, 1, size, out, at + i, width, -np.inf
            )
        lane += 8
    while lane < n:
        at = lane * width + column
        for i in range(0, size, 8):
            max_one_row(
                matrix, start + i, size, v, at, width, 1, size, out, at + i, width, -np.inf
            )
        lane += 1


@njit(**_MAXIMUM)
def _peak(row: Floats) -> float:
    peak = 0.0
    for i in range(row.size):
        peak = max(peak, row[i])
    return peak


@njit(**OPTIONS)
def _rescale(shape: ChainShape, v: Floats, exponents: Ints, work: Floats, n: int) -> None:
    """Divides each group of each lane by a power of two so that its largest entry is in [0.5, 1)."""
    bits = work.view(np.int64)
    for lane in range(n):
        for group in range(shape.column.size - 1):
            row = v[lane, shape.column[group] : shape.column[group + 1]]
            work[0] = _peak(row)
            if work[0] == 0.0:
                continue
            shift = (bits[0] >> 52) - 1022
            bits[0] = (1023 - shift) << 52
            factor = work[0]
            for i in range(row.size):
                row[i] *= factor
            exponents[group, lane] += shift


@njit(**OPTIONS)
def _copy(source: Floats, target: Floats, first: int, last: int) -> None:
    for lane in range(first, last):
        for i in range(source.shape[1]):
            target[lane, i] = source[lane, i]


@njit(**OPTIONS)
def _clear(v: Floats, first: int, last: int) -> None:
    for lane in range(first, last):
        for i in range(v.shape[1]):
            v[lane, i] = 0.0


@njit(**OPTIONS)
def chain_upward(
    shape: ChainShape,
    matrix: Floats,
    coefficients: Floats,
    scale: Floats,
    batch: Batch,
    p0: int,
    p1: int,
    state: ChainState,
    store: Floats,
    floor: float,
) -> None:
    """Positions p0 .. p1 - 1 from the bottom up.

    With a non-empty store, the vectors below position p0 + s are kept in its part s, and those above the last position
    in the part after; a lane that ends keeps its last vector there.
    """
    lanes, padded, width = batch.lengths.size, state.v.shape[0], shape.width
    v = state.v.copy()
    out = np.zeros((padded, width))
    numbers = np.empty(lanes, dtype=np.int64)
    work = np.empty(1)
    n = active_lanes(batch.lengths, p0)
    _clear(v, n, lanes)
    if store.size:
        _copy(v, store[0], 0, n)
    for position in range(p0, p1):
        now = active_lanes(batch.lengths, position)
        if now < n:  # lanes that have ended keep their last vector and are cleared for the tiles
            _copy(v, state.v, now, n)
            _clear(v, now, n)
            _clear(out, now, n)
            n = now
        if n == 0:
            break
        number_slices(batch, position, p0, numbers, n)
        for group in range(shape.column.size - 1):
            column = shape.column[group]
            size = shape.column[group + 1] - column
            _mix(matrix, shape.start[group], size, v, out, column, width, n, floor)
        for lane in range(n):
            row = coefficients[numbers[lane]]
            for i in range(width):
                out[lane, i] = out[lane, i] * row[i] + floor
            state.scale[lane] += scale[numbers[lane]]
        if floor > 0.0:
            _clear(out, n, padded)
        if position % _RESCALE_EVERY == _RESCALE_EVERY - 1:
            _rescale(shape, out, state.exponents, work, n)
        v, out = out, v
        if store.size:
            _copy(v, store[position - p0 + 1], 0, n)
    _copy(v, state.v, 0, n)


@njit(**OPTIONS)
def chain_best_upward(
    shape: ChainShape,
    matrix: Floats,
    coefficients: Floats,
    batch: Batch,
    p0: int,
    p1: int,
    state: ChainState,
    store: Floats,
) -> None:
    """The max pass: logarithms throughout; padding is -inf. The store is as in `chain_upward`."""
    lanes, width = batch.lengths.size, shape.width
    v = state.v.copy()
    out = np.full(v.shape, -np.inf)
    numbers = np.empty(lanes, dtype=np.int64)
    n = active_lanes(batch.lengths, p0)
    if store.size:
        _copy(v, store[0], 0, n)
    for position in range(p0, p1):
        now = active_lanes(batch.lengths, position)
        if now < n:
            _copy(v, state.v, now, n)
            n = now
        if n == 0:
            break
        number_slices(batch, position, p0, numbers, n)
        for group in range(shape.column.size - 1):
            column = shape.column[group]
            size = shape.column[group + 1] - column
            _mix_best(matrix, shape.start[group], size, v, out, column, width, n)
        if position == 0:  # the bottom network has no inputs to choose from
            _clear(out, 0, n)
        for lane in range(n):
            row = coefficients[numbers[lane]]
            for i in range(width):
                out[lane, i] += row[i]
        v, out = out, v
        if store.size:
            _copy(v, store[position - p0 + 1], 0, n)
    _copy(v, state.v, 0, n)


@njit(**OPTIONS)
def chain_best_descend(
    shape: ChainShape,
    matrix: Floats,
    batch: Batch,
    p0: int,
    p1: int,
    store: Floats,
    chosen: Ints,
    interfaces: Ints,
) -> None:
    """Follows the best path down: `chosen[g, lane]` is the column of group g's node at the position above.

    No back-pointers were kept: the best input is found again at each step of the path.
    """
    for position in range(p1 - 1, p0 - 1, -1):
        n = active_lanes(batch.lengths, position)
        for lane in range(n):
            row = batch.base[lane] + batch.stride * position
            for group in range(shape.column.size - 1):
                column = shape.column[group]
                size = shape.column[group + 1] - column
                i = chosen[group, lane]
                interfaces[row, group] = i
                best, place = -np.inf, 0
                v = store[position - p0, lane]
                first = shape.start[group] + i - column
                for j in range(size):
                    term = matrix[first + j * size] + v[column + j]
                    if term > best:
                        best, place = term, j
                chosen[group, lane] = column + place


@njit(**REDUCING)
def _dot(a: Floats, b: Floats) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@njit(**OPTIONS)
def _outer(
    e: Floats, v: Floats, column: int, size: int, width: int, n: int, out: Floats, start: int
) -> None:
    """out[i, j] += sum_l e[l, i] v[l, j] for one group: expected use of every edge, less its weight."""
    for i in range(0, size, 8):
        for j in range(0, size, 8):
            to = start + i * size + j
            add_eight_rows(v, column + j, width, e, column + i, 1, width, n, out, to, size, 0.0)


@njit(**OPTIONS)
def _add_posteriors(
    shape: ChainShape, above: Floats, d: Floats, numbers: Ints, weight: Floats, sums: Floats, n: int
) -> None:
    """Adds the posterior of every output to the sums of its slice."""
    for lane in range(n):
        for group in range(shape.column.size - 1):
            first, last = shape.column[group], shape.column[group + 1]
            v, own = above[lane, first:last], d[lane, first:last]
            mass = _dot(v, own)
            factor = weight[lane] / mass if mass > LEAST_MASS else 0.0
            total = sums[numbers[lane], first:last]
            for i in range(total.size):
                total[i] += v[i] * own[i] * factor


@njit(**OPTIONS)
def _divide_by_mass(
    shape: ChainShape, v: Floats, below: Floats, e: Floats, weight: Floats, least: Floats, n: int
) -> None:
    """e = e * weight / mass, the mass of a group being sum_j v_j d_j over its inputs."""
    for lane in range(n):
        for group in range(shape.column.size - 1):
            first, last = shape.column[group], shape.column[group + 1]
            mass = _dot(v[lane, first:last], below[lane, first:last])
            least[lane] = min(least[lane], mass)
            factor = weight[lane] / mass if mass > LEAST_MASS else 0.0
            row = e[lane, first:last]
            for i in range(row.size):
                row[i] *= factor


@njit(**OPTIONS)
def chain_downward(
    shape: ChainShape,
    transposed: Floats,
    coefficients: Floats,
    batch: Batch,
    p0: int,
    p1: int,
    state: ChainState,
    store: Floats,
    weight: Floats,
    flows: ChainFlows,
) -> None:
    """Positions p1 - 1 .. p0 from the top down; adds every lane's expected flows, times its weight, to `flows`.

    `state.v` holds derivatives at the outputs of position p1 - 1, for a lane that ends below those at its own top.
    `flows.least` receives the smallest mass that a lane's sums were divided by.
    """
    lanes, padded, width = batch.lengths.size, state.v.shape[0], shape.width
    d = state.v
    e = np.zeros((padded, width))
    below = np.zeros((padded, width))
    numbers = np.empty(lanes, dtype=np.int64)
    work = np.empty(1)
    for position in range(p1 - 1, p0 - 1, -1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            continue
        v, above = store[position - p0], store[position - p0 + 1]
        number_slices(batch, position, p0, numbers, n)
        _add_posteriors(shape, above, d, numbers, weight, flows.coefficient, n)
        for lane in range(n):
            row = coefficients[numbers[lane]]
            for i in range(width):
                e[lane, i] = d[lane, i] * row[i]
        for group in range(shape.column.size - 1):
            column = shape.column[group]
            size = shape.column[group + 1] - column
            _mix(transposed, shape.start[group], size, e, below, column, width, n, 0.0)
        _divide_by_mass(shape, v, below, e, weight, flows.least, n)
        if position > 0:
            for group in range(shape.column.size - 1):
                column = shape.column[group]
                size = shape.column[group + 1] - column
                _outer(e, v, column, size, width, n, flows.matrix, shape.start[group])
        _copy(below, d, 0, n)
        if position % _RESCALE_EVERY == 0:
            _rescale(shape, d, state.exponents, work, n)
