"""Automatic learning: the best exact model that an effort buys, chosen on the validation set."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final, final

import numpy as np

from dspn._arguments import require_type, whole_number
from dspn.data.sequences import Sequences
from dspn.engine.base import TimeUpError
from dspn.errors import StructureError
from dspn.executors import Executor, Shared, executor_of
from dspn.learning.auto.base import DEFAULT_AUTO, Auto, AutoTask, Block, Candidate
from dspn.learning.auto.choice import Choice
from dspn.learning.auto.planner import AutoState, Tried
from dspn.learning.auto.run import AutoRun
from dspn.learning.auto.training import Journal
from dspn.learning.em import fit_em
from dspn.learning.priors import Priors
from dspn.learning.run import Clock, Ending, Report, Reporter, check_sets, follow, limited
from dspn.structure.edit import side_by_side, united
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork, Root, checked_root

# Of the time limit: what training on all data may take after it.
_GRACE: Final = 0.2


@final
@dataclass(frozen=True, eq=False)
class AutoLearned:
    """The model, and its score on the validation set before that was learned from.

    `choice` has what the model is mixed from, `tried` every try, `history` the best score against
    time.
    """

    mixture: Mixture
    score: float
    ending: Ending
    choice: Choice
    tried: tuple[Tried, ...]
    history: tuple[Report, ...]

    @property
    def work(self) -> float:
        """Work of all tries, in the units of the effort."""
        return sum(item.candidate.work for item in self.tried)

    def explanation(self) -> str:
        """What was tried, and what the model was chosen to be, in lines."""
        gains: dict[str, list[float]] = {}
        for item in self.tried:
            gains.setdefault(item.move.name, []).append(item.gain)
        count = len(self.tried)
        lines = ["1 model was tried:" if count == 1 else f"{count} models were tried:"]
        lines += [
            f"  {move}: {len(own)} tried, {sum(gain > 0 for gain in own)} raised the score, by "
            f"{sum(own):.3f} nats per sequence"
            for move, own in gains.items()
        ]
        lines.append(f"chosen for {self.score:.3f} nats per sequence on the validation set:")
        for layout, weight in zip(self.choice.layouts, self.choice.weights.tolist(), strict=True):
            lines.append(f"  weight {weight:.2f}, {len(layout)} block{'s' * (len(layout) > 1)}:")
            lines += [f"    {self._described(block)}" for block in layout]
        return "\n".join(lines)

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
) -> AutoLearned:
    """The best mixture of layouts that the effort allows, scored on the validation set.

    The variables are put into blocks that share an interface, by what their dependence suggests and
    the validation set confirms; models of blocks are grown, enriched and mixed; and several such
    layouts are mixed under one root. The result follows from data, options and seed, whatever the
    number of jobs; a time limit and Ctrl-C end it early with the best so far.

    Args:
        train: Sequences to learn from.
        validation: Sequences to choose by.
        seed: Where all randomness comes from.
        options: The effort, and the bounds of what is built.
        priors: Pseudo-observations; chosen on the validation set where they are not given.
        root: The slice that carries the top network.
        tied: Whether the bottom network shares the parameters of the template.
        refit: Whether every model is trained once more with the validation set in the end.
        num_jobs: Models that are trained side by side.
        executor: Where these are trained: "processes", "threads", or an `Executor`.
        time_limit: Seconds after which learning ends.
        checkpoint: Directory that keeps every trained model.
        resume: Whether to go on from what the directory keeps, to the same result as without the
            interruption.
        report: Called with every state as people see it.
        on_state: Called with every state.
        clock: The clock of a limit that counts from earlier on, in place of `time_limit`.
    """
    require_type(options, Auto, "options", StructureError)
    require_type(tied, bool, "tied", StructureError)
    if priors is not None:
        require_type(priors, Priors, "priors", StructureError)
    check_sets(train, validation)
    task = AutoTask(
        train,
        validation,
        options,
        priors,
        whole_number(seed, "seed", StructureError, least=0),
        checked_root(root),
        tied,
        executor_of(executor, num_jobs),
        Clock(time_limit) if clock is None else clock,
    )
    if checkpoint is None and resume:
        raise StructureError("`resume` needs a `checkpoint` to go on from; give its path.")
    held = nullcontext() if checkpoint is None else Journal.held(checkpoint, task, resume=resume)
    with held as journal:
        return _follow(AutoRun(task, journal), task, refit, report, on_state)


def _follow(
    run: AutoRun,
    task: AutoTask,
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
        describe=lambda own: _report(own, task.clock),
        on_state=take,
        report=report,
    )
    if state is None:
        if ending is Ending.INTERRUPTED:
            raise KeyboardInterrupt
        ending, state = Ending.TIME_LIMIT, run.least()
    choice = state.choice
    try:
        refit = refit and ending is not Ending.INTERRUPTED
        mixture = build_mixture(choice, task, refit=refit, pace=run.pace)
    except KeyboardInterrupt:
        ending = Ending.INTERRUPTED
        mixture = build_mixture(choice, task, refit=False)
    return AutoLearned(mixture, choice.score, ending, choice, state.trail, history)


def _report(state: AutoState, clock: Clock) -> Report:
    """The state as people see it."""
    templates = [own.network.template for own in state.choice.members.values()]
    interfaces = sum(own.num_interfaces for own in templates)
    nodes, edges = sum(len(own.nodes) for own in templates), sum(own.num_edges for own in templates)
    counts = (state.tried, state.accepted, interfaces, nodes, edges)
    return Report(state.stage, state.choice.score, *counts, clock.seconds, clock.limit)


def _refit(
    shared: Shared[AutoTask], clock: Clock, pace: float, candidate: Candidate
) -> DynamicNetwork:
    """A candidate's network, trained once more with what was held out.

    A sequence of probability zero says that the network is wrong, not how to change it.
    """
    task = shared.value
    options = task.options.refit
    total = task.train.total_slices + task.validation.total_slices
    # Where a single step would take too long, the network stays as it is.
    if options.max_steps == 0 or candidate.score == -np.inf or pace * total > clock.left:
        return candidate.network
    everything = task.data(candidate.block).everything
    try:
        with limited(clock, everything):
            fit = fit_em(
                candidate.network,
                everything,
                options=options,
                priors=task.priors_of(candidate.recipe.concentration, candidate.size),
                rng=task.rng(candidate.number),
                deadline=clock.is_due,
            )
    except TimeUpError:
        return candidate.network
    return fit.network


def build_mixture(choice: Choice, task: AutoTask, *, refit: bool, pace: float = 0.0) -> Mixture:
    """The model of a choice: a component for each layout, a product of the layout's blocks.

    Args:
        choice: Layouts and the members of each block, with their weights.
        task: The data and options of the run.
        refit: Whether every member is trained on all data first.
        pace: What a step of EM takes for a slice, in seconds, where that is known.
    """
    clock = task.clock.grace(_GRACE, task.train)
    chosen = choice.members
    trained = {number: own.network for number, own in chosen.items()}
    if refit:
        work = partial(_refit, task.shared, clock, pace)
        found = task.executor.map(work, list(chosen.values()), clock.stop)
        trained = dict(zip(chosen, found, strict=True))
    networks = {}
    for block, model in choice.models.items():
        members = [trained[own.number] for own in model.members]
        networks[block] = members[0] if len(members) == 1 else united(members, model.weights)
    components = [
        side_by_side(task.schema, [networks[block] for block in layout], layout)
        for layout in choice.layouts
    ]
    return Mixture(tuple(components), choice.weights)
