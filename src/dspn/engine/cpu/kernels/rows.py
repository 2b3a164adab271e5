"""Rows of values: what all passes share, and a part of a network in linear space.

Row r of V holds the values of one node for all lanes; lanes are the vector dimension of every loop.
A block holds sequences (lanes) sorted by falling length. Position 0 is the bottom slice; lane l
takes part at positions 0 .. lengths[l] - 1, so the lanes that take part form a prefix.
"""

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.cpu.kernels import kernel, maximising, reducing
from dspn.engine.cpu.records import LARGE_SCALE, LONG_SEQUENCE, Batch, ChainShape, Weighted


@kernel
def active_lanes(lengths: Ints, position: int) -> int:
    """Number of lanes whose sequence reaches a position; lengths fall."""
    low, high = 0, lengths.size
    while low < high:
        middle = (low + high) // 2
        if lengths[middle] > position:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def number_slices(batch: Batch, position: int, p0: int, numbers: Ints, n: int) -> None:
    """The number of each lane's slice at a position: of the distinct slice, or its place."""
    if batch.numbers.size:
        for lane in range(n):
            numbers[lane] = batch.numbers[batch.base[lane] + batch.stride * position]
    else:
        first = (position - p0) * batch.lengths.size
        for lane in range(n):
            numbers[lane] = first + lane


@kernel
def with_tables(part: Weighted, width: int) -> Weighted:
    """The part with room for the tables that so many lanes read."""
    tables = np.zeros((part.tables.shape[0], width), dtype=np.int64)
    return Weighted(part.ops, part.op, part.mix, tables)


@kernel
def read_tables(part: Weighted, batch: Batch, position: int, n: int) -> None:
    """The tables that the lanes of a block read at a position."""
    for by in range(part.tables.shape[0]):
        for lane in range(n):
            row = batch.base[lane] + batch.stride * position
            part.tables[by, lane] = batch.inputs[row, by]


@kernel
def table_start(part: Weighted, op: int, lane: int) -> int:
    """Where the weights of a sum begin that a lane reads."""
    by, first = part.ops.op_by[op], part.ops.op_start[op]
    if by < 0:
        return int(first)
    table = part.tables[by, lane]
    if table == 0:
        return int(first)
    return int(part.ops.op_more[op] + (table - 1) * (part.ops.op_start[op + 1] - first))


@kernel
def run_end(part: Weighted, op: int, begin: int, n: int) -> int:
    """The end of the lanes from `begin` on that read the same weights of a sum."""
    by = part.ops.op_by[op]
    if by < 0:
        return n
    end = begin + 1
    while end < n and part.tables[by, end] == part.tables[by, begin]:
        end += 1
    return end


@kernel
def rounded_off(a: float, b: float) -> float:
    """What the float a + b lacks; 0 where it is infinite."""
    total = a + b
    other = total - a
    rest = (a - (total - other)) + (b - other)
    return rest if np.isfinite(total) else 0.0


@kernel
def split_scale(scale: Floats, u: int, high: float, low: float) -> None:
    """scale[:, u] = high + low, of which the first number is cut so that sums of many are exact.

    Unless it is huge, it is a multiple of 2^-20.
    """
    first = high
    if abs(high) < LARGE_SCALE:
        first = np.rint(high * 1048576.0) / 1048576.0
    scale[0, u] = first
    scale[1, u] = (high - first) + low


@kernel
def needs_care(scale: Floats, large: int) -> bool:
    """Whether sums may round something off, as terms to come or what a lane has are large."""
    for lane in range(scale.shape[1]):
        if abs(scale[0, lane]) >= LARGE_SCALE * LONG_SEQUENCE:
            return True
    return large > 0


@kernel
def add_scale(scale: Floats, terms: Floats, careful: bool, numbers: Ints, n: int) -> None:
    """Adds the log divisors of the slices `numbers` to the totals of the lanes; see `base`.

    Where nothing `needs_care`, the sums of their first numbers round nothing off; the careful way
    gives the same bits then.
    """
    whole, rest, fine = scale[0], scale[1], scale[2]
    if not careful:
        for lane in range(n):
            whole[lane] += terms[0, numbers[lane]]
            fine[lane] += terms[1, numbers[lane]]
        return
    for lane in range(n):
        term = terms[0, numbers[lane]]
        off = rounded_off(whole[lane], term)
        whole[lane] += term
        left = rounded_off(rest[lane], off)
        rest[lane] += off
        fine[lane] += terms[1, numbers[lane]] + left


@kernel
def to_powers(peak: Floats, shift: Ints, n: int) -> None:
    """The shift e with 2^(e-1) <= peak < 2^e, by the bits of the exponent; peak becomes 2^-e."""
    bits = peak.view(np.int64)
    for lane in range(n):
        shift[lane] = (bits[lane] >> 52) - 1022
    for lane in range(n):
        bits[lane] = (1023 - shift[lane]) << 52


