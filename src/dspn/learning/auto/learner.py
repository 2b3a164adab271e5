"""Automatic learning: the best exact model that an effort buys, chosen on the validation set."""

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod
from typing import Final, final

import numpy as np

from dspn._arguments import require_type, whole_number
from dspn.data.schema import Kind
from dspn.data.sequences import Sequences
from dspn.engine.base import TimeUpError
from dspn.errors import StructureError
from dspn.executors import Executor, Shared, executor_of
from dspn.learning.auto.base import (
    DEFAULT_AUTO,
    REFIT_SHARE,
    Auto,
    AutoTask,
    Block,
    BlockData,
    Candidate,
    Trial,
    divide,
)
from dspn.learning.auto.choice import BlockModel, Choice
from dspn.learning.auto.covariances import Beginning, TriedCovariance, choose_covariances
from dspn.learning.auto.journal import Journal
from dspn.learning.auto.planner import AutoState, Tried
from dspn.learning.auto.run import AutoRun
from dspn.learning.auto.work import work_of
from dspn.learning.em import fit_em
from dspn.learning.priors import Priors
from dspn.learning.run import Clock, Ending, Report, Reporter, check_sets, follow, limited
from dspn.structure.edit import side_by_side, united
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork, Root, checked_root

# Of the time limit: what tries may take, and what training on all data may take in any case.
_SEARCH: Final = 0.85
_GRACE: Final = 0.05
_LEAST_SECONDS: Final = 2.0
# A time limit is an effort of no more than this, so that first looks do not use it up.
_UNITS_A_SECOND: Final = 3.0
# Of fewer sequences one unlike all others may be missing.
_FEW: Final = 1000


@final
@dataclass(frozen=True, eq=False)
class AutoLearned:
    """The model, and its score on the validation set before that was learned from.

    `choice` has what the model is mixed from, `tried` every try, `history` the best score against
    time. `train` and `validation` are the sets as they were divided. `covariances` are those that
    were tried before.
    """

    mixture: Mixture
    score: float
    ending: Ending
    choice: Choice
    tried: tuple[Tried, ...]
    history: tuple[Report, ...]
    train: Sequences
    validation: Sequences
    covariances: tuple[TriedCovariance, ...] = ()

    @property
    def work(self) -> float:
        """Work of all tries, in the units of the effort."""
        return sum(item.candidate.work for item in self.tried)

    def explanation(self) -> str:
        """What was tried, what it took, and what the model was chosen to be, in lines."""
        count = len(self.tried)
        lines = ["1 model was tried:" if count == 1 else f"{count} models were tried:"]
        lines += [f"  {own}" for own in self.covariances]
        lines += self._ladder()
        by_move: dict[str, list[Tried]] = {}
        for item in self.tried:
            by_move.setdefault(item.move.name, []).append(item)
        lines += [
            f"  {move}: {len(own)} tried, {sum(item.gain > 0 for item in own)} raised the score, "
            f"by {sum(item.gain for item in own):.3f} nats per sequence, for "
            f"{sum(item.candidate.work for item in own):.3g} units of work"
            for move, own in by_move.items()
        ]
        lines.append(f"chosen for {self.score:.3f} nats per sequence on the validation set:")
        for layout, weight in zip(self.choice.layouts, self.choice.weights.tolist(), strict=True):
            lines.append(f"  weight {weight:.2f}, {len(layout)} block{'s' * (len(layout) > 1)}:")
            lines += [f"    {self._described(block)}" for block in layout]
        if self.choice.guard:
            share = self.choice.share
            lines.append(f"  weight {share:.3f}, independent entries: for sequences unlike others")
        if self.choice.is_plain:
            is_over = self.ending == Ending.FINISHED
            lines.append(
                "no model was clearly better than independent slices and variables"
                if is_over
                else "nothing better than independent slices and variables was known when it ended"
            )
        if self.ending != Ending.FINISHED:
            lines.append(f"learning ended early: {self.ending}")
        return "\n".join(lines)

    def _ladder(self) -> list[str]:
        """The best model of each number of nodes for the variables of the first layout."""
        blocks = (item.candidate.block for item in self.tried)
        block = max(blocks, key=len)
        rungs: dict[int, Candidate] = {}
        for item in self.tried:
            own = item.candidate
            is_begun = own.recipe.move.name in ("clusters", "prior")
            is_rung = own.block == block and is_begun and own.is_single
            if is_rung and (own.size not in rungs or own.score > rungs[own.size].score):
                rungs[own.size] = own
        return [
            f"  ladder, {size} node{'s' * (size > 1)}: {rungs[size].score:.3f} nats per sequence "
            f"with pseudo-observations of {rungs[size].recipe.smoothing}"
            for size in sorted(rungs)
        ]

    def _described(self, block: Block) -> str:
        """The variables of a block, and the size, move and weight of its members."""
        names = self.mixture.schema.names
        is_whole = len(block) == len(names) > 4
        model = self.choice.models[block]
        members = [
            f"{own.size} node{'s' * (own.size > 1)} ({own.recipe.move.name}) at {share:.2f}"
            for own, share in zip(model.members, model.weights, strict=True)
        ]
        words = "all variables" if is_whole else ", ".join(names[variable] for variable in block)
        return f"{words}: {', '.join(members)}"


