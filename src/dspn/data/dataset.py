"""Data sets larger than memory: shards of whole sequences in a directory, prepared once.

A shard is an Arrow file with a row for each sequence: its id, and lists of its order values, of the
codes of each variable and of each input that no rule computes; its metadata name them.
`dataset.json` says what the shards hold. `dspn.data.prepare` makes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from dspn._arguments import Bools, Floats, Ints
from dspn.data.cells import decode_cells
from dspn.data.chunks import Chunk
from dspn.data.inputs import input_codes, rule_from_json
from dspn.data.layout import Ragged, TableKeys, offsets_of
from dspn.data.order import Grouping, Keys, parsed_values, with_order_type
from dspn.data.schema import Kind, Schema, Variable, describe_variable
from dspn.data.sequences import Sequences, joined
from dspn.errors import DataError, plainly

MANIFEST: Final = "dataset.json"
FORMAT: Final = "dspn-dataset"
VERSION: Final = 1
WITH_INPUTS: Final = 2  # the version of data sets with inputs, which earlier releases do not know
WORK: Final = "work"  # the directory within, while the data set is prepared
# Columns of a shard; those of variables are numbered, as any name may be that of a variable.
_ID: Final = "id"
_ORDER: Final = "order"
# Bytes of decoded shards that a process keeps.
_KEPT_BYTES: Final = 256 * 2**20
_BLOCK_ROWS: Final = 4096
# Shards that a sample is drawn from, so that it does not read everything.
_SAMPLED_SHARDS: Final = 32

_decoded: OrderedDict[str, Sequences] = OrderedDict()
_lock: Final = threading.Lock()


@final
@dataclass(frozen=True)
class Held:
    """The sequences that are left out of training: each with one chance, by the seed."""

    seed: int
    share: float

    def members(self, number: int, count: int) -> Bools:
        """Which of the sequences of the shard of a number are held out."""
        return np.random.default_rng([self.seed, 17, number]).random(count) < self.share


@final
@dataclass(frozen=True)
class Shard:
    """A file of whole sequences; `number` is its place in the data set.

    Where some sequences are `held` out, `load` leaves them out.
    """

    path: str
    number: int
    num_sequences: int
    num_slices: int
    checksum: str
    schema: Schema
    held: Held | None = None

    @property
    def _held_out(self) -> Bools:
        if self.held is None:
            return np.zeros(self.num_sequences, dtype=np.bool_)
        return self.held.members(self.number, self.num_sequences)

    @property
    def num_trained(self) -> int:
        """Number of sequences that are not held out."""
        return int(np.count_nonzero(~self._held_out))

    def load(self) -> Sequences | None:
        """The sequences that are not held out, None where all are; checked against the checksum.

        A process keeps what it has decoded, up to some hundred megabytes.
        """
        return _picked(self._whole(), ~self._held_out)

    def load_held(self) -> Sequences | None:
        """The sequences that are held out; None where there are none."""
        return _picked(self._whole(), self._held_out)

    def _whole(self) -> Sequences:
        with _lock:
            if self.checksum in _decoded:
                _decoded.move_to_end(self.checksum)
                return _decoded[self.checksum]
        batch = self._batch()
        lists = [batch.column(name) for name in _code_names(coded_schema(self.schema))]
        columns = [cells.values.to_numpy(zero_copy_only=False) for cells in lists]
        values = np.empty((self.num_slices, len(lists)))
        for start in range(0, self.num_slices, _BLOCK_ROWS):  # a block stays in the cache
            rows = slice(start, start + _BLOCK_ROWS)
            for column, cells in enumerate(columns):
                values[rows, column] = cells[rows]
        offsets = lists[0].offsets.to_numpy().astype(np.int64)
        data = self._with_inputs(values, offsets, batch)
        with _lock:
            _decoded[self.checksum] = data
            size = sum(own.values.nbytes for own in _decoded.values())
            while len(_decoded) > 1 and size > _KEPT_BYTES:
                size -= _decoded.popitem(last=False)[1].values.nbytes
        return data

    def _with_inputs(self, values: Floats, offsets: Ints, batch: Any) -> Sequences:
        """The sequences of codes of the variables and of the inputs that no rule computes."""
        schema, count = self.schema, len(self.schema)
        if not schema.inputs:
            return Sequences.trusted(values, offsets, schema)
        keys = None
        if any(own.rule is not None and own.rule.needs_times for own in schema.inputs):
            cells = batch.column(_ORDER).values
            order = parsed_values(cells, with_order_type(Keys(None, _ORDER), cells), 1)
            keys = TableKeys("sequence", _ORDER, order)
        given = np.ascontiguousarray(values[:, count:]) if schema.given_inputs else None
        known = None if keys is None else keys.order_values
        inputs = input_codes(given, schema, Ragged(offsets, None), known)
        own = np.ascontiguousarray(values[:, :count])
        return Sequences.trusted(own, offsets, schema, inputs=inputs, table_keys=keys)

    def _batch(self) -> Any:
        """The Arrow data; raises where the file is missing or not as it was written."""
        try:
            source = pa.memory_map(self.path)
            checksum = checksum_of(source.read_buffer())
            source.seek(0)
        except (OSError, pa.ArrowException) as error:
            reason = "is missing" if not os.path.exists(self.path) else plainly(error)
            raise DataError(
                f"the shard {self.path!r} cannot be read: {reason}; restore the file, or prepare "
                "the data set again."
            ) from None
        if checksum != self.checksum:
            raise DataError(
                f"the shard {self.path!r} is damaged: its bytes do not fit its checksum; restore "
                "the file, or prepare the data set again."
            )
        return ipc.open_file(source).get_batch(0)

    def chunk(self, keys: Keys) -> tuple[Chunk, Sequences]:
        """The table of all sequences with their keys, as a query takes it, and their codes."""
        batch, data = self._batch(), self._whole()
        columns: dict[str, Any] = {}
        ids = batch.column(_ID)
        if keys.sequence is not None:
            owners = np.repeat(np.arange(len(data)), data.lengths)
            columns[keys.sequence] = ids.take(pa.array(owners))
        if keys.order is not None:
            columns[keys.order] = batch.column(_ORDER).values
            keys = with_order_type(keys, columns[keys.order])
        for variable, codes in zip(self.schema, data.values.T, strict=True):
            columns[variable.name] = decode_cells(codes, variable)
        for own, codes in zip(self.schema.inputs, data.inputs.T, strict=True):
            if own.rule is None:
                columns[own.name] = decode_cells(codes, own)
        rows = np.arange(data.total_slices)
        grouping = Grouping(rows, data.offsets, ids.to_pylist(), data.offsets[:-1])
        return Chunk(pa.table(columns), 1, grouping, keys), data.with_ids(grouping.ids)


def _picked(data: Sequences, chosen: Bools) -> Sequences | None:
    if chosen.all():
        return data
    return data[np.flatnonzero(chosen)] if chosen.any() else None


def checksum_of(data: Any) -> str:
    """The checksum of the bytes of a shard."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _code_names(schema: Schema) -> list[str]:
    return [f"v{column}" for column in range(len(schema))]


