"""Tables of files: in chunks of whole sequences, so that memory does not grow with the file."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dspn._arguments import Floats, Ints
from dspn.data.cells import (
    code_cells,
    convertible,
    encode_checked,
    is_plain,
    plain,
    read_cells,
    reads_as_number,
)
from dspn.data.coding import Raw, categorical_variable, infer_variable, require_words
from dspn.data.grid import AS_IT_IS, Grid, plan_grid, with_grid
from dspn.data.layout import AS_USUAL, Column, TableKeys, Unseen, Writing, first_offsets
from dspn.data.order import (
    Grouping,
    Keys,
    find_starts,
    group_rows,
    number_sequences,
    parsed_values,
    require_columns,
    with_order_type,
)
from dspn.data.schema import Schema, Variable
from dspn.data.sequences import Sequences
from dspn.errors import DataError

# Cells and rows of a chunk: enough to keep the engine busy, and a few dozen megabytes.
_MOST_CELLS: Final = 2_000_000
_ROWS: Final = (1_000, 65_536)
_FIRST_ROWS: Final = 4_096  # of the first chunk, so that it is soon known how long all will take

Item = TypeVar("Item")
Result = TypeVar("Result")


@final
@dataclass(frozen=True, eq=False)
class Source:
    """An open file that holds a table.

    Attributes:
        title: What messages call the table.
        schema: Its Arrow schema.
        is_text: Whether all cells are text as it stands in the file, null where a cell is empty.
        batches: Returns the named columns in record batches.
        share: Returns the fraction of the file that has been read; None where it is not known.
    """

    title: str
    schema: Any
    is_text: bool
    batches: Callable[[list[str]], Iterator[Any]]
    share: Callable[[], float | None]

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in their order."""
        return list(self.schema.names)


@final
@dataclass(frozen=True, eq=False)
class Chunk:
    """Whole sequences: rows as the table has them, and the grouping that orders them by slices.

    `first_row` is the number of the first row in the table, counted from 1. Where rows were left
    out or put in to make steps regular, `numbers` are those of the rows in the file. `decimal` is
    the decimal sign of text, where it was said.
    """

    table: Any
    first_row: int
    grouping: Grouping
    keys: Keys
    numbers: Ints | None = None
    decimal: str | None = None

    def first(self, num_slices: int) -> "Chunk":
        """The first slices, of as many sequences as these are of."""
        own, offsets = self.grouping, first_offsets(self.grouping.offsets, num_slices)
        table = self.table.take(pa.array(own.rows[:num_slices]))
        ids = own.ids[: offsets.size - 1]
        grouping = Grouping(np.arange(offsets[-1]), offsets, ids, offsets[:-1])
        return replace(self, table=table, grouping=grouping, numbers=None)

    def column(self, name: str, writing: Writing, unseen: Unseen | None = None) -> Column:
        """A column of the table, for messages and for reading."""
        return Column(name, self.first_row, writing, unseen, numbers=self.numbers)

    def sequences(
        self, schema: Schema, writing: Writing = AS_USUAL, unseen: Unseen | None = None
    ) -> Sequences:
        """The coded sequences of the variables.

        Args:
            schema: The variables.
            writing: How the cells of text are written.
            unseen: Counts unknown categories, which are then missing; without it they are errors.
        """

        def code(variable: Variable) -> Floats:
            column = self.column(variable.name, writing, unseen)
            return code_cells(self.table[variable.name], variable, column)

        found = collect(code, (*schema, *schema.given_inputs))
        return self.ordered(found, schema)

    def ordered(self, columns: Iterable[Floats], schema: Schema) -> Sequences:
        """The sequences of codes in the order of the table's rows.

        There is a column for each variable, and then for each input that no rule computes.
        """
        values = np.empty((self.table.num_rows, len(schema) + len(schema.given_inputs)))
        for number, codes in enumerate(columns):
            values[:, number] = codes[self.grouping.rows]
        ids = None if self.keys.sequence is None else self.grouping.ids
        keys = None
        if any(own.rule is not None and own.rule.needs_times for own in schema.inputs):
            order = None if self.keys.order is None else self.order_values()
            keys = TableKeys(self.keys.sequence or "sequence", self.keys.order, order)
        return Sequences(
            values[:, : len(schema)],
            self.grouping.offsets,
            schema,
            None if ids is None else tuple(ids),
            table_keys=keys,
            inputs=values[:, len(schema) :],
        )

    def order_values(self) -> NDArray[Any]:
        """Values of the order column of each slice, parsed."""
        return parsed_values(self.table[self.keys.order], self.keys, self.first_row)[
            self.grouping.rows
        ]

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


