"""Exact, linear-time probabilistic models of sequences, built on dynamic sum-product networks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from dspn._version import __version__ as __version__

if TYPE_CHECKING:
    from dspn.data import Kind as Kind
    from dspn.data import Schema as Schema
    from dspn.data import Sequences as Sequences
    from dspn.data import Variable as Variable
    from dspn.data.dataset import Dataset as Dataset
    from dspn.data.prepare import prepare as prepare
    from dspn.data.ts import read_ts as read_ts
    from dspn.errors import ConvergenceWarning as ConvergenceWarning
    from dspn.errors import DataError as DataError
    from dspn.errors import DspnError as DspnError
    from dspn.errors import EvidenceError as EvidenceError
    from dspn.errors import ImpossibleEvidenceWarning as ImpossibleEvidenceWarning
    from dspn.errors import ModelFileError as ModelFileError
    from dspn.errors import NumericalError as NumericalError
    from dspn.errors import StructureError as StructureError
    from dspn.inference import Completion as Completion
    from dspn.inference import Filter as Filter
    from dspn.inference import FilterState as FilterState
    from dspn.inference import Forecast as Forecast
    from dspn.inference import Marginals as Marginals
    from dspn.inference import Step as Step
    from dspn.inference import Surprise as Surprise
    from dspn.inference import VariableMarginals as VariableMarginals
    from dspn.learning import AscentOptions as AscentOptions
    from dspn.learning import Auto as Auto
    from dspn.learning import ConditionalLikelihood as ConditionalLikelihood
    from dspn.learning import Distilled as Distilled
    from dspn.learning import EmOptions as EmOptions
    from dspn.learning import GrowthOptions as GrowthOptions
    from dspn.learning import Likelihood as Likelihood
    from dspn.learning import OnlineOptions as OnlineOptions
    from dspn.learning import Priors as Priors
    from dspn.learning import SearchOptions as SearchOptions
    from dspn.learning import SliceSpnOptions as SliceSpnOptions
    from dspn.models import DSPN as DSPN
    from dspn.models import HMM as HMM
    from dspn.models import HMMSPN as HMMSPN
    from dspn.models import DSPNClassifier as DSPNClassifier
    from dspn.models import Em as Em
    from dspn.models import Model as Model
    from dspn.models import Paper as Paper
    from dspn.models import load as load
    from dspn.structure import DbnStructure as DbnStructure
    from dspn.structure import DbnTables as DbnTables
    from dspn.structure import DynamicNetwork as DynamicNetwork
    from dspn.structure import Mixture as Mixture
    from dspn.structure import Root as Root
    from dspn.structure import Template as Template

# Numba and scikit-learn take longer to import than most queries take to answer, and the command
# line needs neither to show its help: every public name is imported when it is first used.
_HOMES: Final = {
    "errors": "ConvergenceWarning DataError DspnError EvidenceError ImpossibleEvidenceWarning "
    "ModelFileError NumericalError StructureError",
    "inference": "Completion Filter FilterState Forecast Marginals Step Surprise VariableMarginals",
    "learning": "AscentOptions Auto ConditionalLikelihood Distilled EmOptions GrowthOptions "
    "Likelihood OnlineOptions Priors SearchOptions SliceSpnOptions",
    "models": "DSPN HMM HMMSPN DSPNClassifier Em Model Paper load",
    "data": "Kind Schema Sequences Variable",
    "data.dataset": "Dataset",
    "data.prepare": "prepare",
    "data.ts": "read_ts",
    "structure": "DbnStructure DbnTables DynamicNetwork Mixture Root Template",
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names.split()}
_PACKAGES: Final = {
    *(home for home in _HOMES if "." not in home),
    "engine",
    "executors",
    "inputs",
    "io",
    "leaves",
}
__all__ = sorted([*_HOME_OF, "__version__"])


def __getattr__(name: str) -> Any:
    """A public name, or a package of the library, imported when it is first used."""
    if name in _HOME_OF:
        return getattr(import_module(f"dspn.{_HOME_OF[name]}"), name)
    if name in _PACKAGES:
        return import_module(f"dspn.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
