import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dspn.engine import compile_program
from dspn.errors import DataError, StructureError
from dspn.learning.slice_spn import SliceLearner, SliceSpnOptions, spn_emissions
from dspn.leaves import family_for
from dspn.sequences import Schema, Sequences, Variable
from dspn.structure import DynamicNetwork, Leaf, NetworkBuilder, Sum
from dspn.structure.graph import reachable

BITS = Schema(tuple(Variable.binary(f"x{i}") for i in range(4)))


def pairs(num_slices: int, seed: int) -> Sequences:
    """x1 copies x0 and x3 copies x2, with one error in ten."""
    rng = np.random.default_rng(seed)
    first, third = rng.integers(2, size=(2, num_slices))
    noise = rng.random((2, num_slices)) < 0.1
    values = np.stack([first, first ^ noise[0], third, third ^ noise[1]], axis=1)
    return Sequences.from_codes(values.astype(float), [0, num_slices], BITS)


def families(data: Sequences) -> list:
    return [family_for(own, data.values[:, i]) for i, own in enumerate(data.schema)]


def learned(data: Sequences, weights: np.ndarray | None = None, **options: float) -> DynamicNetwork:
    """The network of a single state, whose chain says nothing."""
    own = np.ones(data.total_slices) if weights is None else weights
    return spn_emissions(
        data,
        families(data),
        np.ones(1),
        np.ones((1, 1)),
        own[:, None],
        options=SliceSpnOptions(**options),
        rng=np.random.default_rng(0),
    )


def nodes_below(network: DynamicNetwork, output: int) -> list:
    nodes = network.template.nodes
    return [nodes[child] for child in nodes[network.template.outputs[output]].children]


def test_independent_pairs_become_factors_that_are_mixtures() -> None:
    network = learned(pairs(2000, 0))
    factors = nodes_below(network, 0)
    # Two mixtures, one for each pair, and the sum over the inputs.
    assert [type(factor) for factor in factors] == [Sum, Sum, Sum]
    nodes = network.template.nodes
    below = [reachable(nodes, factor.children) for factor in factors[:2]]
    scopes = [{nodes[i].variable for i in own if isinstance(nodes[i], Leaf)} for own in below]
    assert sorted(map(sorted, scopes)) == [[0, 1], [2, 3]]


def test_distribution_is_that_of_the_slices() -> None:
    data = pairs(4000, 1)
    network = learned(data)
    every = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    single = Sequences.from_codes(every, np.arange(17), BITS)
    found = np.exp(compile_program(network).log_likelihood(single))
    assert_allclose(found.sum(), 1.0, rtol=1e-10)
    equal = (every[:, 0] == every[:, 1]) * 0.8 + 0.1
    same = (every[:, 2] == every[:, 3]) * 0.8 + 0.1
    assert_allclose(found, equal * same / 4, atol=0.02)


def test_weights_choose_the_slices_that_count() -> None:
    data = pairs(1000, 2)
    zeros = data.values[:, 0] == 0
    network = learned(data, zeros.astype(float))
    blank = np.array([[1.0, np.nan, np.nan, np.nan]])
    one = Sequences.from_codes(blank, [0, 1], BITS)
    assert np.exp(compile_program(network).log_likelihood(one)[0]) < 0.01


@pytest.mark.parametrize("scale", [0.0, 0.01])
def test_too_little_weight_gives_a_product_of_leaves(scale: float) -> None:
    data = pairs(500, 3)
    network = learned(data, np.full(500, scale))
    assert [type(node) for node in nodes_below(network, 0)] == [Leaf] * 4 + [Sum]


def test_constant_and_missing_columns_stand_apart() -> None:
    values = pairs(600, 4).values.copy()
    values[:, 1] = 1.0
    values[:, 3] = np.nan
    data = Sequences.from_codes(values, [0, 600], BITS)
    network = learned(data)
    assert [type(node) for node in nodes_below(network, 0)] == [Leaf] * 4 + [Sum]


def test_a_single_variable_is_a_leaf() -> None:
    rng = np.random.default_rng(5)
    schema = Schema((Variable.continuous("x"),))
    data = Sequences.from_codes(rng.normal(3, 2, size=(500, 1)), [0, 500], schema)
    network = learned(data)
    assert [type(node) for node in nodes_below(network, 0)] == [Leaf, Sum]
    assert_allclose(network.parameters.template.leaves[0], [[3, 4]], rtol=0.1)


def test_all_kinds_with_gaps_are_taken_apart_into_a_valid_network() -> None:
    rng = np.random.default_rng(6)
    state = rng.integers(3, size=1500)
    values = np.stack(
        [state, rng.normal(4.0 * state), rng.poisson(1 + 5 * state), rng.normal(size=1500)], axis=1
    )
    values[rng.random(values.shape) < 0.2] = np.nan
    schema = Schema(
        (
            Variable.categorical("a", ("u", "v", "w")),
            Variable.continuous("b"),
            Variable.count("c"),
            Variable.continuous("d"),
        )
    )
    data = Sequences.from_codes(values, [0, 700, 1500], schema)
    network = learned(data, num_clusters=3, min_slices=200)
    factored = learned(data, min_slices=1e9)
    gain = compile_program(network).log_likelihood(data) - compile_program(factored).log_likelihood(
        data
    )
    assert np.all(gain > 500)


def test_options_out_of_range_are_refused() -> None:
    for wrong in ({"alpha": 0.0}, {"num_clusters": 1}, {"num_steps": 0}, {"min_slices": 0}):
        with pytest.raises((DataError, StructureError), match=next(iter(wrong))):
            SliceSpnOptions(**wrong)


def test_weights_of_another_shape_are_refused() -> None:
    data = pairs(10, 7)
    learner = SliceLearner(NetworkBuilder(BITS), data, families(data))
    with pytest.raises(DataError, match="each of the 10 slices"):
        learner.factors(np.ones(9), np.random.default_rng(0))
