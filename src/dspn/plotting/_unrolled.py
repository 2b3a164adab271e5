"""The network of several slices as something to draw: copies of the template, joined."""

from dataclasses import dataclass, replace
from typing import final

from dspn.plotting._graph import Edge, Graph, Vertex, template_graph, weighted_edges, with_top
from dspn.structure import DynamicNetwork, Input, Root
from dspn.structure.nodes import children_of
from dspn.structure.validity import bottom_nodes


@final
@dataclass(frozen=True, slots=True)
class Storey:
    """One slice of the stack: its number, and the rows from its lowest nodes to its outputs."""

    number: int
    lowest: int
    highest: int


@final
@dataclass(frozen=True, slots=True)
class Sizes:
    """Nodes and edges of an unrolled network."""

    num_nodes: int
    num_edges: int


def slice_number(network: DynamicNetwork, level: int, num_slices: int) -> int:
    """The slice at a level of the stack, counted from the bottom network."""
    return num_slices - 1 - level if network.root is Root.FIRST else level


def unrolled_sizes(network: DynamicNetwork, num_slices: int) -> Sizes:
    """How large the unrolled network is, without building it; joined interfaces count once."""
    template, top = network.template, network.top
    bottom = bottom_nodes(template)
    repeats = num_slices - 1
    nodes = sum(not isinstance(node, Input) for node in bottom)
    nodes += repeats * (len(template.nodes) - template.num_interfaces)
    edges = sum(len(children_of(node)) for node in (*bottom, *top.nodes))
    return Sizes(nodes + len(top.nodes) - top.num_inputs, edges + repeats * template.num_edges)


@final
class _Stack:
    """Vertices and edges as they are laid down, from the bottom network up."""

    def __init__(self, network: DynamicNetwork) -> None:
        self.network = network
        self.plain = template_graph(network)
        self.vertices: list[Vertex] = []
        self.edges: list[Edge] = []
        self.outputs: list[int] = []
        self.top_row = 0

    def _lay(self, kept: list[int], edges: list[Edge], rise: int, place: dict[int, int]) -> None:
        for index in kept:
            place[index] = len(self.vertices)
            vertex = self.plain.vertices[index]
            self.vertices.append(replace(vertex, row=vertex.row + rise))
        self.edges.extend(
            replace(edge, parent=place[edge.parent], child=place[edge.child])
            for edge in edges
            if edge.parent in place and edge.child in place
        )
        self.outputs = [place[output] for output in self.network.template.outputs]
        self.top_row = max(self.vertices[output].row for output in self.outputs)

    def lay_bottom(self) -> None:
        """The bottom network: what has a leaf below it, with its own weights where it has any."""
        template, parameters = self.network.template, self.network.parameters
        own = parameters.bottom or parameters.template
        nodes = bottom_nodes(template)
        kept = [index for index, node in enumerate(nodes) if not isinstance(node, Input)]
        rise = -min(self.plain.vertices[index].row for index in kept)
        edges = weighted_edges(template.nodes, template.edge_offsets, own.weights)
        self._lay(kept, edges, rise, {})

    def lay_template(self) -> None:
        """One template, whose inputs are the outputs laid before."""
        inputs = self.network.template.inputs
        place = dict(zip(inputs, self.outputs, strict=True))
        kept = [index for index in range(len(self.plain.vertices)) if index not in place]
        self._lay(kept, list(self.plain.edges), self.top_row, place)


def unrolled_graph(network: DynamicNetwork, num_slices: int) -> tuple[Graph, tuple[Storey, ...]]:
    """Templates on the bottom network under the top network, and the rows of each slice."""
    stack = _Stack(network)
    storeys = []
    lowest = 0
    for level in range(num_slices):
        if level == 0:
            stack.lay_bottom()
        else:
            stack.lay_template()
        storeys.append(Storey(slice_number(network, level, num_slices), lowest, stack.top_row))
        lowest = stack.top_row + 1
    graph = Graph(tuple(stack.vertices), tuple(stack.edges), stack.top_row)
    return with_top(graph, stack.outputs, network), tuple(storeys)
