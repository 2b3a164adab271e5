"""What is measured of dspn alone: irregular templates, streams, growth, start-up, memory."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

import dspn
from benchmarks.cases import Case, hmm_case
from benchmarks.compare import OURS, Row, ours
from benchmarks.environments import ROOT
from benchmarks.harness import Contest, Effort, Entry, Worker, WorkerError
from benchmarks.jobs import Scale
from benchmarks.limits import one_thread_environment
from benchmarks.peers.with_dspn import MODEL_FILE, schema_of
from benchmarks.templates import NUM_INTERFACES, census, irregular_network

Say = Callable[[str], None]

_DOUBLINGS: Final = 5
_STARTS: Final = 5
_START_LIMIT_S: Final = 300.0
_SMALL_BATCH: Final = """
import numpy as np, dspn
rng = np.random.default_rng(0)
schema = dspn.Schema((dspn.Variable.binary("a"), dspn.Variable.binary("b")))
leaves = {name: rng.dirichlet(np.ones(2), size=4) for name in schema.names}
moves = rng.dirichlet(np.ones(4), size=4)
model = dspn.Model.from_hmm(np.full(4, 0.25), moves, leaves, schema=schema)
model.log_likelihood([rng.integers(0, 2, size=(10, 2)).astype(float) for _ in range(10)])
"""


def _irregular_case(num_sequences: int, scale: float, folder: Path, seed: int) -> tuple[Case, int]:
    """Binary data with an irregular template beside them, and the template's edges."""
    rng = np.random.default_rng([6, seed])
    case = hmm_case(13, 2, rng.integers(20, 61, size=num_sequences), 2, rng=rng)
    network = irregular_network(schema_of(case), scale, rng=rng)
    dspn.Model(network).save(folder / MODEL_FILE)
    return case, network.template.num_edges


