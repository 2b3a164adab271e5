"""Where the automatic learner stands: immutable, so that any state can be the last one."""

from dataclasses import dataclass
from typing import final

from dspn.learning.auto.bandit import Bandit
from dspn.learning.auto.candidates import Candidate, Pool
from dspn.learning.auto.choice import Choice
from dspn.learning.auto.recipes import Move
from dspn.learning.dependence import Layout


@final
@dataclass(frozen=True, eq=False)
class Tried:
    """What one try has led to: the candidate, and by how much the whole model got better."""

    candidate: Candidate
    gain: float

    @property
    def move(self) -> Move:
        """How the candidate came about."""
        return self.candidate.recipe.move

    def __str__(self) -> str:
        own = self.candidate
        return (
            f"model {own.number} of variables {list(own.block)}: {own.recipe}; {own.size} "
            f"interface nodes, {own.network.template.num_edges} edges, {own.score:.3f} nats per "
            f"sequence, the whole better by {self.gain:.3f}"
        )


@final
@dataclass(frozen=True, eq=False)
class AutoState:
    """All candidates, all layouts, the best mixture of them, and what every try has brought."""

    stage: str
    pool: Pool
    layouts: tuple[Layout, ...]
    choice: Choice
    trail: tuple[Tried, ...]
    bandit: Bandit
    failures: int = 0

    @property
    def tried(self) -> int:
        """Number of tries so far."""
        return len(self.trail)

    @property
    def accepted(self) -> int:
        """Number of tries that made the model better."""
        return sum(item.gain > 0 for item in self.trail)
