"""Panels over the slices of a sequence; each draws on the axes it is given and returns them."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation, Transform

from dspn._arrays import Floats
from dspn.plotting import _style

_MOST_BARS = 300
_MOST_ROWS = 64
_MOST_COLUMNS = 1000
# A slice without observations has a surprise of 0, up to the rounding of two logarithms.
_ROUNDING = 1e-9
_BAR = "#9aa5b1"
KEY_ROW = 15.0
"""Height in points of a line between the axes and the title."""

Handle = tuple[Patch | Line2D, ...]
"""Marks that stand on each other in one entry of a legend."""


def dress(ax: Axes, title: str, lines: int = 0) -> None:
    """A quiet frame: no spines but a thin base line, small muted ticks, the title at the left.

    `lines` are already taken above the axes.
    """
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(_style.FAINT)
    ax.tick_params(labelsize=_style.SMALL_SIZE, colors=_style.MUTED, length=2.5)
    pad = 4.0 + KEY_ROW * lines
    ax.set_title(title, size=_style.TEXT_SIZE, color=_style.INK, loc="left", pad=pad)


def mark_anomaly(ax: Axes, anomaly: int | None) -> None:
    """Two thin lines that frame a slice."""
    if anomaly is not None:
        for side in (-0.5, 0.5):
            ax.axvline(anomaly + side, color=_style.ALARM, linewidth=1.0, zorder=6)


def draw_posterior(
    posterior: Floats,
    ax: Axes,
    *,
    groups: Sequence[Sequence[int]] | None = None,
    anomaly: int | None = None,
) -> Axes:
    """P(interface node i chosen at the slice | evidence), as a heat map with a row for each i."""
    num_slices, num_interfaces = posterior.shape
    order = (
        [position for group in groups for position in group] if groups else range(num_interfaces)
    )
    picture, at_once = pooled(posterior[:, list(order)].T)
    most = float(np.nan_to_num(posterior).max(initial=0.0))
    scale_end = 1.0 if most > 0.5 or most == 0.0 else most
    image = ax.imshow(
        picture,
        cmap=_style.shades(_style.group_colour(0)),
        vmin=0.0,
        vmax=scale_end,
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, num_slices - 0.5, num_interfaces - 0.5, -0.5),
        gid="posterior",
    )
    largest = f", largest of {at_once} interfaces" if at_once > 1 else ""
    dress(ax, f"interface posterior{largest}")
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(axis="y", length=0.0)
    if groups:
        _label_groups(ax, groups)
    else:
        ax.yaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
    draw_scale(ax, image, (0.0, 1.0), [0.0, scale_end / 2, scale_end])
    mark_anomaly(ax, anomaly)
    return ax


def draw_scale(
    ax: Axes,
    image: ScalarMappable,
    span: tuple[float, float],
    ticks: Sequence[float],
    unit: str = "",
) -> Axes:
    """The colours of an image with their numbers, at the right of a share of the axes' height.

    The unit stands behind the last number.
    """
    bottom, upper = span
    scale = ax.inset_axes((1.012, bottom, 0.010, upper - bottom))
    scale.set_gid("scale")
    figure = ax.get_figure(root=True)
    assert figure is not None
    bar = figure.colorbar(image, cax=scale, ticks=list(ticks))
    words = [f"{tick:.2g}".replace("-", "\N{MINUS SIGN}") for tick in ticks]
    bar.set_ticklabels([*words[:-1], f"{words[-1]} {unit}".rstrip()])
    bar.outline.set_visible(False)
    scale.tick_params(labelsize=_style.SMALL_SIZE, colors=_style.MUTED, length=0.0)
    return scale


def heading(
    ax: Axes,
    title: str,
    handles: Sequence[Handle] = (),
    labels: Sequence[str] = (),
    *,
    lines: int = 0,
) -> None:
    """The title at the left, and between it and the axes what marks mean, where any occur.

    `lines` are already taken above the axes.
    """
    room = _style.size_in_points(ax)[0]
    columns = _style.legend_columns(labels, room)
    rows = -(-len(labels) // columns)
    words = _style.broken(title.split(), _style.TEXT_SIZE, room)
    pad = 4.0 + KEY_ROW * (rows + lines)
    ax.set_title(
        words, size=_style.TEXT_SIZE, color=_style.INK, loc="left", pad=pad, parse_math=False
    )
    if labels:
        ax.legend(
            handles,
            labels,
            handler_map={tuple: HandlerTuple(ndivide=1, pad=0.0)},
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            bbox_transform=raised(ax, lines),
            ncols=columns,
            frameon=False,
            fontsize=_style.SMALL_SIZE,
            labelcolor=_style.MUTED,
            borderaxespad=0.1,
            borderpad=0.2,
            handlelength=1.6,
            columnspacing=1.6,
        )


def raised(ax: Axes, lines: int) -> Transform:
    """Shares of the axes, moved up by lines of a key."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return ax.transAxes + ScaledTranslation(0.0, lines * KEY_ROW / 72.0, figure.dpi_scale_trans)


