"""The downward pass over a block: derivatives, posteriors and expected flows, in linear space."""

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._kernel_cache import njit
from dspn.engine.cpu.kernels._options import OPTIONS, REDUCING
from dspn.engine.cpu.kernels.linear import dot, uncompute, unmix
from dspn.engine.cpu.kernels.upward import (
    active_lanes,
    add_scale,
    fill,
    needs_care,
    number_slices,
    to_powers,
)
from dspn.engine.cpu.records import Batch, Coefficients, EdgeFlows, Flows, Operations, State


@njit(**OPTIONS)
def _weigh(ops: Operations, V: Floats, d: Floats, mass: Floats, n: int) -> None:
    """For each group the mass sum_i v_i d_i over its outputs: the root's value up to a scale."""
    for group in range(ops.group_start.size - 1):
        for lane in range(n):
            mass[group, lane] = 0.0
        for i in range(ops.group_start[group], ops.group_start[group + 1]):
            row = ops.output_row[i]
            for lane in range(n):
                mass[group, lane] += V[row, lane] * d[i, lane]


@njit(**OPTIONS)
def _normalise(ops: Operations, d: Floats, mass: Floats, weight: Floats, n: int) -> None:
    """Multiplies the derivatives at each group's outputs by weight / mass: relative to the root."""
    for group in range(ops.group_start.size - 1):
        for lane in range(n):
            mass[group, lane] = weight[lane] / mass[group, lane]
        for i in range(ops.group_start[group], ops.group_start[group + 1]):
            for lane in range(n):
                d[i, lane] *= mass[group, lane]


@njit(**OPTIONS)
def _seed(ops: Operations, d: Floats, D: Floats, n: int) -> None:
    for row in range(ops.num_rows):
        for lane in range(n):
            D[row, lane] = 0.0
    for i in range(ops.num_inputs):
        row = ops.output_row[i]
        for lane in range(n):
            D[row, lane] += d[i, lane]


@njit(**OPTIONS)
def _hand_down(
    ops: Operations,
    D: Floats,
    given: Coefficients,
    numbers: Ints,
    state: State,
    peak: Floats,
    shift: Ints,
    n: int,
    floor: float,
) -> None:
    """state.v = floor + derivatives at the inputs, scaled by a power of two for each group."""
    num_groups = ops.group_start.size - 1
    for group in range(num_groups):
        for lane in range(n):
            state.exponents[num_groups + group, lane] = state.exponents[group, lane]
    for i in range(ops.num_inputs):
        for lane in range(n):
            state.v[i, lane] = 0.0
    for group in range(num_groups):
        for place in range(ops.source_start[group], ops.source_start[group + 1]):
            source = ops.source_group[place]
            first, last = ops.group_start[source], ops.group_start[source + 1]
            for lane in range(n):
                peak[lane] = 0.0
            for i in range(first, last):
                for lane in range(n):
                    D[i, lane] += floor
                    peak[lane] = max(peak[lane], D[i, lane])
            to_powers(peak, shift, n)
            for i in range(first, last):
                for lane in range(n):
                    state.v[i, lane] = D[i, lane] * peak[lane]
            for lane in range(n):
                state.exponents[source, lane] = (
                    state.exponents[num_groups + group, lane]
                    + shift[lane]
                    + given.shift[group, numbers[lane]]
                )


@njit(**OPTIONS)
def _write(
    ops: Operations,
    V: Floats,
    d: Floats,
    mass: Floats,
    out: Flows,
    at: int,
    n: int,
) -> None:
    """Mass, posteriors and derivatives at the outputs of one position."""
    for group in range(ops.group_start.size - 1):
        for lane in range(n):
            out.mass[at, group, lane] = mass[group, lane]
        for i in range(ops.group_start[group], ops.group_start[group + 1]):
            row = ops.output_row[i]
            if out.derivative.size:
                for lane in range(n):
                    out.derivative[at, i, lane] = d[i, lane]
            if out.interface.size:
                for lane in range(n):
                    out.interface[at, i, lane] = V[row, lane] * d[i, lane] / mass[group, lane]


@njit(**REDUCING)
def _outer_four(V: Floats, at: int, D: Floats, b: int, n: int, out: Floats, place: int) -> None:
    """Flows of four neighbouring inputs into one row of a dense matrix."""
    p = q = r = s = 0.0
    for lane in range(n):
        d = D[b, lane]
        p += V[at, lane] * d
        q += V[at + 1, lane] * d
        r += V[at + 2, lane] * d
        s += V[at + 3, lane] * d
    out[place] += p
    out[place + 1] += q
    out[place + 2] += r
    out[place + 3] += s


