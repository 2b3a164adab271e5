"""Neighbours upon neighbours: each is valid, with the same scopes, and all else is kept."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dspn.data import Sequences
from dspn.engine import compile_program
from dspn.learning.partitions import PartitionOptions, Positions, blocks, random_string
from dspn.learning.search import (
    Neighbour,
    SlicePosteriors,
    product_nodes,
    propose,
    replace_product,
    scope_items,
)
from dspn.structure import (
    DynamicNetwork,
    Input,
    Leaf,
    NetworkParameters,
    Product,
    Sum,
    grouped_network,
    violations,
)
from oracles import leaf_rows, likelihood, sum_weights
from strategies import (
    arbitrary_sequence,
    as_sequences,
    hide,
    random_evidence,
    random_network,
    random_recipe,
    recipes,
    schema_of,
    with_own_bottom,
)

Floats = NDArray[np.float64]


def scope(network: DynamicNetwork, node: int) -> frozenset[object]:
    """Variables and groups below a node."""
    group_of = {position: group for group in network.groups for position in group}
    own = network.template.nodes[node]
    if isinstance(own, Leaf):
        return frozenset([own.variable])
    if isinstance(own, Input):
        return frozenset([group_of[own.position]])
    return frozenset().union(*(scope(network, child) for child in own.children))


def numbers_of(network: DynamicNetwork, parameters: NetworkParameters) -> dict[int, bytes]:
    """Weights of the sums and parameters of the leaves, bit for bit."""
    weights = sum_weights(network.template.nodes, parameters.weights)
    found = {index: np.array(row).tobytes() for index, row in weights.items()}
    rows = leaf_rows(network.template, parameters)
    return found | {index: row.tobytes() for index, row in rows.items()}


def assert_all_but_the_product_is_kept(before: DynamicNetwork, node: int, found: Neighbour) -> None:
    """Walks both networks from their outputs and stops at the product that was replaced."""
    after = found.network
    same = {node: found.node}
    waiting = list(zip(before.template.outputs, after.template.outputs, strict=True))
    while waiting:
        old, new = waiting.pop()
        if old in same:
            assert same[old] == new
            continue
        same[old] = new
        one, other = before.template.nodes[old], after.template.nodes[new]
        assert type(one) is type(other)
        if isinstance(one, Sum | Product):
            assert isinstance(other, Sum | Product)
            waiting.extend(zip(one.children, other.children, strict=True))
        else:
            assert one == other
    same |= dict(zip(before.template.inputs, after.template.inputs, strict=True))
    assert len(set(same.values())) == len(same)
    pairs = [(before.parameters.template, after.parameters.template)]
    assert before.parameters.tied == after.parameters.tied
    if before.parameters.bottom is not None and after.parameters.bottom is not None:
        pairs.append((before.parameters.bottom, after.parameters.bottom))
    for old_parameters, new_parameters in pairs:
        old_numbers = numbers_of(before, old_parameters)
        new_numbers = numbers_of(after, new_parameters)
        for old, new in same.items():
            assert old_numbers.get(old) == new_numbers.get(new)
    assert before.top == after.top
    np.testing.assert_array_equal(before.parameters.top.weights, after.parameters.top.weights)
    assert before.root == after.root
    every = set(range(len(after.template.nodes)))
    fresh = every - set(same.values())
    assert found.new_nodes == {
        index for index in fresh if not isinstance(after.template.nodes[index], Product)
    }


def assert_is_neighbour(before: DynamicNetwork, node: int, found: Neighbour) -> None:
    after = found.network
    assert violations(after.template, after.top) == ()
    assert after.groups == before.groups
    assert scope(after, found.node) == scope(before, node)
    for old, new in zip(before.template.outputs, after.template.outputs, strict=True):
        assert scope(after, new) == scope(before, old)
    assert_all_but_the_product_is_kept(before, node, found)


BITS = ("binary",) * 7
MIXED = ("binary", "ternary", "continuous", "count", "single")
STARTS = [
    (MIXED, [[0, 1, 2, 3, 4]], 3),
    (MIXED, [[0, 3], [1, 2, 4]], [2, 3]),
    (BITS, [list(range(7))], 4),
    (BITS, [[0, 1, 2], [3, 4], [5, 6]], [1, 2, 3]),
]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("start", range(len(STARTS)))
def test_eight_hundred_neighbours_in_a_row_are_valid(start: int, tied: bool) -> None:
    kinds, groups, sizes = STARTS[start]
    rng = np.random.default_rng([start, tied])
    schema = schema_of(kinds)
    network = grouped_network(
        schema, groups, sizes, num_products=2, rng=rng, root="first" if tied else "last"
    )
    network = network if tied else with_own_bottom(network, rng)
    arrays = [hide(arbitrary_sequence(schema, t, rng), rng, 0.1) for t in (1, 3, 9, 40)]
    data = as_sequences(schema, arrays)
    positions, options = Positions(), PartitionOptions(threshold=4)
    for _ in range(100):
        node = int(rng.choice(product_nodes(network.template)))
        posteriors = SlicePosteriors(compile_program(network), data)
        found = propose(posteriors, node, positions, options, rng)
        assert_is_neighbour(network, node, found.neighbour)
        network, positions = found.neighbour.network, found.positions
    values = compile_program(network).log_likelihood(data)
    expected = [likelihood(network, own) for own in arrays[:3]]
    np.testing.assert_allclose(np.exp(values[:3]), expected, rtol=1e-9)


def random_neighbour(
    network: DynamicNetwork, rng: np.random.Generator, values: Floats | None = None
) -> tuple[int, Neighbour]:
    node = int(rng.choice(product_nodes(network.template)))
    items = scope_items(network, node)
    partition = blocks(random_string(len(items), rng), items)
    return node, replace_product(network, node, partition, rng, values)


@given(recipes(), st.integers(0, 10_000))
def test_neighbours_of_any_template_are_valid(recipe: object, seed: int) -> None:
    network, rng = random_network(recipe), np.random.default_rng(seed)  # type: ignore[arg-type]
    for _ in range(3):
        if not product_nodes(network.template):
            return
        node, found = random_neighbour(network, rng)
        assert_is_neighbour(network, node, found)
        network = found.network


@pytest.mark.parametrize("seed", range(40))
def test_engine_evaluates_neighbours_as_their_unrolled_networks(seed: int) -> None:
    network, rng = random_network(seed), np.random.default_rng(seed)
    for _ in range(4):
        if product_nodes(network.template):
            network = random_neighbour(network, rng)[1].network
    arrays = random_evidence(network, rng)
    found = compile_program(network).log_likelihood(as_sequences(network.schema, arrays))
    expected = [likelihood(network, own) for own in arrays]
    np.testing.assert_allclose(np.exp(found), expected, rtol=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_probabilities_of_all_sequences_of_a_neighbour_add_up_to_one(seed: int) -> None:
    kinds = ("binary", "ternary") if seed % 2 else ("binary", "single", "binary")
    network = random_network(random_recipe(seed, kinds=kinds))
    rng = np.random.default_rng([seed, 1])
    for _ in range(3):
        if product_nodes(network.template):
            network = random_neighbour(network, rng)[1].network
    widths = [variable.num_categories for variable in network.schema]
    for num_slices in (1, 2):
        codes = list(product(*(range(width) for width in widths * num_slices)))
        values = np.array(codes, dtype=np.float64).reshape(-1, len(widths))
        offsets = np.arange(0, len(values) + 1, num_slices)
        data = Sequences.from_codes(values, offsets, network.schema)
        found = np.exp(compile_program(network).log_likelihood(data))
        np.testing.assert_allclose(found.sum(), 1.0, rtol=1e-10)
        np.testing.assert_allclose(
            found, [likelihood(network, own) for own in data], rtol=1e-10, atol=1e-15
        )
