"""Ascent along the gradient of a score: what expectation maximisation cannot do for classifiers.

`ascend` changes one network, `discriminate` changes the models of several classes together so that
log P(class | sequence) rises. With b_c the logits of the classes and L_c(x) the log-likelihood
under the model of class c, log P(y | x) is the log-softmax of b + L(x) at y. Its derivative in L_c
is 1[y = c] - P(c | x), so its gradient in the parameters of a model is a sum of that model's flows
with these weights: one pass for the sequences of the class, whose weights are positive, less one
for the others.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar, final

import numpy as np
from scipy.special import log_softmax

from dspn._arguments import Floats, Ints, require_type
from dspn.data.sequences import Sequences, sequences_of
from dspn.engine import Program, compile_program
from dspn.engine.base import log_shares, plus
from dspn.errors import DataError, StructureError
from dspn.learning.em import Part
from dspn.learning.gradient import FreeCoordinates, check_score, coordinates_of, score_gradient
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.scores import LIKELIHOOD, FitLog, FitRecord, Score, StopOptions, StopReason
from dspn.leaves.base import FREE_LIMIT
from dspn.options import number_field, whole_field
from dspn.structure.network import DynamicNetwork

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

Model = TypeVar("Model")

# A gradient this flat, in nats per sequence, leads nowhere.
_FLAT: Final = 1e-10
_LINE_SEARCH_STEPS: Final = 30
# Sequences whose class is as certain as this add nothing to a gradient.
_LEAST_WEIGHT: Final = 1e-12


@final
@dataclass(frozen=True)
class AscentOptions(StopOptions):
    """When an ascent stops: where nothing leads up, or earlier.

    Never before `min_steps`, it stops when a step has raised the penalised score per sequence by no
    more than `tolerance` times its size (which counts as 1 where it is less), or, with a validation
    set, after `patience` steps in a row without a better validation score. `memory` is the number
    of past steps from which the curvature is estimated.
    """

    tolerance: float = number_field(1e-6, least=0)
    memory: int = whole_field(10)


DEFAULT_ASCENT: Final = AscentOptions()


class _Point(NamedTuple, Generic[Model]):
    """A model on the way, its mean score, the score with the log prior, and its gradient."""

    model: Model
    train: float
    penalised: float
    gradient: Floats


def _climb(
    start: _Point[Model],
    at: Callable[[Floats], _Point[Model]],
    vector: Floats,
    bounds: Floats,
    options: AscentOptions,
    validate: Callable[[Model], float | None],
    log: FitLog[_Point[Model]],
) -> tuple[Model, float, StopReason]:
    """Steps uphill by L-BFGS with a line search; each raises the penalised score.

    Returns the model that is kept, its score, and why the ascent ended.

    Args:
        start: Where the ascent begins; it may lie outside the bounds.
        at: The point at a vector.
        vector: That of the start.
        bounds: The least and the largest vector that is tried, (2, coordinates).
        options: When to stop.
        validate: The score of a model on the validation set; None without one.
        log: Takes the records and says when to stop.
    """
    # Imported when it is used: it would take a fifth of the time that importing dspn takes.
    from scipy.optimize import Bounds, minimize

    latest = np.empty(0), start
    stopped: StopReason | None = None

    def point_at(x: Floats) -> _Point[Model]:
        """The point at a vector; the last one is remembered."""
        nonlocal latest
        if not np.array_equal(latest[0], x):
            latest = x.copy(), at(x)
        return latest[1]

    def loss(x: Floats) -> tuple[float, Floats]:
        point = point_at(x)
        return -point.penalised, -point.gradient

    def take(point: _Point[Model]) -> None:
        nonlocal stopped
        held = validate(point.model)
        record = FitRecord(len(log.history), point.train, point.penalised, held)
        stopped = log.add(point, record)

    def step(intermediate_result: "OptimizeResult") -> None:
        """Takes note of a step; one that rounding has made useless is not taken."""
        nonlocal stopped
        point = point_at(intermediate_result.x)
        if point.penalised > log.history[-1].penalised:
            take(point)
        else:
            stopped = StopReason.CONVERGED
        if stopped is not None:
            raise StopIteration

    take(start)
    if stopped is None and vector.size:
        minimize(
            loss,
            np.clip(vector, *bounds),
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(*bounds),
            callback=step,
            options={
                "maxcor": options.memory,
                "maxiter": options.max_steps,
                "maxfun": _LINE_SEARCH_STEPS * (options.max_steps + 1),
                "maxls": _LINE_SEARCH_STEPS,
                "ftol": 0.0,
                "gtol": _FLAT,
            },
        )
    assert log.best is not None
    best, record = log.best
    score = record.train if record.validation is None else record.validation
    return best.model, score, stopped or StopReason.CONVERGED


# One network.


@final
@dataclass(frozen=True, eq=False)
class AscentFit:
    """The network that was kept: the best on the validation set, or the last one without a set.

    `score` is its score on the validation set, or on the training set without one.
    """

    network: DynamicNetwork
    history: tuple[FitRecord, ...]
    score: float
    stopped: StopReason


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
    on_step: Callable[[FitRecord], None] | None = None,
    deadline: Callable[[], bool] | None = None,
    program: Program | None = None,
) -> AscentFit:
    """Steps to a local maximum of score plus log prior, from the network's own parameters.

    L-BFGS with a line search in free coordinates: every step raises the penalised score. Weights
    that are exactly zero stay zero. For a conditional likelihood the solution of `fit_em` is a good
    start. The leaves' families should be scaled to the data, see `scaled_families`.

    Args:
        network: The network to start from.
        train: The training sequences.
        validation: Sequences whose score chooses among the networks on the way, that before the
            first step included.
        score: What is to rise: a likelihood or a conditional likelihood.
        options: When to stop.
        priors: The pseudo-observations.
        sample_weights: How often each training sequence counts; zero leaves it out.
        learnable: Nodes of the template whose parameters may change; everything by default.
        on_step: Called with every record as soon as it is known.
        deadline: Asked after every step; the ascent ends when it returns true.
        program: The network compiled, where it is at hand.
    """
    require_type(priors, Priors, "priors", StructureError)
    coordinates = coordinates_of(network, learnable)
    check_score(score, network)
    part = Part.of(sequences_of(train, network.schema, "train"), sample_weights)
    held = None if validation is None else sequences_of(validation, network.schema, "validation")
    start = compile_program(network) if program is None else program.rebind(network)
    weight = float(part.weights.sum())

    def point(own: Program) -> _Point[Program]:
        of_score = score_gradient(coordinates, own, part, score)
        prior = coordinates.log_prior(own.network, priors)
        return _Point(
            own,
            of_score.value / weight,
            (of_score.value + prior.value) / weight,
            (of_score.gradient + prior.gradient) / weight,
        )

    log: FitLog[_Point[Program]] = FitLog(options, on_step, deadline)
    best, value, stopped = _climb(
        point(start),
        lambda vector: point(start.rebind(coordinates.at(vector))),
        coordinates.vector,
        coordinates.bounds(priors),
        options,
        lambda own: None if held is None else score.mean(own, held),
        log,
    )
    return AscentFit(best.network, tuple(log.history), value, stopped)


# Models of several classes.


@final
@dataclass(frozen=True, eq=False)
class LabelledSequences:
    """Sequences, the number of each one's class, and how often each counts."""

    data: Sequences
    labels: Ints
    weights: Floats

    def mean(self, log_probabilities: Floats) -> float:
        """Mean log P(class | sequence), from a row of log-probabilities for each sequence."""
        own = log_probabilities[np.arange(self.labels.size), self.labels]
        return float(np.average(own, weights=self.weights))


