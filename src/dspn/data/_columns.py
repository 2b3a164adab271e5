"""Raw columns: numbers, booleans or text with missing entries, before a schema codes them."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dspn.data.schema import Category
from dspn.errors import DataError

_MISSING_TYPES = frozenset({"NoneType", "NAType", "NaTType"})


@final
@dataclass(frozen=True)
class Reading:
    """What the numbers of a raw column stand for.

    `labels` are the sorted strings of a text column, whose numbers are positions in them;
    `declared` are the categories that the table itself gives the column.
    """

    labels: tuple[str, ...] | None = None
    boolean: bool = False
    declared: tuple[Category, ...] | None = None


@final
@dataclass(frozen=True)
class RawBlock:
    """Raw columns side by side: an array this block owns, NaN where missing, and its readings."""

    values: NDArray[np.float64]
    readings: tuple[Reading, ...]


def raw_block(matrix: NDArray[Any], names: tuple[str, ...]) -> RawBlock:
    """Raw block of a matrix of float64, which it takes over, of booleans or of objects."""
    if matrix.dtype != object:
        reading = Reading(boolean=matrix.dtype == np.bool_)
        return RawBlock(matrix.astype(np.float64, copy=False), (reading,) * len(names))
    values = np.empty(matrix.shape, dtype=np.float64)
    readings = []
    for column, name in enumerate(names):
        values[:, column], reading = read_items(matrix[:, column].tolist(), name)
        readings.append(reading)
    return RawBlock(values, tuple(readings))


def read_items(items: list[Any], name: str) -> tuple[NDArray[np.float64], Reading]:
    """Numbers and reading of a column of Python objects.

    None, NaN and the missing values of pandas are missing. What is left must be all strings,
    all booleans or all numbers.
    """
    types = {kind: _family(kind) for kind in set(map(type, items))}
    families = set(types.values()) - {"missing"}
    if "other" in families:
        odd = next(item for item in items if types[type(item)] == "other")
        raise DataError(
            f"variable {name!r} must hold numbers, booleans or strings, found {odd!r} of type "
            f"{type(odd).__name__}; a column of times is the `order` of `Sequences.from_table`."
        )
    if families <= {"number"}:
        return _numbers(items, types, name), Reading()
    # Only distinct items are looked at one by one; a column has few.
    distinct = set(items)
    present = [item for item in distinct if types[type(item)] != "missing" and item == item]
    if len({types[type(item)] for item in present}) > 1:
        shown = sorted({type(item).__name__ for item in present})
        raise DataError(
            f"variable {name!r} must hold values of one type, found a mixture of "
            f"{', '.join(shown)}, for example {_one_of_each(items, types)}; convert it first."
        )
    codes = dict.fromkeys(distinct, np.nan)
    if "text" in families:
        labels = tuple(sorted(map(str, present)))
        codes.update(zip(labels, range(len(labels)), strict=True))
        reading = Reading(labels=labels)
    else:
        codes.update({item: float(item) for item in present})
        reading = Reading(boolean=True)
    return np.fromiter(map(codes.__getitem__, items), np.float64, len(items)), reading


def _family(kind: type) -> str:
    if kind.__name__ in _MISSING_TYPES:
        return "missing"
    if issubclass(kind, str):
        return "text"
    if issubclass(kind, bool | np.bool_):
        return "boolean"
    return "number" if issubclass(kind, numbers.Real | Decimal) else "other"


def _one_of_each(items: list[Any], types: dict[type, str]) -> str:
    first: dict[str, Any] = {}
    for item in items:
        if types[type(item)] != "missing" and item == item:
            first.setdefault(types[type(item)], item)
    return " and ".join(repr(item) for item in first.values())


def _numbers(items: list[Any], types: dict[type, str], name: str) -> NDArray[np.float64]:
    try:
        if any(family == "missing" and kind is not type(None) for kind, family in types.items()):
            items = [None if types[type(item)] == "missing" else item for item in items]
        return np.array(items, dtype=np.float64)
    except OverflowError:
        raise DataError(
            f"variable {name!r} must hold numbers within the range of float64, found a larger one."
        ) from None
