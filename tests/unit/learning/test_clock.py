"""When learning has to end."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from dspn.errors import StructureError
from dspn.learning import run
from dspn.learning.run import Clock


class Hand:
    """A clock that stands still until it is moved."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    own = Hand()
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=own.monotonic))
    return own


def test_clock_is_due_when_its_limit_has_passed_and_not_before(hand: Hand) -> None:
    timed = Clock(5.0)
    assert timed.seconds == 0 and not timed.is_due()
    hand.now += 4.999
    assert not timed.is_due()
    hand.now = 105.0
    assert timed.seconds == 5 and timed.is_due()


def test_clock_without_a_limit_is_due_only_once_it_was_stopped(hand: Hand) -> None:
    endless = Clock()
    hand.now += 1e9
    assert endless.limit is None and not endless.is_due()
    endless.stop()
    assert endless.is_due()
    hand.now = 0.0
    assert endless.is_due()


def test_stop_is_seen_by_other_threads() -> None:
    shared = Clock()
    seen: list[bool] = []

    def watch() -> None:
        while not shared.is_due():
            pass
        seen.append(True)

    thread = threading.Thread(target=watch)
    thread.start()
    shared.stop()
    thread.join(10)
    assert seen == [True]


@pytest.mark.parametrize("limit", [0, -1, 0.0, float("nan"), "5", [5], np.array(3.0), True])
def test_limit_that_is_no_positive_number_is_refused(limit: object) -> None:
    with pytest.raises(StructureError, match="`time_limit` must be a positive number of seconds"):
        Clock(limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [1, 0.5, np.float64(2.0), np.int64(3), float("inf")])
def test_any_positive_number_is_a_limit(limit: float) -> None:
    assert not Clock(limit).is_due()
