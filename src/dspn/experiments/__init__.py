"""The experiments of the paper: fixed folds, results that are kept as they come, tables."""

from dspn.experiments.folds import Fold, folds_of

__all__ = ["Fold", "folds_of"]
