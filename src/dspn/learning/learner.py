"""Learning of structure and weights that can be stopped at any time and loses nothing."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import Final, final

import numpy as np

from dspn._checks import require_type, whole_number
from dspn.engine import TimeUpError
from dspn.errors import DataError, StructureError
from dspn.learning.checkpoints import Checkpoint, CheckpointFile
from dspn.learning.clock import Clock, is_large, limited
from dspn.learning.fitting import fit_em
from dspn.learning.growth import (
    GrowthState,
    GrowthStep,
    GrowthTask,
    first_growth,
    next_growth,
)
from dspn.learning.plan import DEFAULT_PLAN, Plan
from dspn.learning.progress import Report, Reporter
from dspn.learning.scores import ConditionalLikelihood
from dspn.learning.search import SearchState, SearchTask, next_round
from dspn.sequences import Sequences
from dspn.sequences.joining import drawn_part, joined
from dspn.structure import DynamicNetwork, Root

_STREAM: Final = 3  # of randomness, apart from those of growth and search
# Slices of a first network where time is up before one of all data is there.
_FEW_SLICES: Final = 5_000
# Of the time limit: what training on all data may take after it.
_GRACE: Final = 0.2


class Ending(StrEnum):
    """Why learning ended."""

    FINISHED = "finished"
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"


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
        added = [step.accepted for step in self.growth.trail[1:]]
        return Report(
            "growth" if search is None else "search",
            self.score,
            len(added) if search is None else search.tried,
            sum(added) if search is None else search.accepted,
            template.num_interfaces,
            len(template.nodes),
            template.num_edges,
            clock.seconds,
            clock.limit,
        )

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
        root, tied = Root(self.plan.root), self.plan.tied
        task = self.growth_task
        if not is_large(self.train):
            task = replace(task, is_due=lambda: False)
        try:
            with limited(self.clock, self.train):
                return _State(first_growth(task, seed=self.seed, root=root, tied=tied), None)
        except TimeUpError:
            rng = np.random.default_rng([self.seed, _STREAM])
            task = replace(
                task,
                train=drawn_part(self.train, _FEW_SLICES, rng),
                validation=drawn_part(self.validation, _FEW_SLICES, rng),
            )
            return _State(first_growth(task, seed=self.seed, root=root, tied=tied), None)

    def resumed(self, saved: Checkpoint) -> _State:
        """The state that a checkpoint was made of."""
        growth = GrowthState(saved.network, saved.score, self.seed, saved.trail, saved.network)
        return _State(growth, saved.search)

    def refitted(self, state: _State) -> DynamicNetwork:
        """The best network trained on all data, where the plan says so.

        That raises the likelihood, and might undo what the conditional likelihood has chosen. A
        sequence of probability zero says that the network is wrong, not how to change it.
        """
        plan = self.plan
        conditional = isinstance(plan.score, ConditionalLikelihood)
        if plan.refit is None or conditional or state.score == -np.inf:
            return state.network
        same = self.train is self.validation
        everything = self.train if same else joined([self.train, self.validation])
        rng = np.random.default_rng([self.seed, _STREAM])
        clock = self.clock.grace(_GRACE, everything)
        try:
            with limited(clock, everything):
                found = fit_em(
                    state.network,
                    everything,
                    options=plan.refit,
                    priors=plan.priors,
                    rng=rng,
                    deadline=clock.is_due,
                )
        except TimeUpError:
            return state.network
        return found.network


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
    clock: Clock | None = None,
) -> Learned:
    """The best template found by growth and search, scored on the validation set.

    The result follows from data, plan and seed, whatever the number of jobs; a time limit and
    Ctrl-C end it early with the best so far, which is at the least a single trained node. What is
    to be trained on all data in the end is trained after a time limit as well, not after Ctrl-C.

    Args:
        checkpoint: Where to keep the state, every `checkpoint_every` seconds and at the end; the
            file is a model by itself.
        resume: Whether to go on from the checkpoint if there is one, to the same result as without
            the interruption. Without it a file that is there is refused, not overwritten.
        report: Called with every state, the first included.
        clock: The clock of a limit that counts from earlier on, in place of `time_limit`.
    """
    require_type(plan, Plan, "plan", StructureError)
    check_sets(train, validation)
    plan.score.check(train.schema)
    jobs = whole_number(num_jobs, "num_jobs", StructureError)
    clock = Clock(time_limit) if clock is None else clock
    run = _Run(
        train, validation, plan, whole_number(seed, "seed", StructureError, least=0), jobs, clock
    )
    if checkpoint is None:
        if resume:
            raise StructureError("`resume` needs a `checkpoint` to go on from; give its path.")
        return _followed(run, run.first(), None, report)
    file = CheckpointFile.of(checkpoint, plan, run.seed, train, validation, checkpoint_every)
    with file.held():
        saved = None
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
    history: list[Report] = []
    state = kept = first
    try:
        with limited(clock, run.train):
            for state in chain([first], run.states(first)):
                # Kept before anything else can be interrupted.
                if state.can_be_saved(run.plan):
                    kept = state
                if file is not None:
                    file.save_now_and_then(kept.checkpoint())
                history.append(state.report(clock))
                if report is not None:
                    report(history[-1])
        ending = Ending.FINISHED if state.is_over(run.plan) else Ending.TIME_LIMIT
    except TimeUpError:
        ending = Ending.TIME_LIMIT
    except KeyboardInterrupt:
        clock.stop()
        ending = Ending.INTERRUPTED
    if file is not None:
        file.save(kept.checkpoint())
    return _result(run, state, ending, history)


def _result(run: _Run, state: _State, ending: Ending, history: list[Report]) -> Learned:
    """What is found at the end, trained once more unless Ctrl-C has come or comes now."""
    network, search = state.network, state.search
    try:
        if ending != Ending.INTERRUPTED:
            network = run.refitted(state)
    except KeyboardInterrupt:
        ending = Ending.INTERRUPTED
    return Learned(
        network,
        state.score,
        ending,
        state.growth.trail,
        0 if search is None else search.tried,
        0 if search is None else search.accepted,
        tuple(history),
    )


def check_sets(train: Sequences, validation: Sequences) -> None:
    """Raises where there is nothing to learn from or to choose by, before the long work begins."""
    for name, data in (("train", train), ("validation", validation)):
        require_type(data, Sequences, name, DataError)
    if train.schema != validation.schema:
        raise DataError(
            "`validation` must have the variables and categories of `train`, but has others; give "
            "the schema of `train` when it is read."
        )
