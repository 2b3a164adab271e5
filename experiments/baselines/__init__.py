"""Models of sequences to compare with, each behind the protocol of `Baseline`.

Those that need PyTorch are in a package of their own: `experiments.baselines.lstm`.
"""

from experiments.baselines.base import Baseline, Ending, FittedBaseline
from experiments.baselines.hmm import (
    FittedNetwork,
    HmmBaseline,
    HmmOptions,
    HmmSpnBaseline,
    HmmSpnOptions,
)
from experiments.baselines.learn_spn import FittedSpn, LearnSpnBaseline, LearnSpnOptions
from experiments.baselines.reveal import FittedReveal, RevealBaseline, RevealOptions
from experiments.baselines.search_score import (
    FittedSearchScore,
    SearchScoreBaseline,
    SearchScoreOptions,
)

__all__ = [
    "Baseline",
    "Ending",
    "FittedBaseline",
    "FittedNetwork",
    "FittedReveal",
    "FittedSearchScore",
    "FittedSpn",
    "HmmBaseline",
    "HmmOptions",
    "HmmSpnBaseline",
    "HmmSpnOptions",
    "LearnSpnBaseline",
    "LearnSpnOptions",
    "RevealBaseline",
    "RevealOptions",
    "SearchScoreBaseline",
    "SearchScoreOptions",
]
