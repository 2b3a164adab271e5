"""The columns that name the sequences of a table and order their slices.

Rows are grouped by the first and sorted by the second. Order columns of whole numbers and of times
have steps, which also tell the order of slices that follow the last one.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from dspn._arguments import Bools, Ints
from dspn.data.cells import convertible, is_missing, is_text, parse_numbers, plain, to_integers
from dspn.data.layout import Column, offsets_of
from dspn.data.schema import list_names, near_misses
from dspn.errors import DataError

NUMBERS: Final = pa.float64()
TIMES: Final = pa.timestamp("us")
ZONED_TIMES: Final = pa.timestamp("us", tz="UTC")
_LOOKED_AT: Final = 1000
_TICKS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
# Months, quarters and years are regular, though their days are not equal in number.
_CALENDAR_DAYS: Final = ((28, 31), (89, 92), (365, 366))
# How many characters text has that ends with days, hours, minutes or seconds.
_ENDINGS: Final = {10: "D", 13: "h", 16: "m", 19: "s"}
_SHOWN: Final = 3
_YEAR_LAST: Final = re.compile(
    r"\s*(\d{1,2})([-/.])(\d{1,2})[-/.](\d{4}|\d{2})\b(?:[T ]+\d{1,2}:\d{2}(:\d{2})?)?.*"
)
_MONTH: Final = re.compile(
    r"(?i)(?=.*\d).*\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b"
)
_WITH_MONTHS: Final = tuple(
    day + clock
    for month in ("%b", "%B")
    for day in (f"{month} %d %Y", f"{month} %d, %Y", f"%d {month} %Y", f"%d-{month}-%Y")
    for clock in ("", " %H:%M", " %H:%M:%S")
)

Cells = Any
"""Arrow cells, or a list of Python objects, None where missing, that Arrow has no type for."""


@final
@dataclass(frozen=True)
class Keys:
    """The columns that name the sequences and order their slices, where there are any.

    `text` is the Arrow type that an order column of text stands for, NUMBERS, TIMES or ZONED_TIMES;
    with None it sorts as text. Times are written as in ISO 8601; those of TIMES have no offset from
    UTC and sort as text, too. `dates` is the format of times in other text, as `strftime` has it.
    """

    sequence: str | None = None
    order: str | None = None
    text: Any = None
    dates: str | None = None

    @property
    def names(self) -> list[str]:
        """Names of the key columns."""
        return [name for name in (self.sequence, self.order) if name is not None]


def require_different(title: str, columns: Iterable[str]) -> None:
    """Raise where two columns of a table have one name; messages call the table `title`."""
    for name, count in Counter(columns).items():
        if count > 1:
            raise DataError(
                f"{title} must have different column names, but {name!r} occurs {count} times; "
                "rename one."
            )


def require_columns(
    title: str, columns: Sequence[str], wanted: Iterable[str], remedy: str = ""
) -> None:
    """Raise where a column is absent, with the similar names and all others.

    Args:
        title: What messages call the table.
        columns: The columns that it has.
        wanted: The columns that it must have.
        remedy: What to do about an absent one.
    """
    known = set(columns)
    for name in wanted:
        if name not in known:
            hint = f"; {remedy}" if remedy else ""
            raise DataError(
                f"{title} has no column {name!r}{near_misses(name, columns)}, its columns are "
                f"{list_names(columns)}{hint}."
            )


def variable_names(
    title: str,
    columns: Sequence[str],
    keys: Keys,
    wanted: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
) -> list[str]:
    """The columns that are variables: those wanted, or all but the keys.

    Args:
        title: What messages call the table.
        columns: The columns that it has.
        keys: The key columns, which are not variables.
        wanted: The columns that are wanted.
        exclude: Columns that are not variables.
    """
    left_out = list(exclude)
    require_columns(title, columns, left_out)
    if wanted is None:
        wanted = (name for name in columns if name not in keys.names)
    wanted = (name for name in wanted if name not in left_out)
    names = list(dict.fromkeys(wanted))
    for name in keys.names:
        if name in names:
            raise DataError(f"column {name!r} cannot be both a variable and a key.")
    if not names:
        raise DataError(
            f"{title} must have at least one column besides the keys, but its columns are "
            f"{list_names(columns)}."
        )
    return names


# Rows of sequences


@final
@dataclass(frozen=True, eq=False)
class Grouping:
    """Rows by sequence: `rows[offsets[i]:offsets[i+1]]` are those of sequence i, in their order.

    `ids[i]` is the id of sequence i, and `starts[i]` its first row in the table.
    """

    rows: Ints
    offsets: Ints
    ids: list[Any]
    starts: Ints

    @property
    def lengths(self) -> Ints:
        """The number of slices of each sequence."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> Ints:
        """The sequence of each of `rows`."""
        return np.repeat(np.arange(len(self.ids)), self.lengths)


