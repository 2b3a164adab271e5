"""The move of Algorithm 2 in plain cases, and proposals from data."""

import numpy as np
import pytest
from numpy.typing import NDArray

from dspn.data import Schema, Sequences, Variable
from dspn.engine import compile_program
from dspn.errors import DataError, EvidenceError, StructureError
from dspn.learning import em_step
from dspn.learning.partitions import PartitionOptions, Positions
from dspn.learning.search import (
    Neighbour,
    SlicePosteriors,
    product_nodes,
    propose,
    replace_product,
    scope_items,
    scope_numbers,
)
from dspn.leaves import Gaussian
from dspn.structure import (
    DynamicNetwork,
    Input,
    Interface,
    Leaf,
    NetworkBuilder,
    Product,
    Sum,
    assemble,
    grouped_network,
    initial_network,
    mixture_top,
)
from oracles import leaf_rows, sum_weights
from strategies import (
    as_sequences,
    random_case,
    random_network,
    random_recipe,
    schema_of,
    with_own_bottom,
)

Floats = NDArray[np.float64]
MIXED = schema_of(("binary", "ternary", "continuous", "count"))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def first_product(network: DynamicNetwork) -> int:
    return network.template.outputs[0]


def shape_below(neighbour: Neighbour, node: int) -> object:
    """A sub-network as nested lists of items; the inputs of a group are one item."""
    nodes = neighbour.network.template.nodes
    own = nodes[node]
    if isinstance(own, Leaf):
        return own.variable
    assert isinstance(own, Sum | Product)
    if all(isinstance(nodes[child], Input) for child in own.children):
        return "inputs"
    name = "product" if isinstance(own, Product) else "sum"
    return (name, *(shape_below(neighbour, child) for child in own.children))


def test_scope_holds_variables_and_whole_interfaces() -> None:
    network = grouped_network(MIXED, [[0, 3], [1, 2]], [2, 3], rng=rng())
    inputs = network.template.inputs
    scopes = [scope_items(network, output) for output in network.template.outputs]
    assert scopes[:2] == [(0, 3, Interface(inputs[:2]))] * 2
    assert scopes[2:] == [(1, 2, Interface(inputs[2:]))] * 3
    assert scope_numbers(network, network.template.outputs[4]) == (1, 2, 5)


def test_products_with_one_item_or_out_of_reach_are_no_candidates() -> None:
    builder = NetworkBuilder(schema_of(("binary",)))
    past = builder.input()
    alone = builder.product([builder.leaf(0, [0.5, 0.5])])
    unused = builder.product([builder.leaf(0, [0.5, 0.5]), past])
    output = builder.product([builder.sum([past], [1.0]), alone])
    network = assemble(builder.template([output]), mixture_top(builder.schema, [1.0]))
    assert product_nodes(network.template) == (output,)
    with pytest.raises(StructureError, match=f"no output of the template reaches node {unused}"):
        replace_product(network, unused, [scope_items(network, unused)], rng())


def test_template_without_sums_has_neighbours() -> None:
    schema = schema_of(("binary",))
    builder = NetworkBuilder(schema)
    output = builder.product([builder.leaf(0, [0.5, 0.5]), builder.input()])
    network = assemble(builder.template([output]), mixture_top(schema, [1.0]))
    found = replace_product(network, output, [scope_items(network, output)], rng())
    assert found.network.template.num_weights == 2 + 2


def test_block_of_one_is_univariate_and_block_of_several_is_naive_bayes() -> None:
    network = initial_network(MIXED, 3, rng=rng())
    node = first_product(network)
    past = scope_items(network, node)[-1]
    found = replace_product(network, node, [[0, past], [1, 2], [3]], rng(1))
    assert shape_below(found, found.node) == (
        "product",
        ("sum", ("product", 0, "inputs"), ("product", 0, "inputs")),
        ("sum", ("product", 1, 2), ("product", 1, 2)),
        3,
    )
    three = replace_product(network, node, [[0, 1, 2, 3, past]], rng(1), num_classes=3)
    factored = ("product", 0, 1, 2, 3, "inputs")
    assert shape_below(three, three.node) == ("product", ("sum", factored, factored, factored))
    new = three.network.template.nodes[three.node]
    assert isinstance(new, Product)
    assert three.network.template.outputs[0] == three.node


