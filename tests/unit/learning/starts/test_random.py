import numpy as np
import pytest

from dspn.errors import StructureError
from dspn.learning.starts import random_weights, randomised
from dspn.leaves import Gaussian, Poisson
from dspn.structure import initial_network
from strategies import arbitrary_sequence, as_sequences, random_case, schema_of

SCHEMA = schema_of(("binary", "continuous", "count", "single"))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def far_data() -> object:
    values = arbitrary_sequence(SCHEMA, 50, rng(1))
    values[:, 1] = 1e6 + 100 * values[:, 1]
    values[:, 2] += 1000
    return as_sequences(SCHEMA, [values, values[:1]])


@pytest.mark.parametrize("seed", range(20))
def test_randomised_keeps_the_structure_and_changes_every_number(seed: int) -> None:
    network, _, data = random_case(seed)
    drawn = randomised(network, data, rng(seed))
    assert [type(node) for node in drawn.template.nodes] == [
        type(node) for node in network.template.nodes
    ]
    assert drawn.template.outputs == network.template.outputs
    assert drawn.top == network.top
    assert (drawn.root, drawn.parameters.tied) == (network.root, network.parameters.tied)
    assert (drawn.parameters.template.weights > 0).all()
    if drawn.parameters.bottom is not None:
        wide = drawn.parameters.template.weights < 1
        assert (drawn.parameters.bottom.weights != drawn.parameters.template.weights)[wide].all()


def test_randomised_scales_families_and_leaves_to_the_data() -> None:
    data = far_data()
    network = initial_network(SCHEMA, 5, rng=rng())
    drawn = randomised(network, data, rng())  # type: ignore[arg-type]
    families = [bank.family for bank in drawn.template.banks]
    assert isinstance(families[1], Gaussian) and abs(families[1].location - 1e6) < 100
    assert isinstance(families[2], Poisson) and abs(families[2].reference_rate - 1002) < 5
    leaves = drawn.parameters.template.leaves
    assert (np.abs(leaves[1][:, 0] - 1e6) < 2000).all()
    assert (leaves[2] > 100).all()
    np.testing.assert_array_equal(leaves[3], 1.0)


def test_randomised_is_the_same_for_the_same_seed() -> None:
    network, _, data = random_case(3)
    one, two = (randomised(network, data, rng(4)) for _ in range(2))
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint != randomised(network, data, rng(5)).fingerprint


def test_randomised_takes_a_variable_that_is_entirely_missing() -> None:
    values = arbitrary_sequence(SCHEMA, 4, rng(1))
    values[:, 1] = np.nan
    data = as_sequences(SCHEMA, [values])
    drawn = randomised(initial_network(SCHEMA, 2, rng=rng()), data, rng())
    assert np.isfinite(drawn.parameters.template.leaves[1]).all()


def test_random_weights_are_uniform_over_the_simplex() -> None:
    network = initial_network(schema_of(("binary",)), 3, rng=rng())
    draws = np.stack([random_weights(network.top, rng(seed)) for seed in range(2000)])
    np.testing.assert_allclose(draws.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(draws.mean(axis=0), 1 / 3, atol=0.02)
    # Each weight is Beta(1, 2).
    np.testing.assert_allclose(draws.var(axis=0), 1 / 18, atol=0.006)


def test_randomised_refuses_a_seed_in_place_of_a_generator() -> None:
    network, _, data = random_case(3)
    with pytest.raises(StructureError, match="`rng`"):
        randomised(network, data, 0)  # type: ignore[arg-type]
