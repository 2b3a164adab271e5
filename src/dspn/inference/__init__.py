"""Exact answers: two passes over the slices serve every query."""

from dspn.inference.completion import Completion, complete
from dspn.inference.filter_state import FilterState
from dspn.inference.filtering import Filter, Step
from dspn.inference.forecasting import Forecast, forecast, sample_futures
from dspn.inference.leaf_mixtures import Marginals, VariableMarginals
from dspn.inference.likelihood import component_posteriors, log_likelihood, log_prob
from dspn.inference.marginals import impute, interface_posteriors, marginals
from dspn.inference.sampling import sample, sample_given
from dspn.inference.surprise import Surprise, surprise

__all__ = [
    "Completion",
    "Filter",
    "FilterState",
    "Forecast",
    "Marginals",
    "Step",
    "Surprise",
    "VariableMarginals",
    "complete",
    "component_posteriors",
    "forecast",
    "impute",
    "interface_posteriors",
    "log_likelihood",
    "log_prob",
    "marginals",
    "sample",
    "sample_futures",
    "sample_given",
    "surprise",
]
