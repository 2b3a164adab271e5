"""Ascent along the gradient of a score: what expectation maximisation cannot do for classifiers."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from scipy.optimize import Bounds, OptimizeResult, minimize

from dspn._arrays import Floats
from dspn._checks import require_type, whole_number
from dspn.engine import Program, compile_program
from dspn.errors import StructureError
from dspn.learning._stages import Part
from dspn.learning.fitting import StopReason, _weighted
from dspn.learning.gradient import FreeCoordinates, check_score, coordinates_of, score_gradient
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.scores import LIKELIHOOD, Score
from dspn.leaves.base import require_number
from dspn.sequences import Sequences
from dspn.sequences.reading import sequences_of
from dspn.structure import DynamicNetwork

# A gradient this flat, in nats per sequence, leads nowhere.
_FLAT: Final = 1e-10
_LINE_SEARCH_STEPS: Final = 30


@final
@dataclass(frozen=True)
class AscentOptions:
    """When an ascent stops: where nothing leads up, or earlier.

    Never before `min_steps`, it stops when a step has raised the penalised score per sequence by no
    more than `tolerance` times its size (which counts as 1 where it is less), or, with a validation
    set, after `patience` steps in a row without a better validation score. `memory` is the number
    of past steps from which the curvature is estimated.
    """

    max_steps: int = 100
    min_steps: int = 0
    tolerance: float = 1e-6
    patience: int = 5
    memory: int = 10

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        wholes = {"max_steps": 0, "min_steps": 0, "patience": 1, "memory": 1}
        for name, least in wholes.items():
            number = whole_number(getattr(self, name), name, StructureError, least=least)
            object.__setattr__(self, name, number)
        require_number("AscentOptions", "tolerance", self.tolerance, least=0, open_end=False)


DEFAULT_ASCENT: Final = AscentOptions()


@final
@dataclass(frozen=True)
class AscentRecord:
    """What is known of the network after `step` steps, in nats per sequence.

    `train` is its score on the training set, and `penalised` has the log prior added, less the
    terms of weights and probabilities that are exactly zero and stay so.
    """

    step: int
    train: float
    penalised: float
    validation: float | None


@final
@dataclass(frozen=True, eq=False)
class AscentFit:
    """The network that was kept: the best on the validation set, or the last one without a set.

    `score` is its score on the validation set, or on the training set without one.
    """

    network: DynamicNetwork
    history: tuple[AscentRecord, ...]
    score: float
    stopped: StopReason


@final
@dataclass(frozen=True, eq=False)
class _Point:
    """A network on the way, its mean score, that with the log prior, and the latter's gradient."""

    program: Program
    train: float
    penalised: float
    gradient: Floats


@final
@dataclass(frozen=True, eq=False)
class _Task:
    """What stays the same from the first step to the last, checked."""

    coordinates: FreeCoordinates
    train: Part
    validation: Sequences | None
    score: Score
    options: AscentOptions
    priors: Priors
    on_step: Callable[[AscentRecord], None] | None
    deadline: Callable[[], bool] | None

    def point(self, program: Program) -> _Point:
        """Values and gradient per sequence at a network."""
        of_score = score_gradient(self.coordinates, program, self.train, self.score)
        prior = self.coordinates.log_prior(program.network, self.priors)
        weight = float(self.train.weights.sum())
        return _Point(
            program,
            of_score.value / weight,
            (of_score.value + prior.value) / weight,
            (of_score.gradient + prior.gradient) / weight,
        )

    def record(self, step: int, point: _Point) -> AscentRecord:
        """The scores of a network on the way."""
        validation = None
        if self.validation is not None:
            validation = self.score.mean(point.program, self.validation)
        return AscentRecord(step, point.train, point.penalised, validation)

    def reason(self, history: list[AscentRecord], best_step: int) -> StopReason | None:
        """Which rule, if any, ends the ascent after the last record."""
        options, last = self.options, history[-1]
        if last.step >= max(options.min_steps, 1):
            gain = last.penalised - history[-2].penalised
            if gain <= options.tolerance * max(1.0, abs(last.penalised)):
                return StopReason.CONVERGED
            if last.step - best_step >= options.patience:
                return StopReason.PATIENCE
        if last.step >= options.max_steps:
            return StopReason.MAX_STEPS
        due = self.deadline is not None and bool(self.deadline())
        return StopReason.DEADLINE if due else None


