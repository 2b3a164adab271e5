"""Leaf families: categorical, Gaussian and Poisson distributions behind one interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from dspn.data import Kind, Variable
from dspn.errors import ModelFileError, StructureError
from dspn.leaves.base import Family, FloatArray, Prior
from dspn.leaves.categorical import Categorical, CategoricalPrior
from dspn.leaves.gaussian import Gaussian, GaussianPrior
from dspn.leaves.poisson import Poisson, PoissonPrior

__all__ = [
    "Categorical",
    "CategoricalPrior",
    "Family",
    "FloatArray",
    "Gaussian",
    "GaussianPrior",
    "Poisson",
    "PoissonPrior",
    "Prior",
    "family_for",
    "family_from_json",
]


def family_for(variable: Variable, values: FloatArray | None = None) -> Family:
    """The family of a variable's kind, scaled to its values where they are given."""
    family: Family
    match variable.kind:
        case Kind.CATEGORICAL:
            family = Categorical(variable.num_categories)
        case Kind.CONTINUOUS:
            family = Gaussian()
        case Kind.COUNT:
            family = Poisson()
        case _ as never:
            assert_never(never)
    return family if values is None else family.scaled_to(values)


def family_from_json(fields: Mapping[str, object]) -> Family:
    """The family that `Family.to_json` wrote."""
    arguments: dict[str, Any] = dict(fields)
    name = arguments.pop("name", None)
    try:
        match name:
            case "categorical":
                return Categorical(**arguments)
            case "gaussian":
                return Gaussian(**arguments)
            case "poisson":
                return Poisson(**arguments)
    except (TypeError, StructureError) as error:
        raise ModelFileError(
            f"a leaf family must have the fields of {name!r}, but is {dict(fields)}: {error}"
        ) from error
    raise ModelFileError(
        "the `name` of a leaf family must be 'categorical', 'gaussian' or 'poisson', "
        f"but is {name!r}. The file is damaged or was written by a newer version."
    )
