"""Panels over the slices of a sequence: their frame, title, slice axis, heat map and bars."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Final, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, MaxNLocator
from matplotlib.transforms import ScaledTranslation, Transform
from numpy.typing import NDArray

from dspn._arguments import Floats
from dspn.data.sequences import Sequences
from dspn.plotting import _style

Groups = Sequence[Sequence[int]]
"""Interface positions of each group."""
WIDTH = 10.0
"""Width in inches of a figure that shows one sequence."""
KEY_ROW = 15.0
"""Height in points of a line between the axes and the title."""

_MOST_BARS, _MOST_ROWS, _MOST_COLUMNS = 300, 64, 1000
_LEAST_DRAWN, _NAMED_NODES = 0.05, 16  # of very many interface nodes
# A slice without observations has a surprise of 0, up to the rounding of two logarithms.
_ROUNDING: Final = 1e-9
_STEPS: Final = tuple(size * int(10**power) for power in range(8) for size in (1, 2, 5))
_MOST_TICKS, _NAME_ROOM, _ROW_NAME_ROOM, _GAP = 13, 90.0, 110.0, 12.0
# Dates and durations are written in the first of these units in which none loses precision.
_UNITS: Final = {
    "M": ("D", "m", "s", "ms", "us", "ns"),
    "m": ("D", "h", "m", "s", "ms", "us", "ns"),
}
_EMPTY_ENDS: Final = (r"[ T]00:00(:00(\.0+)?)?$", r"(?<=\d\d:\d\d):00(\.0+)?$")
_STARTS: Final = (r"\d{4}-\d\d-\d\d[ T](?=\d)", r"\d{4}-(?=\d\d-\d\d)")


def new_figure(width: float, height: float) -> Figure:
    """A figure of a size in inches whose axes fill it as far as their labels allow."""
    dpi = _style.PIXELS_WIDE / width
    return Figure(figsize=(width, height), dpi=dpi, layout="constrained")


def dress(ax: Axes, title: str = "") -> None:
    """A quiet frame: no spines but a thin base line, small muted ticks, the title at the left."""
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(_style.FAINT)
    ax.tick_params(labelsize=_style.SMALL_SIZE, colors=_style.MUTED, length=2.5)
    ax.set_title(title, size=_style.TEXT_SIZE, color=_style.INK, loc="left", pad=4.0)


def heading(
    ax: Axes, title: str, key: Mapping[str, _style.Handle] | None = None, lines: int = 0
) -> None:
    """The title at the left, and between it and the axes what marks mean.

    Args:
        key: Marks by their meaning.
        lines: Lines that are already taken above the axes.
    """
    key = key or {}
    columns = _style.legend_columns(key, _style.size_in_points(ax)[0])
    rows = -(-len(key) // columns)
    _style.set_title(ax, title.split(), _style.TEXT_SIZE, 4.0 + KEY_ROW * (rows + lines))
    if key:
        place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": columns}
        space = {"borderaxespad": 0.1, "borderpad": 0.2, "handlelength": 1.6, "columnspacing": 1.6}
        _style.draw_legend(ax, key, bbox_transform=raised(ax, lines), **place, **space)


def raised(ax: Axes, lines: int) -> Transform:
    """Shares of the axes, moved up by lines of a key."""
    up = ScaledTranslation(0.0, lines * KEY_ROW / 72.0, _style.figure_of(ax).dpi_scale_trans)
    return ax.transAxes + up


def name_rows(ax: Axes, places: Sequence[float] | Floats, names: Sequence[str]) -> None:
    """Names of variables at the left of their rows."""
    words = [_style.shortened(name, _style.SMALL_SIZE, _ROW_NAME_ROOM) for name in names]
    ax.set_yticks(list(places), words, color=_style.INK, parse_math=False)
    ax.tick_params(axis="y", length=0.0)


def mark_anomaly(ax: Axes, anomaly: int | None) -> None:
    """Two thin lines that frame a slice."""
    if anomaly is not None:
        for side in (-0.5, 0.5):
            ax.axvline(anomaly + side, color=_style.ALARM, linewidth=1.0, zorder=6)


def draw_scale(
    ax: Axes, image: ScalarMappable, ticks: Sequence[float], share: float = 1.0, unit: str = ""
) -> None:
    """The colours of an image with their numbers, at the right of the lower share of the axes.

    The unit is written behind the last number.
    """
    scale = ax.inset_axes((1.012, 0.0, 0.010, share))
    scale.set_gid("scale")
    bar = _style.figure_of(ax).colorbar(image, cax=scale, ticks=list(ticks))
    words = [f"{tick:.2g}".replace("-", "\N{MINUS SIGN}") for tick in ticks]
    bar.set_ticklabels([*words[:-1], f"{words[-1]} {unit}".rstrip()])
    bar.outline.set_visible(False)
    scale.tick_params(labelsize=_style.SMALL_SIZE, colors=_style.MUTED, length=0.0)


def pooled(picture: Floats) -> Floats:
    """The largest value of each block of cells, so that none is lost between pixels.

    A block is NaN where all its cells are. Returns at most 64 rows and 1000 columns.
    """
    for axis, most in enumerate((_MOST_ROWS, _MOST_COLUMNS)):
        size = picture.shape[axis]
        picture = np.fmax.reduceat(picture, np.arange(0, size, -(-size // most)), axis=axis)
    return picture


def draw_heat_map(ax: Axes, cells: Floats, cmap: Any, limits: tuple[float, float]) -> Any:
    """Values (slices, rows), the first row on top and the first slice at the left; the image."""
    extent = (-0.5, cells.shape[0] - 0.5, cells.shape[1] - 0.5, -0.5)
    picture = np.ma.masked_invalid(pooled(cells.T))
    image = ax.imshow(picture, cmap=cmap, aspect="auto", interpolation="nearest", extent=extent)
    image.set_clim(*limits)
    return image


def _likely_nodes(posterior: Floats) -> set[int]:
    """All interface nodes, or of very many those of the largest posteriors at any slice."""
    peaks = np.nan_to_num(posterior).max(axis=0)
    if peaks.size <= _MOST_ROWS:
        return set(range(peaks.size))
    first = np.argsort(-peaks, kind="stable")[:_MOST_ROWS]
    return set(first[peaks[first] >= _LEAST_DRAWN].tolist()) or {0}


def draw_posterior(
    posterior: Floats, ax: Axes, groups: Groups | None = None, anomaly: int | None = None
) -> None:
    """P(interface node i chosen at the slice | evidence), as a heat map with a row for each i.

    Of very many nodes only those are drawn that are likely at some slice.
    """
    num_interfaces = posterior.shape[1]
    drawn = _likely_nodes(posterior)
    kept = [[p for p in group if p in drawn] for group in groups or [range(num_interfaces)]]
    order = [p for group in kept for p in group]
    largest = float(np.nan_to_num(posterior).max(initial=0.0))
    end = 1.0 if largest > 0.5 or largest == 0.0 else largest
    cmap = _style.shades(_style.group_colour(0))
    image = draw_heat_map(ax, posterior[:, order], cmap, (0.0, end))
    image.set_gid("posterior")
    words = f", the {len(order)} of {num_interfaces:,} nodes that matter here"
    dress(ax, "interface posterior" + words * (len(order) < num_interfaces))
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(axis="y", length=0.0)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
    if len(order) < num_interfaces:
        ticks = range(0, len(order), -(-len(order) // _NAMED_NODES))
        ax.set_yticks(list(ticks), [str(order[row]) for row in ticks])
    if groups:  # a line between groups, and the name of each at the left
        ends = np.cumsum([len(group) for group in kept])
        for edge in ends[:-1] - 0.5:
            ax.axhline(edge, color=_style.INK, linewidth=0.8)
        named = [number for number, group in enumerate(kept) if group]
        middles = [ends[number] - 0.5 - len(kept[number]) / 2 for number in named]
        ax.set_yticks(middles, [f"group {number}" for number in named])
    draw_scale(ax, image, [0.0, end / 2, end])
    mark_anomaly(ax, anomaly)


def draw_surprise(surprise: Floats, ax: Axes, *, anomaly: int | None = None) -> None:
    """-log P(x_t | x_0..x_{t-1}) as bars; an impossible slice is marked by the sign of infinity."""
    count = len(surprise)
    impossible = np.isposinf(surprise)
    known = surprise[np.isfinite(surprise)]
    lowest, highest = float(known.min(initial=0.0)), float(known.max(initial=0.0))
    highest = highest if highest > _ROUNDING else 1.0
    heights = np.nan_to_num(np.where(impossible, 1.15 * highest, surprise))
    heights[np.abs(heights) < _ROUNDING] = 0.0
    if count <= _MOST_BARS:
        ax.bar(np.arange(count), heights, width=0.8, color=_style.BAR, linewidth=0.0)
    else:
        ax.stairs(heights, np.arange(count + 1) - 0.5, fill=True, color=_style.BAR)
    marked = np.flatnonzero(impossible).tolist()
    for number in marked:
        style = {"size": _style.NODE_SIZE, "color": _style.ALARM, "va": "bottom"}
        _style.write(ax, number, heights[number], "∞", **style)
    dress(ax, "surprise (nats)")
    ax.set_ylim(1.1 * lowest, (1.4 if impossible.any() else 1.12) * highest)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=4))
    if anomaly is not None:
        value = float(surprise[anomaly])
        words = "impossible" if value > 0 else "unknown"
        if np.isfinite(value):
            marked.append(anomaly)
            words = f"{value:.1f} nats"
        at_left = anomaly > 0.75 * count
        side = -1.0 if at_left else 1.0
        place = (anomaly + 0.5 * side, float(heights[anomaly]))
        style = {"color": _style.dark(_style.ALARM), "ha": "right" if at_left else "left"}
        _style.note(ax, place, (4.0 * side, -4.0), f"slice {anomaly}: {words}", **style)
    if marked:
        wide = max(0.8, count / 500)  # to be seen among many
        ax.bar(marked, heights[marked], width=wide, color=_style.ALARM, linewidth=0.0)


def order_texts(data: Sequences) -> list[str] | None:
    """The order column's value of each slice as a text; None where it is not known."""
    keys = data.table_keys
    return None if keys is None or keys.order_values is None else _texts(keys.order_values)


