"""The contract of leaf families, to be run in the tests of any family.

`check_family(Case(StudentT(), parameters, grid))` raises an AssertionError for the first clause
that the family breaks. With pytest, `@pytest.mark.parametrize("clause", CLAUSES)` makes a test of
each clause, which is called with the case.
"""

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from dspn._arguments import Floats
from dspn.leaves import Family, Prior, family_from_json


@final
@dataclass(frozen=True, eq=False)
class Case:
    """A family, some of its leaves, and values that hold nearly all of their mass.

    Attributes:
        family: The family.
        parameters: Rows of at least two leaves.
        grid: Rising values; all possible ones, up to where nothing is left, for a discrete family.
        impossible: Values outside the support.
        priors: Priors to test besides the default one.
        oracles: A frozen distribution of `scipy.stats` for each leaf, to compare with; optional.
        tolerance: Relative error of gradients by finite differences.
    """

    family: Family
    parameters: Floats
    grid: Floats
    impossible: tuple[float, ...] = (np.inf, -np.inf)
    priors: tuple[Prior, ...] = ()
    oracles: tuple[Any, ...] = ()
    tolerance: float = 1e-6

    def draws(self, number: int, seed: int) -> Floats:
        """Draws from the mixture of the leaves, of equal weight."""
        rng = np.random.default_rng(seed)
        rows = rng.integers(len(self.parameters), size=number)
        return self.family.sample(self.parameters[rows], rng)

    def gapped(self, number: int, seed: int) -> Floats:
        """Draws, with every sixth missing."""
        values = self.draws(number, seed)
        values[::6] = np.nan
        return values

    def limited(self, free: Floats, prior: Prior | None) -> Floats:
        """Free coordinates, moved into the bounds of an ascent; exact zeros stay."""
        lower, upper = self.family.free_bounds(prior)
        assert np.all(lower < upper)
        return np.where(np.isfinite(free), np.clip(free, lower, upper), free)


def densities_agree_with_tails(case: Case) -> None:
    """The density is C-contiguous and sums to what the cdf and the sf say; modes are its maxima."""
    family, grid = case.family, case.grid
    table = family.log_prob(case.parameters, grid)
    assert table.shape == (len(grid), len(case.parameters))
    assert table.dtype == np.float64 and table.flags.c_contiguous
    below, above = family.cdf(case.parameters, grid), family.sf(case.parameters, grid)
    assert np.all(np.diff(below, axis=0) >= -1e-15)
    assert_allclose(below + above, 1.0, rtol=1e-12)
    density = np.exp(table)
    if family.is_discrete:
        assert_allclose(density.sum(axis=0), 1.0, rtol=1e-10)
        assert_allclose(np.cumsum(density, axis=0), below, rtol=1e-9, atol=1e-13)
    else:
        total = np.trapezoid(density, grid, axis=0)
        assert_allclose(total, below[-1] - below[0], rtol=1e-10)
    modes = family.mode(case.parameters)
    at_modes = np.diag(family.log_prob(case.parameters, modes))
    assert np.all(at_modes >= table.max(axis=0) - 1e-12)


