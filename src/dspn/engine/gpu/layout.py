"""Structure as data: the nodes of a network as steps, each of which array operations run at once.

Nodes of one kind, level and number of children make a step. Sums over the same children, as the
transitions of a dense template are, make a step that names the children once.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.structure.chain import is_chain, reads_inputs, transition_sums
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Input, Leaf, Node, Product, Sum, children_of, reachable
from dspn.structure.template import Template, Top

# Fewer sums than this over the same children are no step of their own.
_FEWEST_SHARING: Final = 4
# Wider templates have few edges, of which a matrix would be mostly empty.
_WIDEST_CHAIN: Final = 8192
# The same where there is a matrix for each value of some inputs, and the cells of all of these.
_WIDEST_TABLES: Final = 64
_MOST_CELLS: Final = 2**22


@final
@dataclass(frozen=True, eq=False)
class Step:
    """Nodes (m,) of one kind with their children (m, c), or (1, c) where all have the same.

    The weights of sum i are `edges[i]` and those behind it, in the order of the children; with `by`
    table after table, one for each value of that input.
    """

    is_sum: bool
    nodes: Ints
    children: Ints
    edges: Ints
    by: int | None = None
    num_tables: int = 1

    @cached_property
    def places(self) -> Ints:
        """Places of the weights of sums in the first table, (m, c)."""
        return self.edges[:, None] + np.arange(self.width)

    @cached_property
    def columns(self) -> tuple[Ints, ...]:
        """The children of each place."""
        return tuple(np.ascontiguousarray(self.children[:, c]) for c in range(self.width))

    @property
    def width(self) -> int:
        """Children of a node."""
        return int(self.children.shape[1])

    @property
    def is_shared(self) -> bool:
        """Whether all nodes have the same children."""
        return len(self.children) == 1

    @cached_property
    def rounds(self) -> tuple[tuple[Ints, Ints], ...]:
        """Edges, counted through the step, and their children, which are distinct in a round."""
        flat = self.children.ravel()
        order = np.argsort(flat, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(flat[order]) > 0])
        sizes = np.diff(np.r_[starts, flat.size])
        rank = np.empty(flat.size, dtype=np.int64)
        rank[order] = np.arange(flat.size) - np.repeat(starts, sizes)
        found = (np.flatnonzero(rank == turn) for turn in range(int(sizes.max(initial=0))))
        return tuple((edges, flat[edges]) for edges in found)


@final
@dataclass(frozen=True, eq=False)
class Part:
    """A template or a top network: its steps from the bottom up.

    `inputs` are the input nodes by position.
    """

    num_nodes: int
    steps: tuple[Step, ...]
    inputs: Ints


def _levels(network: Template | Top) -> list[int]:
    found = [0] * len(network.nodes)
    for index in network.order:
        below = children_of(network.nodes[index])
        found[index] = 1 + max((found[child] for child in below), default=-1)
    return found


def bare_nodes(template: Template) -> frozenset[int]:
    """Nodes with inputs and no leaves below: in the bottom network they count as 1."""
    nodes = template.nodes
    has_leaf = [False] * len(nodes)
    for index in template.order:
        below = children_of(nodes[index])
        has_leaf[index] = isinstance(nodes[index], Leaf) or any(has_leaf[c] for c in below)
    reads = reads_inputs(template)
    return frozenset(i for i in range(len(nodes)) if reads[i] and not has_leaf[i])


def part_of(
    network: Template | Top,
    *,
    without: frozenset[int] = frozenset(),
    only: frozenset[int] | None = None,
) -> Part:
    """The steps of a network, without some nodes, or of some nodes only."""
    levels, nodes = _levels(network), network.nodes
    by_kind: dict[tuple[int, bool, int, int], list[int]] = {}
    for index in network.order:
        node: Node = nodes[index]
        if index in without or (only is not None and index not in only):
            continue
        if isinstance(node, Sum | Product):
            by = node.by if isinstance(node, Sum) and node.by is not None else -1
            key = (levels[index], isinstance(node, Sum), len(node.children), by)
            by_kind.setdefault(key, []).append(index)
    steps: list[Step] = []
    for (_, is_sum, width, _), members in sorted(by_kind.items()):
        rest = members
        if is_sum and len(members) >= _FEWEST_SHARING and width > 1:
            sharing: dict[tuple[int, ...], list[int]] = {}
            for index in members:
                sharing.setdefault(children_of(nodes[index]), []).append(index)
            rest = []
            for children, own in sharing.items():
                if len(own) < _FEWEST_SHARING:
                    rest += own
                else:
                    steps.append(_step(network, True, own, [children]))
        if rest:
            steps.append(_step(network, is_sum, rest, [children_of(nodes[i]) for i in rest]))
    return Part(len(nodes), tuple(steps), np.array(network.inputs, dtype=np.int64))


def _step(
    network: Template | Top, is_sum: bool, nodes: list[int], children: list[tuple[int, ...]]
) -> Step:
    edges = [network.edge_offsets[node] for node in nodes] if is_sum else []
    table = np.array(children, dtype=np.int64)
    first = network.nodes[nodes[0]]
    by = first.by if isinstance(first, Sum) else None
    return Step(
        *(is_sum, np.array(nodes, dtype=np.int64), table, np.array(edges, dtype=np.int64)),
        *(by, network.num_tables(first)),
    )


def slice_nodes(template: Template) -> frozenset[int]:
    """Nodes that no input stands below."""
    return frozenset(i for i, reads in enumerate(reads_inputs(template)) if not reads)


def inputs_below_root(top: Top) -> Ints:
    """Positions that the root of the top network reads."""
    below = reachable(top.nodes, [top.root])
    found = [node.position for i in below if isinstance(node := top.nodes[i], Input)]
    return np.array(sorted(found), dtype=np.int64)


@final
@dataclass(frozen=True, eq=False)
class ChainLayout:
    """The structure of a chain of one group whose outputs are leaves times one sum over inputs.

    `edge[m, j, i]` is the place of the weight of input i in the sum of output j, -1 where there is
    none. Sums by inputs of the schema have a matrix m for each combination of the values of those
    inputs, whose columns and numbers of values are `by`. Output j has leaf `member[v][j]` of
    variable v, and its sum is node `sums[j]`.
    """

    edge: Ints
    member: tuple[Ints, ...]
    sums: Ints
    by: tuple[tuple[int, int], ...] = ()

    @property
    def num_nodes(self) -> int:
        """The number of interface nodes."""
        return int(self.edge.shape[1])

    @cached_property
    def _places(self) -> tuple[Ints, Ints]:
        """Places of the weights and, as one index, of their entries in the matrices."""
        flat = self.edge.ravel()
        entries = np.flatnonzero(flat >= 0)
        return flat[entries], entries

    @cached_property
    def _is_plain(self) -> bool:
        """Whether the weights are the matrix as it stands."""
        return bool(np.array_equal(self.edge.ravel(), np.arange(self.edge.size)))

    def dense(self, weights: Floats) -> Floats:
        """The matrices (tables, outputs, inputs) of some weights."""
        if not self._is_plain:
            places, entries = self._places
            flat = np.zeros(self.edge.size)
            flat[entries] = weights[places]
            weights = flat
        return weights.reshape(self.edge.shape)

    def sparse(self, dense: Floats, num_weights: int) -> Floats:
        """Entries of such matrices added up by the weight that they have."""
        if self._is_plain:
            return dense.reshape(-1)
        places, entries = self._places
        found = np.bincount(places, dense.reshape(-1)[entries], minlength=num_weights)
        return found.astype(np.float64, copy=False)

    def of_outputs(self, variable: int, by_leaf: Floats) -> Floats:
        """Columns of the leaves of a variable as those of the outputs that have them."""
        member = self.member[variable]
        if self._in_order[variable] and by_leaf.shape[1] == len(member):
            return by_leaf
        return by_leaf[:, member]

    def by_leaf(self, variable: int, by_output: Floats, leaves: int) -> Floats:
        """Rows of outputs added up by the leaf of a variable that they have."""
        member = self.member[variable]
        if self._in_order[variable] and leaves == len(member):
            return by_output
        found = np.zeros((leaves, by_output.shape[1]))
        np.add.at(found, member, by_output)
        return found

    @cached_property
    def _in_order(self) -> list[bool]:
        return [np.array_equal(own, np.arange(len(own))) for own in self.member]

    @classmethod
    def of(cls, network: DynamicNetwork) -> "ChainLayout | None":
        """The layout, where the network is such a chain."""
        template = network.template
        k, widest = template.num_interfaces, _WIDEST_CHAIN
        if template.has_tables:
            widest = min(widest, _WIDEST_TABLES)
        if len(network.groups) != 1 or k > widest or not is_chain(template):
            return None
        nodes, sums = template.nodes, transition_sums(template)
        sizes = {
            node.by: template.num_tables(node)
            for node in (nodes[sums[j]] for j in range(k))
            if isinstance(node, Sum) and node.by is not None
        }
        by = tuple(sorted(sizes.items()))
        tables = np.zeros((0, 1), dtype=np.int64)
        if by:
            tables = np.indices([size for _, size in by]).reshape(len(by), -1)
        count = tables.shape[1]
        if by and count * k * k > _MOST_CELLS:
            return None
        place = {node: i for bank in template.banks for i, node in enumerate(bank.nodes)}
        position = np.full(len(nodes), -1, dtype=np.int64)
        position[list(template.inputs)] = np.arange(k)
        edge = np.full((count, k, k), -1, dtype=np.int64)
        member = np.full((len(template.banks), k), -1, dtype=np.int64)
        last: tuple[int, ...] = ()
        for j, output in enumerate(template.outputs):
            for child in children_of(nodes[output]):
                node = nodes[child]
                if isinstance(node, Leaf):
                    member[node.variable, j] = place[child]
                elif child != sums[j]:
                    return None
            own, children = nodes[sums[j]], children_of(nodes[sums[j]])
            if children != last:
                columns, last = position[list(children)], children
            places = template.edge_offsets[sums[j]] + np.arange(len(children))
            if isinstance(own, Sum) and own.by is not None:
                value = tables[[column for column, _ in by].index(own.by)]
                places = places + len(children) * value[:, None]
            edge[:, j, columns] = places
        if (member < 0).any():
            return None
        return cls(edge, tuple(member), np.array([sums[j] for j in range(k)]), by)
