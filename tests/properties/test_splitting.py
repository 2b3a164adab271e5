"""Splits of random templates: always valid, and without noise the same distribution."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspn.engine import compile_program
from dspn.learning.starts import informed_split, interface_use, split_interface, split_interfaces
from dspn.learning.starts._doubling import doubled_template
from dspn.structure import DynamicNetwork, Leaf, NetworkParameters, Sum, violations
from oracles import interface_posteriors, log_likelihood
from strategies import as_sequences, networks_with_evidence, random_case


def some_positions(network: DynamicNetwork, seed: int) -> list[int]:
    rng = np.random.default_rng([3, seed])
    size = network.num_interfaces
    chosen = rng.choice(size, size=int(rng.integers(1, size + 1)), replace=False)
    return [int(position) for position in chosen]


def group_of(network: DynamicNetwork, position: int) -> tuple[int, ...]:
    return next(group for group in network.groups if position in group)


@pytest.mark.parametrize("seed", range(150))
def test_split_without_noise_is_the_same_distribution(seed: int) -> None:
    network, arrays, data = random_case(seed)
    positions = some_positions(network, seed)
    split = split_interfaces(network, positions, np.random.default_rng(seed), noise=0.0)
    before = compile_program(network).log_likelihood(data)
    after = compile_program(split).log_likelihood(data)
    np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-12)
    if seed < 40:
        expected = [log_likelihood(split, values) for values in arrays]
        np.testing.assert_allclose(before, expected, rtol=1e-10, atol=1e-12)


@given(networks_with_evidence(), st.integers(0, 10_000))
@settings(max_examples=60)
def test_split_of_any_recipe_is_the_same_distribution(case, seed: int) -> None:  # type: ignore[no-untyped-def]
    network, arrays = case
    data = as_sequences(network.schema, arrays)
    position = seed % network.num_interfaces
    split = split_interface(network, position, np.random.default_rng(seed), noise=0.0)
    before = compile_program(network).log_likelihood(data)
    np.testing.assert_allclose(
        compile_program(split).log_likelihood(data), before, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("seed", range(100))
def test_split_with_noise_is_valid_and_normalised(seed: int) -> None:
    network, _, data = random_case(seed)
    positions = some_positions(network, seed)
    noise = [0.01, 0.1, 0.5, 1.0][seed % 4]
    split = split_interfaces(network, positions, np.random.default_rng(seed), noise)
    size = network.num_interfaces
    assert not violations(split.template, split.top)
    assert split.num_interfaces == size + len(positions)
    assert split.root == network.root
    assert split.parameters.tied == network.parameters.tied
    for number, position in enumerate(positions):
        assert size + number in group_of(split, position)
    assert len(split.groups) == len(network.groups)
    nothing = data.with_values(np.full_like(data.values, np.nan))
    np.testing.assert_allclose(compile_program(split).log_likelihood(nothing), 0.0, atol=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_split_keeps_old_nodes_and_what_it_does_not_touch(seed: int) -> None:
    network, _, _ = random_case(seed)
    positions = some_positions(network, seed)
    split = split_interfaces(network, positions, np.random.default_rng(seed), noise=0.3)
    old, new = network.template, split.template
    assert new.outputs[: len(old.outputs)] == old.outputs
    touched = {old.inputs[position] for position in positions}
    pairs = [(network.parameters.template, split.parameters.template)]
    if network.parameters.bottom is not None and split.parameters.bottom is not None:
        pairs.append((network.parameters.bottom, split.parameters.bottom))
    for before, after in pairs:
        for index, node in enumerate(old.nodes):
            assert type(new.nodes[index]) is type(node)
            if isinstance(node, Sum) and touched.isdisjoint(node.children):
                one = before.weights[old.edge_offsets[index] :][: len(node.children)]
                other = after.weights[new.edge_offsets[index] :][: len(node.children)]
                np.testing.assert_array_equal(one, other)
        for bank, mine, theirs in zip(old.banks, before.leaves, after.leaves, strict=True):
            np.testing.assert_array_equal(theirs[: len(bank.nodes)], mine)


@pytest.mark.parametrize("seed", range(40))
def test_old_half_of_a_shared_weight_and_its_twin_add_up(seed: int) -> None:
    network, _, _ = random_case(seed)
    positions = some_positions(network, seed)
    split = split_interfaces(network, positions, np.random.default_rng(seed), noise=0.5)
    _, doubled = doubled_template(network.template, positions)
    weights, edges = split.parameters.template.weights, doubled.edges
    shared = (edges.pair >= 0) & ~edges.copied & (edges.source >= 0)
    total = np.bincount(edges.pair[shared], weights[shared])
    old = np.zeros_like(total)
    old[edges.pair[shared]] = network.parameters.template.weights[edges.source[shared]]
    np.testing.assert_allclose(total, old, rtol=1e-12)


def test_repeated_splits_keep_the_distribution() -> None:
    network, _, data = random_case(5, kinds=("binary", "ternary", "count"), num_groups=2)
    rng = np.random.default_rng(0)
    before = compile_program(network).log_likelihood(data)
    for _ in range(6):
        position = int(rng.integers(network.num_interfaces))
        network = split_interface(network, position, rng, noise=0.0)
    np.testing.assert_allclose(compile_program(network).log_likelihood(data), before, rtol=1e-12)


@pytest.mark.parametrize("seed", range(100))
def test_interface_use_agrees_with_enumeration(seed: int) -> None:
    network, arrays, data = random_case(seed)
    posteriors = [interface_posteriors(network, values) for values in arrays]
    weights = np.random.default_rng(seed).uniform(0.0, 3.0, len(arrays))
    expected = sum(own.sum(axis=0) for own in posteriors)
    weighted = sum(w * own.sum(axis=0) for w, own in zip(weights, posteriors, strict=True))
    program = compile_program(network)
    np.testing.assert_allclose(interface_use(program, data), expected, rtol=1e-9, atol=1e-12)
    found = interface_use(program, data, weights)
    np.testing.assert_allclose(found, weighted, rtol=1e-9, atol=1e-12)


def parts(network: DynamicNetwork) -> list[NetworkParameters]:
    own = network.parameters
    return [own.template] if own.bottom is None else [own.template, own.bottom]


@pytest.mark.parametrize("seed", range(60))
def test_informed_split_is_valid_for_any_template(seed: int) -> None:
    network, _, data = random_case(seed)
    count = 1 + seed % network.num_interfaces
    split = informed_split(network, data, count, rng=np.random.default_rng(seed))
    assert split.num_interfaces == network.num_interfaces + count
    assert split.schema == network.schema
    assert len(split.groups) == len(network.groups)
    assert not violations(split.template, split.top)
    leaves = sum(isinstance(node, Leaf) for node in split.template.nodes)
    for own in parts(split):
        assert sum(len(rows) for rows in own.leaves) == leaves
    # Priors are positive, so nothing that was possible is ruled out.
    assert np.isfinite(compile_program(split).log_likelihood(data)).all()