def learn_auto(
    train: Sequences,
    validation: Sequences,
    *,
    seed: int,
    options: Auto = DEFAULT_AUTO,
    priors: Priors | None = None,
    root: Root | str = Root.FIRST,
    tied: bool = True,
    refit: bool = True,
    num_jobs: int = 1,
    executor: Executor | str = "processes",
    time_limit: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    report: Reporter | None = None,
    on_state: Callable[[AutoState], None] | None = None,
    clock: Clock | None = None,
    covariances: bool = True,
) -> AutoLearned:
    """The best mixture of layouts that the effort allows, scored on the validation set.

    Independent entries come first, then a look at layouts on a few slices, then the ladder:
    templates of more and more nodes for as long as they pay, with pseudo-observations chosen on the
    way. Variables are put into blocks with chains of their own, by what their dependence suggests
    and the validation set confirms, with joint starts or without; models of blocks are grown,
    enriched and mixed; and several such layouts are mixed under one root. The result is never worse
    on the validation set than the ladder, except that independent entries are left for what is
    better by more than two standard errors only, and that they have a share of one in n + 1 where
    there are fewer than 1,000 sequences, n, with numbers or counts. It follows from data, options
    and seed, whatever the number of jobs; a time limit and Ctrl-C end it early with the best so
    far.

    Args:
        train: Sequences to learn from.
        validation: Sequences to choose by.
        seed: Where all randomness comes from.
        options: The effort, and the bounds of what is built.
        priors: Pseudo-observations; chosen on the validation set where they are not given.
        root: The slice that carries the top network.
        tied: Whether the bottom network shares the parameters of the template.
        refit: Whether the validation set may be learned from: every model is trained once more with
            it in the end, and few sequences are divided anew, so that enough of them choose. A
            training set that is its own validation set is always divided.
        num_jobs: Models that are trained side by side.
        executor: Where these are trained: "processes", "threads", or an `Executor`.
        time_limit: Seconds after which learning ends.
        checkpoint: Directory that keeps every trained model.
        resume: Whether to go on from what the directory keeps, to the same result as without the
            interruption.
        report: Called with every state as people see it.
        on_state: Called with every state.
        clock: The clock of a limit that counts from earlier on, in place of `time_limit`.
        covariances: Whether Gaussian leaves may have a covariance, over variables where that pays.
    """
    require_type(options, Auto, "options", StructureError)
    require_type(tied, bool, "tied", StructureError)
    if priors is not None:
        require_type(priors, Priors, "priors", StructureError)
    check_sets(train, validation)
    checked_seed = whole_number(seed, "seed", StructureError, least=0)
    refit = refit or train is validation
    if refit:
        train, validation = divide(train, validation, checked_seed)
    whole = Clock(time_limit) if clock is None else clock
    task = AutoTask(
        train,
        validation,
        options,
        priors,
        checked_seed,
        checked_root(root),
        tied,
        executor_of(executor, num_jobs),
        whole.within(_SEARCH),
    )
    if whole.limit is not None and _UNITS_A_SECOND * whole.limit < task.effort:
        task = replace(task, timed=_UNITS_A_SECOND * whole.limit)
    if checkpoint is None and resume:
        raise StructureError("`resume` needs a `checkpoint` to go on from; give its path.")
    kept = {"resume": resume, "covariances": covariances}
    held = nullcontext() if checkpoint is None else Journal.held(checkpoint, task, **kept)
    with held as journal:
        begun = None if journal is None else journal.beginning(task)
        # With more time than before a run begins anew.
        if begun is None or begun.timed < task.timed:
            begun = choose_covariances(task) if covariances else Beginning(task.timed)
            if journal is not None:
                journal.begin(begun)
        task = begun.of(task)
        run = AutoRun(task, journal, begun.work)
        found = _follow(run, task, whole, refit, report, on_state)
    return replace(found, covariances=begun.tried)


