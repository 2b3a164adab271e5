"""Results say in a few words what they hold, and marginals are exact at the edges."""

import numpy as np
import pytest

from dspn import HMM, Model, Schema, Sequences, Variable
from dspn.inference.marginals import Mixer
from dspn.leaves import Gaussian

NAN = float("nan")
SCHEMA = Schema(
    (
        Variable.categorical("sky", ("clear", "rain")),
        Variable.continuous("celsius"),
        Variable.count("visitors"),
    )
)
MODEL = Model.from_hmm(
    [0.6, 0.4],
    [[0.9, 0.1], [0.3, 0.7]],
    {
        "sky": [[0.9, 0.1], [0.3, 0.7]],
        "celsius": [[20.0, 9.0], [14.0, 4.0]],
        "visitors": [[9.0], [4.0]],
    },
    schema=SCHEMA,
)
DATA = Sequences.from_codes([[0, NAN, 3], [NAN, NAN, 5], [1, 13.0, NAN]], [0, 2, 3], SCHEMA)


def test_marginals_are_shown_with_their_variables() -> None:
    found = MODEL.marginals(DATA, quantiles=(0.05, 0.5))
    assert repr(found) == (
        "Marginals(num_sequences=2)\n"
        "  sky: categorical, 1 entry, probabilities\n"
        "  celsius: continuous, 2 entries, mean, variance, quantiles 0.05, 0.5\n"
        "  visitors: count, 1 entry, mean, variance, quantiles 0.05, 0.5"
    )
    assert repr(found["sky"]) == "VariableMarginals(sky: categorical, 1 entry, probabilities)"


def test_other_results_are_shown_by_their_sizes() -> None:
    assert repr(MODEL.forecast(DATA, 3)) == "Forecast(steps=3, num_sequences=2, num_variables=3)"
    found = MODEL.complete(DATA)
    assert repr(found) == "Completion(num_sequences=2, total_slices=3, num_groups=1)"
    assert repr(MODEL.surprise(DATA)) == "Surprise(total_slices=3, num_variables=3)"


def mixed(weights: list[list[float]], rows: list[list[float]]) -> Mixer:
    mixer = Mixer(Variable.continuous("x"), Gaussian(), (0.5,), len(weights))
    mixer.put(np.arange(len(weights)), np.array(weights), np.array(rows))
    return mixer


def test_weights_that_were_lost_are_left_for_the_next_pass() -> None:
    mixer = mixed([[NAN, 1.0], [0.0, 0.0], [1.0, 1.0]], [[0.0, 1.0], [4.0, 1.0]])
    np.testing.assert_allclose(mixer.mean, [NAN, NAN, 2.0])
    np.testing.assert_allclose(mixer.variance, [NAN, NAN, 5.0])
    np.testing.assert_allclose(mixer.quantiles, [[NAN], [NAN], [2.0]])


def test_a_leaf_without_weight_does_not_touch_the_variance_however_far_it_is() -> None:
    mixer = mixed([[0.5, 0.5, 0.0]], [[0.0, 1.0], [2.0, 1.0], [1e300, 1.0]])
    np.testing.assert_allclose(mixer.variance, [2.0])


def test_a_variance_beyond_the_largest_number_is_infinite() -> None:
    mixer = mixed([[0.5, 0.5]], [[-1e200, 1.0], [1e200, 1.0]])
    np.testing.assert_array_equal(mixer.variance, [np.inf])
    np.testing.assert_array_equal(mixer.mean, [0.0])


def test_what_has_no_classes_says_what_predicts_them() -> None:
    fitted = HMM(1, validation_fraction=0.0).fit(MODEL.sample(5, 9, rng=np.random.default_rng(0)))
    for own, kind in ((MODEL, "Model"), (fitted, "HMM"), (HMM(1), "HMM")):
        with pytest.raises(
            AttributeError, match=f"'{kind}' object has .*'predict'; .*DSPNClassifie"
        ):
            own.predict(DATA)
        assert not hasattr(own, "predict_proba") and not hasattr(own, "classes")
    assert fitted.components == fitted.model_.components


def test_a_certain_value_is_no_surprise() -> None:
    schema = Schema((Variable.categorical("unit", ["C"]), Variable.continuous("x")))
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(5), size=6)
    emissions = {"unit": np.ones((5, 1)), "x": np.column_stack([np.arange(5.0), np.ones(5)])}
    model = Model.from_hmm(weights[0], weights[1:], emissions, schema=schema)
    found = model.surprise(model.sample(20, 30, rng=rng)).variables[:, 0]
    assert (found >= 0).all() and not np.signbit(found).any()
    np.testing.assert_allclose(found, 0.0, atol=1e-14)
