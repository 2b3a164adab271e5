"""Keys of slices: all categories of a slice as one number, in one pass over the data."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dspn._arrays import Bools, Floats, Ints
from dspn.engine.kernels._options import OPTIONS


@njit(**OPTIONS)
def number_keys(values: Floats, sizes: Ints, widths: Ints, keys: Ints, missing: Bools) -> None:
    """keys[r] = codes of row r read as digits of bases `widths`; a missing entry is the digit sizes[v].

    `missing[v]` is set where a column has a missing entry; keys are only right if widths[v] > sizes[v] there.
    """
    for row in range(values.shape[0]):
        key = 0
        for v in range(sizes.size):
            value = values[row, v]
            digit = sizes[v]
            if value == value:
                digit = np.int64(value)
            else:
                missing[v] = True
            key = key * widths[v] + digit
        keys[row] = key


@njit(**OPTIONS)
def number_distinct(keys: Ints, place: NDArray[np.int32], numbers: NDArray[np.int32], rows: Ints) -> int:
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
