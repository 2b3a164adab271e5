"""Raw columns of numbers, booleans or text, the kinds they suggest, and their codes.

The kind of a variable is inferred by the first of these rules that fits:

1. Text and columns with categories of their own (pandas Categorical, polars Enum, ordered Arrow
   dictionary) are categorical. Text has its categories sorted; declared ones keep their order.
2. Booleans are categorical with the categories False and True.
3. A column without any value is continuous.
4. Numbers with a fraction, negative numbers and numbers from 2**53 on are continuous.
5. Whole numbers 0, 1, 2, ... with at most `MOST_CATEGORIES` distinct values are categorical, with
   the values that occur as categories; a column of zeros and ones always has both.
6. Whole numbers 0, 1, 2, ... with more distinct values are continuous where they are no counts:
   larger than `MOST_COUNTED`, all multiples of a number, of less variance than half of their mean,
   or hours or directions by their name and range. A pressure of 1,013 is a reading, not a count.
7. Other whole numbers are counts.

Notes on what was inferred also propose a leaf family where the numbers suggest one; see
`dspn.data.proposals`.
"""

from __future__ import annotations

import numbers
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats
from dspn.data.layout import Column, Ragged, codes_are_values, value_remedy, value_rule
from dspn.data.proposals import Whole, propose
from dspn.data.schema import (
    LARGEST_WHOLE,
    Category,
    Kind,
    Schema,
    Variable,
    describe_variable,
    list_categories,
    list_names,
    near_misses,
)
from dspn.errors import DataError

MOST_CATEGORIES = 20
"""Whole-number columns with more distinct values than this are counts, or continuous."""

INFERRED: Final = "inferred from"
"""How the notes of variables begin to say where the kind is from, unless it was told."""

BOOLEANS: Final = (False, True)
SPACES: Final = " \u00a0\u202f'\u2019"
"""Signs that part thousands, whatever the decimal sign: spaces and apostrophes."""

_UNIT = re.compile(
    r"^\s*(%|[$\u20ac\u00a3\u00a5\u20b9])|(%|[$\u20ac\u00a3\u00a5\u20b9]|EUR|USD|GBP|CHF)\s*$"
)
_MISSING_TYPES = frozenset({"NoneType", "NAType", "NaTType"})
_FAMILIES: Final = {"text": str, "boolean": bool | np.bool_, "number": numbers.Real | Decimal}
_TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False}
_SAMPLE = 1024
_LARGEST_TABULATED = 1 << 16


# Raw columns: numbers before a schema codes them


@final
@dataclass(frozen=True)
class Reading:
    """What the numbers of a raw column stand for.

    `labels` are the sorted strings of a text column, whose numbers are positions in them;
    `declared` are the categories that the type of the column has: those of a table's column, or
    BOOLEANS.
    """

    labels: tuple[str, ...] | None = None
    declared: tuple[Category, ...] | None = None


Raw = tuple[Floats, Reading]
"""Numbers of a raw column, NaN where missing, and what they stand for."""


def read_matrix(matrix: NDArray[Any], names: tuple[str, ...]) -> tuple[Floats, tuple[Reading, ...]]:
    """Raw columns of a matrix of float64, which is used itself, of booleans or of objects."""
    if matrix.dtype != object:
        reading = Reading(declared=BOOLEANS if matrix.dtype == np.bool_ else None)
        return matrix.astype(np.float64, copy=False), (reading,) * len(names)
    raw = [read_items(column.tolist(), name) for column, name in zip(matrix.T, names, strict=True)]
    values, readings = zip(*raw, strict=True)
    return np.column_stack(values), readings


def read_items(items: list[Any], name: str) -> Raw:
    """Raw column of Python objects.

    None, NaN and the missing values of pandas are missing. What is left must be all strings,
    all booleans or all numbers.
    """
    families = {kind: _family(kind) for kind in set(map(type, items))}
    if "other" in families.values():
        odd = next(item for item in items if families[type(item)] == "other")
        raise wrong_type(name, f"has {odd!r} of type {type(odd).__name__}")
    if set(families.values()) <= {"missing", "number"}:
        try:
            if any(kind.__name__ in ("NAType", "NaTType") for kind in families):
                items = [None if families[type(item)] == "missing" else item for item in items]
            return np.array(items, dtype=np.float64), Reading()
        except OverflowError:
            raise DataError(
                f"variable {name!r} must hold numbers within the range of float64, but has a "
                "larger one; scale it first."
            ) from None
    # Only distinct items are looked at one by one; a column has few.
    distinct = dict.fromkeys(items, np.nan)
    present = [item for item in distinct if families[type(item)] != "missing" and item == item]
    examples = {families[type(item)]: item for item in reversed(present)}
    if len(examples) > 1:
        types = sorted({type(item).__name__ for item in present})
        shown = " and ".join(repr(examples[family]) for family in reversed(examples))
        raise DataError(
            f"variable {name!r} must hold values of one type, but is a mixture of "
            f"{', '.join(types)}, for example {shown}; make them all "
            "numbers or all text, with None for what is missing."
        )
    if "text" in families.values():
        labels = tuple(sorted(map(str, present)))
        distinct.update(zip(labels, range(len(labels)), strict=True))
        reading = Reading(labels=labels)
    else:
        distinct.update({item: float(item) for item in present})
        reading = Reading(declared=BOOLEANS)
    return np.fromiter(map(distinct.__getitem__, items), np.float64, len(items)), reading


