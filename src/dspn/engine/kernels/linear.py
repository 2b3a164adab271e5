"""Upward and downward passes in linear space over a block of sequences.

A block holds B sequences (lanes) sorted by falling length. Position 0 is the bottom slice; lane l takes part
at positions 0 .. lengths[l] - 1, so the lanes that take part form a prefix. Row r of the value matrix V holds
the values of one node for all lanes. Interface vectors are kept with the largest entry of each group in
[0.5, 1) and their power-of-two exponents apart, which is exact.
"""

import numpy as np
from numba import njit

from dspn.engine.kernels._options import OPTIONS


@njit(**OPTIONS)
def active_lanes(lengths, position):
    """Number of lanes whose sequence reaches a position; lengths fall."""
    low, high = 0, lengths.size
    while low < high:
        middle = (low + high) // 2
        if lengths[middle] > position:
            low = middle + 1
        else:
            high = middle
    return low


@njit(**OPTIONS)
def gather_codes(codes, base, stride, position, code, n):
    """The codes of every tabulated factor at a position, one row for each factor."""
    for lane in range(n):
        row = base[lane] + stride * position
        for factor in range(code.shape[0]):
            code[factor, lane] = codes[row, factor]


@njit(**OPTIONS)
def load_rows(ops, tables, code, first, V, n, floor):
    """Fills the loaded rows from the tables of tabulated factors and the values of dense ones."""
    for load in range(ops.num_loads):
        row = ops.num_inputs + load
        start = tables.load_start[load]
        factor = tables.load_factor[load]
        if factor < 0:
            start += first
            for lane in range(n):
                V[row, lane] = tables.dense[start + lane] + floor
        else:
            step = tables.load_step[load]
            for lane in range(n):
                V[row, lane] = tables.values[start + step * code[factor, lane]] + floor


@njit(**OPTIONS)
def _mix_rows(weight, start, width, first, row, V, n, floor):
    """V[row] = sum_j w_j V[first + j] for one row of a dense matrix."""
    for lane in range(n):
        V[row, lane] = floor
    j = 0
    while j + 4 <= width:
        a, b, c, d = (
            weight[start + j],
            weight[start + j + 1],
            weight[start + j + 2],
            weight[start + j + 3],
        )
        at = first + j
        for lane in range(n):
            V[row, lane] += (
                a * V[at, lane] + b * V[at + 1, lane] + c * V[at + 2, lane] + d * V[at + 3, lane]
            )
        j += 4
    while j < width:
        a = weight[start + j]
        for lane in range(n):
            V[row, lane] += a * V[first + j, lane]
        j += 1


@njit(**OPTIONS)
def _mix_four_rows(weight, start, width, first, row, V, n, floor):
    """Four rows of a dense matrix at once, four columns at a time: a 4 x 4 register block."""
    for lane in range(n):
        V[row, lane] = floor
        V[row + 1, lane] = floor
        V[row + 2, lane] = floor
        V[row + 3, lane] = floor
    s0, s1, s2, s3 = start, start + width, start + 2 * width, start + 3 * width
    j = 0
    while j + 4 <= width:
        a0, a1, a2, a3 = weight[s0 + j], weight[s0 + j + 1], weight[s0 + j + 2], weight[s0 + j + 3]
        b0, b1, b2, b3 = weight[s1 + j], weight[s1 + j + 1], weight[s1 + j + 2], weight[s1 + j + 3]
        c0, c1, c2, c3 = weight[s2 + j], weight[s2 + j + 1], weight[s2 + j + 2], weight[s2 + j + 3]
        d0, d1, d2, d3 = weight[s3 + j], weight[s3 + j + 1], weight[s3 + j + 2], weight[s3 + j + 3]
        at = first + j
        for lane in range(n):
            v0, v1, v2, v3 = V[at, lane], V[at + 1, lane], V[at + 2, lane], V[at + 3, lane]
            V[row, lane] += a0 * v0 + a1 * v1 + a2 * v2 + a3 * v3
            V[row + 1, lane] += b0 * v0 + b1 * v1 + b2 * v2 + b3 * v3
            V[row + 2, lane] += c0 * v0 + c1 * v1 + c2 * v2 + c3 * v3
            V[row + 3, lane] += d0 * v0 + d1 * v1 + d2 * v2 + d3 * v3
        j += 4
    while j < width:
        a, b, c, d = weight[s0 + j], weight[s1 + j], weight[s2 + j], weight[s3 + j]
        for lane in range(n):
            v = V[first + j, lane]
            V[row, lane] += a * v
            V[row + 1, lane] += b * v
            V[row + 2, lane] += c * v
            V[row + 3, lane] += d * v
        j += 1