def irregular(scale: Scale, effort: Effort, say: Say) -> Iterator[Row]:
    """Learned-like templates, in edges times slices times sequences a second."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case, edges = _irregular_case(scale.num_sequences, 1.0, folder, 0)
        counts = census(dspn.load(folder / MODEL_FILE).network.template)
        title = (
            f"{case.num_sequences:,} x 20..60, 13 binary; {counts.interface_sums} interface sums, "
            f"{counts.leaf_products} leaf products, {counts.two_child_sums} two-child sums"
        )
        opponents = ours()
        with Contest(case, folder, opponents, effort) as contest:
            for task in ("log_likelihood", "em", "viterbi"):
                say(f"irregular template: {task}")
                found = contest.run({one.label: Entry(one.label, task) for one in opponents})
                yield Row(
                    "c",
                    title,
                    task,
                    NUM_INTERFACES,
                    case.num_sequences,
                    case.total_slices,
                    len(np.unique(case.values, axis=0)),
                    edges,
                    found,
                    edges,
                )


@final
@dataclass(frozen=True)
class Stream:
    """Latency of `filter.update` for one stream, in microseconds."""

    num_states: int
    updates: int
    least_us: float
    median_us: float
    p99_us: float


def streams(scale: Scale, effort: Effort, say: Say) -> Iterator[Stream]:
    """One stream of 13 binary variables; the round with the lowest median counts."""
    updates = 300 if scale.quick else 3000
    for k in (8, 32):
        say(f"one stream, k = {k}")
        rng = np.random.default_rng([7, k])
        case = hmm_case(13, 2, np.array([updates]), k, rng=rng)
        with tempfile.TemporaryDirectory() as name:
            folder, file = Path(name), str(Path(name) / "stream.npz")
            case.save(folder)
            rounds = []
            with Worker(ours()[0], folder, effort.limit_s) as worker:
                for _ in range(1 + effort.least_rounds):
                    worker.ask(do="once", task="stream", out=file)
                    with np.load(file) as stored:
                        rounds.append(stored["seconds"][1:] * 1e6)
        best = min(rounds[1:], key=lambda taken: float(np.median(taken)))
        least, median, p99 = (float(np.quantile(best, q)) for q in (0.0, 0.5, 0.99))
        yield Stream(k, updates, least, median, p99)


@final
@dataclass(frozen=True)
class Growth:
    """Times against one size, and the straight line a + b x through them."""

    size: str
    task: str
    setting: str
    sizes: list[int]
    seconds: list[float]

    @property
    def line(self) -> tuple[float, float]:
        """Intercept and slope."""
        slope, intercept = np.polyfit(self.sizes, self.seconds, 1)
        return float(intercept), float(slope)

    @property
    def r_squared(self) -> float:
        intercept, slope = self.line
        y = np.array(self.seconds)
        rest = y - (intercept + slope * np.array(self.sizes))
        return float(1.0 - (rest**2).sum() / ((y - y.mean()) ** 2).sum())

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "line": self.line, "r_squared": self.r_squared}


def _chain(num_sequences: int, num_slices: int) -> Case:
    lengths = np.full(num_sequences, num_slices)
    return hmm_case(13, 2, lengths, 16, rng=np.random.default_rng(8))


@final
@dataclass(frozen=True)
class _Sweep:
    """Cases of growing size: `make(power, folder)` gives the case and its size."""

    size: str
    setting: str
    make: Callable[[int, Path], tuple[Case, int]]

    def run(self, effort: Effort) -> Iterator[Growth]:
        times: dict[str, list[float]] = {"log_likelihood": [], "em": []}
        sizes = []
        for doubling in range(_DOUBLINGS + 1):
            with tempfile.TemporaryDirectory() as name:
                case, size = self.make(2**doubling, Path(name))
                sizes.append(size)
                with Contest(case, Path(name), ours()[:1], effort) as contest:
                    for task, own in times.items():
                        best = contest.run({OURS: Entry(OURS, task)})[OURS].best_s
                        own.extend([] if best is None else [best])
        for task, own in times.items():
            if len(own) == len(sizes):
                yield Growth(self.size, task, self.setting, sizes, own)


def growth(scale: Scale, effort: Effort, say: Say) -> Iterator[Growth]:
    """Time against slices, sequences and edges, each doubled five times.

    Even the smallest chain has each distinct slice twice or more, and the irregular templates have
    few slices that repeat: each sweep stays with one way of evaluating slices.
    """
    count = 200 if scale.quick else 500
    for sweep in (
        _Sweep(
            "slices", f"{count} sequences, k = 16", lambda p, _: (_chain(count, 40 * p), 40 * p)
        ),
        _Sweep("sequences", "40 slices, k = 16", lambda p, _: (_chain(count * p, 40), count * p)),
        _Sweep(
            "edges",
            "50 x 20..60, irregular",
            lambda p, folder: _irregular_case(50, p / 2, folder, 1),
        ),
    ):
        say(f"growth with {sweep.size}")
        yield from sweep.run(effort)


@final
@dataclass(frozen=True)
class Start:
    """Seconds from the start of a new process to the end of its first likelihood."""

    cache: str
    seconds: list[float]

    @property
    def best_s(self) -> float:
        return min(self.seconds)


def _start_s(cache: str | None) -> float:
    extra = {} if cache is None else {"NUMBA_CACHE_DIR": cache}
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **one_thread_environment(), "PYTHONPATH": path, **extra}
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", _SMALL_BATCH],
        check=True,
        env=environment,
        capture_output=True,
        timeout=_START_LIMIT_S,
    )
    return time.perf_counter() - begun


def starts(scale: Scale, say: Say) -> list[Start]:
    """A new process that imports dspn and scores one small batch, with a warm and a cold cache."""
    say("start of a new process")
    _start_s(None)
    warm = [_start_s(None) for _ in range(2 if scale.quick else _STARTS)]
    cold = []
    for _ in range(1 if scale.quick else 2):
        with tempfile.TemporaryDirectory() as empty:
            cold.append(_start_s(empty))
    return [Start("warm", warm), Start("cold", cold)]


@final
@dataclass(frozen=True)
class EmMemory:
    """Peak memory of an EM iteration over that of a process with dspn and the data loaded.

    `kernels_mib` of it were there after an iteration on a few sequences: the loaded kernels.
    """

    setting: str
    data_mib: float
    peak_mib: float
    kernels_mib: float


def em_memory(scale: Scale, effort: Effort, say: Say) -> EmMemory | str:
    """The memory of an iteration on 8,800 sequences of 40 slices, or why there is no figure."""
    say("memory of an EM iteration")
    count, k = (880, 32) if scale.quick else (8800, 128)
    case = hmm_case(13, 2, np.full(count, 40), k, rng=np.random.default_rng(9))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case.save(folder)
        try:
            with Worker(ours()[0], folder, effort.limit_s) as worker:
                small = worker.ask(do="once", task="em_few", out=str(folder / "few.npz"))
                found = worker.ask(do="time", task="em", enough_s=0.0)
                before = worker.hello["baseline_mib"]
        except WorkerError as error:
            return str(error)
    return EmMemory(
        f"{count:,} x 40, 13 binary, k = {k}",
        case.total_slices * 13 * 8 / 2**20,
        found["peak_mib"],
        max(0.0, small["resident_mib"] - before),
    )
