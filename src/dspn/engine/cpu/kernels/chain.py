"""Upward passes for chains: every output is one coefficient times one sum over its group's inputs.

This is the initial template, an HMM, and any number of such groups side by side. Here a lane's
interface vector is contiguous (each group padded to full vectors), a slice is one matrix product
and one row of coefficients, and neither needs a transpose. With `best` values are logarithms, and
sums take their largest term: the max pass.
"""

from typing import Final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.cpu.kernels import kernel
from dspn.engine.cpu.kernels.rows import (
    active_lanes,
    add_scale,
    largest_entry,
    needs_care,
    number_slices,
    numbers_in_vector,
)
from dspn.engine.cpu.kernels.sparse import advance_sparse, best_source, working_space
from dspn.engine.cpu.kernels.tiles import (
    best_eight_lanes,
    best_entry,
    best_one_lane,
    eight_lanes,
    one_lane,
)
from dspn.engine.cpu.records import Batch, ChainMatrix, ChainShape, ChainState, Factors, Segment

FEW: Final = 4  # a rest of fewer lanes than this is run lane by lane, a larger one as a full tile


@kernel
def advance_dense(
    shape: ChainShape,
    group: int,
    matrix: Floats,
    v: Floats,
    out: Floats,
    given: Factors,
    n: int,
    best: bool,
) -> None:
    """See `advance`; for a group with a dense matrix."""
    width, step = shape.width, numbers_in_vector(v)
    first, start = shape.column[group], shape.start[group]
    size = shape.column[group + 1] - first
    values, numbers, floor = given.coefficients, given.numbers, given.floor
    lane = 0
    while lane < n:
        many = n - lane >= FEW
        at = lane * width + first
        for i in range(0, size, step):
            places = (start + i, size, at, width, at + i, lane, first + i)
            if best and many:
                best_eight_lanes(matrix, v, out, values, numbers, places, -np.inf)
            elif best:
                best_one_lane(matrix, v, out, values, numbers, places, -np.inf)
            elif many:
                eight_lanes(matrix, v, out, values, numbers, places, floor)
            else:
                one_lane(matrix, v, out, values, numbers, places, floor)
        lane += 8 if many else 1


@kernel
def advance(
    shape: ChainShape,
    matrix: ChainMatrix,
    v: Floats,
    out: Floats,
    given: Factors,
    n: int,
    space: Floats,
    best: bool,
) -> None:
    """out[l] = floor + c_l (floor + v[l] matrix), group by group.

    c_l are the coefficients of lane l's slice. With `best`, out[l, i] = log c_l,i plus the largest
    of matrix[j, i] + v[l, j].
    """
    for group in range(shape.column.size - 1):
        if shape.is_sparse[group]:
            advance_sparse(shape, group, matrix, v, out, given, n, space, best)
        else:
            advance_dense(shape, group, matrix.dense, v, out, given, n, best)


@kernel
def rescale(shape: ChainShape, v: Floats, exponents: Ints, work: Floats, n: int) -> None:
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


@kernel
def copy_lanes(source: Floats, target: Floats, first: int, last: int) -> None:
    """Writes the vectors of lanes first .. last - 1 to the same lanes of the target."""
    for lane in range(first, last):
        for i in range(source.shape[1]):
            target[lane, i] = source[lane, i]


@kernel
def _clear(v: Floats, first: int, last: int) -> None:
    for lane in range(first, last):
        for i in range(v.shape[1]):
            v[lane, i] = 0.0


@kernel
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


@kernel
def chain_upward(
    shape: ChainShape,
    matrix: ChainMatrix,
    coefficients: Floats,
    scale: Floats,
    large: int,
    shift: Ints,
    batch: Batch,
    segment: Segment,
    state: ChainState,
    store: Floats,
    floor: float,
    rescale_every: int,
    best: bool,
) -> None:
    """Moves the vectors up through the positions of a segment.

    Coefficients of group g have been divided by 2^shift[g], unless that is empty. Vectors are
    rescaled after every `rescale_every` positions; with `best` they are divided by the largest
    entry of each group after every position. With a non-empty store, the vectors below position s
    of the segment are kept in its part s, and those above the last position in the part after; a
    lane that ends keeps its last vector there.
    """
    padded, p0, p1 = state.v.shape[0], segment.p0, segment.p1
    keep = store.size > 0
    v = store[0] if keep else state.v.copy()
    out = store[1] if keep else np.zeros_like(state.v)
    numbers = np.zeros(padded, dtype=np.int64)
    given = Factors(coefficients, numbers, floor)
    work = np.empty(1)
    space = working_space(shape, v)
    careful = needs_care(state.scale, large)
    n = active_lanes(batch.lengths, p0)
    if keep:
        copy_lanes(state.v, v, 0, n)
    _clear(v, n, padded)
    for position in range(p0, p1):
        now = active_lanes(batch.lengths, position)
        # Lanes that have ended keep their last vector; the tiles see zeros in their place.
        if now < n:
            copy_lanes(v, state.v, now, n)
            if not keep:
                _clear(v, now, n)
            n = now
        if n == 0:
            break
        number_slices(batch, position, p0, numbers, n)
        if best and position == 0:  # the bottom network has no inputs to choose from
            for lane in range(n):
                for i in range(shape.width):
                    out[lane, i] = coefficients[numbers[lane], i]
        else:
            advance(shape, matrix, v, out, given, n, space, best)
        _clear(out, n, min(padded, n + numbers_in_vector(v) - 1))
        add_scale(state.scale, scale, careful, numbers, n)
        for group in range(shift.shape[0]):
            for lane in range(n):
                state.exponents[group, lane] += shift[group, numbers[lane]]
        if best:
            _divide(shape, out, state.exponents, n)
        elif position % rescale_every == rescale_every - 1:
            rescale(shape, out, state.exponents, work, n)
        if keep:
            v = out
            if position + 1 < p1:
                out = store[position - p0 + 2]
        else:
            v, out = out, v
    copy_lanes(v, state.v, 0, n)


@kernel
def chain_best_descend(
    shape: ChainShape,
    matrix: ChainMatrix,
    transposed: Floats,
    batch: Batch,
    segment: Segment,
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
    width, padded, p0, p1 = shape.width, store.shape[1], segment.p0, segment.p1
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
                        places = (weights, v + first, size // 8)
                        place = best_entry(transposed, store, places, 0.0)
                        chosen[group, lane] = first + place
