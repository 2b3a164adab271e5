"""Long tables in memory, of pandas, polars, Arrow and others: one row for each slice."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, final

import narwhals as nw
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from dspn._arrays import Floats, Ints
from dspn.data.arrays import Ids, Ragged, TableKeys
from dspn.data.cells import convertible, decode_cells, plain, read_cells
from dspn.data.coding import Column, Raw, Reading, check_names, read_items
from dspn.data.order import Keys, group_rows
from dspn.data.schema import Schema, list_names
from dspn.errors import DataError

_LIBRARIES: Final = ("pandas", "polars", "pyarrow")


@final
@dataclass(frozen=True, eq=False)
class LongTable:
    """Raw columns of a long table, its rows sorted by sequence and order."""

    values: Floats
    readings: tuple[Reading, ...]
    names: tuple[str, ...]
    ragged: Ragged
    keys: TableKeys


def read_table(
    table: Any,
    sequence: str,
    order: str | None,
    variables: Iterable[str] | None,
    schema: Schema | None,
) -> LongTable:
    """Rows sorted by sequence, in the order of first appearance, and within it by `order`.

    Args:
        table: A data frame or an Arrow table.
        sequence: Name of the column that names the sequences.
        order: Name of the column that orders their slices; None for the order of the rows.
        variables: Names of the variables; None for those of the schema or all other columns.
        schema: The variables, where they are known.
    """
    columns = _columns_of(table)
    keys = Keys(str(sequence), None if order is None else str(order))
    _require_known("sequence", [str(sequence)], columns)
    _require_known("order", keys.names[1:], columns)
    names = _variable_names(columns, keys, variables, schema)
    ids = _cells_of(columns[str(sequence)])
    if not len(ids):
        raise DataError("`table` must have at least one row, found none.")
    order_cells = None if keys.order is None else _cells_of(columns[keys.order])
    grouping = group_rows(len(ids), ids, order_cells, keys, 0, sort=True)
    ragged = Ragged(grouping.offsets, tuple(grouping.ids))
    values = np.empty((len(ids), len(names)))
    readings = []
    for j, name in enumerate(names):
        unsorted, reading = _read_column(columns[name], name, ragged)
        values[:, j] = unsorted[grouping.rows]
        readings.append(reading)
    order_values = None
    if keys.order is not None:
        with convertible(keys.order, order_cells):
            order_values = _order_values(order_cells)[grouping.rows]
    table_keys = TableKeys(str(sequence), keys.order, order_values)
    return LongTable(values, tuple(readings), names, ragged, table_keys)


def _columns_of(table: Any) -> dict[str, Any]:
    """Columns by the text of their name, for any library that narwhals knows."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        with convertible("all", table):
            table.validate()
    try:
        frame: Any = nw.from_native(table)
        frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
        series = list(frame.iter_columns())
    except nw.exceptions.DuplicateError:
        counts = Counter(map(str, getattr(table, "column_names", table.columns)))
        series = []
    except TypeError:
        raise DataError(
            "`table` must be a data frame of pandas or polars, or an Arrow table, found "
            f"{type(table).__module__}.{type(table).__name__}."
        ) from None
    else:
        counts = Counter(str(column.name) for column in series)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise DataError(f"`table` must have different column names, but {repeated} occur twice.")
    return {str(column.name): column for column in series}


def _require_known(argument: str, wanted: Iterable[str], columns: dict[str, Any]) -> None:
    for name in wanted:
        if name not in columns:
            raise DataError(
                f"`{argument}` must name a column of the table ({list_names(list(columns))}), "
                f"found {name!r} (in pandas, reset_index() makes columns of an index)."
            )


def _variable_names(
    columns: dict[str, Any], keys: Keys, variables: Iterable[str] | None, schema: Schema | None
) -> tuple[str, ...]:
    names = check_names(variables, schema, "variables")
    if names is None:
        names = tuple(name for name in columns if name not in keys.names)
    if not names:
        raise DataError("`variables` must name at least one column, found none.")
    _require_known("variables" if schema is None else "schema", names, columns)
    for name in keys.names:
        if name in names:
            raise DataError(f"column {name!r} cannot be both a variable and a key of the table.")
    if len(set(names)) < len(names):
        raise DataError(f"`variables` must differ, found {list(names)}.")
    return names


