"""Numbers with as many digits as people want to see."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from dspn._arrays import Floats
from dspn.data.cells import with_columns


def rounded(values: Floats, digits: int | None) -> Floats:
    """The nearest numbers of so many significant digits; the same without a number of digits."""
    if digits is None:
        return values
    # Only text rounds to decimals exactly; a multiple of a power of ten may be off by one bit.
    return np.array([float(f"{value:.{digits}g}") for value in values.tolist()], dtype=np.float64)


def shortened(table: Any, digits: int | None, kept: Collection[str] = ()) -> Any:
    """The table with its numbers rounded, but for the columns that are kept."""
    if digits is None:
        return table
    columns = {}
    for place, field in enumerate(table.schema):
        if field.name in kept or not pa.types.is_floating(field.type):
            continue
        cells = table.column(place).combine_chunks()
        missing = cells.is_null().to_numpy(zero_copy_only=False)
        values = rounded(np.asarray(cells.to_numpy(zero_copy_only=False)), digits)
        columns[field.name] = pa.array(values, mask=missing)
    return with_columns(table, columns)
