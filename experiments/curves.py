"""How the score rises with time, a panel for each data set and a line for each fold."""

from collections.abc import Mapping, Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dspn.errors import DataError
from dspn.plotting import _style
from dspn.plotting._panels import dress
from experiments.results import Results

_COLUMNS: Final = 3
_PANEL: Final = (4.0, 2.6)
_RESOLUTION: Final = 130

Curve = Sequence[Sequence[float]]
"""States in their order, each (seconds, validation score, ...)."""


def plot_curve(curves: Sequence[Curve], ax: Axes, *, title: str, paper: float | None) -> Axes:
    """Negative log-likelihood of validation sequences against seconds, a line for each fold.

    `paper` is the test figure of the paper's DSPN, a dashed line where it is near enough to show.
    """
    if not any(len(curve) for curve in curves):
        raise DataError(f"`curves` must hold a state at least, but {title!r} has none.")
    for curve in curves:
        seconds = [state[0] for state in curve]
        losses = [-state[1] for state in curve]
        ax.step(seconds, losses, where="post", color=_style.group_colour(0), lw=1.1, alpha=0.7)
    low, high = ax.get_ylim()
    if paper is not None and paper < high + 1.5 * (high - low):
        ax.axhline(paper, color=_style.INTERFACE, linewidth=1.0, linestyle="--")
        ax.annotate(
            f"the paper's DSPN on test data: {paper:,.1f}",
            (1.0, paper),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            size=_style.SMALL_SIZE,
            color=_style.INTERFACE,
        )
    dress(ax, title)
    ax.grid(axis="y", color=_style.FAINT, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.margins(y=0.12)
    ax.set_xlim(left=0.0)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=5))
    return ax


def curves_figure(
    panels: Mapping[str, Sequence[Curve]], papers: Mapping[str, float | None]
) -> Figure:
    """All panels on one sheet, by title."""
    if not panels:
        raise DataError("`panels` must hold one data set at least, but is empty.")
    rows = -(-len(panels) // _COLUMNS)
    columns = min(_COLUMNS, len(panels))
    figure = Figure(
        figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.3),
        dpi=_RESOLUTION,
        layout="constrained",
    )
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    for ax, (title, curves) in zip(axes.flat, panels.items(), strict=False):
        plot_curve(curves, ax, title=title, paper=papers.get(title))
    figure.supxlabel("seconds", size=_style.TEXT_SIZE, color=_style.MUTED)
    figure.supylabel("nats per validation sequence", size=_style.TEXT_SIZE, color=_style.MUTED)
    return figure


def curves_of(results: Results, data: str, model: str) -> list[Curve]:
    """The curves of one data set's folds among kept results."""
    return [
        entry["curve"]
        for key, entry in results.under(data)
        if key.endswith(f"/{model}") and entry.get("curve")
    ]
