"""A network as a graph to draw: vertices with rows and groups, edges with weights, and columns.

Columns are found by Sugiyama's method: an edge that spans several rows is broken by a bend in each
row between, so that bends take part in the ordering like nodes. The order within rows is by
barycentre; then columns are chosen that keep edges upright.
"""

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple, final

import numpy as np
from scipy.optimize import isotonic_regression

from dspn._arguments import Floats
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.nodes import Input, Leaf, Node, Sum, children_of, reachable
from dspn.structure.parameters import pooled_weights
from dspn.structure.template import Template, Top
from dspn.structure.validity import bottom_nodes, group_scopes

MAX_STACK = 16
"""Most leaves in one stack."""

_ORDER_SWEEPS, _PLACE_SWEEPS = 12, 40
# Lengths in units of one node's room.
_BEND_ROOM, _STACK_ROOM, _LANE_ROOM = 0.3, 2.4, 0.5
_GROUP_GAP, _FAMILY_GAP = 1.2, 0.4
_BEND_PULL = 4.0
_COLUMNS_ACROSS = 25.0
"""Nodes that fill the width in comfort; shorter rows are spread to this."""


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


def kind_of(node: Node) -> Mark:
    """The mark that stands for a node."""
    return Mark(type(node).__name__.lower())


def _heights(nodes: Sequence[Node], order: Sequence[int]) -> list[int]:
    """Length of the longest path down to a node without children."""
    heights = [0] * len(nodes)
    for index in order:
        heights[index] = 1 + max((heights[c] for c in children_of(nodes[index])), default=-1)
    return heights


def reads_input(template: Template) -> list[bool]:
    """Whether an input interface node is at or below each node."""
    return [scope >> len(template.schema) > 0 for scope in group_scopes(template)]


def template_rows(template: Template) -> list[int]:
    """Inputs in row 0, outputs on top; what reads an input as low, the rest as high as it can be.

    Leaves are thus just below the lowest of their parents, and the edges of the mix, which are the
    most numerous, stay short.
    """
    rows = _heights(template.nodes, template.order)
    reads = reads_input(template)
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


def _plain_graph(
    part: Template | Top, names: Sequence[str], rows: Sequence[int], weights: Floats
) -> Graph:
    """Every node and edge of a template or top network; the edges of sums have weights."""
    vertices = []
    for node, row in zip(part.nodes, rows, strict=True):
        leaf = (names[node.variable],) if isinstance(node, Leaf) else ()
        position = node.position if isinstance(node, Input) else None
        vertices.append(Vertex(kind_of(node), row, leaf, position=position))
    # Where weights depend on an input, the mean of their tables is shown.
    mean = {
        i: pooled_weights(part, weights, i) / part.num_tables(part.nodes[i])
        for i in part.edge_offsets
    }
    edges = [
        Edge(i, child, float(mean[i][place]) if isinstance(node, Sum) else None)
        for i, node in enumerate(part.nodes)
        for place, child in enumerate(children_of(node))
    ]
    return Graph(tuple(vertices), tuple(edges), max(rows))


def template_graph(network: DynamicNetwork, *, bottom: bool = False) -> Graph:
    """The template alone; with `bottom` its sums have the weights of the bottom network.

    The group of a node is that of the outputs above it, None if these are in several; an input has
    the group of its position.
    """
    template, parameters = network.template, network.parameters
    above: list[set[int]] = [set() for _ in template.nodes]
    for number in range(len(network.groups)):
        for index in nodes_below(network, [number]):
            above[index].add(number)
    for number, positions in enumerate(network.groups):
        for position in positions:
            above[template.inputs[position]] = {number}
    outputs = {node: position for position, node in enumerate(template.outputs)}
    own = (bottom and parameters.bottom) or parameters.template
    names, rows = template.schema.names, template_rows(template)
    graph = _plain_graph(template, names, rows, own.weights)
    vertices = (
        vertex._replace(group=groups.pop() if len(groups) == 1 else None, output=outputs.get(i))
        for i, (vertex, groups) in enumerate(zip(graph.vertices, above, strict=True))
    )
    return graph._replace(vertices=tuple(vertices))


