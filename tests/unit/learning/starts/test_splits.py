import time

import numpy as np
import pytest

from dspn.engine import compile_program
from dspn.errors import StructureError
from dspn.learning.starts import interface_use, split_interface, split_interfaces
from dspn.structure import (
    DynamicNetwork,
    Input,
    NetworkBuilder,
    NetworkParameters,
    Parameters,
    Product,
    Sum,
    Top,
    assemble,
    initial_network,
    mixture_top,
)
from dspn.structure.chain import is_chain
from strategies import arbitrary_sequence, as_sequences, schema_of

SCHEMA = schema_of(("binary", "continuous", "count"))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def bare_chain() -> DynamicNetwork:
    """An input below a product, and a top network that is nothing but an input."""
    builder = NetworkBuilder(schema_of(("binary",)))
    past = builder.input()
    output = builder.product([builder.leaf("x0", [0.3, 0.7]), past])
    template, own = builder.template([output])
    top = Top(1, (Input(0),), 0)
    parameters = Parameters(own, NetworkParameters(np.zeros(0)))
    return DynamicNetwork(template, top, parameters)


def test_split_of_an_initial_template_is_the_next_initial_template() -> None:
    network = initial_network(SCHEMA, 3, rng=rng())
    split = split_interface(network, 1, rng())
    for output in split.template.outputs:
        node = split.template.nodes[output]
        assert isinstance(node, Product)
        sums = [split.template.nodes[child] for child in node.children]
        assert [own.children for own in sums if isinstance(own, Sum)] == [split.template.inputs]
    assert split.top.nodes[split.top.root] == Sum(split.top.inputs)
    assert is_chain(split.template)


def test_shares_are_equal_without_noise_and_near_a_half_with_it() -> None:
    network = initial_network(SCHEMA, 2, rng=rng())
    old = network.parameters.template.weights.reshape(2, 2)
    equal = split_interface(network, 0, rng(), noise=0.0).parameters
    new = equal.template.weights.reshape(3, 3)
    np.testing.assert_array_equal(new[:, 0], new[:, 2])
    np.testing.assert_array_equal(new[:2, 0], old[:, 0] / 2)
    np.testing.assert_array_equal(new[2], new[0])
    tilted = split_interface(network, 0, rng(), noise=0.1).parameters.template.weights
    share = tilted.reshape(3, 3)[:2, 0] / old[:, 0]
    assert ((share > 0.4) & (share < 0.6) & (share != 0.5)).all()


def test_noise_moves_a_leaf_by_its_own_scale() -> None:
    network = initial_network(SCHEMA, 1, rng=rng())
    rows = (np.array([[0.3, 0.7]]), np.array([[5.0, 0.04]]), np.array([[9.0]]))
    own = network.parameters
    network = network.with_parameters(
        Parameters(NetworkParameters(own.template.weights, rows), own.top)
    )
    copies = [
        split_interface(network, 0, rng(seed), noise=0.1).parameters.template.leaves
        for seed in range(300)
    ]
    moved = [np.stack([leaves[v][1] - rows[v][0] for leaves in copies]) for v in range(3)]
    np.testing.assert_allclose(moved[0][:, 0].std(), 0.1 * np.sqrt(0.21), rtol=0.15)
    np.testing.assert_allclose(moved[1][:, 0].std(), 0.1 * 0.2, rtol=0.15)
    np.testing.assert_allclose(moved[2][:, 0].std(), 0.1 * 3.0, rtol=0.15)


def test_input_below_a_product_becomes_a_sum_of_two() -> None:
    network = bare_chain()
    split = split_interface(network, 0, rng(), noise=0.2)
    for output in split.template.outputs:
        node = split.template.nodes[output]
        assert isinstance(node, Product)
        assert split.template.nodes[node.children[1]] == Sum(split.template.inputs)
    assert split.top.nodes[split.top.root] == Sum(split.top.inputs)
    data = as_sequences(network.schema, [np.array([[1.0], [0.0]]), np.array([[1.0]])])
    same = split_interface(network, 0, rng(), noise=0.0)
    np.testing.assert_allclose(
        compile_program(same).log_likelihood(data), np.log([0.21, 0.7]), rtol=1e-12
    )


