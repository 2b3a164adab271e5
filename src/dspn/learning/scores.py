"""What learning aims at: a number for each sequence, of which the mean is the score.

`FitLog` keeps the scores of a fit step by step, and has the rule that ends it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, TypeVar, final
from weakref import WeakKeyDictionary

import numpy as np

from dspn._arguments import Floats
from dspn.data.schema import Kind, Schema
from dspn.data.sequences import Sequences
from dspn.engine.base import Program
from dspn.errors import DataError
from dspn.options import Options, number_field, whole_field

Point = TypeVar("Point")


class Score(ABC):
    """A score of a model on data, in nats; more is better. A score is a hashable value."""

    @abstractmethod
    def check(self, schema: Schema) -> None:
        """Raises a DataError unless the score can be computed for these variables."""

    @abstractmethod
    def sequence_scores(self, program: Program, data: Sequences) -> Floats:
        """The score of each sequence, (N,); -inf where the model excludes it, never NaN."""

    @final
    def mean(self, program: Program, data: Sequences, weights: Floats | None = None) -> float:
        """Mean over the sequences, weighted where weights are given."""
        return float(np.average(self.sequence_scores(program, data), weights=weights))

    @final
    def is_better(
        self, new: Program, old: Program, data: Sequences, *, caution: float = 0.0
    ) -> bool:
        """Whether the mean is greater by more than `caution` standard errors.

        The error is that of the mean of the sequences' differences. With few sequences the best of
        many candidates is better by luck alone, which some caution guards against; the more
        sequences there are, the less it asks for.
        """
        after, before = self.sequence_scores(new, data), self.sequence_scores(old, data)
        if not np.isfinite(before).all() or not np.isfinite(after).all() or len(data) < 2:
            return bool(np.mean(after) > np.mean(before))
        gains = after - before
        error = float(np.std(gains, ddof=1)) / math.sqrt(gains.size)
        return float(np.mean(gains)) > caution * error


@final
@dataclass(frozen=True)
class Likelihood(Score):
    """Log P(all observed entries), for models that generate."""

    def check(self, schema: Schema) -> None:
        """Nothing to ask for: every variable has a likelihood."""

    def sequence_scores(self, program: Program, data: Sequences) -> Floats:
        """Log-likelihood of each sequence."""
        return program.log_likelihood(data)


LIKELIHOOD: Final = Likelihood()

# Data are immutable, and every step of a fit asks for the same evidence.
_EVIDENCE: WeakKeyDictionary[Sequences, dict[tuple[str, ...], Sequences]] = WeakKeyDictionary()


@final
@dataclass(frozen=True)
class ConditionalLikelihood(Score):
    """Log P(entries of the class variables | all other entries), for models that classify."""

    class_variables: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse a string in place of a list, an empty list and a name given twice."""
        given: object = self.class_variables
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise DataError(
                f"`class_variables` must be a list of names of variables, but is {given!r}; "
                f"write ({given!r},)."
            )
        names = tuple(given)
        if not names or len(set(names)) < len(names):
            raise DataError(
                f"`class_variables` must name at least one variable, each once, but is {names!r}."
            )
        object.__setattr__(self, "class_variables", names)

    def check(self, schema: Schema) -> None:
        """Raises unless all are categorical variables of the schema and others remain."""
        listed = ", ".join(schema.names)
        for name in self.class_variables:
            if name not in schema.names:
                raise DataError(
                    f"`class_variables` must be variables of the data ({listed}), but {name!r} is "
                    "none; correct the name."
                )
            kind = schema[schema.index(name)].kind
            if kind is not Kind.CATEGORICAL:
                raise DataError(
                    f"`class_variables` must be categorical, but {name!r} is {kind}; turn it into "
                    "categories, or choose another class variable."
                )
        if len(self.class_variables) == len(schema):
            raise DataError(
                "`class_variables` must leave at least one variable to condition on, but names "
                f"all of them ({listed}); leave one out, or use `Likelihood`."
            )

    def evidence(self, data: Sequences) -> Sequences:
        """The data with every entry of the class variables missing."""
        known = _EVIDENCE.setdefault(data, {})
        if self.class_variables not in known:
            self.check(data.schema)
            values = data.values.copy()
            values[:, [data.schema.index(name) for name in self.class_variables]] = np.nan
            known[self.class_variables] = data.with_values(values)
        return known[self.class_variables]

    def sequence_scores(self, program: Program, data: Sequences) -> Floats:
        """Log P(all entries) - log P(all entries but those of the class variables)."""
        joint = program.log_likelihood(data)
        given = program.log_likelihood(self.evidence(data))
        possible = joint > -np.inf
        return np.where(possible, joint - np.where(possible, given, 0.0), -np.inf)


