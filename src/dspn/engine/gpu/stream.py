"""One slice at a time: P_t(x_t | x_1..x_{t-1}) for a batch of streams, in logarithms.

With the root at the last slice a lane remembers the values of its interface nodes, and x_t enters
from above. With the root at the first slice and one group it remembers the derivatives of the root
by the interface nodes below, and x_t is the bottom network.
"""

from typing import Any, NamedTuple, final

import numpy as np

from dspn._arguments import Ints
from dspn.data.sequences import Sequences
from dspn.engine import base
from dspn.engine.base import TERMS, Advance, Posteriors, Prefixes, StreamArrays
from dspn.engine.gpu.device import Array, Batch
from dspn.engine.gpu.general import General, log_sum, plus, scaled
from dspn.errors import EvidenceError
from dspn.structure.network import Root


def can_stream(general: General) -> bool:
    """Whether a vector is enough: with the root last, or where all is linear in the inputs."""
    return general.network.root == Root.LAST or len(general.structure.groups) == 1


class _Memory(NamedTuple):
    """What lanes remember: vectors (k, lanes), and totals (groups, TERMS, lanes) divided out."""

    vectors: Array
    divisors: Array

    @classmethod
    def fresh(cls, general: General, lanes: int) -> "_Memory":
        """Before the first slice."""
        xp, structure, top = general.device.xp, general.structure, general.network.top
        divisors = xp.zeros((len(structure.groups), TERMS, lanes))
        if general.network.root == Root.LAST:
            return cls(xp.zeros((structure.outputs.size, lanes)), divisors)
        V = xp.zeros((structure.top.num_nodes, lanes))
        D = xp.full(V.shape, -np.inf)
        D[top.root] = 0.0
        general.top.downward(V, D)
        return cls(D[general.device.keep(structure.top.inputs)], divisors)


@final
class _Slices:
    """Some slices of a batch, one for each lane, above or below what the lanes remember."""

    def __init__(self, general: General, batch: Batch) -> None:
        self.general, self.batch = general, batch
        self.logs = self.bottom_logs = general.leaf_logs(batch, general.template, False)
        if general.network.parameters.bottom is not None:
            self.bottom_logs = general.leaf_logs(batch, general.bottom, False)

    def values(self, rows: Ints, memory: _Memory, bottom: bool, *, unseen: bool = False) -> Array:
        """Log values of all nodes; with the root first all inputs are 1."""
        general = self.general
        own, logs = (general.template, self.logs)
        if bottom:
            own, logs = (general.bottom, self.bottom_logs)
        inputs = memory.vectors if general.network.root == Root.LAST else 0.0
        return general.values(self.batch, own, logs, rows, inputs, unseen=unseen)

    def advance(self, rows: Ints, memory: _Memory, first: bool) -> tuple[_Memory, Array, Array]:
        """The memory after the slices, and log P_t with them and without, as totals."""
        if self.general.network.root == Root.LAST:
            V = self.values(rows, memory, first)
            unseen = self.values(rows, memory, first, unseen=True)
            after, top, _ = self.top(V, memory, first)
            _, before, _ = self.top(unseen, memory, first)
            return after, top, before
        general, xp = self.general, self.general.device.xp
        seen, unseen = (
            self.root(self.values(rows, memory, True, unseen=blank), memory)[0]
            for blank in (False, True)
        )
        V = self.values(rows, memory, False)
        D = self.derivatives(general.template, rows, V, memory.vectors)
        below = D[general.device.keep(general.template.part.inputs)]
        largest = below.max(axis=0)
        largest = xp.where(largest > -np.inf, largest, 0.0)
        divisors = plus(xp, memory.divisors[0], largest)[None]
        return _Memory(below - largest, divisors), seen, unseen

    def top(self, V: Array, memory: _Memory, first: bool) -> tuple[_Memory, Array, Array]:
        """The memory, the root as totals and the top's values above slices with the root last."""
        general, structure = self.general, self.general.structure
        device, network = general.device, general.network
        xp, lanes = device.xp, V.shape[1]
        outputs, largest = scaled(
            xp, device.keep, structure.groups, V[device.keep(structure.outputs)]
        )
        divisors = []
        for g in range(len(structure.groups)):
            total = xp.zeros((TERMS, lanes))
            total[0] = largest[g]
            for source in () if first else network.group_sources[g]:
                total = plus(xp, total, *memory.divisors[source])
            divisors.append(total)
        top = xp.zeros((structure.top.num_nodes, lanes))
        top[device.keep(structure.top.inputs)] = outputs
        general.top.upward(top)
        total = xp.zeros((TERMS, lanes))
        total[0] = top[network.top.root]
        for g in structure.top_groups:
            total = plus(xp, total, *divisors[g])
        return _Memory(outputs, xp.stack(divisors)), total, top

    def root(self, V: Array, memory: _Memory) -> tuple[Array, Array]:
        """The root as totals, and without divisors, where bottom slices meet the derivatives."""
        xp = self.general.device.xp
        outputs = V[self.general.device.keep(self.general.structure.outputs)]
        root = log_sum(xp, memory.vectors + outputs, 0)
        zero = xp.zeros_like(root)
        return plus(xp, xp.stack([root, zero, zero]), *memory.divisors[0]), root

    def derivatives(self, own: Any, rows: Ints, V: Array, at_outputs: Array) -> Array:
        """Log derivatives at all nodes of the slices from those at their outputs."""
        general = self.general
        D = general.device.xp.full(V.shape, -np.inf)
        D[general.device.keep(general.structure.outputs)] = at_outputs
        own.downward(V, D, general.told(self.batch, rows))
        return D

    def posteriors(
        self, rows: Ints, memory: _Memory, first: bool, *, given: bool
    ) -> tuple[Array, list[Array], Array]:
        """The root as totals, posteriors of leaves by lane, and surprises where `given`."""
        general, xp = self.general, self.general.device.xp
        keep, structure = general.device.keep, general.structure
        bottom = first or general.network.root == Root.FIRST
        V = self.values(rows, memory, bottom, unseen=not given)
        if general.network.root == Root.LAST:
            _, total, top = self.top(V, memory, first)
            D_top, root = xp.full(top.shape, -np.inf), top[general.network.top.root]
            D_top[general.network.top.root] = 0.0
            general.top.downward(top, D_top)
            outputs = V[keep(structure.outputs)]
            _, largest = scaled(xp, keep, structure.groups, outputs)
            above = D_top[keep(structure.top.inputs)] - largest[keep(structure.group_of)]
        else:
            (total, root), above = self.root(V, memory), memory.vectors
        D = self.derivatives(general.bottom if bottom else general.template, rows, V, above)
        leaves, surprises = [], xp.full((len(rows), len(structure.banks) if given else 0), np.nan)
        for v, nodes in enumerate(structure.banks):
            own = keep(nodes)
            logs = D[own] + V[own] - root
            if given:
                left_out = log_sum(xp, D[own], 0)
                surprises[:, v] = left_out - root
                logs = D[own] - left_out
            leaves.append(xp.exp(logs).T)
        return total, leaves, surprises


