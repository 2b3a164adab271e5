"""Integer codes of the entries whose values are few enough to be tabulated, and the distinct slices among them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dspn._arrays import Bools, Floats, Ints
from dspn.sequences import Kind, Sequences

_MOST_COUNTS: Final = 4096  # more distinct counts than this are evaluated slice by slice
_LARGEST_KEY: Final = 2**62
_DIRECT_KEYS: Final = 1 << 22  # up to this many possible slices are marked in a table instead of sorted
_CHUNK: Final = 256  # most joint values of a chunk of variables

Codes = NDArray[np.int32]


@final
@dataclass(frozen=True, eq=False)
class Distinct:
    """`numbers[r]` is the number of the distinct slice at row r, `rows[u]` a row at which slice u stands."""

    numbers: Codes
    rows: Ints


@final
@dataclass(frozen=True, eq=False)
class Chunks:
    """Factors in chunks with few joint values: `factors[q]` of chunk q, `numbers[u, q]` its joint code at slice u.

    A joint code counts through the chunk's factors with the last one running fastest.
    """

    factors: tuple[tuple[int, ...], ...]
    numbers: Codes


@final
@dataclass(frozen=True, eq=False)
class Coding:
    """Codes (slices, factors) of the tabulated variables, and what each code stands for.

    `factor_of[v]` is the column of variable v, -1 where it is not tabulated. `values[f]` lists the values of factor f by
    code; the last one is NaN, the code of a missing entry.
    """

    codes: Codes
    factor_of: tuple[int, ...]
    values: tuple[Floats, ...]
    follows_schema: bool  # codes are those of the categories, whatever the data

    @cached_property
    def incomplete(self) -> Bools:
        """Which slices have a missing entry; only where every variable is tabulated."""
        last = np.array([values.size - 1 for values in self.values])
        seen: Bools = (self.codes[self.distinct.rows] == last).any(axis=1)[self.distinct.numbers]
        return seen

    @property
    def is_complete(self) -> bool:
        """Whether every variable is tabulated."""
        return min(self.factor_of) >= 0

    @cached_property
    def distinct(self) -> Distinct:
        """The distinct slices of the data; only where every variable is tabulated."""
        assert self.is_complete
        keys = np.zeros(len(self.codes), dtype=np.int64)
        possible = 1
        for column, values in zip(self.codes.T, self.values, strict=True):
            # A column without missing entries does not need the code that stands for them.
            width = values.size if (column == values.size - 1).any() else max(values.size - 1, 1)
            if possible * width > _LARGEST_KEY:
                seen, keys = np.unique(keys, return_inverse=True)
                possible = seen.size
            keys *= width
            keys += column
            possible *= width
        return _numbered(keys, possible)


    @cached_property
    def chunks(self) -> Chunks:
        """Chunks of neighbouring factors, and the joint codes of the distinct slices."""
        widths = [values.size for values in self.values]
        chunks: list[list[int]] = [[]]
        size = 1
        for factor, width in enumerate(widths):
            if chunks[-1] and size * width > _CHUNK:
                chunks.append([])
                size = 1
            chunks[-1].append(factor)
            size *= width
        codes = self.codes[self.distinct.rows]
        numbers = np.zeros((len(codes), len(chunks)), dtype=np.int32)
        for chunk, factors in enumerate(chunks):
            for factor in factors:
                numbers[:, chunk] = numbers[:, chunk] * widths[factor] + codes[:, factor]
        return Chunks(tuple(map(tuple, chunks)), numbers)


def _numbered(keys: Ints, possible: int) -> Distinct:
    if possible > max(_DIRECT_KEYS, 4 * keys.size):
        _, rows, numbers = np.unique(keys, return_index=True, return_inverse=True)
        return Distinct(numbers.astype(np.int32), rows.astype(np.int64))
    place = np.full(possible, -1, dtype=np.int64)
    place[keys] = np.arange(keys.size)
    rows = place[place >= 0]
    number = np.empty(possible, dtype=np.int32)
    number[keys[rows]] = np.arange(rows.size)
    return Distinct(number[keys], rows)


def _category_codes(column: Floats, num_categories: int) -> tuple[Codes, Floats]:
    missing = np.isnan(column)
    codes = np.where(missing, float(num_categories), column).astype(np.int32)
    return codes, np.append(np.arange(num_categories, dtype=np.float64), np.nan)


def _count_codes(column: Floats) -> tuple[Codes, Floats] | None:
    missing = np.isnan(column)
    distinct, inverse = np.unique(column[~missing], return_inverse=True)
    if distinct.size > _MOST_COUNTS:
        return None
    codes = np.full(column.size, distinct.size, dtype=np.int32)
    codes[~missing] = inverse
    return codes, np.append(distinct, np.nan)


def encode(data: Sequences, *, counts: bool = True) -> Coding:
    """Codes of all categorical variables, and (unless told not to) of counts with few distinct values."""
    columns: list[Codes] = []
    values: list[Floats] = []
    factor_of: list[int] = []
    for number, variable in enumerate(data.schema):
        column = data.values[:, number]
        coded = None
        if variable.kind == Kind.CATEGORICAL:
            coded = _category_codes(column, variable.num_categories)
        elif variable.kind == Kind.COUNT and counts:
            coded = _count_codes(column)
        factor_of.append(-1 if coded is None else len(columns))
        if coded is not None:
            columns.append(coded[0])
            values.append(coded[1])
    codes = np.empty((data.values.shape[0], len(columns)), dtype=np.int32)
    for number, own in enumerate(columns):
        codes[:, number] = own
    counted = [v.kind == Kind.COUNT and f >= 0 for v, f in zip(data.schema, factor_of, strict=True)]
    return Coding(codes, tuple(factor_of), tuple(values), not any(counted))


# Data are immutable, so their codes are a fact about them; keeping it saves more than a pass at few interfaces.
_KNOWN: WeakKeyDictionary[Sequences, Coding] = WeakKeyDictionary()


def coding_of(data: Sequences) -> Coding:
    """The codes of a batch, computed once for as long as the batch lives."""
    found = _KNOWN.get(data)
    if found is None:
        found = encode(data)
        _KNOWN[data] = found
    return found
