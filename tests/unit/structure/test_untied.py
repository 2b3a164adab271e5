"""A network whose bottom network gets parameters of its own."""

import numpy as np
import pytest

from oracles import log_likelihood
from strategies import random_case


@pytest.mark.parametrize("seed", range(12))
def test_untied_network_has_its_own_bottom_and_the_same_distribution(seed: int) -> None:
    network, arrays, _ = random_case(seed)
    untied = network.untied()
    assert not untied.parameters.tied
    assert untied.untied() is untied
    for values in arrays:
        np.testing.assert_allclose(
            log_likelihood(untied, values), log_likelihood(network, values), rtol=1e-12
        )