@njit(**OPTIONS)
def _multiply(children, row, V, n, floor):
    for lane in range(n):
        V[row, lane] = V[children[0], lane]
    place = 1
    while place + 2 <= children.size:
        a, b = children[place], children[place + 1]
        for lane in range(n):
            V[row, lane] *= V[a, lane] * V[b, lane]
        place += 2
    if place < children.size:
        a = children[place]
        for lane in range(n):
            V[row, lane] *= V[a, lane]
    if floor > 0.0:
        for lane in range(n):
            V[row, lane] += floor


@njit(**OPTIONS)
def _add(children, weight, row, V, n, floor):
    for lane in range(n):
        V[row, lane] = floor
    place = 0
    while place + 2 <= children.size:
        a, b = children[place], children[place + 1]
        u, w = weight[place], weight[place + 1]
        for lane in range(n):
            V[row, lane] += u * V[a, lane] + w * V[b, lane]
        place += 2
    if place < children.size:
        a, u = children[place], weight[place]
        for lane in range(n):
            V[row, lane] += u * V[a, lane]


@njit(**OPTIONS)
def evaluate(ops, op_weight, mix_weight, V, n, floor):
    """Fills the computed rows from the inputs and the loaded rows."""
    for mix in range(ops.mix_row.size):
        group = ops.mix_group[mix]
        first = ops.group_start[group]
        width = ops.group_start[group + 1] - first
        start = ops.mix_start[mix]
        row, last = ops.mix_row[mix], ops.mix_row[mix] + ops.mix_size[mix]
        while row + 4 <= last:
            _mix_four_rows(mix_weight, start, width, first, row, V, n, floor)
            row += 4
            start += 4 * width
        while row < last:
            _mix_rows(mix_weight, start, width, first, row, V, n, floor)
            row += 1
            start += width
    for op in range(ops.op_row.size):
        low, high = ops.op_start[op], ops.op_start[op + 1]
        children = ops.op_child[low:high]
        if ops.op_kind[op] == 0:
            _multiply(children, ops.op_row[op], V, n, floor)
        else:
            _add(children, op_weight[low:high], ops.op_row[op], V, n, floor)


@njit(**OPTIONS)
def _largest(V, rows, first, last, peak, n):
    for lane in range(n):
        peak[lane] = 0.0
    for i in range(first, last):
        row = rows[i]
        for lane in range(n):
            peak[lane] = max(peak[lane], V[row, lane])


@njit(**OPTIONS)
def _to_powers(peak, shift, n):
    """Shift = e with 2^(e-1) <= peak < 2^e, and peak = 2^-e; by the bits of the exponent."""
    bits = peak.view(np.int64)
    for lane in range(n):
        shift[lane] = (bits[lane] >> 52) - 1022
    for lane in range(n):
        bits[lane] = (1023 - shift[lane]) << 52


@njit(**OPTIONS)
def hand_up(ops, V, v, exponents, scratch, shift, dead, position, n):
    """V = outputs, scaled by a power of two for each group; exponents follow the groups they are made of."""
    num_groups = ops.group_start.size - 1
    for group in range(num_groups):
        first, last = ops.group_start[group], ops.group_start[group + 1]
        _largest(V, ops.output_row, first, last, scratch, n)
        for lane in range(n):
            if scratch[lane] == 0.0 and dead[lane] < 0:
                dead[lane] = position
        _to_powers(scratch, shift, n)
        for i in range(first, last):
            row = ops.output_row[i]
            for lane in range(n):
                v[i, lane] = V[row, lane] * scratch[lane]
        for lane in range(n):
            total = shift[lane]
            for place in range(ops.source_start[group], ops.source_start[group + 1]):
                total += exponents[num_groups + ops.source_group[place], lane]
            exponents[group, lane] = total
    for group in range(num_groups):
        for lane in range(n):
            exponents[num_groups + group, lane] = exponents[group, lane]


@njit(**OPTIONS)
def add_scales(tables, code, first, scale, n):
    """Adds to each lane the logarithms by which its table rows were divided."""
    for factor in range(code.shape[0]):
        start = tables.scale_start[factor]
        for lane in range(n):
            scale[lane] += tables.scales[start + code[factor, lane]]
    if tables.dense_scale.size:
        for lane in range(n):
            scale[lane] += tables.dense_scale[first + lane]


