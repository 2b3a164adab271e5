"""Values that are few enough to be tabulated as integer codes, and leaf densities as tables."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Final, NamedTuple, final
from weakref import WeakKeyDictionary

import numpy as np

from dspn._arguments import Bools, Floats, Ints
from dspn.data.schema import Kind
from dspn.data.sequences import Sequences
from dspn.engine.base import two_sum
from dspn.engine.cpu.arithmetic import Arithmetic
from dspn.engine.cpu.kernels.coding import (
    category_codes,
    has_missing,
    number_chunks,
    number_distinct,
    number_keys,
)
from dspn.engine.cpu.program import CpuProgram
from dspn.engine.cpu.records import Codes, LeafTables
from dspn.leaves.base import Family
from dspn.leaves.categorical import Categorical
from dspn.leaves.told import sources_of

_MOST_COUNTS: Final = 4096  # more distinct counts than this are evaluated slice by slice
_LARGEST_KEY: Final = 2**62
_LARGEST_EXACT: Final = 2**53  # whole numbers up to this are float64s
_DIRECT_KEYS: Final = 1 << 22  # up to this many possible slices are marked in a table, not sorted
_CHUNK: Final = 256  # most joint values of a chunk of variables
_DEEP: Final = -1024.0  # differences of larger logarithms lose less than 1e-13 to rounding
_FIRST: Final = np.zeros(1, dtype=np.int64)
_LOST_BELOW: Final = -690.0  # exp of less than this leaves the range of normal numbers


class Distinct(NamedTuple):
    """The distinct slices of the data.

    `numbers[r]` is the number of the distinct slice at row r. Distinct slice u stands at row
    `rows[u]`, among others, and has `codes[u]`.
    """

    numbers: Codes
    rows: Ints
    codes: Codes


@final
@dataclass(frozen=True, eq=False)
class Coding:
    """Codes of the tabulated variables of a batch, and what each code stands for.

    `factor_of[v]` is the column of variable v, -1 where it is not tabulated. `values[f]` lists the
    values of factor f by code; the last one is NaN, the code of a missing entry. `follows_schema`:
    codes are those of the categories, whatever the data.
    """

    data: Floats
    factor_of: tuple[int, ...]
    values: tuple[Floats, ...]
    follows_schema: bool

    def of(self, data: Floats) -> "Coding":
        """The same coding of other data; only where it does not depend on them."""
        return replace(self, data=data)

    @cached_property
    def codes(self) -> Codes:
        """Codes (slices, factors)."""
        codes = np.empty((len(self.data), len(self.values)), dtype=np.int32)
        if self.follows_schema and self.is_complete:
            category_codes(self.data, self.sizes, codes)
            return codes
        for variable, factor in enumerate(self.factor_of):
            if factor >= 0:
                column, known = self.data[:, variable], self.values[factor]
                observed = ~np.isnan(column)
                codes[:, factor] = known.size - 1
                codes[observed, factor] = np.searchsorted(known[:-1], column[observed])
        return codes

    @cached_property
    def sizes(self) -> Ints:
        """Number of values of each factor, not counting the missing one."""
        return np.array([values.size - 1 for values in self.values], dtype=np.int64)

    @cached_property
    def widths(self) -> Ints:
        """Number of codes that each factor needs: one more where an entry is missing."""
        if self._keys_if_nothing_missing is not None:
            return self.sizes
        missing = has_missing(self.data)
        widths: Ints = self.sizes + missing[[factor >= 0 for factor in self.factor_of]]
        return widths

    @property
    def is_complete(self) -> bool:
        """Whether every variable is tabulated."""
        return min(self.factor_of) >= 0

    @cached_property
    def incomplete(self) -> Bools:
        """Which slices have a missing entry; only where every variable is tabulated."""
        seen: Bools = (self.distinct.codes == self.sizes).any(axis=1)[self.distinct.numbers]
        return seen

    @cached_property
    def distinct(self) -> Distinct:
        """The distinct slices of the data; only where every variable is tabulated."""
        assert self.is_complete
        keys, possible = self._category_keys() if self.follows_schema else (None, 0)
        if keys is None:
            keys, possible = self._keys_of_codes()
        numbers, rows = _numbered(keys, possible)
        return Distinct(numbers, rows, self._codes_at(rows))

    def _codes_at(self, rows: Ints) -> Codes:
        if not self.follows_schema:
            return self.codes[rows]
        codes = np.empty((rows.size, len(self.values)), dtype=np.int32)
        category_codes(self.data[rows], self.sizes, codes)
        return codes

    @cached_property
    def _keys_if_nothing_missing(self) -> Ints | None:
        """Keys of all slices where codes follow the schema and none is missing, else None.

        A key is the product of a row with the place values of its digits: exact, as it stays below
        2^53, and NaN where an entry is missing.
        """
        possible = prod(self.sizes.tolist())
        if not (self.follows_schema and self.is_complete) or possible > _LARGEST_EXACT:
            return None
        places = np.append(np.cumprod(self.sizes[:0:-1])[::-1], 1)
        keys = self.data @ places.astype(np.float64)
        return None if np.isnan(keys).any() else keys.astype(np.int64)

    def _category_keys(self) -> tuple[Ints | None, int]:
        """Keys straight from the data; None where they would be too large."""
        possible = prod(self.widths.tolist())
        if self._keys_if_nothing_missing is not None:
            return self._keys_if_nothing_missing, possible
        if possible > _LARGEST_KEY:
            return None, 0
        keys = np.empty(len(self.data), dtype=np.int64)
        number_keys(self.data, self.sizes, self.widths, keys)
        return keys, possible

    def _keys_of_codes(self) -> tuple[Ints, int]:
        keys = np.zeros(len(self.codes), dtype=np.int64)
        possible = 1
        for column, values in zip(self.codes.T, self.values, strict=True):
            if possible * values.size > _LARGEST_KEY:
                seen, keys = np.unique(keys, return_inverse=True)
                possible = seen.size
            keys *= values.size
            keys += column
            possible *= values.size
        return keys, possible

    @cached_property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """Neighbouring factors, joined for as long as their joint values are few."""
        found: list[list[int]] = [[]]
        size = 1
        for factor, width in enumerate(self.widths.tolist()):
            if found[-1] and size * width > _CHUNK:
                found.append([])
                size = 1
            found[-1].append(factor)
            size *= width
        return tuple(map(tuple, found))

    @cached_property
    def chunk_of(self) -> Ints:
        """The chunk of each factor."""
        return np.repeat(np.arange(len(self.chunks)), [len(own) for own in self.chunks])

    @cached_property
    def chunk_first(self) -> Ints:
        """Where the joint codes of each chunk begin when all are counted through; then the end."""
        sizes = [prod(self.widths[list(chunk)].tolist()) for chunk in self.chunks]
        return np.cumsum([0, *sizes])

    @cached_property
    def distinct_chunks(self) -> Codes:
        """Joint codes (slices, chunks) of the distinct slices."""
        return self._chunk_numbers(self.distinct.codes)

    @cached_property
    def row_chunks(self) -> Codes:
        """Joint codes (slices, chunks) of all slices."""
        return self._chunk_numbers(self.codes)

    def _chunk_numbers(self, codes: Codes) -> Codes:
        """Joint codes, which count through a chunk's factors with the last one running fastest."""
        numbers = np.zeros((len(codes), len(self.chunks)), dtype=np.int32)
        number_chunks(codes, self.widths, self.chunk_of, numbers)
        return numbers


