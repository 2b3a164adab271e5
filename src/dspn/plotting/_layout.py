"""Layered layout of a graph, and the places it gives vertices and edges on axes of a given size.

Sugiyama's method: an edge that spans several rows is broken by a bend in each row between, so that
bends take part in the ordering like nodes. The order within rows is by barycentre; then columns are
chosen that keep edges upright.
"""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.path import Path
from scipy.optimize import isotonic_regression

from dspn._arrays import Floats
from dspn.plotting import _style
from dspn.plotting._graph import Edge, Graph, Mark, stacked_graph

_ORDER_SWEEPS, _PLACE_SWEEPS = 12, 40
# Lengths in units of one node's room.
_BEND_ROOM, _STACK_ROOM, _LANE_ROOM = 0.3, 2.4, 0.5
_GROUP_GAP, _FAMILY_GAP = 1.2, 0.4
_BEND_PULL = 4.0
_COLUMNS_ACROSS = 25.0
"""Nodes that fill the width in comfort; shorter rows are spread to this."""

# Lengths on the axes, in points, and their shares.
_LEFT_MARGIN, _RIGHT_MARGIN = 58.0, 20.0
_ROOM_ABOVE, _ROOM_BELOW = 24.0, 34.0
_WIDEST_PITCH = 64.0
_TOP_STEP, _LINE_STEP = 0.65, 1.3
_LEGIBLE_NAME, _SMALLEST_NAME = 5.0, 4.0
_TALLEST = 10.0


@final
class Layout(NamedTuple):
    """Column of every vertex and of the bends of every edge, in units of one node's room.

    `bends[e]` has one entry for each row strictly between the ends of edge e, from the parent down.
    """

    columns: tuple[float, ...]
    bends: tuple[tuple[float, ...], ...]
    num_columns: float


@final
class _Rows:
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
        # Input i is placed below output i, whose value it takes, as nearly as the order allows; of
        # several slices, the outputs of one are placed below those of the next.
        outputs = graph.outputs
        for index, vertex in enumerate(graph.vertices):
            target = vertex.output if vertex.position is None else vertex.position
            if target is not None and outputs[target] != index:
                self.pulls[index] = {outputs[target]: 1.0}
        self.rows = self._first_order()

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

    def _first_order(self) -> list[list[int]]:
        """Depth first from the outputs by group and position; unread nodes come last."""
        vertices, outputs = self.graph.vertices, self.graph.outputs

        def key(index: int, position: int | None) -> tuple[int, int]:
            group = vertices[index].group
            return -1 if group is None else group, -1 if position is None else position

        roots = [
            *sorted(outputs.values(), key=lambda i: key(i, vertices[i].output)),
            *(item for item in range(len(self.row_of)) if not self.above[item]),
            *range(self.count),
        ]
        rows: list[list[int]] = [[] for _ in range(self.num_rows)]
        seen: set[int] = set()
        stack = roots[::-1]
        while stack:
            item = stack.pop()
            if item not in seen:
                seen.add(item)
                rows[self.row_of[item]].append(item)
                stack.extend(reversed(self._family(item)))
        rows[0].sort(key=lambda item: key(item, vertices[item].position))
        return rows

    def _family(self, item: int) -> list[int]:
        """The children of an item, those that have children in the middle."""
        leaves = [child for child in self.below[item] if not self.below[child]]
        branches = [child for child in self.below[item] if self.below[child]]
        half = (len(leaves) + 1) // 2
        return [*leaves[:half], *branches, *leaves[half:]]

    def crossings(self, rows: Sequence[Sequence[int]]) -> int:
        """Number of pairs of edges that cross."""
        total = 0
        for lower, upper in pairwise(rows):
            place = {item: column for column, item in enumerate(lower)}
            passed: list[int] = []
            for item in upper:
                ends = sorted(place[child] for child in self.below[item])
                total += sum(len(passed) - bisect_right(passed, end) for end in ends)
                for end in ends:
                    insort(passed, end)
        return total

    def ordered(self) -> list[list[int]]:
        """The order with the fewest crossings among those that alternating sweeps pass through."""
        rows = list(self.rows)
        best, fewest = list(rows), self.crossings(rows)
        for sweep in range(_ORDER_SWEEPS):
            if fewest == 0:
                break
            downwards = sweep % 2 == 0
            neighbours = self.above if downwards else self.below
            numbers = range(self.num_rows - 2, -1, -1) if downwards else range(1, self.num_rows)
            for number in numbers:
                fixed = rows[number + 1 if downwards else number - 1]
                rows[number] = _by_barycentre(rows[number], fixed, neighbours)
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
            left, right = pair
            steps.append(step / 2)
            if max(pair) < self.count:
                if vertices[left].group != vertices[right].group:
                    steps[-1] += _GROUP_GAP
                elif self.above[left] != self.above[right]:
                    steps[-1] += _FAMILY_GAP
        return steps


