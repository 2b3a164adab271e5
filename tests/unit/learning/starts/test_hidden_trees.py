from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

import oracles
from dspn.engine import compile_program
from dspn.errors import DataError, StructureError
from dspn.learning import EmOptions, Priors, fit_em, scaled_families
from dspn.learning.starts import (
    clustered_network,
    hidden_tree,
    shared_mixture,
    slice_clusters,
)
from dspn.learning.starts._slice_templates import expected_labels
from dspn.learning.starts._slice_trees import slice_tree
from dspn.leaves import Family
from dspn.sequences import Schema, Sequences, Variable
from dspn.structure import (
    DynamicNetwork,
    NetworkBuilder,
    NetworkParameters,
    Parameters,
    Product,
    Sum,
    assemble,
    from_hmm,
    grouped_network,
    initial_network,
    mixture_top,
    violations,
)
from strategies import Floats, arbitrary_sequence, as_sequences, hide, random_case, schema_of

Start = Callable[..., DynamicNetwork]
BOTH = pytest.mark.parametrize("start", [shared_mixture, hidden_tree])
MIXED = schema_of(("binary", "ternary", "continuous", "count", "single"))
PRIORS = Priors(sum_pseudo_count=0.3)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def some_data(schema: Schema, lengths: tuple[int, ...] = (1, 4, 9, 6), share: float = 0.2):  # type: ignore[no-untyped-def]
    arrays = [
        hide(arbitrary_sequence(schema, length, rng(length)), rng(length), share)
        for length in lengths
    ]
    return as_sequences(schema, [*arrays, np.full((2, len(schema)), np.nan)])


def untied(network: DynamicNetwork, seed: int = 5) -> DynamicNetwork:
    other = grouped_network(network.schema, [range(len(network.schema))], 2, rng=rng(seed))
    own = network.parameters
    leaves = tuple(
        np.repeat(rows[:1], len(mine), axis=0)
        for rows, mine in zip(other.parameters.template.leaves, own.template.leaves, strict=True)
    )
    bottom = NetworkParameters(own.template.weights, leaves)
    return network.with_parameters(Parameters(own.template, own.top, bottom))


def plain(schema: Schema, groups: list[list[int]], sizes: list[int], seed: int) -> DynamicNetwork:
    """Sparse transitions, some of them shared or straight to an input; the last group reads none.

    Group g reads group g + 1 and, if there is only one, itself.
    """
    draw = rng(seed)
    builder = NetworkBuilder(schema)
    inputs = [builder.inputs(size) for size in sizes]
    outputs: list[int] = []
    for g, variables in enumerate(groups):
        reads = [g] if len(groups) == 1 else [g + 1] * (g + 1 < len(groups))
        if g == 0 and len(groups) > 1:
            reads = [0, 1]
        sums: dict[int, int] = {}
        for i in range(sizes[g]):
            own = initial_leaves(builder, variables, draw)
            for r in reads:
                if i % 3 == 2:
                    own.append(sums[r])
                elif i % 3 == 1:
                    own.append(inputs[r][i % sizes[r]])
                else:
                    chosen = np.unique(draw.integers(sizes[r], size=2))
                    weights = draw.dirichlet(np.ones(chosen.size))
                    sums[r] = builder.sum([inputs[r][c] for c in chosen], weights)
                    own.append(sums[r])
            outputs.append(builder.product(own))
    top = NetworkBuilder(schema)
    cap = [top.inputs(size) for size in sizes]
    parts = [top.sum(own, draw.dirichlet(np.ones(len(own)))) for own in cap]
    root = top.product(parts) if len(parts) > 1 else parts[0]
    return assemble(builder.template(outputs), top.top(root), root=["first", "last"][seed % 2])


def initial_leaves(
    builder: NetworkBuilder, variables: list[int], draw: np.random.Generator
) -> list[int]:
    drawn = initial_network(builder.schema, 1, rng=draw)
    banks = zip(drawn.template.banks, drawn.parameters.template.leaves, strict=True)
    rows = {bank.variable: (own[0], bank.family) for bank, own in banks}
    return [builder.leaf(variable, *rows[variable]) for variable in variables]


