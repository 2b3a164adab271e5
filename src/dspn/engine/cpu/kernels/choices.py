"""Chosen from the root down: draws from the posterior over induced trees, or the best tree."""

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats, Ints
from dspn.engine.cpu.kernels import kernel
from dspn.engine.cpu.kernels.general import fill
from dspn.engine.cpu.kernels.logarithmic import load_log_coefficients, load_log_inputs, log_compute
from dspn.engine.cpu.kernels.rows import (
    active_lanes,
    compute,
    number_slices,
    read_tables,
    rounded_off,
    table_start,
    with_tables,
)
from dspn.engine.cpu.kernels.slices import LANES, load_leaves, read_slice_tables
from dspn.engine.cpu.records import Chosen, Slices, Span, Weighted

LINEAR_DRAW = 0
LOG_DRAW = 1
LOG_BEST = 2

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_ONE = np.uint64(0xBF58476D1CE4E5B9)
_MIX_TWO = np.uint64(0x94D049BB133111EB)

Seeds = NDArray[np.uint64]


@kernel
def _next(seeds: Seeds, lane: int) -> np.uint64:
    """The lane's next 64 random bits: splitmix64, so draws do not depend on blocks or threads."""
    seeds[lane] += _GOLDEN
    z = seeds[lane]
    z = (z ^ (z >> np.uint64(30))) * _MIX_ONE
    z = (z ^ (z >> np.uint64(27))) * _MIX_TWO
    bits: np.uint64 = z ^ (z >> np.uint64(31))
    return bits


@kernel
def _term(
    weight: float, V: Floats, row: int, lane: int, best: float, rest: float, mode: int
) -> float:
    """A weighted child of a sum; in log space relative to the best, which is best + rest."""
    value = V[0, row, lane]
    if mode == LINEAR_DRAW:
        return float(weight * value)
    if weight + value == -np.inf:
        return 0.0
    low = V[1, row, lane] + rounded_off(weight, value)
    return float(np.exp((weight + value - best) + (low - rest)))


@kernel
def _choose(
    weight: Floats,
    start: int,
    rows: Ints,
    first: int,
    count: int,
    V: Floats,
    lane: int,
    mode: int,
    seeds: Seeds,
) -> int:
    """Index of the drawn or best child of a sum; weights are logarithms unless mode is linear.

    V[0] holds the values; in log space V[1] is to be added to them.
    """
    best, rest, place = -np.inf, 0.0, 0
    if mode != LINEAR_DRAW:
        for j in range(count):
            row = rows[j] if rows.size else first + j
            high = weight[start + j] + V[0, row, lane]
            low = V[1, row, lane] + rounded_off(weight[start + j], V[0, row, lane])
            if (high - best) + (low - rest) > 0.0:
                best, rest, place = high, low, j
        if mode == LOG_BEST:
            return place
    total = 0.0
    for j in range(count):
        row = rows[j] if rows.size else first + j
        total += _term(weight[start + j], V, row, lane, best, rest, mode)
    target = np.float64(_next(seeds, lane) >> np.uint64(11)) * (1.0 / 9007199254740992.0) * total
    for j in range(count):
        row = rows[j] if rows.size else first + j
        term = _term(weight[start + j], V, row, lane, best, rest, mode)
        if term > 0.0:
            place = j
            target -= term
            if target < 0.0:
                break
    return place


@kernel
def _walk(
    part: Weighted,
    V: Floats,
    lane: int,
    mode: int,
    seeds: Seeds,
    stack: Ints,
    depth: int,
    input_group: Ints,
    chosen: Ints,
    visited: Ints,
) -> int:
    """Follows one induced tree from the rows on the stack down; returns how many loads it ends in.

    `chosen[g]` receives the input row of group g, `visited` the loads.
    """
    ops = part.ops
    count = 0
    while depth > 0:
        depth -= 1
        row = stack[depth]
        if row < ops.num_inputs:
            chosen[input_group[row]] = row
        elif row < ops.num_inputs + ops.num_loads:
            visited[count] = row - ops.num_inputs
            count += 1
        elif ops.row_op[row] <= -2:
            number = -2 - ops.row_op[row]
            first = ops.group_start[ops.mix_group[number]]
            width = ops.group_start[ops.mix_group[number] + 1] - first
            start = ops.mix_start[number] + (row - ops.mix_row[number]) * width
            none = ops.op_child[:0]
            place = _choose(part.mix, start, none, first, width, V, lane, mode, seeds)
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
                own, size = table_start(part, op, lane), children.size
                place = _choose(part.op, own, children, 0, size, V, lane, mode, seeds)
                stack[depth] = children[place]
                depth += 1
    return count


