"""Transitions put back: those of the largest estimated use, with small weights."""

from itertools import pairwise

import numpy as np
import pytest

from dspn import Schema, Variable
from dspn.engine import ExpectedFlows, NetworkFlows, compile_program
from dspn.errors import DataError, StructureError
from dspn.learning import em_step
from dspn.learning.moves import posterior_runs, pruned, regrown
from dspn.structure import (
    DynamicNetwork,
    Root,
    from_hmm,
    grouped_network,
    initial_network,
    violations,
)
from dspn.structure.chain import transition_sums as transitions
from dspn.structure.nodes import children_of
from oracles import interface_posteriors
from strategies import arbitrary_sequence, as_sequences, random_case

SCHEMA = Schema((Variable.binary("a"), Variable.categorical("b", ("x", "y", "z"))))


def some_data(seed: int = 0, sizes: tuple[int, ...] = (1, 4, 6, 3)) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = [arbitrary_sequence(SCHEMA, size, rng) for size in sizes]
    arrays[1][2] = np.nan
    return arrays


def thin_network(seed: int = 0, root: str = "first", groups: int = 1) -> DynamicNetwork:
    layout = [[0, 1]] if groups == 1 else [[1], [0]]
    rng = np.random.default_rng(seed)
    network = grouped_network(SCHEMA, layout, 4, num_products=2, rng=rng, root=root)
    data = as_sequences(SCHEMA, some_data())
    return pruned(network, compile_program(network).expected_flows(data).flows, 0.7)


def edges(network: DynamicNetwork) -> dict[tuple[int, int], float]:
    """Weights of the transitions by (output, input)."""
    template = network.template
    found = {}
    for position, node in transitions(template).items():
        start = template.edge_offsets[node]
        for place, child in enumerate(children_of(template.nodes[node])):
            key = position, template.inputs.index(child)
            found[key] = float(network.parameters.template.weights[start + place])
    return found


def estimated_use(network: DynamicNetwork, arrays: list[np.ndarray]) -> np.ndarray:
    """Sum of products of posteriors, slice by slice."""
    size = network.num_interfaces
    found = np.zeros((size, size))
    for values in arrays:
        own = interface_posteriors(network, values)
        for before, after in pairwise(own):
            upper, lower = (before, after) if network.root == Root.FIRST else (after, before)
            found += np.outer(upper, lower)
    return found


@pytest.mark.parametrize("root", ["first", "last"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("count", [1, 3, 100])
def test_absent_transitions_of_largest_use_are_added(root: str, groups: int, count: int) -> None:
    network, arrays = thin_network(1, root, groups), some_data()
    use = estimated_use(network, arrays)
    old = edges(network)
    pairs = [(i, j) for own in network.groups for i in own for j in own]
    absent = [edge for edge in pairs if edge not in old and use[edge] > 0]
    expected = sorted(absent, key=lambda edge: -use[edge])[:count]
    grown = regrown(network, as_sequences(SCHEMA, arrays), count)
    new = edges(grown)
    assert set(new) == set(old) | set(expected)
    assert not violations(grown.template, grown.top)
    for i in range(network.num_interfaces):
        group = next(list(own) for own in network.groups if i in own)
        shares = {j: use[i, j] / use[i, group].sum() for a, j in expected if a == i}
        scale = min(1.0, 0.05 / sum(shares.values())) if shares else 1.0
        for j, share in shares.items():
            np.testing.assert_allclose(new[i, j], scale * share, rtol=1e-9)
        room = 1.0 - scale * sum(shares.values())
        for (a, j), weight in old.items():
            if a == i:
                np.testing.assert_allclose(new[a, j], room * weight, rtol=1e-12)


def test_transition_that_was_taken_away_by_mistake_comes_back() -> None:
    schema = Schema((Variable.categorical("a", ("x", "y", "z")),))
    cycle = np.full((3, 3), 0.05) + 0.85 * np.roll(np.eye(3), 1, axis=1)
    emissions = {"a": np.full((3, 3), 0.05) + 0.85 * np.eye(3)}
    network = from_hmm([0.4, 0.3, 0.3], cycle, emissions, schema=schema)
    data = as_sequences(schema, [np.tile([[0.0], [1.0], [2.0]], (5, 1)) for _ in range(4)])
    flows = compile_program(network).expected_flows(data).flows
    given = np.ones(9)
    given[1] = 0.0  # that of the edge from output 0 to input 1
    own = NetworkFlows(given, flows.template.leaves)
    thin = pruned(network, ExpectedFlows(own, flows.top, None), 0.5)
    grown = regrown(thin, data, 1)
    assert set(edges(grown)) - set(edges(thin)) == {(0, 1)}
    assert 0 < edges(grown)[0, 1] <= 0.05
    for _ in range(4):
        grown, thin = em_step(grown, data).network, em_step(thin, data).network
    assert edges(grown)[0, 1] > 0.9
    totals = [compile_program(own).log_likelihood(data).sum() for own in (thin, grown)]
    assert totals[1] > totals[0] + 10


def test_network_stays_as_it_is_where_nothing_can_be_added() -> None:
    network = initial_network(SCHEMA, 3, rng=np.random.default_rng(0))
    data = as_sequences(SCHEMA, some_data())
    assert regrown(network, data, 10) is network
    assert regrown(thin_network(), data, 0).fingerprint == thin_network().fingerprint
    single = as_sequences(SCHEMA, [np.zeros((1, 2))])
    assert regrown(thin_network(), single, 5).fingerprint == thin_network().fingerprint


@pytest.mark.parametrize("seed", range(60))
def test_regrowing_random_templates_is_valid(seed: int) -> None:
    network, _, data = random_case(seed)
    grown = regrown(network, data, 3)
    assert not violations(grown.template, grown.top)
    assert grown.template.num_weights <= network.template.num_weights + 3
    nothing = data.with_values(np.full_like(data.values, np.nan))
    np.testing.assert_allclose(compile_program(grown).log_likelihood(nothing), 0.0, atol=1e-9)


def test_runs_of_sequences_have_the_posteriors_of_all() -> None:
    network, data = thin_network(2), as_sequences(SCHEMA, some_data())
    runs = list(posterior_runs(compile_program(network), data, 8))
    assert len(runs) > 1
    np.testing.assert_array_equal(np.concatenate([own for own, _, _ in runs]), range(len(data)))
    expected = np.concatenate([interface_posteriors(network, values) for values in some_data()])
    np.testing.assert_allclose(np.concatenate([own for _, _, own in runs]), expected, rtol=1e-9)


def test_arguments_that_do_not_fit_are_refused() -> None:
    data = as_sequences(SCHEMA, some_data())
    with pytest.raises(StructureError, match="`count`"):
        regrown(thin_network(), data, -1)
    with pytest.raises(DataError, match="`data`"):
        regrown(thin_network(), data.values, 1)  # type: ignore[arg-type]
