"""Passes for chains: every output is one coefficient times one sum over its own group's inputs.

This is the initial template, an HMM, and any number of such groups side by side. Here a lane's
interface vector is contiguous (each group padded with zeros to a multiple of eight), a slice is one
matrix product and one row of coefficients, and neither needs a transpose.
"""

import numpy as np
from numba import njit

from dspn._arrays import Floats, Ints
from dspn.engine.kernels._options import OPTIONS, REDUCING
from dspn.engine.kernels.products import largest_entry, numbers_in_vector
from dspn.engine.kernels.tile import (
    add_eight_rows,
    best_eight_lanes,
    best_entry,
    best_one_lane,
    eight_lanes,
    one_lane,
    weigh_row,
)
from dspn.engine.kernels.upward import active_lanes, number_slices
from dspn.engine.records import Batch, ChainFlows, ChainShape, ChainState

LEAST_MASS = 1e-250  # below this a mass may lack what underflowed; see `engine.passes`
_FEW = 4  # a rest of fewer lanes than this is run lane by lane, a larger one as a full tile


@njit(**OPTIONS)
def _advance(
    shape: ChainShape,
    matrix: Floats,
    v: Floats,
    out: Floats,
    coefficients: Floats,
    numbers: Ints,
    n: int,
    floor: float,
) -> None:
    """out[l] = floor + c_l (floor + v[l] matrix), group by group.

    c_l are the coefficients of lane l's slice.
    """
    width = shape.width
    step = numbers_in_vector(v)
    for group in range(shape.column.size - 1):
        first, start = shape.column[group], shape.start[group]
        size = shape.column[group + 1] - first
        lane = 0
        while n - lane >= _FEW:
            at = lane * width + first
            for i in range(0, size, step):
                eight_lanes(
                    matrix,
                    start + i,
                    size,
                    v,
                    at,
                    width,
                    out,
                    at + i,
                    coefficients,
                    numbers,
                    lane,
                    first + i,
                    floor,
                )
            lane += 8
        while lane < n:
            at = lane * width + first
            for i in range(0, size, step):
                one_lane(
                    matrix,
                    start + i,
                    size,
                    v,
                    at,
                    width,
                    out,
                    at + i,
                    coefficients,
                    numbers,
                    lane,
                    first + i,
                    floor,
                )
            lane += 1


@njit(**OPTIONS)
def _advance_best(
    shape: ChainShape,
    matrix: Floats,
    v: Floats,
    out: Floats,
    coefficients: Floats,
    numbers: Ints,
    n: int,
) -> None:
    """out[l, i] = log coefficient + max_j (matrix[j, i] + v[l, j]), group by group."""
    width = shape.width
    for group in range(shape.column.size - 1):
        first, start = shape.column[group], shape.start[group]
        size = shape.column[group + 1] - first
        lane = 0
        while n - lane >= _FEW:
            at = lane * width + first
            for i in range(0, size, 8):
                best_eight_lanes(
                    matrix,
                    start + i,
                    size,
                    v,
                    at,
                    width,
                    out,
                    at + i,
                    coefficients,
                    numbers,
                    lane,
                    first + i,
                    -np.inf,
                )
            lane += 8
        while lane < n:
            at = lane * width + first
            for i in range(0, size, 8):
                best_one_lane(
                    matrix,
                    start + i,
                    size,
                    v,
                    at,
                    width,
                    out,
                    at + i,
                    coefficients,
                    numbers,
                    lane,
                    first + i,
                    -np.inf,
                )
            lane += 1


