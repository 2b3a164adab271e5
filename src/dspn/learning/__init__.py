"""Learning from data: expectation maximisation on expected flows, and when to stop it."""

from dspn.learning.diagnosis import DeadNode, check_finite, dead_nodes
from dspn.learning.em import EmStep, em_step, maximise
from dspn.learning.fitting import (
    EmFit,
    EmOptions,
    EmRecord,
    FitSettings,
    StopReason,
    best_of,
    fit_em,
    restarts,
    scaled_families,
)
from dspn.learning.priors import DEFAULT_PRIORS, NO_PRIORS, Priors, log_prior
from dspn.learning.scores import LIKELIHOOD, ConditionalLikelihood, Likelihood, Score

__all__ = [
    "DEFAULT_PRIORS",
    "LIKELIHOOD",
    "NO_PRIORS",
    "ConditionalLikelihood",
    "DeadNode",
    "EmFit",
    "EmOptions",
    "EmRecord",
    "EmStep",
    "FitSettings",
    "Likelihood",
    "Priors",
    "Score",
    "StopReason",
    "best_of",
    "check_finite",
    "dead_nodes",
    "em_step",
    "fit_em",
    "log_prior",
    "maximise",
    "restarts",
    "scaled_families",
]
