"""Which columns of a table name the sequences and order their slices, and which rows belong."""

import difflib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, final
from typing import Any as Source

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dspn._arrays import Bools, Ints
from dspn.cli.cells import (
    Column,
    convertible,
    is_missing,
    is_text,
    numbers,
    plain,
    reads_as_number,
)
from dspn.cli.console import listed
from dspn.errors import DataError

TIMES: Final = pa.timestamp("us")
ZONED_TIMES: Final = pa.timestamp("us", tz="UTC")
_LOOKED_AT: Final = 1000


@final
@dataclass(frozen=True)
class Keys:
    """The columns of the ids and of the order, where there are any.

    `is_number` says that an order column of text holds numbers, and sorts as such; `times` is the
    type of the dates or times that it holds as ISO 8601 writes them. Those without an offset from
    UTC sort as text does.
    """

    sequence: str | None = None
    order: str | None = None
    is_number: bool = False
    times: Any = None

    @property
    def names(self) -> list[str]:
        """Those there are."""
        return [name for name in (self.sequence, self.order) if name is not None]


def near_misses(name: str, names: Sequence[str]) -> str:
    """A question with the names that are nearly so called, where there are any."""
    lower = [other for other in names if other.lower() == name.lower()]
    guess = list(dict.fromkeys([*lower, *difflib.get_close_matches(name, names, 3, 0.6)]))
    return f" (did you mean {' or '.join(map(repr, guess))}?)" if guess else ""


def require_columns(source: Source, wanted: Iterable[str], remedy: str = "") -> None:
    """Raises where a column is not there: names those that are nearly so called, and all others."""
    columns = source.columns
    known = set(columns)
    for name in wanted:
        if name in known:
            continue
        meant = near_misses(name, columns)
        hint = f"; {remedy}" if remedy else ""
        raise DataError(
            f"{source.said} has no column {name!r}{meant}, its columns are {listed(columns)}{hint}."
        )


@final
@dataclass(frozen=True, eq=False)
class Grouping:
    """Rows put together: `rows[offsets[i]:offsets[i+1]]` are those of sequence i, in their order.

    `ids[i]` is what sequence i is called, and `starts[i]` the row where it is first met.
    """

    rows: Ints
    offsets: Ints
    ids: list[Any]
    starts: Ints

    @property
    def lengths(self) -> Ints:
        """The number of slices of each sequence."""
        return np.diff(self.offsets)


def borders(ids: Any, keys: Keys, first_row: int) -> Ints:
    """The rows at which another sequence begins, the first row included."""
    ids = plain(ids)
    missing = is_missing(ids)
    if missing.any():
        raise DataError(
            f"column {keys.sequence!r} must name the sequence of every row, but row "
            f"{first_row + int(np.argmax(missing))} has no value."
        )
    changed = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.flatnonzero(changed) + 1]).astype(np.int64)


def grouped(ids: Any, order: Any, keys: Keys, first_row: int, *, sort: bool) -> Grouping:
    """Rows of contiguous sequences, or with `sort` of sequences whose rows lie anywhere."""
    count = len(ids if ids is not None else order)
    if ids is None:
        starts, named = np.zeros(1, dtype=np.int64), [0]
    else:
        with convertible(keys.sequence, ids):
            starts = borders(ids, keys, first_row)
            named = plain(ids).take(pa.array(starts)).to_pylist()
    codes = np.repeat(np.arange(starts.size), np.diff(np.append(starts, count)))
    if sort and ids is not None:
        first: dict[Any, int] = {}
        runs = np.array([first.setdefault(name, len(first)) for name in named])
        codes, named = runs[codes], list(first)
        starts = starts[np.unique(runs, return_index=True)[1]]
    with convertible(keys.order, order):
        rows = _sorted_rows(order, codes, named, keys, first_row)
    lengths = np.bincount(codes, minlength=len(named))
    return Grouping(rows, np.concatenate([[0], np.cumsum(lengths)]), named, starts)


def _sorted_rows(order: Any, codes: Ints, named: list[Any], keys: Keys, first_row: int) -> Ints:
    if keys.order is None:
        return np.argsort(codes, kind="stable")
    ranks = _ranks(plain(order), keys, first_row)
    same = np.diff(codes) == 0
    if (np.diff(codes) >= 0).all() and (ranks[1:] > ranks[:-1])[same].all():
        return np.arange(codes.size)
    rows = np.lexsort((ranks, codes))
    repeated: Bools = (np.diff(codes[rows]) == 0) & (ranks[rows[1:]] == ranks[rows[:-1]])
    if repeated.any():
        place = int(np.argmax(repeated))
        one, other = sorted((int(rows[place]), int(rows[place + 1])))
        whose = "" if keys.sequence is None else f"{keys.sequence} = {named[codes[one]]!r} with "
        raise DataError(
            f"the rows of a sequence must differ in {keys.order!r}, but {whose}{keys.order} = "
            f"{plain(order)[one].as_py()!r} stands in row {first_row + one} and in row "
            f"{first_row + other}; leave one of them out."
        )
    return rows


def _ranks(order: Any, keys: Keys, first_row: int) -> Any:
    """Numbers that sort as the values of an order column do."""
    column = Column(str(keys.order), first_row, ())
    _require_values(is_missing(order), column)
    kind = order.type
    if types.is_integer(kind):
        return order.to_numpy(zero_copy_only=False)
    if types.is_temporal(kind):
        wide = pa.int32() if kind.bit_width == 32 else pa.int64()
        return order.view(wide).to_numpy(zero_copy_only=False)
    if not is_text(kind):
        return numbers(order, column)
    if keys.is_number:
        # Nanoseconds since 1970 are whole numbers that float64 does not tell apart.
        with suppress(pa.ArrowInvalid):
            return order.cast(pa.int64()).to_numpy(zero_copy_only=False)
        found = numbers(order, column, "the rows before hold numbers")
        _require_values(np.isnan(found), column)
        return found
    if keys.times == ZONED_TIMES:
        return _zoned(order, column)
    encoded = order.dictionary_encode()
    rank = np.empty(len(encoded.dictionary), dtype=np.int64)
    rank[np.argsort(np.array(encoded.dictionary.to_pylist(), dtype=object))] = np.arange(rank.size)
    return rank[encoded.indices.to_numpy(zero_copy_only=False)]


def _require_values(missing: Bools, column: Column) -> None:
    if missing.any():
        raise DataError(
            f"column {column.name!r} must have a value in every row, but row "
            f"{column.first_row + int(np.argmax(missing))} has none."
        )


def _zoned(texts: Any, column: Column) -> Ints:
    """Times with offsets as microseconds since 1970 in UTC."""
    try:
        found: Ints = texts.cast(ZONED_TIMES).view(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        row = next(row for row, cell in enumerate(texts) if not _are_times(cell, ZONED_TIMES))
        rule = "times with an offset, as 2024-03-31T02:00+01:00"
        raise column.wrong(row, rule, texts[row].as_py(), "the rows before do") from None
    return found


def with_order_kind(keys: Keys, order: Any) -> Keys:
    """The keys, with what the first rows say of an order column of text."""
    if keys.order is None:
        return keys
    with convertible(keys.order, order):
        first = plain(order)[:_LOOKED_AT]
    if not is_text(first.type):
        return keys
    is_number = all(cell is None or reads_as_number(cell) for cell in first.to_pylist())
    times = next((kind for kind in (TIMES, ZONED_TIMES) if _are_times(first, kind)), None)
    return Keys(keys.sequence, keys.order, is_number, None if is_number else times)


def _are_times(texts: Any, kind: Any) -> bool:
    try:
        texts.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True
