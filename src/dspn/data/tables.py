"""Long tables in memory, of pandas, polars, Arrow and others: one row for each slice."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import narwhals as nw
import numpy as np
import pyarrow as pa
from pyarrow import types

from dspn._arguments import Floats, Ints
from dspn.data.cells import convertible, decode_cells, plain, read_cells
from dspn.data.coding import Raw, Reading, read_items
from dspn.data.grid import AS_IT_IS, Grid, Plan, plan_grid
from dspn.data.inputs import CALENDAR
from dspn.data.layout import Column, Ragged, TableKeys, check_names, offsets_of
from dspn.data.order import (
    Keys,
    group_rows,
    order_cells,
    require_columns,
    require_different,
    values_of,
    variable_names,
    with_order_type,
)
from dspn.data.schema import Schema, Variable, list_names
from dspn.data.sequences import Sequences
from dspn.errors import DataError

_LIBRARIES: Final = ("pandas", "polars", "pyarrow")

Columns = tuple[Floats, list[Reading]]
"""Raw columns side by side, and what their numbers stand for."""


def read_table(
    table: Any,
    sequence: str | None,
    order: str | None,
    variables: Iterable[str] | None,
    schema: Schema | None,
    inputs: Sequence[str | Variable] | None,
    grid: Grid = AS_IT_IS,
    dates: str | None = None,
) -> tuple[Columns, tuple[str, ...], Ragged, TableKeys, tuple[Floats, list[Reading], list[str]]]:
    """Raw columns of the variables, their names, the sequences of the rows, and the keys.

    Last come the raw columns of the inputs without a rule, and their names.

    The rows are sorted by sequence, in the order of first appearance, and within it by `order`.

    Args:
        table: A data frame or an Arrow table.
        sequence: Name of the column that names the sequences; None for one sequence.
        order: Name of the column that orders their slices; None for the order of the rows.
        variables: Names of the variables; None for those of the schema or all other columns.
        schema: The variables, where they are known.
        inputs: Columns that are inputs, and inputs; None for those of the schema.
        grid: What becomes of rows of one time, and of slices that are not there.
        dates: How the times of an order column of text are written.
    """
    table = with_index_columns(table, [name for name in (sequence, order) if name is not None])
    series = _open(table)
    title, columns = "`table`", list(series)
    keys = Keys(
        None if sequence is None else str(sequence),
        None if order is None else str(order),
        dates=dates,
    )
    names = check_names(variables, schema, "variables")
    own = inputs if inputs is not None else () if schema is None else schema.inputs
    given = [item if isinstance(item, str) else item.name for item in own if _is_given(item)]
    remedy = "name another; in pandas, reset_index() makes columns of an index"
    require_columns(title, columns, keys.names, remedy)
    if schema is not None:
        remedy = "the schema has it as a variable: add it, with None where it is not known"
    require_columns(title, columns, names or (), remedy)
    for name in given:
        require_columns(title, columns, [name], _remedy_for_input(name, schema))
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
    ids = None if keys.sequence is None else _cells_of(series[keys.sequence])
    count = len(_cells_of(series[columns[0]])) if ids is None else len(ids)
    if not count:
        raise DataError("`table` must have at least one row, found none.")
    ordered = None if keys.order is None else _cells_of(series[keys.order])
    repeats = grid.duplicates != "error"
    keys = with_order_type(keys, _as_arrow(ordered)) if dates is not None else keys
    grouping = group_rows(count, ids, ordered, keys, 0, sort=True, repeats=repeats)
    plan = Plan(grouping.rows, grouping.offsets, None)
    if grid.changes:
        plan = plan_grid(None if ordered is None else _as_arrow(ordered), grouping, keys, grid, 0)
    ragged = Ragged(grouping.offsets, tuple(grouping.ids))
    regular = Ragged(plan.offsets, None if ids is None else tuple(grouping.ids))

    def read(wanted: Sequence[str]) -> Columns:
        values, readings = np.empty((plan.index.size, len(wanted))), []
        for j, name in enumerate(wanted):
            unsorted, reading = _read_column(series[name], name, ragged)
            is_number = reading.labels is None and reading.declared is None
            values[:, j] = plan.take_numbers(unsorted, averaged=is_number)
            readings.append(reading)
        return values, readings

    order_values = None
    if keys.order is not None:
        with convertible(keys.order, ordered):
            order_values = values_of(_ordered(ordered, plan, keys))
    found = TableKeys(keys.sequence or "sequence", keys.order, order_values)
    return read(names), names, regular, found, (*read(given), given)


def _as_arrow(cells: Any) -> Any:
    """Cells as Arrow has them."""
    return pa.array(cells) if isinstance(cells, list) else cells


def _ordered(cells: Any, plan: Plan, keys: Keys) -> Any:
    """Values of the order column by slices, also of those that were put in."""
    if plan.ticks is None and isinstance(cells, list):
        return [cells[row] for row in plan.index.tolist()]
    cells = plain(_as_arrow(cells))
    taken = plan.take(cells)
    return taken if plan.ticks is None else order_cells(plan.ticks, taken, cells, keys)


def with_index_columns(table: Any, wanted: Sequence[str]) -> Any:
    """A frame of pandas with the levels of its index that are wanted as columns."""
    names = getattr(getattr(table, "index", None), "names", None)
    levels = [name for name in names or () if name is not None and str(name) in wanted]
    return table.reset_index(level=levels) if levels else table


def read_frames(
    frames: Sequence[Any], names: Sequence[str] | None, argument: str
) -> tuple[tuple[Floats, list[Reading]], tuple[str, ...], Ints]:
    """Raw columns of frames one below the other, matched by name, and the lengths of the frames.

    Args:
        frames: Frames of one library, each a sequence.
        names: The columns of the variables; None for those of the first frame.
        argument: What messages call the frames.
    """
    opened = [nw.from_native(frame) for frame in frames]
    columns = [tuple(map(str, frame.columns)) for frame in opened]
    wanted = columns[0] if names is None else tuple(names)
    for number, own in enumerate(columns):
        title = f"sequence {number} of `{argument}`"
        require_different(title, own)
        require_columns(title, own, wanted)
        if len(own) > len(wanted):
            more = next(name for name in own if name not in wanted)
            raise DataError(
                f"{title} must have the columns {list_names(wanted)}, but also has {more!r}; leave "
                "it out. One table with a column of ids is read with `sequence=`."
            )
    try:
        whole = nw.concat([frame.select(frame.columns) for frame in opened], how="diagonal")
    except Exception as error:
        raise DataError(f"the frames of `{argument}` must have the same types: {error}.") from None
    series = _open(whole.to_native())
    lengths = np.array([len(frame) for frame in opened], dtype=np.int64)
    ragged = Ragged(offsets_of(np.maximum(lengths, 1)), None)
    raw = [_read_column(series[name], name, ragged) for name in wanted]
    values = np.column_stack([own for own, _ in raw]) if raw else np.empty((0, 0))
    return (values, [reading for _, reading in raw]), wanted, lengths


def _remedy_for_input(name: str, schema: Schema | None) -> str:
    if schema is not None:
        return "the schema has it as an input: add it"
    if name in CALENDAR:
        return f"for the {name} of the order column give the rule dspn.inputs.Calendar({name!r})"
    return "name another, or give a rule of `dspn.inputs`"


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


def make_table(batch: Sequences, library: str, keys: TableKeys) -> Any:
    """A long table: the sequence column, the order column if it has a name, variables, inputs.

    Args:
        batch: The sequences.
        library: "pandas", "polars" or "pyarrow".
        keys: Names of the key columns, and the order values where they are known.
    """
    _open_library(library)
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
    return make_frame(dict(zip(names, columns, strict=True)), library)


def _open_library(library: str) -> Any:
    """The module of a library of data frames."""
    if library not in _LIBRARIES:
        raise DataError(f"`library` must be one of {', '.join(_LIBRARIES)}, found {library!r}.")
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError:
        raise DataError(
            f"`library` {library!r} is not installed; install it (pip install {library}) or choose "
            "another."
        ) from None


def make_frame(columns: Mapping[str, Any], library: str) -> Any:
    """A data frame, or an Arrow table, of columns of Arrow cells, arrays or lists."""
    module = _open_library(library)
    try:
        if library == "pandas":
            return module.DataFrame(
                {own: _to_pandas(module, cells) for own, cells in columns.items()}
            )
        arrow = pa.table(dict(columns))
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