def number_sequences(ids: Cells, name: str | None, first_row: int) -> tuple[Ints, list[Any]]:
    """The sequence of each row, numbered by first appearance, and the id of each number."""
    cells = ids if isinstance(ids, list) else plain(ids)
    _require_values(cells, f"column {name!r} must name the sequence of every row", first_row)
    if not isinstance(cells, list):
        encoded = cells.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return codes, encoded.dictionary.to_pylist()
    try:
        number = {item: code for code, item in enumerate(dict.fromkeys(cells))}
    except TypeError:
        raise DataError(
            f"column {name!r} must name sequences by hashable values, such as strings or numbers."
        ) from None
    return np.fromiter(map(number.__getitem__, cells), np.int64, len(cells)), list(number)


def _require_values(cells: Cells, rule: str, first_row: int) -> None:
    is_list = isinstance(cells, list)
    missing = np.array([item is None for item in cells]) if is_list else is_missing(cells)
    if missing.any():
        raise DataError(f"{rule}, but row {first_row + int(np.argmax(missing))} has no value.")


def find_starts(codes: Ints) -> Ints:
    """The rows at which another sequence begins, the first row included."""
    return np.flatnonzero(np.diff(codes, prepend=-1))


def group_rows(
    count: int,
    ids: Cells | None,
    order: Cells | None,
    keys: Keys,
    first_row: int,
    *,
    sort: bool,
    repeats: bool = False,
) -> Grouping:
    """Rows by sequence and order.

    Args:
        count: Number of rows.
        ids: Cells of the column that names the sequences; None for a single sequence.
        order: Cells of the order column; None where the rows are in order.
        keys: Names of both columns, for messages, and the type of an order column of text.
        first_row: Number of the first row, for messages; negative where rows have none.
        sort: Whether the rows of a sequence may lie anywhere, or each run of rows is a sequence.
        repeats: Whether rows of a sequence may have the same order value.
    """
    codes, named = np.zeros(count, dtype=np.int64), [0]
    if ids is not None:
        with convertible(keys.sequence, ids):
            codes, named = number_sequences(ids, keys.sequence, first_row)
    if sort:
        starts = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))
    else:
        starts = find_starts(codes)
        named = [named[code] for code in codes[starts]]
        codes = np.repeat(np.arange(starts.size), np.diff(np.append(starts, count)))
    if order is None:
        rows = np.argsort(codes, kind="stable")
    else:
        with convertible(keys.order, order):
            rows = _sort_rows(order, codes, named, keys, first_row, repeats)
    return Grouping(rows, offsets_of(np.bincount(codes, minlength=len(named))), named, starts)