def _follow(
    run: AutoRun,
    task: AutoTask,
    clock: Clock,
    refit: bool,
    report: Reporter | None,
    on_state: Callable[[AutoState], None] | None,
) -> AutoLearned:
    """Goes from state to state until the last one, or until it is time to stop.

    The model of the last state is trained on all data unless Ctrl-C has come or comes then.
    """
    state: AutoState | None = None

    def take(reached: AutoState) -> None:
        nonlocal state
        state = reached
        if on_state is not None:
            on_state(reached)

    ending, history = follow(
        run.states(),
        task.clock,
        describe=lambda own: _report(own, task, clock),
        on_state=take,
        report=report,
    )
    if state is None:
        if ending is Ending.INTERRUPTED:
            raise KeyboardInterrupt
        ending, state = Ending.TIME_LIMIT, run.least()
    choice = _guarded(state, task)
    try:
        refit = refit and ending is not Ending.INTERRUPTED
        mixture = build_mixture(choice, task, refit=refit, pace=run.pace, clock=clock)
    except KeyboardInterrupt:
        ending = Ending.INTERRUPTED
        mixture = build_mixture(choice, task, refit=False)
    told = (ending, choice, state.trail, history, task.train, task.validation)
    return AutoLearned(mixture, choice.score, *told)


def _guarded(state: AutoState, task: AutoTask) -> Choice:
    """The choice, with a share for independent entries where few sequences were seen.

    Of n sequences none may be like the next one. Categories have pseudo-observations for that.
    """
    count = len(task.train) + len(task.validation)
    is_open = any(variable.kind != Kind.CATEGORICAL for variable in task.schema)
    if count >= _FEW or state.choice.is_plain or not is_open:
        return state.choice
    guard = tuple(state.pool.by_block[block][0] for block in state.layouts[0])
    return state.choice.guarded(guard, 1.0 / (count + 1))


def _report(state: AutoState, task: AutoTask, clock: Clock) -> Report:
    """The state as people see it."""
    templates = [own.network.template for own in state.choice.members.values()]
    interfaces = sum(own.num_interfaces for own in templates)
    nodes, edges = sum(len(own.nodes) for own in templates), sum(own.num_edges for own in templates)
    counts = (state.tried, state.accepted, interfaces, nodes, edges)
    time = 0.0 if clock.limit is None else clock.seconds / clock.limit
    done = min(1.0, max(state.work / task.effort, time))
    return Report(state.stage, state.choice.score, *counts, clock.seconds, clock.limit, done)


