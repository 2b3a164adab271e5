import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspn.errors import StructureError
from dspn.structure import Leaf, Product, Sum, unroll
from oracles import completions, evaluate, leaf_values, likelihood, slice_by_slice
from strategies import Recipe, draw_sequence, hide, random_network, random_recipe, recipes


def children(node: object) -> tuple[int, ...]:
    return node.children if isinstance(node, Sum | Product) else ()


@pytest.mark.parametrize("seed", range(300))
def test_static_network_has_the_value_of_the_stack(seed: int) -> None:
    network = random_network(seed)
    rng = np.random.default_rng(seed)
    for num_slices in (1, 2, 3 + seed % 3):
        values = hide(draw_sequence(network, num_slices, rng), rng)
        static = unroll(network, num_slices)
        value = evaluate(static, leaf_values(static, values))
        assert value > 0
        np.testing.assert_allclose(value, slice_by_slice(network, values), rtol=1e-12)
        # Removing what has no leaf below it is the same as setting every input of the bottom to 1.
        literal = slice_by_slice(network, values, inputs_of_bottom=1.0)
        np.testing.assert_allclose(value, literal, rtol=1e-12)


@given(recipes(), st.integers(1, 6), st.integers(0, 1000))
def test_static_network_is_well_formed(recipe: Recipe, num_slices: int, seed: int) -> None:
    network = random_network(recipe)
    static = unroll(network, num_slices)
    assert (static.num_slices, static.num_variables) == (num_slices, len(network.schema))
    assert len(static.nodes) == len(static.weights) == len(static.leaf_parameters)
    for index, node in enumerate(static.nodes):
        assert all(child < index for child in children(node))
        assert (static.weights[index] is not None) == isinstance(node, Sum)
        assert (static.leaf_parameters[index] is not None) == isinstance(node, Leaf)
        if isinstance(node, Sum):
            np.testing.assert_allclose(static.weights[index].sum(), 1.0, rtol=1e-9)  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(40))
def test_value_with_everything_missing_is_one(seed: int) -> None:
    network = random_network(seed)
    values = np.full((1 + seed % 5, len(network.schema)), np.nan)
    np.testing.assert_allclose(likelihood(network, values), 1.0, rtol=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_missing_entries_are_summed_out(seed: int) -> None:
    kinds = ("binary", "ternary")[: 1 + seed % 2]
    network = random_network(random_recipe(seed, kinds=kinds))
    rng = np.random.default_rng(seed)
    values = hide(draw_sequence(network, 1 + seed % 3, rng), rng, 0.6)
    total = math.fsum(likelihood(network, filled) for filled in completions(network, values))
    np.testing.assert_allclose(total, likelihood(network, values), rtol=1e-12)


def test_root_first_puts_the_bottom_at_the_last_slice() -> None:
    network = random_network(random_recipe(5, kinds=("binary", "binary"), root="first", tied=False))
    static = unroll(network, 3)
    n = len(network.schema)
    bottom_leaf = next(node for node in static.nodes if isinstance(node, Leaf))
    assert bottom_leaf.variable // n == 2
    paper = unroll(
        random_network(random_recipe(5, kinds=("binary", "binary"), root="last", tied=False)), 3
    )
    first_leaf = next(node for node in paper.nodes if isinstance(node, Leaf))
    assert first_leaf.variable // n == 0


@pytest.mark.parametrize("seed", range(30))
def test_placements_of_the_root_read_the_same_network_from_opposite_ends(seed: int) -> None:
    first = random_network(random_recipe(seed, root="first"))
    last = random_network(random_recipe(seed, root="last"))
    values = draw_sequence(first, 4, np.random.default_rng(seed))
    np.testing.assert_allclose(
        likelihood(first, values), likelihood(last, values[::-1]), rtol=1e-12
    )


@pytest.mark.parametrize("num_slices", [0, -1])
def test_unroll_refuses_fewer_slices_than_one(num_slices: int) -> None:
    with pytest.raises(StructureError, match=f"`num_slices`.*at least 1.*{num_slices}"):
        unroll(random_network(0), num_slices)
