"""The comparison with hmmlearn's Gaussian models: same folds, resumes, shows both."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from dspn.data import Schema, Sequences, Variable
from dspn.errors import DataError
from experiments import Fold, cases, folds_of
from experiments.datasets import RealData
from experiments.results import Results

XYZ = Schema(tuple(Variable.continuous(name) for name in "xyz"))


@pytest.fixture
def gaussian() -> Any:
    """The module, which needs hmmlearn."""
    pytest.importorskip("hmmlearn")
    from benchmarks import gaussian as module

    return module


def drawn() -> Sequences:
    """Two states that stay for a while, and a column that never changes."""
    rng = np.random.default_rng(0)
    states = np.cumsum(rng.random((30, 12)) < 0.3, axis=1) % 2
    values = rng.normal(size=(30, 12, 3)) + 6.0 * states[:, :, None]
    values[:, :, 2] = 4.0
    return Sequences.from_padded(values, schema=XYZ)


def _run(gaussian: Any, path: Path, num_folds: int = 2) -> Results:
    results = Results(path)
    console = Console(file=io.StringIO())
    case = replace(cases.CASES["vowels-raw"], read=lambda directory: RealData("small", drawn()))
    small = {"vowels-raw": case}
    gaussian.run(["vowels-raw"], (1, 2), num_folds, results, None, console, small)
    return results


def test_folds_are_those_of_the_experiment(gaussian: Any) -> None:
    assert gaussian.folds_for is cases.folds_for
    assert set(gaussian.DATA) <= set(cases.CASES)
    assert all(cases.CASES[name].prepared == "raw" for name in gaussian.DATA)


def test_scores_are_nats_per_sequence_of_a_fitted_model(gaussian: Any) -> None:
    data = drawn().select(["x", "y"])
    fold = folds_of(len(data), rng=np.random.default_rng(0))[0]
    one = gaussian.tested(data, fold, 1)
    train, test = data[fold.train].values, data[fold.test].values
    mean, variance = train.mean(axis=0), train.var(axis=0)
    density = -0.5 * (np.log(2 * np.pi * variance) + (test - mean) ** 2 / variance)
    # hmmlearn's prior on variances is felt in the third digit behind the point.
    assert one["test"] == pytest.approx(density.sum() / fold.test.size, rel=1e-3)
    assert gaussian.tested(data, fold, 2)["validation"] > one["validation"]


def test_run_goes_on_where_it_was_stopped(gaussian: Any, tmp_path: Path) -> None:
    path = tmp_path / "results"
    before = json.loads(json.dumps(dict(_run(gaussian, path).under("vowels-raw"))))
    assert set(before) == {f"vowels-raw/{fold}/{k}" for fold in (0, 1) for k in (1, 2)}
    # Times and all: nothing is learned again.
    assert dict(_run(gaussian, path).under("vowels-raw")) == before


def test_table_has_the_best_by_validation_beside_the_dspn(gaussian: Any, tmp_path: Path) -> None:
    results, ours = Results(tmp_path / "theirs"), Results(tmp_path / "ours")
    for fold, scores in enumerate([(-5.0, -4.0), (-3.0, -6.0)]):
        for size, score in zip((1, 2), scores, strict=True):
            entry = {"validation": score, "test": score - 1, "seconds": 2.0}
            results.add(f"vowels-raw/{fold}/{size}", entry)
    results.add("vowels-raw/1/4", {"refused": "no", "seconds": 1.0})
    ours.add("vowels-raw/0/dspn", {"test": [-1.0, -3.0], "seconds": 7.0})
    ours.add("vowels-raw/3/dspn", {"test": [-8.0], "seconds": 9.0})
    theirs, dspn = gaussian.rows(["vowels-raw", "arabic-raw"], results, ours)
    np.testing.assert_array_equal(theirs.values, [5, 4])
    assert theirs.model == "hmmlearn, 1 or 2 states"
    assert theirs.seconds == 4.5
    np.testing.assert_array_equal(dspn.values, [2, 8])
    np.testing.assert_array_equal(dspn.gains, [3])
    text = gaussian.markdown([theirs, dspn])
    assert "| 4.50 ± 0.50 |" in text and "| 5.00 ± 3.00 | 3.00 |" in text


def test_constant_columns_and_refusals_do_not_end_a_run(gaussian: Any) -> None:
    fold = Fold(np.arange(20), np.arange(20, 25), np.arange(25, 30))
    assert np.isfinite(gaussian.tested(drawn(), fold, 2)["test"])
    # More states than slices: hmmlearn has no start for them.
    few = Fold(np.arange(1), np.arange(1, 2), np.arange(2, 3))
    assert "refused" in gaussian.tested(drawn(), few, 64)


def test_missing_entries_are_refused(gaussian: Any) -> None:
    values = np.array(drawn().values)
    values[0, 0] = np.nan
    fold = Fold(np.arange(20), np.arange(20, 25), np.arange(25, 30))
    with pytest.raises(DataError, match="no missing entries"):
        gaussian.tested(drawn().with_values(values), fold, 1)
