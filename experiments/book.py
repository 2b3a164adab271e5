"""All tables in one directory: run what is missing, write tables and pictures, make the report."""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from matplotlib.figure import Figure
from rich.console import Console

import dspn
from dspn.errors import DataError
from dspn.io import write_atomically
from experiments import bench, classification, table1, table2, table3
from experiments.cases import CASES, FURTHER_CASES, TABLE_CASES, Sizes, Spending
from experiments.contenders import CONTENDERS
from experiments.curves import Curve, curves_figure, curves_of
from experiments.pictures import gaps_figure, losses_figure, times_figure
from experiments.results import Results
from experiments.tables import View, write_view

QUICK_DATA: Final = ("vowels",)
QUICK_MODELS: Final = ("iid", "learnspn", "hmm-2", "hmm", "reveal", "dspn")
_QUICK_SCALE: Final = 0.25
_QUICK_FOLDS: Final = 2


@final
@dataclass(frozen=True)
class Book:
    """Where results are, what is asked for, and how much may be spent.

    None stands for everything: all data sets, all models, the usual number of folds. A quick book
    has fewer of each and a quarter of effort and time limits, and keeps its results apart. What is
    asked for is run and shown; files have all that is known.
    """

    directory: Path
    console: Console
    data_directory: Path | None = None
    data: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    num_folds: int | None = None
    num_jobs: int = 1
    quick: bool = False
    run: bool = True
    device: str = "cpu"
    sizes: Sizes = field(default_factory=Sizes)

    def __post_init__(self) -> None:
        """Refuse names that are not known."""
        for argument, known in (("models", CONTENDERS), ("data", self._all_data)):
            for name in getattr(self, argument) or ():
                if name not in known:
                    raise DataError(
                        f"`{argument}` must be among {', '.join(known)}, but {name!r} is not."
                    )

    @property
    def _all_data(self) -> list[str]:
        return [*CASES, *classification.CASES, *(c.key for c in table1.CASES), *bench.NAMES]

    @property
    def results(self) -> Results:
        """What is known."""
        return Results(self.directory / ("quick" if self.quick else "cells"))

    @property
    def _spending(self) -> Spending:
        return Spending(
            self.directory / "folds",
            self.data_directory,
            self.num_jobs,
            _QUICK_SCALE if self.quick else 1.0,
            self.device,
            self.sizes,
        )

    def _usual_models(self, usual: Sequence[str]) -> list[str]:
        return [model for model in usual if not self.quick or model in QUICK_MODELS]

    def _models(self, usual: Sequence[str]) -> list[str]:
        return self._usual_models(usual) if self.models is None else list(self.models)

    @property
    def _usual_data(self) -> list[str]:
        return list(QUICK_DATA if self.quick else TABLE_CASES)

    def _data(self) -> list[str]:
        if self.data is None:
            return self._usual_data
        return [name for name in self.data if name in CASES]

    def table1(self) -> list[View]:
        """Runs what is missing of Table 1 and writes it."""
        usual = table1.quick_cases() if self.quick else table1.CASES
        cases = usual
        if self.data is not None:
            cases = tuple(case for case in table1.CASES if case.key in self.data)
        models = self._models(table1.MODELS)
        folds = self.num_folds or (_QUICK_FOLDS if self.quick else 10)
        if self.run:
            table1.run(cases, models, folds, self.results, self.console, self._spending)
        whole = table1.view(usual, self._usual_models(table1.MODELS), self.results)
        self._write("table1", whole, gaps_figure)
        return [table1.view(cases, models, self.results)] if cases else []

    def table2(self) -> list[View]:
        """Runs what is missing of Table 2 and writes it."""
        names, models = self._data(), self._models(table2.MODELS)
        folds = self.num_folds or (_QUICK_FOLDS if self.quick else None)
        if self.run:
            table2.run(names, models, folds, self.results, self.console, self._spending)
        every = self._usual_models(table2.MODELS)
        self._write("table2", table2.view(self._usual_data, every, self.results), losses_figure)
        margins = table2.margins_view(self._usual_data, every, self.results)
        self._write("table2-margins", margins)
        if not self.quick:
            further = table2.view(list(FURTHER_CASES), every, self.results)
            self._write("further", further, losses_figure)
        self._draw_curves(self._usual_data)
        views = [table2.view(names, models, self.results)]
        return [*views, table2.margins_view(names, models, self.results)] if names else []

    def table3(self) -> list[View]:
        """Runs what is missing of Table 3 and writes it."""
        names, models = self._data(), self._models(table3.MODELS)
        if self.run:
            table3.run(names, models, self.results, self.console, self._spending)
        every = self._table3(self._usual_data, self._usual_models(table3.MODELS))
        for name, view in every.items():
            self._write(name, view, times_figure if name == "table3-inference" else None)
        return list(self._table3(names, models).values()) if names else []

    def _table3(self, names: Sequence[str], models: Sequence[str]) -> dict[str, View]:
        results = self.results
        return {
            "table3-learning": table3.learning_view(names, models, results),
            "table3-inference": table3.inference_view(names, models, results),
            "table3-ratio": table3.ratio_view(names, models, results),
            "table3-scaling": table3.scaling_view(results),
        }

    def classes(self) -> list[View]:
        """Runs what is missing of the accuracies on official splits and writes them."""
        usual = [n for n in classification.CASES if not self.quick or n in QUICK_DATA]
        names = usual
        if self.data is not None:
            names = [name for name in self.data if name in classification.CASES]
        if self.run:
            classification.run(names, self.results, self.data_directory, self.console)
        self._write("classes", classification.view(usual, self.results))
        return [classification.view(names, self.results)] if names else []

    def bench(self) -> list[View]:
        """Runs what is missing of the second bench and writes it."""
        usual = bench.QUICK_NAMES if self.quick else bench.NAMES
        names = usual if self.data is None else [n for n in bench.NAMES if n in self.data]
        if self.run:
            bench.run(names, self.results, self.console, self._spending, quick=self.quick)
        self._write("bench", bench.view(usual, self.results, quick=self.quick))
        return [bench.view(names, self.results, quick=self.quick)] if names else []

    def all(self) -> Path:
        """Runs everything that is missing and writes one report of it."""
        views = [*self.table1(), *self.table2(), *self.table3()]
        pictures = [name for name in _PICTURES if (self.tables_directory / name).exists()]
        lines = [
            "# The paper's experiments",
            "",
            f"dspn {dspn.__version__}, Python {platform.python_version()}, {platform.machine()}.",
            "",
        ]
        lines += [part for view in views for part in (view.markdown, "")]
        lines += [f"![{name}]({name})\n" for name in pictures]
        path = self.tables_directory / "report.md"
        write_atomically(str(path), "\n".join(lines).encode())
        return path

    @property
    def tables_directory(self) -> Path:
        """Where tables and pictures are written."""
        return self.directory / "quick-tables" if self.quick else self.directory / "tables"

    def _write(
        self, name: str, view: View, picture: Callable[[View], Figure] | None = None
    ) -> None:
        """Writes a table with its picture; one of nothing, which may be there, goes."""
        has_rows = any(_is_known(record) for record in view.records)
        drawn = picture(view) if picture is not None and has_rows else None
        write_view(view, drawn, self.tables_directory, name)
        if drawn is None:
            (self.tables_directory / f"{name}.png").unlink(missing_ok=True)

    def _draw_curves(self, names: Sequence[str]) -> None:
        panels: dict[str, Sequence[Curve]] = {}
        papers: dict[str, float | None] = {}
        for name in names:
            curves = curves_of(self.results, name, "dspn")
            if curves:
                title = f"{CASES[name].title}, {CASES[name].prepared}"
                figure = table2.printed(name, "dspn")
                panels[title] = curves
                papers[title] = None if figure is None else figure.mean
        if panels:
            curves_figure(panels, papers).savefig(self.tables_directory / "curves.png")


_PICTURES: Final = ("table1.png", "table2.png", "curves.png", "table3-inference.png")


def _is_known(record: dict[str, object]) -> bool:
    """Whether a record has something to draw."""
    inference = record.get("inference")
    timed = isinstance(inference, dict) and "seconds" in inference
    return bool(record.get("folds") or timed)
