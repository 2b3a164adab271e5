"""The demo, and the house it is about."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dspn
from dspn.demo.__main__ import main
from dspn.demo._house import NEW_HOURS, SCHEMA, WARM, House, house, house_model, with_faults

FILES = (
    "report.html",
    "recording.png",
    "template.png",
    "house.dspn",
    "recordings.csv",
    "new.csv",
)
# Rich takes its width and its colours from these.
DISTURBING = ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
# The run learns, which takes more than ten seconds.
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
        timeout=600,
    )


@pytest.fixture(scope="module")
def example() -> House:
    return house()


def row_after(label: str, text: str) -> list[float]:
    """The numbers of the first table row that begins with the label."""
    row = next(line for line in text.splitlines() if line.startswith(label))
    return [float(number) for number in re.findall(r"-?\d+\.?\d*", row[len(label) :])]


@slow
def test_demo_ends_well_and_says_nothing_on_the_error_stream(
    ran: subprocess.CompletedProcess[bytes],
) -> None:
    assert ran.returncode == 0, ran.stderr.decode()
    assert ran.stderr == b""


@slow
def test_demo_fits_eighty_columns_without_colour_codes(
    ran: subprocess.CompletedProcess[bytes],
) -> None:
    assert b"\x1b" not in ran.stdout
    text, commands = ran.stdout.decode().split("What to try next")
    assert max(map(len, text.splitlines())) <= 80
    assert max(map(len, text.splitlines())) >= 70
    assert " inspect " in commands
    assert " report " in commands


@slow
def test_demo_writes_the_files_it_names(
    ran: subprocess.CompletedProcess[bytes], directory: Path
) -> None:
    text = ran.stdout.decode()
    made = directory / "out" / "demo"
    assert sorted(path.name for path in made.iterdir()) == sorted(FILES)
    for name in FILES:
        assert str(Path("out", "demo", name)) in text
        contents = made.joinpath(name).read_bytes()
        assert contents.startswith(PNG) == name.endswith(".png")
        assert len(contents) > 10_000


@slow
def test_demo_learns_a_model_between_the_hmm_and_the_true_one(
    ran: subprocess.CompletedProcess[bytes],
) -> None:
    text = ran.stdout.decode()
    truth, learned, independent = (
        row_after(label, text) for label in ("true model", "DSPN", "independent")
    )
    _, hmm, hmm_share = row_after("HMM, ", text)[:3]
    assert independent[0] < hmm < learned[0] < truth[0]
    assert learned[1] >= 95 > hmm_share
    assert truth[1] == 100


@slow
def test_demo_finds_the_blocks_of_the_true_model(
    ran: subprocess.CompletedProcess[bytes],
) -> None:
    blocks = "sky, celsius, wind  |  lights, motion, humidity  |  cars, noise  |  pump, flow"
    assert blocks in ran.stdout.decode()


@slow
def test_demo_answers_almost_as_well_as_the_true_model(
    ran: subprocess.CompletedProcess[bytes],
) -> None:
    words = " ".join(ran.stdout.decode().split())
    filled = re.search(
        r"sensor ([\d.]+), HMM ([\d.]+), DSPN ([\d.]+), true model ([\d.]+)\.", words
    )
    assert filled is not None
    plain, hmm, learned, truth = map(float, filled.groups())
    assert truth <= learned < hmm < plain
    assert learned < truth + 0.03
    for held in re.findall(r"hold ([\d.]+)%", words):
        assert 76.0 < float(held) < 84.0
    found = re.search(r"in (\d+)% of them \(true model (\d+)%; [^)]* (\d+)%\)", words)
    assert found is not None
    assert int(found[1]) > 90 > int(found[3])


@slow
def test_demo_saves_the_model_it_speaks_of(
    ran: subprocess.CompletedProcess[bytes], directory: Path
) -> None:
    made = directory / "out" / "demo"
    model = dspn.load(made / "house.dspn")
    assert model.schema == SCHEMA
    assert model.provenance["estimator"] == "DSPN"
    assert model.provenance["ending"] == "finished"
    heads = [made.joinpath(name).read_text().splitlines()[0] for name in FILES[-2:]]
    assert all(head.replace('"', "").startswith("recording,hour,sky") for head in heads)


def test_demo_names_the_directory_it_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.joinpath("out").write_text("a file where the directory should be")
    monkeypatch.chdir(tmp_path)
    assert main() == 1
    assert capsys.readouterr().err.startswith(f"cannot write to {Path('out', 'demo')}: ")


def test_house_is_the_same_every_time(example: House) -> None:
    one, other = example, house()
    assert np.array_equal(one.training.values, other.training.values, equal_nan=True)
    assert np.array_equal(one.new.values, other.new.values, equal_nan=True)
    assert 0.1 < np.isnan(one.new.values).mean() < 0.4


def test_house_model_is_four_chains_that_know_nothing_of_each_other() -> None:
    model = house_model()
    assert model.network.num_interfaces == 3**4
    data = model.sample(3, 4, rng=np.random.default_rng(0))
    whole = model.log_likelihood(data)
    parts = np.zeros(3)
    for columns in ((0, 1, 2), (3, 4, 5), (6, 7), (8, 9)):
        values = np.full(data.values.shape, np.nan)
        values[:, columns] = data.values[:, columns]
        parts += model.log_likelihood(data.with_values(values))
    np.testing.assert_allclose(whole, parts, rtol=1e-10)


def test_faults_are_warm_hours_of_storms(example: House) -> None:
    fault = with_faults(example)
    rows = fault.recordings.offsets[:-1] + fault.hours
    assert len(fault.hours) > 20
    assert np.all(fault.recordings.values[rows, SCHEMA.index("celsius")] == WARM)
    assert np.all(fault.recordings.values[rows, SCHEMA.index("sky")] == 2)
    shown, at = fault.clearest
    assert len(shown) == 1
    assert 0 <= at < NEW_HOURS
