"""The slice part in linear space: coefficients of many slices, and flows back to their leaves."""

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats, Ints
from dspn.engine.cpu.kernels import kernel, reducing
from dspn.engine.cpu.kernels.rows import (
    compute,
    dot,
    rounded_off,
    split_scale,
    to_powers,
    uncompute,
)
from dspn.engine.cpu.records import Coefficients, EdgeFlows, LeafFlows, LeafTables, Operations

LANES = 128
_FEW_CODES = 8  # leaves of this many codes are counted code by code, so that lanes stay together


@kernel
def load_leaves(
    ops: Operations,
    tables: LeafTables,
    codes: Ints,
    rows: Ints,
    first: int,
    V: Floats,
    n: int,
    floor: float,
) -> None:
    """Densities of all leaves at the slices rows[first .. first + n - 1], plus the floor.

    The place of a slice in the dense tables is its place in `rows`.
    """
    for load in range(ops.num_loads):
        start, factor = tables.start[load], tables.factor[load]
        if factor < 0:
            start += first
            for lane in range(n):
                V[load, lane] = tables.dense[start + lane] + floor
        else:
            for lane in range(n):
                V[load, lane] = tables.values[start + codes[rows[first + lane], factor]] + floor


@kernel
def add_divisors(
    tables: LeafTables, codes: Ints, rows: Ints, first: int, scale: Floats, n: int
) -> None:
    """scale[:, s] = sum of the logarithms by which the densities of slice s were divided."""
    for lane in range(n):
        high, low = 0.0, 0.0
        for factor in range(tables.divisor_start.size):
            code = codes[rows[first + lane], factor]
            divisor = tables.divisors[tables.divisor_start[factor] + code]
            low += rounded_off(high, divisor)
            high += divisor
        for term in range(tables.dense_divisor.shape[0]):
            divisor = tables.dense_divisor[term, first + lane]
            low += rounded_off(high, divisor)
            high += divisor
        split_scale(scale, first + lane, high, low)


@kernel
def _shift_groups(
    ops: Operations,
    load_group: Ints,
    scalable: Ints,
    V: Floats,
    out: Coefficients,
    first: int,
    n: int,
) -> None:
    """Divides the coefficients of each scalable group by a power of two near their largest."""
    peak = np.empty(n)
    shift = np.empty(n, dtype=np.int64)
    for group in range(scalable.size):
        if not scalable[group]:
            continue
        for lane in range(n):
            peak[lane] = 0.0
        for c in range(load_group.size):
            if load_group[c] == group:
                for lane in range(n):
                    peak[lane] = max(peak[lane], V[ops.output_row[c], lane])
        to_powers(peak, shift, n)
        for c in range(load_group.size):
            if load_group[c] == group:
                start = c * out.row_step
                for lane in range(n):
                    out.values[start + (first + lane) * out.slice_step] *= peak[lane]
        for lane in range(n):
            out.shift[group, first + lane] = shift[lane]


@kernel
def slice_values(
    ops: Operations,
    op_weight: Floats,
    tables: LeafTables,
    codes: Ints,
    rows: Ints,
    load_group: Ints,
    scalable: Ints,
    out: Coefficients,
    floor: float,
) -> None:
    """Coefficients of the slices `rows` of the data, written to `out` in their order."""
    V = np.empty((ops.num_rows, LANES))
    for first in range(0, rows.size, LANES):
        n = min(LANES, rows.size - first)
        load_leaves(ops, tables, codes, rows, first, V, n, floor)
        compute(ops, op_weight, V, n, floor)
        for c in range(ops.output_row.size):
            row, start = ops.output_row[c], c * out.row_step + first * out.slice_step
            for lane in range(n):
                out.values[start + lane * out.slice_step] = V[row, lane]
        add_divisors(tables, codes, rows, first, out.scale, n)
        _shift_groups(ops, load_group, scalable, V, out, first, n)


