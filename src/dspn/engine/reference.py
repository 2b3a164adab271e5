"""The reference engine: every pass as it is defined, in plain NumPy and in logarithms.

Sequences of one length are evaluated together, one lane each. A slice is a copy of the template
whose inputs are the outputs of the slice below; position 0 is the bottom network, farthest from the
root, and the top network stands on the last position. Outputs are divided by the largest of their
interface group, so that logarithms stay small and precise; `_Slices.log_values` adds the divisors
up again. Nothing here is fast. It is the page to read first, and what other engines are tested
against.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dspn._arrays import Floats, Ints
from dspn.engine.base import (
    TERMS,
    Choices,
    Engine,
    ExpectedFlows,
    HistoryStream,
    NetworkProgram,
    Posteriors,
    Prefixes,
    Stream,
    StreamArrays,
    Want,
    plus,
    prefixes_one_by_one,
    restore_history,
    total_of,
)
from dspn.errors import EvidenceError
from dspn.sequences import Sequences
from dspn.structure.chain import reads_inputs
from dspn.structure.graph import reachable
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.nodes import Input, Leaf, Product, Sum, children_of
from dspn.structure.parameters import NetworkParameters
from dspn.structure.template import Template, Top

_NEVER: Final = -np.inf


# One copy of the template, or the top network: V[node, lane] are log values, D log derivatives.


def _log_weights(part: Template | Top, weights: Floats) -> dict[int, Floats]:
    """Log weights of each sum, (children, 1)."""
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    sizes = {index: len(children_of(part.nodes[index])) for index in part.edge_offsets}
    return {i: logs[start : start + sizes[i], None] for i, start in part.edge_offsets.items()}


def _upward(
    part: Template | Top,
    log_weights: dict[int, Floats],
    inputs: Floats,
    V: Floats,
    bare: frozenset[int],
    maximise: bool,
) -> None:
    """Fills in the values of all nodes but leaves; `bare` ones, which have no leaf below, are 1."""
    for index in part.order:
        node = part.nodes[index]
        if index in bare:
            V[index] = 0.0
        elif isinstance(node, Input):
            V[index] = inputs[node.position]
        elif isinstance(node, Product):
            V[index] = V[list(node.children)].sum(axis=0)
        elif isinstance(node, Sum):
            terms = log_weights[index] + V[list(node.children)]
            V[index] = terms.max(axis=0) if maximise else logsumexp(terms, axis=0)


def _downward(
    part: Template | Top,
    log_weights: dict[int, Floats],
    V: Floats,
    D: Floats,
    bare: frozenset[int],
) -> None:
    """Adds the derivative of the root at every node to those of its children.

    D comes in with the derivatives at the nodes that are read from above.
    """
    for index in reversed(part.order):
        node = part.nodes[index]
        if index in bare or not isinstance(node, Sum | Product):
            continue
        for place, child in enumerate(node.children):
            if isinstance(node, Sum):
                factor = log_weights[index][place]
            else:
                factor = V[[other for other in node.children if other != child]].sum(axis=0)
            D[child] = np.logaddexp(D[child], D[index] + factor)


def _edge_flows(
    part: Template | Top,
    log_weights: dict[int, Floats],
    V: Floats,
    D: Floats,
    root: Floats,
    weight: Floats,
    bare: frozenset[int],
) -> Iterator[tuple[int, Floats]]:
    """Where the flows of each sum's edges begin, and the flows: sum over lanes of w D V / root."""
    for index, start in part.edge_offsets.items():
        if index not in bare:
            children = list(children_of(part.nodes[index]))
            yield start, np.exp(log_weights[index] + D[index] + V[children] - root) @ weight


def _walk(
    part: Template | Top,
    log_weights: dict[int, Floats],
    V: Floats,
    nodes: Sequence[int],
    bare: frozenset[int],
    choose: Callable[[Floats], int],
) -> tuple[list[int], list[int]]:
    """One lane's induced tree below some nodes: the input positions and the leaves it ends in."""
    stack, inputs, leaves = list(nodes), [], []
    while stack:
        index = stack.pop()
        node = part.nodes[index]
        if index in bare:
            continue
        if isinstance(node, Input):
            inputs.append(node.position)
        elif isinstance(node, Leaf):
            leaves.append(index)
        elif isinstance(node, Product):
            stack.extend(node.children)
        else:
            chosen = choose(log_weights[index][:, 0] + V[list(node.children)])
            stack.append(node.children[chosen])
    return inputs, leaves


