"""A picture of the template network: every node up to a size, blocks beyond it."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D

from dspn.plotting import _style
from dspn.plotting._blocks import blocks_size, draw_blocks
from dspn.plotting._graph import Graph, Mark, capped_graph, stacked_graph, template_graph
from dspn.plotting._layout import Layout, layered
from dspn.plotting._network import draw_network, draw_row_label, draw_top_strip
from dspn.plotting._sheet import LEGIBLE_NAME, Sheet, default_size, leaf_names, sheet
from dspn.plotting._summary import group_variables
from dspn.structure import DynamicNetwork
from dspn.structure.nodes import children_of

MAX_NODES = 200
"""Most nodes that are drawn one by one."""
MAX_EDGES = 2000
"""Most edges that are drawn one by one."""
_KEY_ROOM = 78.0


def plot_template(network: DynamicNetwork, ax: Axes | None = None, *, top: bool = False) -> Axes:
    """The template, inputs at the bottom and outputs on top, with sum weights as line widths.

    Interface nodes have a red ring and the number of their position; input i takes the value of
    output i one slice below. Colours are interface groups, grey is what several groups share; a
    dotted line is a weight of 0. With more than `MAX_NODES` nodes or `MAX_EDGES` edges, blocks
    stand for nodes of one kind and a small picture for the weights of the mix. `top` adds the top
    network as a strip above.
    """
    if _is_large(network, top=top):
        ax = _axes(*blocks_size(network, top=top)) if ax is None else ax
        draw_blocks(ax, network, top=top)
    else:
        graph = capped_graph(network) if top else template_graph(network)
        graph, layout = _arranged(graph, ax)
        ax = _axes(*default_size(graph, layout)) if ax is None else ax
        at = sheet(graph, layout, *_style.size_in_points(ax))
        if top:
            draw_top_strip(ax, graph, at)
        draw_network(ax, graph, at)
        _label(ax, network, graph, at)
        _draw_key(ax, graph, at)
    title = _style.broken(_title(network), _style.TITLE_SIZE, _style.size_in_points(ax)[0])
    ax.set_title(title, size=_style.TITLE_SIZE, color=_style.INK, loc="left", pad=8.0)
    return ax


def _is_large(network: DynamicNetwork, *, top: bool) -> bool:
    num_nodes, num_edges = len(network.template.nodes), network.template.num_edges
    if top:
        num_nodes += len(network.top.nodes) - network.top.num_inputs
        num_edges += sum(len(children_of(node)) for node in network.top.nodes)
    return num_nodes > MAX_NODES or num_edges > MAX_EDGES


def _arranged(graph: Graph, ax: Axes | None) -> tuple[Graph, Layout]:
    """The graph as it is or, where that makes names easier to read, with its leaves in stacks."""
    layout = layered(graph)
    flat = _name_size(graph, layout, ax)
    if flat >= LEGIBLE_NAME:
        return graph, layout
    stacked = stacked_graph(graph)
    tighter = layered(stacked)
    larger = _name_size(stacked, tighter, ax) > flat
    return (stacked, tighter) if larger else (graph, layout)


def _name_size(graph: Graph, layout: Layout, ax: Axes | None) -> float:
    width, height = default_size(graph, layout)
    size = (72.0 * width, 72.0 * height) if ax is None else _style.size_in_points(ax)
    return leaf_names(graph, layout, *size).size


def _axes(width: float, height: float) -> Axes:
    """Axes that fill a new figure but for the title and the key."""
    figure = Figure(figsize=(width, height + 0.85), dpi=_style.PIXELS_WIDE / width)
    side, below, above = 0.2 / width, 0.4 / (height + 0.85), 0.45 / (height + 0.85)
    return figure.add_axes((side, below, 1.0 - 2 * side, 1.0 - below - above))


def _title(network: DynamicNetwork) -> list[str]:
    template = network.template
    sizes = (
        (len(network.schema), "variable"),
        (network.num_interfaces, "interface"),
        (len(network.groups), "group"),
        (len(template.nodes), "node"),
        (template.num_edges, "edge"),
    )
    said = [_style.counted(number, noun) for number, noun in sizes]
    return [f"Template: {said[0]},", *(f"{words}," for words in said[1:-1]), said[-1]]


def _label(ax: Axes, network: DynamicNetwork, graph: Graph, at: Sheet) -> None:
    draw_row_label(ax, at, 0, "inputs")
    draw_row_label(ax, at, graph.top_row, "outputs")
    if len(at.lower) > graph.top_row + 1:
        draw_row_label(ax, at, len(at.lower) - 1, "top network")
    if len(network.groups) > 1:
        for number in range(len(network.groups)):
            _label_group(ax, network, at, number)


def _label_group(ax: Axes, network: DynamicNetwork, at: Sheet, group: int) -> None:
    inputs = [network.template.inputs[position] for position in network.groups[group]]
    columns = at.places[inputs, 0]
    room = max((at.width - 100.0) / len(network.groups) - 8.0, 20.0)
    names = group_variables(network, group)
    words = _style.group_label(group, names, _style.SMALL_SIZE, room)
    colour = _style.dark(_style.group_colour(group))
    _style.write(ax, float(columns.mean()), 8.0, words, colour=colour)


def _key_entry(mark: Mark) -> tuple[Line2D, ...]:
    ring = _style.INTERFACE if mark is Mark.INPUT else _style.LINE
    circle = Line2D([], [], linestyle="none", marker="o", markersize=9, markeredgecolor=ring)
    circle.set(markerfacecolor=_style.tint(_style.LINE, 0.2))
    if mark is Mark.LEAF:
        circle.set(marker="s")
    symbols = {Mark.SUM: "+", Mark.PRODUCT: "x"}
    if mark not in symbols:
        return (circle,)
    symbol = Line2D([], [], linestyle="none", marker=symbols[mark], color=_style.INK)
    symbol.set_markersize(5 if mark is Mark.SUM else 4)
    return (circle, symbol)


def _draw_key(ax: Axes, graph: Graph, at: Sheet) -> None:
    """What the marks and lines mean, in one line below the drawing."""
    words = {
        Mark.INPUT: "interface",
        Mark.LEAF: "leaf of a variable",
        Mark.PRODUCT: "product",
        Mark.SUM: "sum",
    }
    present = [mark for mark in words if any(v.mark is mark for v in graph.vertices)]
    handles: list[tuple[Line2D, ...]] = [_key_entry(mark) for mark in present]
    labels = [words[mark] for mark in present]
    if any(edge.weight is not None for edge in graph.edges):
        handles.append((Line2D([], [], color=_style.LINE, linewidth=2.5),))
        labels.append("width: weight of a sum")
    if any(edge.weight == 0.0 for edge in graph.edges):
        handles.append((Line2D([], [], color=_style.LINE, linewidth=0.8, linestyle=":"),))
        labels.append("weight 0")
    ax.legend(
        handles,
        labels,
        handler_map={tuple: HandlerTuple(ndivide=1, pad=0.0)},
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        borderaxespad=0.2,
        ncols=max(min(int(at.width / _KEY_ROOM), len(labels)), 1),
        frameon=False,
        fontsize=_style.SMALL_SIZE,
        labelcolor=_style.MUTED,
        handletextpad=0.6,
        columnspacing=1.6,
    )
