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

from dspn.datasets import WATER, water_model
from dspn.demo import tour

FILES = ("water-template.png", "small-template.png", "filtered-stream.png", "water.dspn")
# Rich takes its width and its colours from these.
DISTURBING = ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
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
    """The percentages of the first table row that begins with the label."""
    row = next(line for line in text.splitlines() if line.startswith(label + " "))
    return [float(number) for number in re.findall(r"([\d.]+)%", row)]


def test_demo_ends_well_and_says_nothing_on_the_error_stream(
    ran: subprocess.CompletedProcess[bytes],
) -> None:
    assert ran.returncode == 0, ran.stderr.decode()
    assert ran.stderr == b""


def test_demo_prints_no_colour_codes_without_a_terminal(
    ran: subprocess.CompletedProcess[bytes],
) -> None:
    assert b"\x1b" not in ran.stdout
    assert max(len(line) for line in ran.stdout.decode().splitlines()) <= 100


def test_demo_writes_the_files_it_names(
    ran: subprocess.CompletedProcess[bytes], directory: Path
) -> None:
    text = ran.stdout.decode()
    assert sorted(path.name for path in directory.joinpath("out").iterdir()) == sorted(FILES)
    for name in FILES:
        assert f"out/{name}" in text
        contents = directory.joinpath("out", name).read_bytes()
        assert len(contents) > 10_000
        assert contents.startswith(PNG) == name.endswith(".png")


def test_demo_beats_the_most_frequent_value(ran: subprocess.CompletedProcess[bytes]) -> None:
    text = ran.stdout.decode()
    plain, imputed = numbers_after("all", text[text.index("What was hidden") :])
    assert imputed > plain + 10
    ahead = text[text.index("right over all sequences") :]
    pairs = zip(
        numbers_after("most frequent value", ahead), numbers_after("dspn", ahead), strict=True
    )
    assert all(forecast > baseline for baseline, forecast in pairs)


def test_demo_finds_the_planted_fault_in_most_streams(
    ran: subprocess.CompletedProcess[bytes],
) -> None:
    text = " ".join(ran.stdout.decode().split())
    found = re.search(r"in 200 other streams is the most surprising slice of (\d+)", text)
    assert found is not None
    assert int(found[1]) > 100
    total = re.search(
        r"add up to ([\d.]+) nats, the log-likelihood of the whole stream is -([\d.]+)\.", text
    )
    assert total is not None
    assert total[1] == total[2]


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