# All slices of some sequences of one length.


class _Copy(NamedTuple):
    """The template at one position: its slices, parameters and log values.

    `scale[i]` is what output i was divided by. `bare` are the nodes that the bottom network lacks.
    """

    rows: Ints
    parameters: NetworkParameters
    log_weights: dict[int, Floats]
    bare: frozenset[int]
    V: Floats
    scale: Floats


@final
class _Slices:
    """The upward pass over the sequences `members`, all of one length."""

    def __init__(
        self, network: DynamicNetwork, data: Sequences, members: Ints, maximise: bool = False
    ) -> None:
        self.network = network
        self.data = data
        self.members = members
        template, top, own = network.template, network.top, network.parameters
        num_slices, width = int(data.lengths[members[0]]), members.size
        positions = np.arange(num_slices)
        if network.root == Root.FIRST:
            positions = positions[::-1]
        outputs = list(template.outputs)
        inputs = np.zeros((template.num_interfaces, width))
        # What each group was divided by so far, in all the groups that it reads.
        divisors = [np.zeros((TERMS, width)) for _ in network.groups]
        self.copies: list[_Copy] = []
        for height, position in enumerate(positions.tolist()):
            at_bottom = height == 0
            parameters = (own.bottom if at_bottom else None) or own.template
            log_weights = _log_weights(template, parameters.weights)
            bare = _bare_nodes(template) if at_bottom else frozenset[int]()
            rows = data.offsets[members] + position
            V = self._leaf_values(rows, parameters, maximise)
            _upward(template, log_weights, inputs, V, bare, maximise)
            scale = np.zeros((len(outputs), width))
            before = [None if at_bottom else divisors[g] for g in range(len(network.groups))]
            for number, group in enumerate(network.groups):
                largest = V[outputs][list(group)].max(axis=0)
                scale[list(group)] = np.where(largest > _NEVER, largest, 0.0)
                divisors[number] = total_of(scale[group[0]])
                for source in network.group_sources[number]:
                    earlier = before[source]
                    if earlier is not None:
                        divisors[number] = plus(divisors[number], *earlier)
            self.copies.append(_Copy(rows, parameters, log_weights, bare, V, scale))
            inputs = V[outputs] - scale
        self.top_weights = _log_weights(top, own.top.weights)
        self.top = np.zeros((len(top.nodes), width))
        _upward(top, self.top_weights, inputs, self.top, frozenset(), maximise)
        self.root = self.top[top.root]
        read = {
            top.nodes[i].position for i in reachable(top.nodes, [top.root]) if _is_input(top, i)
        }
        self.log_values = total_of(self.root)
        for number, group in enumerate(network.groups):
            if read & set(group):
                self.log_values = plus(self.log_values, *divisors[number])

    def _leaf_values(self, rows: Ints, parameters: NetworkParameters, maximise: bool) -> Floats:
        """Room for the values of all nodes, with log densities at the leaves.

        A missing entry has density 1, or that of the leaf's mode.
        """
        template = self.network.template
        V = np.zeros((len(template.nodes), rows.size))
        for bank, leaves in zip(template.banks, parameters.leaves, strict=True):
            values = self.data.values[rows, bank.variable]
            logs = bank.family.log_prob(leaves, values)
            if maximise:
                modes = np.diagonal(bank.family.log_prob(leaves, bank.family.mode(leaves)))
                logs = np.where(np.isnan(values)[:, None], modes, logs)
            V[list(bank.nodes)] = logs.T
        return V

    def downward(self) -> tuple[Floats, list[Floats], list[Floats]]:
        """Log derivatives of the root at all nodes of the top, and of the copies from bottom up.

        Also at the interfaces: an output may be read within its slice as well.
        """
        template, top = self.network.template, self.network.top
        at_top = np.full(self.top.shape, _NEVER)
        at_top[top.root] = 0.0
        _downward(top, self.top_weights, self.top, at_top, frozenset())
        above, found, interfaces = at_top[list(top.inputs)], [], []
        for copy in reversed(self.copies):
            D, at_outputs = np.full(copy.V.shape, _NEVER), above - copy.scale
            for position, output in enumerate(template.outputs):
                D[output] = np.logaddexp(D[output], at_outputs[position])
            _downward(template, copy.log_weights, copy.V, D, copy.bare)
            above = D[list(template.inputs)]
            found.append(D)
            interfaces.append(at_outputs)
        return at_top, found[::-1], interfaces[::-1]

    def descend(self, lane: int, choose: Callable[[Floats], int], out: Choices) -> None:
        """Writes one lane's induced tree; `choose` takes a branch of each sum on it."""
        network, template, top = self.network, self.network.template, self.network.top
        group_of = {p: g for g, group in enumerate(network.groups) for p in group}
        member_of = {node: m for bank in template.banks for m, node in enumerate(bank.nodes)}
        none = frozenset[int]()
        chosen, _ = _walk(top, self.top_weights, self.top[:, lane], [top.root], none, choose)
        for copy in reversed(self.copies):
            row = copy.rows[lane]
            for position in chosen:
                out.interfaces[row, group_of[position]] = position
            outputs = [template.outputs[position] for position in chosen]
            chosen, leaves = _walk(
                template, copy.log_weights, copy.V[:, lane], outputs, copy.bare, choose
            )
            for leaf in leaves:
                node = template.nodes[leaf]
                assert isinstance(node, Leaf)
                out.leaves[row, node.variable] = member_of[leaf]


