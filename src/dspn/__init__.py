"""Exact, linear-time probabilistic models of sequences, built on dynamic sum-product networks."""

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
from dspn.learning import ConditionalLikelihood, EmOptions, Likelihood, Priors
from dspn.learning.ascent import AscentOptions
from dspn.learning.growth import GrowthOptions
from dspn.learning.search import SearchOptions
from dspn.learning.slice_spn import SliceSpnOptions
from dspn.models import Model, load
from dspn.sequences import Kind, Schema, Sequences, Variable
from dspn.structure import DbnStructure, DbnTables, DynamicNetwork, Root, Template

if TYPE_CHECKING:
    from dspn.models import DSPN, HMM, HMMSPN, DSPNClassifier

__all__ = [
    "DSPN",
    "HMM",
    "HMMSPN",
    "AscentOptions",
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
    """An estimator, imported when it is first named; see `dspn.models`."""
    if name in models.__all__:
        return getattr(models, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
