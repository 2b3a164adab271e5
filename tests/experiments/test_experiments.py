"""The tables of the paper, with small data in place of the real."""

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from dspn import Model, Schema, Variable
from dspn.cli.app import run as library
from dspn.data import Sequences
from dspn.errors import DataError
from experiments import cases, cells, contenders, table1, table2, table3
from experiments.__main__ import Table, run, show
from experiments.baselines import Ending, HmmBaseline, HmmOptions
from experiments.book import Book
from experiments.cells import Cell, summaries
from experiments.contenders import CONTENDERS, Contender, Setting
from experiments.curves import curves_figure, plot_curve
from experiments.datasets import MEDIAN_BITS, RAW, RealData, hmm_process
from experiments.folds import keep_folds
from experiments.results import Results
from experiments.table1 import SyntheticCase
from experiments.timing import first_variable_alone, inference_seconds

BITS = Schema(tuple(Variable.binary(f"x{i}") for i in range(2)))
PLANTED = Model.from_hmm(
    [0.5, 0.5],
    [[0.9, 0.1], [0.2, 0.8]],
    {f"x{i}": [[0.9, 0.1], [0.2, 0.8]] for i in range(2)},
    schema=BITS,
)
FAST = ("iid", "hmm-2", "reveal", "dspn")


def small(directory: Path | None = None) -> RealData:
    drawn = PLANTED.sample(30, 6, rng=np.random.default_rng(0))
    every = np.arange(30)
    return RealData("small", drawn, every % 2, every[:20], every[20:])


SMALL = cases.Sizes(
    {"vowels": cases.RealCase("Small", small, RAW, "raw", 0.01, 30.0)},
    fewest_folds=1,
    all_folds=2,
    num_sequences=40,
    num_slices=30,
    interfaces=(2, 4),
)


def ran(table: str, directory: Path, sizes: cases.Sizes = SMALL, **asked: Any) -> str:
    """What a table of small data says."""
    console = Console(file=io.StringIO(), width=190)
    book = Book(directory, console, **({"data": ("vowels",)} | asked), sizes=sizes)
    show(Table(table), book)
    said: str = console.file.getvalue()  # type: ignore[attr-defined]
    return said


