"""Tables in chunks of whole sequences, so that memory does not grow with the file."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, final
from typing import Any as Source

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dspn._arrays import Bools, Ints
from dspn.cli.cells import MISSING, Column, Unseen, coded, convertible, is_plain, plain
from dspn.cli.keys import Grouping, Keys, borders, grouped, require_columns, with_order_kind
from dspn.errors import DataError
from dspn.sequences import Schema, Sequences

# Cells and rows of a chunk: enough to keep the engine busy, and a few dozen megabytes.
_MOST_CELLS: Final = 2_000_000
_ROWS: Final = (1_000, 65_536)


@final
@dataclass(frozen=True, eq=False)
class Chunk:
    """Whole sequences: their rows as the table has them, and coded in the order of their slices.

    `grouping` leads from the one to the other, and `first_row` counts the rows before, and one.
    """

    table: Any
    first_row: int
    grouping: Grouping
    keys: Keys

    def sequences(
        self, schema: Schema, missing: tuple[str, ...] = MISSING, unseen: Unseen | None = None
    ) -> Sequences:
        """The coded sequences of the variables; unknown categories are errors unless counted."""
        values = np.empty((self.table.num_rows, len(schema)))
        for number, variable in enumerate(schema):
            column = Column(variable.name, self.first_row, missing, unseen)
            values[:, number] = coded(self.table[variable.name], variable, column)
        ids = None if self.keys.sequence is None else self.grouping.ids
        return Sequences.from_codes(values[self.grouping.rows], self.grouping.offsets, schema, ids)

    def as_rows(self, found: NDArray[Any]) -> NDArray[Any]:
        """What was found for each slice, in the order of the table's rows."""
        out = np.empty_like(found)
        out[self.grouping.rows] = found
        return out

    def ids(self) -> Any:
        """What the sequences are called, in the type of the table's column."""
        if self.keys.sequence is None:
            return pa.array([0])
        return plain(self.table[self.keys.sequence]).take(pa.array(self.grouping.starts))


def chunks(
    source: Source,
    keys: Keys,
    names: list[str],
    *,
    sort: bool = False,
    whole: bool = False,
    along: Iterable[str] = (),
) -> Iterator[Chunk]:
    """The named columns of the table, and the keys, cut between sequences; or all as a `whole`.

    Columns `along` come with them, of whatever type they are.
    """
    require_columns(source, [*keys.names, *names])
    asked = {*names, *keys.names}
    for field in source.schema:
        if field.name in asked and not is_plain(field.type):
            raise DataError(
                f"column {field.name!r} of {source.said} must hold numbers, text, truths or times, "
                f"but is of type {field.type}; convert it, or leave it out."
            )
    asked.update(along)
    wanted = [name for name in source.columns if name in asked]
    most = int(np.clip(_MOST_CELLS // max(len(wanted), 1), *_ROWS))
    whole = whole or sort or keys.sequence is None
    seen, row, known = _Seen(keys), 1, False
    for table in _cut(source, keys, wanted, None if whole else most):
        if not known:
            keys = with_order_kind(keys, table[keys.order] if keys.order else None)
            known = True
        ids = table[keys.sequence] if keys.sequence else None
        order = table[keys.order] if keys.order else pa.nulls(table.num_rows)
        grouping = grouped(ids, order, keys, row, sort=sort)
        if not sort:
            seen.take(grouping, row)
        yield Chunk(table, row, grouping, keys)
        row += table.num_rows
    if not known:
        raise DataError(f"{source.said} has a header, but no rows; there is nothing to do.")


def _cut(source: Source, keys: Keys, wanted: list[str], most: int | None) -> Iterator[Any]:
    """Tables of whole sequences, of about `most` rows; all rows at once without a number."""
    held: list[Any] = []
    rows = done = 0
    enough = most
    for batch in source.batches(wanted):
        held.append(batch)
        rows += batch.num_rows
        if enough is None or rows < enough:
            continue
        table = pa.Table.from_batches(held)
        with convertible(keys.sequence, table[keys.sequence]):
            last = int(borders(table[keys.sequence], keys, done + 1)[-1])
        if last:
            yield table.slice(0, last)
            rest = table.slice(last).combine_chunks()
            held, rows, done, enough = rest.to_batches(), rows - last, done + last, most
        else:
            enough = 2 * rows  # one long sequence is not looked through again at every batch
    if held:
        yield pa.Table.from_batches(held)


@final
class _Seen:
    """The sequences met so far, 16 bytes for each, and the row where each began.

    Names are told apart by 64 bits of their text: among ten million the chance that two are taken
    for one is about one in 400,000. The numbers -1 and -2 themselves have the same hash.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._runs: list[tuple[Ints, Ints]] = []

    def take(self, grouping: Grouping, first_row: int) -> None:
        """Raises where a sequence was met before."""
        marks = np.fromiter(map(hash, map(str, grouping.ids)), np.int64, len(grouping.ids))
        begun = grouping.starts + first_row
        order = np.argsort(marks, kind="stable")
        again = np.flatnonzero(np.diff(marks[order]) == 0)
        if again.size:
            one = again[np.argmin(begun[order][again + 1])]
            raise self._back(grouping, order[one + 1], int(begun[order[one]]), first_row)
        for known, rows in self._runs:
            place = np.minimum(np.searchsorted(known, marks), known.size - 1)
            found: Bools = known[place] == marks
            if found.any():
                index = int(np.argmax(found))
                raise self._back(grouping, index, int(rows[place[index]]), first_row)
        self._add(marks[order], begun[order])

    def _back(self, grouping: Grouping, index: int, before: int, first_row: int) -> DataError:
        return DataError(
            f"the rows of a sequence must lie together, but {self._keys.sequence} = "
            f"{grouping.ids[index]!r} begins in row {before} and comes back in row "
            f"{first_row + int(grouping.starts[index])}; sort the table, or use --sort."
        )

    def _add(self, marks: Ints, begun: Ints) -> None:
        """Keeps few sorted runs: two of about one length become one."""
        while self._runs and self._runs[-1][0].size <= 2 * marks.size:
            other, rows = self._runs.pop()
            marks, begun = np.concatenate([other, marks]), np.concatenate([rows, begun])
            order = np.argsort(marks, kind="stable")
            marks, begun = marks[order], begun[order]
        self._runs.append((marks, begun))
