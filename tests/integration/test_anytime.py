"""Learning that is stopped at any moment, in any way, and goes on as if it had never been.

Run as a program, this file starts the processes that a test interrupts or kills.
"""

import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dspn
from dspn import Model, Schema, Sequences, Variable
from dspn.errors import ModelFileError
from dspn.learning import EmOptions, em, run
from dspn.learning.growth import GrowthOptions
from dspn.learning.learner import Learned, Plan, learn
from dspn.learning.run import Ending, Report
from dspn.learning.search import SearchOptions
from integration.forks import Forks, serve
from shaped import Shaped

SCHEMA = Schema((Variable.binary("x"), Variable.continuous("y")))
EM = EmOptions(max_steps=2)


# One size is tried in vain, then a better one is found, and then two in vain: growth is also
# stopped beyond its best size.
SPLIT = Plan(
    growth=GrowthOptions(patience=2, num_starts=1, num_random=1, em=EM),
    search=SearchOptions(
        max_neighbours=5, round_size=2, caution=0.0, new_part=EmOptions(max_steps=1), whole=EM
    ),
    score=Shaped((0.0, 10.0, 0.0, 20.0, 0.0, 0.0)),
    refit=EM,
)
SIZES = [1, 2, 2, 4, 4, 4]  # the best after each state of growth
LITERAL = Plan(
    growth=GrowthOptions(mode="literal", em=EM),
    search=SearchOptions(mode="literal", max_neighbours=3, new_part=EM, whole=EM),
    score=Shaped((0.0, 10.0, 20.0, 0.0)),
    refit=None,
    root="last",
    tied=False,
)
ENDLESS = replace(
    SPLIT,
    search=SearchOptions(
        max_neighbours=10**9, max_failures=10**9, new_part=EmOptions(max_steps=1), whole=EM
    ),
)


def drawn(seed: int, count: int) -> Sequences:
    """A hidden switch moves both variables; some entries are missing."""
    rng = np.random.default_rng([8, seed])
    arrays = []
    for length in rng.integers(1, 8, count).tolist():
        state = np.cumsum(rng.random(length) < 0.2) % 2
        values = np.stack([rng.random(length) < 0.2 + 0.6 * state, rng.normal(3.0 * state)], axis=1)
        values = values.astype(np.float64)
        values[rng.random(values.shape) < 0.1] = np.nan
        arrays.append(values)
    return Sequences.from_arrays(arrays, schema=SCHEMA)


TRAIN, VALIDATION = drawn(0, 30), drawn(1, 20)


def learned(plan: Plan = SPLIT, **settings: Any) -> Learned:
    return learn(TRAIN, VALIDATION, **{"seed": 1, "plan": plan, "executor": "threads", **settings})


def outcome(found: Learned) -> tuple[object, ...]:
    """What must not depend on any stop."""
    return found.network.fingerprint, found.score, found.growth, found.tried, found.accepted


def stop_at(number: int) -> Callable[[Report], None]:
    """A reporter that is interrupted by the report of this number, counted from 1."""
    left = iter(range(number - 1))

    def say(_: Report) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return say


@pytest.fixture(scope="module", params=["split", "literal"])
def plan(request: pytest.FixtureRequest) -> Plan:
    return SPLIT if request.param == "split" else LITERAL


@pytest.fixture(scope="module")
def plain(plan: Plan) -> Learned:
    """The run that nothing stops."""
    found = learned(plan)
    assert found.ending is Ending.FINISHED
    assert found.accepted >= 1
    fates = {SPLIT: [True, True, False, True, False, False], LITERAL: [True] * 3 + [False]}
    assert [step.accepted for step in found.growth] == fates[plan]
    return found


# Stopped from within.


def test_run_stopped_after_any_state_ends_as_if_it_had_not_been(
    plan: Plan, plain: Learned, tmp_path: Path
) -> None:
    for number in range(1, len(plain.history) + 1):
        path = tmp_path / f"{number}.dspn"
        stopped = learned(plan, checkpoint=path, report=stop_at(number))
        assert stopped.ending is Ending.INTERRUPTED
        assert stopped.score == plain.history[number - 1].score
        dspn.load(path)
        resumed = learned(plan, checkpoint=path, resume=True, num_jobs=1 + number % 3)
        assert resumed.ending is Ending.FINISHED
        assert outcome(resumed) == outcome(plain)


