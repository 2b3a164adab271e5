"""Ascent along the gradient of a score: what expectation maximisation cannot do for classifiers."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import final

from dspn._arrays import Floats
from dspn._checks import require_type
from dspn.engine import Program, compile_program
from dspn.errors import StructureError
from dspn.learning._stages import Part, weighted_part
from dspn.learning.climbing import DEFAULT_ASCENT, AscentOptions, AscentRecord, Slope, climb
from dspn.learning.gradient import FreeCoordinates, check_score, coordinates_of, score_gradient
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.scores import LIKELIHOOD, Score
from dspn.learning.stopping import StopReason
from dspn.sequences import Sequences
from dspn.sequences.reading import sequences_of
from dspn.structure import DynamicNetwork

__all__ = ["DEFAULT_ASCENT", "AscentFit", "AscentOptions", "AscentRecord", "ascend"]


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
    priors: Priors

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
        weighted_part(sequences_of(train, network.schema, "train"), sample_weights),
        None if validation is None else sequences_of(validation, network.schema, "validation"),
        score,
        priors,
    )
    start = compile_program(network) if program is None else program.rebind(network)
    slope = Slope(
        coordinates.vector,
        coordinates.bounds(priors),
        lambda vector: task.point(start.rebind(coordinates.at(vector))),
        task.record,
        on_step,
        deadline,
    )
    found = climb(slope, task.point(start), options)
    return AscentFit(found.point.program.network, found.history, found.score, found.stopped)
