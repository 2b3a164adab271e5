"""One try: a network begun by a move, trained on a block, and scored on the validation set."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn.engine import TimeUpError, compile_program, until
from dspn.learning.auto.candidates import Block, Candidate
from dspn.learning.auto.recipes import Move, Recipe
from dspn.learning.auto.task import FEW_SLICES, AutoTask, BlockData, work_of
from dspn.learning.clock import Clock, limited
from dspn.learning.fitting import EmFit, EmOptions, fit_em
from dspn.learning.moves import merged_interfaces, pruned, regrown, similar_interfaces
from dspn.learning.priors import Priors
from dspn.learning.starts.clusters import clustered_network
from dspn.learning.starts.hidden_trees import hidden_tree, shared_mixture
from dspn.learning.starts.informed import informed_split
from dspn.structure import DynamicNetwork

# From this many interface nodes on, transitions that are hardly used are taken away.
_MANY: Final = 64
# Slices that an edge must be expected at to stay: after training, and right after a split, when
# edges are still finding their use.
_LEAST_FLOW: Final = 0.02
_LEAST_EARLY_FLOW: Final = 0.05
_EARLY_STEPS: Final = 2
# A network this much smaller is taken for the one it was pruned from.
_WORTH_PRUNING: Final = 0.7


@final
@dataclass(frozen=True, eq=False)
class Try:
    """A recipe for a block, and the candidate that it starts from."""

    number: int
    block: Block
    recipe: Recipe
    parent: Candidate | None = None


def _started(
    attempt: Try, data: BlockData, task: AutoTask, priors: Priors, rng: np.random.Generator
) -> DynamicNetwork:
    """The network that a try trains."""
    recipe = attempt.recipe
    if attempt.parent is None:
        network = clustered_network(
            data.train, recipe.amount, width=recipe.width, priors=priors, rng=rng, root=task.root
        )
        return network if task.tied else network.untied()
    network = attempt.parent.network
    match recipe.move:
        case Move.SPLIT:
            return informed_split(network, data.train, recipe.amount, priors=priors, rng=rng)
        case Move.SHARED:
            return shared_mixture(network, data.train, recipe.amount, priors=priors, rng=rng)
        case Move.TREE:
            return hidden_tree(network, data.train, recipe.amount, priors=priors, rng=rng)
        case Move.MERGE:
            program = compile_program(
                network, precision="single" if task.options.em.single_precision else "double"
            )
            flows = program.expected_flows(data.train).flows
            pairs = similar_interfaces(network, flows, recipe.amount).pairs
            return merged_interfaces(network, pairs) if pairs else network
        case Move.REGROW:
            return regrown(network, data.train, recipe.amount)
        case _:
            return network


@final
@dataclass(frozen=True, eq=False)
class _Trainer:
    """EM for one try."""

    data: BlockData
    task: AutoTask
    priors: Priors
    rng: np.random.Generator

    def trained(self, network: DynamicNetwork, options: EmOptions) -> EmFit:
        return fit_em(
            network,
            self.data.train,
            validation=self.data.validation,
            options=options,
            priors=self.priors,
            rng=self.rng,
            deadline=self.task.clock.is_due,
        )

    def thinned(self, network: DynamicNetwork, least: float) -> DynamicNetwork:
        """The network without edges that are hardly used, where there are many."""
        if network.num_interfaces < _MANY:
            return network
        program = compile_program(
            network, precision="single" if self.task.options.em.single_precision else "double"
        )
        flows = program.expected_flows(self.data.train).flows
        smaller = pruned(network, flows, least)
        few = _WORTH_PRUNING * network.template.num_edges
        return smaller if smaller.template.num_edges <= few else network


def attempted(attempt: Try, task: AutoTask) -> Candidate | None:
    """The candidate that a try leads to; None where time was up before its training began.

    One that time has cut short is not whole.
    """
    if task.clock.is_due():
        return None
    try:
        with limited(task.clock, task.train):
            return _trained(attempt, task)
    except TimeUpError:
        return None


def _trained(attempt: Try, task: AutoTask) -> Candidate | None:
    data, recipe = task.data(attempt.block), attempt.recipe
    options = task.options.em
    size = recipe.amount if attempt.parent is None else attempt.parent.size
    if recipe.move is Move.SPLIT:
        size += recipe.amount
    priors = task.priors_of(recipe.concentration, size)
    rng = task.rng(attempt.number)
    network = _started(attempt, data, task, priors, rng)
    trainer = _Trainer(data, task, priors, rng)
    work = 0.0
    if recipe.move is Move.SPLIT and network.num_interfaces >= _MANY:
        early = EmOptions(
            max_steps=_EARLY_STEPS,
            min_steps=_EARLY_STEPS,
            single_precision=options.single_precision,
        )
        first = trainer.trained(network, early)
        work += work_of(network, data.train, _EARLY_STEPS + 2)
        network = trainer.thinned(first.network, _LEAST_EARLY_FLOW)
    fit = trainer.trained(network, options)
    steps = len(fit.history) - 1
    work += work_of(network, data.train, steps)
    if task.clock.is_due():
        return _cut_short(attempt, fit, task, work) if steps else None
    try:
        found = trainer.thinned(fit.network, _LEAST_FLOW)
        values = compile_program(found).log_likelihood(data.validation)
    except TimeUpError:
        return _cut_short(attempt, fit, task, work)
    return Candidate(attempt.number, attempt.block, found, recipe, values, steps, work)


def _cut_short(attempt: Try, fit: EmFit, task: AutoTask, work: float) -> Candidate:
    """What was trained when time was up, scored on a few sequences."""
    data = task.sampled(FEW_SLICES, Clock()).data(attempt.block)
    with until(lambda: False):
        values = compile_program(fit.network).log_likelihood(data.validation)
    steps = len(fit.history) - 1
    return Candidate(
        attempt.number, attempt.block, fit.network, attempt.recipe, values, steps, work, False
    )
