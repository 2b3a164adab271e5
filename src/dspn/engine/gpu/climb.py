"""The upward pass of any template in one kernel, which reads the structure as data.

It runs in linear arithmetic first. A sequence of which some value was below LEAST, where products
may lose digits, runs again in logarithms.
"""

from typing import Any, Final, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.base import TERMS
from dspn.engine.gpu.device import Array, Batch
from dspn.engine.gpu.general import General, Network, plus
from dspn.engine.gpu.layout import Part
from dspn.structure.network import Root

LEAST: Final = 1e-200
_SHARED_BYTES: Final = 48 << 10
_LOG_TWO: Final = float(np.log(2.0))


@final
class Climb:
    """The three networks of a program in the arrays of the kernel."""

    def __init__(self, own: General) -> None:
        self.general = own
        structure, device = own.structure, own.device
        network = own.network
        parts = [_flat(part) for part in (structure.bottom, structure.template, structure.top)]
        ints: list[Ints] = []
        sizes, kinds, length, edges, nodes = [], [], 0, 0, 0
        for start, node, below, child, is_sum, _ in parts:
            offsets = []
            for array in (start, node, below, child):
                offsets.append(length)
                ints.append(array)
                length += len(array)
            sizes += [*offsets, edges, nodes, len(start) - 1]
            kinds.append(is_sum)
            edges += len(child)
            nodes += len(is_sum)
        self.structure = device.there(np.concatenate(ints), np.int32)
        self.kinds = device.there(np.concatenate(kinds).astype(np.uint8))
        self.sizes = device.there(np.array(sizes), np.int32)
        self.places = [places for *_, places in parts]
        members = [len(bank.nodes) for bank in network.template.banks]
        self.leaf_node = device.there(np.concatenate(structure.banks), np.int32)
        self.leaf_variable = device.there(np.repeat(np.arange(len(members)), members), np.int32)
        self.leaf_member = np.concatenate([np.arange(m) for m in members])
        self.leaf_stride = device.there(np.repeat(members, members), np.int32)
        self.members = np.array(members)
        named = (structure.template.inputs, structure.outputs, structure.top.inputs)
        self.named = [device.there(array, np.int32) for array in named]
        self.group_of = device.there(structure.group_of, np.int32)
        sources = [list(own) for own in network.group_sources]
        starts = np.cumsum([0, *map(len, sources)])
        self.source_start = device.there(starts, np.int32)
        self.sources = device.there(np.array([*sum(sources, []), 0]), np.int32)
        self.num_nodes = max(structure.template.num_nodes, structure.top.num_nodes)
        k, groups = structure.outputs.size, len(structure.groups)
        self.shared_bytes = 8 * (self.num_nodes + k + 7 * groups + 32)

    @property
    def applies(self) -> bool:
        """Whether the values of a slice have room in a multiprocessor."""
        return self.general.device.is_gpu and self.shared_bytes <= _SHARED_BYTES

    def _weights(self, logs: bool) -> Array:
        own = self.general.network.parameters
        given = (own.bottom or own.template, own.template, own.top)
        found = [
            np.append(part.weights, 1.0)[places]
            for part, places in zip(given, self.places, strict=True)
        ]
        weights = np.concatenate(found)
        return self.general.device.there(np.log(weights) if logs else weights)

    def _tables(self, batch: Batch, own: Network, logs: bool) -> Array:
        xp = self.general.device.xp
        flat = xp.concatenate(
            [table.ravel() for table in self.general.leaf_logs(batch, own, False)]
        )
        return flat if logs else xp.exp(flat)

    def run(self, batch: Batch, lanes: Ints, *, logs: bool) -> tuple[Floats, Floats, Floats]:
        """The root's value, the least value met and the divisors (groups, TERMS) of some lanes."""
        general, device = self.general, self.general.device
        xp, network = device.xp, general.network
        forward = network.root == Root.LAST
        lengths, offsets = batch.lengths[lanes], batch.offsets[lanes]
        first = offsets if forward else offsets + lengths - 1
        rows = [len(distinct) for distinct in batch.distinct]
        bases = np.concatenate([[0], np.cumsum(np.array(rows) * self.members)])[:-1]
        leaf_base = np.repeat(bases, self.members) + self.leaf_member
        if ("codes", "all") not in batch.derived:
            batch.derived["codes", "all"] = xp.ascontiguousarray(xp.stack(batch.codes, axis=1))
        codes = batch.derived["codes", "all"]
        table = self._tables(batch, general.template, logs)
        bottom = table
        if network.parameters.bottom is not None:
            bottom = self._tables(batch, general.bottom, logs)
        k, groups = len(general.structure.outputs), len(general.structure.groups)
        results = xp.empty((2 + TERMS * groups, len(lanes)))
        threads = 64 if self.num_nodes <= 1024 else 128
        kernel: Any = device.kernel("climb", "climb", (f"-DLOGS={int(logs)}",))
        inputs, outputs, top_inputs = self.named
        kernel(
            (len(lanes),),
            (threads,),
            (self.structure, self._weights(logs), self.kinds, self.sizes, self.leaf_node,
             self.leaf_variable, device.there(leaf_base, np.int32), self.leaf_stride,
             np.int32(len(leaf_base)), table, bottom, codes, np.int32(len(rows)), inputs, outputs,
             top_inputs, np.int32(k), self.group_of, self.source_start, self.sources,
             np.int32(groups), np.int32(self.num_nodes), np.int32(network.top.root),
             device.there(first), device.there(lengths, np.int32),
             np.int32(1 if forward else -1), np.int32(len(lanes)), results),
            shared_mem=self.shared_bytes,
        )  # fmt: skip
        found = device.here(results)
        return found[0], found[1], found[2:].reshape(groups, TERMS, len(lanes))

    def log_totals(self, batch: Batch, lanes: Ints | None = None) -> Floats:
        """Log P(observed entries) of each sequence, as totals; in logarithms where lanes are given.

        Of other lanes than these nothing is said.
        """
        out, again = np.zeros((TERMS, len(batch))), lanes
        groups = self.general.structure.top_groups
        if again is None:
            value, low, divisors = self.run(batch, np.arange(len(batch)), logs=False)
            powers = divisors[groups, 0].sum(axis=0)
            out[0, batch.order] = np.log(value) + powers * _LOG_TWO
            again = np.flatnonzero(~(low >= LEAST))
        if again.size:
            value, _, divisors = self.run(batch, again, logs=True)
            totals = np.zeros((TERMS, again.size))
            totals[0] = value
            for group in groups:
                totals = plus(np, totals, *divisors[group])
            out[:, batch.order[again]] = totals
        return out


def _flat(part: Part) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
    """Starts of levels, nodes, starts of children, children, kinds and places of weights.

    A step is a level: no node of it reads another.
    """
    starts, nodes, below, children, is_sum, places = [0], [], [0], [], [], []
    for step in part.steps:
        width, count = step.width, step.nodes.size
        nodes.append(step.nodes)
        starts.append(starts[-1] + count)
        below += (below[-1] + width * np.arange(1, count + 1)).tolist()
        children.append(np.broadcast_to(step.children, (count, width)).ravel())
        is_sum.append(np.full(count, step.is_sum))
        own = step.places if step.is_sum else np.full((count, width), -1)
        places.append(own.ravel())
    none = np.empty(0, dtype=np.int64)

    def joined(arrays: list[Any]) -> Ints:
        return np.concatenate(arrays) if arrays else none

    return (
        np.array(starts), joined(nodes), np.array(below), joined(children),
        joined(is_sum).astype(np.int64), joined(places).astype(np.int64),
    )  # fmt: skip
