"""Networks whose sums got other edges: the nodes that are left, and where every weight goes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import final

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn._checks import require_type
from dspn.engine import ExpectedFlows
from dspn.errors import StructureError
from dspn.structure import (
    DynamicNetwork,
    Input,
    NetworkParameters,
    Node,
    Parameters,
    Product,
    Sum,
    Template,
    Top,
)
from dspn.structure.graph import reachable
from dspn.structure.parameters import sum_starts


@final
@dataclass(frozen=True, eq=False)
class SumEdges:
    """Edges from sums to their children, by node numbers; `source[e]` is a place in the weights.

    Of a network as it is, edge e has weight e. Changed edges may come from one weight twice.
    """

    source: Ints
    parent: Ints
    child: Ints

    @classmethod
    def of(cls, part: Template | Top) -> "SumEdges":
        """All edges of the sums of a network, in the order of its weights."""
        sums = list(part.edge_offsets)
        below = [part.nodes[index] for index in sums]
        children = chain.from_iterable(node.children for node in below if isinstance(node, Sum))
        count = part.num_weights
        widths = np.diff(np.append(sum_starts(part), count))
        parent = np.repeat(np.array(sums, dtype=np.int64), widths)
        return cls(np.arange(count), parent, np.fromiter(children, dtype=np.int64, count=count))

    def where(self, chosen: Bools) -> "SumEdges":
        """The edges that are marked."""
        return SumEdges(self.source[chosen], self.parent[chosen], self.child[chosen])

    @classmethod
    def together(cls, parts: "Sequence[SumEdges]") -> "SumEdges":
        """The edges of all parts, one part behind the other."""
        return cls(
            np.concatenate([part.source for part in parts]),
            np.concatenate([part.parent for part in parts]),
            np.concatenate([part.child for part in parts]),
        )


@final
@dataclass(frozen=True, eq=False)
class Rewired:
    """What is left of a network: `number` has the new number of each old node, -1 if it is gone.

    `target[e]` is the new weight that edge e of the rewired edges adds to, -1 if its sum is gone.
    """

    nodes: tuple[Node, ...]
    number: Ints
    target: Ints
    num_weights: int

    def weights(self, values: Floats) -> Floats:
        """New weights, the sums of what the rewired edges carry."""
        used = self.target >= 0
        found = np.bincount(self.target[used], values[used], minlength=self.num_weights)
        return found.astype(np.float64)

    def leaves(self, template: Template, rows: Sequence[Floats]) -> tuple[Floats, ...]:
        """Rows of the leaves that are left, bank by bank."""
        return tuple(
            own[self.number[list(bank.nodes)] >= 0]
            for bank, own in zip(template.banks, rows, strict=True)
        )


def _new_children(edges: SumEdges, num_nodes: int) -> tuple[dict[int, tuple[int, ...]], Ints]:
    """Children of each sum, edges between the same two nodes being one, and the place of each edge.

    Places are counted in the order of the sums; within one, children are in the order of the edges.
    """
    key = edges.parent * num_nodes + edges.child
    pairs, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    order = np.lexsort((first, pairs // num_nodes))
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    parent, child = np.divmod(pairs[order], num_nodes)
    sums, starts = np.unique(parent, return_index=True)
    bounds = pairwise([*starts.tolist(), child.size])
    named = child.tolist()
    children = {own: tuple(named[a:b]) for own, (a, b) in zip(sums.tolist(), bounds, strict=True)}
    return children, place[inverse]


def rewired(
    part: Template | Top,
    edges: SumEdges,
    roots: Sequence[int],
    positions: Ints,
    replaced: Mapping[int, int],
) -> Rewired:
    """The network with these edges below its sums, less what none of the roots reaches.

    `positions` has the new position of each input, -1 for one that is taken away; products have
    `replaced[node]` in place of a child. Nodes keep their order.
    """
    children, place = _new_children(edges, len(part.nodes))
    nodes: list[Node] = []
    for index, node in enumerate(part.nodes):
        if isinstance(node, Sum):
            node = Sum(children.get(index, ()))
        elif isinstance(node, Product) and replaced:
            node = Product(tuple(replaced.get(child, child) for child in node.children))
        elif isinstance(node, Input):
            node = Input(int(positions[node.position]))
        nodes.append(node)
    below = reachable(nodes, roots)
    left = [
        index
        for index, node in enumerate(nodes)
        if (node.position >= 0 if isinstance(node, Input) else index in below)
    ]
    number = np.full(len(nodes), -1, dtype=np.int64)
    number[left] = np.arange(len(left))
    # In the order of `place`, the edges of sums that are gone drop out.
    parent = np.empty(int(place.max(initial=-1)) + 1, dtype=np.int64)
    parent[place] = edges.parent
    stays = number[parent] >= 0
    target = np.where(stays, np.cumsum(stays) - 1, -1)[place]
    renamed = tuple(_renamed(nodes[index], number) for index in left)
    return Rewired(renamed, number, target, int(stays.sum()))


def _renamed(node: Node, number: Ints) -> Node:
    if isinstance(node, Sum | Product):
        return type(node)(tuple(number[list(node.children)].tolist()))
    return node


def rebuilt(
    network: DynamicNetwork,
    template: Rewired,
    top: Rewired,
    outputs: Sequence[int],
    root: int,
    parameters: Parameters,
) -> DynamicNetwork:
    """The checked network of rewired parts; `outputs` and `root` by their old numbers."""
    return DynamicNetwork(
        Template(network.schema, template.nodes, tuple(template.number[list(outputs)].tolist())),
        Top(len(outputs), top.nodes, int(top.number[root])),
        parameters,
        network.root,
    )


def _normalised(part: Template | Top, weights: Floats, kept: Bools) -> Floats:
    """The weights that are kept; sums that lost one add up to 1 again."""
    starts = sum_starts(part)
    if not starts.size:
        return weights
    widths = np.diff(np.append(starts, weights.size))
    remaining = np.where(kept, weights, 0.0)
    totals = np.add.reduceat(remaining, starts)
    counts = np.add.reduceat(kept.astype(np.int64), starts)
    whole = counts == widths
    shares = remaining / np.repeat(np.where(whole | (totals == 0), 1.0, totals), widths)
    # Where all that is left weighs nothing, no edge is better than another.
    empty = np.repeat(~whole & (totals == 0), widths) & kept
    shares[empty] = 1.0 / np.repeat(counts, widths)[empty]
    found: Floats = shares[kept]
    return found


def thinned(
    network: DynamicNetwork, kept: Bools, kept_top: Bools, stays: Sequence[int]
) -> DynamicNetwork:
    """The network with the edges of sums that are kept, and the interface nodes that stay.

    Every sum that is still reached keeps an edge, and no edge leads to an interface node that goes.
    """
    template, top, old = network.template, network.top, network.parameters
    positions = np.full(network.num_interfaces, -1, dtype=np.int64)
    positions[list(stays)] = np.arange(len(stays))
    outputs = [template.outputs[position] for position in stays]
    new = rewired(template, SumEdges.of(template).where(kept), outputs, positions, {})
    new_top = rewired(top, SumEdges.of(top).where(kept_top), [top.root], positions, {})

    def left(own: NetworkParameters) -> NetworkParameters:
        weights = new.weights(_normalised(template, own.weights, kept))
        return NetworkParameters(weights, new.leaves(template, own.leaves))

    parameters = Parameters(
        left(old.template),
        NetworkParameters(new_top.weights(_normalised(top, old.top.weights, kept_top))),
        None if old.bottom is None else left(old.bottom),
    )
    return rebuilt(network, new, new_top, outputs, top.root, parameters)


def checked_flows(network: DynamicNetwork, flows: ExpectedFlows) -> None:
    """Raises unless the flows have the shapes of the network's weights and leaves."""
    require_type(flows, ExpectedFlows, "flows", StructureError, remedy="see `expected_flows`")
    template = network.template
    shapes = [(template.num_weights,), *((len(bank.nodes),) for bank in template.banks)]
    found = [flows.template.weights.shape, *(own.shape[:1] for own in flows.template.leaves)]
    tops = (network.top.num_weights,), flows.top.weights.shape
    if found != shapes or tops[0] != tops[1] or (flows.bottom is None) != network.parameters.tied:
        raise StructureError(
            "`flows` must be the expected flows of `network`, but they are those of a network of "
            "another structure; find them again with `expected_flows`."
        )
