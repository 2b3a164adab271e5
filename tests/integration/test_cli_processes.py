"""The command in a process of its own: pipes, and what it imports."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dspn

COMMAND = [sys.executable, "-m", "dspn"]
ENVIRONMENT = {**os.environ, "PYTHONIOENCODING": "utf-8"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    schema = dspn.Schema((dspn.Variable.continuous("x"),))
    known = dspn.Model.from_hmm(
        [0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], {"x": [[0.0, 1.0], [4.0, 1.0]]}, schema=schema
    )
    path = tmp_path / "known.dspn"
    provenance = {"table": {"sequence": "id", "order": None}}
    dspn.Model(known.mixture, provenance=provenance).save(path)
    return path


def table(path: Path, count: int, length: int) -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal((count, length)) + 4 * (rng.random((count, 1)) < 0.5)
    rows = [f"s{one},{x:.3f},{x * x:.3f}" for one, own in enumerate(values) for x in own]
    path.write_text("id,x,y\n" + "\n".join(rows) + "\n")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, model: Path) -> None:
    table(tmp_path / "data.csv", 4_000, 2)
    with subprocess.Popen(
        [*COMMAND, "surprise", str(model), "data.csv", "-q"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline() == b"id,slice,x,slice_surprise,oddest,tail\n"
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


def test_a_stream_is_answered_slice_by_slice(tmp_path: Path, model: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "watch", str(model), "--json"],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("x\n")
            for number, value in enumerate(("0.5", "", "9")):
                process.stdin.write(f'"{value}"\n')
                process.stdin.flush()
                # Nothing more is sent before the answer is there.
                assert json.loads(process.stdout.readline())["slice"] == number
            process.stdin.close()
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


def test_help_imports_nothing_heavy() -> None:
    program = """
import sys
import dspn
before = set(sys.modules)
from dspn.cli.app import run
for words in (["--help"], ["--version"], ["fit", "--help"], ["score", "--help"]):
    assert run(words) == 0
names = {name.partition(".")[0] for name in set(sys.modules) - before}
heavy = {"sklearn", "matplotlib", "pyarrow", "pandas", "numba", "scipy"} & names
assert not heavy, heavy
assert "dspn.learning" not in sys.modules
"""
    found = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
