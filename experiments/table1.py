"""The paper's Table 1: models learned from data that are drawn from known processes.

Data are drawn from HMM-samples, Water and BAT, 100 sequences of 100 slices, with the paper's random
tables and with sharper ones. Each sequence is tested once in ten folds, and a gap is the mean
difference to the log-likelihood of the true model.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, final

import numpy as np
from rich.console import Console

from dspn._arguments import Floats
from dspn.data import Sequences
from experiments import paper
from experiments.cases import FoldData, Spending
from experiments.cells import Cell, run_cells, summaries
from experiments.contenders import CONTENDERS, Setting
from experiments.datasets import DbnProcess, bat_process, hmm_process, water_process
from experiments.folds import Fold, folds_of, keep_folds
from experiments.paper import Figure
from experiments.results import Results
from experiments.tables import View

_SHARP: Final = 0.3
_TIME_LIMIT: Final = 300.0

MODELS: Final = ("iid", "learnspn", "dspn-search", "dspn")


@final
@dataclass(frozen=True)
class SyntheticCase:
    """A process with tables of a seed; without a concentration they are the paper's."""

    title: str
    make: Callable[..., DbnProcess]
    seed: int
    concentration: float | None = None

    @property
    def tables(self) -> str:
        """How the tables were drawn, in words."""
        return "uniform" if self.concentration is None else f"Dirichlet {self.concentration:g}"

    @property
    def key(self) -> str:
        """The case in one word, for files."""
        return f"{self.title}-{self.tables}-{self.seed}".replace(" ", "-").lower()

    def drawn(
        self, num_sequences: int = 100, num_slices: int = 100
    ) -> tuple[DbnProcess, Sequences]:
        """The process, and the data that everybody learns from."""
        rng = np.random.default_rng(self.seed)
        process = self.make(rng, concentration=self.concentration)
        return process, process.sample(num_sequences, num_slices, rng=rng)


# The sharp seeds are, for each network, the first three from 0 on at which independent entries are
# more than 15 nats from the truth; most tables give less to find.
CASES: Final = (
    *(SyntheticCase("HMM-samples", hmm_process, seed) for seed in range(3)),
    *(SyntheticCase("Water", water_process, seed) for seed in range(3)),
    *(SyntheticCase("BAT", bat_process, seed) for seed in range(3)),
    *(SyntheticCase("Water", water_process, seed, _SHARP) for seed in (10, 11, 13)),
    *(SyntheticCase("BAT", bat_process, seed, _SHARP) for seed in (2, 5, 7)),
)


def quick_cases() -> tuple[SyntheticCase, ...]:
    """One of each kind."""
    first = {(case.title, case.tables): case for case in reversed(CASES)}
    return tuple(case for case in CASES if case in first.values())


@lru_cache(maxsize=1)
def _drawn(
    case: SyntheticCase, num_sequences: int, num_slices: int
) -> tuple[DbnProcess, Sequences, tuple[Fold, ...]]:
    process, data = case.drawn(num_sequences, num_slices)
    return process, data, folds_of(len(data), rng=np.random.default_rng(case.seed))


def run(
    cases: Sequence[SyntheticCase],
    models: Sequence[str],
    num_folds: int,
    results: Results,
    console: Console,
    spending: Spending,
) -> None:
    """Learns and tests whatever is not known yet."""
    known = {case.key: case for case in cases}
    size = (spending.sizes.num_sequences, spending.sizes.num_slices)

    def load(name: str, number: int) -> FoldData:
        _, data, folds = _drawn(known[name], *size)
        keep_folds(folds, known[name].seed, spending.folds_directory / f"{name}.json")
        fold = folds[number]
        return FoldData(data[fold.train], data[fold.validation], data[fold.test])

    setting = Setting(
        time_limit=spending.share * _TIME_LIMIT,
        num_jobs=spending.num_jobs,
        device=spending.device,
    )
    for case in cases:
        for number in range(num_folds):
            key = Cell(case.key, number, "true").key
            if results.find(key) is None:
                process, data, folds = _drawn(case, *size)
                truth = process.log_likelihood(data[folds[number].test])
                results.add(key, {"test": truth.tolist()})
        cells = [Cell(case.key, fold, model) for fold in range(num_folds) for model in models]
        run_cells(cells, load, lambda _: setting, results, console)