def shares(counts: Floats) -> Floats:
    usual = counts.sum(axis=0) + 1.0
    smooth = counts + PRIORS.sum_pseudo_count + usual / usual.sum()
    return smooth / smooth.sum(axis=1, keepdims=True)


def fitted_leaves(family: Family, values: Floats, states: Floats, size: int) -> list[list[float]]:
    rows = [
        family.maximise(
            family.statistics(values[states == state]).sum(axis=0)[None, :], PRIORS.leaf(family)
        )[0]
        for state in range(size)
    ]
    return [row.tolist() for row in rows]


def chain_likelihood(network: DynamicNetwork, emissions: Floats) -> float:
    """Sum over paths of a dense plain network with P(slice t | node i) = emissions[t, i]."""
    size = network.num_interfaces
    weights = network.parameters.template.weights.reshape(size, size)
    ordered = emissions if network.root == "first" else emissions[::-1]
    state = network.parameters.top.weights.copy()
    for t, own in enumerate(ordered):
        state = (state @ weights if t else state) * own
    return float(state.sum())


def soft_counts(network: DynamicNetwork, data: Sequences, states: Floats, size: int) -> Floats:
    """Sum over the slices of each state of P(node | evidence), by enumeration."""
    posteriors = np.concatenate([oracles.interface_posteriors(network, own) for own in data])
    return np.stack([posteriors[states == state].sum(axis=0) for state in range(size)], axis=1)


@pytest.mark.parametrize("root", ["first", "last"])
def test_shared_mixture_is_the_mixture_of_its_clusters(root: str) -> None:
    schema = schema_of(("binary", "continuous", "count"))
    data = some_data(schema)
    drawn = initial_network(schema, 2, rng=rng(3), root=root)
    network = scaled_families(drawn, data)
    found = shared_mixture(network, data, 3, priors=PRIORS, rng=rng(8))
    states = slice_clusters(data, 3, width=1, rng=rng(8))
    reach = shares(soft_counts(network, data, states, 3))
    families = [bank.family for bank in network.template.banks]
    leaves = [
        fitted_leaves(family, data.values[:, v], states, 3) for v, family in enumerate(families)
    ]
    for values in data:
        emissions = np.array(
            [
                [
                    sum(
                        reach[i, j]
                        * np.prod(
                            [
                                oracles.density(families[v], leaves[v][j], float(row[v]))
                                for v in range(3)
                            ]
                        )
                        for j in range(3)
                    )
                    for i in range(2)
                ]
                for row in values
            ]
        )
        expected = chain_likelihood(network, emissions)
        assert oracles.likelihood(found, values) == pytest.approx(expected, rel=1e-9)


def test_hidden_tree_is_the_sum_over_all_states_of_its_tree() -> None:
    schema = schema_of(("binary", "ternary", "continuous"))
    data = some_data(schema, (1, 5, 12, 7))
    network = scaled_families(initial_network(schema, 2, rng=rng(3)), data)
    found = hidden_tree(network, data, 2, priors=PRIORS, rng=rng(8))
    tree = slice_tree(data, [0, 1, 2])
    draw = rng(8)
    states = [
        slice_clusters(data, 2, variables=(v, *tree.neighbours(p)), width=1, rng=draw)
        for p, v in enumerate(tree.variables)
    ]
    reach = shares(soft_counts(network, data, states[0], 2))
    pairs = [np.zeros((2, 2)) for _ in states]
    for place, above in enumerate(tree.parents):
        if place:
            np.add.at(pairs[place], (states[above], states[place]), 1.0)
    moves = [shares(own) for own in pairs]
    families = [network.template.banks[v].family for v in tree.variables]
    leaves = [
        fitted_leaves(families[p], data.values[:, v], states[p], 2)
        for p, v in enumerate(tree.variables)
    ]
    for values in data:
        emissions = np.zeros((len(values), 2))
        for chosen in product(range(2), repeat=3):
            weight = np.prod([moves[p][chosen[tree.parents[p]], chosen[p]] for p in range(1, 3)])
            for t, row in enumerate(values):
                own = [
                    oracles.density(families[p], leaves[p][chosen[p]], float(row[v]))
                    for p, v in enumerate(tree.variables)
                ]
                emissions[t] += reach[:, chosen[0]] * weight * np.prod(own)
        expected = chain_likelihood(network, emissions)
        assert oracles.likelihood(found, values) == pytest.approx(expected, rel=1e-9)


