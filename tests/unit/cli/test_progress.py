"""Percent and time left from the first second on, in commands whose work is one piece."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from dspn.cli import console, source
from dspn.data.prepare import prepare
from dspn.executors import executor_of

from .conftest import Run

FIT = ("--learner", "em", "--interfaces", 2, "--seed", 0, "--validation", 0, "-q")


@pytest.fixture
def rehearsed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the time of the work was known at its beginning, for each work."""
    found: list[bool] = []
    usual = console.rehearse

    def record(work: Callable[[int], object], num_slices: int) -> Callable[[], float] | None:
        share = usual(work, num_slices)
        found.append(share is not None and 0 <= share() < 1)
        return share

    monkeypatch.setattr(console, "rehearse", record)
    monkeypatch.setattr(source, "rehearse", record)
    return found


@pytest.mark.parametrize(
    "words",
    [
        "evaluate MODEL TABLE",
        "backtest MODEL TABLE --steps 2",
        "report MODEL TABLE -o x.html",
        "plot calibration MODEL TABLE -o x.svg",
        "surprise MODEL TABLE --fitted",
        "surprise MODEL TABLE --sort",
        "impute MODEL TABLE",
        "forecast MODEL TABLE",
    ],
)
def test_work_of_one_piece_is_rehearsed_and_answers_the_same(
    command: Run, tmp_path: Path, rehearsed: list[bool], words: str
) -> None:
    rng, apart = np.random.default_rng(0), words.endswith("--sort")
    cells = [f"{x:.2f}" if x < 1 else "" for x in rng.normal(size=300)]
    owner = ["ab"[n % 2] if apart else "a" for n in range(300)]
    rows = (f"{i},{t},{x}\n" for t, (i, x) in enumerate(zip(owner, cells, strict=True)))
    Path("x.csv").write_text("id,t,x\n" + "".join(rows))
    sort = ("--sort",) if apart else ()
    assert command("fit", "x.csv", "-s", "id", "-t", "t", *sort, *FIT, "-o", "x.dspn").status == 0
    given = words.replace("MODEL", "x.dspn").replace("TABLE", "x.csv").split()
    shown = command(*given)
    assert shown.status == 0 and rehearsed == [True]
    silent = command(*given, "-q")
    assert silent.out == shown.out and rehearsed == [True]


def test_preparation_by_several_workers_tells_the_share_of_all(tmp_path: Path) -> None:
    for number in range(8):
        rows = "".join(f"{number},{t},{t / 7}\n" for t in range(50))
        (tmp_path / f"{number}.csv").write_text("id,t,x\n" + rows)
    shares: list[float | None] = []
    prepare(
        str(tmp_path / "*.csv"),
        tmp_path / "out",
        sequence="id",
        order="t",
        executor=executor_of("threads", 2),
        on_progress=lambda *own: shares.append(own[2]),
    )
    known = [share for share in shares if share is not None]
    assert known and known[-1] > 0.9 and max(known) <= 1.0


def test_no_rows_are_told_before_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, object]] = []

    @contextmanager
    def show(title: str, *, quiet: bool) -> Iterator[Callable[[str, object], None]]:
        yield lambda done, share: told.append((done, share))

    monkeypatch.setattr(console, "show_progress", show)
    with console.show_rows("forecast", quiet=False) as advance:
        advance(0, 0.25)
        advance(1, 0.5)
    assert told == [("", 0.25), ("1 row", 0.5)]
