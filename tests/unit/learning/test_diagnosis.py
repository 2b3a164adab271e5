"""Nodes that nothing flows through, and parameters that are no numbers, are named."""

import copy

import numpy as np
import pytest

from dspn import Schema, Variable
from dspn.engine import compile_program
from dspn.errors import NumericalError
from dspn.learning import DeadNode, check_finite, dead_nodes
from dspn.structure import (
    DynamicNetwork,
    NetworkBuilder,
    NetworkParameters,
    Parameters,
    Product,
    assemble,
    from_hmm,
    mixture_top,
)
from oracles import has_leaf_below, interface_posteriors, sum_weights
from strategies import as_sequences, random_case

SCHEMA = Schema((Variable.binary("a"), Variable.binary("b")))


def dead_of(network: DynamicNetwork, arrays: list[np.ndarray]) -> tuple[DeadNode, ...]:
    data = as_sequences(network.schema, arrays)
    return dead_nodes(network, compile_program(network).expected_flows(data).flows)


def three_states(start: list[float], transition: list[list[float]]) -> DynamicNetwork:
    emissions = {"a": [[0.6, 0.4], [0.5, 0.5], [0.2, 0.8]], "b": [[0.9, 0.1]] * 3}
    return from_hmm(start, transition, emissions, schema=SCHEMA)


ALIVE = three_states([0.4, 0.3, 0.3], [[0.2, 0.3, 0.5]] * 3)


def test_nothing_is_dead_where_everything_is_used() -> None:
    assert dead_of(ALIVE, [np.zeros((4, 2)), np.ones((3, 2))]) == ()


def test_state_that_is_never_entered_is_dead_with_all_that_is_its_own() -> None:
    network = three_states([0.5, 0.0, 0.5], [[0.5, 0.0, 0.5], [0.2, 0.3, 0.5], [0.4, 0.0, 0.6]])
    output = network.template.outputs[1]
    product = network.template.nodes[output]
    a, b, transition = product.children  # type: ignore[union-attr]
    assert dead_of(network, [np.zeros((4, 2))]) == (
        DeadNode("template", output, "interface 1"),
        DeadNode("template", transition, "sum"),
        DeadNode("template", a, "leaf of variable 'a'"),
        DeadNode("template", b, "leaf of variable 'b'"),
    )


def test_sequences_of_one_slice_use_no_transition() -> None:
    dead = dead_of(ALIVE, [np.zeros((1, 2))])
    assert {node.what for node in dead} == {"sum"}
    assert {node.network for node in dead} == {"template"}
    assert len(dead) == 3


def test_variable_that_is_always_missing_leaves_its_leaves_dead() -> None:
    dead = dead_of(ALIVE, [np.array([[0.0, np.nan]] * 3)])
    assert {node.what for node in dead} == {"leaf of variable 'b'"}
    assert len(dead) == 3


def test_least_flow_that_counts_can_be_chosen() -> None:
    flows = compile_program(ALIVE).expected_flows(as_sequences(SCHEMA, [np.zeros((4, 2))])).flows
    assert dead_nodes(ALIVE, flows, least=0.0) == ()
    assert len(dead_nodes(ALIVE, flows, least=100.0)) == 3 + 3 + 6 + 1  # the top has one sum


def test_interface_below_a_product_is_alive_through_it() -> None:
    schema = Schema((Variable.binary("a"),))
    builder = NetworkBuilder(schema)
    first, second = builder.inputs(2)
    leaves = [builder.leaf("a", [0.5, 0.5]) for _ in range(2)]
    outputs = [builder.product([leaves[0], second]), builder.product([leaves[1], first])]
    top = mixture_top(schema, [1.0, 0.0])
    network = assemble(builder.template(outputs), top)
    assert dead_of(network, [np.zeros((3, 1))]) == ()


@pytest.mark.parametrize("seed", range(60))
def test_dead_nodes_of_random_templates_are_those_without_flow(seed: int) -> None:
    network, _, data = random_case(seed)
    flows = compile_program(network).expected_flows(data).flows
    found = dead_nodes(network, flows)
    kept = has_leaf_below(network.template)
    for part, own, name in (
        (network.template, flows.template, "template"),
        (network.template, flows.bottom, "bottom"),
        (network.top, flows.top, "top"),
    ):
        if own is None:
            continue
        totals = {
            node: sum(counts) for node, counts in sum_weights(part.nodes, own.weights).items()
        }
        expected = {
            node
            for node, total in totals.items()
            if total < 1e-8 and (name != "bottom" or kept[node])
        }
        assert expected == {d.node for d in found if d.network == name and d.what == "sum"}


@pytest.mark.parametrize("seed", range(60))
def test_dead_interfaces_of_random_templates_are_those_never_chosen(seed: int) -> None:
    network, arrays, data = random_case(seed, zeros=0.6)
    program = compile_program(network)
    if not program.components[0].every_group_is_read:
        return  # then a posterior does not say how often the interface is used
    found = dead_nodes(network, program.expected_flows(data).flows)
    used = sum(interface_posteriors(network, values).sum(axis=0) for values in arrays)
    expected = {
        DeadNode("template", network.template.outputs[position], f"interface {position}")
        for position in np.flatnonzero(used < 1e-8).tolist()
    }
    dead = {node for node in found if node.what.startswith("interface")}
    assert dead <= expected
    template = network.template
    products = (node.children for node in template.nodes if isinstance(node, Product))
    if not any(set(children) & set(template.inputs) for children in products):
        assert dead == expected


def test_dead_node_says_what_and_where_it_is() -> None:
    said = str(DeadNode("bottom", 7, "leaf of variable 'x'"))
    assert said == "leaf of variable 'x' (node 7 of the bottom network)"


# Parameters that are no numbers.


def broken(part: str, bank: int | None) -> tuple[DynamicNetwork, Parameters, int]:
    """Parameters with one infinite number, and the node it belongs to."""
    network, _, _ = random_case(0, kinds=("binary", "continuous"), tied=False, zeros=0.0)
    own = network.parameters
    parts = {"template": own.template, "bottom": own.bottom, "top": own.top}
    old = parts[part]
    assert old is not None
    weights, leaves = old.weights.copy(), [rows.copy() for rows in old.leaves]
    if bank is None:
        weights[-1] = np.inf
        node = max((network.top if part == "top" else network.template).edge_offsets)
    else:
        leaves[bank][-1, -1] = np.nan
        node = network.template.banks[bank].nodes[-1]
    parts[part] = NetworkParameters(weights, tuple(leaves))
    return network, Parameters(parts["template"], parts["top"], parts["bottom"]), node  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["template", "bottom", "top"])
def test_weight_that_is_not_finite_is_named(part: str) -> None:
    network, parameters, node = broken(part, None)
    with pytest.raises(NumericalError, match=rf"sum {node} of the {part} network .*not finite"):
        check_finite(network, parameters)


@pytest.mark.parametrize("part", ["template", "bottom"])
@pytest.mark.parametrize("bank", [0, 1])
def test_leaf_that_is_not_finite_is_named(part: str, bank: int) -> None:
    network, parameters, node = broken(part, bank)
    said = rf"leaf {node} of variable 'x{bank}' in the {part} network has parameters .*nan"
    with pytest.raises(NumericalError, match=said):
        check_finite(network, parameters)
    planted = copy.copy(network)
    object.__setattr__(planted, "parameters", parameters)
    with pytest.raises(NumericalError, match=said):
        check_finite(planted)


def test_finite_parameters_pass() -> None:
    network, _, _ = random_case(0, tied=False)
    check_finite(network)
    check_finite(network, network.parameters)
