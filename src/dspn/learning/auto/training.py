"""One try: a network begun by a move, trained on a block, and scored on the validation set."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from dspn.engine import TimeUpError, compile_program, until
from dspn.learning.auto.base import (
    EARLY_STEPS,
    FEW_SLICES,
    LEAST_FLOW,
    MANY,
    AutoTask,
    BlockData,
    Candidate,
    Trial,
    Try,
)
from dspn.learning.auto.work import made_work, start_work, work_of
from dspn.learning.em import EmFit, EmOptions, Task
from dspn.learning.moves import pruned
from dspn.learning.run import Clock, limited
from dspn.learning.scores import LIKELIHOOD, StopReason
from dspn.structure.network import DynamicNetwork

# Slices that an edge must be expected at to stay after the first steps, when edges still find their
# use.
_LEAST_EARLY_FLOW: Final = 0.05
# A network this much smaller is taken for the one it was pruned from; sums over all inputs are
# faster by the edge.
_WORTH_PRUNING: Final = 0.7
_WORTH_THINNING: Final = 0.25


def attempted(attempt: Try, task: AutoTask) -> Candidate | None:
    """The candidate that a try leads to; None where time was up before its training began.

    One that time has cut short is not whole.
    """
    with suppress(TimeUpError), limited(task.clock, task.train):
        return None if task.clock.is_due() else _attempted(attempt, task)
    return None


def _attempted(attempt: Try, task: AutoTask) -> Candidate | None:
    recipe, parent, options = attempt.recipe, attempt.parent, task.options.em
    size = recipe.amount if parent is None else parent.size
    if recipe.move.adds_nodes:
        size += recipe.amount
    data, rng = task.data(attempt.block), task.rng(attempt.number)
    priors = task.priors_of(recipe, size, attempt.block)
    trial, train = Trial(attempt.block, recipe, parent, data, priors, rng, task), data.train
    network = recipe.move.start(trial)
    work = start_work(task, attempt.block, recipe) if parent is None else 0.0
    if parent is not None and network.template is not parent.network.template:
        work = made_work(recipe, len(network.template.nodes))
    own = Task(train, data.validation, LIKELIHOOD, priors)
    train_network = partial(own.fit, rng=rng, deadline=task.clock.is_due)
    grows = recipe.move.adds_nodes and network.num_interfaces >= MANY
    if grows or task.is_thinned(recipe):
        steps, single = EARLY_STEPS, options.single_precision
        early = EmOptions(steps, steps, single_precision=single, engine=options.engine)
        first = train_network(network, early)
        work += work_of(network, data, steps + 2)
        network = _thin(trial, first.network, _LEAST_EARLY_FLOW)
    # A node alone begins at the maximum, unless its leaves are told something.
    is_first = network.num_interfaces == 1 and parent is None and not data.num_told
    if is_first or recipe.move.is_learned(task, data):
        options = replace(options, max_steps=0)
    fit = train_network(network, _within(options, attempt.most - work, network, data))
    steps = len(fit.history) - 1
    work += work_of(network, data, steps)
    if task.clock.is_due():
        return _cut_short(attempt, fit, task, work) if steps else None
    try:
        network = fit.network
        if recipe.move.adds_nodes:
            network = _thin(trial, network, LEAST_FLOW)
        double = replace(options, single_precision=False)
        values = double.compile(network).log_likelihood(trial.data.validation)
    except TimeUpError:
        return _cut_short(attempt, fit, task, work)
    is_cut = steps > 0 and fit.stopped == StopReason.MAX_STEPS
    made = (attempt.number, attempt.block, network, recipe, values, steps, work)
    return Candidate(*made, is_cut=is_cut)


def _within(options: EmOptions, most: float, network: DynamicNetwork, data: BlockData) -> EmOptions:
    """The options with no more steps than so much work allows, but one at least."""
    steps = min(float(options.max_steps), most / work_of(network, data, 0) - 1.0)
    most_steps = min(options.max_steps, max(1, int(steps)))
    return replace(options, max_steps=most_steps, min_steps=min(options.min_steps, most_steps))


def _thin(trial: Trial, network: DynamicNetwork, least: float) -> DynamicNetwork:
    """The network without edges that are hardly used, where there are many."""
    if network.num_interfaces < MANY:
        return network
    smaller = pruned(network, trial.expected_flows(network), least)
    share = _WORTH_THINNING if trial.task.is_thinned(trial.recipe) else _WORTH_PRUNING
    few = share * network.template.num_edges
    return smaller if smaller.template.num_edges <= few else network


def _cut_short(attempt: Try, fit: EmFit, task: AutoTask, work: float) -> Candidate:
    """What was trained when time was up, scored on a few sequences."""
    data = task.sampled(FEW_SLICES, Clock()).data(attempt.block)
    with until(lambda: False):
        values = compile_program(fit.network).log_likelihood(data.validation)
    steps = len(fit.history) - 1
    return Candidate(
        attempt.number, attempt.block, fit.network, attempt.recipe, values, steps, work, False
    )
