"""Exact answers: two passes over the slices serve every query."""

from dspn.inference.completion import Completion, complete
from dspn.inference.evaluation import Evaluation, Score, backtest, evaluate, informed_by
from dspn.inference.filter import Filter, FilterState, Step
from dspn.inference.forecast import Forecast, forecast, sample_futures
from dspn.inference.likelihood import component_posteriors, log_likelihood, log_prob
from dspn.inference.marginals import (
    Imputation,
    Marginals,
    VariableMarginals,
    impute,
    impute_with_bands,
    interface_posteriors,
    marginals,
)
from dspn.inference.sampling import sample, sample_given
from dspn.inference.surprise import Surprise, surprise
from dspn.inference.tails import Cell

__all__ = [
    "Cell", "Completion", "Evaluation", "Filter", "FilterState", "Forecast", "Imputation",
    "Marginals", "Score", "Step", "Surprise", "VariableMarginals", "backtest", "complete",
    "component_posteriors", "evaluate", "forecast", "impute", "impute_with_bands", "informed_by",
    "interface_posteriors", "log_likelihood", "log_prob", "marginals", "sample", "sample_futures",
    "sample_given", "surprise",
]  # fmt: skip
