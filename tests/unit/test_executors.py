"""Executors: order, errors, handles and the end of workers, the same for all of them."""

import operator
import os
import tempfile
import threading
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dspn import Model, Sequences
from dspn.errors import DspnError, StructureError
from dspn.executors import (
    Executor,
    Processes,
    Serial,
    Shared,
    Threads,
    _start_pool,
    executor_of,
)
from dspn.learning import EmOptions, GrowthOptions, Plan, SearchOptions, em, fit_em, learn
from dspn.structure import initial_network
from strategies import schema_of


@pytest.fixture(autouse=True)
def workers() -> None:
    """The worker processes are there before a test begins."""
    _start_pool(1).ready.result()


EXECUTORS = [Serial(), Threads(1), Threads(3), Processes(2)]
SCHEMA = schema_of(("binary", "ternary"))
DATA = Model(initial_network(SCHEMA, 3, rng=np.random.default_rng(0))).sample(
    40, 6, rng=np.random.default_rng(1)
)
EM = EmOptions(max_steps=2)


@pytest.mark.parametrize("executor", EXECUTORS, ids=lambda own: type(own).__name__)
def test_results_are_in_the_order_of_the_items(executor: Executor) -> None:
    assert executor.map(partial(pow, 2), range(7)) == [1, 2, 4, 8, 16, 32, 64]
    assert executor.map(abs, []) == []


@pytest.mark.parametrize("executor", EXECUTORS, ids=lambda own: type(own).__name__)
def test_an_error_of_an_item_is_raised(executor: Executor) -> None:
    with pytest.raises(ZeroDivisionError):
        executor.map(partial(divmod, 7), [1, 0, 2])
    assert executor.map(abs, [-1, -2]) == [1, 2]


@pytest.mark.parametrize("executor", EXECUTORS, ids=lambda own: type(own).__name__)
def test_warnings_reach_the_caller(executor: Executor) -> None:
    with pytest.warns(UserWarning, match="look out"):
        assert executor.map(warnings.warn, ["look out", "look out"]) == [None, None]


def test_threads_are_told_to_end_where_one_fails() -> None:
    stopped = threading.Event()
    started = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        Threads(2).map(
            lambda item: 1 // item if item == 0 else stopped.wait(60), [0, 1], stopped.set
        )
    assert stopped.is_set() and time.monotonic() - started < 30


def test_a_worker_that_dies_is_a_named_error_and_others_take_its_place() -> None:
    executor = Processes(2)
    told: list[bool] = []
    with pytest.raises(DspnError, match=r"worker process has ended .* `executor='threads'`"):
        executor.map(partial(die_elsewhere, os.getpid()), [1, 2, 3], lambda: told.append(True))
    assert told == [True]
    assert executor.map(abs, [-1, -2]) == [1, 2]


def die_elsewhere(home: int, seconds: float) -> None:
    """Ends the process, unless it is the calling one."""
    if os.getpid() != home:
        os._exit(1)
    time.sleep(seconds)


def pause(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def test_work_is_done_in_this_process_and_in_another_that_stays() -> None:
    first, again = (set(Processes(2).map(pause, [0.05] * 8)) for _ in range(2))
    assert os.getpid() in first & again
    assert len(first | again) == 2


def test_a_worker_takes_the_next_item_when_it_has_done_its_own() -> None:
    _start_pool(1).ready.result()
    Processes(2).map(pause, [0.5, 0.5])  # the worker imports this module
    # The first item goes to the worker; whoever takes the second is busy, the other does the rest.
    first, busy, *others = Processes(2).map(pause, [0.0, 1.0, 0.0, 0.0, 0.0])
    assert first != os.getpid()
    assert len(set(others)) == 1
    assert busy not in others


def test_nothing_waits_for_workers_that_are_still_starting() -> None:
    executor = Processes(4)
    assert executor.map(pause, [0.0, 0.0]) == [os.getpid()] * 2
    _start_pool(3).end()
    _start_pool.cache_clear()


def address(shared: Shared[object]) -> tuple[int, int]:
    return os.getpid(), id(shared.value)


def test_a_shared_value_is_decoded_once_by_a_worker_and_written_to_no_file() -> None:
    _start_pool(1).ready.result()
    before = set(Path(tempfile.gettempdir()).glob("dspn-*.pickle"))
    shared = Shared(list(range(5)))
    assert Processes(2).map(operator.attrgetter("value"), [shared] * 4) == [[0, 1, 2, 3, 4]] * 4
    found = Processes(2).map(address, [shared] * 8)
    assert len(set(found)) == len({process for process, _ in found})
    assert set(Path(tempfile.gettempdir()).glob("dspn-*.pickle")) == before


def test_a_shared_value_stays_itself_in_this_process() -> None:
    shared = Threads(2).share(DATA)
    assert Threads(2).map(operator.attrgetter("value"), [shared, shared]) == [DATA, DATA]
    assert shared._sent is None


@pytest.mark.parametrize(
    ("executor", "jobs", "kind"),
    [
        ("threads", 1, Serial),
        ("processes", 1, Serial),
        ("threads", 2, Threads),
        ("processes", 3, Processes),
        (EXECUTORS[2], 1, Threads),
    ],
)
def test_options_name_an_executor(executor: Executor | str, jobs: int, kind: type) -> None:
    found = executor_of(executor, jobs)
    assert type(found) is kind
    assert found.num_workers == (3 if isinstance(executor, Executor) else jobs)


def test_what_is_no_executor_is_refused() -> None:
    with pytest.raises(StructureError, match="`executor` must be 'threads', 'processes' or an"):
        executor_of("ray", 2)
    with pytest.raises(StructureError, match="`num_jobs` must be a whole number"):
        executor_of("threads", 0)
    with pytest.raises(StructureError, match="`num_workers` must be a whole number"):
        Processes(0)


# The same results everywhere.


def large(count: int) -> Sequences:
    """Data of several shards."""
    model = Model(initial_network(SCHEMA, 2, rng=np.random.default_rng(3)))
    length = 2 * em._SHARD_SLICES // count + 1
    return model.sample(count, length, rng=np.random.default_rng(4))


def test_shards_of_em_give_one_result_with_every_executor() -> None:
    data, start = large(400), initial_network(SCHEMA, 4, rng=np.random.default_rng(5))
    weights = np.linspace(0.0, 2.0, len(data))
    fits = [
        fit_em(start, data, options=EM, sample_weights=weights, executor=executor)
        for executor in EXECUTORS
    ]
    assert len({fit.network.fingerprint for fit in fits}) == 1
    assert len({fit.history for fit in fits}) == 1
    whole = fit_em(start, data, options=EM, sample_weights=weights)
    assert fits[0].score == pytest.approx(whole.score, rel=1e-12)


def test_search_gives_one_result_with_every_executor() -> None:
    plan = Plan(
        growth=GrowthOptions(max_interfaces=2, num_random=0, em=EM),
        search=SearchOptions(max_neighbours=4, round_size=4, new_part=EM, whole=EM),
    )
    found = [learn(DATA, DATA, seed=1, plan=plan, executor=executor) for executor in EXECUTORS]
    assert len({one.network.fingerprint for one in found}) == 1
    assert len({one.score for one in found}) == 1
