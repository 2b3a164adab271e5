"""Parameters to start from: clusters of slices, or random ones.

From clusters the network begins as a Markov chain over them. Each slice is seen together with the
slices around it. How the counts of the chain are smoothed makes little difference; that slices of
one kind with different neighbours begin in different nodes does.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats, Ints, checked_rng, indices, require_type, whole_number
from dspn.data.schema import Kind
from dspn.data.sequences import Sequences
from dspn.engine import ExpectedFlows, check_time, compile_program
from dspn.errors import DataError, StructureError
from dspn.learning.em import scaled_families
from dspn.learning.moves import adjacent_rows
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.leaves import family_for
from dspn.leaves.base import Family, Prior
from dspn.leaves.gaussian import Gaussian
from dspn.leaves.told import sources_of, told_values
from dspn.structure.build import grouped_network, sizes_of_groups, unread
from dspn.structure.edit import with_labels
from dspn.structure.network import DynamicNetwork, Root, checked_root
from dspn.structure.parameters import NetworkParameters, Parameters, sum_starts
from dspn.structure.template import Template, Top
from dspn.structure.transitions import (
    Transitions,
    checked_transitions,
    sum_layers,
    visited_sums,
)

Singles = NDArray[np.float32]

# Centres are found on this many windows at most, and windows are made for as many at a time.
_MOST_WINDOWS: Final = 20_000
_MOST_ITERATIONS: Final = 12
_FEW_CLUSTERS: Final = 64
# Windows are told apart by as many of their principal components, see `_principal_axes`.
_MOST_AXES: Final = 40
_MANY_FEATURES: Final = 1024
# One outlier must not have a cluster of its own.
_FARTHEST: Final = 5.0
# What is left of a cluster's say in the order of others when the next one is numbered.
_FADING: Final = 0.8
_SMALLEST: Final = float(np.finfo(np.float64).tiny)


def category_block(codes: Floats, num_categories: int) -> Floats:
    """An indicator for each category, (rows, categories); zeros where the code is missing."""
    block = np.zeros((codes.size, num_categories))
    seen = np.flatnonzero(~np.isnan(codes))
    block[seen, codes[seen].astype(np.int64)] = 1.0
    return block


def _features(data: Sequences, variables: Sequence[int]) -> Singles:
    """Indicators of categories and standardised numbers, (slices, features), each of mean zero.

    A missing entry is 0, the mean of its columns. Where leaves are told the earlier values of a
    number, what is left for them to explain is its step: so the size of the step is a feature too.
    """
    columns = []
    for variable in variables:
        values = data.values[:, variable]
        seen = ~np.isnan(values)
        if data.schema[variable].kind == Kind.CATEGORICAL:
            own = category_block(values, data.schema[variable].num_categories).astype(np.float32)
            own[seen] -= own[seen].mean(axis=0) if seen.any() else 0.0
            if own.shape[1] == 2:  # the one is the other's negative; distances stay the same
                own = own[:, 1:] * np.float32(np.sqrt(2.0))
        else:
            points = family_for(data.schema[variable]).coordinates(values).T
            own = np.stack([_standard(column) for column in points], axis=1)
            told = sources_of(data.schema[variable])
            if any(source.lag and source.column == variable for source in told):
                own = np.concatenate([own, _standard(_step_sizes(values, data))[:, None]], axis=1)
        columns.append(own)
    return np.concatenate(columns, axis=1)


def _step_sizes(values: Floats, data: Sequences) -> Floats:
    """The log of how far each value is from the one before it; NaN where that is not known."""
    steps = np.full(len(values), np.nan)
    steps[1:] = np.abs(np.diff(values))
    steps[data.offsets[:-1]] = np.nan
    known = steps[~np.isnan(steps)]
    # Values that stay the same are a hundredth of a usual step apart.
    usual = float(np.median(known[known > 0])) if (known > 0).any() else 1.0
    found: Floats = np.log(steps + 0.01 * usual)
    return found


def _standard(values: Floats) -> Singles:
    """Standardised numbers, 0 where missing, none of them far out."""
    reference = Gaussian().scaled_to(values)
    standard = (values - reference.location) / reference.scale
    standard = np.where(np.isnan(values), 0.0, standard)
    return np.clip(standard, -_FARTHEST, _FARTHEST).astype(np.float32)


def shifted_rows(table: NDArray[Any], data: Sequences, rows: Ints, shift: int) -> NDArray[Any]:
    """Rows of a table `shift` slices further on in the same sequence; zeros beyond the ends."""
    sequence = np.searchsorted(data.offsets, rows, side="right") - 1
    there = rows + shift
    inside = (there >= data.offsets[sequence]) & (there < data.offsets[sequence + 1])
    shifted = np.zeros((rows.size, table.shape[1]), dtype=table.dtype)
    shifted[inside] = table[there[inside]]
    return shifted


def _windows(features: Singles, data: Sequences, rows: Ints, width: int, ahead: int) -> Singles:
    """Features of each row, of `width` slices before and of `ahead` slices after it.

    A slice beyond the ends of the sequence is 0, the mean.
    """
    shifts = range(-width, ahead + 1)
    return np.concatenate([shifted_rows(features, data, rows, own) for own in shifts], axis=1)


def _principal_axes(rows: Singles) -> Singles:
    """The directions in which rows of mean zero vary most, (features, at most `_MOST_AXES`).

    Distances within them are nearly those of all features, at a fraction of the cost. Very many
    features, as of a variable with many categories, leave no time for all directions.
    """
    if rows.shape[1] > _MANY_FEATURES:
        from sklearn.utils.extmath import randomized_svd

        found: Singles = randomized_svd(rows, _MOST_AXES, random_state=0)[2].T
        return found
    square = (rows.T @ rows).astype(np.float64)
    axes: Singles = np.linalg.eigh(square)[1][:, -_MOST_AXES:].astype(np.float32)
    return axes


def _centres(windows: Singles, num_clusters: int, rng: np.random.Generator) -> Singles:
    """Centres of k-means; fewer where there are fewer different windows."""
    # They take a while to import and serve this function alone.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    different = np.unique(windows, axis=0)
    if len(different) <= num_clusters:
        return different
    means = KMeans(
        num_clusters,
        # Far from each other where they are few; as dense as the windows where they are many.
        init="k-means++" if num_clusters <= _FEW_CLUSTERS else "random",
        n_init=1,
        max_iter=_MOST_ITERATIONS,
        random_state=int(rng.integers(2**31)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        centres: Singles = means.fit(windows).cluster_centers_
    return centres


def _nearest_centres(
    windows: Callable[[Ints], Singles], total: int, count: int, rng: np.random.Generator
) -> Ints:
    """The nearest of `count` centres of each of `total` windows, numbered without gaps."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    sample = np.arange(total)
    if total > _MOST_WINDOWS:
        sample = np.sort(rng.choice(total, _MOST_WINDOWS, replace=False))
    nearest = []
    # Threads add up in any order, and the last bits with them: one thread, one result.
    with threadpool_limits(limits=1):
        seen = windows(sample)
        axes = _principal_axes(seen) if seen.shape[1] > _MOST_AXES else None
        seen = seen if axes is None else seen @ axes
        centres = _centres(seen, count, rng)
        squares = 0.5 * np.einsum("cf,cf->c", centres, centres)
        for rows in np.split(np.arange(total), range(_MOST_WINDOWS, total, _MOST_WINDOWS)):
            check_time()
            if total > _MOST_WINDOWS:
                seen = windows(rows)
                seen = seen if axes is None else seen @ axes
            # The centre at the least Euclidean distance, the first among equals.
            nearest.append(np.argmin(squares - seen @ centres.T, axis=1))
    return np.unique(np.concatenate(nearest), return_inverse=True)[1].astype(np.int64)