@maximising
def largest_entry(row: Floats) -> float:
    """The largest of some numbers, none of which is NaN."""
    peak: float = row[0]
    for i in range(1, row.size):
        peak = max(peak, row[i])
    return peak


@kernel
def rescale(shape: ChainShape, v: Floats, exponents: Ints, n: int) -> None:
    """Brings the largest entry of each lane and group of a chain into [0.5, 1) by a power of two.

    The powers are added to the exponents. A group of zeros stays as it is.
    """
    work = np.empty(1)
    bits = work.view(np.int64)
    own = np.empty_like(v[0, :1])  # the factor in the precision of the vectors
    for lane in range(n):
        for group in range(shape.column.size - 1):
            row = v[lane, shape.column[group] : shape.column[group + 1]]
            work[0] = largest_entry(row)
            if work[0] == 0.0:
                continue
            shift = (bits[0] >> 52) - 1022
            bits[0] = (1023 - shift) << 52
            own[0] = work[0]
            factor = own[0]
            for i in range(row.size):
                row[i] *= factor
            exponents[group, lane] += shift


@kernel
def numbers_in_vector(array: Floats) -> int:
    """How many numbers of an array a vector of the tiles holds."""
    return 64 // array.itemsize


@kernel
def mix_one_row(
    weight: Floats, start: int, width: int, first: int, row: int, V: Floats, n: int, floor: float
) -> None:
    """V[row] = floor + sum_j w_j V[first + j] for one row of a dense matrix."""
    for lane in range(n):
        V[row, lane] = floor
    j = 0
    while j + 4 <= width:
        s = start + j
        a, b, c, d = weight[s], weight[s + 1], weight[s + 2], weight[s + 3]
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


@kernel
def mix_four_rows(
    weight: Floats, start: int, width: int, first: int, row: int, V: Floats, n: int, floor: float
) -> None:
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


@kernel
def mix(part: Weighted, V: Floats, n: int, floor: float) -> None:
    """V[mix rows] = floor + W V[inputs] for every dense matrix."""
    ops = part.ops
    for number in range(ops.mix_row.size):
        group = ops.mix_group[number]
        first = ops.group_start[group]
        width = ops.group_start[group + 1] - first
        start = ops.mix_start[number]
        row, last = ops.mix_row[number], ops.mix_row[number] + ops.mix_size[number]
        while row + 4 <= last:
            mix_four_rows(part.mix, start, width, first, row, V, n, floor)
            row += 4
            start += 4 * width
        while row < last:
            mix_one_row(part.mix, start, width, first, row, V, n, floor)
            row += 1
            start += width


@kernel
def _multiply(children: Ints, row: int, V: Floats, n: int, floor: float) -> None:
    if children.size == 1:
        a = children[0]
        for lane in range(n):
            V[row, lane] = V[a, lane] + floor
        return
    a, b = children[0], children[1]
    for lane in range(n):
        V[row, lane] = V[a, lane] * V[b, lane]
    place = 2
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


@kernel
def _add(
    children: Ints, weight: Floats, row: int, V: Floats, begin: int, end: int, floor: float
) -> None:
    a, u = children[0], weight[0]
    for lane in range(begin, end):
        V[row, lane] = floor + u * V[a, lane]
    place = 1
    while place + 2 <= children.size:
        a, b = children[place], children[place + 1]
        u, w = weight[place], weight[place + 1]
        for lane in range(begin, end):
            V[row, lane] += u * V[a, lane] + w * V[b, lane]
        place += 2
    if place < children.size:
        a, u = children[place], weight[place]
        for lane in range(begin, end):
            V[row, lane] += u * V[a, lane]


@kernel
def compute(part: Weighted, V: Floats, n: int, floor: float) -> None:
    """Fills the computed rows: operation after operation, a product or weighted sum of children."""
    ops = part.ops
    for op in range(ops.op_row.size):
        low, high = ops.op_start[op], ops.op_start[op + 1]
        if ops.op_kind[op] == 0:
            _multiply(ops.op_child[low:high], ops.op_row[op], V, n, floor)
        else:
            begin = 0
            while begin < n:
                end, start = run_end(part, op, begin, n), table_start(part, op, begin)
                weight = part.op[start : start + high - low]
                _add(ops.op_child[low:high], weight, ops.op_row[op], V, begin, end, floor)
                begin = end


