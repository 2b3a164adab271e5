"""One contract for every leaf family, against scipy.stats and brute force."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from dspn.data import Variable
from dspn.errors import EvidenceError, ModelFileError, StructureError
from dspn.leaves import (
    Categorical,
    CategoricalPrior,
    Family,
    Gaussian,
    GaussianPrior,
    Poisson,
    PoissonPrior,
    Prior,
    family_for,
    family_from_json,
)


@dataclass(frozen=True)
class Case:
    """A family, leaves of it, the same distributions by scipy and a grid that holds their mass."""

    label: str
    family: Family
    parameters: np.ndarray
    oracles: tuple[Any, ...]
    grid: np.ndarray
    impossible: tuple[float, ...]
    priors: tuple[Prior, ...]

    @property
    def discrete(self) -> bool:
        return self.family.name != "gaussian"

    def oracle_log_prob(self, values: np.ndarray) -> np.ndarray:
        columns = [o.logpmf(values) if self.discrete else o.logpdf(values) for o in self.oracles]
        return np.stack(columns, axis=1)


def categorical_case(label: str, rows: list[list[float]]) -> Case:
    parameters = np.array(rows)
    codes = np.arange(parameters.shape[1])
    return Case(
        label=label,
        family=Categorical(parameters.shape[1]),
        parameters=parameters,
        oracles=tuple(stats.rv_discrete(values=(codes, row)) for row in parameters),
        grid=codes.astype(float),
        impossible=(-1.0, 0.5, float(len(codes)), 1e300, np.inf, -np.inf),
        priors=(CategoricalPrior(), CategoricalPrior(0.0), CategoricalPrior(3.0)),
    )


def gaussian_case(label: str, rows: list[list[float]], family: Gaussian) -> Case:
    parameters = np.array(rows)
    means, deviations = parameters[:, 0], np.sqrt(parameters[:, 1])
    edges = np.concatenate([means - 12 * deviations, means + 12 * deviations])
    scale = family.scale
    return Case(
        label=label,
        family=family,
        parameters=parameters,
        oracles=tuple(stats.norm(m, s) for m, s in zip(means, deviations, strict=True)),
        grid=np.linspace(edges.min(), edges.max(), 40_001),
        impossible=(np.inf, -np.inf),
        priors=(
            family.default_prior,
            GaussianPrior(family.location, scale**2, 0.0, 1e-6 * scale**2),
            GaussianPrior(family.location + scale, 2 * scale**2, 5.0, 0.3 * scale**2),
        ),
    )


def poisson_case(label: str, rates: list[float]) -> Case:
    return Case(
        label=label,
        family=Poisson(),
        parameters=np.array(rates)[:, None],
        oracles=tuple(stats.poisson(rate) for rate in rates),
        grid=np.arange(0.0, 200.0 + 3 * max(rates)),
        impossible=(-1.0, 2.5, -1e9, np.inf, -np.inf),
        priors=(PoissonPrior(), PoissonPrior(2.0, 0.0), PoissonPrior(7.0, 4.0)),
    )


CASES = [
    categorical_case("binary", [[0.3, 0.7], [0.5, 0.5], [1.0, 0.0], [0.0, 1.0]]),
    categorical_case("five", [[0.1, 0.2, 0.3, 0.25, 0.15], [0, 0.5, 0, 0.5, 0], [0, 0, 0, 0, 1]]),
    categorical_case("single category", [[1.0], [1.0]]),
    gaussian_case("gaussian", [[0.0, 1.0], [-3.0, 0.04], [2.0, 9.0]], Gaussian()),
    gaussian_case("gaussian far", [[1e6, 1.0], [1e6 + 4, 0.25]], Gaussian(1e6 + 2, 2.0)),
    poisson_case("poisson", [0.0, 1e-3, 0.7, 4.0, 33.3]),
]

pytestmark = pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)


def draws(case: Case, number: int, seed: int) -> np.ndarray:
    """`number` values of the mixture of the case's leaves, of equal weight."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(len(case.parameters), size=number)
    return case.family.sample(case.parameters[rows], rng)


def objective(
    case: Case, parameters: np.ndarray, values: np.ndarray, weights: np.ndarray, prior: Prior
) -> float:
    log_prob = case.family.log_prob(parameters, values)
    expected = np.where(weights > 0, weights * np.where(weights > 0, log_prob, 0.0), 0.0)
    return float(expected.sum()) + case.family.log_prior(parameters, prior)


