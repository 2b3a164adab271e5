"""A picture of the whole network of some slices, from the bottom network to the root."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from dspn._checks import whole_number
from dspn.errors import StructureError
from dspn.plotting import _style
from dspn.plotting._arguments import AnyModel, heaviest_component
from dspn.plotting._key import draw_key
from dspn.plotting._network import draw_network
from dspn.plotting._sheet import Sheet, arranged, default_size, new_axes, sheet
from dspn.plotting._storeys import draw_band, draw_storeys, storeys_size
from dspn.plotting._unrolled import Storey, unrolled_graph, unrolled_sizes
from dspn.plotting.template import MAX_EDGES, MAX_NODES
from dspn.structure import DynamicNetwork

_TALLEST = 14.0


def plot_unrolled(
    network: AnyModel,
    num_slices: int = 3,
    ax: Axes | None = None,
    *,
    component: int | None = None,
) -> Axes:
    """The network of `num_slices` slices: templates stacked on the bottom, capped by the top.

    As in Figure 2b of the paper, the inputs of a template are the outputs of the slice below it,
    drawn once, with a red ring. Bands are slices; with `root="first"` slice 0 stands on top, under
    the top network, with `root="last"` it is the bottom network. Colours and lines are those of
    `plot_template`. With more than `MAX_NODES` nodes or `MAX_EDGES` edges in all, blocks with
    counts stand for the nodes of a slice. Of a mixture one `component` is drawn, counted from 0:
    without one, that of the largest weight.
    """
    drawn = heaviest_component(network, component)
    count = whole_number(num_slices, "num_slices", StructureError)
    sizes = unrolled_sizes(drawn.network, count)
    if sizes.num_nodes > MAX_NODES or sizes.num_edges > MAX_EDGES:
        ax = new_axes(*storeys_size(drawn.network, count)) if ax is None else ax
        draw_storeys(ax, drawn.network, count)
    else:
        ax = _draw_nodes(drawn.network, count, ax)
    start = f"Unrolled over {_style.counted(count, 'slice')}"
    nodes, edges = (
        _style.counted(number, noun)
        for number, noun in ((sizes.num_nodes, "node"), (sizes.num_edges, "edge"))
    )
    head = [f"{start},", f"{drawn.words}:"] if drawn.words else [f"{start}:"]
    _style.network_title(ax, [*head, f"{nodes},", edges])
    return ax


def _draw_nodes(network: DynamicNetwork, num_slices: int, ax: Axes | None) -> Axes:
    graph, storeys = unrolled_graph(network, num_slices)
    graph, layout = arranged(graph, ax)
    ax = new_axes(*default_size(graph, layout, tallest=_TALLEST)) if ax is None else ax
    at = sheet(graph, layout, *_style.size_in_points(ax))
    draw_network(ax, graph, at)
    _draw_bands(ax, at, storeys)
    draw_key(ax, graph, at)
    return ax


def _draw_bands(ax: Axes, at: Sheet, storeys: Sequence[Storey]) -> None:
    """A band behind each slice, shaded by turns, and its name at the left."""
    ends = [_edge_above(at, storey.highest) for storey in storeys]
    for level, storey in enumerate(storeys):
        draw_band(ax, (ends[level - 1] if level else 0.0, ends[level]), storey.number, level)
    middle = 0.5 * (ends[-1] + at.height)
    _style.write(ax, 4.0, middle, "top network", colour=_style.MUTED, ha="left")


def _edge_above(at: Sheet, row: int) -> float:
    """Just above the circles of a row, but not beyond half the way to the next row."""
    below = float(at.lower[row])
    step = float(at.lower[row + 1]) - below if row + 1 < len(at.lower) else at.height - below
    return below + float(np.minimum(1.1 * at.diameter, 0.5 * step))