def class_likelihoods(programs: Sequence[Program], data: Sequences) -> Floats:
    """Log P(sequence | class), as totals (TERMS, sequences, classes); -inf where impossible."""
    return np.stack([program.log_totals(data) for program in programs], axis=2)


def class_posteriors(log_likelihoods: Floats, logits: Floats) -> Floats:
    """Log P(class | sequence), (sequences, classes), from the totals of `class_likelihoods`.

    A sequence that is impossible in every class has the prior probabilities of the classes.
    """
    nowhere = np.all(log_likelihoods[0] == -np.inf, axis=1)
    known = np.where(nowhere[:, None], 0.0, log_likelihoods)
    return log_shares(plus(known, logits))[0]


@final
@dataclass(frozen=True, eq=False)
class DiscriminativeFit:
    """The models and logits that were kept: the best on the validation set, or the last ones.

    `score` is the mean of log P(class | sequence) on the validation set, or on the training set
    without one.
    """

    networks: tuple[DynamicNetwork, ...]
    logits: Floats
    history: tuple[FitRecord, ...]
    score: float
    stopped: StopReason


_Classes = tuple[tuple[Program, ...], Floats]


class _Discrimination(NamedTuple):
    """What stays the same from the first step to the last."""

    start: tuple[Program, ...]
    coordinates: tuple[FreeCoordinates, ...]
    train: LabelledSequences
    priors: Priors

    def at(self, vector: Floats) -> _Point[_Classes]:
        """The models at a vector of logits and the coordinates of each model."""
        sizes = [len(self.start), *(own.vector.size for own in self.coordinates)]
        logits, *parts = np.split(vector, np.cumsum(sizes)[:-1])
        programs = tuple(
            program.rebind(own.at(part))
            for program, own, part in zip(self.start, self.coordinates, parts, strict=True)
        )
        return self.point(programs, logits)

    def point(self, programs: tuple[Program, ...], logits: Floats) -> _Point[_Classes]:
        """Values and gradient per sequence."""
        train = self.train
        rows = np.arange(train.labels.size)
        known = class_likelihoods(programs, train.data)
        if np.any(known[0, rows, train.labels] == -np.inf):
            first = int(np.argmin(known[0, rows, train.labels]))
            raise DataError(
                f"sequence {first} of `train` has probability zero under the model of its class "
                f"{train.labels[first]}, which no step can change. Leave it out, or learn the "
                "model with positive pseudo-counts."
            )
        found = class_posteriors(known, logits)
        pull = -np.exp(found)
        pull[rows, train.labels] += 1.0
        pull *= train.weights[:, None]
        gradients, penalty = [pull.sum(axis=0)], 0.0
        for program, own, pulled in zip(programs, self.coordinates, pull.T, strict=True):
            prior = own.log_prior(program.network, self.priors)
            gradients.append(prior.gradient + self._model_gradient(program, own, pulled))
            penalty += prior.value
        total, score = float(train.weights.sum()), train.mean(found)
        gradient = np.concatenate(gradients) / total
        return _Point((programs, logits), score, score + penalty / total, gradient)

    def _model_gradient(self, program: Program, own: FreeCoordinates, pull: Floats) -> Floats:
        """Gradient of sum_i pull_i L(x_i) in the coordinates of one model."""
        total = np.zeros(own.vector.size)
        for sign in (1.0, -1.0):
            chosen = np.flatnonzero(sign * pull > _LEAST_WEIGHT)
            if chosen.size:
                flows = program.expected_flows(self.train.data[chosen], np.abs(pull[chosen]))
                total += sign * own.gradient(program.network, flows.flows)
        return total


