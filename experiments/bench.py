"""The second bench: the default learner beside hidden Markov models on many kinds of data.

Sources with known truth and public data; independent entries and a ladder of hidden Markov models
beside them. It is run once per release.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from rich.console import Console

from dspn._arguments import Floats
from dspn.errors import DataError
from experiments.cases import FoldData, Spending
from experiments.cells import Cell, run_cells
from experiments.contenders import LADDER, Setting
from experiments.datasets import PUBLIC_SETS
from experiments.results import Results
from experiments.sources import SOURCES, draw
from experiments.tables import View

NAMES: Final = (*SOURCES, *PUBLIC_SETS)
QUICK_NAMES: Final = (*SOURCES, "digits")
"""Small data, all of it; a quick bench has a shorter ladder besides."""

_QUICK_STATES: Final = 64
_FIRST: Final = "iid"
_OWN: Final = "dspn"
_FACTS: Final = "facts"
# The ladder ends where so many sizes in a row are no better on the validation set.
_PATIENCE: Final = 2


@lru_cache(maxsize=1)
def _parts(name: str, directory: Path | None) -> tuple[FoldData, Floats | None]:
    """The data, and the true log-likelihood of the test sequences where it is known."""
    if name in SOURCES:
        drawn = draw(name)
        data = FoldData(drawn.train, drawn.validation, drawn.test)
        return data, drawn.process.log_likelihood(drawn.test)
    return FoldData(*PUBLIC_SETS[name].read(directory)), None


def _cell(name: str, model: str) -> Cell:
    return Cell(f"bench-{name}", 0, model)


def run(
    names: Sequence[str], results: Results, console: Console, spending: Spending, *, quick: bool
) -> None:
    """Learns and tests whatever is not known yet."""
    setting = Setting(None, None, spending.num_jobs, spending.device)
    for name in names:
        try:
            data, truth = _parts(name, spending.data_directory)
        except DataError as error:
            console.print(f"{name}: left out; {error}", highlight=False)
            continue
        if results.find(_cell(name, _FACTS).key) is None:
            facts: dict[str, Any] = {"slices": data.test.total_slices}
            facts["train"] = [len(data.train), data.train.total_slices]
            facts["true"] = None if truth is None else truth.tolist()
            results.add(_cell(name, _FACTS).key, facts)

        def work(model: str, data: FoldData = data, name: str = name) -> dict[str, Any]:
            cell = _cell(name, model)
            run_cells([cell], lambda *_: data, lambda _: setting, results, console)
            return results.find(cell.key) or {}

        work(_FIRST)
        _climb([size for size in LADDER if size <= _QUICK_STATES or not quick], work)
        work(_OWN)


def _climb(sizes: Sequence[int], work: Any) -> None:
    """HMMs of more and more states, while that pays on the validation set."""
    best, behind = -np.inf, 0
    for size in sizes:
        score = float(work(f"hmm-{size}").get("validation", -np.inf))
        behind = 0 if score > best else behind + 1
        best = max(best, score)
        if behind == _PATIENCE:
            return


@final
@dataclass(frozen=True)
class Row:
    """What is known of some data; losses are in nats per test slice.

    `margin` is the loss of the default learner less that of the best HMM, which is the best on the
    *test* sequences; `error` is its standard error over sequences.
    """

    name: str
    title: str
    train: tuple[int, int] = (0, 0)
    true: float | None = None
    independent: float | None = None
    best: float | None = None
    states: int = 0
    own: float | None = None
    margin: float | None = None
    error: float | None = None
    ladder_seconds: float = 0.0
    own_seconds: float = 0.0


def row_of(name: str, results: Results) -> Row:
    """The row of some data, from whatever is known."""
    title = (SOURCES if name in SOURCES else PUBLIC_SETS)[name].title
    facts = results.find(_cell(name, _FACTS).key)
    if facts is None:
        return Row(name, title)
    slices = facts["slices"]
    entries = {size: results.find(_cell(name, f"hmm-{size}").key) or {} for size in LADDER}
    ladder = {size: entry for size, entry in entries.items() if "test" in entry}
    first = results.find(_cell(name, _FIRST).key) or {}
    row = Row(name, title, tuple(facts["train"]))
    if facts["true"] is not None:
        row = replace(row, true=-float(np.sum(facts["true"])) / slices)
    if "test" in first:
        row = replace(row, independent=-float(np.sum(first["test"])) / slices)
    if ladder:
        states = max(ladder, key=lambda size: float(np.sum(ladder[size]["test"])))
        seconds = sum(float(own["seconds"]) for own in [first, *ladder.values()] if own)
        best = -float(np.sum(ladder[states]["test"])) / slices
        row = replace(row, best=best, states=states, ladder_seconds=seconds)
    own = results.find(_cell(name, _OWN).key) or {}
    if "test" in own:
        loss = -float(np.sum(own["test"])) / slices
        row = replace(row, own=loss, own_seconds=float(own["seconds"]))
        if ladder:
            behind = np.array(ladder[row.states]["test"]) - np.array(own["test"])
            error = float(behind.std(ddof=1) * np.sqrt(behind.size) / slices)
            row = replace(row, margin=float(behind.sum()) / slices, error=error)
    return row


_HEADINGS: Final = (
    *("data", "train", "true", "independent", "best HMM", "states", "DSPN"),
    *("gap to truth", "behind the HMM", "ladder s", "DSPN s"),
)


def view(names: Sequence[str], results: Results, *, quick: bool = False) -> View:
    """A row for each source and data set."""
    rows = [row_of(name, results) for name in names]
    most = _QUICK_STATES if quick else LADDER[-1]
    return View(
        "The second bench: negative log-likelihood, nats per test slice",
        _HEADINGS,
        [_cells(row) for row in rows],
        notes=[
            "The DSPN is learned with default options. The best HMM is the one of the ladder, "
            f"{LADDER[0]}, ..., {most} states, that is best on the test sequences; the "
            f"ladder ends where {_PATIENCE} sizes in a row were no better on the validation set, "
            "and its time is that of all of its models and of independent entries.",
            "'behind the HMM' is the loss of the DSPN less that of the best HMM with its standard "
            "error over sequences; below zero the DSPN is ahead. 'train' is sequences x slices.",
        ],
        records=[vars(row) for row in rows],
    )


def _cells(row: Row) -> list[str]:
    def shown(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    gap = None if row.own is None or row.true is None else row.own - row.true
    margin = "-" if row.margin is None else f"{row.margin:+.3f} ± {row.error:.3f}"
    count, slices = row.train
    size = f"{count} x {slices / count:.0f}" if count else "-"
    figures = [shown(value) for value in (row.true, row.independent, row.best)]
    figures += [str(row.states or "-"), shown(row.own), shown(gap)]
    times = [f"{row.ladder_seconds:.1f}", f"{row.own_seconds:.1f}"]
    return [row.title, size, *figures, margin, *times]