@njit(**OPTIONS)
def _add_mix_flows(ops: Operations, V: Floats, D: Floats, flows: EdgeFlows, n: int) -> None:
    """Adds D_row v_input for every entry of the dense matrices; D is relative to the root."""
    for number in range(ops.mix_row.size):
        group = ops.mix_group[number]
        first = ops.group_start[group]
        width = ops.group_start[group + 1] - first
        for i in range(ops.mix_size[number]):
            row = ops.mix_row[number] + i
            place = ops.mix_start[number] + i * width
            j = 0
            while j + 4 <= width:
                _outer_four(V, first + j, D, row, n, flows.mix, place + j)
                j += 4
            while j < width:
                flows.mix[place + j] += dot(V, first + j, D, row, n)
                j += 1


@njit(**OPTIONS)
def _add_op_flows(
    ops: Operations, V: Floats, D: Floats, flows: EdgeFlows, n: int, at_bottom: bool
) -> None:
    for op in range(ops.op_row.size):
        if ops.op_kind[op] == 1 and not (at_bottom and ops.op_bare[op]):
            for place in range(ops.op_start[op], ops.op_start[op + 1]):
                flows.op[place] += dot(V, ops.op_child[place], D, ops.op_row[op], n)


@njit(**OPTIONS)
def _add_coefficient_flows(
    ops: Operations, D: Floats, numbers: Ints, flows: EdgeFlows, n: int
) -> None:
    """Adds the seeds of one position to those of the distinct slices.

    A lane's sums lie side by side, so eight of them are added at a time.
    """
    load = 0
    while load + 8 <= ops.num_loads:
        row = ops.num_inputs + load
        for lane in range(n):
            own = flows.coefficient[numbers[lane], load : load + 8]
            for i in range(8):
                own[i] += D[row + i, lane]
        load += 8
    while load < ops.num_loads:
        row = ops.num_inputs + load
        for lane in range(n):
            flows.coefficient[numbers[lane], load] += D[row, lane]
        load += 1


@njit(**OPTIONS)
def downward(
    ops: Operations,
    op_weight: Floats,
    mix_weight: Floats,
    given: Coefficients,
    batch: Batch,
    p0: int,
    p1: int,
    state: State,
    store: Floats,
    widest: int,
    weight: Floats,
    out: Flows,
    flows: EdgeFlows,
    floor: float,
) -> None:
    """Moves derivatives down through positions p1 - 1 .. p0, given the inputs `upward` stored.

    `state.v` holds the derivatives at the outputs of position p1 - 1 (for a lane that ends below,
    those at its own top). Writes `out` position by position, and adds to `flows` where its arrays
    are not empty; seeds and flows count a lane with its weight.
    """
    width = batch.lengths.size
    num_groups = ops.group_start.size - 1
    V = np.empty((ops.num_rows, width))
    D = np.empty((ops.num_rows, width))
    before = np.empty((widest + 1, width))
    numbers = np.empty(width, dtype=np.int64)
    mass = np.empty((num_groups, width))
    peak = np.empty(width)
    shift = np.empty(width, dtype=np.int64)
    # Seeds and flows are relative to the root's value; exponents then no longer tell the scale.
    careful = needs_care(state.scale, given.large)
    normalise = out.seed.size or flows.mix.size or flows.op.size or flows.coefficient.size
    for position in range(p1 - 1, p0 - 1, -1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            continue
        at = position - p0
        for i in range(ops.num_inputs):
            for lane in range(n):
                V[i, lane] = store[at, i, lane]
        number_slices(batch, position, p0, numbers, n)
        fill(ops, op_weight, mix_weight, given, numbers, V, n, floor)
        _weigh(ops, V, state.v, mass, n)
        _write(ops, V, state.v, mass, out, at, n)
        if out.exponents.size:
            out.exponents[at, :, :n] = state.exponents[:, :n]
            out.scale[at, :, :n] = state.scale[:, :n]
        if normalise:
            _normalise(ops, state.v, mass, weight, n)
        _seed(ops, state.v, D, n)
        uncompute(ops, op_weight, V, D, before, n)
        if out.seed.size:
            for load in range(ops.num_loads):
                for lane in range(n):
                    out.seed[at, load, lane] = D[ops.num_inputs + load, lane]
        if flows.coefficient.size:
            _add_coefficient_flows(ops, D, numbers, flows, n)
        if flows.op.size:
            _add_op_flows(ops, V, D, flows, n, position == 0)
        if flows.mix.size and position > 0:
            _add_mix_flows(ops, V, D, flows, n)
        unmix(ops, mix_weight, D, n)
        add_scale(state.scale, given.scale, careful, numbers, n)
        _hand_down(ops, D, given, numbers, state, peak, shift, n, floor)


@njit(**OPTIONS)
def top_downward(
    ops: Operations, op_weight: Floats, V: Floats, root_row: int, widest: int, D: Floats
) -> None:
    """D = derivatives of the root at every row, given V of `top_upward`; D comes in as zeros."""
    n = D.shape[1]
    before = np.empty((widest + 1, n))
    for lane in range(n):
        D[root_row, lane] = 1.0
    uncompute(ops, op_weight, V, D, before, n)