def test_finest_partition_gives_a_factored_model_with_new_parameters() -> None:
    network = initial_network(MIXED, 3, rng=rng())
    node = first_product(network)
    found = replace_product(network, node, [[i] for i in scope_items(network, node)], rng(1))
    assert shape_below(found, found.node) == ("product", 0, 1, 2, 3, "inputs")
    assert len(found.network.template.nodes) == len(network.template.nodes)
    kept = {tuple(row) for row in network.parameters.template.leaves[2][1:].tolist()}
    new = {tuple(row) for row in found.network.parameters.template.leaves[2].tolist()}
    assert kept < new


def test_new_nodes_are_the_sums_and_leaves_that_may_be_learned_first() -> None:
    network = with_own_bottom(initial_network(MIXED, 2, rng=rng()), rng(99))
    node = first_product(network)
    past = scope_items(network, node)[-1]
    draw = rng(2)
    data = as_sequences(
        MIXED,
        [np.stack([[0.0, 2, draw.normal(), 3], [1, 0, draw.normal(), 1]]) for _ in range(5)],
    )
    found = replace_product(network, node, [[0, past], [1, 2, 3]], draw, data.values)
    nodes = found.network.template.nodes
    assert all(isinstance(nodes[index], Sum | Leaf) for index in found.new_nodes)
    assert len(found.new_nodes) == (1 + 2 + 2) + (1 + 6)
    before = found.network.parameters
    after = em_step(found.network, data, learnable=found.new_nodes).network.parameters
    for old, new in [(before.template, after.template), (before.bottom, after.bottom)]:
        assert old is not None and new is not None
        weights = (sum_weights(nodes, old.weights), sum_weights(nodes, new.weights))
        rows = (leaf_rows(found.network.template, old), leaf_rows(found.network.template, new))
        for index in set(weights[0]) - found.new_nodes:
            assert weights[0][index] == weights[1][index]
        for index in set(rows[0]) - found.new_nodes:
            np.testing.assert_array_equal(rows[0][index], rows[1][index])
        assert any(weights[0][i] != weights[1][i] for i in found.new_nodes & set(weights[0]))


def shared_product_network() -> tuple[DynamicNetwork, int]:
    """Two outputs over the same product of x0 and x1; the product has two parents."""
    schema = schema_of(("binary", "binary"))
    builder = NetworkBuilder(schema)
    inputs = builder.inputs(2)
    shared = builder.product([builder.leaf(0, [0.3, 0.7]), builder.leaf(1, [0.6, 0.4])])
    other = builder.product([builder.leaf(0, [0.9, 0.1]), builder.leaf(1, [0.2, 0.8])])
    mixed = builder.sum([shared, other], [0.25, 0.75])
    outputs = [
        builder.product([shared, builder.sum(inputs, [0.5, 0.5])]),
        builder.product([mixed, builder.sum(inputs, [0.1, 0.9])]),
    ]
    return assemble(builder.template(outputs), mixture_top(schema, [0.4, 0.6])), shared


def test_product_is_replaced_for_all_its_parents() -> None:
    network, shared = shared_product_network()
    found = replace_product(network, shared, [[0, 1]], rng(3))
    nodes = found.network.template.nodes
    parents = [
        index
        for index, node in enumerate(nodes)
        if isinstance(node, Sum | Product) and found.node in node.children
    ]
    assert len(parents) == 2
    assert shape_below(found, found.node) == (
        "product",
        ("sum", ("product", 0, 1), ("product", 0, 1)),
    )


