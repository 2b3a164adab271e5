"""Pseudo-observations of sum edges and leaves, the penalty that they are, and what may change."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
from scipy.special import xlogy

from dspn._arrays import Bools
from dspn._checks import indices, require_type
from dspn.errors import StructureError
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
"""Maximum likelihood, except for the lower bound of variances, without which it has no maximum."""


def checked_learnable(
    template: Template, learnable: Collection[int] | None
) -> frozenset[int] | None:
    """The nodes whose parameters may change, as a set; None stands for all nodes.

    Products and inputs may be among them and have no parameters.
    """
    if learnable is None:
        return None
    nodes = frozenset(indices(learnable, "learnable", StructureError))
    wrong = [node for node in sorted(nodes) if not 0 <= node < len(template.nodes)]
    if wrong:
        raise StructureError(
            f"`learnable` must name nodes of the template (0 to {len(template.nodes) - 1}), but "
            f"has {wrong[0]}; give nodes of this template, or None for all of them."
        )
    return nodes


def learnable_masks(
    template: Template, learnable: frozenset[int] | None
) -> tuple[Bools, tuple[Bools, ...]]:
    """Whether each sum edge and, bank by bank, each leaf belongs to a learnable node."""
    chosen = np.full(len(template.nodes), learnable is None)
    chosen[list(learnable or ())] = True
    sums = np.fromiter(template.edge_offsets, dtype=np.int64)
    widths = np.diff([*template.edge_offsets.values(), template.num_weights])
    leaves = tuple(chosen[list(bank.nodes)] for bank in template.banks)
    return np.repeat(chosen[sums], widths), leaves


def log_prior(
    network: DynamicNetwork, priors: Priors, learnable: Collection[int] | None = None
) -> float:
    """Sum over edges of c log w plus the leaves' log priors: the penalty that EM adds.

    It is a log density up to a constant.

    Args:
        network: The network whose parameters are judged.
        priors: The pseudo-counts c and the priors of leaves.
        learnable: Nodes of the template; where these are given, only their parameters count, in
            the template and in a bottom network of its own.
    """
    own, template = network.parameters, network.template
    chosen = checked_learnable(template, learnable)
    edges, leaves = learnable_masks(template, chosen)

    def penalty(parameters: NetworkParameters) -> float:
        total = float(np.sum(xlogy(priors.sum_pseudo_count, parameters.weights[edges])))
        for bank, rows, mask in zip(template.banks, parameters.leaves, leaves, strict=True):
            total += bank.family.log_prior(rows[mask], priors.leaf(bank.family))
        return total

    total = penalty(own.template)
    if own.bottom is not None:
        total += penalty(own.bottom)
    if chosen is None:
        total += float(np.sum(xlogy(priors.sum_pseudo_count, own.top.weights)))
    return total
