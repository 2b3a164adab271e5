import io
import re
import time

import pytest

from dspn import progress
from dspn.cli.console import rehearse
from dspn.errors import DataError


def shown(monkeypatch: pytest.MonkeyPatch, wait: float = 0.3, **options: bool) -> list[str]:
    monkeypatch.setattr(progress, "_FIRST_AFTER_S", 0.05)
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.05)
    out = io.StringIO()
    with progress.show_progress("score", stream=out, **options) as tell:
        time.sleep(wait / 2)
        tell("1,000 rows", 0.25)
        time.sleep(wait / 2)
    return out.getvalue().splitlines()


def test_lines_come_from_the_start_and_have_the_share_once_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = shown(monkeypatch)
    assert re.fullmatch(r"score: \d+ s", lines[0])
    assert re.fullmatch(r"score: 1,000 rows, 25 %, about \d+ s left, \d+ s", lines[-1])
    bound = shown(monkeypatch, is_bound=True)
    assert re.fullmatch(r"score: 1,000 rows, 25 %, at most \d+ s left, \d+ s", bound[-1])
    assert shown(monkeypatch, quiet=True) == []


def test_work_that_is_soon_over_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, wait=0.0) == []


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "0 s"), (99, "99 s"), (125, "2 min"), (7300, "2 h")]
)
def test_times_are_said_in_units_that_suit_them(seconds: float, words: str) -> None:
    assert progress.time_text(seconds) == words
    assert progress.share_text(None, seconds) == ""
    assert progress.share_text(0.01, seconds) == "1 %"
    assert progress.share_text(0.5, seconds) == f"50 %, about {words} left"


def test_a_share_may_be_a_function_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_FIRST_AFTER_S", 0.05)
    out = io.StringIO()
    with progress.show_progress("plot", stream=out) as tell:
        tell("", lambda: 0.25)
        time.sleep(0.15)
    assert re.fullmatch(r"plot: 25 %, about \d+ s left, \d+ s", out.getvalue().splitlines()[0])


def test_work_is_expected_to_take_as_long_for_all_slices_as_for_the_first() -> None:
    sizes: list[int] = []

    def work(size: int) -> None:
        sizes.append(size)
        time.sleep(size / 5000)

    share = rehearse(work, 25_600)  # five seconds in all
    assert sizes == [100, 100, 400, 1600] and share is not None
    time.sleep(0.1)
    assert 0.01 < share() < 0.03


def test_little_work_and_work_that_fails_are_not_rehearsed() -> None:
    def work(_: int) -> None:
        raise DataError("there is too little of it.")

    assert rehearse(work, 25_600) is None
    assert rehearse(lambda _: None, 100) is None
