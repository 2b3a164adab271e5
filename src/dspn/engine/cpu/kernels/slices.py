"""The slice part and the top network in linear space, for many slices or sequences at once."""

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats, Ints
from dspn.engine.cpu.kernels import kernel, reducing
from dspn.engine.cpu.kernels.rows import (
    add_op_flows,
    compute,
    rounded_off,
    split_scale,
    to_powers,
    uncompute,
    with_tables,
)
from dspn.engine.cpu.records import Coefficients, EdgeFlows, LeafFlows, Operations, Slices, Weighted

LANES = 128
_FEW_CODES = 8  # leaves of this many codes are counted code by code, so that lanes stay together


@kernel
def read_codes(slices: Slices, first: int, factor: int, codes: NDArray[np.int32], n: int) -> None:
    """Codes of one factor at the slices rows[first .. first + n - 1]."""
    for lane in range(n):
        codes[lane] = slices.codes[slices.rows[first + lane], factor]


@kernel
def load_leaves(
    ops: Operations, slices: Slices, first: int, V: Floats, n: int, floor: float
) -> None:
    """Densities of all leaves at the slices rows[first .. first + n - 1], plus the floor.

    The place of a slice in the dense tables is its place in `rows`.
    """
    tables = slices.tables
    codes = np.empty(n, dtype=np.int32)
    last = -1
    for load in range(ops.num_loads):
        start, factor = tables.start[load], tables.factor[load]
        if factor < 0:
            start += first
            for lane in range(n):
                V[load, lane] = tables.dense[start + lane] + floor
            continue
        if factor != last:
            read_codes(slices, first, factor, codes, n)
            last = factor
        for lane in range(n):
            V[load, lane] = tables.values[start + codes[lane]] + floor


@kernel
def add_divisors(slices: Slices, first: int, scale: Floats, n: int) -> None:
    """scale[:, s] = sum of the logarithms by which the densities of slice s were divided."""
    tables = slices.tables
    for lane in range(n):
        high, low = 0.0, 0.0
        for factor in range(tables.divisor_start.size):
            code = slices.codes[slices.rows[first + lane], factor]
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
def read_slice_tables(part: Weighted, slices: Slices, first: int, n: int) -> None:
    """The tables that some slices read."""
    for by in range(part.tables.shape[0]):
        for lane in range(n):
            part.tables[by, lane] = slices.inputs[slices.rows[first + lane], by]


@kernel
def slice_values(
    part: Weighted,
    slices: Slices,
    load_group: Ints,
    scalable: Ints,
    out: Coefficients,
    floor: float,
) -> None:
    """Coefficients of the slices `rows` of the data, written to `out` in their order."""
    ops = part.ops
    part = with_tables(part, LANES)
    V = np.empty((ops.num_rows, LANES))
    for first in range(0, slices.rows.size, LANES):
        n = min(LANES, slices.rows.size - first)
        load_leaves(ops, slices, first, V, n, floor)
        read_slice_tables(part, slices, first, n)
        compute(part, V, n, floor)
        for c in range(ops.output_row.size):
            row, start = ops.output_row[c], c * out.row_step + first * out.slice_step
            for lane in range(n):
                out.values[start + lane * out.slice_step] = V[row, lane]
        add_divisors(slices, first, out.scale, n)
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
    ops: Operations, slices: Slices, first: int, V: Floats, D: Floats, counts: Floats, n: int
) -> None:
    """Adds the posteriors V D of tabulated leaves to the counts of the codes seen with them."""
    tables, ends = slices.tables, slices.tables.divisor_start
    codes = np.empty(n, dtype=np.int32)
    posterior, known = np.empty(n), -1
    for load in range(ops.num_loads):
        factor, start = tables.factor[load], tables.start[load]
        for lane in range(n):
            posterior[lane] = V[load, lane] * D[load, lane]
        if factor != known:
            read_codes(slices, first, factor, codes, n)
            known = factor
        last = ends[factor + 1] if factor + 1 < ends.size else tables.divisors.size
        if last - ends[factor] <= _FEW_CODES:
            for code in range(last - ends[factor]):
                counts[start + code] += _sum_where(posterior, codes, code, n)
        else:
            for lane in range(n):
                counts[start + codes[lane]] += posterior[lane]


@kernel
def slice_flows(
    part: Weighted,
    slices: Slices,
    load_group: Ints,
    shift: Ints,
    seeds: Floats,
    widest: int,
    leaf: LeafFlows,
    flows: EdgeFlows,
) -> None:
    """Carries seeds (coefficients, slices) down to the leaves of the slices `rows`.

    A seed is relative to a coefficient that was divided by 2^shift, so it is divided by that again.
    With room for counts, which only tabulated leaves have, no posteriors are written. With room for
    `leave_out` they are those given all other entries.
    """
    ops = part.ops
    part = with_tables(part, LANES)
    V = np.empty((ops.num_rows, LANES))
    D = np.empty((ops.num_rows, LANES))
    before = np.empty((widest + 1, LANES))
    power = np.empty((shift.shape[0], LANES))
    bits = power.view(np.int64)
    for first in range(0, slices.rows.size, LANES):
        n = min(LANES, slices.rows.size - first)
        load_leaves(ops, slices, first, V, n, 0.0)
        read_slice_tables(part, slices, first, n)
        compute(part, V, n, 0.0)
        for group in range(shift.shape[0]):
            for lane in range(n):
                bits[group, lane] = (1023 - shift[group, first + lane]) << 52  # 2^-shift
        for row in range(ops.num_rows):
            for lane in range(n):
                D[row, lane] = 0.0
        for c in range(ops.output_row.size):
            row, group = ops.output_row[c], load_group[c]
            for lane in range(n):
                D[row, lane] += seeds[c, first + lane] * power[group, lane]
        uncompute(part, V, D, before, n)
        if flows.op.size:
            add_op_flows(part, V, D, flows.op, n, False)
        for variable in range(leaf.leave_out.shape[0]):
            for lane in range(n):
                leaf.leave_out[variable, first + lane] = 0.0
        for load in range(ops.num_loads if leaf.leave_out.size else 0):
            for lane in range(n):
                leaf.leave_out[slices.tables.variable[load], first + lane] += D[load, lane]
        if leaf.counts.size:
            _count(ops, slices, first, V, D, leaf.counts, n)
        for load in range(ops.num_loads if leaf.posterior.size else 0):
            if leaf.leave_out.size:
                variable = slices.tables.variable[load]
                for lane in range(n):
                    rest = leaf.leave_out[variable, first + lane]
                    leaf.posterior[load, first + lane] = D[load, lane] / rest
                continue
            for lane in range(n):
                leaf.posterior[load, first + lane] = V[load, lane] * D[load, lane]


@kernel
def top_upward(
    part: Weighted, v: Floats, V: Floats, root_row: int, floor: float, value: Floats
) -> None:
    """Root value of the top network for every lane, from the interface vectors v."""
    ops = part.ops
    n = v.shape[1]
    for i in range(ops.num_inputs):
        for lane in range(n):
            V[i, lane] = v[i, lane]
    compute(part, V, n, floor)
    for lane in range(n):
        value[lane] = V[root_row, lane]


@kernel
def top_downward(part: Weighted, V: Floats, root_row: int, widest: int, D: Floats) -> None:
    """D = derivatives of the root at every row, given V of `top_upward`; D comes in as zeros."""
    n = D.shape[1]
    before = np.empty((widest + 1, n))
    for lane in range(n):
        D[root_row, lane] = 1.0
    uncompute(part, V, D, before, n)
