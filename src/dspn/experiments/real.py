"""Held-out likelihood on real data: `python -m dspn.experiments.real`.

Ten-fold cross validation on the data sets of the paper's Table 2. In every fold the preparation of
the data and the learner see the training and validation sequences only; the test sequences are
scored by the finished model. Results are kept fold by fold, and a run that was stopped goes on
where it was.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, final

import numpy as np
import typer
from rich.console import Console

from dspn import datasets
from dspn._arrays import Floats
from dspn.datasets import Preparation, RealData
from dspn.experiments.curves import Curve, curves_figure, curves_of
from dspn.experiments.folds import Fold, folds_of
from dspn.experiments.results import Results
from dspn.experiments.tables import markdown_table, show_table
from dspn.io import write_atomically
from dspn.learning.auto import AutoLearned, AutoOptions, learn_auto
from dspn.learning.auto.state import AutoState
from dspn.models import HMM, Model
from dspn.sequences import Sequences

_SEED: Final = 0
FOLD_SEED: Final = 0
_WIDTH: Final = 150  # of the table in a file or pipe
_STATES: Final = (2, 4, 8, 16, 32, 64, 128)


@final
@dataclass(frozen=True)
class Case:
    """A data set as it is prepared, the paper's figure for its DSPN, and the effort of a fold."""

    name: str
    read: Callable[..., RealData]
    preparation: Preparation
    preparation_name: str
    effort: float
    paper: float | None = None
    num_folds: int = 10


CASES: Final = {
    "vowels": Case(
        "JapaneseVowels",
        datasets.read_japanese_vowels,
        datasets.MEDIAN_BITS,
        "median bits",
        80,
        68.8,
    ),
    "ozone": Case("ozLevel", datasets.read_ozone, datasets.FILLED_BINS, "bins, filled", 1000, 33.0),
    "ozone-missing": Case("ozLevel", datasets.read_ozone, datasets.BINS, "bins, missing kept", 400),
    "pen": Case("PenDigits", datasets.read_pen_digits, datasets.SEVEN_BITS, "7 bits", 750, 63.5),
    "arabic": Case(
        "ArabicDigits",
        datasets.read_arabic_digits,
        datasets.MEDIAN_BITS,
        "median bits",
        2500,
        257.9,
        3,
    ),
    "vicon": Case(
        "Vicon", datasets.read_vicon, datasets.MEDIAN_BITS, "median bits", 500, 36385.0, 3
    ),
    "vowels-raw": Case("JapaneseVowels", datasets.read_japanese_vowels, datasets.RAW, "raw", 80),
    "arabic-raw": Case(
        "ArabicDigits", datasets.read_arabic_digits, datasets.RAW, "raw", 400, None, 3
    ),
}

Learned = tuple[Callable[[Sequences], Floats], dict[str, Any]]


def _dspn(train: Sequences, validation: Sequences, case: Case, num_jobs: int) -> Learned:
    """The automatic learner at the effort of the case, and how it went."""
    curve: list[list[float]] = []
    start = time.perf_counter()

    def on_state(state: AutoState) -> None:
        curve.append([time.perf_counter() - start, state.choice.score, state.pool.work])

    found = learn_auto(
        train,
        validation,
        seed=_SEED,
        options=AutoOptions(effort=case.effort),
        num_jobs=num_jobs,
        on_state=on_state,
    )
    return Model(found.mixture).log_likelihood, {"curve": curve, **_described(found)}


def _described(found: AutoLearned) -> dict[str, Any]:
    """What was chosen, and what each move has brought."""
    moves: dict[str, list[float]] = {}
    for item in found.tried:
        own = moves.setdefault(item.move.value, [0, 0, 0.0, 0.0])
        own[0] += 1
        own[1] += item.gain > 0
        own[2] += item.gain
        own[3] += item.candidate.work
    layouts = [
        {"weight": weight, "blocks": [list(block) for block in layout]}
        for layout, weight in zip(found.choice.layouts, found.choice.weights.tolist(), strict=True)
    ]
    members = [
        member.recipe.move.value
        for model in found.choice.models.values()
        for member in model.members
    ]
    return {
        "validation": found.score,
        "work": found.work,
        "moves": moves,
        "layouts": layouts,
        "members": members,
        "edges": sum(network.template.num_edges for network in found.mixture),
        "ending": str(found.ending),
    }


def _hmm(train: Sequences, validation: Sequences, case: Case, num_jobs: int) -> Learned:
    """Hidden Markov models of 2 to 128 states, the best on the validation set."""
    fits = {
        states: HMM(states, random_state=_SEED).fit(train, validation=validation)
        for states in _STATES
    }
    scores = {states: fit.validation_score_ or -np.inf for states, fit in fits.items()}
    best = max(scores, key=lambda states: scores[states])
    return fits[best].model_.log_likelihood, {
        "states": best,
        "validations": {str(states): score for states, score in scores.items()},
    }


MODELS: Final = {"DSPN": _dspn, "HMM": _hmm}


