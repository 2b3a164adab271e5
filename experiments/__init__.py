"""The experiments of the paper: fixed folds, results that are kept as they come, tables."""

from experiments.folds import Fold, folds_of

__all__ = ["Fold", "folds_of"]