def _is_input(top: Top, index: int) -> bool:
    return isinstance(top.nodes[index], Input)


def _bare_nodes(template: Template) -> frozenset[int]:
    """Nodes that read inputs and have no leaf below: the bottom network does not have them."""
    reads = reads_inputs(template)
    return frozenset(
        index
        for index in template.order
        if reads[index]
        and not any(isinstance(template.nodes[i], Leaf) for i in reachable(template.nodes, [index]))
    )


@final
class ReferenceProgram(NetworkProgram):
    """A network, which needs no compilation here."""

    def __init__(self, network: DynamicNetwork) -> None:
        self._network = network

    @property
    def network(self) -> DynamicNetwork:
        """The network with its parameters."""
        return self._network

    def rebind(self, network: DynamicNetwork) -> "ReferenceProgram":
        """A network of the same structure with other parameters."""
        return ReferenceProgram(network)

    def _by_length(self, data: Sequences, *, maximise: bool = False) -> Iterator[_Slices]:
        for length in np.unique(data.lengths):
            yield _Slices(self._network, data, np.flatnonzero(data.lengths == length), maximise)

    def log_totals(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence, as totals."""
        out = np.empty((TERMS, len(data)))
        for slices in self._by_length(data):
            out[:, slices.members] = slices.log_values
        return out

    def posteriors(self, data: Sequences, want: Want) -> Posteriors:
        """What is wanted: the posterior of a node is D V / root.

        Without an entry its leaves are 1, and the root is the sum of their derivatives.
        """
        template = self._network.template
        log_values = np.empty((TERMS, len(data)))
        interfaces = np.zeros((data.total_slices, template.num_interfaces))
        surprises = np.full(data.values.shape, np.nan)
        by_bank = [np.zeros((data.total_slices, len(bank.nodes))) for bank in template.banks]
        with np.errstate(invalid="ignore"):
            for slices in self._by_length(data):
                log_values[:, slices.members] = slices.log_values
                _, at_nodes, at_outputs = slices.downward()
                for copy, D, above in zip(slices.copies, at_nodes, at_outputs, strict=True):
                    posterior = np.exp(D + copy.V - slices.root)
                    outputs = copy.V[list(template.outputs)]
                    interfaces[copy.rows] = np.exp(above + outputs - slices.root).T
                    for bank, out in zip(template.banks, by_bank, strict=True):
                        own = list(bank.nodes)
                        out[copy.rows] = posterior[own].T
                        left_out = logsumexp(D[own], axis=0) - slices.root
                        surprises[copy.rows, bank.variable] = left_out
        leaves = tuple(
            out[want.leaves[:, v]] for v, out in enumerate(by_bank) if want.leaves is not None
        )
        return Posteriors(log_values, leaves, interfaces, surprises)

    def expected_flows(self, data: Sequences, weights: Floats) -> tuple[ExpectedFlows, Floats]:
        """Flows of edges, w D V / root, and statistics of leaves, each with its posterior."""
        network, template, top = self._network, self._network.template, self._network.top
        flows, log_values = ExpectedFlows.nothing(network), np.empty(len(data))
        none = frozenset[int]()
        for slices in self._by_length(data):
            log_values[slices.members] = slices.log_values.sum(axis=0)
            if np.any(slices.root == _NEVER):
                index = int(slices.members[np.argmax(slices.root == _NEVER)])
                raise EvidenceError(f"sequence {index} has probability zero under the model.")
            weight, root = weights[slices.members], slices.root
            at_top, at_nodes, _ = slices.downward()
            own = (slices.top_weights, slices.top, at_top, root, weight, none)
            for start, flow in _edge_flows(top, *own):
                flows.top.weights[start : start + flow.size] += flow
            for height, (copy, D) in enumerate(zip(slices.copies, at_nodes, strict=True)):
                target = flows.template if height or flows.bottom is None else flows.bottom
                given = (copy.log_weights, copy.V, D, root, weight, copy.bare)
                for start, flow in _edge_flows(template, *given):
                    target.weights[start : start + flow.size] += flow
                for bank, out in zip(template.banks, target.leaves, strict=True):
                    nodes = list(bank.nodes)
                    posterior = np.exp(D[nodes] + copy.V[nodes] - root) * weight
                    out += posterior @ bank.family.statistics(data.values[copy.rows, bank.variable])
        return flows, log_values

    def _choices(self, data: Sequences) -> Choices:
        shapes = ((data.total_slices, len(self._network.groups)), data.values.shape)
        interfaces, leaves = (np.full(shape, -1, dtype=np.int64) for shape in shapes)
        return Choices(interfaces, leaves, np.empty(len(data)))

    def best(self, data: Sequences) -> Choices:
        """Sums take their largest term going up, and the tree follows it going down."""
        out = self._choices(data)
        for slices in self._by_length(data, maximise=True):
            out.log_values[slices.members] = slices.log_values.sum(axis=0)
            for lane in range(slices.members.size):
                slices.descend(lane, lambda terms: int(np.argmax(terms)), out)
        return out

    def draw(self, data: Sequences, seeds: NDArray[np.uint64]) -> Choices:
        """Every sum on the tree draws a branch in proportion to weight times value."""
        out = self._choices(data)
        for slices in self._by_length(data):
            out.log_values[slices.members] = slices.log_values.sum(axis=0)
            for lane, member in enumerate(slices.members.tolist()):
                rng = np.random.default_rng(seeds[member])
                # The largest of the log terms plus Gumbel noise is a draw in proportion to them.
                slices.descend(lane, lambda terms, r=rng: _gumbel_draw(terms, r), out)
        return out

    def prefixes(self, data: Sequences) -> Prefixes:
        """Every prefix as a sequence of its own, with its last slice and without."""
        return prefixes_one_by_one(self, data)

    def stream(
        self, saved: StreamArrays | None = None, num_slices: int = 0, log_likelihood: float = 0.0
    ) -> Stream:
        """A stream that keeps its slices."""
        if saved is None:
            return HistoryStream(self, np.empty((0, len(self._network.schema))))
        return restore_history(self, saved, num_slices)


def _gumbel_draw(terms: Floats, rng: np.random.Generator) -> int:
    return int(np.argmax(terms + rng.gumbel(size=terms.size)))


@final
class ReferenceEngine:
    """Takes networks as they are."""

    def compile(self, network: DynamicNetwork, *, precision: str) -> ReferenceProgram:
        """The network; everything is computed in double precision."""
        return ReferenceProgram(network)


ENGINE: Final[Engine] = ReferenceEngine()
