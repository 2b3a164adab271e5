import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dspn import Model, Schema, Variable
from dspn.cli.app import run

SCHEMA = Schema(
    (
        Variable.categorical("sky", ["clear", "rain"]),
        Variable.continuous("celsius"),
        Variable.count("visitors"),
    )
)
TABLE = {"table": {"sequence": "day", "order": "hour"}}


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it wrote."""

    status: int
    out: str
    err: str

    def rows(self) -> list[list[str]]:
        return [line.split(",") for line in self.out.splitlines()]


Run = Callable[..., Ran]


def weather() -> Model:
    """A fair state and a foul one."""
    known = Model.from_hmm(
        start=[0.6, 0.4],
        transition=[[0.9, 0.1], [0.3, 0.7]],
        emissions={
            "sky": [[0.9, 0.1], [0.3, 0.7]],
            "celsius": [[20.0, 9.0], [14.0, 4.0]],
            "visitors": [[9.0], [4.0]],
        },
        schema=SCHEMA,
    )
    return Model(known.mixture, provenance=TABLE)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "weather.dspn"
    weather().save(path)
    return path


DAYS = """day,hour,sky,celsius,visitors,note
mon,1,clear,21.5,11,a
mon,2,clear,,7,b
mon,3,rain,15.1,,"c, d"
tue,1,,14.80,5,
tue,2,clear,18.2,,e
"""


@pytest.fixture
def days(tmp_path: Path) -> Path:
    path = tmp_path / "days.csv"
    path.write_text(DAYS)
    return path


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> Run:
    """Runs a command in this process; `piped` is its standard input."""
    monkeypatch.chdir(tmp_path)

    def ran(*words: object, piped: bytes | str | None = None) -> Ran:
        data = piped.encode() if isinstance(piped, str) else piped
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data or b""), "utf-8"))
        capsysbinary.readouterr()
        status = run([str(word) for word in words])
        sys.stdout.flush()
        out, err = capsysbinary.readouterr()
        return Ran(status, out.decode(errors="replace"), err.decode())

    return ran


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """Forty days of hourly records, with gaps."""
    count = 40
    rng = np.random.default_rng(0)
    lines = ["day,hour,sky,celsius,visitors"]
    for day in range(count):
        foul = np.cumsum(rng.random(6) < 0.3) % 2 == 1
        for hour in range(6):
            sky = "rain" if rng.random() < (0.7 if foul[hour] else 0.1) else "clear"
            celsius = f"{(14 if foul[hour] else 20) + 2 * rng.standard_normal():.1f}"
            visitors = str(rng.poisson(4 if foul[hour] else 30))
            cells = [cell if rng.random() > 0.1 else "" for cell in (sky, celsius, visitors)]
            lines.append(f"d{day},{hour},{','.join(cells)}")
    path = tmp_path / "long.csv"
    path.write_text("\n".join(lines) + "\n")
    return path
