"""Where a laid-out network goes on axes of a given size; all lengths are points."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.path import Path

from dspn._arrays import Floats
from dspn.plotting import _style
from dspn.plotting._graph import Edge, Graph, Mark, stacked_graph
from dspn.plotting._layout import Layout, layered

LEFT_MARGIN = 58.0
_RIGHT_MARGIN = 20.0
_ROOM_ABOVE = 24.0
_ROOM_BELOW = 34.0
_WIDEST_PITCH = 64.0
_TOP_STEP = 0.65
_LINE_STEP = 1.3
_LEGIBLE_NAME = 5.0
_SMALLEST_NAME = 4.0
_TALLEST = 10.0


@final
@dataclass(frozen=True)
class Names:
    """How the names of leaves are set; they reach `hang` below the upper edge of their row."""

    size: float
    upright: bool = False
    hang: float = 0.0


@final
@dataclass(frozen=True)
class Sheet:
    """Places of vertices, paths of edges, the lower edge of each row, and sizes.

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


def new_axes(width: float, height: float) -> Axes:
    """Axes of a size in inches that fill a new figure but for the title and the key."""
    figure = Figure(figsize=(width, height + 0.85), dpi=_style.PIXELS_WIDE / width)
    side, below, above = 0.2 / width, 0.4 / (height + 0.85), 0.45 / (height + 0.85)
    return figure.add_axes((side, below, 1.0 - 2 * side, 1.0 - below - above))


def arranged(graph: Graph, ax: Axes | None) -> tuple[Graph, Layout]:
    """The graph as it is or, where that makes names easier to read, with its leaves in stacks."""
    layout = layered(graph)
    flat = _name_size(graph, layout, ax)
    if flat >= _LEGIBLE_NAME:
        return graph, layout
    stacked = stacked_graph(graph)
    tighter = layered(stacked)
    larger = _name_size(stacked, tighter, ax) > flat
    return (stacked, tighter) if larger else (graph, layout)


def _name_size(graph: Graph, layout: Layout, ax: Axes | None) -> float:
    width, height = default_size(graph, layout)
    size = (72.0 * width, 72.0 * height) if ax is None else _style.size_in_points(ax)
    return leaf_names(graph, layout, *size).size


def _pitch(layout: Layout, width: float) -> float:
    return min((width - LEFT_MARGIN - _RIGHT_MARGIN) / layout.num_columns, _WIDEST_PITCH)


def leaf_names(graph: Graph, layout: Layout, width: float, height: float) -> Names:
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


def _diameter(graph: Graph, places: Floats, step: float) -> float:
    """As large as the closest pair of circles allows."""
    circles = [i for i, vertex in enumerate(graph.vertices) if vertex.mark is not Mark.LEAF]
    closest = step
    for row in {graph.vertices[i].row for i in circles}:
        x = np.sort([places[i, 0] for i in circles if graph.vertices[i].row == row])
        closest = min(closest, float(np.diff(x).min(initial=np.inf)))
    return float(np.clip(0.68 * closest, 4.0, 23.0))


def sheet(graph: Graph, layout: Layout, width: float, height: float) -> Sheet:
    """Places for the whole graph on axes of the given size."""
    pitch = _pitch(layout, width)
    used = LEFT_MARGIN + pitch * layout.num_columns + _RIGHT_MARGIN
    left = LEFT_MARGIN + (width - used) / 2 + pitch / 2
    names = leaf_names(graph, layout, width, height)
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
            bends = [(left + pitch * at, high, low) for at, high, low in levels]
            end = upper[graph.vertices[edge.child].row]
            paths.append(_curve(places[edge.parent], bends, places[edge.child], end))
    diameter = _diameter(graph, places, 0.6 * float(np.diff(lower).min(initial=height)))
    return Sheet(places, tuple(paths), lower, diameter, names, pitch, width, height)


def line_place(place: Floats, member: int, names: Names, pitch: float) -> tuple[float, float]:
    """Left end of a name in a stack, at half its height."""
    return float(place[0] - 1.15 * pitch + 6.0), float(
        place[1] - _LINE_STEP * names.size * (member + 0.5)
    )


def _comb(places: Floats, edge: Edge, names: Names, pitch: float) -> Path:
    """To a name in a stack: to the corner of the stack, down its side, and across to the name."""
    x, y = line_place(places[edge.child], edge.member, names, pitch)
    side = x - 4.0
    corners = [places[edge.parent], (side, places[edge.child][1]), (side, y), (x - 1.0, y)]
    return Path(np.array(corners))


def _curve(
    start: Floats, bends: Sequence[tuple[float, float, float]], end: Floats, upper: float
) -> Path:
    """From the parent down: straight at its ends, upright in bends and between hanging names."""
    stops = [*bends, (end[0], upper, end[1])]
    corners, codes = [(start[0], start[1])], [Path.MOVETO]
    for number, (x, high, low) in enumerate(stops):
        x0, y0 = corners[-1]
        third = ((x - x0) / 3, (high - y0) / 3)
        first = (x0 + third[0], y0 + third[1])
        second = (x - third[0], high - third[1])
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