def test_the_tables_are_a_command_of_the_repository_and_not_of_the_library(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments", "table1", "--table-only", "--out", tmp_path]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "tables" / "table1.md").is_file()
    assert library(["experiment", "table1", "--help"]) == 2


def test_a_run_writes_tables_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = ran("table2", tmp_path, models=FAST)
    assert first.count("nats per sequence in") == 2 * len(FAST)
    assert "68.8 ± 0.3" in first and "94.3 ± 0.3" in first  # the paper's, beside ours
    tables = tmp_path / "tables"
    shown = (tables / "table2.md").read_text()
    assert "(2)" in shown and "**" in shown  # folds, where not ten; the best
    records = json.loads((tables / "table2.json").read_text())["records"]
    known = [record for record in records if record["folds"]]
    assert [record["model"] for record in known] == list(FAST)
    assert all(record["folds"] == 2 and record["seconds"] > 0 for record in known)
    for name in ("table2.png", "curves.png"):
        assert (tables / name).stat().st_size > 1000
    learned = {path: path.read_bytes() for path in (tmp_path / "cells").rglob("*.json")}
    again = ran("table2", tmp_path, models=FAST)
    assert (tables / "table2.md").read_text() == shown
    assert "nats per sequence in" not in again  # what is known is not learned again
    assert {path: path.read_bytes() for path in (tmp_path / "cells").rglob("*.json")} == learned


def test_what_is_asked_for_is_shown_and_all_that_is_known_is_written(tmp_path: Path) -> None:
    ran("table2", tmp_path, models=("iid",), num_folds=2)
    said = ran("table2", tmp_path, models=("hmm-2",), num_folds=2)
    assert "i.i.d." not in said
    shown = (tmp_path / "tables" / "table2.md").read_text()
    line = next(line for line in shown.splitlines() if line.startswith("| i.i.d. |"))
    assert re.search(r"\| 8\.\d\d ± \d\.\d\d \(2\) \|", line.replace("**", ""))
    assert "HMM, 2 states" in shown
    assert run(["classes", "--out", str(tmp_path), "--table-only"]) == 0
    assert (tmp_path / "tables" / "table2.png").exists()


def test_margins_are_over_folds_that_both_have(tmp_path: Path) -> None:
    results = Results(tmp_path)
    tests = {("dspn", 0): [-1.0], ("dspn", 1): [-3.0], ("hmm", 1): [-5.0], ("hmm", 2): [-9.0]}
    for (model, fold), test in tests.items():
        entry = {"test": test, "seconds": 1.0, "ending": "finished"}
        results.add(Cell("vowels", fold, model).key, entry)
    (record,) = table2.margins_view(["vowels"], ["hmm", "dspn"], results).records
    assert record == {"data": "vowels", "model": "hmm", "mean": 2.0, "error": 0.0, "folds": 1}
    for model, fold in (("dspn", 2), ("hmm", 0)):
        entry = {"test": [-1.0], "seconds": 1.0, "ending": "finished"}
        results.add(Cell("vowels", fold, model).key, entry)
    (record,) = table2.margins_view(["vowels"], ["hmm", "dspn"], results).records
    assert record["mean"] == pytest.approx((0 + 2 + 8) / 3) and record["folds"] == 3
    assert "3.33 ± 2.40 (3)" in table2.margins_view(["vowels"], ["hmm"], results).markdown


def test_models_that_take_long_have_fewer_folds(tmp_path: Path) -> None:
    hurried = replace(SMALL, short_seconds=0.0)
    said = ran("table2", tmp_path, hurried, models=("iid", "hmm-2"))
    assert said.count("nats per sequence in") == 2
    assert "(1)" in (tmp_path / "tables" / "table2.md").read_text()


def test_folds_are_kept_and_others_refused(tmp_path: Path) -> None:
    data = small()
    path = tmp_path / "folds" / "vowels.json"
    keep_folds(cases.folds_for(data), 0, path)
    kept = json.loads(path.read_text())
    for fold in kept["folds"]:
        parts = [set(fold[part]) for part in ("train", "validation", "test")]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 30
    assert sorted(index for fold in kept["folds"] for index in fold["test"]) == list(range(30))
    keep_folds(cases.folds_for(data), 0, path)
    path.write_text(json.dumps({**kept, "seed": 1}))
    with pytest.raises(DataError, match="but are others"):
        keep_folds(cases.folds_for(data), 0, path)
    # A run that finds them is refused too, and keeps nothing.
    with pytest.raises(DataError, match="but are others"):
        ran("table2", tmp_path, models=("iid",))
    assert not list((tmp_path / "cells").rglob("*.json"))


def test_missing_data_are_no_result(tmp_path: Path) -> None:
    missing = ["table2", "--data", "vowels", "--data-dir", str(tmp_path), "--model", "iid"]
    assert run([*missing, "--out", str(tmp_path)]) == 1
    said = ran("table2", tmp_path, models=("iid",), num_folds=1)
    assert "nats per sequence in" in said


def spying(seen: list[Sequences], ending: Ending = Ending.FINISHED) -> Contender:
    """A model that remembers what it has seen."""

    class Spy:
        def fit(self, train: Sequences, validation: Sequences, **_: Any) -> Any:
            seen.extend([train, validation])
            fitted = HmmBaseline(HmmOptions(states=(1,))).fit(train, validation, seed=0)
            return replace(fitted, ending=ending)

    return Contender("spy", lambda _: Spy(), "step")  # type: ignore[arg-type,return-value]


def test_learners_and_preparations_see_no_test_sequences() -> None:
    data = small()
    case = cases.RealCase("Small", small, MEDIAN_BITS, "bits", 0.01, 30.0)
    fold = cases.folds_for(data)[0]
    seen: list[Sequences] = []
    entry = cells.tested(spying(seen), cases.prepared(case, data, fold), Setting())
    assert len(entry["test"]) == fold.test.size
    # Other test sequences: nothing that is learned from changes.
    changed = np.array(data.sequences.values)
    for index in fold.test:
        rows = slice(data.sequences.offsets[index], data.sequences.offsets[index + 1])
        changed[rows] = 1 - changed[rows]
    other = RealData("other", data.sequences.with_values(changed))
    cells.tested(spying(seen), cases.prepared(case, other, fold), Setting())
    for one, two in zip(seen[:2], seen[2:], strict=True):
        np.testing.assert_array_equal(one.values, two.values)


def test_an_interrupted_fit_is_no_result() -> None:
    data = small()
    case = cases.RealCase("Small", small, RAW, "raw", 0.01, 30.0)
    fold = cases.prepared(case, data, cases.folds_for(data)[0])
    with pytest.raises(KeyboardInterrupt):
        cells.tested(spying([], Ending.INTERRUPTED), fold, Setting())


def test_cells_that_cannot_be_run_keep_the_reason(tmp_path: Path) -> None:
    schema = Schema((Variable.continuous("x"),))
    numbers = Sequences.from_padded(np.random.default_rng(0).normal(size=(30, 4, 1)), schema=schema)
    case = replace(SMALL.cases["vowels"], read=lambda _: RealData("numbers", numbers))
    said = ran("table2", tmp_path, replace(SMALL, cases={"vowels": case}), models=("reveal",))
    assert "Reveal DBN on JapaneseVowels: " in said and "categorical" in said
    (own,) = summaries(["vowels"], ["reveal"], Results(tmp_path / "cells"))
    assert "categorical" in own.reason
    assert str(own) == "-"


def test_models_without_pytorch_are_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contenders, "find_spec", lambda name: None)
    said = ran("table2", tmp_path, models=("lstm", "iid"), num_folds=1)
    assert "LSTM, modern: left out, as PyTorch is not installed" in said
    assert not list(tmp_path.rglob("lstm.json"))


