"""Names for the array types that appear in signatures throughout the package."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def read_only(array: Floats) -> Floats:
    """A C-contiguous float64 copy that nobody can write to."""
    copy = np.array(array, dtype=np.float64, order="C", copy=True)
    copy.flags.writeable = False
    return copy