def _numbered(keys: Ints, possible: int) -> tuple[Codes, Ints]:
    """The number of the distinct key at every row, and a row for each distinct key."""
    if possible > max(_DIRECT_KEYS, 4 * keys.size):
        _, rows, numbers = np.unique(keys, return_index=True, return_inverse=True)
        return np.asarray(numbers, dtype=np.int32), np.asarray(rows, dtype=np.int64)
    place = np.full(possible, -1, dtype=np.int32)
    numbered: Codes = np.empty(keys.size, dtype=np.int32)
    first: Ints = np.empty(min(keys.size, possible), dtype=np.int64)
    count = number_distinct(keys, place, numbered, first)
    return numbered, first[:count].copy()


def _count_values(column: Floats) -> Floats | None:
    """The distinct counts and NaN; None where they are too many to be tabulated."""
    distinct = np.unique(column[~np.isnan(column)])
    return None if distinct.size > _MOST_COUNTS else np.append(distinct, np.nan)


def encode(data: Sequences, *, seen: bool = True) -> Coding:
    """Codes of all categorical variables.

    With `seen` also those of counts with few distinct values and of numbers that are all missing,
    as in draws of whole sequences: codes that depend on the data.
    """
    values: list[Floats] = []
    factor_of: list[int] = []
    follows_schema = True
    for number, variable in enumerate(data.schema):
        known: Floats | None = None
        if sources_of(variable):  # a value means something else in every context
            pass
        elif variable.kind == Kind.CATEGORICAL:
            known = np.append(np.arange(variable.num_categories, dtype=np.float64), np.nan)
        elif seen and (variable.kind == Kind.COUNT or np.isnan(data.values[:, number]).all()):
            known = _count_values(data.values[:, number])
            follows_schema = follows_schema and known is None
        factor_of.append(-1 if known is None else len(values))
        if known is not None:
            values.append(known)
    return Coding(data.values, tuple(factor_of), tuple(values), follows_schema)


