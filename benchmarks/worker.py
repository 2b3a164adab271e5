"""A competitor in a process of its own: `python -m benchmarks.worker PEER FOLDER`.

Reads requests from standard input and answers on standard output, one JSON object a line:

- {"do": "once", "task": T, "out": FILE} runs once, writes the result and answers with the time.
- {"do": "time", "task": T, "enough_s": S} runs at least once, and again until S seconds are spent.

Anything that a library prints goes to standard error.
"""

import contextlib
import gc
import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

_CPUS = "BENCH_CPUS"
_MOST_REPEATS = 50


def _pin() -> None:
    """One processor for everything, so that no pool of threads can use another."""
    given = os.environ.get(_CPUS)
    if given and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(cpu) for cpu in given.split(",")})


def _status_mib(field: str) -> float | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = [line for line in lines if line.startswith(field + ":")]
    return int(found[0].split()[1]) / 1024 if found else None


def _highest_mib() -> float:
    """The highest resident memory since the last reset, or since the start where there is none."""
    measured = _status_mib("VmHWM")
    if measured is not None:
        return measured
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _resident_mib() -> float:
    measured = _status_mib("VmRSS")
    return _highest_mib() if measured is None else measured


def _reset_highest() -> None:
    # Where that file is missing, the highest value of the whole life of the process stands.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _timed(task: Any) -> tuple[Any, float, float]:
    """The value of one run, its wall time and its processor time."""
    argument = task.prepare()
    gc.disable()
    processor, wall = time.process_time(), time.perf_counter()
    value = task.run(argument)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    gc.enable()
    return value, wall, processor


def _once(task: Any, out: str) -> dict[str, Any]:
    import numpy as np

    value, seconds, _ = _timed(task)
    np.savez(out, **task.result(value))
    return {"seconds": seconds, "resident_mib": _resident_mib()}


def _repeatedly(task: Any, enough_s: float, baseline: float) -> dict[str, Any]:
    _reset_highest()
    gc.collect()
    before = _resident_mib()
    seconds, processor = [], []
    while not seconds or (sum(seconds) < enough_s and len(seconds) < _MOST_REPEATS):
        _, wall, used = _timed(task)
        seconds.append(wall)
        processor.append(used)
    return {
        "seconds": seconds,
        "processor_s": processor,
        "peak_mib": max(0.0, _highest_mib() - baseline),
        "working_mib": max(0.0, _highest_mib() - before),
    }


def _new_peer(name: str, folder: Path) -> Any:
    from benchmarks.cases import Case

    case = Case.load(folder)
    kind = importlib.import_module(f"benchmarks.peers.with_{name}").PEER
    return kind(case, folder) if name == "dspn" else kind(case)


def _answer(peer: Any, request: dict[str, Any], baseline: float) -> dict[str, Any]:
    tasks = peer.tasks()
    if request["task"] not in tasks:
        return {"error": "no such task"}
    task = tasks[request["task"]]
    if request["do"] == "once":
        return _once(task, request["out"])
    return _repeatedly(task, request["enough_s"], baseline)


def _serve(name: str, folder: Path, replies: Any) -> None:
    def reply(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    try:
        peer = _new_peer(name, folder)
    except Exception as error:
        reply({"error": f"{type(error).__name__}: {error}"})
        return
    baseline = _resident_mib()
    reply({"version": peer.version, "baseline_mib": baseline})
    for line in sys.stdin:
        try:
            reply(_answer(peer, json.loads(line), baseline))
        except Exception as error:  # A peer that fails at a task may still do the next one.
            gc.enable()
            reply({"error": f"{type(error).__name__}: {error}"[:300]})


def main() -> None:
    _pin()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _serve(sys.argv[1], Path(sys.argv[2]), replies)


if __name__ == "__main__":
    main()
