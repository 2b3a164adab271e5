"""What is particular to categorical leaves."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dspn.errors import StructureError
from dspn.leaves import Categorical, CategoricalPrior


def test_indicator_is_one_for_its_category_and_zero_elsewhere() -> None:
    table = Categorical(3).log_prob(np.eye(3), np.array([0.0, 1.0, 2.0, np.nan]))
    assert_array_equal(np.exp(table), np.vstack([np.eye(3), np.ones(3)]))


def test_maximise_counts_and_smooths() -> None:
    family = Categorical(3)
    statistics = family.statistics(np.array([0.0, 0.0, 2.0, np.nan])).sum(axis=0, keepdims=True)
    assert_array_equal(statistics, [[3.0, 2.0, 0.0, 1.0]])
    assert_allclose(family.maximise(statistics, CategoricalPrior(0.0)), [[2 / 3, 0, 1 / 3]])
    assert_allclose(family.maximise(statistics, CategoricalPrior(1.0)), [[3 / 6, 1 / 6, 2 / 6]])


def test_maximise_keeps_rows_normalised_for_tiny_weights() -> None:
    statistics = np.array([[3.0, 1.0, 2.0], [3e-307, 1e-307, 2e-307], [3e-323, 1e-323, 2e-323]])
    found = Categorical(2).maximise(statistics, CategoricalPrior(0.0))
    assert_allclose(found.sum(axis=1), 1.0, rtol=1e-15)
    assert_allclose(found[:2], [[1 / 3, 2 / 3]] * 2, rtol=1e-12)
    assert_array_equal(found[2], 0.5)


def test_log_prior_is_minus_infinity_for_a_dead_category_with_pseudo_counts() -> None:
    family = Categorical(2)
    indicator = np.array([[1.0, 0.0]])
    assert family.log_prior(indicator, CategoricalPrior(0.1)) == -np.inf
    assert family.log_prior(indicator, CategoricalPrior(0.0)) == 0.0


def test_sample_never_draws_a_category_of_probability_zero() -> None:
    class Ends:
        """Draws the two ends of the unit interval."""

        def random(self, size: int) -> np.ndarray:
            return np.resize([0.0, 1.0 - 2.0**-53], size)

    rows = np.array([[0.0, 0.5 + 2.0**-53, 0.0], [0.0, 0.3, 0.0], [0.0, 1.0, 0.0]])
    parameters = np.repeat(rows, 2, axis=0)
    drawn = Categorical(3).sample(parameters, Ends())  # type: ignore[arg-type]
    assert_array_equal(drawn, 1.0)


def test_mixture_quantile_takes_a_level_reached_up_to_rounding() -> None:
    parameters = np.full((1, 10), 0.1)
    levels = np.arange(1, 11) / 10
    found = Categorical(10).mixture_quantiles(parameters, np.ones((1, 1)), levels)
    assert_array_equal(found, [np.arange(10.0)])


def test_mode_is_the_first_of_equals() -> None:
    assert_array_equal(Categorical(3).mode(np.array([[0.2, 0.4, 0.4], [0.4, 0.2, 0.4]])), [1, 0])


def test_violations_name_a_sum_other_than_one() -> None:
    parameters = np.array([[0.5, 0.5], [0.5, 0.4]])
    assert Categorical(2).violations(parameters) == [
        "row 1: probabilities must sum to 1, but sum to 0.9"
    ]


@pytest.mark.parametrize("number", [0, -2, 2.0, "two"])
def test_categorical_refuses_a_number_of_categories_that_is_none(number: object) -> None:
    with pytest.raises(StructureError, match="`num_categories` must be a whole number"):
        Categorical(number)  # type: ignore[arg-type]


def test_categorical_takes_a_numpy_integer_as_the_same_value() -> None:
    family = Categorical(np.int64(3))  # type: ignore[arg-type]
    assert family == Categorical(3)
    assert type(family.num_categories) is int


@pytest.mark.parametrize("count", [-0.1, np.nan, np.inf, "much"])
def test_prior_refuses_a_count_that_is_negative_or_no_number(count: object) -> None:
    with pytest.raises(StructureError, match="`pseudo_count` of CategoricalPrior"):
        CategoricalPrior(count)  # type: ignore[arg-type]
