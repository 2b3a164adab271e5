"""Pseudo-observations of sum edges and leaves, and the penalty that they are."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
from scipy.special import xlogy

from dspn._checks import require_type
from dspn.errors import StructureError
from dspn.learning._learnable import checked_learnable, learnable_edges, learnable_leaves
from dspn.leaves import Family, Prior
from dspn.options import Options, number_field
from dspn.structure import DynamicNetwork, NetworkParameters, Template


@final
@dataclass(frozen=True)
class Priors(Options):
    """Dirichlet(1 + `sum_pseudo_count`) on the weights of every sum, and a prior on every leaf.

    A family takes the prior of its type in `leaves`, which is in the units of the data. A family
    without one takes its `default_prior`, which follows the scale of the data, with
    `leaf_pseudo_count` in place of its own strength where that is given. A positive count keeps an
    edge or a category from dying by accident.
    """

    sum_pseudo_count: float = number_field(0.1, least=0)
    leaves: tuple[Prior, ...] = ()
    leaf_pseudo_count: float | None = number_field(None, least=0)

    def _check(self) -> None:
        if isinstance(self.leaves, Prior):
            raise StructureError(
                "`leaves` of Priors must be a tuple of leaf priors, but is a single "
                f"{type(self.leaves).__name__}; write ({type(self.leaves).__name__}(...),)."
            )
        leaves = tuple(self.leaves)
        for number, prior in enumerate(leaves):
            require_type(prior, Prior, f"leaves[{number}]", StructureError, remedy="`dspn.leaves`")
        kinds = [type(prior).__name__ for prior in leaves]
        twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
        if twice:
            raise StructureError(
                "`leaves` of Priors must hold at most one prior for each leaf family, but has "
                f"more than one {twice[0]}; keep one."
            )
        object.__setattr__(self, "leaves", leaves)

    def leaf(self, family: Family) -> Prior:
        """The prior of a family's leaves."""
        usual: Any = family.default_prior
        for prior in self.leaves:
            if type(prior) is type(usual):
                return prior
        count = self.leaf_pseudo_count
        found: Prior = usual if count is None else replace(usual, pseudo_count=count)
        return found


DEFAULT_PRIORS: Final = Priors()

NO_PRIORS: Final = Priors(sum_pseudo_count=0.0, leaf_pseudo_count=0.0)
"""Maximum likelihood, less the floor under variances, without which it has no maximum."""


def log_prior(
    network: DynamicNetwork, priors: Priors, learnable: Collection[int] | None = None
) -> float:
    """Sum over edges of c log w plus the leaves' log priors: the penalty that EM adds.

    It is a log density up to a constant. Of `learnable` nodes only, in the template and in a bottom
    network of its own, where these are named: what stays fixed changes nothing.
    """
    own = network.parameters
    chosen = checked_learnable(network.template, learnable)
    total = _of_network(network.template, own.template, priors, chosen)
    if own.bottom is not None:
        total += _of_network(network.template, own.bottom, priors, chosen)
    if chosen is None:
        total += float(np.sum(xlogy(priors.sum_pseudo_count, own.top.weights)))
    return total


def _of_network(
    template: Template, own: NetworkParameters, priors: Priors, learnable: frozenset[int] | None
) -> float:
    weights, leaves = own.weights, own.leaves
    if learnable is not None:
        weights = weights[learnable_edges(template, learnable)]
        chosen = learnable_leaves(template, learnable)
        leaves = tuple(rows[mask] for rows, mask in zip(leaves, chosen, strict=True))
    total = float(np.sum(xlogy(priors.sum_pseudo_count, weights)))
    for bank, rows in zip(template.banks, leaves, strict=True):
        total += bank.family.log_prior(rows, priors.leaf(bank.family))
    return total
