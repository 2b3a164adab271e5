"""From chosen candidates to one model: trained on all data, mixed by block, put side by side."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn.engine import TimeUpError
from dspn.learning.auto.candidates import BlockModel, Candidate
from dspn.learning.auto.choice import Choice
from dspn.learning.auto.task import AutoTask
from dspn.learning.clock import Clock, limited
from dspn.learning.fitting import fit_em
from dspn.structure import DynamicNetwork, Mixture, side_by_side, united

# Of the time limit: what training on all data may take after it.
_GRACE: Final = 0.2


@final
@dataclass(frozen=True, eq=False)
class _Finisher:
    """Puts networks together; with `refit` each is trained on all data first."""

    task: AutoTask
    refit: bool
    clock: Clock
    pace: float

    def member(self, candidate: Candidate) -> DynamicNetwork:
        """A candidate's network, trained once more with what was held out.

        A sequence of probability zero says that the network is wrong, not how to change it.
        """
        options = self.task.options.refit
        if not self.refit or options.max_steps == 0 or candidate.score == -np.inf:
            return candidate.network
        total = self.task.train.total_slices + self.task.validation.total_slices
        if self.pace * total > self.clock.left:  # not a single step
            return candidate.network
        everything = self.task.data(candidate.block).everything
        priors = self.task.priors_of(candidate.recipe.concentration, candidate.size)
        rng = self.task.rng(candidate.number)
        try:
            with limited(self.clock, everything):
                fit = fit_em(
                    candidate.network,
                    everything,
                    options=options,
                    priors=priors,
                    rng=rng,
                    deadline=self.clock.is_due,
                )
        except TimeUpError:
            return candidate.network
        return fit.network

    def block(self, model: BlockModel) -> DynamicNetwork:
        """The mixture of a block's members as one network."""
        networks = [self.member(candidate) for candidate in model.members]
        return networks[0] if len(networks) == 1 else united(networks, model.weights)


def finished(choice: Choice, task: AutoTask, *, refit: bool, pace: float = 0.0) -> Mixture:
    """The model of a choice: a component for each layout, a product of the layout's blocks.

    `pace` is what a step of EM takes for a slice, in seconds, where that is known.
    """
    finisher = _Finisher(task, refit, task.clock.grace(_GRACE, task.train), pace)
    networks = {block: finisher.block(model) for block, model in choice.models.items()}
    components = [
        side_by_side(task.schema, [networks[block] for block in layout], layout)
        for layout in choice.layouts
    ]
    return Mixture(tuple(components), choice.weights)
