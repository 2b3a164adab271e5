import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dspn.data import Schema, Sequences, Variable
from dspn.engine import Program
from dspn.errors import DataError, StructureError
from dspn.learning.em import EmOptions, fit_em, scaled_families
from dspn.learning.gradient import (
    free_parameters,
    gradient,
    log_prior_gradient,
    with_free_parameters,
)
from dspn.learning.priors import Priors
from dspn.learning.scores import LIKELIHOOD, ConditionalLikelihood, Score
from dspn.structure import DynamicNetwork, Leaf, Sum, from_hmm, initial_network
from strategies import random_case

SCHEMA = Schema(
    (
        Variable.categorical("label", ("a", "b")),
        Variable.continuous("x"),
        Variable.count("n"),
        Variable.categorical("only", ("one",)),
    )
)
CLASS = ConditionalLikelihood(("label",))


def batch(*arrays: list[list[float]], schema: Schema = SCHEMA) -> Sequences:
    return Sequences.from_codes(
        np.concatenate([np.array(array, dtype=float) for array in arrays]),
        np.cumsum([0, *map(len, arrays)]),
        schema,
    )


def network_of(num_interfaces: int, schema: Schema = SCHEMA) -> DynamicNetwork:
    return initial_network(schema, num_interfaces, rng=np.random.default_rng(3))


def same(one: DynamicNetwork, other: DynamicNetwork) -> list[bool]:
    """Whether each sum and each leaf of the template has the same parameters, bit for bit."""
    a, b, template = one.parameters.template, other.parameters.template, one.template
    found = {}
    for node, start in template.edge_offsets.items():
        own = slice(start, start + len(template.nodes[node].children))  # type: ignore[union-attr]
        found[node] = np.array_equal(a.weights[own], b.weights[own])
    for bank, mine, theirs in zip(template.banks, a.leaves, b.leaves, strict=True):
        for row, node in enumerate(bank.nodes):
            found[node] = np.array_equal(mine[row], theirs[row])
    return [found[node] for node in sorted(found)]


def test_gradient_of_one_leaf_is_the_textbook_derivative() -> None:
    schema = Schema((Variable.binary("b"), Variable.continuous("x"), Variable.count("n")))
    network = from_hmm(
        [1.0],
        [[1.0]],
        {"b": [[0.3, 0.7]], "x": [[1.0, 4.0]], "n": [[2.0]]},
        schema=schema,
    )
    found = gradient(network, batch([[1, 2, 5], [0, math.nan, math.nan]], schema=schema))
    names = [bank.family.name for bank in network.template.banks]
    assert names == ["categorical", "gaussian", "poisson"]
    # Logits of both categories, standardised mean, log variance, log rate; sums have one edge.
    expected = [1 - 2 * 0.3, 1 - 2 * 0.7, (2 - 1) / 4, 0.5 * ((2 - 1) ** 2 / 4 - 1), 5 - 2]
    assert_allclose(found.gradient[found.gradient != 0], expected, rtol=1e-12)
    assert_allclose(found.value, math.log(0.7 * 0.3) - 0.125 - 0.5 * math.log(8 * math.pi) + (
        5 * math.log(2) - 2 - math.log(120)
    ), rtol=1e-12)  # fmt: skip


def test_gradient_vanishes_where_expectation_maximisation_ends() -> None:
    rng = np.random.default_rng(0)
    # Two states that are easy to tell apart, for quick convergence.
    states = rng.integers(2, size=(30, 4))
    data = batch(*[[[s, rng.normal(9 * s), rng.poisson(2), 0] for s in own] for own in states])
    start = scaled_families(network_of(2), data)
    options = EmOptions(max_steps=100, tolerance=0.0, min_steps=100)
    priors = Priors(3.0)
    end = fit_em(start, data, options=options, priors=priors).network
    before = gradient(start, data).gradient + log_prior_gradient(start, priors).gradient
    after = gradient(end, data).gradient + log_prior_gradient(end, priors).gradient
    assert np.abs(before).max() > 1.0
    assert_allclose(after, 0.0, atol=1e-4)


def test_gradient_of_slices_that_are_all_missing_is_zero() -> None:
    for score in (LIKELIHOOD, CLASS):
        found = gradient(network_of(2), batch([[math.nan] * 4] * 3), score)
        assert_allclose(found.value, 0.0, atol=1e-12)
        assert_allclose(found.gradient, 0.0, atol=1e-12)


def test_conditional_gradient_is_zero_without_class_entries() -> None:
    data = batch([[math.nan, 0.3, 2, 0]] * 3, [[math.nan, 0.3, math.nan, math.nan]])
    found = gradient(network_of(3), data, CLASS)
    assert_array_equal(found.value, 0.0)
    assert_array_equal(found.gradient, 0.0)


def test_gradient_of_one_slice_adds_up_over_sequences_and_weights() -> None:
    network = network_of(2)
    one, other = [[0, 0.3, 2, 0]], [[1, -1.0, 0, math.nan]]
    for score in (LIKELIHOOD, CLASS):
        both = gradient(network, batch(one, other), score, sample_weights=np.array([2.0, 0.5]))
        first = gradient(network, batch(one), score)
        second = gradient(network, batch(other), score)
        assert_allclose(both.value, 2 * first.value + 0.5 * second.value, rtol=1e-12)
        assert_allclose(
            both.gradient, 2 * first.gradient + 0.5 * second.gradient, rtol=1e-10, atol=1e-13
        )


