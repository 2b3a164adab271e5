"""Every pass for any template, in logarithms and double precision, as array operations.

A sequence is a lane. Lanes stand from the longest to the shortest, so that those that have a slice
at some height are the first ones. Height 0 is the bottom network, and the top network stands on the
last height of each lane. Outputs are divided by the largest of their interface group, as in
`engine.reference`; the divisors are added up as totals. What the way down needs of a slice is made
again from its inputs, the only vectors that are kept.

Nothing is lost here to the range of floats: passes in other arithmetics come here, and to
`queries`, with the lanes that they cannot answer for.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine import base
from dspn.engine.base import TERMS
from dspn.engine.gpu.device import Array, Batch, Device
from dspn.engine.gpu.layout import Part, Step, bare_nodes, inputs_below_root, part_of
from dspn.errors import EvidenceError
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.parameters import NetworkParameters
from dspn.structure.template import Bank


@final
class Structure:
    """What follows from the structure of a network alone; programs of other parameters share it."""

    def __init__(self, network: DynamicNetwork) -> None:
        template = network.template
        self.derived: dict[str, Any] = {}
        self.bare = bare_nodes(template)
        self.template = part_of(template)
        self.bottom = part_of(template, without=self.bare)
        self.top = part_of(network.top)
        self.outputs = np.array(template.outputs, dtype=np.int64)
        self.groups = [np.array(group, dtype=np.int64) for group in network.groups]
        self.group_of = np.array(network.group_of, dtype=np.int64)
        read = inputs_below_root(network.top)
        self.top_groups = sorted({int(g) for g in self.group_of[read]})
        self.banks = [np.array(bank.nodes, dtype=np.int64) for bank in template.banks]


@final
class Network:
    """One of the three networks, with the logarithms of its parameters on the device.

    `V[node, lane]` are log values and `D[node, lane]` log derivatives of the root; `told[lane]` are
    the inputs of the schema at a lane's slice, where weights depend on them.
    """

    def __init__(self, device: Device, part: Part, parameters: NetworkParameters) -> None:
        self.device = device
        self.part = part
        self.parameters = parameters
        self._by_step: dict[int, Array] = {}

    @cached_property
    def log_weights(self) -> Array:
        """Logarithms of the weights; log 0 = -inf."""
        with self.device.running():
            return self.device.xp.log(self.device.there(self.parameters.weights))

    def _rows(self, step: Step, lanes: int) -> Iterator[slice]:
        """Some nodes of a step at a time."""
        size = max(1, self.device.cells // max(1, step.width * lanes))
        for start in range(0, step.nodes.size, size):
            yield slice(start, start + size)

    def _weights(self, step: Step, rows: slice, told: Array) -> Array:
        """Log weights of some sums of a step, (m, c, 1), or (m, c, lanes) by what they are told."""
        found = self._by_step.get(id(step))
        if found is None:
            tables = np.arange(step.num_tables)[:, None, None] * step.width
            places = step.places if step.by is None else step.places + tables
            found = self._by_step[id(step)] = self.log_weights[self.device.there(places)]
        if step.by is None:
            return found[rows][:, :, None]
        return found[:, rows][told[:, step.by]].transpose(1, 2, 0)

    def _terms(self, step: Step, rows: slice, V: Array, told: Array) -> Array:
        """Values of the children of some nodes of a step, with their weights at sums."""
        children = self.device.keep(step.children)
        found = V[children if step.is_shared else children[rows]]
        return found + self._weights(step, rows, told) if step.is_sum else found

    def upward(self, V: Array, maximise: bool = False, told: Array = None) -> None:
        """Fills in sums and products; those below have their values."""
        xp = self.device.xp
        for step in self.part.steps:
            for rows in self._rows(step, V.shape[1]):
                terms = self._terms(step, rows, V, told)
                if not step.is_sum:
                    found = terms.sum(axis=1)
                elif maximise:
                    found = terms.max(axis=1)
                else:
                    found = log_sum(xp, terms, 1)
                V[self.device.keep(step.nodes)[rows]] = found

    def downward(self, V: Array, D: Array, told: Array = None) -> None:
        """Adds every node's derivative to those of its children; D has those from above."""
        xp, keep = self.device.xp, self.device.keep
        for step in reversed(self.part.steps):
            nodes = keep(step.nodes)
            if step.is_sum and step.is_shared:
                children = keep(step.children)[0]
                for rows in self._rows(step, V.shape[1]):
                    above = D[nodes[rows]][:, None] + self._weights(step, rows, told)
                    D[children] = xp.logaddexp(D[children], log_sum(xp, above, 0))
                continue
            above = D[nodes][:, None]
            if step.is_sum:
                terms = above + self._weights(step, slice(None), told)
            else:
                terms = above + _sums_of_others(xp, V[keep(step.children)])
            terms = terms.reshape(-1, V.shape[1])
            for edges, children in step.rounds:
                own = keep(children)
                D[own] = xp.logaddexp(D[own], terms[keep(edges)])

    def add_flows(
        self, V: Array, D: Array, log_share: Array, flows: Array, told: Array = None
    ) -> None:
        """Adds the flow of every sum edge: the sum over lanes of exp(w + D + V + log_share)."""
        xp, keep = self.device.xp, self.device.keep
        for step in self.part.steps:
            if not step.is_sum:
                continue
            for rows in self._rows(step, V.shape[1]):
                above = D[keep(step.nodes)[rows]] + log_share
                used = xp.exp(self._terms(step, rows, V, told) + above[:, None])
                places = keep(step.places)[rows]
                if step.by is None:
                    flows[places] += used.sum(axis=2)
                    continue
                for table in range(step.num_tables):
                    own = xp.where(told[:, step.by] == table, used, 0.0).sum(axis=2)
                    flows[places + table * step.width] += own

    def walk(
        self, V: Array, active: Array, choose: Callable[[Array, Array], Array], told: Array = None
    ) -> None:
        """Marks the nodes of an induced tree of each lane below those that are marked.

        `choose(nodes, terms)` takes a branch of each sum, given the log values of all.
        """
        xp, keep = self.device.xp, self.device.keep
        for step in reversed(self.part.steps):
            for rows in self._rows(step, V.shape[1]):
                nodes = keep(step.nodes)[rows]
                member, lane = xp.nonzero(active[nodes])
                if step.is_sum:
                    taken = choose(nodes, self._terms(step, rows, V, told))[member, lane]
                    children = keep(step.children)
                    below = children[0] if step.is_shared else children[rows][member]
                    at = taken if step.is_shared else (xp.arange(len(taken)), taken)
                    active[below[at], lane] = True
                else:
                    for column in step.columns:
                        active[keep(column)[rows][member], lane] = True


