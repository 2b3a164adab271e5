"""Models of several classes, changed together so that log P(class | sequence) rises.

With b_c the logits of the classes and L_c(x) the log-likelihood under the model of class c,
log P(y | x) is the log-softmax of b + L(x) at y. Its derivative in L_c is 1[y = c] - P(c | x), so
its gradient in the parameters of a model is a sum of that model's flows with these weights: one
pass for the sequences of the class, whose weights are positive, less one for the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np
from scipy.special import log_softmax

from dspn._arrays import Floats, Ints
from dspn._checks import require_type
from dspn.engine import Program, compile_program
from dspn.engine.base import log_shares, plus
from dspn.errors import DataError, StructureError
from dspn.learning.climbing import DEFAULT_ASCENT, AscentOptions, AscentRecord, Slope, climb
from dspn.learning.gradient import FreeCoordinates, coordinates_of
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.stopping import StopReason
from dspn.leaves.base import FREE_LIMIT
from dspn.sequences import Sequences
from dspn.structure import DynamicNetwork

# Sequences whose class is as sure as this add nothing to a gradient.
_LEAST_WEIGHT: Final = 1e-12


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

    Where a sequence is impossible in every class, only the logits speak.
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
    history: tuple[AscentRecord, ...]
    score: float
    stopped: StopReason


@final
@dataclass(frozen=True, eq=False)
class _Point:
    """Models on the way, their mean score, that with the log prior, and the latter's gradient."""

    programs: tuple[Program, ...]
    logits: Floats
    train: float
    penalised: float
    gradient: Floats


@final
@dataclass(frozen=True, eq=False)
class _Task:
    """What stays the same from the first step to the last."""

    start: tuple[Program, ...]
    logits: Floats
    train: LabelledSequences
    validation: LabelledSequences | None
    priors: Priors

    @cached_property
    def coordinates(self) -> tuple[FreeCoordinates, ...]:
        return tuple(coordinates_of(program.network) for program in self.start)

    @cached_property
    def vector(self) -> Floats:
        """Logits, then the coordinates of each model, as they are at the start."""
        return np.concatenate([self.logits, *(own.vector for own in self.coordinates)])

    def bounds(self) -> tuple[Floats, Floats]:
        """Least and largest entries of the vector that may be tried."""
        size = self.logits.size
        lows, highs = [np.full(size, -FREE_LIMIT)], [np.full(size, FREE_LIMIT)]
        for own in self.coordinates:
            low, high = own.bounds(self.priors)
            lows.append(low)
            highs.append(high)
        return np.concatenate(lows), np.concatenate(highs)

    def at(self, vector: Floats) -> _Point:
        """The models at a vector, with their score and its gradient."""
        sizes = [self.logits.size, *(own.vector.size for own in self.coordinates)]
        logits, *parts = np.split(vector, np.cumsum(sizes)[:-1])
        programs = tuple(
            program.rebind(own.at(part))
            for program, own, part in zip(self.start, self.coordinates, parts, strict=True)
        )
        return self.point(programs, logits)

    def point(self, programs: tuple[Program, ...], logits: Floats) -> _Point:
        """Values and gradient per sequence."""
        train = self.train
        known = class_likelihoods(programs, train.data)
        _require_possible(known, train)
        found = class_posteriors(known, logits)
        pull = -np.exp(found)
        pull[np.arange(train.labels.size), train.labels] += 1.0
        pull *= train.weights[:, None]
        gradients, penalty = [pull.sum(axis=0)], 0.0
        for number, (program, own) in enumerate(zip(programs, self.coordinates, strict=True)):
            prior = own.log_prior(program.network, self.priors)
            gradients.append(prior.gradient + self._of_model(program, own, pull[:, number]))
            penalty += prior.value
        total = float(train.weights.sum())
        score = train.mean(found)
        return _Point(
            programs, logits, score, score + penalty / total, np.concatenate(gradients) / total
        )

    def _of_model(self, program: Program, own: FreeCoordinates, pull: Floats) -> Floats:
        """Gradient of sum_i pull_i L(x_i) in the coordinates of one model."""
        total = np.zeros(own.vector.size)
        for sign in (1.0, -1.0):
            chosen = np.flatnonzero(sign * pull > _LEAST_WEIGHT)
            if chosen.size:
                flows = program.expected_flows(self.train.data[chosen], np.abs(pull[chosen]))
                total += sign * own.gradient(program.network, flows.flows)
        return total

    def record(self, step: int, point: _Point) -> AscentRecord:
        """The scores of models on the way."""
        held = None
        if self.validation is not None:
            own = self.validation
            found = class_posteriors(class_likelihoods(point.programs, own.data), point.logits)
            held = own.mean(found)
        return AscentRecord(step, point.train, point.penalised, held)


def discriminate(
    networks: Sequence[DynamicNetwork],
    logits: Floats,
    train: LabelledSequences,
    *,
    validation: LabelledSequences | None = None,
    options: AscentOptions = DEFAULT_ASCENT,
    priors: Priors = DEFAULT_PRIORS,
) -> DiscriminativeFit:
    """Steps to a maximum of sum log P(class | sequence) plus the log priors of all models.

    L-BFGS with a line search in free coordinates, from the models as they are: every step raises
    the penalised score. `networks[c]` is the model of class c, and `logits[c]` the logarithm of its
    prior. The validation set chooses among the models on the way, those at the start included.
    """
    require_type(priors, Priors, "priors", StructureError)
    _check_classes(networks, logits, train)
    task = _Task(
        tuple(compile_program(network) for network in networks),
        np.asarray(logits, dtype=np.float64),
        train,
        validation,
        priors,
    )
    slope = Slope(task.vector, task.bounds(), task.at, task.record)
    found = climb(slope, task.point(task.start, task.logits), options)
    return DiscriminativeFit(
        tuple(program.network for program in found.point.programs),
        log_softmax(found.point.logits),
        found.history,
        found.score,
        found.stopped,
    )


def _require_possible(log_likelihoods: Floats, train: LabelledSequences) -> None:
    """Raises where a sequence has probability zero in its own class."""
    own = log_likelihoods[0, np.arange(train.labels.size), train.labels]
    if np.any(own == -np.inf):
        first = int(np.argmin(own))
        raise DataError(
            f"sequence {first} of `train` has probability zero under the model of its class "
            f"{train.labels[first]}, which no step can change. Leave it out, or learn the model "
            "with positive pseudo-counts."
        )


def _check_classes(
    networks: Sequence[DynamicNetwork], logits: Floats, train: LabelledSequences
) -> None:
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
