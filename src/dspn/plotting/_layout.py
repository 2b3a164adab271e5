"""Layered layout: order within rows by barycentre, then places that keep edges upright.

Sugiyama's method: an edge that spans several rows is broken by a bend in each row between, so that
bends take part in the ordering like nodes.
"""

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np
from scipy.optimize import isotonic_regression

from dspn._arrays import Floats
from dspn.plotting._graph import Edge, Graph, Mark

_ORDER_SWEEPS = 12
_PLACE_SWEEPS = 40
_BEND_ROOM = 0.3
_GROUP_GAP = 1.2
_FAMILY_GAP = 0.4
_BEND_PULL = 4.0
_STACK_ROOM = 2.4
_LANE_ROOM = 0.5
_COLUMNS_ACROSS = 25.0
"""Nodes that fill the width in comfort; shorter rows are spread to this."""


@final
@dataclass(frozen=True)
class Layout:
    """Column of every vertex and of the bends of every edge, in units of one node's room.

    `bends[e]` has one entry for each row strictly between the ends of edge e, from the parent down.
    """

    columns: tuple[float, ...]
    bends: tuple[tuple[float, ...], ...]
    num_columns: float


@final
class _Rows:
    """Vertices and bends row by row, with their neighbours one row above and one row below."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.num_rows = 1 + max(vertex.row for vertex in graph.vertices)
        self.row_of = [vertex.row for vertex in graph.vertices]
        self.above: list[list[int]] = [[] for _ in graph.vertices]
        self.below: list[list[int]] = [[] for _ in graph.vertices]
        self.pulls: list[dict[int, float]] = [{} for _ in graph.vertices]
        self.chains = [self._chain(edge) for edge in graph.edges]
        self._tie_interfaces()
        self.rows = self._first_order()

    def _chain(self, edge: Edge) -> list[int]:
        """Lays the bends of an edge and returns them from the parent down."""
        pull = 1.0 if edge.weight is None else edge.weight
        bends = []
        upper = edge.parent
        for row in range(self.row_of[edge.parent] - 1, self.row_of[edge.child], -1):
            bend = len(self.row_of)
            self.row_of.append(row)
            self.above.append([])
            self.below.append([])
            self.pulls.append({})
            bends.append(bend)
            self._join(upper, bend, pull)
            upper = bend
        self._join(upper, edge.child, pull)
        return bends

    def _join(self, upper: int, lower: int, pull: float) -> None:
        self.below[upper].append(lower)
        self.above[lower].append(upper)
        self.pulls[upper][lower] = pull
        # The template keeps its places when the top network is drawn above it.
        if self.row_of[lower] != self.graph.top_row or self.row_of[upper] <= self.graph.top_row:
            self.pulls[lower][upper] = pull

    def _tie_interfaces(self) -> None:
        """Input i stands below output i, whose value it takes, as nearly as the order allows.

        Of several slices, the outputs of one stand below those of the next.
        """
        vertices = self.graph.vertices
        outputs = {v.output: index for index, v in enumerate(vertices) if v.output is not None}
        for index, vertex in enumerate(vertices):
            if vertex.mark is Mark.INPUT:
                self.pulls[index] = {outputs[int(vertex.label)]: 1.0}
            elif vertex.output is not None and outputs[vertex.output] != index:
                self.pulls[index] = {outputs[vertex.output]: 1.0}

    def _first_order(self) -> list[list[int]]:
        """Depth first from the outputs by position; in a family, branches between the leaves."""
        rows: list[list[int]] = [[] for _ in range(self.num_rows)]
        seen: set[int] = set()
        stack = self._roots()[::-1]
        while stack:
            item = stack.pop()
            if item in seen:
                continue
            seen.add(item)
            rows[self.row_of[item]].append(item)
            stack.extend(reversed(_branches_in_the_middle(self.below[item], self.below)))
        vertices = self.graph.vertices
        rows[0].sort(key=lambda item: self._input_key(item, vertices[item].mark is Mark.INPUT))
        return rows

    def _roots(self) -> list[int]:
        """Output by output; nodes that nothing reads come last."""
        outputs = {v.output: i for i, v in enumerate(self.graph.vertices) if v.output is not None}
        return [
            *(outputs[position] for position in sorted(outputs, key=self._output_key)),
            *(item for item in range(len(self.row_of)) if not self.above[item]),
            *range(len(self.graph.vertices)),
        ]

    def _output_key(self, position: int) -> tuple[int, int]:
        group = next(v.group for v in self.graph.vertices if v.output == position)
        return (-1 if group is None else group, position)

    def _input_key(self, item: int, is_input: bool) -> tuple[int, int]:
        vertex = self.graph.vertices[item]
        group = -1 if vertex.group is None else vertex.group
        return (group, int(vertex.label) if is_input else -1)

    def crossings(self, rows: Sequence[Sequence[int]]) -> int:
        """Number of pairs of edges that cross."""
        total = 0
        for upper, lower in zip(rows[1:], rows[:-1], strict=True):
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
        rows = [list(row) for row in self.rows]
        best, fewest = [list(row) for row in rows], self.crossings(rows)
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
                best, fewest = [list(row) for row in rows], crossings
        return best


def _branches_in_the_middle(items: Sequence[int], below: Sequence[Sequence[int]]) -> list[int]:
    leaves = [item for item in items if not below[item]]
    branches = [item for item in items if below[item]]
    half = (len(leaves) + 1) // 2
    return [*leaves[:half], *branches, *leaves[half:]]


def _by_barycentre(
    row: Sequence[int], fixed: Sequence[int], neighbours: Sequence[Sequence[int]]
) -> list[int]:
    """Sorts by the mean place of the neighbours; an item without neighbours keeps its place."""
    place = {item: column for column, item in enumerate(fixed)}
    moving = [item for item in row if neighbours[item]]
    centre = {
        item: sum(place[n] for n in neighbours[item]) / len(neighbours[item]) for item in moving
    }
    moving.sort(key=lambda item: centre[item])
    following = iter(moving)
    return [next(following) if neighbours[item] else item for item in row]


def _steps(rows: _Rows, row: Sequence[int], spread: float) -> list[float]:
    """Distances between the centres of the neighbours of a row."""
    vertices = rows.graph.vertices
    count = len(vertices)
    steps = []
    for left, right in pairwise(row):
        stacks = [
            rows.graph.stacked and i < count and vertices[i].mark is Mark.LEAF
            for i in (left, right)
        ]
        # A circle stands below the stacks of its row: beside them only its edge needs room.
        circle = _LANE_ROOM if any(stacks) else spread
        rooms = [
            _STACK_ROOM if stack else circle if item < count else _BEND_ROOM
            for item, stack in zip((left, right), stacks, strict=True)
        ]
        gap = 0.0
        if left < count and right < count:
            if vertices[left].group != vertices[right].group:
                gap = _GROUP_GAP
            elif rows.above[left] != rows.above[right]:
                gap = _FAMILY_GAP
        steps.append(sum(rooms) / 2 + gap)
    return steps


def _starts(rows: _Rows, order: Sequence[Sequence[int]]) -> list[Floats]:
    """The tightest places of each row's items; short rows are given more room."""
    count = len(rows.graph.vertices)
    widest = max(sum(_steps(rows, row, 1.0)) + 1.0 for row in order)
    starts = []
    for row in order:
        nodes = max(sum(item < count for item in row), 1)
        spread = max(1.0, min(widest / _COLUMNS_ACROSS, 0.8 * widest / nodes))
        steps = _steps(rows, row, spread)
        starts.append(np.concatenate([[0.0], np.cumsum(steps)]) if row else np.zeros(0))
    return starts


