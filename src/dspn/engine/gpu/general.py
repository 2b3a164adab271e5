"""Every pass for any template, in logarithms and double precision, as array operations.

A sequence is a lane. Lanes stand from the longest to the shortest, so that those that have a slice
at some height are the first ones. Height 0 is the bottom network, and the top network stands on the
last height of each lane. Outputs are divided by the largest of their interface group, as in
`engine.reference`; the divisors are added up as totals. What the way down needs of a slice is made
again from its inputs, the only vectors that are kept.

Nothing is lost here to the range of floats: passes in other arithmetics come here with the lanes
that they cannot answer for.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats, Ints
from dspn.engine import base
from dspn.engine.base import TERMS, Choices, ExpectedFlows, Posteriors, Prefixes, Want
from dspn.engine.gpu.device import Array, Batch, Device
from dspn.engine.gpu.layout import Part, Step, bare_nodes, inputs_below_root, part_of
from dspn.errors import EvidenceError
from dspn.leaves.base import Family
from dspn.leaves.told import missing_values
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.parameters import NetworkParameters
from dspn.structure.template import Bank

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


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
        self.group_of = np.empty(template.num_interfaces, dtype=np.int64)
        for g, group in enumerate(self.groups):
            self.group_of[group] = g
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
                logs = np.where(missing_values(distinct)[:, None], modes, logs)
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


def can_stream(general: General) -> bool:
    """Whether prefixes need one pass: with the root last, or where all is linear in the inputs."""
    return general.network.root == Root.LAST or len(general.structure.groups) == 1


def prefixes(general: General, batch: Batch) -> Prefixes:
    """Log P_t(x_1..x_t) and log P_t(x_1..x_{t-1}) for every slice t, as totals."""
    out = Prefixes(*(np.zeros((TERMS, batch.total_slices)) for _ in range(2)))
    for lanes in general.blocks(batch):
        steps = _rising if general.network.root == Root.LAST else _falling
        for rows, seen, unseen in steps(general, lanes):
            out.log_seen[:, rows] = general.device.here(seen)
            out.log_unseen[:, rows] = general.device.here(unseen)
    return out


def _rising(general: General, lanes: Lanes) -> Iterator[tuple[Ints, Array, Array]]:
    """The root at the last slice: the top network stands on every height in turn."""
    device, structure, network = general.device, general.structure, general.network
    xp, batch = device.xp, lanes.batch
    logs = general.leaf_logs(batch, general.template, False)
    bottom = logs if network.parameters.bottom is None else None
    bottom = general.leaf_logs(batch, general.bottom, False) if bottom is None else bottom
    inputs = xp.zeros((structure.outputs.size, lanes.width))
    divisors = xp.zeros((len(structure.groups), TERMS, lanes.width))
    for height in range(lanes.heights):
        base.check_time()
        rows = lanes.rows(height)
        count = len(rows)
        own, own_logs = (general.template, logs) if height else (general.bottom, bottom)
        before, found = divisors[:, :, :count].copy(), []
        for unseen in (True, False):
            V = general.values(batch, own, own_logs, rows, inputs[:, :count], unseen=unseen)
            outputs, largest = scaled(
                xp, device.keep, structure.groups, V[device.keep(structure.outputs)]
            )
            after = []
            for g in range(len(structure.groups)):
                total = xp.zeros((TERMS, count))
                total[0] = largest[g]
                for source in network.group_sources[g] if height else ():
                    total = plus(xp, total, *before[source])
                after.append(total)
            top = xp.zeros((structure.top.num_nodes, count))
            top[device.keep(structure.top.inputs)] = outputs
            general.top.upward(top)
            total = xp.zeros((TERMS, count))
            total[0] = top[network.top.root]
            for g in structure.top_groups:
                total = plus(xp, total, *after[g])
            found.append(total)
        inputs[:, :count] = outputs
        divisors[:, :, :count] = xp.stack(after)
        yield rows, found[1], found[0]


def _falling(general: General, lanes: Lanes) -> Iterator[tuple[Ints, Array, Array]]:
    """The root at the first slice and one group: derivatives from above meet the bottom network."""
    device, structure, network = general.device, general.structure, general.network
    xp, batch = device.xp, lanes.batch
    logs = general.leaf_logs(batch, general.template, False)
    bottom = logs
    if network.parameters.bottom is not None:
        bottom = general.leaf_logs(batch, general.bottom, False)
    outputs = device.keep(structure.outputs)
    top = xp.zeros((structure.top.num_nodes, lanes.width))
    D = xp.full(top.shape, -np.inf)
    D[network.top.root] = 0.0
    general.top.downward(top, D)
    above = D[device.keep(structure.top.inputs)]
    divisor = xp.zeros((TERMS, lanes.width))
    ones = xp.zeros((structure.outputs.size, lanes.width))
    for depth in range(lanes.heights):
        base.check_time()
        count = int(lanes.active[depth])
        rows = lanes.offsets[:count] + depth
        found = []
        for unseen in (False, True):
            V = general.values(batch, general.bottom, bottom, rows, ones[:, :count], unseen=unseen)
            root = log_sum(xp, above[:, :count] + V[outputs], 0)
            zero = xp.zeros_like(root)
            found.append(plus(xp, xp.stack([root, zero, zero]), *divisor[:, :count]))
        yield rows, found[0], found[1]
        V = general.values(batch, general.template, logs, rows, ones[:, :count])
        D = xp.full(V.shape, -np.inf)
        D[outputs] = above[:, :count]
        general.template.downward(V, D, general.told(batch, rows))
        own = D[device.keep(general.template.part.inputs)]
        largest = own.max(axis=0)
        largest = xp.where(largest > -np.inf, largest, 0.0)
        above[:, :count] = own - largest
        divisor[:, :count] = plus(xp, divisor[:, :count], largest)