@kernel
def top_descend(
    part: Weighted,
    V: Floats,
    root_row: int,
    mode: int,
    seeds: Seeds,
    input_group: Ints,
    chosen: Ints,
) -> None:
    """For every lane, the input row of each group that the chosen tree ends in (-1: none)."""
    ops = part.ops
    stack = np.empty(ops.num_rows + ops.op_child.size + 1, dtype=np.int64)
    own = np.empty(chosen.shape[0], dtype=np.int64)
    for lane in range(chosen.shape[1]):
        own[:] = -1
        stack[0] = root_row
        _walk(part, V, lane, mode, seeds, stack, 1, input_group, own, stack[:0])
        for group in range(own.size):
            chosen[group, lane] = own[group]


@kernel
def descend(
    part: Weighted,
    span: Span,
    store: Floats,
    mode: int,
    seeds: Seeds,
    input_group: Ints,
    chosen: Ints,
    out: Chosen,
    marks: NDArray[np.bool_],
    slice_seeds: Seeds,
) -> None:
    """Follows the chosen tree of every lane down through the mix part at positions p1 - 1 .. p0.

    `chosen[g, lane]` is the output (as an input row) that group g's tree goes through;
    `marks[place, c]` receives which coefficients the tree ends in at each place, and
    `slice_seeds[place]` a seed for the choices below them.
    """
    ops = part.ops
    given, batch, segment = span
    width = batch.lengths.size
    part = with_tables(part, width)
    num_groups = ops.group_start.size - 1
    V = np.zeros((2, ops.num_rows, width))
    work = np.empty((3, width))
    numbers = np.empty(width, dtype=np.int64)
    stack = np.empty(ops.num_rows + ops.op_child.size + num_groups, dtype=np.int64)
    visited = np.empty(ops.num_loads + 1, dtype=np.int64)
    own = np.empty(num_groups, dtype=np.int64)
    for position in range(segment.p1 - 1, segment.p0 - 1, -1):
        n = active_lanes(batch.lengths, position)
        number_slices(batch, position, segment.p0, numbers, n)
        read_tables(part, batch, position, n)
        if mode == LINEAR_DRAW:
            for i in range(ops.num_inputs):
                for lane in range(n):
                    V[0, i, lane] = store[position - segment.p0, i, lane]
            fill(part, given, numbers, V[0], n, 0.0)
        else:
            load_log_inputs(ops, store[position - segment.p0], V, n)
            load_log_coefficients(ops, given, numbers, V, n)
            log_compute(part, V, work, n, mode == LOG_BEST, position == 0)
        for lane in range(n):
            place = (position - segment.p0) * width + lane
            depth = 0
            own[:] = -1
            for group in range(num_groups):
                i = chosen[group, lane]
                out.interfaces[batch.base[lane] + batch.stride * position, group] = i
                if i >= 0:
                    stack[depth] = ops.output_row[i]
                    depth += 1
            count = _walk(part, V, lane, mode, seeds, stack, depth, input_group, own, visited)
            for number in range(count):
                marks[place, visited[number]] = True
            slice_seeds[place] = _next(seeds, lane)
            for group in range(num_groups):
                chosen[group, lane] = own[group]


@kernel
def slice_descend(
    part: Weighted, slices: Slices, marks: NDArray[np.bool_], mode: int, seeds: Seeds, out: Chosen
) -> None:
    """For every slice of `rows`, the chosen leaf of each variable under its marked coefficients."""
    ops = part.ops
    part = with_tables(part, LANES)
    V = np.zeros((2, ops.num_rows, LANES))
    work = np.empty((3, LANES))
    stack = np.empty(ops.num_rows + ops.op_child.size + 1, dtype=np.int64)
    visited = np.empty(ops.num_loads + 1, dtype=np.int64)
    none = stack[:0]
    for first in range(0, slices.rows.size, LANES):
        n = min(LANES, slices.rows.size - first)
        load_leaves(ops, slices, first, V[0], n, 0.0)
        read_slice_tables(part, slices, first, n)
        if mode == LINEAR_DRAW:
            compute(part, V[0], n, 0.0)
        else:
            log_compute(part, V, work, n, mode == LOG_BEST, False)
        for lane in range(n):
            place = first + lane
            for c in range(ops.output_row.size):
                if not marks[place, c]:
                    continue
                stack[0] = ops.output_row[c]
                count = _walk(part, V, lane, mode, seeds[first:], stack, 1, none, none, visited)
                for number in range(count):
                    load = visited[number]
                    out.loads[slices.rows[place], slices.tables.variable[load]] = load
