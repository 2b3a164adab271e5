"""What a baseline is: a model of sequences to compare with, behind one protocol."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar, final

import numpy as np

from dspn._arguments import Floats, require_type, whole_number
from dspn.data import Schema, Sequences
from dspn.data.sequences import sequences_of
from dspn.errors import DataError
from dspn.learning.run import Clock, Ending

__all__ = ["Baseline", "Ending", "FittedBaseline", "Task", "require_categorical", "task_of"]


@dataclass(frozen=True, eq=False)
class FittedBaseline(ABC):
    """A learned distribution over sequences, and how it was learned.

    `seconds` is the time it took, `iterations` the number of training iterations done (1 for a
    learner that does everything in one), so that their quotient is the time of one; `ending` says
    whether the time limit ended it.
    """

    seconds: float
    iterations: int
    ending: Ending

    @abstractmethod
    def log_likelihood(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence, (N,)."""


Fitted = TypeVar("Fitted", bound=FittedBaseline, covariant=True)


class Baseline(ABC, Generic[Fitted]):
    """A model of sequences to compare with: learned from some, chosen by others.

    Options are given to the constructor as one frozen value. What is learned depends on the data,
    the options and the seed alone, unless the time limit ends it: then the best so far is kept.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What tables call it."""

    @final
    def fit(
        self,
        train: Sequences,
        validation: Sequences,
        *,
        seed: int,
        time_limit: float | None = None,
    ) -> Fitted:
        """Learns from `train`, and chooses among what it has learned by `validation`.

        Args:
            time_limit: Seconds after which learning ends with the best so far; None for no limit.
        """
        return self._fitted(task_of(train, validation, seed=seed, time_limit=time_limit))

    @abstractmethod
    def _fitted(self, task: "Task") -> Fitted:
        """What is learned from data that are checked; the clock of the task runs."""


@final
@dataclass(frozen=True, eq=False)
class Task:
    """What a fit works on, checked: the data, the seed, and a clock that runs from now on."""

    train: Sequences
    validation: Sequences
    seed: int
    clock: Clock

    @property
    def schema(self) -> Schema:
        """The variables of a slice."""
        return self.train.schema

    @property
    def ending(self) -> Ending:
        """Why a fit that ends now has ended."""
        return Ending.TIME_LIMIT if self.clock.is_due() else Ending.FINISHED

    def rng(self, *part: int) -> np.random.Generator:
        """The randomness of one part of the work, whatever the others draw."""
        return np.random.default_rng([self.seed, *part])


def task_of(
    train: Sequences, validation: Sequences, *, seed: int, time_limit: float | None
) -> Task:
    """The arguments of `Baseline.fit`, checked; the clock starts."""
    clock = Clock(time_limit)
    require_type(train, Sequences, "train", DataError)
    require_type(validation, Sequences, "validation", DataError)
    held = sequences_of(validation, train.schema, "validation")
    return Task(train, held, whole_number(seed, "seed", DataError, least=0), clock)


def require_categorical(schema: Schema, model: str) -> None:
    """Raises unless every variable is categorical."""
    for variable in schema:
        if not variable.num_categories:
            raise DataError(
                f"`train` must have categorical variables only, as {model} has tables over them, "
                f"but variable {variable.name!r} is {variable.kind}; put its values into bins."
            )
