"""Arguments that several plots share: a model or its component, one sequence, some variables."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from dspn._arguments import Floats, is_number, whole_number
from dspn.data.schema import Schema
from dspn.data.sequences import Sequences, sequences_of
from dspn.errors import DataError, StructureError
from dspn.models.model import Model
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork

AnyModel = DynamicNetwork | Mixture | Model
"""What can be drawn: a model, or the network or mixture in it."""

Variables = int | str | Iterable[int | str] | None
"""Variables by name or number, one or several; None is all."""


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


def component_of(model: Model, component: int | None, preference: Floats) -> tuple[int, str]:
    """The number of the component to draw, and words that name it where there are several.

    Args:
        model: The model with the components.
        component: The number that was asked for, if any.
        preference: Without a number the component with the highest preference is drawn.
    """
    count = len(model.components)
    number = int(np.argmax(preference))
    if component is not None:
        number = whole_number(component, "component", StructureError, least=0)
        if number >= count:
            raise StructureError(
                f"`component` must be a number from 0 to {count - 1}, one of the components of the "
                f"model, but is {number}; leave it out for the one that counts most."
            )
    words = f"component {number} of {count}, weight {model.weights[number]:.2g}"
    return number, words if count > 1 else ""


def heaviest_component(network: AnyModel, component: int | None) -> tuple[DynamicNetwork, str]:
    """The component asked for, or the one with the largest weight; and the words that name it."""
    model = checked_model(network, "network")
    number, words = component_of(model, component, model.weights)
    return model.components[number], words


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
