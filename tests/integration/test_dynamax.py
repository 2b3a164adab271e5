"""Models with inputs and lags beside those of dynamax, where it is installed."""

from typing import Any

import numpy as np
import pytest

import dspn
from dspn.inference.marginals import interface_posteriors

pytest.importorskip("dynamax")

# What dynamax needs warns of its own age when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

STATES = 3


@pytest.fixture(autouse=True)
def _double_precision() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)


def _regression(model: dspn.HMM, columns: slice) -> dict[str, Any]:
    """Coefficients, constants and covariances of the states, as dynamax has them."""
    import jax.numpy as jnp

    rows = jnp.stack([model.emissions_[name][:, columns] for name in ("x0", "x1")], axis=1)
    return {
        "emission_biases": rows[:, :, 0],
        "emission_weights": rows[:, :, 1:-1],
        "emission_covariances": rows[:, :, -1:] * np.eye(2),
    }


def _by_state(model: Any, parameters: Any, given: Any, values: Any) -> Any:
    """Log densities of the slices under each state of dynamax, (slices, states)."""
    import jax

    def density(state: Any, u: Any, y: Any) -> Any:
        return model.emission_distribution(parameters, state, inputs=u).log_prob(y)

    states = jax.vmap(density, in_axes=(0, None, None))
    return jax.vmap(lambda u, y: states(np.arange(STATES), u, y))(given, values)


def test_an_input_driven_hmm_is_that_of_dynamax() -> None:
    from dynamax.hidden_markov_model import LinearRegressionHMM, hmm_smoother

    rng = np.random.default_rng(0)
    words = [rng.choice(["a", "b", "c"], 40) for _ in range(8)]
    doses = [rng.normal(size=40) for _ in range(8)]
    data = [rng.normal(np.cumsum(dose)[:, None] / 3, 1.0, size=(40, 2)) for dose in doses]
    known = [np.stack(pair, axis=1).astype(object) for pair in zip(words, doses, strict=True)]
    for own, dose in zip(known, doses, strict=True):
        own[:, 1] = dose
    model = dspn.HMM(STATES, by="u0", leaf_inputs=True, random_state=0).fit(data, inputs=known)
    sequences = dspn.Sequences.from_arrays(data, schema=model.schema_, inputs=known)
    posteriors = interface_posteriors(model.model_.program, sequences).reshape(8, 40, STATES)

    other = LinearRegressionHMM(STATES, 3, emission_dim=2)
    settings = {
        "initial_probs": model.start_probabilities_,
        "transition_matrix": model.transition_matrix_[0],
    }
    parameters, _ = other.initialize(**settings, **_regression(model, slice(None)))
    for number, (word, dose, values) in enumerate(zip(words, doses, data, strict=True)):
        given = np.stack([word == "b", word == "c", dose], axis=1).astype(np.float64)
        log_likelihoods = _by_state(other, parameters, given, values)
        codes = np.searchsorted(["a", "b", "c"], word)
        moves = model.transition_matrix_[codes[:-1]]
        found = hmm_smoother(model.start_probabilities_, moves, log_likelihoods)
        own = model.score_samples(sequences)[number]
        np.testing.assert_allclose(own, found.marginal_loglik, rtol=1e-10)
        np.testing.assert_allclose(posteriors[number], found.smoothed_probs, rtol=0, atol=1e-8)


def test_an_autoregressive_hmm_is_that_of_dynamax() -> None:
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import LinearAutoregressiveHMM

    rng = np.random.default_rng(0)
    data = [np.cumsum(rng.normal(size=(50, 2)), axis=0) for _ in range(6)]
    model = dspn.HMM(STATES, lags=1, lags_of="all", random_state=0).fit(data)
    other = LinearAutoregressiveHMM(STATES, emission_dim=2, num_lags=1)
    settings = {
        "initial_probs": model.start_probabilities_,
        "transition_matrix": model.transition_matrix_,
    }
    # The branch without lags has a constant and a variance, and comes first; the one of all lags is
    # the last, the own value before the other.
    settings |= _regression(model, slice(-4, None))
    own, others = np.moveaxis(np.asarray(settings["emission_weights"]), 2, 0)
    both = [[own[:, 0], others[:, 0]], [others[:, 1], own[:, 1]]]
    settings["emission_weights"] = jnp.asarray(np.moveaxis(np.array(both), 2, 0))
    parameters, _ = other.initialize(**settings)
    for values in data:
        past = other.compute_inputs(values, np.zeros((1, 2)))
        first = _by_state(other, parameters, past[:1], values[:1])[0]
        plain = np.stack([model.emissions_[name][:, :2] for name in ("x0", "x1")], axis=1)
        squares = (values[0] - plain[:, :, 0]) ** 2 / plain[:, :, 1]
        unlagged = -0.5 * (np.log(2 * np.pi * plain[:, :, 1]) + squares).sum(axis=1)
        # dynamax takes zeros for what was before the first slice, and our leaves do without: the
        # ratio of their densities goes into the probabilities of the first state.
        start = model.start_probabilities_ * np.exp(unlagged - np.asarray(first))
        parameters = parameters._replace(
            initial=parameters.initial._replace(probs=start / start.sum())
        )
        found = other.marginal_log_prob(parameters, values, inputs=past) + np.log(start.sum())
        np.testing.assert_allclose(model.score_samples([values])[0], found, rtol=1e-10)