def test_growth_stopped_beyond_its_best_size_comes_by_the_same_way(tmp_path: Path) -> None:
    """The file holds the best size; those after it are trained again unless growth is over."""
    plan = replace(SPLIT, search=None)
    plain = learned(plan)
    for number, size in enumerate(SIZES, start=1):
        path = tmp_path / f"{number}.dspn"
        learned(plan, checkpoint=path, report=stop_at(number))
        assert dspn.load(path).network.num_interfaces == size
        resumed = learned(plan, checkpoint=path, resume=True)
        assert outcome(resumed) == outcome(plain)
        assert len(resumed.history) == {1: 6, 2: 5, 3: 5, 4: 3, 5: 3, 6: 1}[number]


def test_run_stopped_again_and_again_ends_as_if_it_had_not_been(
    plan: Plan, plain: Learned, tmp_path: Path
) -> None:
    # Beyond its best size growth begins again at the best: stops must be farther apart than that.
    apart = 3
    path = tmp_path / "state.dspn"
    sessions = 0
    while True:
        found = learned(plan, checkpoint=path, resume=True, report=stop_at(apart))
        sessions += 1
        if found.ending is Ending.FINISHED:
            break
        assert sessions < 50
    assert sessions > 2
    assert outcome(found) == outcome(plain)


