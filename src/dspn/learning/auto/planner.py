"""What to try next: the move that has paid most for its work, with hope for the untried."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, final

import numpy as np

from dspn.learning.auto.base import (
    LEAST_STEPS,
    AutoTask,
    Block,
    BlockRecord,
    Candidate,
    Move,
    Recipe,
)
from dspn.learning.auto.choice import Choice, Pool
from dspn.learning.auto.moves import DEFAULT_MOVES, REGROUP, first_recipe
from dspn.learning.auto.work import expected_work
from dspn.learning.dependence import Layout

# How much is hoped for from a move that was tried seldom, in shares of what moves paid on average.
_HOPE: Final = 0.7
# What is left of the hope for a move on a block after each time that it brought nothing there.
_FADING: Final = 0.4
# What is left of it where no model of that kind, of one chain or of several, is worth its weight.
_UNUSED: Final = 0.2
_MOST_NEIGHBOURS: Final = 20

Part = tuple[Block, Recipe, Candidate | None]


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
        arms = self.arms.values()
        count, gain = sum(other.count for other in arms), sum(other.gain for other in arms)
        work = sum(other.work for other in arms)
        paid = (move.expected * self.gain + arm.gain) / (self.work + arm.work)
        hope = math.sqrt(math.log1p(count) / (1.0 + arm.count))
        return paid + _HOPE * move.expected * hope * (gain + self.gain) / (work + self.work)


class Tried(NamedTuple):
    """What one try has led to: the candidate, and by how much it raised the score of the model."""

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
            f"sequence, raised the score by {self.gain:.3f}"
        )


@final
@dataclass(frozen=True, eq=False)
class AutoState:
    """All candidates, all layouts, the best mixture of them, and what every try has brought.

    It is immutable, so that any state can be the last one.
    """

    stage: str
    pool: Pool
    layouts: tuple[Layout, ...]
    choice: Choice
    trail: tuple[Tried, ...]
    bandit: Bandit
    failures: int = 0
    spent: float = 0.0

    @property
    def work(self) -> float:
        """What candidates took, and `spent` besides them."""
        return self.pool.work + self.spent

    @property
    def tried(self) -> int:
        """Number of tries so far."""
        return len(self.trail)

    @property
    def accepted(self) -> int:
        """Number of tries that raised the score."""
        return sum(item.gain > 0 for item in self.trail)

    def after(
        self, move: Move, candidates: Sequence[Candidate], choice: Choice, gain: float
    ) -> "AutoState":
        """The state with more candidates that raised the score by `gain` together."""
        share = gain / max(1, len(candidates))
        return replace(
            self,
            pool=self.pool.with_candidates(*candidates),
            choice=choice,
            trail=self.trail + tuple(Tried(candidate, share) for candidate in candidates),
            bandit=self.bandit.with_outcome(move, gain, sum(own.work for own in candidates)),
        )


class Step(NamedTuple):
    """Tries that belong together: one for a move on a block, one per new block for a layout."""

    move: Move
    parts: tuple[Part, ...]
    layout: Layout | None = None


def next_steps(state: AutoState, task: AutoTask, count: int) -> list[Step]:
    """The `count` most promising steps.

    Args:
        state: What was tried so far.
        task: Data and options of the run.
        count: The largest number of steps.
    """
    moves = DEFAULT_MOVES if task.options.moves is None else task.options.moves
    steps = [*_block_steps(state, task, moves)]
    if len(task.varying_units) > 1 and REGROUP in moves:
        steps += _layout_steps(state, task)
    return [step for _, step in sorted(steps, key=lambda item: -item[0])[:count]]


def _block_steps(
    state: AutoState, task: AutoTask, moves: Sequence[Move]
) -> Iterator[tuple[float, Step]]:
    """The next recipe of every move on every block that counts, and what is hoped for from it."""
    left = task.allowed - state.work
    for block, weight in state.choice.block_weights().items():
        if block == task.constant:
            continue
        record = BlockRecord(task, block, state.pool.by_block[block])
        used = {own.is_single for own in state.choice.models[block].members}
        share = abs(state.choice.models[block].score) / max(1e-9, abs(state.choice.score))
        for move in moves:
            recipe = record.next_recipe(move)
            if recipe is None:
                continue
            parent = next((c for c in record.candidates if c.number == recipe.parent), None)
            if expected_work(task, block, recipe, parent, LEAST_STEPS) <= left:
                hope = weight * share * _FADING ** _failures(state, move, block)
                hope *= 1.0 if (not recipe.layout) in used else _UNUSED
                yield state.bandit.value(move) * hope, Step(move, ((block, recipe, parent),))


def _failures(state: AutoState, move: Move, block: Block) -> int:
    """How often a move was made on a block for nothing, its beginning left out."""
    later = state.pool.by_block[block][1:]
    vain = {item.candidate.number for item in state.trail if item.gain <= 0}
    return sum(own.recipe.move == move and own.number in vain for own in later)


def _layout_steps(state: AutoState, task: AutoTask) -> Iterator[tuple[float, Step]]:
    """The nearest layout to the best one that was not tried."""
    place = int(state.choice.weights.argmax())
    best = state.choice.layouts[place]
    # How often another layout was tried in vain since one was better.
    gains = [item.gain for item in state.trail if item.move == REGROUP]
    vain = next((i for i, gain in enumerate(reversed(gains)) if gain > 0), len(gains))
    hope = float(state.choice.weights[place]) / len(best) * _FADING**vain
    left = task.allowed - state.work

    def within(layout: Layout) -> float:
        """The dependence that a layout puts within its blocks."""
        return sum(float(task.strength[np.ix_(block, block)].sum()) for block in layout)

    nearest = sorted(task.neighbours(best), key=lambda other: (-within(other), other))
    for layout in nearest[:_MOST_NEIGHBOURS]:
        new = [block for block in layout if block not in state.pool]
        if layout in state.layouts or not new or not task.is_apart(layout):
            continue
        parts = tuple((block, first_recipe(task, block, REGROUP), None) for block in new)
        if sum(expected_work(task, *part) for part in parts) <= left:
            yield state.bandit.value(REGROUP) * hope, Step(REGROUP, parts, layout)
            return
