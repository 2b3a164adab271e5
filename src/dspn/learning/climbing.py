"""Steps uphill by L-BFGS with a line search, one note for each, until a rule says stop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

import numpy as np

from dspn._arrays import Floats
from dspn.learning.stopping import StopReason, is_kept, stop_reason
from dspn.options import Options, number_field, whole_field

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

# A gradient this flat, in nats per sequence, leads nowhere.
_FLAT: Final = 1e-10
_LINE_SEARCH_STEPS: Final = 30


@final
@dataclass(frozen=True)
class AscentOptions(Options):
    """When an ascent stops: where nothing leads up, or earlier.

    Never before `min_steps`, it stops when a step has raised the penalised score per sequence by no
    more than `tolerance` times its size (which counts as 1 where it is less), or, with a validation
    set, after `patience` steps in a row without a better validation score. `memory` is the number
    of past steps from which the curvature is estimated.
    """

    max_steps: int = whole_field(100, least=0)
    min_steps: int = whole_field(0, least=0)
    tolerance: float = number_field(1e-6, least=0)
    patience: int = whole_field(5)
    memory: int = whole_field(10)


DEFAULT_ASCENT: Final = AscentOptions()


@final
@dataclass(frozen=True)
class AscentRecord:
    """What is known after `step` steps, in nats per sequence.

    `train` is the score on the training set, and `penalised` has the log prior added, less the
    terms of weights and probabilities that are exactly zero and stay so.
    """

    step: int
    train: float
    penalised: float
    validation: float | None


class Point(Protocol):
    """A place on the way: the penalised score there, and its gradient."""

    @property
    def penalised(self) -> float:
        """What is to rise."""

    @property
    def gradient(self) -> Floats:
        """Its derivatives in the coordinates."""


PointT = TypeVar("PointT", bound=Point)


@final
@dataclass(frozen=True, eq=False)
class Slope(Generic[PointT]):
    """What is climbed: where to begin, what is found at a vector, and the note of a step."""

    vector: Floats
    bounds: tuple[Floats, Floats]
    at: Callable[[Floats], PointT]
    record: Callable[[int, PointT], AscentRecord]
    on_step: Callable[[AscentRecord], None] | None = None
    deadline: Callable[[], bool] | None = None


@final
@dataclass(frozen=True, eq=False)
class Climbed(Generic[PointT]):
    """The place that was kept, and how it was reached.

    `score` is that of the validation set, or of the training set without one.
    """

    point: PointT
    history: tuple[AscentRecord, ...]
    score: float
    stopped: StopReason


@final
class _Climb(Generic[PointT]):
    """The steps taken so far, and the best place among them."""

    def __init__(self, slope: Slope[PointT], start: PointT, options: AscentOptions) -> None:
        self.slope = slope
        self.options = options
        self.latest: tuple[Floats, PointT] | None = None
        self.history = [slope.record(0, start)]
        self.best = (start, self.history[0])
        self.stopped = self._after(start)

    def loss(self, vector: Floats) -> tuple[float, Floats]:
        """What is made small: minus the penalised score, and its gradient."""
        point = self._point(vector)
        return -point.penalised, -point.gradient

    def step(self, intermediate_result: "OptimizeResult") -> None:
        """Takes note of a step; one that rounding has made useless is not taken."""
        point = self._point(intermediate_result.x)
        if point.penalised <= self.history[-1].penalised:
            self.stopped = StopReason.CONVERGED
            raise StopIteration
        self.history.append(self.slope.record(len(self.history), point))
        self.stopped = self._after(point)
        if self.stopped is not None:
            raise StopIteration

    def _point(self, vector: Floats) -> PointT:
        """What is found at a vector, known if it was the last one asked for."""
        if self.latest is None or not np.array_equal(self.latest[0], vector):
            self.latest = (vector.copy(), self.slope.at(vector))
        return self.latest[1]

    def _after(self, point: PointT) -> StopReason | None:
        """Keeps the newest place if it is better; says whether the ascent is over."""
        record = self.history[-1]
        if self.slope.on_step is not None:
            self.slope.on_step(record)
        if is_kept(record, self.best[1]):
            self.best = (point, record)
        is_due = self.slope.deadline is not None and bool(self.slope.deadline())
        return stop_reason(self.history, self.best[1].step, self.options, is_due=is_due)


def climb(slope: Slope[PointT], start: PointT, options: AscentOptions) -> Climbed[PointT]:
    """Steps that each raise the penalised score, from a start that may lie outside the bounds."""
    # Imported when it is used: it would take a fifth of the time that importing dspn takes.
    from scipy.optimize import Bounds, minimize

    taken = _Climb(slope, start, options)
    if taken.stopped is None and slope.vector.size:
        lower, upper = slope.bounds
        minimize(
            taken.loss,
            np.clip(slope.vector, lower, upper),
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(lower, upper),
            callback=taken.step,
            options={
                "maxcor": options.memory,
                "maxiter": options.max_steps,
                "maxfun": _LINE_SEARCH_STEPS * (options.max_steps + 1),
                "maxls": _LINE_SEARCH_STEPS,
                "ftol": 0.0,
                "gtol": _FLAT,
            },
        )
    point, record = taken.best
    score = record.train if record.validation is None else record.validation
    stopped = StopReason.CONVERGED if taken.stopped is None else taken.stopped
    return Climbed(point, tuple(taken.history), score, stopped)
