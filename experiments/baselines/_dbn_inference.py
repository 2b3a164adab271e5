"""Exact inference in a dynamic Bayesian network whose variables are all observed.

Given the variables, what is left is a Markov chain over the joint state of the hidden nodes, whose
factor from slice to slice differs from slice to slice. With h binary nodes it has 2^h states, and a
slice costs 4^h: exponential in h, which is the price of exactness.
"""

from collections import defaultdict
from dataclasses import dataclass
from math import prod
from typing import Final, final

import numpy as np
from scipy.special import logsumexp

from dspn._arguments import Bools, Floats, Ints
from dspn.data import Sequences
from experiments.baselines._dbn_model import BEFORE, Dbn, Item, Nodes, has_gaps

_BLOCK_ENTRIES: Final = 2**22


@final
@dataclass(frozen=True, eq=False)
class Slices:
    """Codes of some slices and of the slices before them, (rows, n) each; none before the first."""

    now: Ints
    before: Ints | None

    @property
    def is_first(self) -> bool:
        """Whether these are first slices."""
        return self.before is None

    def codes(self, items: tuple[Item, ...], nodes: Nodes) -> Ints:
        """The joint value of observed items in each row, the last item running fastest."""
        found = np.zeros(len(self.now), dtype=np.int64)
        for back, node in items:
            source = self.before if back == BEFORE else self.now
            assert source is not None
            found = found * nodes.sizes[node] + source[:, node]
        return found


@final
@dataclass(frozen=True, eq=False)
class Evidence:
    """Sequences without gaps, longest first: their first slices, and all later ones.

    Sequence i begins at row `offsets[i]` of the later slices, and is number `order[i]` of the data.
    """

    first: Slices
    later: Slices
    offsets: Ints
    order: Ints

    @classmethod
    def of(cls, data: Sequences) -> "Evidence":
        """The sequences of a batch, sorted by length."""
        order = np.argsort(-data.lengths, kind="stable")
        ranked = data[order]
        codes = ranked.values.astype(np.int64)
        begins = np.zeros(len(codes), dtype=np.bool_)
        begins[ranked.offsets[:-1]] = True
        later = np.flatnonzero(~begins)
        offsets = ranked.offsets - np.arange(len(ranked) + 1)
        return cls(
            Slices(codes[begins], None), Slices(codes[later], codes[later - 1]), offsets, order
        )

    @property
    def lengths(self) -> Ints:
        """Later slices of each sequence, falling."""
        return np.diff(self.offsets)

    @property
    def num_slices(self) -> int:
        """All slices together."""
        return len(self.first.now) + len(self.later.now)


@final
@dataclass(frozen=True, eq=False)
class Axes:
    """Which axes of a table are observed and which hidden, and where the hidden ones belong.

    Joint hidden states of two slices have 2h axes, those of the slice before first.
    """

    observed: tuple[int, ...]
    hidden: tuple[int, ...]
    places: tuple[int, ...]
    items: tuple[Item, ...]

    @classmethod
    def of(cls, scope: tuple[Item, ...], nodes: Nodes) -> "Axes":
        """The axes of a table of this scope."""
        observed = [axis for axis, (_, node) in enumerate(scope) if not nodes.is_hidden(node)]
        place = {
            axis: node - nodes.num_observed + (0 if back == BEFORE else nodes.num_hidden)
            for axis, (back, node) in enumerate(scope)
            if nodes.is_hidden(node)
        }
        hidden = sorted(place, key=lambda axis: place[axis])
        return cls(
            tuple(observed),
            tuple(hidden),
            tuple(place[axis] for axis in hidden),
            tuple(scope[axis] for axis in observed),
        )


def _log_factors(dbn: Dbn, slices: Slices) -> Floats:
    """Log of the product of all tables at each row and pair of hidden states, (rows, S', S).

    S' is 1 at first slices.
    """
    nodes, rows = dbn.nodes, len(slices.now)
    gathered: defaultdict[tuple[int, ...], Floats] = defaultdict(lambda: np.zeros(1))
    for node in range(len(nodes.sizes)):
        scope, table = dbn.table(node, is_first=slices.is_first)
        axes = Axes.of(scope, nodes)
        flat = np.log(table).transpose(axes.observed + axes.hidden)
        flat = flat.reshape(-1, 2 ** len(axes.hidden))
        codes = slices.codes(axes.items, nodes)
        gathered[axes.places] = gathered[axes.places] + flat[codes]
    num_hidden = nodes.num_hidden
    total = np.zeros((rows, *_state_shape(num_hidden, slices)))
    for places, values in gathered.items():
        shape = [2 if place in places else 1 for place in range(2 * num_hidden)]
        total += values.reshape(rows, *shape)
    before = 1 if slices.is_first else 2**num_hidden
    return total.reshape(rows, before, 2**num_hidden)


def _state_shape(num_hidden: int, slices: Slices) -> tuple[int, ...]:
    before = 1 if slices.is_first else 2
    return (*[before] * num_hidden, *[2] * num_hidden)