# Data are immutable, so their codes are a fact about them. With few interfaces, to keep the codes
# saves more than a pass takes.
_KNOWN: WeakKeyDictionary[Sequences, Coding] = WeakKeyDictionary()


def coding_of(data: Sequences) -> Coding:
    """The codes of a batch, computed once for as long as the batch lives."""
    found = _KNOWN.get(data)
    if found is None:
        found = encode(data)
        _KNOWN[data] = found
    return found


def _divided(log_values: Floats, starts: Ints, linear: bool) -> tuple[Floats, Floats, bool]:
    """Densities over the largest of each row and bank, the log divisors, and a loss.

    Banks are columns side by side, each from its start on. The densities are logarithms unless
    `linear`; the divisors of deep ones are rounded so that no difference to them is. The last
    result says whether an entry was lost to the range of numbers.
    """
    if linear and starts.size == 1:  # the usual case, on which scoring spends most of its time
        peak = log_values.max(axis=1, keepdims=True)
        peak[peak == -np.inf] = 0.0
        relative = np.subtract(log_values, peak)
        least = float(relative.min(initial=0.0))
        lost = least < _LOST_BELOW and bool(((relative < _LOST_BELOW) & (relative > -np.inf)).any())
        return np.exp(relative, out=relative), peak, lost
    peak = np.maximum.reduceat(log_values, starts, axis=1)
    peak[peak == -np.inf] = 0.0
    sizes = np.diff(np.append(starts, log_values.shape[1]))
    if not linear:
        deep = (log_values < _DEEP).any(axis=1)
        if deep.any():
            sized = np.where(np.isfinite(log_values[deep]), np.abs(log_values[deep]), 0.0)
            step = np.spacing(np.maximum.reduceat(sized, starts, axis=1))
            peak[deep] = np.rint(peak[deep] / step) * step
        return log_values - np.repeat(peak, sizes, axis=1), peak, False
    relative = log_values - np.repeat(peak, sizes, axis=1)
    lost = bool(((relative < _LOST_BELOW) & (relative > -np.inf)).any())
    np.exp(relative, out=relative)
    return relative, peak, lost


def alike_banks(program: CpuProgram, coding: Coding) -> list[tuple[Family, list[int]]]:
    """The tabulated banks, those with the same family and values together.

    The values of categorical variables follow from their family, and others are tabulated alone.
    """
    found: dict[tuple[Family, int], list[int]] = {}
    for number, (bank, factor) in enumerate(
        zip(program.network.template.banks, coding.factor_of, strict=True)
    ):
        if factor >= 0:
            own = -1 if isinstance(bank.family, Categorical) else number
            found.setdefault((bank.family, own), []).append(number)
    return [(family, banks) for (family, _), banks in found.items()]