@njit(**OPTIONS)
def _rescale(shape: ChainShape, v: Floats, exponents: Ints, work: Floats, n: int) -> None:
    """Brings the largest entry of each lane and group into [0.5, 1) by a power of two.

    A group of zeros stays as it is.
    """
    bits = work.view(np.int64)
    own = np.empty_like(v[0, :1])  # the factor in the precision of the vectors
    for lane in range(n):
        for group in range(shape.column.size - 1):
            row = v[lane, shape.column[group] : shape.column[group + 1]]
            work[0] = largest_entry(row)
            if work[0] == 0.0:
                continue
            shift = (bits[0] >> 52) - 1022
            bits[0] = (1023 - shift) << 52
            own[0] = work[0]
            factor = own[0]
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
    rescale_every: int,
) -> None:
    """Moves the vectors up through positions p0 .. p1 - 1.

    They are rescaled after every `rescale_every` positions. With a non-empty store, the vectors
    below position p0 + s are kept in its part s, and those above the last position in the part
    after; a lane that ends keeps its last vector there.
    """
    padded = state.v.shape[0]
    keep = store.size > 0
    v = store[0] if keep else state.v.copy()
    out = store[1] if keep else np.zeros_like(state.v)
    numbers = np.zeros(padded, dtype=np.int64)
    work = np.empty(1)
    n = active_lanes(batch.lengths, p0)
    if keep:
        _copy(state.v, v, 0, n)
    _clear(v, n, padded)
    for position in range(p0, p1):
        now = active_lanes(batch.lengths, position)
        # Lanes that have ended keep their last vector; the tiles see zeros in their place.
        if now < n:
            _copy(v, state.v, now, n)
            if not keep:
                _clear(v, now, n)
            n = now
        if n == 0:
            break
        number_slices(batch, position, p0, numbers, n)
        _advance(shape, matrix, v, out, coefficients, numbers, n, floor)
        _clear(out, n, min(padded, n + 7))
        for lane in range(n):
            state.scale[lane] += scale[numbers[lane]]
        if position % rescale_every == rescale_every - 1:
            _rescale(shape, out, state.exponents, work, n)
        if keep:
            v = out
            if position + 1 < p1:
                out = store[position - p0 + 2]
        else:
            v, out = out, v
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
    """The max pass through positions p0 .. p1 - 1, in logarithms; padding is -inf.

    The store is as in `chain_upward`.
    """
    width, padded = shape.width, state.v.shape[0]
    keep = store.size > 0
    v = store[0] if keep else state.v.copy()
    out = store[1] if keep else np.zeros((padded, width))
    numbers = np.zeros(padded, dtype=np.int64)
    n = active_lanes(batch.lengths, p0)
    if keep:
        _copy(state.v, v, 0, n)
    for position in range(p0, p1):
        now = active_lanes(batch.lengths, position)
        if now < n:
            _copy(v, state.v, now, n)
            n = now
        if n == 0:
            break
        number_slices(batch, position, p0, numbers, n)
        if position == 0:  # the bottom network has no inputs to choose from
            for lane in range(n):
                row = coefficients[numbers[lane]]
                for i in range(width):
                    out[lane, i] = row[i]
        else:
            _advance_best(shape, matrix, v, out, coefficients, numbers, n)
        if keep:
            v = out
            if position + 1 < p1:
                out = store[position - p0 + 2]
        else:
            v, out = out, v
    _copy(v, state.v, 0, n)


