"""The reference engine: every pass as it is defined, in plain NumPy and in logarithms.

Sequences of one length are evaluated together, one lane each. A slice is a copy of the template
whose inputs are the outputs of the slice below; position 0 is the bottom network, farthest from the
root, and the top network stands on the last position. Outputs are divided by the largest of their
interface group, so that logarithms stay small and precise; `log_values` adds the divisors up again.
Nothing here is fast. It is the page to read first, and what other engines are tested against.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats, Ints
from dspn.data.sequences import Sequences
from dspn.engine import base
from dspn.engine.base import ExpectedFlows, Posteriors, StreamArrays
from dspn.errors import EvidenceError
from dspn.leaves.told import require_told, told_values
from dspn.structure.chain import reads_inputs
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.nodes import Input, Leaf, Product, Sum, children_of, reachable
from dspn.structure.parameters import NetworkParameters
from dspn.structure.template import Template, Top

_NEVER: Final = -np.inf
_UNTOLD: Final = np.empty((0, 0))  # the top network belongs to no slice


@final
class _Network:
    """The template, the bottom network or the top network, with the logarithms of its weights.

    `V[node, lane]` are log values and `D[node, lane]` log derivatives of the root; `told[lane]` are
    the inputs of the schema at a lane's slice. `bare` nodes have inputs and no leaves below; the
    bottom network does not have them, where they count as 1.
    """

    def __init__(
        self, nodes: Template | Top, parameters: NetworkParameters, at_bottom: bool
    ) -> None:
        self.nodes = nodes.nodes
        self.order = nodes.order
        self.starts = nodes.edge_offsets
        self.parameters = parameters
        self.children = [list(children_of(node)) for node in self.nodes]
        with np.errstate(divide="ignore"):
            logs = np.log(parameters.weights)
        # (tables, children), of which most sums have one.
        self.log_weights = {
            i: logs[s : s + nodes.num_tables(nodes.nodes[i]) * len(self.children[i])].reshape(
                -1, len(self.children[i])
            )
            for i, s in self.starts.items()
        }
        self.bare = frozenset[int]()
        if at_bottom:
            assert isinstance(nodes, Template)
            leaves = {i for i, node in enumerate(self.nodes) if isinstance(node, Leaf)}
            self.bare = frozenset(
                index
                for index, reads in enumerate(reads_inputs(nodes))
                if reads and leaves.isdisjoint(reachable(self.nodes, [index]))
            )

    def _logs(self, index: int, told: Floats) -> Floats:
        """Log weights of a sum, (children, lanes), by the lanes' inputs of the schema."""
        node = self.nodes[index]
        by = node.by if isinstance(node, Sum) else None
        if by is None:
            return self.log_weights[index].T
        return np.asarray(self.log_weights[index][told[:, by].astype(np.int64)].T)

    def upward(self, V: Floats, inputs: Floats, told: Floats, maximise: bool) -> None:
        """Fills in the values of all nodes but the leaves; sums add, or take the largest term."""
        for index in self.order:
            node, children = self.nodes[index], self.children[index]
            if index in self.bare:
                V[index] = 0.0
            elif isinstance(node, Input):
                V[index] = inputs[node.position]
            elif isinstance(node, Product):
                V[index] = V[children].sum(axis=0)
            elif isinstance(node, Sum):
                terms = self._logs(index, told) + V[children]
                V[index] = terms.max(axis=0) if maximise else np.logaddexp.reduce(terms, axis=0)

    def downward(self, V: Floats, D: Floats, told: Floats) -> None:
        """Adds every node's derivative to those of its children; D has those from above."""
        for index in reversed(self.order):
            node, children = self.nodes[index], self.children[index]
            if index in self.bare:
                continue
            for place, child in enumerate(children):
                if isinstance(node, Sum):
                    factor = self._logs(index, told)[place]
                else:
                    factor = V[[other for other in children if other != child]].sum(axis=0)
                D[child] = np.logaddexp(D[child], D[index] + factor)

    def add_flows(
        self, V: Floats, D: Floats, told: Floats, root: Floats, weight: Floats, flows: Floats
    ) -> None:
        """Adds the flow of every sum edge: the sum over lanes of w D V / root."""
        for index, start in self.starts.items():
            if index in self.bare:
                continue
            node, children = self.nodes[index], self.children[index]
            used = np.exp(self._logs(index, told) + D[index] + V[children] - root) * weight
            by = node.by if isinstance(node, Sum) else None
            own = np.zeros(weight.size) if by is None else told[:, by]
            for table in range(len(self.log_weights[index])):
                first = start + table * len(children)
                flows[first : first + len(children)] += used[:, own == table].sum(axis=1)

    def walk(
        self, V: Floats, told: Floats, nodes: Sequence[int], choose: Callable[[Floats], int]
    ) -> tuple[list[int], list[int]]:
        """An induced tree of one lane: the input positions and the leaves that it ends in.

        It begins at some nodes; `choose` takes a branch of each sum, given their log values.
        """
        stack, inputs, leaves = list(nodes), [], []
        while stack:
            index = stack.pop()
            node, children = self.nodes[index], self.children[index]
            if index in self.bare:
                continue
            if isinstance(node, Input):
                inputs.append(node.position)
            elif isinstance(node, Leaf):
                leaves.append(index)
            elif isinstance(node, Product):
                stack.extend(children)
            else:
                chosen = choose(self._logs(index, told[None])[:, 0] + V[children])
                stack.append(children[chosen])
        return inputs, leaves


