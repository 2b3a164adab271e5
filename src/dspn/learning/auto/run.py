"""The chain of states of the automatic learner: exploration of layouts, then deepening."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from typing import Final, final

from dspn._arrays import Floats
from dspn.engine import one_thread_each
from dspn.learning.auto.bandit import Bandit
from dspn.learning.auto.candidates import Block, Candidate, Pool
from dspn.learning.auto.choice import Chooser
from dspn.learning.auto.journal import Journal
from dspn.learning.auto.options import Auto
from dspn.learning.auto.proposals import USUAL, first_recipe
from dspn.learning.auto.recipes import Move, Recipe
from dspn.learning.auto.state import AutoState, Tried
from dspn.learning.auto.steps import Step, expected_work, next_steps
from dspn.learning.auto.task import FEW_SLICES, AutoTask
from dspn.learning.auto.tries import Try, attempted
from dspn.learning.clock import Clock, is_large
from dspn.learning.layouts import (
    Layout,
    dependence,
    layout_of,
    merge_candidates,
    one_block,
    singletons,
)

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


def _with_steps(options: Auto, max_steps: int) -> Auto:
    return replace(options, em=replace(options.em, max_steps=max_steps))


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
        if clock.limit is not None and is_large(self._task.train) and not self._affordable():
            return
        for state in self._explored():
            yield state
        if state is not None:
            yield from self._deepened(replace(state, stage="deepening"))

    def _trained(self, tries: Sequence[Try]) -> list[Candidate] | None:
        """The candidates of a round; None where time was up before all were trained.

        No round follows such a one: those that were trained are not in the trail, and others would
        take their numbers in the journal.
        """
        if self._has_ended:
            return None
        jobs = min(self._task.num_jobs, len(tries))
        if jobs <= 1:
            found = [self._one(attempt) for attempt in tries]
        else:
            with ThreadPoolExecutor(jobs, thread_name_prefix="dspn-auto") as pool:
                try:
                    found = list(pool.map(self._one_alone, tries))
                except BaseException:
                    self._task.clock.stop()  # the others end at their next step
                    raise
        done = [candidate for candidate in found if candidate is not None and candidate.is_whole]
        cut = (one for one in found if one is not None and one.number == 0 and not one.is_whole)
        self._unfinished = next(cut, self._unfinished)
        self._has_ended = len(done) < len(tries)
        return None if self._has_ended else done

    def _one_alone(self, attempt: Try) -> Candidate | None:
        with one_thread_each():
            return self._one(attempt)

    def _one(self, attempt: Try) -> Candidate | None:
        if self._journal is None:
            return attempted(attempt, self._task)
        known = self._journal.recall(attempt, self._task)
        if known is not None:
            return known
        found = attempted(attempt, self._task)
        if found is not None and found.is_whole:
            self._journal.keep(found)
        return found

    def _affordable(self) -> bool:
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
        found = attempted(attempt, replace(few, options=_with_steps(task.options, 1)))
        assert found is not None
        begun = few.clock.seconds
        while True:
            part = task.sampled(size, task.clock)
            part = replace(part, options=_with_steps(task.options, _USEFUL_STEPS))
            began = task.clock.seconds
            trained = attempted(replace(attempt, parent=found), part)
            self._unfinished = found = replace(trained or found, is_whole=False)
            if trained is None:
                return False
            took = task.clock.seconds - began
            self.pace = took / (found.steps + 1) / part.train.total_slices
            left = task.clock.left
            if _STARTS * begun + (_STARTS + _LEAST_STEPS) * self.pace * total <= left:
                return True
            most = int(min(total, left / (self.pace * _USEFUL_STEPS)))
            if most < 2 * size:
                break
            size = min(most, _FASTER * size)
        trained = attempted(replace(attempt, parent=found), task.sampled(size, task.clock))
        self._unfinished = replace(trained or found, is_whole=False)
        return False

    def least(self) -> AutoState:
        """What time has cut short, or the least: independent slices of independent variables."""
        task, found = self._task, self._unfinished
        every = one_block(len(task.schema))
        if found is None:
            own = task.sampled(FEW_SLICES, Clock()) if is_large(task.train) else task
            attempt = Try(0, every[0], Recipe(Move.CLUSTERS, 1, USUAL))
            found = attempted(attempt, replace(own, clock=Clock()))
        assert found is not None
        pool = Pool().with_candidate(found)
        choice = self._chooser.choice(pool, (every,))
        trail = (Tried(found, 0.0),)
        return AutoState("beginning", pool, (every,), choice, trail, Bandit(1.0, 1.0))

    def _first_tries(self, blocks: Sequence[Block], first: int, move: Move) -> list[Try]:
        return [
            Try(first + place, block, first_recipe(self._task, block, move))
            for place, block in enumerate(blocks)
        ]

    def _smaller_tries(self, block: Block, first: int) -> list[Try]:
        """A few nodes instead of many, where the data are few."""
        task = self._task
        if task.train.total_slices >= _FEW_SLICES:
            return []
        usual = first_recipe(task, block)
        sizes = [size for size in _SMALL_SIZES if size < usual.amount]
        return [
            Try(first + place, block, replace(usual, amount=size))
            for place, size in enumerate(sizes)
        ]

    def _explored(self) -> Iterator[AutoState]:
        """Layouts from single variables upwards, for as long as putting blocks together pays."""
        task = self._task
        count = len(task.schema)
        singles = singletons(count)
        layouts = (singles,) if count == 1 else (one_block(count), singles)
        blocks = [block for layout in layouts for block in layout]
        tries = self._first_tries(blocks, 0, Move.CLUSTERS)
        found = self._trained(tries[:1])
        if found is not None and count > 1:
            rest = self._trained(tries[1:])
            layouts = layouts if rest is not None else layouts[:1]
            found = found + (rest or [])
        if found is None:
            return
        found += self._trained(self._smaller_tries(blocks[0], len(tries))) or []
        pool = Pool()
        for candidate in found:
            pool = pool.with_candidate(candidate)
        choice = self._chooser.choice(pool, layouts)
        scale = max(1.0, abs(choice.score))
        bandit = Bandit(_USUAL_GAIN * scale, _USUAL_WORK * task.effort)
        trail = tuple(Tried(candidate, 0.0) for candidate in found)
        state = AutoState("exploring layouts", pool, layouts, choice, trail, bandit)
        yield state
        if count < 3 or singles not in layouts:
            return
        strength = dependence(task.train)
        layout: Layout | None = singles
        behind = self._behind(state, singles)
        while layout is not None and self._may_explore(state):
            merged = self._merged(state, layout, strength)
            if merged is None:
                return
            state, layout = merged
            yield state
            if layout is not None:
                before, behind = behind, self._behind(state, layout)
                if layout not in state.choice.layouts and behind > _CLOSER * before:
                    return

    def _may_explore(self, state: AutoState) -> bool:
        task = self._task
        return state.pool.work < task.options.exploration * task.effort

    def _behind(self, state: AutoState, layout: Layout) -> float:
        """By how much a layout by itself is worse than the best mixture of all."""
        own = sum(self._chooser.model(state.pool, block).score for block in layout)
        return state.choice.score - own

    def _unions(
        self, state: AutoState, layout: Layout, strength: Floats
    ) -> dict[Block, tuple[Block, Block]]:
        """The unions of two blocks that depend most on each other, as far as the effort goes."""
        task = self._task
        most = max(_LEAST_PAIRS, len(layout))
        left = task.options.exploration * task.effort - state.pool.work
        found: dict[Block, tuple[Block, Block]] = {}
        for pair in merge_candidates(layout, strength):
            one, other = layout[pair.first], layout[pair.second]
            union = tuple(sorted((*one, *other)))
            if union not in state.pool:
                left -= expected_work(task, union, first_recipe(task, union), None)
            if len(found) >= most or (found and left < 0):
                break
            found[union] = (one, other)
        return found

    def _merged(
        self, state: AutoState, layout: Layout, strength: Floats
    ) -> tuple[AutoState, Layout | None] | None:
        """Pairs of blocks put together where that is better; no layout where no pair was."""
        unions = self._unions(state, layout, strength)
        new = [block for block in unions if block not in state.pool]
        found = self._trained(self._first_tries(new, len(state.trail), Move.REGROUP))
        if found is None:
            return None
        pool = state.pool
        for candidate in found:
            pool = pool.with_candidate(candidate)
        model = self._chooser.model
        gains = {
            union: model(pool, union).score - sum(model(pool, block).score for block in pair)
            for union, pair in unions.items()
        }
        gone: set[Block] = set()
        blocks = list(layout)
        for union in sorted(gains, key=lambda union: (-gains[union], union)):
            one, other = unions[union]
            if not gains[union] > 0 or one in gone or other in gone:
                continue
            gone |= {one, other}
            blocks = [block for block in blocks if block not in (one, other)] + [union]
        better = layout_of(blocks) if gone else None
        layouts = state.layouts
        if better is not None and better not in layouts:
            layouts = (*layouts, better)
        choice = self._chooser.choice(pool, layouts)
        gain = max(0.0, choice.score - state.choice.score)
        share = gain / max(1, len(found))
        trail = tuple(Tried(candidate, share) for candidate in found)
        bandit = state.bandit.with_outcome(Move.REGROUP, gain, sum(item.work for item in found))
        after = replace(
            state,
            pool=pool,
            layouts=layouts,
            choice=choice,
            trail=state.trail + trail,
            bandit=bandit,
        )
        return after, better

    def _deepened(self, state: AutoState) -> Iterator[AutoState]:
        """Steps on the blocks that count, chosen by what has paid so far."""
        options, task = self._task.options, self._task
        yield state
        strength = dependence(task.train) if len(task.schema) > 2 else None
        while state.pool.work < task.effort and state.failures < options.patience:
            steps = next_steps(state, task, strength, _ROUND)
            tries = [
                Try(len(state.trail) + place, block, recipe, parent)
                for place, (block, recipe, parent) in enumerate(
                    part for step in steps for part in step.parts
                )
            ]
            found = self._trained(tries) if tries else None
            if found is None:
                return
            rest = iter(found)
            for step in steps:
                state = self._after(state, step, [next(rest) for _ in step.parts])
            yield state

    def _after(self, state: AutoState, step: Step, found: Sequence[Candidate]) -> AutoState:
        """The state that knows what a step has led to."""
        pool, layouts = state.pool, state.layouts
        for candidate in found:
            pool = pool.with_candidate(candidate)
        if step.layout is not None:
            layouts = (*layouts, step.layout)
        choice = self._chooser.choice(pool, layouts)
        gain = choice.score - state.choice.score
        worth = gain > _NO_GAIN * max(1.0, abs(choice.score))
        paid = gain if worth else 0.0
        trail = tuple(Tried(candidate, paid / len(found)) for candidate in found)
        return replace(
            state,
            pool=pool,
            layouts=layouts,
            choice=choice,
            trail=state.trail + trail,
            bandit=state.bandit.with_outcome(step.move, paid, sum(item.work for item in found)),
            failures=0 if worth else state.failures + 1,
        )