def tested(case: Case, data: RealData, fold: Fold, model: str, num_jobs: int = 1) -> dict[str, Any]:
    """Log-likelihoods of a fold's test sequences, and how the model was learned.

    What is learned is a function of training and validation sequences alone.
    """
    seen = np.concatenate([fold.train, fold.validation])
    preparation = case.preparation.fit(data.sequences[seen])
    start = time.perf_counter()
    train = preparation.apply(data.sequences[fold.train])
    validation = preparation.apply(data.sequences[fold.validation])
    score, described = MODELS[model](train, validation, case, num_jobs)
    seconds = time.perf_counter() - start
    test = preparation.apply(data.sequences[fold.test])
    return {"test": score(test).tolist(), "seconds": seconds, **described}


def run(
    names: Sequence[str],
    models: Sequence[str],
    num_folds: int | None,
    results: Results,
    directory: Path | None,
    console: Console,
    num_jobs: int = 1,
) -> None:
    """Learns and tests whatever is not known yet."""
    for name in names:
        case = CASES[name]
        count = case.num_folds if num_folds is None else num_folds
        missing = [
            (number, model)
            for number in range(count)
            for model in models
            if f"{name}/{number}/{model}" not in results.entries
        ]
        if not missing:
            continue
        data = case.read(directory)
        folds = folds_of(len(data.sequences), rng=np.random.default_rng(FOLD_SEED))
        for number, model in missing:
            entry = tested(case, data, folds[number], model, num_jobs)
            results.add(f"{name}/{number}/{model}", entry)
            console.print(
                f"{case.name} ({case.preparation_name}), fold {number + 1}, {model}: "
                f"{-np.mean(entry['test']):.2f} nats per sequence in {entry['seconds']:.0f} s"
            )


@final
@dataclass(frozen=True)
class Row:
    """Mean and standard error over folds of the negative log-likelihood of a test sequence."""

    case: Case
    model: str
    num_folds: int
    mean: float
    error: float
    seconds: float
    longest: float


def rows(names: Sequence[str], models: Sequence[str], results: Results) -> Iterator[Row]:
    """The table, from what is known."""
    for name in names:
        for model in models:
            own = [
                results.entries[key]
                for number in range(10)
                if (key := f"{name}/{number}/{model}") in results.entries
            ]
            if own:
                means = np.array([-np.mean(entry["test"]) for entry in own])
                seconds = [entry["seconds"] for entry in own]
                error = float(means.std(ddof=1) / np.sqrt(means.size)) if means.size > 1 else 0.0
                yield Row(
                    CASES[name],
                    model,
                    len(own),
                    float(means.mean()),
                    error,
                    float(np.mean(seconds)),
                    max(seconds),
                )


_HEADINGS: Final = (
    "data",
    "preparation",
    "model",
    "folds",
    "test NLL",
    "paper's DSPN",
    "s a fold",
    "longest",
)


def _cells(row: Row) -> list[str]:
    case = row.case
    return [
        case.name,
        case.preparation_name,
        row.model,
        str(row.num_folds),
        f"{row.mean:,.2f} ± {row.error:.2f}",
        "" if case.paper is None else f"{case.paper:,.1f}",
        f"{row.seconds:.0f}",
        f"{row.longest:.0f}",
    ]


def markdown(table: Sequence[Row]) -> str:
    """The table as Markdown."""
    return markdown_table(_HEADINGS, map(_cells, table))


def _show(table: Sequence[Row], console: Console) -> None:
    title = "Negative log-likelihood, nats per test sequence"
    show_table(title, _HEADINGS, map(_cells, table), console, num_words=3)


def _draw(names: Sequence[str], results: Results, path: Path) -> None:
    """Writes the picture of how the scores rose, where something is known."""
    panels: dict[str, Sequence[Curve]] = {}
    papers: dict[str, float | None] = {}
    for name in names:
        curves = curves_of(results.entries, name, "DSPN")
        if curves:
            title = f"{CASES[name].name}, {CASES[name].preparation_name}"
            panels[title], papers[title] = curves, CASES[name].paper
    if panels:
        curves_figure(panels, papers).savefig(path)


def main(
    data: Annotated[
        list[str] | None, typer.Option(help=f"Which data sets, of {', '.join(CASES)}; all.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help=f"Which models, of {', '.join(MODELS)}; DSPN.")
    ] = None,
    folds: Annotated[
        int | None, typer.Option(min=1, max=10, help="How many of the ten folds.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where results are kept.")] = Path("out/real"),
    directory: Annotated[
        Path | None, typer.Option("--data-dir", help="Where the data files are.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Models trained side by side.")] = 2,
    table_only: Annotated[bool, typer.Option(help="Show what is known, run nothing.")] = False,
) -> None:
    """Test likelihood of learned models on real data, fold by fold."""
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    names, models = data or list(CASES), model or ["DSPN"]
    for given, known in ((names, CASES), (models, MODELS)):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(known)}")
    out.mkdir(parents=True, exist_ok=True)
    results = Results(out / "results.json")
    if not table_only:
        run(names, models, folds, results, directory, console, jobs)
    table = list(rows(names, models, results))
    write_atomically(str(out / "table.md"), markdown(table).encode())
    _show(table, console)
    _draw(names, results, out / "curves.png")


if __name__ == "__main__":
    typer.run(main)
