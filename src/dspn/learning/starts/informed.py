"""Splits that the data ask for: which nodes hold two kinds of slices, and which is which.

A node is worth splitting where two classes explain what is seen at its visits better than one: the
slice's own values, and the nodes that were chosen one slice above and one below. A naive Bayes
model of two classes, fitted to the visits of each node, says how much would be gained, and which
visits belong to which half.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import numpy as np
from scipy.special import expit

from dspn._arguments import Bools, Floats, Ints, checked_rng, require_type, whole_number
from dspn.data.sequences import Sequences
from dspn.engine import compile_program
from dspn.errors import DataError, StructureError
from dspn.inference.marginals import interface_posteriors
from dspn.learning.em import maximise
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.starts.clusters import category_block, labelled_flows, shifted_rows
from dspn.learning.starts.splits import split_interfaces
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.parameters import NetworkParameters, Parameters

# Visits are looked at in sequences of about this many slices in all.
_MOST_SLICES: Final = 50_000
# A slice that a node has less of than this tells nothing about the node.
_LEAST_SHARE: Final = 0.05
_TRIES: Final = 2
# How sure the first step is of the half that a slice was given to.
_CERTAINTY: Final = 0.95

_STEPS: Final = 15
# Smoothing: of each share, and of numbers as if as many had been seen at their mean and variance.
_PSEUDO_COUNT: Final = 0.1
# Standardised numbers: how far they count, and the least variance of a class.
_FARTHEST: Final = 5.0
_LEAST_VARIANCE: Final = 1e-2


# A naive Bayes model of two classes, by EM: are these slices of one kind, or of two?


def number_block(values: Floats, weights: Floats) -> Floats:
    """(1, z, z^2) of numbers standardised over the rows; zeros where the number is missing."""
    block = np.zeros((values.size, 3))
    seen = np.flatnonzero(~np.isnan(values))
    if seen.size:
        known, own = values[seen], weights[seen]
        # Differences to one of the values: a far location costs no digits.
        known = known - known[0]
        known -= np.average(known, weights=own)
        scale = np.sqrt(np.average(known * known, weights=own))
        z = np.clip(known / scale, -_FARTHEST, _FARTHEST) if scale > 0 else np.zeros(seen.size)
        block[seen] = np.stack([np.ones(seen.size), z, z * z], axis=1)
    return block


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """What is seen of some slices, as statistics that log-likelihoods are linear in.

    First come `num_shares` columns of shares, in blocks that begin at `starts` and whose rows add
    up to 1, or to 0 where nothing is known; then three columns for each number.
    """

    features: Floats
    starts: Ints
    num_shares: int
    weights: Floats

    @classmethod
    def of(cls, shares: Sequence[Floats], numbers: Sequence[Floats], weights: Floats) -> "Rows":
        """Puts blocks of shares and of numbers side by side; those without columns are left out."""
        kept = [block for block in shares if block.shape[1]]
        widths = [block.shape[1] for block in kept]
        features = np.concatenate([*kept, *numbers], axis=1)
        return cls(features, np.cumsum([0, *widths])[:-1], sum(widths), weights)

    def coefficients(self, counts: Floats) -> Floats:
        """What to multiply features by for the log-likelihood under the best fit to `counts`."""
        shares = counts[: self.num_shares] + _PSEUDO_COUNT
        if self.starts.size:
            widths = np.diff(np.append(self.starts, self.num_shares))
            shares = shares / np.repeat(np.add.reduceat(shares, self.starts), widths)
        weight, first, second = counts[self.num_shares :].reshape(-1, 3).T
        mean = first / (weight + _PSEUDO_COUNT)
        variance = (second + _PSEUDO_COUNT) / (weight + _PSEUDO_COUNT) - mean * mean
        variance = np.maximum(variance, _LEAST_VARIANCE)
        constant = -0.5 * (mean * mean / variance + np.log(variance))
        numbers = np.stack([constant, mean / variance, -0.5 / variance], axis=1)
        return np.concatenate([np.log(shares), numbers.ravel()])

    def first_guess(self, rng: np.random.Generator) -> Floats:
        """The share of the first class in each row: how much nearer it is to one row than another.

        The two rows are drawn by weight; rows in the middle fall on a side by chance.
        """
        size = len(self.features)
        chances = self.weights / self.weights.sum()
        one, other = rng.choice(size, size=2, replace=False, p=chances)
        difference = self.features[one] - self.features[other]
        difference[self.num_shares + 2 :: 3] = 0.0
        nearer = self.features @ difference
        tilt = 2.0 * (nearer - np.median(nearer)) + 0.1 * rng.standard_normal(size)
        guess: Floats = expit(tilt)
        return guess


def two_classes(rows: Rows, rng: np.random.Generator) -> tuple[float, Bools]:
    """Two classes in which what is seen is independent, after some steps of EM.

    Returns the log-likelihood gained by two classes, and which rows are rather of the second one.
    """
    features, weights = rows.features, rows.weights
    total = weights.sum()
    counts = weights @ features
    single = float(counts @ rows.coefficients(counts))
    share = rows.first_guess(rng)
    for _ in range(_STEPS):
        own = (weights * share) @ features
        part = np.clip((weights @ share) / total, 1e-6, 1.0 - 1e-6)
        rest = counts - own
        # Rounding must not leave less than nothing of a share in the other class.
        np.maximum(rest[: rows.num_shares], 0.0, out=rest[: rows.num_shares])
        np.maximum(rest[rows.num_shares :: 3], 0.0, out=rest[rows.num_shares :: 3])
        first = features @ rows.coefficients(own) + np.log(part)
        second = features @ rows.coefficients(rest) + np.log1p(-part)
        both = np.logaddexp(first, second)
        share = np.exp(first - both)
    return float(weights @ both) - single, second > first


# Which nodes to split, and how.


class _Division(NamedTuple):
    """The visits of a node in two halves: `rows` of the data, and which are of the second half.

    `gain` is the log-likelihood that two classes have over one.
    """

    position: int
    gain: float
    rows: Ints
    second: Bools


@final
@dataclass(frozen=True, eq=False)
class _Visits:
    """Some sequences of the data, and the posteriors of the interface nodes at their slices.

    `rows` has the row of each slice in the whole data.
    """

    network: DynamicNetwork
    data: Sequences
    rows: Ints
    posteriors: Floats

    @classmethod
    def of(
        cls,
        network: DynamicNetwork,
        data: Sequences,
        rng: np.random.Generator,
        most: int = _MOST_SLICES,
    ) -> "_Visits":
        """Sequences of about `most` slices, drawn at random, or all where they are few."""
        lengths = np.minimum(data.lengths, most)
        order = rng.permutation(len(data))
        before = np.cumsum(lengths[order]) - lengths[order]
        members = np.sort(order[before < most])
        part = data[members].slices(None, most)
        rows = np.repeat(data.offsets[members] - part.offsets[:-1], part.lengths)
        rows += np.arange(rows.size)
        return cls(network, part, rows, interface_posteriors(compile_program(network), part))

    def division(self, group: int, position: int, rng: np.random.Generator) -> _Division:
        """Two classes of the visits of a node, fitted to what is seen there."""
        rows = np.flatnonzero(self.posteriors[:, position] > _LEAST_SHARE)
        second = rng.random(rows.size) < 0.5
        gain = -np.inf
        if rows.size > 1:
            seen = self._seen(group, position, rows)
            for _ in range(_TRIES):
                gained, halves = two_classes(seen, rng)
                if gained > gain:
                    gain = gained
                    second = halves if 0 < halves.sum() < rows.size else second
        return _Division(position, gain, rows, second)

    def _seen(self, group: int, position: int, rows: Ints) -> Rows:
        """The values of the slices and the nodes above and below, as far as this node reads them.

        Counts are taken for continuous numbers.
        """
        weights = self.posteriors[rows, position]
        sources = self.network.group_sources
        readers = [g for g, read in enumerate(sources) if group in read]
        down = 1 if self.network.root == Root.FIRST else -1
        shares = [self._neighbours(g, rows, down) for g in sources[group]]
        shares.extend(self._neighbours(g, rows, -down) for g in readers)
        numbers = []
        for variable in self.network.group_variables[group]:
            values = self.data.values[rows, variable]
            width = self.data.schema[variable].num_categories
            if width:
                shares.append(category_block(values, width))
            else:
                numbers.append(number_block(values, weights))
        return Rows.of(shares, numbers, weights)

    def _neighbours(self, group: int, rows: Ints, shift: int) -> Floats:
        """Posteriors of a group's nodes one slice further up or down, 0 beyond the ends.

        Nodes that are never next to these visits are left out.
        """
        members = list(self.network.groups[group])
        shares: Floats = shifted_rows(self.posteriors, self.data, rows, shift)[:, members]
        return shares[:, shares.sum(axis=0) > _LEAST_SHARE]


def _labelled_step(
    network: DynamicNetwork,
    data: Sequences,
    labels: Floats,
    pairs: Sequence[tuple[int, int]],
    priors: Priors,
) -> DynamicNetwork:
    """One step of EM in which `labels` (slices, groups) say which half a slice belongs to.

    The labels are variables of a network made for this step, so templates of any shape will do. Two
    halves are nearly sure of their label; all other nodes leave it open.
    """
    rows = np.full((network.num_interfaces, 2), 0.5)
    for one, other in pairs:
        rows[[one, other]] = [[_CERTAINTY, 1.0 - _CERTAINTY], [1.0 - _CERTAINTY, _CERTAINTY]]
    tables = [rows[list(own)] for own in network.groups]
    new = maximise(*labelled_flows(network, data, labels, tables), priors).parameters

    def without(part: NetworkParameters) -> NetworkParameters:
        return NetworkParameters(part.weights, part.leaves[: -len(tables)])

    bottom = None if new.bottom is None else without(new.bottom)
    return network.with_parameters(Parameters(without(new.template), new.top, bottom))


def informed_split(
    network: DynamicNetwork,
    data: Sequences,
    count: int = 1,
    *,
    priors: Priors = DEFAULT_PRIORS,
    rng: np.random.Generator,
) -> DynamicNetwork:
    """The `count` nodes that gain most are split in two, each half with its own kind of visits.

    The structure is that of `split_interfaces`. Parameters come from one step of EM in which the
    slices of a split node are told their half; all other nodes take part as in any other step.

    Args:
        network: The network before.
        data: The training set.
        count: The number of nodes to split.
        priors: Pseudo-observations of weights and leaves.
        rng: The source of randomness.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    require_type(data, Sequences, "data", DataError)
    checked_rng(rng, StructureError)
    size = network.num_interfaces
    wanted = whole_number(count, "count", StructureError)
    if wanted > size:
        raise StructureError(
            f"`count` must be at most {size}, the number of interface nodes, but is {wanted}."
        )
    visits = _Visits.of(network, data, rng)
    divisions = [visits.division(g, position, rng) for position, g in enumerate(network.group_of)]
    chosen = sorted(divisions, key=lambda division: -division.gain)[:wanted]
    labels = np.full((data.total_slices, len(network.groups)), np.nan)
    for group, own in enumerate(network.groups):
        best = np.array(own)[np.argmax(visits.posteriors[:, list(own)], axis=1)]
        for division in chosen:
            mine = best[division.rows] == division.position
            rows = visits.rows[division.rows[mine]]
            labels[rows, group] = division.second[mine]
    split = split_interfaces(network, [division.position for division in chosen], rng, 0.0)
    pairs = [(division.position, size + number) for number, division in enumerate(chosen)]
    return _labelled_step(split, data, labels, pairs, priors)
