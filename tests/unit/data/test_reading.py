"""What a query or a stream is given, read by the schema of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dspn.data import Schema, Sequences, Variable
from dspn.data.sequences import SliceReader, sequences_of
from dspn.errors import DataError

NAN = float("nan")
NUMBERS = Schema((Variable.binary("bit"), Variable.continuous("level"), Variable.count("calls")))
LABELS = Schema(
    (
        Variable.categorical("colour", ("red", "blue")),
        Variable.categorical("size", (2, 4)),
        Variable.categorical("on", (False, True)),
    )
)


def test_a_batch_of_the_schema_is_taken_as_it_is() -> None:
    batch = Sequences.from_codes([[0, 0.5, 2]], [0, 1], NUMBERS)
    assert sequences_of(batch, NUMBERS, "data") is batch


def test_a_list_of_arrays_is_read_by_the_schema() -> None:
    found = sequences_of([[["blue", 4, None]]], LABELS, "data")
    np.testing.assert_array_equal(found.values, [[1, 1, NAN]])


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        (
            (Variable.binary("bit"), Variable.count("level"), Variable.count("calls")),
            "variable 1 is 'level', count, where the model has 'level', continuous",
        ),
        (
            (Variable.categorical("bit", ("a", "b")), *NUMBERS.variables[1:]),
            r"variable 0 is 'bit', categorical \('a', 'b'\), where .* 'bit', categorical \(0, 1\)",
        ),
        (NUMBERS.variables[:2], "has 2 of them where the model has 3"),
    ],
)
def test_another_schema_is_refused_with_the_first_difference(variables: Any, text: str) -> None:
    schema = Schema(variables)
    batch = Sequences.from_codes(np.full((1, len(schema)), NAN), [0, 1], schema)
    with pytest.raises(DataError, match=f"`evidence`.*{text}.*the model's schema"):
        sequences_of(batch, NUMBERS, "evidence")


@pytest.mark.parametrize(
    ("schema", "values", "codes"),
    [
        (NUMBERS, [1, 0.5, 2], [1, 0.5, 2]),
        (NUMBERS, np.array([1, 0.5, NAN]), [1, 0.5, NAN]),
        (NUMBERS, [None, 0.5, 2], [NAN, 0.5, 2]),
        (NUMBERS, (True, 1, 0), [1, 1, 0]),
        (LABELS, ["blue", 4, True], [1, 1, 1]),
        (LABELS, np.array(["red", None, False], dtype=object), [0, NAN, 0]),
        (LABELS, [NAN, 2, NAN], [NAN, 0, NAN]),
    ],
)
def test_a_slice_holds_the_codes_of_its_values(schema: Schema, values: Any, codes: Any) -> None:
    found = SliceReader(schema)(values, "slice 7 of this stream")
    np.testing.assert_array_equal(found.values, [codes])
    assert not np.shares_memory(found.values, np.asarray(values))


@pytest.mark.parametrize(
    ("schema", "values", "text"),
    [
        (NUMBERS, [0, 0.5], r"`values` must have one entry for each of the 3 .*shape \(2,\)"),
        (NUMBERS, [[0, 0.5, 2]], r"shape \(1, 3\)"),
        (NUMBERS, 3.0, r"shape \(\)"),
        (NUMBERS, [2, 0.5, 2], "'bit' .* but is 2 in slice 7 of this stream"),
        (NUMBERS, [None, 0.5, -1], "'calls' .* but is -1 in slice 7 of this stream"),
        (NUMBERS, [0, "0.5", 2], "'level' must hold finite numbers, but is '0.5' in slice 7"),
        (LABELS, ["green", 2, True], "'colour' .* but is 'green' in slice 7 of this stream"),
        (LABELS, ["red", 0, True], "'size' .* 2, 4, but is 0 in slice 7 of this stream"),
        (LABELS, [0, 2, True], "'colour' .* 'red', 'blue', but is 0 in slice 7 of this stream"),
    ],
)
def test_a_slice_that_does_not_fit_is_refused_with_its_place(
    schema: Schema, values: Any, text: str
) -> None:
    with pytest.raises(DataError, match=text):
        SliceReader(schema)(values, "slice 7 of this stream")
