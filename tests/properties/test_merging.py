"""Merges on random templates: valid, and the distribution that the rule says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dspn.engine import compile_program
from dspn.learning.moves import merged_interfaces, similar_interfaces
from dspn.learning.starts import interface_use, split_interfaces
from dspn.structure import (
    DynamicNetwork,
    NetworkParameters,
    Parameters,
    Sum,
    Template,
    violations,
)
from oracles import log_likelihood, slice_by_slice
from strategies import as_sequences, networks_with_evidence, random_case

Floats = NDArray[np.float64]


def pairs_of(network: DynamicNetwork, seed: int) -> list[tuple[int, int]]:
    """Disjoint pairs of one group each, in random order."""
    rng = np.random.default_rng([5, seed])
    found = []
    for group in network.groups:
        order = rng.permutation(group).tolist()
        found.extend(zip(order[::2], order[1::2], strict=False))
    return found[: 1 + seed % 3]


def standing_for(network: DynamicNetwork, pairs: list[tuple[int, int]]) -> DynamicNetwork:
    """The network in which output b is a sum of one edge, that to output a."""
    template = network.template
    outputs = list(template.outputs)
    nodes = list(template.nodes)
    for kept, removed in pairs:
        outputs[removed] = len(nodes)
        nodes.append(Sum((template.outputs[kept],)))

    def extended(own: NetworkParameters) -> NetworkParameters:
        return NetworkParameters(np.append(own.weights, np.ones(len(pairs))), own.leaves)

    old = network.parameters
    bottom = None if old.bottom is None else extended(old.bottom)
    return DynamicNetwork(
        Template(network.schema, tuple(nodes), tuple(outputs)),
        network.top,
        Parameters(extended(old.template), old.top, bottom),
        network.root,
    )


def first_only(network: DynamicNetwork, pairs: list[tuple[int, int]]) -> Floats:
    """Weights of use by which the first of each pair keeps its parameters."""
    use = np.ones(network.num_interfaces)
    use[[removed for _, removed in pairs]] = 0.0
    return use


def check_merged(network: DynamicNetwork, arrays: list[Floats], seed: int) -> None:
    pairs = pairs_of(network, seed)
    merged = merged_interfaces(network, pairs, weights=first_only(network, pairs))
    assert not violations(merged.template, merged.top)
    assert merged.num_interfaces == network.num_interfaces - len(pairs)
    assert len(merged.groups) == len(network.groups)
    assert merged.parameters.tied == network.parameters.tied
    same = standing_for(network, pairs)
    for values in arrays:
        np.testing.assert_allclose(
            slice_by_slice(merged, values), slice_by_slice(same, values), rtol=1e-11
        )


@pytest.mark.parametrize("seed", range(60))
def test_kept_node_stands_for_the_removed_one(seed: int) -> None:
    network, arrays, _ = random_case(seed)
    check_merged(network, arrays, seed)


@given(networks_with_evidence(), st.integers(0, 1000))
@settings(max_examples=40)
def test_merge_of_any_recipe_is_valid(case: tuple[DynamicNetwork, list[Floats]], seed: int) -> None:
    network, arrays = case
    check_merged(network, arrays, seed)
    merged = merged_interfaces(network, pairs_of(network, seed))
    nothing = as_sequences(network.schema, [np.full_like(values, np.nan) for values in arrays])
    np.testing.assert_allclose(compile_program(merged).log_likelihood(nothing), 0.0, atol=1e-9)


@pytest.mark.parametrize("seed", range(80))
def test_merging_the_halves_of_a_split_gives_the_distribution_back(seed: int) -> None:
    network, arrays, data = random_case(seed)
    rng = np.random.default_rng(seed)
    size = network.num_interfaces
    chosen = rng.choice(size, size=int(rng.integers(1, size + 1)), replace=False).tolist()
    split = split_interfaces(network, chosen, rng, noise=0.0)
    pairs = [(position, size + number) for number, position in enumerate(chosen)]
    if seed % 2:
        pairs = [(b, a) for a, b in pairs]
    weights = rng.uniform(0.0, 2.0, split.num_interfaces)
    back = merged_interfaces(split, pairs, weights=weights)
    assert back.num_interfaces == size
    expected = compile_program(network).log_likelihood(data)
    found = compile_program(back).log_likelihood(data)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
    if seed < 20:
        exact = [log_likelihood(back, values) for values in arrays]
        np.testing.assert_allclose(exact, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_similar_interfaces_of_any_template_are_disjoint_pairs_of_one_group(seed: int) -> None:
    network, _, data = random_case(seed)
    program = compile_program(network)
    found = similar_interfaces(network, program.expected_flows(data).flows, 3)
    flat = [position for pair in found.pairs for position in pair]
    assert len(found.pairs) == len(found.losses) <= 3
    assert len(flat) == len(set(flat))
    assert list(found.losses) == sorted(found.losses)
    assert all(loss >= 0 for loss in found.losses)
    assert all(any({a, b} <= set(group) for group in network.groups) for a, b in found.pairs)
    merged = merged_interfaces(network, found.pairs, weights=interface_use(program, data))
    assert not violations(merged.template, merged.top)