def _texts(values: NDArray[Any]) -> list[str]:
    """Dates without a time that is empty for all of them; numbers without needless digits."""
    kind = values.dtype.kind
    if kind in _UNITS:
        known = values[~np.isnat(values)]
        units = (f"{kind}8[{unit}]" for unit in _UNITS[kind])
        exact = next((unit for unit in units if np.all(known == known.astype(unit))), values.dtype)
        return [re.sub(r"(?<=\d)T", " ", str(value)) for value in values.astype(exact)]
    if kind == "f":
        return [f"{value:.12g}" for value in values.tolist()]
    texts = [str(value) for value in values.tolist()]
    if all(isinstance(value, date) for value in values.tolist()):
        for pattern in _EMPTY_ENDS:
            if all(re.search(pattern, text) for text in texts):
                return [re.sub(pattern, "", text) for text in texts]
    return texts


def shared_start(texts: Sequence[str]) -> str:
    """The day or the year that all dates begin with, which need not be written at each of them."""
    for pattern in _STARTS:
        start = re.match(pattern, texts[0])
        if start and all(text.startswith(start[0]) for text in texts):
            return start[0]
    return ""


def sequence_words(data: Sequences) -> str:
    """How a title names the sequence: " of day 3", or nothing without an id."""
    if data.ids is None:
        return ""
    column = data.table_keys.sequence if data.table_keys else "sequence"
    name = data.ids[0]
    is_word = isinstance(name, str) and re.search("[^\\W\\d_]", name)
    return f" of {name}" if is_word else f" of {column} {name}"