def test_product_that_is_an_output_and_a_child_is_replaced_as_both() -> None:
    schema = schema_of(("binary",))
    builder = NetworkBuilder(schema)
    inputs = builder.inputs(2)
    one = builder.product([builder.leaf(0, [0.3, 0.7]), builder.sum(inputs, [0.5, 0.5])])
    other = builder.product([builder.leaf(0, [0.8, 0.2]), builder.sum(inputs, [0.2, 0.8])])
    both = builder.sum([one, other], [0.5, 0.5])
    network = assemble(builder.template([one, both]), mixture_top(schema, [0.5, 0.5]))
    found = replace_product(network, one, [[0, scope_items(network, one)[1]]], rng(4))
    template = found.network.template
    assert template.outputs[0] == found.node
    above = template.nodes[template.outputs[1]]
    assert isinstance(above, Sum) and above.children[0] == found.node


def test_nodes_out_of_use_are_dropped_and_inputs_are_kept() -> None:
    network = initial_network(MIXED, 1, rng=rng())
    node, draw, sizes = first_product(network), rng(5), []
    for step in range(6):
        items = scope_items(network, node)
        partition = [items] if step % 2 == 0 else [[item] for item in items]
        found = replace_product(network, node, partition, draw)
        network, node = found.network, found.node
        sizes.append(len(network.template.nodes))
    assert sizes == [1 + 1 + 1 + 2 * (1 + 5), 1 + 1 + 5] * 3


def test_new_leaves_share_the_family_of_their_variable_and_start_near_the_data() -> None:
    schema = Schema((Variable.continuous("x"),))
    family = Gaussian(location=1000.0, scale=5.0)
    builder = NetworkBuilder(schema)
    past = builder.input()
    output = builder.product([builder.leaf(0, [990.0, 4.0], family), builder.sum([past], [1.0])])
    network = assemble(builder.template([output]), mixture_top(schema, [1.0]))
    values = rng(6).normal(1000.0, 5.0, size=(200, 1))
    values[::3] = np.nan
    items = scope_items(network, output)
    found = replace_product(network, output, [items], rng(7), values).network
    assert found.template.banks[0].family == family
    means = found.parameters.template.leaves[0][:, 0]
    assert np.all(np.abs(means - 1000.0) < 25.0)


def test_bottom_with_its_own_parameters_gets_the_new_sub_network_too() -> None:
    network = with_own_bottom(initial_network(MIXED, 2, rng=rng()), rng(99))
    node = first_product(network)
    items = scope_items(network, node)
    found = replace_product(network, node, [items[:2], items[2:]], rng(8))
    own, bottom = found.network.parameters.template, found.network.parameters.bottom
    assert bottom is not None
    assert bottom.weights.shape == own.weights.shape
    nodes = found.network.template.nodes
    new, same = sum_weights(nodes, own.weights), sum_weights(nodes, bottom.weights)
    assert all((new[i] == same[i]) == (i in found.new_nodes) for i in new)


@pytest.mark.parametrize("seed", range(3))
def test_same_seed_gives_the_same_neighbour(seed: int) -> None:
    network, _, data = random_case(seed + 20)
    node = product_nodes(network.template)[0]
    made = [
        propose(
            SlicePosteriors(compile_program(network), data),
            node,
            Positions(),
            PartitionOptions(threshold=1),
            rng(seed),
        )
        for _ in range(2)
    ]
    assert made[0].partition == made[1].partition
    assert made[0].neighbour.network.fingerprint == made[1].neighbour.network.fingerprint


# Proposals.


def planted_data(num_rows: int = 3000) -> Sequences:
    """Eight bits a slice: three copies of one, three of another, two on their own."""
    draw = rng(10)
    a, b = draw.integers(2, size=(2, num_rows))
    copies = [a, b, a, b, a, b]
    noise = draw.random((6, num_rows)) < 0.2
    columns = [
        np.where(n, draw.integers(2, size=num_rows), c) for n, c in zip(noise, copies, strict=True)
    ]
    columns += list(draw.integers(2, size=(2, num_rows)))
    schema = Schema(tuple(Variable.binary(f"x{v}") for v in range(8)))
    values = np.stack(columns, axis=1) * 1.0
    values[draw.random(values.shape) < 0.05] = np.nan
    return Sequences.from_codes(values, np.arange(0, num_rows + 1, 10), schema)