@final
@dataclass(frozen=True)
class Row:
    """Means over the test sequences of all folds: the true model, and every model's gap to it.

    Without a fold that all models have there is nothing but the case.
    """

    case: SyntheticCase
    num_folds: int
    true: Figure | None = None
    gaps: dict[str, Figure] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """How much of the way from independent entries to the truth the DSPN goes."""
        return 1.0 - self.gaps["dspn"].mean / self.gaps["iid"].mean


def _figure(values: Floats) -> Figure:
    return Figure(float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size)))


def _entries(
    case: SyntheticCase, fold: int, models: Sequence[str], results: Results
) -> dict[str, dict[str, Any]]:
    return {model: results.find(Cell(case.key, fold, model).key) or {} for model in models}


def rows(
    cases: Sequence[SyntheticCase], models: Sequence[str], results: Results, num_folds: int = 10
) -> Iterator[Row]:
    """The table, from the folds that are known for every model."""
    needed = ("true", *models)
    for case in cases:
        entries = [_entries(case, fold, needed, results) for fold in range(num_folds)]
        found = [own for own in entries if all("test" in entry for entry in own.values())]
        if not found:
            yield Row(case, 0)
            continue
        values = {model: np.concatenate([own[model]["test"] for own in found]) for model in needed}
        seconds = {
            model: float(np.mean([own[model]["seconds"] for own in found])) for model in models
        }
        gaps = {model: _figure(values["true"] - values[model]) for model in models}
        yield Row(case, len(found), _figure(-values["true"]), gaps, seconds)


def _paper_gap(case: SyntheticCase, model: str) -> float | None:
    figures = paper.SYNTHETIC[case.title]
    if case.concentration is not None or model not in figures:
        return None
    return figures[model].mean - figures["true"].mean


def view(
    cases: Sequence[SyntheticCase], models: Sequence[str], results: Results, num_folds: int = 10
) -> View:
    """Gaps to the true model, with the paper's where it has one."""
    table = list(rows(cases, models, results, num_folds))
    headings = ["data", "tables", "seed", "folds", "true NLL"]
    for model in models:
        headings.append(CONTENDERS[model].title)
        if model in ("learnspn", "dspn"):
            headings.append("paper's")
    headings += ["of the way", "s a fold"]
    return View(
        "Table 1: gap to the true model, nats per test sequence",
        headings,
        [_cells(row, models) for row in table],
        num_words=2,
        notes=[*_notes(), *_reasons(cases, models, results, num_folds)],
        records=[_record(row) for row in table if row.true is not None],
    )


def _cells(row: Row, models: Sequence[str]) -> list[str]:
    case = row.case
    cells = [case.title, case.tables, str(case.seed), str(row.num_folds), str(row.true or "-")]
    for model in models:
        gap = row.gaps.get(model)
        cells.append("-" if gap is None else f"{gap.mean:.2f} ± {gap.error:.2f}")
        if model in ("learnspn", "dspn"):
            printed = _paper_gap(case, model)
            cells.append("" if printed is None else f"{printed:.1f}")
    sharp = case.concentration is not None and {"iid", "dspn"} <= row.gaps.keys()
    cells.append(f"{row.share:.0%}" if sharp else "")
    cells.append(f"{row.seconds['dspn']:.1f}" if "dspn" in row.seconds else "")
    return cells


def _notes() -> list[str]:
    return [
        "A gap is the log-likelihood of the true model minus that of the learned model, as a mean "
        "over test sequences with its standard error. The paper's gaps are differences of the "
        "means it prints.",
        "The paper does not give its tables of Water and BAT; each seed draws new ones. With "
        "uniform tables a model of independent entries is close to the truth already.",
        "'of the way' is the share of the gap between independent entries and the true model that "
        "the DSPN closes; times are those of the DSPN.",
    ]


def _reasons(
    cases: Sequence[SyntheticCase], models: Sequence[str], results: Results, num_folds: int
) -> list[str]:
    titles = {case.key: f"{case.title}, {case.tables}, seed {case.seed}" for case in cases}
    found = summaries(list(titles), models, results, num_folds)
    return [
        f"{CONTENDERS[own.model].title} on {titles[own.data]}: {own.reason}"
        for own in found
        if own.reason
    ]


def _record(row: Row) -> dict[str, object]:
    assert row.true is not None
    return {
        "data": row.case.title,
        "tables": row.case.tables,
        "seed": row.case.seed,
        "folds": row.num_folds,
        "true": {"mean": row.true.mean, "error": row.true.error},
        "gaps": {
            model: {
                "mean": gap.mean,
                "error": gap.error,
                "paper": _paper_gap(row.case, model),
                "seconds": row.seconds[model],
            }
            for model, gap in row.gaps.items()
        },
    }
