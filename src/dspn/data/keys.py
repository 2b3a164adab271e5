"""What a batch remembers of the table it was read from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray


@final
@dataclass(frozen=True, eq=False)
class TableKeys:
    """Names of the sequence and order columns of a table, and the order column's values.

    `order_values` has one entry for each slice, in the order of the batch; it is None when the
    table had no order column or when the order of some slice is not known.
    """

    sequence: str
    order: str | None = None
    order_values: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if self.order_values is not None:
            self.order_values.flags.writeable = False

    def rows(self, rows: slice | NDArray[np.int64]) -> TableKeys:
        """Keys of the rows picked out."""
        if self.order_values is None:
            return self
        return replace(self, order_values=self.order_values[rows])

    def without_order_values(self) -> TableKeys:
        """The names alone."""
        return replace(self, order_values=None)
