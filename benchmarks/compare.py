"""The jobs that peers share: one row of results for each task."""

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from benchmarks.cases import Case
from benchmarks.environments import PEERS, Environment
from benchmarks.harness import Competitor, Contest, Effort, Entry, Measurement, processors
from benchmarks.jobs import Job, multiply_adds

OURS: Final = "dspn"
TWO_THREADS: Final = "dspn, 2 threads"
# Variants of ours that are timed in the same rounds as a task.
_BESIDE: Final = {
    "viterbi": "viterbi_engine",
    "log_likelihood": "log_likelihood_single",
    "em": "em_single",
}


@final
@dataclass(frozen=True)
class Row:
    """One task on one case: what every competitor needed.

    `work` is the number of useful multiply-adds of one slice of one sequence; `edges` is given for
    templates that are no HMM.
    """

    group: str
    title: str
    task: str
    num_states: int
    num_sequences: int
    total_slices: int
    distinct_slices: int
    work: int
    measurements: dict[str, Measurement]
    edges: int | None = None

    @property
    def ours_s(self) -> float | None:
        found = self.measurements.get(OURS)
        return None if found is None else found.best_s

    def ratio(self, label: str) -> float | None:
        """How many times as long as ours a competitor takes."""
        found = self.measurements.get(label)
        theirs = None if found is None else found.best_s
        return None if theirs is None or self.ours_s is None else theirs / self.ours_s

    @property
    def speedup(self) -> float | None:
        """One thread's time over two threads'."""
        ratio = self.ratio(TWO_THREADS)
        return None if ratio is None else 1.0 / ratio

    @property
    def ns_per_slice(self) -> float | None:
        return None if self.ours_s is None else self.ours_s / self.total_slices * 1e9

    def share_of_peak(self, fma: float) -> float | None:
        """Useful multiply-adds a second over the machine's most, in 1e9/s."""
        return None if self.ns_per_slice is None else self.work / self.ns_per_slice / fma

    def to_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "title": self.title,
            "task": self.task,
            "num_states": self.num_states,
            "num_sequences": self.num_sequences,
            "total_slices": self.total_slices,
            "distinct_slices": self.distinct_slices,
            "work_per_slice": self.work,
            "edges": self.edges,
            "ns_per_slice": self.ns_per_slice,
            "two_threads_speedup": self.speedup,
            "ratios": {peer: self.ratio(peer) for peer in PEERS},
            "measurements": {name: m.to_json() for name, m in self.measurements.items()},
        }


def ours() -> list[Competitor]:
    """dspn with one thread, and with two where there are two processors."""
    found = [Competitor(OURS, "dspn", sys.executable)]
    if len(processors()) >= 2:
        found.append(Competitor(TWO_THREADS, "dspn", sys.executable, threads=2))
    return found


def competitors(environments: list[Environment]) -> list[Competitor]:
    """Ours, then every peer that is installed."""
    peers = [Competitor(e.name, e.name, e.python) for e in environments if e.python is not None]
    return [*ours(), *peers]


def _entries(job: Job, task: str, labels: list[str]) -> dict[str, Entry]:
    entries = {label: Entry(label, task) for label in labels}
    beside = _BESIDE.get(task)
    if beside in job.tasks:
        entries[beside] = Entry(OURS, beside)
    return entries


def _size(case: Case) -> dict[str, int]:
    return {
        "num_sequences": case.num_sequences,
        "total_slices": case.total_slices,
        "distinct_slices": len(np.unique(case.values, axis=0)),
    }


def _row(job: Job, case: Case, task: str, found: dict[str, Measurement]) -> Row:
    work = multiply_adds(task, job.num_states)
    return Row(
        job.group,
        job.title,
        task,
        job.num_states,
        **_size(case),
        work=work,
        measurements=found,
    )


def compare(
    job: Job, opponents: list[Competitor], effort: Effort, say: Callable[[str], None]
) -> Iterator[Row]:
    """A row for each task of the job; variants of ours are timed in the same rounds."""
    case = job.make()
    labels = [competitor.label for competitor in opponents]
    with (
        tempfile.TemporaryDirectory() as folder,
        Contest(case, Path(folder), opponents, effort) as contest,
    ):
        for task in job.tasks:
            if task in _BESIDE.values():
                continue
            say(f"{job.title}, k = {job.num_states}: {task}")
            found = contest.run(_entries(job, task, labels))
            beside = _BESIDE.get(task, "")
            variant = found.pop(beside, None)
            yield _row(job, case, task, found)
            if variant is not None:
                shared = {name: m for name, m in found.items() if name != TWO_THREADS}
                yield _row(job, case, beside, {**shared, OURS: variant})