def slice_clusters(
    data: Sequences,
    num_clusters: int,
    *,
    width: int = 2,
    ahead: int | None = None,
    variables: Sequence[int] | None = None,
    beside: Floats | None = None,
    apart: Ints | None = None,
    rng: np.random.Generator,
) -> Ints:
    """The nearest of `num_clusters` k-means centres to the window around each slice, (slices,).

    A window has an indicator for each category and standardised numbers; what is missing or beyond
    the ends counts as the mean. Clusters are numbered from 0 without gaps; there are fewer where
    fewer windows differ.

    Args:
        data: The sequences.
        num_clusters: The number of centres.
        width: The slices before its own that a window has.
        ahead: The slices after it; by default as many as before.
        variables: The variables of a window, by number; by default all.
        beside: More numbers of each slice, (slices, n), that clusters see; together they count as
            much as the window.
        apart: A number for each slice; slices with different ones are in different clusters. Every
            number has clusters in proportion to its slices, one at least.
        rng: The source of randomness.
    """
    require_type(data, Sequences, "data", DataError)
    count = whole_number(num_clusters, "num_clusters", StructureError)
    reach = whole_number(width, "width", StructureError, least=0)
    after = reach if ahead is None else whole_number(ahead, "ahead", StructureError, least=0)
    checked_rng(rng, StructureError)
    every = range(data.num_variables)
    chosen = indices(every if variables is None else variables, "variables", StructureError)
    if not chosen or not all(variable in every for variable in chosen):
        raise StructureError(
            "`variables` must name at least one variable, by numbers from 0 to "
            f"{data.num_variables - 1}, but is {chosen}."
        )
    features = _features(data, chosen)
    more = None
    if beside is not None:
        spread = (reach + after + 1) * float(features.var(axis=0).sum())
        more = (beside - beside.mean(axis=0)).astype(np.float32)
        more *= np.sqrt(spread / max(float(more.var(axis=0).sum()), _SMALLEST))

    def windows(rows: Ints) -> Singles:
        own = _windows(features, data, rows, reach, after)
        return own if more is None else np.concatenate([own, more[rows]], axis=1)

    if apart is None:
        return _nearest_centres(windows, data.total_slices, count, rng)
    _, kind, sizes = np.unique(apart, return_inverse=True, return_counts=True)
    if sizes.size > count:
        raise StructureError(
            f"`num_clusters` must be at least {sizes.size}, one for each number in `apart`, but is "
            f"{count}."
        )
    labels, begun = np.zeros(data.total_slices, dtype=np.int64), 0
    parts = np.split(np.argsort(kind, kind="stable"), np.cumsum(sizes)[:-1])
    for rows, part in zip(parts, _shared_out(count, sizes).tolist(), strict=True):
        own = _nearest_centres(partial(_at, windows, rows), rows.size, part, rng)
        labels[rows] = begun + own
        begun += int(own.max()) + 1
    return labels


