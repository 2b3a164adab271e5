"""Expected flows of chains: sums over all slices, brought to the machine in one transfer."""

from contextlib import nullcontext
from typing import Any, Final

import numpy as np

from dspn._arguments import Bools, Floats
from dspn.engine.base import ExpectedFlows, NetworkFlows
from dspn.engine.gpu.coefficients import Groups
from dspn.engine.gpu.device import Array
from dspn.engine.gpu.layers import edge_flows
from dspn.engine.gpu.passes import ChainRun, doubts, log_values, top_flows
from dspn.engine.gpu.queries import has_own_statistics
from dspn.structure.parameters import NetworkParameters

# Slices whose uses one product of matrices adds up in float32.
_ROWS_AT_ONCE: Final = 2**16
# Blocks for each multiprocessor that add up uses.
_BLOCKS: Final = 8


def expected_flows(run: ChainRun, weights: Floats) -> tuple[ExpectedFlows, Floats, Bools]:
    """Flows of the sequences that are not in doubt, log-likelihoods by lane, and those in doubt."""
    network, parameters = run.general.network, run.general.network.parameters
    of_lanes = weights[run.batch.order]
    # Shares are at most 1, so that derivatives have room; what they are divided by is exact.
    unit = 2.0 ** np.ceil(np.log2(of_lanes.max(initial=0.0) or 1.0))
    share = of_lanes / unit
    found = sums(run, share)
    results, highest = found[:2]
    doubtful = doubts(run, results, highest, share)
    if doubtful.any():
        found = sums(run, np.where(doubtful, 0.0, share))
    if unit != 1:
        for sums_of in found[2:]:
            sums_of *= unit
    edges, last, *leaves = found[2:]
    top = top_flows(network, run.given[-1], last[0])
    at_leaves = _statistics(run, leaves[: len(run.chunks.chunks)], parameters.template)
    bottom = None
    if parameters.bottom is not None:
        own = _statistics(run, leaves[len(run.chunks.chunks) :], parameters.bottom)
        bottom = NetworkFlows(np.zeros(network.template.num_weights), own)
    flows = ExpectedFlows(NetworkFlows(edges, at_leaves), NetworkFlows(top, ()), bottom)
    return flows, log_values(results), doubtful


