import numpy as np
import pytest
from scipy import stats

from dspn import Variable
from dspn.inference.tails import tail_probabilities
from dspn.leaves import Gaussian, Poisson, VonMises


@pytest.mark.parametrize("seed", range(20))
def test_tails_of_numbers_and_counts_are_those_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(3), size=40)
    means, deviations = rng.normal(0, 5, 3), rng.uniform(0.2, 3, 3)
    values = rng.normal(0, 12, 40)
    leaves = np.column_stack([means, deviations**2])
    found = tail_probabilities(Variable.continuous("x"), Gaussian(), weights, leaves, values)
    own = stats.norm(means, deviations)
    below, above = ((weights * of(values[:, None])).sum(axis=1) for of in (own.cdf, own.sf))
    np.testing.assert_allclose(found, 2 * np.minimum(below, above), rtol=1e-10)
    rates, counts = rng.uniform(0.5, 20, 3), rng.integers(0, 60, 40).astype(float)
    found = tail_probabilities(Variable.count("n"), Poisson(), weights, rates[:, None], counts)
    poisson = stats.poisson(rates)
    below = (weights * poisson.cdf(counts[:, None])).sum(axis=1)
    above = (weights * poisson.sf(counts[:, None] - 1)).sum(axis=1)
    np.testing.assert_allclose(found, np.minimum(1, 2 * np.minimum(below, above)), rtol=1e-9)


@pytest.mark.parametrize("location", [0.0, 3.0, 12.0, 23.9])
def test_tails_of_a_circle_do_not_know_where_it_is_cut(location: float) -> None:
    """One leaf at any hour: the tail is the mass at least as far away, on both sides."""
    family, weights = VonMises(period=24.0), np.ones((6, 1))
    away = np.array([0.0, 0.5, 2.0, 5.0, 9.0, 12.0])
    leaf = np.array([[location, 4.0]])
    unit = 2 * np.pi / 24
    expected = 2 * stats.vonmises(4.0).sf(away * unit)
    for side in (1, -1):
        values = np.mod(location + side * away, 24.0)
        found = tail_probabilities(Variable.continuous("h"), family, weights, leaf, values)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12)
