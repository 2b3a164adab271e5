"""A network as a graph to draw: vertices with rows and groups, edges with weights."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, final

from dspn._arrays import Floats
from dspn.structure import DynamicNetwork, Input, Leaf, Node, Root, Sum, Template
from dspn.structure.nodes import children_of, reachable
from dspn.structure.validity import bottom_nodes

MAX_STACK = 16
"""Most leaves in one stack."""


@final
class Mark(StrEnum):
    """The kind of a node, which decides how it is drawn."""

    INPUT = "input"
    LEAF = "leaf"
    PRODUCT = "product"
    SUM = "sum"


@final
class Vertex(NamedTuple):
    """One node: its row from the bottom, its group (None when shared) and its positions.

    `names` is a leaf's variable, or those of a stack of leaves; `position` is that of an input,
    `output` that of an output.
    """

    mark: Mark
    row: int
    names: tuple[str, ...] = ()
    group: int | None = None
    position: int | None = None
    output: int | None = None


@final
class Edge(NamedTuple):
    """An edge from a sum or product to a child; only the edges of a sum have a weight.

    `member` is the number of the leaf within a stack.
    """

    parent: int
    child: int
    weight: float | None = None
    member: int = 0


@final
class Graph(NamedTuple):
    """What a drawing shows. Rows above `top_row` belong to the top network."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    top_row: int
    stacked: bool = False

    @property
    def outputs(self) -> dict[int, int]:
        """The vertex of each output position; of several slices the one of the uppermost."""
        return {v.output: i for i, v in enumerate(self.vertices) if v.output is not None}


def kind_of(node: Node) -> Mark:
    """The mark that stands for a node."""
    return Mark(type(node).__name__.lower())


def _heights(nodes: Sequence[Node], order: Sequence[int]) -> list[int]:
    """Length of the longest path down to a node without children."""
    heights = [0] * len(nodes)
    for index in order:
        heights[index] = 1 + max((heights[c] for c in children_of(nodes[index])), default=-1)
    return heights


def reads_input(nodes: Sequence[Node], order: Sequence[int]) -> list[bool]:
    """Whether an input interface node is at or below each node."""
    reads = [isinstance(node, Input) for node in nodes]
    for index in order:
        reads[index] |= any(reads[child] for child in children_of(nodes[index]))
    return reads


def template_rows(template: Template) -> list[int]:
    """Inputs in row 0, outputs on top; what reads an input as low, the rest as high as it can be.

    Leaves are thus just below the lowest of their parents, and the edges of the mix, which are the
    most numerous, stay short.
    """
    rows = _heights(template.nodes, template.order)
    reads = reads_input(template.nodes, template.order)
    top = max(rows)
    ceiling = [top + 1] * len(template.nodes)
    for index in reversed(template.order):
        free = ceiling[index] > top
        if free and index in template.outputs:
            rows[index] = top
        elif not free and not reads[index]:
            rows[index] = ceiling[index] - 1
        for child in children_of(template.nodes[index]):
            ceiling[child] = min(ceiling[child], rows[index])
    return rows


def nodes_below(network: DynamicNetwork, groups: Sequence[int]) -> set[int]:
    """The nodes of the template at or below the outputs of some groups."""
    template = network.template
    outputs = [template.outputs[p] for group in groups for p in network.groups[group]]
    return set(reachable(template.nodes, outputs))


def group_variables(network: DynamicNetwork, group: int) -> list[int]:
    """The variables of the slice below a group's outputs."""
    nodes = [network.template.nodes[index] for index in nodes_below(network, [group])]
    return sorted({node.variable for node in nodes if isinstance(node, Leaf)})


def _single_groups(network: DynamicNetwork) -> list[int | None]:
    """The group whose outputs are above each node, None if several; inputs have their own group."""
    above: list[set[int]] = [set() for _ in network.template.nodes]
    for number in range(len(network.groups)):
        for node in nodes_below(network, [number]):
            above[node].add(number)
    for number, positions in enumerate(network.groups):
        for position in positions:
            above[network.template.inputs[position]] = {number}
    return [groups.pop() if len(groups) == 1 else None for groups in above]


def _vertex(node: Node, names: Sequence[str], row: int) -> Vertex:
    leaf = (names[node.variable],) if isinstance(node, Leaf) else ()
    position = node.position if isinstance(node, Input) else None
    return Vertex(kind_of(node), row, leaf, position=position)


def _weighted_edges(nodes: Sequence[Node], offsets: dict[int, int], weights: Floats) -> list[Edge]:
    """Every edge, those of sums with their weights."""
    return [
        Edge(i, child, float(weights[offsets[i] + place]) if isinstance(node, Sum) else None)
        for i, node in enumerate(nodes)
        for place, child in enumerate(children_of(node))
    ]


def template_graph(network: DynamicNetwork, *, bottom: bool = False) -> Graph:
    """The template alone; with `bottom` its sums have the weights of the bottom network."""
    template, parameters = network.template, network.parameters
    rows, groups = template_rows(template), _single_groups(network)
    outputs = {node: position for position, node in enumerate(template.outputs)}
    vertices = [
        _vertex(node, template.schema.names, rows[i])._replace(
            group=groups[i], output=outputs.get(i)
        )
        for i, node in enumerate(template.nodes)
    ]
    own = (bottom and parameters.bottom) or parameters.template
    edges = _weighted_edges(template.nodes, template.edge_offsets, own.weights)
    return Graph(tuple(vertices), tuple(edges), max(rows))


