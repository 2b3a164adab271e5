"""A compiled check of coded values: one pass, where NumPy needs several."""

import numpy as np
from numpy.typing import NDArray

from dspn._kernel_cache import njit

Floats = NDArray[np.float64]


@njit(nogil=True, error_model="numpy")
def first_broken(values: Floats, lower: Floats, upper: Floats, whole: NDArray[np.bool_]) -> int:
    """Flat index of the first value outside [lower, upper) or with a forbidden fraction; -1: none.

    NaN passes, as every comparison with it is false.
    """
    columns = values.shape[1]
    for row in range(values.shape[0]):
        broken = False
        for column in range(columns):
            value = values[row, column]
            broken |= value < lower[column]
            broken |= value >= upper[column]
            broken |= value == -np.inf
            broken |= whole[column] & (np.floor(value) < value)
        if broken:
            for column in range(columns):
                value = values[row, column]
                if (
                    value < lower[column]
                    or value >= upper[column]
                    or value == -np.inf
                    or (whole[column] and np.floor(value) < value)
                ):
                    place: int = row * columns + column
                    return place
    return -1
