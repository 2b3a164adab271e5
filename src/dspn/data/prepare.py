"""Tables of any size into shards of whole sequences, with bounded memory.

First every file is scanned: what its columns hold, and whether the rows of a sequence lie together.
Where they do, files are coded one after the other. Where they do not, rows are first dealt into
parts by a hash of the id of their sequence, and every part, which fits into memory, is sorted. All
work is done in pieces whose results stay in the directory, so that preparation goes on where it was
interrupted.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import ipc

from dspn._arguments import Floats, Ints, require_type, whole_number
from dspn.data.cells import (
    code_cells,
    convertible,
    is_missing,
    is_plain,
    plain,
    read_cells,
    reads_as_number,
)
from dspn.data.chunks import Chunk, Source, categorical_variable, chunks
from dspn.data.coding import BOOLEANS, MOST_CATEGORIES, Reading, infer_variable
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
from dspn.data.files import EXTENSIONS, open_table
from dspn.data.layout import MISSING, Column
from dspn.data.order import (
    NUMBERS,
    TIMES,
    ZONED_TIMES,
    Keys,
    find_starts,
    group_rows,
    number_sequences,
    require_columns,
    require_different,
    variable_names,
    with_order_type,
)
from dspn.data.schema import Kind, Schema, Variable, describe_variable
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
_MOST_CATEGORIES: Final = 100_000
_WORK: Final = "work"
_PLAN: Final = "plan.json"
_TEXT_TYPES: Final = {"numbers": NUMBERS, "times": TIMES, "zoned times": ZONED_TIMES}

OnProgress = Callable[[str, int, int], None]


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
    on_progress: OnProgress | None = None,
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
        on_progress: Called with the name of a stage, and how many of its pieces are done.
    """
    if shard_slices is not None:
        shard_slices = whole_number(shard_slices, "shard_slices", DataError)
    if schema is not None:
        require_type(schema, Schema, "schema", DataError)
    tables = _tables_of(source, delimiter)
    options = {
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
    run = _Run(path, work, executor, on_progress)
    keys = _find_keys(tables, sequence, order)
    first = _columns_of(tables[0], keys, options["variables"], schema)
    job = _Job(str(work), keys, tuple(first), missing, schema is None, tuple((kinds or {}).items()))
    scans = run.each("scan", partial(_scan_table, job), list(enumerate(tables)))
    _check_same_columns(tables, scans, keys, options["variables"] is None and schema is None)
    if schema is None:
        schema, notes, statistics = _make_schema(first, scans, dict(kinds or {}))
    else:
        notes, statistics = (), ()
    keys = replace(keys, text=_TEXT_TYPES.get(scans[0]["order_text"]))
    cells = len(schema) + len(keys.names)
    size = shard_slices or int(np.clip(_SHARD_CELLS // cells, *_SHARD_SLICES))
    code = _Coding(str(path), str(work), keys, schema, missing, size)
    pieces = _pieces(tables, scans)
    if _lie_together(work, scans, keys):
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


# The tables.


@final
@dataclass(frozen=True)
class _File:
    """A file with a table."""

    name: str
    delimiter: str | None

    @contextmanager
    def open(self) -> Iterator[Source]:
        with open_table(self.name, self.delimiter) as source:
            yield source

    def identity(self) -> list[Any]:
        found = os.stat(self.name)
        return [os.path.abspath(self.name), found.st_size, found.st_mtime_ns]


@final
@dataclass(frozen=True)
class _RayTable:
    """A Ray Dataset, read as one table."""

    data: Any
    name: str = "the Ray Dataset"

    @contextmanager
    def open(self) -> Iterator[Source]:
        schema = self.data.schema().base_schema

        def batches(wanted: list[str]) -> Iterator[Any]:
            chosen = self.data.select_columns(wanted)
            for table in chosen.iter_batches(batch_format="pyarrow", batch_size=65_536):
                yield from table.select(wanted).to_batches()

        yield Source(self.name, schema, False, batches, lambda: None)

    def identity(self) -> list[Any]:
        return [str(self.data.schema()), self.data.count()]


_Table = _File | _RayTable


def _tables_of(source: Any, delimiter: str | None) -> list[_Table]:
    """The tables that files, directories, patterns or a Ray Dataset stand for."""
    if hasattr(source, "iter_batches"):
        return [_RayTable(source)]
    is_list = isinstance(source, list | tuple)
    names: list[str] = []
    for item in source if is_list else [source]:
        name = os.fspath(item)
        if os.path.isdir(name):
            found = [os.path.join(name, own) for own in os.listdir(name)]
            found = [own for own in found if _has_table(own)]
        else:
            found = [name] if os.path.exists(name) else glob.glob(name, recursive=True)
        if not found:
            raise DataError(
                f"{name!r} must be a table, a directory of tables or a pattern of their names "
                f"({', '.join(EXTENSIONS)}), but there is no such file."
            )
        names += sorted(found)
    for name, count in Counter(names).items():
        if count > 1:
            raise DataError(f"every file must be named once, but {name!r} is named {count} times.")
    return [_File(name, delimiter) for name in names]


def _has_table(name: str) -> bool:
    base = os.path.basename(name).lower().removesuffix(".gz")
    return os.path.isfile(name) and os.path.splitext(base)[1] in EXTENSIONS


def _fingerprint(tables: Sequence[_Table], options: Mapping[str, Any]) -> str:
    told = json.dumps([VERSION, [own.identity() for own in tables], options], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


def _find_keys(tables: Sequence[_Table], sequence: str | None, order: str | None) -> Keys:
    if sequence is not None and sequence == order:
        raise DataError(f"column {order!r} cannot be both the sequence and the order.")
    if sequence is None and len(tables) > 1:
        raise DataError(
            f"`sequence` must name the column that tells the sequences of {len(tables)} files "
            "apart, but is not given."
        )
    return Keys(sequence, order)


def _columns_of(
    table: _Table, keys: Keys, variables: list[str] | None, schema: Schema | None
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

    path: Path
    work: Path
    executor: Mapper | None
    on_progress: OnProgress | None

    def each(self, stage: str, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        files = [self.work / f"{stage}-{number:06d}.json" for number in range(len(items))]
        waiting = [number for number, file in enumerate(files) if not file.exists()]
        size = 1 if self.executor is None else 64
        for start in range(0, len(waiting), size):
            self._tell(stage, len(items) - len(waiting) + start, len(items))
            batch = [(files[number], items[number]) for number in waiting[start : start + size]]
            work = partial(_kept, function)
            if self.executor is None:
                work(batch[0])
            else:
                self.executor.map(work, batch)
        self._tell(stage, len(items), len(items))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def _tell(self, stage: str, done: int, count: int) -> None:
        if self.on_progress is not None:
            self.on_progress(stage, done, count)


def _kept(function: Callable[[Any], Any], item: tuple[Path, Any]) -> None:
    """The result of a piece of work, written."""
    file, given = item
    _write(file, json.dumps(function(given)).encode())


# Scanning.


@final
@dataclass(frozen=True)
class _Job:
    """What a scan looks at."""

    work: str
    keys: Keys
    names: tuple[str, ...]
    missing: tuple[str, ...]
    infers: bool
    kinds: tuple[tuple[str, str], ...]


@final
class _ColumnScan:
    """What the cells of a column hold so far; two scans can be put together."""

    def __init__(self, name: str, kind: str | None) -> None:
        self.name, self.kind = name, kind
        self.rows = self.missing = 0
        self.type: str | None = None
        self.labels: set[str] = set()
        self.numbers: set[float] = set()
        self.declared: list[Any] | None = None
        self._most = _MOST_CATEGORIES if kind in ("categorical", "binary") else MOST_CATEGORIES + 4

    def add(self, cells: Any, column: Column) -> None:
        """Takes in more cells of a file."""
        is_number = {"categorical": False, "binary": False}.get(self.kind or "")
        if self.kind in ("continuous", "count"):
            is_number = True
        remedy = f"the kind says {self.kind}" if is_number else ""
        values, reading = read_cells(cells, column, is_number=is_number, remedy=remedy)
        present = values[~np.isnan(values)]
        self.rows, self.missing = self.rows + len(values), self.missing + len(values) - present.size
        if not present.size:
            return
        if reading.labels:
            self._take("words", set(reading.labels), set(), None)
        else:
            declared = None if reading.declared is None else list(reading.declared)
            self._take("numbers", set(), set(_telling(present, self._most)), declared)

    def _take(
        self, kind: str, labels: set[str], numbers: set[float], declared: list[Any] | None
    ) -> None:
        if self.type not in (None, kind):
            raise DataError(
                f"column {self.name!r} must hold numbers or words, but holds numbers in some rows "
                "or files and words in others; correct it, add the words to --missing, or say "
                f"--kind {self.name}=categorical."
            )
        self.type = kind
        self.labels |= labels
        self.declared = declared or self.declared
        self.numbers |= numbers
        if len(self.numbers) > self._most + 8:
            self.numbers = set(_telling(np.fromiter(self.numbers, np.float64), self._most))
        if len(self.labels) > _MOST_CATEGORIES:
            raise DataError(
                f"column {self.name!r} has more than {_MOST_CATEGORIES:,} different words; leave "
                "it out with --variables."
            )

    def merge(self, other: Mapping[str, Any]) -> None:
        """Takes in the scan of another file."""
        self.rows, self.missing = self.rows + other["rows"], self.missing + other["missing"]
        if other["type"] is not None:
            numbers = set(other["numbers"])
            self._take(other["type"], set(other["labels"]), numbers, other["declared"])

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "missing": self.missing,
            "type": self.type,
            "labels": sorted(self.labels),
            "numbers": sorted(self.numbers),
            "declared": self.declared,
        }

    def variable(self) -> tuple[Variable, str]:
        """The variable that the cells suggest, or that the kind says, and the reason."""
        values = np.array(sorted(self.numbers), dtype=np.float64)
        declared = None if self.declared is None else tuple(self.declared)
        declared = BOOLEANS if declared == BOOLEANS else declared
        reading = Reading(tuple(sorted(self.labels)) or None, declared)
        if self.kind is None:
            return infer_variable(self.name, values, reading)
        if self.kind in ("categorical", "binary"):
            labels = reading.labels or ()
            if labels and all(map(reads_as_number, labels)):
                values, reading = np.array([float(label) for label in labels]), Reading()
            is_binary = self.kind == "binary"
            variable = categorical_variable(self.name, values, reading, is_binary=is_binary)
            return variable, "the kind that was given"
        return Variable(self.name, Kind(self.kind)), "the kind that was given"


def _telling(present: Floats, most: int) -> list[float]:
    """All distinct values, or as many as tell the kind: the extremes, fractions, and some more."""
    distinct = np.unique(present)
    if distinct.size <= most:
        return [float(value) for value in distinct]
    fractions = distinct[np.floor(distinct) < distinct][:1]
    chosen = np.concatenate([distinct[: most - 3], fractions, distinct[-1:]])
    return [float(value) for value in np.unique(chosen)]


def _scan_table(job: _Job, item: tuple[int, _Table]) -> dict[str, Any]:
    """What one table holds, for `_make_schema` and `_lie_together`."""
    number, table = item
    kinds, keys = dict(job.kinds), job.keys
    columns = {name: _ColumnScan(name, kinds.get(name)) for name in job.names if job.infers}
    marks = _Marks()
    order_text, rows = None, 0
    with table.open() as source:
        require_different(source.title, source.columns)
        require_columns(source.title, source.columns, [*keys.names, *job.names])
        names = [name for name in source.columns if name in {*keys.names, *job.names}]
        kinds_of = {name: str(source.schema.field(name).type) for name in names}
        for name in names:
            if not is_plain(source.schema.field(name).type):
                raise DataError(
                    f"column {name!r} of {source.title} must hold numbers, text, truths or times, "
                    f"but is of type {kinds_of[name]}; convert it, or leave it out."
                )
        # A scan of the keys alone is enough where the variables are known.
        asked = names if job.infers else keys.names
        with _naming(source.title):
            for batch in source.batches(asked or names[:1]):
                if rows == 0 and keys.order is not None:
                    text = with_order_type(keys, batch.column(keys.order)).text
                    order_text = next((w for w, own in _TEXT_TYPES.items() if own == text), None)
                if keys.sequence is not None:
                    marks.add(batch.column(keys.sequence), keys.sequence, rows + 1)
                for name, own in columns.items():
                    column = Column(name, rows + 1, job.missing)
                    with convertible(name, batch.column(name)):
                        own.add(batch.column(name), column)
                rows += batch.num_rows
    marks.save(Path(job.work) / f"marks-{number:06d}.npy")
    return {
        "rows": rows,
        "columns": {name: own.to_json() for name, own in columns.items()},
        "types": kinds_of,
        "all": source.columns,
        "together": marks.lie_together(),
        "order_text": order_text,
    }


@contextmanager
def _naming(title: str) -> Iterator[None]:
    """Errors of cells say which file they are in."""
    try:
        yield
    except DataError as error:
        if title in str(error):
            raise
        raise DataError(f"in {title}, {error}") from None


@final
class _Marks:
    """Hashes of the ids at which runs of rows begin; two equal ones mean that rows lie apart."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.uint64]] = []
        self._last: Any = None
        self._count = self._checked = 0
        self._apart = False

    def add(self, cells: Any, name: str, first_row: int) -> None:
        """Takes in the ids of more rows."""
        codes, ids = number_sequences(cells, name, first_row)
        starts = find_starts(codes)
        if starts.size and self._last is not None and ids[int(codes[0])] == self._last:
            starts = starts[1:]
        if codes.size:
            self._last = ids[int(codes[-1])]
        if self._apart:
            return
        self._parts.append(hash_ids(ids)[codes[starts]])
        self._count += starts.size
        if self._count > 2 * self._checked + 100_000:
            self.lie_together()

    def lie_together(self) -> bool:
        """Whether no id has begun twice."""
        if not self._apart and self._parts:
            self._checked = self._count
            every = np.concatenate(self._parts)
            self._parts = [every]
            self._apart = np.unique(every).size < every.size
        if self._apart:
            self._parts = []
        return not self._apart

    def save(self, path: Path) -> None:
        """Writes the hashes, to compare them with those of other files."""
        np.save(path, np.concatenate([np.empty(0, np.uint64), *self._parts]))


def hash_ids(ids: Sequence[Any]) -> NDArray[np.uint64]:
    """64 bits of each id, the same in every process."""
    if ids and all(type(item) is int and abs(item) < 2**63 for item in ids):
        mixed = np.array(ids, dtype=np.int64).view(np.uint64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)
    digests = (hashlib.blake2b(repr(item).encode(), digest_size=8).digest() for item in ids)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _check_same_columns(
    tables: Sequence[_Table], scans: Sequence[Mapping[str, Any]], keys: Keys, all_count: bool
) -> None:
    """Raises where a file has other columns, or columns of another type, than the first."""
    first, scan = tables[0].name, scans[0]
    for table, other in zip(tables, scans, strict=True):
        more = [name for name in other["all"] if name not in scan["all"]]
        if all_count and more:
            raise DataError(
                f"all files must have the same columns, but {table.name!r} has {more[0]!r}, which "
                f"{first!r} has not; name the variables, or leave the file out."
            )
        for name, kind in other["types"].items():
            one, two = _family(scan["types"][name]), _family(kind)
            is_key = name in keys.names
            if one != two and (is_key or {one, two} - {"number", "nothing"}):
                raise DataError(
                    f"column {name!r} must have one type in all files, but is {kind} in "
                    f"{table.name!r} and {scan['types'][name]} in {first!r}; convert one of them."
                )


def _family(kind: str) -> str:
    for family, words in (
        ("text", ("string", "large_string", "dictionary", "string_view")),
        ("number", ("int", "uint", "float", "double", "halffloat", "decimal")),
        ("truth", ("bool",)),
        ("nothing", ("null",)),
    ):
        if kind.startswith(words):
            return family
    return "time"


def _make_schema(
    names: Sequence[str], scans: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]
) -> tuple[Schema, tuple[str, ...], tuple[dict[str, Any], ...]]:
    """The variables, how each was read, and what its values are like."""
    variables, notes, statistics = [], [], []
    for name in names:
        whole = _ColumnScan(name, kinds.get(name))
        for scan in scans:
            whole.merge(scan["columns"][name])
        variable, reason = whole.variable()
        variables.append(variable)
        share = whole.missing / max(whole.rows, 1)
        extremes = [min(whole.numbers), max(whole.numbers)] if whole.numbers else None
        statistics.append({"missing": share, "range": extremes})
        between = (
            ""
            if variable.categories or extremes is None
            else (f", from {extremes[0]:.6g} to {extremes[1]:.6g}")
        )
        notes.append(
            f"{name}: {describe_variable(variable)}, inferred from {reason}{between}; "
            f"{share:.1%} missing"
        )
    return Schema(tuple(variables)), tuple(notes), tuple(statistics)


def _lie_together(work: Path, scans: Sequence[Mapping[str, Any]], keys: Keys) -> bool:
    """Whether the rows of every sequence lie together in one file."""
    if keys.sequence is None:
        return True
    if not all(scan["together"] for scan in scans):
        return False
    marks = [np.load(work / f"marks-{number:06d}.npy") for number in range(len(scans))]
    every = np.concatenate(marks)
    return bool(np.unique(every).size == every.size)


def _pieces(tables: Sequence[_Table], scans: Sequence[Mapping[str, Any]]) -> list[list[_Table]]:
    """Neighbouring files, as many as make a piece of work worthwhile."""
    pieces: list[list[_Table]] = []
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


def _code_piece(code: _Coding, item: tuple[int, list[_Table]]) -> dict[str, Any]:
    """The shards of files in which the rows of a sequence lie together."""
    number, tables = item
    writer = _ShardWriter(code, f"shard-{number:06d}")
    for table in tables:
        with table.open() as source, _naming(source.title):
            size = min(code.shard_slices, _CHUNK_ROWS)
            for chunk in chunks(source, code.keys, list(code.schema.names), chunk_rows=size):
                _add_chunk(writer, chunk, code)
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


def _deal_piece(code: _Coding, parts: int, item: tuple[int, list[_Table]]) -> dict[str, Any]:
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
            with table.open() as source, _naming(source.title):
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
