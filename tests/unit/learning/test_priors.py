"""Pseudo-counts of edges and leaves, and the penalty that they are."""

import math

import numpy as np
import pytest

from dspn.errors import StructureError
from dspn.learning import NO_PRIORS, Priors, log_prior
from dspn.leaves import (
    Categorical,
    CategoricalPrior,
    Gaussian,
    GaussianPrior,
    Poisson,
    PoissonPrior,
)
from dspn.structure import DynamicNetwork, Leaf, Sum
from oracles import leaf_rows, sum_weights
from strategies import random_network, random_recipe


def test_family_takes_the_prior_of_its_type() -> None:
    own = GaussianPrior(mean=3.0)
    priors = Priors(leaves=(CategoricalPrior(2.0), own))
    assert priors.leaf(Categorical(3)) == CategoricalPrior(2.0)
    assert priors.leaf(Gaussian(5.0, 2.0)) is own


def test_family_without_a_prior_takes_its_default_at_its_own_scale() -> None:
    family = Gaussian(location=1e6, scale=10.0)
    assert Priors().leaf(family) == family.default_prior
    assert Priors(leaves=(CategoricalPrior(2.0),)).leaf(Poisson(7.0)) == PoissonPrior(rate=7.0)


def test_leaf_pseudo_count_changes_the_strength_of_defaults_alone() -> None:
    priors = Priors(leaves=(PoissonPrior(1.0, 5.0),), leaf_pseudo_count=0.0)
    assert priors.leaf(Poisson(7.0)) == PoissonPrior(1.0, 5.0)
    assert priors.leaf(Categorical(2)) == CategoricalPrior(0.0)
    floor = Gaussian(3.0, 2.0).default_prior.min_variance
    assert priors.leaf(Gaussian(3.0, 2.0)) == GaussianPrior(3.0, 4.0, 0.0, floor)


@pytest.mark.parametrize("bad", [-0.1, math.inf, math.nan, "1", None, True])
def test_sum_pseudo_count_that_is_no_count_is_refused(bad: object) -> None:
    with pytest.raises(StructureError, match=r"`sum_pseudo_count` of Priors must be a finite"):
        Priors(bad)  # type: ignore[arg-type]


def test_leaf_pseudo_count_that_is_no_count_is_refused() -> None:
    with pytest.raises(StructureError, match=r"`leaf_pseudo_count` of Priors must be a finite"):
        Priors(leaf_pseudo_count=-1.0)


def test_leaves_that_are_no_tuple_of_different_priors_are_refused() -> None:
    with pytest.raises(StructureError, match=r"at most one prior for each leaf family.*Catego"):
        Priors(leaves=(CategoricalPrior(), CategoricalPrior(2.0)))
    with pytest.raises(StructureError, match=r"tuple of leaf priors, but is a single Categorical"):
        Priors(leaves=CategoricalPrior())  # type: ignore[arg-type]
    with pytest.raises(StructureError, match=r"`leaves\[0\]` must be a Prior, found Categorical"):
        Priors(leaves=(Categorical(2),))  # type: ignore[arg-type]


def expected_log_prior(
    network: DynamicNetwork, priors: Priors, chosen: frozenset[int] | None
) -> float:
    """Node by node."""
    own, template = network.parameters, network.template
    total = 0.0
    for parameters in (own.template, own.bottom):
        if parameters is None:
            continue
        weights = sum_weights(template.nodes, parameters.weights)
        rows = leaf_rows(template, parameters)
        for index, node in enumerate(template.nodes):
            if chosen is not None and index not in chosen:
                continue
            if isinstance(node, Sum):
                total += priors.sum_pseudo_count * sum(math.log(w) for w in weights[index])
            elif isinstance(node, Leaf):
                total += node.family.log_prior(rows[index][None, :], priors.leaf(node.family))
    if chosen is None:
        for weights in sum_weights(network.top.nodes, own.top.weights).values():
            total += priors.sum_pseudo_count * sum(math.log(w) for w in weights)
    return total


@pytest.mark.parametrize("seed", range(20))
def test_log_prior_is_the_sum_over_template_bottom_and_top(seed: int) -> None:
    network = random_network(random_recipe(seed, zeros=0.0))
    priors = Priors(0.7, (PoissonPrior(2.0, 0.3),))
    chosen = frozenset(range(0, len(network.template.nodes), 2))
    for learnable in (None, chosen, frozenset()):
        expected = expected_log_prior(network, priors, learnable)
        found = log_prior(network, priors, learnable)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert log_prior(network, priors, frozenset()) == 0.0


def test_zero_weight_is_excluded_by_a_pseudo_count_alone() -> None:
    seed = next(
        seed
        for seed in range(100)
        if (random_network(random_recipe(seed, zeros=0.4)).parameters.template.weights == 0).any()
    )
    network = random_network(random_recipe(seed, zeros=0.4))
    assert log_prior(network, Priors()) == -math.inf
    assert log_prior(network, NO_PRIORS) == 0.0
