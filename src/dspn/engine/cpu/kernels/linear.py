"""Rows of values in linear space: evaluating a part of a network, and differentiating it.

Row r of V holds the values of one node for all lanes; lanes are the vector dimension of every loop.
"""

from dspn._arrays import Floats, Ints
from dspn._kernel_cache import njit
from dspn.engine.cpu.kernels._options import OPTIONS, REDUCING
from dspn.engine.cpu.records import Operations


@njit(**OPTIONS)
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


@njit(**OPTIONS)
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


@njit(**OPTIONS)
def mix(ops: Operations, mix_weight: Floats, V: Floats, n: int, floor: float) -> None:
    """V[mix rows] = floor + W V[inputs] for every dense matrix."""
    for number in range(ops.mix_row.size):
        group = ops.mix_group[number]
        first = ops.group_start[group]
        width = ops.group_start[group + 1] - first
        start = ops.mix_start[number]
        row, last = ops.mix_row[number], ops.mix_row[number] + ops.mix_size[number]
        while row + 4 <= last:
            mix_four_rows(mix_weight, start, width, first, row, V, n, floor)
            row += 4
            start += 4 * width
        while row < last:
            mix_one_row(mix_weight, start, width, first, row, V, n, floor)
            row += 1
            start += width


@njit(**OPTIONS)
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


@njit(**OPTIONS)
def _add(children: Ints, weight: Floats, row: int, V: Floats, n: int, floor: float) -> None:
    a, u = children[0], weight[0]
    for lane in range(n):
        V[row, lane] = floor + u * V[a, lane]
    place = 1
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
def compute(ops: Operations, op_weight: Floats, V: Floats, n: int, floor: float) -> None:
    """Fills the computed rows: operation after operation, a product or weighted sum of children."""
    for op in range(ops.op_row.size):
        low, high = ops.op_start[op], ops.op_start[op + 1]
        if ops.op_kind[op] == 0:
            _multiply(ops.op_child[low:high], ops.op_row[op], V, n, floor)
        else:
            _add(ops.op_child[low:high], op_weight[low:high], ops.op_row[op], V, n, floor)


@njit(**OPTIONS)
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


@njit(**OPTIONS)
def uncompute(
    ops: Operations, op_weight: Floats, V: Floats, D: Floats, before: Floats, n: int
) -> None:
    """D[r] += d root / d V[r] through the operations, from the last to the first."""
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


@njit(**OPTIONS)
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


@njit(**OPTIONS)
def unmix(ops: Operations, mix_weight: Floats, D: Floats, n: int) -> None:
    """D[inputs] += W' D[mix rows] for every dense matrix."""
    for number in range(ops.mix_row.size):
        group = ops.mix_group[number]
        first = ops.group_start[group]
        width = ops.group_start[group + 1] - first
        start, size, row = ops.mix_start[number], ops.mix_size[number], ops.mix_row[number]
        j = 0
        while j + 4 <= width:
            _unmix_four(mix_weight, start + j, width, size, first + j, row, D, n)
            j += 4
        while j < width:
            for i in range(size):
                a = mix_weight[start + i * width + j]
                for lane in range(n):
                    D[first + j, lane] += a * D[row + i, lane]
            j += 1


@njit(**REDUCING)
def dot(V: Floats, a: int, D: Floats, b: int, n: int) -> float:
    """Sum over lanes of V[a] D[b]."""
    total = 0.0
    for lane in range(n):
        total += V[a, lane] * D[b, lane]
    return total
