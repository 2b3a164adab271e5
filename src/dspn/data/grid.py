"""Regular steps from slice to slice: rows that occur twice become one, missing ones are put in."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dspn._arguments import Floats, Ints
from dspn.data.cells import as_usual, is_text, plain
from dspn.data.layout import offsets_of
from dspn.data.order import Grouping, Keys, name_step, order_cells, rank_order, ticks_of
from dspn.errors import DataError

DUPLICATES: Final = ("error", "first", "last", "mean")
_SECONDS: Final[dict[str, Fraction]] = {
    **{unit: Fraction(size) for unit, size in (("w", 604_800), ("d", 86_400), ("h", 3_600))},
    **{"min": Fraction(60), "s": Fraction(1), "ms": Fraction(1, 10**3)},
    **{"us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)},
}
_EVERY: Final = re.compile(r"\s*(\d+(?:\.\d+)?)?\s*([a-z]*)\s*", re.IGNORECASE)
# A grid with so many times the rows of the table, and so many rows, is a mistake in the step.
_MOST_TIMES: Final = 1_000
_MOST_ROWS: Final = 1_000_000


@final
@dataclass(frozen=True)
class Grid:
    """What becomes of rows of one time, and the step of the slices, where they have to be regular.

    `duplicates` is "error", "first", "last" or "mean"; the mean is that of numbers, and anything
    else is that of the first row. `every` is a number for an order column of whole numbers, and for
    times text such as "1h", "15min" or "1d": slices that are not there become empty ones.
    """

    every: str | float | None = None
    duplicates: str = "error"

    def __post_init__(self) -> None:
        if self.duplicates not in DUPLICATES:
            raise DataError(
                f"`duplicates` must be one of {', '.join(DUPLICATES)}, but is {self.duplicates!r}."
            )
        if self.every is not None:
            _split(self.every)

    @property
    def changes(self) -> bool:
        """Whether rows may be left out or put in."""
        return self.every is not None or self.duplicates != "error"


AS_IT_IS: Final = Grid()


@final
@dataclass(frozen=True, eq=False)
class Plan:
    """Which row of a table becomes which slice.

    `index[t]` is the row of slice t, -1 where it is put in, and `offsets` part the sequences.
    `ticks` are the order values where slices are put in. `runs` are rows that are one slice
    together, where their mean is taken: the rows, where each run begins, and its slice.
    """

    index: Ints
    offsets: Ints
    ticks: Ints | None
    runs: tuple[Ints, Ints, Ints] | None = None

    @property
    def first_rows(self) -> Ints:
        """The row of the first slice of the sequence of each slice."""
        return np.repeat(self.index[self.offsets[:-1]], np.diff(self.offsets))

    def take(self, cells: Any) -> Any:
        """Cells by slices; null where a slice is put in."""
        return plain(cells).take(pa.array(self.index, mask=self.index < 0))

    def take_numbers(self, values: Floats, *, averaged: bool) -> Floats:
        """Numbers by slices, those of rows of one time averaged; NaN where a slice is put in."""
        found = np.append(values, np.nan)[self.index]
        if self.runs is not None and averaged:
            rows, starts, places = self.runs
            own = values[rows]
            present = ~np.isnan(own)
            count = np.add.reduceat(present.astype(np.float64), starts)
            total = np.add.reduceat(np.where(present, own, 0.0), starts)
            with np.errstate(invalid="ignore"):
                found[places] = total / count
        return found


def plan_grid(order: Any, grouping: Grouping, keys: Keys, grid: Grid, first_row: int) -> Plan:
    """The slices that rows become.

    Args:
        order: Cells of the order column; None where there is none.
        grouping: The rows of each sequence, in their order; some may have one time.
        keys: The key columns.
        grid: The rule.
        first_row: Number of the first row, for messages.
    """
    if order is None:
        raise DataError(
            "regular steps and rows of one time need an order column; name it (`order`, --order)."
        )
    rows, owners, lengths = grouping.rows, grouping.owners, grouping.lengths
    kept, runs = np.arange(rows.size), None
    if grid.duplicates != "error":
        ranks = rank_order(order, keys, first_row)[rows]
        begins = np.ones(rows.size, dtype=np.bool_)
        begins[1:] = (owners[1:] != owners[:-1]) | (ranks[1:] != ranks[:-1])
        starts = np.flatnonzero(begins)
        sizes = np.diff(np.append(starts, rows.size))
        kept = starts + sizes - 1 if grid.duplicates == "last" else starts
        several = np.flatnonzero(sizes > 1)
        if grid.duplicates == "mean" and several.size:
            members = np.repeat(sizes > 1, sizes)
            firsts = offsets_of(sizes[several])[:-1]
            runs = rows[members], firsts, several
        lengths = np.bincount(owners[kept], minlength=lengths.size)
    index = rows[kept]
    if grid.every is None:
        return Plan(index, offsets_of(lengths), None, runs)
    places, ticks, lengths = _places(order, index, lengths, keys, grid, first_row)
    spread = np.full(int(lengths.sum()), -1, dtype=np.int64)
    spread[places] = index
    if runs is not None:
        runs = runs[0], runs[1], places[runs[2]]
    return Plan(spread, offsets_of(lengths), ticks, runs)


def _places(
    order: Any, index: Ints, lengths: Ints, keys: Keys, grid: Grid, first_row: int
) -> tuple[Ints, Ints, Ints]:
    """Places of rows in the grid, the ticks of all its places, and the lengths of sequences."""
    assert grid.every is not None
    ticks, seconds = ticks_of(plain(order), keys)
    if ticks is None:
        raise DataError(
            f"column {keys.order!r} must hold whole numbers or times for regular steps, but is of "
            f"type {plain(order).type}; convert it, or say how its dates are written (--dates)."
        )
    step = _step(grid.every, seconds, keys)
    own, starts = ticks[index], offsets_of(lengths)[:-1]
    since = own - np.repeat(own[starts], lengths)
    odd = since % step != 0
    if odd.any():
        row = int(index[int(np.argmax(odd))])
        where = f"row {first_row + row}" if first_row >= 0 else "a row"
        value = plain(order)[row].as_py()
        raise DataError(
            f"column {keys.order!r} must go on by {name_step(step, seconds)} from the first slice "
            f"of each sequence, but {where} ({value}) does not, nor do "
            f"{int(odd.sum()) - 1:,} others; take a smaller step, or round the times."
        )
    steps = since // step
    longer = steps[np.append(starts[1:], own.size) - 1] + 1
    total = int(longer.sum())
    if total > _MOST_ROWS and total > _MOST_TIMES * own.size:
        raise DataError(
            f"steps of {name_step(step, seconds)} would make {total:,} slices of {own.size:,} "
            "rows; take a larger step."
        )
    offsets = offsets_of(longer)
    places = np.repeat(offsets[:-1], lengths) + steps
    within = np.arange(total) - np.repeat(offsets[:-1], longer)
    return places, np.repeat(own[starts], longer) + step * within, longer


def _split(every: str | float) -> tuple[Fraction, str]:
    """The number and the unit of a step."""
    match = _EVERY.fullmatch(str(every))
    number = Fraction(match[1] or 1) if match and str(every).strip() else Fraction(0)
    unit = match[2] if match else ""
    known = next((own for own in _SECONDS if own == unit.lower()), None if unit else "")
    if number <= 0 or known is None or isinstance(every, bool):
        raise DataError(
            "`every` must be a step such as '1h', '15min', '1d' for times, with one of the units "
            f"{', '.join(_SECONDS)}, or a number for whole numbers, but is {every!r}."
        )
    return number, known


def _step(every: str | float, seconds: Fraction | None, keys: Keys) -> int:
    """A step in ticks of the order column."""
    number, unit = _split(every)
    if (seconds is None) == bool(unit):
        kind = "whole numbers, so that a step has no unit" if unit else "times; say the unit"
        raise DataError(
            f"`every` must fit the column {keys.order!r}, which holds {kind}, but is {every!r}."
        )
    step = number if seconds is None else number * _SECONDS[unit] / seconds
    if step.denominator != 1:
        raise DataError(
            f"`every` must be a multiple of the smallest step of {keys.order!r}, but is {every!r}."
        )
    return int(step)


def with_grid(
    table: Any, plan: Plan, keys: Keys, fixed: Collection[str], decimal: str | None = None
) -> Any:
    """The rows of a table by slices.

    Args:
        table: The table.
        plan: Which row becomes which slice.
        keys: The key columns: slices that are put in have them.
        fixed: Columns that are the same in all rows of a sequence.
        decimal: The decimal sign of numbers in text.
    """
    first = pa.array(plan.first_rows)
    columns = {}
    for name in table.column_names:
        cells = plain(table[name])
        if name == keys.sequence or name in fixed:
            columns[name] = cells.take(first)
        elif name == keys.order:
            columns[name] = plan.take(cells)
            if plan.ticks is not None:
                columns[name] = order_cells(plan.ticks, columns[name], cells, keys)
        elif plan.runs is None:
            columns[name] = plan.take(cells)
        else:
            columns[name] = _averaged(cells, plan, decimal)
    return pa.table(columns)


def _averaged(cells: Any, plan: Plan, decimal: str | None) -> Any:
    """Cells by slices, numbers of one time averaged; those of text become text again."""
    taken = plan.take(cells)
    kind = cells.type
    assert plan.runs is not None
    rows, _, places = plan.runs
    if is_text(kind):
        try:
            numbers = as_usual(pc.utf8_trim_whitespace(cells.take(pa.array(rows))), decimal)
            numbers = numbers.cast(pa.float64())
        except pa.ArrowInvalid:
            return taken
        values = np.full(len(cells), np.nan)
        values[rows] = numbers.to_numpy(zero_copy_only=False)
    elif types.is_integer(kind) or types.is_floating(kind):
        values = cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    else:
        return taken
    means = plan.take_numbers(values, averaged=True)
    chosen = np.zeros(means.size, dtype=np.bool_)
    chosen[places] = True
    new = pa.array(means, mask=np.isnan(means))
    if is_text(kind):
        new = new.cast(kind)
        new = pc.replace_substring(new, ".", decimal) if decimal == "," else new
        return pc.if_else(pa.array(chosen), new, taken)
    return pc.if_else(pa.array(chosen), new, taken.cast(pa.float64(), safe=False))
