"""Draws a laid-out network on axes whose data coordinates are points."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from dspn.plotting import _style
from dspn.plotting._graph import Edge, Graph, Mark
from dspn.plotting._sheet import Sheet, line_place

_SYMBOLS = {Mark.SUM: "+", Mark.PRODUCT: "x"}


def draw_network(ax: Axes, graph: Graph, at: Sheet) -> None:
    """Edges, marks, names and row labels; leaves the axes without frame and ticks."""
    ax.set_xlim(0.0, at.width)
    ax.set_ylim(0.0, at.height)
    ax.set_axis_off()
    _draw_edges(ax, graph, at)
    for mark in Mark:
        if mark is not Mark.LEAF:
            _draw_marks(ax, graph, at, mark)
    _draw_leaves(ax, graph, at)
    _draw_positions(ax, graph, at)


def _edge_style(graph: Graph, edge: Edge) -> tuple[float, float, str]:
    """Line width, opacity and dash of an edge; a weight of 0 is a faint dotted line."""
    if edge.weight is None:
        return 0.9, 0.8, "-"
    if edge.weight == 0.0:
        return 0.5, 0.3, ":"
    return 0.3 + 3.2 * edge.weight, 0.12 + 0.83 * float(np.sqrt(edge.weight)), "-"


def _draw_edges(ax: Axes, graph: Graph, at: Sheet) -> None:
    thickness = float(np.clip(at.diameter / 16.0, 0.5, 1.0))
    order = sorted(range(len(graph.edges)), key=lambda e: graph.edges[e].weight or 0.0)
    styles = [_edge_style(graph, graph.edges[e]) for e in order]
    colours = [
        _style.LINE
        if graph.edges[e].weight is None
        or (group := graph.vertices[graph.edges[e].parent].group) is None
        else _style.group_colour(group)
        for e in order
    ]
    lines = PathCollection(
        [at.paths[e] for e in order],
        facecolors="none",
        edgecolors=[
            to_rgba(c, opacity) for c, (_, opacity, _) in zip(colours, styles, strict=True)
        ],
        linewidths=[thickness * width for width, _, _ in styles],
        linestyles=[dash for _, _, dash in styles],
        capstyle="round",
        joinstyle="round",
        zorder=1,
        gid="edges",
    )
    ax.add_collection(lines, autolim=False)


def _draw_marks(ax: Axes, graph: Graph, at: Sheet, mark: Mark) -> None:
    members = [index for index, vertex in enumerate(graph.vertices) if vertex.mark is mark]
    if not members:
        return
    colours = [_style.group_colour(graph.vertices[index].group) for index in members]
    ringed = [mark is Mark.INPUT or graph.vertices[index].output is not None for index in members]
    ring = float(np.clip(at.diameter / 11.0, 0.7, 2.0))
    ax.scatter(
        at.places[members, 0],
        at.places[members, 1],
        s=at.diameter**2,
        facecolors=[_style.tint(colour, 0.22) for colour in colours],
        edgecolors=[_style.INTERFACE if r else c for r, c in zip(ringed, colours, strict=True)],
        linewidths=[ring if r else 0.6 * ring for r in ringed],
        zorder=3,
        gid=mark.value,
        clip_on=False,
    )
    if mark in _SYMBOLS:
        ax.scatter(
            at.places[members, 0],
            at.places[members, 1],
            s=(0.46 * at.diameter) ** 2 * (1.0 if mark is Mark.SUM else 0.55),
            marker=_SYMBOLS[mark],
            c=_style.INK,
            linewidths=float(np.clip(at.diameter / 15.0, 0.5, 1.4)),
            zorder=4,
            clip_on=False,
        )


def _draw_leaves(ax: Axes, graph: Graph, at: Sheet) -> None:
    upright = at.names.upright
    room = 0.25 * at.height if upright else at.pitch
    tight = upright and at.names.size < 7.0
    for index, vertex in enumerate(graph.vertices):
        if vertex.mark is not Mark.LEAF:
            continue
        if graph.stacked:
            _draw_stack(ax, graph, at, index)
            continue
        colour = _style.group_colour(vertex.group) if vertex.output is None else _style.INTERFACE
        x, y = at.places[index]
        name = _style.shortened(vertex.names[0], at.names.size, room)
        words = _style.write(
            ax, x, y, name, size=at.names.size, ha="right" if upright else "center"
        )
        words.set(rotation=90.0 if upright else 0.0, rotation_mode="anchor", gid="leaf")
        box = {
            "boxstyle": f"round,pad={0.1 if tight else 0.3},rounding_size=0.2",
            "facecolor": _style.tint(_style.group_colour(vertex.group), 0.14),
            "edgecolor": "none" if tight and vertex.output is None else colour,
            "linewidth": 0.8 if vertex.output is None else 1.6,
        }
        words.set_bbox(box)


def _draw_stack(ax: Axes, graph: Graph, at: Sheet, index: int) -> None:
    """The names of a stack of leaves, one per line."""
    vertex = graph.vertices[index]
    colour = _style.group_colour(vertex.group) if vertex.output is None else _style.INTERFACE
    for member, name in enumerate(vertex.names):
        x, y = line_place(at.places[index], member, at.names, at.pitch)
        words = _style.shortened(name, at.names.size, 2.4 * at.pitch)
        _style.write(
            ax, x, y, words, size=at.names.size, colour=_style.dark(colour), ha="left"
        ).set_gid("leaf")


def _draw_positions(ax: Axes, graph: Graph, at: Sheet) -> None:
    """The number of each interface: inside its input, beside its output."""
    size = float(np.clip(0.42 * at.diameter, 0.0, _style.SMALL_SIZE))
    if size < 4.0:
        return
    for index, vertex in enumerate(graph.vertices):
        x, y = at.places[index]
        if vertex.mark is Mark.INPUT:
            _style.write(ax, x, y, vertex.label, size=size, va="center_baseline")
        elif vertex.output is not None:
            aside = 0.42 * at.diameter + 1.5
            _style.write(
                ax, x + aside, y + aside, str(vertex.output), size=size, ha="left", va="bottom"
            )


def draw_row_label(ax: Axes, at: Sheet, row: int, text: str) -> None:
    """A quiet word at the left end of a row."""
    _style.write(ax, 4.0, float(at.lower[row]), text, colour=_style.MUTED, ha="left")


def draw_top_strip(ax: Axes, graph: Graph, at: Sheet) -> None:
    """A grey strip behind the rows of the top network."""
    if graph.top_row + 1 >= len(at.lower):
        return
    bottom = 0.45 * at.lower[graph.top_row] + 0.55 * at.lower[graph.top_row + 1]
    strip = Rectangle((0.0, bottom), at.width, at.height - bottom)
    strip.set(facecolor=_style.PAPER, edgecolor="none", zorder=0, gid="top")
    ax.add_patch(strip)
