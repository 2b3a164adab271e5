"""The paper's networks: Figure 1 as sub-networks of a template, Figure 2a as the template."""

import math

import numpy as np
import pytest

from dspn.errors import StructureError
from dspn.structure import (
    DynamicNetwork,
    Interface,
    Leaf,
    NetworkBuilder,
    Product,
    Sum,
    assemble,
    factored,
    grouped_network,
    initial_network,
    mixture_top,
    naive_bayes,
    product_of_naive_bayes,
    univariate,
)
from oracles import likelihood
from strategies import schema_of

SCHEMA = schema_of(("binary", "ternary", "continuous", "count"))


def capped(builder: NetworkBuilder, output: int) -> DynamicNetwork:
    return assemble(builder.template([output]), mixture_top(SCHEMA, [1.0]))


@pytest.mark.parametrize("kind", ["factored", "naive Bayes", "product of naive Bayes"])
def test_basic_network_is_a_distribution_of_its_shape(kind: str) -> None:
    rng = np.random.default_rng(0)
    builder = NetworkBuilder(SCHEMA)
    past = Interface((builder.input(),))
    if kind == "factored":
        node = factored(builder, [0, 1, 2, 3, past], rng)
        expected = (1, 1, 4)
    elif kind == "naive Bayes":
        node = naive_bayes(builder, [0, 1, 2, 3, past], rng, num_classes=3)
        expected = (3, 1 + 3, 12)
    else:
        node = product_of_naive_bayes(builder, [[0, past], [1, 2], [3]], rng)
        expected = (1 + 2 + 2, 2 + 2, 2 + 4 + 1)
    network = capped(builder, node)
    nodes = network.template.nodes
    assert tuple(sum(isinstance(n, of) for n in nodes) for of in (Product, Sum, Leaf)) == expected
    np.testing.assert_allclose(likelihood(network, np.full((3, 4), np.nan)), 1.0, rtol=1e-12)


def test_univariate_network_is_a_leaf_or_a_sum_over_the_interface() -> None:
    rng = np.random.default_rng(0)
    builder = NetworkBuilder(SCHEMA)
    inputs = tuple(builder.inputs(3))
    over_variable, over_interface = (
        univariate(builder, 2, rng),
        univariate(builder, Interface(inputs), rng),
    )
    outputs = [builder.product([over_variable, over_interface]) for _ in inputs]
    nodes = builder.template(outputs)[0].nodes
    assert isinstance(nodes[over_variable], Leaf)
    assert nodes[over_interface] == Sum(inputs)


def test_figure_2a_has_one_factored_output_for_each_interface_node() -> None:
    network = initial_network(SCHEMA, 3, rng=np.random.default_rng(1))
    assert network.groups == ((0, 1, 2),)
    for output in network.template.outputs:
        node = network.template.nodes[output]
        assert isinstance(node, Product)
        below = [network.template.nodes[child] for child in node.children]
        assert sum(isinstance(child, Leaf) for child in below) == 4
        assert [child.children for child in below if isinstance(child, Sum)] == [
            network.template.inputs
        ]


def test_initial_network_is_the_same_for_the_same_seed() -> None:
    one, two = (initial_network(SCHEMA, 3, rng=np.random.default_rng(4)) for _ in range(2))
    assert one.template == two.template
    np.testing.assert_array_equal(one.parameters.template.weights, two.parameters.template.weights)


@pytest.mark.parametrize("root", ["first", "last"])
def test_grouped_network_keeps_groups_apart_until_the_top(root: str) -> None:
    network = grouped_network(
        SCHEMA, [[2, 0], [1, 3]], [2, 3], num_products=2, rng=np.random.default_rng(2), root=root
    )
    assert network.groups == ((0, 1), (2, 3, 4))
    assert network.group_sources == ((0,), (1,))
    assert isinstance(network.top.nodes[network.top.root], Sum)
    # With a single product at the top, the groups are independent.
    alone = grouped_network(
        SCHEMA, [[2, 0], [1, 3]], [2, 3], rng=np.random.default_rng(2), root=root
    )
    values = np.array([[0, 2, 0.3, 1], [1, 0, -0.2, 4], [1, 1, 1.0, 0]], dtype=float)
    left, right = values.copy(), values.copy()
    left[:, [1, 3]], right[:, [0, 2]] = np.nan, np.nan
    product = likelihood(alone, left) * likelihood(alone, right)
    assert math.isclose(likelihood(alone, values), product, rel_tol=1e-12)


@pytest.mark.parametrize(
    ("groups", "sizes", "products", "message"),
    [
        (
            [[0, 1], [2]],
            2,
            1,
            r"`groups`.*each of the 4 variables exactly once.*\[\(0, 1\), \(2,\)\]",
        ),
        ([[0, 1], [1, 2, 3]], 2, 1, "`groups`"),
        ([[0, 1], [2, 3]], [2], 1, "`num_interfaces`"),
        ([[0, 1], [2, 3]], [2, 0], 1, "`num_interfaces`"),
        ([[0, 1], [2, 3]], 2, 0, "`num_products`"),
    ],
)
def test_grouped_network_refuses(groups, sizes, products: int, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(StructureError, match=message):
        grouped_network(SCHEMA, groups, sizes, num_products=products, rng=np.random.default_rng(0))


@pytest.mark.parametrize("count", [0, -2])
def test_initial_network_refuses_no_interface(count: int) -> None:
    with pytest.raises(StructureError, match="`num_interfaces`"):
        initial_network(SCHEMA, count, rng=np.random.default_rng(0))


def test_indicator_has_all_its_mass_at_its_code() -> None:
    builder = NetworkBuilder(schema_of(("ternary",)))
    past = builder.input()
    network = assemble(
        builder.template([builder.product([builder.indicator("x0", 1), past])]),
        mixture_top(builder.schema, [1.0]),
    )
    assert [likelihood(network, np.array([[code]])) for code in (0.0, 1.0, 2.0)] == [0.0, 1.0, 0.0]