def _at(windows: Callable[[Ints], Singles], rows: Ints, places: Ints) -> Singles:
    """The windows of some of the rows."""
    return windows(rows[places])


def _shared_out(count: int, sizes: Ints) -> Ints:
    """`count` in parts in proportion to sizes, one for each at least."""
    parts: Ints = 1 + (count - sizes.size) * sizes // sizes.sum()
    parts[np.argsort(-sizes, kind="stable")[: count - int(parts.sum())]] += 1
    return parts


def sequence_clusters(
    data: Sequences, num_clusters: int, rng: np.random.Generator, beside: Floats | None = None
) -> Ints:
    """The nearest of `num_clusters` k-means centres to the mean slice of each sequence.

    Every cluster has sequences, if there are as many. With `beside`, numbers of each slice, it is
    the mean of these.
    """
    table = _features(data, range(data.num_variables)) if beside is None else beside
    totals = np.add.reduceat(table, data.offsets[:-1])
    means: Singles = (totals / data.lengths[:, None]).astype(np.float32)
    found = _nearest_centres(lambda rows: means[rows], len(data), num_clusters, rng)
    return _spread(found, num_clusters, rng)


def label_counts(labels: Ints, size: int, weights: Floats | None = None) -> Floats:
    """How often each of `size` labels occurs, weighted where weights are given."""
    return np.bincount(labels, weights, minlength=size).astype(np.float64)


def label_leaves(labels: Ints, size: int, family: Family, values: Floats, prior: Prior) -> Floats:
    """The leaf of each of `size` labels that fits the values of its slices best."""
    statistics = family.statistics(values).T
    totals = np.stack([label_counts(labels, size, own) for own in statistics], axis=1)
    return family.maximise(totals, prior)


