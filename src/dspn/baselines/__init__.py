"""Models of sequences to compare with, each behind the protocol of `Baseline`.

Those that need an extra are in packages of their own: `dspn.baselines.lstm`.
"""

from dspn.baselines.base import Baseline, Ending, FittedBaseline
from dspn.baselines.hmm import (
    FittedNetwork,
    HmmBaseline,
    HmmOptions,
    HmmSpnBaseline,
    HmmSpnOptions,
)
from dspn.baselines.learn_spn import FittedSpn, LearnSpnBaseline, LearnSpnOptions
from dspn.baselines.reveal import FittedReveal, RevealBaseline, RevealOptions
from dspn.baselines.search_score import (
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