def collect(read: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results of all items; raises one error that names what is wrong with any of them."""
    found, problems = [], []
    for item in items:
        try:
            found.append(read(item))
        except DataError as error:
            problems.append(str(error))
    if len(problems) == 1:
        raise DataError(problems[0])
    if problems:
        listed = " ".join(f"({number}) {own}" for number, own in enumerate(problems, start=1))
        raise DataError(f"{len(problems)} columns cannot be read: {listed}")
    return found


def chunks(
    source: Source,
    keys: Keys,
    names: list[str],
    *,
    sort: bool = False,
    whole: bool = False,
    along: Iterable[str] = (),
    chunk_rows: int | None = None,
    grows: bool = False,
    grid: Grid = AS_IT_IS,
    fixed: Iterable[str] = (),
    decimal: str | None = None,
) -> Iterator[Chunk]:
    """The table in chunks that are cut between sequences.

    Args:
        source: The open file.
        keys: The key columns, which are always read.
        names: The columns to read, of numbers, text, truths or times.
        sort: Whether the rows of a sequence may lie anywhere; all rows are then one chunk.
        whole: Whether to read all rows as one chunk.
        along: More columns to read, of any type.
        chunk_rows: Number of rows from which on a chunk is cut; None for one that suits memory.
        grows: Whether the first chunks are small, so that the first answers are soon there.
        grid: What becomes of rows of one time and of slices that are not there. The rows of a chunk
            are then in the order of its slices.
        fixed: Columns that are the same in all rows of a sequence, also in those put in.
        decimal: The decimal sign of text, for means.
    """
    require_columns(source.title, source.columns, [*keys.names, *names])
    asked = {*names, *keys.names}
    for field in source.schema:
        if field.name in asked and not is_plain(field.type):
            raise DataError(
                f"column {field.name!r} of {source.title} must hold numbers, text, truths or "
                f"times, but is of type {field.type}; convert it, or leave it out."
            )
    asked.update(along)
    wanted = [name for name in source.columns if name in asked]
    most = chunk_rows or int(np.clip(_MOST_CELLS // max(len(wanted), 1), *_ROWS))
    whole = whole or sort or keys.sequence is None
    seen, row = _Seen(), 1
    first = min(most, _FIRST_ROWS) if grows and chunk_rows is None else most
    for table in _cut(source, keys, wanted, None if whole else most, first):
        ids = table[keys.sequence] if keys.sequence else None
        order = table[keys.order] if keys.order else None
        if row == 1:
            keys = with_order_type(keys, order)
        repeats = grid.duplicates != "error"
        grouping = group_rows(table.num_rows, ids, order, keys, row, sort=sort, repeats=repeats)
        if not sort:
            seen.add(grouping, row, keys.sequence)
        if grid.changes:
            yield _regular(table, row, grouping, keys, grid, tuple(fixed), decimal)
        else:
            yield Chunk(table, row, grouping, keys, None, decimal)
        row += table.num_rows
    if row == 1:
        raise DataError(f"{source.title} has a header, but no rows; there is nothing to do.")


def _regular(
    table: Any,
    first_row: int,
    grouping: Grouping,
    keys: Keys,
    grid: Grid,
    fixed: tuple[str, ...],
    decimal: str | None,
) -> Chunk:
    """The chunk with rows of one time made one, and empty rows for slices that are not there."""
    order = None if keys.order is None else table[keys.order]
    plan = plan_grid(order, grouping, keys, grid, first_row)
    numbers = first_row + np.maximum(plan.index, 0)  # an empty row is never wrong
    rows = np.arange(plan.index.size)
    new = Grouping(rows, plan.offsets, grouping.ids, plan.offsets[:-1])
    regular = with_grid(table, plan, keys, fixed, decimal)
    return Chunk(regular, first_row, new, keys, numbers, decimal)


def _cut(
    source: Source, keys: Keys, wanted: list[str], most: int | None, first: int
) -> Iterator[Any]:
    """Tables of whole sequences, of about `most` rows; all rows at once without a number.

    The first has about `first` rows, and each further one up to twice as many as the one before.
    """
    held: list[Any] = []
    rows = done = 0
    enough = None if most is None else first
    parts = [None if first == most else enough]
    for batch in _sliced(source.batches(wanted), parts):
        held.append(batch)
        rows += batch.num_rows
        if enough is None or most is None or rows < enough:
            continue
        table = pa.Table.from_batches(held)
        ids = table[keys.sequence]
        with convertible(keys.sequence, ids):
            last = int(find_starts(number_sequences(ids, keys.sequence, done + 1)[0])[-1])
        if last:
            yield table.slice(0, last)
            rest = table.slice(last).combine_chunks()
            held, rows, done = rest.to_batches(), rows - last, done + last
            enough = most if parts[-1] is None else min(2 * parts[-1], most)
            parts[-1] = enough if enough < most else None
        else:
            enough = 2 * rows  # one long sequence is not looked through again at every batch
    if rows:
        yield pa.Table.from_batches(held)


def _sliced(batches: Iterable[Any], sizes: list[int | None]) -> Iterator[Any]:
    """The batches in parts of at most as many rows as the list says at the time, None for all."""
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, sizes[-1] or batch.num_rows)
            start += part.num_rows
            yield part


@final
class _Seen:
    """The sequences read so far, 16 bytes for each, and the row where each began.

    Names are told apart by 64 bits of their text: among ten million the chance that two are taken
    for one is about one in 400,000. The numbers -1 and -2 themselves have the same hash.
    """

    def __init__(self) -> None:
        self._marks = self._rows = np.empty(0, dtype=np.int64)

    def add(self, grouping: Grouping, first_row: int, name: str | None) -> None:
        """Add the sequences of a chunk; raises where one has been read before."""
        begun = grouping.starts + first_row
        hashes = np.fromiter(map(hash, map(str, grouping.ids)), np.int64, len(grouping.ids))
        marks = np.concatenate([self._marks, hashes])
        order = np.argsort(marks, kind="stable")
        self._marks, self._rows = marks[order], np.concatenate([self._rows, begun])[order]
        again = np.flatnonzero(self._marks[1:] == self._marks[:-1])
        if again.size:
            place = again[np.argmin(self._rows[again + 1])]
            before, now = self._rows[place : place + 2]
            raise DataError(
                f"the rows of a sequence must lie together, but {name} = "
                f"{grouping.ids[np.searchsorted(begun, now)]!r} begins in row {before} and comes "
                f"back in row {now}; sort the table, or use --sort."
            )


# Variables whose kind the table or the user tells


@final
@dataclass(frozen=True, eq=False)
class Described:
    """A variable, its codes in the order of the rows, and what its kind was inferred from."""

    variable: Variable
    codes: Floats
    reason: str


def describe_column(
    chunk: Chunk, name: str, kind: str | None, writing: Writing = AS_USUAL
) -> Described:
    """A variable as its column suggests, or as `kind` says.

    Args:
        chunk: All rows of the table.
        name: Name of the column.
        kind: "categorical", "binary", "continuous", "count" or the name of a leaf family; None to
            infer it.
        writing: How the cells of text are written.
    """
    column = chunk.column(name, writing)
    cells = chunk.table[name]
    with convertible(name, cells):
        if kind is None:
            raw = read_cells(cells, column)
            require_words(raw[1], column)
            variable, reason = infer_variable(name, *raw)
        elif kind in ("categorical", "binary"):
            raw, variable = _read_categories(cells, column, is_binary=kind == "binary")
            reason = "booleans" if raw[1].declared else "--kind"
        else:
            raw = read_cells(cells, column, is_number=True, remedy=f"--kind says {kind}")
            variable, reason = Variable.of_kind(name, kind), "--kind"
        return Described(variable, encode_checked(raw, variable, column), reason)


def _read_categories(cells: Any, column: Column, *, is_binary: bool) -> tuple[Raw, Variable]:
    """A raw column and its categories: numbers by their values, text as it is."""
    values, reading = read_cells(cells, column, is_number=False)
    decimal = column.writing.decimal
    if reading.labels and all(reads_as_number(label, decimal) for label in reading.labels):
        values, reading = read_cells(cells, column, is_number=True)
    variable = categorical_variable(column.name, values, reading, is_binary=is_binary)
    return (values, reading), variable
