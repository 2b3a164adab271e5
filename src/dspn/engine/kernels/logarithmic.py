"""The passes in log space: slower, and right where linear space loses small values.

The same layout of lanes and rows; V and D hold logarithms, tables hold undivided log densities.
With `maximise` a sum takes the largest of its weighted children instead of adding them: the max
pass.
"""

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._kernel_cache import njit
from dspn.engine.kernels._options import OPTIONS
from dspn.engine.kernels.slices import LANES, load_leaves
from dspn.engine.kernels.upward import active_lanes, load_coefficients, number_slices
from dspn.engine.records import (
    Batch,
    Coefficients,
    EdgeFlows,
    Flows,
    LeafFlows,
    LeafTables,
    Operations,
    State,
)


@njit(**OPTIONS)
def _log_sum(
    log_weight: Floats,
    start: int,
    rows: Ints,
    first: int,
    count: int,
    V: Floats,
    row: int,
    work: Floats,
    n: int,
    maximise: bool,
) -> None:
    """V[row] = log sum_j exp(log w_j + V[c_j]), or with `maximise` the largest term.

    Child c_j is rows[j], or first + j where `rows` is empty.
    """
    for lane in range(n):
        work[0, lane] = -np.inf
    for j in range(count):
        child = rows[j] if rows.size else first + j
        weight = log_weight[start + j]
        if weight > -np.inf:
            for lane in range(n):
                work[0, lane] = max(work[0, lane], weight + V[child, lane])
    if maximise:
        for lane in range(n):
            V[row, lane] = work[0, lane]
        return
    for lane in range(n):
        work[1, lane] = 0.0
        if work[0, lane] == -np.inf:
            work[0, lane] = 0.0
    for j in range(count):
        child = rows[j] if rows.size else first + j
        weight = log_weight[start + j]
        if weight > -np.inf:
            for lane in range(n):
                work[1, lane] += np.exp(weight + V[child, lane] - work[0, lane])
    for lane in range(n):
        V[row, lane] = work[0, lane] + np.log(work[1, lane])


@njit(**OPTIONS)
def log_compute(
    ops: Operations,
    op_weight: Floats,
    mix_weight: Floats,
    V: Floats,
    work: Floats,
    n: int,
    maximise: bool,
    at_bottom: bool,
) -> None:
    """Fills the computed rows of a part from its inputs and loads.

    The bottom network has no sums without a leaf below. There is nothing to choose at them, so they
    are added up even with `maximise`, and come to 1.
    """
    none = ops.op_child[:0]
    for number in range(ops.mix_row.size):
        group = ops.mix_group[number]
        first = ops.group_start[group]
        width = ops.group_start[group + 1] - first
        for i in range(ops.mix_size[number]):
            start, row = ops.mix_start[number] + i * width, ops.mix_row[number] + i
            best = maximise and not at_bottom
            _log_sum(mix_weight, start, none, first, width, V, row, work, n, best)
    for op in range(ops.op_row.size):
        low, high = ops.op_start[op], ops.op_start[op + 1]
        children, row = ops.op_child[low:high], ops.op_row[op]
        if ops.op_kind[op] == 0:
            for lane in range(n):
                V[row, lane] = 0.0
            for child in children:
                for lane in range(n):
                    V[row, lane] += V[child, lane]
        else:
            best = maximise and not (at_bottom and ops.op_bare[op])
            _log_sum(op_weight, low, children, 0, children.size, V, row, work, n, best)


@njit(**OPTIONS)
def log_slice_values(
    ops: Operations,
    op_weight: Floats,
    tables: LeafTables,
    codes: Ints,
    rows: Ints,
    out: Coefficients,
    maximise: bool,
) -> None:
    """Log coefficients of the slices `rows` of the data, written to `out` in their order."""
    V = np.empty((ops.num_rows, LANES))
    work = np.empty((2, LANES))
    for first in range(0, rows.size, LANES):
        n = min(LANES, rows.size - first)
        load_leaves(ops, tables, codes, rows, first, V, n, 0.0)
        log_compute(ops, op_weight, op_weight, V, work, n, maximise, False)
        for c in range(ops.output_row.size):
            row, start = ops.output_row[c], c * out.row_step + first * out.slice_step
            for lane in range(n):
                out.values[start + lane * out.slice_step] = V[row, lane]