def prefixes(general: General, batch: Batch) -> Prefixes:
    """Log P_t(x_1..x_t) and log P_t(x_1..x_{t-1}) for every slice t, as totals."""
    out = Prefixes(*(np.zeros((TERMS, batch.total_slices)) for _ in range(2)))
    here, slices = general.device.here, _Slices(general, batch)
    for lanes in general.blocks(batch):
        memory = _Memory.fresh(general, lanes.width)
        for height in range(lanes.heights):
            base.check_time()
            count = int(lanes.active[height])
            memory = _Memory(memory.vectors[:, :count], memory.divisors[:, :, :count])
            rows = lanes.offsets[:count] + height
            memory, seen, unseen = slices.advance(rows, memory, height == 0)
            out.log_seen[:, rows], out.log_unseen[:, rows] = here(seen), here(unseen)
    return out


@final
class LaneStream(base.Stream):
    """One stream, or a batch of streams that take in a slice each at a time."""

    def __init__(self, general: General, memory: _Memory, lanes: int | None) -> None:
        self.general, self.memory, self.lanes = general, memory, lanes

    @classmethod
    def restored(cls, general: General, saved: StreamArrays | None) -> "LaneStream":
        """A stream at its beginning, or from what `arrays` gave."""
        with general.device.running():
            fresh = _Memory.fresh(general, 1)
            if saved is None:
                return cls(general, fresh, None)
            lanes, groups = int(saved.vectors.shape[-1]), len(fresh.divisors)
            shape = (len(fresh.vectors), lanes)
            base.check_shapes(saved, {"vectors": shape, "exponents": (groups * TERMS, lanes)})
            there = general.device.there
            divisors = there(saved.exponents.reshape(groups, TERMS, lanes))
            return cls(general, _Memory(there(saved.vectors), divisors), lanes)

    def _slices(self, data: Sequences) -> tuple[_Slices, Ints, _Memory]:
        if self.lanes not in (None, len(data)) or data.total_slices != len(data):
            raise EvidenceError(
                f"`data` must hold one slice for each of the {self.lanes or len(data)} streams, "
                f"but holds {data.total_slices} slices of {len(data)} sequences."
            )
        memory = self.memory
        if self.lanes is None and len(data) > 1:
            memory = _Memory.fresh(self.general, len(data))
        batch = self.general.device.batch(data)
        return _Slices(self.general, batch), np.arange(len(data)), memory

    def advance(self, data: Sequences, first: bool) -> Advance:
        """Takes in one more slice of every stream."""
        with self.general.device.running():
            slices, rows, memory = self._slices(data)
            after, seen, unseen = slices.advance(rows, memory, first)
            stream = LaneStream(self.general, after, len(rows))
            return Advance(stream, self._of_lanes(seen), self._of_lanes(unseen))

    def predict(self, first: bool, data: Sequences, *, given: bool = False) -> Posteriors:
        """Posteriors of the leaves of the next slice of every stream."""
        here = self.general.device.here
        with self.general.device.running():
            slices, rows, memory = self._slices(data)
            total, leaves, surprises = slices.posteriors(rows, memory, first, given=given)
            found = tuple(map(here, leaves))
            return Posteriors(self._of_lanes(total), found, surprises=here(surprises))

    def _of_lanes(self, totals: Array) -> Any:
        """Totals of the lanes; those of a single one have no axis for it."""
        found = self.general.device.here(totals)
        return found[:, 0] if found.shape[1] == 1 else found

    def arrays(self) -> StreamArrays:
        """The vectors in logarithms and what they were divided by."""
        here, (vectors, divisors) = self.general.device.here, self.memory
        lanes, width = vectors.shape[1], len(self.general.network.schema)
        exponents = np.array(here(divisors)).reshape(-1, lanes)
        return StreamArrays(True, np.array(here(vectors)), exponents, np.empty((0, width)))
