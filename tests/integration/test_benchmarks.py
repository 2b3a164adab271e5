"""The benchmark harness runs and writes what it promises; no time is asserted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dspn

_REPOSITORY = Path(__file__).resolve().parents[2]
_PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hmmlearn")
    folder = tmp_path_factory.mktemp("bench")
    source = str(Path(dspn.__file__).parents[1])
    command = [sys.executable, "-m", "benchmarks.run", "--quick", "--no-install"]
    done = subprocess.run(
        [*command, "--jobs", "smoke", "--peers", "hmmlearn", "--out", str(folder)],
        cwd=_REPOSITORY,
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_results_are_well_formed_for_a_tiny_job(out: Path) -> None:
    results = json.loads((out / "results.json").read_text())
    assert results["format"] == 1
    assert results["limits"]["fma"] > 0
    assert [peer["name"] for peer in results["peers"]] == ["hmmlearn"]
    tasks = ["log_likelihood", "one_shot", "em", "viterbi", "viterbi_engine"]
    assert [row["task"] for row in results["rows"]] == tasks
    for row in results["rows"]:
        assert row["total_slices"] > row["num_sequences"] == 20
        for label in ("dspn", "hmmlearn"):
            found = row["measurements"][label]
            assert found["error"] is None
            assert found["best_s"] == min(found["seconds"]) > 0
            assert found["peak_mib"] >= 0


def test_competitors_agree_for_a_tiny_job(out: Path) -> None:
    rows = json.loads((out / "results.json").read_text())["rows"]
    for row in rows:
        assert all(found["agrees"] for found in row["measurements"].values()), row["task"]


def test_report_and_plot_are_written_for_a_tiny_job(out: Path) -> None:
    report = (out / "report.md").read_text()
    assert report.startswith("# Benchmark results")
    assert "![Time of the peers over ours](ratios.png)" in report
    assert (out / "ratios.png").read_bytes().startswith(_PNG)
