"""The networks that expectation maximisation passes through, by full batches or by mini-batches."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._checks import sequence_weights
from dspn.engine import Expectation, ExpectedFlows, NetworkFlows, Program
from dspn.errors import DataError, EvidenceError
from dspn.learning.em import maximise
from dspn.learning.priors import Priors
from dspn.sequences import Sequences


@final
@dataclass(frozen=True, eq=False)
class Part:
    """Sequences with their weights, all positive, and their places in the training set."""

    data: Sequences
    weights: Floats
    places: Ints

    def picked(self, members: Ints) -> "Part":
        """Some of the sequences."""
        return Part(self.data[members], self.weights[members], self.places[members])

    def mean(self, values: Floats) -> float:
        """Weighted mean of a number for each sequence."""
        return float(np.average(values, weights=self.weights))

    def flows(self, program: Program) -> Expectation:
        """Expected flows; a sequence of probability zero is named by its place and id."""
        try:
            return program.expected_flows(self.data, self.weights)
        except EvidenceError:
            impossible = np.flatnonzero(program.log_likelihood(self.data) == -np.inf)
            if not impossible.size:
                raise
        first = int(impossible[np.argmin(self.places[impossible])])
        own = "" if self.data.ids is None else f" (id {self.data.ids[first]!r})"
        others = f", as have {impossible.size - 1} others" if impossible.size > 1 else ""
        raise DataError(
            f"sequence {self.places[first]}{own} of `train` has probability zero under the "
            f"network{others}, so nothing can be learned from it. Leave it out, mark its "
            "impossible entries as missing, or start from parameters without zeros."
        )


def weighted_part(train: Sequences, sample_weights: Floats | None) -> Part:
    """The sequences of positive weight."""
    size = len(train)
    if sample_weights is None:
        return Part(train, np.ones(size), np.arange(size))
    weights = sequence_weights(sample_weights, "sample_weights", DataError, size)
    part = Part(train, weights, np.arange(size))
    return part if weights.all() else part.picked(np.flatnonzero(weights))


@final
@dataclass(frozen=True, eq=False)
class Stage:
    """A network on the way, the statistics it was made from, and its mean log-likelihood.

    At the start the statistics are those that the network itself gives.
    """

    program: Program
    statistics: ExpectedFlows
    train: float


@final
@dataclass(frozen=True)
class Maximiser:
    """The maximisation step of a fit: its priors, and the nodes it may change."""

    priors: Priors
    learnable: frozenset[int] | None

    def __call__(self, program: Program, statistics: ExpectedFlows) -> Program:
        """The program with the parameters that fit the statistics best."""
        network = maximise(program.network, statistics, self.priors, self.learnable)
        return program.rebind(network)


def full_batch(
    program: Program, train: Part, maximiser: Maximiser, max_steps: int
) -> Iterator[Stage]:
    """Every step from the flows of all sequences, which come with the likelihood before it."""
    found = train.flows(program)
    yield Stage(program, found.flows, train.mean(found.log_likelihood))
    for step in range(1, max_steps + 1):
        statistics = found.flows
        program = maximiser(program, statistics)
        if step < max_steps:
            found = train.flows(program)
            values = found.log_likelihood
        else:
            values = program.log_likelihood(train.data)
        yield Stage(program, statistics, train.mean(values))


@final
@dataclass(frozen=True, eq=False)
class Batches:
    """Sequences by batches of a size, and how much each batch moves the statistics."""

    size: int
    step_power: float
    step_delay: float
    rng: np.random.Generator
    is_due: Callable[[], bool]

    def share(self, number: int) -> float:
        """The share of the statistics that batch `number` replaces, counted from 1."""
        return float((number + self.step_delay) ** -self.step_power)


def mini_batch(
    program: Program, train: Part, maximiser: Maximiser, max_steps: int, settings: Batches
) -> Iterator[Stage]:
    """Stepwise EM (Cappé and Moulines): the statistics are a moving average over batches.

    They begin as those of all sequences, so that no batch has to stand for what it has not seen.
    Batches are drawn once and come in a new order at every pass, which is one step. Where time is
    up within a pass, the pass ends with the batch at hand.
    """
    found = train.flows(program)
    statistics = found.flows
    yield Stage(program, statistics, train.mean(found.log_likelihood))
    size, rng = len(train.data), settings.rng
    parts = np.array_split(rng.permutation(size), -(-size // settings.size))
    batches = [train.picked(np.sort(members)) for members in parts]
    number = 0
    for step in range(max_steps):
        if step == 0:
            program = maximiser(program, statistics)
        total = weight = 0.0
        for index in rng.permutation(len(batches)).tolist():
            batch = batches[index]
            found = batch.flows(program)
            total += float(found.log_likelihood @ batch.weights)
            weight += float(batch.weights.sum())
            number += 1
            share = settings.share(number)
            scale = share * size / len(batch.data)
            statistics = _blended(statistics, 1.0 - share, found.flows, scale)
            program = maximiser(program, statistics)
            if settings.is_due():
                break
        yield Stage(program, statistics, total / weight)


def _blended(one: ExpectedFlows, a: float, other: ExpectedFlows, b: float) -> ExpectedFlows:
    """The weighted sum a * one + b * other."""

    def blend(mine: NetworkFlows, theirs: NetworkFlows) -> NetworkFlows:
        leaves = (a * x + b * y for x, y in zip(mine.leaves, theirs.leaves, strict=True))
        return NetworkFlows(a * mine.weights + b * theirs.weights, tuple(leaves))

    bottom = None
    if one.bottom is not None and other.bottom is not None:
        bottom = blend(one.bottom, other.bottom)
    return ExpectedFlows(blend(one.template, other.template), blend(one.top, other.top), bottom)
