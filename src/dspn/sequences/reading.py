"""Data that a query or a stream is given, read by the schema of the model it is meant for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, final

import numpy as np

from dspn.errors import DataError
from dspn.sequences._checks import Ragged, check_values, in_words
from dspn.sequences._coding import coded, codes_are_values
from dspn.sequences._columns import raw_block
from dspn.sequences._packing import readable_array, stacked
from dspn.sequences.batch import Sequences
from dspn.sequences.schema import Schema

_ONE_SLICE: Final = np.array([0, 1], dtype=np.int64)


def sequences_of(data: Sequences | Iterable[Any], schema: Schema, argument: str) -> Sequences:
    """A batch of the schema: `data` itself, or the list of arrays that it is.

    Messages call it `argument`. Leaf families are those of the schema, whatever the data name.
    """
    if not isinstance(data, Sequences):
        return Sequences.from_arrays(data, schema=schema, argument=argument)
    if data.schema == schema:
        return data
    if data.schema.without_leaves() != schema.without_leaves():
        raise DataError(
            f"`{argument}` must have the variables of the model, but "
            f"{_difference(data.schema, schema)}; give the model's schema when the data are read."
        )
    notes, keys = data.inference_notes, data.table_keys
    return Sequences._trusted(data.values, data.offsets, schema, data.ids, notes, keys)


def _difference(found: Schema, expected: Schema) -> str:
    for column, (own, other) in enumerate(zip(found, expected, strict=False)):
        if own != other:
            return (
                f"variable {column} is {own.name!r}, {in_words(own)}, where the model has "
                f"{other.name!r}, {in_words(other)}"
            )
    return f"has {len(found)} of them where the model has {len(expected)}"


@final
class SliceReader:
    """Reads the slices of a stream: categories as they are, None and NaN for what is missing."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._values_are_codes = all(map(codes_are_values, schema))

    def __call__(self, values: Any, place: str) -> Sequences:
        """One sequence of one slice, which messages call `place`."""
        schema = self._schema
        array = readable_array(values, "`values`")
        if array.shape != (len(schema),):
            raise DataError(
                f"`values` must have one entry for each of the {len(schema)} variables "
                f"({', '.join(schema.names)}), but has shape {array.shape}."
            )
        row = stacked([array[np.newaxis]])
        ragged = Ragged(_ONE_SLICE, None, place)
        if self._values_are_codes and row.dtype == np.float64:
            check_values(row, schema, ragged)
        else:
            row, _, _ = coded(raw_block(row, schema.names), schema.names, schema, ragged)
        return Sequences._trusted(row, _ONE_SLICE, schema, None)
