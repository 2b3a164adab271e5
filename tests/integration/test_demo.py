"""The demo and the Water network it is built on."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import dspn
from dspn.datasets import WATER, water_model
from dspn.demo import tour

FILES = ("learned-template.png", "learning-curve.png", "filtered-stream.png", "learned.dspn")
# Rich takes its width and its colours from these.
DISTURBING = ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
# Every run learns, which takes more than ten seconds.
slow = pytest.mark.slow
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def ran(directory: Path) -> subprocess.CompletedProcess[bytes]:
    """One run in a process of its own, in an empty directory, without a terminal."""
    kept = {key: value for key, value in os.environ.items() if key not in DISTURBING}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "dspn.demo"],
        cwd=directory,
        env={**kept, "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
    )


def numbers_after(label: str, text: str) -> list[float]:
    """The numbers of the first table row that begins with the label."""
    row = next(line for line in text.splitlines() if line.startswith(label + " "))
    return [float(number) for number in re.findall(r"-?[\d.]+", row[len(label) :].replace(",", ""))]


@slow
def test_demo_ends_well_and_says_nothing_on_the_error_stream(
    ran: subprocess.CompletedProcess[bytes],
) -> None:
    assert ran.returncode == 0, ran.stderr.decode()
    assert ran.stderr == b""


@slow
def test_demo_prints_no_colour_codes_without_a_terminal(
    ran: subprocess.CompletedProcess[bytes],
) -> None:
    assert b"\x1b" not in ran.stdout
    assert max(len(line) for line in ran.stdout.decode().splitlines()) <= 100


@slow
def test_demo_writes_the_files_it_names(
    ran: subprocess.CompletedProcess[bytes], directory: Path
) -> None:
    text = ran.stdout.decode()
    assert sorted(path.name for path in directory.joinpath("out").iterdir()) == sorted(FILES)
    for name in FILES:
        assert f"out/{name}" in text
        contents = directory.joinpath("out", name).read_bytes()
        is_picture = name.endswith(".png")
        assert contents.startswith(PNG) == is_picture
        assert len(contents) > (10_000 if is_picture else 1_000)


@slow
def test_demo_learns_a_model_near_the_true_one(ran: subprocess.CompletedProcess[bytes]) -> None:
    text = ran.stdout.decode()
    table = text[text.index("gap closed") :]
    truth, learned, initial = (
        numbers_after(label, table) for label in ("true model", "learned DSPN", "initial template")
    )
    independent = numbers_after("independent", table)  # has no edges
    assert truth[2] == 0.0
    assert learned[1] == pytest.approx(truth[1] - learned[2], abs=0.011)
    assert learned[2] < 0.3 * independent[1]
    # The search chooses by other sequences than these, so that it may lose a little here.
    assert learned[2] < initial[2] + 0.5
    assert initial[2] < independent[1]
    assert learned[0] < truth[0] / 100


@slow
def test_demo_answers_almost_as_well_as_the_true_model(
    ran: subprocess.CompletedProcess[bytes],
) -> None:
    text = ran.stdout.decode()
    _, plain, imputed, truly = numbers_after("all", text[text.index("What was hidden") :])
    assert imputed > plain + 10
    assert imputed > truly - 2
    ahead = text[text.index("right over all sequences") :]
    plains, forecasts, best = (
        numbers_after(label, ahead) for label in ("most frequent value", "learned", "true model")
    )
    assert all(forecast > plain for plain, forecast in zip(plains, forecasts, strict=True))
    assert all(forecast > truth - 4 for truth, forecast in zip(best, forecasts, strict=True))


@slow
def test_demo_finds_the_planted_fault_in_most_streams(
    ran: subprocess.CompletedProcess[bytes],
) -> None:
    text = ran.stdout.decode()
    table = text[text.index("the most surprising  ") :]
    for label in ("learned", "true model"):
        first, among_three = numbers_after(label, table)
        assert 100 < first <= among_three <= 200
    total = re.search(
        r"add up to ([\d.]+) nats, its log-likelihood of the whole stream is -([\d.]+)\.",
        " ".join(text.split()),
    )
    assert total is not None
    assert total[1] == total[2]


@slow
def test_demo_saves_the_model_it_speaks_of(
    ran: subprocess.CompletedProcess[bytes], directory: Path
) -> None:
    model = dspn.load(directory / "out" / "learned.dspn")
    assert f"{model.network.template.num_edges} edges." in " ".join(ran.stdout.decode().split())
    assert model.provenance["estimator"] == "DSPN"
    assert model.provenance["ending"] == "finished"


@slow
def test_demo_prints_the_same_again(
    ran: subprocess.CompletedProcess[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in DISTURBING:
        monkeypatch.delenv(name, raising=False)
    output = io.StringIO()
    tour(Console(file=output, width=80, highlight=False), Path("out"))
    assert output.getvalue() == ran.stdout.decode()


def test_demo_names_the_directory_it_cannot_write(tmp_path: Path) -> None:
    tmp_path.joinpath("out").write_text("a file where the directory should be")
    ran = subprocess.run(
        [sys.executable, "-m", "dspn.demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        encoding="utf-8",
    )
    assert ran.returncode == 1
    assert "out" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_water_structure_is_that_of_the_published_facts(data_directory: Path) -> None:
    facts = json.loads(data_directory.joinpath("dbn", "water.json").read_text(encoding="utf-8"))
    assert list(WATER.sizes) == facts["slice_nodes"]
    assert dict(WATER.sizes) == facts["node_sizes"]
    assert list(WATER.observed) == facts["observed"]
    assert [list(edge) for edge in WATER.within] == facts["intra_slice_edges"]
    assert [list(edge) for edge in WATER.between] == facts["inter_slice_edges"]


def test_water_model_has_one_interface_for_each_hidden_state() -> None:
    network = water_model(np.random.default_rng(0)).network
    assert network.num_interfaces == 256
    assert network.schema.names == ("obs_C_NI", "obs_CBODD", "obs_CNOD", "obs_CKNN")


def test_water_model_is_sharper_with_a_low_concentration() -> None:
    flat = water_model(np.random.default_rng(0)).network.parameters.template.leaves
    sharp = water_model(np.random.default_rng(0), 0.05).network.parameters.template.leaves
    assert np.mean([leaf.max(axis=1) for leaf in sharp]) > 0.9
    assert np.mean([leaf.max(axis=1) for leaf in flat]) < 0.9
