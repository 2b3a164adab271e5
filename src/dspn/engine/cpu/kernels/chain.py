"""Passes for chains: every output is one coefficient times one sum over its own group's inputs.

This is the initial template, an HMM, and any number of such groups side by side. Here a lane's
interface vector is contiguous (each group padded with zeros to a multiple of eight), a slice is one
matrix product and one row of coefficients, and neither needs a transpose.
"""

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._kernel_cache import njit
from dspn.engine.cpu.kernels._options import OPTIONS
from dspn.engine.cpu.kernels.products import largest_entry, numbers_in_vector
from dspn.engine.cpu.kernels.sparse import advance_sparse, working_space
from dspn.engine.cpu.kernels.tile import eight_lanes, one_lane
from dspn.engine.cpu.kernels.upward import active_lanes, add_scale, needs_care, number_slices
from dspn.engine.cpu.records import Batch, ChainMatrix, ChainShape, ChainState

FEW = 4  # a rest of fewer lanes than this is run lane by lane, a larger one as a full tile


@njit(**OPTIONS)
def advance_dense(
    shape: ChainShape,
    group: int,
    matrix: Floats,
    v: Floats,
    out: Floats,
    coefficients: Floats,
    numbers: Ints,
    n: int,
    floor: float,
) -> None:
    """See `_advance`; for a group with a dense matrix."""
    width, step = shape.width, numbers_in_vector(v)
    first, start = shape.column[group], shape.start[group]
    size = shape.column[group + 1] - first
    lane = 0
    while n - lane >= FEW:
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
def advance(
    shape: ChainShape,
    matrix: ChainMatrix,
    v: Floats,
    out: Floats,
    coefficients: Floats,
    numbers: Ints,
    n: int,
    floor: float,
    space: Floats,
) -> None:
    """out[l] = floor + c_l (floor + v[l] matrix), group by group.

    c_l are the coefficients of lane l's slice.
    """
    for group in range(shape.column.size - 1):
        if shape.is_sparse[group]:
            advance_sparse(shape, group, matrix, v, out, coefficients, numbers, n, floor, space)
        else:
            advance_dense(shape, group, matrix.dense, v, out, coefficients, numbers, n, floor)


@njit(**OPTIONS)
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


@njit(**OPTIONS)
def copy_lanes(source: Floats, target: Floats, first: int, last: int) -> None:
    """Writes the vectors of lanes first .. last - 1 to the same lanes of the target."""
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
    matrix: ChainMatrix,
    coefficients: Floats,
    scale: Floats,
    large: int,
    shift: Ints,
    batch: Batch,
    p0: int,
    p1: int,
    state: ChainState,
    store: Floats,
    floor: float,
    rescale_every: int,
) -> None:
    """Moves the vectors up through positions p0 .. p1 - 1.

    Coefficients of group g have been divided by 2^shift[g], unless that is empty. Vectors are
    rescaled after every `rescale_every` positions. With a non-empty store, the vectors below
    position p0 + s are kept in its part s, and those above the last position in the part after; a
    lane that ends keeps its last vector there.
    """
    padded = state.v.shape[0]
    keep = store.size > 0
    v = store[0] if keep else state.v.copy()
    out = store[1] if keep else np.zeros_like(state.v)
    numbers = np.zeros(padded, dtype=np.int64)
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
        advance(shape, matrix, v, out, coefficients, numbers, n, floor, space)
        _clear(out, n, min(padded, n + numbers_in_vector(v) - 1))
        add_scale(state.scale, scale, careful, numbers, n)
        if shift.size:
            for group in range(shift.shape[0]):
                for lane in range(n):
                    state.exponents[group, lane] += shift[group, numbers[lane]]
        if position % rescale_every == rescale_every - 1:
            rescale(shape, out, state.exponents, work, n)
        if keep:
            v = out
            if position + 1 < p1:
                out = store[position - p0 + 2]
        else:
            v, out = out, v
    copy_lanes(v, state.v, 0, n)