def _by_barycentre(
    row: Sequence[int], fixed: Sequence[int], neighbours: Mapping[int, Sequence[int]]
) -> list[int]:
    """Sorts by the mean place of the neighbours; an item without neighbours keeps its place."""
    place = {item: column for column, item in enumerate(fixed)}
    centre = {
        item: sum(place[n] for n in neighbours[item]) / len(neighbours[item])
        for item in row
        if neighbours[item]
    }
    following = iter(sorted(centre, key=lambda item: centre[item]))
    return [next(following) if neighbours[item] else item for item in row]


def _place(rows: _Rows, order: Sequence[Sequence[int]]) -> Floats:
    """Each row in turn as near its neighbours as the room allows: an isotonic regression."""
    column = np.zeros(len(rows.row_of))
    starts = rows.starts(order)
    for row, start in zip(order, starts, strict=True):
        if row:
            column[row] = start - start[-1] / 2
    for sweep in range(_PLACE_SWEEPS):
        for number in range(len(order)) if sweep % 2 else range(len(order) - 1, -1, -1):
            row = list(order[number])
            if row:
                target = np.array([_centre(rows.pulls[item], column, item) for item in row])
                firmness = np.where(np.array(row) >= rows.count, _BEND_PULL, 1.0)
                fitted = isotonic_regression(target - starts[number], weights=firmness).x
                column[row] = fitted + starts[number]
    return column


def _centre(pulls: Mapping[int, float], column: Floats, item: int) -> float:
    total = sum(pulls.values())
    pulled = sum(pull * column[other] for other, pull in pulls.items())
    return float(pulled / total if total else column[item])


def layered(graph: Graph) -> Layout:
    """Columns for every vertex and bend: few crossings first, upright edges second."""
    rows = _Rows(graph)
    column = _place(rows, rows.ordered())
    column -= column[: rows.count].min()
    bends = (tuple(column[chain].tolist()) if chain else () for chain in rows.chains)
    columns = tuple(column[: rows.count].tolist())
    return Layout(columns, tuple(bends), max(columns) + 1.0)


@final
class Names(NamedTuple):
    """How the names of leaves are set; they reach `hang` below the upper edge of their row."""

    size: float
    upright: bool = False
    hang: float = 0.0


@final
class Sheet(NamedTuple):
    """Places of vertices, paths of edges, the lower edge of each row, and sizes, all in points.

    Names that are too wide for their column are upright, or in stacks, and hang from the upper edge
    of their row; the other marks of that row stand at its lower edge.
    """

    places: Floats
    paths: tuple[Path, ...]
    lower: Floats
    diameter: float
    names: Names
    pitch: float
    width: float
    height: float


def default_size(graph: Graph, layout: Layout, *, tallest: float = _TALLEST) -> tuple[float, float]:
    """Width and height in inches that give each column and row comfortable room."""
    rows = 1 + max(vertex.row for vertex in graph.vertices)
    width = min(max(0.75 * layout.num_columns + 1.6, 7.0), 12.0)
    height = 1.0 + graph.top_row + _TOP_STEP * (rows - 1 - graph.top_row)
    longest = max(len(vertex.names) for vertex in graph.vertices)
    lines = 0.14 * longest if graph.stacked else 0.008 * layout.num_columns
    return width, min(height + lines, tallest)


def arranged(graph: Graph, ax: Axes | None) -> tuple[Graph, Layout]:
    """The graph as it is or, where that makes names easier to read, with its leaves in stacks."""
    layout = layered(graph)
    size = _name_size(graph, layout, ax)
    if size < _LEGIBLE_NAME:
        stacked = stacked_graph(graph)
        tighter = layered(stacked)
        if _name_size(stacked, tighter, ax) > size:
            return stacked, tighter
    return graph, layout


def _name_size(graph: Graph, layout: Layout, ax: Axes | None) -> float:
    width, height = default_size(graph, layout)
    size = (72.0 * width, 72.0 * height) if ax is None else _style.size_in_points(ax)
    return _leaf_names(graph, layout, *size).size


def _pitch(layout: Layout, width: float) -> float:
    return min((width - _LEFT_MARGIN - _RIGHT_MARGIN) / layout.num_columns, _WIDEST_PITCH)


def _leaf_names(graph: Graph, layout: Layout, width: float, height: float) -> Names:
    """Level if they fit their columns, else upright; in a stack always level."""
    pitch = _pitch(layout, width)
    every = {name for vertex in graph.vertices for name in vertex.names}
    widest = max((_style.text_width(name, 1.0) for name in every), default=1.0)
    if graph.stacked:
        size = max(min((2.3 * pitch - 6.0) / widest, _style.SMALL_SIZE), _SMALLEST_NAME)
        longest = max(len(vertex.names) for vertex in graph.vertices)
        return Names(size, hang=_LINE_STEP * size * longest + 12.0)
    size = min(_style.NODE_SIZE, (pitch - 8.0) / widest)
    if size >= 0.9 * _style.SMALL_SIZE:
        return Names(size)
    size = float(np.clip(0.66 * pitch, _SMALLEST_NAME, _style.SMALL_SIZE))
    return Names(size, upright=True, hang=min(widest * size + 14.0, 0.25 * height))


