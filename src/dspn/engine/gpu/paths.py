"""Posteriors, best paths and drawn paths of chains, by kernels that take all slices.

Sequences that linear arithmetic cannot answer for go through `general`, which draws by the same
numbers. The best path is found in logarithms, so that there are none.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats, Ints
from dspn.engine import base
from dspn.engine.base import TERMS, Choices, Posteriors, Want
from dspn.engine.gpu import general
from dspn.engine.gpu.chain import ChainProgram, ChainRun, Chunks, doubts, log_totals, log_values
from dspn.engine.gpu.device import Array, Batch
from dspn.leaves.told import missing_values
from dspn.structure.network import Root
from dspn.structure.parameters import NetworkParameters

_SHARED_BYTES: Final = 48 << 10


def _slices_of(batch: Batch, lanes: Ints) -> Ints:
    """The slices of some lanes."""
    lengths, ends = batch.lengths[lanes], np.cumsum(batch.lengths[lanes])
    return np.arange(int(ends[-1])) + np.repeat(batch.offsets[lanes] - ends + lengths, lengths)


def posteriors(chain: ChainProgram, batch: Batch, want: Want) -> Posteriors:
    """What is wanted, but for surprises."""
    parts = chain.parts(batch, 4)
    if len(parts) == 1:
        return _posteriors(chain, batch, want)
    k, banks = chain.layout.num_nodes, chain.general.network.template.banks
    out = Posteriors(np.empty((TERMS, len(batch))), (), np.empty((batch.total_slices, k)))
    leaves: list[Floats] = []
    if want.leaves is not None:
        counts = want.leaves.sum(axis=0).tolist()
        leaves = [np.empty((n, len(bank.nodes))) for n, bank in zip(counts, banks, strict=True)]
    for part, members in parts:
        wanted = None if want.leaves is None else want.leaves[part.rows]
        found = _posteriors(chain, part, Want(wanted, want.interfaces))
        out.log_values[:, members] = found.log_values
        if want.interfaces:
            out.interfaces[part.rows] = found.interfaces
        if want.leaves is not None:
            assert part.rows is not None and wanted is not None
            for v, own in enumerate(found.leaves):
                entry = np.cumsum(want.leaves[:, v]) - 1
                leaves[v][entry[part.rows[wanted[:, v]]]] = own
    return out._replace(
        leaves=tuple(leaves), interfaces=out.interfaces if want.interfaces else np.empty((0, 0))
    )


def _posteriors(chain: ChainProgram, batch: Batch, want: Want) -> Posteriors:
    run, k = chain.run(batch), chain.layout.num_nodes
    device, xp = run.device, run.device.xp
    up = run.upward(run.range.under, keep=True)
    found, _, highest = run.downward(up, xp.ones(len(batch), dtype=run.dtype))
    results = device.here(up.results)
    doubtful = doubts(run, results, device.here(highest))
    totals = np.zeros((TERMS, len(batch)))
    totals[0, batch.order] = log_values(results)
    leaves = []
    if want.leaves is not None:
        for v, bank in enumerate(chain.general.network.template.banks):
            rows = device.there(np.flatnonzero(want.leaves[:, v]))
            own = device.here(found[rows, :k]).astype(np.float64)
            leaves.append(chain.layout.by_leaf(v, own.T, len(bank.nodes)).T)
    interfaces = np.empty((0, 0))
    if want.interfaces:
        interfaces = device.here(found[:, :k]).astype(np.float64)
    if doubtful.any():
        lanes = np.flatnonzero(doubtful)
        rest = general.posteriors(chain.general, batch, want, lanes)
        rows = _slices_of(batch, lanes)
        totals[:, batch.order[lanes]] = rest.log_values[:, batch.order[lanes]]
        if want.interfaces:
            interfaces[rows] = rest.interfaces[rows]
        for v, by_leaf in enumerate(leaves):
            assert want.leaves is not None
            entry = (np.cumsum(want.leaves[:, v]) - 1)[rows[want.leaves[rows, v]]]
            by_leaf[entry] = rest.leaves[v][entry]
    return Posteriors(totals, tuple(leaves), interfaces)


def applies(chain: ChainProgram) -> bool:
    """Whether the kernel of best paths can run: vectors need room in a multiprocessor."""
    return chain.general.device.is_gpu and _shared_bytes(chain) <= _SHARED_BYTES


def _shared_bytes(chain: ChainProgram) -> int:
    return 8 * (2 * chain.layout.num_nodes + 64)


def _choices(
    chain: ChainProgram, batch: Batch, seeds: NDArray[np.uint64] | None, arrays: int, find: Any
) -> Choices:
    """Paths of all parts, as choices of outputs and of the leaves that belong to them."""
    path = np.empty(batch.total_slices, dtype=np.int64)
    logs = np.empty(len(batch))
    for part, members in chain.parts(batch, arrays):
        own = None if seeds is None else seeds[members]
        path[slice(None) if part.rows is None else part.rows], logs[members] = find(
            chain, part, own
        )
    member = np.stack(chain.layout.member, axis=1)
    return Choices(path[:, None], member[path], logs)


def best(chain: ChainProgram, batch: Batch) -> Choices:
    """The path and missing values of greatest joint density."""
    return _choices(chain, batch, None, 2, _best)


def draw(chain: ChainProgram, batch: Batch, seeds: NDArray[np.uint64]) -> Choices:
    """A path for each sequence from the posterior."""
    return _choices(chain, batch, seeds, 4, _draw)


def _log_table(chain: ChainProgram, chunks: Chunks, parameters: NetworkParameters) -> Array:
    """Log coefficients of the rows of all chunks; a missing entry has the mode of its leaf."""
    device, logs = chain.general.device, []
    for bank, rows, member in zip(
        chain.general.network.template.banks, parameters.leaves, chain.layout.member, strict=True
    ):
        distinct = chunks.batch.distinct[bank.variable][: chunks.radix[bank.variable]]
        own, modes = bank.family.log_prob(rows, distinct), bank.family.log_peak(rows, distinct)
        logs.append(np.where(missing_values(distinct)[:, None], modes, own)[:, member])
    logs.append(np.zeros((1, chain.layout.num_nodes)))
    values, digits = device.there(np.concatenate(logs)), chunks.digits
    found = values[digits[:, 0]]
    for place in range(1, digits.shape[1]):
        found += values[digits[:, place]]
    return found


def _lanes(chain: ChainProgram, batch: Batch) -> tuple[Array, Array, Any]:
    """First slices, lengths and direction, as the kernels read them."""
    device, forward = chain.general.device, chain.general.network.root == Root.LAST
    key = ("lanes", forward)
    if key not in batch.derived:
        first = batch.offsets if forward else batch.offsets + batch.lengths - 1
        batch.derived[key] = (device.there(first), device.there(batch.lengths, np.int32))
    return (*batch.derived[key], np.int32(1 if forward else -1))


def _best(chain: ChainProgram, batch: Batch, _: None) -> tuple[Ints, Floats]:
    own, device, k = chain.general, chain.general.device, chain.layout.num_nodes
    xp, network, count = device.xp, own.network, len(batch)
    key = ("chunks", k)
    if key not in batch.derived:
        batch.derived[key] = Chunks(batch, k)
    chunks: Chunks = batch.derived[key]
    table = _log_table(chain, chunks, network.parameters.template)
    bottom = table
    if network.parameters.bottom is not None:
        bottom = _log_table(chain, chunks, network.parameters.bottom)
    places, entries = chain.layout.places
    matrix = np.zeros(k * k)
    matrix[entries] = network.parameters.template.weights[places]
    transition = xp.log(device.there(np.ascontiguousarray(matrix.reshape(k, k).T)))
    first, lengths, direction = _lanes(chain, batch)
    back = xp.empty((batch.total_slices, k), dtype=np.int32)
    last, totals = xp.empty((count, k)), xp.empty((TERMS, count))
    device.kernel("paths", "find_best")(
        (count,),
        (min(256, -(-k // 32) * 32),),
        (transition, table, bottom, chunks.codes, np.int32(len(chunks.chunks)), np.int32(k), first,
         lengths, direction, np.int32(count), back, last, totals),
        shared_mem=_shared_bytes(chain),
    )  # fmt: skip
    V = _top_values(chain, last, maximise=True)
    chosen = general.chosen_by_top(own, V, None).argmax(axis=0).astype(np.int64)
    path = xp.empty(batch.total_slices, dtype=np.int64)
    device.kernel("paths", "follow")(
        (-(-count // 128),),
        (128,),
        (back, np.int32(k), first, lengths, direction, np.int32(count), chosen, path),
    )
    log_best = np.empty(count)
    own_totals = base.plus(device.here(totals), device.here(V[network.top.root]))
    log_best[batch.order] = base.rounded(own_totals)
    return device.here(path), log_best


def _top_values(chain: ChainProgram, last: Array, *, maximise: bool) -> Array:
    """Log values of the top network over the log values of its inputs (lanes, inputs)."""
    own, xp = chain.general, chain.general.device.xp
    V = xp.zeros((own.structure.top.num_nodes, len(last)))
    V[own.device.keep(own.structure.top.inputs)] = last.T
    own.top.upward(V, maximise)
    return V


def _draw(chain: ChainProgram, batch: Batch, seeds: NDArray[np.uint64]) -> tuple[Ints, Floats]:
    device, k, count = chain.general.device, chain.layout.num_nodes, len(batch)
    xp, network = device.xp, chain.general.network
    run: ChainRun = chain.run_in_double(batch)
    logs, doubtful = log_totals(run)
    up = run.upward(0.0, keep=True)
    first, lengths, direction = _lanes(chain, batch)
    last = first + int(direction) * (lengths.astype(np.int64) - 1)
    V = _top_values(chain, xp.log(up.vectors[last, :k]), maximise=False)
    own_seeds = device.there(seeds[batch.order])
    chosen = general.chosen_by_top(chain.general, V, own_seeds).argmax(axis=0).astype(np.int64)
    path = xp.empty(batch.total_slices, dtype=np.int64)
    device.kernel("paths", "draw")(
        (-(-count // 4),),
        (128,),
        (run.matrix, up.vectors, np.int32(run.width), np.int32(k),
         device.there(chain.layout.sums, np.int32), first, lengths, direction, np.int32(count),
         own_seeds, chosen, path),
    )  # fmt: skip
    found, log_all = device.here(path), np.empty(count)
    log_all[batch.order] = logs
    if doubtful.any():
        lanes = np.flatnonzero(doubtful)
        num_variables = len(network.template.banks)
        rest = general.choices(chain.general, batch, seeds, num_variables, lanes)
        rows = _slices_of(batch, lanes)
        found[rows] = rest.interfaces[rows, 0]
        log_all[batch.order[lanes]] = rest.log_values[batch.order[lanes]]
    return found, log_all
