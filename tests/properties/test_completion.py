"""Most probable completion: the best over all latent choices and missing values together."""

import math

import numpy as np
import pytest

from dspn import Model
from oracles import best_completion, induced_trees, num_induced_trees, slice_by_slice
from strategies import random_case


@pytest.mark.parametrize("seed", range(150))
def test_completion_is_the_best_over_all_latent_and_missing_choices(seed: int) -> None:
    network, arrays, data = random_case(seed)
    completion = Model(network).complete(data)
    expected = [math.log(best_completion(network, values)) for values in arrays]
    np.testing.assert_allclose(completion.log_prob, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(150))
def test_completed_values_and_interfaces_attain_the_best(seed: int) -> None:
    network, arrays, data = random_case(seed)
    completion = Model(network).complete(data)
    filled = completion.sequences.values
    assert not np.isnan(filled).any()
    seen = ~np.isnan(data.values)
    np.testing.assert_array_equal(filled[seen], data.values[seen])
    assert completion.interfaces.shape == (data.total_slices, len(network.groups))
    for number in range(len(arrays)):
        start = int(data.offsets[number])
        chosen = completion.interfaces[start : int(data.offsets[number + 1])]
        for group, column in zip(network.groups, chosen.T, strict=True):
            assert set(column.tolist()) <= set(group)
        value = slice_by_slice(
            network,
            np.array(completion.sequences[number]),
            add=max,
            interfaces=lambda t, position, chosen=chosen: position in chosen[t],
        )
        np.testing.assert_allclose(
            math.log(value), completion.log_prob[number], rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("seed", range(60))
def test_no_induced_tree_is_better_than_the_completion(seed: int) -> None:
    network, arrays, data = random_case(seed)
    completion = Model(network).complete(data)
    for values, log_prob in zip(arrays, completion.log_prob.tolist(), strict=True):
        if num_induced_trees(network, len(values)) <= 1500:
            best = max(tree.best(values) for tree in induced_trees(network, len(values)))
            np.testing.assert_allclose(log_prob, math.log(best), rtol=1e-9, atol=1e-12)
