"""Lags that are chosen by what is held out."""

import numpy as np
import pytest

import dspn
from dspn.learning.lags import choose_lags


def _series(coefficients: dict[int, float], count: int = 16, noise: float = 0.3) -> list:
    rng, first = np.random.default_rng(0), max(coefficients, default=0)
    found = []
    for _ in range(count):
        x = rng.normal(size=(100, 1))
        for t in range(first, 100):
            x[t] = noise * rng.normal() + sum(c * x[t - lag] for lag, c in coefficients.items())
        found.append(x)
    return found


@pytest.mark.parametrize(
    ("coefficients", "chosen"), [({}, ()), ({1: 1.2, 2: -0.7}, (1, 2)), ({12: 0.9}, (12,))]
)
def test_the_lags_of_the_truth_are_chosen(
    coefficients: dict[int, float], chosen: tuple[int, ...]
) -> None:
    data = _series(coefficients)
    model = dspn.HMM(1, lags="auto", random_state=0).fit(data)
    sources = getattr(model.schema_[0].leaf, "sources", ())
    assert tuple(own.lag for own in sources) == chosen
    assert [own.lags for own in model.lags_ if own.kept] == ([chosen] if chosen else [])
    same = dspn.HMM(1, lags=list(chosen), random_state=0).fit(data)
    np.testing.assert_array_equal(model.score_samples(data), same.score_samples(data))


def test_a_try_says_what_it_was_worth_and_time_that_is_up_ends_the_tries() -> None:
    data = dspn.Sequences.from_arrays(_series({1: 1.2, 2: -0.7}))
    options = {"rng": np.random.default_rng(0)}
    _, tried = choose_lags(data, None, **options)
    assert str(tried[1]).startswith("lags 1, 2 of the same variable: +")
    assert str(tried[1]).endswith("nats a slice, used")
    schema, tried = choose_lags(data, None, deadline=lambda: True, **options)
    assert schema == data.schema
    assert tried == ()


def test_lags_that_are_no_numbers_are_refused() -> None:
    for lags in ("many", [0], [1.5], -1, True):
        with pytest.raises(dspn.DataError, match="`lags` must be a whole number of at least 0, a"):
            dspn.HMM(1, lags=lags).fit(_series({}, 4))


@pytest.mark.parametrize(("count", "length"), [(24, 60), (40, 60), (6, 340)])
def test_lags_are_tried_however_many_pieces_there_are(count: int, length: int) -> None:
    rng, data = np.random.default_rng(0), []
    for _ in range(count):
        x = np.zeros((length, 1))
        for t in range(1, length):
            x[t] = 0.9 * x[t - 1] + 0.3 * rng.normal()
        data.append(x)
    model = dspn.HMM(2, lags="auto", random_state=0).fit(data)
    assert [own.lags for own in model.lags_ if own.kept] == [(1,)]