def test_times_are_shown_with_the_papers(tmp_path: Path) -> None:
    said = " ".join(ran("table3", tmp_path, models=FAST[1:]).split())
    assert "seconds of learning by iteration" in said
    assert "seconds of inference with one variable observed" in said
    assert "6,734" not in said and "516" in said  # JapaneseVowels alone
    records = json.loads((tmp_path / "tables" / "table3-inference.json").read_text())["records"]
    timed = [record for record in records if record["inference"]]
    seconds = {record["model"]: record["inference"]["seconds"] for record in timed}
    assert list(seconds) == list(FAST[1:]) and min(seconds.values()) > 0
    ratios = json.loads((tmp_path / "tables" / "table3-ratio.json").read_text())["records"]
    assert {record["model"]: record["ratio"] for record in ratios if record["ratio"]} == {
        model: seconds[model] / seconds["dspn"] for model in ("hmm-2", "reveal")
    }
    sizes = json.loads((tmp_path / "tables" / "table3-scaling.json").read_text())["records"]
    assert [row["interfaces"] for row in sizes] == [2, 4]


def test_a_net_learned_elsewhere_is_timed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = Results(tmp_path / "cells")
    key = Cell("vowels", 0, "hmm-2").key
    ran("table2", tmp_path, models=("hmm-2",), num_folds=1)
    entry = results.find(key)
    assert entry is not None
    timed = entry.pop("inference")
    results.add(key, entry)
    assert table3.inference_of("vowels", "hmm-2", results) is None
    said = ran("table3", tmp_path, models=("hmm-2",))
    assert "inference timed" not in said  # what it is like depends on what it learns
    monkeypatch.setitem(table3.CONTENDERS, "hmm-2", replace(CONTENDERS["hmm-2"], needs_torch=True))
    monkeypatch.setattr(contenders, "find_spec", lambda _: True)
    said = ran("table3", tmp_path, models=("hmm-2",))
    assert "inference timed" in said
    found = table3.inference_of("vowels", "hmm-2", results)
    assert found is not None and found.keys() == timed.keys() and found["seconds"] > 0
    assert "inference timed" not in ran("table3", tmp_path, models=("hmm-2",))


