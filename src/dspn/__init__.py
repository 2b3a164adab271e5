"""Exact, linear-time probabilistic models of sequences, built on dynamic sum-product networks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dspn import models
from dspn._version import __version__
from dspn.errors import (
    ConvergenceWarning,
    DataError,
    DspnError,
    EvidenceError,
    ImpossibleEvidenceWarning,
    ModelFileError,
    NumericalError,
    StructureError,
)
from dspn.inference import (
    Completion,
    Filter,
    FilterState,
    Forecast,
    Marginals,
    Step,
    Surprise,
    VariableMarginals,
)
from dspn.models import Model, load
from dspn.sequences import Kind, Schema, Sequences, Variable
from dspn.structure import DbnStructure, DbnTables, DynamicNetwork, Mixture, Root, Template

if TYPE_CHECKING:
    from dspn.learning import (
        AscentOptions,
        AutoOptions,
        ConditionalLikelihood,
        EmOptions,
        GrowthOptions,
        Likelihood,
        Priors,
        SearchOptions,
        SliceSpnOptions,
    )
    from dspn.models import DSPN, HMM, HMMSPN, DSPNClassifier

__all__ = [
    "DSPN",
    "HMM",
    "HMMSPN",
    "AscentOptions",
    "AutoOptions",
    "Completion",
    "ConditionalLikelihood",
    "ConvergenceWarning",
    "DSPNClassifier",
    "DataError",
    "DbnStructure",
    "DbnTables",
    "DspnError",
    "DynamicNetwork",
    "EmOptions",
    "EvidenceError",
    "Filter",
    "FilterState",
    "Forecast",
    "GrowthOptions",
    "ImpossibleEvidenceWarning",
    "Kind",
    "Likelihood",
    "Marginals",
    "Mixture",
    "Model",
    "ModelFileError",
    "NumericalError",
    "Priors",
    "Root",
    "Schema",
    "SearchOptions",
    "Sequences",
    "SliceSpnOptions",
    "Step",
    "StructureError",
    "Surprise",
    "Template",
    "Variable",
    "VariableMarginals",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    """An estimator or an option of learning, imported when it is first named.

    A model that was loaded needs neither; see `dspn.models`.
    """
    if name in models.__all__:
        return getattr(models, name)
    if name == "learning" or name in __all__:
        learning = import_module("dspn.learning")
        return learning if name == "learning" else getattr(learning, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
