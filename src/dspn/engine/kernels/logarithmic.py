"""The passes of `linear` in log space: slower, and right where linear space loses small values.

The same layout of lanes and rows; V holds logarithms, tables hold unscaled log densities. With `maximise` a sum
takes the largest of its weighted children instead of adding them: the max pass.
"""

import numpy as np
from numba import njit

from dspn.engine.kernels._options import OPTIONS
from dspn.engine.kernels.linear import active_lanes, gather_codes, load_rows


@njit(**OPTIONS)
def _log_sum(log_weight, start, rows, first, count, V, row, peak, total, n, maximise):
    """V[row] = log sum_j exp(log w_j + V[c_j]), or the largest term; c_j = rows[j], or first + j."""
    for lane in range(n):
        peak[lane] = -np.inf
    for j in range(count):
        child = rows[j] if rows.size else first + j
        weight = log_weight[start + j]
        if weight > -np.inf:
            for lane in range(n):
                peak[lane] = max(peak[lane], weight + V[child, lane])
    if maximise:
        for lane in range(n):
            V[row, lane] = peak[lane]
        return
    for lane in range(n):
        total[lane] = 0.0
        if peak[lane] == -np.inf:
            peak[lane] = 0.0
    for j in range(count):
        child = rows[j] if rows.size else first + j
        weight = log_weight[start + j]
        if weight > -np.inf:
            for lane in range(n):
                total[lane] += np.exp(weight + V[child, lane] - peak[lane])
    for lane in range(n):
        V[row, lane] = peak[lane] + np.log(total[lane])


@njit(**OPTIONS)
def log_evaluate(ops, op_weight, mix_weight, V, peak, total, n, maximise):
    """Fills the computed rows from the inputs and the loaded rows."""
    for mix in range(ops.mix_row.size):
        group = ops.mix_group[mix]
        first = ops.group_start[group]
        width = ops.group_start[group + 1] - first
        none = ops.op_child[:0]
        for i in range(ops.mix_size[mix]):
            start = ops.mix_start[mix] + i * width
            row = ops.mix_row[mix] + i
            _log_sum(mix_weight, start, none, first, width, V, row, peak, total, n, maximise)
    for op in range(ops.op_row.size):
        low, high = ops.op_start[op], ops.op_start[op + 1]
        children = ops.op_child[low:high]
        row = ops.op_row[op]
        if ops.op_kind[op] == 0:
            for lane in range(n):
                V[row, lane] = 0.0
            for child in children:
                for lane in range(n):
                    V[row, lane] += V[child, lane]
        else:
            _log_sum(op_weight, low, children, 0, children.size, V, row, peak, total, n, maximise)


@njit(**OPTIONS)
def _hand_up(ops, V, v, dead, position, n):
    for group in range(ops.group_start.size - 1):
        first, last = ops.group_start[group], ops.group_start[group + 1]
        for lane in range(n):
            largest = -np.inf
            for i in range(first, last):
                largest = max(largest, V[ops.output_row[i], lane])
            if largest == -np.inf and dead[lane] < 0:
                dead[lane] = position
    for i in range(ops.num_inputs):
        for lane in range(n):
            v[i, lane] = V[ops.output_row[i], lane]


@njit(**OPTIONS)
def log_upward(ops, op_weight, mix_weight, tables, batch, p0, p1, state, V, store, maximise):
    """Positions p0 .. p1 - 1 from the bottom up; see `linear.upward`."""
    width = batch.lengths.size
    code = np.empty((tables.scale_start.size, width), dtype=np.int64)
    peak, total = np.empty(width), np.empty(width)
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
        gather_codes(batch.codes, batch.base, batch.stride, position, code, n)
        load_rows(ops, tables, code, (position - p0) * width, V, n, 0.0)
        log_evaluate(ops, op_weight, mix_weight, V, peak, total, n, maximise)
        _hand_up(ops, V, state.v, state.dead, position, n)


@njit(**OPTIONS)
def _log_add(D, row, lane, term):
    """D[row, lane] = log(exp(D[row, lane]) + exp(term))."""
    old = D[row, lane]
    high, low = max(old, term), min(old, term)
    if low == -np.inf:
        D[row, lane] = high
    else:
        D[row, lane] = high + np.log1p(np.exp(low - high))


@njit(**OPTIONS)
def _log_unmultiply(children, row, V, D, before, n):
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
def log_differentiate(ops, op_weight, mix_weight, V, D, before, n):
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
    for mix in range(ops.mix_row.size):
        group = ops.mix_group[mix]
        first = ops.group_start[group]
        width = ops.group_start[group + 1] - first
        for i in range(ops.mix_size[mix]):
            for j in range(width):
                weight = mix_weight[ops.mix_start[mix] + i * width + j]
                if weight > -np.inf:
                    for lane in range(n):
                        _log_add(D, first + j, lane, weight + D[ops.mix_row[mix] + i, lane])


