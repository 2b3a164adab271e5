"""Long tables: one row for each slice, with a column that names the sequence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dspn.data._checks import Ids
from dspn.data._coding import decoded_column, holds_whole_numbers
from dspn.data._columns import RawBlock, Reading, read_items
from dspn.data.keys import TableKeys
from dspn.data.schema import Schema, Variable
from dspn.data.tables.base import NewColumn, RawColumn, TableLibrary, object_array
from dspn.data.tables.choice import library_named, library_of
from dspn.errors import DataError, DspnError


@final
@dataclass(frozen=True)
class LongTable:
    """What was read from a long table, its rows sorted by sequence and order."""

    block: RawBlock
    names: tuple[str, ...]
    lengths: NDArray[np.int64]
    ids: Ids
    keys: TableKeys


def read_long_table(
    table: Any,
    sequence: str,
    order: str | None,
    variables: Iterable[str] | None,
    schema: Schema | None,
) -> LongTable:
    """Rows sorted by sequence, in the order of first appearance, and within it by `order`."""
    library = library_of(table)
    with _readable("`table`"):
        table = library.opened(table)
        columns = _columns_by_name(library.column_names(table))
    sequence, order = str(sequence), None if order is None else str(order)
    _check_known("sequence", [sequence], columns)
    if order is not None:
        _check_known("order", [order], columns)
    keys = [key for key in (sequence, order) if key is not None]
    names = _variable_names(columns, keys, variables, schema)
    with _readable(f"column {sequence!r} of `table`"):
        ids, codes = _sequence_codes(library, library.column(table, columns[sequence]), sequence)
    if order is None:
        rows = np.argsort(codes, kind="stable")
        order_values = None
    else:
        with _readable(f"column {order!r} of `table`"):
            column = library.column(table, columns[order])
            rows, order_values = _sorted_rows(library, column, codes, ids, (sequence, order))
    values = np.empty((len(codes), len(names)), dtype=np.float64)
    readings = []
    for j, name in enumerate(names):
        with _readable(f"column {name!r} of `table`"):
            raw = library.raw(library.column(table, columns[name]))
            unsorted, reading = _read(raw, name)
            values[:, j] = unsorted[rows]
        readings.append(reading)
    lengths = np.bincount(codes, minlength=len(ids)).astype(np.int64)
    table_keys = TableKeys(sequence, order, order_values)
    return LongTable(RawBlock(values, tuple(readings)), names, lengths, ids, table_keys)


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """What the library of the table cannot read, in words that name the column."""
    try:
        yield
    except DspnError:
        raise
    except (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError) as error:
        raise DataError(f"{what} cannot be read: {error}; convert it, or make it again.") from None


def _columns_by_name(columns: list[Hashable]) -> dict[str, Hashable]:
    names = {str(column): column for column in columns}
    if len(names) < len(columns):
        repeated = sorted(name for name, n in Counter(map(str, columns)).items() if n > 1)
        raise DataError(f"`table` must have different column names, but {repeated} occur twice.")
    return names


def _check_known(argument: str, wanted: Iterable[str], columns: dict[str, Hashable]) -> None:
    for name in wanted:
        if name not in columns:
            raise DataError(
                f"`{argument}` must name a column of the table ({', '.join(columns)}), found "
                f"{name!r} (in pandas, reset_index() makes columns of an index)."
            )


def _variable_names(
    columns: dict[str, Hashable],
    keys: list[str],
    variables: Iterable[str] | None,
    schema: Schema | None,
) -> tuple[str, ...]:
    if isinstance(variables, str):
        raise DataError(f"`variables` must be a list of names; write [{variables!r}].")
    names = None if variables is None else tuple(map(str, variables))
    if schema is not None:
        if not isinstance(schema, Schema):
            raise DataError(f"`schema` must be a Schema, found {type(schema).__name__}.")
        if names is not None and names != schema.names:
            raise DataError(
                f"`variables` must be those of `schema`, {list(schema.names)}, when both are "
                f"given, found {list(names)}; leave `variables` out."
            )
        names = schema.names
    if names is None:
        names = tuple(name for name in columns if name not in keys)
    if not names:
        raise DataError("`variables` must name at least one column, found none.")
    _check_known("variables" if schema is None else "schema", names, columns)
    for name in keys:
        if name in names:
            raise DataError(f"column {name!r} cannot be both a variable and a key of the table.")
    if len(set(names)) < len(names):
        raise DataError(f"`variables` must differ, found {list(names)}.")
    return names


def _sequence_codes(library: TableLibrary, column: Any, name: str) -> tuple[Ids, NDArray[np.int64]]:
    missing = library.missing(column)
    if not missing.size:
        raise DataError("`table` must have at least one row, found none.")
    if missing.any():
        row = int(np.argmax(missing))
        raise DataError(
            f"`sequence` column {name!r} must name the sequence of every row, but row {row} has "
            "no value."
        )
    items = library.items(column)
    try:
        position = {item: index for index, item in enumerate(dict.fromkeys(items))}
    except TypeError:
        raise DataError(
            f"`sequence` column {name!r} must hold hashable values, such as strings or numbers."
        ) from None
    return tuple(position), np.fromiter(map(position.__getitem__, items), np.int64, len(items))


def _sorted_rows(
    library: TableLibrary,
    column: Any,
    codes: NDArray[np.int64],
    ids: Ids,
    names: tuple[str, str],
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    sequence, order = names
    missing = library.missing(column)
    if missing.any():
        row = int(np.argmax(missing))
        raise DataError(f"`order` column {order!r} must have a value, but row {row} has none.")
    found = library.order(column)
    ranks = found.ranks if found.ranks is not None else _ranks(found.values, order)
    rows = np.lexsort((ranks, codes))
    repeated = (np.diff(codes[rows]) == 0) & (ranks[rows[1:]] == ranks[rows[:-1]])
    if repeated.any():
        row = int(rows[int(np.argmax(repeated))])
        raise DataError(
            f"rows of one sequence must differ in their order, but {sequence} = "
            f"{ids[codes[row]]!r} with {order} = {found.values[row]!s} occurs more than once."
        )
    return rows, found.values[rows]


def _ranks(values: NDArray[Any], name: str) -> NDArray[Any]:
    if values.dtype != object:
        return values
    items = values.tolist()
    try:
        rank = {item: index for index, item in enumerate(sorted(set(items)))}
    except TypeError as error:
        raise DataError(f"`order` column {name!r} must hold sortable values: {error}.") from None
    return np.fromiter(map(rank.__getitem__, items), np.int64, len(items))


def _read(raw: RawColumn, name: str) -> tuple[NDArray[np.float64], Reading]:
    if isinstance(raw.items, list):
        values, reading = read_items(raw.items, name)
        return values, Reading(reading.labels, reading.boolean, raw.declared)
    return raw.items, Reading(boolean=raw.boolean)


def long_table(
    library: str,
    values: NDArray[np.float64],
    lengths: NDArray[np.int64],
    schema: Schema,
    ids: Ids | None,
    keys: TableKeys,
) -> Any:
    """One row for each slice: the sequence column, the order column if named, the variables."""
    maker = library_named(library)
    key_names = [keys.sequence] if keys.order is None else [keys.sequence, keys.order]
    used = [*key_names, *schema.names]
    if len(set(used)) < len(used):
        raise DataError(
            f"`sequence` and `order` must differ from each other and from the variables "
            f"({', '.join(schema.names)}), found {', '.join(map(repr, key_names))}."
        )
    columns = [_id_column(keys.sequence, ids, lengths)]
    if keys.order is not None:
        columns.append(_order_column(keys.order, keys.order_values, lengths))
    for j, variable in enumerate(schema):
        columns.append(_variable_column(variable, values[:, j]))
    try:
        return maker.table(columns)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"ids and order values must be of one type that {library} can hold in a column: {error}"
        ) from None


def _id_column(name: str, ids: Ids | None, lengths: NDArray[np.int64]) -> NewColumn:
    if ids is None:
        return NewColumn(name, np.repeat(np.arange(lengths.size), lengths))
    if len(set(ids)) < len(ids):
        raise DataError(
            "a table tells sequences apart by their ids, but some ids occur more than once; "
            "write `batch.with_ids(None).to_table(...)` to number them."
        )
    kinds = set(map(type, ids))
    if kinds == {int} and all(-(2**63) <= item < 2**63 for item in ids):  # type: ignore[operator]
        return NewColumn(name, np.repeat(np.array(ids, dtype=np.int64), lengths))
    repeated = np.repeat(object_array(list(ids)), lengths)
    return NewColumn(name, repeated.tolist(), text=kinds == {str})


def _order_column(
    name: str, order_values: NDArray[Any] | None, lengths: NDArray[np.int64]
) -> NewColumn:
    if order_values is None:
        starts = np.cumsum(lengths) - lengths
        return NewColumn(name, np.arange(lengths.sum()) - np.repeat(starts, lengths))
    if order_values.dtype == object:
        return NewColumn(name, order_values.tolist())
    return NewColumn(name, order_values)


def _variable_column(variable: Variable, coded: NDArray[np.float64]) -> NewColumn:
    decoded = decoded_column(coded, variable)
    missing = np.isnan(coded)
    if decoded.dtype == object and isinstance(variable.categories[0], str):
        return NewColumn(variable.name, decoded.tolist(), text=True)
    if decoded.dtype == object:
        decoded[missing] = False
        return NewColumn(variable.name, decoded.astype(np.bool_), missing)
    if holds_whole_numbers(variable):
        whole = np.where(missing, 0, decoded).astype(np.int64)
        return NewColumn(variable.name, whole, missing)
    return NewColumn(variable.name, np.ascontiguousarray(decoded), missing)