def _refit(
    shared: Shared[AutoTask], clock: Clock, pace: float, steps: int, candidate: Candidate
) -> DynamicNetwork:
    """A candidate's network, trained once more with what was held out.

    A sequence of probability zero says that the network is wrong, not how to change it.
    """
    task = shared.value
    options = replace(task.options.refit, max_steps=steps)
    total = task.train.total_slices + task.validation.total_slices
    # Where a single step would take too long, the network stays as it is.
    if options.max_steps == 0 or candidate.score == -np.inf or pace * total > clock.left:
        return candidate.network
    data, recipe, rng = task.data(candidate.block), candidate.recipe, task.rng(candidate.number)
    everything = data.everything
    priors = task.priors_of(recipe, candidate.size, candidate.block)
    try:
        with limited(clock, everything):
            if recipe.move.is_learned(task, data):
                again = BlockData(everything, everything)
                return recipe.move.start(
                    Trial(candidate.block, recipe, None, again, priors, rng, task)
                )
            fit = fit_em(
                candidate.network,
                everything,
                options=options,
                priors=priors,
                rng=rng,
                deadline=clock.is_due,
            )
    except TimeUpError:
        return candidate.network
    return fit.network


def _refit_steps(choice: Choice, task: AutoTask) -> int:
    """As many steps as the effort that is kept for them allows, but one at least."""
    members = choice.members.values()
    step = sum(work_of(own.network, task.data(own.block), 0) for own in members)
    return min(task.options.refit.max_steps, max(1, int(REFIT_SHARE * task.effort / step) - 1))


def build_mixture(
    choice: Choice,
    task: AutoTask,
    *,
    refit: bool,
    pace: float = 0.0,
    clock: Clock | None = None,
) -> Mixture:
    """The model of a choice: for each layout the product of its blocks, each a mixture.

    Members with several groups are in components of their own.

    Args:
        choice: Layouts and the members of each block, with their weights.
        task: The data and options of the run.
        refit: Whether every member is trained on all data first.
        pace: What a step of EM takes for a slice, in seconds, where that is known.
        clock: The clock of the whole run.
    """
    last = Clock()
    if clock is not None and clock.limit is not None:
        last = Clock(max(_GRACE * clock.limit, clock.left, _LEAST_SECONDS))
    chosen = choice.members
    trained = {number: own.network for number, own in chosen.items()}
    if refit:
        work = partial(_refit, task.shared, last, pace, _refit_steps(choice, task))
        found = task.executor.map(work, list(chosen.values()), last.stop)
        trained = dict(zip(chosen, found, strict=True))
    terms = {block: _terms(model, trained) for block, model in choice.models.items()}
    components, weights = list[DynamicNetwork](), list[float]()
    for layout, weight in zip(choice.layouts, choice.weights.tolist(), strict=True):
        for factors in product(*(terms[block] for block in layout)):
            networks = [network for network, _ in factors]
            components.append(side_by_side(task.schema, networks, layout))
            weights.append(weight * prod(share for _, share in factors))
    if choice.guard:
        networks = [trained[own.number] for own in choice.guard]
        components.append(side_by_side(task.schema, networks, [own.block for own in choice.guard]))
        weights.append(choice.share)
    return Mixture(tuple(components), np.asarray(weights))


def _terms(
    model: BlockModel, trained: Mapping[int, DynamicNetwork]
) -> list[tuple[DynamicNetwork, float]]:
    """The networks of a block's members with their weights, those with one group as one."""
    members = [trained[own.number] for own in model.members]
    found = list(zip(members, model.weights.tolist(), strict=True))
    single = [term for term in found if len(term[0].groups) == 1]
    if len(single) > 1:
        share = sum(weight for _, weight in single)
        whole = united([own for own, _ in single], [weight / share for _, weight in single])
        found = [(whole, share), *(term for term in found if len(term[0].groups) > 1)]
    return found
