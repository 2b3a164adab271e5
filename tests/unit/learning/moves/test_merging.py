"""Merges of plain templates against matrices, and what they refuse."""

import numpy as np
import pytest

from dspn import Schema, Variable
from dspn.engine import compile_program
from dspn.errors import StructureError
from dspn.learning import em_step
from dspn.learning.moves import merged_interfaces, pruned, similar_interfaces
from dspn.learning.starts import clustered_network, interface_use, split_interfaces
from dspn.structure import (
    DynamicNetwork,
    NetworkBuilder,
    assemble,
    from_hmm,
    grouped_network,
    initial_network,
    mixture_top,
)
from oracles import likelihood
from strategies import arbitrary_sequence, as_sequences

SCHEMA = Schema(
    (Variable.categorical("a", ("x", "y", "z")), Variable.continuous("b"), Variable.count("c"))
)
START = np.array([0.4, 0.1, 0.3, 0.2])
MATRIX = np.array(
    [[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.5, 0.0], [0.0, 0.5, 0.0, 0.5]]
)
LEAVES = {
    "a": np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]),
    "b": np.array([[0.0, 1.0], [2.0, 0.5], [-1.0, 2.0], [5.0, 1.0]]),
    "c": np.array([[1.0], [3.0], [0.5], [2.0]]),
}


def hmm(start: np.ndarray, matrix: np.ndarray, leaves: dict[str, np.ndarray]) -> DynamicNetwork:
    return from_hmm(start, matrix, leaves, schema=SCHEMA)


def merged_hmm(a: int, b: int, share: float) -> DynamicNetwork:
    """The HMM in which state a stands for both, by its matrices."""
    matrix, start = MATRIX.copy(), START.copy()
    leaves = {name: rows.copy() for name, rows in LEAVES.items()}
    matrix[a] = share * matrix[a] + (1 - share) * matrix[b]
    matrix[:, a] += matrix[:, b]
    start[a] += start[b]
    for name, rows in leaves.items():
        old = LEAVES[name]
        rows[a] = share * old[a] + (1 - share) * old[b]
        if name == "b":
            second = share * (old[a, 1] + old[a, 0] ** 2) + (1 - share) * (
                old[b, 1] + old[b, 0] ** 2
            )
            rows[a, 1] = second - rows[a, 0] ** 2
    stays = [state for state in range(4) if state != b]
    return hmm(
        start[stays],
        matrix[np.ix_(stays, stays)],
        {name: rows[stays] for name, rows in leaves.items()},
    )


