"""Tables of files: in chunks of whole sequences, so that memory does not grow with the file."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dspn._arrays import Floats, Ints
from dspn.data.cells import (
    code_cells,
    convertible,
    encode_checked,
    is_plain,
    plain,
    read_cells,
    reads_as_number,
)
from dspn.data.coding import MISSING, Column, Raw, Unseen, infer_variable
from dspn.data.order import (
    Grouping,
    Keys,
    find_borders,
    group_rows,
    near_misses,
    number_sequences,
    with_order_type,
)
from dspn.data.schema import Kind, Schema, Variable, list_categories, list_names
from dspn.data.sequences import Sequences
from dspn.errors import DataError

# Cells and rows of a chunk: enough to keep the engine busy, and a few dozen megabytes.
_MOST_CELLS: Final = 2_000_000
_ROWS: Final = (1_000, 65_536)


class Source(Protocol):
    """An open file that holds a table, read in record batches."""

    @property
    def said(self) -> str:
        """What messages call the file."""

    @property
    def schema(self) -> Any:
        """The Arrow schema of the table."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in their order."""

    def batches(self, wanted: list[str]) -> Iterator[Any]:
        """Record batches of the named columns."""


def require_columns(source: Source, wanted: Iterable[str], remedy: str = "") -> None:
    """Raise where a column is absent, with the similar names and all others."""
    columns = source.columns
    known = set(columns)
    for name in wanted:
        if name not in known:
            hint = f"; {remedy}" if remedy else ""
            raise DataError(
                f"{source.said} has no column {name!r}{near_misses(name, columns)}, its columns "
                f"are {list_names(columns)}{hint}."
            )


