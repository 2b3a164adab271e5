"""Leaf families: categorical, Gaussian and Poisson distributions, and those of your own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dspn._arguments import Floats
from dspn.data.schema import Kind, Variable
from dspn.errors import ModelFileError, StructureError
from dspn.leaves.base import Family, Prior
from dspn.leaves.categorical import Categorical, CategoricalPrior
from dspn.leaves.gaussian import Gaussian, GaussianPrior
from dspn.leaves.poisson import Poisson, PoissonPrior

__all__ = [
    "Categorical", "CategoricalPrior", "Family", "Gaussian", "GaussianPrior", "Poisson",
    "PoissonPrior", "Prior", "family_for", "family_from_json",
]  # fmt: skip

# A family from outside, as a class or as any value of it, to read files with.
Families = Iterable[Family | type[Family]]
_KNOWN: Final[tuple[type[Family], ...]] = (Categorical, Gaussian, Poisson)


def family_for(variable: Variable, values: Floats | None = None) -> Family:
    """The family that a variable names, or that of its kind, scaled to values where given."""
    family: Family
    if variable.leaf is not None:
        family = variable.leaf
    elif variable.kind == Kind.CATEGORICAL:
        family = Categorical(variable.num_categories)
    else:
        family = Gaussian() if variable.kind == Kind.CONTINUOUS else Poisson()
    return family if values is None else family.scaled_to(values)


def family_from_json(fields: Mapping[str, object], families: Families = ()) -> Family:
    """The family that `Family.to_json` wrote: one of the library, or one of `families`."""
    arguments: dict[str, Any] = dict(fields)
    name = arguments.pop("name", None)
    given = [family if isinstance(family, type) else type(family) for family in families]
    for kind in (*_KNOWN, *given):
        if kind.name == name:
            try:
                return kind(**arguments)
            except (TypeError, StructureError) as error:
                raise ModelFileError(
                    f"a leaf family must have the fields of {name!r}, but is {dict(fields)}: "
                    f"{error}"
                ) from error
    raise ModelFileError(
        f"the `name` of a leaf family must be one of {[kind.name for kind in (*_KNOWN, *given)]}, "
        f"but is {name!r}. If that is a family of your own, load the file with its class, as in "
        "dspn.load(path, families=[...]); otherwise the file is damaged or was written by a newer "
        "version"
    )