@BOTH
@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_result_is_valid_for_sparse_templates_with_groups(
    start: Start, is_tied: bool, seed: int
) -> None:
    groups = [[[0, 1, 2, 3, 4]], [[4, 2], [1, 0, 3]], [[1], [0, 3], [2, 4]]][seed % 3]
    network = plain(MIXED, groups, [4, 3, 2][: len(groups)], seed)
    network = network if is_tied else untied(network)
    data = some_data(MIXED)
    found = start(network, data, 3, rng=rng(seed))
    assert not violations(found.template, found.top)
    assert found.groups == network.groups
    assert found.group_sources == network.group_sources
    assert found.root == network.root
    assert found.top is network.top
    assert found.parameters.tied == is_tied
    program = compile_program(found)
    nothing = data.with_values(np.full_like(data.values, np.nan))
    np.testing.assert_allclose(program.log_likelihood(nothing), 0.0, atol=1e-9)
    expected = [oracles.log_likelihood(found, own) for own in data]
    np.testing.assert_allclose(program.log_likelihood(data), expected, rtol=1e-9, atol=1e-9)


@BOTH
def test_sums_over_inputs_are_kept_in_template_and_bottom(start: Start) -> None:
    data = some_data(MIXED)
    network = plain(MIXED, [[0, 1, 2, 3, 4]], [5], 0)
    own = network.parameters
    turned = NetworkParameters(
        np.concatenate([w[::-1] for w in sum_weights(network.template.nodes, own.template)]),
        own.template.leaves,
    )
    network = network.with_parameters(Parameters(own.template, own.top, turned))
    found = start(network, data, 2, rng=rng())
    for before, after in (
        (own.template, found.parameters.template),
        (turned, found.parameters.bottom),
    ):
        assert after is not None
        mine = sum_weights(network.template.nodes, before)
        theirs = sum_weights(found.template.nodes, after)
        for one, other in zip(mine, theirs, strict=False):
            np.testing.assert_array_equal(one, other)
    assert found.parameters.bottom is not None
    for rows, others in zip(
        found.parameters.template.leaves, found.parameters.bottom.leaves, strict=True
    ):
        np.testing.assert_array_equal(rows, others)


def sum_weights(nodes, own: NetworkParameters) -> list[Floats]:  # type: ignore[no-untyped-def]
    return [np.array(w) for w in oracles.sum_weights(nodes, own.weights).values()]


@BOTH
def test_every_state_is_shared_by_all_nodes(start: Start) -> None:
    data = some_data(MIXED, (30, 30))
    network = clustered_network(data, 6, rng=rng())
    found = start(network, data, 3, rng=rng())
    assert {len(bank.nodes) for bank in found.template.banks} == {3}


@BOTH
@pytest.mark.parametrize("kinds", [("binary", "ternary", "binary"), ("continuous", "count")])
@pytest.mark.parametrize("is_tied", [True, False])
def test_no_step_of_em_falls_from_the_start(
    start: Start, kinds: tuple[str, ...], is_tied: bool
) -> None:
    schema = schema_of(kinds)
    data = some_data(schema, (1, 20, 15, 9))
    network = clustered_network(data, 3, priors=PRIORS, rng=rng())
    network = network if is_tied else untied(network)
    begun = start(network, data, 3, priors=PRIORS, rng=rng())
    options = EmOptions(max_steps=15, min_steps=15)
    fit = fit_em(begun, data, options=options, priors=PRIORS)
    trace = np.array([record.penalised for record in fit.history])
    assert len(trace) == 16
    assert (np.diff(trace) >= -1e-9).all()
    assert trace[-1] > trace[0]


@BOTH
def test_same_seed_gives_the_same_network(start: Start) -> None:
    data = some_data(MIXED, (30, 10))
    network = clustered_network(data, 3, rng=rng())
    one, other = (start(network, data, 4, rng=rng(7)) for _ in range(2))
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize("kind", ["binary", "continuous", "count", "single"])
def test_tree_of_one_variable_is_the_shared_mixture(kind: str) -> None:
    data = some_data(schema_of((kind,)), (20, 7))
    network = clustered_network(data, 3, rng=rng())
    one, other = (start(network, data, 3, rng=rng(1)) for start in (shared_mixture, hidden_tree))
    assert one.fingerprint == other.fingerprint