def coded_schema(schema: Schema) -> Schema:
    """What shards hold of a schema, as variables: its own, and the inputs that no rule computes."""
    given = (replace(own, default=None) for own in schema.given_inputs)
    return Schema((*schema.without_leaves().variables, *given))


def code_type(variable: Variable) -> Any:
    """The smallest Arrow type that holds the codes of a variable."""
    if variable.kind is not Kind.CATEGORICAL:
        return pa.int64() if variable.kind is Kind.COUNT else pa.float64()
    size = variable.num_categories
    return pa.uint8() if size <= 2**8 else pa.uint16() if size <= 2**16 else pa.uint32()


def code_array(codes: Floats, variable: Variable) -> Any:
    """Codes as Arrow cells, null where missing."""
    is_nan = np.isnan(codes)
    missing = is_nan if is_nan.any() else None
    if variable.kind is Kind.CONTINUOUS:
        return pa.array(codes, mask=missing)
    kind = code_type(variable)
    whole = codes if missing is None else np.where(missing, 0, codes)
    return pa.array(whole.astype(kind.to_pandas_dtype()), mask=missing)


def encode_shard(codes: Sequence[Any], lengths: Ints, ids: Any, order: Any, schema: Schema) -> Any:
    """The bytes of a shard.

    Args:
        codes: Arrow cells of each variable, sequence after sequence.
        lengths: Number of slices of each sequence.
        ids: Their ids, as Arrow cells.
        order: Order values of the slices; None where there are none.
        schema: The variables.
    """
    offsets = pa.array(offsets_of(lengths).astype(np.int32))
    columns = {_ID: ids}
    if order is not None:
        columns[_ORDER] = pa.ListArray.from_arrays(offsets, order)
    for name, cells in zip(_code_names(schema), codes, strict=True):
        columns[name] = pa.ListArray.from_arrays(offsets, cells)
    # The variables are part of what the checksum covers: equal codes may mean different things.
    told = {"variables": json.dumps(schema_to_json(schema))}
    batch = pa.record_batch(columns).replace_schema_metadata(told)
    out = pa.BufferOutputStream()
    with ipc.new_file(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue()


def schema_to_json(variables: Iterable[Variable]) -> list[dict[str, Any]]:
    """Variables or inputs as JSON; leaf families are those of models, not of data."""
    found = []
    for own in variables:
        item = {"name": own.name, "kind": str(own.kind), "categories": list(own.categories)}
        if own.rule is not None:
            item["rule"] = own.rule.to_json()
        found.append(item if own.default is None else item | {"default": own.default})
    return found


def schema_from_json(
    variables: Iterable[Mapping[str, Any]], inputs: Iterable[Mapping[str, Any]] = ()
) -> Schema:
    """What `schema_to_json` has written."""

    def read(item: Mapping[str, Any]) -> Variable:
        rule = rule_from_json(item["rule"]) if "rule" in item else None
        categories, default = tuple(item["categories"]), item.get("default")
        return Variable(item["name"], item["kind"], categories, None, rule, default)

    return Schema(tuple(map(read, variables)), tuple(map(read, inputs)))


@final
@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Sequences in shards on disk, for `fit` and for commands; `Dataset.open` reads a directory.

    Attributes:
        directory: Where the shards lie.
        schema: The variables, and the inputs.
        keys: Names of the columns that named the sequences and ordered their slices.
        shards: The files, in order.
        notes: How each variable was read.
        origin: A fingerprint of what the data set was prepared from, and how.
    """

    directory: Path
    schema: Schema
    keys: Keys
    shards: tuple[Shard, ...]
    notes: tuple[str, ...] = ()
    origin: str = ""
    statistics: tuple[dict[str, Any], ...] = field(default=())

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> Dataset:
        """The data set that was prepared in a directory."""
        path = Path(os.fspath(directory))
        try:
            found = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            if found["format"] != FORMAT:
                raise ValueError(f"its format is {found['format']!r}")
            version = found["version"]
            if version in (VERSION, WITH_INPUTS):
                schema = schema_from_json(found["schema"], found.get("inputs", ()))
                shards = tuple(
                    Shard(
                        str(path / item["file"]),
                        number,
                        int(item["sequences"]),
                        int(item["slices"]),
                        str(item["checksum"]),
                        schema,
                    )
                    for number, item in enumerate(found["shards"])
                )
                keys = Keys(*found["keys"])
                notes, origin = tuple(found["notes"]), str(found["origin"])
                return cls(path, schema, keys, shards, notes, origin, tuple(found["statistics"]))
        except FileNotFoundError:
            begun = (path / WORK).is_dir()
            finding = "its preparation was not finished" if begun else f"it has no {MANIFEST}"
            raise DataError(
                f"{str(path)!r} holds no data set: {finding}; run `dspn prepare`, or name a table."
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{str(path / MANIFEST)!r} cannot be read ({plainly(error)}); prepare the data set "
                "again."
            ) from None
        raise DataError(
            f"the data set in {str(path)!r} is of version {version!r}, but this release reads "
            f"versions {VERSION} and {WITH_INPUTS}; prepare it again in another directory."
        )

    @property
    def num_sequences(self) -> int:
        """Number of sequences in all shards."""
        return sum(shard.num_sequences for shard in self.shards)

    @property
    def total_slices(self) -> int:
        """Number of slices in all shards."""
        return sum(shard.num_slices for shard in self.shards)

    def __len__(self) -> int:
        """Number of sequences in all shards."""
        return self.num_sequences

    def __iter__(self) -> Iterator[Sequences]:
        """The sequences of each shard that are not held out."""
        return (data for data in (shard.load() for shard in self.shards) if data is not None)

    def __repr__(self) -> str:
        head = (
            f"Dataset({str(self.directory)!r}: {self.num_sequences:,} sequences, "
            f"{self.total_slices:,} slices, {len(self.schema)} variables, "
            f"{len(self.shards):,} shards)"
        )
        lines = self.notes or [f"{own.name}: {describe_variable(own)}" for own in self.schema]
        # Inputs by rules have no notes: no column was read for them.
        rules = [own for own in self.schema.inputs if own.rule is not None]
        lines = [*lines, *(f"input {own.name}: {describe_variable(own)}" for own in rules)]
        return "\n  ".join([head, *lines])

    def hold_out(self, share: float, seed: int) -> Dataset:
        """The data set without a share of its sequences, drawn at random by the seed."""
        held = Held(seed, share)
        return replace(self, shards=tuple(replace(own, held=held) for own in self.shards))

    def sample(self, num_slices: int, seed: int) -> Sequences:
        """Sequences drawn at random that have about so many slices together.

        They come from at most 32 shards, which are drawn at random too.

        Args:
            num_slices: Number of slices.
            seed: Seed of the draws.
        """
        rng = np.random.default_rng([seed, 18])
        count = min(len(self.shards), _SAMPLED_SHARDS)
        places = np.sort(rng.choice(len(self.shards), count, replace=False))
        drawn = [self.shards[place] for place in places.tolist()]
        parts, left, waiting = [], num_slices, sum(own.num_slices for own in drawn)
        for shard in drawn:
            wanted = left * shard.num_slices / waiting  # its share of what is still to be drawn
            waiting -= shard.num_slices
            data = shard.load()
            if data is None:
                continue
            order = rng.permutation(len(data))
            ends = np.cumsum(data.lengths[order])
            taken = max(1, int(np.searchsorted(ends, wanted, side="right")))
            parts.append(data[np.sort(order[:taken])])
            left -= int(ends[taken - 1])
            if left <= 0:
                break
        if not parts:
            raise DataError("the data set holds no sequence to learn from; hold out fewer.")
        return joined(parts)


def is_dataset(directory: Any) -> bool:
    """Whether a path is a directory with a data set."""
    return os.path.isfile(os.path.join(os.fspath(directory), MANIFEST))
