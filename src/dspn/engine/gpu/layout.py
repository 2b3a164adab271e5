"""Structure as data: the nodes of a network as steps, each of which array operations run at once.

Nodes of one kind, level and number of children make a step. Sums over the same children, as the
transitions of a dense template are, make a step that names the children once.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from dspn._arguments import Ints
from dspn.structure.chain import reads_inputs
from dspn.structure.nodes import Input, Leaf, Node, Product, Sum, children_of, reachable
from dspn.structure.template import Template, Top

# Fewer sums than this over the same children are no step of their own.
_FEWEST_SHARING: Final = 4


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
        return tuple((places, flat[places]) for places in found)


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