@BOTH
def test_one_state_makes_slices_independent_and_variables_too(start: Start) -> None:
    schema = schema_of(("binary", "ternary"))
    data = some_data(schema, (9, 8))
    network = clustered_network(data, 3, rng=rng())
    found = start(network, data, 1, priors=PRIORS, rng=rng())
    families = [bank.family for bank in network.template.banks]
    leaves = [
        fitted_leaves(family, data.values[:, v], np.zeros(data.total_slices), 1)[0]
        for v, family in enumerate(families)
    ]
    for values in data:
        expected = np.prod(
            [
                oracles.density(families[v], leaves[v], float(row[v]))
                for row in values
                for v in range(2)
            ]
        )
        assert oracles.likelihood(found, values) == pytest.approx(float(expected), rel=1e-9)


@BOTH
def test_there_are_fewer_states_where_fewer_slices_differ(start: Start) -> None:
    one = np.array([[0.0, 1.0], [1.0, 0.0]])
    data = as_sequences(schema_of(("binary", "binary")), [one] * 10)
    found = start(clustered_network(data, 2, rng=rng()), data, 50, rng=rng())
    assert all(len(bank.nodes) <= 4 for bank in found.template.banks)


@BOTH
def test_data_that_are_all_missing_or_of_one_slice_will_do(start: Start) -> None:
    network = clustered_network(some_data(MIXED), 3, rng=rng())
    for arrays in ([np.full((3, 5), np.nan)], [arbitrary_sequence(MIXED, 1, rng())]):
        data = as_sequences(MIXED, arrays)
        found = start(network, data, 4, rng=rng())
        assert np.isfinite(compile_program(found).log_likelihood(data)).all()
        fit_em(found, data, options=EmOptions(max_steps=2))


@BOTH
def test_groups_have_latents_of_their_own_and_as_many_states_as_asked_for(start: Start) -> None:
    data = some_data(schema_of(("binary", "continuous", "ternary", "count")), (40, 30))
    network = clustered_network(data, [3, 4], groups=[[2, 0], [1, 3]], rng=rng())
    found = start(network, data, [2, 5], rng=rng())
    sizes = {bank.variable: len(bank.nodes) for bank in found.template.banks}
    assert sizes == {0: 2, 2: 2, 1: 5, 3: 5}


@BOTH
def test_families_are_scaled_to_the_data(start: Start) -> None:
    schema = schema_of(("continuous", "count"))
    values = np.stack([rng(1).normal(1e6, 2.0, 60), rng(2).poisson(300, 60)], axis=1)
    data = as_sequences(schema, [values])
    found = start(initial_network(schema, 2, rng=rng()), data, 3, rng=rng())
    for bank in found.template.banks:
        assert bank.family == bank.family.scaled_to(values[:, bank.variable])
    means = found.parameters.template.leaves[0][:, 0]
    assert np.all(np.abs(means - 1e6) < 10)


@BOTH
def test_slice_with_hidden_variables_can_be_replaced_again(start: Start) -> None:
    data = some_data(schema_of(("binary", "ternary", "binary")), (40, 30))
    network = shared_mixture(clustered_network(data, 4, rng=rng()), data, 2, rng=rng())
    found = start(network, data, 6, rng=rng())
    again = start(network, data, 6, rng=rng())
    assert max(len(bank.nodes) for bank in found.template.banks) == 6
    assert found.fingerprint == again.fingerprint


def copies(count: int) -> Sequences:
    """A random bit in every slice, and noisy copies of copies of it."""
    draw = rng(3)
    columns = [draw.integers(2, size=count)]
    for _ in range(4):
        columns.append(np.where(draw.random(count) < 0.1, 1 - columns[-1], columns[-1]))
    values = np.stack(columns, axis=1).astype(float).reshape(-1, 10, 5)
    return as_sequences(schema_of(("binary",) * 5), list(values))