def test_sequence_of_weight_zero_does_not_count_even_if_it_is_impossible() -> None:
    schema = Schema((Variable.binary("b"), Variable.binary("c")))
    network = from_hmm([1.0], [[1.0]], {"b": [[1.0, 0.0]], "c": [[0.5, 0.5]]}, schema=schema)
    data = batch([[0, 0]], [[1, 0]], schema=schema)
    found = gradient(network, data, sample_weights=np.array([1.0, 0.0]))
    assert_allclose(found.value, math.log(0.5), rtol=1e-12)
    for score in (LIKELIHOOD, ConditionalLikelihood(("b",))):
        with pytest.raises(DataError, match=r"sequence 1 .* has probability zero"):
            gradient(network, data, score)


def test_vector_leaves_out_exact_zeros() -> None:
    schema = Schema((Variable.binary("b"),))
    network = from_hmm(
        [0.5, 0.5], [[0.9, 0.1], [0.0, 1.0]], {"b": [[1.0, 0.0], [0.4, 0.6]]}, schema=schema
    )
    assert free_parameters(network).size == 2 + 3 + 3
    moved = with_free_parameters(network, np.arange(8.0))
    assert sum(int(np.sum(part == 0)) for part in (
        moved.parameters.template.weights, moved.parameters.template.leaves[0]
    )) == 2  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_only_learnable_nodes_have_coordinates_and_change(seed: int) -> None:
    network, _, data = random_case(seed)
    nodes = network.template.nodes
    able = [index for index, node in enumerate(nodes) if isinstance(node, Sum | Leaf)]
    chosen = frozenset(able[::2])
    vector = free_parameters(network, chosen)
    assert vector.size < free_parameters(network).size
    moved = with_free_parameters(network, vector + 0.01 * np.arange(vector.size), chosen)
    kept = same(network, moved)
    assert all(kept[1::2])
    assert moved.parameters.top.weights.tobytes() == network.parameters.top.weights.tobytes()
    whole, part = gradient(network, data), gradient(network, data, learnable=chosen)
    assert part.value == whole.value
    # The coordinates of some nodes are coordinates of the network, in the same order.
    position = 0
    for entry in part.gradient:
        position += int(np.flatnonzero(whole.gradient[position:] == entry)[0]) + 1
    step = 1e-5 * np.random.default_rng(seed).normal(size=vector.size)
    ahead = gradient(with_free_parameters(network, vector + step, chosen), data).value
    behind = gradient(with_free_parameters(network, vector - step, chosen), data).value
    assert_allclose(part.gradient @ step, (ahead - behind) / 2, rtol=1e-4, atol=1e-10)


def test_no_node_at_all_may_be_learnable() -> None:
    network = network_of(2)
    assert free_parameters(network, []).shape == (0,)
    again = with_free_parameters(network, np.empty(0), [])
    assert again.fingerprint == network.fingerprint
    assert gradient(network, batch([[0, 0.0, 1, 0]]), learnable=[]).gradient.shape == (0,)


def test_free_parameters_may_be_written_to() -> None:
    network = network_of(2)
    vector = free_parameters(network)
    vector += 1.0
    assert not np.array_equal(vector, free_parameters(network))


def test_wrong_vectors_are_refused_with_the_number_needed() -> None:
    network = network_of(2)
    size = free_parameters(network).size
    for vector in (np.zeros(size + 1), np.full(size, np.nan), np.zeros((size, 1))):
        with pytest.raises(StructureError, match=f"`vector` must hold {size} finite numbers"):
            with_free_parameters(network, vector)


def test_wrong_arguments_are_refused_by_name() -> None:
    network, data = network_of(2), batch([[0, 0.3, 2, 0]])
    with pytest.raises(StructureError, match="`network` must be a DynamicNetwork"):
        free_parameters("network")  # type: ignore[arg-type]
    with pytest.raises(StructureError, match="`learnable` must name nodes"):
        free_parameters(network, [10_000])
    with pytest.raises(DataError, match="must be categorical, but 'x' is continuous"):
        gradient(network, data, ConditionalLikelihood(("x",)))
    with pytest.raises(DataError, match="`sample_weights`"):
        gradient(network, data, sample_weights=np.array([-1.0]))
    with pytest.raises(DataError, match="`data` must have the variables of the model"):
        gradient(network, batch([[0.0]], schema=Schema((Variable.binary("b"),))))


def test_a_score_of_unknown_gradient_is_refused() -> None:
    class Length(Score):
        def check(self, schema: Schema) -> None: ...

        def sequence_scores(self, program: Program, data: Sequences) -> np.ndarray:
            return data.lengths.astype(float)

    with pytest.raises(StructureError, match="`score` must be a Likelihood"):
        gradient(network_of(2), batch([[0, 0.3, 2, 0]]), Length())
