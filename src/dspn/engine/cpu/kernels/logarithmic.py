"""The passes in log space: slower, and right where linear space loses small values.

The same layout of lanes and rows. A logarithm is a pair V[0] + V[1] of which the second holds what
the first has rounded off: a leaf far from its data may have -1e20, in which the weights and the
other leaves would drown. In interface vectors, as in `State.v`, the second numbers are further
rows. From slice to slice these vectors are divided by their largest entry, and the divisors are
summed apart. With `maximise` a sum takes the largest of its weighted children instead of adding
them: the max pass.
"""

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.cpu.kernels import kernel
from dspn.engine.cpu.kernels.general import store_state
from dspn.engine.cpu.kernels.rows import (
    active_lanes,
    add_scale,
    needs_care,
    number_slices,
    read_tables,
    rounded_off,
    run_end,
    table_start,
    with_tables,
)
from dspn.engine.cpu.kernels.slices import LANES, add_divisors, load_leaves, read_slice_tables
from dspn.engine.cpu.records import (
    Coefficients,
    EdgeFlows,
    Flows,
    LeafFlows,
    Operations,
    Slices,
    Span,
    State,
    Weighted,
)


@kernel
def _log_sum(
    log_weight: Floats,
    start: int,
    rows: Ints,
    first: int,
    count: int,
    V: Floats,
    row: int,
    work: Floats,
    begin: int,
    end: int,
    maximise: bool,
) -> None:
    """V[row] = log sum_j exp(log w_j + V[c_j]) in lanes begin .. end - 1.

    With `maximise` it is the largest term.

    Child c_j is rows[j], or first + j where `rows` is empty.
    """
    high, low, total = work[0], work[1], work[2]
    for lane in range(begin, end):
        high[lane] = -np.inf
        low[lane] = 0.0
    for j in range(count):
        child = rows[j] if rows.size else first + j
        weight = log_weight[start + j]
        if weight > -np.inf:
            for lane in range(begin, end):
                term = V[0, child, lane] + weight
                rest = V[1, child, lane] + rounded_off(V[0, child, lane], weight)
                if (term - high[lane]) + (rest - low[lane]) > 0.0:
                    high[lane] = term
                    low[lane] = rest
    if not maximise:
        for lane in range(begin, end):
            total[lane] = 0.0
        for j in range(count):
            child = rows[j] if rows.size else first + j
            weight = log_weight[start + j]
            if weight > -np.inf:
                for lane in range(begin, end):
                    if V[0, child, lane] > -np.inf:
                        term = V[0, child, lane] + weight
                        rest = V[1, child, lane] + rounded_off(V[0, child, lane], weight)
                        total[lane] += np.exp((term - high[lane]) + (rest - low[lane]))
        for lane in range(begin, end):
            if high[lane] > -np.inf:
                low[lane] += np.log(total[lane])
    for lane in range(begin, end):
        V[0, row, lane] = high[lane]
        V[1, row, lane] = low[lane]


@kernel
def log_compute(
    part: Weighted, V: Floats, work: Floats, n: int, maximise: bool, at_bottom: bool
) -> None:
    """Fills the computed rows of a part from its inputs and loads.

    The bottom network has no sums without a leaf below. There is nothing to choose at them, so they
    are added up even with `maximise`, and come to 1.
    """
    ops = part.ops
    none = ops.op_child[:0]
    for number in range(ops.mix_row.size):
        group = ops.mix_group[number]
        first = ops.group_start[group]
        width = ops.group_start[group + 1] - first
        for i in range(ops.mix_size[number]):
            start, row = ops.mix_start[number] + i * width, ops.mix_row[number] + i
            best = maximise and not at_bottom
            _log_sum(part.mix, start, none, first, width, V, row, work, 0, n, best)
    for op in range(ops.op_row.size):
        low, high = ops.op_start[op], ops.op_start[op + 1]
        children, row = ops.op_child[low:high], ops.op_row[op]
        if ops.op_kind[op] == 0:
            for lane in range(n):
                V[0, row, lane] = 0.0
                V[1, row, lane] = 0.0
            for child in children:
                for lane in range(n):
                    own, factor = V[0, row, lane], V[0, child, lane]
                    V[0, row, lane] = own + factor
                    V[1, row, lane] += V[1, child, lane] + rounded_off(own, factor)
        else:
            best = maximise and not (at_bottom and ops.op_bare[op])
            size, begin = children.size, 0
            while begin < n:
                end, start = run_end(part, op, begin, n), table_start(part, op, begin)
                _log_sum(part.op, start, children, 0, size, V, row, work, begin, end, best)
                begin = end