def _sort_rows(
    order: Cells, codes: Ints, named: list[Any], keys: Keys, first_row: int, repeats: bool
) -> Ints:
    ranks = rank_order(order, keys, first_row)
    steps = np.diff(codes)
    if (steps >= 0).all() and (ranks[1:] > ranks[:-1])[steps == 0].all():
        return np.arange(codes.size)
    rows = np.lexsort((ranks, codes))
    if repeats:
        return rows
    repeated: Bools = (np.diff(codes[rows]) == 0) & (ranks[rows[1:]] == ranks[rows[:-1]])
    if repeated.any():
        place = int(np.argmax(repeated))
        one, other = sorted((int(rows[place]), int(rows[place + 1])))
        whose = "" if keys.sequence is None else f"{keys.sequence} = {named[codes[one]]!r} with "
        value = order[one] if isinstance(order, list) else order[one].as_py()
        shown = repr(value) if isinstance(value, str) else str(value)
        places = f"is in row {first_row + one} and in row {first_row + other}"
        raise DataError(
            f"the rows of a sequence must differ in {keys.order!r}, but {whose}{keys.order} = "
            f"{shown} {places if first_row >= 0 else 'occurs twice'}"
            f"{_count_more(int(repeated.sum()) - 1)}; leave one of them out, or say what becomes "
            "of them (`duplicates`, --duplicates first, last or mean)."
        )
    return rows


def _count_more(count: int) -> str:
    return f", and {count:,} more rows are such repeats" if count else ""


def rank_order(order: Cells, keys: Keys, first_row: int) -> Any:
    """Numbers that sort as the values of an order column do.

    An ordered dictionary sorts by its categories, and times with a zone sort as instants, where
    Python goes by the clock, which shows an hour twice in autumn.
    """
    column = Column(str(keys.order), first_row)
    rule = f"column {keys.order!r} must have a value in every row"
    _require_values(order, rule, first_row)
    if isinstance(order, list):
        return _rank_items(order, column)
    if types.is_dictionary(order.type) and order.type.ordered:
        if isinstance(order, pa.ChunkedArray):
            order = order.unify_dictionaries().combine_chunks()
        return order.indices.to_numpy(zero_copy_only=False)
    order = plain(order)
    if keys.text != TIMES or keys.dates is not None:
        order = _parse(order, keys, column)
    kind = order.type
    if types.is_integer(kind) or types.is_floating(kind):
        _require_values(order, rule, first_row)
        return order.to_numpy(zero_copy_only=False)
    if types.is_temporal(kind):
        return to_integers(order)
    encoded = order.dictionary_encode()
    if is_text(kind) and keys.text is None:
        _require_sortable(encoded.dictionary[:_LOOKED_AT].to_pylist(), column)
    ranks = _rank_items(encoded.dictionary.to_pylist(), column)
    return ranks[encoded.indices.to_numpy(zero_copy_only=False)]


def _require_sortable(texts: list[str], column: Column) -> None:
    """Raise where all text is dates with the year last, or with months by name.

    These do not sort as text.
    """
    found = [own for own in map(_YEAR_LAST.fullmatch, texts) if own]
    if texts and all(map(_MONTH.search, texts)):
        text = texts[0].strip()
        forms = [form for form in _WITH_MONTHS if _parse_date(text, form)]
        options = f"--dates '{forms[0]}'" if forms else "with --dates, as `strftime` has it"
        raise _unsortable(texts[0], options, column)
    if not texts or len(found) < len(texts):
        return
    days_first = any(int(own[1]) > 12 for own in found)
    months_first = any(int(own[3]) > 12 for own in found)
    mark, year = found[0][2], "%Y" if len(found[0][4]) == 4 else "%y"
    clock = "" if ":" not in texts[0] else " %H:%M:%S" if found[0][5] else " %H:%M"
    forms = [f"%d{mark}%m"] * (not months_first) + [f"%m{mark}%d"] * (not days_first)
    options = " or ".join(f"--dates '{form}{mark}{year}{clock}'" for form in forms or ["%d%m"])
    raise _unsortable(texts[0], options, column)