def log_sum(xp: Any, terms: Array, axis: int) -> Array:
    """Log of the sum of exponentials along an axis."""
    largest = terms.max(axis=axis, keepdims=True)
    reference = xp.where(largest > -np.inf, largest, 0.0)
    found = xp.log(xp.exp(terms - reference).sum(axis=axis))
    return found + reference.squeeze(axis)


def _sums_of_others(xp: Any, terms: Array) -> Array:
    """For each child (m, c, lanes) the sum of its siblings; no difference, so nothing cancels."""
    count = terms.shape[1]
    found = xp.zeros_like(terms)
    before = xp.zeros_like(terms[:, 0])
    after = xp.zeros_like(before)
    for place in range(count):
        found[:, place] += before
        before = before + terms[:, place]
        found[:, count - 1 - place] += after
        after = after + terms[:, count - 1 - place]
    return found


def plus(xp: Any, total: Array, *logs: Array) -> Array:
    """`base.plus` for arrays on a device."""
    first, second, third = total
    for log in logs:
        first, rest = base.two_sum(first, log)
        second, rest = base.two_sum(second, rest)
        third = third + rest
    finite = xp.isfinite(first)
    return xp.stack([first, xp.where(finite, second, 0.0), xp.where(finite, third, 0.0)])


@final
class Lanes:
    """Some sequences of a batch, from the longest to the shortest."""

    def __init__(self, batch: Batch, members: Ints, root: Root) -> None:
        self.batch = batch
        self.members = batch.order[members]
        self.lengths = batch.lengths[members]
        self.offsets = batch.offsets[members]
        self.root = root
        self.width = len(members)
        self.heights = int(self.lengths[0])
        # How many lanes have a slice at each height.
        counts = np.bincount(self.lengths, minlength=self.heights + 1)
        self.active = self.width - np.cumsum(counts)[:-1]

    def rows(self, height: int) -> Ints:
        """The slices at a height, of the lanes that have one."""
        own = slice(int(self.active[height]))
        if self.root == Root.LAST:
            return self.offsets[own] + height
        return self.offsets[own] + self.lengths[own] - 1 - height


