"""Downward passes for chains: expected flows summed up, and posteriors of the outputs."""

from typing import Final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.cpu.kernels import kernel, reducing
from dspn.engine.cpu.kernels.chain import advance, advance_dense, rescale
from dspn.engine.cpu.kernels.rows import active_lanes, number_slices, numbers_in_vector
from dspn.engine.cpu.kernels.sparse import add_use, advance_and_add_use, working_space
from dspn.engine.cpu.kernels.tiles import add_eight_rows, weigh_row
from dspn.engine.cpu.records import (
    Batch,
    ChainFlows,
    ChainMatrix,
    ChainShape,
    ChainState,
    Factors,
    Segment,
)

LEAST_MASS: Final = 1e-250  # below this a mass may lack what underflowed; see `engine.passes`


@reducing
def _dot(a: Floats, b: Floats) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@kernel
def _outer(
    e: Floats, v: Floats, column: int, size: int, width: int, n: int, out: Floats, start: int
) -> None:
    """out[i, j] += sum_l e[l, i] v[l, j] for one group.

    That is the expected use of every edge, still to be multiplied by its weight.
    """
    for i in range(0, size, 8):
        for j in range(0, size, numbers_in_vector(v)):
            places = (column + j, width, column + i, width, n, start + i * size + j, size)
            add_eight_rows(v, e, out, places, 0.0)


@kernel
def _add_use(
    shape: ChainShape,
    transposed: ChainMatrix,
    e: Floats,
    v: Floats,
    below: Floats,
    ones: Factors,
    n: int,
    flows: ChainFlows,
    space: Floats,
    is_moving: bool,
) -> None:
    """Adds the expected use of every edge at one position, group by group.

    If it `is_moving`, the derivatives below are computed from the same numbers.
    """
    for group in range(shape.column.size - 1):
        column = shape.column[group]
        size = shape.column[group + 1] - column
        if not shape.is_sparse[group]:
            if is_moving:
                advance_dense(shape, group, transposed.dense, e, below, ones, n, False)
            _outer(e, v, column, size, shape.width, n, flows.dense, shape.start[group])
        elif is_moving:
            advance_and_add_use(shape, group, transposed, v, e, below, ones, n, flows.edge, space)
        else:
            add_use(shape, group, transposed, v, e, n, flows.edge, space)


@kernel
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
            places = (lane * width + first, numbers[lane] * width + first, packs)
            mass[group, lane] = weigh_row(
                above, d, coefficients, sums, e, places, (weight[lane], least)
            )


@kernel
def _hand_down(
    shape: ChainShape, below: Floats, mass: Floats, weight: Floats, d: Floats, n: int
) -> None:
    """D = below mass / weight: the derivatives at the inputs, no longer relative to the mass."""
    ratio = np.empty_like(d[0, :1])  # in the precision of the vectors
    for group in range(shape.column.size - 1):
        first, last = shape.column[group], shape.column[group + 1]
        for lane in range(n):
            ratio[0] = mass[group, lane] / weight[lane]
            factor = ratio[0]
            to, own = d[lane, first:last], below[lane, first:last]
            for i in range(to.size):
                to[i] = own[i] * factor


@kernel
def _undo_rescaling(
    shape: ChainShape, v: Floats, below: Floats, weight: Floats, e: Floats, least: Floats, n: int
) -> None:
    """E *= weight / sum_j v_j below_j, so that flows are relative to the mass over the inputs.

    Where the vectors above were rescaled, so was the mass that e was divided by; the same sum over
    the inputs tells by how much, or how much of it was owed to a floor. A non-empty `least`
    receives the smallest such part.
    """
    ratio = np.empty_like(e[0, :1])  # in the precision of the vectors
    for group in range(shape.column.size - 1):
        first, last = shape.column[group], shape.column[group + 1]
        for lane in range(n):
            mass = _dot(v[lane, first:last], below[lane, first:last])
            if least.size:
                least[lane] = min(least[lane], mass / weight[lane])
            ratio[0] = weight[lane] / mass if mass > 0.0 else 0.0
            factor = ratio[0]
            row = e[lane, first:last]
            for i in range(row.size):
                row[i] *= factor