def perturbed(family: Family, parameters: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Valid parameters near the given ones."""
    size = 10.0 ** rng.uniform(-4, 0)
    factors = np.exp(size * rng.standard_normal(parameters.shape))
    if family.name == "gaussian":
        deviations = np.sqrt(parameters[:, 1])
        means = parameters[:, 0] + size * deviations * rng.standard_normal(len(parameters))
        return np.stack([means, parameters[:, 1] * factors[:, 1]], axis=1)
    moved = (parameters + 1e-3 * size * rng.random(parameters.shape)) * factors
    return moved / moved.sum(axis=1, keepdims=True) if family.name == "categorical" else moved


def test_log_prob_sums_to_one_over_the_support(case: Case) -> None:
    probabilities = np.exp(case.family.log_prob(case.parameters, case.grid))
    if case.discrete:
        totals = probabilities.sum(axis=0)
    else:
        totals = np.trapezoid(probabilities, case.grid, axis=0)
    assert_allclose(totals, 1.0, rtol=1e-10)


def test_log_prob_agrees_with_scipy(case: Case) -> None:
    values = case.grid[:: max(1, len(case.grid) // 500)]
    table = case.family.log_prob(case.parameters, values)
    assert table.shape == (len(values), len(case.parameters))
    assert table.dtype == np.float64
    assert table.flags.c_contiguous
    assert_allclose(table, case.oracle_log_prob(values), rtol=1e-10, atol=1e-11)


def test_log_prob_is_exactly_zero_for_missing_values(case: Case) -> None:
    values = np.array([np.nan, case.grid[0], np.nan])
    table = case.family.log_prob(case.parameters, values)
    assert_array_equal(table[[0, 2]], 0.0)
    assert_allclose(table[1], case.oracle_log_prob(values[1:2])[0], rtol=1e-10, atol=1e-11)


def test_log_prob_is_minus_infinity_for_impossible_values(case: Case) -> None:
    table = case.family.log_prob(case.parameters, np.array(case.impossible))
    assert_array_equal(table, -np.inf)


def test_statistics_are_zero_for_missing_and_impossible_values(case: Case) -> None:
    values = np.array([np.nan, *case.impossible, case.grid[0]])
    statistics = case.family.statistics(values)
    assert statistics.shape == (len(values), case.family.num_statistics)
    assert_array_equal(statistics[:-1], 0.0)
    assert statistics[-1, 0] == 1.0


def test_methods_accept_no_values_and_no_leaves(case: Case) -> None:
    none = np.empty(0)
    no_leaves = np.empty((0, case.family.num_parameters))
    assert case.family.log_prob(case.parameters, none).shape == (0, len(case.parameters))
    assert case.family.log_prob(no_leaves, case.grid).shape == (len(case.grid), 0)
    assert case.family.cdf(case.parameters, none).shape == (0, len(case.parameters))
    assert case.family.statistics(none).shape == (0, case.family.num_statistics)
    empty = case.family.maximise(np.empty((0, case.family.num_statistics)))
    assert empty.shape == (0, case.family.num_parameters)
    assert case.family.sample(no_leaves, np.random.default_rng(0)).shape == (0,)
    assert case.family.log_prior(no_leaves) == 0.0
    no_free = np.empty((0, case.family.num_free))
    assert case.family.free(no_leaves).shape == no_free.shape
    assert case.family.from_free(no_free).shape == no_leaves.shape
    value, gradient = case.family.free_log_prior(no_leaves)
    assert value == 0.0
    assert gradient.shape == no_free.shape


def test_sample_follows_each_row(case: Case) -> None:
    rng = np.random.default_rng(7)
    number = 20_000
    for row, oracle in zip(case.parameters, case.oracles, strict=True):
        sample = case.family.sample(np.tile(row, (number, 1)), rng)
        if case.discrete:
            expected = number * oracle.pmf(case.grid)
            observed = np.bincount(sample.astype(int), minlength=len(case.grid))
            assert observed[expected == 0].sum() == 0
            common = expected >= 5
            pooled_expected = np.append(expected[common], number - expected[common].sum())
            pooled_observed = np.append(observed[common], number - observed[common].sum())
            kept = pooled_expected > 1e-9 * number
            assert pooled_observed[~kept].sum() == 0
            scaled = pooled_expected[kept] * number / pooled_expected[kept].sum()
            assert stats.chisquare(pooled_observed[kept], scaled).pvalue > 1e-3 or kept.sum() == 1
        else:
            assert stats.kstest(sample, oracle.cdf).pvalue > 1e-3


def test_sample_repeats_with_the_seed(case: Case) -> None:
    rows = np.repeat(case.parameters, 20, axis=0)
    first = case.family.sample(rows, np.random.default_rng(3))
    second = case.family.sample(rows, np.random.default_rng(3))
    assert_array_equal(first, second)
    assert first.shape == (len(rows),)


def test_maximise_beats_perturbed_parameters(case: Case) -> None:
    rng = np.random.default_rng(11)
    values = draws(case, 60, seed=5)
    values[::7] = np.nan
    weights = rng.gamma(0.3, size=(len(values), 4))
    statistics = weights.T @ case.family.statistics(values)
    for prior in case.priors:
        best = case.family.maximise(statistics, prior)
        assert case.family.violations(best) == []
        top = objective(case, best, values, weights, prior)
        assert np.isfinite(top)
        for _ in range(200):
            other = perturbed(case.family, best, rng)
            slack = 1e-11 * (1 + abs(top))
            assert objective(case, other, values, weights, prior) <= top + slack


def test_maximise_finds_the_parameters_of_many_draws(case: Case) -> None:
    number = 40_000
    rng = np.random.default_rng(19)
    for row in case.parameters:
        values = case.family.sample(np.tile(row, (number, 1)), rng)
        statistics = case.family.statistics(values).sum(axis=0, keepdims=True)
        found = case.family.maximise(statistics)
        spread = np.sqrt(case.family.variance(row[None, :]))[0]
        assert_allclose(
            case.family.mean(found)[0],
            case.family.mean(row[None])[0],
            rtol=0,
            atol=0.04 * spread + 1e-4,
        )
        assert_allclose(case.family.variance(found)[0], spread**2, rtol=0.2, atol=1e-4)


def test_maximise_gives_the_priors_parameters_to_rows_without_weight(case: Case) -> None:
    width = case.family.num_statistics
    statistics = np.zeros((3, width))
    statistics[1] = 5e-324
    statistics[2] = 12.0 * case.family.statistics(case.grid[-1:])[0]
    for prior in case.priors:
        found = case.family.maximise(statistics, prior)
        assert case.family.violations(found) == []
        alone = case.family.maximise(np.zeros((1, width)), prior)
        assert_allclose(found[:2], np.repeat(alone, 2, axis=0), rtol=1e-12)
        if isinstance(prior, GaussianPrior):
            expected = [prior.mean, max(prior.variance, prior.min_variance)]
        elif isinstance(prior, PoissonPrior):
            expected = [prior.rate]
        else:
            expected = [1 / case.family.num_parameters] * case.family.num_parameters
        assert_allclose(alone[0], expected, rtol=1e-12)


def test_maximise_uses_the_default_prior_when_none_is_given(case: Case) -> None:
    statistics = case.family.statistics(draws(case, 9, seed=1)).sum(axis=0, keepdims=True)
    given = case.family.maximise(statistics, case.family.default_prior)
    assert_array_equal(case.family.maximise(statistics), given)
    assert case.family.log_prior(given) == case.family.log_prior(given, case.family.default_prior)


def test_maximise_refuses_the_prior_of_another_family(case: Case) -> None:
    foreign = PoissonPrior() if case.family.name != "poisson" else CategoricalPrior()
    statistics = np.ones((1, case.family.num_statistics))
    with pytest.raises(StructureError, match="`prior` must be a"):
        case.family.maximise(statistics, foreign)
    with pytest.raises(StructureError, match="`prior` must be a"):
        case.family.log_prior(case.parameters, foreign)


def test_log_prior_adds_up_over_leaves(case: Case) -> None:
    parameters = case.family.random(4, np.random.default_rng(2))
    for prior in case.priors:
        parts = [case.family.log_prior(parameters[[row]], prior) for row in range(4)]
        assert_allclose(case.family.log_prior(parameters, prior), sum(parts), rtol=1e-12)


def inside(case: Case, parameters: np.ndarray, prior: Prior | None) -> np.ndarray:
    """The parameters, moved into the bounds of an ascent; exact zeros stay."""
    free = case.family.free(parameters)
    return case.family.from_free(np.where(np.isfinite(free), limited(case, free, prior), free))


def limited(case: Case, free: np.ndarray, prior: Prior | None) -> np.ndarray:
    lower, upper = case.family.free_bounds(prior)
    assert np.all(lower < upper)
    return np.clip(free, lower, upper)


def differences(objective: Any, free: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Central finite differences in every coordinate that is finite; 0 elsewhere."""
    found = np.zeros_like(free)
    for place in np.argwhere(np.isfinite(free)):
        forward, back = free.copy(), free.copy()
        forward[tuple(place)] += step
        back[tuple(place)] -= step
        found[tuple(place)] = (objective(forward) - objective(back)) / (2 * step)
    return found


def test_free_coordinates_lead_back_to_the_parameters(case: Case) -> None:
    free = case.family.free(case.parameters)
    assert free.shape == (len(case.parameters), case.family.num_free)
    again = case.family.from_free(free)
    assert case.family.violations(again) == []
    assert_allclose(again, case.parameters, rtol=1e-12)
    assert_array_equal(again == 0, case.parameters == 0)
    some = np.random.default_rng(6).normal(size=free.shape)
    round_trip = case.family.free(case.family.from_free(some)) - some
    shift = round_trip[:, :1] if case.family.name == "categorical" else 0.0
    tolerance = 1e-9 if case.label == "gaussian far" else 1e-12
    assert_allclose(round_trip, np.broadcast_to(shift, free.shape), rtol=0, atol=tolerance)


def test_free_gradient_agrees_with_finite_differences(case: Case) -> None:
    rng = np.random.default_rng(31)
    values = draws(case, 40, seed=9)
    values[::6] = np.nan
    free = case.family.free(case.parameters)
    possible = np.isfinite(case.family.log_prob(case.parameters, values))
    # Weights of both signs: a conditional likelihood is a difference of two expectations.
    weights = np.where(possible, rng.normal(0.3, 1.0, size=possible.shape), 0.0)

    def expected(at: np.ndarray) -> float:
        log_prob = case.family.log_prob(case.family.from_free(at), values)
        return float(np.sum(weights[possible] * log_prob[possible]))

    statistics = weights.T @ case.family.statistics(values)
    gradient = case.family.free_gradient(case.parameters, statistics)
    assert gradient.shape == free.shape
    tolerance = 1e-4 if case.label == "gaussian far" else 1e-6
    assert_allclose(gradient, differences(expected, free), rtol=tolerance, atol=tolerance)
    assert_array_equal(gradient[free == -np.inf], 0.0)


def test_free_gradient_vanishes_where_maximise_ends(case: Case) -> None:
    weights = np.random.default_rng(8).gamma(0.5, size=(50, 3))
    statistics = weights.T @ case.family.statistics(draws(case, 50, seed=3))
    best = case.family.maximise(statistics, case.family.default_prior)
    _, of_prior = case.family.free_log_prior(best)
    assert_allclose(case.family.free_gradient(best, statistics) + of_prior, 0.0, atol=1e-9)


def test_free_gradient_does_not_count_what_a_fixed_zero_cannot_explain(case: Case) -> None:
    if not case.discrete:
        return
    impossible = np.where(case.parameters > 0, 0.0, 5.0)
    statistics = np.concatenate([np.zeros((len(impossible), 1)), impossible], axis=1)
    assert_array_equal(case.family.free_gradient(case.parameters, statistics), 0.0)


def test_free_log_prior_agrees_with_finite_differences(case: Case) -> None:
    for prior in (None, *case.priors):
        parameters = inside(case, case.parameters, prior)
        free = case.family.free(parameters)
        value, gradient = case.family.free_log_prior(parameters, prior)
        assert np.isfinite(value)

        def log_prior(at: np.ndarray, prior: Prior | None = prior) -> float:
            return case.family.free_log_prior(case.family.from_free(at), prior)[0]

        free[:, -1] += 1e-3  # a step below the floor of a variance would leave the prior's support
        shifted = case.family.free_log_prior(case.family.from_free(free), prior)[1]
        assert_allclose(shifted, differences(log_prior, free), rtol=1e-5, atol=1e-7)
        assert_array_equal(gradient[free == -np.inf], 0.0)
        everywhere = np.all(parameters != 0, axis=1) | (case.family.name == "gaussian")
        assert_allclose(
            case.family.free_log_prior(parameters[everywhere], prior)[0],
            case.family.log_prior(parameters[everywhere], prior),
            rtol=1e-12,
        )


def test_free_bounds_hold_allowed_parameters_of_finite_prior(case: Case) -> None:
    for prior in (None, *case.priors):
        for size in (0.0, -1e9, 1e9):
            free = limited(case, np.full((2, case.family.num_free), size), prior)
            parameters = case.family.from_free(free)
            assert case.family.violations(parameters) == []
            assert np.isfinite(case.family.log_prior(parameters, prior))


def test_mode_is_the_most_probable_value(case: Case) -> None:
    modes = case.family.mode(case.parameters)
    assert modes.shape == (len(case.parameters),)
    at_modes = np.diag(case.family.log_prob(case.parameters, modes))
    best = case.family.log_prob(case.parameters, case.grid).max(axis=0)
    assert np.all(at_modes >= best - 1e-12)


def test_mean_and_variance_agree_with_scipy(case: Case) -> None:
    means = [oracle.mean() for oracle in case.oracles]
    variances = [oracle.var() for oracle in case.oracles]
    assert_allclose(case.family.mean(case.parameters), means, rtol=1e-12, atol=1e-14)
    assert_allclose(case.family.variance(case.parameters), variances, rtol=1e-12, atol=1e-14)


def test_cdf_agrees_with_scipy(case: Case) -> None:
    step = max(1, len(case.grid) // 200)
    values = np.concatenate([[-np.inf, -1.5, -1.0], case.grid[::step], case.grid[::step] + 0.5])
    values = np.append(values, np.inf)
    expected = np.stack([oracle.cdf(values) for oracle in case.oracles], axis=1)
    assert_allclose(case.family.cdf(case.parameters, values), expected, rtol=1e-11, atol=1e-15)


def test_cdf_is_nan_for_missing_values(case: Case) -> None:
    table = case.family.cdf(case.parameters, np.array([np.nan, case.grid[-1]]))
    assert np.all(np.isnan(table[0]))
    assert np.all(np.isfinite(table[1]))


def test_mixture_quantiles_of_single_leaves_agree_with_scipy(case: Case) -> None:
    levels = np.array([1e-9, 0.012, 0.31, 0.513, 0.87, 0.9991, 1 - 1e-9])
    found = case.family.mixture_quantiles(case.parameters, np.eye(len(case.parameters)), levels)
    expected = np.stack([oracle.ppf(levels) for oracle in case.oracles])
    assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_mixture_quantiles_invert_the_mixture_cdf(case: Case) -> None:
    rng = np.random.default_rng(23)
    family = case.family
    weights = rng.dirichlet(np.full(len(case.parameters), 0.5), size=30)
    weights[weights < 0.05] = 0.0
    levels = np.concatenate([rng.random(6), [1e-6, 0.999999]])
    found = family.mixture_quantiles(case.parameters, 3.0 * weights, levels)
    weights /= weights.sum(axis=1, keepdims=True)
    assert found.shape == (30, 8)
    for row, quantiles in zip(weights, found, strict=True):
        reached = family.cdf(case.parameters, quantiles) @ row
        if case.discrete:
            before = family.cdf(case.parameters, quantiles - 1) @ row
            assert np.all(reached >= levels - 1e-13)
            assert np.all(before < levels)
        else:
            assert_allclose(reached, levels, rtol=1e-9)


def test_mixture_quantiles_reach_the_ends_of_the_support_at_levels_0_and_1(case: Case) -> None:
    weights = np.eye(len(case.parameters))
    found = case.family.mixture_quantiles(case.parameters, weights, np.array([0.0, 1.0]))
    for (lowest, highest), oracle in zip(found, case.oracles, strict=True):
        if case.family.name == "categorical":
            possible = np.flatnonzero(oracle.pmf(case.grid) > 0)
            assert (lowest, highest) == (possible[0], possible[-1])
        elif case.family.name == "poisson":
            assert (lowest, highest) == (0.0, np.inf if oracle.mean() > 0 else 0.0)
        else:
            assert (lowest, highest) == (-np.inf, np.inf)


def test_mixture_quantiles_refuse_wrong_levels_and_weights(case: Case) -> None:
    weights = np.ones((2, len(case.parameters)))
    with pytest.raises(EvidenceError, match="`levels` must be"):
        case.family.mixture_quantiles(case.parameters, weights, np.array([1.5]))
    weights[1] = 0.0
    with pytest.raises(EvidenceError, match=r"`weights` .* row 1"):
        case.family.mixture_quantiles(case.parameters, weights, np.array([0.5]))


def test_violations_name_the_row_and_the_finding(case: Case) -> None:
    assert case.family.violations(case.parameters) == []
    broken = np.array(case.parameters)
    broken[1, -1] = -1.25
    (message,) = case.family.violations(broken)
    assert message.startswith("row 1: ")
    assert "-1.25" in message
    broken[0, 0] = np.nan
    assert [m.split(":")[0] for m in case.family.violations(broken)] == ["row 0", "row 1"]
    (message,) = case.family.violations(np.zeros((2, 9)))
    assert "(2, 9)" in message


def test_random_parameters_are_valid_and_differ(case: Case) -> None:
    values = draws(case, 50, seed=4)
    values[::5] = np.nan
    unusable = np.full(3, np.nan)
    for given in (None, values, unusable, np.empty(0), np.zeros(4)):
        parameters = case.family.random(6, np.random.default_rng(0), given)
        assert parameters.shape == (6, case.family.num_parameters)
        assert case.family.violations(parameters) == []
        again = case.family.random(6, np.random.default_rng(0), given)
        assert_array_equal(parameters, again)
        if case.family.num_parameters > 1 or case.family.name != "categorical":
            assert len(np.unique(parameters, axis=0)) == 6
    likely = case.family.random(6, np.random.default_rng(0), values)
    assert np.all(np.isfinite(case.family.log_prob(likely, values)))


def test_scaled_to_keeps_the_meaning_of_parameters(case: Case) -> None:
    values = draws(case, 100, seed=8)
    scaled = case.family.scaled_to(values)
    assert_array_equal(
        scaled.log_prob(case.parameters, values), case.family.log_prob(case.parameters, values)
    )
    assert scaled == case.family.scaled_to(values)
    assert case.family.scaled_to(np.full(3, np.nan)) == case.family
    prior = case.priors[1]
    by_scaled = scaled.maximise(scaled.statistics(values).sum(axis=0, keepdims=True), prior)
    direct = case.family.maximise(case.family.statistics(values).sum(axis=0, keepdims=True), prior)
    assert_allclose(by_scaled, direct, rtol=1e-10)


def test_family_is_a_hashable_value_and_survives_json(case: Case) -> None:
    family = case.family.scaled_to(draws(case, 30, seed=2))
    again = family_from_json(json.loads(json.dumps(family.to_json())))
    assert again == family
    assert hash(again) == hash(family)
    assert type(again) is type(family)
    with pytest.raises(ModelFileError, match="must have the fields"):
        family_from_json({**family.to_json(), "surprise": 1})
    with pytest.raises(ModelFileError, match="`name` of a leaf family"):
        family_from_json({**family.to_json(), "name": "cauchy"})


def test_family_for_a_variable_is_that_of_its_kind(case: Case) -> None:
    values = draws(case, 30, seed=2)
    variables = {
        "categorical": Variable.categorical("x", range(case.family.num_parameters)),
        "gaussian": Variable.continuous("x"),
        "poisson": Variable.count("x"),
    }
    family = family_for(variables[case.family.name])
    assert type(family) is type(case.family)
    assert family.num_parameters == case.family.num_parameters
    assert family_for(variables[case.family.name], values) == family.scaled_to(values)


def test_extreme_values_give_numbers_and_no_warnings(case: Case) -> None:
    values = np.array([0.0, -0.0, 1e-320, 1.0, -1e300, 1e300, 1e15, 1e308, -np.inf, np.inf])
    with np.errstate(all="warn"):
        log_prob = case.family.log_prob(case.parameters, values)
        cdf = case.family.cdf(case.parameters, values)
        statistics = case.family.statistics(values)
    assert not np.any(np.isnan(log_prob))
    assert np.all(log_prob < np.inf)
    assert np.all((cdf >= 0) & (cdf <= 1))
    assert not np.any(np.isnan(statistics))
