"""Posteriors, best paths and drawn paths of chains, by kernels that take all slices.

Sequences that linear arithmetic cannot answer for go through `general`, which draws by the same
numbers. The best path is found in logarithms, so that there are none.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Bools, Floats, Ints
from dspn.engine import base
from dspn.engine.base import TERMS, Choices, Posteriors, Want
from dspn.engine.gpu import queries
from dspn.engine.gpu.chain import ChainProgram
from dspn.engine.gpu.coefficients import Chunks, leaf_logs
from dspn.engine.gpu.device import Array, Batch
from dspn.engine.gpu.passes import (
    ChainRun,
    doubts,
    lanes_of,
    log_totals,
    log_values,
    tables_of,
)
from dspn.structure.parameters import NetworkParameters

_SHARED_BYTES: Final = 48 << 10
_DOUBLE: Final = ("-DREAL=double",)
# Log densities of one entry outside these are left to `general`.
_FARTHEST: Final = 69.0
_HIGHEST: Final = 27.0


def _slices_of(batch: Batch, lanes: Ints) -> Ints:
    """The slices of some lanes."""
    lengths, ends = batch.lengths[lanes], np.cumsum(batch.lengths[lanes])
    return np.arange(int(ends[-1])) + np.repeat(batch.offsets[lanes] - ends + lengths, lengths)


def posteriors(chain: ChainProgram, batch: Batch, want: Want) -> Posteriors:
    """What is wanted; surprises and what comes with them in double precision."""
    parts = chain.parts(batch, 8 if want.surprises else 4)
    if len(parts) == 1:
        return _posteriors(chain, batch, want)
    k, banks = chain.layout.num_nodes, chain.general.network.template.banks
    slices = batch.total_slices
    out = Posteriors(
        np.empty((TERMS, len(batch))),
        () if want.leaves is None else tuple(
            np.empty((int(n), len(bank.nodes)))
            for n, bank in zip(want.leaves.sum(axis=0), banks, strict=True)
        ),
        np.empty((slices, k) if want.interfaces else (0, 0)),
        np.empty((slices, len(banks)) if want.surprises else (0, 0)),
    )  # fmt: skip
    for part, members in parts:
        wanted = None if want.leaves is None else want.leaves[part.rows]
        found = _posteriors(chain, part, Want(wanted, want.interfaces, want.surprises))
        assert part.rows is not None
        _put(out, found, want, part.rows, members)
    return out


def _posteriors(chain: ChainProgram, batch: Batch, want: Want) -> Posteriors:
    run = chain.run_in_double(batch) if want.surprises else chain.run(batch)
    device, xp, k = run.device, run.device.xp, chain.layout.num_nodes
    up = run.upward(run.range.under, keep=True)
    found, _, highest = run.downward(up, xp.ones(len(batch), dtype=run.dtype))
    results = device.here(up.results)
    doubtful = doubts(run, results, device.here(highest), np.ones(1))
    totals = np.zeros((TERMS, len(batch)))
    totals[0, batch.order] = log_values(results)
    found = found[:, :k]
    interfaces = device.here(found).astype(np.float64) if want.interfaces else np.empty((0, 0))
    surprises = np.empty((batch.total_slices, 0 if not want.surprises else len(run.layout.member)))
    leaves = []
    for v, bank in enumerate(chain.general.network.template.banks):
        by_node = found
        if want.surprises:
            by_node, whole, lost = _without_entry(run, found, v)
            surprises[:, v] = device.here(whole)
            doubtful |= lost
        if want.leaves is not None:
            rows = device.there(np.flatnonzero(want.leaves[:, v]))
            own = device.here(by_node[rows]).astype(np.float64)
            leaves.append(chain.layout.by_leaf(v, own.T, len(bank.nodes)).T)
    out = Posteriors(totals, tuple(leaves), interfaces, surprises)
    if doubtful.any():
        lanes = np.flatnonzero(doubtful)
        rest = queries.posteriors(chain.general, batch, want, lanes)
        rows, members = _slices_of(batch, lanes), batch.order[lanes]
        taken = () if want.leaves is None else tuple(
            own[_entries(want.leaves[:, v], rows)] for v, own in enumerate(rest.leaves)
        )  # fmt: skip
        some = Posteriors(
            rest.log_values[:, members],
            taken,
            rest.interfaces[rows] if want.interfaces else rest.interfaces,
            rest.surprises[rows] if want.surprises else rest.surprises,
        )
        _put(out, some, want, rows, members)
    return out


def _entries(wanted: Bools, rows: Ints) -> Ints:
    """The places of some slices among the entries that are wanted of a variable."""
    return np.asarray((np.cumsum(wanted) - 1)[rows[wanted[rows]]])


def _put(out: Posteriors, some: Posteriors, want: Want, rows: Ints, members: Ints) -> None:
    """Writes the posteriors of some slices and sequences to their places."""
    out.log_values[:, members] = some.log_values
    if want.interfaces:
        out.interfaces[rows] = some.interfaces
    if want.surprises:
        out.surprises[rows] = some.surprises
    if want.leaves is not None:
        for v, (to, own) in enumerate(zip(out.leaves, some.leaves, strict=True)):
            to[_entries(want.leaves[:, v], rows)] = own


def _without_entry(run: ChainRun, found: Array, v: int) -> tuple[Array, Array, Bools]:
    """P(output | all other entries), log P(all others) / P(all), and lanes that lose digits.

    The posterior of an output divided by the density of its leaf is in proportion to that without
    the entry. What the range of numbers has lost of a posterior is below 2^-150: divided by a
    density of 2^-100 and compared with a sum of at least 2^-40 it does not count.
    """
    device, batch = run.device, run.batch
    xp, parameters = device.xp, run.general.network.parameters
    bank, member = run.general.network.template.banks[v], run.layout.member[v]
    lost = np.zeros(len(batch), dtype=np.bool_)
    by_node = xp.empty(found.shape)
    networks = [(parameters.template, None)]
    if parameters.bottom is not None:
        networks.append((parameters.bottom, run.first))
    for own, rows in networks:
        logs = bank.family.log_prob(own.leaves[v], batch.distinct[v])[:, member]
        far = np.asarray(((logs < -_FARTHEST) | (logs > _HIGHEST)).any(axis=1))
        codes = batch.codes[v] if rows is None else batch.codes[v][rows]
        inverse = xp.exp(-device.there(logs))
        if rows is None:
            xp.multiply(found, inverse[codes], out=by_node)
        else:
            by_node[rows] = found[rows] * inverse[codes]
        if far.any():
            at = np.arange(batch.total_slices) if rows is None else device.here(rows)
            slices = at[far[device.here(codes)]]
            by_offset = np.argsort(batch.offsets)
            place = np.searchsorted(batch.offsets[by_offset], slices, side="right") - 1
            lost[by_offset[place]] = True
    whole = by_node.sum(axis=1)
    return by_node / whole[:, None], xp.log(whole), lost


def applies(chain: ChainProgram) -> bool:
    """Whether the kernel of best paths can run: vectors need room in a multiprocessor."""
    return can_draw(chain) and _shared_bytes(chain) <= _SHARED_BYTES


def can_draw(chain: ChainProgram) -> bool:
    """Whether the kernel of drawn paths can run, which reads matrices."""
    return chain.general.device.is_gpu and not chain.layout.layers


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
    device, k = chain.general.device, chain.layout.num_nodes
    logs = leaf_logs(chain.general, chain.layout, chunks, parameters, peaks=True)
    values, digits = device.there(np.concatenate([logs, np.zeros((1, k))])), chunks.digits
    found = values[digits[:, 0]]
    for place in range(1, digits.shape[1]):
        found += values[digits[:, place]]
    return found


def _best(chain: ChainProgram, batch: Batch, _: None) -> tuple[Ints, Floats]:
    own, device, k = chain.general, chain.general.device, chain.layout.num_nodes
    xp, network, count = device.xp, own.network, len(batch)
    chunks: Chunks = batch.keep(("chunks", k), lambda: Chunks(batch, k))
    table = _log_table(chain, chunks, network.parameters.template)
    bottom = table
    if network.parameters.bottom is not None:
        bottom = _log_table(chain, chunks, network.parameters.bottom)
    dense = chain.layout.dense(device, device.there(network.parameters.template.weights))
    transition = xp.log(xp.ascontiguousarray(dense.transpose(0, 2, 1)))
    which = tables_of(batch, chain.layout)
    first, lengths, direction = lanes_of(batch, network.root)
    back = xp.empty((batch.total_slices, k), dtype=np.int32)
    last, totals = xp.empty((count, k)), xp.empty((TERMS, count))
    device.kernel("paths", "find_best", _DOUBLE)(
        (count,),
        (min(256, -(-k // 32) * 32),),
        (transition, which, table, bottom, chunks.codes, np.int32(len(chunks.chunks)), np.int32(k),
         first, lengths, direction, np.int32(count), back, last, totals),
        shared_mem=_shared_bytes(chain),
    )  # fmt: skip
    V = _top_values(chain, last, maximise=True)
    chosen = queries.chosen_by_top(own, V, None).argmax(axis=0).astype(np.int64)
    path = xp.empty(batch.total_slices, dtype=np.int64)
    device.kernel("paths", "follow", _DOUBLE)(
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
    first, lengths, direction = lanes_of(batch, network.root)
    last = first + int(direction) * (lengths.astype(np.int64) - 1)
    V = _top_values(chain, xp.log(up.vectors[last, :k]), maximise=False)
    own_seeds = device.there(seeds[batch.order])
    chosen = queries.chosen_by_top(chain.general, V, own_seeds).argmax(axis=0).astype(np.int64)
    path = xp.empty(batch.total_slices, dtype=np.int64)
    device.kernel("paths", "draw", _DOUBLE)(
        (-(-count // 4),),
        (128,),
        (run.matrix, run.which, up.vectors, np.int32(run.width), np.int32(k),
         device.there(chain.layout.sums, np.int32), first, lengths, direction, np.int32(count),
         own_seeds, chosen, path),
    )  # fmt: skip
    found, log_all = device.here(path), np.empty(count)
    log_all[batch.order] = logs
    if doubtful.any():
        lanes = np.flatnonzero(doubtful)
        num_variables = len(network.template.banks)
        rest = queries.choices(chain.general, batch, seeds, num_variables, lanes)
        rows = _slices_of(batch, lanes)
        found[rows] = rest.interfaces[rows, 0]
        log_all[batch.order[lanes]] = rest.log_values[batch.order[lanes]]
    return found, log_all