@njit(**OPTIONS)
def chain_best_descend(
    shape: ChainShape,
    transposed: Floats,
    batch: Batch,
    p0: int,
    p1: int,
    store: Floats,
    chosen: Ints,
    interfaces: Ints,
) -> None:
    """Writes the best path of every lane through positions p1 - 1 .. p0 to `interfaces`.

    `chosen[g, lane]` is the column of group g's output at position p1 - 1, and afterwards that at
    position p0 - 1. No back-pointers were kept: the best input is found again at each step of the
    path. Lanes run in eights, so that the vectors read and the slices written are neighbours.
    """
    width, padded = shape.width, store.shape[1]
    for first_lane in range(0, batch.lengths.size, 8):
        last_lane = min(first_lane + 8, batch.lengths.size)
        for position in range(min(p1, batch.lengths[first_lane]) - 1, p0 - 1, -1):
            for lane in range(first_lane, last_lane):
                if batch.lengths[lane] <= position:
                    break
                row = batch.base[lane] + batch.stride * position
                v = ((position - p0) * padded + lane) * width
                for group in range(shape.column.size - 1):
                    first = shape.column[group]
                    size = shape.column[group + 1] - first
                    i = chosen[group, lane]
                    interfaces[row, group] = i
                    if position > 0:
                        weights = shape.start[group] + (i - first) * size
                        place = best_entry(transposed, weights, store, v + first, size // 8)
                        chosen[group, lane] = first + place


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
    """out[i, j] += sum_l e[l, i] v[l, j] for one group.

    That is the expected use of every edge, still to be multiplied by its weight.
    """
    for i in range(0, size, 8):
        for j in range(0, size, numbers_in_vector(v)):
            to = start + i * size + j
            add_eight_rows(v, column + j, width, e, column + i, 1, width, n, out, to, size)


@njit(**OPTIONS)
def _weigh(
    shape: ChainShape,
    above: Floats,
    d: Floats,
    coefficients: Floats,
    numbers: Ints,
    weight: Floats,
    sums: Floats,
    e: Floats,
    mass: Floats,
    n: int,
    least: float,
) -> None:
    """Adds weight v_i d_i / mass, the posterior of output i, to the sums of its slice.

    The mass of a group is sum_i v_i d_i over its outputs: the root's value up to a scale. `e`
    receives weight c_i d_i / mass, the derivatives at the mixes relative to the mass.
    """
    width = shape.width
    for group in range(shape.column.size - 1):
        first = shape.column[group]
        packs = (shape.column[group + 1] - first) // numbers_in_vector(d)
        for lane in range(n):
            at = lane * width + first
            mass[group, lane] = weigh_row(
                above,
                at,
                d,
                at,
                coefficients,
                numbers[lane] * width + first,
                sums,
                e,
                packs,
                weight[lane],
                least,
            )


@njit(**OPTIONS)
def _hand_down(
    shape: ChainShape, below: Floats, mass: Floats, weight: Floats, d: Floats, n: int
) -> None:
    """d = below mass / weight: the derivatives at the inputs, no longer relative to the mass."""
    ratio = np.empty_like(d[0, :1])  # in the precision of the vectors
    for group in range(shape.column.size - 1):
        first, last = shape.column[group], shape.column[group + 1]
        for lane in range(n):
            ratio[0] = mass[group, lane] / weight[lane]
            factor = ratio[0]
            to, own = d[lane, first:last], below[lane, first:last]
            for i in range(to.size):
                to[i] = own[i] * factor


@njit(**OPTIONS)
def _undo_rescaling(
    shape: ChainShape, v: Floats, below: Floats, weight: Floats, e: Floats, n: int
) -> None:
    """e *= weight / sum_j v_j below_j, so that flows are relative to the mass over the inputs.

    Where the vectors above were rescaled, so was the mass that e was divided by; the same sum over
    the inputs tells by how much.
    """
    ratio = np.empty_like(e[0, :1])  # in the precision of the vectors
    for group in range(shape.column.size - 1):
        first, last = shape.column[group], shape.column[group + 1]
        for lane in range(n):
            mass = _dot(v[lane, first:last], below[lane, first:last])
            ratio[0] = weight[lane] / mass if mass > 0.0 else 0.0
            factor = ratio[0]
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
    rescale_every: int,
    least: float,
) -> None:
    """Adds every lane's expected flows at positions p1 - 1 .. p0, times its weight, to `flows`.

    `state.v` holds the derivatives at the outputs of position p1 - 1 (for a lane that ends below,
    those at its own top), and afterwards those at the inputs of position p0. `flows.least` receives
    the smallest mass that a lane's sums were divided by.
    """
    padded, width = state.v.shape[0], shape.width
    d = state.v
    e = np.zeros_like(d)
    below = np.zeros_like(d)
    mass = np.empty((shape.column.size - 1, padded))
    ones = np.ones_like(d[:1])
    zeros = np.zeros(padded, dtype=np.int64)
    numbers = np.zeros(padded, dtype=np.int64)
    work = np.empty(1)
    for position in range(p1 - 1, p0 - 1, -1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            continue
        v, above = store[position - p0], store[position - p0 + 1]
        number_slices(batch, position, p0, numbers, n)
        _weigh(shape, above, d, coefficients, numbers, weight, flows.coefficient, e, mass, n, least)
        for group in range(mass.shape[0]):
            for lane in range(n):
                flows.least[lane] = min(flows.least[lane], mass[group, lane])
        # The coefficients are in e already: row 0 of `ones` stands for all of them.
        _advance(shape, transposed, e, below, ones, zeros, n, 0.0)
        if position % rescale_every == rescale_every - 1:
            _undo_rescaling(shape, v, below, weight, e, n)
        if position > 0:
            for group in range(shape.column.size - 1):
                column = shape.column[group]
                size = shape.column[group + 1] - column
                _outer(e, v, column, size, width, n, flows.matrix, shape.start[group])
        _hand_down(shape, below, mass, weight, d, n)
        if position % rescale_every == 0:
            _rescale(shape, d, state.exponents, work, n)