def discriminate(
    networks: Sequence[DynamicNetwork],
    logits: Floats,
    train: LabelledSequences,
    *,
    validation: LabelledSequences | None = None,
    options: AscentOptions = DEFAULT_ASCENT,
    priors: Priors = DEFAULT_PRIORS,
    on_step: Callable[[FitRecord], None] | None = None,
) -> DiscriminativeFit:
    """Steps to a maximum of sum log P(class | sequence) plus the log priors of all models.

    L-BFGS with a line search in free coordinates, from the models as they are: every step raises
    the penalised score.

    Args:
        networks: The model of each class.
        logits: The logarithm of the prior of each class.
        train: The training sequences with their classes.
        validation: Chooses among the models on the way, those at the start included.
        options: When to stop.
        priors: The pseudo-observations.
        on_step: Called with every record as soon as it is known.
    """
    require_type(priors, Priors, "priors", StructureError)
    size = len(networks)
    if size < 2 or np.shape(logits) != (size,) or not np.all(np.isfinite(logits)):
        raise StructureError(
            f"`networks` must be those of two classes or more, with a finite logit for each, but "
            f"there are {size} and logits of shape {np.shape(logits)}."
        )
    if train.labels.min() < 0 or train.labels.max() >= size:
        raise DataError(
            f"labels must number the classes from 0 to {size - 1}, but run from "
            f"{train.labels.min()} to {train.labels.max()}."
        )
    own = np.asarray(logits, dtype=np.float64)
    coordinates = tuple(map(coordinates_of, networks))
    task = _Discrimination(tuple(map(compile_program, networks)), coordinates, train, priors)
    vector = np.concatenate([own, *(part.vector for part in coordinates)])
    limits = [np.outer([-FREE_LIMIT, FREE_LIMIT], np.ones(size))]
    bounds = np.concatenate([*limits, *(part.bounds(priors) for part in coordinates)], axis=1)

    def validate(classes: _Classes) -> float | None:
        if validation is None:
            return None
        known = class_likelihoods(classes[0], validation.data)
        return validation.mean(class_posteriors(known, classes[1]))

    log: FitLog[_Point[_Classes]] = FitLog(options, on_step)
    start = task.point(task.start, own)
    climbed = _climb(start, task.at, vector, bounds, options, validate, log)
    (programs, found), score, stopped = climbed
    best = tuple(program.network for program in programs)
    return DiscriminativeFit(best, log_softmax(found), tuple(log.history), score, stopped)