@njit(**OPTIONS)
def log_upward(
    ops: Operations,
    op_weight: Floats,
    mix_weight: Floats,
    given: Coefficients,
    batch: Batch,
    p0: int,
    p1: int,
    state: State,
    store: Floats,
    maximise: bool,
) -> None:
    """Moves the log interface vectors up through positions p0 .. p1 - 1; see `upward.upward`."""
    width = batch.lengths.size
    V = np.empty((ops.num_rows, width))
    work = np.empty((2, width))
    numbers = np.empty(width, dtype=np.int64)
    for position in range(p0, p1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            break
        for i in range(ops.num_inputs):
            for lane in range(n):
                V[i, lane] = state.v[i, lane]
        if store.size:
            for i in range(ops.num_inputs):
                for lane in range(n):
                    store[position - p0, i, lane] = state.v[i, lane]
        number_slices(batch, position, p0, numbers, n)
        load_coefficients(ops, given, numbers, V, n)
        log_compute(ops, op_weight, mix_weight, V, work, n, maximise, position == 0)
        for i in range(ops.num_inputs):
            for lane in range(n):
                state.v[i, lane] = V[ops.output_row[i], lane]


@njit(**OPTIONS)
def _log_add(D: Floats, row: int, lane: int, term: float) -> None:
    """D[row, lane] = log(exp(D[row, lane]) + exp(term))."""
    old = D[row, lane]
    high, low = max(old, term), min(old, term)
    if low == -np.inf:
        D[row, lane] = high
    else:
        D[row, lane] = high + np.log1p(np.exp(low - high))


@njit(**OPTIONS)
def _log_unmultiply(children: Ints, row: int, V: Floats, D: Floats, before: Floats, n: int) -> None:
    count = children.size
    for lane in range(n):
        before[0, lane] = D[row, lane]
    for place in range(1, count):
        child = children[place - 1]
        for lane in range(n):
            before[place, lane] = before[place - 1, lane] + V[child, lane]
    for lane in range(n):
        before[count, lane] = 0.0
    for place in range(count - 1, -1, -1):
        child = children[place]
        for lane in range(n):
            _log_add(D, child, lane, before[place, lane] + before[count, lane])
            before[count, lane] += V[child, lane]


@njit(**OPTIONS)
def log_uncompute(
    ops: Operations,
    op_weight: Floats,
    mix_weight: Floats,
    V: Floats,
    D: Floats,
    before: Floats,
    n: int,
) -> None:
    """D[r] = log (d root / d node r) for every row, given D at the outputs."""
    for op in range(ops.op_row.size - 1, -1, -1):
        low, high = ops.op_start[op], ops.op_start[op + 1]
        row = ops.op_row[op]
        if ops.op_kind[op] == 0:
            _log_unmultiply(ops.op_child[low:high], row, V, D, before, n)
        else:
            for place in range(low, high):
                weight = op_weight[place]
                if weight > -np.inf:
                    for lane in range(n):
                        _log_add(D, ops.op_child[place], lane, weight + D[row, lane])
    for number in range(ops.mix_row.size):
        group = ops.mix_group[number]
        first = ops.group_start[group]
        width = ops.group_start[group + 1] - first
        for i in range(ops.mix_size[number]):
            for j in range(width):
                weight = mix_weight[ops.mix_start[number] + i * width + j]
                if weight > -np.inf:
                    for lane in range(n):
                        _log_add(D, first + j, lane, weight + D[ops.mix_row[number] + i, lane])


@njit(**OPTIONS)
def _log_weigh(ops: Operations, V: Floats, d: Floats, mass: Floats, n: int) -> None:
    """The log mass of each group: log sum_i exp(v_i + d_i) over its outputs."""
    for group in range(ops.group_start.size - 1):
        first, last = ops.group_start[group], ops.group_start[group + 1]
        for lane in range(n):
            peak = -np.inf
            for i in range(first, last):
                peak = max(peak, V[ops.output_row[i], lane] + d[i, lane])
            mass[group, lane] = peak
            if peak > -np.inf:
                total = 0.0
                for i in range(first, last):
                    total += np.exp(V[ops.output_row[i], lane] + d[i, lane] - peak)
                mass[group, lane] = peak + np.log(total)


@njit(**OPTIONS)
def _write(
    ops: Operations, V: Floats, d: Floats, mass: Floats, out: Flows, at: int, n: int
) -> None:
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
                    flow = V[row, lane] + d[i, lane] - mass[group, lane]
                    out.interface[at, i, lane] = np.exp(flow)


@njit(**OPTIONS)
def _add_flow(
    flows: Floats,
    place: int,
    D: Floats,
    row: int,
    V: Floats,
    child: int,
    root: Floats,
    weight: Floats,
    n: int,
) -> None:
    """flows[place] += sum_l weight[l] exp(D_parent + v_child - root) over the lanes l.

    That is the expected use of an edge, still to be multiplied by its weight.
    """
    for lane in range(n):
        term = D[row, lane] + V[child, lane]
        if term > -np.inf:
            flows[place] += weight[lane] * np.exp(term - root[lane])


@njit(**OPTIONS)
def _add_edge_flows(
    ops: Operations,
    V: Floats,
    D: Floats,
    root: Floats,
    weight: Floats,
    flows: EdgeFlows,
    n: int,
    at_bottom: bool,
) -> None:
    if flows.mix.size and not at_bottom:
        for number in range(ops.mix_row.size):
            group = ops.mix_group[number]
            first = ops.group_start[group]
            width = ops.group_start[group + 1] - first
            for i in range(ops.mix_size[number]):
                row = ops.mix_row[number] + i
                for j in range(width):
                    place = ops.mix_start[number] + i * width + j
                    _add_flow(flows.mix, place, D, row, V, first + j, root, weight, n)
    if flows.op.size:
        for op in range(ops.op_row.size):
            if ops.op_kind[op] == 1 and not (at_bottom and ops.op_bare[op]):
                for place in range(ops.op_start[op], ops.op_start[op + 1]):
                    row, child = ops.op_row[op], ops.op_child[place]
                    _add_flow(flows.op, place, D, row, V, child, root, weight, n)


@njit(**OPTIONS)
def log_downward(
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
) -> None:
    """Moves log derivatives down through positions p1 - 1 .. p0; see `downward.downward`.

    `out.mass` and `out.seed` are logarithms; a seed does not include the lane's weight.
    """
    width = batch.lengths.size
    num_groups = ops.group_start.size - 1
    V = np.empty((ops.num_rows, width))
    D = np.empty((ops.num_rows, width))
    before = np.empty((widest + 1, width))
    work = np.empty((2, width))
    numbers = np.empty(width, dtype=np.int64)
    mass = np.empty((num_groups, width))
    root = np.empty(width)
    for position in range(p1 - 1, p0 - 1, -1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            continue
        at = position - p0
        for i in range(ops.num_inputs):
            for lane in range(n):
                V[i, lane] = store[at, i, lane]
        number_slices(batch, position, p0, numbers, n)
        load_coefficients(ops, given, numbers, V, n)
        log_compute(ops, op_weight, mix_weight, V, work, n, False, False)
        _log_weigh(ops, V, state.v, mass, n)
        _write(ops, V, state.v, mass, out, at, n)
        D[:, :n] = -np.inf
        for i in range(ops.num_inputs):
            for lane in range(n):
                _log_add(D, ops.output_row[i], lane, state.v[i, lane])
        log_uncompute(ops, op_weight, mix_weight, V, D, before, n)
        if out.seed.size:
            for load in range(ops.num_loads):
                for lane in range(n):
                    out.seed[at, load, lane] = (
                        D[ops.num_inputs + load, lane] - mass[ops.load_group[load], lane]
                    )
        if flows.op.size or flows.mix.size:
            for lane in range(n):
                root[lane] = mass[:, lane].max()
            _add_edge_flows(ops, V, D, root, weight, flows, n, position == 0)
        for i in range(ops.num_inputs):
            for lane in range(n):
                state.v[i, lane] = D[i, lane]


@njit(**OPTIONS)
def log_slice_flows(
    ops: Operations,
    op_weight: Floats,
    tables: LeafTables,
    codes: Ints,
    rows: Ints,
    seeds: Floats,
    widest: int,
    weight: Floats,
    leaf: LeafFlows,
    flows: EdgeFlows,
) -> None:
    """Carries log seeds (coefficients, slices) down to the leaves; `leave_out` is a logarithm."""
    V = np.empty((ops.num_rows, LANES))
    D = np.empty((ops.num_rows, LANES))
    before = np.empty((widest + 1, LANES))
    work = np.empty((2, LANES))
    none = np.zeros(LANES)
    for first in range(0, rows.size, LANES):
        n = min(LANES, rows.size - first)
        load_leaves(ops, tables, codes, rows, first, V, n, 0.0)
        log_compute(ops, op_weight, op_weight, V, work, n, False, False)
        D[:, :n] = -np.inf
        for c in range(ops.output_row.size):
            for lane in range(n):
                _log_add(D, ops.output_row[c], lane, seeds[c, first + lane])
        log_uncompute(ops, op_weight, op_weight, V, D, before, n)
        if flows.op.size:
            _add_edge_flows(ops, V, D, none, weight[first:], flows, n, False)
        for variable in range(leaf.leave_out.shape[0]):
            for lane in range(n):
                leaf.leave_out[variable, first + lane] = -np.inf
        for load in range(ops.num_loads):
            variable = tables.variable[load]
            for lane in range(n):
                leaf.posterior[load, first + lane] = np.exp(V[load, lane] + D[load, lane])
            if leaf.leave_out.shape[0]:
                for lane in range(n):
                    _log_add(leaf.leave_out, variable, first + lane, D[load, lane])


@njit(**OPTIONS)
def log_top_upward(
    ops: Operations,
    op_weight: Floats,
    v: Floats,
    V: Floats,
    root_row: int,
    value: Floats,
    maximise: bool,
) -> None:
    """Log root value of the top network for every lane, from the log interface vectors v."""
    n = v.shape[1]
    work = np.empty((2, n))
    for i in range(ops.num_inputs):
        for lane in range(n):
            V[i, lane] = v[i, lane]
    log_compute(ops, op_weight, op_weight, V, work, n, maximise, False)
    for lane in range(n):
        value[lane] = V[root_row, lane]


@njit(**OPTIONS)
def log_top_downward(
    ops: Operations, op_weight: Floats, V: Floats, root_row: int, widest: int, D: Floats
) -> None:
    """D = log derivatives of the root at every row, given V of `log_top_upward`.

    D comes filled with -inf.
    """
    n = D.shape[1]
    before = np.empty((widest + 1, n))
    for lane in range(n):
        D[root_row, lane] = 0.0
    log_uncompute(ops, op_weight, op_weight, V, D, before, n)
