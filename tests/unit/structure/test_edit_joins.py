import math

import numpy as np
import pytest

from dspn.errors import StructureError
from dspn.leaves import Gaussian, Poisson
from dspn.sequences import Schema, Variable
from dspn.structure import (
    DynamicNetwork,
    Input,
    Leaf,
    Mixture,
    NetworkBuilder,
    Product,
    Root,
    Sum,
    assemble,
    grouped_network,
    initial_network,
    mixture_top,
    side_by_side,
    united,
)
from oracles import likelihood, log_likelihood

ONE = Schema((Variable.binary("a"),))
TWO = Schema((Variable.continuous("b"), Variable.count("c")))
ALL = Schema((Variable.continuous("b"), Variable.binary("a"), Variable.count("c")))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def initial(schema: Schema, size: int, seed: int = 0, root: str = "first") -> DynamicNetwork:
    return initial_network(schema, size, rng=rng(seed), root=root)


def of_family(mean: float, family: Gaussian) -> DynamicNetwork:
    builder = NetworkBuilder(Schema((Variable.continuous("b"),)))
    node = builder.input()
    leaf = builder.leaf("b", [mean, 2.0], family)
    output = builder.product([leaf, node])
    return assemble(builder.template([output]), mixture_top(builder.schema, [1.0]))


def test_one_network_with_its_columns_in_order_is_itself() -> None:
    network = initial(ALL, 3)
    assert side_by_side(ALL, [network], [[0, 1, 2]]) is network
    assert united([network], [1.0]) is network


def test_one_network_with_its_columns_in_another_order_is_over_the_other_schema() -> None:
    network = initial(ALL, 3)
    turned = Schema((ALL[2], ALL[0], ALL[1]))
    found = side_by_side(turned, [network], [[1, 2, 0]])
    values = np.array([[0.3, 1.0, 2.0], [np.nan, 0.0, 1.0]])
    assert found.schema == turned
    assert log_likelihood(found, values[:, [2, 0, 1]]) == pytest.approx(
        log_likelihood(network, values), rel=1e-12
    )


def test_columns_may_interleave() -> None:
    left, right = initial(ONE, 2), initial(TWO, 3, seed=1)
    found = side_by_side(ALL, [left, right], [[1], [0, 2]])
    assert found.groups == ((0, 1), (2, 3, 4))
    for length in (1, 2, 4):
        values = np.stack(
            [rng(length).normal(size=length), np.arange(length) % 2, np.full(length, 2.0)], axis=1
        )
        expected = log_likelihood(left, values[:, [1]]) + log_likelihood(right, values[:, [0, 2]])
        assert log_likelihood(found, values) == pytest.approx(expected, rel=1e-12)


def test_top_of_nested_products_is_one_product() -> None:
    variables = tuple(Variable.binary(f"x{i}") for i in range(4))
    parts = [initial(Schema((variable,)), 2, seed) for seed, variable in enumerate(variables)]
    pairs = [
        side_by_side(Schema(variables[:2]), parts[:2], [[0], [1]]),
        side_by_side(Schema(variables[2:]), parts[2:], [[0], [1]]),
    ]
    found = side_by_side(Schema(variables), pairs, [[0, 1], [2, 3]])
    products = [node for node in found.top.nodes if isinstance(node, Product)]
    assert len(products) == 1
    assert len(products[0].children) == 4
    assert len(found.groups) == 4


@pytest.mark.parametrize("join", ["side by side", "united"])
def test_tied_bottom_beside_an_untied_one_repeats_its_template(join: str) -> None:
    schema, columns = (ALL, [[1], [0, 2]]) if join == "side by side" else (ONE, None)
    tied = initial(ONE, 2)
    drawn = initial(TWO if columns else ONE, 2, seed=1)
    own = initial(TWO if columns else ONE, 2, seed=2).parameters.template
    untied = assemble(
        (drawn.template, drawn.parameters.template),
        (drawn.top, drawn.parameters.top),
        bottom=own,
    )
    networks = [tied, untied]
    found = side_by_side(schema, networks, columns) if columns else united(networks, [0.3, 0.7])
    assert not found.parameters.tied
    assert not united([untied, untied], [0.5, 0.5]).parameters.tied
    values = np.array([[0.3, 1.0, 2.0], [np.nan, 0.0, 1.0]])
    for data in (values, values[:1]):
        if columns:
            expected = likelihood(tied, data[:, [1]]) * likelihood(untied, data[:, [0, 2]])
        else:
            data = data[:, [1]]
            expected = 0.3 * likelihood(tied, data) + 0.7 * likelihood(untied, data)
        assert likelihood(found, data) == pytest.approx(expected, rel=1e-12)


def test_root_of_a_union_of_root_sums_is_one_sum_over_all_interface_nodes() -> None:
    networks = [initial(ALL, size, size) for size in (2, 3)]
    found = united(networks, [0.25, 0.75])
    root = found.top.nodes[found.top.root]
    assert isinstance(root, Sum)
    assert [found.top.nodes[child] for child in root.children] == [Input(i) for i in range(5)]
    assert len(found.top.nodes) == 6
    expected = [
        w * own.parameters.top.weights for w, own in zip([0.25, 0.75], networks, strict=True)
    ]
    np.testing.assert_allclose(found.parameters.top.weights, np.concatenate(expected), rtol=1e-12)
    assert found.groups == ((0, 1, 2, 3, 4),)


