"""Leaf families: distributions of categories, numbers, counts and angles, and your own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dspn._arguments import Floats
from dspn.data.schema import Kind, Variable
from dspn.errors import DataError, ModelFileError, StructureError
from dspn.leaves.base import Family, Prior
from dspn.leaves.block import GaussianBlock, GaussianBlockPrior, with_blocks
from dspn.leaves.categorical import Categorical, CategoricalPrior
from dspn.leaves.gamma import Gamma, GammaPrior
from dspn.leaves.gaussian import Gaussian, GaussianPrior
from dspn.leaves.log_normal import LogNormal, LogNormalPrior
from dspn.leaves.negative_binomial import NegativeBinomial, NegativeBinomialPrior
from dspn.leaves.poisson import Poisson, PoissonPrior
from dspn.leaves.rules import Linear, LogLinear, Softmax, Table
from dspn.leaves.student_t import StudentT
from dspn.leaves.told import Source, Told, ToldPrior, with_context
from dspn.leaves.von_mises import VonMises, VonMisesPrior
from dspn.leaves.zero_inflated_poisson import ZeroInflatedPoisson, ZeroInflatedPoissonPrior

__all__ = [
    "Categorical", "CategoricalPrior", "Family", "Gamma", "GammaPrior", "Gaussian",
    "GaussianBlock", "GaussianBlockPrior",
    "GaussianPrior", "Linear", "LogLinear", "LogNormal", "LogNormalPrior", "NegativeBinomial",
    "NegativeBinomialPrior", "Poisson", "PoissonPrior", "Prior", "Softmax", "Source", "StudentT",
    "Table", "Told", "ToldPrior", "VonMises", "VonMisesPrior", "ZeroInflatedPoisson",
    "ZeroInflatedPoissonPrior", "family_for", "family_from_json", "with_blocks",
    "with_context",
]  # fmt: skip

# A family from outside, as a class or as any value of it, to read files with.
Families = Iterable[Family | type[Family]]
_KNOWN: Final[tuple[type[Family], ...]] = (
    Categorical, Gaussian, StudentT, LogNormal, Gamma, VonMises, Poisson, NegativeBinomial,
    ZeroInflatedPoisson, Told, GaussianBlock,
)  # fmt: skip
NAMES: Final = tuple(kind.name for kind in _KNOWN[1:-2])
"""Names of the families of numbers and counts, as `Variable` takes them."""


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


def family_named(text: str) -> Family | None:
    """The family of a name, with its first options after colons: "student_t:3", "von_mises:24".

    None where no family of numbers or counts has the name.
    """
    name, *options = text.split(":")
    for kind in _KNOWN[1:-2]:
        if kind.name == name:
            try:
                return kind(*map(float, options))
            except (TypeError, ValueError) as error:
                rule = f"the options of the leaf family {text!r} must be its own, as numbers"
                raise DataError(f"{rule}: {error}") from error
    return None


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
