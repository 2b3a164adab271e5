"""The experiment on synthetic data: resumes, and prints what it has measured."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from dspn.datasets import hmm_process
from dspn.experiments import synthetic
from dspn.experiments.synthetic import CASES, Case, Results
from dspn.learning.growth import GrowthOptions
from dspn.learning.plan import Plan

CASE = Case("HMM-samples", hmm_process, 12, 0.3)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "_NUM_SEQUENCES", 40)
    monkeypatch.setattr(synthetic, "_NUM_SLICES", 30)
    one = Plan(growth=GrowthOptions(max_interfaces=1), search=None)
    two = Plan(growth=GrowthOptions(max_interfaces=2), search=None)
    monkeypatch.setattr(synthetic, "PLANS", {"i.i.d.": one, "initial": two, "DSPN": two})


def _run(path: Path, num_folds: int) -> Results:
    results = Results(path)
    synthetic.run((CASE,), num_folds, results, Console(file=io.StringIO()))
    return results


@pytest.mark.usefixtures("small")
def test_learned_models_are_nearer_to_the_truth_than_independent_entries(tmp_path: Path) -> None:
    results = _run(tmp_path / "results.json", 2)
    (row,) = synthetic.rows((CASE,), 2, results)
    assert row.gaps["DSPN"] < 0.5 * row.gaps["i.i.d."]
    assert 0.5 < row.share <= 1.1
    text = synthetic.markdown([row])
    assert text.count("\n") == 3
    assert "HMM-samples" in text


@pytest.mark.usefixtures("small")
def test_run_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    before = json.loads(json.dumps(_run(path, 1).entries))

    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError("learned again")

    monkeypatch.setattr(synthetic, "learn", fail)
    assert _run(path, 1).entries == before


def test_results_of_another_release_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"version": "0.0.0", "entries": {"a": {}}}))
    assert Results(path).entries == {}


def test_sharp_cases_leave_something_to_find() -> None:
    for case in CASES:
        if case.concentration is None or case.name == "BAT":
            continue
        process, data = case.drawn()
        share = data.values.mean(axis=0)
        alone = (data.values @ np.log(share) + (1 - data.values) @ np.log1p(-share)).sum()
        assert process.log_likelihood(data).mean() - alone / len(data) > 15
