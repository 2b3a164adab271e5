"""Learning from data: parameters by EM or along a gradient, structure by moves or by search."""

from dspn.learning.ascent import AscentFit, AscentOptions, AscentRecord, ascend
from dspn.learning.auto import Auto, AutoLearned, Move, learn_auto
from dspn.learning.diagnosis import DeadNode, check_finite, dead_nodes
from dspn.learning.em import EmStep, em_step, maximise
from dspn.learning.fitting import (
    EmFit,
    EmOptions,
    EmRecord,
    FitSettings,
    best_of,
    fit_em,
    restarts,
    scaled_families,
)
from dspn.learning.growth import GrowthMode, GrowthOptions, GrowthStep
from dspn.learning.learner import Ending, Learned, learn
from dspn.learning.partitions import PartitionOptions
from dspn.learning.plan import Plan
from dspn.learning.priors import DEFAULT_PRIORS, NO_PRIORS, Priors, log_prior
from dspn.learning.progress import Report, reporter
from dspn.learning.scores import LIKELIHOOD, ConditionalLikelihood, Likelihood, Score
from dspn.learning.search import Mode, SearchOptions
from dspn.learning.slice_spn import SliceSpnOptions
from dspn.learning.stopping import StopReason

__all__ = [
    "DEFAULT_PRIORS",
    "LIKELIHOOD",
    "NO_PRIORS",
    "AscentFit",
    "AscentOptions",
    "AscentRecord",
    "Auto",
    "AutoLearned",
    "ConditionalLikelihood",
    "DeadNode",
    "EmFit",
    "EmOptions",
    "EmRecord",
    "EmStep",
    "Ending",
    "FitSettings",
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
