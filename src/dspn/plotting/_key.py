"""What the marks and lines of a drawn network mean."""

from matplotlib.axes import Axes
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D

from dspn.plotting import _style
from dspn.plotting._graph import Graph, Mark
from dspn.plotting._sheet import Sheet


def _entry(mark: Mark) -> tuple[Line2D, ...]:
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


def _is_shown(mark: Mark, graph: Graph) -> bool:
    """Whether the mark occurs; in an unrolled network outputs alone are interface nodes."""
    if mark is Mark.INPUT:
        return any(v.mark is mark or v.output is not None for v in graph.vertices)
    return any(vertex.mark is mark for vertex in graph.vertices)


def draw_key(ax: Axes, graph: Graph, at: Sheet) -> None:
    """The marks and lines that occur, in one line below the drawing."""
    words = {
        Mark.INPUT: "interface",
        Mark.LEAF: "leaf of a variable",
        Mark.PRODUCT: "product",
        Mark.SUM: "sum",
    }
    present = [mark for mark in words if _is_shown(mark, graph)]
    handles: list[tuple[Line2D, ...]] = [_entry(mark) for mark in present]
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
        ncols=_style.legend_columns(labels, at.width),
        frameon=False,
        fontsize=_style.SMALL_SIZE,
        labelcolor=_style.MUTED,
        handletextpad=0.6,
        columnspacing=1.6,
    )