class _Copy(NamedTuple):
    """The network at one position, its slices and log values; output i was divided by scale[i]."""

    network: _Network
    rows: Ints
    told: Floats
    V: Floats
    scale: Floats


@final
class _Slices:
    """The upward pass over the sequences `members`, all of one length."""

    def __init__(
        self, program: "ReferenceProgram", data: Sequences, members: Ints, maximise: bool
    ) -> None:
        self.program = program
        self.members = members
        network = program.network
        positions = np.arange(data.lengths[members[0]])
        if network.root == Root.FIRST:
            positions = positions[::-1]
        outputs = list(network.template.outputs)
        inputs = np.zeros((len(outputs), members.size))
        # What each group was divided by so far, in all the groups that it reads.
        divisors = np.zeros((len(network.groups), base.TERMS, members.size))
        self.copies: list[_Copy] = []
        for height, position in enumerate(positions.tolist()):
            own = program.template if height else program.bottom
            rows = data.offsets[members] + position
            V = program.leaf_values(own, data, rows, maximise)
            told = data.inputs[rows]
            own.upward(V, inputs, told, maximise)
            scale, before = np.zeros(inputs.shape), divisors.copy()
            for g, group in enumerate(network.groups):
                largest = V[outputs][list(group)].max(axis=0)
                scale[list(group)] = np.where(largest > _NEVER, largest, 0.0)
                divisors[g] = base.total_of(scale[group[0]])
                for source in network.group_sources[g] if height else ():
                    divisors[g] = base.plus(divisors[g], *before[source])
            self.copies.append(_Copy(own, rows, told, V, scale))
            inputs = V[outputs] - scale
        self.top = np.zeros((len(network.top.nodes), members.size))
        program.top.upward(self.top, inputs, _UNTOLD, maximise)
        self.root = self.top[network.top.root]
        self.log_values = base.total_of(self.root)
        below = reachable(network.top.nodes, [network.top.root])
        for g, group in enumerate(network.groups):
            if below & {network.top.inputs[position] for position in group}:
                self.log_values = base.plus(self.log_values, *divisors[g])

    def downward(self) -> tuple[Floats, list[Floats], list[Floats]]:
        """Log derivatives at all nodes of the top, and at those of the copies from the bottom up.

        Also at the interfaces alone: an output may be read within its slice as well.
        """
        template, top = self.program.network.template, self.program.network.top
        at_top = np.full(self.top.shape, _NEVER)
        at_top[top.root] = 0.0
        self.program.top.downward(self.top, at_top, _UNTOLD)
        above, found, interfaces = at_top[list(top.inputs)], [], []
        for copy in reversed(self.copies):
            D, at_outputs = np.full(copy.V.shape, _NEVER), above - copy.scale
            for position, output in enumerate(template.outputs):
                D[output] = np.logaddexp(D[output], at_outputs[position])
            copy.network.downward(copy.V, D, copy.told)
            above = D[list(template.inputs)]
            found.append(D)
            interfaces.append(at_outputs)
        return at_top, found[::-1], interfaces[::-1]

    def descend(self, lane: int, choose: Callable[[Floats], int], out: base.Choices) -> None:
        """Writes one lane's induced tree, from the root down."""
        network = self.program.network
        template, top = network.template, network.top
        chosen, _ = self.program.top.walk(self.top[:, lane], _UNTOLD, [top.root], choose)
        for copy in reversed(self.copies):
            row = copy.rows[lane]
            for position in chosen:
                out.interfaces[row, network.group_of[position]] = position
            outputs = [template.outputs[position] for position in chosen]
            chosen, leaves = copy.network.walk(copy.V[:, lane], copy.told[lane], outputs, choose)
            for bank in template.banks:
                for leaf in set(leaves).intersection(bank.nodes):
                    out.leaves[row, bank.variable] = bank.nodes.index(leaf)


