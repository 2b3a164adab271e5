"""What learning aims at: a number for each sequence, of which the mean is the score."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final
from weakref import WeakKeyDictionary

import numpy as np

from dspn._arrays import Floats
from dspn.engine import Program
from dspn.errors import DataError
from dspn.sequences import Kind, Schema, Sequences


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
        for name in self.class_variables:
            if name not in schema.names:
                raise DataError(
                    f"`class_variables` must be variables of the data "
                    f"({', '.join(schema.names)}), but {name!r} is none; correct the name."
                )
            variable = schema[schema.index(name)]
            if variable.kind is not Kind.CATEGORICAL:
                raise DataError(
                    f"`class_variables` must be categorical, but {name!r} is {variable.kind}; "
                    "turn it into categories, or choose another class variable."
                )
        if len(self.class_variables) == len(schema):
            raise DataError(
                "`class_variables` must leave at least one variable to condition on, but names "
                f"all of them ({', '.join(schema.names)}); leave one out, or use `Likelihood`."
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
