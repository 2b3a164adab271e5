"""Centred values and differences; nothing is learned, and gaps stay as small as can be."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dspn.data import Kind, Schema, Sequences, Variable
from dspn.errors import DataError
from experiments.datasets import (
    CENTRED,
    CENTRED_DELTAS,
    STEPS,
    centred,
    forward_differences,
    regression_deltas,
)

NAN = float("nan")
X = Schema((Variable.continuous("x"),))
MIXED = Schema(
    (Variable.count("n"), Variable.categorical("pen", ("up", "down")), Variable.continuous("x"))
)


def sequences(*values: Any, schema: Schema = X) -> Sequences:
    own = [np.array(v, dtype=float).reshape(len(v), -1) for v in values]
    return Sequences.from_arrays(own, schema=schema)


def column(data: Sequences, name: str) -> list[float]:
    return data.values[:, data.schema.index(name)].tolist()


ragged = arrays(float, (9, 1), elements=st.one_of(st.just(NAN), st.integers(-9, 9).map(float)))


# Centring


def test_centred_values_are_relative_to_the_mean_of_their_sequence() -> None:
    found = centred(sequences([1, 2, 6], [10], [NAN, NAN], [4, NAN, 8]))
    np.testing.assert_array_equal(found.values[:, 0], [-2, -1, 3, 0, NAN, NAN, -2, NAN, 2])
    assert found.lengths.tolist() == [3, 1, 2, 3]


@given(ragged, st.integers(1, 8))
def test_centred_values_have_mean_zero_where_they_are_observed(
    values: np.ndarray, cut: int
) -> None:
    data = Sequences.from_codes(values, [0, cut, 9], X)
    for found, own in zip(centred(data), data, strict=True):
        np.testing.assert_array_equal(np.isnan(found), np.isnan(own))
        seen = ~np.isnan(own)
        if seen.any():
            np.testing.assert_allclose(found[seen], own[seen] - own[seen].mean(), atol=1e-12)


def test_centring_leaves_categories_and_ids_and_makes_counts_continuous() -> None:
    data = Sequences.from_codes([[1, 1, 0.5], [4, NAN, 1.5]], [0, 2], MIXED, ["a"])
    found = centred(data)
    np.testing.assert_array_equal(found.values, [[-1.5, 1, -0.5], [1.5, NAN, 0.5]])
    assert found.schema[0] == Variable.continuous("n")
    assert found.schema[1] == MIXED[1]
    assert found.ids == ("a",)
    only = data.select(["pen"])
    assert centred(only) is only


# Slopes


def slope(values: np.ndarray, t: int) -> float:
    """By the definition, one slice at a time."""
    last = len(values) - 1
    at = [float(values[min(max(t + by, 0), last)]) for by in (-2, -1, 1, 2)]
    return (2 * (at[3] - at[0]) + (at[2] - at[1])) / 10


@given(ragged, st.integers(1, 8))
def test_slopes_are_those_of_the_definition(values: np.ndarray, cut: int) -> None:
    data = Sequences.from_codes(values, [0, cut, 9], X)
    for found, own in zip(regression_deltas(data), data, strict=True):
        np.testing.assert_array_equal(found[:, 0], own[:, 0])
        expected = [slope(own[:, 0], t) for t in range(len(own))]
        np.testing.assert_allclose(found[:, 1], expected, rtol=1e-12)


def test_slope_of_a_line_is_its_own_inside_the_sequence() -> None:
    found = regression_deltas(sequences(3.0 * np.arange(6)))
    np.testing.assert_allclose(column(found, "d_x"), [1.5, 2.4, 3, 3, 2.4, 1.5], rtol=1e-12)
    assert found.schema.names == ("x", "d_x")


def test_a_missing_value_has_a_slope_but_its_four_neighbours_have_none() -> None:
    found = regression_deltas(sequences([0, 1, 2, 3, NAN, 5, 6, 7, 8]))
    gaps = np.isnan(column(found, "d_x"))
    np.testing.assert_array_equal(np.flatnonzero(gaps), [2, 3, 5, 6])
    assert column(found, "d_x")[4] == pytest.approx(1.0)


def test_slopes_of_a_single_slice_are_zero_or_missing() -> None:
    assert column(regression_deltas(sequences([5])), "d_x") == [0]
    assert np.isnan(column(regression_deltas(sequences([NAN])), "d_x")).all()


# Steps


def test_steps_lead_to_the_next_slice_and_the_last_is_missing() -> None:
    found = forward_differences(sequences([1, 4, 2], [7], [0, 1]))
    np.testing.assert_array_equal(column(found, "step_x"), [3, -2, NAN, NAN, 1, NAN])
    np.testing.assert_array_equal(column(found, "x"), [1, 4, 2, 7, 0, 1])


def test_steps_from_and_to_a_missing_value_are_missing() -> None:
    found = forward_differences(sequences([1, 2, NAN, 4, 5, 6]))
    np.testing.assert_array_equal(column(found, "step_x"), [1, NAN, NAN, 1, 1, NAN])


@pytest.mark.parametrize(
    ("change", "prefix"), [(regression_deltas, "d_"), (forward_differences, "step_")]
)
def test_differences_are_of_numbers_only_and_continuous(change: Any, prefix: str) -> None:
    data = Sequences.from_codes([[1, 1, 0.5], [4, NAN, 1.5]], [0, 2], MIXED, ["a"])
    found = change(data)
    assert found.schema.variables[:3] == MIXED.variables
    assert found.schema.names[3:] == (f"{prefix}n", f"{prefix}x")
    assert all(variable.kind is Kind.CONTINUOUS for variable in found.schema.variables[3:])
    np.testing.assert_array_equal(found.values[:, :3], data.values)
    assert found.ids == ("a",)
    assert change(data.select(["pen"])).schema.names == ("pen",)
    with pytest.raises(DataError, match=f"no variable '{prefix}n', the name of one that is added"):
        change(found)


# Points


# By their names


def test_named_preparations_do_what_their_functions_do() -> None:
    data = sequences([1, 3, 8], [2, 4])
    for preparation, function in ((CENTRED, centred), (STEPS, forward_differences)):
        found = preparation.fit(data).apply(data)
        np.testing.assert_array_equal(found.values, function(data).values)
    both = CENTRED_DELTAS.fit(data).apply(data)
    np.testing.assert_array_equal(both.values, regression_deltas(centred(data)).values)
    assert both.schema.names == ("x", "d_x")


def test_anything_but_sequences_is_refused() -> None:
    array: Any = np.zeros((2, 2))
    for call in (centred, regression_deltas, forward_differences, STEPS.fit):
        with pytest.raises(DataError, match="`data` must be a Sequences, found ndarray"):
            call(array)
