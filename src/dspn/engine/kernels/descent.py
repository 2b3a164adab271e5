"""Choices from the root down: draws from the posterior over induced trees, or the best induced tree."""

import numpy as np
from numba import njit

from dspn.engine.kernels._options import OPTIONS
from dspn.engine.kernels.linear import active_lanes, evaluate, gather_codes, load_rows
from dspn.engine.kernels.logarithmic import log_evaluate

LINEAR_DRAW = 0
LOG_DRAW = 1
LOG_BEST = 2

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_ONE = np.uint64(0xBF58476D1CE4E5B9)
_MIX_TWO = np.uint64(0x94D049BB133111EB)


@njit(**OPTIONS)
def _uniform(seeds, lane):
    """The lane's next number in [0, 1): splitmix64, so draws do not depend on blocks or threads."""
    seeds[lane] += _GOLDEN
    z = seeds[lane]
    z = (z ^ (z >> np.uint64(30))) * _MIX_ONE
    z = (z ^ (z >> np.uint64(27))) * _MIX_TWO
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(**OPTIONS)
def _choose(weight, start, rows, first, count, V, lane, mode, seeds):
    """Index of the chosen child of a sum; weights are logarithms unless the mode is linear."""
    best, place = -np.inf, 0
    if mode != LINEAR_DRAW:
        for j in range(count):
            child = rows[j] if rows.size else first + j
            term = weight[start + j] + V[child, lane]
            if term > best:
                best, place = term, j
        if mode == LOG_BEST:
            return place
    total = 0.0
    for j in range(count):
        child = rows[j] if rows.size else first + j
        if mode == LINEAR_DRAW:
            total += weight[start + j] * V[child, lane]
        else:
            total += np.exp(weight[start + j] + V[child, lane] - best)
    target = _uniform(seeds, lane) * total
    chosen = 0
    for j in range(count):
        child = rows[j] if rows.size else first + j
        if mode == LINEAR_DRAW:
            term = weight[start + j] * V[child, lane]
        else:
            term = np.exp(weight[start + j] + V[child, lane] - best)
        if term > 0.0:
            chosen = j
            target -= term
            if target < 0.0:
                break
    return chosen


@njit(**OPTIONS)
def _walk(
    ops,
    op_weight,
    mix_weight,
    V,
    lane,
    mode,
    seeds,
    stack,
    depth,
    input_group,
    chosen,
    load_variable,
    loads,
):
    """Follows one induced tree from the rows on the stack down to inputs and loads."""
    while depth > 0:
        depth -= 1
        row = stack[depth]
        if row < ops.num_inputs:
            chosen[input_group[row]] = row
        elif row < ops.num_inputs + ops.num_loads:
            load = row - ops.num_inputs
            loads[load_variable[load]] = load
        elif ops.row_op[row] <= -2:
            mix = -2 - ops.row_op[row]
            first = ops.group_start[ops.mix_group[mix]]
            width = ops.group_start[ops.mix_group[mix] + 1] - first
            start = ops.mix_start[mix] + (row - ops.mix_row[mix]) * width
            place = _choose(mix_weight, start, ops.op_child[:0], first, width, V, lane, mode, seeds)
            stack[depth] = first + place
            depth += 1
        else:
            op = ops.row_op[row]
            low, high = ops.op_start[op], ops.op_start[op + 1]
            children = ops.op_child[low:high]
            if ops.op_kind[op] == 0:
                for child in children:
                    stack[depth] = child
                    depth += 1
            else:
                place = _choose(op_weight, low, children, 0, children.size, V, lane, mode, seeds)
                stack[depth] = children[place]
                depth += 1


@njit(**OPTIONS)
def top_descend(ops, op_weight, mix_weight, V, root_row, mode, seeds, input_group, chosen):
    """For every lane, the interface node (input row) of each group under the chosen tree; -1: none."""
    stack = np.empty(ops.num_rows + ops.op_child.size + 1, dtype=np.int64)
    own = np.empty(chosen.shape[0], dtype=np.int64)
    none = ops.op_child[:0]
    for lane in range(chosen.shape[1]):
        own[:] = -1
        stack[0] = root_row
        _walk(
            ops,
            op_weight,
            mix_weight,
            V,
            lane,
            mode,
            seeds,
            stack,
            1,
            input_group,
            own,
            none,
            none.copy(),
        )
        for group in range(own.size):
            chosen[group, lane] = own[group]


@njit(**OPTIONS)
def descend(
    ops,
    op_weight,
    mix_weight,
    tables,
    batch,
    p0,
    p1,
    store,
    V,
    mode,
    seeds,
    input_group,
    chosen,
    out,
):
    """Positions p1 - 1 .. p0 from the top down.

    `chosen[g, lane]` is the output (as an input row) that group g's tree goes through at the position above
    which the walk stands. For every slice, `out.interfaces` receives it and `out.loads` the loaded row that the
    tree ends in for each variable (-1: none).
    """
    width = batch.lengths.size
    num_groups = ops.group_start.size - 1
    num_variables = out.loads.shape[1]
    code = np.empty((tables.scale_start.size, width), dtype=np.int64)
    peak, total = np.empty(width), np.empty(width)
    stack = np.empty(ops.num_rows + ops.op_child.size + 1, dtype=np.int64)
    chosen_input = np.empty(num_groups, dtype=np.int64)
    chosen_load = np.empty(num_variables, dtype=np.int64)
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
        if mode == LINEAR_DRAW:
            evaluate(ops, op_weight, mix_weight, V, n, 0.0)
        else:
            log_evaluate(ops, op_weight, mix_weight, V, peak, total, n, mode == LOG_BEST)
        for lane in range(n):
            slice_row = batch.base[lane] + batch.stride * position
            chosen_input[:] = -1
            chosen_load[:] = -1
            depth = 0
            for group in range(num_groups):
                i = chosen[group, lane]
                out.interfaces[slice_row, group] = i
                if i >= 0:
                    stack[depth] = ops.output_row[i]
                    depth += 1
            _walk(
                ops,
                op_weight,
                mix_weight,
                V,
                lane,
                mode,
                seeds,
                stack,
                depth,
                input_group,
                chosen_input,
                tables.load_variable,
                chosen_load,
            )
            for group in range(num_groups):
                chosen[group, lane] = chosen_input[group]
            for variable in range(num_variables):
                out.loads[slice_row, variable] = chosen_load[variable]
