"""The contract of leaf families, run over those of the library, and what each of them adds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from dspn.data import Variable
from dspn.errors import EvidenceError, ModelFileError, StructureError
from dspn.leaves import (
    Categorical,
    CategoricalPrior,
    Gaussian,
    GaussianPrior,
    Poisson,
    PoissonPrior,
    family_for,
    family_from_json,
)
from dspn.leaves.contract import CLAUSES, Case, check_family


def categorical_case(rows: list[list[float]]) -> Case:
    parameters = np.array(rows)
    codes = np.arange(parameters.shape[1])
    return Case(
        family=Categorical(parameters.shape[1]),
        parameters=parameters,
        grid=codes.astype(float),
        impossible=(-1.0, 0.5, float(len(codes)), 1e300, np.inf, -np.inf),
        priors=(CategoricalPrior(), CategoricalPrior(0.0), CategoricalPrior(3.0)),
        oracles=tuple(stats.rv_discrete(values=(codes, row)) for row in parameters),
    )


def gaussian_case(rows: list[list[float]], family: Gaussian, tolerance: float = 1e-6) -> Case:
    parameters = np.array(rows)
    means, deviations = parameters[:, 0], np.sqrt(parameters[:, 1])
    edges = np.concatenate([means - 12 * deviations, means + 12 * deviations])
    square = family.scale**2
    return Case(
        family=family,
        parameters=parameters,
        grid=np.linspace(edges.min(), edges.max(), 40_001),
        priors=(
            family.default_prior,
            GaussianPrior(family.location, square, 0.0, 1e-6 * square),
            GaussianPrior(family.location + family.scale, 2 * square, 5.0, 0.3 * square),
        ),
        oracles=tuple(stats.norm(m, s) for m, s in zip(means, deviations, strict=True)),
        tolerance=tolerance,
    )


def poisson_case(rates: list[float]) -> Case:
    return Case(
        family=Poisson(),
        parameters=np.array(rates)[:, None],
        grid=np.arange(0.0, 200.0 + 3 * max(rates)),
        impossible=(-1.0, 2.5, -1e9, np.inf, -np.inf),
        priors=(PoissonPrior(), PoissonPrior(2.0, 0.0), PoissonPrior(7.0, 4.0)),
        oracles=tuple(stats.poisson(rate) for rate in rates),
    )


FAR = gaussian_case([[1e6, 1.0], [1e6 + 4, 0.25]], Gaussian(1e6 + 2, 2.0), tolerance=1e-4)
CASES = {
    "binary": categorical_case([[0.3, 0.7], [0.5, 0.5], [1.0, 0.0], [0.0, 1.0]]),
    "five": categorical_case([[0.1, 0.2, 0.3, 0.25, 0.15], [0, 0.5, 0, 0.5, 0], [0, 0, 0, 0, 1]]),
    "single category": categorical_case([[1.0], [1.0]]),
    "gaussian": gaussian_case([[0.0, 1.0], [-3.0, 0.04], [2.0, 9.0]], Gaussian()),
    "gaussian far": FAR,
    "poisson": poisson_case([0.0, 1e-3, 0.7, 4.0, 33.3]),
}

pytestmark = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_families_keep_the_contract(clause: Callable[[Case], None], case: Case) -> None:
    clause(case)


def test_sample_follows_each_row(case: Case) -> None:
    rng = np.random.default_rng(7)
    number = 20_000
    for row, oracle in zip(case.parameters, case.oracles, strict=True):
        sample = case.family.sample(np.tile(row, (number, 1)), rng)
        if case.family.is_discrete:
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


def test_maximise_refuses_the_prior_of_another_family(case: Case) -> None:
    foreign = PoissonPrior() if case.family.name != "poisson" else CategoricalPrior()
    statistics = np.ones((1, case.family.num_statistics))
    with pytest.raises(StructureError, match="`prior` must be a"):
        case.family.maximise(statistics, foreign)
    with pytest.raises(StructureError, match="`prior` must be a"):
        case.family.log_prior(case.parameters, foreign)


def test_free_gradient_does_not_count_what_a_fixed_zero_cannot_explain(case: Case) -> None:
    if not case.family.is_discrete:
        return
    impossible = np.where(case.parameters > 0, 0.0, 5.0)
    statistics = np.concatenate([np.zeros((len(impossible), 1)), impossible], axis=1)
    assert_array_equal(case.family.free_gradient(case.parameters, statistics), 0.0)


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


def test_the_scale_does_not_change_what_is_learned(case: Case) -> None:
    values = case.draws(100, seed=8)
    scaled = case.family.scaled_to(values)
    prior = case.priors[1]
    by_scaled = scaled.maximise(scaled.statistics(values).sum(axis=0, keepdims=True), prior)
    direct = case.family.maximise(case.family.statistics(values).sum(axis=0, keepdims=True), prior)
    assert_allclose(by_scaled, direct, rtol=1e-10)


def test_files_of_other_families_or_fields_are_refused(case: Case) -> None:
    described = case.family.to_json()
    with pytest.raises(ModelFileError, match="must have the fields"):
        family_from_json({**described, "surprise": 1})
    with pytest.raises(ModelFileError, match=r"`name` of a leaf family .* 'cauchy'.*families="):
        family_from_json({**described, "name": "cauchy"})


def test_family_for_a_variable_is_that_of_its_kind(case: Case) -> None:
    values = case.draws(30, seed=2)
    variables = {
        "categorical": Variable.categorical("x", range(case.family.num_parameters)),
        "gaussian": Variable.continuous("x"),
        "poisson": Variable.count("x"),
    }
    family = family_for(variables[case.family.name])
    assert type(family) is type(case.family)
    assert family.num_parameters == case.family.num_parameters
    assert family_for(variables[case.family.name], values) == family.scaled_to(values)


def test_a_family_that_breaks_the_contract_is_found_out(case: Case) -> None:
    wrong = Case(case.family, case.parameters, case.grid, impossible=(case.grid[0],))
    with pytest.raises(AssertionError):
        check_family(wrong)
