"""Exact, linear-time probabilistic models of sequences, built on dynamic sum-product networks."""

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
from dspn.structure import DbnStructure, DbnTables, DynamicNetwork, Root, Template

__version__ = "0.1.0"

__all__ = [
    "Completion",
    "ConvergenceWarning",
    "DataError",
    "DbnStructure",
    "DbnTables",
    "DspnError",
    "DynamicNetwork",
    "EvidenceError",
    "Filter",
    "FilterState",
    "Forecast",
    "ImpossibleEvidenceWarning",
    "Kind",
    "Marginals",
    "Model",
    "ModelFileError",
    "NumericalError",
    "Root",
    "Schema",
    "Sequences",
    "Step",
    "StructureError",
    "Surprise",
    "Template",
    "Variable",
    "VariableMarginals",
    "load",
]
