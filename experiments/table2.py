"""The paper's Table 2: models learned from recorded sequences, and the same data in other forms."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from rich.console import Console

from experiments import paper
from experiments.cases import (
    CASES,
    FOLD_SEED,
    FoldData,
    RealCase,
    Spending,
    folds_for,
    prepared,
)
from experiments.cells import Cell, Summary, run_cells, standard_error, summaries
from experiments.contenders import CONTENDERS, Setting
from experiments.datasets import RealData
from experiments.folds import keep_folds
from experiments.results import Results
from experiments.tables import View

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
    "distilled",
)

_OWN: Final = "dspn"

# The paper has one HMM and says nothing of its states; with two it lands near what is printed.
_PRINTED: Final = {"hmm-2": "hmm"}


@lru_cache(maxsize=1)
def _read(case: RealCase, directory: Path | None) -> RealData:
    return case.read(directory)


def fold_data(name: str, number: int, spending: Spending) -> FoldData:
    """A fold of a data set, prepared; which sequences it has is kept."""
    case = spending.sizes.cases[name]
    data = _read(case, spending.data_directory)
    folds = folds_for(data)
    keep_folds(folds, FOLD_SEED, spending.folds_directory / f"{name}.json")
    return prepared(case, data, folds[number])


def setting_for(name: str, spending: Spending) -> Setting:
    """What a model may spend on a fold of a data set."""
    case, share = spending.sizes.cases[name], spending.share
    return Setting(share * case.effort, share * case.time_limit, spending.num_jobs, spending.device)


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
    sizes = spending.sizes

    def seconds(name: str, model: str) -> float:
        """How long the first fold took to learn; infinite where it was not learned."""
        entry = results.find(Cell(name, 0, model).key) or {}
        return float(entry.get("seconds", np.inf))

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
        work(name, range(sizes.fewest_folds if num_folds is None else num_folds), models)
        if num_folds is None:
            short = [model for model in models if seconds(name, model) <= sizes.short_seconds]
            work(name, range(sizes.fewest_folds, sizes.all_folds), short)


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
    """The model with the least loss on the folds that all models have which have any."""
    known = [own for own in row if own.num_folds]
    if not known:
        return None
    common = set.intersection(*(set(own.losses) for own in known))

    def loss(own: Summary) -> float:
        return sum(own.losses[fold] for fold in common) if common else own.mean

    return min(known, key=loss).model


def margins_view(names: Sequence[str], models: Sequence[str], results: Results) -> View:
    """The DSPN against every other model, by the folds that both have."""
    found = {(own.data, own.model): own for own in summaries(names, [*models, _OWN], results)}
    others = [model for model in models if model != _OWN]
    rows, records = [], []
    for model in others:
        cells = [CONTENDERS[model].title]
        for name in names:
            margin = _margin(found[name, _OWN], found[name, model])
            cells.append("-" if margin is None else str(margin))
            records.append(
                {"data": name, "model": model, **({} if margin is None else vars(margin))}
            )
        rows.append(cells)
    return View(
        "Table 2: loss of the others less that of the DSPN, nats per test sequence",
        ["model", *(CASES[name].title for name in names)],
        rows,
        notes=(
            "Mean over the folds that both have, with its standard error; below zero the DSPN "
            "is behind.",
        ),
        records=records,
    )


@final
@dataclass(frozen=True)
class Margin:
    """By how much a model is behind, over some folds."""

    mean: float
    error: float
    folds: int

    def __str__(self) -> str:
        places = 0 if abs(self.mean) >= 10_000 else 2
        error = f" ± {self.error:,.{places}f}" if self.folds > 1 else ""
        shown = f"{self.mean:,.{places}f}{error}"
        return shown if self.folds == 10 else f"{shown} ({self.folds})"


def _margin(own: Summary, other: Summary) -> Margin | None:
    common = sorted(own.losses.keys() & other.losses.keys())
    if not common:
        return None
    gaps = np.array([other.losses[fold] - own.losses[fold] for fold in common])
    return Margin(float(gaps.mean()), standard_error(gaps), len(common))


def _notes(names: Sequence[str], found: Sequence[Summary]) -> list[str]:
    prepared_as = "; ".join(f"{CASES[name].title}: {CASES[name].prepared}" for name in names)
    notes = [
        f"Mean over folds with its standard error; a number in parentheses is that of the folds, "
        f"where they are not ten. Preparations: {prepared_as}. The paper does not say its own, so "
        "its figures compare as far as the preparations agree."
    ]
    limits = ", ".join(f"{CASES[name].title} {CASES[name].time_limit:g}" for name in names)
    notes.append(
        f"Seconds that a fold may take: {limits}. Nets on a graphics processor had other limits, "
        "and the DSPN is bound by its effort instead."
    )
    cut = [
        f"{CONTENDERS[own.model].title} on {CASES[own.data].title} ({own.num_cut})"
        for own in found
        if own.num_cut
    ]
    if cut:
        notes.append(f"Folds that were ended by the time limit: {', '.join(cut)}.")
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
        "folds_cut": own.num_cut,
        "device": own.device or "cpu",
        "reason": own.reason,
        "paper": None if figure is None else {"mean": figure.mean, "error": figure.error},
    }