def _unsortable(text: str, options: str, column: Column) -> DataError:
    return DataError(
        f"column {column.name!r} holds dates such as {text!r}, which do not sort as text; say "
        f"how they are written: {options} (in Python `dates=`)."
    )


def _rank_items(items: list[Any], column: Column) -> Ints:
    try:
        rank = {item: index for index, item in enumerate(sorted(set(items)))}
    except TypeError as error:
        raise DataError(
            f"column {column.name!r} must hold sortable values to order the slices: {error}."
        ) from None
    return np.fromiter(map(rank.__getitem__, items), np.int64, len(items))


def with_order_type(keys: Keys, order: Any) -> Keys:
    """The keys, with what the first rows of an order column of text stand for."""
    if order is None:
        return keys
    with convertible(keys.order, order):
        first = plain(order)[:_LOOKED_AT]
    if is_text(first.type):
        if keys.dates is not None:
            return replace(keys, text=ZONED_TIMES if "%z" in keys.dates else TIMES)
        first = pc.utf8_trim_whitespace(first)
        kinds = (NUMBERS, TIMES, ZONED_TIMES)
        return replace(keys, text=next((kind for kind in kinds if _stands_for(first, kind)), None))
    return keys


def _stands_for(texts: Any, kind: Any) -> bool:
    with suppress(pa.ArrowInvalid):
        texts.cast(kind)
        return True
    return False


def _parse(cells: Any, keys: Keys, column: Column) -> Any:
    """Cells of an order column, as numbers or times where they are text that stands for them."""
    if not is_text(cells.type):
        return cells
    if keys.dates is not None:
        return parse_dates(cells, keys.dates, column)
    if keys.text is None:
        return cells
    with suppress(pa.ArrowInvalid):
        # Nanoseconds since 1970 are whole numbers that float64 does not tell apart.
        return cells.cast(pa.int64() if keys.text == NUMBERS else keys.text)
    if keys.text == NUMBERS:
        return parse_numbers(cells, column, "the rows before hold numbers")
    if keys.text == TIMES:
        return cells
    row = next(row for row, cell in enumerate(cells) if not _stands_for(cell, ZONED_TIMES))
    rule = "times with an offset, as 2024-03-31T02:00+01:00"
    raise column.wrong(row, rule, cells[row].as_py(), "the rows before do")


def values_of(cells: Any) -> NDArray[Any]:
    """Values of an order column: numbers and times as NumPy has them, anything else as objects."""
    if not isinstance(cells, list):
        kind = cells.type
        is_time = types.is_date(kind) or types.is_duration(kind) or types.is_timestamp(kind)
        has_zone = types.is_timestamp(kind) and kind.tz is not None
        if types.is_integer(kind) or types.is_floating(kind) or (is_time and not has_zone):
            return np.array(cells.to_numpy(zero_copy_only=False))
        cells = plain(cells).to_pylist()
    return np.fromiter(cells, dtype=object, count=len(cells))


def parsed_values(cells: Any, keys: Keys, first_row: int) -> NDArray[Any]:
    """Values of the order column of a file; text that stands for numbers or times is parsed."""
    with convertible(keys.order, cells):
        return values_of(_parse(plain(cells), keys, Column(str(keys.order), first_row)))


def parse_dates(cells: Any, form: str, column: Column) -> Any:
    """Text as times in microseconds, read with a format; those with an offset are in UTC."""
    trimmed = pc.utf8_trim_whitespace(cells)
    if "%z" not in form and "%f" not in form:
        found = pc.strptime(trimmed, form, "us", error_is_null=True)
    else:  # Arrow reads neither offsets nor fractions
        encoded = trimmed.dictionary_encode()
        times = [_parse_date(text, form) for text in encoded.dictionary.to_pylist()]
        found = pa.array(times, ZONED_TIMES if "%z" in form else TIMES).take(encoded.indices)
    wrong = is_missing(found) & ~is_missing(cells)
    if wrong.any():
        row = int(np.argmax(wrong))
        rule = f"times written as {form!r} ({datetime(2024, 3, 31, 14, 5).strftime(form)})"
        raise column.wrong(row, rule, cells[row].as_py(), f"{int(wrong.sum()):,} cells are not")
    return found


