"""Observed entries and the distributions of missing ones, a band of its own for each variable."""

from collections.abc import Sequence
from typing import Final, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from dspn._arrays import Floats
from dspn.data import Kind, Schema, Sequences
from dspn.inference import Marginals, VariableMarginals
from dspn.plotting import _style
from dspn.plotting._panels import Handle, dress, heading, new_panel
from dspn.plotting._swatches import label_categories
from dspn.plotting._ticks import slice_axis
from dspn.plotting._values import LINE_COLOUR, MOST_OUTLINED, boxes_of, runs

MOST_BANDS: Final = 40
"""Most variables in one picture."""
_WIDTH: Final = 10.0
_STACK_BAND: Final = 0.42
_NUMBER_BAND: Final = 0.8
_TALLEST: Final = 9.0
_GAP: Final = 0.12
_NAME_ROOM: Final = 110.0
_BAND_COLOUR: Final = _style.tint(LINE_COLOUR, 0.3)


def levels_of(level: float) -> tuple[float, float, float]:
    """Lower end, median and upper end of the central interval that holds `level`."""
    return 0.5 - level / 2, 0.5, 0.5 + level / 2


@final
class Entries:
    """The entries of one sequence to draw: values, NaN where missing, and marginals of these.

    The marginals have quantiles at `levels_of(level)`. Slices before `first` are not shown.
    `absent` is the word for entries without a value.
    """

    def __init__(
        self,
        values: Floats,
        schema: Schema,
        marginals: Marginals,
        columns: Sequence[int],
        *,
        level: float,
        first: int = 0,
        absent: str = "missing",
    ) -> None:
        self.columns = list(columns)[:MOST_BANDS]
        self.left_out = len(columns) - len(self.columns)
        self.schema = Schema(tuple(schema[column] for column in self.columns))
        self.values = values[:, self.columns]
        self.marginals = [marginals[column] for column in self.columns]
        self.level = level
        self.first = first
        self.absent = absent

    @property
    def heights(self) -> list[float]:
        """Height in inches that each variable asks for."""
        return [_STACK_BAND if v.kind is Kind.CATEGORICAL else _NUMBER_BAND for v in self.schema]

    def axes(self) -> Axes:
        """Axes of a new figure with room for all bands."""
        return new_panel(_WIDTH, min(sum(self.heights), _TALLEST) + 1.2)

    def draw(self, ax: Axes, title: str, data: Sequences) -> None:
        """Each variable in a band, the first on top, on axes of its own with its own scale.

        `data` is what was seen, and names its slices.
        """
        heights = np.array(self.heights)
        edges = heights.sum() - np.concatenate([[0.0], np.cumsum(heights)])
        dress(ax, "")
        ax.set_ylim(0.0, float(heights.sum()))
        names = [_style.shortened(n, _style.SMALL_SIZE, _NAME_ROOM) for n in self.schema.names]
        ax.set_yticks((edges[:-1] + edges[1:]) / 2, names, color=_style.INK, parse_math=False)
        ax.tick_params(axis="y", length=0.0)
        slice_axis(ax, len(self.values), data)
        ax.set_xlim(left=self.first - 0.5)
        for column, variable in enumerate(self.schema):
            band = self._band(ax, float(edges[column + 1]), float(edges[column]))
            band.set_gid(variable.name)
            own = self.values[:, column]
            if variable.kind is Kind.CATEGORICAL:
                _draw_stacks(band, own, self.marginals[column], self.first)
            else:
                _draw_numbers(band, own, self.marginals[column], self.first)
            band.set_xlim(ax.get_xlim())
        lines = label_categories(ax, self.schema, edges)
        hidden = _style.counted(self.left_out, "more variable")
        more = f"; {hidden} not shown" if self.left_out else ""
        heading(ax, title + more, *self._key(), lines=lines)

    def _band(self, ax: Axes, low: float, high: float) -> Axes:
        total = ax.get_ylim()[1]
        pad = 0.5 * _GAP * (high - low)
        band = ax.inset_axes((0.0, (low + pad) / total, 1.0, (high - low - 2 * pad) / total))
        band.patch.set_visible(False)
        for spine in band.spines.values():
            spine.set_visible(False)
        band.xaxis.set_visible(False)
        return band

    def _key(self) -> tuple[list[Handle], list[str]]:
        """What hatched stacks and pale bands mean, where there are any."""
        shown = [
            variable.kind
            for variable, own in zip(self.schema, self.marginals, strict=True)
            if (own.slices >= self.first).any()
        ]
        handles: list[Handle] = []
        labels = []
        if Kind.CATEGORICAL in shown:
            handles.append((Patch(facecolor="#9aa5b1", edgecolor="white", hatch="/////"),))
            labels.append(f"{self.absent}: probability of each category")
        points = [
            word
            for kind, word in ((Kind.CONTINUOUS, "mean"), (Kind.COUNT, "median"))
            if kind in shown
        ]
        if points:
            handles.append((Patch(facecolor=_BAND_COLOUR), _ring()))
            labels.append(f"{self.absent}: {' or '.join(points)}, {100 * self.level:g} % interval")
        return handles, labels


