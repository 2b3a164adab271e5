"""Expectation maximisation: it never falls, it is hmmlearn's, and it finds what was planted."""

import copy
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hmmlearn import hmm

from dspn import Model, Schema, Sequences, Variable
from dspn.engine import compile_program
from dspn.learning import (
    DEFAULT_PRIORS,
    NO_PRIORS,
    EmOptions,
    Priors,
    em_step,
    fit_em,
    log_prior,
    restarts,
    scaled_families,
)
from dspn.leaves import CategoricalPrior, GaussianPrior, PoissonPrior
from dspn.structure import DynamicNetwork, NetworkParameters, Parameters, from_hmm, initial_network
from dspn.structure.nodes import children_of
from oracles import induced_trees, log_likelihood, num_induced_trees
from strategies import as_sequences, random_case, schema_of

SEEDS = range(250)
case = cache(random_case)
STRONG = Priors(2.0, (CategoricalPrior(1.5), GaussianPrior(1.0, 2.0, 3.0), PoissonPrior(2.0, 1.0)))


def steps_of(network: DynamicNetwork, data: Sequences, **settings: object) -> np.ndarray:
    """Penalised log-likelihood of all sequences together, before the first and after every step."""
    options = EmOptions(max_steps=4, min_steps=4, tolerance=0.0)
    fit = fit_em(network, data, options=options, **settings)  # type: ignore[arg-type]
    return np.array([record.penalised for record in fit.history]) * len(data)


def assert_never_falls(values: np.ndarray) -> None:
    """Up to rounding; from minus infinity, where a zero meets a pseudo-count, every step rises."""
    assert not np.isnan(values).any()
    assert np.isfinite(values[1:]).all()
    gains = values[1:] - values[:-1]
    assert (gains >= -1e-11 * np.maximum(1.0, np.abs(values[1:]))).all(), gains


@pytest.mark.parametrize("priors", [DEFAULT_PRIORS, NO_PRIORS, STRONG])
def test_no_step_falls_on_random_templates(priors: Priors) -> None:
    for seed in SEEDS if priors is DEFAULT_PRIORS else SEEDS[::2]:
        network, _, data = case(seed)
        assert_never_falls(steps_of(scaled_families(network, data), data, priors=priors))


def test_random_templates_are_of_every_shape() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        network, _, data = case(seed)
        template = network.template
        parents = Counter(child for node in template.nodes for child in children_of(node))
        inner = [node for node in parents if node not in template.inputs]
        seen[f"root {network.root}"] += 1
        seen["tied" if network.parameters.tied else "untied"] += 1
        seen["several groups"] += len(network.groups) > 1
        seen["shared nodes"] += any(parents[node] > 1 for node in inner)
        seen["top of several sums"] += len(network.top.edge_offsets) > 1
        seen["zero weights"] += bool((network.parameters.template.weights == 0).any())
        seen["missing entries"] += bool(np.isnan(data.values).any())
        seen["one slice"] += bool((data.lengths == 1).any())
        for variable in network.schema:
            seen[str(variable.kind)] += 1
    assert min(seen.values()) >= 40, seen


def test_no_step_falls_with_weights_and_fixed_nodes() -> None:
    for seed in range(100):
        network, _, data = case(seed)
        network = scaled_families(network, data)
        rng = np.random.default_rng(seed)
        weights = rng.integers(0, 4, len(data)).astype(float)
        weights[0] = 2.5
        nodes = range(len(network.template.nodes))
        chosen = frozenset(node for node in nodes if rng.random() < 0.5)
        assert_never_falls(steps_of(network, data, sample_weights=weights))
        assert_never_falls(steps_of(network, data, learnable=chosen))


