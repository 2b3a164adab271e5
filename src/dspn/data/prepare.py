"""Tables of any size into shards of whole sequences, with bounded memory.

First every file is scanned: what its columns hold, and whether the rows of a sequence lie together.
Where they do, files are coded one after the other. Where they do not, rows are first dealt into
parts by a hash of the id of their sequence, and every part, which fits into memory, is sorted. All
work is done in pieces whose results stay in the directory, so that preparation goes on where it was
interrupted.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import ipc, types

from dspn._arguments import Ints, require_type, whole_number
from dspn.atomic import replacing
from dspn.data.cells import code_cells, is_missing, is_text, plain
from dspn.data.chunks import Chunk, chunks
from dspn.data.dataset import (
    FORMAT,
    MANIFEST,
    VERSION,
    WITH_INPUTS,
    WORK,
    Dataset,
    checksum_of,
    code_array,
    coded_schema,
    encode_shard,
    is_dataset,
    schema_to_json,
)
from dspn.data.files import Table, find_tables
from dspn.data.grid import AS_IT_IS, Grid, plan_grid, with_grid
from dspn.data.inputs import declared_inputs
from dspn.data.layout import MISSING, Column, Writing, offsets_of
from dspn.data.order import (
    Keys,
    group_rows,
    number_sequences,
    parse_dates,
    require_columns,
    variable_names,
)
from dspn.data.scan import (
    Job,
    OnRows,
    check_same_columns,
    hash_ids,
    key_cells,
    lie_together,
    make_schema,
    naming,
    on_rows,
    order_type,
    scan_table,
    tell,
)
from dspn.data.schema import Kind, Schema, Variable, list_names, near_misses
from dspn.errors import DataError, plainly, warn

# Cells and slices of a shard by default: some tens of megabytes, and tasks of about a second.
_SHARD_CELLS: Final = 8_000_000
_SHARD_SLICES: Final = (1_000, 500_000)
# Bytes of coded rows in a part that is sorted in memory, and in what is dealt out at a time.
_PART_BYTES: Final = 128 * 2**20
_DEALT_ROWS: Final = 1_000_000
_CHUNK_ROWS: Final = 65_536
# Rows from which on the files of one piece of work are enough, and the most files that it has.
_PIECE_ROWS: Final = 2_000_000
_MOST_FILES: Final = 512
_PLAN: Final = "origin"
_KINDS: Final = ("categorical", "binary", "continuous", "count")


class Mapper(Protocol):
    """What runs pieces of work side by side: any executor of `dspn.executors`."""

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """The results of all items, in their order."""
        ...


def prepare(
    source: Any,
    directory: str | os.PathLike[str],
    *,
    sequence: str | None = None,
    order: str | None = None,
    variables: Iterable[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    schema: Schema | None = None,
    inputs: Iterable[Any] | None = None,
    missing: tuple[str, ...] = MISSING,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    dates: str | None = None,
    exclude: Iterable[str] = (),
    every: str | float | None = None,
    duplicates: str = "error",
    shard_slices: int | None = None,
    executor: Mapper | None = None,
    on_progress: OnRows | None = None,
) -> Dataset:
    """Turns long tables, one row for each slice, into a data set in shards.

    A directory that holds this data set already is opened; one that an interrupted preparation of
    the same data has left is completed.

    Args:
        source: A file, a directory of files, a pattern such as `logs/*.parquet`, a list of these,
            or a Ray Dataset. All files have the same columns, and one sequence may have rows in
            several of them.
        directory: Where the shards go, a new or an empty directory.
        sequence: Column that names the sequence of a row; without it there is one
            file, which is one sequence.
        order: Column that orders the slices of a sequence; without it the order is that of the
            rows, file after file.
        variables: Columns that are variables; all but the keys by default.
        kinds: "categorical", "binary", "continuous" or "count" for some variables.
        schema: The variables and inputs; found in a pass over the data by default.
        inputs: What is given and not modelled: names of columns, `Variable`s that name their
            columns, and rules of `dspn.inputs`; None for those of the schema.
        missing: Words of text that mean a missing value.
        delimiter: Character between the cells of text; None for the usual one.
        decimal: Decimal sign of numbers in text, "." or ","; see `Writing`.
        encoding: Encoding of text; UTF-8 if None.
        dates: How the times of an order column of text are written, as `strftime` has it.
        exclude: Columns that are not variables.
        every: Step of the slices; see `Grid`. Slices that are not there become empty ones.
        duplicates: What becomes of rows of a sequence with one order value; see `Grid`.
        shard_slices: Number of slices from which on a shard is cut; by default one that takes some
            tens of megabytes.
        executor: Works on several files side by side; see `dspn.executors`.
        on_progress: Called with the name of a stage, a number of further rows, and the share of all
            work that is done, None where it is not known.
    """
    if shard_slices is not None:
        shard_slices = whole_number(shard_slices, "shard_slices", DataError)
    if schema is not None:
        require_type(schema, Schema, "schema", DataError)
        if inputs is not None:
            raise DataError("`inputs` must be left out where a `schema` is given, which has them.")
    asked = declared_inputs(inputs or ()) if schema is None else schema.inputs
    writing, grid = Writing(tuple(missing), decimal), Grid(every, duplicates)
    tables, path = find_tables(source, delimiter, encoding), Path(os.fspath(directory))
    options: dict[str, Any] = {
        "sequence": sequence,
        "order": order,
        "variables": None if variables is None else list(variables),
        "kinds": dict(kinds or {}),
        "schema": None if schema is None else schema_to_json(schema),
        "missing": list(missing),
        "shard_slices": shard_slices,
    }
    left_out = list(exclude)
    more: dict[str, Any] = {
        **{"decimal": decimal, "dates": dates, "exclude": left_out, "encoding": encoding},
        **{"every": every, "duplicates": None if duplicates == "error" else duplicates},
        "inputs": [own if isinstance(own, str) else schema_to_json([own]) for own in asked],
    }
    options |= {name: value for name, value in more.items() if value}
    origin, work = _fingerprint(tables, options), path / WORK
    if is_dataset(path):
        found = _same_dataset(path, origin)
        shutil.rmtree(work, ignore_errors=True)
        return found
    keys = replace(_find_keys(tables, sequence, order), dates=dates)
    columns = _input_columns(asked, keys, options["variables"])
    names = _columns_of(tables[0], keys, options["variables"], schema, [*left_out, *columns])
    told = _check_kinds(options["kinds"], [*names, *columns], schema)
    workers = getattr(executor, "num_workers", 1)
    progress = None if on_progress is None else _Progress(on_progress, len(tables), workers)
    on_rows.set(progress)
    with _writing(path):
        _claim(path, origin)
        each = partial(_each, executor, work)
        job = Job(str(work), keys, (*names, *columns), writing, schema is None, told)
        scans = each("scan", partial(scan_table, job), list(enumerate(tables)))
        all_count = options["variables"] is None and schema is None
        check_same_columns(tables, scans, keys, all_count)
        rows = sum(scan["rows"] for scan in scans)
        if not rows:
            raise DataError("the tables have headers, but no rows; there is nothing to prepare.")
        if progress is not None:
            progress.total = rows
        notes: tuple[str, ...] = ()
        statistics: tuple[dict[str, Any], ...] = ()
        if schema is None:
            every_column = [*names, *columns]
            read, notes, statistics = make_schema(every_column, scans, options["kinds"], writing)
            schema = _with_inputs(read, asked, len(names))
            notes = (*notes[: len(names)], *(f"input {own}" for own in notes[len(names) :]))
        keys = replace(keys, text=order_type(tables, scans))
        coded = coded_schema(schema)
        cells = len(coded) + len(keys.names)
        size = shard_slices or int(np.clip(_SHARD_CELLS // cells, *_SHARD_SLICES))
        required = frozenset(own.name for own in schema.given_inputs if own.default is None)
        code = _Coding(str(path), str(work), keys, coded, writing, size, grid, required)
        made = _make_shards(
            each, code, _pieces(tables, scans), rows, lie_together(work, scans, keys)
        )
        manifest = {
            "format": FORMAT,
            "version": WITH_INPUTS if schema.inputs else VERSION,
            "origin": origin,
            "keys": [keys.sequence, keys.order],
            "schema": schema_to_json(schema),
            **({"inputs": schema_to_json(schema.inputs)} if schema.inputs else {}),
            "notes": list(notes),
            "statistics": list(statistics),
            "shards": [shard for own in made for shard in own["shards"]],
        }
        _write(path / MANIFEST, json.dumps(manifest, indent=1).encode())
    shutil.rmtree(work, ignore_errors=True)
    length, name = max((own["longest"] for own in made), key=lambda own: own[0])
    if length > size:
        warn(
            f"sequence {name} has {length:,} slices, more than the {size:,} of a shard: its shard "
            "takes as much memory as it needs.",
            UserWarning,
        )
    return Dataset.open(path)


def _same_dataset(path: Path, origin: str) -> Dataset:
    """The data set that is there already; raises where it is another one."""
    found = Dataset.open(path)
    if found.origin != origin:
        raise DataError(
            f"{str(path)!r} holds a data set of other files or options already; give another "
            "directory, or remove that one."
        )
    return found


@final
class _Progress:
    """Tells a listener the share of the work: a third is the scan, a third each of two stages.

    Only what is done in this process is heard of; other workers are taken to be as fast.
    """

    _BEGIN: Final = {"scan": 0.0, "code": 1 / 3, "deal": 1 / 3, "sort": 2 / 3}

    def __init__(self, listener: OnRows, num_files: int, num_workers: int) -> None:
        self._listener, self._num_files, self._num_workers = listener, num_files, num_workers
        self._rows = dict.fromkeys(self._BEGIN, 0)
        self.total = 0

    def __call__(self, stage: str, rows: int, files: float | None) -> None:
        self._rows[stage] += rows
        done = None if files is None else files / self._num_files
        if self.total:
            done = self._rows[stage] * self._num_workers / self.total
        size = 2 / 3 if stage == "code" else 1 / 3
        share = None if done is None else self._BEGIN[stage] + size * min(done, 1.0)
        self._listener(stage, rows, share)


def _fingerprint(tables: Sequence[Table], options: Mapping[str, Any]) -> str:
    told = json.dumps([VERSION, [own.identity() for own in tables], options], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


def _find_keys(tables: Sequence[Table], sequence: str | None, order: str | None) -> Keys:
    if sequence is not None and sequence == order:
        raise DataError(f"column {order!r} cannot be both the sequence and the order.")
    if sequence is None and len(tables) > 1:
        raise DataError(
            f"`sequence` must name the column that tells the sequences of {len(tables)} files "
            "apart, but is not given."
        )
    return Keys(sequence, order)


def _columns_of(
    table: Table,
    keys: Keys,
    variables: list[str] | None,
    schema: Schema | None,
    exclude: Sequence[str],
) -> list[str]:
    """The columns of the variables, as the first table has them."""
    with table.open() as source:
        columns = source.columns
        require_columns(source.title, columns, keys.names)
        wanted = list(schema.names) if schema is not None else variables
        names = variable_names(source.title, columns, keys, wanted, exclude)
        require_columns(source.title, columns, names)
    return names


def _input_columns(
    asked: Iterable[Any], keys: Keys, variables: Collection[str] | None
) -> list[str]:
    """The columns of the inputs that no rule computes."""
    found = []
    for item in asked:
        name = item if isinstance(item, str) else item.name
        if not isinstance(item, str) and item.rule is not None:
            if item.rule.needs_times and keys.order is None:
                raise DataError(
                    f"input {name!r} follows from the times of the slices; name their column with "
                    "`order`."
                )
            continue
        if name in keys.names or name in (variables or ()):
            other = "a key" if name in keys.names else "a variable"
            raise DataError(f"column {name!r} cannot be both {other} and an input.")
        found.append(name)
    return found


def _with_inputs(found: Schema, asked: Iterable[Any], count: int) -> Schema:
    """The first `count` variables, and the inputs asked for: as they are said, or as found."""
    read = {own.name: own for own in found.variables[count:]}
    inputs = []
    for item in asked:
        own = read[item] if isinstance(item, str) else item
        inputs.append(Variable.continuous(own.name) if own.kind is Kind.COUNT else own)
    return Schema(found.variables[:count], tuple(inputs))


def _check_kinds(
    kinds: Mapping[str, str], names: Sequence[str], schema: Schema | None
) -> tuple[tuple[str, str], ...]:
    for name, kind in kinds.items():
        if name not in names or kind not in _KINDS:
            near = near_misses(*((str(kind), _KINDS) if name in names else (name, names)))
            raise DataError(
                f"`kinds` must say one of {', '.join(_KINDS)} for some of the variables "
                f"{list_names(names)}, but says {kind!r} for {name!r}{near}."
            )
    if kinds and schema is not None:
        raise DataError("`kinds` must be left out where a `schema` is given, which has them.")
    return tuple(kinds.items())


# Pieces of work, whose results stay.


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot hold a data set: {plainly(error)}.") from None


def _claim(path: Path, origin: str) -> None:
    """Makes the directory of the work; raises where it is that of another preparation."""
    plan = path / WORK / _PLAN
    if not plan.exists():
        path.mkdir(parents=True, exist_ok=True)
        other = next((own for own in path.iterdir() if own != plan.parent), None)
        if other is not None:
            raise DataError(
                f"{str(path)!r} must be a new or an empty directory, but holds {other.name!r}; "
                "give another one."
            )
        plan.parent.mkdir(exist_ok=True)
        _write(plan, origin.encode())
    elif plan.read_bytes() != origin.encode():
        raise DataError(
            f"{str(path)!r} holds the unfinished preparation of other files or options; give "
            "another directory, or remove that one."
        )


def _write(path: Path, data: Any) -> None:
    with replacing(str(path), None) as file:
        file.write(data)


def _each(
    executor: Mapper | None,
    work: Path,
    stage: str,
    function: Callable[[Any], Any],
    items: Sequence[Any],
) -> list[Any]:
    """Runs the pieces of a stage that have no result yet, and returns the results of all."""
    files = [work / f"{stage}-{number:06d}.json" for number in range(len(items))]
    waiting = [own for own in zip(files, items, strict=True) if not own[0].exists()]
    if executor is None:
        for item in waiting:
            _kept(function, item)
    else:
        executor.map(partial(_kept, function), waiting)
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def _kept(function: Callable[[Any], Any], item: tuple[Path, Any]) -> None:
    """The result of a piece of work, written."""
    file, given = item
    _write(file, json.dumps(function(given)).encode())


def _pieces(tables: Sequence[Table], scans: Sequence[Mapping[str, Any]]) -> list[list[Table]]:
    """Neighbouring files, as many as make a piece of work worthwhile; those without rows go."""
    pieces: list[list[Table]] = []
    rows = _PIECE_ROWS
    for table, scan in zip(tables, scans, strict=True):
        if not scan["rows"]:
            continue
        if rows >= _PIECE_ROWS or len(pieces[-1]) >= _MOST_FILES:
            pieces.append([])
            rows = 0
        pieces[-1].append(table)
        rows += scan["rows"]
    return pieces


# Coding.


def _make_shards(
    each: Callable[..., list[Any]],
    code: _Coding,
    pieces: list[list[Table]],
    rows: int,
    together: bool,
) -> list[Any]:
    """What was written of each piece, or of each part where the rows of a sequence lie apart."""
    items = list(enumerate(pieces))
    if together:
        return each("code", partial(_code_piece, code), items)
    parts = max(1, -(-rows * 10 * (len(code.schema) + len(code.keys.names)) // _PART_BYTES))
    owners = [np.array(own) for own in each("deal", partial(_deal_piece, code, parts), items)]
    batches = [
        (part, [np.flatnonzero(own == part).tolist() for own in owners]) for part in range(parts)
    ]
    return each("sort", partial(_sort_part, code), batches)


@final
@dataclass(frozen=True)
class _Coding:
    """How rows become codes, and where they go."""

    path: str
    work: str
    keys: Keys
    schema: Schema
    writing: Writing
    shard_slices: int
    grid: Grid = AS_IT_IS
    required: frozenset[str] = frozenset()  # inputs that must have a value in every row


@final
class _ShardWriter:
    """Collects sequences, and writes a shard when there are enough."""

    def __init__(self, code: _Coding, prefix: str) -> None:
        self._code, self._prefix = code, prefix
        self._held: list[tuple[list[Any], Ints, Any, Any]] = []
        self._rows = 0
        self.shards: list[dict[str, Any]] = []
        self.longest: tuple[int, str] = (0, "")

    def add(self, codes: list[Any], lengths: Ints, ids: Any, order: Any) -> None:
        """Takes in whole sequences, as `encode_shard` does."""
        size = self._code.shard_slices
        place = int(np.argmax(lengths))
        if lengths[place] > self.longest[0]:
            self.longest = int(lengths[place]), repr(ids[place].as_py())
        offsets, first = offsets_of(lengths), 0
        while first < lengths.size:
            begin = int(offsets[first])
            last = int(np.searchsorted(offsets, begin + size - self._rows))
            last = min(max(last, first + 1), lengths.size)
            count = int(offsets[last]) - begin
            columns = [own.slice(begin, count) for own in codes]
            ordered = None if order is None else order.slice(begin, count)
            named = ids.slice(first, last - first)
            self._held.append((columns, lengths[first:last], named, ordered))
            self._rows += count
            if self._rows >= size:
                self._flush()
            first = last

    def end(self) -> dict[str, Any]:
        """What was written."""
        if self._held:
            self._flush()
        return {"shards": self.shards, "longest": self.longest}

    def _flush(self) -> None:
        columns, lengths, ids, orders = zip(*self._held, strict=True)
        codes = [pa.concat_arrays(own) for own in zip(*columns, strict=True)]
        every = np.concatenate(lengths)
        order = None if orders[0] is None else pa.concat_arrays(orders)
        data = encode_shard(codes, every, pa.concat_arrays(ids), order, self._code.schema)
        name = f"{self._prefix}-{len(self.shards):05d}.arrow"
        _write(Path(self._code.path) / name, data)
        self.shards.append(
            {
                "file": name,
                "sequences": int(every.size),
                "slices": int(every.sum()),
                "checksum": checksum_of(data),
            }
        )
        self._held, self._rows = [], 0


def _code_piece(code: _Coding, item: tuple[int, list[Table]]) -> dict[str, Any]:
    """The shards of files in which the rows of a sequence lie together."""
    number, tables = item
    writer = _ShardWriter(code, f"shard-{number:06d}")
    for table in tables:
        with table.open() as source, naming(source.title):
            size = min(code.shard_slices, _CHUNK_ROWS)
            names = list(code.schema.names)
            decimal = code.writing.decimal
            for chunk in chunks(
                source, code.keys, names, chunk_rows=size, grid=code.grid, decimal=decimal
            ):
                _add_chunk(writer, chunk, code)
                tell("code", chunk.table.num_rows)
    return writer.end()


def _add_chunk(writer: _ShardWriter, chunk: Chunk, code: _Coding) -> None:
    rows = chunk.grouping.rows
    is_sorted = bool((rows == np.arange(rows.size)).all())
    index = None if is_sorted else pa.array(rows)
    columns = _coded_columns(chunk.table, chunk.first_row, code, chunk.numbers)
    if code.keys.order is not None:
        columns.append(_order_cells(chunk.table[code.keys.order], code.keys, chunk.first_row))
    if index is not None:
        columns = [cells.take(index) for cells in columns]
    order = None if code.keys.order is None else columns.pop()
    ids = key_cells(chunk.ids())
    writer.add(columns, chunk.grouping.lengths, ids, order)


def _coded_columns(
    table: Any, first_row: int, code: _Coding, numbers: Ints | None = None
) -> list[Any]:
    """The codes of each variable, as Arrow cells."""
    codes = []
    for own in code.schema:
        column = Column(own.name, first_row, code.writing, numbers=numbers)
        cells = code_cells(table[own.name], own, column)
        if own.name in code.required and np.isnan(cells).any():
            row = int(np.argmax(np.isnan(cells)))
            place = first_row + row if numbers is None else int(numbers[row])
            raise DataError(
                f"input {own.name!r} must have a value in every row, but has none in row {place}; "
                "give it, or declare the input as a `Variable` with a `default`."
            )
        codes.append(code_array(cells, own))
    return codes


def _deal_piece(code: _Coding, parts: int, item: tuple[int, list[Table]]) -> list[int]:
    """Codes the rows of files, and deals them into parts by the hash of their sequence's id.

    The file of the piece has a record batch for the rows of a part that came together; the parts of
    these batches are returned.
    """
    number, tables = item
    keys, owners, writer = code.keys, [], None
    packed = ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(_piece_file(code, number), "wb") as out:
        for table in tables:
            with table.open() as source, naming(source.title):
                first_row = 1
                wanted = [n for n in source.columns if n in {*keys.names, *code.schema.names}]
                for held in _collected(source.batches(wanted)):
                    coded, marks = _coded_rows(held, first_row, code)
                    first_row += held.num_rows
                    part_of = (marks % np.uint64(parts)).astype(np.int64)
                    order = np.argsort(part_of, kind="stable")
                    dealt = coded.take(pa.array(order))
                    ends = np.searchsorted(part_of[order], np.arange(parts + 1))
                    writer = writer or ipc.new_file(out, dealt.schema, options=packed)
                    for part in np.flatnonzero(np.diff(ends)).tolist():
                        begin = int(ends[part])
                        writer.write_batch(dealt.slice(begin, int(ends[part + 1]) - begin))
                        owners.append(part)
                    tell("deal", held.num_rows)
        if writer is not None:
            writer.close()
    return owners


def _piece_file(code: _Coding, number: int) -> str:
    return os.path.join(code.work, f"piece-{number:06d}.arrow")


def _collected(batches: Iterator[Any]) -> Iterator[Any]:
    """Batches put together to tables of many rows."""
    held: list[Any] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _DEALT_ROWS:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if rows:
        yield pa.Table.from_batches(held)


def _coded_rows(table: Any, first_row: int, code: _Coding) -> tuple[Any, NDArray[np.uint64]]:
    """The keys and codes of rows, and the hash of the sequence of each."""
    keys = code.keys
    assert keys.sequence is not None
    columns = {"id": key_cells(table[keys.sequence])}
    codes, ids = number_sequences(columns["id"], keys.sequence, first_row)
    if keys.order is not None:
        cells = table[keys.order]
        if types.is_dictionary(cells.type) and cells.type.ordered:
            raise DataError(
                f"column {keys.order!r} must hold numbers, times or text to order rows that do not "
                "lie together, but holds categories; convert it."
            )
        columns["order"] = _order_cells(cells, keys, first_row)
        missing = is_missing(columns["order"])
        if missing.any():
            raise DataError(
                f"column {keys.order!r} must have a value in every row, but row "
                f"{first_row + int(np.argmax(missing))} has no value."
            )
    for number, cells in enumerate(_coded_columns(table, first_row, code)):
        columns[f"v{number}"] = cells
    return pa.record_batch(columns), hash_ids(ids)[codes]


def _order_cells(cells: Any, keys: Keys, first_row: int) -> Any:
    """Cells of the order column; times that were read with a format are times."""
    cells = key_cells(cells)
    if keys.dates is None or not is_text(cells.type):
        return cells
    return parse_dates(cells, keys.dates, Column(str(keys.order), first_row))


def _sort_part(code: _Coding, item: tuple[int, list[list[int]]]) -> dict[str, Any]:
    """The shards of one part, whose rows are brought together and into order."""
    part, numbers = item
    writer, batches = _ShardWriter(code, f"shard-{part:06d}"), []
    for piece, own in enumerate(numbers):
        if own:
            file = ipc.open_file(pa.memory_map(_piece_file(code, piece)))
            batches += [file.get_batch(number) for number in own]
    if batches:
        table = pa.Table.from_batches(batches).combine_chunks()
        batches.clear()
        order = table["order"] if code.keys.order is not None else None
        repeats = code.grid.duplicates != "error"
        grouping = group_rows(
            table.num_rows, table["id"], order, code.keys, -1, sort=True, repeats=repeats
        )
        ids = plain(table["id"]).take(pa.array(grouping.starts))
        names = [f"v{own}" for own in range(len(code.schema))]
        if code.grid.changes:
            keys = replace(code.keys, sequence="id", order=order and "order")
            plan = plan_grid(order, grouping, keys, code.grid, -1)
            table = with_grid(table, plan, keys, ())
            lengths, index = np.diff(plan.offsets), pa.array(np.arange(plan.index.size))
        else:
            lengths, index = grouping.lengths, pa.array(grouping.rows)
        ordered = plain(table["order"]).take(index) if order is not None else None
        columns = [plain(table[name]).take(index) for name in names]
        del table, order
        writer.add(columns, lengths, ids, ordered)
        tell("sort", grouping.rows.size)
    return writer.end()