@kernel
def log_slice_values(part: Weighted, slices: Slices, out: Coefficients, maximise: bool) -> None:
    """Log coefficients of the slices `rows` of the data, written to `out` in their order."""
    ops = part.ops
    part = with_tables(part, LANES)
    V = np.zeros((2, ops.num_rows, LANES))
    work = np.empty((3, LANES))
    for first in range(0, slices.rows.size, LANES):
        n = min(LANES, slices.rows.size - first)
        load_leaves(ops, slices, first, V[0], n, 0.0)
        read_slice_tables(part, slices, first, n)
        log_compute(part, V, work, n, maximise, False)
        for c in range(ops.output_row.size):
            row, start = ops.output_row[c], c * out.row_step + first * out.slice_step
            for lane in range(n):
                out.values[start + lane * out.slice_step] = V[0, row, lane]
                out.low[start + lane * out.slice_step] = V[1, row, lane]
        add_divisors(slices, first, out.scale, n)


@kernel
def load_log_coefficients(
    ops: Operations, given: Coefficients, numbers: Ints, V: Floats, n: int
) -> None:
    """Fills the loaded rows of the mix part with the coefficients of the slices `numbers`."""
    for load in range(ops.num_loads):
        row, start = ops.num_inputs + load, load * given.row_step
        for lane in range(n):
            at = start + numbers[lane] * given.slice_step
            V[0, row, lane] = given.values[at]
            V[1, row, lane] = given.low[at]


@kernel
def load_log_inputs(ops: Operations, v: Floats, V: Floats, n: int) -> None:
    """Fills the rows of the inputs."""
    for i in range(ops.num_inputs):
        for lane in range(n):
            V[0, i, lane] = v[i, lane]
            V[1, i, lane] = v[ops.num_inputs + i, lane]


@kernel
def _largest(V: Floats, rows: Ints, first: int, last: int, peak: Floats, n: int) -> None:
    """The largest entry of some rows, as a pair; 0 where all are -inf."""
    for lane in range(n):
        peak[0, lane] = -np.inf
        peak[1, lane] = 0.0
    for i in range(first, last):
        row = rows[i]
        for lane in range(n):
            if (V[0, row, lane] - peak[0, lane]) + (V[1, row, lane] - peak[1, lane]) > 0.0:
                peak[0, lane] = V[0, row, lane]
                peak[1, lane] = V[1, row, lane]
    for lane in range(n):
        if peak[0, lane] == -np.inf:
            peak[0, lane] = 0.0


@kernel
def _divide(V: Floats, row: int, peak: Floats, v: Floats, i: int, n: int) -> None:
    """Entry i of an interface vector = a row less the largest entry."""
    low = v.shape[0] // 2 + i
    for lane in range(n):
        value = V[0, row, lane] - peak[0, lane]
        v[i, lane] = value
        v[low, lane] = 0.0
        if value > -np.inf:
            v[low, lane] = (V[1, row, lane] - peak[1, lane]) + rounded_off(
                V[0, row, lane], -peak[0, lane]
            )


@kernel
def _add_exponent(exponents: Floats, group: int, num_groups: int, lane: int, peak: Floats) -> None:
    """Adds a pair to the logarithms of a group."""
    old = exponents[group, lane]
    exponents[group, lane] = old + peak[0, lane]
    exponents[num_groups + group, lane] += peak[1, lane] + rounded_off(old, peak[0, lane])