@pytest.mark.parametrize("seed", range(30))
def test_history_is_that_of_the_unrolled_networks(seed: int) -> None:
    network, arrays, data = case(seed)
    fit = fit_em(network, data, options=EmOptions(max_steps=2, min_steps=2))
    for record in fit.history:
        expected = np.mean([log_likelihood(network, values) for values in arrays])
        np.testing.assert_allclose(record.train, expected, rtol=1e-9, atol=1e-12)
        penalised = expected + log_prior(network, DEFAULT_PRIORS) / len(arrays)
        np.testing.assert_allclose(record.penalised, penalised, rtol=1e-9, atol=1e-12)
        network = em_step(network, data).network


# Flows of what a network of other parts would not show: leaves of all families, bottom networks.


def _statistics_of_trees(network: DynamicNetwork, arrays: list[np.ndarray]) -> dict[tuple, float]:
    """Expected statistics by variable and parameters of the leaf, over every induced tree."""
    found: dict[tuple, float] = {}
    for values in arrays:
        trees = induced_trees(network, len(values))
        own = np.array([tree.likelihood(values) for tree in trees])
        for share, tree in zip(own / own.sum(), trees, strict=True):
            for t, v, family, row in tree.leaves:
                statistics = family.statistics(values[t : t + 1, v])[0]
                found[v, row] = found.get((v, row), 0.0) + share * statistics
    return found


@pytest.mark.parametrize("seed", range(40))
def test_leaf_statistics_are_those_of_the_induced_trees(seed: int) -> None:
    network, arrays, _ = case(seed)
    arrays = [v[:3] for v in arrays]
    arrays = [v for v in arrays if num_induced_trees(network, len(v)) <= 2000] or [arrays[0][:1]]
    flows = compile_program(network).expected_flows(as_sequences(network.schema, arrays)).flows
    found: dict[tuple, float] = {}
    own = network.parameters
    for parameters, part in ((own.template, flows.template), (own.bottom, flows.bottom)):
        if parameters is None or part is None:
            continue
        for v, (rows, statistics) in enumerate(zip(parameters.leaves, part.leaves, strict=True)):
            for row, counts in zip(rows.tolist(), statistics, strict=True):
                found[v, tuple(row)] = found.get((v, tuple(row)), 0.0) + counts
    for key, expected in _statistics_of_trees(network, arrays).items():
        np.testing.assert_allclose(found.pop(key), expected, rtol=1e-9, atol=1e-11)
    assert all(np.abs(rest).max() < 1e-11 for rest in found.values())


@pytest.mark.parametrize("seed", range(20))
def test_flows_of_a_bottom_network_are_logarithmic_derivatives(seed: int) -> None:
    network, arrays, data = random_case(seed, tied=False)
    own = network.parameters
    assert own.bottom is not None
    found = compile_program(network).expected_flows(data).flows.bottom
    assert found is not None

    def total(edge: int, factor: float) -> float:
        assert own.bottom is not None
        weights = own.bottom.weights.copy()
        weights[edge] *= factor
        moved = copy.copy(network)
        bottom = NetworkParameters(weights, own.bottom.leaves)
        object.__setattr__(moved, "parameters", Parameters(own.template, own.top, bottom))
        return sum(log_likelihood(moved, values) for values in arrays)

    for edge in range(own.bottom.weights.size):
        slope = (total(edge, 1 + 1e-5) - total(edge, 1 - 1e-5)) / 2e-5
        np.testing.assert_allclose(found.weights[edge], slope, rtol=1e-5, atol=1e-6)


# hmmlearn.

LENGTHS = [1, 2, 17, 60, 5, 200]


def _one_step(theirs: hmm.BaseHMM, arrays: list[np.ndarray]) -> None:
    """One step of hmmlearn, from the parameters that it has."""
    theirs.n_iter, theirs.init_params, theirs.tol = 1, "", -np.inf
    theirs.fit(np.concatenate(arrays), [len(values) for values in arrays])