def wrong_type(name: str, finding: str) -> DataError:
    """The error of data in memory that are neither numbers nor booleans nor strings."""
    return DataError(
        f"variable {name!r} must hold numbers, booleans or strings, but {finding}; convert it, or "
        "name a column of times as the `order` of `Sequences.from_table`."
    )


def _family(kind: type) -> str:
    if kind.__name__ in _MISSING_TYPES:
        return "missing"
    return next((family for family, types in _FAMILIES.items() if issubclass(kind, types)), "other")


# Kinds


def number_pattern(decimal: str) -> str:
    """What a number with this decimal sign looks like, thousands parted or not."""
    point, other = (r"\.", ",") if decimal == "." else (",", r"\.")
    parted = "|".join(rf"(?:{sign}\d{{3}})+" for sign in (other, *SPACES))
    whole = rf"(?:\d{{1,3}}(?:{parted})|\d+)"
    return rf"^\s*[+-]?(?:{whole}(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?\s*$"


def number_signs(words: Iterable[str], column: Column) -> str | None:
    """What to do about text in which all is numbers but for signs; None where there is other text.

    Such signs are those of thousands, of per cent and of currencies, and decimal commas.
    """
    texts = [word.strip() for word in words]
    units = sorted({found[0].strip() for found in map(_UNIT.search, texts) if found})
    texts = [_UNIT.sub("", text).strip() for text in texts]
    fits = {sign: all(map(re.compile(number_pattern(sign)).match, texts)) for sign in ".,"}
    if not any(fits.values()):
        return None
    categories = f"for words say {_say_kind(column)}"
    if units:
        return (
            f"these look like numbers with {' and '.join(units)}: take the sign out; {categories}"
        )
    said = [sign for sign in ",." if fits[sign]]
    if column.is_file:
        remedy = "say " + " or ".join(f"--decimal {sign}" for sign in said)
        if len(said) == 2:
            remedy += ", as the decimal sign is"
    else:
        remedy = f"read the file with decimal={said[0]!r}, or convert the column"
    what = {",": "with decimal commas", ".": "with signs between thousands"}
    looks = " or ".join(what[sign] for sign in said)
    return f"these look like numbers {looks}: {remedy}; {categories}"


def _say_kind(column: Column) -> str:
    name = column.name
    said = f"--kind {shlex.quote(f'{name}=categorical')}"
    return said if column.is_file else f"kinds={{{name!r}: 'categorical'}}"


def require_words(reading: Reading, column: Column) -> None:
    """Raise where the text of a column is numbers with signs, which would become categories."""
    told = number_signs(reading.labels, column) if reading.labels else None
    if told is not None and reading.labels and reading.declared is None:
        if all(map(_is_plain_number, reading.labels)):
            return
        noun = "column" if column.is_file else "variable"
        raise DataError(f"{noun} {column.name!r} holds text such as {reading.labels[0]!r}; {told}.")


