"""What to do next: a move and the block it is made on, or another layout."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arrays import Floats
from dspn.learning.auto.candidates import Block, Candidate
from dspn.learning.auto.options import WORK_UNIT
from dspn.learning.auto.proposals import Proposer, first_recipe
from dspn.learning.auto.recipes import Move, Recipe
from dspn.learning.auto.state import AutoState
from dspn.learning.auto.task import AutoTask, edges_at_work, work_of
from dspn.learning.dependence import Layout, layout_neighbours

# What is left of the hope for a move on a block after each time that it brought nothing there.
_FADING: Final = 0.4
# Edges after a move, in shares of those before; and the steps that training usually takes.
_GROWTH: Final = {Move.SPLIT: 3.0, Move.SHARED: 1.5, Move.TREE: 1.5}
_USUAL_STEPS: Final = 25
# A step may take this much more than what is left of the effort.
_OVERDRAFT: Final = 1.5
# No single try may take more than this share of the effort, so that there is room for others.
_MOST_SHARE: Final = 0.3
_MOST_NEIGHBOURS: Final = 20

Part = tuple[Block, Recipe, Candidate | None]


def expected_work(task: AutoTask, block: Block, recipe: Recipe, parent: Candidate | None) -> float:
    """What a try is likely to take, in the units of the effort."""
    if parent is not None:
        growth = _GROWTH.get(recipe.move, 1.0)
        return growth * work_of(parent.network, task.train, _USUAL_STEPS)
    edges = edges_at_work([recipe.amount] * recipe.amount, recipe.amount * (len(block) + 1))
    return edges * task.train.total_slices * _USUAL_STEPS / WORK_UNIT


@final
@dataclass(frozen=True, eq=False)
class Step:
    """Tries that belong together: one for a move on a block, one per new block for a layout."""

    move: Move
    parts: tuple[Part, ...]
    layout: Layout | None = None


@final
@dataclass(frozen=True, eq=False)
class _Planner:
    """Looks for the steps that promise most."""

    state: AutoState
    task: AutoTask
    strength: Floats | None

    def promising(self) -> list[Step]:
        """All steps that can be made, the most promising first."""
        found = [*self._on_blocks(), *self._regrouping()]
        found.sort(key=lambda item: -item[0])
        return [step for _, step in found]

    def _on_blocks(self) -> Iterator[tuple[float, Step]]:
        state = self.state
        weights = state.choice.block_weights()
        for block, weight in weights.items():
            candidates = state.pool.by_block[block]
            proposer = Proposer(self.task, block, candidates)
            share = abs(state.choice.models[block].score) / max(1e-9, abs(state.choice.score))
            for move in Move:
                recipe = None if move is Move.REGROUP else proposer.recipe(move)
                if recipe is None:
                    continue
                parent = next((c for c in candidates if c.number == recipe.parent), None)
                if not self._affordable(block, recipe, parent):
                    continue
                hope = weight * share * _FADING ** self._failures(move, block)
                yield state.bandit.value(move) * hope, Step(move, ((block, recipe, parent),))

    def _failures(self, move: Move, block: Block) -> int:
        """How often a move was made on a block for nothing, its beginning left out."""
        first = self.state.pool.by_block[block][0]
        return sum(
            item.move is move
            and item.candidate.block == block
            and item.candidate is not first
            and item.gain <= 0
            for item in self.state.trail
        )

    def _affordable(self, block: Block, recipe: Recipe, parent: Candidate | None) -> bool:
        """Whether a try is likely to stay within its share and what is left of the effort."""
        expected = expected_work(self.task, block, recipe, parent)
        return expected <= min(_OVERDRAFT * self._left, _MOST_SHARE * self.task.effort)

    @property
    def _left(self) -> float:
        """What is left of the effort."""
        return self.task.effort - self.state.pool.work

    def _regrouping(self) -> Iterator[tuple[float, Step]]:
        """The nearest layout to the best one that was not tried."""
        state = self.state
        if self.strength is None:
            return
        place = int(state.choice.weights.argmax())
        best = state.choice.layouts[place]
        hope = float(state.choice.weights[place]) / len(best)
        fading = _FADING ** self._regrouped_for_nothing()
        for layout in _by_dependence(best, self.strength)[:_MOST_NEIGHBOURS]:
            new = [block for block in layout if block not in state.pool]
            if layout in state.layouts or not new:
                continue
            parts = tuple((block, self._begun(block), None) for block in new)
            expected = sum(expected_work(self.task, *part) for part in parts)
            if expected <= _OVERDRAFT * self._left:
                step = Step(Move.REGROUP, parts, layout)
                yield state.bandit.value(Move.REGROUP) * hope * fading, step
                return

    def _regrouped_for_nothing(self) -> int:
        """How often another layout was tried in vain since one was better."""
        gains = [item.gain for item in self.state.trail if item.move is Move.REGROUP]
        return next((i for i, gain in enumerate(reversed(gains)) if gain > 0), len(gains))

    def _begun(self, block: Block) -> Recipe:
        return first_recipe(self.task, block, Move.REGROUP)


def _by_dependence(layout: Layout, strength: Floats) -> list[Layout]:
    """The neighbours of a layout, those first that put most dependence within blocks."""

    def within(blocks: Layout) -> float:
        return sum(float(strength[np.ix_(block, block)].sum()) for block in blocks)

    found = [(within(other), other) for other in layout_neighbours(layout)]
    return [other for _, other in sorted(found, key=lambda item: (-item[0], item[1]))]


def next_steps(state: AutoState, task: AutoTask, strength: Floats | None, count: int) -> list[Step]:
    """The `count` most promising steps."""
    return _Planner(state, task, strength).promising()[:count]