def distinct_values(batch: Batch, bank: Bank) -> Floats:
    """The distinct values of a bank's variable, with their contexts where its leaves need them."""
    found = batch.distinct[bank.variable]
    if bank.family.sources and found.ndim == 1:
        raise EvidenceError(
            "the data do not tell the leaves of the model what they need; read them with the "
            "schema of the model."
        )
    return found


@final
class General:
    """Passes of one network over batches; `leaf_logs` are log densities at distinct values."""

    def __init__(self, device: Device, network: DynamicNetwork, structure: Structure) -> None:
        self.device = device
        self.network = network
        self.structure = structure
        own = network.parameters
        self.template = Network(device, structure.template, own.template)
        self.bottom = Network(device, structure.bottom, own.bottom or own.template)
        self.top = Network(device, structure.top, own.top)

    def leaf_logs(self, batch: Batch, own: Network, maximise: bool) -> list[Array]:
        """Log densities (distinct values, leaves) of each bank; a missing entry has 0, or the mode.

        A missing entry is the last of the distinct values.
        """
        found = []
        for bank, rows in zip(self.network.template.banks, own.parameters.leaves, strict=True):
            distinct = distinct_values(batch, bank)
            logs = bank.family.log_prob(rows, distinct)
            if maximise:
                modes = bank.family.log_peak(rows, distinct)
                logs = np.where(bank.family.is_missing(distinct)[:, None], modes, logs)
            found.append(self.device.there(logs))
        return found

    def values(
        self, batch: Batch, own: Network, logs: list[Array], rows: Ints, inputs: Array,
        maximise: bool = False, *, unseen: bool = False,
    ) -> Array:  # fmt: skip
        """Log values of all nodes at some slices, given the inputs of the lanes."""
        xp, there = self.device.xp, self.device.there
        V = xp.zeros((own.part.num_nodes, len(rows)))
        if not unseen:
            at = there(rows)
            for bank, nodes, table in zip(
                self.network.template.banks, self.structure.banks, logs, strict=True
            ):
                V[self.device.keep(nodes)] = table[batch.codes[bank.variable][at]].T
        if own is not self.bottom:
            V[self.device.keep(own.part.inputs)] = inputs
        own.upward(V, maximise, self.told(batch, rows))
        return V

    def told(self, batch: Batch, rows: Ints) -> Array:
        """The inputs of the schema at some slices, where weights depend on them."""
        if not self.network.template.has_tables:
            return None
        return batch.told[self.device.there(rows)]

    def blocks(self, batch: Batch, members: Ints | None = None) -> Iterator[Lanes]:
        """Lanes whose vectors have room together."""
        chosen = np.arange(len(batch)) if members is None else np.sort(members)
        structure = self.structure
        k, nodes = structure.outputs.size, structure.template.num_nodes
        unshared = [
            step.nodes.size * step.width for step in structure.template.steps if not step.is_shared
        ]
        start = 0
        while start < chosen.size:
            length = int(batch.lengths[chosen[start]])
            each = 8 * (k * (length + 2) + 3 * nodes + 4 * max(unshared, default=0))
            count = int(min(max(1, self.device.room // each), 2**20))
            yield Lanes(batch, chosen[start : start + count], self.network.root)
            start += count
            base.check_time()


@final
class Ascent:
    """An upward pass over some lanes, which keeps the inputs and the divisors of every height."""

    def __init__(self, general: General, lanes: Lanes, maximise: bool = False) -> None:
        device, structure = general.device, general.structure
        xp = device.xp
        self.general, self.lanes, self.maximise = general, lanes, maximise
        self.template_logs = general.leaf_logs(lanes.batch, general.template, maximise)
        self.bottom_logs = self.template_logs
        if general.network.parameters.bottom is not None:
            self.bottom_logs = general.leaf_logs(lanes.batch, general.bottom, maximise)
        k, groups = structure.outputs.size, structure.groups
        inputs = xp.zeros((k, lanes.width))
        divisors = xp.zeros((len(groups), TERMS, lanes.width))
        self.inputs: list[Array] = []
        self.scales: list[Array] = []
        for height in range(lanes.heights):
            base.check_time()
            count = int(lanes.active[height])
            self.inputs.append(inputs[:, :count].copy())
            V = self.values(height)
            outputs = V[device.keep(structure.outputs)]
            outputs, largest = scaled(xp, device.keep, groups, outputs)
            before = divisors[:, :, :count].copy()
            for g in range(len(groups)):
                own = xp.stack([largest[g], xp.zeros_like(largest[g]), xp.zeros_like(largest[g])])
                for source in general.network.group_sources[g] if height else ():
                    own = plus(xp, own, *before[source])
                divisors[g, :, :count] = own
            self.scales.append(largest)
            inputs[:, :count] = outputs
        self.outputs = inputs
        self.top = xp.zeros((structure.top.num_nodes, lanes.width))
        self.top[device.keep(structure.top.inputs)] = inputs
        general.top.upward(self.top, maximise)
        self.root = self.top[general.network.top.root]
        zero = xp.zeros_like(self.root)
        self.totals = xp.stack([self.root, zero, zero])
        for g in structure.top_groups:
            self.totals = plus(xp, self.totals, *divisors[g])

    def own(self, height: int) -> tuple[Network, list[Array]]:
        """The network at a height and its leaf densities."""
        if height:
            return self.general.template, self.template_logs
        return self.general.bottom, self.bottom_logs

    def values(self, height: int) -> Array:
        """Log values of all nodes at a height."""
        network, logs = self.own(height)
        rows = self.lanes.rows(height)
        return self.general.values(
            self.lanes.batch, network, logs, rows, self.inputs[height], self.maximise
        )

    def top_derivatives(self) -> Array:
        """Log derivatives at all nodes of the top."""
        xp = self.general.device.xp
        D = xp.full(self.top.shape, -np.inf)
        D[self.general.network.top.root] = 0.0
        self.general.top.downward(self.top, D)
        return D

    def downward(self, at_top: Array) -> Iterator[tuple[int, Array, Array, Array]]:
        """From the topmost height: height, values, derivatives, and those of the outputs alone.

        All are in the scale of the slice, so that their product is the root's value.
        """
        general, structure = self.general, self.general.structure
        device = general.device
        xp = device.xp
        above = at_top[device.keep(structure.top.inputs)]
        outputs, group_of = device.keep(structure.outputs), device.keep(structure.group_of)
        for height in reversed(range(self.lanes.heights)):
            base.check_time()
            count = int(self.lanes.active[height])
            network, _ = self.own(height)
            V = self.values(height)
            D = xp.full(V.shape, -np.inf)
            at_outputs = above[:, :count] - self.scales[height][group_of]
            D[outputs] = at_outputs
            network.downward(V, D, general.told(self.lanes.batch, self.lanes.rows(height)))
            yield height, V, D, at_outputs
            above[:, :count] = D[device.keep(network.part.inputs)]


def scaled(xp: Any, keep: Any, groups: list[Ints], outputs: Array) -> tuple[Array, Array]:
    """Outputs divided by the largest of their group, and the logarithms of these."""
    found = []
    for group in groups:
        own = keep(group)
        largest = outputs[own].max(axis=0)
        largest = xp.where(largest > -np.inf, largest, 0.0)
        outputs[own] -= largest
        found.append(largest)
    return outputs, xp.stack(found)