def test_hidden_variables_are_hidden_and_part_is_scaled() -> None:
    data = small().sequences
    seen = first_variable_alone(data)
    assert np.isnan(seen.values[:, 1:]).all() and not np.isnan(seen.values[:, 0]).any()
    fitted = HmmBaseline(HmmOptions(states=(1,))).fit(data, data, seed=0)
    whole, part = inference_seconds(fitted, seen), inference_seconds(fitted, seen, budget=1e-9)
    assert part["seconds"] > 0
    assert whole["share"] == 1.0
    assert part["share"] == pytest.approx(8 / 30)
    assert part["seconds"] > 0


def test_unknown_names_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--data", "--model"):
        assert run(["table2", "--out", str(tmp_path), option, "nothing"]) == 1
        said = capsys.readouterr().err
        assert said.startswith("error: ") and "'nothing' is not" in said


# Table 1.

CASE = SyntheticCase("HMM-samples", hmm_process, 12, 0.3)


def test_learned_models_are_nearer_to_the_truth_than_independent_entries(tmp_path: Path) -> None:
    results, models = Results(tmp_path), ("iid", "dspn")
    spending = cases.Spending(tmp_path / "folds", sizes=SMALL)
    table1.run((CASE,), models, 2, results, Console(file=io.StringIO()), spending)
    assert (tmp_path / "folds" / f"{CASE.key}.json").exists()
    (row,) = table1.rows((CASE,), models, results)
    assert row.num_folds == 2
    assert row.gaps["dspn"].mean < 0.6 * row.gaps["iid"].mean
    assert 0.4 < row.share <= 1.1
    shown = table1.view((CASE,), models, results)
    assert "HMM-samples" in shown.markdown
    (unknown,) = table1.rows((replace(CASE, seed=13),), models, results)
    assert unknown.num_folds == 0
    assert "| 13 | 0 | - | - | - |" in table1.view((unknown.case,), models, results).markdown


def test_everything_together_makes_a_report(tmp_path: Path) -> None:
    asked = {"data": ("hmm-samples-uniform-0", "vowels"), "models": ("iid", "hmm-2", "dspn")}
    said = ran("all", tmp_path, quick=True, **asked)
    assert "report.md" in said
    report = (tmp_path / "quick-tables" / "report.md").read_text()
    for part in ("Table 1", "Table 2", "Table 3", "table2.png", "curves.png"):
        assert part in report


def test_sharp_cases_leave_something_to_find() -> None:
    for case in table1.CASES:
        if case.concentration is None or case.title == "BAT":
            continue
        process, data = case.drawn()
        share = data.values.mean(axis=0)
        alone = (data.values @ np.log(share) + (1 - data.values) @ np.log1p(-share)).sum()
        assert process.log_likelihood(data).mean() - alone / len(data) > 15


def test_keys_name_data_fold_and_model() -> None:
    assert Cell("vowels", 3, "dspn").key == "vowels/3/dspn"
    keys = [case.key for case in table1.CASES]
    assert len(set(keys)) == len(keys) and "water-dirichlet-0.3-10" in keys


def test_curves_need_something_to_draw() -> None:
    with pytest.raises(DataError, match="one data set at least"):
        curves_figure({}, {})
    figure = curves_figure({"a": [[[0.0, -3.0], [1.0, -2.0]]]}, {"a": 2.5})
    with pytest.raises(DataError, match="has none"):
        plot_curve([[]], figure.axes[0], title="b", paper=None)