@final
@dataclass(frozen=True, eq=False)
class Chunk:
    """Whole sequences: rows as the table has them, and the grouping that orders them by slices.

    `first_row` is the number of the first row in the table, counted from 1.
    """

    table: Any
    first_row: int
    grouping: Grouping
    keys: Keys

    def sequences(
        self, schema: Schema, missing: tuple[str, ...] = MISSING, unseen: Unseen | None = None
    ) -> Sequences:
        """The coded sequences of the variables.

        Args:
            schema: The variables.
            missing: Words that mean a missing value.
            unseen: Counts unknown categories, which are then missing; without it they are errors.
        """
        columns = (
            code_cells(
                self.table[variable.name],
                variable,
                Column(variable.name, self.first_row, missing, unseen),
            )
            for variable in schema
        )
        return self.ordered(columns, schema)

    def ordered(self, columns: Iterable[Floats], schema: Schema) -> Sequences:
        """The sequences of codes in the order of the table's rows, a column for each variable."""
        values = np.empty((self.table.num_rows, len(schema)))
        for number, codes in enumerate(columns):
            values[:, number] = codes[self.grouping.rows]
        ids = None if self.keys.sequence is None else self.grouping.ids
        return Sequences.from_codes(values, self.grouping.offsets, schema, ids)

    def as_rows(self, found: NDArray[Any]) -> NDArray[Any]:
        """Values of each slice in the order of the table's rows."""
        out = np.empty_like(found)
        out[self.grouping.rows] = found
        return out

    def ids(self) -> Any:
        """The ids of the sequences, in the type of the table's column."""
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
    """The table in chunks that are cut between sequences.

    Args:
        source: The open file.
        keys: The key columns, which are always read.
        names: The columns to read, of numbers, text, truths or times.
        sort: Whether the rows of a sequence may lie anywhere; all rows are then one chunk.
        whole: Whether to read all rows as one chunk.
        along: More columns to read, of any type.
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
    seen, row = _Seen(keys), 1
    for table in _cut(source, keys, wanted, None if whole else most):
        ids = table[keys.sequence] if keys.sequence else None
        order = table[keys.order] if keys.order else None
        if row == 1:
            keys = with_order_type(keys, order)
        grouping = group_rows(table.num_rows, ids, order, keys, row, sort=sort)
        if not sort:
            seen.add(grouping, row)
        yield Chunk(table, row, grouping, keys)
        row += table.num_rows
    if row == 1:
        raise DataError(f"{source.said} has a header, but no rows; there is nothing to do.")


def read_whole(
    source: Source, keys: Keys, names: list[str], *, sort: bool, extra: tuple[str, ...] = ()
) -> Chunk:
    """All rows of the columns as one chunk."""
    (chunk,) = chunks(source, keys, [*names, *extra], sort=sort, whole=True)
    return chunk


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
        ids = table[keys.sequence]
        with convertible(keys.sequence, ids):
            last = int(find_borders(number_sequences(ids, keys.sequence, done + 1)[0])[-1])
        if last:
            yield table.slice(0, last)
            rest = table.slice(last).combine_chunks()
            held, rows, done, enough = rest.to_batches(), rows - last, done + last, most
        else:
            enough = 2 * rows  # one long sequence is not looked through again at every batch
    if rows:
        yield pa.Table.from_batches(held)


@final
class _Seen:
    """The sequences read so far, 16 bytes for each, and the row where each began.

    Names are told apart by 64 bits of their text: among ten million the chance that two are taken
    for one is about one in 400,000. The numbers -1 and -2 themselves have the same hash.
    """

    def __init__(self, keys: Keys) -> None:
        self._name = keys.sequence
        self._runs: list[tuple[Ints, Ints]] = []

    def add(self, grouping: Grouping, first_row: int) -> None:
        """Add the sequences of a chunk; raises where one has been read before."""
        marks = np.fromiter(map(hash, map(str, grouping.ids)), np.int64, len(grouping.ids))
        begun = grouping.starts + first_row
        order = np.argsort(marks, kind="stable")
        again = np.flatnonzero(np.diff(marks[order]) == 0)
        if again.size:
            one = again[np.argmin(begun[order][again + 1])]
            raise self._back(grouping.ids[order[one + 1]], *begun[order[one : one + 2]])
        for known, rows in self._runs:
            place = np.minimum(np.searchsorted(known, marks), known.size - 1)
            found = np.flatnonzero(known[place] == marks)
            if found.size:
                raise self._back(grouping.ids[found[0]], rows[place[found[0]]], begun[found[0]])
        marks, begun = marks[order], begun[order]
        # Few sorted runs: two of about one length become one.
        while self._runs and self._runs[-1][0].size <= 2 * marks.size:
            other, rows = self._runs.pop()
            marks, begun = np.concatenate([other, marks]), np.concatenate([rows, begun])
            order = np.argsort(marks, kind="stable")
            marks, begun = marks[order], begun[order]
        self._runs.append((marks, begun))

    def _back(self, sequence: Any, before: int, now: int) -> DataError:
        return DataError(
            f"the rows of a sequence must lie together, but {self._name} = {sequence!r} begins in "
            f"row {before} and comes back in row {now}; sort the table, or use --sort."
        )


# Variables whose kind the table or the user tells


@final
@dataclass(frozen=True, eq=False)
class Described:
    """A variable, its codes in the order of the rows, and what its kind was inferred from."""

    variable: Variable
    codes: Floats
    reason: str


def variable_names(source: Source, keys: Keys, wanted: tuple[str, ...] | None) -> list[str]:
    """The columns that are variables: those wanted, or all but the keys."""
    if wanted is not None:
        for name in wanted:
            if name in keys.names:
                raise DataError(f"column {name!r} cannot be both a variable and a key.")
        return list(dict.fromkeys(wanted))
    names = [name for name in source.columns if name not in keys.names]
    if not names:
        raise DataError(
            f"{source.said} must have at least one column besides the keys, but its columns are "
            f"{list_names(source.columns)}."
        )
    return names


def describe_column(
    chunk: Chunk, name: str, kind: str | None, missing: tuple[str, ...] = MISSING
) -> Described:
    """A variable as its column suggests, or as `kind` says.

    Args:
        chunk: All rows of the table.
        name: Name of the column.
        kind: "categorical", "binary", "continuous" or "count", or None to infer it.
        missing: Words that mean a missing value.
    """
    column = Column(name, chunk.first_row, missing)
    cells = chunk.table[name]
    with convertible(name, cells):
        if kind is None:
            raw = read_cells(cells, column)
            variable, reason = infer_variable(name, *raw)
        elif kind in ("categorical", "binary"):
            raw, variable = _read_categories(cells, column, is_binary=kind == "binary")
            reason = "booleans" if raw[1].boolean else "--kind"
        else:
            raw = read_cells(cells, column, is_number=True, remedy=f"--kind says {kind}")
            variable, reason = Variable(name, Kind(kind)), "--kind"
        return Described(variable, encode_checked(raw, variable, column), reason)


def _read_categories(cells: Any, column: Column, *, is_binary: bool) -> tuple[Raw, Variable]:
    """A raw column and its categories: numbers by their values, text as it is."""
    raw = read_cells(cells, column, is_number=False)
    labels = raw[1].labels
    if labels and all(map(reads_as_number, labels)):
        raw = read_cells(cells, column, is_number=True)
        labels = None
    values, reading = raw
    distinct = np.unique(values[~np.isnan(values)]).tolist()
    if is_binary and not labels and set(distinct) <= {0.0, 1.0} and not reading.boolean:
        return raw, Variable.binary(column.name)
    categories: Any = labels or [int(v) if v.is_integer() else v for v in distinct]
    if reading.boolean:
        categories = (False, True)
    if not categories:
        raise DataError(f"column {column.name!r} has no value, so that it has no categories.")
    if is_binary and len(categories) != 2:
        raise DataError(
            f"column {column.name!r} must have two categories, as --kind says binary, but has "
            f"{len(categories)}: {list_categories(categories)}; say categorical."
        )
    return raw, Variable.categorical(column.name, categories)


def gather_sequences(chunk: Chunk, found: list[Described]) -> Sequences:
    """The sequences of all rows of the described columns."""
    schema = Schema(tuple(described.variable for described in found))
    return chunk.ordered((described.codes for described in found), schema)
