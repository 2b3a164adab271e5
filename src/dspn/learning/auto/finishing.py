"""From chosen candidates to one model: trained on all data, mixed by block, put side by side."""

from dataclasses import dataclass
from typing import final

import numpy as np

from dspn.learning.auto.candidates import BlockModel, Candidate
from dspn.learning.auto.choice import Choice
from dspn.learning.auto.task import AutoTask
from dspn.learning.fitting import fit_em
from dspn.structure import DynamicNetwork, Mixture, side_by_side, united


@final
@dataclass(frozen=True, eq=False)
class _Finisher:
    """Puts networks together; with `refit` each is trained on all data first."""

    task: AutoTask
    refit: bool

    def member(self, candidate: Candidate) -> DynamicNetwork:
        """A candidate's network, trained once more with what was held out.

        A sequence of probability zero says that the network is wrong, not how to change it.
        """
        options = self.task.options.refit
        if not self.refit or options.max_steps == 0 or candidate.score == -np.inf:
            return candidate.network
        everything = self.task.data(candidate.block).everything
        priors = self.task.priors_of(candidate.recipe.concentration, candidate.size)
        rng = self.task.rng(candidate.number)
        fit = fit_em(candidate.network, everything, options=options, priors=priors, rng=rng)
        return fit.network

    def block(self, model: BlockModel) -> DynamicNetwork:
        """The mixture of a block's members as one network."""
        networks = [self.member(candidate) for candidate in model.members]
        return networks[0] if len(networks) == 1 else united(networks, model.weights)


def finished(choice: Choice, task: AutoTask, *, refit: bool) -> Mixture:
    """The model of a choice: a component for each layout, a product of the layout's blocks."""
    finisher = _Finisher(task, refit)
    networks = {block: finisher.block(model) for block, model in choice.models.items()}
    components = [
        side_by_side(task.schema, [networks[block] for block in layout], layout)
        for layout in choice.layouts
    ]
    return Mixture(tuple(components), choice.weights)
