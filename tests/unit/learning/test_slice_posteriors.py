"""Posteriors of products and interfaces at every slice, against enumeration."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from dspn.data import Sequences
from dspn.engine import compile_program
from dspn.learning.dependence import independent_subsets
from dspn.learning.search import SlicePosteriors, product_nodes, replace_product, scope_items
from dspn.structure import (
    DynamicNetwork,
    Input,
    Leaf,
    NetworkBuilder,
    Product,
    Sum,
    assemble,
    grouped_network,
    mixture_top,
)
from oracles import density, interface_posteriors, leaf_rows, stack_order, sum_weights
from strategies import as_sequences, random_case, schema_of, with_own_bottom

Floats = NDArray[np.float64]
MIXED = schema_of(("binary", "ternary", "continuous", "count"))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def value_without(network: DynamicNetwork, values: Floats, dead: tuple[int, int] | None) -> float:
    """P(values), with the product `dead` = (slice, node) at zero."""
    template, parameters = network.template, network.parameters
    below: list[float] = []
    for height, t in enumerate(stack_order(network, len(values))):
        own = parameters.bottom if height == 0 and parameters.bottom else parameters.template
        weights, rows = sum_weights(template.nodes, own.weights), leaf_rows(template, own)
        found = [math.nan] * len(template.nodes)
        for index in template.order:
            node = template.nodes[index]
            if (t, index) == dead:
                found[index] = 0.0
            elif isinstance(node, Input):
                found[index] = below[node.position] if height else 1.0
            elif isinstance(node, Leaf):
                row = rows[index].tolist()
                found[index] = density(node.family, row, float(values[t, node.variable]))
            elif isinstance(node, Product):
                found[index] = math.prod(found[child] for child in node.children)
            else:
                terms = zip(weights[index], node.children, strict=True)
                found[index] = math.fsum(w * found[c] for w, c in terms)
        below = [found[output] for output in template.outputs]
    top, weights = network.top, sum_weights(network.top.nodes, parameters.top.weights)
    found = [math.nan] * len(top.nodes)
    for index in top.order:
        node = top.nodes[index]
        if isinstance(node, Input):
            found[index] = below[node.position]
        elif isinstance(node, Product):
            found[index] = math.prod(found[child] for child in node.children)
        else:
            assert isinstance(node, Sum)
            terms = zip(weights[index], node.children, strict=True)
            found[index] = math.fsum(w * found[c] for w, c in terms)
    return found[top.root]


def exact_posterior(network: DynamicNetwork, values: Floats, node: int) -> Floats:
    """P(product on the induced tree at each slice | values): what is lost when it is zero."""
    total = value_without(network, values, None)
    lost = [value_without(network, values, (t, node)) for t in range(len(values))]
    return 1.0 - np.array(lost) / total


@pytest.mark.parametrize("root", ["first", "last"])
@pytest.mark.parametrize("groups", [[[0, 1, 2, 3]], [[0, 2], [1, 3]]])
def test_posterior_of_a_product_of_the_search_is_exact(root: str, groups: list[list[int]]) -> None:
    draw = rng(9)
    network = with_own_bottom(grouped_network(MIXED, groups, 2, rng=draw, root=root), rng(99))
    arrays = [draw.integers(2, size=(length, 4)) * 1.0 for length in (1, 2, 4)]
    arrays[2][1] = np.nan
    arrays[1][0, 2] = np.nan
    data = as_sequences(MIXED, arrays)
    for _ in range(4):
        node = int(draw.choice(product_nodes(network.template)))
        items = scope_items(network, node)
        network = replace_product(network, node, [items[:1], items[1:]], draw).network
    posteriors = SlicePosteriors(compile_program(network), data)
    for node in product_nodes(network.template):
        expected = np.concatenate([exact_posterior(network, own, node) for own in arrays])
        np.testing.assert_allclose(posteriors.product(node), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(24))
def test_posterior_of_any_product_is_exact_or_an_upper_bound(seed: int) -> None:
    network, arrays, data = random_case(seed, zeros=0.0)
    posteriors = SlicePosteriors(compile_program(network), data)
    for node in product_nodes(network.template):
        found = posteriors.product(node)
        expected = np.concatenate([exact_posterior(network, own, node) for own in arrays])
        assert np.all(found >= expected - 1e-9)
        assert np.all(found <= 1.0 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_posterior_of_inputs_is_that_of_the_slice_below(seed: int) -> None:
    network, arrays, data = random_case(seed)
    posteriors = SlicePosteriors(compile_program(network), data)
    for number, group in enumerate(network.groups):
        expected = []
        for values in arrays:
            own = interface_posteriors(network, values)[:, list(group)]
            nothing = np.full((1, len(group)), np.nan)
            moved = [own[1:], nothing] if network.root == "first" else [nothing, own[:-1]]
            expected.extend(moved)
        np.testing.assert_allclose(
            posteriors.below(number), np.concatenate(expected), rtol=1e-9, atol=1e-12
        )


def test_interface_is_dependent_on_the_variable_that_it_carries() -> None:
    draw = rng(12)
    bits = np.repeat(draw.integers(2, size=(400, 1)), 8, axis=1).ravel()
    values = np.stack([bits, draw.integers(2, size=bits.size)], axis=1) * 1.0
    schema = schema_of(("binary", "binary"))
    data = Sequences.from_codes(values, np.arange(0, bits.size + 1, 8), schema)
    builder = NetworkBuilder(schema)
    inputs = builder.inputs(2)
    outputs = [
        builder.product(
            [builder.leaf(0, row), builder.leaf(1, [0.5, 0.5]), builder.sum(inputs, [0.5, 0.5])]
        )
        for row in ([0.9, 0.1], [0.1, 0.9])
    ]
    network = assemble(builder.template(outputs), mixture_top(schema, [0.5, 0.5]))
    posteriors = SlicePosteriors(compile_program(network), data)
    weights = np.ones(len(values))
    columns = [posteriors.column(number, weights) for number in range(3)]
    assert independent_subsets(columns, weights) == [[0, 2], [1]]
