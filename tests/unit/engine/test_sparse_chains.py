"""Chains with sparse transitions: the same answers as dense ones and as the general kernels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspn import DynamicNetwork, Model, Schema, Sequences, Variable
from dspn.engine import Program, compile_program
from dspn.engine.cpu import CpuEngine, CpuProgram, Paths
from dspn.engine.cpu.layout import Transitions
from dspn.structure import (
    Input,
    NetworkParameters,
    Parameters,
    Root,
    Sum,
    Template,
    grouped_network,
)
from dspn.structure.build import NetworkBuilder, assemble, mixture_top
from oracles import best_completion, log_likelihood
from strategies import Floats, as_sequences, hide, schema_of

Pair = tuple[DynamicNetwork, DynamicNetwork]


GENERAL = CpuEngine(Paths(chains=False))
DENSE = CpuEngine(Paths(fewest_sparse=10_000))


def _sparse(fewest: int) -> CpuEngine:
    """Every matrix of at least `fewest` nodes is sparse."""
    return CpuEngine(Paths(fewest_sparse=fewest, sparse_share=2.0))


def _transitions(program: Program) -> Transitions:
    (own,) = program.components
    assert isinstance(own, CpuProgram)
    found = own.template.transitions
    assert found is not None
    return found


def _thinned(network: DynamicNetwork, share: float, rng: np.random.Generator) -> Pair:
    """The network with about a share of its transitions, and one with zeros for all others.

    Some sums keep a single edge, some weights are zero, and some inputs may be read by nobody.
    """
    template, own = network.template, network.parameters.template
    nodes, sparse, dense = list(template.nodes), [], []
    for index, node in enumerate(template.nodes):
        if not isinstance(node, Sum):
            continue
        count = len(node.children)
        first = template.edge_offsets[index]
        kept = np.ones(count, dtype=bool)
        if isinstance(template.nodes[node.children[0]], Input):
            kept = rng.random(count) < share
            kept[rng.integers(count)] = True
            nodes[index] = Sum(tuple(np.array(node.children)[kept].tolist()))
        weights = own.weights[first : first + count] * kept
        if kept.sum() > 1 and rng.random() < 0.2:
            weights[rng.choice(np.flatnonzero(kept))] = 0.0
        weights /= weights.sum()
        sparse.append(weights[kept])
        dense.append(weights)
    thin = Template(template.schema, tuple(nodes), template.outputs)

    def parameters(weights: list[Floats]) -> Parameters:
        part = NetworkParameters(np.concatenate(weights), own.leaves)
        return Parameters(part, network.parameters.top, None)

    return (
        DynamicNetwork(thin, network.top, parameters(sparse), network.root),
        network.with_parameters(parameters(dense)),
    )


def _case(
    seed: int, sizes: tuple[int, ...], share: float, kinds: tuple[str, ...], longest: int = 6
) -> tuple[DynamicNetwork, DynamicNetwork, list[Floats], Sequences]:
    """A thinned network, its dense equal, and ragged sequences with gaps."""
    rng = np.random.default_rng(seed)
    groups: list[list[int]] = [[] for _ in sizes]
    for variable in range(len(kinds)):
        groups[variable % len(sizes)].append(variable)
    root = (Root.FIRST, Root.LAST)[seed % 2]
    whole = grouped_network(schema_of(kinds), groups, list(sizes), rng=rng, root=root)
    thin, dense = _thinned(whole, share, rng)
    lengths = [1, *rng.integers(1, longest + 1, 6).tolist()]
    drawn = Model(thin).sample(len(lengths), lengths, rng=rng).to_arrays()
    arrays = [hide(values, rng, (0.0, 0.3, 1.0)[i % 3]) for i, values in enumerate(drawn)]
    return thin, dense, arrays, as_sequences(thin.schema, arrays)


def _parts(program: Program, data: Sequences) -> list[Floats]:
    """Everything that expected flows are made of, weights of edges first."""
    found = program.expected_flows(data)
    own = found.flows
    return [own.template.weights, own.top.weights, found.log_likelihood, *own.template.leaves]


def _only_edges(thin: DynamicNetwork, weights: Floats) -> Floats:
    """Of the flows of the dense network those of the edges that the thinned one has."""
    found, first = [], 0
    for node in thin.template.nodes:
        if isinstance(node, Sum):
            positions = {n: p for p, n in enumerate(thin.template.inputs)}
            group = next(g for g in thin.groups if positions[node.children[0]] in g)
            own = [positions[child] for child in node.children]
            found.append(weights[first + np.searchsorted(np.sort(group), own)])
            first += len(group)
    return np.concatenate(found)


CASES = [
    (0, (40,), 0.1, ("binary", "ternary")),
    (1, (70,), 0.03, ("binary", "binary", "binary")),
    (2, (33, 50), 0.1, ("binary", "ternary", "binary")),
    (3, (40, 3, 36), 0.15, ("binary", "ternary", "single", "binary")),
    (4, (40,), 0.1, ("continuous", "binary")),
    (5, (48, 40), 0.1, ("count", "continuous", "binary")),
]


@pytest.mark.parametrize("case", CASES)
def test_sparse_chains_equal_dense_ones_with_zeros(
    case: tuple[int, tuple[int, ...], float, tuple[str, ...]],
) -> None:
    thin, dense, _, data = _case(*case)
    sparse, full = compile_program(thin), compile_program(dense, engine=DENSE)
    assert _transitions(sparse).is_sparse.tolist() == [size >= 32 for size in case[1]]
    assert not _transitions(full).is_sparse.any()
    np.testing.assert_allclose(sparse.log_likelihood(data), full.log_likelihood(data), rtol=1e-12)
    found, expected = _parts(sparse, data), _parts(full, data)
    expected[0] = _only_edges(thin, expected[0])
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-13)
    best, same = sparse.best(data), full.best(data)
    np.testing.assert_allclose(best.log_values, same.log_values, rtol=1e-12)
    np.testing.assert_array_equal(best.interfaces, same.interfaces)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([(1,), (3,), (9,), (17,), (2, 5), (9, 1, 3)]),
    st.sampled_from([0.0, 0.2, 0.5]),
    st.booleans(),
)
def test_sparse_chains_agree_with_enumeration_and_general_kernels(
    seed: int, sizes: tuple[int, ...], share: float, mixed: bool
) -> None:
    kinds = ("binary", "ternary", "single" if mixed else "binary")
    thin, _, arrays, data = _case(seed, sizes, share, kinds, longest=4)
    program = compile_program(thin, engine=_sparse(3 if mixed else 1))
    assert _transitions(program).target.size
    expected = [log_likelihood(thin, values) for values in arrays]
    np.testing.assert_allclose(program.log_likelihood(data), expected, rtol=1e-10, atol=1e-13)
    completed = [best_completion(thin, values) for values in arrays]
    np.testing.assert_allclose(program.best(data).log_values, np.log(completed), rtol=1e-9)
    found = _parts(program, data)
    general = _parts(compile_program(thin, engine=GENERAL), data)
    for own, other in zip(found, general, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-12)


def test_sums_that_outputs_share_add_up_their_flows() -> None:
    thin, _, _, data = _case(7, (40,), 0.1, ("binary", "ternary"))
    template = thin.template
    sums = [i for i, node in enumerate(template.nodes) if isinstance(node, Sum)]
    nodes = [
        type(node)(tuple(sums[0] if child == sums[1] else child for child in node.children))
        if hasattr(node, "children") and sums[1] in node.children
        else node
        for node in template.nodes
    ]
    shared = Template(template.schema, tuple(nodes), template.outputs)
    network = DynamicNetwork(shared, thin.top, thin.parameters, thin.root)
    program = compile_program(network)
    assert _transitions(program).is_sparse.all()
    general = compile_program(network, engine=GENERAL)
    for own, other in zip(_parts(program, data), _parts(general, data), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-12)


def _two_chains(schema: Schema, one: Floats, other: Floats, states: int = 32) -> DynamicNetwork:
    """Two rings that never meet; all nodes of a ring have the same leaf."""
    builder = NetworkBuilder(schema)
    inputs = builder.inputs(states)
    outputs = []
    for state in range(states):
        ring = state // (states // 2) * (states // 2)
        before = ring + (state - 1) % (states // 2)
        mixed = builder.sum([inputs[state], inputs[before]], [0.5, 0.5])
        outputs.append(builder.product([builder.leaf(0, other if ring else one), mixed]))
    return assemble(builder.template(outputs), mixture_top(schema, np.full(states, 1 / states)))


def _codes(*runs: tuple[int, int]) -> Floats:
    """Sequences of one variable from (code, how often)."""
    return np.concatenate([np.full((count, 1), float(code)) for code, count in runs])


def _assert_made_good(network: DynamicNetwork, data: Sequences, precision: str) -> None:
    program = compile_program(network, precision=precision)
    assert _transitions(program).is_sparse.all()
    expected = _parts(compile_program(network, engine=GENERAL), data)
    np.testing.assert_allclose(program.log_likelihood(data), expected[2], rtol=1e-10)
    for own, other in zip(_parts(program, data), expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("precision", ["double", "single"])
def test_what_underflows_in_a_sparse_chain_is_made_good(precision: str) -> None:
    schema = schema_of(("binary",))
    network = _two_chains(schema, np.array([0.999, 0.001]), np.array([0.001, 0.999]))
    turning, plain = _codes((0, 300), (1, 400)), _codes((0, 3), (1, 2))
    data = as_sequences(schema, [turning, plain, turning, plain])
    _assert_made_good(network, data, precision)


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("length", [60, 400])
def test_a_chain_that_is_lost_going_up_and_going_down_is_found(precision: str, length: int) -> None:
    categories = 50
    schema = Schema((Variable.categorical("x", tuple(range(categories))),))
    sure = np.full(categories, 0.05 / (categories - 1))
    sure[0] = 0.95
    network = _two_chains(schema, np.full(categories, 1 / categories), sure)
    data = as_sequences(schema, [_codes((1, length), (0, 4 * length), (2, length))] * 3)
    _assert_made_good(network, data, precision)


@pytest.mark.parametrize("num_variables", [40, 400])
def test_coefficients_beyond_single_precision_are_made_good(num_variables: int) -> None:
    kinds = ("binary",) * num_variables
    thin, _, _, _ = _case(8, (40,), 0.1, kinds, longest=1)
    rng = np.random.default_rng(0)
    data = Model(thin).sample(6, 12, rng=rng)
    single = compile_program(thin, precision="single")
    for own, other in zip(_parts(single, data), _parts(compile_program(thin), data), strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("seed", range(6))
def test_single_precision_of_sparse_chains_is_near_double(seed: int) -> None:
    sizes = ((40,), (33, 50), (64, 5))[seed % 3]
    kinds = ("binary", "ternary", "binary")
    thin, _, _, data = _case(seed, sizes, 0.1, kinds, longest=30)
    single = compile_program(thin, precision="single")
    found, expected = _parts(single, data), _parts(compile_program(thin), data)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-5, atol=2e-7)
    assert not np.array_equal(found[0], expected[0])
    np.testing.assert_allclose(single.log_likelihood(data), expected[2], rtol=2e-6, atol=1e-7)


def test_values_far_apart_do_not_end_single_precision() -> None:
    thin, _, _, data = _case(1, (70,), 0.03, ("binary",) * 6, longest=40)
    leaves = tuple(np.where(rows < 0.5, 1e-5, 1 - 1e-5) for rows in thin.parameters.template.leaves)
    part = NetworkParameters(thin.parameters.template.weights, leaves)
    network = thin.with_parameters(Parameters(part, thin.parameters.top, None))
    data = Model(network).sample(20, 40, rng=np.random.default_rng(0))
    expected = _parts(compile_program(network), data)
    found = _parts(compile_program(network, precision="single"), data)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-5, atol=2e-6)
    assert not np.array_equal(found[0], expected[0])  # as they would be in double precision


@pytest.mark.parametrize("precision", ["double", "single"])
def test_results_of_sparse_chains_do_not_depend_on_threads_or_blocks(precision: str) -> None:
    thin, _, _, _ = _case(2, (33, 50), 0.1, ("binary", "ternary", "binary"))
    rng = np.random.default_rng(3)
    data = Model(thin).sample(300, rng.integers(1, 20, 300).tolist(), rng=rng)

    def program(paths: Paths) -> Program:
        return compile_program(thin, precision=precision, engine=CpuEngine(paths))

    one, two = program(Paths(threads=1)), program(Paths(threads=2))
    values = one.log_likelihood(data)
    order = rng.permutation(300)
    np.testing.assert_array_equal(one.log_likelihood(data[order]), values[order])
    np.testing.assert_array_equal(two.log_likelihood(data), values)
    for own, other in zip(_parts(two, data), _parts(one, data), strict=True):
        np.testing.assert_array_equal(own, other)
    np.testing.assert_array_equal(program(Paths(lanes=5)).log_likelihood(data), values)


def test_a_bottom_network_of_its_own_is_run_with_its_own_weights() -> None:
    thin, _, _, data = _case(4, (40,), 0.1, ("binary", "ternary"))
    rng = np.random.default_rng(0)
    own = thin.parameters.template
    leaves = tuple(rng.dirichlet(np.ones(rows.shape[1]), len(rows)) for rows in own.leaves)
    parameters = Parameters(own, thin.parameters.top, NetworkParameters(own.weights, leaves))
    network = thin.with_parameters(parameters)
    program = compile_program(network)
    expected = [log_likelihood(network, values) for values in data.to_arrays()]
    np.testing.assert_allclose(program.log_likelihood(data), expected, rtol=1e-10, atol=1e-13)
    general = compile_program(network, engine=GENERAL)
    for mine, theirs in zip(_parts(program, data), _parts(general, data), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)