def smoothed_shares(counts: Floats, usual: Floats, pseudo_count: float) -> Floats:
    """Counts as shares, with pseudo-counts and one more that is spread like the usual counts."""
    usual = usual + 1.0
    smooth = counts + pseudo_count + usual / usual.sum()
    shares: Floats = smooth / smooth.sum(axis=-1, keepdims=True)
    return shares


def _edge_shares(reads: Sequence[Ints], above: Ints, below: Ints, pseudo_count: float) -> Floats:
    """Shares of each sum's edges among the pairs (above, below) on them, smoothed as above."""
    widths = [len(own) for own in reads]
    target, source = np.repeat(np.arange(len(reads)), widths), np.concatenate(reads)
    size = int(source.max()) + 1
    edges, pairs = target * size + source, above * size + below
    place = np.minimum(np.searchsorted(edges, pairs), edges.size - 1)
    counts = label_counts(place[edges[place] == pairs], edges.size)
    usual = label_counts(below, size)[source] + 1.0
    smooth = counts + pseudo_count + usual / np.bincount(target, usual)[target]
    shares: Floats = smooth / np.bincount(target, smooth)[target]
    return shares


def labelled_flows(
    network: DynamicNetwork, data: Sequences, labels: Floats | Ints, tables: Sequence[Floats]
) -> tuple[DynamicNetwork, ExpectedFlows]:
    """The network with labels of slices, see `with_labels`, and its expected flows.

    Args:
        network: The network without labels.
        data: The training set.
        labels: The label of each slice for each group, NaN where it is open.
        tables: For each group the probabilities of labels, a row for each of its nodes.
    """
    labelled = with_labels(network, tables)
    values = np.concatenate([data.values, labels], axis=1)
    seen = Sequences.from_codes(values, data.offsets, labelled.schema, inputs=data.inputs)
    return labelled, compile_program(labelled).expected_flows(seen, None).flows


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


def _positions(data: Sequences, root: Root) -> Ints:
    """How many slices each slice is away from the root."""
    first = data.offsets[:-1] if root == Root.FIRST else data.offsets[1:] - 1
    found: Ints = np.abs(np.arange(data.total_slices) - np.repeat(first, data.lengths))
    return found


def _next_states(states: Ints, size: int, positions: Ints) -> list[Ints]:
    """For each state the states at the next position; those at the last one read each other."""
    position = np.zeros(size, dtype=np.int64)
    position[states] = positions
    last = int(position.max())
    there = [np.flatnonzero(position == number) for number in range(last + 1)]
    return [there[min(own + 1, last)] for own in position.tolist()]


def _arranged(states: Ints, size: int, data: Sequences, root: Root) -> Ints:
    """The same clusters, numbered so that those that follow each other often are near.

    Blocks of clusters then have most ways among themselves. The next number goes to the cluster
    with the most ways to and from the last ones, which count less and less.
    """
    above, below = (states[rows] for rows in adjacent_rows(data, root))
    ends, others = np.concatenate([above, below]), np.concatenate([below, above])
    counts = np.bincount(ends, minlength=size)
    near = np.split(others[np.argsort(ends, kind="stable")], np.cumsum(counts)[:-1])
    number, ways = np.full(size, -1), np.zeros(size)
    latest = int(np.argmax(counts))
    for place in range(size):
        number[latest] = place
        ways = _FADING * ways + np.bincount(near[latest], minlength=size)
        latest = int(np.argmax(np.where(number < 0, ways, -1.0)))
    return number[states]


