from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, norm

from dspn import DynamicNetwork, Mixture, Model, Root, Schema, Variable
from properties.exact_mixtures import assert_marginals
from strategies import as_sequences, draw_sequence, hide, random_case, random_network


@pytest.mark.parametrize("seed", range(150))
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


def _chain(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Six states that are seldom left, so that bands widen over many steps, and their leaves."""
    rng = np.random.default_rng([29, seed])
    transition = 0.9 * np.eye(6) + 0.1 * rng.dirichlet(np.ones(6), 6)
    leaves = np.column_stack([rng.normal(0.0, 5.0, 6), rng.uniform(0.2, 3.0, 6)])
    return rng.dirichlet(np.ones(6)), transition, leaves


def _wandering(seed: int) -> Model:
    start, transition, leaves = _chain(seed)
    schema = Schema((Variable.continuous("x"),))
    return Model.from_hmm(start, transition, {"x": leaves}, schema=schema)


def _last() -> Model:
    own = _wandering(1).network
    return Model(DynamicNetwork(own.template, own.top, own.parameters, Root.LAST))


def _mixture() -> Model:
    parts = tuple(_wandering(seed).network for seed in (3, 4))
    return Model(Mixture(parts, np.array([0.3, 0.7])))


def _untied() -> Model:
    network, other = _wandering(5).network.untied(), _wandering(6).network.parameters.template
    return Model(network.with_parameters(replace(network.parameters, bottom=other)))


@pytest.mark.parametrize(
    "model",
    [_wandering(0), _last(), _mixture(), _untied()],
    ids=["root first", "root last", "mixture", "untied"],
)
def test_bands_hold_their_share_of_draws_from_the_model_at_every_horizon(model: Model) -> None:
    count, past, steps = 1500, 6, 24
    rng = np.random.default_rng(31)
    drawn = model.sample(count, past + steps, rng=rng)
    seen = drawn.slices(None, past)
    seen = seen.with_values(np.where(rng.random(seen.values.shape) < 0.2, np.nan, seen.values))
    levels = (0.025, 0.1, 0.25, 0.75, 0.9, 0.975)
    found = model.forecast(seen, steps, quantiles=levels).marginals["x"]
    bands = found.quantiles.reshape(count, steps, len(levels))
    truth = drawn.slices(past, None).values.reshape(count, steps)
    for low, high, share in ((0, 5, 0.95), (1, 4, 0.8), (2, 3, 0.5)):
        inside = (bands[..., low] <= truth) & (truth <= bands[..., high])
        least, most = binom.ppf([1e-5, 1 - 1e-5], count, share)
        for step in (1, 6, 24):
            assert least <= inside[:, step - 1].sum() <= most, (share, step)


def test_bands_widen_to_the_long_run_distribution() -> None:
    model, (_, transition, leaves) = _wandering(0), _chain(0)
    seen = model.sample(3, 10, rng=np.random.default_rng(37))
    found = model.forecast(seen, 400, quantiles=(0.1, 0.9)).marginals["x"]
    bands = found.quantiles.reshape(3, 400, 2)
    long_run = np.linalg.matrix_power(transition, 10_000)[0]
    reached = norm.cdf(bands[:, -1, :, None], leaves[:, 0], np.sqrt(leaves[:, 1])) @ long_run
    np.testing.assert_allclose(reached, np.tile([0.1, 0.9], (3, 1)), rtol=1e-9)
    widths = np.ptp(bands, axis=2)
    assert (widths[:, 0] < 0.7 * widths[:, -1]).all()
