"""Codes and keys of slices; a key is all codes of a slice as one number."""

import numpy as np
from numpy.typing import NDArray

from dspn._arrays import Bools, Floats, Ints
from dspn._kernel_cache import njit
from dspn.engine.cpu.kernels._options import OPTIONS


@njit(**OPTIONS)
def number_keys(values: Floats, sizes: Ints, widths: Ints, keys: Ints) -> None:
    """keys[r] = codes of row r read as digits of bases `widths`; a missing entry is sizes[v]."""
    for row in range(values.shape[0]):
        key = 0
        for v in range(sizes.size):
            value = values[row, v]
            key = key * widths[v] + (np.int64(value) if value == value else sizes[v])
        keys[row] = key


@njit(**OPTIONS)
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


@njit(**OPTIONS)
def number_chunks(
    codes: NDArray[np.int32], widths: Ints, chunk_of: Ints, numbers: NDArray[np.int32]
) -> None:
    """numbers[r, q] = codes of chunk q's factors at row r, read as digits of bases `widths`."""
    for row in range(codes.shape[0]):
        for factor in range(widths.size):
            chunk = chunk_of[factor]
            numbers[row, chunk] = numbers[row, chunk] * widths[factor] + codes[row, factor]


@njit(**OPTIONS)
def category_codes(values: Floats, sizes: Ints, codes: NDArray[np.int32]) -> None:
    """Codes = values as whole numbers; a missing entry has the code sizes[v]."""
    for row in range(values.shape[0]):
        for v in range(sizes.size):
            value = values[row, v]
            codes[row, v] = np.int32(value) if value == value else sizes[v]


@njit(**OPTIONS)
def has_missing(values: Floats) -> Bools:
    """Which columns have a missing entry."""
    found = np.zeros(values.shape[1], dtype=np.bool_)
    for row in range(values.shape[0]):
        for v in range(values.shape[1]):
            found[v] |= values[row, v] != values[row, v]
    return found
