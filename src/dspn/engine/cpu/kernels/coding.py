"""Codes of slices, and coefficients that are products of leaves, found by their codes.

A key is all codes of a slice as one number; a chunk is some variables whose leaves are multiplied
for every joint code once.
"""

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Bools, Floats, Ints
from dspn.engine.cpu.kernels import kernel
from dspn.engine.cpu.kernels.rows import numbers_in_vector, rescale, rounded_off, split_scale
from dspn.engine.cpu.kernels.tiles import product_of_four, sum_of_four
from dspn.engine.cpu.records import ChainShape, Chunks


@kernel
def number_keys(values: Floats, sizes: Ints, widths: Ints, keys: Ints) -> None:
    """keys[r] = codes of row r read as digits of bases `widths`; a missing entry is sizes[v]."""
    for row in range(values.shape[0]):
        key = 0
        for v in range(sizes.size):
            value = values[row, v]
            key = key * widths[v] + (np.int64(value) if value == value else sizes[v])
        keys[row] = key


@kernel
def number_distinct(
    keys: Ints, place: NDArray[np.int32], numbers: NDArray[np.int32], rows: Ints
) -> int:
    """Numbers the distinct keys in order of appearance; `place` has -1 for every possible key."""
    count = 0
    for row in range(keys.size):
        found = place[keys[row]]
        if found < 0:
            found = count
            place[keys[row]] = found
            rows[count] = row
            count += 1
        numbers[row] = found
    return count


@kernel
def number_chunks(
    codes: NDArray[np.int32], widths: Ints, chunk_of: Ints, numbers: NDArray[np.int32]
) -> None:
    """numbers[r, q] = codes of chunk q's factors at row r, read as digits of bases `widths`."""
    for row in range(codes.shape[0]):
        for factor in range(widths.size):
            chunk = chunk_of[factor]
            numbers[row, chunk] = numbers[row, chunk] * widths[factor] + codes[row, factor]


@kernel
def category_codes(values: Floats, sizes: Ints, codes: NDArray[np.int32]) -> None:
    """Codes = values as whole numbers; a missing entry has the code sizes[v]."""
    for row in range(values.shape[0]):
        for v in range(sizes.size):
            value = values[row, v]
            codes[row, v] = np.int32(value) if value == value else sizes[v]


@kernel
def has_missing(values: Floats) -> Bools:
    """Which columns have a missing entry."""
    found = np.zeros(values.shape[1], dtype=np.bool_)
    for row in range(values.shape[0]):
        for v in range(values.shape[1]):
            found[v] |= values[row, v] != values[row, v]
    return found


@kernel
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


@kernel
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


@kernel
def _place_chunks(chunks: Chunks, u: int, width: int, place: Ints, scale: Floats) -> None:
    """Where the rows of a slice's chunks begin; scale[:, u] = the sum of their log divisors."""
    high = low = 0.0
    for q in range(chunks.first.size):
        own = chunks.first[q] + chunks.numbers[chunks.rows[u], q]
        place[q] = own * width
        divisor = chunks.divisors[0, own]
        low += chunks.divisors[1, own] + rounded_off(high, divisor)
        high += divisor
    split_scale(scale, u, high, low)


@kernel
def multiply_chunks(
    shape: ChainShape,
    chunks: Chunks,
    out: Floats,
    scale: Floats,
    shift: Ints,
    floor: float,
    linear: bool,
) -> None:
    """out[u] = product over chunks q of tables[first[q] + numbers[rows[u], q]].

    Logarithms, unless `linear`, are added. The last row of `tables` is all 1, or log 1. scale[:, u]
    is the sum of the chunks' log divisors. Each group g is divided by 2^shift[g, u], unless that is
    empty.
    """
    width, tables, count = shape.width, chunks.tables, chunks.first.size
    packs = width // numbers_in_vector(out)
    place = np.full(count + 4, (tables.shape[0] - 1) * width)
    for u in range(chunks.rows.size):
        _place_chunks(chunks, u, width, place, scale)
        own, four = out[u], (place[0], place[1], place[2], place[3], u * width, packs)
        if linear:
            product_of_four(tables, out, four, floor)
        else:
            sum_of_four(tables, out, four, 0.0)
        for q in range(4, count):
            row = tables[place[q] // width]
            for i in range(width):
                own[i] = own[i] * row[i] + floor if linear else own[i] + row[i]
    if shift.size:
        rescale(shape, out, shift, chunks.rows.size)


@kernel
def add_to_chunks(flows: Floats, first: Ints, numbers: Ints, rows: Ints, out: Floats) -> None:
    """out[first[q] + numbers[rows[u], q]] += flows[u] for every chunk q: sums by joint code."""
    for u in range(rows.size):
        row = flows[u]
        for q in range(numbers.shape[1]):
            total = out[first[q] + numbers[rows[u], q]]
            for i in range(row.size):
                total[i] += row[i]