@final
class _Climb:
    """The steps taken so far, and the best network among them."""

    def __init__(self, task: _Task, start: _Point) -> None:
        self.task = task
        self.latest: tuple[Floats, _Point] | None = None
        self.history = [task.record(0, start)]
        self.best = (start, self.history[0])
        self.stopped = self._after(start)

    def loss(self, vector: Floats) -> tuple[float, Floats]:
        """What is made small: minus the penalised score, and its gradient."""
        point = self._point(vector)
        return -point.penalised, -point.gradient

    def step(self, intermediate_result: OptimizeResult) -> None:
        """Takes note of a step; one that rounding has made useless is not taken."""
        point = self._point(intermediate_result.x)
        if point.penalised <= self.history[-1].penalised:
            self.stopped = StopReason.CONVERGED
            raise StopIteration
        self.history.append(self.task.record(len(self.history), point))
        self.stopped = self._after(point)
        if self.stopped is not None:
            raise StopIteration

    def _point(self, vector: Floats) -> _Point:
        """The network at a vector, known if it was the last one asked for."""
        if self.latest is None or not np.array_equal(self.latest[0], vector):
            network = self.task.coordinates.at(vector)
            point = self.task.point(self.best[0].program.rebound(network))
            self.latest = (vector.copy(), point)
        return self.latest[1]

    def _after(self, point: _Point) -> StopReason | None:
        """Keeps the newest network if it is better; says whether the ascent is over.

        Minus infinity is no validation score: while there is no other, the newest is kept.
        """
        record = self.history[-1]
        if self.task.on_step is not None:
            self.task.on_step(record)
        known = self.best[1].validation
        if (
            record.validation is None
            or known is None
            or record.validation > known
            or known == -np.inf
        ):
            self.best = (point, record)
        return self.task.reason(self.history, self.best[1].step)

    def fit(self) -> AscentFit:
        """The result."""
        point, record = self.best
        score = record.train if record.validation is None else record.validation
        return AscentFit(
            point.program.network,
            tuple(self.history),
            score,
            StopReason.CONVERGED if self.stopped is None else self.stopped,
        )


def ascend(
    network: DynamicNetwork,
    train: Sequences,
    *,
    validation: Sequences | None = None,
    score: Score = LIKELIHOOD,
    options: AscentOptions = DEFAULT_ASCENT,
    priors: Priors = DEFAULT_PRIORS,
    sample_weights: Floats | None = None,
    learnable: Collection[int] | None = None,
    on_step: Callable[[AscentRecord], None] | None = None,
    deadline: Callable[[], bool] | None = None,
    program: Program | None = None,
) -> AscentFit:
    """Steps to a local maximum of score plus log prior, from the network's own parameters.

    L-BFGS with a line search in free coordinates: every step raises the penalised score. Weights
    that are exactly zero stay zero. For a conditional likelihood the solution of `fit_em` is a good
    start. The leaves' families should be scaled to the data, see `scaled_families`.

    Args:
        validation: Sequences whose score chooses among the networks on the way, that before the
            first step included.
        sample_weights: How often each training sequence counts; zero leaves it out.
        learnable: Nodes of the template whose parameters may change; everything by default.
        on_step: Called with every record as soon as it is known.
        deadline: Asked after every step; the ascent ends when it says yes.
        program: The network compiled, where it is at hand.
    """
    require_type(priors, Priors, "priors", StructureError)
    coordinates = coordinates_of(network, learnable)
    check_score(score, network)
    task = _Task(
        coordinates,
        _weighted(sequences_of(train, network.schema, "train"), sample_weights),
        None if validation is None else sequences_of(validation, network.schema, "validation"),
        score,
        options,
        priors,
        on_step,
        deadline,
    )
    start = compile_program(network) if program is None else program.rebound(network)
    climb = _Climb(task, task.point(start))
    if climb.stopped is None and coordinates.vector.size:
        _take_steps(climb)
    return climb.fit()


def _take_steps(climb: _Climb) -> None:
    """L-BFGS within the bounds of the coordinates, until the climb stops or nothing leads up."""
    options, coordinates = climb.task.options, climb.task.coordinates
    lower, upper = coordinates.bounds(climb.task.priors)
    minimize(
        climb.loss,
        np.clip(coordinates.vector, lower, upper),
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(lower, upper),
        callback=climb.step,
        options={
            "maxcor": options.memory,
            "maxiter": options.max_steps,
            "maxfun": _LINE_SEARCH_STEPS * (options.max_steps + 1),
            "maxls": _LINE_SEARCH_STEPS,
            "ftol": 0.0,
            "gtol": _FLAT,
        },
    )
