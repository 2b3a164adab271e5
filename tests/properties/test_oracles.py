"""The oracles agree with one another: enumeration of trees, of values, slices and log space."""

import math

import numpy as np
import pytest

from dspn.structure import from_hmm
from oracles import (
    best_completion,
    completions,
    conditional,
    induced_trees,
    interface_posteriors,
    likelihood,
    log_likelihood,
    num_induced_trees,
    slice_by_slice,
)
from properties.log_space import LogSpace, hmm_reference
from strategies import random_case, random_network, random_recipe

TINY = [seed for seed in range(120) if num_induced_trees(random_network(seed), 3) <= 1500]


def test_tiny_networks_are_of_every_shape() -> None:
    made = [random_network(seed) for seed in TINY]
    assert len(made) >= 50
    assert {len(network.groups) for network in made} == {1, 2, 3}
    assert {len(sources) for network in made for sources in network.group_sources} >= {0, 1, 2}


def test_random_networks_are_of_every_shape() -> None:
    made = [random_network(seed) for seed in range(300)]
    assert {len(group) for network in made for group in network.groups} == {1, 2, 3, 4}
    assert {len(network.schema) for network in made} == {1, 2, 3, 4}
    assert {(network.parameters.tied, str(network.root)) for network in made} == {
        (tied, root) for tied in (True, False) for root in ("first", "last")
    }
    sources = [network.group_sources for network in made]
    assert sum(any(len(own) > 1 for own in each) for each in sources) >= 20
    assert sum(any(not own for own in each) for each in sources) >= 20
    assert (
        sum(any(len(own) == 1 and own != (g,) for g, own in enumerate(each)) for each in sources)
        >= 20
    )
    parents = [
        {child for node in network.template.nodes for child in getattr(node, "children", ())}
        for network in made
    ]
    below = [set(n.template.outputs) & own for n, own in zip(made, parents, strict=True)]
    assert sum(bool(own) for own in below) >= 20
    assert sum(bool((network.parameters.template.weights == 0).any()) for network in made) >= 60


@pytest.mark.parametrize("seed", TINY)
def test_sum_over_induced_trees_is_the_value(seed: int) -> None:
    network, arrays, _ = random_case(seed)
    for values in (values for values in arrays if len(values) <= 3):
        trees = induced_trees(network, len(values))
        assert len(trees) == num_induced_trees(network, len(values))
        own = [tree.likelihood(values) for tree in trees]
        total = math.fsum(own)
        np.testing.assert_allclose(total, likelihood(network, values), rtol=1e-12)
        best = max(tree.best(values) for tree in trees)
        np.testing.assert_allclose(best_completion(network, values), best, rtol=1e-12)
        np.testing.assert_allclose(slice_by_slice(network, values, add=max), best, rtol=1e-12)
        chosen = np.zeros((len(values), network.num_interfaces))
        for weight, tree in zip(own, trees, strict=True):
            for place in tree.interfaces:
                chosen[place] += weight / total
        np.testing.assert_allclose(
            interface_posteriors(network, values), chosen, rtol=1e-9, atol=1e-13
        )


@pytest.mark.parametrize("seed", TINY)
def test_conditional_mixture_is_that_of_the_induced_trees(seed: int) -> None:
    network, arrays, _ = random_case(seed)
    for values in (values for values in arrays if len(values) <= 3):
        trees = induced_trees(network, len(values))
        own = [tree.likelihood(values) for tree in trees]
        for t, v in np.argwhere(np.isnan(values)).tolist():
            found = conditional(network, values, t, v)
            first = [
                next(leaf[3][0] for leaf in tree.leaves if leaf[:2] == (t, v)) for tree in trees
            ]
            expected = math.fsum(w * p for w, p in zip(own, first, strict=True)) / math.fsum(own)
            mixed = math.fsum(w * row[0] for w, row in zip(found.weights, found.rows, strict=True))
            np.testing.assert_allclose(mixed, expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("seed", range(40))
def test_conditional_is_the_share_of_the_completions(seed: int) -> None:
    network, arrays, _ = random_case(seed, kinds=("binary", "ternary"))
    for values in (values for values in arrays if len(values) <= 2):
        filled = [(own, likelihood(network, own)) for own in completions(network, values)]
        total = math.fsum(weight for _, weight in filled)
        for t, v in np.argwhere(np.isnan(values)).tolist():
            shares = [
                math.fsum(weight for own, weight in filled if own[t, v] == code) / total
                for code in range(network.schema[v].num_categories)
            ]
            found = conditional(network, values, t, v).probabilities()
            np.testing.assert_allclose(found, shares, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("seed", range(100))
def test_log_space_agrees_with_plain_numbers(seed: int) -> None:
    network, arrays, _ = random_case(seed)
    for values in arrays:
        reference = LogSpace(network, values)
        np.testing.assert_allclose(
            reference.log_likelihood, log_likelihood(network, values), rtol=1e-11, atol=1e-12
        )
        np.testing.assert_allclose(
            reference.best_completion,
            math.log(best_completion(network, values)),
            rtol=1e-11,
            atol=1e-12,
        )
        chosen, leaves = reference.posteriors
        np.testing.assert_allclose(
            chosen, interface_posteriors(network, values), rtol=1e-10, atol=1e-13
        )
        for t, v in np.argwhere(np.isnan(values)).tolist():
            weights, rows = reference.mixture(t, v, leaves)
            found = conditional(network, values, t, v)
            mixed = math.fsum(w * row[0] for w, row in zip(found.weights, found.rows, strict=True))
            np.testing.assert_allclose(weights @ rows[:, 0], mixed, rtol=1e-10, atol=1e-13)


def test_log_space_of_a_template_agrees_with_the_recursions_of_an_hmm() -> None:
    rng = np.random.default_rng(0)
    network = random_network(random_recipe(0, kinds=("ternary",)))
    start, transition = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), size=3)
    emissions = rng.dirichlet(np.full(3, 0.1), size=3)
    network = from_hmm(start, transition, {"x0": emissions}, schema=network.schema)
    codes = rng.integers(3, size=400)
    with np.errstate(divide="ignore"):
        expected = hmm_reference(start, transition, np.log(emissions)[:, codes].T)
    reference = LogSpace(network, codes[:, None].astype(float))
    np.testing.assert_allclose(reference.log_likelihood, expected.log_likelihood, rtol=1e-12)
    np.testing.assert_allclose(reference.best_completion, expected.viterbi, rtol=1e-12)
    np.testing.assert_allclose(reference.posteriors[0], expected.posteriors, rtol=1e-10, atol=1e-14)
