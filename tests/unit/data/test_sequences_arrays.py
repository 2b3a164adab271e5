"""Reading arrays of each layout and what is inferred from them."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dspn.data import Kind, Schema, Sequences, Variable

NAN = np.nan


def only_variable(column: Any) -> Variable:
    return Sequences.from_arrays([column]).schema[0]


def test_layouts_of_the_same_data_agree() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(length, 3)) for length in (4, 1, 6)]
    lengths = [4, 1, 6]
    padded = np.zeros((3, 6, 3))
    for index, array in enumerate(arrays):
        padded[index, : len(array)] = array
    expected = np.concatenate(arrays)
    for batch in (
        Sequences.from_arrays(arrays),
        Sequences.from_arrays(iter(arrays)),
        Sequences.from_arrays([array.tolist() for array in arrays]),
        Sequences.from_concatenated(expected, lengths),
        Sequences.from_padded(padded, np.array(lengths, dtype=float)),
    ):
        np.testing.assert_array_equal(batch.values, expected)
        assert batch.offsets.tolist() == [0, 4, 5, 11]
        assert batch.schema.names == ("x0", "x1", "x2")


def test_one_dimensional_arrays_have_one_variable() -> None:
    for batch in (
        Sequences.from_arrays([[0.5, 1.5], [2.5]]),
        Sequences.from_concatenated([0.5, 1.5, 2.5], [2, 1]),
        Sequences.from_padded([[0.5, 1.5], [2.5, 9.0]], [2, 1]),
    ):
        assert batch.values.tolist() == [[0.5], [1.5], [2.5]]
        assert batch.lengths.tolist() == [2, 1]


def test_padded_without_lengths_keeps_every_slice() -> None:
    batch = Sequences.from_padded(np.array([[[0.5], [NAN]], [[1.5], [2.5]]]))
    assert batch.lengths.tolist() == [2, 2]


def test_names_and_ids_are_kept() -> None:
    batch = Sequences.from_arrays([[[0.5, 1]]], names=["a", "b"], ids=np.array([7]))
    assert batch.schema.names == ("a", "b")
    assert batch.ids == (7,)
    assert type(batch.ids[0]) is int


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
@pytest.mark.parametrize("given", [np.array, list])
def test_times_as_ids_are_those_of_python(unit: str, given: Callable[..., Any]) -> None:
    moments = np.array(["2020-01-01", "2021-01-01"], dtype=f"datetime64[{unit}]")
    batch = Sequences.from_arrays([[0.5], [1.5]], ids=given(moments))
    assert batch.ids == (datetime.datetime(2020, 1, 1), datetime.datetime(2021, 1, 1))
    waits = np.array([1, 2], dtype="timedelta64[s]").astype(f"timedelta64[{unit}]")
    batch = Sequences.from_arrays([[0.5], [1.5]], ids=given(waits))
    assert batch.ids == (datetime.timedelta(seconds=1), datetime.timedelta(seconds=2))


def test_times_as_ids_stay_apart_below_a_microsecond() -> None:
    ids = np.array([1, 2], dtype="datetime64[ns]")
    assert Sequences.from_arrays([[0.5], [1.5]], ids=ids).ids == (1, 2)


def test_days_as_ids_are_dates() -> None:
    ids = np.array(["2020-01-01"], dtype="datetime64[D]")
    assert Sequences.from_arrays([[0.5]], ids=ids).ids == (datetime.date(2020, 1, 1),)


def test_ids_may_come_from_a_generator() -> None:
    assert Sequences.from_arrays([[0.5], [1.5]], ids=(name for name in "ab")).ids == ("a", "b")


def test_none_nan_and_masked_entries_are_missing() -> None:
    masked = np.ma.array([[1.5], [2.5]], mask=[[True], [False]])
    batch = Sequences.from_arrays([[[None], [0.5]], [[NAN], [1.0]], masked])
    assert np.isnan(batch.values[:, 0]).tolist() == [True, False, True, False, True, False]


def test_columns_of_different_types_are_read_each_by_itself() -> None:
    array = np.array([["red", 1.5, True, 3], [None, NAN, None, None]], dtype=object)
    batch = Sequences.from_arrays([array, [["blue", 2.5, False, 4]]])
    colour, number, flag, whole = batch.schema
    assert colour.categories == ("blue", "red")
    assert number.kind is Kind.CONTINUOUS
    assert flag.categories == (False, True)
    assert all(isinstance(category, bool) for category in flag.categories)
    assert whole.categories == (3, 4)
    np.testing.assert_array_equal(
        batch.values, [[1, 1.5, 1, 0], [NAN, NAN, NAN, NAN], [0, 2.5, 0, 1]]
    )


def test_booleans_beside_numbers_stay_booleans_in_every_sequence() -> None:
    schema = Schema((Variable.continuous("x"), Variable.categorical("on", (False, True))))
    batch = Sequences.from_arrays([[[0.5, False]], [[None, None], [1.5, True]]], schema=schema)
    np.testing.assert_array_equal(batch.values, [[0.5, 0], [np.nan, np.nan], [1.5, 1]])


def test_strings_of_numpy_are_text() -> None:
    batch = Sequences.from_arrays([np.array(["b", "a", "b"])])
    assert batch.schema[0].categories == ("a", "b")
    assert batch.values[:, 0].tolist() == [1, 0, 1]


def test_given_schema_sets_the_codes() -> None:
    schema = Schema((Variable.categorical("c", ["z", "a"]), Variable.categorical("n", [5, 3])))
    batch = Sequences.from_arrays([[["a", 3], ["z", 5], [None, None]]], schema=schema)
    np.testing.assert_array_equal(batch.values, [[1, 1], [0, 0], [NAN, NAN]])
    assert batch.inference_notes == ()


def test_given_categories_may_be_unused_and_booleans_may_be_numbers() -> None:
    schema = Schema((Variable.categorical("b", [False, True]), Variable.categorical("c", range(9))))
    batch = Sequences.from_arrays([np.array([[0, 4], [1, 8]])], schema=schema)
    assert batch.values.tolist() == [[0, 4], [1, 8]]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([0.5, 1.0], Variable.continuous("x0")),
        ([-1, 1], Variable.continuous("x0")),
        ([NAN, NAN], Variable.continuous("x0")),
        ([1e300, 3.0], Variable.continuous("x0")),
        ([1.0, 1.0], Variable.binary("x0")),
        ([0, 0], Variable.binary("x0")),
        ([0, 2, NAN], Variable.categorical("x0", [0, 2])),
        ([7, 7], Variable.categorical("x0", [7])),
        (list(range(20)), Variable.categorical("x0", range(20))),
        (list(range(21)), Variable.count("x0")),
        (list(range(100_000, 100_021)), Variable.continuous("x0")),
        ([1_000_000, 0], Variable.categorical("x0", [0, 1_000_000])),
        (["b", "a"], Variable.categorical("x0", ["a", "b"])),
        ([True, True], Variable.categorical("x0", [False, True])),
        (np.array([True, True]), Variable.categorical("x0", [False, True])),
    ],
)
def test_inferred_kind(column: Any, expected: Variable) -> None:
    found = only_variable(column)
    assert found == expected
    assert [type(c) for c in found.categories] == [type(c) for c in expected.categories]


def test_fraction_behind_many_whole_numbers_is_seen() -> None:
    column = np.ones(5000)
    column[-1] = 0.5
    assert only_variable(column).kind is Kind.CONTINUOUS


def test_many_distinct_large_numbers_behind_few_are_seen() -> None:
    column = np.concatenate([np.full(5000, 100_000), np.arange(100_000, 100_100)])
    assert only_variable(column).kind is Kind.CONTINUOUS


def test_inference_is_told_for_each_variable() -> None:
    batch = Sequences.from_arrays([[[0, 0.5, 30], [1, 1.5, 4]]], names=["bit", "level", "n"])
    assert batch.inference_notes == (
        "bit: categorical (0, 1), inferred from zeros and ones",
        "level: continuous, inferred from numbers with fractions",
        "n: categorical (4, 30), inferred from whole numbers with 2 distinct values (at most 20)",
    )
    for note in batch.inference_notes:
        assert note in repr(batch)
    assert batch.select(["n"]).inference_notes == batch.inference_notes[2:]
    assert batch[:1].inference_notes == batch.inference_notes


@pytest.mark.parametrize("kind", ["float", "int"])
def test_packing_ten_thousand_arrays_takes_well_under_a_tenth_of_a_second(kind: str) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 30, size=10_000)
    draw = rng.normal if kind == "float" else lambda size: rng.integers(0, 4, size=size)
    arrays = [draw(size=(length, 4)) for length in lengths]
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        Sequences.from_arrays(arrays)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.1


def test_masked_codes_are_missing() -> None:
    schema = Schema((Variable.continuous("x"),))
    rows = np.ma.array([[1.5], [999.0], [2.5]], mask=[[0], [1], [0]])
    found = Sequences.from_codes(rows, [0, 3], schema)
    np.testing.assert_array_equal(found.values, [[1.5], [np.nan], [2.5]])