def _place(rows: _Rows, order: Sequence[Sequence[int]]) -> list[float]:
    """Each row in turn as near its neighbours as the room allows: an isotonic regression."""
    count = len(rows.graph.vertices)
    column = [0.0] * len(rows.row_of)
    starts = _starts(rows, order)
    for row, start in zip(order, starts, strict=True):
        for item, at in zip(row, start, strict=True):
            column[item] = float(at - start[-1] / 2)
    for sweep in range(_PLACE_SWEEPS):
        numbers = range(len(order)) if sweep % 2 else range(len(order) - 1, -1, -1)
        for number in numbers:
            row = order[number]
            if not row:
                continue
            target = np.array([_centre(rows.pulls[item], column, column[item]) for item in row])
            firmness = [_BEND_PULL if item >= count else 1.0 for item in row]
            fitted = isotonic_regression(target - starts[number], weights=firmness).x
            for item, at in zip(row, fitted + starts[number], strict=True):
                column[item] = float(at)
    return column


def _centre(pulls: Mapping[int, float], column: Sequence[float], otherwise: float) -> float:
    total = sum(pulls.values())
    return sum(pull * column[item] for item, pull in pulls.items()) / total if total else otherwise


def layered(graph: Graph) -> Layout:
    """Columns for every vertex and bend: few crossings first, upright edges second."""
    rows = _Rows(graph)
    column = _place(rows, rows.ordered())
    count = len(graph.vertices)
    first = min(column[:count])
    return Layout(
        tuple(at - first for at in column[:count]),
        tuple(tuple(column[bend] - first for bend in chain) for chain in rows.chains),
        max(column[:count]) - first + 1.0,
    )
