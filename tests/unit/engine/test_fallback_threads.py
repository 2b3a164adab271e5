"""What a pass makes only when it falls back is made once, before any thread uses it."""

import pickle
import threading
import time

import numpy as np
import pytest

import dspn
from dspn.engine import compile_program
from dspn.engine.cpu import CpuEngine, Paths
from dspn.engine.cpu.chain import ChainRun
from dspn.engine.cpu.program import Memo
from dspn.structure import initial_network

SCHEMA = dspn.Schema((dspn.Variable.binary("a"), dspn.Variable.count("n")))


def _data() -> dspn.Sequences:
    rng = np.random.default_rng(0)
    arrays = [np.stack([rng.integers(2, size=6), rng.poisson(4, 6)], 1) for _ in range(3000)]
    return dspn.Sequences.from_arrays(arrays, schema=SCHEMA)


def test_threads_that_fall_back_together_share_one_finished_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = _data()
    network = initial_network(SCHEMA, 6, rng=np.random.default_rng(1))

    def doubted(threads: int) -> np.ndarray:
        engine = CpuEngine(Paths(threads=threads, doubt=True))
        return compile_program(network, engine=engine).log_likelihood(data)

    alone, prepare = doubted(1), ChainRun._prepare

    def prepare_slowly(self: ChainRun, *way: bool) -> None:
        time.sleep(0.05)  # long enough for every other thread to come by
        prepare(self, *way)

    monkeypatch.setattr(ChainRun, "_prepare", prepare_slowly)
    np.testing.assert_array_equal(doubted(4), alone)
    np.testing.assert_allclose(alone, compile_program(network).log_likelihood(data), rtol=1e-12)


def test_a_memo_makes_each_value_once_whatever_the_threads() -> None:
    memo, made, found = Memo(), [], []
    together = threading.Barrier(8)

    def make() -> object:
        time.sleep(0.02)
        made.append(1)
        return object()

    def ask() -> None:
        together.wait()
        found.append(memo("key", make))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(found) == 8 and all(value is found[0] for value in found)


def test_a_copied_memo_begins_empty() -> None:
    memo = Memo()
    memo("key", lambda: 1)
    assert pickle.loads(pickle.dumps(memo))("key", lambda: 2) == 2
