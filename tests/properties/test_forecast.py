import numpy as np
import pytest

from dspn import Model
from properties.exact_mixtures import assert_marginals
from strategies import as_sequences, draw_sequence, hide, random_case, random_network


@pytest.mark.parametrize("seed", range(300))
def test_forecast_is_the_conditional_distribution_of_the_appended_slices(seed: int) -> None:
    network = random_network(seed)
    steps = 1 + seed % 3
    rng = np.random.default_rng([23, seed])
    # The beginning of a longer sequence: possible in the network of that length.
    arrays = [
        hide(draw_sequence(network, length + steps, rng)[:length], rng) for length in (1, 2, 4)
    ]
    data = as_sequences(network.schema, arrays)
    forecast = Model(network).forecast(data, steps, quantiles=(0.1, 0.5))
    extended = data.extended(steps)
    appended = {int(row) for end in extended.offsets[1:] for row in range(end - steps, end)}
    assert_marginals(network, extended, forecast.marginals, rows=appended)


@pytest.mark.parametrize("seed", range(60))
def test_forecast_does_not_depend_on_its_horizon_for_root_first_tied(seed: int) -> None:
    network, _, data = random_case(seed, root="first", tied=True)
    model = Model(network)
    near, far = model.forecast(data, 1).marginals, model.forecast(data, 4).marginals
    for variable in network.schema:
        near_own, far_own = near[variable.name], far[variable.name]
        if variable.num_categories:
            np.testing.assert_allclose(
                far_own.probabilities[::4], near_own.probabilities, rtol=1e-10, atol=1e-13
            )
        else:
            np.testing.assert_allclose(far_own.mean[::4], near_own.mean, rtol=1e-10, atol=1e-13)
