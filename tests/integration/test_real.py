"""The command that tests learned models on real data, with small data in their place."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from dspn import Model, Schema, Variable
from dspn.datasets import RAW, RealData
from dspn.errors import DataError
from dspn.experiments import real
from dspn.experiments.curves import curves_figure, plot_curve
from dspn.experiments.folds import folds_of
from dspn.experiments.results import Results
from dspn.sequences import Sequences

BITS = Schema(tuple(Variable.binary(f"x{i}") for i in range(2)))
PLANTED = Model.from_hmm(
    [0.5, 0.5],
    [[0.9, 0.1], [0.2, 0.8]],
    {f"x{i}": [[0.9, 0.1], [0.2, 0.8]] for i in range(2)},
    schema=BITS,
)


def small(directory: Path | None = None) -> RealData:
    drawn = PLANTED.sample(30, 6, rng=np.random.default_rng(0))
    every = np.arange(30)
    return RealData("small", drawn, every % 2, every[:20], every[20:])


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    case = real.Case("small", small, RAW, "raw", 0.01, 9.0, 2)
    monkeypatch.setattr(real, "CASES", {"small": case})
    monkeypatch.setattr(real, "_STATES", (1, 2))
    yield


def ran(out: Path, *more: str) -> str:
    import typer

    app = typer.Typer()
    app.command()(real.main)
    result = CliRunner().invoke(app, ["--out", str(out), "--data", "small", *more])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.usefixtures("cases")
def test_a_run_writes_table_and_curves_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ran(tmp_path, "--model", "DSPN", "--model", "HMM")
    assert first.count("fold") >= 4 and "9.0" in first
    table = (tmp_path / "table.md").read_text()
    assert table.count("| small |") == 2
    assert (tmp_path / "curves.png").stat().st_size > 1000

    def never(*_: Any) -> None:
        raise AssertionError("what is known is not learned again")

    monkeypatch.setattr(real, "tested", never)
    again = ran(tmp_path, "--model", "DSPN", "--model", "HMM")
    assert (tmp_path / "table.md").read_text() == table
    assert "nats per sequence in" not in again


@pytest.mark.usefixtures("cases")
def test_learners_see_training_and_validation_sequences_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = small()
    fold = folds_of(30, rng=np.random.default_rng(0))[0]
    seen: list[Sequences] = []

    def spy(train: Sequences, validation: Sequences, case: real.Case, jobs: int) -> real.Learned:
        seen.extend([train, validation])
        return (lambda test: np.zeros(len(test))), {}

    monkeypatch.setattr(real, "MODELS", {"spy": spy})
    entry = real.tested(real.CASES["small"], data, fold, "spy")
    assert len(entry["test"]) == fold.test.size
    for given, own in zip(seen, (fold.train, fold.validation), strict=True):
        np.testing.assert_array_equal(given.values, data.sequences[own].values)
    assert not set(fold.test) & {*fold.train, *fold.validation}


@pytest.mark.usefixtures("cases")
def test_unknown_names_are_refused(tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    app.command()(real.main)
    result = CliRunner().invoke(app, ["--out", str(tmp_path), "--data", "nothing"])
    assert result.exit_code == 2 and "'nothing' is none of small" in result.output


def test_damaged_results_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        Results(path)


def test_curves_need_something_to_draw() -> None:
    with pytest.raises(DataError, match="one data set at least"):
        curves_figure({}, {})
    figure = curves_figure({"a": [[[0.0, -3.0], [1.0, -2.0]]]}, {"a": 2.5})
    with pytest.raises(DataError, match="has none"):
        plot_curve([[]], figure.axes[0], title="b", paper=None)