def _parse_date(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form)
    except ValueError:
        return None


# Steps of an order column


def ticks_of(cells: Any, keys: Keys) -> tuple[Ints | None, Fraction | None]:
    """Values of an order column as integers, and the seconds of a tick where they are times.

    There are no integers for an order column of anything but whole numbers and times.
    """
    cells = _parse(cells, keys, Column(str(keys.order)))
    kind = cells.type
    with suppress(pa.ArrowInvalid):
        if types.is_integer(kind):
            return cells.cast(pa.int64()).to_numpy(zero_copy_only=False), None
    if not types.is_temporal(kind) or types.is_time(kind):
        return None, None
    seconds = Fraction(1, _TICKS[getattr(kind, "unit", "ms")])
    ticks = to_integers(cells).astype(np.int64)
    return ticks, Fraction(86_400) if types.is_date32(kind) else seconds


def _steps(ticks: Ints, grouping: Grouping) -> tuple[Ints, Ints]:
    """The steps within sequences, and the sequence of each."""
    owner = grouping.owners
    within = owner[1:] == owner[:-1]
    return np.diff(ticks[grouping.rows])[within], owner[1:][within]


@final
@dataclass(frozen=True)
class Steps:
    """The steps from slice to slice of a table.

    `usual` is the commonest one in words, and as `every` takes it. `uneven` names the commonest
    ones where they are not all equal, else it is None. `gaps` are steps longer than the usual one,
    and `absent` the slices that lie in them where all steps are multiples of the usual one.
    """

    usual: str
    every: str
    uneven: str | None
    gaps: int = 0
    absent: int | None = None

    def advice(self, order: str, every: str, remedy: str = "") -> str:
        """What to know of the steps of an order column that are not all equal.

        `every` is how the usual step is said, and `remedy` what to do where that is not it.
        """
        usual = "put in empty rows where some are missing"
        if self.absent:
            slices = "1 slice" if self.absent == 1 else f"{self.absent:,} slices"
            usual = f"{every} puts in {slices} that may be missing"
        return (
            f"steps of {order!r} are not all equal ({self.uneven}): slices follow each other "
            f"whatever lies between; {remedy or usual}."
        )


