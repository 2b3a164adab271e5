"""Coefficients that are products of leaves, one row of a table for each chunk of variables."""

import numpy as np
from numba import njit

from dspn._arrays import Floats, Ints
from dspn.engine.kernels._options import LOG_TWO, MAXIMISING, OPTIONS
from dspn.engine.kernels.tile import product_of_four, sum_of_four
from dspn.engine.records import ChainShape


@njit(**MAXIMISING)
def largest_entry(row: Floats) -> float:
    """The largest of some non-negative numbers."""
    peak = 0.0
    for i in range(row.size):
        peak = max(peak, row[i])
    return peak


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
    floor: float,
    rescale: bool,
) -> None:
    """out[u] = product over chunks q of tables[first[q] + numbers[rows[u], q]].

    The last row of `tables` is all ones. scale[u] is the sum of the chunks' log divisors. With
    `rescale` each group is divided by a power of two, whose logarithm is added to the scale.
    """
    width = shape.width
    ones = (tables.shape[0] - 1) * width
    count = first.size
    place = np.full(count + 4, ones)
    work = np.empty(1)
    for u in range(rows.size):
        total = 0.0
        for q in range(count):
            row = first[q] + numbers[rows[u], q]
            place[q] = row * width
            total += divisors[row]
        scale[u] = total
        product_of_four(
            tables, place[0], place[1], place[2], place[3], out, u * width, width // 8, floor
        )
        q = 4
        while q < count:
            own = out[u]
            for i in range(width):
                own[i] = own[i] * tables[place[q] // width, i] + floor
            q += 1
        if rescale:
            scale[u] += _shift_row(shape, out[u], work)


@njit(**OPTIONS)
def _shift_row(shape: ChainShape, row: Floats, work: Floats) -> float:
    """Divides each group by a power of two near its largest; returns the log of the divisors."""
    bits = work.view(np.int64)
    total = 0
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
        total += shift
    return total * LOG_TWO


@njit(**OPTIONS)
def add_chunks(
    shape: ChainShape, tables: Floats, first: Ints, numbers: Ints, rows: Ints, out: Floats
) -> None:
    """out[u] = sum over chunks q of tables[first[q] + numbers[rows[u], q]]: products in logarithms.

    The last row of `tables` is all zeros, log 1.
    """
    width = shape.width
    count = first.size
    place = np.full(count + 4, (tables.shape[0] - 1) * width)
    for u in range(rows.size):
        for q in range(count):
            place[q] = (first[q] + numbers[rows[u], q]) * width
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
        for q in range(first.size):
            total = out[first[q] + numbers[rows[u], q]]
            for i in range(row.size):
                total[i] += row[i]
