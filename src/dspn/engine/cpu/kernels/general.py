"""Passes over a block of sequences in linear space, for any template.

Interface vectors have the largest entry of each group in [0.5, 1) and their power-of-two exponents
apart, which is exact.
"""

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.cpu.kernels import kernel, reducing
from dspn.engine.cpu.kernels.rows import (
    active_lanes,
    add_op_flows,
    add_scale,
    compute,
    dot,
    mix,
    needs_care,
    number_slices,
    read_tables,
    to_powers,
    uncompute,
    unmix,
    with_tables,
)
from dspn.engine.cpu.records import (
    Coefficients,
    EdgeFlows,
    Flows,
    Operations,
    Span,
    State,
    Weighted,
)


@kernel
def load_coefficients(
    ops: Operations, given: Coefficients, numbers: Ints, V: Floats, n: int
) -> None:
    """Fills the loaded rows of the mix part with the coefficients of the slices `numbers`."""
    for load in range(ops.num_loads):
        row = ops.num_inputs + load
        start = load * given.row_step
        if given.by_place:
            start += numbers[0]
            for lane in range(n):
                V[row, lane] = given.values[start + lane]
        else:
            for lane in range(n):
                V[row, lane] = given.values[start + numbers[lane] * given.slice_step]


@kernel
def store_state(state: State, store: Floats, at: int, n: int) -> None:
    """Keeps the vectors of the lanes; where there are rows for them, exponents and scale too."""
    inputs = state.v.shape[0]
    for i in range(inputs):
        for lane in range(n):
            store[at, i, lane] = state.v[i, lane]
    if store.shape[1] > inputs:
        exponents = state.exponents.shape[0]
        for i in range(exponents):
            for lane in range(n):
                store[at, inputs + i, lane] = state.exponents[i, lane]
        for i in range(state.scale.shape[0]):
            for lane in range(n):
                store[at, inputs + exponents + i, lane] = state.scale[i, lane]


@kernel
def _largest(V: Floats, rows: Ints, first: int, last: int, peak: Floats, n: int) -> None:
    for lane in range(n):
        peak[lane] = 0.0
    for i in range(first, last):
        row = rows[i]
        for lane in range(n):
            peak[lane] = max(peak[lane], V[row, lane])


@kernel
def _hand_up(
    ops: Operations,
    V: Floats,
    given: Coefficients,
    numbers: Ints,
    state: State,
    peak: Floats,
    shift: Ints,
    n: int,
) -> None:
    """state.v = outputs, scaled by a power of two for each group.

    The exponent of a group is its own plus that of its coefficients and those of the groups it
    reads.
    """
    num_groups = ops.group_start.size - 1
    for group in range(num_groups):
        first, last = ops.group_start[group], ops.group_start[group + 1]
        _largest(V, ops.output_row, first, last, peak, n)
        to_powers(peak, shift, n)
        for i in range(first, last):
            row = ops.output_row[i]
            for lane in range(n):
                state.v[i, lane] = V[row, lane] * peak[lane]
        for lane in range(n):
            state.exponents[group, lane] = shift[lane] + given.shift[group, numbers[lane]]
        for place in range(ops.source_start[group], ops.source_start[group + 1]):
            source = num_groups + ops.source_group[place]
            for lane in range(n):
                state.exponents[group, lane] += state.exponents[source, lane]
    for group in range(num_groups):
        for lane in range(n):
            state.exponents[num_groups + group, lane] = state.exponents[group, lane]


@kernel
def fill(
    part: Weighted, given: Coefficients, numbers: Ints, V: Floats, n: int, floor: float
) -> None:
    """All rows of the mix part from its inputs and the coefficients of the slices `numbers`."""
    ops = part.ops
    load_coefficients(ops, given, numbers, V, n)
    mix(part, V, n, floor)
    compute(part, V, n, floor)


