"""Coefficients that are products of leaves, one row of a table for each chunk of variables."""

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._kernel_cache import njit
from dspn.engine.cpu.kernels._options import MAXIMISING, OPTIONS
from dspn.engine.cpu.kernels.tile import product_of_four, sum_of_four
from dspn.engine.cpu.kernels.upward import rounded_off, split_scale
from dspn.engine.cpu.records import ChainShape


@njit(**MAXIMISING)
def largest_entry(row: Floats) -> float:
    """The largest of some numbers, none of which is NaN."""
    peak: float = row[0]
    for i in range(1, row.size):
        peak = max(peak, row[i])
    return peak


@njit(**OPTIONS)
def numbers_in_vector(array: Floats) -> int:
    """How many numbers of an array a vector of the tiles holds."""
    return 64 // array.itemsize


@njit(**OPTIONS)
def join_leaves(
    values: Floats,
    places: Ints,
    widths: Ints,
    chunk_of: Ints,
    first: Ints,
    divisor_start: Ints,
    divisors: Floats,
    linear: bool,
    floor: float,
    tables: Floats,
    sums: Floats,
) -> None:
    """tables[first[q] + code] = product (not linear: sum) over the factors of chunk q.

    Column i's density of factor f at code c is values[places[f, i] + c], or 1 where the place is
    -1. sums[:, first[q] + code] is the sum of the factors' divisors, and what it has rounded off.
    Joint codes count with the last factor running fastest, so rows are spread out from the last one
    on.
    """
    count = 1
    for f in range(widths.size):
        base = first[chunk_of[f]]
        if f == 0 or chunk_of[f] != chunk_of[f - 1]:
            count = 1
            tables[base] = 1.0 if linear else 0.0
            sums[:, base] = 0.0
        for row in range(count - 1, -1, -1):
            old = base + row
            for code in range(widths[f] - 1, -1, -1):
                new = base + row * widths[f] + code
                a, b = sums[0, old], divisors[divisor_start[f] + code]
                sums[0, new] = a + b
                sums[1, new] = sums[1, old] + rounded_off(a, b)
                for i in range(tables.shape[1]):
                    place = places[f, i]
                    if not linear:
                        tables[new, i] = tables[old, i] + (
                            values[place + code] if place >= 0 else 0
                        )
                    else:
                        own = values[place + code] if place >= 0 else 1.0
                        tables[new, i] = tables[old, i] * (own + floor) + floor
        count *= widths[f]


@njit(**OPTIONS)
def split_chunks(
    tables: Floats, widths: Ints, chunk_of: Ints, first: Ints, start: Ints, out: Floats
) -> None:
    """out[start[f] + c] += the rows of factor f's chunk whose joint code has c for that factor."""
    for f in range(widths.size):
        chunk = chunk_of[f]
        step = 1
        size = 1
        for other in range(widths.size):
            if chunk_of[other] == chunk:
                size *= widths[other]
                if other > f:
                    step *= widths[other]
        for code in range(size):
            own = out[start[f] + code // step % widths[f]]
            row = tables[first[chunk] + code]
            for i in range(row.size):
                own[i] += row[i]


@njit(**OPTIONS)
def _place_chunks(
    first: Ints,
    numbers: Ints,
    row: int,
    width: int,
    divisors: Floats,
    place: Ints,
    scale: Floats,
    u: int,
) -> None:
    """Where the rows of a slice's chunks begin; scale[:, u] = the sum of their log divisors."""
    high = low = 0.0
    for q in range(first.size):
        own = first[q] + numbers[row, q]
        place[q] = own * width
        total = high + divisors[0, own]
        other = total - high
        low += divisors[1, own] + ((high - (total - other)) + (divisors[0, own] - other))
        high = total
    split_scale(scale, u, high, low)


@njit(**OPTIONS)
def multiply_chunks(
    shape: ChainShape,
    tables: Floats,
    first: Ints,
    numbers: Ints,
    rows: Ints,
    divisors: Floats,
    out: Floats,
    scale: Floats,
    shift: Ints,
    floor: float,
    rescale: bool,
) -> None:
    """out[u] = product over chunks q of tables[first[q] + numbers[rows[u], q]].

    The last row of `tables` is all ones. scale[:, u] is the sum of the chunks' log divisors. With
    `rescale` each group g is divided by 2^shift[g, u].
    """
    width = shape.width
    ones = (tables.shape[0] - 1) * width
    count = first.size
    packs = width // numbers_in_vector(out)
    place = np.full(count + 4, ones)
    work = np.empty(1)
    for u in range(rows.size):
        _place_chunks(first, numbers, rows[u], width, divisors, place, scale, u)
        product_of_four(
            tables, place[0], place[1], place[2], place[3], out, u * width, packs, floor
        )
        q = 4
        while q < count:
            own = out[u]
            for i in range(width):
                own[i] = own[i] * tables[place[q] // width, i] + floor
            q += 1
        if rescale:
            _shift_row(shape, out[u], work, shift, u)


@njit(**OPTIONS)
def _shift_row(shape: ChainShape, row: Floats, work: Floats, shifts: Ints, u: int) -> None:
    """Divides each group by a power of two near its largest."""
    bits = work.view(np.int64)
    for group in range(shape.column.size - 1):
        part = row[shape.column[group] : shape.column[group + 1]]
        work[0] = largest_entry(part)
        if work[0] == 0.0:
            continue
        shift = (bits[0] >> 52) - 1022
        bits[0] = (1023 - shift) << 52
        factor = work[0]
        for i in range(part.size):
            part[i] *= factor
        shifts[group, u] = shift


@njit(**OPTIONS)
def add_chunks(
    shape: ChainShape,
    tables: Floats,
    first: Ints,
    numbers: Ints,
    rows: Ints,
    divisors: Floats,
    out: Floats,
    scale: Floats,
) -> None:
    """out[u] = sum over chunks q of tables[first[q] + numbers[rows[u], q]]: products in logarithms.

    The last row of `tables` is all zeros, log 1. scale[:, u] is the sum of the chunks' log
    divisors.
    """
    width = shape.width
    count = first.size
    place = np.full(count + 4, (tables.shape[0] - 1) * width)
    for u in range(rows.size):
        _place_chunks(first, numbers, rows[u], width, divisors, place, scale, u)
        sum_of_four(tables, place[0], place[1], place[2], place[3], out, u * width, width // 8, 0.0)
        q = 4
        while q < count:
            own = out[u]
            for i in range(width):
                own[i] += tables[place[q] // width, i]
            q += 1


@njit(**OPTIONS)
def add_to_chunks(flows: Floats, first: Ints, numbers: Ints, rows: Ints, out: Floats) -> None:
    """out[first[q] + numbers[rows[u], q]] += flows[u] for every chunk q: sums by joint code."""
    for u in range(rows.size):
        row = flows[u]
        for q in range(numbers.shape[1]):
            total = out[first[q] + numbers[rows[u], q]]
            for i in range(row.size):
                total[i] += row[i]
