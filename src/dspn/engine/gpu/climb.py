"""The upward pass of any template: what depends on a slice alone first, the rest in one kernel.

Nodes with no input below them are computed for all distinct slices at once, as array operations.
Those that other nodes read are the coefficients of a slice. The nodes that are left run slice after
slice in a kernel that reads the structure as data.

It runs in linear arithmetic first. A sequence of which some value was below LEAST, where products
may lose digits, runs again in logarithms.
"""

from functools import cached_property
from typing import Any, Final, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.base import TERMS
from dspn.engine.gpu.device import Array, Batch
from dspn.engine.gpu.general import General, Network, plus
from dspn.engine.gpu.layout import Part, part_of, slice_nodes
from dspn.structure.network import Root
from dspn.structure.nodes import children_of

LEAST: Final = 1e-200
_SHARED_BYTES: Final = 48 << 10
_MOST_CODES: Final = 2.0**62
_LOG_TWO: Final = float(np.log(2.0))


@final
class ClimbLayout:
    """What follows from the structure alone, in the arrays of the kernel."""

    def __init__(self, own: General) -> None:
        structure, device, network = own.structure, own.device, own.network
        alone = slice_nodes(network.template)
        nodes_of = network.template.nodes
        read = {c for i, node in enumerate(nodes_of) if i not in alone for c in children_of(node)}
        read |= set(network.template.outputs)
        self.coefficients = np.array(sorted(read & alone), dtype=np.int64)
        self.slice_part = part_of(network.template, only=alone)
        parts = [
            part_of(network.template, without=alone | structure.bare),
            part_of(network.template, without=alone),
            structure.top,
        ]
        ints: list[Ints] = []
        sizes, length, edges = [], 0, 0
        self.places: list[Ints] = []
        for part in parts:
            steps, nodes, children, places = _flat(part)
            offsets = []
            for array in (steps, nodes, children):
                offsets.append(length)
                ints.append(array)
                length += len(array)
            sizes += [*offsets, edges, len(steps) // 5]
            edges += len(children)
            self.places.append(places)
        self.structure = device.there(np.concatenate(ints), np.int32)
        self.sizes = device.there(np.array(sizes), np.int32)
        self.coefficient = device.there(self.coefficients, np.int32)
        named = (structure.template.inputs, structure.outputs, structure.top.inputs)
        self.named = [device.there(array, np.int32) for array in named]
        self.group_of = device.there(structure.group_of, np.int32)
        ordered = [structure.outputs[group] for group in structure.groups]
        starts = np.cumsum([0, *map(len, ordered)])
        self.group_start = device.there(starts, np.int32)
        self.group_output = device.there(np.concatenate(ordered), np.int32)
        sources = [group for read_by in network.group_sources for group in read_by]
        starts = np.cumsum([0, *map(len, network.group_sources)])
        self.source_start = device.there(starts, np.int32)
        self.sources = device.there(np.array([*sources, 0]), np.int32)


@final
class Climb:
    """Upward passes of a program; its layout is made when it is first needed."""

    def __init__(self, own: General) -> None:
        self.general = own
        self._last: Batch | None = None
        self._tables: dict[tuple[bool, bool], Array] = {}
        structure = own.structure
        self.num_nodes = max(structure.template.num_nodes, structure.top.num_nodes)
        k, groups = structure.outputs.size, len(structure.groups)
        self.shared_bytes = 8 * (self.num_nodes + k + 7 * groups + 32)

    @cached_property
    def layout(self) -> ClimbLayout:
        """The layout, which programs of other parameters share."""
        derived = self.general.structure.derived
        if "climb" not in derived:
            derived["climb"] = ClimbLayout(self.general)
        found: ClimbLayout = derived["climb"]
        return found

    @property
    def applies(self) -> bool:
        """Whether the values of a slice have room in a multiprocessor, and weights are the same."""
        if self.general.network.template.has_tables or not self.general.device.is_gpu:
            return False
        return self.shared_bytes <= _SHARED_BYTES

    def _weights(self, logs: bool) -> Array:
        own = self.general.network.parameters
        given = (own.bottom or own.template, own.template, own.top)
        found = [
            np.append(part.weights, 1.0)[places]
            for part, places in zip(given, self.layout.places, strict=True)
        ]
        weights = np.concatenate(found)
        return self.general.device.there(np.log(weights) if logs else weights)

    def _table(self, batch: Batch, own: Network, logs: bool) -> Array:
        """Coefficients of the distinct slices."""
        general, device = self.general, self.general.device
        xp, (rows, _) = device.xp, _distinct_slices(batch)
        tables = general.leaf_logs(batch, own, False)
        network = Network(device, self.layout.slice_part, own.parameters)
        coefficients = self.layout.coefficients
        out = xp.empty((len(rows), coefficients.size))
        size = max(1, device.cells // self.layout.slice_part.num_nodes)
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            V = xp.zeros((self.layout.slice_part.num_nodes, len(some)))
            for bank, nodes, table in zip(
                general.network.template.banks, general.structure.banks, tables, strict=True
            ):
                V[device.keep(nodes)] = table[batch.codes[bank.variable][some]].T
            network.upward(V)
            out[start : start + size] = V[device.keep(coefficients)].T
        return out if logs else xp.exp(out)

    def table(self, batch: Batch, own: Network, logs: bool) -> Array:
        """Coefficients of the distinct slices; the last batch's are kept."""
        if self._last is not batch:
            self._last, self._tables = batch, {}
        key = (own is self.general.bottom, logs)
        if key not in self._tables:
            self._tables[key] = self._table(batch, own, logs)
        return self._tables[key]

    def run(self, batch: Batch, lanes: Ints, *, logs: bool) -> tuple[Floats, Floats, Floats]:
        """The root's value, the least value met and the divisors (groups, TERMS) of some lanes."""
        general, device = self.general, self.general.device
        xp, network = device.xp, general.network
        forward = network.root == Root.LAST
        lengths, offsets = batch.lengths[lanes], batch.offsets[lanes]
        first = offsets if forward else offsets + lengths - 1
        _, slot = _distinct_slices(batch)
        table = self.table(batch, general.template, logs)
        bottom = table
        if network.parameters.bottom is not None:
            bottom = self.table(batch, general.bottom, logs)
        k, groups = len(general.structure.outputs), len(general.structure.groups)
        results = xp.empty((2 + TERMS * groups, len(lanes)))
        threads = 64 if self.num_nodes <= 1024 else 128
        kernel: Any = device.kernel("climb", "climb", ("-DREAL=double", f"-DLOGS={int(logs)}"))
        own = self.layout
        inputs, outputs, top_inputs = own.named
        kernel(
            (len(lanes),),
            (threads,),
            (own.structure, self._weights(logs), own.sizes, own.coefficient,
             np.int32(own.coefficients.size), table, bottom, slot, inputs, outputs, top_inputs,
             np.int32(k), own.group_of, own.group_start, own.group_output, own.source_start,
             own.sources, np.int32(groups), np.int32(self.num_nodes), np.int32(network.top.root),
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


def _distinct_slices(batch: Batch) -> tuple[Array, Array]:
    """A row of each distinct slice, and the number of each slice among them."""
    if "distinct" not in batch.derived:
        xp, rows = batch.device.xp, batch.total_slices
        sizes = [len(distinct) for distinct in batch.distinct]
        if np.prod(np.array(sizes, dtype=np.float64)) < _MOST_CODES:
            code = xp.zeros(rows, dtype=np.int64)
            for size, codes in zip(sizes, batch.codes, strict=True):
                code = code * size + codes
            _, first, slot = xp.unique(code, return_index=True, return_inverse=True)
            batch.derived["distinct"] = (first, slot.astype(np.int32).reshape(-1))
        else:
            every = xp.arange(rows, dtype=np.int32)
            batch.derived["distinct"] = (every, every)
    found: tuple[Array, Array] = batch.derived["distinct"]
    return found


def _flat(part: Part) -> tuple[Ints, Ints, Ints, Ints]:
    """Steps, nodes, children and places of weights, as the kernel reads them."""
    none = np.empty(0, dtype=np.int64)
    steps: list[int] = []
    nodes, children, places = [none], [none], [none]
    first = edge = 0
    for step in part.steps:
        width, count = step.width, step.nodes.size
        steps += [first, count, width, edge, int(step.is_sum)]
        nodes.append(step.nodes)
        children.append(np.broadcast_to(step.children, (count, width)).T.ravel())
        own = step.places if step.is_sum else np.full((count, width), -1)
        places.append(own.T.ravel())
        first += count
        edge += count * width
    joined = (np.concatenate(own).astype(np.int64) for own in (nodes, children, places))
    return (np.array(steps, dtype=np.int64), *joined)  # type: ignore[return-value]
