"""Automatic learning: layouts, richer slices and moves, chosen by what pays on validation data."""

from dspn.learning.auto.learner import AutoLearned, learn_auto
from dspn.learning.auto.options import DEFAULT_AUTO, AutoOptions
from dspn.learning.auto.recipes import Move

__all__ = ["DEFAULT_AUTO", "AutoLearned", "AutoOptions", "Move", "learn_auto"]