def test_network_of_weight_zero_is_left_out_of_a_union() -> None:
    networks = [initial(ALL, size, size) for size in (2, 3, 1)]
    assert united(networks, [0.0, 1.0, 0.0]) is networks[1]
    found = united(networks, [0.4, 0.0, 0.6])
    assert found.num_interfaces == 3


def test_families_that_differ_in_reference_become_those_of_the_first() -> None:
    first, second = Gaussian(location=3.0, scale=2.0), Gaussian(location=-50.0, scale=9.0)
    networks = [of_family(1.0, first), of_family(-40.0, second)]
    found = united(networks, [0.5, 0.5])
    assert {node.family for node in found.template.nodes if isinstance(node, Leaf)} == {first}
    values = np.array([[1.5], [-41.0]])
    expected = 0.5 * (likelihood(networks[0], values) + likelihood(networks[1], values))
    assert likelihood(found, values) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("one", "other", "rows", "values"),
    [
        (Gaussian(), Gaussian(location=70.0, scale=0.01), [[1.0, 2.0]], [0.5, math.nan, -3.0]),
        (Poisson(), Poisson(reference_rate=300.0), [[0.0], [2.5]], [0.0, 4.0, math.nan]),
    ],
)
def test_leaf_parameters_mean_the_same_under_any_reference(one, other, rows, values) -> None:  # type: ignore[no-untyped-def]
    found = [family.log_prob(np.array(rows), np.array(values)) for family in (one, other)]
    np.testing.assert_array_equal(found[0], found[1])


def test_union_agrees_with_the_mixture_of_the_same_networks() -> None:
    networks = [initial(ALL, size, size, root="last") for size in (1, 4)]
    found, mixture = united(networks, [0.9, 0.1]), Mixture(tuple(networks), np.array([0.9, 0.1]))
    assert found.root == Root.LAST
    values = np.array([[0.3, 1.0, 2.0], [np.nan, 0.0, 1.0], [np.nan] * 3])
    expected = sum(
        w * likelihood(own, values) for w, own in zip(mixture.weights, mixture, strict=True)
    )
    assert likelihood(found, values) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("networks", "columns", "message"),
    [
        ([], [], "at least one DynamicNetwork"),
        (initial(ALL, 2), [[0, 1, 2]], "list of DynamicNetwork"),
        ([3], [[0]], r"`networks\[0\]` must be a DynamicNetwork"),
        ([initial(ONE, 2), initial(TWO, 2)], [[0, 1, 2]], "one list of variable numbers"),
        ([initial(ONE, 2), initial(TWO, 2)], 3, "list of lists of variables"),
        ([initial(ONE, 2), initial(TWO, 2)], [["a"], [0, 2]], "`columns` must be a list of lists"),
        ([initial(ONE, 2), initial(TWO, 2)], [[1], [0, 1]], "exactly once"),
        ([initial(ONE, 2), initial(TWO, 2)], [[1], [0]], "exactly once"),
        ([initial(ONE, 2), initial(TWO, 2)], [[-2], [0, 2]], "exactly once"),
        ([initial(ONE, 2), initial(TWO, 2)], [[0], [1, 2]], r"networks\[0\] must be over .* b, "),
        ([initial(ONE, 2), initial(TWO, 2)], [[1], [2, 0]], r"networks\[1\] must be over .* c, b"),
        ([initial(ONE, 2), initial(TWO, 2, 0, "last")], [[1], [0, 2]], "share one root"),
    ],
)
def test_networks_that_cannot_stand_side_by_side_are_refused(
    networks: object, columns: object, message: str
) -> None:
    with pytest.raises(StructureError, match=message):
        side_by_side(ALL, networks, columns)  # type: ignore[arg-type]


def test_schema_of_another_type_is_refused() -> None:
    with pytest.raises(StructureError, match="`schema` must be a Schema"):
        side_by_side(["a"], [initial(ONE, 2)], [[0]])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("networks", "weights", "message"),
    [
        ([], [], "at least one DynamicNetwork"),
        ([initial(ONE, 2)] * 2, [1.0], "one number for each of the 2 networks"),
        ([initial(ONE, 2)] * 2, [0.5, 0.6], "`weights` must hold a distribution"),
        ([initial(ONE, 2)] * 2, [1.5, -0.5], "`weights` must hold a distribution"),
        ([initial(ONE, 2), initial(TWO, 2)], [0.5, 0.5], "share one schema"),
        ([initial(ONE, 2), initial(ONE, 2, 0, "last")], [0.5, 0.5], "share one root"),
        (
            [initial(TWO, 2), grouped_network(TWO, [[0], [1]], 2, rng=rng())],
            [0.5, 0.5],
            r"single interface group, but networks\[1\] has 2",
        ),
    ],
)
def test_networks_that_cannot_be_united_are_refused(
    networks: list[DynamicNetwork], weights: list[float], message: str
) -> None:
    with pytest.raises(StructureError, match=message):
        united(networks, weights)
