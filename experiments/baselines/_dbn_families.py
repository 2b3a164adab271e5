"""Families of a dynamic Bayesian network: expected counts, expected scores, and neighbours.

A family is a node with its parents. Given expected counts N its tables are (N + c) / sum (N + c),
and its part of the score is sum (N + c) log table, less the penalty for its free numbers.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import log, prod
from typing import Final, final

import numpy as np
from scipy.special import xlogy

from dspn._arguments import Floats
from experiments.baselines._dbn_inference import (
    Axes,
    Evidence,
    Posterior,
    expected_counts,
    state_marginal,
)
from experiments.baselines._dbn_model import BEFORE, NOW, Dbn, Item, Nodes, Parents, smoothed

Family = tuple[int, Parents]
"""A node and its parents."""

MOST_ENTRIES: Final = 2**18
"""Entries of the largest table that is considered."""


@final
@dataclass(frozen=True)
class Prior:
    """Observations of every entry beforehand, and what a free number costs for each log(slice)."""

    pseudo_count: float
    penalty: float


@final
@dataclass(frozen=True, eq=False)
class Counts:
    """Expected counts of a family; `later` is None where all slices are counted in `first`."""

    first: Floats
    later: Floats | None

    def score(self, pseudo_count: float) -> float:
        """Expected log-likelihood plus log prior of the tables that are made from the counts."""
        parts = [self.first] if self.later is None else [self.first, self.later]
        return sum(
            float(np.sum(xlogy(own + pseudo_count, smoothed(own, pseudo_count)))) for own in parts
        )


def all_counts(
    families: Iterable[Family],
    nodes: Nodes,
    evidence: Evidence,
    beliefs: Posterior,
    is_due: Callable[[], bool] = lambda: False,
) -> dict[Family, Counts] | None:
    """Expected counts of many families; None where time is up before all are counted.

    Families that need the same hidden nodes share one marginal of the posterior.
    """
    groups: defaultdict[tuple[int, ...], list[Family]] = defaultdict(list)
    for family in families:
        node, parents = family
        groups[Axes.of(parents.scope(node, is_first=False), nodes).places].append(family)
    openings: dict[Family, Floats] = {}
    found: dict[Family, Counts] = {}
    for places, members in groups.items():
        marginal = state_marginal(beliefs.later, places, nodes.num_hidden)
        for node, parents in members:
            scope = parents.scope(node, is_first=False)
            later = expected_counts(scope, nodes, evidence.later, marginal)
            opening = node, Parents(within=parents.within)
            if opening not in openings:
                openings[opening] = _opening_counts(opening, nodes, evidence, beliefs)
            first = openings[opening]
            own = Counts(first, later) if parents.between else Counts(first + later, None)
            found[node, parents] = own
            if is_due():
                return None
    return found


def _opening_counts(family: Family, nodes: Nodes, evidence: Evidence, beliefs: Posterior) -> Floats:
    node, parents = family
    scope = parents.scope(node, is_first=True)
    places = Axes.of(scope, nodes).places
    marginal = state_marginal(beliefs.first, places, nodes.num_hidden)
    return expected_counts(scope, nodes, evidence.first, marginal)


def cost(family: Family, nodes: Nodes, prior: Prior, num_slices: int) -> float:
    """The penalty of a family's free numbers."""
    node, parents = family
    return prior.penalty * log(max(num_slices, 1)) * nodes.num_free(node, parents)


def maximised(
    nodes: Nodes, parents: tuple[Parents, ...], counts: Mapping[Family, Counts], prior: Prior
) -> Dbn:
    """The tables that are most probable given the expected counts."""
    own = [counts[family] for family in enumerate(parents)]
    return Dbn(
        nodes,
        parents,
        tuple(smoothed(item.first, prior.pseudo_count) for item in own),
        tuple(
            None if item.later is None else smoothed(item.later, prior.pseudo_count) for item in own
        ),
    )


def score(dbn: Dbn, log_likelihood: float, prior: Prior, num_slices: int) -> float:
    """Log-likelihood plus log prior of the tables, less the penalty: what learning raises."""
    total = log_likelihood
    for node, parents in enumerate(dbn.parents):
        for table in (dbn.first[node], dbn.later[node]):
            if table is not None:
                total += float(np.sum(xlogy(prior.pseudo_count, table)))
        total -= cost((node, parents), dbn.nodes, prior, num_slices)
    return total


def _allowed(nodes: Nodes, node: int, *, within: bool) -> list[Item]:
    """Possible parents: everything in the slice before, and what stands before it in its own.

    Hidden nodes stand before variables, otherwise the order is that of the numbers.
    """
    hidden = range(nodes.num_observed, len(nodes.sizes))
    found = [(BEFORE, parent) for parent in range(len(nodes.sizes))]
    found += [(NOW, parent) for parent in hidden if parent < node or not nodes.is_hidden(node)]
    if within and not nodes.is_hidden(node):
        found += [(NOW, parent) for parent in range(node)]
    return found


def neighbours(nodes: Nodes, family: Family, max_parents: int, *, within: bool) -> list[Family]:
    """The family with one parent added, removed or exchanged; `within` allows variables' own."""
    node, parents = family
    own = set(parents.items)
    others = [item for item in _allowed(nodes, node, within=within) if item not in own]
    sets = [own - {item} for item in own]
    if len(own) < max_parents:
        sets += [own | {item} for item in others]
    sets += [own - {gone} | {item} for gone in own for item in others]
    found = {Parents.of(tuple(items)) for items in sets}
    return [
        (node, changed)
        for changed in sorted(found)
        if prod(nodes.shape(changed.scope(node, is_first=False))) <= MOST_ENTRIES
    ]
