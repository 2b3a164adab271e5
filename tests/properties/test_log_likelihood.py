import math
import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given

from dspn import Model
from dspn.errors import ImpossibleEvidenceWarning
from oracles import log_likelihood
from strategies import (
    arbitrary_sequence,
    as_sequences,
    hide,
    networks_with_evidence,
    random_case,
    random_network,
    random_recipe,
)


@pytest.mark.parametrize("seed", range(150))
def test_log_likelihood_agrees_with_enumeration(seed: int) -> None:
    network, arrays, data = random_case(seed)
    expected = [log_likelihood(network, values) for values in arrays]
    np.testing.assert_allclose(Model(network).log_likelihood(data), expected, rtol=1e-9, atol=1e-12)


@given(networks_with_evidence())
def test_log_likelihood_agrees_with_enumeration_on_any_recipe(case) -> None:  # type: ignore[no-untyped-def]
    network, arrays = case
    expected = [log_likelihood(network, values) for values in arrays]
    found = Model(network).log_likelihood(as_sequences(network.schema, arrays))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(150))
def test_impossible_sequence_is_minus_infinity_and_no_other_is(seed: int) -> None:
    network = random_network(random_recipe(seed, zeros=0.6))
    rng = np.random.default_rng(seed)
    arrays = [arbitrary_sequence(network.schema, int(rng.integers(1, 6)), rng) for _ in range(6)]
    arrays += [hide(values, rng, 0.3) for values in arrays]
    expected = np.array([log_likelihood(network, values) for values in arrays])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = Model(network).log_likelihood(as_sequences(network.schema, arrays))
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(expected))
    possible = np.isfinite(expected)
    np.testing.assert_allclose(found[possible], expected[possible], rtol=1e-9, atol=1e-12)
    assert {entry.category for entry in caught} == (
        set() if possible.all() else {ImpossibleEvidenceWarning}
    )


@pytest.mark.filterwarnings("ignore::dspn.errors.ImpossibleEvidenceWarning")
@pytest.mark.parametrize("seed", range(150))
def test_probabilities_of_all_sequences_of_a_length_sum_to_one(seed: int) -> None:
    kinds = [("binary",), ("ternary", "binary"), ("binary", "single", "binary"), ("binary",) * 4]
    mixed = [("binary", "continuous"), ("count", "ternary")]
    network = random_network(random_recipe(seed, kinds=[*kinds, *mixed][seed % 6]))
    # A continuous variable or a count is left missing: its integral over all values is one.
    codes = [
        range(variable.num_categories) if variable.num_categories else (math.nan,)
        for variable in network.schema
    ]
    one_slice = list(product(*codes))
    for num_slices in range(1, 6):
        if len(one_slice) ** num_slices > 300:
            break
        arrays = [np.array(rows, dtype=float) for rows in product(one_slice, repeat=num_slices)]
        found = Model(network).log_likelihood(as_sequences(network.schema, arrays))
        np.testing.assert_allclose(math.fsum(np.exp(found)), 1.0, rtol=1e-9)


@pytest.mark.parametrize("seed", range(150))
def test_marginalising_the_future_gives_the_shorter_network_for_root_first_tied(seed: int) -> None:
    network, _, data = random_case(seed, root="first", tied=True)
    model = Model(network)
    shorter = model.log_likelihood(data)
    for steps in (1, 4):
        np.testing.assert_allclose(
            model.log_likelihood(data.extended(steps)), shorter, rtol=1e-10, atol=1e-12
        )


def test_marginalising_the_future_changes_the_model_for_root_last() -> None:
    changed = 0
    for seed in range(20):
        network, _, data = random_case(seed, root="last", tied=True)
        model = Model(network)
        longer, shorter = model.log_likelihood(data.extended(1)), model.log_likelihood(data)
        changed += not np.allclose(longer, shorter, rtol=1e-6)
    assert changed > 5


@pytest.mark.parametrize("seed", range(60))
def test_roots_at_opposite_ends_read_sequences_backwards(seed: int) -> None:
    network, arrays, data = random_case(seed, root="first")
    mirrored = Model(random_network(random_recipe(seed, root="last")))
    backwards = as_sequences(network.schema, [values[::-1] for values in arrays])
    np.testing.assert_allclose(
        mirrored.log_likelihood(backwards),
        Model(network).log_likelihood(data),
        rtol=1e-12,
        atol=1e-13,
    )


def test_sequence_has_the_same_value_alone_and_in_any_batch() -> None:
    network = random_network(21)
    model = Model(network)
    rng = np.random.default_rng(0)
    arrays = [
        hide(arbitrary_sequence(network.schema, int(length), rng), rng, 0.2)
        for length in rng.integers(1, 40, 300)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImpossibleEvidenceWarning)
        together = model.log_likelihood(as_sequences(network.schema, arrays))
        order = rng.permutation(len(arrays))
        shuffled = model.log_likelihood(as_sequences(network.schema, [arrays[i] for i in order]))
        alone = [
            model.log_likelihood(as_sequences(network.schema, [values]))[0]
            for values in arrays[:40]
        ]
    np.testing.assert_allclose(shuffled, together[order], rtol=1e-12)
    np.testing.assert_allclose(alone, together[:40], rtol=1e-12)


def test_list_of_arrays_is_read_as_a_batch() -> None:
    network, arrays, data = random_case(3, kinds=("continuous", "count"))
    model = Model(network)
    np.testing.assert_array_equal(model.log_likelihood(arrays), model.log_likelihood(data))