@pytest.mark.parametrize("pair", [(0, 1), (1, 0), (2, 3), (3, 1)])
@pytest.mark.parametrize("share", [0.5, 0.25, 1.0])
def test_merged_states_of_an_hmm_have_summed_columns_and_averaged_rows(
    pair: tuple[int, int], share: float
) -> None:
    use = np.ones(4)
    use[pair[0]], use[pair[1]] = 8 * share, 8 * (1 - share)
    found = merged_interfaces(hmm(START, MATRIX, LEAVES), [pair], weights=use)
    expected = merged_hmm(*pair, share)
    rng = np.random.default_rng(0)
    for length in (1, 2, 4):
        values = arbitrary_sequence(SCHEMA, length, rng)
        values[length // 2, 1] = np.nan
        np.testing.assert_allclose(
            likelihood(found, values), likelihood(expected, values), rtol=1e-12
        )


def test_nodes_without_use_count_equally() -> None:
    network = hmm(START, MATRIX, LEAVES)
    none = merged_interfaces(network, [(0, 1)], weights=np.zeros(4))
    assert none.fingerprint == merged_interfaces(network, [(0, 1)]).fingerprint


def test_no_pairs_leave_the_network_as_it_is() -> None:
    network = hmm(START, MATRIX, LEAVES)
    assert merged_interfaces(network, []).fingerprint == network.fingerprint


def test_pruned_transitions_have_the_inputs_of_either() -> None:
    network = initial_network(SCHEMA, 6, rng=np.random.default_rng(1))
    rng = np.random.default_rng(2)
    data = as_sequences(SCHEMA, [arbitrary_sequence(SCHEMA, 20, rng)])
    thin = pruned(network, compile_program(network).expected_flows(data).flows, 0.4)
    merged = merged_interfaces(thin, [(0, 3), (1, 4)])

    def inputs(own: DynamicNetwork, position: int) -> set[int]:
        template = own.template
        node = template.nodes[template.nodes[template.outputs[position]].children[-1]]  # type: ignore[union-attr]
        return {template.inputs.index(child) for child in node.children}  # type: ignore[union-attr]

    name = {0: 0, 1: 1, 2: 2, 3: 0, 4: 1, 5: 3}
    for new, olds in ((0, (0, 3)), (1, (1, 4)), (2, (2,)), (3, (5,))):
        expected = {name[i] for old in olds for i in inputs(thin, old)}
        assert inputs(merged, new) == expected


def shared_leaves(widths: tuple[int, ...]) -> DynamicNetwork:
    """Outputs that mix the same three leaves, of which each has the first few."""
    schema = Schema((Variable.binary("a"),))
    builder = NetworkBuilder(schema)
    inputs = builder.inputs(len(widths))
    leaves = [builder.leaf("a", row) for row in ([0.9, 0.1], [0.4, 0.6], [0.3, 0.7])]
    outputs = []
    for number, width in enumerate(widths):
        mixture = builder.sum(leaves[:width], np.arange(1, width + 1) / np.arange(width + 1).sum())
        start = np.roll(np.arange(1.0, len(widths) + 1), number)
        outputs.append(builder.product([mixture, builder.sum(inputs, start / start.sum())]))
    top = mixture_top(schema, np.full(len(widths), 1 / len(widths)))
    return assemble(builder.template(outputs), top)


def test_leaves_that_outputs_share_stay_and_are_chosen_by_the_average() -> None:
    network = shared_leaves((3, 2, 3))
    merged = merged_interfaces(network, [(0, 1)], weights=np.array([3.0, 1.0, 0.0]))
    np.testing.assert_array_equal(
        merged.parameters.template.leaves[0], network.parameters.template.leaves[0]
    )
    template = merged.template
    mixture = template.nodes[template.outputs[0]].children[0]  # type: ignore[union-attr]
    start = template.edge_offsets[mixture]
    expected = 0.75 * np.array([1, 2, 3]) / 6 + 0.25 * np.array([1, 2, 0]) / 3
    np.testing.assert_allclose(
        merged.parameters.template.weights[start : start + 3], expected, rtol=1e-12
    )
    found = similar_interfaces(network, flows_of(network), 1)
    assert found.pairs in (((0, 2),), ((2, 0),))


def test_outputs_of_different_shapes_keep_the_first() -> None:
    schema = Schema((Variable.binary("a"),))
    builder = NetworkBuilder(schema)
    inputs = builder.inputs(2)
    leaves = [builder.leaf("a", row) for row in ([0.9, 0.1], [0.4, 0.6], [0.3, 0.7])]
    mixture = builder.sum(leaves[1:], [0.5, 0.5])
    outputs = [
        builder.product([node, builder.sum(inputs, [0.5, 0.5])]) for node in (leaves[0], mixture)
    ]
    network = assemble(builder.template(outputs), mixture_top(schema, [0.2, 0.8]))
    assert similar_interfaces(network, flows_of(network), 1).pairs == ()
    (rows,) = merged_interfaces(network, [(0, 1)]).parameters.template.leaves
    np.testing.assert_array_equal(rows, [[0.9, 0.1]])


def flows_of(network: DynamicNetwork, seed: int = 0):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    arrays = [arbitrary_sequence(network.schema, 30, rng) for _ in range(5)]
    data = as_sequences(network.schema, arrays)
    return compile_program(network).expected_flows(data).flows


# Which nodes are similar.


@pytest.mark.parametrize("groups", [[[0, 1, 2]], [[0, 2], [1]]])
def test_halves_of_splits_are_the_most_similar(groups: list[list[int]]) -> None:
    rng = np.random.default_rng(3)
    network = grouped_network(SCHEMA, groups, 5, num_products=2, rng=rng)
    size = network.num_interfaces
    split = split_interfaces(network, [1, 4], rng, noise=0.0)
    found = similar_interfaces(split, flows_of(split), 2)
    assert {frozenset(pair) for pair in found.pairs} == {
        frozenset({1, size}),
        frozenset({4, size + 1}),
    }
    np.testing.assert_allclose(found.losses, 0.0, atol=1e-8)


def test_loss_is_the_divergence_weighted_by_use() -> None:
    schema = Schema((Variable.binary("a"),))
    network = from_hmm(
        [0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]], {"a": [[0.8, 0.2], [0.1, 0.9]]}, schema=schema
    )
    flows = flows_of(network)

    def divergence(one: np.ndarray, other: np.ndarray) -> float:
        both = (one + other) / (one + other).sum()
        return sum(float(own @ np.log(own / own.sum() / both)) for own in (one, other))

    leaves = flows.template.leaves[0][:, 1:]
    transitions = flows.template.weights.reshape(2, 2)
    expected = divergence(leaves[0], leaves[1]) + divergence(transitions[0], transitions[1])
    found = similar_interfaces(network, flows, 5)
    np.testing.assert_allclose(found.losses, [expected], rtol=1e-9)


