"""Arguments that several plots share: a model or its component, one sequence, some variables."""

from collections.abc import Iterable
from typing import Any, NamedTuple, final

import numpy as np

from dspn._arrays import Floats
from dspn._checks import is_number, whole_number
from dspn.data import Schema, Sequences
from dspn.data.sequences import sequences_of
from dspn.errors import DataError, StructureError
from dspn.models import Model
from dspn.structure import DynamicNetwork, Mixture

AnyModel = DynamicNetwork | Mixture | Model
"""What can be drawn: a model, or the network or mixture in it."""

Variables = int | str | Iterable[int | str] | None
"""Variables by name or number, one or several; None is all."""


@final
class Component(NamedTuple):
    """The component that is drawn; `words` name it and are empty where it is the only one."""

    network: DynamicNetwork
    number: int
    words: str


def checked_model(model: AnyModel, argument: str = "model") -> Model:
    """The model itself, or a model of the network or mixture."""
    if isinstance(model, Model):
        return model
    if isinstance(model, DynamicNetwork | Mixture):
        return Model(model)
    raise StructureError(
        f"`{argument}` must be a Model, Mixture or DynamicNetwork, found {type(model).__name__}; "
        "a fitted estimator has its model in `model_`."
    )


def component_of(model: Model, component: int | None, preference: Floats) -> Component:
    """The component with the number `component`, or without one that of the highest preference."""
    count = len(model.components)
    number = int(np.argmax(preference))
    if component is not None:
        number = whole_number(component, "component", StructureError, least=0)
        if number >= count:
            raise StructureError(
                f"`component` must be a number from 0 to {count - 1}, one of the components of the "
                f"model, but is {number}; leave it out for the one that counts most."
            )
    weight = model.weights[number]
    words = f"component {number} of {count}, weight {weight:.2g}" if count > 1 else ""
    return Component(model.components[number], number, words)


def heaviest_component(network: AnyModel, component: int | None) -> Component:
    """The component with the number `component`, or the one with the largest weight."""
    model = checked_model(network, "network")
    return component_of(model, component, model.weights)


def one_sequence(data: Any, schema: Schema) -> Sequences:
    """`data` as a batch of exactly one sequence."""
    sequence = sequences_of(data, schema, "sequence")
    if len(sequence) != 1:
        raise DataError(
            f"`sequence` must hold one sequence, but holds {len(sequence)}; pick one, as in "
            "data[3:4] or [array]."
        )
    return sequence


def variable_numbers(schema: Schema, variable: Variables) -> list[int]:
    """Numbers of the variables asked for, in the order given; all variables for None."""
    if variable is None:
        return list(range(len(schema)))
    single = isinstance(variable, str) or not isinstance(variable, Iterable)
    given: list[Any] = [variable] if single else list(variable)  # type: ignore[arg-type]
    numbers = [
        schema.index(v) if isinstance(v, str) else whole_number(v, "variable", DataError, least=0)
        for v in given
    ]
    if max(numbers, default=0) >= len(schema):
        raise DataError(
            f"`variable` must be a name or a number from 0 to {len(schema) - 1}, but is "
            f"{max(numbers)}; the names are {', '.join(schema.names[:20])}."
        )
    if not numbers or len(set(numbers)) != len(numbers):
        raise DataError(
            "`variable` must name variables, each once, but "
            f"{'names none' if not numbers else f'is {given}'}; leave it out for all."
        )
    return numbers


def checked_share(value: float, argument: str, example: float) -> float:
    """The value; raises unless it lies strictly between 0 and 1."""
    if not is_number(value) or not 0.0 < value < 1.0:
        raise DataError(
            f"`{argument}` must be a number strictly between 0 and 1, but is {value!r}; give for "
            f"example {example}."
        )
    return float(value)
