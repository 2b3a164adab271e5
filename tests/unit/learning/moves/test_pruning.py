"""Pruning of a plain template, and what it refuses."""

import time

import numpy as np
import pytest

from dspn import Schema, Variable
from dspn.engine import ExpectedFlows, NetworkFlows, compile_program
from dspn.errors import StructureError
from dspn.learning.moves import pruned
from dspn.structure import DynamicNetwork, NetworkBuilder, assemble, from_hmm, initial_network
from dspn.structure.nodes import children_of
from strategies import as_sequences

SCHEMA = Schema((Variable.binary("a"),))
THREE = from_hmm(
    [0.5, 0.3, 0.2],
    [[0.8, 0.15, 0.05], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]],
    {"a": [[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]]},
    schema=SCHEMA,
)


def flows_of(network: DynamicNetwork, template: list[float], top: list[float]) -> ExpectedFlows:
    """Flows as they are given; those of leaves do not matter."""
    leaves = tuple(
        np.zeros((len(bank.nodes), bank.family.num_statistics)) for bank in network.template.banks
    )
    return ExpectedFlows(
        NetworkFlows(np.array(template), leaves), NetworkFlows(np.array(top), ()), None
    )


def transition(network: DynamicNetwork, position: int) -> dict[int, float]:
    """Weights of one output's transition by the positions of its inputs."""
    template = network.template
    node = children_of(template.nodes[template.outputs[position]])[-1]
    start = template.edge_offsets[node]
    children = children_of(template.nodes[node])
    weights = network.parameters.template.weights[start : start + len(children)].tolist()
    return {template.inputs.index(c): w for c, w in zip(children, weights, strict=True)}


def test_edges_below_the_bound_go_and_the_others_are_divided_by_their_sum() -> None:
    flows = flows_of(THREE, [9.0, 2.0, 0.1, 0.2, 5.0, 3.0, 3.0, 0.3, 4.0], [5.0, 3.0, 0.5])
    thin = pruned(THREE, flows, 1.0)
    assert transition(thin, 0) == pytest.approx({0: 0.8 / 0.95, 1: 0.15 / 0.95})
    assert transition(thin, 1) == pytest.approx({1: 0.6 / 0.9, 2: 0.3 / 0.9})
    assert transition(thin, 2) == pytest.approx({0: 0.3 / 0.7, 2: 0.4 / 0.7})
    # The top keeps the edge to the third input: it is the only one that leads there.
    np.testing.assert_array_equal(thin.parameters.top.weights, [0.5, 0.3, 0.2])


def test_sum_keeps_its_most_used_edge_and_input_the_most_used_edge_to_it() -> None:
    flows = flows_of(THREE, [0.9, 0.2, 0.3, 0.4, 0.2, 0.5, 0.8, 0.1, 0.0], [0.3, 0.2, 0.1])
    thin = pruned(THREE, flows, 100.0)
    assert set(transition(thin, 0)) == {0, 1}
    assert set(transition(thin, 1)) == {2}
    assert set(transition(thin, 2)) == {0}
    assert thin.parameters.top.weights.size == 3


def test_edge_without_weight_that_has_to_stay_gets_all_of_it() -> None:
    network = from_hmm(
        [1.0, 0.0], [[1.0, 0.0], [0.5, 0.5]], {"a": [[0.5, 0.5], [0.2, 0.8]]}, schema=SCHEMA
    )
    thin = pruned(network, flows_of(network, [0.0, 1.0, 3.0, 2.0], [1.0, 0.0]), 0.5)
    assert transition(thin, 0) == {1: 1.0}
    assert transition(thin, 1) == {0: 0.5, 1: 0.5}


def test_node_whose_only_edge_goes_is_left_out() -> None:
    builder = NetworkBuilder(SCHEMA)
    (below,) = builder.inputs(1)
    rare, usual = builder.leaf("a", [0.5, 0.5]), builder.leaf("a", [0.1, 0.9])
    mixture = builder.sum([rare, usual], [0.2, 0.8])
    output = builder.product([mixture, builder.sum([below], [1.0])])
    top = NetworkBuilder(SCHEMA)
    network = assemble(builder.template([output]), top.top(top.sum(top.inputs(1), [1.0])))
    thin = pruned(network, flows_of(network, [0.01, 7.0, 6.0], [1.0]), 0.1)
    assert len(thin.template.nodes) == len(network.template.nodes) - 1
    (rows,) = thin.parameters.template.leaves
    np.testing.assert_array_equal(rows, [[0.1, 0.9]])


def test_flow_that_rounding_left_below_zero_is_no_reason_to_prune_at_zero() -> None:
    flows = flows_of(THREE, [-1e-18] * 9, [-1e-18, 1.0, 1.0])
    assert pruned(THREE, flows, 0).fingerprint == THREE.fingerprint


def test_sequences_of_one_slice_leave_every_transition_one_edge_at_least() -> None:
    data = as_sequences(SCHEMA, [np.zeros((1, 1)), np.full((1, 1), np.nan)])
    thin = pruned(THREE, compile_program(THREE).expected_flows(data).flows, 0.5)
    assert thin.num_interfaces == 3
    assert thin.template.num_weights <= 5


def test_large_template_is_pruned_quickly() -> None:
    rng = np.random.default_rng(0)
    network = initial_network(Schema((Variable.binary("a"),)), 400, rng=rng)
    flows = rng.random(network.template.num_weights)
    given = flows_of(network, flows.tolist(), [1.0] * 400)
    begun = time.perf_counter()
    thin = pruned(network, given, 0.9)
    assert time.perf_counter() - begun < 5.0
    assert thin.template.num_weights == int((flows >= 0.9).sum())


def test_arguments_that_do_not_fit_are_refused() -> None:
    flows = flows_of(THREE, [1.0] * 9, [1.0] * 3)
    with pytest.raises(StructureError, match="`network` must be a DynamicNetwork"):
        pruned(None, flows, 1.0)  # type: ignore[arg-type]
    with pytest.raises(StructureError, match="`flows` must be a ExpectedFlows"):
        pruned(THREE, np.ones(9), 1.0)  # type: ignore[arg-type]
    with pytest.raises(StructureError, match="another structure"):
        pruned(THREE, flows_of(THREE, [1.0] * 4, [1.0] * 3), 1.0)
    for least in (-1.0, np.nan, np.inf):
        with pytest.raises(StructureError, match="`least` of pruned"):
            pruned(THREE, flows, least)
