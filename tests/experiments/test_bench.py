"""The second bench, with small data in place of the usual ones."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from experiments import bench
from experiments.book import Book
from experiments.cells import Cell
from experiments.results import Results
from experiments.sources import SOURCES


def _ran(directory: Path, *names: str) -> str:
    console = Console(file=io.StringIO(), width=190)
    for view in Book(directory, console, data=names, quick=True).bench():
        view.show(console)
    said: str = console.file.getvalue()  # type: ignore[attr-defined]
    return said


def test_the_bench_runs_the_ladder_and_the_default_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(SOURCES["copy1"], num_train=30, num_validation=10, num_test=20, num_slices=8)
    monkeypatch.setitem(SOURCES, "copy1", small)
    bench._parts.cache_clear()
    said = _ran(tmp_path, "copy1")
    bench._parts.cache_clear()
    assert "HMM, 8 states" in said and "behind the HMM" in said
    assert "nats per sequence in" not in _ran(tmp_path, "copy1")
    records = json.loads((tmp_path / "quick-tables" / "bench.json").read_text())["records"]
    assert [record["name"] for record in records] == list(bench.QUICK_NAMES)
    (own,) = (record for record in records if record["best"])
    assert own["true"] < own["best"] < own["independent"]
    assert own["margin"] == pytest.approx(own["own"] - own["best"])
    assert own["train"] == [30, 240] and own["ladder_seconds"] > 0 < own["own_seconds"]


def test_a_row_weighs_slices_alike_and_takes_the_best_of_the_ladder(tmp_path: Path) -> None:
    results = Results(tmp_path)
    facts = {"slices": 10, "train": [4, 40], "true": [-1.0, -3.0]}
    results.add(Cell("bench-ar1", 0, "facts").key, facts)
    tests = {"iid": [-9.0, -9.0], "hmm-2": [-5.0, -5.0]}
    tests |= {"hmm-4": [-2.0, -4.0], "dspn": [-3.0, -4.0]}
    for model, test in tests.items():
        entry = {"test": test, "seconds": 1.0, "ending": "finished"}
        results.add(Cell("bench-ar1", 0, model).key, entry)
    row = bench.row_of("ar1", results)
    assert (row.true, row.independent, row.best, row.states) == (0.4, 1.8, 0.6, 4)
    assert row.own == 0.7 and row.margin == pytest.approx(0.1)
    assert row.error == pytest.approx(np.std([1.0, 0.0], ddof=1) * np.sqrt(2) / 10)
    assert (row.ladder_seconds, row.own_seconds) == (3.0, 1.0)


def test_data_that_are_not_there_are_left_out_with_the_reason(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=500)
    Book(tmp_path, console, tmp_path, data=("jsb",)).bench()
    assert "jsb: left out; the data set JSB chorales needs the files" in console.file.getvalue()  # type: ignore[attr-defined]
