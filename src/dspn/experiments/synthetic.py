"""How near learned models come to a known truth: `python -m dspn.experiments.synthetic`.

Data are drawn from HMM-samples, Water and BAT as for the paper's Table 1, 100 sequences of 100
slices, with the paper's random tables and with sharper ones. Each sequence is tested once in ten
folds, and a gap is the mean difference to the log-likelihood of the true model. Results are kept
fold by fold, and a run that was stopped goes on where it was.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, final

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress

from dspn._arrays import Floats
from dspn.datasets import DbnProcess, bat_process, hmm_process, water_process
from dspn.engine import compile_program, likelihood
from dspn.experiments.folds import Fold, folds_of
from dspn.experiments.results import Results
from dspn.experiments.tables import markdown_table, show_table
from dspn.io import write_atomically
from dspn.learning.growth import GrowthOptions
from dspn.learning.learner import learn
from dspn.learning.plan import Plan
from dspn.sequences import Sequences

_NUM_SEQUENCES: Final = 100
_NUM_SLICES: Final = 100
_SHARP: Final = 0.3
_LEARNER_SEED: Final = 0
_WIDTH: Final = 130  # of the table in a file or pipe


@final
@dataclass(frozen=True)
class Case:
    """A process with tables of a seed; the paper's gap where the paper has one."""

    name: str
    make: Callable[..., DbnProcess]
    seed: int
    concentration: float | None
    paper_gap: float | None = None

    @property
    def tables(self) -> str:
        """How the tables were drawn, in words."""
        return "uniform" if self.concentration is None else f"Dirichlet {self.concentration:g}"

    @property
    def key(self) -> str:
        """The case in one word, for files."""
        return f"{self.name} {self.tables} {self.seed}"

    def drawn(self) -> tuple[DbnProcess, Sequences]:
        """The process, and the data that everybody learns from."""
        rng = np.random.default_rng(self.seed)
        process = self.make(rng, concentration=self.concentration)
        return process, process.sample(_NUM_SEQUENCES, _NUM_SLICES, rng=rng)


# The sharp seeds are, for each network, the first three from 0 on at which independent entries are
# more than 15 nats from the truth; most tables give less to find.
CASES: Final = (
    *(Case("HMM-samples", hmm_process, seed, None, 0.3) for seed in range(3)),
    *(Case("Water", water_process, seed, None, 2.8) for seed in range(3)),
    *(Case("BAT", bat_process, seed, None, 13.4) for seed in range(3)),
    *(Case("Water", water_process, seed, _SHARP) for seed in (10, 11, 13)),
    *(Case("BAT", bat_process, seed, _SHARP) for seed in (2, 5, 7)),
)

# The root is on the first slice, where these processes begin.
PLANS: Final = {
    "i.i.d.": Plan(growth=GrowthOptions(max_interfaces=1), search=None),
    "initial": Plan(search=None),
    "DSPN": Plan(),
}


def _tested(data: Sequences, fold: Fold, plan: Plan) -> tuple[Floats, float]:
    """Log-likelihoods of the test sequences under a learned model, and the seconds it took."""
    start = time.perf_counter()
    found = learn(data[fold.train], data[fold.validation], seed=_LEARNER_SEED, plan=plan)
    seconds = time.perf_counter() - start
    return likelihood(compile_program(found.network), data[fold.test]), seconds


def _jobs(cases: tuple[Case, ...], num_folds: int) -> Iterator[tuple[Case, int, str]]:
    for case in cases:
        for number in range(num_folds):
            for model in PLANS:
                yield case, number, model


