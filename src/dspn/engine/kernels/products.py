"""Coefficients that are products of leaves, for many distinct slices.

One row of a table for each chunk of variables.
"""

import numpy as np
from numba import njit

from dspn._arrays import Floats, Ints
from dspn.engine.kernels._options import OPTIONS, REDUCING
from dspn.engine.records import ChainShape

_MAXIMUM = REDUCING | {"fastmath": {"contract", "reassoc", "nsz", "nnan"}}


@njit(**_MAXIMUM)
def _peak(row: Floats) -> float:
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
    divisors: Floats,
    out: Floats,
    scale: Floats,
    floor: float,
) -> None:
    """out[u] = product over chunks q of tables[first[q] + numbers[u, q]].

    Each group divided by a power of two.

    scale[u] = the sum of the chunks' log divisors and of those powers.
    """
    work = np.empty(1)
    bits = work.view(np.int64)
    last = first.size - 1
    for u in range(out.shape[0]):
        row = out[u]
        a = tables[first[0] + numbers[u, 0]]
        scale[u] = divisors[first[0] + numbers[u, 0]]
        for q in range(1, last + 1):
            scale[u] += divisors[first[q] + numbers[u, q]]
        if last == 0:
            for i in range(row.size):
                row[i] = a[i]
        for q in range(1, last + 1, 3):  # up to three more chunks in one go over the row
            b = tables[first[q] + numbers[u, q]]
            c = tables[first[min(q + 1, last)] + numbers[u, min(q + 1, last)]]
            d = tables[first[min(q + 2, last)] + numbers[u, min(q + 2, last)]]
            if q + 2 <= last:
                for i in range(row.size):
                    row[i] = a[i] * b[i] * (c[i] * d[i]) + floor
            elif q + 1 <= last:
                for i in range(row.size):
                    row[i] = a[i] * b[i] * c[i] + floor
            else:
                for i in range(row.size):
                    row[i] = a[i] * b[i] + floor
            a = row
        for group in range(shape.column.size - 1):
            part = row[shape.column[group] : shape.column[group + 1]]
            work[0] = _peak(part)
            if work[0] == 0.0:
                continue
            shift = (bits[0] >> 52) - 1022
            bits[0] = (1023 - shift) << 52
            factor = work[0]
            for i in range(part.size):
                part[i] *= factor
            scale[u] += shift * 0.6931471805599453


@njit(**OPTIONS)
def add_chunks(tables: Floats, first: Ints, numbers: Ints, out: Floats) -> None:
    """out[u] = sum over chunks of tables[first[q] + numbers[u, q]]: the same in logarithms."""
    for u in range(out.shape[0]):
        row = out[u]
        own = tables[first[0] + numbers[u, 0]]
        for i in range(row.size):
            row[i] = own[i]
        for q in range(1, first.size):
            own = tables[first[q] + numbers[u, q]]
            for i in range(row.size):
                row[i] += own[i]


@njit(**OPTIONS)
def add_to_chunks(flows: Floats, first: Ints, numbers: Ints, out: Floats) -> None:
    """out[first[q] + numbers[u, q]] += flows[u] for every chunk q.

    Sums by joint code of a chunk.
    """
    for u in range(flows.shape[0]):
        row = flows[u]
        for q in range(first.size):
            total = out[first[q] + numbers[u, q]]
            for i in range(row.size):
                total[i] += row[i]
