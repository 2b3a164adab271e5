import numpy as np
import pytest

from dspn import Model
from oracles import log_likelihood, surprise_of_entry, surprise_of_slice
from strategies import (
    arbitrary_sequence,
    as_sequences,
    random_case,
    random_network,
    random_recipe,
)


@pytest.mark.parametrize("seed", range(150))
def test_surprise_of_each_slice_agrees_with_enumeration(seed: int) -> None:
    network, arrays, data = random_case(seed)
    expected = [
        surprise_of_slice(network, values, t) for values in arrays for t in range(len(values))
    ]
    found = Model(network).surprise(data).slices
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("seed", range(150))
def test_surprise_of_each_entry_given_all_others_agrees_with_enumeration(seed: int) -> None:
    network, arrays, data = random_case(seed)
    expected = [
        [
            np.nan if np.isnan(values[t, v]) else surprise_of_entry(network, values, t, v)
            for v in range(values.shape[1])
        ]
        for values in arrays
        for t in range(len(values))
    ]
    found = Model(network).surprise(data).variables
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("seed", range(150))
def test_surprises_sum_to_the_log_likelihood_for_root_first_tied(seed: int) -> None:
    network, arrays, data = random_case(seed, root="first", tied=True)
    slices = Model(network).surprise(data).slices
    for number, values in enumerate(arrays):
        own = slices[data.offsets[number] : data.offsets[number + 1]]
        np.testing.assert_allclose(
            -own.sum(), log_likelihood(network, values), rtol=1e-10, atol=1e-11
        )


@pytest.mark.parametrize("seed", range(100))
def test_impossible_slice_has_infinite_surprise_and_what_follows_has_none(seed: int) -> None:
    network = random_network(random_recipe(seed, zeros=0.6))
    rng = np.random.default_rng(seed)
    arrays = [arbitrary_sequence(network.schema, int(rng.integers(1, 6)), rng) for _ in range(5)]
    found = Model(network).surprise(as_sequences(network.schema, arrays))
    expected = [surprise_of_slice(network, x, t) for x in arrays for t in range(len(x))]
    np.testing.assert_allclose(found.slices, expected, rtol=1e-9, atol=1e-11)
    possible = np.concatenate([[log_likelihood(network, x) > -np.inf] * len(x) for x in arrays])
    np.testing.assert_array_equal(np.isnan(found.variables).all(axis=1), ~possible)