@reducing
def _sum_where(P: Floats, codes: NDArray[np.int32], code: int, n: int) -> float:
    """Sum of P over the lanes that have the code."""
    total = 0.0
    for lane in range(n):
        total += P[lane] if codes[lane] == code else 0.0
    return total


@kernel
def _count(
    tables: LeafTables,
    load: int,
    lane_codes: NDArray[np.int32],
    V: Floats,
    D: Floats,
    P: Floats,
    counts: Floats,
    n: int,
) -> None:
    """Adds the posteriors of one tabulated leaf to the counts of the codes they were seen with."""
    factor, start = tables.factor[load], tables.start[load]
    ends = tables.divisor_start
    last = ends[factor + 1] if factor + 1 < ends.size else tables.divisors.size
    width = last - ends[factor]
    codes = lane_codes[factor]
    for lane in range(n):
        P[lane] = V[load, lane] * D[load, lane]
    if width <= _FEW_CODES:
        for code in range(width):
            counts[start + code] += _sum_where(P, codes, code, n)
    else:
        for lane in range(n):
            counts[start + codes[lane]] += P[lane]


@kernel
def _write_leaves(
    ops: Operations, tables: LeafTables, V: Floats, D: Floats, leaf: LeafFlows, first: int, n: int
) -> None:
    """Posteriors, and evidence left without each entry, of the slices first .. first + n - 1."""
    for variable in range(leaf.leave_out.shape[0]):
        for lane in range(n):
            leaf.leave_out[variable, first + lane] = 0.0
    for load in range(ops.num_loads):
        variable = tables.variable[load]
        for lane in range(n):
            leaf.posterior[load, first + lane] = V[load, lane] * D[load, lane]
        if leaf.leave_out.shape[0]:
            for lane in range(n):
                leaf.leave_out[variable, first + lane] += D[load, lane]


@kernel
def slice_flows(
    ops: Operations,
    op_weight: Floats,
    tables: LeafTables,
    codes: Ints,
    rows: Ints,
    load_group: Ints,
    shift: Ints,
    seeds: Floats,
    widest: int,
    leaf: LeafFlows,
    flows: EdgeFlows,
) -> None:
    """Carries seeds (coefficients, slices) down to the leaves of the slices `rows`.

    A seed is relative to a coefficient that was divided by 2^shift, so it is divided by that again.
    With room for counts, which only tabulated leaves have, no posteriors are written.
    """
    V = np.empty((ops.num_rows, LANES))
    D = np.empty((ops.num_rows, LANES))
    before = np.empty((widest + 1, LANES))
    lane_codes = np.empty((tables.divisor_start.size, LANES), dtype=np.int32)
    for first in range(0, rows.size, LANES):
        n = min(LANES, rows.size - first)
        load_leaves(ops, tables, codes, rows, first, V, n, 0.0)
        compute(ops, op_weight, V, n, 0.0)
        for row in range(ops.num_rows):
            for lane in range(n):
                D[row, lane] = 0.0
        for c in range(ops.output_row.size):
            row, group = ops.output_row[c], load_group[c]
            for lane in range(n):
                D[row, lane] += np.ldexp(seeds[c, first + lane], -shift[group, first + lane])
        uncompute(ops, op_weight, V, D, before, n)
        if flows.op.size:
            for op in range(ops.op_row.size):
                if ops.op_kind[op] == 1:
                    for place in range(ops.op_start[op], ops.op_start[op + 1]):
                        flows.op[place] += dot(V, ops.op_child[place], D, ops.op_row[op], n)
        if leaf.counts.size:
            for factor in range(lane_codes.shape[0]):
                for lane in range(n):
                    lane_codes[factor, lane] = codes[rows[first + lane], factor]
            for load in range(ops.num_loads):
                _count(tables, load, lane_codes, V, D, before[0], leaf.counts, n)
        else:
            _write_leaves(ops, tables, V, D, leaf, first, n)
