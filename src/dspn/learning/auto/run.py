"""The chain of states of the automatic learner: the ladder, other layouts, then deepening."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import inf
from typing import Final, NamedTuple, final

from dspn.executors import Serial, Shared
from dspn.learning.auto.base import (
    FEW_SLICES,
    LEAST_STEPS,
    USUAL_STEPS,
    AutoTask,
    Block,
    BlockRecord,
    Candidate,
    Recipe,
    Try,
)
from dspn.learning.auto.choice import Chooser, Pool, is_clear
from dspn.learning.auto.journal import Journal
from dspn.learning.auto.moves import (
    CLUSTERS,
    CONTEXTS,
    JOINT_STARTS,
    PRIOR,
    RACED,
    REGROUP,
    USUAL,
    WIDE,
    first_recipe,
    most_clusters,
    of_size,
    other_settings,
    other_windows,
)
from dspn.learning.auto.planner import AutoState, Bandit, Part, Step, Tried, next_steps
from dspn.learning.auto.training import attempted
from dspn.learning.auto.work import expected_work
from dspn.learning.dependence import Layout, one_block
from dspn.learning.run import Clock, is_large

# Tries of a round are trained side by side. The number is fixed, so that it does not depend on the
# machine what is tried.
_ROUND: Final = 2
# The ladder begins with so many nodes, and does not end before so many were tried.
_FIRST_RUNG: Final = 8
_LEAST_TOP: Final = 128
# From so many nodes on, windows are chosen anew at every rung.
_FIRST_RACE: Final = 8
_LAST_RACE: Final = 128
# A rung is left out where the next one is expected to take less than this share of what is left.
_LEAP_SHARE: Final = 0.25
# A rung takes no more than this share of what is left, in a short run a few steps only.
_RUNG_SHARE: Final = 0.3
# At every rung that is better other settings are tried, for so much of the effort that is left.
_TURN_SHARE: Final = 0.25
_SETTINGS: Final = ("concentration", "per_edge", "leaf")
# The ladder of all variables together may take so much of the effort; with one variable, or where
# no more effort than this was asked for, all, and no settings are turned.
_LADDER_SHARE: Final = 0.6
_LITTLE: Final = 2.0
# It may take less where a few slices say that other layouts are better, by their lead over it in
# shares of what it gains over independent entries.
_LEAN: Final = 5.0
# Markov chains of several variables together may take so much of what is left; they end after so
# many orders that are no better, as one without what it waits for is not.
_RUNS_SHARE: Final = 0.2
_RUNS_PATIENCE: Final = 2
# Models of a few slices are numbered apart from the others.
FIRST_ROUGH: Final = 50_000
# Blocks that are compared take no more steps than this.
_FEW_STEPS: Final = 10
# The best rung is trained on in the end if there is work for so many steps.
_FEWEST_STEPS: Final = 2
# Variables by themselves are near where they are behind all of them together by no more than this
# share; otherwise blocks of some may take so much of the effort.
_NEAR: Final = 0.1
_FAR_SHARE: Final = 0.03
# A layout climbs for as long as it comes this much nearer to what is known already.
_CLOSER: Final = 0.8
# Its blocks begin with wide windows too where there is so many times the work for it.
_BOTH: Final = 2.5
# What a usual try is expected to bring, as a share of the score, and to take, of the effort.
_USUAL_GAIN: Final = 0.002
_USUAL_WORK: Final = 0.02
# A gain below this share of the score is none, nor is one of deepening below so many standard
# errors: of many small ones the luckiest would be taken.
_NO_GAIN: Final = 1e-5
_SURE: Final = 2.0
# Without an effort that was asked for, deepening may take so much of the work of the ladder, or of
# all work so far, and of the work of every step that has paid.
_CREDIT: Final = 0.4
_CREDIT_OF_ALL: Final = 0.25
_EARNED: Final = 3.0
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
        journal.keep(new, task.value)
    return new


class _Look(NamedTuple):
    """What models of a few slices say of layouts.

    `joint` is how to begin joint starts where they are better than the best blocks by
    themselves. `lead` is how much better the best is than all variables together, in shares of
    what these gain over independent entries.
    """

    blocks: Layout
    joint: Recipe | None = None
    lead: float = 0.0


@final
class AutoRun:
    """Goes from state to state; every try is kept in the journal, where there is one."""

    def __init__(self, task: AutoTask, journal: Journal | None = None, spent: float = 0.0) -> None:
        self._task = task
        self._spent = spent
        self._journal = journal
        self._chooser = Chooser(task.options)
        self._state: AutoState | None = None
        self._turned = USUAL
        self._roughs = 0
        self._has_ended = False
        self._unfinished: Candidate | None = None
        self.pace = 0.0  # seconds that a step of EM takes for a slice, where they were counted

    def states(self) -> Iterator[AutoState]:
        """All states from the first to the last; ends early where time is up."""
        task, clock = self._task, self._task.clock
        if clock.limit is not None and is_large(task.train) and not self._is_affordable():
            return
        yield from self._begin()
        if self._state is None or task.varying == task.constant:
            return
        is_all = len(task.varying) == 1 or self._is_short
        runs = self._runs(task.varying)
        look = _Look((task.varying,)) if is_all else self._look()
        share = 1.0 if is_all and not runs else _LADDER_SHARE
        share /= 1.0 + _LEAN * max(0.0, look.lead)
        spare = max(0.0, _LADDER_SHARE - share)
        yield from self._climb(task.varying, share * task.allowed)
        ladder = self._work
        if not self._has_ended:
            yield from self._remember(task.varying, runs)
        if len(task.varying) > 1 and not self._has_ended:
            self._state = replace(self._state, stage="layouts")
            if self._is_short:
                look, spare = self._look(), 1.0
            yield from self._explore(look, spare)
        if not self._has_ended:
            self._state = replace(self._state, stage="deepening", failures=0)
            yield from self._deepen(ladder)

    def least(self) -> AutoState:
        """What time has cut short, or the least: independent slices of independent variables."""
        task, cut = self._task, self._unfinished
        every = one_block(len(task.schema))
        if cut is None:
            own = task.sampled(FEW_SLICES, Clock()) if is_large(task.train) else task
            attempt = Try(0, every[0], USUAL)
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

    def _made(self, steps: Sequence[Step], most: float) -> Iterator[AutoState]:
        """The state after steps that are trained side by side, none where time was up.

        So much work is divided by what each try is expected to take.
        """
        state = self._state
        assert state is not None
        parts = [part for step in steps for part in step.parts]
        expected = [expected_work(self._task, *part) for part in parts]
        shares = [most * own / sum(expected) for own in expected]
        numbered = enumerate(zip(parts, shares, strict=True), len(state.trail))
        tries = [Try(n, *part, share) for n, (part, share) in numbered]
        trained = self._train(tries) if tries else None
        if trained is None:
            return
        rest = iter(trained)
        for step in steps:
            state = self._after(state, step, [next(rest) for _ in step.parts])
        self._state = state
        yield state

    @property
    def _is_short(self) -> bool:
        """Whether work is so little that the ladder comes first, with usual settings."""
        return self._task.asked <= _LITTLE

    @property
    def _work(self) -> float:
        assert self._state is not None
        return self._state.work

    def _score(self, block: Block) -> float:
        """The score of the best candidate of a block."""
        return self._best(block).score

    # The ladder.

    def _begin(self) -> Iterator[AutoState]:
        """Independent slices of independent variables."""
        task = self._task
        layout = task.with_constants([task.varying])
        trained = self._train([Try(n, own, self._turned) for n, own in enumerate(layout)])
        if trained is None:
            return
        pool = Pool().with_candidates(*trained)
        choice = self._chooser.choice(pool, (layout,))
        trail = tuple(Tried(candidate, 0.0) for candidate in trained)
        bandit = Bandit(_USUAL_GAIN * max(1.0, abs(choice.score)), _USUAL_WORK * task.effort)
        start = AutoState("ladder", pool, (layout,), choice, trail, bandit, spent=self._spent)
        self._state = start
        yield self._state

    def _climb(self, block: Block, most: float) -> Iterator[AutoState]:
        """Twice as many nodes at every rung while that pays, then twice, half and fewer.

        A rung is left out where the one above it is cheap. Settings are turned at some of the
        rungs, and the better ones carried along.
        """
        tried: set[int] = {1}
        while True:
            top = most_clusters(self._task, self._turned.by_position)
            best, highest = self._best(block).size, max(tried)
            after = _FIRST_RUNG if highest == 1 else 2 * highest
            sizes = [after] if best == highest or after <= _LEAST_TOP else []
            sizes += [2 * best, best // 2] if best > 1 else [2]
            leap = of_size(self._task, self._turned, min(2 * after, top))
            left = most - self._work
            if sizes[0] == after > _FIRST_RUNG and after < _LAST_RACE:
                cost = expected_work(self._task, block, leap, None)
                sizes[:0] = [leap.amount] if cost <= _LEAP_SHARE * left else []
            fresh = dict.fromkeys(n for own in sizes if 1 < (n := min(own, top)) not in tried)
            recipes = (of_size(self._task, self._turned, own) for own in fresh)
            recipe = next((own for own in recipes if self._affords(block, own, most)), None)
            if recipe is None:
                break
            tried.add(recipe.amount)
            # Above a rung that was worse the window is not in question.
            if recipe.amount >= _FIRST_RACE and (best == highest or recipe.amount < highest):
                yield from self._race(block, recipe, most)
            else:
                yield from self._rung(block, [recipe], self._rung_work(block, recipe, most))
            yield from self._give_time(block, recipe.amount, most)
            if self._has_ended:
                return
            if self._best(block).size == recipe.amount and not self._is_short:
                yield from self._turn(block, most)
        last = self._best(block)
        if last.is_cut and self._affords(block, last.recipe, most, last, _FEWEST_STEPS):
            yield from self._continued(last, [replace(last.recipe, parent=last.number)], most)

    def _give_time(self, block: Block, size: int, most: float) -> Iterator[AutoState]:
        """Trains on a rung that was cut short, if it was ahead of the best after as many steps."""
        state, best = self._state, self._best(block)
        if state is None or self._has_ended:
            return
        known = state.pool.by_block[block]
        last = max((own for own in known if own.recipe.amount == size), key=lambda own: own.score)
        if last is best or not last.is_cut:
            return
        begun = (own for own in known if own.size == best.size and own.recipe.parent is None)
        if any(own.score < last.score for own in begun if own.steps >= last.steps):
            yield from self._continued(last, [replace(last.recipe, parent=last.number)], most)

    def _runs(self, block: Block) -> list[Recipe]:
        """Markov chains of higher and higher order, where the moves have them."""
        moves, state = self._task.options.moves, self._state
        assert state is not None
        if moves is not None and CONTEXTS not in moves:
            return []
        return CONTEXTS.recipes(BlockRecord(self._task, block, state.pool.by_block[block]))

    def _remember(self, block: Block, recipes: Sequence[Recipe]) -> Iterator[AutoState]:
        """Markov chains of higher and higher order, until some in a row are no better."""
        share = 1.0 if len(block) == 1 else _RUNS_SHARE
        most = self._work + share * (self._task.allowed - self._work)
        best, vain = -inf, 0
        for recipe in recipes:
            is_done = self._has_ended or vain == _RUNS_PATIENCE
            if is_done or not self._affords(block, recipe, most):
                return
            work = self._rung_work(block, recipe, most)
            yield from self._made([Step(CONTEXTS, ((block, recipe, None),))], work)
            score = self._trail[-1].candidate.score
            vain, best = (0, score) if score > best else (vain + 1, best)

    def _rung_work(
        self, block: Block, recipe: Recipe, most: float, parent: Candidate | None = None
    ) -> float:
        """What a rung may take: a share of what is left, but enough for a few steps.

        The best one is trained on in the end where that was too little.
        """
        least = expected_work(self._task, block, recipe, parent, LEAST_STEPS)
        return least if self._is_short else max(least, _RUNG_SHARE * (most - self._work))

    def _rung(self, block: Block, recipes: Sequence[Recipe], most: float) -> Iterator[AutoState]:
        """Candidates begun anew, side by side."""
        steps = [Step(CLUSTERS, ((block, recipe, None),)) for recipe in recipes]
        return self._made(steps, most)

    def _race(self, block: Block, recipe: Recipe, most: float) -> Iterator[AutoState]:
        """A few steps from clusters of several windows, then all of them for the best.

        Where that is too much work, nodes for each position are compared with nodes for all of
        them, and in the first race single slices with the window so far. The window so far is left
        for one that is clearly better only: a few steps flatter windows of few slices.
        """
        task, first = self._task, len(self._trail)
        others = other_windows(task, recipe)
        raced = [others[: RACED if recipe.amount < _LAST_RACE else 2]]
        raced += [others[:1]] * (others[0].by_position != recipe.by_position)
        raced += [[own for own in others if own.width == 0]] * (recipe.amount == _FIRST_RACE)
        for found in raced:
            recipes = list(dict.fromkeys([recipe, *found]))
            work = sum(expected_work(task, block, own, None, LEAST_STEPS) for own in recipes)
            if len(recipes) > 1 and work <= _RUNG_SHARE * (most - self._work):
                break
        else:
            yield from self._rung(block, [recipe], self._rung_work(block, recipe, most))
            return
        yield from self._rung(block, recipes, work)
        if self._has_ended:
            return
        best, *rest = (own.candidate for own in self._trail[first:])
        for other in rest:
            if other.score > best.score and is_clear(other.validation, best.validation, 2.0):
                best = other
        seen = {name: getattr(best.recipe, name) for name in ("width", "ahead", "by_position")}
        self._turned = replace(self._turned, **seen)
        own = replace(best.recipe, parent=best.number)
        share = self._rung_work(block, own, most, best)
        yield from self._continued(best, [own], min(most, self._work + share))

    def _continued(
        self, parent: Candidate, recipes: Sequence[Recipe], most: float
    ) -> Iterator[AutoState]:
        """Candidates that begin where another has ended, side by side."""
        steps = [Step(own.move, ((parent.block, own, parent),)) for own in recipes]
        return self._made(steps, most - self._work)

    @property
    def _trail(self) -> tuple[Tried, ...]:
        assert self._state is not None
        return self._state.trail

    def _best(self, block: Block) -> Candidate:
        """The best candidate of a block."""
        assert self._state is not None
        return max(self._state.pool.by_block[block], key=lambda own: own.score)

    def _affords(
        self, block: Block, recipe: Recipe, most: float, parent: Candidate | None = None,
        steps: int = LEAST_STEPS,
    ) -> bool:  # fmt: skip
        """Whether so much work in all allows so many steps, by default those of a try."""
        return self._work + expected_work(self._task, block, recipe, parent, steps) <= most

    def _turn(self, block: Block, most: float) -> Iterator[AutoState]:
        """Other pseudo-observations for some more steps of the best model of the last rung."""
        task, best = self._task, self._best(block)
        others = [
            replace(own, move=PRIOR, parent=best.number)
            for own in other_settings(task, block, best.recipe)
        ]
        if not others:
            return
        work = expected_work(task, block, others[0], best, LEAST_STEPS)
        others = others[: int(_TURN_SHARE * (most - self._work) / work)]
        first = len(self._trail)
        yield from self._continued(best, others, self._work + len(others) * work)
        found = [best, *(item.candidate for item in self._trail[first:])]
        kept = max(found, key=lambda own: own.score).recipe
        self._turned = replace(self._turned, **{name: getattr(kept, name) for name in _SETTINGS})

    # Layouts.

    def _look(self) -> _Look:
        """The best cut through the tree of blocks that dependence joins, the strongest first.

        Models of a few slices are compared: of a block and the two that it was joined from the
        better is taken. Joint starts of the blocks are looked at besides.
        """
        task = self._task
        units, every = task.varying_units, (task.varying,)
        share = 1.0 if self._is_short else task.options.exploration
        most = min(self._work + share * task.effort, task.allowed)
        plain = [] if len(units) == 1 else self._rough([(task.varying, USUAL)], most)
        scores = self._roughly(every, most) if plain else {}
        scores |= self._roughly(units, most) if scores else {}
        apart = sum(scores.get(own, -inf) for own in units)
        if apart == -inf or self._has_ended:
            return _Look(every)
        # Where variables by themselves are far behind, only the strongest joins are looked at.
        together = scores[task.varying]
        if together - apart > _NEAR * abs(together):
            most = min(most, self._work + _FAR_SHARE * task.effort)
        for union, _, _ in task.joins[:-1]:
            found = {} if self._has_ended else self._roughly([union], most)
            if not found:
                break
            scores |= found
        score, blocks = self._cut(scores)
        gain = max(together - plain[0].score, _NO_GAIN * max(1.0, abs(together)))
        joint = self._joint_starts([units, blocks], score, most)
        if joint is None or joint.score <= score:
            return _Look(blocks, None, (score - together) / gain)
        return _Look(blocks, joint.recipe, (joint.score - together) / gain)

    def _explore(self, look: _Look, spare: float) -> Iterator[AutoState]:
        """Joint starts and layouts that were better for a few slices, learned from all.

        They climb the ladder for as long as they come nearer to what is known already. Joint starts
        may take half of the work; layouts have what they leave.
        """
        task, begun = self._task, self._work
        work = (task.options.exploration + spare) * task.effort
        if look.joint is not None:
            most = min(begun + 0.5 * work, task.allowed)
            yield from self._climb_joint_starts(look.joint, most)
        if len(look.blocks) > 1 and not self._has_ended:
            most = min(begun + work, task.allowed)
            yield from self._climb_layout(task.with_constants(look.blocks), most)

    def _roughly(self, blocks: Sequence[Block], most: float) -> dict[Block, float]:
        """Scores of blocks whose models saw a few slices; none where that is too much work."""
        parts = [(own, first_recipe(self._few, own, REGROUP, self._turned)) for own in blocks]
        return {own.block: own.score for own in self._rough(parts, most)}

    def _rough(self, parts: Sequence[tuple[Block, Recipe]], most: float) -> list[Candidate]:
        """Models that saw a few slices; none where that is too much work."""
        task, state = self._few, self._state
        assert state is not None
        work = sum(expected_work(task, *part, None, _FEW_STEPS) for part in parts)
        if self._work + work > most:
            return []
        tries = [Try(n, *part) for n, part in enumerate(parts, FIRST_ROUGH + self._roughs)]
        self._roughs += len(tries)
        work_on = partial(_train_one, self._few_shared, self._journal)
        trained = task.executor.map(work_on, tries, task.clock.stop)
        there = [own for own in trained if own is not None]
        self._has_ended = self._has_ended or len(there) < len(tries)
        self._state = replace(state, spent=state.spent + sum(own.work for own in there))
        return there

    def _joint_starts(
        self, layouts: Iterable[Layout], score: float, most: float
    ) -> Candidate | None:
        """The best joint starts of the blocks of a layout, for a few slices.

        Other windows are looked at where the first comes near to a score.
        """
        moves, few, whole = self._task.options.moves, self._few, self._task.varying
        if moves is not None and JOINT_STARTS not in moves:
            return None
        found = list[Candidate]()
        for layout in dict.fromkeys(own for own in layouts if len(own) > 1):
            recipes = JOINT_STARTS.first(few, layout)
            own = self._rough([(whole, recipe) for recipe in recipes[:1]], most)
            if own and score - own[0].score <= _NEAR * abs(score):
                for recipe in recipes[1:]:
                    own += self._rough([(whole, recipe)], most)
            found += own
        return max(found, key=lambda own: own.score, default=None)

    def _climb_joint_starts(self, recipe: Recipe, most: float) -> Iterator[AutoState]:
        """More and more nodes of each chain while that pays, if it comes nearer to the best."""
        task, behind, best = self._task, inf, -inf
        like = JOINT_STARTS.first(task, recipe.layout)[0]
        recipe = replace(like, width=recipe.width, ahead=recipe.ahead, leaf=self._turned.leaf)
        while recipe.amount <= most_clusters(task):
            # Chains side by side learn slowly: a few steps of a large rung tell nothing.
            work = self._rung_work(task.varying, recipe, most)
            least = expected_work(task, task.varying, recipe, None, _LEAST_STEPS)
            if work < least or self._work + least > most:
                return
            known = self._score(task.varying)
            step = Step(JOINT_STARTS, ((task.varying, recipe, None),))
            yield from self._made([step], work)
            if self._has_ended:
                return
            score = self._trail[-1].candidate.score
            before, behind = behind, known - score
            if score <= best or behind > max(0.0, _CLOSER * before):
                return
            best, recipe = score, JOINT_STARTS.larger(recipe)

    @cached_property
    def _few(self) -> AutoTask:
        """The task with a few slices, and with a few steps."""
        return self._task.sampled(FEW_SLICES, self._task.clock).with_steps(_FEW_STEPS)

    @cached_property
    def _few_shared(self) -> Shared[AutoTask]:
        return self._task.executor.share(replace(self._few, executor=Serial()))

    def _cut(self, scores: Mapping[Block, float]) -> tuple[float, Layout]:
        """The best blocks of those with scores, and the score of all."""
        best: dict[Block, tuple[float, list[Block]]] = {}
        for unit in self._task.varying_units:
            best[unit] = scores[unit], [unit]
        for union, one, other in self._task.joins:
            score, blocks = best[one][0] + best[other][0], best[one][1] + best[other][1]
            if scores.get(union, -inf) >= score:
                score, blocks = scores[union], [union]
            best[union] = score, blocks
        score, blocks = best[self._task.varying]
        return score, tuple(sorted(blocks))

    def _climb_layout(self, layout: Layout, most: float) -> Iterator[AutoState]:
        """Larger models of the blocks that still gain, while the layout comes nearer."""
        task = self._task
        rising: dict[Block, float] = {own: -inf for own in layout if own != task.constant}
        behind = inf
        while rising:
            state = self._state
            assert state is not None
            parts: list[Part] = []
            for own in rising:
                known = state.pool.by_block.get(own, ())
                like = self._best(own).recipe if known else self._turned
                recipe = first_recipe(task, own, REGROUP, like)
                highest = max((c.size for c in known), default=0)
                most_nodes = most_clusters(task, like.by_position)
                size = min(2 * highest, most_nodes) if known else recipe.amount
                if size > highest:
                    larger = of_size(task, replace(like, move=REGROUP, parent=None), size)
                    parts.append((own, larger, None))
            # Long data are worth a few steps where the layout is promising.
            steps = LEAST_STEPS if behind == inf else USUAL_STEPS
            work = sum(expected_work(task, *part, steps) for part in parts)
            limit = task.allowed if layout in state.choice.layouts else most
            if behind == inf and self._work + _BOTH * work <= limit:
                wide = [(own, replace(like, width=WIDE, ahead=None)) for own, like, _ in parts]
                parts += [(*part, None) for part in wide if (*part, None) not in parts]
            if not parts or self._work + work > limit:
                return
            step = Step(REGROUP, tuple(parts), None if layout in state.layouts else layout)
            least = sum(expected_work(task, *part, LEAST_STEPS) for part in parts)
            yield from self._made([step], max(least, _RUNG_SHARE * (limit - self._work)))
            state = self._state
            if self._has_ended or state is None:
                return
            before, behind = behind, state.choice.score - sum(map(self._score, layout))
            if layout not in state.choice.layouts and behind > _CLOSER * before:
                return
            scores = {own: self._score(own) for own in rising}
            rising = {own: new for own, new in scores.items() if new > rising[own]}

    # Deepening.

    def _deepen(self, ladder: float) -> Iterator[AutoState]:
        """Steps on the blocks that count, chosen by what has paid so far.

        Without an effort that was asked for they end where they have not earned their work.
        """
        options, task, state = self._task.options, self._task, self._state
        assert state is not None
        yield state
        credit = self._work + max(_CREDIT * ladder, _CREDIT_OF_ALL * self._work)
        while state.failures < options.patience:
            steps = next_steps(state, task, _ROUND)
            if options.effort is None:
                left = credit - self._work
                steps = [own for own in steps if self._expected(own) <= left]
            before = self._work
            yield from self._made(steps, task.allowed - self._work)
            if self._state is state:
                return
            state = self._state
            assert state is not None
            if state.failures == 0:
                credit += _EARNED * (self._work - before)

    def _expected(self, step: Step) -> float:
        """The work that a step is likely to take."""
        return sum(expected_work(self._task, *part) for part in step.parts)

    def _after(self, state: AutoState, step: Step, trained: Sequence[Candidate]) -> AutoState:
        """The state that knows what a step has led to."""
        if step.layout is not None:
            state = replace(state, layouts=(*state.layouts, step.layout))
        errors = _SURE if state.stage == "deepening" else 0.0
        choice = self._chooser.choice(state.pool.with_candidates(*trained), state.layouts, errors)
        gain = choice.score - state.choice.score
        pays = gain > _NO_GAIN * max(1.0, abs(choice.score))
        after = state.after(step.move, trained, choice, gain if pays else 0.0)
        return replace(after, failures=0 if pays else state.failures + 1)
