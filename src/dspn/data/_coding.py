"""Categories to codes and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspn._checks import require_type
from dspn.data._checks import Ragged, check_values, shortened
from dspn.data._columns import RawBlock, Reading
from dspn.data._inference import inferred_schema
from dspn.data.schema import Kind, Schema, Variable
from dspn.errors import DataError

Coded = tuple[NDArray[np.float64], Schema, tuple[str, ...]]


def column_names(
    width: int, schema: Schema | None, names: Iterable[str] | None, argument: str
) -> tuple[str, ...]:
    """Names of the columns: those of the schema, those given, or x0, x1, ..."""
    if isinstance(names, str):
        raise DataError(f"`names` must be a list of names; write [{names!r}].")
    given = None if names is None else tuple(names)
    if schema is not None:
        require_type(schema, Schema, "schema", DataError)
        if given is not None and given != schema.names:
            raise DataError(
                f"`names` must be those of `schema`, {list(schema.names)}, when both are given, "
                f"found {list(given)}; leave `names` out."
            )
        if len(schema) != width:
            raise DataError(
                f"`{argument}` must have a column for each variable of the schema, but has {width} "
                f"columns where the schema names {len(schema)}: {', '.join(schema.names)}."
            )
        return schema.names
    if given is None:
        return tuple(f"x{column}" for column in range(width))
    if len(given) != width:
        raise DataError(
            f"`names` must name one variable for each of the {width} columns of `{argument}`, "
            f"but names {len(given)}: {', '.join(map(str, given))}."
        )
    return given


def coded(block: RawBlock, names: tuple[str, ...], schema: Schema | None, ragged: Ragged) -> Coded:
    """Coded values of raw columns, with the schema given or the one inferred and its notes."""
    notes: tuple[str, ...] = ()
    if schema is None:
        schema, notes = inferred_schema(block, names)
    for column, variable in enumerate(schema):
        _encode(block.values[:, column], variable, block.readings[column], ragged)
    check_values(block.values, schema, ragged)
    return block.values, schema, notes


def _encode(
    column: NDArray[np.float64], variable: Variable, reading: Reading, ragged: Ragged
) -> None:
    has_text_categories = bool(variable.categories) and isinstance(variable.categories[0], str)
    if reading.labels:
        if not has_text_categories:
            row = int(np.argmin(np.isnan(column)))
            raise DataError(
                f"variable {variable.name!r} is {_expected(variable)}, but is the string "
                f"{reading.labels[int(column[row])]!r} in {ragged.place(row)}."
            )
        _encode_text(column, variable, reading.labels, ragged)
    elif has_text_categories:
        if not np.isnan(column).all():
            row = int(np.argmin(np.isnan(column)))
            raise DataError(
                f"variable {variable.name!r} is {_expected(variable)}, but is the number "
                f"{column[row]:g} in {ragged.place(row)}; give the category itself, or read data "
                "that hold codes by `Sequences.from_codes`."
            )
    elif not codes_are_values(variable):
        _encode_numbers(column, variable, ragged)


def codes_are_values(variable: Variable) -> bool:
    """Whether the values of a variable stand for themselves: numbers, or categories 0, 1, 2, ..."""
    return variable.categories == tuple(range(variable.num_categories))


def _expected(variable: Variable) -> str:
    if variable.kind is Kind.CATEGORICAL:
        return f"categorical with the categories {shortened(variable.categories)}"
    return str(variable.kind)


def _encode_text(
    column: NDArray[np.float64], variable: Variable, labels: tuple[str, ...], ragged: Ragged
) -> None:
    code = {category: index for index, category in enumerate(variable.categories)}
    unknown = [position for position, label in enumerate(labels) if label not in code]
    if unknown:
        row = int(np.argmax(np.isin(column, unknown)))
        raise _unknown_category(labels[int(column[row])], variable, ragged.place(row))
    table = np.array([code[label] for label in labels], dtype=np.float64)
    if not np.array_equal(table, np.arange(len(labels))):
        present = ~np.isnan(column)
        column[present] = table[column[present].astype(np.int64)]


def _encode_numbers(column: NDArray[np.float64], variable: Variable, ragged: Ragged) -> None:
    categories = np.array(variable.categories, dtype=np.float64)
    order = np.argsort(categories)
    position = np.searchsorted(categories, column, sorter=order)
    code = order[np.minimum(position, len(categories) - 1)]
    present = ~np.isnan(column)
    unknown = present & (categories[code] != column)
    if unknown.any():
        row = int(np.argmax(unknown))
        raise _unknown_category(column[row], variable, ragged.place(row))
    column[present] = code[present]


def _unknown_category(value: Any, variable: Variable, place: str) -> DataError:
    shown = repr(value) if isinstance(value, str) else f"{value:g}"
    return DataError(
        f"variable {variable.name!r} must be one of its categories, "
        f"{shortened(variable.categories)}, but is {shown} in {place}; give a schema that has "
        "this category, or mark the entry as missing."
    )


def decoded_column(column: NDArray[np.float64], variable: Variable) -> NDArray[Any]:
    """Values of a coded column: objects with None where missing, or plain numbers with NaN.

    Objects are used for text and boolean categories.
    """
    if variable.kind is not Kind.CATEGORICAL:
        return column
    missing = np.isnan(column)
    codes = np.where(missing, len(variable.categories), column).astype(np.int64)
    if isinstance(variable.categories[0], str | bool):
        return np.fromiter((*variable.categories, None), dtype=object)[codes]
    return np.array((*variable.categories, np.nan), dtype=np.float64)[codes]


def holds_whole_numbers(variable: Variable) -> bool:
    """Whether every value of the variable is a whole number, and not a boolean."""
    if variable.kind is Kind.CATEGORICAL:
        return all(isinstance(c, int) and not isinstance(c, bool) for c in variable.categories)
    return variable.kind is Kind.COUNT


def decoded_matrix(values: NDArray[np.float64], schema: Schema) -> NDArray[Any]:
    """Coded values as the values they stand for.

    A float matrix when every variable is numeric; otherwise an object matrix with None where an
    entry is missing, in which whole numbers are Python ints.
    """
    columns = [decoded_column(values[:, j], variable) for j, variable in enumerate(schema)]
    if all(column.dtype != object for column in columns):
        return np.column_stack(columns)
    matrix = np.full(values.shape, None, dtype=object)
    for j, (column, variable) in enumerate(zip(columns, schema, strict=True)):
        present = ~np.isnan(values[:, j])
        kept = column[present]
        matrix[present, j] = kept.astype(np.int64) if holds_whole_numbers(variable) else kept
    return matrix
