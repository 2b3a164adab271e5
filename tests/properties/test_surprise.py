import numpy as np
import pytest

from dspn import Model, Schema, Sequences, Variable
from oracles import conditional, log_likelihood, surprise_of_entry, surprise_of_slice
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
    found = Model(network).surprise(data)
    np.testing.assert_allclose(found.variables, expected, rtol=1e-9, atol=1e-11)
    tails = [
        [
            np.nan if np.isnan(values[t, v]) else conditional(network, values, t, v).tail(x)
            for v, x in enumerate(values[t].tolist())
        ]
        for values in arrays
        for t in range(len(values))
    ]
    np.testing.assert_allclose(found.tails, tails, rtol=1e-9, atol=1e-11)


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
    start = 0
    for values in arrays:
        own = found.tails[start : start + len(values)]
        start += len(values)
        if log_likelihood(network, values) == -np.inf:
            for t, v in np.ndindex(values.shape):
                rest = values.copy()
                rest[t, v] = np.nan
                is_culprit = log_likelihood(network, rest) > -np.inf and not np.isnan(values[t, v])
                assert own[t, v] == 0.0 if is_culprit else np.isnan(own[t, v])


def test_a_planted_error_is_the_oddest_cell_though_its_density_is_not_the_least() -> None:
    """Frequent values of a fine-grained variable have large densities, and rare ones of a coarse
    variable small ones, so that nats of different variables do not compare."""
    schema = Schema((Variable.continuous("wide"), Variable.continuous("narrow")))
    rows = {"wide": [[0.0, 1e24], [1e13, 1e24]], "narrow": [[10.0, 1e-2], [20.0, 1e-2]]}
    model = Model.from_hmm([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], rows, schema=schema)
    drawn = model.sample(40, 25, rng=np.random.default_rng(3)).values.copy()
    drawn[612, 1] += (
        0.7  # seven standard deviations, and still fewer nats than usual cells of the other
    )
    data = Sequences.from_codes(drawn, np.arange(0, 1001, 25), schema)
    found = model.surprise(data)
    assert np.nanargmax(found.variables) != 612 * 2 + 1
    (cell,) = found.oddest(1)
    assert cell[:3] == (24, 12, "narrow")
    assert cell.value == drawn[612, 1]
    assert cell.tail < 1e-9
    cells = found.oddest(20)
    assert [own.tail for own in cells] == sorted(own.tail for own in cells)
    assert len(found.oddest(10_000)) == 2000


def test_a_leaf_that_one_entry_made_does_not_vouch_for_it() -> None:
    """A state learned from a single wrong reading expects it; without its own share it does not."""
    schema = Schema((Variable.continuous("wind"),))
    rows = {"wind": [[10.0, 9.0], [1048.0, 100.0]]}
    model = Model.from_hmm([0.999, 0.001], [[0.999, 0.001]] * 2, rows, schema=schema)
    values = np.random.default_rng(0).normal(10.0, 3.0, (1000, 1))
    values[321] = 1048.0
    data = Sequences.from_codes(values, np.arange(0, 1001, 20), schema)
    plain, fitted = model.surprise(data), model.surprise(data, fitted=True)
    assert plain.tails[321, 0] == pytest.approx(0.001)
    assert fitted.oddest(1)[0][:3] == (16, 1, "wind")
    assert fitted.tails[321, 0] < 1e-12
    others = np.arange(1000) != 321
    np.testing.assert_allclose(fitted.tails[others], plain.tails[others], rtol=0.01)
    np.testing.assert_array_equal(fitted.variables, plain.variables)
