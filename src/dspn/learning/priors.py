"""Pseudo-observations of sum edges and leaves, the penalty that they are, and what may change."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
from scipy.special import xlogy

from dspn._arguments import Bools, Floats, Ints, indices, require_type
from dspn.errors import StructureError
from dspn.leaves.base import Family, Prior
from dspn.options import Options, number_field
from dspn.structure.network import DynamicNetwork
from dspn.structure.parameters import NetworkParameters, sum_starts
from dspn.structure.template import Bank, Template, Top


@final
@dataclass(frozen=True)
class Priors(Options):
    """Dirichlet(1 + `sum_pseudo_count`) on the weights of every sum, and a prior on every leaf.

    A family takes the prior of its type in `leaves`, which is in the units of the data. A family
    without one takes its `default_prior`, which follows the scale of the data, with
    `leaf_pseudo_count` in place of its own strength where that is given. A positive count keeps an
    edge or a category from dying by accident. `by_variable` has priors for single variables, in the
    order of the schema; one of another family, or None, counts for nothing.

    Where the weights of a sum depend on an input, its tables are drawn towards each other: each has
    `table_pseudo_count` observations more that are distributed as their geometric mean, and its
    share of `sum_pseudo_count`. A value of the input that is never seen so has the table that the
    others have in common.
    """

    sum_pseudo_count: float = number_field(0.1, least=0)
    leaves: tuple[Prior, ...] = ()
    leaf_pseudo_count: float | None = number_field(None, least=0)
    table_pseudo_count: float = number_field(5.0, least=0)
    by_variable: tuple[Prior | None, ...] = ()

    def _check(self) -> None:
        if isinstance(self.leaves, Prior):
            raise StructureError(
                "`leaves` of Priors must be a tuple of leaf priors, but is a single "
                f"{type(self.leaves).__name__}; write ({type(self.leaves).__name__}(...),)."
            )
        leaves = tuple(self.leaves)
        kinds = Counter(type(prior).__name__ for prior in leaves)
        for number, prior in enumerate(leaves):
            require_type(prior, Prior, f"leaves[{number}]", StructureError, remedy="`dspn.leaves`")
            if kinds[type(prior).__name__] > 1:
                raise StructureError(
                    "`leaves` of Priors must hold at most one prior for each leaf family, but has "
                    f"more than one {type(prior).__name__}; keep one."
                )
        object.__setattr__(self, "leaves", leaves)
        object.__setattr__(self, "by_variable", tuple(self.by_variable))
        for number, own in enumerate(self.by_variable):
            if own is not None:
                require_type(own, Prior, f"by_variable[{number}]", StructureError)

    def leaf(self, family: Family, variable: int | None = None) -> Prior:
        """The prior of the leaves of a family, over a variable where that is known."""
        usual: Any = family.default_prior
        if variable is not None and variable < len(self.by_variable):
            own = self.by_variable[variable]
            if own is not None and type(own) is type(usual):
                return own
        given = [prior for prior in self.leaves if type(prior) is type(usual)]
        if not given and self.leaf_pseudo_count is not None:
            usual = replace(usual, pseudo_count=self.leaf_pseudo_count)
        return given[0] if given else usual


DEFAULT_PRIORS: Final = Priors()

NO_PRIORS: Final = Priors(sum_pseudo_count=0.0, leaf_pseudo_count=0.0, table_pseudo_count=0.0)
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


@final
@dataclass(frozen=True, eq=False)
class Section:
    """One of the networks of a DSPN with its parameters.

    `edges` and, bank by bank, `leaves` say which of the parameters may be learned. The name is also
    that of the attribute of `Parameters` and `ExpectedFlows` that belongs to the network.
    """

    name: str
    network: Template | Top
    parameters: NetworkParameters
    edges: Bools
    leaves: tuple[Bools, ...] = ()

    @property
    def banks(self) -> tuple[Bank, ...]:
        """The leaves by bank; a top network has none."""
        return self.network.banks if isinstance(self.network, Template) else ()

    def _common(self, places: Ints) -> tuple[Floats, Floats]:
        """The geometric mean of each sum's tables (sums, children), normalised, and log its sum."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.parameters.weights[places])
        logs = logs.mean(axis=1)
        sums = np.logaddexp.reduce(logs, axis=1)
        means = self.parameters.weights[places].mean(axis=1)
        exists = sums > -np.inf
        with np.errstate(invalid="ignore"):
            shares = np.exp(logs - sums[:, None])
        return np.where(exists[:, None], shares, means), sums

    def pseudo_counts(self, priors: Priors) -> Floats | float:
        """Pseudo-observations of every edge.

        With tables they depend on the weights. sum_u sum_j m_j log w_uj plus their number times the
        entropy of m is greatest where m is the geometric mean of the tables, so that steps that
        take m from the weights before never make `log_prior` fall.
        """
        if not self.network.has_tables:
            return priors.sum_pseudo_count
        counts = np.full(self.network.num_weights, float(priors.sum_pseudo_count))
        for places in self.network.table_places:
            own: Floats | float = priors.sum_pseudo_count / places.shape[1]
            if priors.table_pseudo_count:
                own = own + priors.table_pseudo_count * self._common(places)[0][:, None]
            counts[places] = own
        return counts

    def log_prior_of_weights(self, priors: Priors) -> float:
        """Sum over edges of c log w, and what tables lose by differing from each other."""
        counts = np.full(self.network.num_weights, float(priors.sum_pseudo_count))
        tables = 0.0
        for places in self.network.table_places:
            counts[places] /= places.shape[1]
            learned = self.edges[places].any(axis=(1, 2))
            if priors.table_pseudo_count and learned.any():
                strength = priors.table_pseudo_count * places.shape[1]
                tables += strength * float(self._common(places)[1][learned].sum())
        weights = self.parameters.weights[self.edges]
        return tables + float(np.sum(xlogy(counts[self.edges], weights)))

    def reduce(self, operation: np.ufunc, values: Floats) -> Floats:
        """A reduction over the edges of each sum, repeated for each of its edges."""
        starts = sum_starts(self.network)
        if not starts.size:
            return values
        widths = np.diff(np.append(starts, values.size))
        return np.repeat(operation.reduceat(values, starts), widths)


def sections(network: DynamicNetwork, learnable: frozenset[int] | None = None) -> list[Section]:
    """Template, bottom where it has its own parameters, and top.

    Where `learnable` names nodes of the template, no other parameters may be learned, neither in
    the template nor in the bottom, and none of the top.
    """
    template, own = network.template, network.parameters
    chosen = np.full(len(template.nodes), learnable is None)
    chosen[list(learnable or ())] = True
    sums = np.fromiter(template.edge_offsets, dtype=np.int64)
    widths = np.diff([*template.edge_offsets.values(), template.num_weights])
    masks = np.repeat(chosen[sums], widths), tuple(chosen[list(b.nodes)] for b in template.banks)
    found = [Section("template", template, own.template, *masks)]
    if own.bottom is not None:
        found.append(Section("bottom", template, own.bottom, *masks))
    of_top = np.full(network.top.num_weights, learnable is None)
    return [*found, Section("top", network.top, own.top, of_top)]


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
    total = 0.0
    for own in sections(network, checked_learnable(network.template, learnable)):
        total += own.log_prior_of_weights(priors)
        for bank, rows, mask in zip(own.banks, own.parameters.leaves, own.leaves, strict=True):
            total += bank.family.log_prior(rows[mask], priors.leaf(bank.family, bank.variable))
    return total
