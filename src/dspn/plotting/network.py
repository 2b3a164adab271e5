"""Pictures of the template network and of the unrolled network.

Every node is drawn up to a size; beyond it, blocks stand for nodes.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.path import Path

from dspn._arguments import Floats, whole_number
from dspn.errors import StructureError
from dspn.plotting import _blocks, _graph, _style
from dspn.plotting._arguments import AnyModel, heaviest_component
from dspn.plotting._graph import Edge, Graph, Layout, Mark, layered, stacked_graph
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import children_of

MAX_NODES = 200
"""Most nodes that are drawn one by one."""
MAX_EDGES = 2000
"""Most edges that are drawn one by one."""

_TALLEST, _TALLEST_UNROLLED = 10.0, 14.0
# Lengths on the axes, in points, and their shares.
_LEFT_MARGIN, _RIGHT_MARGIN = 58.0, 20.0
_ROOM_ABOVE, _ROOM_BELOW = 24.0, 34.0
_WIDEST_PITCH = 64.0
_TOP_STEP, _LINE_STEP = 0.65, 1.3
_LEGIBLE_NAME, _SMALLEST_NAME = 5.0, 4.0
_SYMBOLS = {Mark.SUM: "+", Mark.PRODUCT: "x"}
_KEY = dict(zip(Mark, ("interface", "leaf of a variable", "product", "sum"), strict=True))


def plot_template(
    network: AnyModel, ax: Axes | None = None, *, top: bool = False, component: int | None = None
) -> Axes:
    """The template, inputs at the bottom and outputs on top, with sum weights as line widths.

    Interface nodes have a red ring and the number of their position; input i takes the value of
    output i one slice below. Colours are interface groups, grey is what several groups share; a
    dotted line is a weight of 0. With more than `MAX_NODES` nodes or `MAX_EDGES` edges, blocks
    stand for nodes of one kind and a small picture shows the weights of the mix.

    Args:
        network: A model, or the network or mixture in it.
        ax: Axes to draw on; without them a figure 1200 pixels wide is made.
        top: Whether the top network is drawn as a strip above.
        component: The component of a mixture to draw, counted from 0; without it the one with the
            largest weight. The title says which.
    """
    own, component_words = heaviest_component(network, component)
    template = own.template
    num_nodes, num_edges = len(template.nodes), template.num_edges
    sizes = (len(own.schema), own.num_interfaces, len(own.groups), num_nodes, num_edges)
    nouns = ("variable", "interface", "group", "node", "edge")
    if top:
        num_nodes += len(own.top.nodes) - own.top.num_inputs
        num_edges += sum(len(children_of(node)) for node in own.top.nodes)
    if num_nodes > MAX_NODES or num_edges > MAX_EDGES:
        ax = _blocks.draw_template_blocks(ax, own, top=top)
    else:
        graph = _graph.capped_graph(own) if top else _graph.template_graph(own)
        ax, at = _draw_nodes(graph, ax, _TALLEST)
        _label_rows(ax, at)
        _label_groups(ax, own, at)
    _set_title(ax, "Template", component_words, list(map(_style.counted, sizes, nouns)))
    return ax


def plot_unrolled(
    network: AnyModel, num_slices: int = 3, ax: Axes | None = None, *, component: int | None = None
) -> Axes:
    """The network of `num_slices` slices: templates stacked on the bottom, capped by the top.

    As in Figure 2b of the paper, the inputs of a template are the outputs of the slice below it,
    drawn once, with a red ring. Bands are slices; with `root="first"` slice 0 is the highest, under
    the top network, with `root="last"` it is the bottom network. Colours and lines are those of
    `plot_template`. With more than `MAX_NODES` nodes or `MAX_EDGES` edges in all, blocks with
    counts stand for the nodes of a slice.

    Args:
        network: A model, or the network or mixture in it.
        num_slices: How many slices are drawn.
        ax: Axes to draw on; without them a figure 1200 pixels wide is made.
        component: The component of a mixture to draw, counted from 0; without it the one with the
            largest weight. The title says which.
    """
    own, component_words = heaviest_component(network, component)
    count = whole_number(num_slices, "num_slices", StructureError)
    num_nodes, num_edges = _graph.unrolled_sizes(own, count)
    if num_nodes > MAX_NODES or num_edges > MAX_EDGES:
        ax = _blocks.draw_unrolled_blocks(ax, own, count)
    else:
        graph, highest = _graph.unrolled_graph(own, count)
        ax, at = _draw_nodes(graph, ax, _TALLEST_UNROLLED)
        _draw_slices(ax, own, at, highest)
    words = [_style.counted(num_nodes, "node"), _style.counted(num_edges, "edge")]
    _set_title(ax, f"Unrolled over {_style.counted(count, 'slice')}", component_words, words)
    return ax


def _set_title(ax: Axes, start: str, component: str, sizes: Sequence[str]) -> None:
    """The title in pieces that are not broken: the start, the component if any, then the sizes."""
    pieces = [f"{start},", f"{component}:"] if component else [f"{start}:"]
    pieces += [f"{words}," for words in sizes[:-1]]
    _style.set_title(ax, [*pieces, sizes[-1]], _style.TITLE_SIZE, 8.0)


@final
class _Names(NamedTuple):
    """How the names of leaves are set; they reach `hang` below the upper edge of their row.

    `pitch` is the width of a column.
    """

    size: float
    pitch: float
    upright: bool = False
    hang: float = 0.0


@final
class _Sheet(NamedTuple):
    """Places of vertices, paths of edges, the lower edge of each row, and sizes, all in points.

    Names that are too wide for their column are upright, or in stacks, and hang from the upper edge
    of their row; the other marks of that row stand at its lower edge.
    """

    graph: Graph
    places: Floats
    paths: list[Path]
    lower: Floats
    diameter: float
    names: _Names
    width: float
    height: float


def _default_size(graph: Graph, layout: Layout, tallest: float) -> tuple[float, float]:
    """Width and height in inches that give each column and row comfortable room."""
    rows = 1 + max(vertex.row for vertex in graph.vertices)
    width = min(max(0.75 * layout.num_columns + 1.6, 7.0), 12.0)
    height = 1.0 + graph.top_row + _TOP_STEP * (rows - 1 - graph.top_row)
    longest = max(len(vertex.names) for vertex in graph.vertices)
    lines = 0.14 * longest if graph.stacked else 0.008 * layout.num_columns
    return width, min(height + lines, tallest)


def _name_size(graph: Graph, layout: Layout, ax: Axes | None) -> float:
    width, height = _default_size(graph, layout, _TALLEST)
    size = (72.0 * width, 72.0 * height) if ax is None else _style.size_in_points(ax)
    return _leaf_names(graph, layout, *size).size


def _leaf_names(graph: Graph, layout: Layout, width: float, height: float) -> _Names:
    """Level if they fit their columns, else upright; in a stack always level."""
    pitch = min((width - _LEFT_MARGIN - _RIGHT_MARGIN) / layout.num_columns, _WIDEST_PITCH)
    every = {name for vertex in graph.vertices for name in vertex.names}
    widest = max((_style.text_width(name, 1.0) for name in every), default=1.0)
    if graph.stacked:
        size = max(min((2.3 * pitch - 6.0) / widest, _style.SMALL_SIZE), _SMALLEST_NAME)
        longest = max(len(vertex.names) for vertex in graph.vertices)
        return _Names(size, pitch, hang=_LINE_STEP * size * longest + 12.0)
    size = min(_style.NODE_SIZE, (pitch - 8.0) / widest)
    if size >= 0.9 * _style.SMALL_SIZE:
        return _Names(size, pitch)
    size = float(np.clip(0.66 * pitch, _SMALLEST_NAME, _style.SMALL_SIZE))
    return _Names(size, pitch, upright=True, hang=min(widest * size + 14.0, 0.25 * height))


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


def _sheet(graph: Graph, layout: Layout, width: float, height: float) -> _Sheet:
    """Places for the whole graph on axes of the given size."""
    names, vertices = _leaf_names(graph, layout, width, height), graph.vertices
    pitch = names.pitch
    used = _LEFT_MARGIN + pitch * layout.num_columns + _RIGHT_MARGIN
    left = _LEFT_MARGIN + (width - used) / 2 + pitch / 2
    lower, upper = _levels(graph, names.hang, height)
    x = left + pitch * np.array(layout.columns)
    y = [(upper if v.mark is Mark.LEAF else lower)[v.row] for v in vertices]
    places = np.column_stack([x, y])
    paths = []
    for edge, columns in zip(graph.edges, layout.bends, strict=True):
        start, end = places[edge.parent], places[edge.child]
        if graph.stacked and vertices[edge.child].mark is Mark.LEAF:
            # To the corner of the stack, down its side, and across to the name.
            x_name, y_name = _line_place(end, edge.member, names)
            side = x_name - 4.0
            corners = [start, (side, end[1]), (side, y_name), (x_name - 1.0, y_name)]
            paths.append(Path(np.array(corners)))
        else:
            row = vertices[edge.parent].row - 1
            levels = zip(columns, upper[row::-1], lower[row::-1], strict=False)
            stops = [(left + pitch * at, high, low) for at, high, low in levels]
            stops.append((end[0], upper[vertices[edge.child].row], end[1]))
            paths.append(_curve(start, stops))
    # Circles are as large as the closest pair of them allows.
    closest = 0.6 * float(np.diff(lower).min(initial=height))
    circles = sorted((v.row, at) for v, at in zip(vertices, x.tolist(), strict=True) if not v.names)
    for (row, here), (next_row, there) in pairwise(circles):
        closest = min(closest, there - here) if row == next_row else closest
    diameter = float(np.clip(0.68 * closest, 4.0, 23.0))
    return _Sheet(graph, places, paths, lower, diameter, names, width, height)


def _line_place(place: Floats, member: int, names: _Names) -> tuple[float, float]:
    """Left end of a name in a stack, at half its height."""
    below = _LINE_STEP * names.size * (member + 0.5)
    return float(place[0] - 1.15 * names.pitch + 6.0), float(place[1] - below)


def _curve(start: Floats, stops: Sequence[tuple[float, float, float]]) -> Path:
    """From the parent down: straight at its ends, upright in bends and between hanging names.

    A stop has its column and the upper and lower edge of its row; the last is the child.
    """
    corners, codes = [(start[0], start[1])], [Path.MOVETO]
    for number, (x, high, low) in enumerate(stops):
        x0, y0 = corners[-1]
        wide, tall, is_bend = x - x0, high - y0, number < len(stops) - 1 or high != low
        first = (x0, y0 + 0.5 * tall) if number > 0 else (x0 + wide / 3, y0 + tall / 3)
        second = (x, high - 0.5 * tall) if is_bend else (x - wide / 3, high - tall / 3)
        corners += [first, second, (x, high)]
        codes += [Path.CURVE4] * 3
        if high != low:
            corners.append((x, low))
            codes.append(Path.LINETO)
    return Path(corners, codes)


def _draw_nodes(graph: Graph, ax: Axes | None, tallest: float) -> tuple[Axes, _Sheet]:
    """Every vertex and edge, and the key; leaves in stacks where that makes names larger."""
    layout = layered(graph)
    size = _name_size(graph, layout, ax)
    if size < _LEGIBLE_NAME:
        stacked = stacked_graph(graph)
        tighter = layered(stacked)
        if _name_size(stacked, tighter, ax) > size:
            graph, layout = stacked, tighter
    ax = _style.new_axes(*_default_size(graph, layout, tallest)) if ax is None else ax
    at = _sheet(graph, layout, *_blocks.prepare(ax))
    _draw_edges(ax, at)
    for mark in (Mark.INPUT, Mark.PRODUCT, Mark.SUM):
        _draw_circles(ax, at, mark)
    _draw_leaves(ax, at)
    _draw_positions(ax, at)
    _draw_key(ax, at)
    return ax, at


def _edge_style(edge: Edge) -> tuple[float, float, str]:
    """Line width, opacity and dash of an edge; a weight of 0 is a faint dotted line."""
    if edge.weight is None:
        return 0.9, 0.8, "-"
    if edge.weight == 0.0:
        return 0.5, 0.3, ":"
    return 0.3 + 3.2 * edge.weight, 0.12 + 0.83 * float(np.sqrt(edge.weight)), "-"


def _draw_edges(ax: Axes, at: _Sheet) -> None:
    """Edges with larger weights over those with smaller ones."""
    thickness = float(np.clip(at.diameter / 16.0, 0.5, 1.0))
    drawn = list(zip(at.graph.edges, at.paths, strict=True))
    drawn.sort(key=lambda item: item[0].weight or 0.0)
    edges, paths = zip(*drawn, strict=True)
    widths, opacities, dashes = zip(*map(_edge_style, edges), strict=True)
    groups = [None if e.weight is None else at.graph.vertices[e.parent].group for e in edges]
    colours = [to_rgba(_style.group_colour(g), o) for g, o in zip(groups, opacities, strict=True)]
    lines = PathCollection(paths, facecolors="none", edgecolors=colours, linestyles=list(dashes))
    lines.set(capstyle="round", joinstyle="round", zorder=1, gid="edges")
    lines.set_linewidth([thickness * width for width in widths])
    ax.add_collection(lines, autolim=False)


def _draw_circles(ax: Axes, at: _Sheet, mark: Mark) -> None:
    """All inputs, sums or products; interface nodes have a red ring."""
    vertices = at.graph.vertices
    members = [index for index, vertex in enumerate(vertices) if vertex.mark is mark]
    if not members:
        return
    colours = [_style.group_colour(vertices[index].group) for index in members]
    ringed = [mark is Mark.INPUT or vertices[index].output is not None for index in members]
    ring = float(np.clip(at.diameter / 11.0, 0.7, 2.0))
    x, y = at.places[members].T
    circles = ax.scatter(x, y, s=at.diameter**2, clip_on=False, zorder=3, gid=mark.value)
    circles.set(
        facecolor=[_style.tint(colour, 0.22) for colour in colours],
        edgecolor=[_style.INTERFACE if r else c for r, c in zip(ringed, colours, strict=True)],
        linewidth=[ring if r else 0.6 * ring for r in ringed],
    )
    if mark in _SYMBOLS:
        size = (0.46 * at.diameter) ** 2 * (1.0 if mark is Mark.SUM else 0.55)
        width = float(np.clip(at.diameter / 15.0, 0.5, 1.4))
        symbols = ax.scatter(x, y, s=size, marker=_SYMBOLS[mark], c=_style.INK, zorder=4)
        symbols.set(linewidth=width, clip_on=False)


def _draw_leaves(ax: Axes, at: _Sheet) -> None:
    """Names of variables in boxes, or one per line where leaves are in stacks."""
    upright, stacked = at.names.upright, at.graph.stacked
    pitch = at.names.pitch
    room = 2.4 * pitch if stacked else 0.25 * at.height if upright else pitch
    tight = upright and at.names.size < 7.0
    for place, vertex in zip(at.places, at.graph.vertices, strict=True):
        group = _style.group_colour(vertex.group)
        edge = group if vertex.output is None else _style.INTERFACE
        for member, name in enumerate(vertex.names):
            words = _style.shortened(name, at.names.size, room)
            style: _style.Style = {"size": at.names.size, "gid": "leaf"}
            if stacked:
                x, y = _line_place(place, member, at.names)
                _style.write(ax, x, y, words, color=_style.dark(edge), ha="left", **style)
                continue
            text = _style.write(ax, place[0], place[1], words, **style)
            if upright:
                text.set(rotation=90.0, rotation_mode="anchor", ha="right")
            box = {
                "boxstyle": f"round,pad={0.1 if tight else 0.3},rounding_size=0.2",
                "facecolor": _style.tint(group, 0.14),
                "edgecolor": "none" if tight and vertex.output is None else edge,
                "linewidth": 0.8 if vertex.output is None else 1.6,
            }
            text.set_bbox(box)


def _draw_positions(ax: Axes, at: _Sheet) -> None:
    """The number of each interface: inside its input, beside its output."""
    size = float(np.clip(0.42 * at.diameter, 0.0, _style.SMALL_SIZE))
    if size < 4.0:
        return
    aside = 0.42 * at.diameter + 1.5
    for (x, y), vertex in zip(at.places, at.graph.vertices, strict=True):
        if vertex.position is not None:
            _style.write(ax, x, y, str(vertex.position), size=size, va="center_baseline")
        elif vertex.output is not None:
            style = {"size": size, "ha": "left", "va": "bottom"}
            _style.write(ax, x + aside, y + aside, str(vertex.output), **style)


def _key_entry(mark: Mark) -> _style.Handle:
    shape = "s" if mark is Mark.LEAF else "o"
    circle = Line2D([], [], linestyle="none", marker=shape, markersize=9)
    ring = _style.INTERFACE if mark is Mark.INPUT else _style.LINE
    circle.set(markeredgecolor=ring, markerfacecolor=_style.tint(_style.LINE, 0.2))
    if mark not in _SYMBOLS:
        return (circle,)
    symbol = Line2D([], [], linestyle="none", marker=_SYMBOLS[mark], color=_style.INK)
    symbol.set_markersize(5 if mark is Mark.SUM else 4)
    return (circle, symbol)


def _draw_key(ax: Axes, at: _Sheet) -> None:
    """The marks and lines that occur, in one line below the drawing."""
    present = {vertex.mark for vertex in at.graph.vertices}
    if any(vertex.output is not None for vertex in at.graph.vertices):
        present.add(Mark.INPUT)  # in an unrolled network outputs alone are interface nodes
    key = {words: _key_entry(mark) for mark, words in _KEY.items() if mark in present}
    weights = [edge.weight for edge in at.graph.edges if edge.weight is not None]
    if weights:
        key["width: weight of a sum"] = (Line2D([], [], color=_style.LINE, linewidth=2.5),)
    if 0.0 in weights:
        key["weight 0"] = (Line2D([], [], color=_style.LINE, linewidth=0.8, linestyle=":"),)
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "borderaxespad": 0.2}
    space = {"handletextpad": 0.6, "columnspacing": 1.6}
    _style.draw_legend(ax, key, ncols=_style.legend_columns(key, at.width), **place, **space)


def _label_rows(ax: Axes, at: _Sheet) -> None:
    """Words at the left of the inputs, outputs and top network; a grey strip behind the last."""
    top_row, last = at.graph.top_row, len(at.lower) - 1
    rows = {0: "inputs", top_row: "outputs"}
    if last > top_row:
        rows[last] = "top network"
        bottom = 0.45 * at.lower[top_row] + 0.55 * at.lower[top_row + 1]
        strip = (0.0, bottom, at.width, at.height)
        _style.draw_rectangle(ax, strip, facecolor=_style.PAPER, zorder=0, gid="top")
    for row, words in rows.items():
        _style.write(ax, 4.0, at.lower[row], words, color=_style.MUTED, ha="left")


def _label_groups(ax: Axes, network: DynamicNetwork, at: _Sheet) -> None:
    """The number and the variables of each group below its inputs, where there are several."""
    count = len(network.groups)
    room = max((at.width - 100.0) / count - 8.0, 20.0)
    for group, positions in enumerate(network.groups if count > 1 else ()):
        inputs = [i for i, v in enumerate(at.graph.vertices) if v.position in positions]
        words = _blocks.group_label(network, group, _style.SMALL_SIZE, room)
        colour = _style.dark(_style.group_colour(group))
        _style.write(ax, at.places[inputs, 0].mean(), 8.0, words, color=colour)


def _draw_slices(ax: Axes, network: DynamicNetwork, at: _Sheet, highest: Sequence[int]) -> None:
    """A band behind each slice, shaded by turns, and its name at the left."""
    bottom = 0.0
    for level, row in enumerate(highest):
        # Just above the circles of the row, but at most half the way to the next row.
        step = (at.lower[row + 1] if row + 1 < len(at.lower) else at.height) - at.lower[row]
        upper = float(at.lower[row] + min(1.1 * at.diameter, 0.5 * step))
        number = _graph.slice_number(network, level, len(highest))
        _blocks.draw_band(ax, (bottom, upper), number, level)
        bottom = upper
    middle = 0.5 * (bottom + at.height)
    _style.write(ax, 4.0, middle, "top network", color=_style.MUTED, ha="left")
