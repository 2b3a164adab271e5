"""Pictures of the template network and of the unrolled network.

Every node is drawn up to a size; beyond it, blocks stand for nodes.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D

from dspn._checks import whole_number
from dspn.errors import StructureError
from dspn.plotting import _blocks, _graph, _style
from dspn.plotting._arguments import AnyModel, heaviest_component
from dspn.plotting._graph import Edge, Graph, Mark
from dspn.plotting._layout import Sheet, arranged, default_size, line_place, sheet
from dspn.structure import DynamicNetwork
from dspn.structure.nodes import children_of

MAX_NODES = 200
"""Most nodes that are drawn one by one."""
MAX_EDGES = 2000
"""Most edges that are drawn one by one."""

_TALLEST, _TALLEST_UNROLLED = 10.0, 14.0
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
    drawn = heaviest_component(network, component)
    own = drawn.network
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
        ax, graph, at = _draw_nodes(graph, ax, _TALLEST)
        _label_rows(ax, graph, at)
        _label_groups(ax, own, graph, at)
    _set_title(ax, "Template", drawn.words, list(map(_style.counted, sizes, nouns)))
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
    drawn = heaviest_component(network, component)
    count = whole_number(num_slices, "num_slices", StructureError)
    num_nodes, num_edges = _graph.unrolled_sizes(drawn.network, count)
    if num_nodes > MAX_NODES or num_edges > MAX_EDGES:
        ax = _blocks.draw_unrolled_blocks(ax, drawn.network, count)
    else:
        graph, highest = _graph.unrolled_graph(drawn.network, count)
        ax, _, at = _draw_nodes(graph, ax, _TALLEST_UNROLLED)
        _draw_slices(ax, drawn.network, at, highest)
    words = [_style.counted(num_nodes, "node"), _style.counted(num_edges, "edge")]
    _set_title(ax, f"Unrolled over {_style.counted(count, 'slice')}", drawn.words, words)
    return ax


def _set_title(ax: Axes, start: str, component: str, sizes: Sequence[str]) -> None:
    """The title in pieces that are not broken: the start, the component if any, then the sizes."""
    pieces = [f"{start},", f"{component}:"] if component else [f"{start}:"]
    pieces += [f"{words}," for words in sizes[:-1]]
    _style.set_title(ax, [*pieces, sizes[-1]], _style.TITLE_SIZE, 8.0)


def _draw_nodes(graph: Graph, ax: Axes | None, tallest: float) -> tuple[Axes, Graph, Sheet]:
    """Every vertex and edge, and the key; also returns the graph as drawn and its places."""
    graph, layout = arranged(graph, ax)
    ax = _style.new_axes(*default_size(graph, layout, tallest=tallest)) if ax is None else ax
    at = sheet(graph, layout, *_blocks.prepare(ax))
    _draw_edges(ax, graph, at)
    for mark in Mark:
        if mark is not Mark.LEAF:
            _draw_circles(ax, graph, at, mark)
    _draw_leaves(ax, graph, at)
    _draw_positions(ax, graph, at)
    _draw_key(ax, graph, at)
    return ax, graph, at


def _edge_style(edge: Edge) -> tuple[float, float, str]:
    """Line width, opacity and dash of an edge; a weight of 0 is a faint dotted line."""
    if edge.weight is None:
        return 0.9, 0.8, "-"
    if edge.weight == 0.0:
        return 0.5, 0.3, ":"
    return 0.3 + 3.2 * edge.weight, 0.12 + 0.83 * float(np.sqrt(edge.weight)), "-"


def _draw_edges(ax: Axes, graph: Graph, at: Sheet) -> None:
    """Edges with larger weights over those with smaller ones."""
    thickness = float(np.clip(at.diameter / 16.0, 0.5, 1.0))
    order = sorted(range(len(graph.edges)), key=lambda e: graph.edges[e].weight or 0.0)
    edges = [graph.edges[e] for e in order]
    widths, opacities, dashes = zip(*map(_edge_style, edges), strict=True)
    groups = [None if e.weight is None else graph.vertices[e.parent].group for e in edges]
    colours = [to_rgba(_style.group_colour(g), o) for g, o in zip(groups, opacities, strict=True)]
    lines = PathCollection(
        [at.paths[e] for e in order],
        facecolors="none",
        edgecolors=colours,
        linewidths=[thickness * width for width in widths],
        linestyles=list(dashes),
        capstyle="round",
        joinstyle="round",
    )
    lines.set(zorder=1, gid="edges")
    ax.add_collection(lines, autolim=False)


def _draw_circles(ax: Axes, graph: Graph, at: Sheet, mark: Mark) -> None:
    """All inputs, sums or products; interface nodes have a red ring."""
    members = [index for index, vertex in enumerate(graph.vertices) if vertex.mark is mark]
    if not members:
        return
    colours = [_style.group_colour(graph.vertices[index].group) for index in members]
    ringed = [mark is Mark.INPUT or graph.vertices[index].output is not None for index in members]
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


def _draw_leaves(ax: Axes, graph: Graph, at: Sheet) -> None:
    """Names of variables in boxes, or one per line where leaves are in stacks."""
    upright = at.names.upright
    room = 2.4 * at.pitch if graph.stacked else 0.25 * at.height if upright else at.pitch
    tight = upright and at.names.size < 7.0
    for index, vertex in enumerate(graph.vertices):
        group = _style.group_colour(vertex.group)
        edge = group if vertex.output is None else _style.INTERFACE
        for member, name in enumerate(vertex.names):
            words = _style.shortened(name, at.names.size, room)
            style: _style.Style = {"size": at.names.size, "gid": "leaf"}
            if graph.stacked:
                x, y = line_place(at.places[index], member, at.names, at.pitch)
                _style.write(ax, x, y, words, color=_style.dark(edge), ha="left", **style)
                continue
            x, y = at.places[index]
            text = _style.write(ax, x, y, words, **style)
            if upright:
                text.set(rotation=90.0, rotation_mode="anchor", ha="right")
            box = {
                "boxstyle": f"round,pad={0.1 if tight else 0.3},rounding_size=0.2",
                "facecolor": _style.tint(group, 0.14),
                "edgecolor": "none" if tight and vertex.output is None else edge,
                "linewidth": 0.8 if vertex.output is None else 1.6,
            }
            text.set_bbox(box)


def _draw_positions(ax: Axes, graph: Graph, at: Sheet) -> None:
    """The number of each interface: inside its input, beside its output."""
    size = float(np.clip(0.42 * at.diameter, 0.0, _style.SMALL_SIZE))
    if size < 4.0:
        return
    aside = 0.42 * at.diameter + 1.5
    for (x, y), vertex in zip(at.places, graph.vertices, strict=True):
        if vertex.position is not None:
            _style.write(ax, x, y, str(vertex.position), size=size, va="center_baseline")
        elif vertex.output is not None:
            style = {"size": size, "ha": "left", "va": "bottom"}
            _style.write(ax, x + aside, y + aside, str(vertex.output), **style)


def _key_entry(mark: Mark) -> _style.Handle:
    circle = Line2D([], [], linestyle="none", marker="o", markersize=9)
    ring = _style.INTERFACE if mark is Mark.INPUT else _style.LINE
    circle.set(markeredgecolor=ring, markerfacecolor=_style.tint(_style.LINE, 0.2))
    if mark is Mark.LEAF:
        circle.set_marker("s")
    if mark not in _SYMBOLS:
        return (circle,)
    symbol = Line2D([], [], linestyle="none", marker=_SYMBOLS[mark], color=_style.INK)
    symbol.set_markersize(5 if mark is Mark.SUM else 4)
    return (circle, symbol)


def _draw_key(ax: Axes, graph: Graph, at: Sheet) -> None:
    """The marks and lines that occur, in one line below the drawing."""
    present = {vertex.mark for vertex in graph.vertices}
    if any(vertex.output is not None for vertex in graph.vertices):
        present.add(Mark.INPUT)  # in an unrolled network outputs alone are interface nodes
    key = {words: _key_entry(mark) for mark, words in _KEY.items() if mark in present}
    weights = [edge.weight for edge in graph.edges if edge.weight is not None]
    if weights:
        key["width: weight of a sum"] = (Line2D([], [], color=_style.LINE, linewidth=2.5),)
    if 0.0 in weights:
        key["weight 0"] = (Line2D([], [], color=_style.LINE, linewidth=0.8, linestyle=":"),)
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "borderaxespad": 0.2}
    space = {"handletextpad": 0.6, "columnspacing": 1.6}
    _style.draw_legend(ax, key, ncols=_style.legend_columns(key, at.width), **place, **space)


def _label_rows(ax: Axes, graph: Graph, at: Sheet) -> None:
    """Words at the left of the inputs, outputs and top network; a grey strip behind the last."""
    rows = {0: "inputs", graph.top_row: "outputs"}
    last = len(at.lower) - 1
    if last > graph.top_row:
        rows[last] = "top network"
        bottom = 0.45 * at.lower[graph.top_row] + 0.55 * at.lower[graph.top_row + 1]
        strip = (0.0, bottom, at.width, at.height)
        _style.draw_rectangle(ax, strip, facecolor=_style.PAPER, zorder=0, gid="top")
    for row, words in rows.items():
        _style.write(ax, 4.0, at.lower[row], words, color=_style.MUTED, ha="left")


def _label_groups(ax: Axes, network: DynamicNetwork, graph: Graph, at: Sheet) -> None:
    """The number and the variables of each group below its inputs, where there are several."""
    count = len(network.groups)
    room = max((at.width - 100.0) / count - 8.0, 20.0)
    for group, positions in enumerate(network.groups if count > 1 else ()):
        inputs = [i for i, vertex in enumerate(graph.vertices) if vertex.position in positions]
        words = _blocks.group_label(network, group, _style.SMALL_SIZE, room)
        colour = _style.dark(_style.group_colour(group))
        _style.write(ax, at.places[inputs, 0].mean(), 8.0, words, color=colour)


def _draw_slices(ax: Axes, network: DynamicNetwork, at: Sheet, highest: Sequence[int]) -> None:
    """A band behind each slice, shaded by turns, and its name at the left."""
    bottom = 0.0
    for level, row in enumerate(highest):
        # Just above the circles of the row, but at most half the way to the next row.
        step = (at.lower[row + 1] if row + 1 < len(at.lower) else at.height) - at.lower[row]
        upper = float(at.lower[row] + min(1.1 * at.diameter, 0.5 * step))
        _blocks.draw_band(
            ax, (bottom, upper), _graph.slice_number(network, level, len(highest)), level
        )
        bottom = upper
    middle = 0.5 * (bottom + at.height)
    _style.write(ax, 4.0, middle, "top network", color=_style.MUTED, ha="left")
