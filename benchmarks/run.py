"""Runs the benchmarks: `python -m benchmarks.run [--quick] [--jobs a,b] [--out DIR]`."""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks import alone, jobs
from benchmarks.compare import compare, competitors
from benchmarks.environments import PEERS, environment
from benchmarks.harness import Effort
from benchmarks.limits import measure_apart
from benchmarks.plot import save_plot
from benchmarks.report import show, to_markdown
from benchmarks.results import Results

_GROUPS: Final = {
    "a": "13 binary variables: log-likelihood, EM, Viterbi, one-shot",
    "b": "one variable of 20 categories: the same",
    "few": "1, 4 and 16 long sequences of 27 binary variables",
    "d": "200 long sequences of 27 binary variables",
    "c": "irregular templates",
    "e": "one stream",
    "f": "growth of the cost",
    "start": "start of a new process",
    "memory": "peak memory of an EM iteration",
}
_SMOKE: Final = "smoke"
_PLOT: Final = "ratios.png"


def _arguments() -> argparse.Namespace:
    listed = "; ".join(f"{name}: {what}" for name, what in _GROUPS.items())
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small data and few repeats")
    parser.add_argument("--jobs", default=",".join(_GROUPS), help=f"some of {listed}")
    parser.add_argument("--states", default="", help="only these k of the jobs a, b and d: 8,32")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"some of {', '.join(PEERS)}")
    parser.add_argument(
        "--no-install",
        action="store_true",
        help="use the peers that are installed, here or in .bench",
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    found = parser.parse_args()
    found.jobs = [name for name in found.jobs.split(",") if name]
    found.peers = [name for name in found.peers.split(",") if name]
    for name, allowed in (("jobs", {*_GROUPS, _SMOKE}), ("peers", set(PEERS))):
        unknown = sorted(set(getattr(found, name)) - allowed)
        if unknown:
            parser.error(f"--{name} has {unknown}; choose from {sorted(allowed)}.")
    return found


def _keep(results: Results, out: Path) -> None:
    """What there is so far, so that an interrupted run has not been for nothing."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results.to_json(), indent=1) + "\n")
    (out / "report.md").write_text(to_markdown(results, None))


def _finish(results: Results, out: Path) -> None:
    """JSON, the plot, and the report that shows it."""
    _keep(results, out)
    plotted = save_plot(results, out / _PLOT)
    (out / "report.md").write_text(to_markdown(results, _PLOT if plotted else None))


def _prepared(arguments: argparse.Namespace, console: Console) -> Results:
    found = []
    for name in arguments.peers:
        console.print(f"environment of {name}", style="dim")
        found.append(environment(name, install=not arguments.no_install))
        if found[-1].problem:
            console.print(f"{name} is left out: {found[-1].problem}", style="yellow", markup=False)
    console.print("limits of the machine", style="dim")
    return Results(arguments.quick, found, measure_apart(0.2 if arguments.quick else 2.0))


def _measure(arguments: argparse.Namespace, results: Results, say: Callable[[str], None]) -> None:
    wanted, out = set(arguments.jobs), arguments.out
    states = {int(k) for k in arguments.states.split(",") if k}
    scale = jobs.Scale(arguments.quick)
    effort = Effort.quick() if arguments.quick else Effort()
    opponents = competitors(results.environments)
    for job in jobs.comparisons(scale):
        if job.group in wanted and (not states or job.num_states in states):
            for row in compare(job, opponents, effort, say):
                results.rows.append(row)
                _keep(results, out)
    if "c" in wanted:
        results.rows.extend(alone.irregular(scale, effort, say))
    if "e" in wanted:
        results.streams.extend(alone.streams(scale, effort, say))
    if "f" in wanted:
        results.growth.extend(alone.growth(scale, effort, say))
    if "start" in wanted:
        results.starts.extend(alone.starts(scale, say))
    if "memory" in wanted:
        results.em_memory = alone.em_memory(scale, effort, say)


def main() -> None:
    arguments = _arguments()
    console = Console(width=None if Console().is_terminal else 180)
    begun = time.perf_counter()

    def say(what: str) -> None:
        console.print(f"{time.perf_counter() - begun:7.1f} s  {what}", style="dim", markup=False)

    results = _prepared(arguments, console)
    _measure(arguments, results, say)
    _finish(results, arguments.out)
    show(results, console)
    console.print(f"Written to {arguments.out}", markup=False)


if __name__ == "__main__":
    main()
