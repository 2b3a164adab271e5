"""The paper's learner: growth by Algorithm 1, then search by Algorithm 2.

It can be stopped at any time and loses nothing.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain
from typing import Final, NamedTuple, final

import numpy as np

from dspn._arguments import require_type, whole_number
from dspn.data.sequences import Sequences, drawn_part, joined
from dspn.engine.base import TimeUpError
from dspn.errors import ModelFileError, StructureError
from dspn.executors import Executor, executor_of
from dspn.io.json_values import JSON, items, whole
from dspn.io.json_values import fields as json_fields
from dspn.learning import run as runs
from dspn.learning.em import EmOptions, Task
from dspn.learning.growth import (
    DEFAULT_GROWTH,
    GrowthOptions,
    GrowthState,
    GrowthStep,
    GrowthTask,
    first_growth,
    next_growth,
)
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.scores import LIKELIHOOD, ConditionalLikelihood, Score
from dspn.learning.search import DEFAULT_SEARCH, SearchOptions, SearchState, SearchTask, next_round
from dspn.options import Options, part_field
from dspn.structure.network import DynamicNetwork, Root, checked_root

_STREAM: Final = 3  # of randomness, apart from those of growth and search
# Slices of a first network where time is up before one of all data is there.
_FEW_SLICES: Final = 5_000
# Of the time limit: what training on all data may take after it.
_GRACE: Final = 0.2
_REFIT: Final = EmOptions(max_steps=10, tolerance=1e-7)


@final
@dataclass(frozen=True)
class Plan(Options):
    """Growth by Algorithm 1, then search by Algorithm 2; without a `search` growth alone.

    What they find is trained once more by `refit`, on training and validation set together; None
    leaves it as it was scored. With `tied=False` the bottom network has parameters of its own.
    """

    growth: GrowthOptions = part_field(DEFAULT_GROWTH)
    search: SearchOptions | None = part_field(DEFAULT_SEARCH, optional=True)
    refit: EmOptions | None = part_field(_REFIT, optional=True)
    priors: Priors = part_field(DEFAULT_PRIORS)
    score: Score = part_field(LIKELIHOOD, Score)
    root: Root | str = Root.FIRST
    tied: bool = part_field(True)

    def _check(self) -> None:
        object.__setattr__(self, "root", checked_root(self.root))

    def to_json(self) -> dict[str, JSON]:
        """All options by name, to be kept with a model and compared with another plan."""
        return {item.name: runs.describe_options(getattr(self, item.name)) for item in fields(self)}


DEFAULT_PLAN: Final = Plan()


@final
@dataclass(frozen=True, eq=False)
class Learned:
    """The best network, its score on the validation set, and how it was found.

    The score is that before the network was trained on the validation set, too. `growth` has the
    score of every number of interface nodes that was tried. `history` tells the best score against
    time.
    """

    network: DynamicNetwork
    score: float
    ending: runs.Ending
    growth: tuple[GrowthStep, ...]
    tried: int
    accepted: int
    history: tuple[runs.Report, ...]


class _State(NamedTuple):
    """Where learning stands: in growth, or in the search that follows it."""

    growth: GrowthState
    search: SearchState | None = None

    @property
    def best(self) -> GrowthState | SearchState:
        """The state that has the best network so far and its score."""
        return self.growth if self.search is None else self.search

    def report(self, clock: runs.Clock, plan: Plan) -> runs.Report:
        """The state as people see it."""
        own, added = self.best.network.template, [step.accepted for step in self.growth.trail[1:]]
        stage, tried, accepted = "growth", len(added), sum(added)
        if self.search is not None:
            stage, tried, accepted = "search", self.search.tried, self.search.accepted
        counts = (tried, accepted, own.num_interfaces, len(own.nodes), own.num_edges)
        times = clock.seconds, clock.limit, self._done(plan)
        return runs.Report(stage, self.best.score, *counts, *times)

    def _done(self, plan: Plan) -> float:
        """How near the stopping rules are; growth counts as half of it where a search follows."""
        largest = plan.growth.max_interfaces
        grown = min(self.growth.trail[-1].num_interfaces / largest, 1.0)
        if plan.search is None or self.search is None:
            return grown if plan.search is None else grown / 2
        tries = self.search.tried / max(plan.search.max_neighbours, 1)
        return 0.5 + min(max(tries, self.search.failures / plan.search.max_failures), 1.0) / 2

    def can_be_saved(self, plan: Plan) -> bool:
        """Whether the best network is the one to go on from.

        While growth is beyond its best size and not over it is not; it then goes on from the best
        size again and comes by the same way.
        """
        growth = self.growth
        return self.search is not None or growth.failures == 0 or growth.is_over(plan.growth)

    def is_over(self, plan: Plan) -> bool:
        """Whether growth has ended and, where there is a search, the search."""
        if plan.search is None:
            return self.growth.is_over(plan.growth)
        return self.search is not None and self.search.is_over(plan.search)

    def to_json(self) -> dict[str, JSON]:
        """What has to be kept, besides the network, to go on from here."""
        search, trail = self.search, self.growth.trail
        return {
            "score": _finite(self.best.score),
            "trail": [[s.num_interfaces, _finite(s.score), s.accepted] for s in trail],
            "search": search and search.to_json(),
        }


def _finite(score: float) -> float | None:
    """The score, None for minus infinity, which JSON does not have."""
    return None if score == float("-inf") else float(score)


def _read_score(value: JSON) -> float:
    if value is None:
        return float("-inf")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelFileError(f"a score must be a number, but is {value!r:.60}")
    return float(value)


def _read_growth_step(step: JSON) -> GrowthStep:
    match items(step, "a step of its trail"):
        case [size, score, bool(accepted)] if whole(size, "a size of its trail") > 0:
            return GrowthStep(whole(size, "a size"), _read_score(score), accepted)
    raise ModelFileError("a step of its trail must have a size, a score and whether it was kept")


class _Run(NamedTuple):
    """Data, plan, seed and clock of one run."""

    train: Sequences
    validation: Sequences
    plan: Plan
    seed: int
    executor: Executor
    clock: runs.Clock

    def read_state(self, network: DynamicNetwork, details: dict[str, JSON]) -> _State:
        """The state that `to_json` described."""
        details = json_fields(details, "its record", ("score", "trail", "search"))
        if network.schema != self.train.schema:
            raise ModelFileError("its network has other variables")
        score = _read_score(details["score"])
        trail = tuple(map(_read_growth_step, items(details["trail"], "its trail")))
        if not trail or not trail[0].accepted:
            raise ModelFileError("its trail must begin with a size that was accepted")
        growth = GrowthState(network, score, self.seed, trail, network)
        if details["search"] is None:
            return _State(growth)
        search = SearchState.from_json(network, score, details["search"])
        if search.seed != self.seed:
            raise ModelFileError("its search has another seed")
        return _State(growth, search)

    @property
    def _common(self) -> tuple[Sequences, Sequences, Score, Priors]:
        """What every task of the run has."""
        return self.train, self.validation, self.plan.score, self.plan.priors

    def first(self) -> _State:
        """The state of a run that begins."""
        task = GrowthTask(*self._common, self.plan.growth)
        if runs.is_large(self.train):
            task = replace(task, is_due=self.clock.is_due)
        root = Root(self.plan.root)
        begin = partial(first_growth, seed=self.seed, root=root, tied=self.plan.tied)
        try:
            with runs.limited(self.clock, self.train):
                return _State(begin(task))
        except TimeUpError:
            rng = np.random.default_rng([self.seed, _STREAM])
            train, validation = (
                drawn_part(data, _FEW_SLICES, rng) for data in (self.train, self.validation)
            )
            return _State(begin(replace(task, train=train, validation=validation)))

    def states(self, state: _State) -> Iterator[_State]:
        """The states after a given one."""
        plan, growth, search = self.plan, state.growth, state.search
        growing = GrowthTask(*self._common, plan.growth, self.clock.is_due)
        while search is None and not growth.is_over(plan.growth):
            grown = next_growth(growth, growing)
            if grown is None:
                return
            growth = grown
            yield _State(growth)
        if plan.search is None:
            return
        search = search or SearchState(growth.network, growth.score, self.seed)
        searching = SearchTask(*self._common, plan.search, self.executor, self.clock)
        while not search.is_over(plan.search):
            found = next_round(search, searching)
            if found is None:
                return
            search = found
            yield _State(growth, search)

    def refit(self, state: _State) -> DynamicNetwork:
        """The best network trained on all data, where the plan asks for it.

        That raises the likelihood, and might undo what the conditional likelihood has chosen. A
        sequence of probability zero says that the network is wrong, not how to change it.
        """
        plan, network = self.plan, state.best.network
        conditional = isinstance(plan.score, ConditionalLikelihood)
        if plan.refit is None or conditional or state.best.score == -np.inf:
            return network
        same = self.train is self.validation
        everything = self.train if same else joined([self.train, self.validation])
        clock = self.clock.grace(_GRACE, everything)
        rng = np.random.default_rng([self.seed, _STREAM])
        task = Task(everything, everything, LIKELIHOOD, plan.priors)
        with suppress(TimeUpError), runs.limited(clock, everything):
            settings = {"validation": None, "rng": rng, "deadline": clock.is_due}
            return task.fit(network, plan.refit, **settings).network
        return network

    def follow(
        self, first: _State, file: runs.CheckpointFile | None, report: runs.Reporter | None
    ) -> Learned:
        """Goes from state to state until the last one, or until it is time to stop."""
        state = kept = first

        def take(reached: _State) -> None:
            nonlocal state, kept
            state = reached
            if state.can_be_saved(self.plan):
                kept = state
            if file is not None:
                file.save(kept.best.network, kept.to_json(), now=False)

        with runs.limited(self.clock, self.train):
            ending, history = runs.follow(
                chain([first], self.states(first)),
                self.clock,
                describe=lambda own: own.report(self.clock, self.plan),
                on_state=take,
                report=report,
            )
        if ending is runs.Ending.TIME_LIMIT and state.is_over(self.plan):
            ending = runs.Ending.FINISHED
        if file is not None:
            file.save(kept.best.network, kept.to_json())
        network, score = state.best.network, state.best.score
        try:
            if ending is not runs.Ending.INTERRUPTED:
                network = self.refit(state)
        except KeyboardInterrupt:
            ending = runs.Ending.INTERRUPTED
        search = state.search or SearchState(network, score, self.seed)
        counts = search.tried, search.accepted
        return Learned(network, score, ending, state.growth.trail, *counts, history)


def learn(
    train: Sequences,
    validation: Sequences,
    *,
    seed: int,
    plan: Plan = DEFAULT_PLAN,
    num_jobs: int = 1,
    executor: Executor | str = "processes",
    time_limit: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    resume: bool = False,
    report: runs.Reporter | None = None,
    clock: runs.Clock | None = None,
) -> Learned:
    """The best template found by growth and search, scored on the validation set.

    The result follows from data, plan and seed, whatever the number of jobs; a time limit and
    Ctrl-C end it early with the best so far, which is at the least a single trained node. What is
    to be trained on all data in the end is trained after a time limit as well, not after Ctrl-C.

    Args:
        train: Sequences to learn from.
        validation: Sequences to choose by.
        seed: Where all randomness comes from.
        plan: What is learned, and how.
        num_jobs: Neighbours of the search that are trained side by side.
        executor: Where these are trained: "processes", "threads", or an `Executor`.
        time_limit: Seconds after which learning ends.
        checkpoint: Where to keep the state, every `checkpoint_every` seconds and at the end; the
            file is a model by itself.
        checkpoint_every: Seconds between two checkpoints.
        resume: Whether to go on from the checkpoint if there is one, to the same result as without
            the interruption. Without it a file that is there is refused, not overwritten.
        report: Called with every state, the first included.
        clock: The clock of a limit that counts from earlier on, in place of `time_limit`.
    """
    require_type(plan, Plan, "plan", StructureError)
    runs.check_sets(train, validation)
    plan.score.check(train.schema)
    run = _Run(
        train,
        validation,
        plan,
        whole_number(seed, "seed", StructureError, least=0),
        executor_of(executor, num_jobs),
        runs.Clock(time_limit) if clock is None else clock,
    )
    if checkpoint is None:
        if resume:
            raise StructureError("`resume` needs a `checkpoint` to go on from; give its path.")
        return run.follow(run.first(), None, report)
    description = runs.describe_run(train, validation, run.seed, plan=plan.to_json())
    file = runs.CheckpointFile(checkpoint, description, checkpoint_every, train.schema.families)
    with file.hold():
        if not resume:
            file.require_absent()
        return run.follow(file.load(run.read_state) or run.first(), file, report)