def new_panel(width: float, height: float) -> Axes:
    """Axes that fill a new figure of a size in inches, as far as their labels allow."""
    dpi = _style.PIXELS_WIDE / width
    return Figure(figsize=(width, height), dpi=dpi, layout="constrained").subplots()


def pooled(picture: Floats) -> tuple[Floats, int]:
    """The largest value of each block of cells, so that none is lost between pixels.

    A block is NaN where all its cells are. Returns at most 64 rows and 1000 columns, and the number
    of rows in a block.
    """
    tall = -(-picture.shape[0] // _MOST_ROWS)
    wide = -(-picture.shape[1] // _MOST_COLUMNS)
    rows = np.fmax.reduceat(picture, np.arange(0, picture.shape[0], tall), axis=0)
    return np.fmax.reduceat(rows, np.arange(0, picture.shape[1], wide), axis=1), tall


def _label_groups(ax: Axes, groups: Sequence[Sequence[int]]) -> None:
    """A line between groups, and the name of each at the left."""
    ends = np.cumsum([len(group) for group in groups])
    for end in ends[:-1]:
        ax.axhline(end - 0.5, color=_style.INK, linewidth=0.8)
    middles = [end - 0.5 - len(group) / 2 for end, group in zip(ends, groups, strict=True)]
    ax.set_yticks(middles, [f"group {number}" for number in range(len(groups))])


def draw_surprise(surprise: Floats, ax: Axes, *, anomaly: int | None = None) -> Axes:
    """-log P(x_t | x_0..x_{t-1}) as bars; an impossible slice is marked by the sign of infinity."""
    impossible = np.isposinf(surprise)
    known = surprise[np.isfinite(surprise)]
    highest = float(known.max(initial=0.0))
    highest = highest if highest > _ROUNDING else 1.0
    heights = np.nan_to_num(np.where(impossible, 1.15 * highest, surprise))
    heights[np.abs(heights) < _ROUNDING] = 0.0
    if len(surprise) <= _MOST_BARS:
        ax.bar(np.arange(len(surprise)), heights, width=0.8, color=_BAR, linewidth=0.0)
    else:
        ax.stairs(heights, np.arange(len(surprise) + 1) - 0.5, fill=True, color=_BAR)
    for number in np.flatnonzero(impossible):
        _mark_bar(ax, int(number), float(heights[number]), len(surprise))
        place = (float(number), float(heights[number]))
        _style.write(ax, *place, "∞", size=_style.NODE_SIZE, colour=_style.ALARM, va="bottom")
    dress(ax, "surprise (nats)")
    lowest = float(known.min(initial=0.0))
    ax.set_ylim(1.1 * min(0.0, lowest), (1.4 if impossible.any() else 1.12) * highest)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=4))
    if anomaly is not None:
        _label_anomaly(
            ax, anomaly, float(surprise[anomaly]), float(heights[anomaly]), len(surprise)
        )
    return ax


def _mark_bar(ax: Axes, number: int, height: float, num_slices: int) -> None:
    """A bar in the colour of alarm, wide enough to be seen among many."""
    ax.bar([number], [height], width=max(0.8, num_slices / 500), color=_style.ALARM, linewidth=0.0)


def _label_anomaly(ax: Axes, anomaly: int, value: float, height: float, num_slices: int) -> None:
    if np.isfinite(value):
        _mark_bar(ax, anomaly, height, num_slices)
    at_left = anomaly > 0.75 * num_slices
    side = -1.0 if at_left else 1.0
    said = f"{value:.1f} nats" if np.isfinite(value) else "impossible" if value > 0 else "unknown"
    ax.annotate(
        f"slice {anomaly}: {said}",
        (anomaly + 0.5 * side, height),
        xytext=(4.0 * side, -4.0),
        textcoords="offset points",
        size=_style.SMALL_SIZE,
        color=_style.dark(_style.ALARM),
        ha="right" if at_left else "left",
        va="center",
    )
