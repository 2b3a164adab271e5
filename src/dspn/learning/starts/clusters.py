"""Starting from clusters of slices: the network begins as a Markov chain over the clusters.

How the counts of the chain are smoothed makes little difference; that slices of one kind with
different neighbours begin in different nodes does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._checks import checked_rng, require_type
from dspn.errors import DataError, StructureError
from dspn.learning.em import scaled_families
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.starts.windows import Singles, nearest_centres, slice_clusters
from dspn.leaves import Family, Prior
from dspn.sequences import Sequences
from dspn.structure import DynamicNetwork, NetworkParameters, Parameters, Root, grouped_network


def _counts(labels: Ints, size: int, weights: Floats | None = None) -> Floats:
    """How often each of `size` labels occurs, weighted where weights are given."""
    return np.bincount(labels, weights, minlength=size).astype(np.float64)


def _spread(labels: Ints, count: int, rng: np.random.Generator) -> Ints:
    """The same clusters, the largest ones cut in two at random until there are `count`."""
    labels = labels.copy()
    sizes = np.bincount(labels, minlength=count)
    for empty in range(int(labels.max()) + 1, count):
        largest = int(np.argmax(sizes))
        members = np.flatnonzero(labels == largest)
        moved = rng.permutation(members)[: members.size // 2]
        labels[moved] = empty
        sizes[largest], sizes[empty] = members.size - moved.size, moved.size
    return labels


@final
@dataclass(frozen=True, eq=False)
class _Chain:
    """A cluster for each slice, seen as the states of a Markov chain.

    `begins[i]` is the state at the root of sequence i; (`above`, `below`) are all pairs of states
    of a slice and of the slice below it.
    """

    states: Ints
    begins: Ints
    above: Ints
    below: Ints
    size: int

    @classmethod
    def of(cls, data: Sequences, states: Ints, size: int, root: Root) -> "_Chain":
        """Reads the states from the root to the bottom."""
        inner = np.ones(len(states), dtype=np.bool_)
        inner[data.offsets[:-1]] = False
        later = np.flatnonzero(inner)
        if root == Root.FIRST:
            return cls(states, states[data.offsets[:-1]], states[later - 1], states[later], size)
        return cls(states, states[data.offsets[1:] - 1], states[later], states[later - 1], size)

    def smoothed(self, counts: Floats, pseudo_count: float) -> Floats:
        """Counts as shares, with pseudo-counts and one more that is spread like the clusters."""
        usual = _counts(self.states, self.size) + 1.0
        smooth = counts + pseudo_count + usual / usual.sum()
        shares: Floats = smooth / smooth.sum(axis=-1, keepdims=True)
        return shares

    def transitions(self, pseudo_count: float) -> Floats:
        """Weights of the inputs at each output, (size, size)."""
        pairs = _counts(self.above * self.size + self.below, self.size**2)
        return self.smoothed(pairs.reshape(self.size, self.size), pseudo_count)

    def starts(self, members: Ints, pseudo_count: float) -> Floats:
        """Weights of the nodes at the root of some of the sequences, (size,)."""
        return self.smoothed(_counts(self.begins[members], self.size), pseudo_count)

    def leaves(
        self, family: Family, values: Floats, prior: Prior, rng: np.random.Generator
    ) -> Floats:
        """The leaf of each state fitted to its slices, a random one where there are none."""
        statistics = family.statistics(values)
        totals = np.stack([_counts(self.states, self.size, own) for own in statistics.T], axis=1)
        rows = family.maximise(totals, prior)
        empty = np.flatnonzero(_counts(self.states, self.size) == 0)
        rows[empty] = family.random(empty.size, rng, values)
        return rows


def clustered_network(
    data: Sequences,
    num_interfaces: int | Sequence[int],
    *,
    groups: Sequence[Sequence[int]] | None = None,
    num_products: int = 1,
    width: int = 2,
    priors: Priors = DEFAULT_PRIORS,
    rng: np.random.Generator,
    root: Root | str = Root.FIRST,
) -> DynamicNetwork:
    """A template whose interface nodes begin as clusters of slices with their context.

    The structure is that of `grouped_network`, by default with all variables in one group. Node i
    of a group has the leaves that fit cluster i of `slice_clusters` on the group's variables best,
    and weights that are the smoothed frequencies with which clusters follow each other, read from
    the root down. Where fewer windows differ than there are nodes, the largest clusters are cut in
    two at random. Several products of the top network begin as clusters of the root slices.
    """
    require_type(data, Sequences, "data", DataError)
    require_type(priors, Priors, "priors", StructureError)
    checked_rng(rng, StructureError)
    members = [range(data.num_variables)] if groups is None else groups
    drawn = grouped_network(
        data.schema, members, num_interfaces, num_products=num_products, rng=rng, root=root
    )
    network = scaled_families(drawn, data)
    chains = [
        _chain(data, group, len(own), width, network.root, rng)
        for group, own in zip(members, network.groups, strict=True)
    ]
    count = priors.sum_pseudo_count
    weights = [chain.transitions(count).ravel() for chain in chains]
    leaves: dict[int, Floats] = {}
    for chain, group in zip(chains, members, strict=True):
        for variable in group:
            family = network.template.banks[variable].family
            prior = priors.leaf(family)
            leaves[variable] = chain.leaves(family, data.values[:, variable], prior, rng)
    template = NetworkParameters(
        np.concatenate(weights), tuple(leaves[variable] for variable in sorted(leaves))
    )
    top = NetworkParameters(_top_weights(chains, num_products, count, rng))
    return network.with_parameters(Parameters(template, top))


def _chain(
    data: Sequences,
    group: Sequence[int],
    size: int,
    width: int,
    root: Root,
    rng: np.random.Generator,
) -> _Chain:
    labels = slice_clusters(data, size, width=width, variables=group, rng=rng)
    return _Chain.of(data, _spread(labels, size, rng), size, root)


def _top_weights(
    chains: Sequence[_Chain], num_products: int, pseudo_count: float, rng: np.random.Generator
) -> Floats:
    """Weights of the top network: of each product's sums over the groups, then of the products."""
    total = chains[0].begins.size
    if len(chains) == 1:
        return chains[0].starts(np.arange(total), pseudo_count)
    product = np.zeros(total, dtype=np.int64)
    if num_products > 1:
        states = np.stack([chain.begins for chain in chains])
        first = np.cumsum([0, *(chain.size for chain in chains[:-1])])
        width = sum(chain.size for chain in chains)

        def indicators(rows: Ints) -> Singles:
            found = np.zeros((rows.size, width), dtype=np.float32)
            found[np.arange(rows.size), (first[:, None] + states)[:, rows]] = 1.0
            return found

        product = _spread(nearest_centres(indicators, total, num_products, rng), num_products, rng)
    weights = [
        chain.starts(np.flatnonzero(product == number), pseudo_count)
        for number in range(num_products)
        for chain in chains
    ]
    if num_products > 1:
        sizes = _counts(product, num_products) + pseudo_count + 1.0 / num_products
        weights.append(sizes / sizes.sum())
    return np.concatenate(weights)
