"""Long tables in memory, of pandas, polars, Arrow and others: one row for each slice."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import narwhals as nw
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from dspn._arguments import Floats
from dspn.data.cells import convertible, decode_cells, plain, read_cells
from dspn.data.coding import Raw, Reading, read_items
from dspn.data.layout import Column, Ragged, TableKeys, check_names
from dspn.data.order import Keys, group_rows, require_columns, require_different, variable_names
from dspn.data.schema import Schema, Variable, list_names
from dspn.data.sequences import Sequences
from dspn.errors import DataError

_LIBRARIES: Final = ("pandas", "polars", "pyarrow")

Columns = tuple[Floats, list[Reading]]
"""Raw columns side by side, and what their numbers stand for."""


def read_table(
    table: Any,
    sequence: str,
    order: str | None,
    variables: Iterable[str] | None,
    schema: Schema | None,
    inputs: Sequence[str | Variable] | None,
) -> tuple[Columns, tuple[str, ...], Ragged, TableKeys, tuple[Floats, list[Reading], list[str]]]:
    """Raw columns of the variables, their names, the sequences of the rows, and the keys.

    Last come the raw columns of the inputs without a rule, and their names.

    The rows are sorted by sequence, in the order of first appearance, and within it by `order`.

    Args:
        table: A data frame or an Arrow table.
        sequence: Name of the column that names the sequences.
        order: Name of the column that orders their slices; None for the order of the rows.
        variables: Names of the variables; None for those of the schema or all other columns.
        schema: The variables, where they are known.
        inputs: Columns that are inputs, and inputs; None for those of the schema.
    """
    series = _open(table)
    title, columns = "`table`", list(series)
    keys = Keys(str(sequence), None if order is None else str(order))
    names = check_names(variables, schema, "variables")
    own = inputs if inputs is not None else () if schema is None else schema.inputs
    given = [item if isinstance(item, str) else item.name for item in own if _is_given(item)]
    remedy = "name another; in pandas, reset_index() makes columns of an index"
    require_columns(title, columns, [*keys.names, *(names or ()), *given], remedy)
    if names is None:
        names = tuple(name for name in columns if name not in {*keys.names, *given})
    names = tuple(variable_names(title, columns, keys, names))
    for name in given:
        if name in keys.names:
            raise DataError(f"column {name!r} cannot be both an input and a key.")
        if name in names:
            raise DataError(
                f"column {name!r} cannot be both a variable and an input; leave it out of one."
            )
    ids = _cells_of(series[str(sequence)])
    if not len(ids):
        raise DataError("`table` must have at least one row, found none.")
    order_cells = None if keys.order is None else _cells_of(series[keys.order])
    grouping = group_rows(len(ids), ids, order_cells, keys, 0, sort=True)
    ragged = Ragged(grouping.offsets, tuple(grouping.ids))

    def read(wanted: Sequence[str]) -> Columns:
        values, readings = np.empty((len(ids), len(wanted))), []
        for j, name in enumerate(wanted):
            unsorted, reading = _read_column(series[name], name, ragged)
            values[:, j] = unsorted[grouping.rows]
            readings.append(reading)
        return values, readings

    order_values = None
    if keys.order is not None:
        with convertible(keys.order, order_cells):
            order_values = _order_values(order_cells)[grouping.rows]
    found = TableKeys(str(sequence), keys.order, order_values)
    return read(names), names, ragged, found, (*read(given), given)


def _is_given(item: str | Variable) -> bool:
    return isinstance(item, str) or item.rule is None


def _open(table: Any) -> dict[str, Any]:
    """The columns of a table of any library that narwhals knows, by the text of their names."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    try:
        if isinstance(table, pa.Table):
            table.validate()
        frame: Any = nw.from_native(table)
        frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
        series = {str(column.name): column for column in frame.iter_columns()}
        names = list(map(str, frame.columns))
    except nw.exceptions.DuplicateError:
        names = list(map(str, getattr(table, "column_names", table.columns)))
    except pa.ArrowException as error:
        raise DataError(f"`table` is damaged: {error}; make it again.") from None
    except TypeError:
        raise DataError(
            "`table` must be a data frame of pandas or polars, or an Arrow table, found "
            f"{type(table).__module__}.{type(table).__name__}."
        ) from None
    require_different("`table`", names)
    return series


def _cells_of(column: Any) -> Any:
    """A column as one Arrow array, or as a list of objects where it holds Python objects.

    The buffers are checked before anything touches them, as Arrow trusts them.
    """
    native = column.to_native()
    if str(getattr(native, "dtype", "")).lower() == "object":
        missing, items = column.is_null().to_numpy(), column.to_list()
        for row in np.flatnonzero(missing):
            items[row] = None
        return items
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
    return np.fromiter(cells, dtype=object, count=len(cells))


def make_table(batch: Sequences, library: str, keys: TableKeys) -> Any:
    """A long table: the sequence column, the order column if it has a name, variables, inputs.

    Args:
        batch: The sequences.
        library: "pandas", "polars" or "pyarrow".
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
    ids, lengths, schema = batch.ids, batch.lengths, batch.schema
    if ids is not None and len(set(ids)) < len(ids):
        raise DataError(
            "a table tells sequences apart by their ids, but some ids occur more than once; "
            "write `batch.with_ids(None).to_table(...)` to number them."
        )
    columns: list[Any] = [np.repeat(np.arange(len(batch)), lengths)]
    if ids is not None:
        columns = [np.fromiter(ids, dtype=object, count=len(ids))[columns[0]].tolist()]
    order = keys.order_values
    if keys.order is not None and order is None:
        columns.append(np.arange(batch.total_slices) - np.repeat(batch.offsets[:-1], lengths))
    elif order is not None:
        columns.append(order.tolist() if order.dtype == object else order)
    columns += [decode_cells(batch.values[:, j], variable) for j, variable in enumerate(schema)]
    columns += [decode_cells(batch.inputs[:, j], own) for j, own in enumerate(schema.inputs)]
    names = [name for name in (keys.sequence, keys.order) if name is not None] + list(schema.names)
    names += [own.name for own in schema.inputs]
    if len(set(names)) < len(names):
        raise DataError(
            f"`sequence` and `order` must differ from each other and from the variables "
            f"({list_names(schema.names)}), found {keys.sequence!r} and {keys.order!r}."
        )
    try:
        if library == "pandas":
            columns = [_to_pandas(module, column) for column in columns]
            return module.DataFrame(dict(zip(names, columns, strict=True)))
        arrow = pa.table(dict(zip(names, columns, strict=True)))
        return nw.from_arrow(arrow, backend=module).to_native()
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"ids and order values must be of one type that {library} can hold in a column: {error}"
        ) from None


def _to_pandas(pandas: Any, column: Any) -> Any:
    """A series; whole numbers and booleans with gaps have the nullable types."""
    if not isinstance(column, pa.Array):
        return pandas.Series(column)
    nullable = {pa.int64(): pandas.Int64Dtype(), pa.bool_(): pandas.BooleanDtype()}
    return column.to_pandas(types_mapper=nullable.get if column.null_count else None)