def capped_graph(network: DynamicNetwork) -> Graph:
    """The template with the top network on its outputs, which are the inputs of the top network."""
    return _with_top(template_graph(network), network.template.outputs, network)


def _joined(below: Graph, above: Graph, place: dict[int, int], rise: int) -> Graph:
    """The graph `above`, raised by some rows, on the graph `below`.

    `place` has the vertices of `above` that `below` already has, and is completed by all others; a
    vertex that is left out has the place -1.
    """
    vertices = list(below.vertices)
    for index, vertex in enumerate(above.vertices):
        if index not in place:
            place[index] = len(vertices)
            vertices.append(vertex._replace(row=vertex.row + rise))
    edges = [e._replace(parent=place[e.parent], child=place[e.child]) for e in above.edges]
    edges = [edge for edge in edges if edge.parent >= 0 and edge.child >= 0]
    return below._replace(vertices=tuple(vertices), edges=(*below.edges, *edges))


def _with_top(graph: Graph, outputs: Sequence[int], network: DynamicNetwork) -> Graph:
    """The graph with the top network on the vertices `outputs`, one for each position."""
    top = network.top
    place = {i: outputs[n.position] for i, n in enumerate(top.nodes) if isinstance(n, Input)}
    rows, weights = _heights(top.nodes, top.order), network.parameters.top.weights
    own = _plain_graph(top, network.schema.names, rows, weights)
    return _joined(graph, own, place, graph.top_row)


def slice_number(network: DynamicNetwork, level: int, num_slices: int) -> int:
    """The slice at a level of the unrolled network; level 0 is the bottom network."""
    return num_slices - 1 - level if network.root is Root.FIRST else level


def unrolled_sizes(network: DynamicNetwork, num_slices: int) -> tuple[int, int]:
    """Numbers of nodes and edges of the unrolled network, without building it."""
    template, repeats = network.template, num_slices - 1
    ends = (*bottom_nodes(template), *network.top.nodes)
    nodes = sum(not isinstance(node, Input) for node in ends)
    edges = sum(len(children_of(node)) for node in ends)
    inner = len(template.nodes) - template.num_interfaces
    return nodes + repeats * inner, edges + repeats * template.num_edges


def unrolled_graph(network: DynamicNetwork, num_slices: int) -> tuple[Graph, list[int]]:
    """Copies of the template on the bottom network, under the top network.

    Inputs of a copy are the outputs of the slice below. Also returns the highest row of each slice,
    from the bottom up.
    """
    template, graph = network.template, Graph((), (), 0)
    part, repeated = template_graph(network, bottom=True), template_graph(network)
    # The bottom network has the nodes that have a leaf below them.
    place = {i: -1 for i, n in enumerate(bottom_nodes(template)) if isinstance(n, Input)}
    rise = -min(vertex.row for i, vertex in enumerate(part.vertices) if i not in place)
    outputs: list[int] = []
    highest: list[int] = []
    for _ in range(num_slices):
        graph = _joined(graph, part, place, rise)
        outputs = [place[output] for output in template.outputs]
        rise = max(graph.vertices[output].row for output in outputs)
        highest.append(rise)
        part, place = repeated, dict(zip(template.inputs, outputs, strict=True))
    return _with_top(graph._replace(top_row=rise), outputs, network), highest


def stacked_graph(graph: Graph) -> Graph:
    """The same graph with the leaves that only one node reads in stacks, one name per line."""
    num_readers = Counter(edge.child for edge in graph.edges)
    leaves: dict[int, list[int]] = defaultdict(list)
    for parent, child, *_ in sorted(graph.edges, key=lambda edge: edge.child):
        vertex = graph.vertices[child]
        # An output is read by the slice above, too.
        if vertex.mark is Mark.LEAF and vertex.output is None and num_readers[child] == 1:
            leaves[parent].append(child)
    first, member = list(range(len(graph.vertices))), [0] * len(graph.vertices)
    names = [vertex.names for vertex in graph.vertices]
    for own in leaves.values():
        for number, leaf in enumerate(own):
            member[leaf] = number % MAX_STACK
            first[leaf] = own[number - member[leaf]]
            if member[leaf]:
                names[first[leaf]] += names[leaf]
    drawn = [index for index, stack in enumerate(first) if stack == index]
    place = {index: number for number, index in enumerate(drawn)}
    vertices = tuple(graph.vertices[index]._replace(names=names[index]) for index in drawn)
    edges = [Edge(place[p], place[first[c]], weight, member[c]) for p, c, weight, _ in graph.edges]
    return Graph(vertices, tuple(edges), graph.top_row, stacked=True)


