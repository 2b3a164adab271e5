"""Gradients against central finite differences, on random templates of every shape."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import oracles
from dspn.engine import Program, compile_program
from dspn.learning.ascent import AscentOptions, ascend
from dspn.learning.fitting import scaled_families
from dspn.learning.gradient import (
    free_parameters,
    gradient,
    log_prior_gradient,
    with_free_parameters,
)
from dspn.learning.priors import NO_PRIORS, Priors, log_prior
from dspn.learning.scores import LIKELIHOOD, ConditionalLikelihood, Score
from dspn.leaves import CategoricalPrior, GaussianPrior, PoissonPrior
from dspn.sequences import Sequences
from dspn.structure import DynamicNetwork
from strategies import KINDS, as_sequences, random_evidence, random_network, random_recipe

Floats = np.ndarray
CLASS = ConditionalLikelihood(("x0",))
STRONG = Priors(2.5, (CategoricalPrior(1.5), GaussianPrior(1.0, 3.0, 4.0), PoissonPrior(2.0, 3.0)))


def case(seed: int, **fixed: object) -> tuple[DynamicNetwork, Sequences, Floats]:
    """A network whose first variable can be a class, evidence with gaps, and sample weights.

    Root and ties take turns; groups, zeros, shared nodes and kinds are those of the seed.
    """
    rng = np.random.default_rng([17, seed])
    others = rng.choice(KINDS, rng.integers(1, 4)).tolist()
    kinds = (str(rng.choice(["binary", "ternary"])), *others)
    settings = {"root": ("first", "last")[seed % 2], "tied": seed % 4 < 2, **fixed}
    network = random_network(random_recipe(seed, kinds=kinds, **settings))
    arrays = random_evidence(network, rng, num_sequences=5)
    data = as_sequences(network.schema, arrays)
    weights = rng.gamma(1.0, size=5) * (rng.random(5) < 0.8)
    weights[0] += 0.5
    return scaled_families(network, data) if seed % 3 else network, data, weights


def by_engine(score: Score, data: Sequences, weights: Floats) -> Callable[[DynamicNetwork], float]:
    """The weighted sum of scores from upward passes alone; no flow is computed."""
    kept: list[Program] = []

    def total(network: DynamicNetwork) -> float:
        if not kept:
            kept.append(compile_program(network))
        scores = score.sequence_scores(kept[0].rebind(network), data)
        return float(scores[weights > 0] @ weights[weights > 0])

    return total


def by_enumeration(
    score: Score, data: Sequences, weights: Floats
) -> Callable[[DynamicNetwork], float]:
    """The same from the static network, with nothing of the engine."""

    def total(network: DynamicNetwork) -> float:
        found = 0.0
        for weight, values in zip(weights, data, strict=True):
            if weight > 0:
                found += weight * oracles.log_likelihood(network, values)
                if isinstance(score, ConditionalLikelihood):
                    hidden = np.array(values)
                    hidden[:, 0] = np.nan
                    found -= weight * oracles.log_likelihood(network, hidden)
        return found

    return total


def slope(
    network: DynamicNetwork,
    objective: Callable[[DynamicNetwork], float],
    direction: Floats,
    step: float = 1e-5,
) -> float:
    """Central finite difference of an objective along a direction in free coordinates."""
    at = free_parameters(network)
    ahead = objective(with_free_parameters(network, at + step * direction))
    behind = objective(with_free_parameters(network, at - step * direction))
    return (ahead - behind) / (2 * step)


def directions(size: int, rng: np.random.Generator, number: int) -> Floats:
    """Random directions, and some of the axes."""
    axes = np.eye(size)[rng.integers(size, size=number)]
    return np.concatenate([rng.standard_normal((number, size)), axes])


@pytest.mark.parametrize("seed", range(160))
def test_gradient_agrees_with_finite_differences(seed: int) -> None:
    network, data, weights = case(seed)
    rng = np.random.default_rng([19, seed])
    for score in (LIKELIHOOD, CLASS):
        objective = by_engine(score, data, weights)
        found = gradient(network, data, score, sample_weights=weights)
        assert_allclose(found.value, objective(network), rtol=1e-10, atol=1e-10)
        for direction in directions(found.gradient.size, rng, 2):
            expected = slope(network, objective, direction)
            assert_allclose(found.gradient @ direction, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("seed", range(160, 168))
def test_every_entry_of_the_gradient_agrees_with_finite_differences(seed: int) -> None:
    network, data, weights = case(seed)
    for score in (LIKELIHOOD, CLASS):
        objective = by_engine(score, data, weights)
        found = gradient(network, data, score, sample_weights=weights).gradient
        expected = [slope(network, objective, axis) for axis in np.eye(found.size)]
        assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("seed", range(180, 196))
def test_gradient_agrees_with_finite_differences_of_enumeration(seed: int) -> None:
    network, data, weights = case(seed)
    rng = np.random.default_rng([23, seed])
    for score in (LIKELIHOOD, CLASS):
        objective = by_enumeration(score, data, weights)
        found = gradient(network, data, score, sample_weights=weights)
        assert_allclose(found.value, objective(network), rtol=1e-9, atol=1e-9)
        for direction in directions(found.gradient.size, rng, 1):
            expected = slope(network, objective, direction)
            assert_allclose(found.gradient @ direction, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("seed", range(40))
def test_log_prior_gradient_agrees_with_finite_differences(seed: int) -> None:
    network, _, _ = case(seed)
    for priors in (Priors(), STRONG):
        found = log_prior_gradient(network, priors)

        def objective(other: DynamicNetwork, priors: Priors = priors) -> float:
            return log_prior_gradient(other, priors).value

        for direction in directions(found.gradient.size, np.random.default_rng(seed), 4):
            expected = slope(network, objective, direction)
            assert_allclose(found.gradient @ direction, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(0, 40, 2))
def test_log_prior_of_a_network_without_zeros_is_that_of_expectation_maximisation(
    seed: int,
) -> None:
    network, _, _ = case(seed, zeros=0.0)
    for priors in (Priors(), STRONG, NO_PRIORS):
        found = log_prior_gradient(network, priors).value
        assert_allclose(found, log_prior(network, priors), rtol=1e-12, atol=1e-12)


def arrays_of(network: DynamicNetwork) -> list[Floats]:
    """All parameters; those of Gaussian leaves, whose zeros mean nothing, left out."""
    own = network.parameters
    parts = [part for part in (own.template, own.bottom, own.top) if part is not None]
    found = [part.weights for part in parts]
    for part in parts[:-1]:
        for bank, rows in zip(network.template.banks, part.leaves, strict=True):
            if bank.family.name != "gaussian":
                found.append(rows)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_free_parameters_lead_back_and_exact_zeros_stay(seed: int) -> None:
    network, _, _ = case(seed, zeros=0.6)
    vector = free_parameters(network)
    assert np.all(np.isfinite(vector))
    again = with_free_parameters(network, vector)
    for before, after in zip(arrays_of(network), arrays_of(again), strict=True):
        assert_allclose(after, before, rtol=1e-12)
    moved = with_free_parameters(
        network, vector + np.random.default_rng(seed).normal(scale=2.0, size=vector.size)
    )
    for before, after in zip(arrays_of(network), arrays_of(moved), strict=True):
        assert_array_equal(after == 0, before == 0)


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("score", [LIKELIHOOD, CLASS], ids=["likelihood", "conditional"])
def test_ascent_never_lowers_its_objective_and_keeps_zeros(seed: int, score: Score) -> None:
    network, data, weights = case(seed)
    priors = Priors(0.3) if seed % 2 else NO_PRIORS
    options = AscentOptions(max_steps=8, tolerance=0.0)
    fit = ascend(network, data, score=score, options=options, priors=priors, sample_weights=weights)
    risen = np.array([record.penalised for record in fit.history])
    assert np.all(np.diff(risen) > 0)
    assert len(risen) > 1
    objective = by_engine(score, data, weights)
    assert_allclose(fit.history[0].train * weights.sum(), objective(network), rtol=1e-9, atol=1e-9)
    total = objective(fit.network)
    assert_allclose(fit.score * weights.sum(), total, rtol=1e-9, atol=1e-9)
    total += log_prior_gradient(fit.network, priors).value
    assert_allclose(risen[-1] * weights.sum(), total, rtol=1e-9, atol=1e-9)
    for before, after in zip(arrays_of(network), arrays_of(fit.network), strict=True):
        assert_array_equal(after == 0, before == 0)