def _cells_of(column: Any) -> Any:
    """A column as one Arrow array, or as a list of objects where it holds Python objects.

    The buffers are checked before anything touches them, as Arrow trusts them.
    """
    native = column.to_native()
    if str(getattr(native, "dtype", "")).lower() == "object":
        missing = column.is_null().to_numpy()
        return [None if no else item for item, no in zip(column.to_list(), missing, strict=True)]
    with convertible(column.name, native):
        cells = getattr(native, "array", native)  # pandas keeps Arrow columns in it
        if hasattr(cells, "__arrow_array__"):
            cells = cells.__arrow_array__()
        elif not isinstance(cells, pa.ChunkedArray):
            cells = column.to_arrow()
        cells.validate(full=True)
        if isinstance(cells, pa.ChunkedArray):
            cells = cells.unify_dictionaries().combine_chunks()
    return cells


def _read_column(column: Any, name: str, ragged: Ragged) -> Raw:
    cells = _cells_of(column)
    if isinstance(cells, list):
        return read_items(cells, name)
    with convertible(name, cells):
        if types.is_dictionary(cells.type) and column.implementation.is_pandas_like():
            # Every Categorical of pandas declares its categories, in order or not.
            cells = pa.DictionaryArray.from_arrays(cells.indices, cells.dictionary, ordered=True)
        return read_cells(cells, Column(name, ragged=ragged))


def _order_values(cells: Any) -> NDArray[Any]:
    """Values of an order column: numbers and times as NumPy has them, anything else as objects."""
    if not isinstance(cells, list):
        kind = cells.type
        is_time = types.is_date(kind) or types.is_duration(kind) or types.is_timestamp(kind)
        has_zone = types.is_timestamp(kind) and kind.tz is not None
        if types.is_integer(kind) or types.is_floating(kind) or (is_time and not has_zone):
            return np.array(cells.to_numpy(zero_copy_only=False))
        cells = plain(cells).to_pylist()
    return _objects(cells)


def _objects(items: Iterable[Any]) -> NDArray[Any]:
    """One-dimensional array of objects, which may be sequences themselves."""
    listed = list(items)
    return np.fromiter(listed, dtype=object, count=len(listed))


def make_table(
    library: str, values: Floats, lengths: Ints, schema: Schema, ids: Ids | None, keys: TableKeys
) -> Any:
    """A long table: the sequence column, the order column if it has a name, the variables.

    Args:
        library: "pandas", "polars" or "pyarrow".
        values: Codes, a row for each slice.
        lengths: Number of slices of each sequence.
        schema: The variables.
        ids: Id of each sequence; None to number them.
        keys: Names of the key columns, and the order values where they are known.
    """
    if library not in _LIBRARIES:
        raise DataError(f"`library` must be one of {', '.join(_LIBRARIES)}, found {library!r}.")
    try:
        module = importlib.import_module(library)
    except ModuleNotFoundError:
        raise DataError(
            f"`library` {library!r} is not installed; install it (pip install {library}) or choose "
            "another."
        ) from None
    key_names = [keys.sequence] if keys.order is None else [keys.sequence, keys.order]
    names = [*key_names, *schema.names]
    if len(set(names)) < len(names):
        raise DataError(
            f"`sequence` and `order` must differ from each other and from the variables "
            f"({list_names(schema.names)}), found {', '.join(map(repr, key_names))}."
        )
    if ids is not None and len(set(ids)) < len(ids):
        raise DataError(
            "a table tells sequences apart by their ids, but some ids occur more than once; "
            "write `batch.with_ids(None).to_table(...)` to number them."
        )
    named = np.arange(lengths.size) if ids is None else _objects(ids)
    columns: list[Any] = [np.repeat(named, lengths)]
    if keys.order is not None and keys.order_values is None:
        columns.append(np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths))
    elif keys.order is not None:
        columns.append(keys.order_values)
    columns += [decode_cells(values[:, j], variable) for j, variable in enumerate(schema)]
    try:
        if library == "pandas":
            series = (_to_pandas(module, column) for column in columns)
            return module.DataFrame(dict(zip(names, series, strict=True)))
        arrow = pa.table([_to_arrow(column) for column in columns], names=names)
        return nw.from_arrow(arrow, backend=library).to_native()
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"ids and order values must be of one type that {library} can hold in a column: {error}"
        ) from None


def _to_arrow(column: Any) -> Any:
    is_object = isinstance(column, np.ndarray) and column.dtype == object
    return pa.array(column.tolist()) if is_object else pa.array(column)


def _to_pandas(pandas: Any, column: Any) -> Any:
    """A series; whole numbers and booleans with gaps have the nullable types."""
    if not isinstance(column, pa.Array):
        return pandas.Series(column.tolist() if column.dtype == object else column)
    nullable = {pa.int64(): pandas.Int64Dtype(), pa.bool_(): pandas.BooleanDtype()}
    return column.to_pandas(types_mapper=nullable.get if column.null_count else None)