class StopReason(StrEnum):
    """Why a fit ended."""

    CONVERGED = "converged"
    PATIENCE = "patience"
    MAX_STEPS = "max_steps"
    DEADLINE = "deadline"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class StopOptions(Options):
    """When a fit by steps ends.

    Never before `min_steps`, it stops when a step has raised the penalised score per sequence by no
    more than `tolerance` times its size (which counts as 1 where it is less), or, with a validation
    set, after `patience` steps in a row without a better validation score.
    """

    max_steps: int = whole_field(100, least=0)
    min_steps: int = whole_field(0, least=0)
    tolerance: float = number_field(1e-5, least=0)
    patience: int = whole_field(5)


@final
@dataclass(frozen=True)
class FitRecord:
    """What is known after `step` steps, in nats per sequence.

    `train` is the score on the training set, and `penalised` has the log prior added; an ascent
    leaves out the terms of weights and probabilities that are exactly zero and stay so. With
    mini-batches of EM `train` is the mean over the pass that led to the network, each sequence seen
    before the update that it was part of.
    """

    step: int
    train: float
    penalised: float
    validation: float | None

    def replaces(self, best: "FitRecord") -> bool:
        """Whether its network is kept: always without validation, else with a better score.

        Minus infinity is no score: for as long as there is no other, the last network is kept.
        """
        if self.validation is None or best.validation is None:
            return True
        return self.validation > best.validation or best.validation == -np.inf


@final
@dataclass(eq=False)
class FitLog(Generic[Point]):
    """The records of a fit so far, the best point among them, and the rule that ends the fit.

    `on_step` is called with every record. `deadline` is asked after every step; the fit ends when
    it returns true.
    """

    options: StopOptions
    on_step: Callable[[FitRecord], None] | None = None
    deadline: Callable[[], bool] | None = None
    history: list[FitRecord] = field(default_factory=list, init=False)
    best: tuple[Point, FitRecord] | None = field(default=None, init=False)

    def is_due(self) -> bool:
        """Whether time is up."""
        return self.deadline is not None and bool(self.deadline())

    def add(self, point: Point, record: FitRecord) -> StopReason | None:
        """Takes note of a step; returns which rule, if any, ends the fit."""
        stopped = self._note(point, record)
        if self.on_step is not None:
            self.on_step(record)
        return stopped or (StopReason.DEADLINE if self.is_due() else None)

    def replay(self, history: Iterable[FitRecord], best: Point) -> StopReason | None:
        """Takes note of steps before an interruption; returns which rule, if any, had ended them.

        `best` is the best point of the steps.
        """
        stopped = None
        for record in history:
            stopped = self._note(best, record)
        return stopped

    def _note(self, point: Point, record: FitRecord) -> StopReason | None:
        self.history.append(record)
        if self.best is None or record.replaces(self.best[1]):
            self.best = (point, record)
        limits = self.options
        if record.step >= max(limits.min_steps, 1):
            gain = record.penalised - self.history[-2].penalised
            if gain <= limits.tolerance * max(1.0, abs(record.penalised)):
                return StopReason.CONVERGED
            if record.step - self.best[1].step >= limits.patience:
                return StopReason.PATIENCE
        return StopReason.MAX_STEPS if record.step >= limits.max_steps else None
