import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from dspn.learning.auto.choice import mix, mixture_weights, worthy_members


def test_weights_maximise_the_likelihood_of_the_mixture_with_its_prior() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(-10, 2, size=(40, 3))
    prior = 0.5 / 3

    def lost(free: np.ndarray) -> float:
        logs = log_softmax(np.append(free, 0.0))
        return -float(logsumexp(table + logs, axis=1).sum() + prior * logs.sum())

    best = minimize(lost, np.zeros(2), tol=1e-12)
    expected = np.exp(log_softmax(np.append(best.x, 0.0)))
    np.testing.assert_allclose(mixture_weights(table), expected, rtol=1e-2, atol=1e-4)


def test_a_member_that_is_best_everywhere_has_nearly_all_the_weight() -> None:
    table = np.array([[-1.0, -30.0]] * 50)
    weights = mixture_weights(table)
    assert weights[0] > 0.99
    assert weights.sum() == pytest.approx(1.0, rel=1e-12)


def test_impossible_sequences_say_nothing_and_are_never_nan() -> None:
    table = np.array([[-np.inf, -np.inf], [-1.0, -np.inf], [-2.0, -3.0]])
    weights = mixture_weights(table)
    assert np.isfinite(weights).all() and weights[0] > weights[1]
    scores = mix(table, weights)
    assert scores[0] == -np.inf and np.isfinite(scores[1:]).all()
    np.testing.assert_allclose(mixture_weights(table[:1]), [0.5, 0.5], rtol=1e-12)


def test_one_member_has_all_the_weight() -> None:
    np.testing.assert_array_equal(mixture_weights(np.array([[-1.0], [-2.0]])), [1.0])


def test_kept_members_are_the_heaviest_in_their_own_order() -> None:
    weights = np.array([0.1, 0.5, 0.04, 0.36])
    assert worthy_members(weights, 0.05, 2) == [1, 3]
    assert worthy_members(weights, 0.05, 4) == [0, 1, 3]
    assert worthy_members(weights, 0.9, 4) == [1]