@kernel
def chain_downward(
    shape: ChainShape,
    transposed: ChainMatrix,
    coefficients: Floats,
    batch: Batch,
    segment: Segment,
    state: ChainState,
    store: Floats,
    weight: Floats,
    flows: ChainFlows,
    rescale_every: int,
    least: float,
    has_floor: bool,
) -> None:
    """Adds every lane's expected flows at positions p1 - 1 .. p0, times its weight, to `flows`.

    `state.v` holds the derivatives at the outputs of position p1 - 1 (for a lane that ends below,
    those at its own top), and afterwards those at the inputs of position p0. `flows.least` receives
    the smallest mass that a lane's sums were divided by; with `has_floor`, as the upward pass had
    it, also the smallest part of a mass that was not owed to the floor.
    """
    padded, p0, p1 = state.v.shape[0], segment.p0, segment.p1
    d = state.v
    e = np.zeros_like(d)
    below = np.zeros_like(d)
    mass = np.empty((shape.column.size - 1, padded))
    # The coefficients are in e already: row 0 of ones stands for all of them.
    ones = Factors(np.ones_like(d[:1]), np.zeros(padded, dtype=np.int64), 0.0)
    numbers = np.zeros(padded, dtype=np.int64)
    work = np.empty(1)
    space = working_space(shape, d)
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
        rescaled = position % rescale_every == rescale_every - 1
        if position > 0 and not rescaled:
            _add_use(shape, transposed, e, v, below, ones, n, flows, space, True)
        else:
            advance(shape, transposed, e, below, ones, n, space, False)
        if position > 0 and rescaled:
            doubted = flows.least if has_floor else flows.least[:0]
            _undo_rescaling(shape, v, below, weight, e, doubted, n)
            _add_use(shape, transposed, e, v, below, ones, n, flows, space, False)
        _hand_down(shape, below, mass, weight, d, n)
        if position % rescale_every == 0:
            rescale(shape, d, state.exponents, work, n)


@kernel
def chain_posteriors(
    shape: ChainShape,
    transposed: ChainMatrix,
    coefficients: Floats,
    batch: Batch,
    segment: Segment,
    state: ChainState,
    store: Floats,
    posterior: Floats,
    least: Floats,
    rescale_every: int,
) -> None:
    """Writes the posteriors of the outputs, (positions, lanes, columns), at positions p1 - 1 .. p0.

    `state.v` is as in `chain_downward`. `least` receives the smallest mass of each lane.
    """
    d, p0, p1 = state.v, segment.p0, segment.p1
    e = np.zeros_like(d)
    below = np.zeros_like(d)
    ones = Factors(np.ones_like(d[:1]), np.zeros(d.shape[0], dtype=np.int64), 0.0)
    numbers = np.zeros(d.shape[0], dtype=np.int64)
    mass = np.empty((shape.column.size - 1, d.shape[0]))
    work = np.empty(1)
    weight = np.ones(d.shape[0])
    space = working_space(shape, d)
    for position in range(p1 - 1, p0 - 1, -1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            continue
        above = store[position - p0 + 1]
        number_slices(batch, position, p0, numbers, n)
        for group in range(mass.shape[0]):
            first, last = shape.column[group], shape.column[group + 1]
            for lane in range(n):
                own = _dot(above[lane, first:last], d[lane, first:last])
                mass[group, lane] = own
                least[lane] = min(least[lane], own)
                factor = 1.0 / own if own > 0.0 else 0.0
                for i in range(first, last):
                    posterior[position - p0, lane, i] = above[lane, i] * d[lane, i] * factor
                    e[lane, i] = coefficients[numbers[lane], i] * d[lane, i] * factor
        advance(shape, transposed, e, below, ones, n, space, False)
        _hand_down(shape, below, mass, weight, d, n)
        if position % rescale_every == 0:
            rescale(shape, d, state.exponents, work, n)