def _is_plain_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def infer_variable(
    name: str, values: Floats, reading: Reading, whole: Whole | None = None
) -> tuple[Variable, str]:
    """The variable that a raw column suggests, and what it is inferred from.

    Args:
        name: Name of the column.
        values: Its numbers, or as many as tell the kind.
        reading: What the numbers stand for.
        whole: What is known of all numbers where these are some of them.
    """
    if reading.declared:
        reason = "the categories of the table's column"
        reason = "booleans" if reading.declared is BOOLEANS else reason
        return Variable.categorical(name, reading.declared), reason
    if reading.labels:
        return Variable.categorical(name, reading.labels), "text"
    # Looking at the beginning first spares continuous columns every pass over all rows.
    if _has_fractions(values[:_SAMPLE]):
        return Variable.continuous(name), "numbers with fractions"
    contiguous = np.ascontiguousarray(values)
    observed = contiguous[~np.isnan(contiguous)]
    if not observed.size:
        return Variable.continuous(name), "no value at all, every entry is missing"
    for is_continuous, reason in (
        (_has_fractions(observed), "numbers with fractions"),
        (observed.min() < 0, "whole numbers, some negative"),
        (observed.max() >= LARGEST_WHOLE, "numbers of 2**53 and more"),
    ):
        if is_continuous:
            return Variable.continuous(name), reason
    distinct = _few_distinct(observed)
    if distinct is None:
        objection = (whole or Whole.of(observed)).objection(name)
        if objection:
            return Variable.continuous(name), objection
        reason = f"whole numbers with more than {MOST_CATEGORIES} distinct values"
        return Variable.count(name), reason
    if distinct[-1] <= 1:
        return Variable.binary(name), "zeros and ones"
    words = "1 distinct value" if len(distinct) == 1 else f"{len(distinct)} distinct values"
    reason = f"whole numbers with {words} (at most {MOST_CATEGORIES})"
    return Variable.categorical(name, distinct), reason


def tell_variable(name: str, values: Floats, reading: Reading, kind: Any) -> tuple[Variable, str]:
    """The variable of a raw column whose kind is told.

    That is a kind, the name of a leaf family, or a `Variable` of this name.
    """
    if isinstance(kind, Variable):
        if kind.name != name:
            raise DataError(f"`kinds` names {kind.name!r} for the column {name!r}; name it so.")
        return kind, "`kinds`"
    if kind in ("categorical", "binary"):
        is_binary = kind == "binary"
        return categorical_variable(name, values, reading, is_binary=is_binary), "`kinds`"
    try:
        return Variable.of_kind(name, kind), "`kinds`"
    except (DataError, TypeError, AttributeError):
        known = (*map(str, Kind), "binary", *import_module("dspn.leaves").NAMES)
        raise DataError(
            "`kinds` must say 'categorical', 'binary', 'continuous' or 'count', the name of a leaf "
            f"family such as 'student_t', or give a `Variable`, but says {kind!r} for {name!r}"
            f"{near_misses(str(kind), known)}."
        ) from None


def categorical_variable(
    name: str, values: Floats, reading: Reading, *, is_binary: bool
) -> Variable:
    """The variable of a raw column that is said to be categorical, or binary."""
    categories: Any = reading.declared or reading.labels
    if not categories:
        distinct = np.unique(values[~np.isnan(values)]).tolist()
        categories = [int(value) if value.is_integer() else value for value in distinct]
        if is_binary and set(categories) <= {0, 1}:
            categories = (0, 1)
    if not categories:
        raise DataError(f"column {name!r} has no value, so that it has no categories.")
    if is_binary and len(categories) != 2:
        raise DataError(
            f"column {name!r} must have two categories, as its kind says binary, but has "
            f"{len(categories)}: {list_categories(categories)}; say categorical."
        )
    return Variable.categorical(name, categories)


def _has_fractions(values: Floats) -> bool:
    # False for NaN, which is missing and not fractional.
    return bool((np.floor(values) < values).any())


def _few_distinct(whole: Floats) -> list[int] | None:
    # Sorted distinct values, or None when there are more than MOST_CATEGORIES.
    if whole.max() < _LARGEST_TABULATED:
        found = np.flatnonzero(np.bincount(whole.astype(np.int64)))
    elif np.unique(whole[:_SAMPLE]).size > MOST_CATEGORIES:
        return None
    else:
        found = np.unique(whole).astype(np.int64)
    return found.tolist() if found.size <= MOST_CATEGORIES else None


# Codes


def code_columns(
    values: Floats,
    readings: Sequence[Reading],
    names: tuple[str, ...],
    schema: Schema | None,
    ragged: Ragged,
    kinds: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Floats, Schema, tuple[str, ...]]:
    """Raw columns of data in memory as codes, with their schema and how it was inferred.

    Numbers that stand for themselves are left to `check_values`.

    Args:
        values: Raw columns side by side; they are overwritten by the codes.
        readings: What the numbers of each column stand for.
        names: Names of the columns.
        schema: Schema of the columns, inferred if None.
        ragged: The sequences that the rows belong to.
        kinds: Kinds of some variables, which are then not inferred.
    """
    notes: tuple[str, ...] = ()
    if schema is None:
        for name in kinds:
            if name not in names:
                raise DataError(
                    f"`kinds` names {name!r}{near_misses(name, names)}, but the variables are "
                    f"{list_names(names)}."
                )
        for name, reading in zip(names, readings, strict=True):
            if name not in kinds:
                require_words(reading, Column(name, ragged=ragged))
        inferred = [
            tell_variable(name, values[:, j], reading, kinds[name])
            if name in kinds
            else infer_variable(name, values[:, j], reading)
            for j, (name, reading) in enumerate(zip(names, readings, strict=True))
        ]
        schema = Schema(tuple(variable for variable, _ in inferred))
        notes = tuple(
            _note(variable, reason, values[:, j]) for j, (variable, reason) in enumerate(inferred)
        )
    for j, (variable, reading) in enumerate(zip(schema, readings, strict=True)):
        if reading.labels or not codes_are_values(variable):
            column = Column(variable.name, ragged=ragged)
            values[:, j] = encode(values[:, j], reading, variable, column)
    return values, schema, notes


