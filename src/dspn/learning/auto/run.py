"""The chain of states of the automatic learner: exploration of layouts, then deepening."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final, final

from dspn._arguments import Floats
from dspn.executors import Shared
from dspn.learning.auto.base import FEW_SLICES, AutoTask, Block, Candidate, Move, Recipe, Try
from dspn.learning.auto.choice import Chooser, Pool
from dspn.learning.auto.moves import CLUSTERS, REGROUP, USUAL, first_recipe
from dspn.learning.auto.planner import AutoState, Bandit, Step, Tried, next_steps
from dspn.learning.auto.training import Journal, attempted
from dspn.learning.dependence import (
    Layout,
    dependence,
    layout_of,
    merge_candidates,
    one_block,
    singletons,
)
from dspn.learning.run import Clock, is_large

# Tries of a round are trained side by side. The number is fixed, so that it does not depend on the
# machine what is tried.
_ROUND: Final = 2
# With fewer slices than this, templates of a few nodes are tried from the start.
_FEW_SLICES: Final = 5_000
_SMALL_SIZES: Final = (2, 4, 8, 16)
# Pairs of blocks that a round of exploration tries to put together at least.
_LEAST_PAIRS: Final = 3
# Exploration ends where putting blocks together does not bring a layout this much nearer to what is
# known already.
_CLOSER: Final = 0.7
# What a usual try is expected to bring, as a share of the score, and to take, of the effort.
_USUAL_GAIN: Final = 0.002
_USUAL_WORK: Final = 0.02
# A gain below this share of the score is none.
_NO_GAIN: Final = 1e-5
# A network of all data takes so many times what one of a few took to begin, and as many steps of EM
# besides; with fewer steps than these it is not worth while.
_STARTS: Final = 4
_LEAST_STEPS: Final = 8
_USEFUL_STEPS: Final = 12
# A sample is at most so many times as large as the one before it.
_FASTER: Final = 8


def _train_one(task: Shared[AutoTask], journal: Journal | None, attempt: Try) -> Candidate | None:
    """The candidate of a try, from the journal where it was trained before."""
    known = None if journal is None else journal.recall(attempt, task.value)
    if known is not None:
        return known
    new = attempted(attempt, task.value)
    if journal is not None and new is not None and new.is_whole:
        journal.keep(new)
    return new


@final
class AutoRun:
    """Goes from state to state; every try is kept in the journal, where there is one."""

    def __init__(self, task: AutoTask, journal: Journal | None = None) -> None:
        self._task = task
        self._journal = journal
        self._chooser = Chooser(task.options)
        self._has_ended = False
        self._unfinished: Candidate | None = None
        self.pace = 0.0  # seconds that a step of EM takes for a slice, where they were counted

    def states(self) -> Iterator[AutoState]:
        """All states from the first to the last; ends early where time is up."""
        state: AutoState | None = None
        clock = self._task.clock
        if clock.limit is not None and is_large(self._task.train) and not self._is_affordable():
            return
        for state in self._explore():
            yield state
        if state is not None:
            yield from self._deepen(replace(state, stage="deepening"))

    def least(self) -> AutoState:
        """What time has cut short, or the least: independent slices of independent variables."""
        task, cut = self._task, self._unfinished
        every = one_block(len(task.schema))
        if cut is None:
            own = task.sampled(FEW_SLICES, Clock()) if is_large(task.train) else task
            attempt = Try(0, every[0], Recipe(CLUSTERS, 1, USUAL))
            cut = attempted(attempt, replace(own, clock=Clock()))
        assert cut is not None
        pool = Pool().with_candidates(cut)
        choice = self._chooser.choice(pool, (every,))
        trail = (Tried(cut, 0.0),)
        return AutoState("beginning", pool, (every,), choice, trail, Bandit(1.0, 1.0))

    # Training.

    def _train(self, tries: Sequence[Try]) -> list[Candidate] | None:
        """The candidates of a round; None where time was up before all were trained.

        No round follows such a one: those that were trained are not in the trail, and others would
        take their numbers in the journal.
        """
        if self._has_ended:
            return None
        work = partial(_train_one, self._task.shared, self._journal)
        trained = self._task.executor.map(work, tries, self._task.clock.stop)
        there = [candidate for candidate in trained if candidate is not None]
        cut = (one for one in there if one.number == 0 and not one.is_whole)
        self._unfinished = next(cut, self._unfinished)
        whole = [candidate for candidate in there if candidate.is_whole]
        self._has_ended = len(whole) < len(tries)
        return None if self._has_ended else whole

    def _is_affordable(self) -> bool:
        """Whether the time that is left is likely to suffice for a model of all data.

        A model of a few sequences tells. Where it does not suffice, that model is trained on with
        more and more of them, up to what there is time for.
        """
        task, every = self._task, one_block(len(self._task.schema))[0]
        attempt = Try(0, every, first_recipe(task, every))
        if self._journal is not None and self._journal.recall(attempt, task) is not None:
            return True
        self.pace = inf
        size, total = FEW_SLICES, task.train.total_slices
        few = task.sampled(size, Clock())
        model = attempted(attempt, few.with_steps(1))
        assert model is not None
        begun = few.clock.seconds
        while True:
            part = task.sampled(size, task.clock).with_steps(_USEFUL_STEPS)
            began = task.clock.seconds
            trained = attempted(attempt._replace(parent=model), part)
            self._unfinished = model = replace(trained or model, is_whole=False)
            if trained is None:
                return False
            took = task.clock.seconds - began
            self.pace = took / (model.steps + 1) / part.train.total_slices
            left = task.clock.left
            if _STARTS * begun + (_STARTS + _LEAST_STEPS) * self.pace * total <= left:
                return True
            most = int(min(total, left / (self.pace * _USEFUL_STEPS)))
            if most < 2 * size:
                break
            size = min(most, _FASTER * size)
        trained = attempted(attempt._replace(parent=model), task.sampled(size, task.clock))
        self._unfinished = replace(trained or model, is_whole=False)
        return False

    # Exploration.

    def _first_tries(self, blocks: Sequence[Block], first: int, move: Move) -> list[Try]:
        recipes = [(block, first_recipe(self._task, block, move)) for block in blocks]
        return [Try(number, *own) for number, own in enumerate(recipes, start=first)]

    def _smaller_tries(self, block: Block, first: int) -> list[Try]:
        """A few nodes instead of many, where the data are few."""
        usual, is_few = first_recipe(self._task, block), self._task.train.total_slices < _FEW_SLICES
        sizes = [size for size in _SMALL_SIZES if is_few and size < usual.amount]
        recipes = [replace(usual, amount=size) for size in sizes]
        return [Try(number, block, own) for number, own in enumerate(recipes, start=first)]

    def _explore(self) -> Iterator[AutoState]:
        """Layouts from single variables upwards, for as long as putting blocks together pays."""
        task = self._task
        count = len(task.schema)
        singles = singletons(count)
        layouts = (singles,) if count == 1 else (one_block(count), singles)
        blocks = [block for layout in layouts for block in layout]
        tries = self._first_tries(blocks, 0, CLUSTERS)
        trained = self._train(tries[:1])
        if trained is not None and count > 1:
            rest = self._train(tries[1:])
            layouts = layouts if rest is not None else layouts[:1]
            trained = trained + (rest or [])
        if trained is None:
            return
        trained += self._train(self._smaller_tries(blocks[0], len(tries))) or []
        pool = Pool().with_candidates(*trained)
        choice = self._chooser.choice(pool, layouts)
        scale = max(1.0, abs(choice.score))
        bandit = Bandit(_USUAL_GAIN * scale, _USUAL_WORK * task.effort)
        trail = tuple(Tried(candidate, 0.0) for candidate in trained)
        state = AutoState("exploring layouts", pool, layouts, choice, trail, bandit)
        yield state
        if count < 3 or singles not in layouts:
            return
        strength = dependence(task.train)
        layout: Layout | None = singles
        behind = self._behind(state, singles)
        most = task.options.exploration * task.effort
        while layout is not None and state.pool.work < most:
            merged = self._merge_blocks(state, layout, self._unions(state, layout, strength))
            if merged is None:
                return
            state, layout = merged
            yield state
            if layout is not None:
                before, behind = behind, self._behind(state, layout)
                if layout not in state.choice.layouts and behind > _CLOSER * before:
                    return

    def _behind(self, state: AutoState, layout: Layout) -> float:
        """By how much a layout by itself is worse than the best mixture of all."""
        scores = (self._chooser.model(state.pool, block).score for block in layout)
        return state.choice.score - sum(scores)

    def _unions(
        self, state: AutoState, layout: Layout, strength: Floats
    ) -> dict[Block, tuple[Block, Block]]:
        """The unions of two blocks that depend most on each other, as far as the effort goes."""
        task = self._task
        most = max(_LEAST_PAIRS, len(layout))
        left = task.options.exploration * task.effort - state.pool.work
        unions: dict[Block, tuple[Block, Block]] = {}
        for pair in merge_candidates(layout, strength):
            one, other = layout[pair.first], layout[pair.second]
            union = tuple(sorted((*one, *other)))
            if union not in state.pool:
                left -= task.expected_work(union, first_recipe(task, union), None)
            if len(unions) >= most or (unions and left < 0):
                break
            unions[union] = (one, other)
        return unions

    def _merge_blocks(
        self, state: AutoState, layout: Layout, unions: dict[Block, tuple[Block, Block]]
    ) -> tuple[AutoState, Layout | None] | None:
        """Pairs of blocks put together where that is better; no layout where no pair was."""
        new = [block for block in unions if block not in state.pool]
        trained = self._train(self._first_tries(new, len(state.trail), REGROUP))
        if trained is None:
            return None
        pool, model = state.pool.with_candidates(*trained), self._chooser.model
        gains = {
            union: model(pool, union).score - sum(model(pool, block).score for block in pair)
            for union, pair in unions.items()
        }
        blocks = list(layout)
        for union in sorted(gains, key=lambda union: (-gains[union], union)):
            if gains[union] > 0 and all(block in blocks for block in unions[union]):
                blocks = [block for block in blocks if block not in unions[union]] + [union]
        better = layout_of(blocks) if len(blocks) < len(layout) else None
        if better is not None and better not in state.layouts:
            state = replace(state, layouts=(*state.layouts, better))
        choice = self._chooser.choice(pool, state.layouts)
        gain = max(0.0, choice.score - state.choice.score)
        return state.after(REGROUP, trained, choice, gain), better

    # Deepening.

    def _deepen(self, state: AutoState) -> Iterator[AutoState]:
        """Steps on the blocks that count, chosen by what has paid so far."""
        options, task = self._task.options, self._task
        yield state
        strength = dependence(task.train) if len(task.schema) > 2 else None
        while state.pool.work < task.effort and state.failures < options.patience:
            steps = next_steps(state, task, strength, _ROUND)
            parts = [part for step in steps for part in step.parts]
            tries = [Try(number, *part) for number, part in enumerate(parts, len(state.trail))]
            trained = self._train(tries) if tries else None
            if trained is None:
                return
            rest = iter(trained)
            for step in steps:
                state = self._after(state, step, [next(rest) for _ in step.parts])
            yield state

    def _after(self, state: AutoState, step: Step, trained: Sequence[Candidate]) -> AutoState:
        """The state that knows what a step has led to."""
        if step.layout is not None:
            state = replace(state, layouts=(*state.layouts, step.layout))
        choice = self._chooser.choice(state.pool.with_candidates(*trained), state.layouts)
        gain = choice.score - state.choice.score
        pays = gain > _NO_GAIN * max(1.0, abs(choice.score))
        after = state.after(step.move, trained, choice, gain if pays else 0.0)
        return replace(after, failures=0 if pays else state.failures + 1)
