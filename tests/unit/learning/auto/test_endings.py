"""How a run ends before its time: by its clock, by Ctrl-C at any moment, by an error."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dspn import EmOptions, Model, Schema, Sequences, Variable
from dspn.learning import run as runs
from dspn.learning.auto import Auto, AutoLearned, learn_auto, learner
from dspn.learning.auto import run as running
from dspn.learning.auto.base import AutoTask, Candidate, Try
from dspn.learning.auto.planner import AutoState
from dspn.learning.auto.training import attempted
from dspn.learning.run import Ending, Report

SCHEMA = Schema(tuple(Variable.binary(f"x{i}") for i in range(3)))
PLANTED = Model.from_hmm(
    [0.5, 0.5],
    [[0.9, 0.1], [0.2, 0.8]],
    {name: [[0.9, 0.1], [0.2, 0.8]] for name in SCHEMA.names},
    schema=SCHEMA,
)
OPTIONS = Auto(effort=1e3, patience=3, em=EmOptions(max_steps=2), refit=EmOptions(max_steps=1))


def drawn(num_sequences: int, seed: int) -> Sequences:
    return PLANTED.sample(num_sequences, 5, rng=np.random.default_rng(seed))


TRAIN, VALIDATION = drawn(24, 0), drawn(13, 1)


def learned(**settings: object) -> AutoLearned:
    arguments = {"seed": 0, "options": OPTIONS, **settings}
    return learn_auto(TRAIN, VALIDATION, **arguments)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def states() -> list[AutoState]:
    found: list[AutoState] = []
    learned(on_state=found.append)
    return found


def check_is_state(found: AutoLearned, state: AutoState) -> None:
    """What was learned is the model of a state, as it was scored."""
    assert found.score == state.choice.score
    assert [str(item) for item in found.tried] == [str(item) for item in state.trail]
    scores = Model(found.mixture).log_likelihood(VALIDATION)
    np.testing.assert_allclose(scores, state.choice.validation, rtol=1e-9)


def last_state_before(number: int, states: list[AutoState]) -> AutoState:
    """The last state that knows nothing of a try."""
    return [state for state in states if state.tried <= number][-1]


def at_try(number: int, act: Callable[[], None]) -> Callable[[Try, AutoTask], Candidate | None]:
    """Tries as they are, with something that happens right before one of them."""

    def tried(attempt: Try, task: AutoTask) -> Candidate | None:
        if attempt.number == number:
            act()
        return attempted(attempt, task)

    return tried


def interrupt() -> None:
    raise KeyboardInterrupt


# Ctrl-C.


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_ctrl_c_at_any_try_leaves_the_model_of_the_last_state(
    states: list[AutoState], num_jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = states[0].tried
    for number in range(first, states[-1].tried, 5):
        monkeypatch.setattr(running, "attempted", at_try(number, interrupt))
        found = learned(num_jobs=num_jobs, executor="threads")
        assert found.ending is Ending.INTERRUPTED
        check_is_state(found, last_state_before(number, states))


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_ctrl_c_before_there_is_a_model_is_passed_on(
    num_jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "attempted", at_try(0, interrupt))
    with pytest.raises(KeyboardInterrupt):
        learned(num_jobs=num_jobs, executor="threads")


def test_a_signal_in_the_main_thread_while_others_train(
    states: list[AutoState], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever ran in this process before may have left another handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    number = states[0].tried + 1

    def press() -> None:
        # Only a signal to that very thread wakes it from waiting for the others, as Ctrl-C does.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    monkeypatch.setattr(running, "attempted", at_try(number, press))
    try:
        found = learned(num_jobs=2, executor="threads")
    finally:
        signal.signal(signal.SIGINT, before)
    assert found.ending is Ending.INTERRUPTED
    check_is_state(found, last_state_before(found.tried[-1].candidate.number + 1, states))


def test_ctrl_c_while_a_state_is_told_keeps_that_state(states: list[AutoState]) -> None:
    for place in (0, 1, len(states) - 1):

        def told(report: Report, place: int = place) -> None:
            if report.tried == states[place].tried and report.stage == states[place].stage:
                raise KeyboardInterrupt

        found = learned(report=told)
        assert found.ending is Ending.INTERRUPTED
        check_is_state(found, states[place])
        assert len(found.history) == place + 1


def test_ctrl_c_while_refitting_leaves_the_networks_as_they_were_scored(
    states: list[AutoState], monkeypatch: pytest.MonkeyPatch
) -> None:
    members = sum(len(model.members) for model in states[-1].choice.models.values())
    plain = learner.fit_em
    for number in {0, members - 1}:
        count = 0

        def fitted(*arguments: object, number: int = number, **settings: object) -> object:
            nonlocal count
            count += 1
            if count == number + 1:
                raise KeyboardInterrupt
            return plain(*arguments, **settings)  # type: ignore[arg-type]

        monkeypatch.setattr(learner, "fit_em", fitted)
        found = learned()
        assert found.ending is Ending.INTERRUPTED
        check_is_state(found, states[-1])


def test_ctrl_c_leaves_a_directory_to_go_on_from(
    tmp_path: Path, states: list[AutoState], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(running, "attempted", at_try(states[0].tried + 2, interrupt))
        assert learned(checkpoint=tmp_path, refit=False).ending is Ending.INTERRUPTED
    found = learned(checkpoint=tmp_path, resume=True, refit=False)
    assert found.ending is Ending.FINISHED
    check_is_state(found, states[-1])


def test_an_error_in_a_try_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("in a try")

    monkeypatch.setattr(running, "attempted", at_try(2, broken))
    for num_jobs in (1, 2):
        with pytest.raises(ZeroDivisionError, match="in a try"):
            learned(num_jobs=num_jobs, executor="threads")


# The clock.


def test_a_time_limit_leaves_the_model_of_the_last_state(
    states: list[AutoState], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(states[0].tried, states[-1].tried, 4):
        now = SimpleNamespace(time=0.0)

        def pass_time(now: SimpleNamespace = now) -> None:
            now.time = 100.0

        with monkeypatch.context() as patch:
            own = SimpleNamespace(monotonic=lambda now=now: now.time)
            patch.setattr(runs, "time", own)
            patch.setattr(running, "attempted", at_try(number, pass_time))
            found = learned(time_limit=10.0, refit=False)
        assert found.ending is Ending.TIME_LIMIT
        check_is_state(found, last_state_before(number, states))


def test_a_time_limit_within_the_first_round_leaves_a_model_of_one_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = SimpleNamespace(time=0.0)

    def pass_time() -> None:
        now.time = 100.0

    monkeypatch.setattr(runs, "time", SimpleNamespace(monotonic=lambda: now.time))
    monkeypatch.setattr(running, "attempted", at_try(2, pass_time))
    found = learned(time_limit=10.0, refit=False)
    assert found.ending is Ending.TIME_LIMIT
    assert np.isfinite(found.score)
    assert Model(found.mixture).log_likelihood(VALIDATION).mean() == pytest.approx(
        found.score, rel=1e-9
    )


def test_the_model_is_trained_on_all_data_after_a_time_limit_too(
    states: list[AutoState], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SimpleNamespace(time=0.0)

    def pass_time() -> None:
        now.time = 100.0

    monkeypatch.setattr(runs, "time", SimpleNamespace(monotonic=lambda: now.time))
    monkeypatch.setattr(running, "attempted", at_try(states[0].tried, pass_time))
    found = learned(time_limit=10.0)
    assert found.ending is Ending.TIME_LIMIT
    assert found.score == states[0].choice.score
    assert Model(found.mixture).log_likelihood(VALIDATION).mean() > found.score
