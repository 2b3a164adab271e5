"""A picture of the template network: every node up to a size, blocks beyond it."""

from matplotlib.axes import Axes

from dspn.plotting import _style
from dspn.plotting._arguments import AnyModel, heaviest_component
from dspn.plotting._blocks import blocks_size, draw_blocks
from dspn.plotting._graph import Graph, capped_graph, template_graph
from dspn.plotting._key import draw_key
from dspn.plotting._network import draw_network, draw_row_label, draw_top_strip
from dspn.plotting._sheet import Sheet, arranged, default_size, new_axes, sheet
from dspn.plotting._summary import group_variables
from dspn.structure import DynamicNetwork
from dspn.structure.nodes import children_of

MAX_NODES = 200
"""Most nodes that are drawn one by one."""
MAX_EDGES = 2000
"""Most edges that are drawn one by one."""


def plot_template(
    network: AnyModel,
    ax: Axes | None = None,
    *,
    top: bool = False,
    component: int | None = None,
) -> Axes:
    """The template, inputs at the bottom and outputs on top, with sum weights as line widths.

    Interface nodes have a red ring and the number of their position; input i takes the value of
    output i one slice below. Colours are interface groups, grey is what several groups share; a
    dotted line is a weight of 0. With more than `MAX_NODES` nodes or `MAX_EDGES` edges, blocks
    stand for nodes of one kind and a small picture for the weights of the mix. `top` adds the top
    network as a strip above. Of a mixture one `component` is drawn, counted from 0: without one,
    that of the largest weight. The title says which.
    """
    drawn = heaviest_component(network, component)
    if _is_large(drawn.network, top=top):
        ax = new_axes(*blocks_size(drawn.network, top=top)) if ax is None else ax
        draw_blocks(ax, drawn.network, top=top)
    else:
        ax = _draw_nodes(drawn.network, ax, top=top)
    _style.network_title(ax, _title(drawn.network, drawn.words))
    return ax


def _draw_nodes(network: DynamicNetwork, ax: Axes | None, *, top: bool) -> Axes:
    graph = capped_graph(network) if top else template_graph(network)
    graph, layout = arranged(graph, ax)
    ax = new_axes(*default_size(graph, layout)) if ax is None else ax
    at = sheet(graph, layout, *_style.size_in_points(ax))
    if top:
        draw_top_strip(ax, graph, at)
    draw_network(ax, graph, at)
    _label(ax, network, graph, at)
    draw_key(ax, graph, at)
    return ax


def _is_large(network: DynamicNetwork, *, top: bool) -> bool:
    num_nodes, num_edges = len(network.template.nodes), network.template.num_edges
    if top:
        num_nodes += len(network.top.nodes) - network.top.num_inputs
        num_edges += sum(len(children_of(node)) for node in network.top.nodes)
    return num_nodes > MAX_NODES or num_edges > MAX_EDGES


def _title(network: DynamicNetwork, component: str) -> list[str]:
    template = network.template
    sizes = (
        (len(network.schema), "variable"),
        (network.num_interfaces, "interface"),
        (len(network.groups), "group"),
        (len(template.nodes), "node"),
        (template.num_edges, "edge"),
    )
    said = [_style.counted(number, noun) for number, noun in sizes]
    start = ["Template,", f"{component}:"] if component else ["Template:"]
    return [*start, *(f"{words}," for words in said[:-1]), said[-1]]


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