@final
@dataclass(frozen=True, eq=False)
class _Chain:
    """A cluster for each slice, seen as the states of a Markov chain from the root down.

    `begins[i]` is the state at the root of sequence i, `reads` the states that each state reads
    where these are not all of them.
    """

    data: Sequences
    states: Ints
    size: int
    root: Root
    reads: list[Ints] | None = None

    @property
    def begins(self) -> Ints:
        offsets = self.data.offsets
        return self.states[offsets[:-1] if self.root == Root.FIRST else offsets[1:] - 1]

    @property
    def counts(self) -> Floats:
        return label_counts(self.states, self.size)

    def transitions(self, pseudo_count: float, kind: Transitions) -> Floats:
        """Weights of the sums over inputs, layer after layer, in the order of their edges.

        These are the shares of the ways from cluster to cluster that take each edge; ways that the
        sums do not have are left out.
        """
        above, below = (self.states[rows] for rows in adjacent_rows(self.data, self.root))
        if self.reads is not None:
            return _edge_shares(self.reads, above, below, pseudo_count)
        if kind is Transitions.DENSE:
            pairs = label_counts(above * self.size + below, self.size**2)
            pairs = pairs.reshape(self.size, self.size)
            return smoothed_shares(pairs, self.counts, pseudo_count).ravel()
        visited = visited_sums(kind, self.size, above, below)
        layers = zip(sum_layers(kind, self.size), visited[1:], visited, strict=False)
        return np.concatenate([_edge_shares(*layer, pseudo_count) for layer in layers])

    def starts(self, members: Ints, pseudo_count: float) -> Floats:
        """Weights of the nodes that the root reads, for some of the sequences."""
        counts = label_counts(self.begins[members], self.size)
        there = slice(None) if self.reads is None else unread(self.reads)
        return smoothed_shares(counts[there], self.counts[there], pseudo_count)

    def leaves(
        self, family: Family, values: Floats, prior: Prior, rng: np.random.Generator
    ) -> Floats:
        """The leaf of each state fitted to its slices, a random one where there are none."""
        rows = label_leaves(self.states, self.size, family, values, prior)
        empty = np.flatnonzero(self.counts == 0)
        rows[empty] = family.random(empty.size, rng, values)
        return rows


def clustered_network(
    data: Sequences,
    num_interfaces: int | Sequence[int],
    *,
    groups: Sequence[Sequence[int]] | None = None,
    num_products: int = 1,
    transitions: Transitions | str = Transitions.DENSE,
    width: int = 2,
    ahead: int | None = None,
    beside: Floats | None = None,
    by_position: bool = False,
    priors: Priors = DEFAULT_PRIORS,
    rng: np.random.Generator,
    root: Root | str = Root.FIRST,
) -> DynamicNetwork:
    """A template whose interface nodes begin as clusters of slices with their context.

    The structure is that of `grouped_network`. Node i of a group has the leaves that fit cluster i
    of `slice_clusters` on the group's variables best, and weights that are the smoothed frequencies
    with which clusters follow each other, read from the root down. Where fewer windows differ than
    there are nodes, the largest clusters are cut in two at random. Several products of the top
    network begin as clusters of the root slices. Where outputs read inputs by blocks, clusters that
    follow each other often come into the same blocks. With `by_position` a node stands for slices
    equally far from the root and reads the nodes at the next position only, so that each position
    has distributions of its own. Slices beyond the longest sequence count as at the last position.

    Args:
        data: The training set.
        num_interfaces: The interface nodes of every group, or a number for each.
        groups: The variables of each group; by default all variables are in one.
        num_products: The products of the top network.
        transitions: Which inputs the outputs read; see `grouped_network`.
        width: The slices before their own that clusters see.
        ahead: The slices after it; by default as many as before.
        beside: More numbers of each slice that clusters see; see `slice_clusters`.
        by_position: Whether each position in a sequence has nodes of its own, in place of
            `transitions`. There must be a node for each slice of the longest sequence.
        priors: Pseudo-observations of weights and leaves.
        rng: The source of randomness.
        root: The slice that carries the top network.
    """
    require_type(data, Sequences, "data", DataError)
    require_type(priors, Priors, "priors", StructureError)
    checked_rng(rng, StructureError)
    members = [range(data.num_variables)] if groups is None else groups
    kind, apex = checked_transitions(transitions), checked_root(root)
    sizes = sizes_of_groups(num_interfaces, "num_interfaces", len(members))
    positions = None
    if by_position:
        positions = _positions(data, apex)
        if min(sizes) <= positions.max():
            raise StructureError(
                "`num_interfaces` must be at least the length of the longest sequence with "
                f"`by_position`, {positions.max() + 1}, but is {min(sizes)}."
            )

    def chain(group: Sequence[int], size: int) -> _Chain:
        seen: dict[str, Any] = {"width": width, "ahead": ahead, "beside": beside}
        labels = slice_clusters(data, size, variables=group, apart=positions, rng=rng, **seen)
        states = _spread(labels, size, rng)
        if kind is not Transitions.DENSE and positions is None:
            states = _arranged(states, size, data, apex)
        reads = None if positions is None else _next_states(states, size, positions)
        return _Chain(data, states, size, apex, reads)

    chains = []
    if positions is not None:
        chains = [chain(group, size) for group, size in zip(members, sizes, strict=True)]
    drawn = grouped_network(
        data.schema,
        members,
        sizes,
        num_products=num_products,
        transitions=kind,
        reads=[own.reads for own in chains if own.reads is not None] or None,
        rng=rng,
        root=apex,
    )
    network = scaled_families(drawn, data)
    chains = chains or [chain(group, size) for group, size in zip(members, sizes, strict=True)]
    count = priors.sum_pseudo_count
    leaves: dict[int, Floats] = {}
    for own, group in zip(chains, members, strict=True):
        for variable in group:
            family = network.template.banks[variable].family
            prior = priors.leaf(family, variable)
            leaves[variable] = own.leaves(family, told_values(data, variable), prior, rng)
    template = NetworkParameters(
        np.concatenate([own.transitions(count, kind) for own in chains]),
        tuple(leaves[variable] for variable in sorted(leaves)),
    )
    top = NetworkParameters(_top_weights(chains, num_products, count, rng))
    return network.with_parameters(Parameters(template, top))


