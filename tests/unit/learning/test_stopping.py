"""Which network a fit keeps, and which rule ends it, at the edges of the rules."""

import math
from typing import Any

import pytest

from dspn.learning.em import EmOptions
from dspn.learning.scores import FitLog, FitRecord, StopReason


def record(step: int = 0, penalised: float = 0.0, validation: float | None = None) -> FitRecord:
    return FitRecord(step, 0.0, penalised, validation)


def limits(**settings: Any) -> EmOptions:
    return EmOptions(**{"tolerance": 2.0**-7, "patience": 3, **settings})


def reason_after(records: list[FitRecord], options: EmOptions, is_due: bool) -> StopReason | None:
    """What a log says after the last of the records."""
    log: FitLog[None] = FitLog(options, None, lambda: is_due)
    return [log.add(None, own) for own in records][-1]


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
    assert record(validation=new).replaces(record(validation=best)) is kept


@pytest.mark.parametrize(
    ("last", "least"), [(-64.0, 0.5), (64.0, 0.5), (-0.25, 2.0**-7), (0.0, 2.0**-7)]
)
def test_a_gain_is_too_small_up_to_the_tolerance(last: float, least: float) -> None:
    """2^-7 of 64 is 0.5; of numbers below 1 it is 2^-7 itself. All are exact in binary."""

    def ending(gain: float) -> StopReason | None:
        return reason_after([record(0, last - gain), record(1, last)], limits(), False)

    assert ending(least) is StopReason.CONVERGED
    assert ending(-1.0) is StopReason.CONVERGED
    assert ending(least + 2.0**-20) is None


@pytest.mark.parametrize(
    ("steps", "best_step", "options", "reason"),
    [
        (0, 0, limits(), None),
        (0, 0, limits(max_steps=0), StopReason.MAX_STEPS),
        (2, 0, limits(), None),
        (3, 0, limits(), StopReason.PATIENCE),
        (4, 2, limits(), None),
        (3, 0, limits(min_steps=4), None),
        (4, 0, limits(min_steps=4), StopReason.PATIENCE),
        (9, 9, limits(max_steps=10), None),
        (10, 10, limits(max_steps=10), StopReason.MAX_STEPS),
        (1, 1, limits(tolerance=1.0), StopReason.CONVERGED),
        (1, 1, limits(tolerance=1.0, min_steps=2), None),
    ],
)
def test_each_rule_ends_a_fit_at_its_step(
    steps: int, best_step: int, options: EmOptions, reason: StopReason | None
) -> None:
    records = [record(step, float(step), -abs(step - best_step)) for step in range(steps + 1)]
    assert reason_after(records, options, False) is reason
    assert reason_after(records, options, True) is (reason or StopReason.DEADLINE)