def test_proposal_splits_a_large_scope_into_what_the_data_hold_independent() -> None:
    data = planted_data()
    network = initial_network(data.schema, 1, rng=rng())
    posteriors = SlicePosteriors(compile_program(network), data)
    positions, seen, options = Positions(), [], PartitionOptions(alpha=1e-4)
    for _ in range(3):
        found = propose(posteriors, first_product(network), positions, options, rng(11))
        positions = found.positions
        seen.append(found.partition)
    whole, rest = [(0, 2, 4), (1, 3, 5)], [(6,), (7,), (8,)]
    assert seen[0] == (*whole, *rest)
    assert seen[1] == ((0, 2), (4,), (1, 3), (5,), *rest)
    assert seen[2] == ((0, 4), (2,), (1, 5), (3,), *rest)
    assert set(positions.strings) == {*whole, *rest}


def test_small_scope_needs_no_posteriors() -> None:
    schema = schema_of(("binary", "binary"))
    network = initial_network(schema, 2, rng=rng())
    posteriors = SlicePosteriors(
        compile_program(network), as_sequences(schema, [np.array([[0.0, 1.0]])])
    )
    found = propose(posteriors, first_product(network), Positions(), PartitionOptions(), rng())
    assert found.partition == ((0, 1, 2),)
    assert "interface" not in vars(posteriors)


@pytest.mark.parametrize("values", [np.full((1, 3), np.nan), np.zeros((4, 3))])
def test_proposal_from_data_that_say_nothing_is_factored(values: Floats) -> None:
    schema = schema_of(("binary", "continuous", "single"))
    network = initial_network(schema, 2, rng=rng())
    posteriors = SlicePosteriors(compile_program(network), as_sequences(schema, [values]))
    options = PartitionOptions(threshold=1)
    found = propose(posteriors, first_product(network), Positions(), options, rng())
    assert found.partition == ((0,), (1,), (2,), (3,))


def test_impossible_data_are_refused_where_posteriors_are_needed() -> None:
    schema = schema_of(("binary",))
    builder = NetworkBuilder(schema)
    past = builder.input()
    output = builder.product([builder.leaf(0, [1.0, 0.0]), builder.sum([past], [1.0])])
    network = assemble(builder.template([output]), mixture_top(schema, [1.0]))
    posteriors = SlicePosteriors(compile_program(network), as_sequences(schema, [np.ones((2, 1))]))
    options = PartitionOptions(threshold=1)
    with pytest.raises(EvidenceError, match="probability zero"):
        propose(posteriors, output, Positions(), options, rng())


# What is refused.


def test_wrong_nodes_and_partitions_are_refused_by_name() -> None:
    network = random_network(random_recipe(3, kinds=("binary", "ternary"), num_groups=1))
    node = product_nodes(network.template)[0]
    items = scope_items(network, node)
    leaf = next(i for i, n in enumerate(network.template.nodes) if isinstance(n, Leaf))
    with pytest.raises(StructureError, match=f"node {leaf} is leaf"):
        scope_items(network, leaf)
    with pytest.raises(StructureError, match="is not there"):
        scope_items(network, 10_000)
    with pytest.raises(StructureError, match="`node`"):
        scope_items(network, -1)
    for wrong in ([items[:1]], [items, items], [items, []], [[*items, 99]], []):
        with pytest.raises(StructureError, match="`partition` must share out the scope"):
            replace_product(network, node, wrong, rng())
    with pytest.raises(StructureError, match="`rng`"):
        replace_product(network, node, [items], 1)  # type: ignore[arg-type]
    with pytest.raises(StructureError, match=r"each of the 2 variables, but has shape \(3, 1\)"):
        replace_product(network, node, [items], rng(), np.zeros((3, 1)))
    with pytest.raises(StructureError, match="`num_classes`"):
        replace_product(network, node, [items], rng(), num_classes=0)
    with pytest.raises(StructureError, match="`template`"):
        product_nodes(network)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="`data` must be a Sequences"):
        SlicePosteriors(compile_program(network), [])  # type: ignore[arg-type]
    with pytest.raises(StructureError, match="`posteriors`"):
        propose(network, node, Positions(), PartitionOptions(), rng())  # type: ignore[arg-type]
