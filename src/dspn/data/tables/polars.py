"""polars data frames."""

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

_TIME_UNITS = ("D", "ms", "us", "ns")


@final
class PolarsLibrary(TableLibrary):
    """Columns of polars data frames."""

    def __init__(self) -> None:
        self._polars = importlib.import_module("polars")

    def opened(self, table: Any) -> Any:
        """The frame itself; a lazy frame is collected."""
        return table.collect() if isinstance(table, self._polars.LazyFrame) else table

    def column_names(self, table: Any) -> list[Hashable]:
        """Names of the columns in their order."""
        return list(table.columns)

    def column(self, table: Any, name: Hashable) -> Any:
        """A column as a series."""
        return table.get_column(name)

    def missing(self, column: Any) -> NDArray[np.bool_]:
        """Where a column is null or NaN."""
        missing = column.is_null()
        if column.dtype.is_float():
            missing = missing | column.is_nan().fill_null(False)
        return np.asarray(missing.to_numpy(), dtype=np.bool_)

    def items(self, column: Any) -> list[Any]:
        """Values of a column as Python objects."""
        items: list[Any] = column.to_list()
        return items

    def raw(self, column: Any) -> RawColumn:
        """Values of a variable's column; an Enum declares its categories."""
        boolean = column.dtype == self._polars.Boolean
        if boolean or column.dtype.is_numeric():
            return RawColumn(column.cast(self._polars.Float64).to_numpy(), boolean=boolean)
        if column.dtype == self._polars.Enum:
            return RawColumn(self.items(column), declared=tuple(column.dtype.categories))
        return RawColumn(self.items(column))

    def order(self, column: Any) -> OrderColumn:
        """Values of an order column; an Enum sorts by its categories.

        Times with a zone sort as instants, where Python goes by the clock, which shows an hour
        twice in autumn.
        """
        polars, dtype = self._polars, column.dtype
        has_zone = dtype == polars.Datetime and dtype.time_zone is not None
        if dtype == polars.Enum or has_zone:
            return OrderColumn(object_array(self.items(column)), column.to_physical().to_numpy())
        plain_time = dtype in (polars.Datetime, polars.Date, polars.Duration)
        if dtype.is_integer() or dtype.is_float() or plain_time:
            return OrderColumn(column.to_numpy(writable=True))
        return OrderColumn(object_array(self.items(column)))

    def table(self, columns: list[NewColumn]) -> Any:
        """A frame with null where an entry is missing."""
        return self._polars.DataFrame([self._series(column) for column in columns])

    def _series(self, column: NewColumn) -> Any:
        polars, values = self._polars, column.values
        if isinstance(values, list):
            return polars.Series(column.name, values, dtype=polars.String if column.text else None)
        if values.dtype.kind in "mM" and np.datetime_data(values.dtype)[0] not in _TIME_UNITS:
            values = values.astype(f"{values.dtype.kind}8[us]")
        series = polars.Series(column.name, values, nan_to_null=True)
        if column.missing is None or not column.missing.any():
            return series
        present = polars.Series(~column.missing)
        return series.to_frame().select(polars.when(present).then(column.name)).to_series()