def describe_steps(order: Any, keys: Keys, grouping: Grouping) -> Steps | None:
    """The steps of an order column; None where it has none, or sequences have one slice each."""
    ticks, seconds = ticks_of(plain(order), keys)
    if ticks is None:
        return None
    found = _steps(ticks, grouping)[0]
    if not found.size:
        return None
    steps, counts = np.unique(found, return_counts=True)
    ordered = steps[np.argsort(-counts, kind="stable")].tolist()
    usual, every = name_step(ordered[0], seconds), name_step(ordered[0], seconds).replace(" ", "")
    days = steps * float(seconds or 0) / 86_400
    if steps.size < 2 or any(
        ((low <= days) & (days <= high)).all() for low, high in _CALENDAR_DAYS
    ):
        return Steps(usual, every, None)
    shown = [name_step(step, seconds) for step in ordered[:_SHOWN]]
    uneven = ", ".join(shown) + (", ..." if len(ordered) > _SHOWN else "")
    absent = None
    if ordered[0] > 0 and not (found % ordered[0]).any():
        absent = int((found // ordered[0] - 1).sum())
    return Steps(usual, every, uneven, int((found > ordered[0]).sum()), absent)


def name_step(step: int, seconds: Fraction | None) -> str:
    """A step in words, such as 6 h."""
    if seconds is None:
        return str(step)
    for unit, size in _UNITS:
        if (step * seconds / size).denominator == 1:
            return f"{step * seconds / size} {unit}"
    return f"{float(step * seconds):g} s"


def order_goes_on(order: Any, keys: Keys) -> bool:
    """Whether the values that follow the last ones of an order column can be told from its type."""
    kind = plain(order).type
    if is_text(kind):
        # The offset from UTC that a zone will have later is not known from the offsets so far.
        return keys.text in (NUMBERS, TIMES)
    return bool(types.is_integer(kind) or types.is_date(kind) or types.is_timestamp(kind))


def next_values(order: Any, keys: Keys, grouping: Grouping, steps: int) -> Any:
    """Order values of the `steps` slices that follow each sequence, all in one column.

    A sequence goes on with the step that makes up more than half of its steps; null where none
    does.
    """
    cells = plain(order)
    ticks, _ = ticks_of(cells, keys)
    if ticks is None:
        return pa.nulls(len(grouping.ids) * steps, cells.type)
    found, owner = _steps(ticks, grouping)
    step, is_usual = _usual_steps(found, owner, len(grouping.ids))
    last = ticks[grouping.rows][grouping.offsets[1:] - 1]
    ahead = last[:, None] + step[:, None] * np.arange(1, steps + 1)
    unknown = np.repeat(~is_usual, steps)
    return pc.if_else(pa.array(unknown), None, _from_ticks(ahead.ravel(), cells, keys))


def _usual_steps(steps: Ints, owner: Ints, count: int) -> tuple[Ints, Bools]:
    """The step of each owner that makes up more than half of its steps, and whether there is one.

    If there is one it is the middle one of the sorted steps.
    """
    number = np.bincount(owner, minlength=count)
    middle = np.zeros(count, dtype=np.int64)
    some = number > 0
    places = (np.cumsum(number) - number + (number - 1) // 2)[some]
    middle[some] = steps[np.lexsort((steps, owner))][places]
    same = np.bincount(owner[steps == middle[owner]], minlength=count)
    return middle, 2 * same > number


def _from_ticks(ticks: Ints, like: Any, keys: Keys) -> Any:
    """Ticks as an order column has them; times in text as its longest cell is written."""
    kind = like.type
    if types.is_integer(kind):
        return pa.array(ticks)  # 64 bits, in which small integers have room to go on
    if types.is_temporal(kind):
        return pa.array(ticks).cast(pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    if keys.text == NUMBERS:
        return pa.array(ticks).cast(kind)
    if keys.dates is not None:
        times = ticks.astype("datetime64[us]").tolist()
        if "%z" in keys.dates:
            times = [own.replace(tzinfo=UTC) for own in times]
        return pa.array([own.strftime(keys.dates) for own in times], kind)
    if keys.text == ZONED_TIMES:
        texts = np.datetime_as_string(ticks.astype("datetime64[us]"), unit="s").tolist()
        return pa.array([f"{text}+00:00" for text in texts], kind)
    longest = like[int(np.argmax(pc.utf8_length(like).to_numpy(zero_copy_only=False)))].as_py()
    unit: Any = _ENDINGS.get(len(longest), "us")
    texts = np.datetime_as_string(ticks.astype("datetime64[us]"), unit=unit).tolist()
    mark = "T" if "T" in longest else " "
    return pa.array([text.replace("T", mark) for text in texts], kind)


def order_cells(ticks: Ints, known: Any, like: Any, keys: Keys) -> Any:
    """The order column of slices that were put in between others, which keep their cells.

    Args:
        ticks: Of all slices.
        known: Their cells, null where a slice was put in.
        like: The cells of the table.
        keys: The key columns.
    """
    absent = known.is_null().to_numpy(zero_copy_only=False)
    if not absent.any():
        return known
    new = _from_ticks(ticks[absent], plain(like), keys).cast(known.type)
    index = np.arange(ticks.size)
    index[absent] = ticks.size + np.arange(int(absent.sum()))
    return pa.concat_arrays([known, new]).take(pa.array(index))
