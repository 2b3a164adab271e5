"""What is particular to Gaussian leaves: units far from 1, the floor, mixture quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from dspn.errors import StructureError
from dspn.leaves import Gaussian, GaussianPrior


@pytest.mark.parametrize(("mean", "deviation"), [(1e6, 1.0), (-1e9, 1e-3), (3e-8, 1e-12), (0, 1e9)])
def test_maximise_keeps_the_digits_of_the_variance_far_from_zero(
    mean: float, deviation: float
) -> None:
    values = mean + deviation * np.random.default_rng(1).standard_normal(5000)
    family = Gaussian().scaled_to(values)
    prior = GaussianPrior(mean, deviation**2, 0.0, 1e-12 * deviation**2)
    found = family.maximise(family.statistics(values).sum(axis=0, keepdims=True), prior)
    # Two passes over the deviations lose nothing.
    exact = np.var(values - mean)
    assert_allclose(found[0, 1], exact, rtol=1e-10)
    slack = 1e-12 * deviation + np.spacing(abs(mean))
    assert_allclose(found[0, 0] - mean, np.mean(values - mean), rtol=0, atol=slack)


def test_maximise_keeps_the_digits_of_narrow_leaves_far_apart() -> None:
    rng = np.random.default_rng(2)
    clusters = [center + 0.01 * rng.standard_normal(1000) for center in (1e6 - 1.0, 1e6 + 1.0)]
    values = np.concatenate(clusters)
    family = Gaussian().scaled_to(values)
    weights = np.repeat(np.eye(2), 1000, axis=0)
    prior = GaussianPrior(1e6, 1.0, 0.0, 1e-8)
    found = family.maximise(weights.T @ family.statistics(values), prior)
    assert_allclose(found[:, 1], [np.var(c - 1e6) for c in clusters], rtol=1e-9)


def test_maximise_floors_the_variance_of_a_single_value() -> None:
    family = Gaussian()
    statistics = 10.0 * family.statistics(np.array([2.5]))
    prior = GaussianPrior(0.0, 1.0, 0.0, 0.04)
    assert_allclose(family.maximise(statistics, prior), [[2.5, 0.04]], rtol=1e-15)


def test_maximise_adds_pseudo_observations() -> None:
    family = Gaussian(location=0.3, scale=2.0)
    values = np.array([1.0, 4.0, 6.0, -2.0])
    # Six pseudo-observations of mean 5 and variance 9: three at 5 - 3 and three at 5 + 3.
    together = np.concatenate([values, [2.0, 8.0] * 3])
    statistics = family.statistics(values).sum(axis=0, keepdims=True)
    found = family.maximise(statistics, GaussianPrior(5.0, 9.0, 6.0, 1e-6))
    assert_allclose(found, [[together.mean(), together.var()]], rtol=1e-13)


def test_log_prior_is_the_log_likelihood_of_the_pseudo_observations() -> None:
    family = Gaussian()
    parameters = np.array([[1.0, 2.0], [-3.0, 0.5]])
    pseudo = np.array([2.0, 8.0] * 3)
    expected = family.log_prob(parameters, pseudo).sum()
    assert_allclose(
        family.log_prior(parameters, GaussianPrior(5.0, 9.0, 6.0, 1e-6)), expected, rtol=1e-13
    )


def test_log_prior_is_minus_infinity_below_the_floor() -> None:
    prior = GaussianPrior(0.0, 1.0, 0.5, 0.1)
    assert Gaussian().log_prior(np.array([[0.0, 1.0], [0.0, 0.09]]), prior) == -np.inf
    assert np.isfinite(Gaussian().log_prior(np.array([[0.0, 0.1]]), prior))


def test_default_prior_follows_the_unit_of_the_data() -> None:
    values = np.random.default_rng(3).standard_normal(400)
    weights = np.random.default_rng(4).random((3, 400))
    plain, moved = Gaussian().scaled_to(values), Gaussian().scaled_to(1e5 + 1e-3 * values)
    found = plain.maximise(weights @ plain.statistics(values))
    other = moved.maximise(weights @ moved.statistics(1e5 + 1e-3 * values))
    assert_allclose(1e3 * (other[:, 0] - 1e5), found[:, 0], rtol=0, atol=1e-6)
    assert_allclose(1e6 * other[:, 1], found[:, 1], rtol=1e-6)


def test_scaled_to_constant_data_has_scale_one() -> None:
    assert Gaussian().scaled_to(np.full(5, 0.1)) == Gaussian(location=0.1)
    assert Gaussian().scaled_to(np.array([np.nan, 7.0])) == Gaussian(location=7.0)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan, 1e200, 1e-200, "wide"])
def test_gaussian_refuses_a_scale_whose_variance_no_float_holds(scale: object) -> None:
    with pytest.raises(StructureError, match="`scale` of Gaussian"):
        Gaussian(scale=scale)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["variance", "min_variance"])
def test_prior_refuses_a_variance_that_is_not_positive(field: str) -> None:
    with pytest.raises(StructureError, match=f"`{field}` of GaussianPrior"):
        GaussianPrior(**{field: 0.0})


def test_mixture_quantiles_agree_with_a_root_finder() -> None:
    rng = np.random.default_rng(5)
    parameters = np.stack(
        [rng.normal(scale=10, size=6), 10.0 ** rng.uniform(-4, 3, size=6)], axis=1
    )
    weights = rng.dirichlet(np.full(6, 0.4), size=40)
    levels = np.array([1e-7, 0.01, 0.3, 0.5, 0.77, 0.999])
    found = Gaussian().mixture_quantiles(parameters, weights, levels)
    deviations = np.sqrt(parameters[:, 1])
    for row, points in zip(weights, found, strict=True):
        for level, quantile in zip(levels, points, strict=True):

            def gap(x: float, row: np.ndarray = row, level: float = level) -> float:
                return float(row @ ndtr((x - parameters[:, 0]) / deviations)) - level

            expected = brentq(gap, -1000, 1000, xtol=1e-14, rtol=1e-14)
            # The root is known no better than the cdf, whose last digit moves x by eps / density.
            slope = (gap(expected + 1e-6) - gap(expected - 1e-6)) / 2e-6
            slack = 1e-12 * abs(expected) + 4e-16 / slope
            assert abs(quantile - expected) <= slack


def test_mixture_quantiles_are_exact_far_out_in_both_tails() -> None:
    # Two equal leaves are one leaf, which ndtri solves; the weights force no short cut.
    parameters = np.array([[5.0, 4.0], [5.0, 4.0], [5.0, 4.0 * (1 + 1e-9)]])
    levels = np.array([1e-300, 1e-30, 1e-5])
    found = Gaussian().mixture_quantiles(parameters, np.ones((1, 3)), levels)
    assert_allclose(found[0], 5.0 + 2.0 * ndtri(levels), rtol=1e-8)
    mirrored = 1.0 - 2.0 ** -np.arange(2.0, 50.0)
    low = Gaussian().mixture_quantiles(parameters, np.ones((1, 3)), 2.0 ** -np.arange(2.0, 50.0))
    high = Gaussian().mixture_quantiles(parameters, np.ones((1, 3)), mirrored)
    assert_allclose(high - 5.0, 5.0 - low, rtol=1e-12)


def test_mixture_quantiles_cross_a_gap_between_leaves() -> None:
    parameters = np.array([[0.0, 1.0], [1e6, 1.0]])
    weights = np.array([[0.3, 0.7]])
    found = Gaussian().mixture_quantiles(parameters, weights, np.array([0.15, 0.3, 0.65]))[0]
    assert_allclose(found[0], 0.0, rtol=0, atol=1e-12)
    assert 10 < found[1] < 1e6 - 10
    assert_allclose(found[2], 1e6, rtol=1e-12)


def test_mixture_quantiles_are_found_beside_a_needle() -> None:
    parameters = np.array([[0.0, 1e-30], [0.0, 1.0], [3.0, 1e-20]])
    weights = np.array([[0.5, 0.4, 0.1]])
    levels = np.array([0.1, 0.4, 0.7, 0.75, 0.95])
    found = Gaussian().mixture_quantiles(parameters, weights, levels)
    # From 0.2 to 0.7 the needle at 0 is crossed; beyond, 0.5 + 0.4 Phi(x) = level up to x = 3.
    assert_allclose(found[0, 0], ndtri(0.25), rtol=1e-12)
    assert_allclose(found[0, [1, 2]], 0.0, rtol=0, atol=1e-13)
    assert_allclose(found[0, 3], ndtri(0.625), rtol=1e-12)
    assert_allclose(found[0, 4], 3.0, rtol=1e-12)


def test_mixture_quantiles_do_not_depend_on_the_block() -> None:
    rng = np.random.default_rng(6)
    parameters = Gaussian().random(5, rng)
    weights = rng.random((17, 5))
    levels = np.array([0.1, 0.6])
    whole = Gaussian().mixture_quantiles(parameters, weights, levels)
    found = Gaussian().mixture_quantiles(parameters, weights, levels, cells=30)
    assert_array_equal(found, whole)