@final
class Layout(NamedTuple):
    """Column of every vertex and of the bends of every edge, in units of one node's room.

    `bends[e]` has one entry for each row strictly between the ends of edge e, from the parent down.
    """

    columns: tuple[float, ...]
    bends: tuple[tuple[float, ...], ...]
    num_columns: float


@final
class Rows:
    """Vertices and bends row by row, with their neighbours one row above and one row below.

    Vertices keep their numbers; bends are numbered after them.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.count = len(graph.vertices)
        self.row_of = [vertex.row for vertex in graph.vertices]
        self.above: dict[int, list[int]] = defaultdict(list)
        self.below: dict[int, list[int]] = defaultdict(list)
        self.pulls: dict[int, dict[int, float]] = defaultdict(dict)
        self.num_rows = 1 + max(self.row_of)
        self.chains = [self._chain(edge) for edge in graph.edges]
        # The vertex of each output position; of several slices the one of the uppermost.
        outputs = {v.output: i for i, v in enumerate(graph.vertices) if v.output is not None}
        # Input i is placed below output i, whose value it takes, as nearly as the order allows; of
        # several slices, the outputs of one are placed below those of the next.
        for index, vertex in enumerate(graph.vertices):
            target = vertex.output if vertex.position is None else vertex.position
            if target is not None and outputs[target] != index:
                self.pulls[index] = {outputs[target]: 1.0}
        self.rows = self._first_order(list(outputs.values()))

    def _chain(self, edge: Edge) -> list[int]:
        """Adds the bends of an edge and returns them from the parent down."""
        pull = 1.0 if edge.weight is None else edge.weight
        between = range(self.row_of[edge.parent] - 1, self.row_of[edge.child], -1)
        bends = list(range(len(self.row_of), len(self.row_of) + len(between)))
        self.row_of += between
        top_row = self.graph.top_row
        for upper, lower in pairwise([edge.parent, *bends, edge.child]):
            self.below[upper].append(lower)
            self.above[lower].append(upper)
            self.pulls[upper][lower] = pull
            # The template keeps its places when the top network is drawn above it.
            if self.row_of[lower] != top_row or self.row_of[upper] <= top_row:
                self.pulls[lower][upper] = pull
        return bends

    def _first_order(self, outputs: list[int]) -> list[list[int]]:
        """Depth first from the outputs by group and position; unread nodes come last."""
        vertices = self.graph.vertices

        def key(index: int, position: int | None) -> tuple[int, int]:
            group = vertices[index].group
            return -1 if group is None else group, -1 if position is None else position

        outputs.sort(key=lambda i: key(i, vertices[i].output))
        unread = [item for item in range(len(self.row_of)) if not self.above[item]]
        rows: list[list[int]] = [[] for _ in range(self.num_rows)]
        seen: set[int] = set()
        stack = [*outputs, *unread, *range(self.count)][::-1]
        while stack:
            item = stack.pop()
            if item not in seen:
                seen.add(item)
                rows[self.row_of[item]].append(item)
                # Children that have children are in the middle.
                leaves = [child for child in self.below[item] if not self.below[child]]
                branches = [child for child in self.below[item] if self.below[child]]
                half = (len(leaves) + 1) // 2
                stack += reversed([*leaves[:half], *branches, *leaves[half:]])
        rows[0].sort(key=lambda item: key(item, vertices[item].position))
        return rows

    def crossings(self, rows: Sequence[Sequence[int]]) -> int:
        """Number of pairs of edges that cross."""
        total = 0
        for lower, upper in pairwise(rows):
            place = {item: column for column, item in enumerate(lower)}
            passed: list[int] = []
            for item in upper:
                for end in sorted(place[child] for child in self.below[item]):
                    total += len(passed) - bisect_right(passed, end)
                    insort(passed, end)
        return total

    def ordered(self) -> list[list[int]]:
        """The order with the fewest crossings among those that alternating sweeps pass through.

        A sweep sorts each row by the mean place of the neighbours in the row before it; an item
        without neighbours keeps its place.
        """
        rows = list(self.rows)
        best, fewest = list(rows), self.crossings(rows)
        downwards = range(self.num_rows - 2, -1, -1), self.above, 1
        upwards = range(1, self.num_rows), self.below, -1
        for sweep in range(_ORDER_SWEEPS):
            if fewest == 0:
                break
            numbers, neighbours, before = upwards if sweep % 2 else downwards
            for number in numbers:
                place = {item: column for column, item in enumerate(rows[number + before])}
                centre = {
                    item: sum(place[n] for n in neighbours[item]) / len(neighbours[item])
                    for item in rows[number]
                    if neighbours[item]
                }
                following = iter(sorted(centre, key=lambda item: centre[item]))
                rows[number] = [next(following) if i in centre else i for i in rows[number]]
            crossings = self.crossings(rows)
            if crossings < fewest:
                best, fewest = list(rows), crossings
        return best

    def starts(self, order: Sequence[Sequence[int]]) -> list[Floats]:
        """The tightest places of each row's items; short rows are given more room."""
        widest = max(sum(self._steps(row, 1.0)) + 1.0 for row in order)
        starts = []
        for row in order:
            nodes = max(sum(item < self.count for item in row), 1)
            spread = max(1.0, min(widest / _COLUMNS_ACROSS, 0.8 * widest / nodes))
            starts.append(np.cumsum([0.0, *self._steps(row, spread)])[: len(row)])
        return starts

    def _steps(self, row: Sequence[int], spread: float) -> list[float]:
        """Distances between the centres of neighbours in a row."""
        vertices, stacked = self.graph.vertices, self.graph.stacked
        steps = []
        for pair in pairwise(row):
            stacks = [stacked and i < self.count and vertices[i].mark is Mark.LEAF for i in pair]
            # A circle stands below the stacks of its row: beside them only its edge needs room.
            circle = _LANE_ROOM if any(stacks) else spread
            step = sum(
                _STACK_ROOM if stack else circle if item < self.count else _BEND_ROOM
                for item, stack in zip(pair, stacks, strict=True)
            )
            (left, right), gap = pair, 0.0
            if max(pair) < self.count and vertices[left].group != vertices[right].group:
                gap = _GROUP_GAP
            elif max(pair) < self.count and self.above[left] != self.above[right]:
                gap = _FAMILY_GAP
            steps.append(step / 2 + gap)
        return steps


def layered(graph: Graph) -> Layout:
    """Columns for every vertex and bend: few crossings first, upright edges second.

    Each row in turn is placed as near its neighbours as the room allows, an isotonic regression.
    """
    rows = Rows(graph)
    order = rows.ordered()
    column = np.zeros(len(rows.row_of))
    places = [(row, start) for row, start in zip(order, rows.starts(order), strict=True) if row]
    for row, start in places:
        column[row] = start - start[-1] / 2
    for sweep in range(_PLACE_SWEEPS):
        for row, start in places if sweep % 2 else reversed(places):
            target = column[row]
            for number, item in enumerate(row):
                pulls = rows.pulls[item]
                if total := sum(pulls.values()):
                    pulled = sum(pull * column[other] for other, pull in pulls.items())
                    target[number] = pulled / total
            firmness = np.where(np.array(row) >= rows.count, _BEND_PULL, 1.0)
            column[row] = isotonic_regression(target - start, weights=firmness).x + start
    column -= column[: rows.count].min()
    columns = tuple(column[: rows.count].tolist())
    bends = tuple(tuple(column[chain].tolist()) if chain else () for chain in rows.chains)
    return Layout(columns, bends, max(columns) + 1.0)
