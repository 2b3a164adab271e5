"""What is done to recorded values before a model sees them.

A preparation may learn from data: `fit` takes the training part and returns a value whose `apply`
does the same to any part. Nothing is remembered in between.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from dspn._arguments import require_type
from dspn.data import Kind, Schema, Sequences, Variable
from dspn.errors import DataError


class FittedPreparation(ABC):
    """A preparation that has learned what it needs."""

    @abstractmethod
    def apply(self, data: Sequences) -> Sequences:
        """The prepared sequences."""


class Preparation(ABC):
    """A preparation by its name and settings alone."""

    @abstractmethod
    def fit(self, data: Sequences) -> FittedPreparation:
        """What the training data say; no other data may be used."""


@final
@dataclass(frozen=True)
class Fixed(Preparation, FittedPreparation):
    """A function of the data that learns nothing."""

    function: Callable[[Sequences], Sequences]

    def fit(self, data: Sequences) -> "Fixed":
        """Itself."""
        checked_data(data)
        return self

    def apply(self, data: Sequences) -> Sequences:
        """What the function returns."""
        return self.function(data)


@final
@dataclass(frozen=True)
class FittedChain(FittedPreparation):
    """Fitted preparations, one after the other."""

    steps: tuple[FittedPreparation, ...]

    def apply(self, data: Sequences) -> Sequences:
        """What the last step makes of what the others have made."""
        for step in self.steps:
            data = step.apply(data)
        return data


@final
@dataclass(frozen=True)
class Chain(Preparation):
    """Preparations, one after the other; each learns from what those before it have made."""

    steps: Sequence[Preparation]

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))
        for step in self.steps:
            require_type(step, Preparation, "steps", DataError)

    def fit(self, data: Sequences) -> FittedChain:
        """Every step, fitted."""
        fitted = []
        for step in self.steps:
            fitted.append(step.fit(data))
            data = fitted[-1].apply(data)
        return FittedChain(tuple(fitted))


def checked_data(data: Any) -> Sequences:
    """The sequences; anything else is refused."""
    remedy = "`dspn.Sequences.from_arrays` makes one"
    require_type(data, Sequences, "data", DataError, remedy=remedy)
    found: Sequences = data
    return found


def check_schema(data: Sequences, schema: Schema) -> None:
    """Raises unless the data have the variables that a preparation was fitted to."""
    if checked_data(data).schema != schema:
        raise DataError(
            f"`data` must have the variables the preparation was fitted to, {list(schema.names)}, "
            f"each of the same kind, but has {list(data.schema.names)}."
        )


def numeric_columns(schema: Schema) -> list[int]:
    """Columns of the variables that are numbers; categorical ones stay as they are."""
    return [i for i, variable in enumerate(schema) if variable.kind is not Kind.CATEGORICAL]


def continuous(variable: Variable) -> Variable:
    """The variable for values that need not be whole; a categorical one stays as it is."""
    is_number = variable.kind is not Kind.CATEGORICAL
    return Variable.continuous(variable.name) if is_number else variable


def recoded(data: Sequences, values: Any, num_categories: int) -> Sequences:
    """The sequences with codes 0, 1, ... in place of numbers."""
    categories = tuple(range(num_categories))
    variables = [
        variable
        if variable.kind is Kind.CATEGORICAL
        else Variable.categorical(variable.name, categories)
        for variable in data.schema
    ]
    return Sequences.from_codes(values, data.offsets, Schema(tuple(variables)), data.ids)