@kernel
def upward(part: Weighted, span: Span, state: State, store: Floats, floor: float) -> None:
    """Moves the interface vectors up through positions p0 .. p1 - 1.

    A non-empty store receives every input vector (`store_state`).
    """
    ops = part.ops
    given, batch, segment = span
    width = batch.lengths.size
    part = with_tables(part, width)
    V = np.empty((ops.num_rows, width))
    numbers = np.empty(width, dtype=np.int64)
    peak = np.empty(width)
    shift = np.empty(width, dtype=np.int64)
    careful = needs_care(state.scale, given.large)
    for position in range(segment.p0, segment.p1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            break
        for i in range(ops.num_inputs):
            for lane in range(n):
                V[i, lane] = state.v[i, lane]
        if store.size:
            store_state(state, store, position - segment.p0, n)
        number_slices(batch, position, segment.p0, numbers, n)
        read_tables(part, batch, position, n)
        fill(part, given, numbers, V, n, floor)
        add_scale(state.scale, given.scale, careful, numbers, n)
        _hand_up(ops, V, given, numbers, state, peak, shift, n)


@kernel
def _weigh(ops: Operations, V: Floats, d: Floats, mass: Floats, n: int) -> None:
    """For each group the mass sum_i v_i d_i over its outputs: the root's value up to a scale."""
    for group in range(ops.group_start.size - 1):
        for lane in range(n):
            mass[group, lane] = 0.0
        for i in range(ops.group_start[group], ops.group_start[group + 1]):
            row = ops.output_row[i]
            for lane in range(n):
                mass[group, lane] += V[row, lane] * d[i, lane]


@kernel
def _normalise(ops: Operations, d: Floats, mass: Floats, weight: Floats, n: int) -> None:
    """Multiplies the derivatives at each group's outputs by weight / mass: relative to the root."""
    for group in range(ops.group_start.size - 1):
        for lane in range(n):
            mass[group, lane] = weight[lane] / mass[group, lane]
        for i in range(ops.group_start[group], ops.group_start[group + 1]):
            for lane in range(n):
                d[i, lane] *= mass[group, lane]


@kernel
def _seed(ops: Operations, d: Floats, D: Floats, n: int) -> None:
    for row in range(ops.num_rows):
        for lane in range(n):
            D[row, lane] = 0.0
    for i in range(ops.num_inputs):
        row = ops.output_row[i]
        for lane in range(n):
            D[row, lane] += d[i, lane]


@kernel
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


@kernel
def _write(
    ops: Operations, V: Floats, d: Floats, mass: Floats, out: Flows, at: int, n: int
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


@reducing
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


@kernel
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
                flows.mix[place + j] += dot(V, first + j, D, row, 0, n)
                j += 1


@kernel
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


@kernel
def downward(
    part: Weighted,
    span: Span,
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
    ops = part.ops
    given, batch, segment = span
    width = batch.lengths.size
    part = with_tables(part, width)
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
    for position in range(segment.p1 - 1, segment.p0 - 1, -1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            continue
        at = position - segment.p0
        for i in range(ops.num_inputs):
            for lane in range(n):
                V[i, lane] = store[at, i, lane]
        number_slices(batch, position, segment.p0, numbers, n)
        read_tables(part, batch, position, n)
        fill(part, given, numbers, V, n, floor)
        _weigh(ops, V, state.v, mass, n)
        _write(ops, V, state.v, mass, out, at, n)
        if out.exponents.size:
            out.exponents[at, :, :n] = state.exponents[:, :n]
            out.scale[at, :, :n] = state.scale[:, :n]
        if normalise:
            _normalise(ops, state.v, mass, weight, n)
        _seed(ops, state.v, D, n)
        uncompute(part, V, D, before, n)
        if out.seed.size:
            for load in range(ops.num_loads):
                for lane in range(n):
                    out.seed[at, load, lane] = D[ops.num_inputs + load, lane]
        if flows.coefficient.size:
            _add_coefficient_flows(ops, D, numbers, flows, n)
        if flows.op.size:
            add_op_flows(part, V, D, flows.op, n, position == 0)
        if flows.mix.size and position > 0:
            _add_mix_flows(ops, V, D, flows, n)
        unmix(part, D, n)
        add_scale(state.scale, given.scale, careful, numbers, n)
        _hand_down(ops, D, given, numbers, state, peak, shift, n, floor)
