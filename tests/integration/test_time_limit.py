"""A time limit on large data: held, with a model that is worth it, and with a word."""

import time
import warnings
from typing import Any

import numpy as np
import pytest

from dspn import DSPN, ConvergenceWarning, Em, EmOptions, Schema, Sequences, Variable
from dspn.engine import TimeUpError, until
from dspn.learning import fit_em
from dspn.learning.run import Ending
from dspn.learning.scores import StopReason
from dspn.models import Model
from dspn.structure import initial_network

NUM_VARIABLES = 10


def drawn(num_sequences: int, num_slices: int, kind: str) -> Sequences:
    """A hidden switch moves all variables."""
    rng = np.random.default_rng(0)
    shape = (num_sequences, num_slices)
    switch = (np.cumsum(rng.random(shape) < 0.15, axis=1) % 2)[..., None]
    if kind == "binary":
        values = (rng.random((*shape, NUM_VARIABLES)) < 0.2 + 0.6 * switch).astype(np.float64)
    else:
        values = rng.normal(2.0 * switch, 1.0, (*shape, NUM_VARIABLES))
    own = [getattr(Variable, kind)(f"x{number}") for number in range(NUM_VARIABLES)]
    return Sequences.from_arrays(values, schema=Schema(tuple(own)))


@pytest.mark.parametrize("kind", ["binary", "continuous"])
@pytest.mark.parametrize("shape", [(4_000, 5), (20, 1_000)])
def test_time_that_is_up_at_once_leaves_a_partly_trained_model_and_a_warning(
    kind: str, shape: tuple[int, int]
) -> None:
    data = drawn(*shape, kind)
    with pytest.warns(ConvergenceWarning, match=r"`time_limit=0\.001` ended learning before the"):
        fitted = DSPN(time_limit=1e-3, random_state=0).fit(data)
    assert fitted.ending_ == Ending.TIME_LIMIT
    assert fitted.model_.mixture.num_interfaces > 1
    # A single node knows nothing of the switch.
    with pytest.warns(ConvergenceWarning, match="growth before there were two interface nodes"):
        least = DSPN(learner="paper", time_limit=1e-3, random_state=0).fit(data)
    assert least.ending_ == Ending.TIME_LIMIT
    assert fitted.score(data) > least.score(data) + 0.1 * shape[1]


def test_time_that_is_up_ends_expectation_maximisation_with_a_word() -> None:
    data = drawn(4_000, 5, "binary")
    with pytest.warns(ConvergenceWarning, match=r"`time_limit=0\.001` ended expectation maxim"):
        fitted = DSPN(Em(4), time_limit=1e-3, random_state=0).fit(data)
    assert fitted.ending_ == StopReason.DEADLINE
    assert fitted.model_.mixture.num_interfaces == 4


def test_the_model_of_a_part_is_kept_where_none_of_all_was_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time is up with the first model of all data; that of a few slices is there."""
    from dspn.learning import em
    from dspn.learning.auto import run

    data = drawn(4_000, 5, "binary")
    fit_whole = em.fit_em

    def fitted(network: Any, train: Sequences, **settings: Any) -> Any:
        if train.total_slices > 10_000:
            left = iter(range(3))
            settings["deadline"] = lambda: next(left, None) is None
            found = fit_whole(network, train, **settings)
            clocks[-1].stop()
            return found
        return fit_whole(network, train, **settings)

    clocks: list[Any] = []
    attempt = run.attempted

    def attempted(own: Any, task: Any) -> Any:
        clocks.append(task.clock)
        return attempt(own, task)

    monkeypatch.setattr(em, "fit_em", fitted)
    monkeypatch.setattr(run, "attempted", attempted)
    with pytest.warns(ConvergenceWarning, match=r"32 nodes after \d+ steps"):
        found = DSPN(time_limit=1e3, refit=False, random_state=0).fit(data)
    assert found.trail_[0].candidate.steps > 0
    assert found.mixture_.num_interfaces == 32


def test_a_pass_is_given_up_within_it_and_the_last_step_is_kept() -> None:
    data = drawn(500, 5, "continuous")
    network = initial_network(data.schema, 3, rng=np.random.default_rng(0))
    with until(lambda: True), pytest.raises(TimeUpError):
        Model(network).log_likelihood(data)
    asked = iter(range(10**9))
    limit = 40
    with until(lambda: next(asked) >= limit):
        fit = fit_em(network, data, options=EmOptions(max_steps=1_000, tolerance=0.0))
    assert fit.stopped is StopReason.DEADLINE
    assert 0 < fit.history[-1].step < 40
    with until(lambda: True), pytest.raises(TimeUpError):
        fit_em(network, data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "learner"), [("continuous", "auto"), ("binary", "paper"), ("binary", "em")]
)
def test_a_limit_is_held_on_large_data(kind: str, learner: str) -> None:
    limit = 5.0
    data = drawn(50_000, 8, kind)
    model = DSPN(Em(16) if learner == "em" else learner, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.set_params(time_limit=1.0).fit(data[:2_000])  # kernels are loaded
        begun = time.monotonic()
        model.set_params(time_limit=limit).fit(data)
    assert time.monotonic() - begun <= 1.5 * limit
