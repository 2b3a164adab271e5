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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import ipc

from dspn._arguments import Ints, require_type, whole_number
from dspn.data.cells import (
    code_cells,
    is_missing,
    plain,
)
from dspn.data.chunks import Chunk, chunks
from dspn.data.dataset import (
    FORMAT,
    MANIFEST,
    VERSION,
    Dataset,
    checksum_of,
    code_array,
    encode_shard,
    is_dataset,
    schema_to_json,
)
from dspn.data.files import Table, find_tables
from dspn.data.layout import MISSING, Column
from dspn.data.order import (
    Keys,
    group_rows,
    number_sequences,
    require_columns,
    variable_names,
)
from dspn.data.scan import (
    TEXT_TYPES,
    Job,
    OnRows,
    check_same_columns,
    hash_ids,
    lie_together,
    make_schema,
    naming,
    on_rows,
    scan_table,
    tell,
)
from dspn.data.schema import Schema
from dspn.errors import DataError, warn

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
_WORK: Final = "work"
_PLAN: Final = "plan.json"


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
    missing: tuple[str, ...] = MISSING,
    delimiter: str | None = None,
    shard_slices: int | None = None,
    executor: Mapper | None = None,
    on_progress: OnRows | None = None,
) -> Dataset:
    """Turns long tables, one row for each slice, into a data set in shards.

    A directory that holds this data set already is opened; one that an interrupted preparation of
    the same data has left is completed.

    Args:
        source: A file, a directory of files, a pattern such as "logs/*.parquet", a list of these,
            or a Ray Dataset. All files have the same columns, and one sequence may have rows in
            several of them.
        directory: Where the shards go, a new or an empty directory.
        sequence: Column that names the sequence of a row; without it every file is one sequence.
        order: Column that orders the slices of a sequence; without it the order is that of the
            rows, file after file.
        variables: Columns that are variables; all but the keys by default.
        kinds: "categorical", "binary", "continuous" or "count" for some variables.
        schema: The variables; found in a pass over the data by default.
        missing: Words of text that mean a missing value.
        delimiter: Character between the cells of text; None for the usual one.
        shard_slices: Number of slices from which on a shard is cut; by default one that takes some
            tens of megabytes.
        executor: Works on several files side by side; see `dspn.executors`.
        on_progress: Called with the name of a stage and a number of further rows.
    """
    if shard_slices is not None:
        shard_slices = whole_number(shard_slices, "shard_slices", DataError)
    if schema is not None:
        require_type(schema, Schema, "schema", DataError)
    tables = find_tables(source, delimiter)
    options: dict[str, Any] = {
        "sequence": sequence,
        "order": order,
        "variables": None if variables is None else list(variables),
        "kinds": dict(kinds or {}),
        "schema": None if schema is None else schema_to_json(schema),
        "missing": list(missing),
        "shard_slices": shard_slices,
    }
    origin = _fingerprint(tables, options)
    path = Path(os.fspath(directory))
    if is_dataset(path):
        found = Dataset.open(path)
        if found.origin == origin:
            return found
        raise DataError(
            f"{str(path)!r} holds a data set of other files or options already; give another "
            "directory, or remove that one."
        )
    work = _claim(path, origin)
    on_rows.set(on_progress)
    run = _Run(work, executor)
    keys = _find_keys(tables, sequence, order)
    first = _columns_of(tables[0], keys, options["variables"], schema)
    job = Job(str(work), keys, tuple(first), missing, schema is None, tuple((kinds or {}).items()))
    scans = run.each("scan", partial(scan_table, job), list(enumerate(tables)))
    check_same_columns(tables, scans, keys, options["variables"] is None and schema is None)
    if schema is None:
        schema, notes, statistics = make_schema(first, scans, dict(kinds or {}))
    else:
        notes, statistics = (), ()
    keys = replace(keys, text=TEXT_TYPES.get(scans[0]["order_text"]))
    cells = len(schema) + len(keys.names)
    size = shard_slices or int(np.clip(_SHARD_CELLS // cells, *_SHARD_SLICES))
    code = _Coding(str(path), str(work), keys, schema, missing, size)
    pieces = _pieces(tables, scans)
    if lie_together(work, scans, keys):
        made = run.each("code", partial(_code_piece, code), list(enumerate(pieces)))
    else:
        rows = sum(scan["rows"] for scan in scans)
        parts = max(1, -(-rows * 10 * cells // _PART_BYTES))
        run.each("deal", partial(_deal_piece, code, parts), list(enumerate(pieces)))
        numbers = [(part, len(pieces)) for part in range(parts)]
        made = run.each("sort", partial(_sort_part, code), numbers)
    shards = [shard for own in made for shard in own["shards"]]
    if not shards:
        raise DataError("the tables have headers, but no rows; there is nothing to prepare.")
    for note in (note for own in made for note in own["notes"]):
        warn(note, UserWarning)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "origin": origin,
        "keys": [keys.sequence, keys.order],
        "schema": schema_to_json(schema),
        "notes": list(notes),
        "statistics": list(statistics),
        "shards": shards,
    }
    _write(path / MANIFEST, json.dumps(manifest, indent=1).encode())
    shutil.rmtree(work, ignore_errors=True)
    return Dataset.open(path)


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
    table: Table, keys: Keys, variables: list[str] | None, schema: Schema | None
) -> list[str]:
    """The columns of the variables, as the first table has them."""
    with table.open() as source:
        columns = source.columns
        require_columns(source.title, columns, keys.names)
        wanted = list(schema.names) if schema is not None else variables
        names = variable_names(source.title, columns, keys, wanted)
        require_columns(source.title, columns, names)
    return names


# Pieces of work, whose results stay.


def _claim(path: Path, origin: str) -> Path:
    """The directory of the work, new or that of the same preparation before."""
    work = path / _WORK
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not (work / _PLAN).exists():
            others = [own for own in path.iterdir() if own != work]
            if others:
                raise DataError(
                    f"{str(path)!r} must be a new or an empty directory, but holds "
                    f"{others[0].name!r}; give another one."
                )
            work.mkdir(exist_ok=True)
            _write(work / _PLAN, json.dumps({"origin": origin}).encode())
            return work
        plan = json.loads((work / _PLAN).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{str(path)!r} cannot hold a data set: {error}.") from None
    if plan.get("origin") != origin:
        raise DataError(
            f"{str(path)!r} holds the unfinished preparation of other files or options; give "
            "another directory, or remove that one."
        )
    return work


def _write(path: Path, data: Any) -> None:
    """Writes a file whole or not at all."""
    new = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(new, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


@final
@dataclass(frozen=True)
class _Run:
    """Runs the pieces of a stage that have no result yet, and returns the results of all."""

    work: Path
    executor: Mapper | None

    def each(self, stage: str, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        files = [self.work / f"{stage}-{number:06d}.json" for number in range(len(items))]
        waiting = [own for own in zip(files, items, strict=True) if not own[0].exists()]
        work = partial(_kept, function)
        if self.executor is None:
            for item in waiting:
                work(item)
        else:
            self.executor.map(work, waiting)
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def _kept(function: Callable[[Any], Any], item: tuple[Path, Any]) -> None:
    """The result of a piece of work, written."""
    file, given = item
    _write(file, json.dumps(function(given)).encode())


def _pieces(tables: Sequence[Table], scans: Sequence[Mapping[str, Any]]) -> list[list[Table]]:
    """Neighbouring files, as many as make a piece of work worthwhile."""
    pieces: list[list[Table]] = []
    rows = 0
    for table, scan in zip(tables, scans, strict=True):
        if not pieces or rows >= _PIECE_ROWS or len(pieces[-1]) >= _MOST_FILES:
            pieces.append([])
            rows = 0
        if scan["rows"]:
            pieces[-1].append(table)
            rows += scan["rows"]
    return pieces


# Coding.


@final
@dataclass(frozen=True)
class _Coding:
    """How rows become codes, and where they go."""

    path: str
    work: str
    keys: Keys
    schema: Schema
    missing: tuple[str, ...]
    shard_slices: int


@final
class _ShardWriter:
    """Collects sequences, and writes a shard when there are enough."""

    def __init__(self, code: _Coding, prefix: str) -> None:
        self._code, self._prefix = code, prefix
        self._held: list[tuple[list[Any], Ints, Any, Any]] = []
        self._rows = 0
        self.shards: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def add(self, codes: list[Any], lengths: Ints, ids: Any, order: Any) -> None:
        """Takes in whole sequences, as `encode_shard` does."""
        size = self._code.shard_slices
        longest = int(np.argmax(lengths))
        if lengths[longest] > size:
            self.notes.append(
                f"sequence {ids[longest].as_py()!r} has {lengths[longest]:,} slices, more than "
                f"the {size:,} of a shard: its shard takes as much memory as it needs."
            )
        self._held.append((codes, lengths, ids, order))
        self._rows += int(lengths.sum())
        if self._rows >= size:
            self._flush()

    def end(self) -> dict[str, Any]:
        """What was written."""
        if self._held:
            self._flush()
        return {"shards": self.shards, "notes": self.notes}

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
            for chunk in chunks(source, code.keys, list(code.schema.names), chunk_rows=size):
                _add_chunk(writer, chunk, code)
                tell("code", chunk.table.num_rows)
    return writer.end()


def _add_chunk(writer: _ShardWriter, chunk: Chunk, code: _Coding) -> None:
    rows = chunk.grouping.rows
    is_sorted = bool((rows == np.arange(rows.size)).all())
    index = None if is_sorted else pa.array(rows)

    def ordered(cells: Any) -> Any:
        return cells if index is None else cells.take(index)

    codes = [
        ordered(
            code_array(
                code_cells(
                    chunk.table[own.name], own, Column(own.name, chunk.first_row, code.missing)
                ),
                own,
            )
        )
        for own in code.schema
    ]
    order = None if code.keys.order is None else ordered(plain(chunk.table[code.keys.order]))
    writer.add(codes, chunk.grouping.lengths, chunk.ids(), order)


def _deal_piece(code: _Coding, parts: int, item: tuple[int, list[Table]]) -> dict[str, Any]:
    """Codes the rows of files, and deals them into parts by the hash of their sequence's id."""
    number, tables = item
    keys, work = code.keys, Path(code.work)
    assert keys.sequence is not None
    names = [f"piece-{number:06d}-{part:05d}.arrow" for part in range(parts)]
    writers: list[Any] = [None] * parts
    sinks: list[Any] = []
    rows = 0
    try:
        for table in tables:
            with table.open() as source, naming(source.title):
                first_row = 1
                wanted = [n for n in source.columns if n in {*keys.names, *code.schema.names}]
                for held in _collected(source.batches(wanted)):
                    coded, marks = _coded_rows(held, first_row, code)
                    first_row += held.num_rows
                    owner = (marks % np.uint64(parts)).astype(np.int64)
                    order = np.argsort(owner, kind="stable")
                    dealt = coded.take(pa.array(order))
                    ends = np.searchsorted(owner[order], np.arange(parts + 1))
                    for part in np.flatnonzero(np.diff(ends)).tolist():
                        if writers[part] is None:
                            sinks.append(pa.OSFile(str(work / names[part]), "wb"))
                            packed = ipc.IpcWriteOptions(compression="lz4")
                            writers[part] = ipc.new_stream(sinks[-1], dealt.schema, options=packed)
                        begin = int(ends[part])
                        writers[part].write_table(dealt.slice(begin, int(ends[part + 1]) - begin))
                    rows += held.num_rows
                    tell("deal", held.num_rows)
    finally:
        for writer in filter(None, writers):
            writer.close()
        for sink in sinks:
            sink.close()
    return {"rows": rows}


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
    keys, columns = code.keys, {}
    codes, ids = number_sequences(table[keys.sequence], keys.sequence, first_row)
    columns["id"] = plain(table[keys.sequence])
    if keys.order is not None:
        columns["order"] = plain(table[keys.order])
        missing = is_missing(columns["order"])
        if missing.any():
            raise DataError(
                f"column {keys.order!r} must order every row, but row "
                f"{first_row + int(np.argmax(missing))} has no value."
            )
    for number, variable in enumerate(code.schema):
        column = Column(variable.name, first_row, code.missing)
        cells = code_cells(table[variable.name], variable, column)
        columns[f"v{number}"] = code_array(cells, variable)
    return pa.table(columns), hash_ids(ids)[codes]


def _sort_part(code: _Coding, item: tuple[int, int]) -> dict[str, Any]:
    """The shards of one part, whose rows are brought together and into order."""
    part, pieces = item
    files = [Path(code.work) / f"piece-{number:06d}-{part:05d}.arrow" for number in range(pieces)]
    tables = [ipc.open_stream(pa.memory_map(str(own))).read_all() for own in files if own.exists()]
    writer = _ShardWriter(code, f"shard-{part:06d}")
    if tables:
        table = pa.concat_tables(tables).combine_chunks()
        del tables
        keys = code.keys
        order = table["order"] if keys.order is not None else None
        grouping = group_rows(table.num_rows, table["id"], order, keys, -1, sort=True)
        index = pa.array(grouping.rows)
        ids = plain(table["id"]).take(pa.array(grouping.starts))
        sorted_order = None if order is None else plain(order).take(index)
        columns = [plain(table[f"v{own}"]).take(index) for own in range(len(code.schema))]
        del table
        for first, last in _runs(grouping.offsets, code.shard_slices):
            begin, end = int(grouping.offsets[first]), int(grouping.offsets[last])
            writer.add(
                [own.slice(begin, end - begin) for own in columns],
                grouping.lengths[first:last],
                ids.slice(first, last - first),
                None if sorted_order is None else sorted_order.slice(begin, end - begin),
            )
    return writer.end()


def _runs(offsets: Ints, size: int) -> Iterator[tuple[int, int]]:
    """Neighbouring sequences that have about `size` slices together."""
    first, count = 0, offsets.size - 1
    while first < count:
        last = int(np.searchsorted(offsets, offsets[first] + size))
        last = min(max(last, first + 1), count)
        yield first, last
        first = last
