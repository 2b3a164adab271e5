import numpy as np
import pytest

from dspn import Model
from oracles import interface_posteriors
from strategies import random_case


@pytest.mark.parametrize("seed", range(150))
def test_interface_posteriors_agree_with_enumeration(seed: int) -> None:
    network, arrays, data = random_case(seed)
    found = Model(network).interface_posteriors(data)
    expected = np.concatenate([interface_posteriors(network, values) for values in arrays])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("seed", range(60))
def test_interface_posteriors_sum_to_one_over_each_group(seed: int) -> None:
    network, _, data = random_case(seed)
    found = Model(network).interface_posteriors(data)
    for group in network.groups:
        np.testing.assert_allclose(found[:, list(group)].sum(axis=1), 1.0, rtol=1e-9)