@final
class SliceLocator(Locator):
    """Ticks at multiples of a step, as sparse as names are wide; future slices count from +1."""

    def __init__(self, ax: Axes, num_seen: int, num_slices: int, widest: float) -> None:
        self._ax, self._widest = ax, widest
        self._num_seen, self._num_slices = num_seen, num_slices

    def __call__(self) -> Sequence[float]:
        """The ticks of the present view."""
        low, high = sorted(self._ax.get_xlim())
        room = _style.size_in_points(self._ax)[0] / max(high - low, 1e-9)
        fewest = (high - low) / _MOST_TICKS
        ticks = np.arange(0, self._num_seen, _step(max((self._widest + _GAP) / room, fewest)))
        later, num_future = np.arange(0), self._num_slices - self._num_seen
        if num_future > 0:
            # A name that would touch the first of the future slices is left out.
            ticks = ticks[(self._num_seen - ticks) * room > self._widest / 2 + _GAP]
            ahead = _step(max(2.4 * _GAP / room, fewest))
            later = np.arange(ahead, num_future + 1, ahead)
            later = np.arange(1, num_future + 1, ahead) if ahead <= 2 else np.append(1, later)
        places = np.concatenate([ticks, self._num_seen - 1 + later])
        inside: list[float] = places[(places >= low) & (places <= high)].tolist()
        return inside


def _step(least: float) -> int:
    return next((step for step in _STEPS if step >= least), _STEPS[-1])


def slice_axis(ax: Axes, num_slices: int, data: Sequences | None = None) -> None:
    """Slices along the lower edge, named by the order column of `data`, or by number.

    Slices after those of `data` are in the future and count from +1.
    """
    num_seen = num_slices if data is None else data.total_slices
    label, names = "slice", None
    if data is not None and data.table_keys is not None and (texts := order_texts(data)):
        start = shared_start(texts)
        label = str(data.table_keys.order) + (f" ({start.rstrip(' T-')})" if start else "")
        names = [text[len(start) :] for text in texts]
    longest = max(names, key=len) if names else str(num_seen - 1)
    widest = min(_style.text_width(longest, _style.SMALL_SIZE), _NAME_ROOM)

    def name(place: float, _: Any = None) -> str:
        number = round(place)
        if number >= num_seen:
            return f"+{number - num_seen + 1}"
        if names is None or number < 0:
            return str(number)
        return _style.shortened(names[number], _style.SMALL_SIZE, _NAME_ROOM)

    ax.set_xlim(-0.5, num_slices - 0.5)
    ax.set_xlabel(label, size=_style.TEXT_SIZE, color=_style.INK, parse_math=False)
    ax.xaxis.set_major_locator(SliceLocator(ax, num_seen, num_slices, widest))
    ax.xaxis.set_major_formatter(FuncFormatter(name))
