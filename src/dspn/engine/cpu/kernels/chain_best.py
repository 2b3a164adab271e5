"""The max pass for chains, in logarithms, and the best path that it leads to."""

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._kernel_cache import njit
from dspn.engine.cpu.kernels._options import OPTIONS
from dspn.engine.cpu.kernels.chain import FEW, copy_lanes
from dspn.engine.cpu.kernels.products import largest_entry
from dspn.engine.cpu.kernels.sparse import advance_best_sparse, best_source, working_space
from dspn.engine.cpu.kernels.tile import best_eight_lanes, best_entry, best_one_lane
from dspn.engine.cpu.kernels.upward import active_lanes, add_scale, needs_care, number_slices
from dspn.engine.cpu.records import Batch, ChainMatrix, ChainShape, ChainState


@njit(**OPTIONS)
def _advance_best(
    shape: ChainShape,
    matrices: ChainMatrix,
    v: Floats,
    out: Floats,
    coefficients: Floats,
    numbers: Ints,
    n: int,
    space: Floats,
) -> None:
    """out[l, i] = log coefficient + max_j (matrix[j, i] + v[l, j]), group by group."""
    width, matrix = shape.width, matrices.dense
    for group in range(shape.column.size - 1):
        if shape.is_sparse[group]:
            advance_best_sparse(shape, group, matrices, v, out, coefficients, numbers, n, space)
            continue
        first, start = shape.column[group], shape.start[group]
        size = shape.column[group + 1] - first
        lane = 0
        while n - lane >= FEW:
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
def _divide(shape: ChainShape, v: Floats, exponents: Floats, n: int) -> None:
    """Subtracts the largest entry of each lane and group and adds it to the group's exponent.

    A second row for each group, after those of all groups, receives the least that it was.
    """
    num_groups = shape.column.size - 1
    for lane in range(n):
        for group in range(num_groups):
            row = v[lane, shape.column[group] : shape.column[group + 1]]
            peak = largest_entry(row)
            if peak > -np.inf:
                for i in range(row.size):
                    row[i] -= peak
                exponents[group, lane] += peak
                exponents[num_groups + group, lane] = min(exponents[num_groups + group, lane], peak)


@njit(**OPTIONS)
def chain_best_upward(
    shape: ChainShape,
    matrix: ChainMatrix,
    coefficients: Floats,
    scale: Floats,
    large: int,
    batch: Batch,
    p0: int,
    p1: int,
    state: ChainState,
    store: Floats,
) -> None:
    """The max pass through positions p0 .. p1 - 1, in logarithms; padding is -inf.

    Vectors are divided by the largest entry of each group after every position. The store is as in
    `chain_upward`.
    """
    width, padded = shape.width, state.v.shape[0]
    keep = store.size > 0
    v = store[0] if keep else state.v.copy()
    out = store[1] if keep else np.zeros((padded, width))
    numbers = np.zeros(padded, dtype=np.int64)
    space = working_space(shape, v)
    careful = needs_care(state.scale, large)
    n = active_lanes(batch.lengths, p0)
    if keep:
        copy_lanes(state.v, v, 0, n)
    for position in range(p0, p1):
        now = active_lanes(batch.lengths, position)
        if now < n:
            copy_lanes(v, state.v, now, n)
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
            _advance_best(shape, matrix, v, out, coefficients, numbers, n, space)
        add_scale(state.scale, scale, careful, numbers, n)
        _divide(shape, out, state.exponents, n)
        if keep:
            v = out
            if position + 1 < p1:
                out = store[position - p0 + 2]
        else:
            v, out = out, v
    copy_lanes(v, state.v, 0, n)


@njit(**OPTIONS)
def chain_best_descend(
    shape: ChainShape,
    matrix: ChainMatrix,
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
    `transposed` holds the dense matrices with a row for each output.
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
                    if position > 0 and shape.is_sparse[group]:
                        own = store[position - p0, lane]
                        chosen[group, lane] = first + best_source(matrix, i, own, first)
                    elif position > 0:
                        weights = shape.start[group] + (i - first) * size
                        place = best_entry(transposed, weights, store, v + first, size // 8)
                        chosen[group, lane] = first + place
