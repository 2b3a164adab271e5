"""The schema that raw columns suggest.

Rules, the first that fits:

1. Text and columns with categories of their own (pandas Categorical, polars Enum, ordered Arrow
   dictionary) are categorical. Text has its categories sorted; declared ones keep their order.
2. Booleans are categorical with the categories False and True.
3. A column without any value is continuous.
4. Numbers with a fraction, negative numbers and numbers from 2**53 on are continuous.
5. Whole numbers 0, 1, 2, ... with at most `MOST_CATEGORIES` distinct values are categorical, with
   the values that occur as categories; a column of zeros and ones always has both.
6. Whole numbers 0, 1, 2, ... with more distinct values are counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dspn.data._checks import in_words
from dspn.data._columns import RawBlock, Reading
from dspn.data.schema import LARGEST_WHOLE, Category, Schema, Variable

MOST_CATEGORIES = 20
"""Whole-number columns with more distinct values than this are counts."""

_SAMPLE = 1024
_LARGEST_TABULATED = 1 << 16


def inferred_schema(block: RawBlock, names: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
    """Schema of the raw columns, and a phrase for each variable that says why."""
    found = [
        _inferred_variable(name, block.values[:, column], block.readings[column])
        for column, name in enumerate(names)
    ]
    return Schema(tuple(variable for variable, _ in found)), tuple(
        f"{variable.name}: {in_words(variable)}, inferred from {reason}"
        for variable, reason in found
    )


def _inferred_variable(
    name: str, column: NDArray[np.float64], reading: Reading
) -> tuple[Variable, str]:
    if reading.declared:
        return _categorical(name, reading.declared, "the categories of the table's column")
    if reading.labels:
        return _categorical(name, reading.labels, "text")
    if reading.boolean:
        return _categorical(name, (False, True), "booleans")
    # Looking at the beginning first spares continuous columns every pass over all rows.
    if _fractional(column[:_SAMPLE]):
        return Variable.continuous(name), "numbers with fractions"
    contiguous = np.ascontiguousarray(column)
    return _inferred_number(name, contiguous[~np.isnan(contiguous)])


def _inferred_number(name: str, observed: NDArray[np.float64]) -> tuple[Variable, str]:
    if not observed.size:
        return Variable.continuous(name), "no value at all, every entry is missing"
    if _fractional(observed):
        return Variable.continuous(name), "numbers with fractions"
    if observed.min() < 0:
        return Variable.continuous(name), "whole numbers, some negative"
    if observed.max() >= LARGEST_WHOLE:
        return Variable.continuous(name), "numbers of 2**53 and more"
    distinct = _distinct(observed)
    if distinct is None:
        reason = f"whole numbers with more than {MOST_CATEGORIES} distinct values"
        return Variable.count(name), reason
    if distinct[-1] <= 1:
        return Variable.binary(name), "zeros and ones"
    return _categorical(
        name,
        tuple(distinct),
        f"whole numbers with {len(distinct)} distinct values (at most {MOST_CATEGORIES})",
    )


def _categorical(name: str, categories: tuple[Category, ...], reason: str) -> tuple[Variable, str]:
    return Variable.categorical(name, categories), reason


def _fractional(values: NDArray[np.float64]) -> bool:
    # False for NaN, which is missing and not fractional.
    return bool((np.floor(values) < values).any())


def _distinct(whole: NDArray[np.float64]) -> list[int] | None:
    # Sorted distinct values, or None when there are more than MOST_CATEGORIES.
    if whole.max() < _LARGEST_TABULATED:
        found = np.flatnonzero(np.bincount(whole.astype(np.int64)))
    elif np.unique(whole[:_SAMPLE]).size > MOST_CATEGORIES:
        return None
    else:
        found = np.unique(whole).astype(np.int64)
    return found.tolist() if found.size <= MOST_CATEGORIES else None
