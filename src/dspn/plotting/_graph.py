"""A network as something to draw: marks with rows and groups, edges with weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import final

from dspn._arrays import Floats
from dspn.structure import DynamicNetwork, Input, Leaf, Node, Product, Sum, Template
from dspn.structure.nodes import children_of, reachable

MAX_STACK = 16
"""Most leaves in one stack."""


@final
class Mark(StrEnum):
    """What stands for a node in the drawing."""

    INPUT = "input"
    LEAF = "leaf"
    PRODUCT = "product"
    SUM = "sum"


@final
@dataclass(frozen=True, slots=True)
class Vertex:
    """One node: its row from the bottom, its group (None when shared), its position if an output.

    `label` is an input's position; `names` a leaf's variable, or those of a stack of leaves.
    """

    mark: Mark
    row: int
    label: str = ""
    names: tuple[str, ...] = ()
    group: int | None = None
    output: int | None = None


@final
@dataclass(frozen=True, slots=True)
class Edge:
    """From a sum or product to a child; only the edges of a sum carry a weight.

    `member` says which leaf of a stack is meant.
    """

    parent: int
    child: int
    weight: float | None = None
    member: int = 0


@final
@dataclass(frozen=True)
class Graph:
    """What a drawing shows. Rows above `top_row` belong to the top network."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    top_row: int
    stacked: bool = False


def _heights(nodes: Sequence[Node], order: Sequence[int]) -> list[int]:
    """Longest way down to a node without children."""
    heights = [0] * len(nodes)
    for index in order:
        heights[index] = 1 + max(
            (heights[child] for child in children_of(nodes[index])), default=-1
        )
    return heights


def reads_input(nodes: Sequence[Node], order: Sequence[int]) -> list[bool]:
    """Whether an input interface node is at or below each node."""
    reads = [isinstance(node, Input) for node in nodes]
    for index in order:
        reads[index] |= any(reads[child] for child in children_of(nodes[index]))
    return reads


def template_rows(template: Template) -> list[int]:
    """Inputs in row 0, outputs on top; what reads an input as low, the rest as high as it can be.

    Leaves thus stand just below the lowest of their parents, and the edges of the mix, which are
    the most numerous, stay short.
    """
    heights = _heights(template.nodes, template.order)
    reads = reads_input(template.nodes, template.order)
    top = max(heights)
    ceiling = [top + 1] * len(template.nodes)
    rows = list(heights)
    outputs = set(template.outputs)
    for index in reversed(template.order):
        free = ceiling[index] > top
        if free and index in outputs:
            rows[index] = top
        elif not free and not reads[index]:
            rows[index] = ceiling[index] - 1
        for child in children_of(template.nodes[index]):
            ceiling[child] = min(ceiling[child], rows[index])
    return rows


def node_groups(network: DynamicNetwork) -> list[frozenset[int]]:
    """The groups whose outputs stand above each node; an input belongs to its own group."""
    template = network.template
    above: list[set[int]] = [set() for _ in template.nodes]
    for number, positions in enumerate(network.groups):
        for node in reachable(template.nodes, [template.outputs[p] for p in positions]):
            above[node].add(number)
        for position in positions:
            above[template.inputs[position]] = {number}
    return [frozenset(numbers) for numbers in above]


def _only(groups: frozenset[int]) -> int | None:
    return next(iter(groups)) if len(groups) == 1 else None


def _vertex(node: Node, names: Sequence[str], row: int) -> Vertex:
    match node:
        case Input():
            return Vertex(Mark.INPUT, row, label=str(node.position))
        case Leaf():
            return Vertex(Mark.LEAF, row, names=(names[node.variable],))
        case Product():
            return Vertex(Mark.PRODUCT, row)
        case Sum():
            return Vertex(Mark.SUM, row)


def weighted_edges(nodes: Sequence[Node], offsets: dict[int, int], weights: Floats) -> list[Edge]:
    """Every edge, those of sums with their weights."""
    edges = []
    for index, node in enumerate(nodes):
        for place, child in enumerate(children_of(node)):
            weight = float(weights[offsets[index] + place]) if isinstance(node, Sum) else None
            edges.append(Edge(index, child, weight))
    return edges


def template_graph(network: DynamicNetwork) -> Graph:
    """The template alone."""
    template = network.template
    rows = template_rows(template)
    groups = node_groups(network)
    outputs = {node: position for position, node in enumerate(template.outputs)}
    vertices = [
        replace(
            _vertex(node, template.schema.names, rows[index]),
            group=_only(groups[index]),
            output=outputs.get(index),
        )
        for index, node in enumerate(template.nodes)
    ]
    weights = network.parameters.template.weights
    edges = weighted_edges(template.nodes, template.edge_offsets, weights)
    return Graph(tuple(vertices), tuple(edges), max(rows))


def capped_graph(network: DynamicNetwork) -> Graph:
    """The template with the top network on its outputs, which are the inputs of the top network."""
    return with_top(template_graph(network), network.template.outputs, network)


def with_top(graph: Graph, outputs: Sequence[int], network: DynamicNetwork) -> Graph:
    """The graph with the top network on the vertices `outputs`, one for each position."""
    top = network.top
    heights = _heights(top.nodes, top.order)
    vertices = list(graph.vertices)
    place: dict[int, int] = {}
    for index, node in enumerate(top.nodes):
        if isinstance(node, Input):
            place[index] = outputs[node.position]
        else:
            place[index] = len(vertices)
            vertices.append(_vertex(node, network.schema.names, graph.top_row + heights[index]))
    edges = [
        Edge(place[edge.parent], place[edge.child], edge.weight)
        for edge in weighted_edges(top.nodes, top.edge_offsets, network.parameters.top.weights)
    ]
    return Graph(tuple(vertices), (*graph.edges, *edges), graph.top_row)


def _own_leaves(graph: Graph) -> dict[int, list[int]]:
    """For each node, the leaves that nothing else reads; an output is read by the slice above."""
    parents: dict[int, list[int]] = {}
    for edge in graph.edges:
        parents.setdefault(edge.child, []).append(edge.parent)
    own: dict[int, list[int]] = {}
    for index, vertex in enumerate(graph.vertices):
        if vertex.mark is Mark.LEAF and vertex.output is None and len(parents.get(index, ())) == 1:
            own.setdefault(parents[index][0], []).append(index)
    return own


def stacked_graph(graph: Graph) -> Graph:
    """The same graph with the leaves that belong to one node alone in stacks, one name per line."""
    stacks: dict[int, tuple[int, int]] = {}
    members: dict[int, list[int]] = {}
    for leaves in _own_leaves(graph).values():
        for first in range(0, len(leaves), MAX_STACK):
            chunk = leaves[first : first + MAX_STACK]
            members[chunk[0]] = chunk
            stacks.update({leaf: (chunk[0], place) for place, leaf in enumerate(chunk)})
    kept = [i for i in range(len(graph.vertices)) if i not in stacks or i in members]
    place = {index: new for new, index in enumerate(kept)}
    vertices = [
        replace(
            graph.vertices[index],
            names=tuple(graph.vertices[leaf].names[0] for leaf in members[index]),
        )
        if index in members
        else graph.vertices[index]
        for index in kept
    ]
    edges = []
    for edge in graph.edges:
        child, member = stacks.get(edge.child, (edge.child, 0))
        edges.append(Edge(place[edge.parent], place[child], edge.weight, member))
    return Graph(tuple(vertices), tuple(edges), graph.top_row, stacked=True)