def _top_weights(
    chains: Sequence[_Chain], num_products: int, pseudo_count: float, rng: np.random.Generator
) -> Floats:
    """Weights of the top network: of each product's sums over the groups, then of the products."""
    total = len(chains[0].data)
    product = np.zeros(total, dtype=np.int64)
    if len(chains) > 1 and num_products > 1:

        def indicators(rows: Ints) -> Singles:
            blocks = [category_block(own.begins[rows].astype(float), own.size) for own in chains]
            return np.concatenate(blocks, axis=1).astype(np.float32)

        product = _spread(_nearest_centres(indicators, total, num_products, rng), num_products, rng)
    weights = [
        chain.starts(np.flatnonzero(product == number), pseudo_count)
        for number in range(num_products if len(chains) > 1 else 1)
        for chain in chains
    ]
    if len(chains) > 1 and num_products > 1:
        shares = label_counts(product, num_products) + pseudo_count + 1.0 / num_products
        weights.append(shares / shares.sum())
    return np.concatenate(weights)


def random_weights(network: Template | Top, rng: np.random.Generator) -> Floats:
    """Weights of every sum from Dirichlet(1), in the order of the flat weight vector."""
    # Exponential draws, normalised; a draw of exactly zero must not leave a sum without weight.
    weights = rng.standard_exponential(network.num_weights) + _SMALLEST
    starts = sum_starts(network)
    widths = np.diff(np.append(starts, weights.size))
    shares: Floats = weights / np.repeat(np.add.reduceat(weights, starts), widths)
    return shares


def randomised(
    network: DynamicNetwork, data: Sequences, rng: np.random.Generator
) -> DynamicNetwork:
    """The same structure with random parameters: weights from Dirichlet(1), leaves near the data.

    Leaf families are scaled to the data, and leaves drawn as `Family.random` says. A bottom network
    of its own is drawn independently.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    checked_rng(rng, StructureError)
    scaled = scaled_families(network, data)
    template = scaled.template

    def drawn() -> NetworkParameters:
        leaves = tuple(
            bank.family.random(len(bank.nodes), rng, told_values(data, bank.variable))
            for bank in template.banks
        )
        return NetworkParameters(random_weights(template, rng), leaves)

    top = NetworkParameters(random_weights(scaled.top, rng))
    bottom = None if scaled.parameters.tied else drawn()
    return scaled.with_parameters(Parameters(drawn(), top, bottom))
