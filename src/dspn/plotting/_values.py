"""The values of a sequence, one band per variable: categories as cells, numbers as lines."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dspn._arrays import Bools, Floats
from dspn.data import Kind, Schema, Variable
from dspn.plotting import _style
from dspn.plotting._panels import dress, mark_anomaly, raised
from dspn.plotting._swatches import label_categories

_CELL_BAND = 0.26
_LINE_BAND = 0.62
_MARGIN = 0.1
HATCH = "#c4c4c4"
MOST_OUTLINED = 150
LINE_COLOUR = "#1f5f99"

Band = tuple[float, float]


def band_heights(schema: Schema) -> list[float]:
    """Height in inches that each variable asks for."""
    return [_CELL_BAND if v.kind is Kind.CATEGORICAL else _LINE_BAND for v in schema]


def draw_values(
    values: Floats,
    schema: Schema,
    ax: Axes,
    *,
    imputed: Floats | None = None,
    anomaly: int | None = None,
) -> Axes:
    """Every variable in a band of its own, the first on top; missing hatched, imputed hollow."""
    heights = np.array(band_heights(schema))
    edges = heights.sum() - np.concatenate([[0.0], np.cumsum(heights)])
    filled = np.full(values.shape, np.nan) if imputed is None else imputed
    for column, variable in enumerate(schema):
        missing = np.isnan(values[:, column])
        guess = np.where(missing, filled[:, column], np.nan)
        margin = _MARGIN * heights[column]
        band = (float(edges[column + 1] + margin), float(edges[column] - margin))
        _hatch(ax, missing & np.isnan(guess), band)
        if variable.kind is Kind.CATEGORICAL:
            _draw_cells(ax, values[:, column], guess, variable, band)
        else:
            _draw_line(ax, values[:, column], guess, variable, band)
    lines = label_categories(ax, schema, edges)
    dress(ax, "values", lines)
    ax.spines["bottom"].set_visible(False)
    ax.set_ylim(0.0, float(heights.sum()))
    ax.set_xlim(-0.5, len(values) - 0.5)
    names = [_style.shortened(name, _style.SMALL_SIZE, 110.0) for name in schema.names]
    ax.set_yticks((edges[:-1] + edges[1:]) / 2, names, color=_style.INK, parse_math=False)
    ax.tick_params(axis="both", length=0.0)
    _draw_key(ax, np.isnan(values), filled, lines)
    mark_anomaly(ax, anomaly)
    return ax


def runs(marked: Bools) -> list[tuple[int, int]]:
    """First and one past the last slice of each unbroken run."""
    changes = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(np.int8)))
    return [(int(first), int(last)) for first, last in changes.reshape(-1, 2)]


def boxes_of(runs: Sequence[tuple[int, int]], band: Band, inset: float = 0.0) -> list[list[Band]]:
    low, high = band
    pad = inset * (high - low)
    sides = [(first - 0.5 + inset, last - 0.5 - inset) for first, last in runs]
    return [
        [(left, low + pad), (right, low + pad), (right, high - pad), (left, high - pad)]
        for left, right in sides
    ]


def _hatch(ax: Axes, missing: Bools, band: Band) -> None:
    """Hatching over each run of missing entries that nothing fills."""
    if missing.any():
        boxes = PolyCollection(boxes_of(runs(missing), band), facecolors="none", gid="missing")
        boxes.set(edgecolor=HATCH, linewidth=0.0, hatch="/////", zorder=1)
        ax.add_collection(boxes, autolim=False)


def _draw_cells(ax: Axes, codes: Floats, guess: Floats, variable: Variable, band: Band) -> None:
    colours = _style.category_colours(variable.num_categories)
    few = len(codes) <= MOST_OUTLINED
    ax.pcolormesh(
        np.arange(len(codes) + 1) - 0.5,
        np.array(band),
        np.ma.masked_invalid(codes)[None, :],
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=variable.num_categories - 0.5,
        edgecolors="white" if few else "none",
        linewidth=0.6 if few else 0.0,
        zorder=2,
        gid="cells",
    )
    filled = np.flatnonzero(~np.isnan(guess))
    if filled.size:
        own = [colours[int(guess[t])] for t in filled]
        boxes = PolyCollection(
            boxes_of([(int(t), int(t) + 1) for t in filled], band, 0.16 if few else 0.0)
        )
        # A cell too narrow for a rim is pale instead.
        boxes.set(facecolor="white" if few else [_style.tint(c, 0.45) for c in own], zorder=2)
        boxes.set(edgecolor=own if few else "none", linewidth=1.4 if few else 0.0, gid="imputed")
        ax.add_collection(boxes, autolim=False)


def _draw_line(ax: Axes, numbers: Floats, guess: Floats, variable: Variable, band: Band) -> None:
    together = np.where(np.isnan(numbers), guess, numbers)
    if np.isnan(together).all():
        return
    lowest, highest = float(np.nanmin(together)), float(np.nanmax(together))
    low, high = band
    span = (highest - lowest) or 1.0

    def placed(column: Floats) -> Floats:
        level: Floats = low + (high - low) * (0.1 + 0.8 * (column - lowest) / span)
        return level

    slices = np.arange(len(numbers))
    few = len(numbers) <= MOST_OUTLINED
    style = "steps-mid" if variable.kind is Kind.COUNT else "default"
    line: dict[str, Any] = {"color": LINE_COLOUR, "drawstyle": style}
    ax.plot(slices, placed(together), ":", linewidth=0.8, zorder=2, **line)
    ax.plot(slices, placed(numbers), "-", linewidth=1.2, zorder=3, **line)
    if few:
        dots = ax.plot(slices, placed(numbers), "o", color=LINE_COLOUR, zorder=4)[0]
        dots.set_markersize(2.6)
    if not np.isnan(guess).all():
        rings = ax.plot(slices, placed(guess), "o", color=LINE_COLOUR, zorder=4, gid="imputed")[0]
        rings.set(markersize=4.5 if few else 2.0, markerfacecolor="white")
    _label_range(ax, lowest, highest, band)


def _label_range(ax: Axes, lowest: float, highest: float, band: Band) -> None:
    """The least and the greatest value of a line, at the right of its band."""
    ends = [(lowest, 0.1)] if lowest == highest else [(lowest, 0.1), (highest, 0.9)]
    for value, share in ends:
        ax.annotate(
            f"{value:.4g}",
            (1.0, band[0] + share * (band[1] - band[0])),
            xycoords=ax.get_yaxis_transform(),
            xytext=(5.0, 0.0),
            textcoords="offset points",
            size=_style.SMALL_SIZE - 1.0,
            color=_style.MUTED,
            va="center",
        )


def _draw_key(ax: Axes, missing: Bools, filled: Floats, lines: int) -> None:
    """What hatched and hollow mean, where either occurs."""
    handles: list[Patch | Line2D] = []
    if (missing & np.isnan(filled)).any():
        handles.append(Patch(facecolor="white", edgecolor=HATCH, hatch="/////", label="missing"))
    if (missing & ~np.isnan(filled)).any():
        handles.append(
            Patch(facecolor="white", edgecolor=LINE_COLOUR, label="imputed", linewidth=1.4)
        )
    if handles:
        ax.legend(
            handles=handles,
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            bbox_transform=raised(ax, lines),
            ncols=len(handles),
            frameon=False,
            fontsize=_style.SMALL_SIZE,
            labelcolor=_style.MUTED,
            borderaxespad=0.0,
            handlelength=1.4,
            columnspacing=1.4,
        )
