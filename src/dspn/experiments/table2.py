"""The paper's Table 2: models learned from recorded sequences, and the same data in other forms."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from rich.console import Console

from dspn.datasets import RealData
from dspn.errors import DataError
from dspn.experiments import paper
from dspn.experiments.cases import CASES, FOLD_SEED, FoldData, folds_for, prepared
from dspn.experiments.cells import Cell, Summary, run_cells, summaries
from dspn.experiments.contenders import CONTENDERS, Setting
from dspn.experiments.results import Results
from dspn.experiments.tables import View
from dspn.io import write_atomically

MODELS: Final = (
    "iid",
    "hmm-2",
    "hmm",
    "hmm-spn",
    "rnn",
    "lstm",
    "search-score",
    "reveal",
    "dspn-search",
    "dspn",
)

# A model that takes longer than this on the first fold is run on the fewest folds only.
_SHORT_SECONDS: Final = 300.0
_FEWEST_FOLDS: Final = 3
_ALL_FOLDS: Final = 10

# The paper has one HMM and says nothing of its states; with two it lands near what is printed.
_PRINTED: Final = {"hmm-2": "hmm"}


@final
@dataclass(frozen=True)
class Spending:
    """Where data and folds are, and what a fold may take: a share of the usual effort and time."""

    folds_directory: Path
    data_directory: Path | None = None
    num_jobs: int = 1
    share: float = 1.0


@lru_cache(maxsize=1)
def _read(name: str, directory: Path | None) -> RealData:
    return CASES[name].read(directory)


def keep_folds(name: str, data: RealData, directory: Path) -> None:
    """Writes which sequences each fold tests, or raises where others were written before."""
    folds = [
        {part: getattr(fold, part).tolist() for part in ("train", "validation", "test")}
        for fold in folds_for(data)
    ]
    content = {"seed": FOLD_SEED, "num_sequences": len(data.sequences), "folds": folds}
    path = directory / f"{name}.json"
    if path.exists():
        if json.loads(path.read_text(encoding="utf-8")) != content:
            raise DataError(
                f"the folds in {str(path)!r} must be those of the data, but are others; results "
                "beside them do not compare, so choose another directory."
            )
        return
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(str(path), json.dumps(content).encode())


def fold_data(name: str, number: int, spending: Spending) -> FoldData:
    """A fold of a data set, prepared; which sequences it has is kept."""
    data = _read(name, spending.data_directory)
    keep_folds(name, data, spending.folds_directory)
    return prepared(CASES[name], data, folds_for(data)[number])


def setting_for(name: str, spending: Spending) -> Setting:
    """What a model may spend on a fold of a data set."""
    case, share = CASES[name], spending.share
    return Setting(share * case.effort, share * case.time_limit, spending.num_jobs)


def run(
    names: Sequence[str],
    models: Sequence[str],
    num_folds: int | None,
    results: Results,
    console: Console,
    spending: Spending,
) -> None:
    """Learns and tests whatever is not known yet.

    Without a number of folds these are all ten, or three for a model that takes more than five
    minutes on the first.
    """

    def work(name: str, folds: range, own: Sequence[str]) -> None:
        cells = [Cell(name, fold, model) for fold in folds for model in own]
        run_cells(
            cells,
            lambda data, fold: fold_data(data, fold, spending),
            lambda data: setting_for(data, spending),
            results,
            console,
        )

    for name in names:
        work(name, range(_FEWEST_FOLDS if num_folds is None else num_folds), models)
        if num_folds is None:
            short = [model for model in models if _is_short(name, model, results)]
            work(name, range(_FEWEST_FOLDS, _ALL_FOLDS), short)


def _is_short(name: str, model: str, results: Results) -> bool:
    """Whether the first fold was learned, and in little time."""
    entry = results.find(Cell(name, 0, model).key)
    return entry is not None and entry.get("seconds", np.inf) <= _SHORT_SECONDS


def printed(name: str, model: str) -> paper.Figure | None:
    """What the paper has for the model on that data."""
    return paper.REAL.get(name, {}).get(_PRINTED.get(model, model))


def view(names: Sequence[str], models: Sequence[str], results: Results) -> View:
    """A row for each model; for each data set what is measured, and what the paper prints."""
    found = {(own.data, own.model): own for own in summaries(names, models, results)}
    best = {name: _best([found[name, model] for model in models]) for name in names}
    headings = ["model"]
    for name in names:
        headings += [CASES[name].title, "paper's"]
    rows = []
    for model in models:
        cells = [CONTENDERS[model].title]
        for name in names:
            own = found[name, model]
            shown = f"**{own}**" if best[name] == model else str(own)
            figure = printed(name, model)
            cells += [shown, "" if figure is None else str(figure)]
        rows.append(cells)
    return View(
        "Table 2: negative log-likelihood, nats per test sequence",
        headings,
        rows,
        notes=_notes(names, list(found.values())),
        records=[_record(own) for own in found.values()],
    )


def _best(row: Sequence[Summary]) -> str | None:
    known = [own for own in row if own.num_folds]
    return min(known, key=lambda own: own.mean).model if known else None


def _notes(names: Sequence[str], found: Sequence[Summary]) -> list[str]:
    prepared_as = "; ".join(f"{CASES[name].title}: {CASES[name].prepared}" for name in names)
    notes = [
        f"Mean over folds with its standard error; a number in parentheses is that of the folds, "
        f"where they are not ten. Preparations: {prepared_as}. The paper does not say its own, so "
        "its figures compare as far as the preparations agree."
    ]
    cut = [
        f"{CONTENDERS[own.model].title} on {CASES[own.data].title}" for own in found if own.was_cut
    ]
    if cut:
        notes.append(f"Ended by the time limit of the fold: {', '.join(cut)}.")
    for own in found:
        if own.reason:
            title = CASES[own.data].title
            notes.append(f"{CONTENDERS[own.model].title} on {title}: {own.reason}")
    return notes


def _record(own: Summary) -> dict[str, Any]:
    figure = printed(own.data, own.model)
    return {
        "data": own.data,
        "model": own.model,
        "folds": own.num_folds,
        "mean": own.mean if own.num_folds else None,
        "error": own.error if own.num_folds > 1 else None,
        "seconds": own.seconds if own.num_folds else None,
        "longest": own.longest if own.num_folds else None,
        "time_limit": own.was_cut,
        "reason": own.reason,
        "paper": None if figure is None else {"mean": figure.mean, "error": figure.error},
    }
