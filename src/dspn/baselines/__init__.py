"""Models of sequences to compare with, each behind the protocol of `Baseline`."""

from dspn.baselines.base import Baseline, Ending, FittedBaseline

__all__ = ["Baseline", "Ending", "FittedBaseline"]
