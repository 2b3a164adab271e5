"""Queries of any template, from the passes of `general`."""

from collections.abc import Callable
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats, Ints
from dspn.engine import base
from dspn.engine.base import TERMS, Choices, ExpectedFlows, Posteriors, Want
from dspn.engine.gpu.device import Array, Batch
from dspn.engine.gpu.general import Ascent, General, Network, log_sum
from dspn.errors import EvidenceError
from dspn.leaves.base import Family

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def log_totals(general: General, batch: Batch, members: Ints | None = None) -> Floats:
    """Log P(observed entries) of each sequence, or of some lanes, as totals."""
    out = np.zeros((TERMS, len(batch)))
    for lanes in general.blocks(batch, members):
        out[:, lanes.members] = general.device.here(Ascent(general, lanes).totals)
    return out


def posteriors(
    general: General, batch: Batch, want: Want, members: Ints | None = None
) -> Posteriors:
    """What is wanted: the posterior of a node is D V / root; of other lanes nothing is said.

    Without an entry its leaves are 1, and the root is the sum of their derivatives.
    """
    device, banks = general.device, general.network.template.banks
    xp, there = device.xp, device.there
    totals, k = np.zeros((TERMS, len(batch))), general.structure.outputs.size
    slices = batch.total_slices
    interfaces = xp.zeros((slices if want.interfaces else 0, k if want.interfaces else 0))
    surprises = xp.full((slices, len(banks)) if want.surprises else (0, 0), np.nan)
    leaves: list[Array] = []
    if want.leaves is not None:
        entry = np.cumsum(want.leaves, axis=0) - 1
        counts = want.leaves.sum(axis=0).tolist()
        leaves = [xp.zeros((n, len(b.nodes))) for n, b in zip(counts, banks, strict=True)]
    for lanes in general.blocks(batch, members):
        ascent = Ascent(general, lanes)
        totals[:, lanes.members] = device.here(ascent.totals)
        for height, V, D, at_outputs in ascent.downward(ascent.top_derivatives()):
            rows = lanes.rows(height)
            root = ascent.root[: len(rows)]
            if want.interfaces:
                outputs = V[device.keep(general.structure.outputs)]
                interfaces[there(rows)] = xp.exp(at_outputs + outputs - root).T
            for bank, nodes in zip(banks, general.structure.banks, strict=True):
                v = bank.variable
                if want.surprises:
                    left_out = log_sum(xp, D[device.keep(nodes)], 0)
                    surprises[there(rows), v] = left_out - root
                if want.leaves is not None:
                    asked = np.flatnonzero(want.leaves[rows, v])
                    if asked.size:
                        on, own = there(asked), device.keep(nodes)
                        logs = D[own] - left_out if want.surprises else D[own] + V[own] - root
                        leaves[v][there(entry[rows[asked], v])] = xp.exp(logs[:, on]).T
    here = device.here
    return Posteriors(totals, tuple(map(here, leaves)), here(interfaces), here(surprises))


def has_own_statistics(family: Family) -> bool:
    """Whether a family replaces the sum of counts times statistics by something else."""
    return type(family).expected_statistics is not Family.expected_statistics


@final
class LeafStatistics:
    """Expected statistics of the leaves of one network while slices are added."""

    def __init__(self, general: General, batch: Batch, own: Network) -> None:
        self.device, self.batch, self.own = general.device, batch, own
        self.banks = general.network.template.banks
        self.nodes = general.structure.banks
        xp = self.device.xp
        self.found = [
            xp.zeros((len(bank.nodes), bank.family.num_statistics)) for bank in self.banks
        ]
        self.tables = [
            None
            if has_own_statistics(bank.family)
            else self.device.there(bank.family.statistics(batch.distinct[bank.variable]))
            for bank in self.banks
        ]

    def add(self, rows: Ints, posterior: Callable[[Ints], Array]) -> None:
        """Adds some slices; posterior(nodes) are their counts (leaves, slices)."""
        for b, (bank, nodes) in enumerate(zip(self.banks, self.nodes, strict=True)):
            codes, counts = (
                self.batch.codes[bank.variable][self.device.there(rows)],
                posterior(nodes),
            )
            table = self.tables[b]
            if table is not None:
                self.found[b] += counts @ table[codes]
                continue
            values = self.batch.distinct[bank.variable][self.device.here(codes)]
            own = bank.family.expected_statistics(
                self.own.parameters.leaves[b], values, self.device.here(counts)
            )
            self.found[b] += self.device.there(own)

    def result(self) -> tuple[Floats, ...]:
        """The sums so far."""
        return tuple(self.device.here(own) for own in self.found)


