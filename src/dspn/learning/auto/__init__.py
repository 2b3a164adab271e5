"""Automatic learning: layouts, richer slices and moves, chosen by what pays on validation data."""

from dspn.learning.auto.learner import AutoLearned, learn_auto
from dspn.learning.auto.options import DEFAULT_AUTO, Auto
from dspn.learning.auto.recipes import Move

__all__ = ["DEFAULT_AUTO", "Auto", "AutoLearned", "Move", "learn_auto"]
