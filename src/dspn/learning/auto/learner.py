"""Automatic learning: the best exact model that an effort buys, chosen on the validation set."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from dspn._checks import require_type, whole_number
from dspn.errors import StructureError
from dspn.learning.auto.candidates import Block
from dspn.learning.auto.choice import Choice
from dspn.learning.auto.finishing import finished
from dspn.learning.auto.journal import Journal
from dspn.learning.auto.options import DEFAULT_AUTO, Auto
from dspn.learning.auto.run import AutoRun
from dspn.learning.auto.state import AutoState, Tried
from dspn.learning.auto.task import AutoTask
from dspn.learning.clock import Clock
from dspn.learning.learner import Ending, check_sets
from dspn.learning.priors import Priors
from dspn.learning.progress import Report, Reporter
from dspn.sequences import Sequences
from dspn.structure import Mixture, Root
from dspn.structure.network import checked_root


@final
@dataclass(frozen=True, eq=False)
class AutoLearned:
    """The model, its score on the validation set before that was learned from, and why it is it.

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
        return "\n".join([*_tried_lines(self.tried), *_chosen_lines(self)])


def _tried_lines(tried: tuple[Tried, ...]) -> list[str]:
    counts: dict[str, list[float]] = {}
    for item in tried:
        counts.setdefault(item.move.value, []).append(item.gain)
    lines = ["1 model was tried:" if len(tried) == 1 else f"{len(tried)} models were tried:"]
    for move, gains in counts.items():
        paid = sum(gain > 0 for gain in gains)
        lines.append(
            f"  {move}: {len(gains)} tried, {paid} made the whole better, by {sum(gains):.3f} "
            "nats per sequence"
        )
    return lines


def _chosen_lines(learned: AutoLearned) -> list[str]:
    choice = learned.choice
    names = learned.mixture.schema.names
    lines = [f"chosen for {learned.score:.3f} nats per sequence on the validation set:"]
    for layout, weight in zip(choice.layouts, choice.weights.tolist(), strict=True):
        lines.append(f"  weight {weight:.2f}, {len(layout)} block{'s' * (len(layout) > 1)}:")
        for block in layout:
            members = ", ".join(
                f"{member.size} node{'s' * (member.size > 1)} ({member.recipe.move}) at {share:.2f}"
                for member, share in zip(
                    choice.models[block].members, choice.models[block].weights, strict=True
                )
            )
            lines.append(f"    {_named(block, names)}: {members}")
    return lines


def _named(block: Block, names: tuple[str, ...]) -> str:
    if len(block) == len(names) and len(names) > 4:
        return "all variables"
    return ", ".join(names[variable] for variable in block)


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
        priors: Pseudo-observations; chosen on the validation set where they are not given.
        refit: Whether every model is trained once more with the validation set in the end.
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
        whole_number(num_jobs, "num_jobs", StructureError),
        Clock(time_limit) if clock is None else clock,
    )
    if checkpoint is None:
        if resume:
            raise StructureError("`resume` needs a `checkpoint` to go on from; give its path.")
        return _followed(AutoRun(task), task, refit, report, on_state)
    with Journal.held(checkpoint, task, resume=resume) as journal:
        return _followed(AutoRun(task, journal), task, refit, report, on_state)


def _followed(
    run: AutoRun,
    task: AutoTask,
    refit: bool,
    report: Reporter | None,
    on_state: Callable[[AutoState], None] | None,
) -> AutoLearned:
    """Goes from state to state until the last one, or until it is time to stop."""
    history: list[Report] = []
    state: AutoState | None = None
    ending = Ending.FINISHED
    try:
        for state in run.states():
            history.append(_reported(state, task.clock))
            if report is not None:
                report(history[-1])
            if on_state is not None:
                on_state(state)
        if task.clock.is_due():
            ending = Ending.TIME_LIMIT
    except KeyboardInterrupt:
        task.clock.stop()
        ending = Ending.INTERRUPTED
        if state is None:
            raise
    if state is None:
        ending = Ending.TIME_LIMIT
        state = run.least()
    return _result(state, task, ending, refit, history, run.pace)


def _result(
    state: AutoState,
    task: AutoTask,
    ending: Ending,
    refit: bool,
    history: list[Report],
    pace: float,
) -> AutoLearned:
    """The model of the last state, trained on all data unless Ctrl-C has come or comes now."""
    choice = state.choice
    try:
        refit = refit and ending is not Ending.INTERRUPTED
        mixture = finished(choice, task, refit=refit, pace=pace)
    except KeyboardInterrupt:
        ending = Ending.INTERRUPTED
        mixture = finished(choice, task, refit=False)
    return AutoLearned(mixture, choice.score, ending, choice, state.trail, tuple(history))


def _reported(state: AutoState, clock: Clock) -> Report:
    """The state as people see it."""
    members = {
        candidate.number: candidate.network
        for model in state.choice.models.values()
        for candidate in model.members
    }
    templates = [network.template for network in members.values()]
    return Report(
        state.stage,
        state.choice.score,
        state.tried,
        state.accepted,
        sum(template.num_interfaces for template in templates),
        sum(len(template.nodes) for template in templates),
        sum(template.num_edges for template in templates),
        clock.seconds,
        clock.limit,
    )