def expected_flows(
    general: General, batch: Batch, weights: Floats, members: Ints | None = None
) -> tuple[ExpectedFlows, Floats]:
    """Flows of edges, w D V / root, and statistics of leaves, each with its posterior.

    Lanes are added one block and one height after the other, so that the same batch gives the same
    sums.
    """
    device, network = general.device, general.network
    xp, there = device.xp, device.there
    untied = network.parameters.bottom is not None
    log_values = np.zeros(len(batch))
    at_template = xp.zeros(network.template.num_weights)
    at_bottom = xp.zeros(network.template.num_weights) if untied else at_template
    at_top = xp.zeros(network.top.num_weights)
    statistics = LeafStatistics(general, batch, general.template)
    at_bottom_leaves = LeafStatistics(general, batch, general.bottom) if untied else statistics
    for lanes in general.blocks(batch, members):
        ascent = Ascent(general, lanes)
        totals = device.here(ascent.totals)
        log_values[lanes.members] = base.rounded(totals)
        impossible = lanes.members[totals[0] == -np.inf]
        if impossible.size:
            raise EvidenceError(
                f"sequence {impossible.min()} has probability zero under the model."
            )
        share = xp.log(there(weights[lanes.members])) - ascent.root
        D_top = ascent.top_derivatives()
        general.top.add_flows(ascent.top, D_top, share, at_top)
        for height, V, D, _ in ascent.downward(D_top):
            rows = lanes.rows(height)
            own, log_share = ascent.own(height)[0], share[: len(rows)]
            target = at_template if height else at_bottom
            own.add_flows(V, D, log_share, target, general.told(batch, rows))

            def posterior(nodes: Ints, V: Any = V, D: Any = D, s: Any = log_share) -> Any:
                return xp.exp(D[device.keep(nodes)] + V[device.keep(nodes)] + s)

            (statistics if height else at_bottom_leaves).add(rows, posterior)
    here = device.here
    found = ExpectedFlows(
        base.NetworkFlows(here(at_template), statistics.result()),
        base.NetworkFlows(here(at_top), ()),
        base.NetworkFlows(here(at_bottom), at_bottom_leaves.result()) if untied else None,
    )
    return found, log_values


def _uniform(xp: Any, seeds: Array, height: int, nodes: Array) -> Array:
    """Numbers in [0, 1) for (nodes, lanes), each a function of seed, height and node alone."""
    state = seeds[None, :] + (nodes.astype(xp.uint64)[:, None] + np.uint64(1)) * _GOLDEN
    for salt in (np.uint64(height + 1) * _MIX[0], _GOLDEN):
        state = state ^ salt
        state = (state ^ (state >> np.uint64(30))) * _MIX[0]
        state = (state ^ (state >> np.uint64(27))) * _MIX[1]
        state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(11)).astype(xp.float64) * 2.0**-53


def _draw(xp: Any, terms: Array, uniform: Array) -> Array:
    """A branch of each sum in proportion to exp(terms), (m, c, lanes) -> (m, lanes)."""
    largest = terms.max(axis=1, keepdims=True)
    shares = xp.cumsum(xp.exp(terms - xp.where(largest > -np.inf, largest, 0.0)), axis=1)
    return (shares > (uniform * shares[:, -1])[:, None]).argmax(axis=1)


def _chooser(xp: Any, seeds: Array | None, height: int) -> Callable[[Array, Array], Array]:
    """Takes the best branch of each sum, or one that follows the seeds; height -1 is the top."""
    if seeds is None:
        return lambda _, terms: terms.argmax(axis=1)

    def choose(nodes: Array, terms: Array) -> Array:
        return _draw(xp, terms, _uniform(xp, seeds[: terms.shape[2]], height, nodes))

    return choose


def chosen_by_top(general: General, V: Array, seeds: Array | None) -> Array:
    """Which inputs of the top network are on the tree of each lane, given its log values."""
    xp, network = general.device.xp, general.network
    active = xp.zeros(V.shape, dtype=bool)
    active[network.top.root] = True
    general.top.walk(V, active, _chooser(xp, seeds, -1))
    return active[general.device.keep(general.structure.top.inputs)]


def choices(
    general: General,
    batch: Batch,
    seeds: NDArray[np.uint64] | None,
    num_variables: int,
    members: Ints | None = None,
) -> Choices:
    """One induced tree for each sequence: the best one, or one drawn from the posterior by seed.

    Of other lanes than `members` nothing is said.
    """
    device, structure, network = general.device, general.structure, general.network
    xp, there = device.xp, device.there
    interfaces = xp.full((batch.total_slices, len(structure.groups)), -1, dtype=np.int64)
    leaves = xp.full((batch.total_slices, num_variables), -1, dtype=np.int64)
    log_values = np.zeros(len(batch))
    for lanes in general.blocks(batch, members):
        ascent = Ascent(general, lanes, maximise=seeds is None)
        log_values[lanes.members] = base.rounded(device.here(ascent.totals))
        own_seeds = None if seeds is None else there(seeds[lanes.members])

        chosen = chosen_by_top(general, ascent.top, own_seeds)
        for height in reversed(range(lanes.heights)):
            base.check_time()
            places = lanes.rows(height)
            rows = there(places)
            count, (part, _) = len(rows), ascent.own(height)
            now = chosen[:, :count]
            for g, group in enumerate(structure.groups):
                picked = now[device.keep(group)]
                at = device.keep(group)[picked.argmax(axis=0)]
                interfaces[rows, g] = xp.where(picked.any(axis=0), at, -1)
            V = ascent.values(height)
            active = xp.zeros(V.shape, dtype=bool)
            active[device.keep(structure.outputs)] = now
            part.walk(V, active, _chooser(xp, own_seeds, height), general.told(batch, places))
            for bank, nodes in zip(network.template.banks, structure.banks, strict=True):
                picked = active[device.keep(nodes)]
                leaves[rows, bank.variable] = xp.where(
                    picked.any(axis=0), picked.argmax(axis=0), -1
                )
            below = active[device.keep(part.part.inputs)]
            # An output that is an input at the same time, or a bare node, ends the tree here.
            chosen[:, :count] = below if height else False
    return Choices(device.here(interfaces), device.here(leaves), log_values)