def sums(run: ChainRun, share: Floats) -> list[Floats]:
    """Results, exponents of the range, flows of edges, uses of the top's inputs, sums by chunk.

    Sums by chunk are counts of its values, or statistics of its only variable. Those of the slices
    of a bottom network with its own parameters follow.
    """
    device, chunks, tables = run.device, run.chunks.chunks, _statistics_tables(run)
    flat, *found = run.repeated("sums", sums_there, [share])
    several = [len(own) > 1 for own in chunks] * ((len(found) - 4) // len(chunks))
    together = 4 + sum(several)
    here = device.parts_here(flat, found[:together])
    counts, others = iter(here[4:]), iter(found[together:])
    for c, is_here in enumerate(several):
        table = None if is_here else tables[chunks[c % len(chunks)][0]]
        if is_here:
            here.append(next(counts))
        elif table is None:
            here.append(device.here(next(others)))
        else:
            here.append(device.here(next(others).T @ device.keep(table)))
    return [*here[:4], *here[together:]]


def sums_there(run: ChainRun, more: list[Array]) -> list[Array]:
    """The same on the device: all that is small side by side, its parts, and counts of the rest."""
    k, share, device = run.layout.num_nodes, more[0].astype(run.dtype), run.device
    up = run.upward(run.range.under, keep=True)
    posteriors, uses, highest = run.downward(up, share)
    edges = used(run, uses, up.vectors) * run.weights
    edges = edges if run.layout.layers else edges[:, :k, :k]
    edges = run.layout.sparse(device, edges, run.general.network.template.num_weights)
    small = [up.results, highest, edges, _at_top(run).add(posteriors)[:, :k]]
    others = []
    untied = run.general.network.parameters.bottom is not None
    for part in ("others", "bottom") if untied else ("all",):
        for chunk, groups, values in zip(
            run.chunks.chunks, _groups(run, part), run.chunks.by_value, strict=True
        ):
            counts = groups.add(posteriors)
            if len(chunk) == 1:
                others.append(counts[:, :k])
            else:
                small.append(values.add(counts)[:, :k])
    return [*device.together(small), *others]


def used(run: ChainRun, uses: Array, vectors: Array) -> Array:
    """Sum over slices of uses[row, j] vectors[row below, i], in float64 (tables, j, i).

    Of layers the same for every edge, in the order of the weights.
    Rows are added in pieces of one size, and the pieces in their order.
    """
    xp = run.device.xp
    if not run.layout.by:
        pair = (uses[1:], vectors[:-1]) if run.direction > 0 else (uses[:-1], vectors[1:])
        if run.layout.layers:
            with run.products or nullcontext():
                return edge_flows(run.device, run.layout.layers, run.matrix, *pair, run.narrow)
        return _products(run, *pair)[None]

    def by_table() -> list[Any]:
        which, there = np.array(run.device.here(run.which)), run.device.there
        which[run.device.here(run.first)] = -1  # the bottom has no slice below it
        return [there(np.flatnonzero(which == table)) for table in range(len(run.weights))]

    rows = run.batch.keep(("rows", run.layout.by, int(run.direction)), by_table)
    return xp.stack([_products(run, uses[own], vectors[own - int(run.direction)]) for own in rows])


def _products(run: ChainRun, left: Array, right: Array) -> Array:
    """The sum over rows of left[row, j] right[row, i]."""
    xp, width, rows = run.device.xp, run.width, len(left)
    total = xp.zeros((width, width))
    if not rows:
        return total
    if run.is_scan:
        if width in (32, 64, 128) and run.dtype == np.float32:
            blocks = int(min(2 * run.device.processors, -(-rows // (2048 // width))))
            parts = xp.empty((blocks, width, width), dtype=run.dtype)
            kernel = run.tensor_kernel("outer", 256)
        else:
            sets = max(1, 256 // width**2)
            blocks = int(min(_BLOCKS * run.device.processors, -(-rows // sets)))
            parts = xp.empty((blocks * sets, width, width))
            kernel, _ = run.scan_kernel("outer")
        kernel((blocks,), (256,), (left, right, np.int64(rows), parts))
        return parts.sum(axis=0, dtype=np.float64)
    if run.products is not None:
        found = xp.empty((width, width), dtype=np.float32)
        with run.products as multiply:
            for start in range(0, rows, _ROWS_AT_ONCE):
                one, other = (own[start : start + _ROWS_AT_ONCE] for own in (left, right))
                multiply((False, True), (width, width, len(one)), other, one, found)
                total += found
        return total
    for start in range(0, rows, _ROWS_AT_ONCE):
        one, other = (own[start : start + _ROWS_AT_ONCE] for own in (left, right))
        total += xp.matmul(one.T, other)
    return total


def _at_top(run: ChainRun) -> Groups:
    """The topmost slices of all lanes, as one group."""
    batch, direction = run.batch, int(run.direction)

    def make() -> Groups:
        rows = batch.offsets + (batch.lengths - 1 if direction > 0 else 0)
        return Groups(run.device, rows, np.zeros(len(rows), dtype=np.int64), 1)

    found: Groups = batch.keep(("top", direction), make)
    return found


def _groups(run: ChainRun, part: str) -> list[Groups]:
    """For each chunk "all" slices by the row that they have, those of the "bottom", or "others"."""
    batch = run.batch

    def make() -> list[Groups]:
        if part == "all":
            return run.chunks.groups()
        at_bottom = np.zeros(batch.total_slices, dtype=np.bool_)
        at_bottom[run.device.here(run.first)] = True
        return run.chunks.groups(np.flatnonzero(at_bottom == (part == "bottom")))

    found: list[Groups] = batch.keep(("groups", run.width, part, int(run.direction)), make)
    return found


def _statistics_tables(run: ChainRun) -> list[Any]:
    """The statistics of each variable's values; None where a family needs its parameters."""
    banks = run.general.network.template.banks

    def make() -> tuple[Any, list[Any]]:
        found: list[Any] = [
            None
            if has_own_statistics(bank.family)
            else bank.family.statistics(run.chunks.values(v))
            for v, bank in enumerate(banks)
        ]
        return banks, found  # the banks stay alive with their number

    tables: list[Any] = run.batch.keep(("statistics", run.width, id(banks)), make)[1]
    return tables


def _statistics(
    run: ChainRun, by_chunk: list[Floats], parameters: NetworkParameters
) -> tuple[Floats, ...]:
    """Expected statistics of the leaves of each bank, from the sums of each chunk."""
    banks, chunks, tables = run.general.network.template.banks, run.chunks, _statistics_tables(run)
    found: list[Floats] = [np.empty(0)] * len(banks)
    for chunk, own in zip(chunks.chunks, by_chunk, strict=True):
        start = 0
        for v in chunk:
            by_value = own[start : start + chunks.radix[v]].T  # (outputs, values)
            start += chunks.radix[v]
            leaves, table = len(banks[v].nodes), tables[v]
            if table is None:
                by_leaf = run.layout.by_leaf(v, by_value, leaves)
                found[v] = banks[v].family.expected_statistics(
                    parameters.leaves[v], chunks.values(v), by_leaf
                )
                continue
            by_node = own if len(chunk) == 1 else by_value @ table
            found[v] = run.layout.by_leaf(v, by_node, leaves)
    return tuple(found)
