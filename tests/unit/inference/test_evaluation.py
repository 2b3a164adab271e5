"""Scores against closed forms, against draws, and on data whose truth is known."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from dspn import Model, Schema, Sequences, Variable
from dspn.errors import DataError
from dspn.inference import evaluation

SCHEMA = Schema(
    (
        Variable.continuous("level"),
        Variable.count("calls"),
        Variable.categorical("mode", ["a", "b"]),
    )
)
MODEL = Model.from_hmm(
    [0.5, 0.5],
    [[0.9, 0.1], [0.2, 0.8]],
    {
        "level": [[0.0, 1.0], [5.0, 2.0]],
        "calls": [[3.0], [12.0]],
        "mode": [[0.9, 0.1], [0.2, 0.8]],
    },
    schema=SCHEMA,
)


@pytest.mark.parametrize("seed", range(5))
def test_crps_of_gaussian_mixtures_is_the_integral(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(3), size=4)
    leaves = np.column_stack([rng.normal(0, 3, 3), rng.uniform(0.1, 4, 3)])
    truth = rng.normal(0, 5, 4)
    found = evaluation._gaussian_crps(weights, leaves, truth)
    own = stats.norm(leaves[:, 0], np.sqrt(leaves[:, 1]))
    for number in range(4):

        def gap(x: float, number: int = number) -> float:
            below = float((weights[number] * own.cdf(x)).sum())
            return (below - (x >= truth[number])) ** 2

        whole = sum(
            quad(gap, low, high, limit=200)[0]
            for low, high in ((-60, truth[number]), (truth[number], 60))
        )
        np.testing.assert_allclose(found[number], whole, rtol=1e-6)
    told = np.broadcast_to(leaves, (4, 3, 2))
    again = evaluation._gaussian_crps(weights, told, truth)
    np.testing.assert_allclose(again, found, rtol=1e-12)


def test_scores_of_counts_are_those_of_their_distribution() -> None:
    """The CRPS of counts comes from 99 quantiles: within a hundredth of the sum over integers."""
    schema = Schema((Variable.count("n"),))
    weights, rates = [0.3, 0.7], [[2.0], [9.0]]
    model = Model.from_hmm(weights, [weights, weights], {"n": rates}, schema=schema)
    data = Sequences.from_codes(np.full((2, 1), 5.0), [0, 2], schema)
    own = model.evaluate(data, hide="last")["n", "model"]
    below = weights @ stats.poisson(rates).cdf(np.arange(60))
    exact = ((below - (np.arange(60) >= 5)) ** 2).sum()
    assert own.crps == pytest.approx(exact, rel=0.01)
    density = float((weights @ stats.poisson(rates).pmf(5))[0])
    assert own.log_score == pytest.approx(-np.log(density), rel=1e-12)


@pytest.mark.parametrize("hide", ["random", "gaps", "last"])
def test_bands_of_the_true_model_cover_what_they_say(hide: evaluation.Hiding) -> None:
    data = MODEL.sample(300, 30, rng=np.random.default_rng(1))
    found = MODEL.evaluate(data, hide=hide, length=4, steps=3, season=7, seed=2)
    for name in ("level", "calls"):
        own = found[name, "model"]
        near = 4 * np.sqrt(0.16 / own.entries)
        assert own.coverage > 0.8 - near
        if name == "level":  # bands of counts reach to the next whole number
            assert own.coverage < 0.8 + near
        for method in ("mean", "last value", "seasonal naive"):
            other = found[name, method]
            assert other.entries == own.entries
            assert own.rmse < other.rmse and own.crps < other.crps, (name, method)
    assert found["mode", "model"].accuracy >= found["mode", "mean"].accuracy
    share = found["level", "model"].entries / data.total_slices
    assert share == pytest.approx(0.1 if hide == "last" else 0.2, rel=0.1)
    again = MODEL.evaluate(data, hide=hide, length=4, steps=3, season=7, seed=2)
    assert repr(again) == repr(found)


def test_rules_fill_as_their_names_say() -> None:
    schema = Schema((Variable.continuous("x"),))
    model = Model.from_hmm([1.0], [[1.0]], {"x": [[0.0, 1.0]]}, schema=schema)
    x = [np.nan, 1.0, np.nan, np.nan, 4.0, np.nan]
    data = model._read([np.array(x)[:, None], np.array([[np.nan], [7.0], [np.nan]])])
    found = evaluation._rules(data, 3, ahead=False)
    mean = 4.0
    for method, expected in {
        "mean": [mean] * 9,
        "last value": [mean, 1, 1, 1, 4, 4, mean, 7, 7],
        "interpolation": [1, 1, 2, 3, 4, 4, 7, 7, 7],
        "seasonal naive": [mean, 1, mean, mean, 4, mean, mean, 7, mean],
    }.items():
        np.testing.assert_allclose(found[method][:, 0], expected, err_msg=method)


def test_a_back_test_is_the_forecasts_from_its_origins() -> None:
    data = MODEL.sample(6, [40, 40, 3, 25, 40, 9], rng=np.random.default_rng(5))
    found = MODEL.backtest(data, 4, origins=3, stride=5, season=7)
    assert {own.step for own in found.scores} == {1, 2, 3, 4}
    errors = []
    for number in range(6):
        values = data[number]
        for origin in [len(values) - 4 - 5 * i for i in range(3)]:
            if origin <= 0:
                continue
            past = data[[number]].slices(None, origin)
            ahead = MODEL.forecast(past, 2, quantiles=(0.5,)).marginals["level"]
            errors.append(abs(ahead.quantiles[1, 0] - values[origin + 1, 0]))
    (own,) = (s for s in found.scores if (s.variable, s.step, s.method) == ("level", 2, "model"))
    assert own.entries == len(errors)
    np.testing.assert_allclose(own.mae, np.mean(errors), rtol=1e-9)
    few = MODEL.backtest(data, 1, origins=1, window=1)
    assert few["level", "model"].entries == 6


def test_what_informs_is_found() -> None:
    data = MODEL.sample(200, 20, rng=np.random.default_rng(3))
    found = evaluation.informed_by(MODEL.compiled, data)
    assert found.shape == (3, 3)
    assert (found > -0.01).all()
    assert found[2, 1] > 0.02  # the mode is told by the calls


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("`hide` must be one of", {"hide": "some"}),
        ("`share` must be between", {"share": 1.0}),
        ("`steps` must be below the length", {"hide": "last", "steps": 30}),
        ("`season`", {"season": 0}),
    ],
)
def test_bad_wishes_are_named(words: str, options: dict[str, object]) -> None:
    data = MODEL.sample(3, 5, rng=np.random.default_rng(0))
    with pytest.raises(DataError, match=words):
        MODEL.evaluate(data, **options)  # type: ignore[arg-type]


def test_bands_and_marks_of_imputation() -> None:
    data = MODEL.sample(5, 8, rng=np.random.default_rng(4))
    lost = np.random.default_rng(5).random(data.values.shape) < 0.3
    holes = data.with_values(np.where(lost, np.nan, data.values))
    found = MODEL.impute_with_bands(holes, quantiles=(0.1, 0.9))
    np.testing.assert_array_equal(found.filled, lost)
    np.testing.assert_array_equal(found.sequences.values, MODEL.impute(holes).values)
    expected = MODEL.marginals(holes, quantiles=(0.1, 0.9))
    for name, v in (("level", 0), ("calls", 1)):
        bands = found.bands(name)
        np.testing.assert_array_equal(np.isnan(bands).any(axis=1), ~lost[:, v])
        np.testing.assert_array_equal(bands[lost[:, v]], expected[name].quantiles)


def test_what_is_known_ahead_is_evidence() -> None:
    data = MODEL.sample(2, 5, rng=np.random.default_rng(6))
    known = [[[np.nan, 14.0, None], [np.nan, np.nan, "b"]], [[5.0, np.nan, None]]]
    found = MODEL.forecast(data, 3, known=known).marginals
    for number, ahead in enumerate(known):
        coded = MODEL._read([ahead]).values
        whole = np.vstack([data[number], coded, np.full((3 - len(coded), 3), np.nan)])
        one = Sequences.from_codes(whole, [0, len(whole)], SCHEMA)
        expected = MODEL.marginals(one, quantiles=(0.05, 0.5, 0.95))
        own = found["level"]
        rows = (own.slices >= 8 * number) & (own.slices < 8 * (number + 1))
        np.testing.assert_allclose(own.mean[rows], expected["level"].mean, rtol=1e-12)
    with pytest.raises(DataError, match="at most 1 slices"):
        MODEL.forecast(data, 1, known=known)
    with pytest.raises(DataError, match="each of the 2 sequences"):
        MODEL.forecast(data, 3, known=known[:1])
