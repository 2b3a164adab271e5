"""Times of slices, as the order column of a table has them: calendar fields, steps, times ahead."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from dspn._arguments import Floats, Ints
from dspn.data.layout import Ragged
from dspn.data.order import (
    Grouping,
    Keys,
    Steps,
    describe_steps,
    next_values,
    with_order_type,
)
from dspn.errors import DataError

NO_TIMES: Final = (
    "read a table with an `order` column of times (--order in commands), or give the values "
    "themselves as a column of `inputs`"
)
_READ: Final = {"hour": pc.hour, "weekday": pc.day_of_week, "month": pc.month}
_KEYS: Final = Keys(None, "order")


def read_times(values: NDArray[Any]) -> Any:
    """Order values as Arrow cells; text that stands for times or numbers is parsed."""
    cells = pa.array(values)
    kind = with_order_type(_KEYS, cells).text
    return cells if kind is None else cells.cast(kind)


def steps_of(values: NDArray[Any], offsets: Ints, dates: str | None) -> Steps | None:
    """The steps of the order values of slices; None where they have none."""
    cells, rows = pa.array(values), np.arange(values.size)
    grouping = Grouping(rows, offsets, [*range(offsets.size - 1)], offsets[:-1])
    return describe_steps(cells, with_order_type(replace(_KEYS, dates=dates), cells), grouping)


def calendar_field(times: Any, field: str) -> Floats:
    """The hour, the weekday or the month of each time, by the clock of its zone."""
    is_date = types.is_date(times.type) and field != "hour"
    if not (types.is_timestamp(times.type) or is_date):
        raise DataError(
            f"the {field} of a slice needs an order column of times, but it holds {times.type}; "
            f"{NO_TIMES}."
        )
    return np.asarray(_READ[field](times).to_numpy(zero_copy_only=False), dtype=np.float64)


def elapsed(times: Any, offsets: Ints) -> Floats:
    """The time since the previous slice, 0 at the first: in seconds, or the unit of numbers."""
    kind = times.type
    if types.is_date(kind) or types.is_timestamp(kind):
        ticks = times.cast(pa.timestamp("us", tz=getattr(kind, "tz", None))).cast(pa.int64())
        numbers = ticks.to_numpy(zero_copy_only=False)
        out = np.diff(numbers, prepend=numbers[0]) / 1e6
    elif types.is_integer(kind) or types.is_floating(kind):
        numbers = times.to_numpy(zero_copy_only=False)
        out = np.diff(numbers, prepend=numbers[0]).astype(np.float64)
    else:
        raise DataError(
            "the time since the previous slice needs an order column of times or numbers, but it "
            f"holds {kind}; {NO_TIMES}."
        )
    out[offsets[:-1]] = 0.0
    if (out < 0).any():
        row = int(np.argmax(out < 0))
        raise DataError(
            "the times of a sequence must rise from slice to slice, but fall in "
            f"{Ragged(offsets, None).place(row)}; sort the slices."
        )
    return np.asarray(out)


def with_times_ahead(times: Any, offsets: Ints, steps: int, name: str) -> Any:
    """The last time of each sequence and those of the `steps` slices that follow it.

    Raises for the input `name` where a sequence has no regular step.
    """
    count = offsets.size - 1
    rows = np.arange(int(offsets[-1]))
    grouping = Grouping(rows, offsets, list(range(count)), offsets[:-1])
    later = next_values(times, with_order_type(_KEYS, times), grouping, steps)
    if later.null_count:
        raise DataError(
            f"input {name!r} of the slices ahead follows from their times, which are not known "
            "where a sequence has no regular step; give the `inputs` of the slices ahead."
        )
    both = pa.concat_arrays([times.cast(later.type), later])
    ahead = int(offsets[-1]) + np.arange(count * steps).reshape(count, steps)
    return both.take(pa.array(np.concatenate([offsets[1:, None] - 1, ahead], axis=1).ravel()))