def _ring() -> Line2D:
    ring = Line2D([], [], linestyle="none", marker="o", markersize=4.5, color=LINE_COLOUR)
    ring.set_markerfacecolor("white")
    return ring


def _draw_stacks(ax: Axes, codes: Floats, own: VariableMarginals, first: int) -> None:
    """A column of cells as high as the probabilities; an observed category fills the whole."""
    assert own.probabilities is not None
    num_categories = own.variable.num_categories
    shares = np.zeros((len(codes), num_categories))
    seen = np.flatnonzero(~np.isnan(codes))
    shares[seen, codes[seen].astype(np.int64)] = 1.0
    shares[own.slices] = own.probabilities
    ends = np.cumsum(shares, axis=1)
    few = len(codes) - first <= MOST_OUTLINED
    for code, colour in enumerate(_style.category_colours(num_categories)):
        boxes = [
            boxes_of([(t, t + 1)], (ends[t, code] - shares[t, code], ends[t, code]))[0]
            for t in np.flatnonzero(shares[:, code] > 0).tolist()
            if t >= first
        ]
        cells = PolyCollection(boxes, facecolors=colour, gid=f"category {code}")
        cells.set(edgecolor="white" if few else "none", linewidth=0.6 if few else 0.0, zorder=2)
        ax.add_collection(cells, autolim=False)
    hatched = PolyCollection(boxes_of(runs(np.isnan(codes)), (0.0, 1.0)), gid="missing")
    hatched.set(facecolor="none", edgecolor="white", linewidth=0.0, hatch="/////", zorder=3)
    ax.add_collection(hatched, autolim=False)
    ax.set_ylim(0.0, 1.0)
    ax.set_yticks([])


def _draw_numbers(ax: Axes, numbers: Floats, own: VariableMarginals, first: int) -> None:
    """Observed values as a line; a missing one as its point estimate in a central interval."""
    point = np.full(len(numbers), np.nan)
    point[own.slices] = own.point()
    few = len(numbers) - first <= MOST_OUTLINED
    low, high = own.quantiles[:, 0], own.quantiles[:, -1]
    boxes = [
        boxes_of([(t, t + 1)], (low[entry], high[entry]))[0]
        for entry, t in enumerate(own.slices.tolist())
    ]
    band = PolyCollection(boxes, facecolors=_BAND_COLOUR, gid="interval")
    band.set(edgecolor="none", linewidth=0.0, zorder=1)
    ax.add_collection(band, autolim=False)
    slices = np.arange(len(numbers))
    ends = np.concatenate([numbers[first:], low[own.slices >= first], high[own.slices >= first]])
    _set_range(ax, ends[np.isfinite(ends)])
    together = np.where(np.isnan(numbers), point, numbers)
    ax.plot(slices, together, ":", linewidth=0.8, color=LINE_COLOUR, zorder=2)
    line = ax.plot(slices, numbers, "-", linewidth=1.2, color=LINE_COLOUR, zorder=3)[0]
    line.set(gid="observed", marker="o" if few else ".", markersize=2.6 if few else 1.0)
    rings = ax.plot(slices, point, "o", color=LINE_COLOUR, zorder=4, gid="point")[0]
    rings.set(markersize=4.5 if few else 2.0, markerfacecolor="white")


def _set_range(ax: Axes, ends: Floats) -> None:
    """A range that holds all of these with a margin, and two or three numbers at the right."""
    lowest, highest = (float(ends.min()), float(ends.max())) if ends.size else (0.0, 1.0)
    margin = 0.14 * ((highest - lowest) or 2.0)
    ax.set_ylim(lowest - margin, highest + margin)
    ax.yaxis.tick_right()
    ax.yaxis.set_major_locator(MaxNLocator(nbins=2, min_n_ticks=2, steps=[1, 2, 5, 10]))
    size = _style.SMALL_SIZE - 1.0
    ax.tick_params(axis="y", labelsize=size, colors=_style.MUTED, length=2.0, pad=2.0)
