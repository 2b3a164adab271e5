"""A whole table as sequences, with the kind of each variable found out or told."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, final
from typing import Any as Source

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dspn._arrays import Floats
from dspn.cli.cells import (
    MISSING,
    Column,
    convertible,
    is_text,
    numbers,
    plain,
    present_text,
    reads_as_number,
)
from dspn.cli.console import listed
from dspn.cli.keys import Keys
from dspn.cli.streams import Chunk, chunks
from dspn.errors import DataError
from dspn.sequences import Kind, Schema, Sequences, Variable

_CATEGORICAL: Final = ("categorical", "binary")
_LARGEST_WHOLE: Final = 2**53


@final
@dataclass(frozen=True, eq=False)
class Described:
    """A variable, its codes in the order of the rows, and what its kind was concluded from."""

    variable: Variable
    codes: Floats
    reason: str


def variable_names(source: Source, keys: Keys, wanted: tuple[str, ...] | None) -> list[str]:
    """The columns that are variables: those wanted, or all but the keys."""
    names = [name for name in source.columns if name not in keys.names]
    if wanted is not None:
        names = list(dict.fromkeys(wanted))
        for name in names:
            if name in keys.names:
                raise DataError(f"column {name!r} cannot be both a variable and a key.")
    if not names:
        raise DataError(
            f"{source.said} must have at least one column besides the keys, but its columns are "
            f"{listed(source.columns)}."
        )
    return names


def described(
    chunk: Chunk, name: str, kind: str | None, missing: tuple[str, ...] = MISSING
) -> Described:
    """A variable as its column suggests, or as `kind` says."""
    column = Column(name, chunk.first_row, missing)
    with convertible(name, chunk.table[name]):
        return _described(plain(chunk.table[name]), column, kind)


def _described(cells: Any, column: Column, kind: str | None) -> Described:
    if kind in _CATEGORICAL:
        return _as_categorical(cells, column, kind)
    if kind is not None:
        return _as_numbers(cells, column, kind)
    if types.is_boolean(cells.type):
        return _truths(cells, column)
    if not is_text(cells.type):
        return _inferred(numbers(cells, column), column)
    texts = present_text(cells, column)
    if _holds_numbers(texts, column):
        return _inferred(numbers(cells, column), column)
    return _labelled(texts, column, "text")


def _holds_numbers(texts: Any, column: Column) -> bool:
    """Whether a column of text holds numbers, or words; raises where it holds both."""
    with suppress(pa.ArrowInvalid):
        texts.cast(pa.float64())
        return True
    distinct = pc.unique(texts).to_pylist()
    present = [cell for cell in distinct if cell is not None]
    is_number = {cell: reads_as_number(cell) for cell in present}
    if len(set(is_number.values())) < 2:
        return all(is_number.values())
    first = is_number[present[0]]
    odd = next(cell for cell in present if is_number[cell] is not first)
    row = int(pc.index(texts, odd).as_py())
    begins = "numbers" if first else "words"
    raise column.wrong(
        row,
        f"numbers or words, but not both, and begins with {begins}",
        odd,
        f"correct it, add the word to --missing, or say --kind {column.name}=categorical",
    )


def _inferred(found: Floats, column: Column) -> Described:
    """A variable of numbers, by the rules of `Sequences`, which also say why."""
    told = Sequences.from_concatenated(found[:, None], [found.size], names=[column.name])
    reason = told.inference_notes[0].rpartition("inferred from ")[2]
    return Described(told.schema[0], told.values[:, 0], reason)


def _as_numbers(cells: Any, column: Column, kind: str) -> Described:
    found = numbers(cells, column, f"--kind says {kind}")
    variable = Variable(column.name, Kind(kind))
    broken = (found < 0) | (np.floor(found) < found) | (found >= _LARGEST_WHOLE)
    if kind == "count" and broken.any():
        row = int(np.argmax(broken))
        raise column.wrong(row, "counts, 0, 1, 2 and so on", float(found[row]), "--kind says count")
    return Described(variable, found, "--kind")


def _as_categorical(cells: Any, column: Column, kind: str) -> Described:
    """Numbers are categories by their values, and everything else by what it says."""
    if is_text(cells.type):
        texts = present_text(cells, column)
        labels = [label for label in pc.unique(texts).to_pylist() if label is not None]
        if not labels or not all(map(reads_as_number, labels)):
            return _two(_labelled(texts, column, "--kind"), column, kind)
    elif types.is_boolean(cells.type):
        return _truths(cells, column)
    found = numbers(cells, column)
    values = np.unique(found[~np.isnan(found)])
    if kind == "binary" and set(values.tolist()) <= {0.0, 1.0}:
        return Described(Variable.binary(column.name), found, "--kind")
    if not values.size:
        raise DataError(f"column {column.name!r} has no value, so that it has no categories.")
    categories = [int(value) if value.is_integer() else value for value in values.tolist()]
    codes = np.where(np.isnan(found), np.nan, np.searchsorted(values, found))
    variable = Variable.categorical(column.name, categories)
    return _two(Described(variable, codes, "--kind"), column, kind)


def _truths(cells: Any, column: Column) -> Described:
    """A column of booleans."""
    variable = Variable.categorical(column.name, (False, True))
    return Described(variable, numbers(cells, column), "booleans")


def _two(found: Described, column: Column, kind: str) -> Described:
    count = found.variable.num_categories
    if kind == "binary" and count != 2:
        listed = ", ".join(map(repr, found.variable.categories[:4]))
        raise DataError(
            f"column {column.name!r} must have two categories, as --kind says binary, but has "
            f"{count}: {listed}{', ...' if count > 4 else ''}; say categorical."
        )
    return found


def _labelled(texts: Any, column: Column, reason: str) -> Described:
    encoded = texts.dictionary_encode()
    labels = encoded.dictionary.to_pylist()
    if not labels:
        raise DataError(f"column {column.name!r} has no value, so that it has no categories.")
    rank = {label: float(number) for number, label in enumerate(sorted(labels))}
    table = np.array([*(rank[label] for label in labels), np.nan])
    index = encoded.indices.fill_null(len(labels)).to_numpy(zero_copy_only=False)
    return Described(Variable.categorical(column.name, sorted(labels)), table[index], reason)


def gathered(chunk: Chunk, found: list[Described]) -> Sequences:
    """The sequences of all rows."""
    rows = chunk.grouping.rows
    values = np.empty((rows.size, len(found)))
    for number, own in enumerate(found):
        values[:, number] = own.codes[rows]
    schema = Schema(tuple(own.variable for own in found))
    ids = None if chunk.keys.sequence is None else chunk.grouping.ids
    return Sequences.from_codes(values, chunk.grouping.offsets, schema, ids)


def whole_table(
    source: Source, keys: Keys, names: list[str], *, sort: bool, extra: tuple[str, ...] = ()
) -> Chunk:
    """All rows of the columns as one chunk."""
    (chunk,) = chunks(source, keys, [*names, *extra], sort=sort, whole=True)
    return chunk
