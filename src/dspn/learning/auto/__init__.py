"""Automatic learning: layouts, richer slices and moves, chosen by what pays on validation data."""

from dspn.learning.auto.base import DEFAULT_AUTO, Auto, BlockRecord, Move, Recipe, Trial
from dspn.learning.auto.learner import AutoLearned, learn_auto
from dspn.learning.auto.moves import DEFAULT_MOVES
from dspn.learning.auto.planner import AutoState

__all__ = [
    "DEFAULT_AUTO",
    "DEFAULT_MOVES",
    "Auto",
    "AutoLearned",
    "AutoState",
    "BlockRecord",
    "Move",
    "Recipe",
    "Trial",
    "learn_auto",
]
