"""Learning from data: parameters by EM or along a gradient, structure by moves or by search."""

from dspn.learning.ascent import AscentFit, AscentOptions, ascend
from dspn.learning.auto import Auto, AutoLearned, Move, learn_auto
from dspn.learning.distill import Distillation, Distilled, Teacher, distil
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
from dspn.learning.online import OnlineOptions, OnlineRecord, OnlineState, OnlineUpdate
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

__all__ = ["AscentFit", "AscentOptions", "ascend"]
__all__ += ["Auto", "AutoLearned", "Move", "learn_auto"]
__all__ += ["DeadNode", "EmFit", "EmOptions", "EmStep", "best_of", "check_finite", "dead_nodes"]
__all__ += ["em_step", "fit_em", "maximise", "restarts", "scaled_families"]
__all__ += ["Distillation", "Distilled", "Teacher", "distil"]
__all__ += ["GrowthMode", "GrowthOptions", "GrowthStep"]
__all__ += ["Learned", "Plan", "learn"]
__all__ += ["Mode", "PartitionOptions", "SearchOptions", "SliceSpnOptions"]
__all__ += ["OnlineOptions", "OnlineRecord", "OnlineState", "OnlineUpdate"]
__all__ += ["DEFAULT_PRIORS", "NO_PRIORS", "Priors", "log_prior"]
__all__ += ["Ending", "Report", "reporter"]
__all__ += ["LIKELIHOOD", "ConditionalLikelihood", "FitRecord", "Likelihood", "Score", "StopReason"]
