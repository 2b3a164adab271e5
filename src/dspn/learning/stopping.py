"""When a fit ends, and which of the networks on its way is kept: one rule for all fits."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import numpy as np


class StopReason(StrEnum):
    """Why a fit ended."""

    CONVERGED = "converged"
    PATIENCE = "patience"
    MAX_STEPS = "max_steps"
    DEADLINE = "deadline"


class FitRecord(Protocol):
    """What every fit knows of the network after `step` steps, in nats per sequence."""

    @property
    def step(self) -> int:
        """How many steps led there."""

    @property
    def penalised(self) -> float:
        """What the steps raise: the training score with the log prior."""

    @property
    def validation(self) -> float | None:
        """The score on the validation set; None without one."""


class FitLimits(Protocol):
    """The numbers that say when to stop."""

    @property
    def max_steps(self) -> int:
        """The most steps."""

    @property
    def min_steps(self) -> int:
        """Steps before which only `max_steps` and the time count."""

    @property
    def tolerance(self) -> float:
        """Least gain of a step, relative to what it raises."""

    @property
    def patience(self) -> int:
        """Steps in a row without a better validation score."""


def is_kept(new: FitRecord, best: FitRecord) -> bool:
    """Whether the newer network is kept: always without validation, else with a better score.

    Minus infinity is no score: for as long as there is no other, the last network is kept.
    """
    if new.validation is None or best.validation is None:
        return True
    return new.validation > best.validation or best.validation == -np.inf


def stop_reason(
    history: Sequence[FitRecord], best_step: int, limits: FitLimits, *, is_due: bool
) -> StopReason | None:
    """Which rule, if any, ends a fit after the last record."""
    last = history[-1]
    if last.step >= max(limits.min_steps, 1):
        gain = last.penalised - history[-2].penalised
        if gain <= limits.tolerance * max(1.0, abs(last.penalised)):
            return StopReason.CONVERGED
        if last.step - best_step >= limits.patience:
            return StopReason.PATIENCE
    if last.step >= limits.max_steps:
        return StopReason.MAX_STEPS
    return StopReason.DEADLINE if is_due else None
