import io
import re
import time

import pytest

from dspn import progress


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
