"""pandas data frames."""

from __future__ import annotations

import importlib
from collections.abc import Hashable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dspn.data.tables.base import (
    NewColumn,
    OrderColumn,
    RawColumn,
    TableLibrary,
    object_array,
)


@final
class PandasLibrary(TableLibrary):
    """Columns of pandas data frames."""

    def __init__(self) -> None:
        self._pandas = importlib.import_module("pandas")

    def opened(self, table: Any) -> Any:
        """The frame itself."""
        return table

    def column_names(self, table: Any) -> list[Hashable]:
        """Names of the columns in their order; the index is not among them."""
        return list(table.columns)

    def column(self, table: Any, name: Hashable) -> Any:
        """A column as a series, after a check of its Arrow buffers where it has some."""
        column = table[name]
        if getattr(column.dtype, "storage", "") == "pyarrow" or hasattr(
            column.dtype, "pyarrow_dtype"
        ):
            column.array.__arrow_array__().validate(full=True)
        return column

    def missing(self, column: Any) -> NDArray[np.bool_]:
        """Where a column is None, NaN, NaT or NA."""
        return np.asarray(column.isna(), dtype=np.bool_)

    def items(self, column: Any) -> list[Any]:
        """Values of a column as Python objects."""
        items: list[Any] = column.astype(object).tolist()
        return items

    def raw(self, column: Any) -> RawColumn:
        """Values of a variable's column; a Categorical declares its categories."""
        types = self._pandas.api.types
        if isinstance(column.dtype, self._pandas.CategoricalDtype):
            return RawColumn(self.items(column), declared=tuple(column.dtype.categories.tolist()))
        boolean = types.is_bool_dtype(column.dtype)
        is_number = types.is_numeric_dtype(column.dtype)
        if boolean or (is_number and not types.is_complex_dtype(column.dtype)):
            return RawColumn(column.to_numpy(dtype=np.float64, na_value=np.nan), boolean=boolean)
        return RawColumn(self.items(column))

    def order(self, column: Any) -> OrderColumn:
        """Values of an order column; an ordered Categorical sorts by its categories."""
        if isinstance(column.dtype, self._pandas.CategoricalDtype):
            ranks = column.cat.codes.to_numpy() if column.dtype.ordered else None
            return OrderColumn(object_array(self.items(column)), ranks)
        return OrderColumn(column.to_numpy(copy=True))

    def table(self, columns: list[NewColumn]) -> Any:
        """A frame with the default index; whole numbers with gaps have the nullable types."""
        return self._pandas.DataFrame({column.name: self._series(column) for column in columns})

    def _series(self, column: NewColumn) -> Any:
        values = column.values
        if column.missing is not None and column.missing.any() and isinstance(values, np.ndarray):
            if values.dtype == np.bool_:
                values = self._pandas.arrays.BooleanArray(values, column.missing)
            elif values.dtype.kind == "i":
                values = self._pandas.arrays.IntegerArray(values, column.missing)
        return self._pandas.Series(values)
