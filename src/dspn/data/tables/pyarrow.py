"""Arrow tables."""

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
class PyarrowLibrary(TableLibrary):
    """Columns of Arrow tables."""

    def __init__(self) -> None:
        self._pyarrow = importlib.import_module("pyarrow")
        self._types = importlib.import_module("pyarrow.types")

    def opened(self, table: Any) -> Any:
        """The table itself; a record batch becomes a table."""
        if isinstance(table, self._pyarrow.RecordBatch):
            table = self._pyarrow.Table.from_batches([table])
        table.validate()
        return table

    def column_names(self, table: Any) -> list[Hashable]:
        """Names of the columns in their order."""
        return list(table.column_names)

    def column(self, table: Any, name: Hashable) -> Any:
        """A column as one chunk, after a check of its buffers, which Arrow itself trusts."""
        column = table.column(name)
        column.validate(full=True)
        return column.unify_dictionaries().combine_chunks()

    def missing(self, column: Any) -> NDArray[np.bool_]:
        """Where a column is null or NaN."""
        missing = column.is_null(nan_is_null=self._types.is_floating(column.type))
        return np.asarray(missing.to_numpy(zero_copy_only=False), dtype=np.bool_)

    def items(self, column: Any) -> list[Any]:
        """Values of a column as Python objects."""
        items: list[Any] = column.to_pylist()
        return items

    def raw(self, column: Any) -> RawColumn:
        """Values of a variable's column; an ordered dictionary declares its categories."""
        types, kind = self._types, column.type
        boolean = types.is_boolean(kind)
        if boolean:
            column = column.cast(self._pyarrow.int8())
        if boolean or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
            numbers = column.cast(self._pyarrow.float64(), safe=False)
            return RawColumn(numbers.to_numpy(zero_copy_only=False), boolean=boolean)
        if types.is_dictionary(kind) and kind.ordered:
            return RawColumn(self.items(column), declared=tuple(column.dictionary.to_pylist()))
        return RawColumn(self.items(column))

    def order(self, column: Any) -> OrderColumn:
        """Values of an order column; an ordered dictionary sorts by its categories.

        Times with a zone sort as instants, where Python goes by the clock, which shows an hour
        twice in autumn.
        """
        types, kind = self._types, column.type
        if types.is_dictionary(kind):
            ranks = column.indices.to_numpy(zero_copy_only=False) if kind.ordered else None
            return OrderColumn(object_array(self.items(column)), ranks)
        if types.is_timestamp(kind) and kind.tz is not None:
            instants = column.cast(self._pyarrow.int64()).to_numpy(zero_copy_only=False)
            return OrderColumn(object_array(self.items(column)), instants)
        plain_time = types.is_date(kind) or types.is_duration(kind) or types.is_timestamp(kind)
        if types.is_integer(kind) or types.is_floating(kind) or plain_time:
            return OrderColumn(np.array(column.to_numpy(zero_copy_only=False)))
        return OrderColumn(object_array(self.items(column)))

    def table(self, columns: list[NewColumn]) -> Any:
        """A table with null where an entry is missing."""
        return self._pyarrow.table({column.name: self._array(column) for column in columns})

    def _array(self, column: NewColumn) -> Any:
        kind = self._pyarrow.string() if column.text else None
        return self._pyarrow.array(column.values, type=kind, mask=column.missing)