@kernel
def _unmultiply(children: Ints, row: int, V: Floats, D: Floats, before: Floats, n: int) -> None:
    """D[c] += D[row] * product of the other children, by products from both ends (no division)."""
    count = children.size
    if count == 2:
        a, b = children[0], children[1]
        for lane in range(n):
            D[a, lane] += D[row, lane] * V[b, lane]
            D[b, lane] += D[row, lane] * V[a, lane]
        return
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


@kernel
def uncompute(part: Weighted, V: Floats, D: Floats, before: Floats, n: int) -> None:
    """D[r] += d root / d V[r] through the operations, from the last to the first."""
    ops = part.ops
    for op in range(ops.op_row.size - 1, -1, -1):
        low, high = ops.op_start[op], ops.op_start[op + 1]
        row = ops.op_row[op]
        if ops.op_kind[op] == 0:
            _unmultiply(ops.op_child[low:high], row, V, D, before, n)
        else:
            begin = 0
            while begin < n:
                end, start = run_end(part, op, begin, n), table_start(part, op, begin)
                for place in range(high - low):
                    child, weight = ops.op_child[low + place], part.op[start + place]
                    for lane in range(begin, end):
                        D[child, lane] += weight * D[row, lane]
                begin = end


@kernel
def _unmix_four(
    weight: Floats, start: int, width: int, size: int, at: int, row: int, D: Floats, n: int
) -> None:
    """D[at .. at + 3] += four columns of the transposed matrix times D[row .. row + size - 1]."""
    i = 0
    while i + 4 <= size:
        s0 = start + i * width
        s1, s2, s3 = s0 + width, s0 + 2 * width, s0 + 3 * width
        a0, a1, a2, a3 = weight[s0], weight[s0 + 1], weight[s0 + 2], weight[s0 + 3]
        b0, b1, b2, b3 = weight[s1], weight[s1 + 1], weight[s1 + 2], weight[s1 + 3]
        c0, c1, c2, c3 = weight[s2], weight[s2 + 1], weight[s2 + 2], weight[s2 + 3]
        d0, d1, d2, d3 = weight[s3], weight[s3 + 1], weight[s3 + 2], weight[s3 + 3]
        r = row + i
        for lane in range(n):
            p, q, s, t = D[r, lane], D[r + 1, lane], D[r + 2, lane], D[r + 3, lane]
            D[at, lane] += a0 * p + b0 * q + c0 * s + d0 * t
            D[at + 1, lane] += a1 * p + b1 * q + c1 * s + d1 * t
            D[at + 2, lane] += a2 * p + b2 * q + c2 * s + d2 * t
            D[at + 3, lane] += a3 * p + b3 * q + c3 * s + d3 * t
        i += 4
    while i < size:
        s0 = start + i * width
        a0, a1, a2, a3 = weight[s0], weight[s0 + 1], weight[s0 + 2], weight[s0 + 3]
        for lane in range(n):
            p = D[row + i, lane]
            D[at, lane] += a0 * p
            D[at + 1, lane] += a1 * p
            D[at + 2, lane] += a2 * p
            D[at + 3, lane] += a3 * p
        i += 1


@kernel
def unmix(part: Weighted, D: Floats, n: int) -> None:
    """D[inputs] += W' D[mix rows] for every dense matrix."""
    ops = part.ops
    for number in range(ops.mix_row.size):
        group = ops.mix_group[number]
        first = ops.group_start[group]
        width = ops.group_start[group + 1] - first
        start, size, row = ops.mix_start[number], ops.mix_size[number], ops.mix_row[number]
        j = 0
        while j + 4 <= width:
            _unmix_four(part.mix, start + j, width, size, first + j, row, D, n)
            j += 4
        while j < width:
            for i in range(size):
                a = part.mix[start + i * width + j]
                for lane in range(n):
                    D[first + j, lane] += a * D[row + i, lane]
            j += 1


@reducing
def dot(V: Floats, a: int, D: Floats, b: int, begin: int, end: int) -> float:
    """Sum over lanes of V[a] D[b]."""
    total = 0.0
    for lane in range(begin, end):
        total += V[a, lane] * D[b, lane]
    return total


@kernel
def add_op_flows(
    part: Weighted, V: Floats, D: Floats, flows: Floats, n: int, at_bottom: bool
) -> None:
    """Adds D_parent v_child of the edges of all sums; D is relative to the root."""
    ops = part.ops
    for op in range(ops.op_row.size):
        if ops.op_kind[op] == 0 or (at_bottom and ops.op_bare[op]):
            continue
        low, high = ops.op_start[op], ops.op_start[op + 1]
        begin = 0
        while begin < n:
            end, start = run_end(part, op, begin, n), table_start(part, op, begin)
            for place in range(high - low):
                child = ops.op_child[low + place]
                flows[start + place] += dot(V, child, D, ops.op_row[op], begin, end)
            begin = end
