"""Cells of the tables: a model learned and tested on a fold, kept, and summed up over folds."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, final

import numpy as np
from rich.console import Console
from rich.progress import Progress

from dspn._arguments import Floats
from dspn.data import Sequences
from dspn.data.sequences import joined
from dspn.engine.cpu.warm import warm
from dspn.errors import DspnError
from experiments.baselines import Ending
from experiments.cases import FoldData
from experiments.contenders import CONTENDERS, Contender, Setting
from experiments.results import Results
from experiments.timing import first_variable_alone, inference_seconds

SEED = 0


@final
@dataclass(frozen=True)
class Cell:
    """A model on a fold of a data set."""

    data: str
    fold: int
    model: str

    @property
    def key(self) -> str:
        """The name of its result."""
        return f"{self.data}/{self.fold}/{self.model}"


def tested(
    contender: Contender, data: FoldData, setting: Setting, *, timed: bool = False
) -> dict[str, Any]:
    """Log-likelihoods of a fold's test sequences, and how the model was learned.

    What is learned is a function of training and validation sequences alone. With `timed` inference
    is timed on all sequences of the fold.
    """
    limit = setting.time_limit if contender.limited else None
    fitted = contender.make(setting).fit(data.train, data.validation, seed=SEED, time_limit=limit)
    if fitted.ending == Ending.INTERRUPTED:
        raise KeyboardInterrupt  # what was found is not what the cell asks for
    entry: dict[str, Any] = {
        "test": fitted.log_likelihood(data.test).tolist(),
        "seconds": fitted.seconds,
        "iterations": fitted.iterations,
        "ending": str(fitted.ending),
        **getattr(fitted, "details", {}),
    }
    if timed:
        everything = joined([data.train, data.validation, data.test])
        entry["inference"] = _timed(fitted, first_variable_alone(everything))
    return entry


def _timed(fitted: Any, data: Sequences) -> dict[str, Any]:
    try:
        return inference_seconds(fitted, data)
    except DspnError as error:
        return {"reason": str(error)}


def run_cells(
    cells: Sequence[Cell],
    load: Callable[[str, int], FoldData],
    setting: Callable[[str], Setting],
    results: Results,
    console: Console,
) -> None:
    """Learns and tests whatever is not known yet; a cell that cannot be run keeps the reason."""
    missing = [cell for cell in cells if results.find(cell.key) is None]
    for name in dict.fromkeys(cell.model for cell in missing):
        if not CONTENDERS[name].is_available:
            console.print(f"{CONTENDERS[name].title}: left out, as PyTorch is not installed")
    left = [cell for cell in missing if CONTENDERS[cell.model].is_available]
    if left:
        _warm_once()  # or the first cell would seem to take as long as the compiler
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=len(left))
        for number, cell in enumerate(left, 1):
            contender = CONTENDERS[cell.model]
            progress.update(bar, description=_named(cell, contender), completed=number - 1)
            if results.find(cell.key) is not None:  # by another run meanwhile
                continue
            data = load(cell.data, cell.fold)
            entry = _run_cell(contender, data, setting(cell.data), timed=cell.fold == 0)
            results.add(cell.key, entry)
            said = f"{number} of {len(left)}: {_said(cell, contender, entry)}"
            console.print(said, highlight=False)


@cache
def _warm_once() -> None:
    warm()


def _run_cell(
    contender: Contender, data: FoldData, setting: Setting, *, timed: bool
) -> dict[str, Any]:
    before = os.times()
    try:
        entry = tested(contender, data, setting, timed=timed)
    except DspnError as error:
        entry = {"reason": str(error)}
    after = os.times()
    return {**entry, "cpu_seconds": sum(after[:4]) - sum(before[:4])}


def _named(cell: Cell, contender: Contender) -> str:
    return f"{cell.data}, fold {cell.fold + 1}, {contender.title}"


def _said(cell: Cell, contender: Contender, entry: dict[str, Any]) -> str:
    head = _named(cell, contender)
    if "reason" in entry:
        return f"{head}: {entry['reason']}"
    loss = -float(np.mean(entry["test"]))
    return f"{head}: {loss:,.2f} nats per sequence in {entry['seconds']:.0f} s"


@final
@dataclass(frozen=True)
class Summary:
    """Mean and standard error over folds of the negative log-likelihood of a test sequence.

    `losses` has that of each fold, `num_cut` says how many folds the time limit has ended, `device`
    where they were learned if not on the processor, and `reason` why a fold could not be run.
    """

    data: str
    model: str
    losses: dict[int, float] = field(default_factory=dict)
    seconds: float = np.nan
    longest: float = np.nan
    step_seconds: float = np.nan
    num_cut: int = 0
    device: str = ""
    reason: str = ""

    @property
    def num_folds(self) -> int:
        """How many folds are known."""
        return len(self.losses)

    @property
    def mean(self) -> float:
        """Over folds."""
        return float(np.mean(list(self.losses.values())))

    @property
    def error(self) -> float:
        """The standard error of the mean, 0 where there is one fold."""
        return standard_error(np.array(list(self.losses.values())))

    def __str__(self) -> str:
        if not self.num_folds:
            return "-"
        folds = "" if self.num_folds == 10 else f" ({self.num_folds})"
        places = 0 if abs(self.mean) >= 10_000 else 2
        error = f" ± {self.error:,.{places}f}" if self.num_folds > 1 else ""
        return f"{self.mean:,.{places}f}{error}{folds}"


def standard_error(values: Floats) -> float:
    """Of the mean of some values; 0 where there is one."""
    if values.size < 2:
        return 0.0
    return float(values.std(ddof=1) / np.sqrt(values.size))


def summaries(
    names: Sequence[str], models: Sequence[str], results: Results, num_folds: int = 10
) -> Iterator[Summary]:
    """What is known of each model on each data set."""
    for name in names:
        for model in models:
            found = ((fold, results.find(Cell(name, fold, model).key)) for fold in range(num_folds))
            yield _summary(name, model, {fold: own for fold, own in found if own is not None})


def _summary(name: str, model: str, entries: dict[int, dict[str, Any]]) -> Summary:
    own = {fold: entry for fold, entry in entries.items() if "test" in entry}
    reason = next((entry["reason"] for entry in entries.values() if "reason" in entry), "")
    if not own:
        return Summary(name, model, reason=reason)
    seconds = np.array([entry["seconds"] for entry in own.values()])
    steps = np.array([entry.get("iterations", np.nan) for entry in own.values()])
    devices = {entry.get("device", "cpu") for entry in own.values()} - {"cpu"}
    return Summary(
        name,
        model,
        {fold: -float(np.mean(entry["test"])) for fold, entry in own.items()},
        float(seconds.mean()),
        float(seconds.max()),
        float((seconds / steps).mean()),
        sum(entry["ending"] == str(Ending.TIME_LIMIT) for entry in own.values()),
        ", ".join(sorted(devices)),
        reason,
    )
