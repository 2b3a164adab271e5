import numpy as np
import pytest

from dspn import Model
from dspn.engine import compile_program
from dspn.errors import DataError, StructureError
from dspn.learning import EmOptions, fit_em
from dspn.learning.starts import informed, informed_split, randomised, split_interface
from dspn.sequences import Schema, Sequences, Variable
from dspn.structure import (
    DynamicNetwork,
    NetworkParameters,
    Parameters,
    from_hmm,
    grouped_network,
    initial_network,
)
from strategies import arbitrary_sequence, as_sequences, schema_of

COIN = Schema((Variable.binary("x"),))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def score(network: DynamicNetwork, data: Sequences) -> float:
    return float(compile_program(network).log_likelihood(data).mean())


def fitted(network: DynamicNetwork, data: Sequences, steps: int) -> DynamicNetwork:
    return fit_em(network, data, options=EmOptions(max_steps=steps)).network


def single(data: Sequences) -> DynamicNetwork:
    network = initial_network(data.schema, 1, rng=rng())
    return fitted(randomised(network, data, rng()), data, 3)


def test_the_node_that_holds_two_kinds_of_slices_is_split() -> None:
    schema = schema_of(("continuous", "continuous"))
    kind = rng(1).integers(3, size=600)
    values = np.array([[0.0, 0.0], [6.0, 0.0], [6.0, 6.0]])[kind] + rng(2).normal(size=(600, 2))
    data = as_sequences(schema, list(values.reshape(20, 30, 2)))
    # Node 1 has to serve the second and the third kind together.
    own = {"x0": [[0.0, 1.0], [6.0, 1.0]], "x1": [[0.0, 1.0], [3.0, 10.0]]}
    network = from_hmm([0.3, 0.7], [[0.3, 0.7]] * 2, own, schema=schema)
    split = informed_split(network, data, rng=rng())
    means = np.sort(split.parameters.template.leaves[1][[1, 2], 0])
    np.testing.assert_allclose(means, [0.0, 6.0], atol=0.5)
    np.testing.assert_allclose(split.parameters.template.leaves[1][0], [0.0, 1.0], atol=0.3)
    assert score(split, data) > score(network, data) + 5


def test_slices_that_differ_by_their_neighbours_only_are_told_apart() -> None:
    data = as_sequences(COIN, [np.array([0, 0, 1, 1] * 5, dtype=float)[:, None]] * 10)
    network = single(data)
    for _ in range(3):
        network = fitted(informed_split(network, data, rng=rng()), data, 5)
    # With four nodes the sequence is all but certain.
    assert score(network, data) > -2.0


def test_informed_split_starts_better_than_one_with_noise() -> None:
    schema = Schema(tuple(Variable.binary(f"x{i}") for i in range(6)))
    draw = rng(5)
    transition = draw.dirichlet(np.full(5, 0.4), size=5)
    own = {name: draw.dirichlet([0.4, 0.4], size=5) for name in schema.names}
    model = Model.from_hmm(np.full(5, 0.2), transition, own, schema=schema)
    data = model.sample(100, 20, rng=rng(6))
    network = single(data)
    noisy = split_interface(network, 0, rng(), 0.1)
    assert score(informed_split(network, data, rng=rng()), data) > score(noisy, data) + 1


def test_several_nodes_are_split_at_once() -> None:
    data = as_sequences(COIN, [rng(3).integers(2, size=(40, 1)).astype(float)])
    network = initial_network(COIN, 3, rng=rng())
    split = informed_split(network, data, 3, rng=rng())
    assert split.num_interfaces == 6
    assert split.groups == ((0, 1, 2, 3, 4, 5),)


@pytest.mark.parametrize("root", ["first", "last"])
@pytest.mark.parametrize("tied", [True, False])
def test_groups_roots_and_bottoms_of_every_kind(root: str, tied: bool) -> None:
    schema = schema_of(("binary", "count", "continuous", "ternary"))
    arrays = [arbitrary_sequence(schema, length, rng(length)) for length in (1, 7, 20)]
    arrays[1][:, 2] = np.nan
    data = as_sequences(schema, arrays)
    network = grouped_network(schema, [[0, 2], [1, 3]], [2, 3], rng=rng(), root=root)
    own = network.parameters
    if not tied:
        network = network.with_parameters(Parameters(own.template, own.top, own.template))
    split = informed_split(network, data, 2, rng=rng())
    assert len(split.groups) == 2 and split.num_interfaces == 7
    assert split.parameters.tied == tied
    assert score(split, data) > score(network, data)


