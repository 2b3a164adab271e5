"""The maximisation step: what it makes of flows, and what it leaves alone."""

from dataclasses import replace

import numpy as np
import pytest

from dspn import Model, Schema, Sequences, Variable
from dspn.engine import NetworkFlows, compile_program
from dspn.errors import NumericalError, StructureError
from dspn.learning import NO_PRIORS, Priors, em_step, maximise
from dspn.structure import DynamicNetwork, NetworkParameters, Parameters, Product, initial_network
from oracles import sum_weights
from strategies import as_sequences, random_case

BINARY = Schema((Variable.binary("a"), Variable.binary("b")))


def arrays_of(parameters: Parameters) -> list[np.ndarray]:
    parts = [parameters.template, parameters.top]
    parts += [] if parameters.bottom is None else [parameters.bottom]
    return [array for part in parts for array in (part.weights, *part.leaves)]


def assert_identical(one: Parameters, other: Parameters) -> None:
    for a, b in zip(arrays_of(one), arrays_of(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("seed", range(20))
def test_weights_are_flows_and_pseudo_counts_shared_out_at_each_sum(seed: int) -> None:
    network, _, data = random_case(seed)
    flows = compile_program(network).expected_flows(data).flows
    found = maximise(network, flows, Priors(0.3)).parameters
    parts = [
        (network.template, flows.template, found.template),
        (network.top, flows.top, found.top),
    ]
    if flows.bottom is not None and found.bottom is not None:
        parts.append((network.template, flows.bottom, found.bottom))
    for part, own, new in parts:
        counts = sum_weights(part.nodes, own.weights)
        for node, weights in sum_weights(part.nodes, new.weights).items():
            expected = np.array(counts[node]) + 0.3
            np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-12)


def test_sum_without_flow_keeps_its_weights_or_takes_those_of_the_prior() -> None:
    network = initial_network(BINARY, 3, rng=np.random.default_rng(0))
    data = as_sequences(BINARY, [np.array([[0.0, 1.0]]), np.array([[1.0, np.nan]])])
    old = network.parameters.template.weights
    # With one slice each, no transition is ever used.
    kept = em_step(network, data, priors=NO_PRIORS).network.parameters.template.weights
    np.testing.assert_array_equal(kept, old)
    smoothed = em_step(network, data).network.parameters.template.weights
    np.testing.assert_allclose(smoothed, 1 / 3, rtol=1e-12)


def test_step_on_nothing_observed_goes_to_the_prior() -> None:
    network = initial_network(BINARY, 2, rng=np.random.default_rng(0))
    data = as_sequences(BINARY, [np.full((3, 2), np.nan), np.full((1, 2), np.nan)])
    found = em_step(network, data)
    np.testing.assert_allclose(found.log_likelihood, 0.0, atol=1e-12)
    for rows in found.network.parameters.template.leaves:
        np.testing.assert_allclose(rows, 0.5, rtol=1e-12)


def test_variable_of_a_single_category_changes_nothing() -> None:
    schema = Schema((Variable.categorical("only", ("one",)),))
    network = initial_network(schema, 2, rng=np.random.default_rng(0))
    found = em_step(network, as_sequences(schema, [np.zeros((4, 1))]))
    np.testing.assert_allclose(found.log_likelihood, 0.0, atol=1e-12)
    np.testing.assert_array_equal(found.network.parameters.template.leaves[0], 1.0)


def test_step_uses_the_program_and_the_weights_given() -> None:
    network, _, data = random_case(3)
    program, weights = compile_program(network), np.arange(1.0, len(data) + 1)
    repeated = data[np.repeat(np.arange(len(data)), [1, 2, 3, 4])]
    one = em_step(network, data, weights=weights, program=program).network.parameters
    other = em_step(network, repeated).network.parameters
    for a, b in zip(arrays_of(one), arrays_of(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("seed", range(20))
def test_only_learnable_nodes_change(seed: int) -> None:
    network, _, data = random_case(seed)
    flows = compile_program(network).expected_flows(data).flows
    everything = maximise(network, flows).parameters
    rng = np.random.default_rng(seed)
    nodes = range(len(network.template.nodes))
    chosen = frozenset(node for node in nodes if rng.random() < 0.5)
    found = maximise(network, flows, learnable=chosen).parameters
    old = network.parameters
    np.testing.assert_array_equal(found.top.weights, old.top.weights)
    pairs = [(found.template, everything.template, old.template)]
    if found.bottom is not None and everything.bottom is not None and old.bottom is not None:
        pairs.append((found.bottom, everything.bottom, old.bottom))
    for own, new, kept in pairs:
        _assert_chosen(network, chosen, own, new, kept)


def _assert_chosen(
    network: DynamicNetwork,
    chosen: frozenset[int],
    own: NetworkParameters,
    new: NetworkParameters,
    kept: NetworkParameters,
) -> None:
    nodes = network.template.nodes
    tables = [sum_weights(nodes, part.weights) for part in (own, new, kept)]
    for node, weights in tables[0].items():
        assert weights == tables[1 if node in chosen else 2][node]
    for bank, rows, fresh, old in zip(
        network.template.banks, own.leaves, new.leaves, kept.leaves, strict=True
    ):
        for row, node in enumerate(bank.nodes):
            expected = fresh if node in chosen else old
            np.testing.assert_array_equal(rows[row], expected[row])


def test_nothing_learnable_leaves_everything_bit_for_bit() -> None:
    network, _, data = random_case(4)
    products = [i for i, node in enumerate(network.template.nodes) if isinstance(node, Product)]
    for chosen in (frozenset(), frozenset(products), frozenset(network.template.inputs)):
        found = em_step(network, data, learnable=chosen).network
        assert_identical(found.parameters, network.parameters)


@pytest.mark.parametrize("bad", [[-1], [10_000], [0.5], ["a"]])
def test_learnable_that_names_no_node_is_refused(bad: list[object]) -> None:
    network, _, data = random_case(4)
    with pytest.raises(StructureError, match="`learnable` must"):
        em_step(network, data, learnable=bad)  # type: ignore[arg-type]


def _planted(flows: NetworkFlows, weight: float) -> NetworkFlows:
    weights = flows.weights.copy()
    weights[0] = weight
    return NetworkFlows(weights, flows.leaves)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_flows_that_are_not_finite_are_found_out(bad: float) -> None:
    model = Model(initial_network(BINARY, 2, rng=np.random.default_rng(0)))
    data = model.sample(3, 4, rng=np.random.default_rng(1))
    flows = model.program.expected_flows(data).flows
    with pytest.raises(NumericalError, match=r"sum \d+ of the template network.*not finite"):
        maximise(model.network, replace(flows, template=_planted(flows.template, bad)))
    with pytest.raises(NumericalError, match=r"sum \d+ of the top network.*not finite"):
        maximise(model.network, replace(flows, top=_planted(flows.top, bad)))


def test_leaf_statistics_that_are_not_finite_name_leaf_and_variable() -> None:
    schema = Schema((Variable.binary("a"), Variable.continuous("level")))
    network = initial_network(schema, 2, rng=np.random.default_rng(0))
    data = Sequences.from_codes([[0.0, 1.0], [1.0, 2.0]], [0, 2], schema)
    flows = compile_program(network).expected_flows(data).flows
    wrong = flows.template.leaves[1].copy()
    wrong[1, 2] = np.inf
    own = NetworkFlows(flows.template.weights, (flows.template.leaves[0], wrong))
    node = network.template.banks[1].nodes[1]
    with pytest.raises(NumericalError, match=rf"leaf {node} of variable 'level' in the template"):
        maximise(network, replace(flows, template=own))
