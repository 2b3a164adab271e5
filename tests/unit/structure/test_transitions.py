"""Templates whose outputs read few inputs by blocks, against unrolled ones and dense HMMs."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dspn import Model, Sequences
from dspn.errors import StructureError
from dspn.learning import EmOptions, fit_em
from dspn.models.hmm import start_probabilities, transition_matrix
from dspn.structure import DynamicNetwork, Sum, grouped_network, initial_network
from dspn.structure.transitions import Transitions, sum_layers, visited_sums
from oracles import likelihood, log_likelihood
from strategies import schema_of

SCHEMA = schema_of(("binary", "ternary"))
FEW = (Transitions.BLOCK, Transitions.MONARCH)
SIZES = (1, 2, 3, 5, 16, 23, 64, 100)


def network_of(kind: str, size: int, root: str = "first") -> DynamicNetwork:
    rng = np.random.default_rng(size)
    return initial_network(SCHEMA, size, transitions=kind, rng=rng, root=root)


def observed(num_sequences: int, seed: int = 0) -> Sequences:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, num_sequences)
    values = rng.integers(0, 2, (lengths.sum(), 2)).astype(float)
    values[rng.random(values.shape) < 0.1] = np.nan
    return Sequences.from_codes(values, np.concatenate([[0], np.cumsum(lengths)]), SCHEMA)


def reached(kind: Transitions, size: int) -> np.ndarray:
    """Number of ways from each input (column) to each output (row)."""
    ways = np.eye(size)
    for layer in sum_layers(kind, size):
        ways = np.stack([ways[own].sum(axis=0) for own in layer])
    return ways


@pytest.mark.parametrize("size", SIZES)
def test_monarch_has_one_way_from_every_input_to_every_output(size: int) -> None:
    assert_array_equal(reached(Transitions.MONARCH, size), np.ones((size, size)))


@pytest.mark.parametrize("size", SIZES)
def test_blocks_reach_every_node_in_as_many_slices_as_their_number_has_bits(size: int) -> None:
    step = reached(Transitions.BLOCK, size)
    assert step.max() == 1
    blocks = -(-size // 8)
    assert (np.linalg.matrix_power(step, max((blocks - 1).bit_length(), 1)) > 0).all()


@pytest.mark.parametrize("kind", FEW)
@pytest.mark.parametrize("size", SIZES)
def test_visited_sums_follow_the_edges(kind: Transitions, size: int) -> None:
    above, below = np.nonzero(reached(kind, size))
    visited = visited_sums(kind, size, above, below)
    for layer, upper, lower in zip(sum_layers(kind, size), visited[1:], visited, strict=False):
        assert all(low in layer[up] for up, low in zip(upper, lower, strict=True))


@pytest.mark.parametrize(("size", "edges"), [(16, 128), (64, 1024), (256, 8192), (1024, 65536)])
def test_monarch_has_twice_k_root_k_edges(size: int, edges: int) -> None:
    assert (
        sum(len(own) for layer in sum_layers(Transitions.MONARCH, size) for own in layer) == edges
    )


@pytest.mark.parametrize("root", ["first", "last"])
@pytest.mark.parametrize("kind", FEW)
@pytest.mark.parametrize("size", [1, 3, 5, 17])
def test_likelihood_agrees_with_the_unrolled_network(kind: str, size: int, root: str) -> None:
    network, data = network_of(kind, size, root), observed(6)
    expected = [log_likelihood(network, own) for own in np.split(data.values, data.offsets[1:-1])]
    assert_allclose(Model(network).log_likelihood(data), expected, rtol=1e-10)


@pytest.mark.parametrize("kind", FEW)
def test_probabilities_of_all_sequences_add_up_to_one(kind: str) -> None:
    network = network_of(kind, 9)
    slices = list(itertools.product(range(2), range(3)))
    every = itertools.product(slices, repeat=2)
    total = sum(likelihood(network, np.array(own, dtype=float)) for own in every)
    assert total == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("kind", FEW)
@pytest.mark.parametrize("size", [5, 40])
def test_same_as_the_dense_hmm_of_the_product_of_the_factors(kind: str, size: int) -> None:
    network, data = network_of(kind, size), observed(50)
    emissions = {
        variable.name: rows
        for variable, rows in zip(SCHEMA, network.parameters.template.leaves, strict=True)
    }
    matrix = transition_matrix(network)
    assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-12)
    dense = Model.from_hmm(start_probabilities(network), matrix, emissions, schema=SCHEMA)
    own = Model(network)
    assert_allclose(own.log_likelihood(data), dense.log_likelihood(data), rtol=1e-10)
    expected = dense.interface_posteriors(data)
    assert_allclose(own.interface_posteriors(data), expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("kind", FEW)
def test_every_step_of_em_raises_the_likelihood(kind: str) -> None:
    data = observed(60)
    fit = fit_em(
        network_of(kind, 20).untied(),
        data,
        options=EmOptions(max_steps=15, tolerance=0.0),
        rng=np.random.default_rng(0),
    )
    gains = np.diff([record.penalised for record in fit.history])
    assert len(gains) > 5
    assert (gains >= -1e-9).all()


@pytest.mark.parametrize("kind", FEW)
def test_groups_have_transitions_of_their_own(kind: str) -> None:
    network = grouped_network(
        SCHEMA, [[0], [1]], [9, 16], transitions=kind, rng=np.random.default_rng(0)
    )
    assert network.groups == (tuple(range(9)), tuple(range(9, 25)))
    data = observed(5)
    expected = [log_likelihood(network, own) for own in np.split(data.values, data.offsets[1:-1])]
    assert_allclose(Model(network).log_likelihood(data), expected, rtol=1e-10)


def test_dense_transitions_are_what_they_were() -> None:
    template = network_of("dense", 3).template
    assert [node.children for node in template.nodes if isinstance(node, Sum)] == [(0, 1, 2)] * 3


def test_other_transitions_are_refused() -> None:
    with pytest.raises(StructureError, match="'dense', 'block' or 'monarch', but is 'butterfly'"):
        network_of("butterfly", 3)