@njit(**OPTIONS)
def _log_mass(ops, V, d, mass, n):
    """Log sum_i exp(v_i + d_i) over the outputs of each group."""
    for group in range(ops.group_start.size - 1):
        first, last = ops.group_start[group], ops.group_start[group + 1]
        for lane in range(n):
            peak = -np.inf
            for i in range(first, last):
                peak = max(peak, V[ops.output_row[i], lane] + d[i, lane])
            if peak == -np.inf:
                mass[group, lane] = peak
                continue
            total = 0.0
            for i in range(first, last):
                total += np.exp(V[ops.output_row[i], lane] + d[i, lane] - peak)
            mass[group, lane] = peak + np.log(total)


@njit(**OPTIONS)
def _write_log_flows(ops, tables, V, D, mass, out, at, n):
    """Posterior of each loaded row, and sum of derivatives over mass for each factor, at one position."""
    for factor in range(out.leave_out.shape[1]):
        for lane in range(n):
            out.leave_out[at, factor, lane] = -np.inf
    for load in range(ops.num_loads):
        row = ops.num_inputs + load
        group = ops.row_group[row]
        factor = tables.load_variable[load]
        if group < 0:
            continue
        for lane in range(n):
            out.flow[at, load, lane] = np.exp(V[row, lane] + D[row, lane] - mass[group, lane])
            _log_add(out.leave_out[at], factor, lane, D[row, lane] - mass[group, lane])


@njit(**OPTIONS)
def log_downward(
    ops, op_weight, mix_weight, tables, batch, p0, p1, state, store, V, D, before, out
):
    """Positions p1 - 1 .. p0 from the top down; see `linear.downward`. `out.mass` and `out.leave_out` are logs."""
    width = batch.lengths.size
    num_groups = ops.group_start.size - 1
    code = np.empty((tables.scale_start.size, width), dtype=np.int64)
    peak, total = np.empty(width), np.empty(width)
    mass = np.empty((num_groups, width))
    for position in range(p1 - 1, p0 - 1, -1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            continue
        at = position - p0
        for i in range(ops.num_inputs):
            for lane in range(n):
                V[i, lane] = store[at, i, lane]
        gather_codes(batch.codes, batch.base, batch.stride, position, code, n)
        load_rows(ops, tables, code, at * width, V, n, 0.0)
        log_evaluate(ops, op_weight, mix_weight, V, peak, total, n, False)
        D[:, :n] = -np.inf
        _log_mass(ops, V, state.v, mass, n)
        for group in range(num_groups):
            for i in range(ops.group_start[group], ops.group_start[group + 1]):
                for lane in range(n):
                    _log_add(D, ops.output_row[i], lane, state.v[i, lane])
            for lane in range(n):
                out.mass[at, group, lane] = mass[group, lane]
        if out.derivative.size:
            for i in range(ops.num_inputs):
                for lane in range(n):
                    out.derivative[at, i, lane] = state.v[i, lane]
        if out.interface.size:
            for group in range(num_groups):
                for i in range(ops.group_start[group], ops.group_start[group + 1]):
                    row = ops.output_row[i]
                    for lane in range(n):
                        flow = V[row, lane] + state.v[i, lane] - mass[group, lane]
                        out.interface[at, i, lane] = np.exp(flow)
        log_differentiate(ops, op_weight, mix_weight, V, D, before, n)
        if out.flow.size:
            _write_log_flows(ops, tables, V, D, mass, out, at, n)
        for i in range(ops.num_inputs):
            for lane in range(n):
                state.v[i, lane] = D[i, lane]


@njit(**OPTIONS)
def log_top_upward(ops, op_weight, mix_weight, v, V, root_row, value, maximise):
    """Log root value of the top network for every lane, from the log interface vectors v."""
    n = v.shape[1]
    peak, total = np.empty(n), np.empty(n)
    for i in range(ops.num_inputs):
        for lane in range(n):
            V[i, lane] = v[i, lane]
    log_evaluate(ops, op_weight, mix_weight, V, peak, total, n, maximise)
    for lane in range(n):
        value[lane] = V[root_row, lane]


@njit(**OPTIONS)
def log_top_downward(ops, op_weight, mix_weight, V, root_row, D, before, d):
    """Log derivatives of the root at the interface nodes, given V of `log_top_upward`."""
    n = d.shape[1]
    D[:, :n] = -np.inf
    for lane in range(n):
        D[root_row, lane] = 0.0
    log_differentiate(ops, op_weight, mix_weight, V, D, before, n)
    for i in range(ops.num_inputs):
        for lane in range(n):
            d[i, lane] = D[i, lane]