@final
class ReferenceProgram(base.NetworkProgram):
    """A network as it is, with the logarithms of its weights."""

    def __init__(self, network: DynamicNetwork) -> None:
        self.network = network
        own = network.parameters
        self.template = _Network(network.template, own.template, at_bottom=False)
        self.bottom = _Network(network.template, own.bottom or own.template, at_bottom=True)
        self.top = _Network(network.top, own.top, at_bottom=False)

    def rebind(self, network: DynamicNetwork) -> "ReferenceProgram":
        """A network of the same structure with other parameters."""
        return ReferenceProgram(network)

    def leaf_values(self, own: _Network, data: Sequences, at: Ints, maximise: bool) -> Floats:
        """Room for the values of all nodes, with the log densities of the leaves filled in.

        A missing entry has density 1, or that of the leaf's mode.
        """
        V = np.zeros((len(own.nodes), len(at)))
        for bank, rows in zip(self.network.template.banks, own.parameters.leaves, strict=True):
            column = told_values(data, bank.variable, at)
            logs = bank.family.log_prob(rows, column)
            if maximise:
                modes = bank.family.log_peak(rows, column)
                logs = np.where(bank.family.is_missing(column)[:, None], modes, logs)
            V[list(bank.nodes)] = logs.T
        return V

    def _by_length(self, data: Sequences, *, maximise: bool = False) -> Iterator[_Slices]:
        require_told(self.network.schema, data.schema)
        for length in np.unique(data.lengths):
            yield _Slices(self, data, np.flatnonzero(data.lengths == length), maximise)

    def log_totals(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence, as totals."""
        out = np.empty((base.TERMS, len(data)))
        for slices in self._by_length(data):
            out[:, slices.members] = slices.log_values
        return out

    def posteriors(self, data: Sequences, want: base.Want) -> Posteriors:
        """What is wanted: the posterior of a node is D V / root.

        Without an entry its leaves are 1, and the root is the sum of their derivatives.
        """
        template = self.network.template
        log_values = np.empty((base.TERMS, len(data)))
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
                        left_out = np.logaddexp.reduce(D[own], axis=0)
                        given_others = np.exp(D[own] - left_out)
                        out[copy.rows] = (given_others if want.surprises else posterior[own]).T
                        surprises[copy.rows, bank.variable] = left_out - slices.root
        wanted = () if want.leaves is None else want.leaves.T
        leaves = tuple(out[own] for out, own in zip(by_bank, wanted, strict=False))
        return Posteriors(log_values, leaves, interfaces, surprises)

    def expected_flows(self, data: Sequences, weights: Floats) -> tuple[ExpectedFlows, Floats]:
        """Flows of edges, w D V / root, and statistics of leaves, each with its posterior."""
        flows, log_values = ExpectedFlows.nothing(self.network), np.empty(len(data))
        for slices in self._by_length(data):
            root, weight = slices.root, weights[slices.members]
            log_values[slices.members] = base.rounded(slices.log_values)
            if np.any(root == _NEVER):
                index = int(slices.members[np.argmax(root == _NEVER)])
                raise EvidenceError(f"sequence {index} has probability zero under the model.")
            at_top, at_nodes, _ = slices.downward()
            self.top.add_flows(slices.top, at_top, _UNTOLD, root, weight, flows.top.weights)
            for copy, D in zip(slices.copies, at_nodes, strict=True):
                at_bottom = copy.network is self.bottom and flows.bottom is not None
                target = flows.bottom if at_bottom and flows.bottom else flows.template
                copy.network.add_flows(copy.V, D, copy.told, root, weight, target.weights)
                rows, banks = copy.network.parameters.leaves, self.network.template.banks
                for bank, own, out in zip(banks, rows, target.leaves, strict=True):
                    nodes = list(bank.nodes)
                    values = told_values(data, bank.variable, copy.rows)
                    posterior = np.exp(D[nodes] + copy.V[nodes] - root) * weight
                    out += bank.family.expected_statistics(own, values, posterior)
        return flows, log_values

    def _choices(
        self,
        slices: Iterator[_Slices],
        data: Sequences,
        chooser: Callable[[int], Callable[[Floats], int]],
    ) -> base.Choices:
        """An induced tree for each sequence, whose branches chooser(sequence) takes."""
        shapes = ((data.total_slices, len(self.network.groups)), data.values.shape)
        interfaces, leaves = (np.full(shape, -1, dtype=np.int64) for shape in shapes)
        out = base.Choices(interfaces, leaves, np.empty(len(data)))
        for own in slices:
            out.log_values[own.members] = base.rounded(own.log_values)
            for lane, member in enumerate(own.members.tolist()):
                own.descend(lane, chooser(member), out)
        return out

    def best(self, data: Sequences) -> base.Choices:
        """Sums take their largest term going up, and the tree follows it going down."""
        slices = self._by_length(data, maximise=True)
        return self._choices(slices, data, lambda _: lambda terms: int(np.argmax(terms)))

    def draw(self, data: Sequences, seeds: NDArray[np.uint64]) -> base.Choices:
        """Every sum on the tree draws a branch in proportion to weight times value.

        The largest of some log terms with Gumbel noise added is such a draw.
        """

        def chooser(sequence: int) -> Callable[[Floats], int]:
            rng = np.random.default_rng(seeds[sequence])
            return lambda terms: int(np.argmax(terms + rng.gumbel(size=terms.size)))

        return self._choices(self._by_length(data), data, chooser)

    def prefixes(self, data: Sequences) -> base.Prefixes:
        """Every prefix as a sequence of its own, with its last slice and without."""
        return base.prefixes_one_by_one(self, data)

    def stream(
        self, saved: StreamArrays | None = None, num_slices: int = 0, log_likelihood: float = 0.0
    ) -> base.Stream:
        """A stream that keeps its slices."""
        return base.history_stream(self, saved, num_slices)


@final
class ReferenceEngine:
    """Takes networks as they are."""

    def compile(self, network: DynamicNetwork, *, precision: str) -> ReferenceProgram:
        """The network; everything is computed in double precision."""
        return ReferenceProgram(network)


ENGINE: Final[base.Engine] = ReferenceEngine()
