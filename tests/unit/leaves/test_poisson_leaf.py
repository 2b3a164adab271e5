"""What is particular to Poisson leaves: large counts, rate 0, integer quantiles."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from dspn.errors import StructureError
from dspn.leaves import Poisson, PoissonPrior

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")


def exact_log_prob(count: int, rate: float) -> float:
    """Log(rate^x exp(-rate) / x!) with 60 digits, log(x!) by Stirling's series at x + 100."""
    with localcontext() as context:
        context.prec = 60
        shifted = Decimal(count + 100)
        series = 1 / (12 * shifted) - 1 / (360 * shifted**3) + 1 / (1260 * shifted**5)
        series += -1 / (1680 * shifted**7) + 1 / (1188 * shifted**9)
        log_factorial = shifted * shifted.ln() - shifted + (2 * PI * shifted).ln() / 2 + series
        for factor in range(count + 1, count + 101):
            log_factorial -= Decimal(factor).ln()
        return float(count * Decimal(rate).ln() - Decimal(rate) - log_factorial)


@pytest.mark.parametrize("count", [0, 1, 30, 999, 1000, 1001, 10**5, 10**7, 10**9])
def test_log_prob_has_twelve_digits_for_any_count(count: int) -> None:
    spread = max(1.0, np.sqrt(count))
    rates = [count + step * spread for step in (-6, -1, -1e-3, 0, 0.5, 3, 40)]
    rates += [0.3 * count, 0.51 * count, 1.49 * count, 5.0 * count, 1e-3, 1.0]
    rates = [rate for rate in rates if rate > 0]
    found = Poisson().log_prob(np.array(rates)[:, None], np.array([float(count)]))[0]
    expected = [exact_log_prob(count, rate) for rate in rates]
    assert_allclose(found, expected, rtol=1e-12, atol=4e-12)


def test_log_prob_is_finite_where_the_count_swallows_the_rate() -> None:
    found = Poisson().log_prob(np.array([[1.0]]), np.array([1e20]))[0, 0]
    assert_allclose(found, 1e20 - 1e20 * np.log(1e20), rtol=1e-12)


def test_rates_beyond_what_a_count_can_be_are_violations() -> None:
    rates = np.array([[0.0], [2.0**53 - 1], [2.0**53], [np.inf], [np.nan], [-1.0]])
    found = Poisson().violations(rates)
    assert [said.split(":")[0] for said in found] == ["row 2", "row 3", "row 4", "row 5"]
    assert "below 2**53" in found[0]


def test_rate_zero_is_always_zero() -> None:
    family = Poisson()
    rates = np.array([[0.0], [1e-300]])
    table = family.log_prob(rates, np.array([0.0, 1.0, 5000.0, np.nan]))
    assert_array_equal(table[:, 0], [0.0, -np.inf, -np.inf, 0.0])
    assert_allclose(table[1, 1], np.log(1e-300), rtol=1e-14)
    assert_array_equal(family.sample(np.zeros((50, 1)), np.random.default_rng(0)), 0.0)
    assert_array_equal(family.cdf(rates[:1], np.array([-1.0, 0.0, 3.0])), [[0.0], [1.0], [1.0]])
    found = family.mixture_quantiles(rates[:1], np.ones((1, 1)), np.array([0.0, 0.5, 1.0]))
    assert_array_equal(found, [[0.0, 0.0, 0.0]])


def test_mixture_quantiles_agree_with_enumeration() -> None:
    rng = np.random.default_rng(8)
    rates = np.array([0.0, 0.2, 3.0, 40.0, 170.0])
    weights = rng.dirichlet(np.full(5, 0.5), size=50)
    levels = np.concatenate([rng.random(8), [1e-12, 1 - 1e-12]])
    counts = np.arange(400)
    lower = weights @ stats.poisson.cdf(counts, rates[:, None])
    upper = weights @ stats.poisson.sf(counts, rates[:, None])
    found = Poisson().mixture_quantiles(rates[:, None], weights, levels)
    for column, level in enumerate(levels):
        reached = lower >= level if level <= 0.5 else upper <= 1 - level
        assert_array_equal(found[:, column], reached.argmax(axis=1))


def test_mixture_quantiles_are_exact_for_large_rates() -> None:
    rates = np.array([[1e9], [1e9 + 5e4], [2e6]])
    levels = np.array([0.001, 0.4, 0.6, 0.9999])
    family = Poisson()
    for weights in (np.eye(3), np.array([[0.4, 0.6, 0.0], [0.2, 0.3, 0.5]])):
        found = family.mixture_quantiles(rates, weights, levels)
        for row, points in zip(weights, found, strict=True):
            assert np.all(family.cdf(rates, points) @ row >= levels * (1 - 1e-13))
            assert np.all(family.cdf(rates, points - 1) @ row < levels)


def test_mixture_quantiles_do_not_depend_on_the_block() -> None:
    rng = np.random.default_rng(6)
    rates = 20.0 * rng.random((5, 1))
    weights = rng.random((17, 5))
    levels = np.array([0.1, 0.6])
    whole = Poisson().mixture_quantiles(rates, weights, levels)
    found = Poisson().mixture_quantiles(rates, weights, levels, cells=30)
    assert_array_equal(found, whole)


def test_maximise_adds_pseudo_observations() -> None:
    family = Poisson()
    statistics = family.statistics(np.array([1.0, 4.0, np.nan, 0.0])).sum(axis=0, keepdims=True)
    assert_array_equal(statistics, [[3.0, 5.0]])
    assert_allclose(family.maximise(statistics, PoissonPrior(2.0, 0.0)), [[5 / 3]], rtol=1e-15)
    assert_allclose(family.maximise(statistics, PoissonPrior(2.0, 4.0)), [[13 / 7]], rtol=1e-15)


def test_scaled_to_takes_the_mean_and_stays_positive() -> None:
    assert Poisson().scaled_to(np.array([1.0, np.nan, 4.0])) == Poisson(2.5)
    assert Poisson().scaled_to(np.zeros(10)) == Poisson(0.05)


def test_log_prior_forbids_rate_zero_when_counts_are_expected() -> None:
    assert Poisson().log_prior(np.array([[0.0]])) == -np.inf
    assert Poisson().log_prior(np.array([[0.0]]), PoissonPrior(3.0, 0.0)) == 0.0


@pytest.mark.parametrize("rate", [0.0, -1.0, np.nan, True])
def test_poisson_refuses_a_reference_rate_that_is_not_positive(rate: float) -> None:
    with pytest.raises(StructureError, match="`reference_rate` of Poisson"):
        Poisson(rate)