@pytest.mark.parametrize("seed", range(5))
def test_step_is_that_of_hmmlearn_with_categories(seed: int) -> None:
    rng = np.random.default_rng(seed)
    theirs = hmm.CategoricalHMM(n_components=4, n_features=5, implementation="log")
    theirs.startprob_ = rng.dirichlet(np.ones(4))
    theirs.transmat_ = rng.dirichlet(np.full(4, 0.5), size=4)
    theirs.emissionprob_ = rng.dirichlet(np.full(5, 0.5), size=4)
    schema = Schema((Variable.categorical("x0", ("v", "w", "x", "y", "z")),))
    network = from_hmm(
        theirs.startprob_, theirs.transmat_, {"x0": theirs.emissionprob_}, schema=schema
    )
    arrays = [rng.integers(5, size=(length, 1)) for length in LENGTHS]
    _one_step(theirs, arrays)
    data = as_sequences(schema, [values.astype(float) for values in arrays])
    found = em_step(network, data, priors=NO_PRIORS).network.parameters
    np.testing.assert_allclose(found.top.weights, theirs.startprob_, rtol=1e-8, atol=1e-12)
    transition = found.template.weights.reshape(4, 4)
    np.testing.assert_allclose(transition, theirs.transmat_, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(
        found.template.leaves[0], theirs.emissionprob_, rtol=1e-8, atol=1e-12
    )


@pytest.mark.parametrize("seed", range(5))
def test_step_is_that_of_hmmlearn_with_gaussians(seed: int) -> None:
    rng = np.random.default_rng(seed)
    theirs = hmm.GaussianHMM(
        n_components=3, covariance_type="diag", implementation="log", covars_prior=0.0
    )
    theirs.n_features = 2
    theirs.startprob_ = rng.dirichlet(np.ones(3))
    theirs.transmat_ = rng.dirichlet(np.full(3, 0.5), size=3)
    theirs.means_ = rng.normal(scale=2.0, size=(3, 2))
    variances = rng.uniform(0.3, 2.0, size=(3, 2))
    theirs.covars_ = variances
    schema = schema_of(("continuous", "continuous"))
    emissions = {
        f"x{v}": np.stack([theirs.means_[:, v], variances[:, v]], axis=1) for v in range(2)
    }
    network = from_hmm(theirs.startprob_, theirs.transmat_, emissions, schema=schema)
    arrays = [rng.normal(scale=2.0, size=(length, 2)) for length in LENGTHS]
    _one_step(theirs, arrays)
    data = as_sequences(schema, arrays)
    for own in (network, scaled_families(network, data)):
        found = em_step(own, data, priors=NO_PRIORS).network.parameters
        np.testing.assert_allclose(found.top.weights, theirs.startprob_, rtol=1e-8, atol=1e-12)
        transition = found.template.weights.reshape(3, 3)
        np.testing.assert_allclose(transition, theirs.transmat_, rtol=1e-8, atol=1e-12)
        for v, rows in enumerate(found.template.leaves):
            np.testing.assert_allclose(rows[:, 0], theirs.means_[:, v], rtol=1e-8, atol=1e-12)
            covariance = [matrix[v, v] for matrix in theirs.covars_]
            np.testing.assert_allclose(rows[:, 1], covariance, rtol=1e-8)


# What was planted is found.


@pytest.mark.parametrize("seed", range(3))
def test_planted_hidden_markov_model_is_found_again(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = Schema((Variable.binary("x"),))
    planted = Model.from_hmm(
        [0.6, 0.4], [[0.9, 0.1], [0.2, 0.8]], {"x": [[0.9, 0.1], [0.2, 0.8]]}, schema=schema
    )
    train, held_out = planted.sample(100, 100, rng=rng), planted.sample(2000, 100, rng=rng)
    fit = restarts((initial_network(schema, 2, rng=rng) for _ in range(8)), train)
    gap = planted.log_likelihood(held_out) - Model(fit.network).log_likelihood(held_out)
    assert -0.01 < gap.mean() < 0.1
