"""A ragged batch of sequences held as one contiguous array with offsets."""

from __future__ import annotations

import hashlib
import itertools
import operator
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dspn._arguments import Floats, Ints, float_array, require_type, whole_number
from dspn.data import coding, layout
from dspn.data.inputs import (
    Rule,
    code_input_columns,
    codes_ahead,
    declared_inputs,
    infer_inputs,
    input_codes,
    read_inputs,
    slice_inputs,
    stack_inputs,
)
from dspn.data.layout import (
    Column,
    Ids,
    Ragged,
    TableKeys,
    check_ids,
    check_values,
    first_offsets,
    offsets_of,
)
from dspn.data.schema import Schema, Variable, describe_variable, list_names
from dspn.errors import DataError

_MOST_SHOWN = 12
_FINGERPRINT_ROWS = 1 << 14  # that are copied at a time
_SIDE_BY_SIDE = 64


@final
@dataclass(frozen=True, eq=False, repr=False)
class Sequences:
    """Sequences of slices of one schema: row `offsets[i] + t` is slice t of sequence i.

    `values` holds the category's code for a categorical variable and NaN where an entry is
    missing. `inputs` holds what is known of every slice and not modelled, a column for each of
    `schema.inputs`, coded likewise and never missing. Arrays are read-only copies of what was
    given. `inference_notes` says how each variable was read when no schema was given and is empty
    otherwise.

    The reading constructors take categories as they are ("red", 3, True); `from_codes` and
    `with_values` take their codes.
    """

    values: Floats
    offsets: Ints
    schema: Schema
    ids: Ids | None = None
    inference_notes: tuple[str, ...] = ()
    table_keys: TableKeys | None = None
    inputs: Floats = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Check every rule of a batch and take read-only copies of the arrays."""
        require_type(self.schema, Schema, "schema", DataError)
        values = layout.check_matrix(self.values, self.schema.num_variables)
        offsets = layout.check_offsets(self.offsets, len(values), self.ids)
        ids = check_ids(self.ids, offsets.size - 1)
        ragged = Ragged(offsets, ids)
        _check(values, self.schema, ragged)
        given = None
        if self.inputs is not None and np.shape(self.inputs)[-1:] != (0,):
            stacked = stack_inputs(self.inputs, np.diff(offsets))
            given = float_array(stacked, "inputs", DataError, remedy="codes are given here")
        inputs = input_codes(given, self.schema, ragged, _order_of(self.table_keys))
        self.__setstate__({"values": values, "offsets": offsets, "ids": ids, "inputs": inputs})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set fields that are known to be right; their arrays become read-only."""
        self.__dict__.update(state)
        if "inputs" not in self.__dict__:
            self.__dict__["inputs"] = np.empty((len(self.values), 0))
        for array in (self.values, self.offsets, self.inputs):
            array.flags.writeable = False

    def _with(self, **changes: Any) -> Sequences:
        """The batch with other fields, which are known to be right."""
        batch = object.__new__(Sequences)
        batch.__setstate__(self.__dict__ | changes)
        return batch

    @classmethod
    def trusted(cls, values: Floats, offsets: Ints, schema: Schema, **more: Any) -> Sequences:
        """Batch of arrays that are known to be right: they are neither checked nor copied."""
        batch = object.__new__(cls)
        fields = {"values": values, "offsets": offsets, "schema": schema}
        batch.__setstate__({"ids": None, "inference_notes": (), "table_keys": None} | fields | more)
        return batch

    def first(self, num_slices: int) -> Sequences:
        """The first slices, of as many sequences as these are of, without ids and times."""
        offsets = first_offsets(self.offsets, num_slices)
        values, inputs = self.values[: offsets[-1]], self.inputs[: offsets[-1]]
        return Sequences.trusted(values, offsets, self.schema, inputs=inputs)

    @classmethod
    def _from_coded(
        cls,
        coded: tuple[Floats, Schema, tuple[str, ...]],
        ragged: Ragged,
        keys: TableKeys | None = None,
        given: Floats | None = None,
    ) -> Sequences:
        values, schema, notes = coded
        _check(values, schema, ragged)
        inputs = input_codes(given, schema, ragged, _order_of(keys))
        more = {"ids": ragged.ids, "inference_notes": notes, "table_keys": keys, "inputs": inputs}
        return cls.trusted(values, ragged.offsets, schema, **more)

    # Reading

    @classmethod
    def from_codes(
        cls,
        values: ArrayLike,
        offsets: ArrayLike,
        schema: Schema,
        ids: Iterable[Hashable] | None = None,
        inputs: ArrayLike | None = None,
    ) -> Sequences:
        """Batch of values that are already coded; NaN where an entry is missing.

        Args:
            values: Codes of shape (total_slices, num_variables).
            offsets: First row of each sequence, and the number of rows.
            schema: The variables.
            ids: Id of each sequence.
            inputs: Codes of the inputs of every slice, of those without a rule or of all.
        """
        return cls(values, offsets, schema, ids, inputs=inputs)  # type: ignore[arg-type]

    @classmethod
    def from_arrays(
        cls,
        arrays: Iterable[Any],
        *,
        schema: Schema | None = None,
        ids: Iterable[Hashable] | None = None,
        names: Iterable[str] | None = None,
        inputs: Any = None,
        argument: str = "arrays",
    ) -> Sequences:
        """Batch of a list of (T_i, n) arrays, or of (T_i,) arrays of one variable.

        NaN, None and masked entries are missing. Data frames are matched by the names of their
        columns, whatever their order, and have these names.

        Args:
            arrays: The sequences: arrays, or data frames of one library.
            schema: The variables; inferred from the values if None (see `inference_notes`).
            ids: Id of each sequence.
            names: Names of the variables without a schema; x0, x1, ... if None.
            inputs: What is given for every slice and not modelled, laid out as `arrays` is: the
                inputs of the schema that have no rule, or all; without a schema they are inferred.
                A list of rules (`dspn.inputs`) adds inputs that follow from the place of a slice.
            argument: What messages call `arrays`.
        """
        if isinstance(arrays, Sequences):
            raise DataError(
                f"`{argument}` is a Sequences already; its arrays hold codes, use it as is."
            )
        first = arrays[0] if isinstance(arrays, list | tuple) and arrays else None
        if hasattr(first, "columns") and inputs is None:
            frames = list(arrays)
            if all(hasattr(item, "columns") for item in frames):
                return cls._from_frames(frames, schema, ids, names, argument)
        packed = layout.pack_arrays(arrays, ids, argument)
        return cls._from_packed(packed, schema, ids, names, argument, inputs)

    @classmethod
    def _from_frames(
        cls,
        frames: Sequence[Any],
        schema: Schema | None,
        ids: Iterable[Hashable] | None,
        names: Iterable[str] | None,
        argument: str,
    ) -> Sequences:
        from dspn.data.tables import read_frames

        wanted = layout.check_names(names, schema, "names")
        raw, found, lengths = read_frames(frames, wanted, argument)
        checked = layout.check_lengths(lengths, ids)
        ragged = Ragged(offsets_of(checked), check_ids(ids, checked.size))
        return cls._from_coded(coding.code_columns(*raw, found, schema, ragged), ragged)

    @classmethod
    def from_concatenated(
        cls,
        x: Any,
        lengths: ArrayLike,
        *,
        schema: Schema | None = None,
        ids: Iterable[Hashable] | None = None,
        names: Iterable[str] | None = None,
        inputs: Any = None,
    ) -> Sequences:
        """Batch of sequences that lie one below the other in `x`, `lengths[i]` rows each.

        Args:
            x: Slices of all sequences, of shape (total_slices, n).
            lengths: Number of slices of each sequence.
            schema: The variables; inferred from the values if None.
            ids: Id of each sequence.
            names: Names of the variables without a schema.
            inputs: What is given for every slice and not modelled, with a row for each of `x`: the
                inputs of the schema that have no rule, or all; without a schema they are inferred.
                A list of rules (`dspn.inputs`) adds inputs that follow from the place of a slice.
        """
        packed = layout.pack_concatenated(x, lengths, ids)
        return cls._from_packed(packed, schema, ids, names, "x", inputs)

    @classmethod
    def from_padded(
        cls,
        array: Any,
        lengths: ArrayLike | None = None,
        *,
        schema: Schema | None = None,
        ids: Iterable[Hashable] | None = None,
        names: Iterable[str] | None = None,
        inputs: Any = None,
    ) -> Sequences:
        """Batch of the first `lengths[i]` slices of each layer of an (N, T, n) array.

        Args:
            array: The sequences, padded to one length.
            lengths: Number of slices of each sequence; T if None, even if all entries are missing.
            schema: The variables; inferred from the values if None.
            ids: Id of each sequence.
            names: Names of the variables without a schema.
            inputs: What is given for every slice and not modelled, a list of arrays or one
                below the other: the inputs of the schema that have no rule, or all; without a
                schema they are inferred. A list of rules (`dspn.inputs`) adds inputs that
                follow from the place of a slice.
        """
        packed = layout.pack_padded(array, lengths, ids)
        return cls._from_packed(packed, schema, ids, names, "array", inputs)

    @classmethod
    def _from_packed(
        cls,
        packed: layout.Packed,
        schema: Schema | None,
        ids: Iterable[Hashable] | None,
        names: Iterable[str] | None,
        argument: str,
        inputs: Any,
    ) -> Sequences:
        matrix, lengths = packed
        width = matrix.shape[1]
        known = layout.check_names(names, schema, "names")
        if known is None:
            known = tuple(f"x{column}" for column in range(width))
        if len(known) != width:
            raise DataError(
                f"`{argument}` must have a column for each variable, but has {width} columns where "
                f"{len(known)} are named: {list_names(known)}; give all, with NaN where a value is "
                "not known."
            )
        ragged = Ragged(offsets_of(lengths), check_ids(ids, lengths.size))
        values, found, notes = _code_matrix(matrix, known, schema, ragged)
        if _are_rules(inputs):
            declared = declared_inputs(inputs)
            if schema is not None and schema.inputs not in ((), declared):
                raise DataError("`inputs` differ from those of the schema; leave one of them out.")
            found, given = found.with_inputs(declared), None
        else:
            stacked = None if inputs is None else stack_inputs(inputs, lengths)
            given, own = read_inputs(stacked, schema, ragged)
            found = found.with_inputs(own)
        return cls._from_coded((values, found, notes), ragged, given=given)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        sequence: str | None = None,
        order: str | None = None,
        variables: Iterable[str] | None = None,
        schema: Schema | None = None,
        inputs: Iterable[Any] | None = None,
        kinds: Mapping[str, Any] | None = None,
        every: str | float | None = None,
        duplicates: str = "error",
        dates: str | None = None,
    ) -> Sequences:
        """Batch of a long table of pandas, polars or Arrow with one row for each slice.

        Sequences come in the order of their first row. Null is missing. Of a pandas frame, levels
        of the index may be named like columns.

        Args:
            table: A data frame or an Arrow table.
            sequence: Name of the column that names the sequences; None where the whole table is
                one sequence.
            order: Name of the column that orders the slices of a sequence; None for the order of
                the rows.
            variables: Names of the variables; None for those of the schema or all other columns.
            schema: The variables; inferred from the values if None.
            inputs: What is given and not modelled: names of columns, `Variable`s that name their
                columns, and rules of `dspn.inputs`; None for those of the schema.
            kinds: "categorical", "binary", "continuous", "count", the name of a leaf family, or a
                `Variable`, for some variables; the others are inferred.
            every: Step of the slices, such as "1h" for times or a number: slices that the table
                does not have are put in, with every entry missing.
            duplicates: What becomes of rows of a sequence with the same order value: "error",
                "first", "last", or "mean" (of numbers; of anything else the first).
            dates: How the times of an order column of text are written, as `strftime` has it.
        """
        from dspn.data.grid import Grid
        from dspn.data.tables import read_table

        if kinds and schema is not None:
            raise DataError("`kinds` must be left out where a `schema` is given, which has them.")
        asked = None if inputs is None else declared_inputs(inputs)
        raw, names, ragged, keys, more = read_table(
            *(table, sequence, order, variables, schema, asked),
            *(Grid(every, duplicates), dates),
        )
        values, found, notes = coding.code_columns(*raw, names, schema, ragged, kinds or {})
        given, readings, columns = more
        inferred = dict(zip(columns, infer_inputs(given, readings, columns), strict=True))
        if asked is not None:
            own = (inferred[item] if isinstance(item, str) else item for item in asked)
            found = found.with_inputs(own)
        plain = [item for item in found.inputs if item.rule is None]
        codes = code_input_columns(given, readings, plain, ragged)
        return cls._from_coded((values, found, notes), ragged, keys, codes if plain else None)

    # Writing

    def to_arrays(self, decode: bool = False) -> list[NDArray[Any]]:
        """A (T_i, n) array for each sequence: codes, or what they stand for when `decode` is set.

        Codes are read-only views. Decoded arrays are float64 when every variable is a number and
        otherwise hold objects, with None where an entry is missing; `from_arrays` with this
        schema reads them back.
        """
        if not decode:
            return list(self)
        return np.split(coding.decode_matrix(self.values, self.schema), self.offsets[1:-1])

    def to_concatenated(self, decode: bool = False) -> tuple[NDArray[Any], Ints]:
        """All slices one below the other, coded or decoded, and the length of each sequence."""
        values = coding.decode_matrix(self.values, self.schema) if decode else self.values
        return values, self.lengths

    def to_padded(self, fill: Any = np.nan, decode: bool = False) -> tuple[NDArray[Any], Ints]:
        """An (N, T, n) array, `fill` behind the end of each sequence, and the lengths."""
        values, lengths = self.to_concatenated(decode)
        longest = int(lengths.max())
        padded = np.full((len(self), longest, self.num_variables), fill, dtype=values.dtype)
        padded[np.arange(longest) < lengths[:, np.newaxis]] = values
        return padded, lengths

    def to_table(
        self, library: str = "pandas", *, sequence: str | None = None, order: str | None = None
    ) -> Any:
        """A long table with decoded values; null where an entry is missing.

        Sequences without ids and slices without order values are numbered from 0.

        Args:
            library: "pandas", "polars" or "pyarrow".
            sequence: Name of the column with the ids; None for that of the table the batch was
                read from, or "sequence".
            order: Name of the order column; None for that of the table the batch was read from,
                which may have had none, or "slice".
        """
        from dspn.data.tables import make_table

        keys = self.table_keys or TableKeys("sequence", "slice")
        keys = replace(keys, sequence=sequence or keys.sequence, order=order or keys.order)
        return make_table(self, library, keys)

    def to_frame(self, library: str = "pandas") -> Any:
        """`to_table`, by the name that all answers have."""
        return self.to_table(library)

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
    def lengths(self) -> Ints:
        """Number of slices of each sequence."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        """Number of sequences."""
        return self.num_sequences

    def __iter__(self) -> Iterator[Floats]:
        """Coded (T, n) view of each sequence."""
        bounds = self.offsets.tolist()
        return (self.values[start:end] for start, end in itertools.pairwise(bounds))

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> Floats: ...

    @overload
    def __getitem__(self, key: slice | list[int] | list[bool] | NDArray[Any]) -> Sequences: ...

    def __getitem__(self, key: Any) -> Floats | Sequences:
        """Coded (T, n) view of one sequence, or the batch of those picked out.

        A slice, an index array or a boolean mask picks out sequences; their order is that of
        the key, and an index may be repeated.
        """
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:
            key = key[0]  # as scikit-learn picks samples out of whatever has a shape
        try:
            if isinstance(key, slice) or (not isinstance(key, tuple) and np.ndim(key) > 0):
                picked = np.arange(self.num_sequences)[key]
                ids = None if self.ids is None else tuple(self.ids[i] for i in picked.tolist())
                return self._runs(self.offsets[picked], self.lengths[picked], ids)
            index = range(self.num_sequences)[operator.index(key)]
        except (TypeError, IndexError) as error:
            if "out of" in str(error):
                raise IndexError(f"{error}: there are {self.num_sequences} sequences.") from None
            raise DataError(
                "sequences are picked by a whole number, a slice, an index array or a boolean mask "
                f"with an entry for each sequence, at least one sequence, found {key!r}."
            ) from None
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def _runs(self, starts: Ints, lengths: Ints, ids: Ids | None) -> Sequences:
        # Sequence i has `lengths[i]` rows from row `starts[i]` on.
        if not lengths.size:
            raise DataError("the selection must hold at least one sequence, found none.")
        offsets = offsets_of(lengths)
        shifts = starts - offsets[:-1]
        rows: slice | Ints = slice(int(starts[0]), int(starts[0]) + int(offsets[-1]))
        if (shifts != shifts[0]).any():
            rows = np.arange(offsets[-1]) + np.repeat(shifts, lengths)
        keys = None if self.table_keys is None else self.table_keys.rows(rows)
        values, inputs = self.values[rows], self.inputs[rows]
        return self._with(values=values, offsets=offsets, ids=ids, table_keys=keys, inputs=inputs)

    def slices(self, start: int | None = None, stop: int | None = None) -> Sequences:
        """Slices `[start:stop]` of every sequence; `slices(None, -3)` leaves out the last three.

        The bounds are those of a Python slice. Every sequence has to keep at least one slice.
        """
        lengths = self.lengths
        first = 0 * lengths if start is None else _bound(start, "start", lengths)
        last = lengths if stop is None else _bound(stop, "stop", lengths)
        if (first >= last).any():
            index = int(np.argmax(first >= last))
            raise DataError(
                f"every sequence must keep at least one slice, but [{start}:{stop}] leaves nothing "
                f"of {layout.name_sequence(index, self.ids)}, which has {lengths[index]}; leave it "
                "out first."
            )
        return self._runs(self.offsets[:-1] + first, last - first, self.ids)

    # Changing

    def with_values(self, values: ArrayLike) -> Sequences:
        """The same sequences with other coded values, of shape (total_slices, num_variables)."""
        coded = layout.check_matrix(values, self.num_variables)
        if coded.shape != self.values.shape:
            raise DataError(
                f"`values` must have shape {self.values.shape}, one row for each slice, "
                f"found {coded.shape}."
            )
        _check(coded, self.schema, Ragged(self.offsets, self.ids))
        return self._with(values=coded)

    def with_ids(self, ids: Iterable[Hashable] | None) -> Sequences:
        """The same sequences with other ids, or without any."""
        return self._with(ids=check_ids(ids, self.num_sequences))

    def with_inputs(self, inputs: Any = None, *, schema: Schema | None = None) -> Sequences:
        """The same sequences with other inputs, not coded, of this or another schema's inputs.

        Args:
            inputs: A matrix with a row for each slice, or an array for each sequence, of the inputs
                without a rule, or of all.
            schema: Has the inputs; its variables are those of this batch.
        """
        ragged = Ragged(self.offsets, self.ids)
        known = self.schema if schema is None else self.schema.with_inputs(schema.inputs)
        stacked = None if inputs is None else stack_inputs(inputs, self.lengths)
        given, _ = read_inputs(stacked, known, ragged)
        codes = input_codes(given, known, ragged, _order_of(self.table_keys))
        return self._with(schema=known, inputs=codes)

    def with_rule(self, item: Rule | Variable) -> Sequences:
        """The same sequences with one more input, which a rule computes."""
        (added,) = declared_inputs([item])
        schema = self.schema.with_inputs((*self.schema.inputs, added))
        own = self.schema.with_inputs((added,))
        codes = input_codes(None, own, Ragged(self.offsets, self.ids), _order_of(self.table_keys))
        return self._with(schema=schema, inputs=np.concatenate([self.inputs, codes], axis=1))

    def extended(self, steps: int, inputs: Any = None) -> Sequences:
        """Each sequence with `steps` slices, every entry missing, put behind its last one.

        An order column read from a table does not tell the order of the new slices and is
        dropped; `to_table` then numbers the slices.

        Args:
            steps: Number of new slices.
            inputs: Inputs of the new slices that no rule computes: a (steps, inputs) matrix for all
                sequences, or one for each.
        """
        steps = whole_number(steps, "steps", DataError, least=0)
        ragged, order = Ragged(self.offsets, self.ids), _order_of(self.table_keys)
        ended, ahead = codes_ahead(self.inputs, self.schema, ragged, order, steps, inputs)
        offsets = self.offsets + steps * np.arange(self.num_sequences + 1)
        values = np.full((int(offsets[-1]), self.num_variables), np.nan)
        shift = steps * np.repeat(np.arange(self.num_sequences), self.lengths)
        values[np.arange(self.total_slices) + shift] = self.values
        known = np.empty((int(offsets[-1]), ended.shape[1]))
        known[np.arange(self.total_slices) + shift] = ended
        known[(offsets[1:, None] - steps + np.arange(steps)).ravel()] = ahead
        keys = self.table_keys
        if keys is not None and steps:
            keys = replace(keys, order_values=None)
        return self._with(values=values, offsets=offsets, table_keys=keys, inputs=known)

    def select(self, names: Iterable[str]) -> Sequences:
        """The same sequences with the named variables only, in the order named."""
        schema = self.schema.select(names)
        columns = [self.schema.index(name) for name in schema.names]
        notes = tuple(self.inference_notes[column] for column in columns if self.inference_notes)
        values = np.ascontiguousarray(self.values[:, columns])
        return self._with(values=values, schema=schema, inference_notes=notes)

    def __repr__(self) -> str:
        """Shape, number of missing entries and each variable, with how it was inferred."""
        shortest, longest = int(self.lengths.min()), int(self.lengths.max())
        span = f"{shortest} to {longest} slices" if shortest < longest else f"length {longest}"
        head = (
            f"Sequences(num_sequences={self.num_sequences} of {span}, "
            f"total_slices={self.total_slices}, num_variables={self.num_variables}, "
            f"missing entries={int(np.isnan(self.values).sum())})"
        )
        lines = self.inference_notes or tuple(
            f"{variable.name}: {describe_variable(variable)}" for variable in self.schema
        )
        more = [f"... and {len(lines) - _MOST_SHOWN} more variables"]
        given = [f"input {own.name}: {describe_variable(own)}" for own in self.schema.inputs]
        shown = [*lines[:_MOST_SHOWN], *more[: len(lines) > _MOST_SHOWN], *given[:_MOST_SHOWN]]
        return "\n  ".join([head, *shown])


def _order_of(keys: TableKeys | None) -> NDArray[Any] | None:
    return None if keys is None else keys.order_values


def _are_rules(inputs: Any) -> bool:
    """Whether the inputs of arrays are declared, rather than given."""
    is_list = isinstance(inputs, list | tuple) and len(inputs) > 0
    return is_list and all(isinstance(item, Rule | Variable) for item in inputs)


def _check(values: Floats, schema: Schema, ragged: Ragged) -> None:
    check_values(values, schema, Column("", ragged=ragged), layout.value_bounds(schema))


def _code_matrix(
    matrix: NDArray[Any], names: tuple[str, ...], schema: Schema | None, ragged: Ragged
) -> tuple[Floats, Schema, tuple[str, ...]]:
    """Codes of a matrix, their schema, and how the schema was inferred."""
    is_float = matrix.dtype == np.float64
    if schema is not None and is_float and all(map(layout.codes_are_values, schema)):
        return matrix, schema, ()
    return coding.code_columns(*coding.read_matrix(matrix, names), names, schema, ragged)


def _bound(given: int, argument: str, lengths: Ints) -> Ints:
    """A bound of a Python slice for each length: from the end where negative, clipped."""
    number = whole_number(given, argument, DataError, least=None)
    return np.clip(number + lengths if number < 0 else number, 0, lengths)


# What is done with whole batches


def _list_inputs(schema: Schema) -> str:
    return "; ".join(f"{own.name!r}, {describe_variable(own)}" for own in schema.inputs)


def sequences_of(
    data: Sequences | Iterable[Any], schema: Schema, argument: str, inputs: Any = None
) -> Sequences:
    """A batch of the schema: `data` itself, or the list of arrays that it is.

    Args:
        data: The batch, or arrays that hold values of the schema's variables.
        schema: The schema of a model.
        argument: What messages call `data`.
        inputs: The inputs that no rule computes, where the data do not have them.

    Leaf families are those of the schema, whatever the data name. Inputs that follow from the
    place of a slice are computed where the data have none; those of data for a model without
    inputs are left out.
    """
    if not isinstance(data, Sequences):
        return Sequences.from_arrays(data, schema=schema, inputs=inputs, argument=argument)
    if inputs is not None:
        data = data.with_inputs(inputs, schema=schema)
    if data.schema == schema:
        return data
    plain = schema.without_leaves()
    if data.schema.without_leaves() == plain:
        return data._with(schema=schema)
    if data.schema.without_leaves().variables == plain.variables:
        if data.schema.inputs and schema.inputs:
            raise DataError(
                f"`{argument}` must have the inputs of the model ({_list_inputs(schema)}), but has "
                f"{_list_inputs(data.schema)}; give the model's schema when the data are read."
            )
        bare = data._with(schema=schema.with_inputs(()), inputs=np.empty((data.total_slices, 0)))
        return bare.with_inputs(schema=schema) if schema.inputs else bare
    difference = next(
        (
            f"variable {column} is {found.name!r}, {describe_variable(found)}, where the model "
            f"has {expected.name!r}, {describe_variable(expected)}"
            for column, (found, expected) in enumerate(zip(data.schema, plain, strict=False))
            if replace(found, leaf=None) != expected
        ),
        f"has {len(data.schema)} of them where the model has {len(schema)}",
    )
    raise DataError(
        f"`{argument}` must have the variables of the model, but {difference}; give the model's "
        "schema when the data are read."
    )


@final
class SliceReader:
    """Reads the slices of a stream: categories as they are, None and NaN for what is missing."""

    def __init__(self, schema: Schema) -> None:
        values, inputs = np.full((1, len(schema)), np.nan), np.zeros((1, len(schema.inputs)))
        self._empty = Sequences.trusted(values, np.array([0, 1]), schema, inputs=inputs)
        self._bounds = layout.value_bounds(schema)
        self._values_are_codes = all(map(layout.codes_are_values, schema))

    def blank(self, place: str, position: int, inputs: Any = None) -> Sequences:
        """One sequence of one slice, the one of this number, with its inputs and no entry."""
        schema = self._empty.schema
        if inputs is None and not schema.inputs:
            return self._empty
        return self._empty._with(inputs=slice_inputs(inputs, schema, position, place))

    def __call__(self, values: Any, place: str, position: int = 0, inputs: Any = None) -> Sequences:
        """One sequence of one slice, the one of this number, which messages call `place`."""
        schema = self._empty.schema
        array = layout.read_array(values, "`values`")
        if array.shape != (len(schema),):
            raise DataError(
                f"`values` must have one entry for each of the {len(schema)} variables "
                f"({list_names(schema.names)}), but has shape {array.shape}."
            )
        row = layout.stack([array[np.newaxis]])
        ragged = Ragged(self._empty.offsets, None, place)
        if not self._values_are_codes or row.dtype != np.float64:
            row = _code_matrix(row, schema.names, schema, ragged)[0]
        check_values(row, schema, Column("", ragged=ragged), self._bounds)
        return self.blank(place, position, inputs)._with(values=row)


def joined(batches: Sequence[Sequences]) -> Sequences:
    """The sequences of all batches, which share one schema, in their order and without ids."""
    if not batches:
        raise DataError("`batches` must hold at least one batch, but is empty.")
    schema = batches[0].schema
    if any(batch.schema != schema for batch in batches):
        raise DataError("`batches` must all have the same variables and categories.")
    values = np.concatenate([batch.values for batch in batches])
    lengths = np.concatenate([batch.lengths for batch in batches])
    inputs = np.concatenate([batch.inputs for batch in batches])
    return Sequences.trusted(values, offsets_of(lengths), schema, inputs=inputs)


def drawn_places(
    data: Sequences, num_slices: int, rng: np.random.Generator, fewest: int = 1
) -> Ints:
    """Indices of sequences drawn at random that have about `num_slices` slices together.

    Args:
        data: The batch to draw from.
        num_slices: Number of slices; all sequences are drawn where there are not more.
        rng: Source of randomness.
        fewest: Least number of sequences that are drawn, where there are as many.
    """
    if data.total_slices <= num_slices:
        return np.arange(len(data))
    order = rng.permutation(len(data))
    count = int(np.searchsorted(np.cumsum(data.lengths[order]), num_slices)) + 1
    return np.sort(order[: max(count, fewest)])


def drawn_part(data: Sequences, num_slices: int, rng: np.random.Generator) -> Sequences:
    """Beginnings of sequences drawn at random that have about `num_slices` slices together.

    Of long sequences there are some tens of beginnings rather than a few whole sequences: they
    tell more, and are evaluated side by side.

    Args:
        data: The batch to draw from.
        num_slices: Number of slices; `data` itself is returned where there are not more.
        rng: Source of randomness.
    """
    if data.total_slices <= num_slices:
        return data
    drawn = data[drawn_places(data, num_slices, rng, _SIDE_BY_SIDE)]
    most = max(1, num_slices // len(drawn))
    return drawn if drawn.total_slices <= 2 * num_slices else drawn.slices(None, most)


def cut_sequences(data: Sequences, counts: Ints) -> Sequences:
    """Every sequence cut into so many runs of nearly equal length, which lose their ids."""
    ends = [
        start + np.linspace(0, length, count + 1).astype(np.int64)
        for start, length, count in zip(data.offsets, data.lengths, counts, strict=False)
    ]
    starts = np.concatenate([own[:-1] for own in ends])
    return data._runs(starts, np.concatenate([np.diff(own) for own in ends]), None)


def data_fingerprint(data: Sequences) -> bytes:
    """SHA-256 of schema, lengths, values and inputs; ids and bits of missing entries do not."""
    schema = [v.identity() for v in data.schema]
    digest = hashlib.sha256(repr((schema, data.values.shape)).encode())
    digest.update(data.offsets.astype("<i8").tobytes())
    for start in range(0, len(data.values), _FINGERPRINT_ROWS):
        rows = data.values[start : start + _FINGERPRINT_ROWS]
        # Minus zero is zero.
        digest.update((np.where(np.isnan(rows), np.nan, rows) + 0.0).astype("<f8").tobytes())
    if data.schema.inputs:
        digest.update(repr([own.identity() for own in data.schema.inputs]).encode())
        digest.update((data.inputs + 0.0).astype("<f8").tobytes())
    return digest.digest()