def test_mirrored_sequences_give_the_same_split_for_the_other_root() -> None:
    arrays = [rng(seed).integers(2, size=(9, 1)).astype(float) for seed in range(12)]
    forwards = as_sequences(COIN, arrays)
    backwards = as_sequences(COIN, [values[::-1] for values in arrays])
    one, other = (initial_network(COIN, 2, rng=rng(), root=root) for root in ("first", "last"))
    first = informed_split(one, forwards, rng=rng())
    last = informed_split(other, backwards, rng=rng())
    # The order of slices within a sequence decides which rows the first guess is drawn from.
    assert abs(score(first, forwards) - score(last, backwards)) < 0.5


def test_node_without_visits_is_split_last_and_without_harm() -> None:
    network = initial_network(COIN, 2, rng=rng())
    weights = np.array([1.0, 0.0, 1.0, 0.0])
    own = network.parameters
    network = network.with_parameters(
        Parameters(
            NetworkParameters(weights, own.template.leaves), NetworkParameters(np.array([1.0, 0.0]))
        )
    )
    data = as_sequences(COIN, [rng(3).integers(2, size=(30, 1)).astype(float)])
    assert informed_split(network, data, 1, rng=rng()).num_interfaces == 3
    both = informed_split(network, data, 2, rng=rng())
    assert np.isfinite(score(both, data))


def test_long_data_are_looked_at_in_part() -> None:
    data = as_sequences(
        COIN, [rng(length).integers(2, size=(length, 1)).astype(float) for length in (25, 3, 8, 1)]
    )
    network = initial_network(COIN, 2, rng=rng())
    visits = informed._Visits.of(network, data, rng(), most=10)
    assert 10 <= len(visits.rows) < 20
    np.testing.assert_array_equal(visits.data.values, data.values[visits.rows])


@pytest.mark.parametrize(
    "values", [np.full((4, 1), np.nan), np.zeros((1, 1)), np.zeros((5, 1))], ids=str
)
def test_data_that_tell_nothing_still_give_a_split(values) -> None:  # type: ignore[no-untyped-def]
    data = as_sequences(COIN, [values])
    network = initial_network(COIN, 1, rng=rng())
    split = informed_split(network, data, rng=rng())
    assert split.num_interfaces == 2
    assert np.isfinite(score(split, data))


def test_names_of_labels_give_way_to_those_of_variables() -> None:
    schema = Schema((Variable.binary("label0"), Variable.binary("_label0")))
    data = as_sequences(schema, [rng(1).integers(2, size=(9, 2)).astype(float)])
    split = informed_split(initial_network(schema, 2, rng=rng()), data, rng=rng())
    assert split.schema == schema


def test_informed_split_is_the_same_for_the_same_seed() -> None:
    data = as_sequences(COIN, [rng(1).integers(2, size=(50, 1)).astype(float)])
    network = initial_network(COIN, 3, rng=rng())
    one, two = (informed_split(network, data, 2, rng=rng(4)) for _ in range(2))
    assert one.fingerprint == two.fingerprint


def test_informed_split_refuses() -> None:
    data = as_sequences(COIN, [np.zeros((3, 1))])
    network = initial_network(COIN, 2, rng=rng())
    with pytest.raises(StructureError, match="`count` must be at most 2"):
        informed_split(network, data, 3, rng=rng())
    with pytest.raises(StructureError, match="`count`"):
        informed_split(network, data, 0, rng=rng())
    with pytest.raises(StructureError, match="`rng`"):
        informed_split(network, data, rng=None)  # type: ignore[arg-type]
    with pytest.raises(StructureError, match="`network`"):
        informed_split(None, data, rng=rng())  # type: ignore[arg-type]
    with pytest.raises(DataError, match="`data`"):
        informed_split(network, [[0.0]], rng=rng())  # type: ignore[arg-type]
