"""What tables hold, found in one pass: kinds of columns, and whether sequences lie together."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from dspn._arguments import Floats
from dspn.data.cells import (
    convertible,
    is_plain,
    is_text,
    plain,
    read_cells,
    reads_as_number,
)
from dspn.data.coding import (
    BOOLEANS,
    MOST_CATEGORIES,
    Reading,
    categorical_variable,
    infer_variable,
    require_words,
)
from dspn.data.files import Table
from dspn.data.layout import AS_USUAL, Column, Writing
from dspn.data.order import (
    NUMBERS,
    TIMES,
    ZONED_TIMES,
    Keys,
    find_starts,
    number_sequences,
    require_columns,
    require_different,
    with_order_type,
)
from dspn.data.proposals import Whole
from dspn.data.schema import LARGEST_WHOLE, Kind, Schema, Variable, describe_variable
from dspn.errors import DataError

TEXT_TYPES: Final = {"numbers": NUMBERS, "times": TIMES, "zoned times": ZONED_TIMES}
_MOST_CATEGORIES: Final = 100_000
# Whole numbers below this are counted, which is faster than sorting them.
_TABULATED: Final = 1 << 16

OnRows = Callable[[str, int, float | None], None]
on_rows: ContextVar[OnRows | None] = ContextVar("on_rows", default=None)


def tell(stage: str, rows: int, files: float | None = None) -> None:
    """Says that further rows have been worked on, where somebody listens in this process.

    `files` is the number of files that are done, where it is known.
    """
    listener = on_rows.get()
    if listener is not None:
        listener(stage, rows, files)


@final
@dataclass(frozen=True)
class Job:
    """What a scan looks at."""

    work: str
    keys: Keys
    names: tuple[str, ...]
    writing: Writing
    infers: bool
    kinds: tuple[tuple[str, str], ...]


@final
class _ColumnScan:
    """What the cells of a column hold so far; two scans can be put together."""

    def __init__(self, name: str, kind: str | None, writing: Writing = AS_USUAL) -> None:
        self.name, self.kind, self.writing = name, kind, writing
        self.rows = self.missing = 0
        self.type: str | None = None
        self.labels: set[str] = set()
        self.numbers: set[float] = set()
        self.whole: Whole | None = None
        self._most = _MOST_CATEGORIES if kind in ("categorical", "binary") else MOST_CATEGORIES + 4

    def add(self, cells: Any, column: Column) -> None:
        """Takes in more cells of a file."""
        is_number = None if self.kind is None else self.kind in ("continuous", "count")
        remedy = f"the kind says {self.kind}" if is_number else ""
        values, reading = read_cells(cells, column, is_number=is_number, remedy=remedy)
        present = values[~np.isnan(values)]
        self.rows, self.missing = self.rows + len(values), self.missing + len(values) - present.size
        if not present.size:
            return
        if reading.labels:
            self._take("words", reading.labels, ())
        else:
            kind = "truths" if reading.declared else "numbers"
            self._add_whole(_whole_of(present))
            self._take(kind, (), _telling(present, self._most))

    def _take(self, kind: str, labels: Iterable[str], numbers: Iterable[float]) -> None:
        if self.type not in (None, kind):
            raise DataError(
                f"column {self.name!r} must hold numbers or words, but holds {self.type} in some "
                f"rows or files and {kind} in others; correct it, add the words to --missing, or "
                f"say --kind {shlex.quote(f'{self.name}=categorical')}."
            )
        self.type = kind
        self.labels.update(labels)
        self.numbers.update(numbers)
        most = _MOST_CATEGORIES
        if len(self.labels) > most or (self._most == most and len(self.numbers) > most):
            raise DataError(
                f"column {self.name!r} has more than {most:,} categories; leave it out with "
                "--variables."
            )
        if len(self.numbers) > self._most + 8:
            self.numbers = set(_telling(np.fromiter(self.numbers, np.float64), self._most))

    def _add_whole(self, more: Whole | None) -> None:
        known = self.whole
        self.whole = more if known is None else known.plus(more) if more else known

    def merge(self, other: Mapping[str, Any]) -> None:
        """Takes in the scan of another file."""
        self.rows, self.missing = self.rows + other["rows"], self.missing + other["missing"]
        if other["type"] is not None:
            self._take(other["type"], other["labels"], other["numbers"])
            self._add_whole(Whole(*other["whole"]) if other["whole"] else None)

    def to_json(self) -> dict[str, Any]:
        """What `merge` takes."""
        return {
            "rows": self.rows,
            "missing": self.missing,
            "type": self.type,
            "labels": sorted(self.labels),
            "numbers": sorted(self.numbers),
            "whole": self.whole,
        }

    def variable(self) -> tuple[Variable, str]:
        """The variable that the cells suggest, or that the kind says, and where it is from."""
        values, labels = np.array(sorted(self.numbers)), tuple(sorted(self.labels))
        reading = Reading(labels or None, BOOLEANS if self.type == "truths" else None)
        if self.kind is None:
            require_words(reading, Column(self.name))
            variable, reason = infer_variable(self.name, values, reading, self.whole)
            return variable, f"inferred from {reason}"
        told = "as its kind says"
        if self.kind not in ("categorical", "binary"):
            return Variable(self.name, Kind(self.kind)), told
        column = Column(self.name, 1, self.writing)
        if labels and all(reads_as_number(own, self.writing.decimal) for own in labels):
            values, reading = read_cells(pa.array(labels), column, is_number=True)
            values = np.sort(values)
        is_binary = self.kind == "binary"
        return categorical_variable(self.name, values, reading, is_binary=is_binary), told


def _whole_of(present: Floats) -> Whole | None:
    """What is to be known of whole numbers >= 0; None where some are others."""
    low, high = float(present.min()), float(present.max())
    if low < 0 or high >= LARGEST_WHOLE or (np.floor(present) < present).any():
        return None
    return Whole.of(present)


def _telling(present: Floats, most: int) -> list[float]:
    """All distinct values, or as many as tell the kind: the extremes, fractions, and some more."""
    low, high = float(present.min()), float(present.max())
    is_tabulated = low >= 0 and high < _TABULATED and not (np.floor(present) < present).any()
    if is_tabulated:
        distinct = np.flatnonzero(np.bincount(present.astype(np.int64))).astype(np.float64)
    else:
        distinct = np.unique(present)
    if distinct.size <= most:
        return [float(value) for value in distinct]
    fractions = distinct[np.floor(distinct) < distinct][:1]
    chosen = np.concatenate([distinct[: most - 3], fractions, distinct[-1:]])
    return [float(value) for value in np.unique(chosen)]


def scan_table(job: Job, item: tuple[int, Table]) -> dict[str, Any]:
    """What one table holds, for `make_schema` and `lie_together`."""
    number, table = item
    kinds, keys = dict(job.kinds), job.keys
    columns = {
        name: _ColumnScan(name, kinds.get(name), job.writing) for name in job.names if job.infers
    }
    marks = _Marks()
    order_text, rows = None, 0
    with table.open() as source:
        require_different(source.title, source.columns)
        require_columns(source.title, source.columns, [*keys.names, *job.names])
        names = [name for name in source.columns if name in {*keys.names, *job.names}]
        kinds_of = {}
        for name in names:
            kind = source.schema.field(name).type
            if not is_plain(kind):
                raise DataError(
                    f"column {name!r} of {source.title} must hold numbers, text, truths or times, "
                    f"but is of type {kind}; convert it, or leave it out."
                )
            kinds_of[name] = str(kind.value_type if types.is_dictionary(kind) else kind)
        # A scan of the keys alone is enough where the variables are known.
        asked = names if job.infers else keys.names
        with naming(source.title):
            for batch in source.batches(asked or names[:1]):
                if rows == 0 and keys.order is not None:
                    text = with_order_type(keys, batch.column(keys.order)).text
                    order_text = next((w for w, own in TEXT_TYPES.items() if own == text), None)
                if keys.sequence is not None:
                    marks.add(key_cells(batch.column(keys.sequence)), keys.sequence, rows + 1)
                for name, own in columns.items():
                    column = Column(name, rows + 1, job.writing)
                    with convertible(name, batch.column(name)):
                        own.add(batch.column(name), column)
                rows += batch.num_rows
                tell("scan", batch.num_rows, number + (source.share() or 0.0))
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
def naming(title: str) -> Iterator[None]:
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


def key_cells(cells: Any) -> Any:
    """Cells of a key column in a type that files of other widths have too."""
    cells = plain(cells)
    if is_text(cells.type):
        return cells.cast(pa.large_string())
    is_whole = types.is_integer(cells.type) and cells.type != pa.uint64()
    return cells.cast(pa.int64()) if is_whole else cells


def hash_ids(ids: Sequence[Any]) -> NDArray[np.uint64]:
    """64 bits of each id, the same in every process and whatever the other ids are."""
    if ids and type(ids[0]) is int:  # all are, since they are those of a column
        mixed = np.array([item % 2**64 for item in ids], dtype=np.uint64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)
    digests = (hashlib.blake2b(repr(item).encode(), digest_size=8).digest() for item in ids)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def check_same_columns(
    tables: Sequence[Table], scans: Sequence[Mapping[str, Any]], keys: Keys, all_count: bool
) -> None:
    """Raises where a file has other columns, or columns of another type, than those before it."""
    first, known = tables[0].name, set(scans[0]["all"])
    found: dict[str, tuple[str, str, str]] = {}
    for table, scan in zip(tables, scans, strict=True):
        more = [name for name in scan["all"] if name not in known]
        if all_count and more:
            raise DataError(
                f"all files must have the same columns, but {table.name!r} has {more[0]!r}, which "
                f"{first!r} has not; name the variables, or leave the file out."
            )
        for name, kind in scan["types"].items() if scan["rows"] else ():
            family = _family(kind, is_key=name in keys.names)
            if family == "null":
                continue
            one, other, where = found.setdefault(name, (family, kind, table.name))
            if family != one:
                raise DataError(
                    f"column {name!r} must have one type in all files, but is {kind} in "
                    f"{table.name!r} and {other} in {where!r}; convert one of them."
                )


def _family(kind: str, *, is_key: bool) -> str:
    """What types of a column in different files must have in common."""
    if kind.startswith(("string", "large_string")):
        return "text"
    is_whole = kind.startswith(("int", "uint"))
    if is_key:
        return "whole number" if is_whole and kind != "uint64" else kind
    is_number = is_whole or kind.startswith(("float", "double", "half", "decimal"))
    return "number" if is_number else kind


def order_type(tables: Sequence[Table], scans: Sequence[Mapping[str, Any]]) -> Any:
    """The Arrow type that an order column of text stands for in all files."""
    pairs = [(scan["order_text"], own.name) for scan, own in zip(scans, tables, strict=True)]
    pairs = [own for own, scan in zip(pairs, scans, strict=True) if scan["rows"]]
    for text, name in pairs:
        if text != pairs[0][0]:
            raise DataError(
                f"the order column must hold one kind of text in all files, but holds "
                f"{text or 'words'} in {name!r} and {pairs[0][0] or 'words'} in {pairs[0][1]!r}; "
                "convert one of them."
            )
    return TEXT_TYPES.get(pairs[0][0])


def make_schema(
    names: Sequence[str],
    scans: Sequence[Mapping[str, Any]],
    kinds: Mapping[str, str],
    writing: Writing = AS_USUAL,
) -> tuple[Schema, tuple[str, ...], tuple[dict[str, Any], ...]]:
    """The variables, how each was read, and what its values are like."""
    variables, notes, statistics = [], [], []
    for name in names:
        whole = _ColumnScan(name, kinds.get(name), writing)
        for scan in scans:
            whole.merge(scan["columns"][name])
        variable, reason = whole.variable()
        variables.append(variable)
        share = whole.missing / max(whole.rows, 1)
        extremes = [min(whole.numbers), max(whole.numbers)] if whole.numbers else None
        statistics.append({"missing": share, "range": extremes})
        between = ""
        if extremes is not None and not variable.categories:
            between = f", from {extremes[0]:.6g} to {extremes[1]:.6g}"
        notes.append(
            f"{name}: {describe_variable(variable)}, {reason}{between}; {share:.1%} missing"
        )
    return Schema(tuple(variables)), tuple(notes), tuple(statistics)


def lie_together(work: Path, scans: Sequence[Mapping[str, Any]], keys: Keys) -> bool:
    """Whether the rows of every sequence lie together in one file."""
    if keys.sequence is None:
        return True
    if not all(scan["together"] for scan in scans):
        return False
    marks = [np.load(work / f"marks-{number:06d}.npy") for number in range(len(scans))]
    every = np.concatenate(marks)
    return bool(np.unique(every).size == every.size)