def capped_graph(network: DynamicNetwork) -> Graph:
    """The template with the top network on its outputs, which are the inputs of the top network."""
    return _with_top(template_graph(network), network.template.outputs, network)


def _with_top(graph: Graph, outputs: Sequence[int], network: DynamicNetwork) -> Graph:
    """The graph with the top network on the vertices `outputs`, one for each position."""
    top = network.top
    heights = _heights(top.nodes, top.order)
    vertices = list(graph.vertices)
    place = []
    for index, node in enumerate(top.nodes):
        if isinstance(node, Input):
            place.append(outputs[node.position])
        else:
            place.append(len(vertices))
            vertices.append(_vertex(node, network.schema.names, graph.top_row + heights[index]))
    edges = [
        edge._replace(parent=place[edge.parent], child=place[edge.child])
        for edge in _weighted_edges(top.nodes, top.edge_offsets, network.parameters.top.weights)
    ]
    return Graph(tuple(vertices), (*graph.edges, *edges), graph.top_row)


def slice_number(network: DynamicNetwork, level: int, num_slices: int) -> int:
    """The slice at a level of the unrolled network; level 0 is the bottom network."""
    return num_slices - 1 - level if network.root is Root.FIRST else level


def unrolled_sizes(network: DynamicNetwork, num_slices: int) -> tuple[int, int]:
    """Numbers of nodes and edges of the unrolled network, without building it."""
    template, top = network.template, network.top
    bottom = bottom_nodes(template)
    repeats = num_slices - 1
    nodes = sum(not isinstance(node, Input) for node in (*bottom, *top.nodes))
    edges = sum(len(children_of(node)) for node in (*bottom, *top.nodes))
    inner = len(template.nodes) - template.num_interfaces
    return nodes + repeats * inner, edges + repeats * template.num_edges


def unrolled_graph(network: DynamicNetwork, num_slices: int) -> tuple[Graph, list[int]]:
    """Copies of the template on the bottom network, under the top network.

    Inputs of a copy are the outputs of the slice below. Also returns the highest row of each slice,
    from the bottom up.
    """
    template = network.template
    plain, repeated = template_graph(network, bottom=True), template_graph(network)
    vertices: list[Vertex] = []
    edges: list[Edge] = []
    # The bottom network has the nodes that have a leaf below them.
    new = [i for i, n in enumerate(bottom_nodes(template)) if not isinstance(n, Input)]
    rise = -min(plain.vertices[index].row for index in new)
    place: dict[int, int] = {}
    outputs: list[int] = []
    highest: list[int] = []
    for level in range(num_slices):
        if level > 0:
            plain, rise = repeated, highest[-1]
            place = dict(zip(template.inputs, outputs, strict=True))
            new = [index for index in range(len(template.nodes)) if index not in place]
        for index in new:
            place[index] = len(vertices)
            vertices.append(plain.vertices[index]._replace(row=plain.vertices[index].row + rise))
        edges += [
            edge._replace(parent=place[edge.parent], child=place[edge.child])
            for edge in plain.edges
            if edge.parent in place and edge.child in place
        ]
        outputs = [place[output] for output in template.outputs]
        highest.append(max(vertices[output].row for output in outputs))
    graph = Graph(tuple(vertices), tuple(edges), highest[-1])
    return _with_top(graph, outputs, network), highest


def stacked_graph(graph: Graph) -> Graph:
    """The same graph with the leaves that only one node reads in stacks, one name per line."""
    parents: dict[int, list[int]] = {}
    for edge in graph.edges:
        parents.setdefault(edge.child, []).append(edge.parent)
    leaves: dict[int, list[int]] = {}
    for index, vertex in enumerate(graph.vertices):
        # An output is read by the slice above, too.
        if vertex.mark is Mark.LEAF and vertex.output is None and len(parents.get(index, ())) == 1:
            leaves.setdefault(parents[index][0], []).append(index)
    place, member = {}, {}
    vertices: list[Vertex] = []
    stacks = {
        stack[0]: stack
        for own in leaves.values()
        for stack in (own[first : first + MAX_STACK] for first in range(0, len(own), MAX_STACK))
    }
    inside = {leaf for stack in stacks.values() for leaf in stack}
    for index, vertex in enumerate(graph.vertices):
        if index in inside and index not in stacks:
            continue
        for number, leaf in enumerate(stacks.get(index, [index])):
            place[leaf], member[leaf] = len(vertices), number
        names = tuple(graph.vertices[leaf].names[0] for leaf in stacks.get(index, ()))
        vertices.append(vertex._replace(names=names or vertex.names))
    edges = [
        Edge(place[edge.parent], place[edge.child], edge.weight, member[edge.child])
        for edge in graph.edges
    ]
    return Graph(tuple(vertices), tuple(edges), graph.top_row, stacked=True)