class _Densities(NamedTuple):
    """Densities of leaves, bank after bank; leaf m of a bank begins at start[bank] + m width[bank].

    `divisors` are logarithms by bank. `lossy` says whether an entry was lost to the range of
    numbers.
    """

    values: Floats
    start: Ints
    width: Ints
    divisors: dict[int, Floats]
    lossy: bool

    def starts_of_loads(self, program: CpuProgram) -> Ints:
        """Where the densities of each load begin."""
        banks, members = program.template.load_bank, program.template.load_member
        return self.start[banks] + members * self.width[banks]


def _densities(
    program: CpuProgram,
    arithmetic: Arithmetic,
    bottom: bool,
    items: Iterable[tuple[Family, list[int], Floats]],
) -> _Densities:
    """Densities of some values under the leaves of some banks of one family, for each item.

    A missing value has density 1, or that of the leaf's mode in the max pass.
    """
    parameters = program.parameters(bottom).leaves
    start, width = np.zeros((2, len(parameters)), dtype=np.int64)
    pieces: list[Floats] = []
    divisors: dict[int, Floats] = {}
    size, lossy = 0, False
    for family, banks, values in items:
        starts, rows = _FIRST, parameters[banks[0]]
        if len(banks) > 1:
            starts = np.cumsum([0, *(len(parameters[bank]) for bank in banks[:-1])])
            rows = np.concatenate([parameters[bank] for bank in banks])
        table = family.log_prob(rows, values)
        if arithmetic.maximise and (missing := family.is_missing(values)).any():
            table[missing] = family.log_peak(rows, values[missing])
        table, peak, lost = _divided(table, starts, arithmetic.is_linear)
        lossy = lossy or lost
        divisors |= zip(banks, peak.T, strict=True)
        start[banks], width[banks] = size + starts * len(values), len(values)
        pieces.append(np.ascontiguousarray(table.T).ravel())
        size += table.size
    every = pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0), *pieces])
    return _Densities(every, start, width, divisors, lossy)


def tabulate(
    program: CpuProgram, coding: Coding, arithmetic: Arithmetic, bottom: bool
) -> tuple[LeafTables, bool]:
    """Tables of all tabulated variables, and whether one lost an entry to the range of numbers."""
    items = (
        (family, banks, coding.values[coding.factor_of[banks[0]]])
        for family, banks in alike_banks(program, coding)
    )
    found = _densities(program, arithmetic, bottom, items)
    by_factor = [found.divisors[bank] for bank in sorted(found.divisors)]
    tables = LeafTables(
        start=found.starts_of_loads(program),
        factor=np.array(coding.factor_of, dtype=np.int64)[program.template.load_bank],
        variable=program.template.load_bank,
        values=found.values,
        dense=np.empty(0),
        divisor_start=np.cumsum([0, *(own.size for own in by_factor)], dtype=np.int64)[:-1],
        divisors=np.concatenate([np.empty(0), *by_factor]),
        dense_divisor=np.empty((0, 0)),
    )
    return tables, found.lossy


def with_dense(
    tables: LeafTables,
    program: CpuProgram,
    coding: Coding,
    arithmetic: Arithmetic,
    bottom: bool,
    columns: Sequence[Floats],
) -> tuple[LeafTables, bool, dict[int, Floats]]:
    """The tables with the dense variables, those that are not tabulated, added.

    `columns[v]` holds the values of variable v by place, with their context. Also returns whether
    an entry was lost to the range of numbers, and the log divisors of the dense variables.
    """
    banks = program.network.template.banks
    items = (
        (banks[v].family, [v], columns[v])
        for v, factor in enumerate(coding.factor_of)
        if factor < 0
    )
    found = _densities(program, arithmetic, bottom, items)
    total = np.zeros((2, len(columns[0])))
    for own in found.divisors.values():
        total[0], rest = two_sum(total[0], own)
        total[1] += rest
    starts = np.where(tables.factor < 0, found.starts_of_loads(program), tables.start)
    dense = tables._replace(start=starts, dense=found.values, dense_divisor=total)
    return dense, found.lossy, found.divisors
