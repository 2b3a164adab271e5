"""Which move to make next: the one that has paid most for its work, with hope for the untried."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, final

from dspn.learning.auto.recipes import Move

# How much is hoped for from a move that was tried seldom, in shares of what moves paid on average.
_HOPE: Final = 0.7
# What a move is taken to have paid before it was tried, compared with the others.
_EXPECTED: Final[Mapping[Move, float]] = {
    Move.CLUSTERS: 1.0,
    Move.SPLIT: 1.0,
    Move.SHARED: 1.0,
    Move.TREE: 0.5,
    Move.PRIOR: 0.3,
    Move.MERGE: 0.1,
    Move.REGROW: 0.2,
    Move.REGROUP: 0.5,
}


@final
@dataclass(frozen=True)
class Arm:
    """How often a move was made, what it has gained in nats per sequence, and the work it took."""

    count: int = 0
    gain: float = 0.0
    work: float = 0.0


@final
@dataclass(frozen=True)
class Bandit:
    """The record of every move; another try makes another record.

    `gain` and `work` are what a usual try is expected to bring and to take before anything is
    known, so that a single lucky try does not decide.
    """

    gain: float
    work: float
    arms: Mapping[Move, Arm] = field(default_factory=dict)

    def with_outcome(self, move: Move, gain: float, work: float) -> "Bandit":
        """The record with one more try; a try that made nothing better has gained nothing."""
        arm = self.arms.get(move, Arm())
        new = Arm(arm.count + 1, arm.gain + max(gain, 0.0), arm.work + work)
        return replace(self, arms={**self.arms, move: new})

    def value(self, move: Move) -> float:
        """Nats per unit of work that the move is hoped to bring: its record, and the hope."""
        arm = self.arms.get(move, Arm())
        tries = sum(other.count for other in self.arms.values())
        gained = sum(other.gain for other in self.arms.values()) + self.gain
        worked = sum(other.work for other in self.arms.values()) + self.work
        paid = (_EXPECTED[move] * self.gain + arm.gain) / (self.work + arm.work)
        hope = math.sqrt(math.log1p(tries) / (1.0 + arm.count))
        return paid + _HOPE * _EXPECTED[move] * hope * gained / worked
