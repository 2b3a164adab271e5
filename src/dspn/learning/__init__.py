"""Learning from data: parameters by EM or along a gradient, structure by moves or by search."""

from dspn.learning.ascent import AscentFit, AscentOptions, ascend
from dspn.learning.auto import Auto, AutoLearned, Move, learn_auto
from dspn.learning.em import (
    DeadNode,
    EmFit,
    EmOptions,
    EmStep,
    best_of,
    check_finite,
    dead_nodes,
    em_step,
    fit_em,
    maximise,
    restarts,
    scaled_families,
)
from dspn.learning.growth import GrowthMode, GrowthOptions, GrowthStep
from dspn.learning.learner import Learned, Plan, learn
from dspn.learning.partitions import PartitionOptions
from dspn.learning.priors import DEFAULT_PRIORS, NO_PRIORS, Priors, log_prior
from dspn.learning.run import Ending, Report, reporter
from dspn.learning.scores import (
    LIKELIHOOD,
    ConditionalLikelihood,
    FitRecord,
    Likelihood,
    Score,
    StopReason,
)
from dspn.learning.search import Mode, SearchOptions
from dspn.learning.slice_spn import SliceSpnOptions

__all__ = [
    "DEFAULT_PRIORS",
    "LIKELIHOOD",
    "NO_PRIORS",
    "AscentFit",
    "AscentOptions",
    "Auto",
    "AutoLearned",
    "ConditionalLikelihood",
    "DeadNode",
    "EmFit",
    "EmOptions",
    "EmStep",
    "Ending",
    "FitRecord",
    "GrowthMode",
    "GrowthOptions",
    "GrowthStep",
    "Learned",
    "Likelihood",
    "Mode",
    "Move",
    "PartitionOptions",
    "Plan",
    "Priors",
    "Report",
    "Score",
    "SearchOptions",
    "SliceSpnOptions",
    "StopReason",
    "ascend",
    "best_of",
    "check_finite",
    "dead_nodes",
    "em_step",
    "fit_em",
    "learn",
    "learn_auto",
    "log_prior",
    "maximise",
    "reporter",
    "restarts",
    "scaled_families",
]
