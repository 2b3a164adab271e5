"""Learning of structure and weights that can be stopped at any time and loses nothing."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import final

from dspn._checks import require_type, whole_number
from dspn.errors import DataError, StructureError
from dspn.learning.checkpoints import Checkpoint, CheckpointFile
from dspn.learning.clock import Clock
from dspn.learning.growth import (
    GrowthState,
    GrowthStep,
    GrowthTask,
    first_growth,
    next_growth,
)
from dspn.learning.plan import DEFAULT_PLAN, Plan
from dspn.learning.progress import Report, Reporter
from dspn.learning.search import SearchState, SearchTask, next_round
from dspn.sequences import Sequences
from dspn.structure import DynamicNetwork, Root


class Ending(StrEnum):
    """Why learning ended."""

    FINISHED = "finished"
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"


@final
@dataclass(frozen=True, eq=False)
class Learned:
    """The best network, its score on the validation set, and how it was found.

    `growth` has the score of every number of interface nodes that was tried. `history` tells the
    best score against time.
    """

    network: DynamicNetwork
    score: float
    ending: Ending
    growth: tuple[GrowthStep, ...]
    tried: int
    accepted: int
    history: tuple[Report, ...]


@final
@dataclass(frozen=True, eq=False)
class _State:
    """Where learning stands: in growth, or in the search that follows it."""

    growth: GrowthState
    search: SearchState | None

    @property
    def network(self) -> DynamicNetwork:
        """The best network so far."""
        return self.growth.network if self.search is None else self.search.network

    @property
    def score(self) -> float:
        """The score of the best network."""
        return self.growth.score if self.search is None else self.search.score

    def report(self, clock: Clock) -> Report:
        """The state as people see it."""
        template, search = self.network.template, self.search
        scores = [step.score for step in self.growth.trail]
        rises = sum(scores[i] > max(scores[:i]) for i in range(1, len(scores)))
        return Report(
            "growth" if search is None else "search",
            self.score,
            len(scores) - 1 if search is None else search.tried,
            rises if search is None else search.accepted,
            template.num_interfaces,
            len(template.nodes),
            template.num_edges,
            clock.seconds,
            clock.limit,
        )

    @property
    def can_be_saved(self) -> bool:
        """Whether the best network is the one to go on from.

        While growth is behind its best size it is not; it then goes on from the best size again and
        comes by the same way.
        """
        return self.search is not None or self.growth.failures == 0

    def checkpoint(self) -> Checkpoint:
        """What has to be kept to go on from here."""
        return Checkpoint(self.network, self.score, self.growth.trail, self.search)


@final
@dataclass(frozen=True, eq=False)
class _Run:
    """Data, plan, seed and clock of one run."""

    train: Sequences
    validation: Sequences
    plan: Plan
    seed: int
    num_jobs: int
    clock: Clock

    @property
    def growth_task(self) -> GrowthTask:
        """What growth works on."""
        plan = self.plan
        return GrowthTask(
            self.train, self.validation, plan.score, plan.priors, plan.growth, self.clock.is_due
        )

    def states(self, state: _State) -> Iterator[_State]:
        """The states from a given one to the last."""
        growth = state.growth
        task = self.growth_task
        while state.search is None and not growth.is_over(self.plan.growth):
            grown = next_growth(growth, task)
            if grown is None:
                return
            growth = grown
            yield _State(growth, None)
        if self.plan.search is None:
            return
        search = state.search or SearchState(growth.network, growth.score, self.seed)
        own = SearchTask(
            self.train,
            self.validation,
            self.plan.score,
            self.plan.priors,
            self.plan.search,
            self.num_jobs,
            self.clock,
        )
        while not search.is_over(self.plan.search):
            found = next_round(search, own)
            if found is None:
                return
            search = found
            yield _State(growth, search)

    def first(self) -> _State:
        """The state of a run that begins."""
        root = Root(self.plan.root)
        task = replace(self.growth_task, is_due=lambda: False)
        return _State(first_growth(task, seed=self.seed, root=root, tied=self.plan.tied), None)

    def resumed(self, saved: Checkpoint) -> _State:
        """The state that a checkpoint was made of."""
        growth = GrowthState(saved.network, saved.score, self.seed, saved.trail, saved.network)
        return _State(growth, saved.search)


def learn(
    train: Sequences,
    validation: Sequences,
    *,
    seed: int,
    plan: Plan = DEFAULT_PLAN,
    num_jobs: int = 1,
    time_limit: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    resume: bool = False,
    report: Reporter | None = None,
) -> Learned:
    """The best template found by growth and search, scored on the validation set.

    The result follows from data, plan and seed, whatever the number of jobs; a time limit and
    Ctrl-C end the search early with the best so far.

    Args:
        checkpoint: Where to keep the state, every `checkpoint_every` seconds and at the end; the
            file is a model by itself.
        resume: Whether to go on from the checkpoint if there is one, to the same result as without
            the interruption. Without it a file that is there is refused, not overwritten.
        report: Called with every new state.
    """
    require_type(plan, Plan, "plan", StructureError)
    _check_data(train, validation, plan)
    jobs = whole_number(num_jobs, "n_jobs", StructureError)
    clock = Clock(time_limit)
    run = _Run(
        train, validation, plan, whole_number(seed, "seed", StructureError, least=0), jobs, clock
    )
    file = None
    saved = None
    if checkpoint is not None:
        file = CheckpointFile.of(checkpoint, plan, run.seed, train, validation, checkpoint_every)
        if resume:
            saved = file.load()
        else:
            file.require_absent()
    state = run.first() if saved is None else run.resumed(saved)
    return _followed(run, state, file, report)


def _followed(
    run: _Run, first: _State, file: CheckpointFile | None, report: Reporter | None
) -> Learned:
    """Goes from state to state until the last one, or until it is time to stop."""
    clock = run.clock
    history = [first.report(clock)]
    state = kept = first
    ending = Ending.FINISHED
    try:
        for state in run.states(first):
            history.append(state.report(clock))
            if report is not None:
                report(history[-1])
            if state.can_be_saved:
                kept = state
            if file is not None:
                file.save_now_and_then(kept.checkpoint())
        if clock.is_due():
            ending = Ending.TIME_LIMIT
    except KeyboardInterrupt:
        clock.stop()
        ending = Ending.INTERRUPTED
    if file is not None:
        file.save(kept.checkpoint())
    search = state.search
    return Learned(
        state.network,
        state.score,
        ending,
        state.growth.trail,
        0 if search is None else search.tried,
        0 if search is None else search.accepted,
        tuple(history),
    )


def _check_data(train: Sequences, validation: Sequences, plan: Plan) -> None:
    """Raises where data and plan do not go together, before the long work begins."""
    for name, data in (("train", train), ("validation", validation)):
        require_type(data, Sequences, name, DataError)
        if not len(data):
            raise DataError(f"`{name}` must hold at least one sequence, but is empty.")
    if train.schema != validation.schema:
        raise DataError("`validation` must have the variables and categories of `train`.")
    plan.score.check(train.schema)