def _levels(graph: Graph, hang: float, height: float) -> tuple[Floats, Floats]:
    """Lower and upper edge of each row; rows of the top network are closer together."""
    num_rows = 1 + max(vertex.row for vertex in graph.vertices)
    with_leaves = {vertex.row for vertex in graph.vertices if vertex.mark is Mark.LEAF}
    hangs = np.array([hang if row in with_leaves else 0.0 for row in range(num_rows)])
    room = height - _ROOM_ABOVE - _ROOM_BELOW - float(hangs.sum())
    below, hangs[0] = hangs[0], 0.0
    steps = np.where(np.arange(1, num_rows) > graph.top_row, _TOP_STEP, 1.0)
    steps *= max(room / max(float(steps.sum()), 1.0), 1.0)
    lower = _ROOM_BELOW + below + np.concatenate([[0.0], np.cumsum(steps + hangs[:-1])])
    return lower, lower + hangs


def sheet(graph: Graph, layout: Layout, width: float, height: float) -> Sheet:
    """Places for the whole graph on axes of the given size."""
    pitch = _pitch(layout, width)
    used = _LEFT_MARGIN + pitch * layout.num_columns + _RIGHT_MARGIN
    left = _LEFT_MARGIN + (width - used) / 2 + pitch / 2
    names = _leaf_names(graph, layout, width, height)
    lower, upper = _levels(graph, names.hang, height)
    x = left + pitch * np.array(layout.columns)
    y = [(upper if v.mark is Mark.LEAF else lower)[v.row] for v in graph.vertices]
    places = np.column_stack([x, y])
    paths = []
    for edge, columns in zip(graph.edges, layout.bends, strict=True):
        if graph.stacked and graph.vertices[edge.child].mark is Mark.LEAF:
            paths.append(_comb(places, edge, names, pitch))
        else:
            row = graph.vertices[edge.parent].row - 1
            levels = zip(columns, upper[row::-1], lower[row::-1], strict=False)
            stops = [(left + pitch * at, high, low) for at, high, low in levels]
            end = places[edge.child]
            stops.append((end[0], upper[graph.vertices[edge.child].row], end[1]))
            paths.append(_curve(places[edge.parent], stops))
    # Circles are as large as the closest pair of them allows.
    closest = 0.6 * float(np.diff(lower).min(initial=height))
    circles = [i for i, vertex in enumerate(graph.vertices) if vertex.mark is not Mark.LEAF]
    for row in {graph.vertices[i].row for i in circles}:
        across = np.sort([places[i, 0] for i in circles if graph.vertices[i].row == row])
        closest = min(closest, float(np.diff(across).min(initial=np.inf)))
    diameter = float(np.clip(0.68 * closest, 4.0, 23.0))
    return Sheet(places, tuple(paths), lower, diameter, names, pitch, width, height)


def line_place(place: Floats, member: int, names: Names, pitch: float) -> tuple[float, float]:
    """Left end of a name in a stack, at half its height."""
    below = _LINE_STEP * names.size * (member + 0.5)
    return float(place[0] - 1.15 * pitch + 6.0), float(place[1] - below)


def _comb(places: Floats, edge: Edge, names: Names, pitch: float) -> Path:
    """To a name in a stack: to the corner of the stack, down its side, and across to the name."""
    x, y = line_place(places[edge.child], edge.member, names, pitch)
    side = x - 4.0
    corners = [places[edge.parent], (side, places[edge.child][1]), (side, y), (x - 1.0, y)]
    return Path(np.array(corners))


def _curve(start: Floats, stops: Sequence[tuple[float, float, float]]) -> Path:
    """From the parent down: straight at its ends, upright in bends and between hanging names.

    A stop has its column and the upper and lower edge of its row; the last is the child.
    """
    corners, codes = [(start[0], start[1])], [Path.MOVETO]
    for number, (x, high, low) in enumerate(stops):
        x0, y0 = corners[-1]
        first = (x0 + (x - x0) / 3, y0 + (high - y0) / 3)
        second = (x - (x - x0) / 3, high - (high - y0) / 3)
        if number > 0:
            first = (x0, y0 + 0.5 * (high - y0))
        if number < len(stops) - 1 or high != low:
            second = (x, high - 0.5 * (high - y0))
        corners.extend([first, second, (x, high)])
        codes.extend([Path.CURVE4] * 3)
        if high != low:
            corners.append((x, low))
            codes.append(Path.LINETO)
    return Path(corners, codes)