def test_interface_use_of_a_chain_without_sums_counts_slices() -> None:
    network = bare_chain()
    data = as_sequences(network.schema, [np.full((3, 1), np.nan), np.zeros((2, 1))])
    use = interface_use(compile_program(network), data)
    np.testing.assert_allclose(use, [5.0], rtol=1e-12)
    weighted = interface_use(compile_program(network), data, np.array([2.0, 0.0]))
    np.testing.assert_allclose(weighted, [6.0], rtol=1e-12)


def test_output_below_another_output_is_copied_with_it() -> None:
    builder = NetworkBuilder(schema_of(("binary",)))
    inputs = builder.inputs(2)
    lower = builder.product([builder.leaf("x0", [0.2, 0.8]), builder.sum(inputs, [0.4, 0.6])])
    other = builder.product([builder.leaf("x0", [0.9, 0.1]), builder.sum(inputs, [0.5, 0.5])])
    upper = builder.sum([lower, other], [0.3, 0.7])
    network = assemble(builder.template([lower, upper]), mixture_top(builder.schema, [0.5, 0.5]))
    data = as_sequences(network.schema, [arbitrary_sequence(network.schema, 6, rng())])
    before = compile_program(network).log_likelihood(data)
    for position, copied in ((0, 3), (1, 7)):
        split = split_interface(network, position, rng(), noise=0.0)
        assert len(split.template.nodes) == len(network.template.nodes) + 1 + copied
        np.testing.assert_allclose(compile_program(split).log_likelihood(data), before, rtol=1e-12)


def test_zero_weights_stay_zero_and_split_in_two() -> None:
    network = initial_network(schema_of(("binary",)), 2, rng=rng())
    own = network.parameters
    weights = np.array([1.0, 0.0, 0.0, 1.0])
    network = network.with_parameters(
        Parameters(NetworkParameters(weights, own.template.leaves), own.top)
    )
    split = split_interface(network, 0, rng(), noise=0.5).parameters.template.weights.reshape(3, 3)
    np.testing.assert_array_equal(split == 0, [[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    np.testing.assert_allclose(split.sum(axis=1), 1.0, rtol=1e-12)


def test_split_is_the_same_for_the_same_seed() -> None:
    network = initial_network(SCHEMA, 3, rng=rng())
    one, two, three = (split_interface(network, 0, rng(seed)) for seed in (1, 1, 2))
    assert one.fingerprint == two.fingerprint != three.fingerprint


def test_split_of_a_large_template_takes_no_time_to_speak_of() -> None:
    network = initial_network(schema_of(("binary",) * 8), 256, rng=rng())
    begin = time.perf_counter()
    split = split_interfaces(network, range(8), rng())
    # Usually 0.04 s; anything quadratic in nodes or edges would take minutes.
    assert time.perf_counter() - begin < 5.0
    assert split.num_interfaces == 264
    assert split.template.num_weights == 264**2


@pytest.mark.parametrize(
    ("positions", "noise", "message"),
    [
        ([3], 0.1, r"`positions`.*0 to 2.*\(3,\)"),
        ([-1], 0.1, "`positions`"),
        ([], 0.1, "`positions`.*at least one"),
        ([1, 1], 0.1, "`positions`.*different"),
        ([0.5], 0.1, "`positions`"),
        ([0], -0.1, "`noise`.*-0.1"),
        ([0], 2.0, "`noise`"),
        ([0], float("nan"), "`noise`"),
        ([0], "much", "`noise`"),
    ],
)
def test_split_refuses(positions, noise, message: str) -> None:  # type: ignore[no-untyped-def]
    network = initial_network(SCHEMA, 3, rng=rng())
    with pytest.raises(StructureError, match=message):
        split_interfaces(network, positions, rng(), noise)


def test_split_refuses_a_model_and_a_seed() -> None:
    with pytest.raises(StructureError, match="`network`"):
        split_interface(None, 0, rng())  # type: ignore[arg-type]
    with pytest.raises(StructureError, match="`rng`"):
        split_interface(initial_network(SCHEMA, 1, rng=rng()), 0, 7)  # type: ignore[arg-type]