def test_run_interrupted_within_any_fit_ends_as_if_it_had_not_been(
    plan: Plan, plain: Learned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes in the middle of the work, not between two states."""
    left = [0]
    fit_em: Callable[..., object] = em.fit_em

    def interrupted(*data: object, **settings: object) -> object:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return fit_em(*data, **settings)

    monkeypatch.setattr(em, "fit_em", interrupted)
    stops = 0
    for number in (2, 5, 22):
        left[0] = number
        path = tmp_path / f"{number}.dspn"
        found = learned(plan, checkpoint=path)
        stops += found.ending is Ending.INTERRUPTED
        left[0] = 0
        resumed = learned(plan, checkpoint=path, resume=True)
        assert outcome(resumed) == outcome(plain)
    assert stops >= 2


def test_interrupt_before_there_is_a_network_goes_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*data: object, **settings: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(em, "fit_em", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learned(checkpoint=tmp_path / "state.dspn")
    assert not list(tmp_path.iterdir())


def test_run_stopped_by_time_ends_as_if_it_had_not_been(
    plan: Plan, plain: Learned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ticking() -> Callable[[], float]:
        seconds = iter(range(10**9))
        return lambda: float(next(seconds))

    counts = set()
    for limit in (3, 20, 40):
        path = tmp_path / f"{limit}.dspn"
        with monkeypatch.context() as patch:
            patch.setattr(run, "time", SimpleNamespace(monotonic=ticking()))
            stopped = learned(plan, checkpoint=path, time_limit=limit)
        counts.add(len(stopped.history))
        assert stopped.score == plain.history[len(stopped.history) - 1].score
        assert outcome(learned(plan, checkpoint=path, resume=True)) == outcome(plain)
    assert len(counts) >= 3


def test_checkpoint_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.dspn"
    learned(checkpoint=path, report=stop_at(4))
    cut = path.read_bytes()[:-100]
    path.write_bytes(cut)
    with pytest.raises(ModelFileError, match="cannot load"):
        learned(checkpoint=path, resume=True)
    assert path.read_bytes() == cut


# Stopped from without.


POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs the signals and forks of POSIX")


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """This file as a program, on one thread."""
    threads = dict.fromkeys(("DSPN_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    program = Forks(__file__, {**os.environ, **threads})
    yield program
    program.end()


@POSIX
@pytest.mark.parametrize("way", ["interrupted", "interrupted-workers"])
def test_ctrl_c_ends_a_process_cleanly_with_a_model(way: str, forks: Forks, tmp_path: Path) -> None:
    path = tmp_path / "state.dspn"
    with forks.start(way, path) as process:
        for _ in range(9):
            assert process.stdout.readline().startswith("state")
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate()
        assert process.wait() == 0, errors
    assert errors == ""
    last = json.loads(said.splitlines()[-1])
    assert last["ending"] == "interrupted" and last["states"] >= 9
    score = ENDLESS.score.mean(dspn.load(path).program, VALIDATION)
    np.testing.assert_allclose(score, last["score"], rtol=1e-12)
    resumed = learned(ENDLESS, checkpoint=path, resume=True, report=stop_at(2))
    assert resumed.tried > last["tried"]


@POSIX
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_the_process_that_started_it(
    number: int, forks: Forks, tmp_path: Path
) -> None:
    with forks.start("interrupted-workers", tmp_path / "state.dspn") as process:
        for _ in range(9):
            assert process.stdout.readline().startswith("state")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not children.exists():
            pytest.skip("needs the process table of Linux")
        workers = [Path(f"/proc/{own}") for own in children.read_text().split()]
        assert len(workers) >= 2
        process.send_signal(number)
        process.communicate()
    deadline = time.monotonic() + 30
    while any(worker.exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@POSIX
@pytest.mark.parametrize("way", ["killed", "interrupted-at-random"])
def test_process_stopped_at_random_moments_loses_nothing(
    way: str, forks: Forks, tmp_path: Path
) -> None:
    with forks.start(way, tmp_path) as process:
        said, errors = process.communicate()
        assert process.wait() == 0, errors
    last = json.loads(said.splitlines()[-1])
    assert last["stopped"] >= 3
    assert last["with_file"] >= 2


def say_state(report: Report) -> None:
    print("state", report, flush=True)


def run_until_interrupted(path: str, executor: str = "threads") -> None:
    """Learns until Ctrl-C, and says what came of it."""
    found = learned(ENDLESS, num_jobs=2, executor=executor, checkpoint=path, report=say_state)
    said = {
        "ending": found.ending,
        "states": len(found.history),
        "score": found.score,
        "tried": found.tried,
    }
    print(json.dumps(said), flush=True)


def child(work: Callable[[], object]) -> int:
    """A process that does the work and ends, with status 1 where it fails."""
    number = os.fork()
    if number:
        return number
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def run_killed(directory: str) -> None:
    """Kills runs at random moments, three times each, and lets them finish."""
    expected = outcome(learned())
    begin = time.monotonic()
    learned()
    duration = time.monotonic() - begin
    rng = np.random.default_rng(0)
    stopped = with_file = 0
    for number in range(2):
        path = Path(directory, f"{number}.dspn")
        settings = {"checkpoint": path, "checkpoint_every": 0, "resume": True}
        for _ in range(3):
            process = child(lambda settings=settings: learned(**settings))  # type: ignore[misc]
            time.sleep(rng.uniform(0, 0.8 * duration))
            os.kill(process, signal.SIGKILL)
            stopped += os.WIFSIGNALED(os.waitpid(process, 0)[1])
            if path.exists():
                with_file += 1
                dspn.load(path)
        assert outcome(learned(**settings)) == expected
    print(json.dumps({"stopped": stopped, "with_file": with_file}))


def first_line(pipe: int) -> None:
    """Waits until the other end has said something."""
    assert select.select([pipe], [], [], 60)[0]
    os.read(pipe, 1)


def run_interrupted(directory: str) -> None:
    """Interrupts runs of two jobs at random moments; each has to end by itself, with a model."""
    rng = np.random.default_rng(1)
    stopped = with_file = 0
    for number in range(3):
        path = Path(directory, f"{number}.dspn")
        here, there = os.pipe()

        def work(path: Path = path, there: int = there) -> None:
            found = learned(
                ENDLESS,
                num_jobs=2,
                checkpoint=path,
                checkpoint_every=0,
                report=lambda _: os.write(there, b"."),  # type: ignore[arg-type]
            )
            assert found.ending is Ending.INTERRUPTED

        process = child(work)
        first_line(here)
        time.sleep(rng.uniform(0, 0.5))
        os.kill(process, signal.SIGINT)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
        stopped += 1
        dspn.load(path)
        with_file += 1
        os.close(here)
        os.close(there)
    print(json.dumps({"stopped": stopped, "with_file": with_file}))


# What it is for.


def sticky() -> Model:
    return Model.from_hmm(
        [0.5, 0.5],
        [[0.9, 0.1], [0.1, 0.9]],
        {"x": [[0.15, 0.85], [0.8, 0.2]]},
        schema=Schema((Variable.binary("x"),)),
    )


def gaps(plan: Plan, seeds: range) -> Iterator[float]:
    """Nats per held-out sequence that a learned model is behind the one the data came from."""
    true = sticky()
    for seed in seeds:
        rng = np.random.default_rng([12, seed])
        train, validation, held_out = (true.sample(n, 100, rng=rng) for n in (100, 100, 1000))
        found = learn(train, validation, seed=seed, plan=plan)
        assert found.ending is Ending.FINISHED
        own = Model(found.network).log_likelihood(held_out)
        yield float(np.mean(true.log_likelihood(held_out) - own))


def test_planted_hidden_markov_model_is_found() -> None:
    small = EmOptions(max_steps=40, min_steps=8, patience=4)
    plan = Plan(
        growth=GrowthOptions(max_interfaces=4, patience=1, em=small),
        search=SearchOptions(max_neighbours=8, max_failures=8),
    )
    assert max(gaps(plan, range(2))) <= 0.1


if __name__ == "__main__":
    learned()  # kernels are loaded
    serve(
        {
            "interrupted": run_until_interrupted,
            "interrupted-workers": partial(run_until_interrupted, executor="processes"),
            "killed": run_killed,
            "interrupted-at-random": run_interrupted,
        }
    )
