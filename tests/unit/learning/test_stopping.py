"""Which network a fit keeps, and which rule ends it, at the edges of the rules."""

import math
from dataclasses import dataclass

import pytest

from dspn.learning.stopping import StopReason, is_kept, stop_reason


@dataclass(frozen=True)
class Record:
    step: int = 0
    penalised: float = 0.0
    validation: float | None = None


@dataclass(frozen=True)
class Limits:
    max_steps: int = 100
    min_steps: int = 0
    tolerance: float = 2.0**-7
    patience: int = 3


@pytest.mark.parametrize(
    ("new", "best", "kept"),
    [
        (-1.0, -2.0, True),
        (-2.0, -1.0, False),
        (-1.0, -1.0, False),  # of equal networks the one with fewer steps
        (math.nextafter(-1.0, 0.0), -1.0, True),
        (-math.inf, -1.0, False),
        (-1.0, -math.inf, True),
        (-math.inf, -math.inf, True),
        (None, None, True),
    ],
)
def test_a_network_is_kept_if_it_is_better_or_nothing_tells(
    new: float | None, best: float | None, kept: bool
) -> None:
    assert is_kept(Record(validation=new), Record(validation=best)) is kept


@pytest.mark.parametrize(
    ("last", "least"), [(-64.0, 0.5), (64.0, 0.5), (-0.25, 2.0**-7), (0.0, 2.0**-7)]
)
def test_a_gain_is_too_small_up_to_the_tolerance(last: float, least: float) -> None:
    """2^-7 of 64 is 0.5; of numbers below 1 it is 2^-7 itself. All are exact in binary."""

    def ending(gain: float) -> StopReason | None:
        history = [Record(0, last - gain), Record(1, last)]
        return stop_reason(history, 1, Limits(), is_due=False)

    assert ending(least) is StopReason.CONVERGED
    assert ending(-1.0) is StopReason.CONVERGED
    assert ending(least + 2.0**-20) is None


def rising(steps: int) -> list[Record]:
    return [Record(step, float(step)) for step in range(steps + 1)]


@pytest.mark.parametrize(
    ("steps", "best_step", "limits", "reason"),
    [
        (0, 0, Limits(), None),
        (0, 0, Limits(max_steps=0), StopReason.MAX_STEPS),
        (2, 0, Limits(), None),
        (3, 0, Limits(), StopReason.PATIENCE),
        (4, 2, Limits(), None),
        (3, 0, Limits(min_steps=4), None),
        (4, 0, Limits(min_steps=4), StopReason.PATIENCE),
        (9, 9, Limits(max_steps=10), None),
        (10, 10, Limits(max_steps=10), StopReason.MAX_STEPS),
        (1, 1, Limits(tolerance=1.0), StopReason.CONVERGED),
        (1, 1, Limits(tolerance=1.0, min_steps=2), None),
    ],
)
def test_each_rule_ends_a_fit_at_its_step(
    steps: int, best_step: int, limits: Limits, reason: StopReason | None
) -> None:
    history = rising(steps)
    assert stop_reason(history, best_step, limits, is_due=False) is reason
    assert stop_reason(history, best_step, limits, is_due=True) is (reason or StopReason.DEADLINE)
