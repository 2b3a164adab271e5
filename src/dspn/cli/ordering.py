"""Order columns of whole numbers and of times: their steps, and what comes after the last."""

from contextlib import suppress
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dspn._arrays import Ints
from dspn.cli.cells import is_text, plain
from dspn.cli.keys import TIMES, Grouping, Keys

_TICKS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
# Months, quarters and years are regular, though their days are not equal in number.
_CALENDAR_DAYS: Final = ((28, 31), (89, 92), (365, 366))
# How many characters text has that ends with days, hours, minutes or seconds.
_ENDINGS: Final = {10: "D", 13: "h", 16: "m", 19: "s"}
_SHOWN: Final = 3


def ticks_of(order: Any, keys: Keys) -> Ints | None:
    """The values of an order column as whole numbers; None if it has neither those nor times."""
    cells = plain(order)
    kind = cells.type
    if types.is_temporal(kind) and not types.is_time(kind):
        wide = pa.int32() if kind.bit_width == 32 else pa.int64()
        return np.asarray(cells.view(wide).to_numpy(zero_copy_only=False), dtype=np.int64)
    with suppress(pa.ArrowInvalid):
        if types.is_integer(kind) or (is_text(kind) and keys.is_number):
            return np.asarray(cells.cast(pa.int64()).to_numpy(zero_copy_only=False))
        if is_text(kind) and keys.times is not None:
            times = cells.cast(keys.times).view(pa.int64())
            return np.asarray(times.to_numpy(zero_copy_only=False))
    return None


def uneven_steps(order: Any, keys: Keys, grouping: Grouping) -> str | None:
    """The steps from slice to slice in words, the commonest first; None if all are equal."""
    ticks = ticks_of(order, keys)
    if ticks is None:
        return None
    steps, counts = np.unique(_steps(ticks, grouping)[0], return_counts=True)
    tick = _tick(plain(order).type, keys)
    if steps.size < 2 or (tick is not None and _in_calendar(steps * float(tick))):
        return None
    ordered = steps[np.argsort(-counts, kind="stable")].tolist()
    said = [str(step) if tick is None else _in_words(step * tick) for step in ordered[:_SHOWN]]
    return ", ".join(said) + (", ..." if len(ordered) > _SHOWN else "")


def _steps(ticks: Ints, grouping: Grouping) -> tuple[Ints, Ints]:
    """The steps within sequences, and the sequence of each."""
    owner = np.repeat(np.arange(len(grouping.ids)), grouping.lengths)
    within = owner[1:] == owner[:-1]
    return np.diff(ticks[grouping.rows])[within], owner[1:][within]


def _tick(kind: Any, keys: Keys) -> Fraction | None:
    """How many seconds a tick has; None for whole numbers."""
    if types.is_date32(kind):
        return Fraction(86_400)
    if types.is_temporal(kind):
        return Fraction(1, _TICKS[getattr(kind, "unit", "ms")])
    return None if keys.times is None else Fraction(1, _TICKS[keys.times.unit])


def _in_calendar(seconds: Any) -> bool:
    days = seconds / 86_400
    return any(bool(((days >= low) & (days <= high)).all()) for low, high in _CALENDAR_DAYS)


def _in_words(seconds: Fraction) -> str:
    for unit, size in _UNITS:
        if (seconds / size).denominator == 1:
            return f"{seconds / size} {unit}"
    return f"{float(seconds):g} s"


def order_goes_on(order: Any, keys: Keys) -> bool:
    """Whether an order column is of a type whose next values can be told."""
    kind = plain(order).type
    if is_text(kind):
        # Which offset a zone will have at a later time, the offsets so far do not say.
        return keys.is_number or keys.times == TIMES
    return bool(types.is_integer(kind) or types.is_date(kind) or types.is_timestamp(kind))


def next_values(order: Any, keys: Keys, grouping: Grouping, steps: int) -> Any:
    """The order of the slices that follow, `steps` for each sequence in one column.

    A sequence goes on with the step that it has; null where its steps are not all equal.
    """
    cells = plain(order)
    ticks = ticks_of(cells, keys)
    if ticks is None:
        return pa.nulls(len(grouping.ids) * steps, _type(cells.type))
    starts, lengths = grouping.offsets[:-1], grouping.lengths
    ordered = ticks[grouping.rows]
    second = np.minimum(starts + 1, ordered.size - 1)
    step: Any = np.where(lengths > 1, ordered[second] - ordered[starts], 0)
    found, owner = _steps(ticks, grouping)
    odd = np.bincount(owner[found != step[owner]], minlength=lengths.size) > 0
    last = ordered[grouping.offsets[1:] - 1]
    ahead = last[:, None] + step[:, None] * np.arange(1, steps + 1)
    unknown = np.repeat(odd | (lengths < 2), steps)
    return pc.if_else(pa.array(unknown), None, _cells(ahead.ravel(), cells, keys))


def _type(kind: Any) -> Any:
    """The type of an order column, or one in which whole numbers have room to go on."""
    return pa.int64() if types.is_integer(kind) else kind


def _cells(ticks: Ints, like: Any, keys: Keys) -> Any:
    """Ticks as an order column has them; times in text as its longest cell is written."""
    kind = like.type
    if types.is_integer(kind):
        return pa.array(ticks)
    if types.is_temporal(kind):
        wide = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(ticks).cast(wide).view(kind)
    if keys.is_number:
        return pa.array(ticks).cast(kind)
    longest = like[int(np.argmax(pc.utf8_length(like).to_numpy(zero_copy_only=False)))].as_py()
    unit: Any = _ENDINGS.get(len(longest), "us")
    texts = np.datetime_as_string(ticks.astype("datetime64[us]"), unit=unit).tolist()
    mark = "T" if "T" in longest else " "
    return pa.array([text.replace("T", mark) for text in texts], kind)
