"""Pruned random templates: valid, and the distribution with those weights at zero."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dspn.engine import ExpectedFlows, compile_program
from dspn.learning.moves import pruned
from dspn.structure import (
    DynamicNetwork,
    Input,
    NetworkParameters,
    Parameters,
    Product,
    Sum,
    Template,
    Top,
    violations,
)
from dspn.structure.graph import reachable
from oracles import log_likelihood, slice_by_slice
from strategies import as_sequences, networks_with_evidence, random_case

Floats = NDArray[np.float64]
Edge = tuple[int, int]


def edges_of(part: Template | Top) -> list[Edge]:
    """(sum, child) of each weight, by the definition of the flat vector."""
    return [
        (index, child)
        for index, node in enumerate(part.nodes)
        if isinstance(node, Sum)
        for child in node.children
    ]


def kept_edges(part: Template | Top, flows: Floats, least: float) -> set[Edge]:
    """What the rule of pruning keeps, edge by edge."""
    edges = edges_of(part)
    used = {edge: max(float(flow), 0.0) for edge, flow in zip(edges, flows, strict=True)}
    kept = {edge for edge in edges if used[edge] >= least}
    for index in part.edge_offsets:
        kept.add(max((edge for edge in edges if edge[0] == index), key=lambda e: used[e]))
    factors = {c for node in part.nodes if isinstance(node, Product) for c in node.children}
    for node in part.inputs:
        above = [edge for edge in edges if edge[1] == node]
        if above and node not in factors:
            kept.add(max(above, key=lambda e: used[e]))
    return kept


def zeroed(part: Template | Top, weights: Floats, kept: set[Edge]) -> Floats:
    """Weights with those of pruned edges at zero, divided by what is left of each sum."""
    found: list[float] = []
    for index, start in part.edge_offsets.items():
        children = part.nodes[index].children  # type: ignore[union-attr]
        own = weights[start : start + len(children)].tolist()
        stays = [(index, child) in kept for child in children]
        if not all(stays):
            own = [w if stay else 0.0 for w, stay in zip(own, stays, strict=True)]
            total = sum(own)
            own = [w / total if total else stay / sum(stays) for w, stay in zip(own, stays)]  # noqa: B905
        found.extend(own)
    return np.array(found)


def without_weights(network: DynamicNetwork, flows: ExpectedFlows, least: float) -> DynamicNetwork:
    """The network of the same structure that a pruned one must agree with."""
    own = network.parameters
    used = flows.template.weights
    used = used if flows.bottom is None else used + flows.bottom.weights
    kept = kept_edges(network.template, used, least)

    def part(old: NetworkParameters) -> NetworkParameters:
        return NetworkParameters(zeroed(network.template, old.weights, kept), old.leaves)

    top = zeroed(network.top, own.top.weights, kept_edges(network.top, flows.top.weights, least))
    bottom = None if own.bottom is None else part(own.bottom)
    return network.with_parameters(Parameters(part(own.template), NetworkParameters(top), bottom))


def some_least(flows: ExpectedFlows, seed: int) -> float:
    """A bound that about a quarter, half or more of the edges stay below."""
    share = [0.25, 0.5, 0.75, 1.0][seed % 4]
    return float(np.quantile(np.append(flows.template.weights, flows.top.weights), share))


def check_pruned(network: DynamicNetwork, arrays: list[Floats], least: float) -> None:
    data = as_sequences(network.schema, arrays)
    flows = compile_program(network).expected_flows(data).flows
    thin = pruned(network, flows, least)
    same = without_weights(network, flows, least)
    assert not violations(thin.template, thin.top)
    assert thin.num_interfaces == network.num_interfaces
    assert thin.groups == network.groups
    for part, roots in ((thin.template, thin.template.outputs), (thin.top, [thin.top.root])):
        inner = {i for i, node in enumerate(part.nodes) if not isinstance(node, Input)}
        assert inner <= reachable(part.nodes, roots)
    for values in arrays:
        np.testing.assert_allclose(
            slice_by_slice(thin, values), slice_by_slice(same, values), rtol=1e-12
        )


@pytest.mark.parametrize("seed", range(80))
def test_pruned_network_is_the_one_with_those_weights_at_zero(seed: int) -> None:
    network, arrays, data = random_case(seed)
    flows = compile_program(network).expected_flows(data).flows
    check_pruned(network, arrays, some_least(flows, seed))


@given(networks_with_evidence(), st.floats(0.0, 5.0))
@settings(max_examples=50)
def test_pruning_of_any_recipe_is_valid(
    case: tuple[DynamicNetwork, list[Floats]], least: float
) -> None:
    check_pruned(*case, least)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_pruned_at_zero(seed: int) -> None:
    network, arrays, data = random_case(seed)
    flows = compile_program(network).expected_flows(data).flows
    whole = pruned(network, flows, 0)
    used = reachable(network.template.nodes, network.template.outputs)
    if len(used | set(network.template.inputs)) == len(network.template.nodes):
        assert whole.template == network.template
    if len(reachable(network.top.nodes, [network.top.root])) == len(network.top.nodes):
        assert whole.top == network.top
    np.testing.assert_array_equal(
        compile_program(whole).log_likelihood(data), compile_program(network).log_likelihood(data)
    )
    for values in arrays:
        assert log_likelihood(whole, values) == log_likelihood(network, values)


@pytest.mark.parametrize("seed", range(40))
def test_pruning_what_is_not_there_keeps_every_parameter(seed: int) -> None:
    network, _, data = random_case(seed, tied=seed % 2 == 0)
    once = pruned(network, compile_program(network).expected_flows(data).flows, 0.3)
    flows = compile_program(once).expected_flows(data).flows
    twice = pruned(once, flows, 0.0)
    assert twice.template == once.template
    assert twice.top == once.top
    assert twice.fingerprint == once.fingerprint