def run(cases: tuple[Case, ...], num_folds: int, results: Results, console: Console) -> None:
    """Learns and tests whatever is not known yet."""
    jobs = list(_jobs(cases, num_folds))
    known: dict[str, tuple[DbnProcess, Sequences, tuple[Fold, ...]]] = {}
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("folds", total=len(jobs))
        for case, number, model in jobs:
            key = f"{case.key}/{number}/{model}"
            progress.update(bar, description=f"{case.key}, fold {number + 1}, {model}", advance=1)
            if key in results.entries:
                continue
            if case.key not in known:
                process, data = case.drawn()
                folds = folds_of(len(data), rng=np.random.default_rng(case.seed))
                known[case.key] = (process, data, folds)
            process, data, folds = known[case.key]
            fold = folds[number]
            truth = process.log_likelihood(data[fold.test])
            values, seconds = _tested(data, fold, PLANS[model])
            entry = {"true": truth.tolist(), "model": values.tolist(), "seconds": seconds}
            results.add(key, entry)


@final
@dataclass(frozen=True)
class Row:
    """Means over the test sequences of all folds: the true model, and every model's gap to it."""

    case: Case
    num_folds: int
    true_nll: float
    gaps: dict[str, float]
    errors: dict[str, float]
    seconds: float

    @property
    def share(self) -> float:
        """How much of the way from independent entries to the truth the DSPN goes."""
        return 1.0 - self.gaps["DSPN"] / self.gaps["i.i.d."]


def rows(cases: tuple[Case, ...], num_folds: int, results: Results) -> Iterator[Row]:
    """The table, from what is known."""
    for case in cases:
        gaps, errors, seconds, truth = {}, {}, 0.0, np.empty(0)
        for model in PLANS:
            own = [results.entries[f"{case.key}/{number}/{model}"] for number in range(num_folds)]
            truth = np.concatenate([entry["true"] for entry in own])
            lost = truth - np.concatenate([entry["model"] for entry in own])
            gaps[model] = float(lost.mean())
            errors[model] = float(lost.std(ddof=1) / np.sqrt(lost.size))
            seconds = float(np.mean([entry["seconds"] for entry in own]))
        yield Row(case, num_folds, float(-truth.mean()), gaps, errors, seconds)


_HEADINGS: Final = (
    "data",
    "tables",
    "seed",
    "true NLL",
    "i.i.d.",
    "initial",
    "DSPN",
    "of the way",
    "paper's DSPN",
    "s a fold",
)


def _cells(row: Row) -> list[str]:
    paper = "" if row.case.paper_gap is None else f"{row.case.paper_gap:.1f}"
    sharp = row.case.concentration is not None
    return [
        row.case.name,
        row.case.tables,
        str(row.case.seed),
        f"{row.true_nll:.1f}",
        *(f"{row.gaps[model]:.2f} ± {row.errors[model]:.2f}" for model in PLANS),
        f"{row.share:.0%}" if sharp else "",
        paper,
        f"{row.seconds:.1f}",
    ]


def markdown(table: list[Row]) -> str:
    """The table as Markdown."""
    return markdown_table(_HEADINGS, map(_cells, table))


def _show(table: list[Row], console: Console) -> None:
    title = "Gap to the true model, nats per sequence"
    show_table(title, _HEADINGS, map(_cells, table), console, num_words=2)


def main(
    out: Annotated[Path, typer.Option(help="Where results are kept.")] = Path("out/synthetic"),
    folds: Annotated[int, typer.Option(min=1, max=10, help="How many of the ten folds.")] = 10,
    quick: Annotated[bool, typer.Option(help="One seed of each, two folds.")] = False,
) -> None:
    """Gaps of learned models to the true model on data drawn from it."""
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    first = {(case.name, case.tables): case for case in reversed(CASES)}
    cases = tuple(case for case in CASES if not quick or case in first.values())
    num_folds = min(folds, 2) if quick else folds
    out.mkdir(parents=True, exist_ok=True)
    results = Results(out / "results.json")
    run(cases, num_folds, results, console)
    table = list(rows(cases, num_folds, results))
    write_atomically(str(out / "table.md"), markdown(table).encode())
    _show(table, console)
    console.print(f"{num_folds} of 10 folds. Written to {out}")


if __name__ == "__main__":
    typer.run(main)