def distributions_agree_with_scipy(case: Case) -> None:
    """Densities, tails, moments and quantiles are those of the oracles, where there are any."""
    family, parameters = case.family, case.parameters
    values = case.grid[:: max(1, len(case.grid) // 500)]
    levels = np.array([1e-9, 0.012, 0.31, 0.513, 0.87, 0.9991, 1 - 1e-9])
    quantiles = family.mixture_quantiles(parameters, np.eye(len(parameters)), levels)
    for leaf, oracle in enumerate(case.oracles):
        own = parameters[[leaf]]
        log_prob = (oracle.logpmf if family.is_discrete else oracle.logpdf)(values)
        assert_allclose(family.log_prob(own, values)[:, 0], log_prob, rtol=1e-10, atol=1e-11)
        for points in (values, values + 0.5, np.array([-np.inf, -1.5, -1.0, np.inf])):
            found = family.cdf(own, points)[:, 0]
            assert_allclose(found, oracle.cdf(points), rtol=1e-11, atol=1e-15)
        assert_allclose(family.mean(own), oracle.mean(), rtol=1e-12, atol=1e-14)
        assert_allclose(family.variance(own), oracle.var(), rtol=1e-12, atol=1e-14)
        assert_allclose(quantiles[leaf], oracle.ppf(levels), rtol=1e-12, atol=1e-12)


def missing_and_impossible_values_are_told_apart(case: Case) -> None:
    """A missing value has log-probability 0, an impossible one -inf, and neither any statistics."""
    family = case.family
    values = np.array([np.nan, *case.impossible, case.grid[0]])
    table = family.log_prob(case.parameters, values)
    assert_array_equal(table[0], 0.0)
    assert_array_equal(table[1:-1], -np.inf)
    assert np.all(np.isnan(family.cdf(case.parameters, values[:1])))
    statistics = family.statistics(values)
    assert statistics.shape == (len(values), family.num_statistics)
    assert_array_equal(statistics[:-1], 0.0)
    assert statistics[-1, 0] == 1.0


def nothing_is_warned_of(case: Case) -> None:
    """Extreme values, and no values or leaves at all, give numbers of the right shapes."""
    family, none = case.family, np.empty(0)
    values = np.array([0.0, -0.0, 1e-320, 1.0, -1e300, 1e300, 1e15, 1e308, -np.inf, np.inf])
    with np.errstate(all="warn"), warnings.catch_warnings():
        warnings.simplefilter("error")
        log_prob = family.log_prob(case.parameters, values)
        cdf, statistics = family.cdf(case.parameters, values), family.statistics(values)
    assert np.all(log_prob < np.inf) and not np.any(np.isnan(statistics))
    assert np.all((cdf >= 0) & (cdf <= 1))
    leaves, width = len(case.parameters), family.num_statistics
    no_leaves = np.empty((0, family.num_parameters))
    assert family.log_prob(case.parameters, none).shape == (0, leaves)
    assert family.log_prob(no_leaves, case.grid).shape == (len(case.grid), 0)
    assert family.cdf(case.parameters, none).shape == (0, leaves)
    assert family.statistics(none).shape == (0, width)
    assert family.maximise(np.empty((0, width))).shape == no_leaves.shape
    assert family.sample(no_leaves, np.random.default_rng(0)).shape == (0,)
    assert family.from_free(family.free(no_leaves)).shape == no_leaves.shape
    value, gradient = family.free_log_prior(no_leaves)
    assert value == family.log_prior(no_leaves) == 0.0
    assert gradient.shape == (0, family.num_free)


def draws_follow_each_row(case: Case) -> None:
    """Draws repeat with the seed, and their distribution is that of the cdf (DKW's bound)."""
    number = 20_000
    for row in case.parameters:
        rows = np.tile(row, (number, 1))
        sample = case.family.sample(rows, np.random.default_rng(7))
        assert sample.shape == (number,)
        assert_array_equal(sample, case.family.sample(rows, np.random.default_rng(7)))
        points = np.unique(sample)
        share = np.searchsorted(np.sort(sample), points, side="right") / number
        assert np.abs(share - case.family.cdf(row[None], points)[:, 0]).max() < 2.2 / number**0.5


def maximisation_climbs_to_a_maximum(case: Case) -> None:
    """No step lowers the penalised likelihood; at the end no parameters nearby are better."""
    family, rng = case.family, np.random.default_rng(11)
    values, weights = case.gapped(60, seed=5), rng.gamma(0.3, size=(4, 60))

    def objective(parameters: Floats, prior: Prior | None) -> float:
        log_prob = family.log_prob(parameters, values).T
        expected = np.where(weights > 0, weights * np.where(weights > 0, log_prob, 0.0), 0.0)
        return float(expected.sum()) + family.log_prior(parameters, prior)

    for prior in (None, *case.priors):
        best = family.random(4, rng, values)
        for _ in range(1000):
            statistics = family.expected_statistics(best, values, weights)
            old, best = best, family.maximise(statistics, prior)
            top = objective(best, prior)
            assert top >= objective(old, prior) - 1e-11 * (1 + abs(top))
            if np.allclose(old, best, rtol=1e-15, atol=0):
                break
        assert family.violations(best) == [] and np.isfinite(top)
        for _ in range(200):
            size = 10.0 ** rng.uniform(-4, 0)
            free = family.free(best) + size * rng.standard_normal((4, family.num_free))
            other = family.from_free(case.limited(free, prior))
            assert objective(other, prior) <= top + 1e-11 * (1 + abs(top))
        if prior is None:
            statistics = family.expected_statistics(best, values, weights)
            slope = family.free_gradient(best, statistics) + family.free_log_prior(best)[1]
            assert_allclose(slope, 0.0, atol=1e-9)


def priors_hold_leaves_without_weight(case: Case) -> None:
    """A row of (almost) no weight takes the maximum of the prior; penalties add up over leaves."""
    family, width = case.family, case.family.num_statistics
    given = family.maximise(np.ones((1, width)), family.default_prior)
    assert_array_equal(family.maximise(np.ones((1, width))), given)
    several = family.random(4, np.random.default_rng(2))
    for prior in (family.default_prior, *case.priors):
        alone = family.maximise(np.zeros((1, width)), prior)
        assert family.violations(alone) == []
        found = family.maximise(np.full((1, width), 5e-324), prior)
        assert_allclose(found, alone, rtol=1e-12)
        parts = [family.log_prior(several[[row]], prior) for row in range(4)]
        assert_allclose(family.log_prior(several, prior), sum(parts), rtol=1e-12)


def _differences(function: Callable[[Floats], float], free: Floats) -> Floats:
    """Central finite differences in every coordinate that is finite; 0 elsewhere."""
    found = np.zeros_like(free)
    for place in map(tuple, np.argwhere(np.isfinite(free))):
        step = np.zeros_like(free)
        step[place] = 1e-5
        found[place] = (function(free + step) - function(free - step)) / 2e-5
    return found


def gradients_agree_with_differences(case: Case) -> None:
    """Free coordinates lead back to the parameters, and gradients in them are right."""
    family, rng = case.family, np.random.default_rng(31)
    free = family.free(case.parameters)
    assert free.shape == (len(case.parameters), family.num_free)
    again = family.from_free(free)
    assert_allclose(again, case.parameters, rtol=1e-12)
    assert_array_equal(again == 0, case.parameters == 0)
    some = family.from_free(np.random.default_rng(6).normal(size=free.shape))
    assert_allclose(family.from_free(family.free(some)), some, rtol=1e-12)

    values = case.gapped(40, seed=9)
    possible = np.isfinite(family.log_prob(case.parameters, values))
    # Weights of both signs: a conditional likelihood is a difference of two expectations.
    weights = np.where(possible, rng.normal(0.3, 1.0, size=possible.shape), 0.0)

    def expected(at: Floats) -> float:
        log_prob = family.log_prob(family.from_free(at), values)
        return float(np.sum(weights[possible] * log_prob[possible]))

    statistics = family.expected_statistics(case.parameters, values, weights.T)
    gradient = family.free_gradient(case.parameters, statistics)
    allowed = case.tolerance
    assert_allclose(gradient, _differences(expected, free), rtol=allowed, atol=allowed)
    assert_array_equal(gradient[free == -np.inf], 0.0)


def penalties_have_gradients_and_bounds(case: Case) -> None:
    """Log priors are finite between the bounds of an ascent, and their gradients are right."""
    family = case.family
    for prior in (None, *case.priors):
        for size in (0.0, -1e9, 1e9):
            free = case.limited(np.full((2, family.num_free), size), prior)
            parameters = family.from_free(free)
            assert family.violations(parameters) == []
            assert np.isfinite(family.log_prior(parameters, prior))
        free = case.limited(family.free(case.parameters), prior)
        free[:, -1] += 1e-3  # a step below a bound would leave the support of the prior

        def log_prior(at: Floats, prior: Prior | None = prior) -> float:
            return family.free_log_prior(family.from_free(at), prior)[0]

        value, gradient = family.free_log_prior(family.from_free(free), prior)
        assert np.isfinite(value)
        assert_allclose(gradient, _differences(log_prior, free), rtol=1e-5, atol=1e-7)
        assert_array_equal(gradient[free == -np.inf], 0.0)


def quantiles_invert_the_cdf_of_mixtures(case: Case) -> None:
    """P(X <= quantile) is the level, or the first count at which it is reached."""
    rng, family = np.random.default_rng(23), case.family
    weights = rng.dirichlet(np.full(len(case.parameters), 0.5), size=30)
    weights[weights < 0.05] = 0.0
    levels = np.concatenate([rng.random(6), [1e-6, 0.999999]])
    found = family.mixture_quantiles(case.parameters, 3.0 * weights, levels)
    assert found.shape == (30, 8)
    for row, quantiles in zip(weights / weights.sum(axis=1, keepdims=True), found, strict=True):
        reached = family.cdf(case.parameters, quantiles) @ row
        if family.is_discrete:
            assert np.all(reached >= levels - 1e-13)
            assert np.all(family.cdf(case.parameters, quantiles - 1) @ row < levels)
        else:
            assert_allclose(reached, levels, rtol=1e-9)


def parameters_are_checked_and_made(case: Case) -> None:
    """Violations name their rows; random parameters are valid, differ, and repeat with the seed."""
    family = case.family
    assert family.violations(case.parameters) == []
    broken = np.array(case.parameters)
    broken[1, -1] = -1.25
    broken[0, 0] = np.nan
    assert [text.split(":")[0] for text in family.violations(broken)] == ["row 0", "row 1"]
    assert len(family.violations(np.zeros((2, family.num_parameters + 1)))) == 1
    values = case.gapped(50, seed=4)
    for given in (None, values, np.full(3, np.nan), np.empty(0), np.zeros(4)):
        made = [family.random(6, np.random.default_rng(0), given) for _ in range(2)]
        assert made[0].shape == (6, family.num_parameters)
        assert family.violations(made[0]) == []
        assert_array_equal(made[0], made[1])
    likely = family.random(6, np.random.default_rng(0), values)
    assert np.all(np.isfinite(family.log_prob(likely, values)))


def families_are_values(case: Case) -> None:
    """A family is hashable, survives JSON, and means the same at another scale."""
    values = case.draws(100, seed=8)
    scaled = case.family.scaled_to(values)
    assert scaled == case.family.scaled_to(values)
    assert case.family.scaled_to(np.full(3, np.nan)) == case.family
    before = case.family.log_prob(case.parameters, values)
    assert_array_equal(scaled.log_prob(case.parameters, values), before)
    again = family_from_json(json.loads(json.dumps(scaled.to_json())), [type(scaled)])
    assert again == scaled and hash(again) == hash(scaled) and type(again) is type(scaled)


CLAUSES: tuple[Callable[[Case], None], ...] = (
    densities_agree_with_tails,
    distributions_agree_with_scipy,
    missing_and_impossible_values_are_told_apart,
    nothing_is_warned_of,
    draws_follow_each_row,
    maximisation_climbs_to_a_maximum,
    priors_hold_leaves_without_weight,
    gradients_agree_with_differences,
    penalties_have_gradients_and_bounds,
    quantiles_invert_the_cdf_of_mixtures,
    parameters_are_checked_and_made,
    families_are_values,
)


def check_family(case: Case) -> None:
    """Raises an AssertionError for the first clause of the contract that the family breaks."""
    for clause in CLAUSES:
        clause(case)
