"""A ragged batch of sequences held as one contiguous array with offsets."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dspn._checks import require_type, whole_number
from dspn.data._checks import (
    Ids,
    Ragged,
    check_values,
    checked_ids,
    checked_offsets,
    coded_matrix,
    in_words,
    offsets_of,
)
from dspn.data._coding import coded, column_names, decoded_matrix
from dspn.data._columns import RawBlock, raw_block
from dspn.data._packing import Packed, pack_arrays, pack_concatenated, pack_padded
from dspn.data._selection import cut, many_indices, one_index, rows_of
from dspn.data.keys import TableKeys
from dspn.data.schema import Schema
from dspn.data.tables import long_table, read_long_table
from dspn.errors import DataError

_MOST_SHOWN = 12


@final
@dataclass(frozen=True, eq=False, repr=False)
class Sequences:
    """Sequences of slices of one schema: row `offsets[i] + t` is slice t of sequence i.

    `values` holds the category's code for a categorical variable and NaN where an entry is
    missing. Arrays are read-only copies of what was given. `inference_notes` says how each
    variable was read when no schema was given and is empty otherwise.

    The reading constructors take categories as they are ("red", 3, True); `from_codes` and
    `with_values` take their codes.
    """

    values: NDArray[np.float64]
    offsets: NDArray[np.int64]
    schema: Schema
    ids: Ids | None = None
    inference_notes: tuple[str, ...] = ()
    table_keys: TableKeys | None = None

    def __post_init__(self) -> None:
        """Check every rule of a batch and take read-only copies of the arrays."""
        require_type(self.schema, Schema, "schema", DataError)
        values = coded_matrix(self.values, self.schema.num_variables)
        offsets = checked_offsets(self.offsets, len(values), self.ids)
        ids = checked_ids(self.ids, offsets.size - 1)
        check_values(values, self.schema, Ragged(offsets, ids))
        self._set(values, offsets, ids)

    def _set(self, values: NDArray[Any], offsets: NDArray[np.int64], ids: Ids | None) -> None:
        values.flags.writeable = False
        offsets.flags.writeable = False
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "ids", ids)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled or copied batch; numpy forgets that its arrays were read-only."""
        self.__dict__.update(state)
        self._set(self.values, self.offsets, self.ids)

    @classmethod
    def _trusted(
        cls,
        values: NDArray[np.float64],
        offsets: NDArray[np.int64],
        schema: Schema,
        ids: Ids | None,
        inference_notes: tuple[str, ...] = (),
        table_keys: TableKeys | None = None,
    ) -> Sequences:
        # Arrays come from a batch or reader that has checked them and owns them.
        batch = object.__new__(cls)
        object.__setattr__(batch, "schema", schema)
        object.__setattr__(batch, "inference_notes", inference_notes)
        object.__setattr__(batch, "table_keys", table_keys)
        batch._set(values, offsets, ids)
        return batch

    # Reading

    @classmethod
    def from_codes(
        cls,
        values: ArrayLike,
        offsets: ArrayLike,
        schema: Schema,
        ids: Iterable[Hashable] | None = None,
    ) -> Sequences:
        """Batch of values that are already coded; NaN where an entry is missing."""
        return cls(values, offsets, schema, ids)  # type: ignore[arg-type]

    @classmethod
    def from_arrays(
        cls,
        arrays: Iterable[Any],
        *,
        schema: Schema | None = None,
        ids: Iterable[Hashable] | None = None,
        names: Iterable[str] | None = None,
        argument: str = "arrays",
    ) -> Sequences:
        """Batch of a list of (T_i, n) arrays, or of (T_i,) arrays of one variable.

        NaN, None and masked entries are missing. Without a schema the kind of each variable is
        inferred (see `inference_notes`) and the variables are called x0, x1, ... unless `names`
        says otherwise. `argument` is what messages call `arrays`.
        """
        if isinstance(arrays, Sequences):
            raise DataError(
                f"`{argument}` is a Sequences already; its arrays hold codes, use it as is."
            )
        packed = pack_arrays(arrays, ids, argument)
        return cls._from_packed(packed, schema, ids, names, argument)

    @classmethod
    def from_concatenated(
        cls,
        x: Any,
        lengths: ArrayLike,
        *,
        schema: Schema | None = None,
        ids: Iterable[Hashable] | None = None,
        names: Iterable[str] | None = None,
    ) -> Sequences:
        """Batch of sequences that lie one below the other in `x`, `lengths[i]` rows each."""
        return cls._from_packed(pack_concatenated(x, lengths, ids), schema, ids, names, "x")

    @classmethod
    def from_padded(
        cls,
        array: Any,
        lengths: ArrayLike | None = None,
        *,
        schema: Schema | None = None,
        ids: Iterable[Hashable] | None = None,
        names: Iterable[str] | None = None,
    ) -> Sequences:
        """Batch of the first `lengths[i]` slices of each layer of an (N, T, n) array.

        Without lengths every sequence has T slices, those with all entries missing included.
        """
        return cls._from_packed(pack_padded(array, lengths, ids), schema, ids, names, "array")

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        sequence: str,
        order: str | None = None,
        variables: Iterable[str] | None = None,
        schema: Schema | None = None,
    ) -> Sequences:
        """Batch of a long table of pandas, polars or Arrow with one row for each slice.

        `sequence` and `order` name columns. Sequences come in the order of their first row, the
        slices of a sequence in the order of the `order` column, or of the rows without one. The
        variables are those of the schema, those named, or all other columns. Null is missing.
        """
        read = read_long_table(table, sequence, order, variables, schema)
        return cls._from_raw(read.block, read.names, read.lengths, schema, read.ids, read.keys)

    @classmethod
    def _from_packed(
        cls,
        packed: Packed,
        schema: Schema | None,
        ids: Iterable[Hashable] | None,
        names: Iterable[str] | None,
        argument: str,
    ) -> Sequences:
        matrix, lengths = packed
        called = column_names(matrix.shape[1], schema, names, argument)
        return cls._from_raw(raw_block(matrix, called), called, lengths, schema, ids)

    @classmethod
    def _from_raw(
        cls,
        block: RawBlock,
        names: tuple[str, ...],
        lengths: NDArray[np.int64],
        schema: Schema | None,
        ids: Iterable[Hashable] | None,
        keys: TableKeys | None = None,
    ) -> Sequences:
        offsets = offsets_of(lengths)
        plain = checked_ids(ids, lengths.size)
        values, schema, notes = coded(block, names, schema, Ragged(offsets, plain))
        return cls._trusted(values, offsets, schema, plain, notes, keys)

    # Writing

    def to_arrays(self, decode: bool = False) -> list[NDArray[Any]]:
        """A (T_i, n) array for each sequence: codes, or what they stand for when `decode` is set.

        Codes are read-only views. Decoded arrays are float64 when every variable is a number and
        otherwise hold objects, with None where an entry is missing; `from_arrays` with this
        schema reads them back.
        """
        if not decode:
            return list(self)
        matrix = decoded_matrix(self.values, self.schema)
        return np.split(matrix, self.offsets[1:-1])

    def to_concatenated(self, decode: bool = False) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """All slices one below the other, coded or decoded, and the length of each sequence."""
        values = decoded_matrix(self.values, self.schema) if decode else self.values
        return values, self.lengths

    def to_padded(
        self, fill: Any = np.nan, decode: bool = False
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """An (N, T, n) array, `fill` behind the end of each sequence, and the lengths."""
        values, lengths = self.to_concatenated(decode)
        longest = int(lengths.max())
        padded = np.full((len(self), longest, self.num_variables), fill, dtype=values.dtype)
        padded[np.arange(longest) < lengths[:, np.newaxis]] = values
        return padded, lengths

    def to_table(
        self,
        library: str = "pandas",
        *,
        sequence: str | None = None,
        order: str | None = None,
    ) -> Any:
        """A long table with decoded values; null where an entry is missing.

        The key columns are called as in the table the batch was read from, or `sequence` and
        `slice`. Sequences without ids and slices without order values are numbered from 0. A
        batch read without an order column gets one only when `order` names it.
        """
        keys = self.table_keys or TableKeys("sequence", "slice")
        named = TableKeys(sequence or keys.sequence, order or keys.order, keys.order_values)
        return long_table(library, self.values, self.lengths, self.schema, self.ids, named)

    # Shape

    @property
    def num_sequences(self) -> int:
        """Number of sequences."""
        return self.offsets.size - 1

    @property
    def shape(self) -> tuple[int]:
        """One axis, the sequences: what scikit-learn splits, keeping schema and ids."""
        return (self.num_sequences,)

    @property
    def total_slices(self) -> int:
        """Number of slices of all sequences together."""
        return len(self.values)

    @property
    def num_variables(self) -> int:
        """Number of variables in a slice."""
        return self.schema.num_variables

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of slices of each sequence."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        """Number of sequences."""
        return self.num_sequences

    def __iter__(self) -> Iterator[NDArray[np.float64]]:
        """Coded (T, n) view of each sequence."""
        bounds = self.offsets.tolist()
        return (self.values[start:end] for start, end in itertools.pairwise(bounds))

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> NDArray[np.float64]: ...

    @overload
    def __getitem__(self, key: slice | list[int] | list[bool] | NDArray[Any]) -> Sequences: ...

    def __getitem__(self, key: Any) -> NDArray[np.float64] | Sequences:
        """Coded (T, n) view of one sequence, or the batch of those picked out.

        A slice, an index array or a boolean mask picks out sequences; their order is that of
        the key, and an index may be repeated.
        """
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:
            key = key[0]  # as scikit-learn picks samples out of whatever has a shape
        if isinstance(key, slice):
            return self._gathered(np.arange(self.num_sequences)[key])
        if not isinstance(key, tuple) and np.ndim(key) > 0:
            return self._gathered(many_indices(np.asarray(key), self.num_sequences))
        index = one_index(key, self.num_sequences)
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def _gathered(self, picked: NDArray[np.int64]) -> Sequences:
        if not picked.size:
            raise DataError("the selection must hold at least one sequence, found none.")
        ids = None if self.ids is None else tuple(self.ids[index] for index in picked.tolist())
        return self._runs(self.offsets[picked], self.lengths[picked], ids)

    def _runs(
        self, starts: NDArray[np.int64], lengths: NDArray[np.int64], ids: Ids | None
    ) -> Sequences:
        # Sequence i has `lengths[i]` rows from row `starts[i]` on.
        rows = rows_of(starts, lengths)
        keys = None if self.table_keys is None else self.table_keys.rows(rows)
        return Sequences._trusted(
            self.values[rows], offsets_of(lengths), self.schema, ids, self.inference_notes, keys
        )

    def slices(self, start: int | None = None, stop: int | None = None) -> Sequences:
        """Slices `[start:stop]` of every sequence; `slices(None, -3)` leaves out the last three.

        The bounds are those of a Python slice. Every sequence has to keep at least one slice.
        """
        starts, lengths = cut(Ragged(self.offsets, self.ids), start, stop)
        return self._runs(starts, lengths, self.ids)

    # Changing

    def with_values(self, values: ArrayLike) -> Sequences:
        """The same sequences with other coded values, of shape (total_slices, num_variables)."""
        coded = coded_matrix(values, self.num_variables)
        if coded.shape != self.values.shape:
            raise DataError(
                f"`values` must have shape {self.values.shape}, one row for each slice, "
                f"found {coded.shape}."
            )
        check_values(coded, self.schema, Ragged(self.offsets, self.ids))
        return Sequences._trusted(
            coded, self.offsets, self.schema, self.ids, self.inference_notes, self.table_keys
        )

    def with_ids(self, ids: Iterable[Hashable] | None) -> Sequences:
        """The same sequences with other ids, or without any."""
        plain = checked_ids(ids, self.num_sequences)
        return Sequences._trusted(
            self.values, self.offsets, self.schema, plain, self.inference_notes, self.table_keys
        )

    def extended(self, steps: int) -> Sequences:
        """Each sequence with `steps` slices, every entry missing, put behind its last one.

        An order column read from a table does not tell the order of the new slices and is
        dropped; `to_table` then numbers the slices.
        """
        steps = whole_number(steps, "steps", DataError, least=0)
        offsets = self.offsets + steps * np.arange(self.num_sequences + 1)
        values = np.full((int(offsets[-1]), self.num_variables), np.nan)
        shift = steps * np.repeat(np.arange(self.num_sequences), self.lengths)
        values[np.arange(self.total_slices) + shift] = self.values
        keys = self.table_keys
        if keys is not None and steps:
            keys = keys.without_order_values()
        return Sequences._trusted(
            values, offsets, self.schema, self.ids, self.inference_notes, keys
        )

    def select(self, names: Iterable[str]) -> Sequences:
        """The same sequences with the named variables only, in the order named."""
        schema = self.schema.select(names)
        columns = [self.schema.index(name) for name in schema.names]
        notes = tuple(self.inference_notes[column] for column in columns if self.inference_notes)
        values = np.ascontiguousarray(self.values[:, columns])
        return Sequences._trusted(values, self.offsets, schema, self.ids, notes, self.table_keys)

    def __repr__(self) -> str:
        """Shape, number of missing entries and each variable, with how it was inferred."""
        shortest, longest = int(self.lengths.min()), int(self.lengths.max())
        span = f"{shortest} to {longest} slices" if shortest < longest else f"length {longest}"
        head = (
            f"Sequences(num_sequences={self.num_sequences} of {span}, "
            f"total_slices={self.total_slices}, num_variables={self.num_variables}, "
            f"missing entries={int(np.isnan(self.values).sum())})"
        )
        lines = [self._described(column) for column in range(self.num_variables)]
        if len(lines) > _MOST_SHOWN:
            left_out = len(lines) - _MOST_SHOWN
            lines[_MOST_SHOWN:] = [f"... and {left_out} more variables"]
        return "\n  ".join([head, *lines])

    def _described(self, column: int) -> str:
        if self.inference_notes:
            return self.inference_notes[column]
        variable = self.schema[column]
        return f"{variable.name}: {in_words(variable)}"
