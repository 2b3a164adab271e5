"""Exact, linear-time probabilistic models of sequences, built on dynamic sum-product networks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from dspn._version import __version__

if TYPE_CHECKING:
    from dspn.data import Kind, Schema, Sequences, Variable
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
    from dspn.models import DSPN, HMM, HMMSPN, DSPNClassifier, Model, load
    from dspn.structure import DbnStructure, DbnTables, DynamicNetwork, Mixture, Root, Template

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

# Numba and scikit-learn take longer to import than to answer most questions, and the command line
# asks for neither where it only shows its help: everything is imported when it is first named.
_HOMES: Final = {
    "errors": (
        "ConvergenceWarning",
        "DataError",
        "DspnError",
        "EvidenceError",
        "ImpossibleEvidenceWarning",
        "ModelFileError",
        "NumericalError",
        "StructureError",
    ),
    "inference": (
        "Completion",
        "Filter",
        "FilterState",
        "Forecast",
        "Marginals",
        "Step",
        "Surprise",
        "VariableMarginals",
    ),
    "learning": (
        "AscentOptions",
        "AutoOptions",
        "ConditionalLikelihood",
        "EmOptions",
        "GrowthOptions",
        "Likelihood",
        "Priors",
        "SearchOptions",
        "SliceSpnOptions",
    ),
    "models": ("DSPN", "HMM", "HMMSPN", "DSPNClassifier", "Model", "load"),
    "data": ("Kind", "Schema", "Sequences", "Variable"),
    "structure": ("DbnStructure", "DbnTables", "DynamicNetwork", "Mixture", "Root", "Template"),
    "engine": (),
    "io": (),
    "leaves": (),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A public name, or a package of the library, imported when it is first named."""
    if name in _HOME_OF:
        return getattr(import_module(f"dspn.{_HOME_OF[name]}"), name)
    if name in _HOMES:
        return import_module(f"dspn.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_HOMES})
