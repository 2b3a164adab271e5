"""One try: a network begun by a move, trained on a block, and scored on the validation set.

A journal keeps every trained candidate in a directory, so that a run goes on where it was
interrupted.
"""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, final

from dspn.engine import TimeUpError, compile_program, until
from dspn.errors import ModelFileError
from dspn.io.json_values import JSON, fields, whole
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
from dspn.learning.run import Clock, RunDirectory, describe_options, describe_run, limited
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
    trial, train = Trial(recipe, parent, data, priors, rng, task), data.train
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
    is_first = network.num_interfaces == 1 and parent is None  # it begins at the maximum
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


@final
@dataclass(frozen=True, eq=False)
class Journal:
    """The candidates of one run, by the numbers of their tries."""

    directory: RunDirectory

    @classmethod
    @contextmanager
    def held(
        cls, path: str | os.PathLike[str], task: AutoTask, *, resume: bool
    ) -> Iterator["Journal"]:
        """The directory, made where it is missing, kept from other runs until this one ends.

        With `resume` it may belong to this run already.
        """
        run = describe_run(
            task.train,
            task.validation,
            task.seed,
            options=task.options,
            priors=task.priors,
            root=task.root,
            tied=task.tied,
        )
        with RunDirectory.hold(path, run, resume=resume) as directory:
            yield cls(replace(directory, families=task.train.schema.families))

    def recall(self, attempt: Try, task: AutoTask) -> Candidate | None:
        """The candidate of a try, where it was trained before."""
        data = task.data(attempt.block)

        def read(network: DynamicNetwork, details: dict[str, JSON]) -> Candidate:
            record = fields(details, "its record", ("try", "steps", "work", "is_cut"))
            steps, work = whole(record["steps"], "`steps`"), record["work"]
            is_cut = record["is_cut"]
            if record["try"] != _describe_try(attempt):
                raise ModelFileError("it is of another try")
            if steps < 0 or not isinstance(work, float) or not 0 <= work < math.inf:
                raise ModelFileError("its steps and work must not be negative")
            if not isinstance(is_cut, bool):
                raise ModelFileError("`is_cut` must be true or false")
            own = (network.schema, network.root, network.parameters.tied)
            if own != (data.train.schema, task.root, task.tied):
                raise ModelFileError("its network has other variables, root or ties")
            values = compile_program(network).log_likelihood(data.validation)
            made = (attempt.number, attempt.block, network, attempt.recipe, values, steps, work)
            return Candidate(*made, is_cut=is_cut)

        return self.directory.load(attempt.number, read)

    def keep(self, candidate: Candidate) -> None:
        """Writes a candidate, whole or not at all; a disk that is full does not end learning."""
        details: dict[str, JSON] = {
            "try": _describe_try(candidate),
            "steps": candidate.steps,
            "work": candidate.work,
            "is_cut": candidate.is_cut,
        }
        self.directory.save(candidate.number, candidate.network, details)


def _describe_try(made: Try | Candidate) -> JSON:
    recipe = describe_options(made.recipe)
    assert isinstance(recipe, dict)
    return {
        "number": made.number,
        "block": list(made.block),
        "recipe": {**recipe, "move": made.recipe.move.name},
    }