@njit(**OPTIONS)
def upward(ops, op_weight, mix_weight, tables, batch, p0, p1, state, V, store, floor):
    """Positions p0 .. p1 - 1 from the bottom up.

    `state` carries the interface vector v, exponents, logarithmic scale and the position at which a lane's
    value became zero (-1: never). With a non-empty `store` the input vector of every position is kept.
    """
    width = batch.lengths.size
    code = np.empty((tables.scale_start.size, width), dtype=np.int64)
    scratch = np.empty(width)
    shift = np.empty(width, dtype=np.int64)
    for position in range(p0, p1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            break
        first = (position - p0) * width
        for i in range(ops.num_inputs):
            for lane in range(n):
                V[i, lane] = state.v[i, lane]
        if store.size:
            for i in range(ops.num_inputs):
                for lane in range(n):
                    store[position - p0, i, lane] = state.v[i, lane]
        gather_codes(batch.codes, batch.base, batch.stride, position, code, n)
        load_rows(ops, tables, code, first, V, n, floor)
        add_scales(tables, code, first, state.scale, n)
        evaluate(ops, op_weight, mix_weight, V, n, floor)
        hand_up(ops, V, state.v, state.exponents, scratch, shift, state.dead, position, n)


@njit(**OPTIONS)
def _unmultiply(children, row, V, D, before, n):
    """D[c] += D[row] * product of the other children, by products from both ends (no division)."""
    count = children.size
    for lane in range(n):
        before[0, lane] = D[row, lane]
    for place in range(1, count):
        child = children[place - 1]
        for lane in range(n):
            before[place, lane] = before[place - 1, lane] * V[child, lane]
    for lane in range(n):
        before[count, lane] = 1.0
    for place in range(count - 1, -1, -1):
        child = children[place]
        for lane in range(n):
            D[child, lane] += before[place, lane] * before[count, lane]
            before[count, lane] *= V[child, lane]


@njit(**OPTIONS)
def _unmix(weight, start, width, size, first, row, D, n):
    """D[first + j] += sum_i w_ij D[row + i], four inputs at a time."""
    j = 0
    while j + 4 <= width:
        at = first + j
        i = 0
        while i + 2 <= size:
            s, t = start + i * width + j, start + (i + 1) * width + j
            a0, a1, a2, a3 = weight[s], weight[s + 1], weight[s + 2], weight[s + 3]
            b0, b1, b2, b3 = weight[t], weight[t + 1], weight[t + 2], weight[t + 3]
            for lane in range(n):
                d, e = D[row + i, lane], D[row + i + 1, lane]
                D[at, lane] += a0 * d + b0 * e
                D[at + 1, lane] += a1 * d + b1 * e
                D[at + 2, lane] += a2 * d + b2 * e
                D[at + 3, lane] += a3 * d + b3 * e
            i += 2
        if i < size:
            s = start + i * width + j
            a0, a1, a2, a3 = weight[s], weight[s + 1], weight[s + 2], weight[s + 3]
            for lane in range(n):
                d = D[row + i, lane]
                D[at, lane] += a0 * d
                D[at + 1, lane] += a1 * d
                D[at + 2, lane] += a2 * d
                D[at + 3, lane] += a3 * d
        j += 4
    while j < width:
        for i in range(size):
            a = weight[start + i * width + j]
            for lane in range(n):
                D[first + j, lane] += a * D[row + i, lane]
        j += 1


@njit(**OPTIONS)
def differentiate(ops, op_weight, mix_weight, V, D, before, n):
    """D[r] = d root / d V[r] for every row, given D at the outputs; the reverse of `evaluate`."""
    for op in range(ops.op_row.size - 1, -1, -1):
        low, high = ops.op_start[op], ops.op_start[op + 1]
        row = ops.op_row[op]
        if ops.op_kind[op] == 0:
            _unmultiply(ops.op_child[low:high], row, V, D, before, n)
        else:
            for place in range(low, high):
                child, weight = ops.op_child[place], op_weight[place]
                for lane in range(n):
                    D[child, lane] += weight * D[row, lane]
    for mix in range(ops.mix_row.size):
        group = ops.mix_group[mix]
        first = ops.group_start[group]
        width = ops.group_start[group + 1] - first
        _unmix(
            mix_weight, ops.mix_start[mix], width, ops.mix_size[mix], first, ops.mix_row[mix], D, n
        )


@njit(**OPTIONS)
def _seed(ops, V, d, D, mass, n):
    """D at the outputs, and for each group the mass sum_i v_i d_i, the root's value up to a scale."""
    for row in range(ops.num_rows):
        for lane in range(n):
            D[row, lane] = 0.0
    for group in range(ops.group_start.size - 1):
        for lane in range(n):
            mass[group, lane] = 0.0
        for i in range(ops.group_start[group], ops.group_start[group + 1]):
            row = ops.output_row[i]
            for lane in range(n):
                D[row, lane] += d[i, lane]
                mass[group, lane] += V[row, lane] * d[i, lane]


@njit(**OPTIONS)
def hand_down(ops, D, d, exponents, scratch, shift, n):
    """D = derivatives at the inputs, scaled by a power of two for each group."""
    num_groups = ops.group_start.size - 1
    for group in range(num_groups):
        for lane in range(n):
            exponents[num_groups + group, lane] = exponents[group, lane]
    for i in range(ops.num_inputs):
        for lane in range(n):
            d[i, lane] = 0.0
    for group in range(num_groups):
        for place in range(ops.source_start[group], ops.source_start[group + 1]):
            source = ops.source_group[place]
            first, last = ops.group_start[source], ops.group_start[source + 1]
            for lane in range(n):
                scratch[lane] = 0.0
            for i in range(first, last):
                for lane in range(n):
                    scratch[lane] = max(scratch[lane], D[i, lane])
            _to_powers(scratch, shift, n)
            for i in range(first, last):
                for lane in range(n):
                    d[i, lane] = D[i, lane] * scratch[lane]
            for lane in range(n):
                exponents[source, lane] = exponents[num_groups + group, lane] + shift[lane]


@njit(**OPTIONS)
def _write_flows(ops, tables, code, first, V, D, mass, out, at, n):
    """Posterior of each loaded row, and log P(entry | the rest) for each factor, at one position."""
    num_factors = out.leave_out.shape[1]
    for factor in range(num_factors):
        for lane in range(n):
            out.leave_out[at, factor, lane] = 0.0
    for load in range(ops.num_loads):
        row = ops.num_inputs + load
        group = ops.row_group[row]
        factor = tables.load_variable[load]
        if group < 0:
            continue
        for lane in range(n):
            out.flow[at, load, lane] = V[row, lane] * D[row, lane] / mass[group, lane]
            out.leave_out[at, factor, lane] += D[row, lane] / mass[group, lane]


@njit(**OPTIONS)
def downward(ops, op_weight, mix_weight, tables, batch, p0, p1, state, store, V, D, before, out):
    """Positions p1 - 1 .. p0 from the top down, given the input vectors that `upward` stored.

    `state.v` holds the derivatives d at the outputs of position p1 - 1 (for a lane that ends below, those at
    its own top). Per position: `out.mass` and `out.exponents` (mass of a group and its scale),
    `out.interface` (posterior of the outputs), `out.flow` and `out.leave_out` where these are not empty.
    """
    width = batch.lengths.size
    num_groups = ops.group_start.size - 1
    code = np.empty((tables.scale_start.size, width), dtype=np.int64)
    mass = np.empty((num_groups, width))
    scratch = np.empty(width)
    shift = np.empty(width, dtype=np.int64)
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
        evaluate(ops, op_weight, mix_weight, V, n, 0.0)
        _seed(ops, V, state.v, D, mass, n)
        for group in range(num_groups):
            for lane in range(n):
                out.mass[at, group, lane] = mass[group, lane]
                out.exponents[at, group, lane] = state.exponents[group, lane]
        if out.derivative.size:
            for i in range(ops.num_inputs):
                for lane in range(n):
                    out.derivative[at, i, lane] = state.v[i, lane]
        if out.interface.size:
            for group in range(num_groups):
                for i in range(ops.group_start[group], ops.group_start[group + 1]):
                    row = ops.output_row[i]
                    for lane in range(n):
                        out.interface[at, i, lane] = (
                            V[row, lane] * state.v[i, lane] / mass[group, lane]
                        )
        differentiate(ops, op_weight, mix_weight, V, D, before, n)
        if out.flow.size:
            _write_flows(ops, tables, code, at * width, V, D, mass, out, at, n)
        hand_down(ops, D, state.v, state.exponents, scratch, shift, n)


@njit(**OPTIONS)
def top_upward(ops, op_weight, mix_weight, v, V, root_row, floor, value):
    """Root value of the top network for every lane, from the interface vectors v."""
    n = v.shape[1]
    for i in range(ops.num_inputs):
        for lane in range(n):
            V[i, lane] = v[i, lane]
    evaluate(ops, op_weight, mix_weight, V, n, floor)
    for lane in range(n):
        value[lane] = V[root_row, lane]


@njit(**OPTIONS)
def top_downward(ops, op_weight, mix_weight, V, root_row, D, before, d):
    """D = derivatives of the root at the interface nodes, given V of `top_upward`."""
    n = d.shape[1]
    for row in range(ops.num_rows):
        for lane in range(n):
            D[row, lane] = 0.0
    for lane in range(n):
        D[root_row, lane] = 1.0
    differentiate(ops, op_weight, mix_weight, V, D, before, n)
    for i in range(ops.num_inputs):
        for lane in range(n):
            d[i, lane] = D[i, lane]