@final
@dataclass(frozen=True, eq=False)
class Posterior:
    """P(hidden states | data): of first slices (N, 1, S), of pairs at later ones (rows, S, S).

    Rows are those of the `Evidence`; `log_likelihood` is in its order, too.
    """

    first: Floats
    later: Floats
    log_likelihood: Floats


def _forward(first: Floats, later: Floats, evidence: Evidence) -> tuple[Floats, Floats]:
    """Log P(slices up to here, state): at first slices (N, S), and at later ones (rows, S)."""
    starts, lengths = evidence.offsets[:-1], evidence.lengths
    begun = first[:, 0, :]
    reached = np.empty((len(later), begun.shape[1]))
    last = begun
    for t in range(int(lengths[0])):
        going = int(np.searchsorted(-lengths, -t))
        rows = starts[:going] + t
        last = logsumexp(last[:going, :, None] + later[rows], axis=1)
        reached[rows] = last
    return begun, reached


def _final_states(begun: Floats, reached: Floats, evidence: Evidence) -> Floats:
    """The last of `_forward` of each sequence."""
    found = begun.copy()
    longer = evidence.lengths > 0
    found[longer] = reached[evidence.offsets[1:][longer] - 1]
    return found


def log_likelihood(dbn: Dbn, evidence: Evidence) -> Floats:
    """Log P(variables) of each sequence, in the order of the evidence."""
    first, later = _log_factors(dbn, evidence.first), _log_factors(dbn, evidence.later)
    states = _final_states(*_forward(first, later, evidence), evidence)
    return np.asarray(logsumexp(states, axis=1))


def posterior(dbn: Dbn, evidence: Evidence) -> Posterior:
    """P(hidden states | variables) by a pass forward and a pass backward."""
    first, later = _log_factors(dbn, evidence.first), _log_factors(dbn, evidence.later)
    begun, reached = _forward(first, later, evidence)
    total = logsumexp(_final_states(begun, reached, evidence), axis=1)
    assert np.isfinite(total).all()  # no entry of a table is zero
    starts, lengths = evidence.offsets[:-1], evidence.lengths
    ahead = np.zeros_like(begun)
    for t in reversed(range(int(lengths[0]))):
        going = int(np.searchsorted(-lengths, -t))
        rows = starts[:going] + t
        before = reached[rows - 1] if t else begun[:going]
        joint = later[rows] + ahead[:going, None, :]
        ahead[:going] = logsumexp(joint, axis=2)
        later[rows] = np.exp(joint + (before - total[:going, None])[:, :, None])
    opening = np.exp(begun + ahead - total[:, None])
    return Posterior(opening[:, None, :], later, total)


def evidence_blocks(data: Sequences, nodes: Nodes) -> list[Evidence]:
    """The sequences in blocks whose tables of pairs of states stay small."""
    width = max(1, _BLOCK_ENTRIES // 4**nodes.num_hidden)
    blocks, begin = [], 0
    while begin < len(data):
        reached = int(np.searchsorted(data.offsets, data.offsets[begin] + width, side="right")) - 1
        end = max(begin + 1, reached)
        blocks.append(Evidence.of(data[begin:end]))
        begin = end
    return blocks


def dbn_log_likelihood(dbn: Dbn, data: Sequences) -> Floats:
    """Log P(observed entries) of each sequence, whether or not entries are missing."""
    gaps: Bools = has_gaps(data)
    found = np.empty(len(data))
    if gaps.any():
        found[gaps] = dbn.marginal_log_likelihood(data[gaps])
    if not gaps.all():
        complete = data[~gaps]
        values = []
        for block in evidence_blocks(complete, dbn.nodes):
            own = np.empty(len(block.order))
            own[block.order] = log_likelihood(dbn, block)
            values.append(own)
        found[~gaps] = np.concatenate(values)
    return found


def expected_counts(
    scope: tuple[Item, ...], nodes: Nodes, slices: Slices, marginal: Floats
) -> Floats:
    """Expected number of rows with each joint value of a scope.

    `marginal` has the posterior of the scope's hidden items in the order of `Axes.places`, one
    column for each joint value.
    """
    axes = Axes.of(scope, nodes)
    shape = nodes.shape(scope)
    codes = slices.codes(axes.items, nodes)
    size = prod(shape[axis] for axis in axes.observed)
    columns = [np.bincount(codes, own, minlength=size).astype(np.float64) for own in marginal.T]
    kept = axes.observed + axes.hidden
    counts = np.stack(columns, axis=1).reshape([shape[axis] for axis in kept])
    return counts.transpose(np.argsort(kept))


def state_marginal(pairs: Floats, places: tuple[int, ...], num_hidden: int) -> Floats:
    """The posterior of some hidden items, (rows, joint values), from that of pairs of states."""
    rows, before = len(pairs), 2 if pairs.shape[1] > 1 else 1
    full = pairs.reshape(rows, *[before] * num_hidden, *[2] * num_hidden)
    out = tuple(1 + place for place in range(2 * num_hidden) if place not in places)
    found: Floats = full.sum(axis=out).reshape(rows, 2 ** len(places))
    return found