@kernel
def log_upward(part: Weighted, span: Span, state: State, store: Floats, maximise: bool) -> None:
    """Moves the log interface vectors up through positions p0 .. p1 - 1; see `general.upward`."""
    ops = part.ops
    given, batch, segment = span
    width = batch.lengths.size
    part = with_tables(part, width)
    num_groups = ops.group_start.size - 1
    V = np.empty((2, ops.num_rows, width))
    work = np.empty((3, width))
    numbers = np.empty(width, dtype=np.int64)
    before = np.empty_like(state.exponents)
    careful = needs_care(state.scale, given.large)
    for position in range(segment.p0, segment.p1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            break
        if store.size:
            store_state(state, store, position - segment.p0, n)
        load_log_inputs(ops, state.v, V, n)
        number_slices(batch, position, segment.p0, numbers, n)
        read_tables(part, batch, position, n)
        load_log_coefficients(ops, given, numbers, V, n)
        log_compute(part, V, work, n, maximise, position == 0)
        add_scale(state.scale, given.scale, careful, numbers, n)
        before[:, :n] = state.exponents[:, :n]
        for group in range(num_groups):
            first, last = ops.group_start[group], ops.group_start[group + 1]
            _largest(V, ops.output_row, first, last, work, n)
            for i in range(first, last):
                _divide(V, ops.output_row[i], work, state.v, i, n)
            for lane in range(n):
                state.exponents[group, lane] = 0.0
                state.exponents[num_groups + group, lane] = 0.0
                _add_exponent(state.exponents, group, num_groups, lane, work)
            for place in range(ops.source_start[group], ops.source_start[group + 1]):
                source = ops.source_group[place]
                for lane in range(n):
                    work[0, lane] = before[source, lane]
                    work[1, lane] = before[num_groups + source, lane]
                    _add_exponent(state.exponents, group, num_groups, lane, work)


@kernel
def _log_add(D: Floats, row: int, lane: int, high: float, low: float) -> None:
    """D[row, lane] = log(exp(D[row, lane]) + exp(high + low))."""
    if high == -np.inf:
        return
    gap = (high - D[0, row, lane]) + (low - D[1, row, lane])
    if gap > 0.0:
        D[0, row, lane] = high
        D[1, row, lane] = low + np.log1p(np.exp(-gap))
    else:
        D[1, row, lane] += np.log1p(np.exp(gap))


@kernel
def _log_unmultiply(children: Ints, row: int, V: Floats, D: Floats, before: Floats, n: int) -> None:
    count = children.size
    for lane in range(n):
        before[0, 0, lane] = D[0, row, lane]
        before[1, 0, lane] = D[1, row, lane]
    for place in range(1, count):
        child = children[place - 1]
        for lane in range(n):
            a, b = before[0, place - 1, lane], V[0, child, lane]
            before[0, place, lane] = a + b
            before[1, place, lane] = (
                before[1, place - 1, lane] + V[1, child, lane] + rounded_off(a, b)
            )
    for lane in range(n):
        before[0, count, lane] = 0.0
        before[1, count, lane] = 0.0
    for place in range(count - 1, -1, -1):
        child = children[place]
        for lane in range(n):
            a, b = before[0, place, lane], before[0, count, lane]
            low = before[1, place, lane] + before[1, count, lane] + rounded_off(a, b)
            _log_add(D, child, lane, a + b, low)
            before[0, count, lane] = b + V[0, child, lane]
            before[1, count, lane] += V[1, child, lane] + rounded_off(b, V[0, child, lane])


@kernel
def _log_share(weight: float, row: int, child: int, D: Floats, begin: int, end: int) -> None:
    """Adds a sum's weighted derivative to that of a child."""
    if weight > -np.inf:
        for lane in range(begin, end):
            own = D[0, row, lane]
            _log_add(D, child, lane, own + weight, D[1, row, lane] + rounded_off(own, weight))


@kernel
def log_uncompute(part: Weighted, V: Floats, D: Floats, before: Floats, n: int) -> None:
    """D[r] = log (d root / d node r) for every row, given D at the outputs."""
    ops = part.ops
    for op in range(ops.op_row.size - 1, -1, -1):
        low, high = ops.op_start[op], ops.op_start[op + 1]
        row = ops.op_row[op]
        if ops.op_kind[op] == 0:
            _log_unmultiply(ops.op_child[low:high], row, V, D, before, n)
        else:
            begin = 0
            while begin < n:
                end, start = run_end(part, op, begin, n), table_start(part, op, begin)
                for place in range(high - low):
                    _log_share(
                        part.op[start + place], row, ops.op_child[low + place], D, begin, end
                    )
                begin = end
    for number in range(ops.mix_row.size):
        group = ops.mix_group[number]
        first = ops.group_start[group]
        width = ops.group_start[group + 1] - first
        for i in range(ops.mix_size[number]):
            for j in range(width):
                weight = part.mix[ops.mix_start[number] + i * width + j]
                _log_share(weight, ops.mix_row[number] + i, first + j, D, 0, n)


@kernel
def _add_flow(
    flows: Floats,
    place: int,
    D: Floats,
    row: int,
    V: Floats,
    child: int,
    weight: Floats,
    begin: int,
    end: int,
) -> None:
    """flows[place] += sum_l weight[l] exp(D_parent + v_child) over the lanes l.

    That is the expected use of an edge, still to be multiplied by its weight; D is relative to the
    root.
    """
    for lane in range(begin, end):
        if D[0, row, lane] > -np.inf and V[0, child, lane] > -np.inf:
            term = (D[0, row, lane] + V[0, child, lane]) + (
                (D[1, row, lane] + V[1, child, lane])
                + rounded_off(D[0, row, lane], V[0, child, lane])
            )
            flows[place] += weight[lane] * np.exp(term)


@kernel
def _add_edge_flows(
    part: Weighted, V: Floats, D: Floats, weight: Floats, flows: EdgeFlows, n: int, at_bottom: bool
) -> None:
    ops = part.ops
    if flows.mix.size and not at_bottom:
        for number in range(ops.mix_row.size):
            group = ops.mix_group[number]
            first = ops.group_start[group]
            width = ops.group_start[group + 1] - first
            for i in range(ops.mix_size[number]):
                row = ops.mix_row[number] + i
                for j in range(width):
                    place = ops.mix_start[number] + i * width + j
                    _add_flow(flows.mix, place, D, row, V, first + j, weight, 0, n)
    if flows.op.size:
        for op in range(ops.op_row.size):
            if ops.op_kind[op] == 1 and not (at_bottom and ops.op_bare[op]):
                low, high = ops.op_start[op], ops.op_start[op + 1]
                row, begin = ops.op_row[op], 0
                while begin < n:
                    end, start = run_end(part, op, begin, n), table_start(part, op, begin)
                    for place in range(high - low):
                        child = ops.op_child[low + place]
                        _add_flow(flows.op, start + place, D, row, V, child, weight, begin, end)
                    begin = end


@kernel
def _seed_outputs(
    ops: Operations,
    group: int,
    V: Floats,
    d: Floats,
    D: Floats,
    flow: Floats,
    work: Floats,
    out: Flows,
    at: int,
    n: int,
    normalise: bool,
) -> None:
    """Mass and posteriors of a group's outputs, and D at their rows.

    `flow` is room for the outputs' values times derivatives. With `normalise` D is relative to the
    root, whatever the scale of the derivatives d.
    """
    first, last, inputs = ops.group_start[group], ops.group_start[group + 1], ops.num_inputs
    for i in range(first, last):
        row = ops.output_row[i]
        for lane in range(n):
            flow[0, i, lane] = V[0, row, lane] + d[i, lane]
            flow[1, i, lane] = (V[1, row, lane] + d[inputs + i, lane]) + rounded_off(
                V[0, row, lane], d[i, lane]
            )
    _largest(flow, np.arange(inputs), first, last, work, n)
    for lane in range(n):
        total = 0.0
        for i in range(first, last):
            if flow[0, i, lane] > -np.inf:
                flow[0, i, lane] = (flow[0, i, lane] - work[0, lane]) + (
                    flow[1, i, lane] - work[1, lane]
                )
                total += np.exp(flow[0, i, lane])
        # The mass is a pair: the largest flow and what the sum adds to it.
        high, low = work[0, lane], work[1, lane] + np.log(total)
        out.mass[at, group, lane] = high + low
        for i in range(first, last):
            if out.derivative.size:
                out.derivative[at, i, lane] = d[i, lane]
                out.derivative[at, inputs + i, lane] = d[inputs + i, lane]
            if out.interface.size:
                out.interface[at, i, lane] = np.exp(flow[0, i, lane]) / total
            if not normalise:
                _log_add(D, ops.output_row[i], lane, d[i, lane], d[inputs + i, lane])
            elif total > 0.0 and d[i, lane] > -np.inf:
                _log_add(
                    D,
                    ops.output_row[i],
                    lane,
                    d[i, lane] - high,
                    (d[inputs + i, lane] - low) + rounded_off(d[i, lane], -high),
                )


@kernel
def _write_seeds(ops: Operations, V: Floats, D: Floats, out: Flows, at: int, n: int) -> None:
    for load in range(ops.num_loads):
        row = ops.num_inputs + load
        for lane in range(n):
            high, low = D[0, row, lane], D[1, row, lane]
            value = V[0, row, lane]
            if value > -np.inf and high > -np.inf:
                low += V[1, row, lane] + rounded_off(high, value)
                high += value
            out.seed[at, load, lane] = high + low


@kernel
def _hand_down(ops: Operations, D: Floats, state: State, peak: Floats, n: int) -> None:
    """state.v = derivatives at the inputs, divided by the largest of each group."""
    num_groups = ops.group_start.size - 1
    before = state.exponents[:, :n].copy()
    for i in range(ops.num_inputs):
        for lane in range(n):
            state.v[i, lane] = -np.inf
            state.v[ops.num_inputs + i, lane] = 0.0
    inputs = np.arange(ops.num_inputs)
    for group in range(num_groups):
        for place in range(ops.source_start[group], ops.source_start[group + 1]):
            source = ops.source_group[place]
            first, last = ops.group_start[source], ops.group_start[source + 1]
            _largest(D, inputs, first, last, peak, n)
            for i in range(first, last):
                _divide(D, i, peak, state.v, i, n)
            for lane in range(n):
                state.exponents[source, lane] = before[group, lane]
                state.exponents[num_groups + source, lane] = before[num_groups + group, lane]
                _add_exponent(state.exponents, source, num_groups, lane, peak)


@kernel
def log_downward(
    part: Weighted,
    span: Span,
    state: State,
    store: Floats,
    widest: int,
    weight: Floats,
    out: Flows,
    flows: EdgeFlows,
) -> None:
    """Moves log derivatives down through positions p1 - 1 .. p0; see `general.downward`.

    `out.mass` and `out.seed` are logarithms; a seed does not include the lane's weight.
    """
    ops = part.ops
    given, batch, segment = span
    width = batch.lengths.size
    part = with_tables(part, width)
    V = np.empty((2, ops.num_rows, width))
    D = np.empty((2, ops.num_rows, width))
    before = np.empty((2, widest + 1, width))
    flow = np.empty((2, ops.num_inputs, width))
    work = np.empty((3, width))
    numbers = np.empty(width, dtype=np.int64)
    careful = needs_care(state.scale, given.large)
    normalise = out.seed.size > 0 or flows.mix.size > 0 or flows.op.size > 0
    for position in range(segment.p1 - 1, segment.p0 - 1, -1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            continue
        at = position - segment.p0
        load_log_inputs(ops, store[at], V, n)
        number_slices(batch, position, segment.p0, numbers, n)
        read_tables(part, batch, position, n)
        load_log_coefficients(ops, given, numbers, V, n)
        log_compute(part, V, work, n, False, False)
        if out.exponents.size:
            out.exponents[at, :, :n] = state.exponents[:, :n]
            out.scale[at, :, :n] = state.scale[:, :n]
        D[0, :, :n] = -np.inf
        D[1, :, :n] = 0.0
        for group in range(ops.group_start.size - 1):
            _seed_outputs(ops, group, V, state.v, D, flow, work, out, at, n, normalise)
        log_uncompute(part, V, D, before, n)
        if out.seed.size:
            _write_seeds(ops, V, D, out, at, n)
        if flows.op.size or flows.mix.size:
            _add_edge_flows(part, V, D, weight, flows, n, position == 0)
        add_scale(state.scale, given.scale, careful, numbers, n)
        _hand_down(ops, D, state, work, n)


@kernel
def log_slice_flows(
    part: Weighted,
    slices: Slices,
    seeds: Floats,
    widest: int,
    weight: Floats,
    leaf: LeafFlows,
    flows: EdgeFlows,
) -> None:
    """Carries log seeds (coefficients, slices) down to the leaves; `leave_out` is a logarithm.

    With room for `leave_out` posteriors are those given all other entries.
    """
    ops = part.ops
    part = with_tables(part, LANES)
    V = np.zeros((2, ops.num_rows, LANES))
    D = np.empty((2, ops.num_rows, LANES))
    before = np.empty((2, widest + 1, LANES))
    work = np.empty((3, LANES))
    left = np.empty((2, leaf.leave_out.shape[0], LANES))
    for first in range(0, slices.rows.size, LANES):
        n = min(LANES, slices.rows.size - first)
        load_leaves(ops, slices, first, V[0], n, 0.0)
        read_slice_tables(part, slices, first, n)
        log_compute(part, V, work, n, False, False)
        D[0, :, :n] = -np.inf
        D[1, :, :n] = 0.0
        for c in range(ops.output_row.size):
            row = ops.output_row[c]
            for lane in range(n):
                seed = seeds[c, first + lane]
                if seed == -np.inf:
                    continue
                if V[0, row, lane] > -np.inf:
                    _log_add(D, row, lane, -V[0, row, lane], seed - V[1, row, lane])
                else:
                    _log_add(D, row, lane, seed, 0.0)
        log_uncompute(part, V, D, before, n)
        if flows.op.size:
            _add_edge_flows(part, V, D, weight[first:], flows, n, False)
        left[0] = -np.inf
        left[1] = 0.0
        for load in range(ops.num_loads):
            variable = slices.tables.variable[load]
            for lane in range(n):
                high, low = D[0, load, lane], D[1, load, lane]
                posterior = 0.0
                if high > -np.inf and V[0, load, lane] > -np.inf:
                    posterior = np.exp(
                        (high + V[0, load, lane]) + (low + rounded_off(high, V[0, load, lane]))
                    )
                leaf.posterior[load, first + lane] = posterior
                if leaf.leave_out.shape[0]:
                    _log_add(left, variable, lane, high, low)
        for variable in range(leaf.leave_out.shape[0]):
            for lane in range(n):
                leaf.leave_out[variable, first + lane] = (
                    left[0, variable, lane] + (left[1, variable, lane])
                )
        for load in range(ops.num_loads if leaf.leave_out.shape[0] else 0):
            variable = slices.tables.variable[load]
            for lane in range(n):
                high, low = D[0, load, lane], D[1, load, lane]
                rest = left[0, variable, lane]
                posterior = 0.0
                if high > -np.inf and rest > -np.inf:
                    posterior = np.exp((high - rest) + (low - left[1, variable, lane]))
                leaf.posterior[load, first + lane] = posterior


@kernel
def log_top_upward(part: Weighted, v: Floats, V: Floats, maximise: bool) -> None:
    """All rows of the top network for every lane, from the log interface vectors v."""
    ops = part.ops
    n = v.shape[1]
    load_log_inputs(ops, v, V, n)
    log_compute(part, V, np.empty((3, n)), n, maximise, False)


@kernel
def log_top_downward(part: Weighted, V: Floats, root_row: int, widest: int, D: Floats) -> None:
    """D = log derivatives of the root at every row, given V of `log_top_upward`."""
    n = D.shape[2]
    D[0] = -np.inf
    D[1] = 0.0
    D[0, root_row] = 0.0
    log_uncompute(part, V, D, np.empty((2, widest + 1, n)), n)