def _note(variable: Variable, reason: str, values: Floats) -> str:
    """What a variable is taken for and why, and the leaves that may fit it better."""
    how = f"as {reason} says" if reason == "`kinds`" else f"{INFERRED} {reason}"
    note = f"{variable.name}: {describe_variable(variable)}, {how}"
    proposal = propose(variable, values)
    if proposal is None:
        return note
    return f"{note}; {proposal.family} leaves may fit better ({proposal.reason})"


def encode(values: Floats, reading: Reading, variable: Variable, column: Column) -> Floats:
    """Codes of a raw column for a variable; numbers that are no categories stay as they are."""
    categories = variable.categories
    present = ~np.isnan(values)
    has_text = bool(categories) and isinstance(categories[0], str)
    if reading.labels:
        code_of: dict[Any, int] = {category: code for code, category in enumerate(categories)}
        labels: Iterable[Any] = reading.labels
        if column.is_file and not has_text:
            labels = [_TRUTHS.get(label.strip().lower()) for label in labels]
        elif not has_text:
            row = int(np.argmax(present))
            remedy = "give numbers, with None for what is missing"
            raise column.wrong(row, value_rule(variable), reading.labels[int(values[row])], remedy)
        table = np.array([*(code_of.get(label, np.nan) for label in labels), np.nan])
        codes = table[np.where(present, values, -1).astype(np.int64)]
    elif has_text:
        if present.any():
            row = int(np.argmax(present))
            remedy = "give the category itself, or read codes by `Sequences.from_codes`"
            raise column.wrong(row, value_rule(variable), float(values[row]), remedy)
        return values
    else:
        numbers_of = np.array(categories, dtype=np.float64)
        order = np.argsort(numbers_of)
        position = np.searchsorted(numbers_of, values, sorter=order)
        nearest = order[np.minimum(position, numbers_of.size - 1)]
        codes = np.where(numbers_of[nearest] == values, nearest, np.nan)
    unknown = present & np.isnan(codes)
    if column.unseen is not None:
        column.unseen[column.name] += int(unknown.sum())
    elif unknown.any():
        row = int(np.argmax(unknown))
        value = reading.labels[int(values[row])] if reading.labels else float(values[row])
        raise column.wrong(row, value_rule(variable), value, value_remedy(variable, column))
    return codes


def decode_column(codes: Floats, variable: Variable) -> NDArray[Any]:
    """Values of a coded column: objects with None where missing, or plain numbers with NaN.

    Objects are used for text and boolean categories.
    """
    if variable.kind is not Kind.CATEGORICAL:
        return codes
    index = np.where(np.isnan(codes), -1, codes).astype(np.int64)
    if isinstance(variable.categories[0], str | bool):
        return np.fromiter((*variable.categories, None), dtype=object)[index]
    return np.array((*variable.categories, np.nan), dtype=np.float64)[index]


def decode_matrix(values: Floats, schema: Schema) -> NDArray[Any]:
    """Coded values as the values they stand for.

    A float matrix when every variable is numeric; otherwise an object matrix with None where an
    entry is missing, in which whole numbers are Python ints.
    """
    columns = [decode_column(values[:, j], variable) for j, variable in enumerate(schema)]
    if all(column.dtype != object for column in columns):
        return np.column_stack(columns)
    matrix = np.full(values.shape, None, dtype=object)
    for j, (column, variable) in enumerate(zip(columns, schema, strict=True)):
        present = ~np.isnan(values[:, j])
        holds_integers = variable.kind is Kind.COUNT or (
            bool(variable.categories) and all(type(item) is int for item in variable.categories)
        )
        observed = column[present]
        matrix[present, j] = observed.astype(np.int64) if holds_integers else observed
    return matrix
