"""Automatic learning: layouts, richer slices and moves, chosen by what pays on validation data."""

from dspn.learning.auto.base import DEFAULT_AUTO as DEFAULT_AUTO
from dspn.learning.auto.base import Auto as Auto
from dspn.learning.auto.base import BlockRecord as BlockRecord
from dspn.learning.auto.base import Move as Move
from dspn.learning.auto.base import Recipe as Recipe
from dspn.learning.auto.base import Trial as Trial
from dspn.learning.auto.learner import AutoLearned as AutoLearned
from dspn.learning.auto.learner import learn_auto as learn_auto
from dspn.learning.auto.moves import DEFAULT_MOVES as DEFAULT_MOVES
from dspn.learning.auto.planner import AutoState as AutoState