def test_more_used_node_comes_first() -> None:
    schema = Schema((Variable.binary("a"),))
    rows = {"a": [[0.8, 0.2], [0.8, 0.2]]}
    network = from_hmm([0.1, 0.9], [[0.1, 0.9], [0.1, 0.9]], rows, schema=schema)
    assert similar_interfaces(network, flows_of(network), 1).pairs == ((1, 0),)


def test_merge_of_similar_nodes_loses_no_more_than_was_estimated() -> None:
    rng = np.random.default_rng(5)
    truth = hmm(START, MATRIX, LEAVES)
    from strategies import draw_sequence

    data = as_sequences(SCHEMA, [draw_sequence(truth, 25, rng) for _ in range(12)])
    network = clustered_network(data, 10, rng=rng)
    for _ in range(5):
        network = em_step(network, data).network
    program = compile_program(network)
    found = program.expected_flows(data)
    similar = similar_interfaces(network, found.flows, 3)
    merged = merged_interfaces(network, similar.pairs, weights=interface_use(program, data))
    for _ in range(3):
        merged = em_step(merged, data).network
    after = em_step(merged, data).log_likelihood.sum()
    assert after > found.log_likelihood.sum() - sum(similar.losses)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([(0, 4)], "numbers from 0 to 3"),
        ([(0, 1, 2)], "give \\(a, b\\)"),
        ([(0, 0)], "at most once"),
        ([(0, 1), (1, 2)], "at most once"),
        ([(0.5, 1)], "whole numbers"),
    ],
)
def test_pairs_that_cannot_be_merged_are_refused(pairs: list[tuple[int, ...]], said: str) -> None:
    with pytest.raises(StructureError, match=said):
        merged_interfaces(hmm(START, MATRIX, LEAVES), pairs)  # type: ignore[arg-type]


def test_pairs_of_different_groups_and_wrong_weights_are_refused() -> None:
    network = grouped_network(SCHEMA, [[0, 1], [2]], 2, rng=np.random.default_rng(0))
    with pytest.raises(StructureError, match="different groups"):
        merged_interfaces(network, [(0, 2)])
    for weights in (np.ones(3), np.array([1.0, -1.0, 0.0, 0.0]), np.full(4, np.nan)):
        with pytest.raises(StructureError, match="`weights` must have one finite number"):
            merged_interfaces(network, [(0, 1)], weights=weights)
    with pytest.raises(StructureError, match="`count`"):
        similar_interfaces(network, flows_of(network), 0)
