"""Gaussian hidden Markov models of hmmlearn on real data: `python -m benchmarks.gaussian`.

The folds are those of `python -m experiments table2`, the data raw. In every fold models of 1 to 64
states learn from the training sequences, the validation sequences choose among them, and the test
sequences are scored by the one that was chosen. Results are kept model by model, and a run that was
stopped goes on where it was. Those of the DSPN are shown beside them where they are known.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from hmmlearn.hmm import GaussianHMM
from rich.console import Console

from dspn.data import Sequences
from dspn.errors import DataError
from experiments import Fold
from experiments.cases import CASES, RealCase, folds_for
from experiments.contenders import CONTENDERS
from experiments.results import Results
from experiments.tables import markdown_table, show_table

DATA: Final = ("vowels-raw", "arabic-raw")
STATES: Final = (1, 2, 4, 8, 16, 32, 64)
_SEED: Final = 0
_MAX_STEPS: Final = 50
_GAIN_PER_SLICE: Final = 1e-4  # nats; a step that brings less is the last
_LEAST_VARIANCE: Final = 1e-3  # added to the variances of the start: a constant column has none
_PSEUDO_COUNT: Final = 1e-3  # without it a state that loses all its slices ends the fit with NaN
_SHARED: Final = Path(__file__).resolve().parents[2] / "shared" / "data"


def _mean_score(model: GaussianHMM, data: Sequences) -> float:
    """Log-likelihood in nats per sequence."""
    return float(model.score(data.values, data.lengths)) / len(data)


def _fitted(train: Sequences, num_states: int, implementation: str) -> GaussianHMM:
    model = GaussianHMM(
        num_states,
        covariance_type="diag",
        min_covar=_LEAST_VARIANCE,
        startprob_prior=1 + _PSEUDO_COUNT,
        transmat_prior=1 + _PSEUDO_COUNT,
        means_prior=train.values.mean(axis=0),
        means_weight=_PSEUDO_COUNT,
        n_iter=_MAX_STEPS,
        tol=_GAIN_PER_SLICE * train.total_slices,
        random_state=_SEED,
        implementation=implementation,
    )
    return model.fit(train.values, train.lengths)


def tested(data: Sequences, fold: Fold, num_states: int) -> dict[str, Any]:
    """Validation and test scores of a model that has learned from the fold's training sequences.

    It learns with scaling, which is several times as fast as logarithms, and with these where
    scaling fails. A model that hmmlearn refuses even then has no scores but the reason.
    """
    if np.isnan(data.values).any():
        raise DataError(
            "`data` must have no missing entries, which hmmlearn does not take; choose other data."
        )
    train, start, refused = data[fold.train], time.perf_counter(), ""
    for implementation in ("scaling", "log"):
        try:
            model = _fitted(train, num_states, implementation)
            seconds = time.perf_counter() - start
            model.implementation = "log"
            scores = [_mean_score(model, data[part]) for part in (fold.validation, fold.test)]
        except ValueError as reason:
            refused = str(reason)
            continue
        names = ("validation", "test", "steps", "seconds")
        return dict(zip(names, (*scores, model.monitor_.iter, seconds), strict=True))
    return {"refused": refused, "seconds": time.perf_counter() - start}


def run(
    names: Sequence[str],
    states: Sequence[int],
    num_folds: int | None,
    results: Results,
    directory: Path | None,
    console: Console,
    cases: Mapping[str, RealCase] = CASES,
) -> None:
    """Learns and tests whatever is not known yet; all ten folds unless a number is given."""
    for name in names:
        case = cases[name]
        count = 10 if num_folds is None else num_folds
        missing = [
            (number, size)
            for number in range(count)
            for size in states
            if results.find(f"{name}/{number}/{size}") is None
        ]
        if not missing:
            continue
        data = case.read(directory)
        folds = folds_for(data)
        for number, size in missing:
            entry = tested(data.sequences, folds[number], size)
            results.add(f"{name}/{number}/{size}", entry)
            said = entry.get("refused", f"validation {-entry.get('validation', np.nan):.2f}")
            console.print(
                f"{case.title}, fold {number + 1}, k = {size}: {said}, {entry['seconds']:.1f} s",
                markup=False,
            )


def chosen(name: str, results: Results) -> dict[int, dict[str, Any]]:
    """For each fold the entry of the number of states that is best on its validation set.

    `seconds` are those of all numbers of states.
    """
    own: dict[int, list[dict[str, Any]]] = {}
    for key, entry in results.under(name):
        _, fold, size = key.split("/")
        own.setdefault(int(fold), []).append({**entry, "states": int(size)})
    found = {}
    for fold in sorted(own):
        able = [entry for entry in own[fold] if "refused" not in entry]
        if able:
            best = max(able, key=lambda entry: (entry["validation"], -entry["states"]))
            found[fold] = {**best, "seconds": sum(entry["seconds"] for entry in own[fold])}
    return found


@final
@dataclass(frozen=True)
class Row:
    """Negative log-likelihoods of a test sequence, (folds,).

    `gains` are how much less they are than hmmlearn's in the folds that both know.
    """

    data: str
    model: str
    values: np.ndarray
    gains: np.ndarray
    seconds: float


def rows(names: Sequence[str], results: Results, ours: Results) -> Iterator[Row]:
    """The table, from what is known; `ours` are results of `python -m experiments table2`."""
    for name in names:
        best = chosen(name, results)
        theirs = {fold: -entry["test"] for fold, entry in best.items()}
        if theirs:
            sizes = sorted({entry["states"] for entry in best.values()})
            label = f"hmmlearn, {' or '.join(str(size) for size in sizes)} states"
            seconds = float(np.mean([entry["seconds"] for entry in best.values()]))
            yield Row(name, label, np.array(list(theirs.values())), np.empty(0), seconds)
        for model in ("dspn", "hmm"):
            yield from _ours(name, model, theirs, ours)


def _ours(name: str, model: str, theirs: Mapping[int, float], ours: Results) -> Iterator[Row]:
    known = {
        fold: entry
        for fold in range(10)
        if (entry := ours.find(f"{name}/{fold}/{model}")) is not None
    }
    if known:
        values = {fold: -float(np.mean(entry["test"])) for fold, entry in known.items()}
        gains = [theirs[fold] - value for fold, value in values.items() if fold in theirs]
        seconds = float(np.mean([entry["seconds"] for entry in known.values()]))
        label = f"dspn, {CONTENDERS[model].title}"
        yield Row(name, label, np.array(list(values.values())), np.array(gains), seconds)


_HEADINGS: Final = ("data", "model", "folds", "test NLL", "less than hmmlearn", "s a fold")


def _with_error(values: np.ndarray) -> str:
    """Mean and standard error over folds."""
    if not values.size:
        return ""
    if values.size == 1:
        return f"{values[0]:,.2f}"
    return f"{values.mean():,.2f} ± {values.std(ddof=1) / np.sqrt(values.size):.2f}"


def _cells(row: Row) -> list[str]:
    return [
        row.data,
        row.model,
        str(row.values.size),
        _with_error(row.values),
        _with_error(row.gains),
        f"{row.seconds:.0f}",
    ]


def markdown(table: Sequence[Row]) -> str:
    """The table as Markdown."""
    return markdown_table(_HEADINGS, map(_cells, table))


def _show(table: Sequence[Row], console: Console) -> None:
    title = "Negative log-likelihood, nats per test sequence"
    show_table(title, _HEADINGS, map(_cells, table), console, num_words=2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gaussian", description=__doc__)
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA, help="which data sets")
    parser.add_argument(
        "--folds", type=int, choices=range(1, 11), help="how many of the ten; those of the DSPN"
    )
    parser.add_argument("--states", nargs="+", type=int, default=STATES, help="numbers of states")
    parser.add_argument("--out", type=Path, default=Path("out/gaussian"), help="where results are")
    parser.add_argument(
        "--ours", type=Path, default=Path("out/experiments"), help="where results of the DSPN are"
    )
    parser.add_argument("--data-dir", type=Path, help="where the data files are")
    return parser.parse_args()


def main() -> None:
    """Learns, tests and prints the table."""
    given = _arguments()
    console = Console(width=None if Console().is_terminal else 120)
    directory = given.data_dir or (_SHARED if _SHARED.exists() else None)
    given.out.mkdir(parents=True, exist_ok=True)
    results = Results(given.out / "results")
    run(given.data, given.states, given.folds, results, directory, console)
    table = list(rows(given.data, results, Results(given.ours / "cells")))
    (given.out / "table.md").write_text(markdown(table), encoding="utf-8")
    _show(table, console)


if __name__ == "__main__":
    main()