def test_dependences_within_a_slice_are_found_at_once() -> None:
    data = copies(4000)
    options = EmOptions(max_steps=30)
    alone = fit_em(clustered_network(data, 1, rng=rng()), data, options=options)
    mixed = fit_em(shared_mixture(alone.network, data, 2, rng=rng()), data, options=options)
    tree = fit_em(hidden_tree(alone.network, data, 2, rng=rng()), data, options=options)
    # The tree of the slice holds the process itself.
    turned = np.abs(np.diff(data.values, axis=1))
    truth = 10 * (np.log(0.5) + np.log(np.where(turned, 0.1, 0.9)).sum(axis=1).mean())
    assert alone.score < mixed.score - 8 < tree.score - 8
    assert tree.score > truth - 0.2


@pytest.mark.parametrize("seed", range(30))
def test_expected_labels_agree_with_enumeration(seed: int) -> None:
    network, arrays, data = random_case(seed)
    draw = rng(seed)
    labels = []
    for group in range(len(network.groups)):
        own = draw.integers(1 + group + seed % 3, size=data.total_slices)
        labels.append(np.unique(own, return_inverse=True)[1])
    posteriors = np.concatenate([oracles.interface_posteriors(network, own) for own in arrays])
    found = expected_labels(network, data, labels)
    for own, table, states in zip(network.groups, found, labels, strict=True):
        expected = np.zeros((len(own), states.max() + 1))
        np.add.at(expected.T, states, posteriors[:, list(own)])
        np.testing.assert_allclose(table, expected, rtol=1e-9, atol=1e-10)


@BOTH
def test_templates_that_are_not_plain_are_refused(start: Start) -> None:
    builder = NetworkBuilder(schema_of(("binary", "binary")))
    (node,) = builder.inputs(1)
    first, second = builder.leaf(0, [0.5, 0.5]), builder.leaf(1, [0.5, 0.5])
    inner = builder.product([first, node])
    outer = builder.product([inner, second])
    mixed = assemble(builder.template([outer]), mixture_top(builder.schema, [1.0]))
    data = as_sequences(builder.schema, [np.zeros((3, 2))])
    with pytest.raises(
        StructureError, match=r"output 4 \(interface 0\) has the factor 3 with both"
    ):
        start(mixed, data, 2, rng=rng())
    root = builder.sum([outer], [1.0])
    summed = assemble(builder.template([root]), mixture_top(builder.schema, [1.0]))
    with pytest.raises(StructureError, match=r"output 5 \(interface 0\) is a sum"):
        start(summed, data, 2, rng=rng())


@BOTH
def test_arguments_that_do_not_fit_are_refused(start: Start) -> None:
    data = some_data(MIXED)
    network = clustered_network(data, 2, rng=rng())
    with pytest.raises(StructureError, match="`num_states` must be a whole number"):
        start(network, data, 0, rng=rng())
    with pytest.raises(StructureError, match="one for each of the 1 groups"):
        start(network, data, [2, 2], rng=rng())
    with pytest.raises(StructureError, match="`rng` must be"):
        start(network, data, 2, rng=3)
    with pytest.raises(StructureError, match="`network` must be a DynamicNetwork"):
        start(data, data, 2, rng=rng())
    with pytest.raises(StructureError, match="`priors` must be a Priors"):
        start(network, data, 2, priors=0.1, rng=rng())
    with pytest.raises(DataError, match="`data` must have the variables of the model"):
        start(network, as_sequences(schema_of(("binary",)), [np.zeros((2, 1))]), 2, rng=rng())


@BOTH
def test_hidden_markov_model_may_have_names_like_those_of_labels(start: Start) -> None:
    schema = Schema((Variable.binary("label0"), Variable.binary("_label")))
    tables = {name: [[0.9, 0.1], [0.2, 0.8]] for name in schema.names}
    network = from_hmm([0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]], tables, schema=schema)
    data = as_sequences(schema, [arbitrary_sequence(schema, 30, rng())])
    found = start(network, data, 2, rng=rng())
    kinds = [type(found.template.nodes[output]) for output in found.template.outputs]
    assert kinds == [Product, Product]
    assert sum(isinstance(node, Sum) for node in found.template.nodes) >= 4
