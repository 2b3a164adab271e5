"""Runs competitors in turns, round after round, and checks that they agree."""

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, final

import numpy as np

from benchmarks.cases import Case, path_log_probs
from benchmarks.environments import ROOT
from benchmarks.limits import one_thread_environment

AGREEMENT: Final = 1e-6
_CPUS: Final = "BENCH_CPUS"


@final
@dataclass(frozen=True)
class Competitor:
    """A library, the interpreter that has it, and the number of threads it may use."""

    label: str
    peer: str
    python: str
    threads: int = 1


class Entry(NamedTuple):
    """A task that a competitor is timed at."""

    competitor: str
    task: str


@final
@dataclass(frozen=True)
class Effort:
    """How long to measure: rounds for each entry, and seconds after which it may stop early."""

    rounds: int = 12
    least_rounds: int = 3
    budget_s: float = 10.0
    enough_s: float = 0.1
    limit_s: float = 900.0

    @classmethod
    def quick(cls) -> "Effort":
        return cls(rounds=3, least_rounds=1, budget_s=1.0, enough_s=0.03, limit_s=120.0)


@final
@dataclass
class Measurement:
    """What one entry needed for a task, and how far its result is from that of the reference.

    `first_s` is the first call, compilation included. `peak_mib` is over the memory after the data
    were loaded, `working_mib` over that just before the runs. Processor time below wall time says
    that the machine was busy with something else.
    """

    label: str
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    first_s: float | None = None
    peak_mib: float | None = None
    working_mib: float | None = None
    difference: float | None = None
    error: str | None = None

    @property
    def best_s(self) -> float | None:
        return min(self.seconds, default=None)

    @property
    def agrees(self) -> bool | None:
        return None if self.difference is None else self.difference <= AGREEMENT

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "best_s": self.best_s,
            "seconds": self.seconds,
            "processor_s": self.processor,
            "first_s": self.first_s,
            "peak_mib": self.peak_mib,
            "working_mib": self.working_mib,
            "difference": self.difference,
            "agrees": self.agrees,
            "error": self.error,
        }


class WorkerError(Exception):
    """A competitor's process that cannot answer, and why."""


@final
class Worker:
    """A competitor's process, with one case loaded."""

    def __init__(self, competitor: Competitor, folder: Path, limit_s: float) -> None:
        self.competitor = competitor
        self._limit_s = limit_s
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [competitor.python, "-m", "benchmarks.worker", competitor.peer, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env=_environment(competitor),
        )
        self.hello = self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], self._limit_s)
        if not ready:
            self.close()
            raise WorkerError(f"no answer within {self._limit_s:g} s")
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._log.seek(0)
            said = self._log.read().decode(errors="replace").strip().splitlines() or ["it ended"]
            raise WorkerError(said[-1][:300])
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        if self._process.poll() is not None:
            raise WorkerError("its process has ended")
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def processors() -> list[int]:
    """The processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _environment(competitor: Competitor) -> dict[str, str]:
    own = processors()[-competitor.threads :]
    return {
        **os.environ,
        **one_thread_environment(),
        "DSPN_NUM_THREADS": str(competitor.threads),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        _CPUS: ",".join(map(str, own)),
    }


@final
class Contest:
    """All competitors with one case loaded. One that cannot start is out, with the reason."""

    def __init__(
        self, case: Case, folder: Path, competitors: list[Competitor], effort: Effort
    ) -> None:
        self.case = case
        self.folder = folder
        self.effort = effort
        self.workers: dict[str, Worker] = {}
        self.failed: dict[str, str] = {}
        case.save(folder)
        for competitor in competitors:
            try:
                self.workers[competitor.label] = Worker(competitor, folder, effort.limit_s)
            except WorkerError as error:
                self.failed[competitor.label] = str(error)

    def __enter__(self) -> "Contest":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers.values():
            worker.close()

    def run(self, entries: Mapping[str, Entry]) -> dict[str, Measurement]:
        """The times of every entry by its label; the first entry's result is the reference."""
        found: dict[str, Measurement] = {}
        for label, entry in entries.items():
            why = self.failed.get(entry.competitor)
            found[label] = (
                self._first(label, entry) if why is None else Measurement(label, error=why)
            )
        self._rounds(found, entries)
        self._compare(found)
        return found

    def _result_file(self, label: str) -> Path:
        return self.folder / f"result-{label}.npz"

    def _first(self, label: str, entry: Entry) -> Measurement:
        file = self._result_file(label)
        file.unlink(missing_ok=True)
        try:
            answer = self.workers[entry.competitor].ask(do="once", task=entry.task, out=str(file))
        except WorkerError as error:
            return Measurement(label, error=str(error))
        return Measurement(label, first_s=answer["seconds"])

    def _rounds(self, found: dict[str, Measurement], entries: Mapping[str, Entry]) -> None:
        """A, B, C, A, B, C, ... until every entry has had its rounds or used its time."""
        effort = self.effort
        spent_s = dict.fromkeys(entries, 0.0)
        for turn in range(effort.rounds):
            for label, entry in entries.items():
                done = turn >= effort.least_rounds and spent_s[label] > effort.budget_s
                if found[label].error is not None or done:
                    continue
                begun = time.perf_counter()
                self._time(found[label], entry)
                spent_s[label] += time.perf_counter() - begun

    def _time(self, found: Measurement, entry: Entry) -> None:
        worker, enough_s = self.workers[entry.competitor], self.effort.enough_s
        try:
            answer = worker.ask(do="time", task=entry.task, enough_s=enough_s)
        except WorkerError as error:
            found.error = str(error)
            return
        found.seconds += answer["seconds"]
        found.processor += answer["processor_s"]
        found.peak_mib = max(found.peak_mib or 0.0, answer["peak_mib"])
        found.working_mib = max(found.working_mib or 0.0, answer["working_mib"])

    def _compare(self, found: dict[str, Measurement]) -> None:
        reference: Mapping[str, Any] | None = None
        for label, measurement in found.items():
            if measurement.error is not None or not self._result_file(label).exists():
                continue
            with np.load(self._result_file(label)) as stored:
                result = {name: stored[name] for name in stored.files}
            if not result:
                continue
            if "states" in result:
                result = {"path": path_log_probs(self.case, result["states"])}
            reference = reference or result
            measurement.difference = _difference(result, reference)


def _difference(found: Mapping[str, Any], reference: Mapping[str, Any]) -> float:
    """The greatest relative difference; probabilities below a thousandth are compared as that."""
    worst = 0.0
    for name, expected in reference.items():
        least = 1.0 if name in ("log_likelihood", "path") else 1e-3
        gap = np.abs(found[name] - expected) / np.maximum(np.abs(expected), least)
        worst = max(worst, float(np.max(gap)))
    return worst if np.isfinite(worst) else float("inf")
