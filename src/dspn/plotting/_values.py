"""The entries of a sequence, each variable in a band of its own.

Categories are cells and numbers lines; missing entries are hatched, hollow or their distributions.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from dspn._arguments import Bools, Floats
from dspn.data.schema import Schema, Variable
from dspn.inference.marginals import VariableMarginals
from dspn.plotting import _style
from dspn.plotting._panels import KEY_ROW, name_rows

LINE_COLOUR: Final = "#1f5f99"
BAND_COLOUR: Final = _style.tint(LINE_COLOUR, 0.3)
HATCHED: Final[_style.Style] = {"edgecolor": _style.HATCH, "hatch": "/////"}
_MOST_OUTLINED, _MOST_KEYS, _MOST_NAMED, _GAP = 150, 5, 8, 0.06
# Lengths in points.
_BESIDE_ROOM, _NAME_ROOM, _MARK, _SPACE = 150.0, 160.0, 9.0, 7.0


def draw_bands(ax: Axes, schema: Schema, heights: Sequence[float]) -> tuple[list[Axes], int]:
    """Axes for each variable inside `ax`, the first on top, with names and keys of categories.

    Returns them and the number of lines above `ax` that the keys take.
    """
    total = sum(heights)
    edges = total - np.cumsum([0.0, *heights])
    ax.set_ylim(0.0, total)
    name_rows(ax, (edges[:-1] + edges[1:]) / 2, schema.names)
    bands = []
    for variable, low, tall in zip(schema, edges[1:], heights, strict=True):
        bottom, height = (low + _GAP * tall) / total, (1.0 - 2 * _GAP) * tall / total
        band = ax.inset_axes((0.0, bottom, 1.0, height), gid=variable.name)
        for part in (band.patch, band.spines[:], band.xaxis):
            part.set_visible(False)
        bands.append(band)
    return bands, _label_categories(ax, schema, bands)


def runs(marked: Bools) -> tuple[Any, Any]:
    """First slice of each unbroken run, and the slice after its last."""
    changes = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(np.int8)))
    return changes[::2], changes[1::2]


def boxes(first: Any, last: Any, low: Any, high: Any, inset: float = 0.0) -> Floats:
    """Corners of boxes from slice `first` to before slice `last`, (count, 4, 2)."""
    pad = inset * (np.asarray(high) - low)
    ends = (first - 0.5 + inset, last - 0.5 - inset, low + pad, high - pad)
    left, right, bottom, upper = np.broadcast_arrays(*ends)
    corners = [left, bottom, right, bottom, right, upper, left, upper]
    return np.stack(corners, axis=-1).reshape(-1, 4, 2)


def draw_missing(ax: Axes, missing: Bools, low: float, high: float, **style: Any) -> None:
    """Hatching over each run of missing entries."""
    _style.draw_polygons(ax, boxes(*runs(missing), low, high), gid="missing", **HATCHED | style)


def draw_cells(ax: Axes, codes: Floats, marginals: VariableMarginals, first: int) -> None:
    """A column of cells as high as the probabilities; an observed category fills the whole.

    Args:
        codes: Category of each slice, NaN where missing.
        marginals: Distributions of the missing entries.
        first: Slices before it are not drawn.
    """
    shares = _certain(codes, marginals.variable)
    shares[marginals.slices] = marginals.probabilities
    shares[:first] = 0.0
    _draw_shares(ax, shares, outlined=len(codes) - first <= _MOST_OUTLINED)
    draw_missing(ax, np.isnan(codes), 0.0, 1.0, edgecolor="white", zorder=3)


def draw_filled_cells(ax: Axes, codes: Floats, filled: Floats, variable: Variable) -> None:
    """Observed categories as cells, those in `filled` hollow, all others hatched."""
    outlined = len(codes) <= _MOST_OUTLINED
    _draw_shares(ax, _certain(codes, variable), outlined=outlined)
    draw_missing(ax, np.isnan(codes) & np.isnan(filled), 0.0, 1.0)
    at = np.flatnonzero(~np.isnan(filled))
    palette = _style.category_colours(variable.num_categories)
    colours = [palette[int(code)] for code in filled[at]]
    # A cell too narrow for a rim is pale instead.
    style: _style.Style = {"facecolor": [_style.tint(colour, 0.45) for colour in colours]}
    if outlined:
        style = {"facecolor": "white", "edgecolor": colours, "linewidth": 1.4}
    hollow = boxes(at, at + 1, 0.0, 1.0, 0.16 if outlined else 0.0)
    _style.draw_polygons(ax, hollow, gid="imputed", zorder=2, **style)


def _certain(codes: Floats, variable: Variable) -> Floats:
    """Probability 1 for the category of each slice, (slices, categories); 0 where missing."""
    certain: Bools = codes[:, None] == np.arange(variable.num_categories)
    return certain.astype(np.float64)


def _draw_shares(ax: Axes, shares: Floats, *, outlined: bool) -> None:
    ends = np.cumsum(shares, axis=1)
    edge = {"edgecolor": "white", "linewidth": 0.6} if outlined else {}
    for code, colour in enumerate(_style.category_colours(shares.shape[1])):
        at = np.flatnonzero(shares[:, code] > 0)
        high = ends[at, code]
        cells = boxes(at, at + 1, high - shares[at, code], high)
        _style.draw_polygons(ax, cells, facecolor=colour, gid=f"category {code}", zorder=2, **edge)
    ax.set_ylim(0.0, 1.0)
    ax.set_yticks([])


def draw_numbers(
    ax: Axes,
    numbers: Floats,
    points: Floats,
    intervals: Floats | None = None,
    *,
    first: int = 0,
    drawstyle: Literal["default", "steps-mid"] = "default",
) -> None:
    """Observed numbers as a line, points of missing ones as rings, in pale intervals if given.

    Args:
        numbers: Number of each slice, NaN where missing.
        points: One number for each missing entry that has one, NaN elsewhere.
        intervals: Lower and upper end, (slices, 2), NaN where there is none.
        first: Slices before it are not taken into the range.
        drawstyle: How matplotlib joins the numbers.
    """
    slices = np.arange(len(numbers))
    few = len(numbers) - first <= _MOST_OUTLINED
    shown = np.where(np.isnan(numbers), points, numbers)
    ends = shown[first:, None]
    if intervals is not None:
        at = np.flatnonzero(~np.isnan(intervals[:, 0]))
        areas = boxes(at, at + 1, intervals[at, 0], intervals[at, 1])
        _style.draw_polygons(ax, areas, facecolor=BAND_COLOUR, gid="interval", zorder=1)
        ends = np.column_stack([numbers, intervals])[first:]
    # A range that holds all of these with a margin, and two or three numbers at the right.
    known = ends[np.isfinite(ends)]
    lowest, highest = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    margin = 0.14 * ((highest - lowest) or 2.0)
    ax.set_ylim(lowest - margin, highest + margin)
    ax.yaxis.tick_right()
    ax.yaxis.set_major_locator(MaxNLocator(nbins=2, min_n_ticks=2, steps=[1, 2, 5, 10]))
    size = _style.SMALL_SIZE - 1.0
    ax.tick_params(axis="y", labelsize=size, colors=_style.MUTED, length=2.0, pad=2.0)
    if not known.size:
        ax.set_yticks([])
    style: _style.Style = {"color": LINE_COLOUR, "drawstyle": drawstyle}
    ax.plot(slices, shown, ":", linewidth=0.8, zorder=2, **style)
    width = 1.2 if few else 0.7
    line = ax.plot(slices, numbers, "-", linewidth=width, zorder=3, gid="observed", **style)[0]
    line.set(marker="o" if few else ".", markersize=2.6 if few else 1.0)
    rings = ax.plot(slices, points, "o", color=LINE_COLOUR, zorder=4, gid="point")[0]
    rings.set(markersize=4.5 if few else 2.0, markerfacecolor="white")


_Entry = tuple[str, str]
"""A colour and the name of its category; without a colour a word between the others."""


def _label_categories(ax: Axes, schema: Schema, bands: Sequence[Axes]) -> int:
    """Colours of categories at the right of a band, once for neighbours with the same categories.

    Those that do not fit there are in lines above the axes, once for all variables that share them.
    Returns the number of these lines.
    """
    above: dict[tuple[object, ...], tuple[list[str], list[_Entry]]] = {}
    before: tuple[object, ...] = ()
    for variable, band in zip(schema, bands, strict=True):
        own, colours = variable.categories, _style.category_colours(variable.num_categories)
        entries = [(colour, str(name)) for colour, name in zip(colours, own, strict=True)]
        if len(entries) > _MOST_NAMED:  # the first and the last, whose colours lie on a scale
            entries[1:-1] = [("", "…")]
        widths = [_style.text_width(name, _style.SMALL_SIZE) for _, name in entries]
        too_wide = sum(widths) + len(entries) * (_MARK + _SPACE) > _BESIDE_ROOM
        if own in above or (too_wide and len(above) < _MOST_KEYS):
            above.setdefault(own, ([], entries))[0].append(variable.name)
        elif own and own != before:
            room = _BESIDE_ROOM / len(entries) - _MARK - _SPACE
            _draw_beside(band, entries, max(room, 16.0) if too_wide else np.inf)
        before = own
    keys = []
    for names, entries in above.values():
        shown = names if len(names) <= 3 else [*names[:2], f"{len(names) - 2} more"]
        keys.append([("", ", ".join(shown) + ":"), *entries])
    return _draw_above(ax, keys)


def _pieces(entry: _Entry, room: float) -> Iterable[tuple[str, str, float]]:
    """Text, colour and width of a mark and its name."""
    colour, name = entry
    words = _style.shortened(name, _style.SMALL_SIZE, room)
    if colour:
        yield "■", colour, _MARK
    yield words, _style.MUTED, _style.text_width(words, _style.SMALL_SIZE) + _SPACE


def _draw_beside(band: Axes, entries: Sequence[_Entry], room: float) -> None:
    """Each entry in one line at the right of a band; its name takes at most `room`."""
    start = 5.0
    for entry in entries:
        for words, colour, width in _pieces(entry, room):
            place = {"xycoords": "axes fraction", "color": colour}
            _style.note(band, (1.0, 0.5), (start, 0.0), words, **place)
            start += width


def _draw_above(ax: Axes, keys: Sequence[Sequence[_Entry]]) -> int:
    """Each key from the left edge on, in as many lines as it needs; returns their number."""
    room = _style.size_in_points(ax)[0]
    placed: list[tuple[int, float, str, str]] = []
    line = -1
    for key in keys:
        line, start = line + 1, 0.0
        for entry in key:
            pieces = list(_pieces(entry, _NAME_ROOM))
            if start and start + sum(width for _, _, width in pieces) > room:
                line, start = line + 1, 0.0
            for words, colour, width in pieces:
                placed.append((line, start, words, colour))
                start += width
    style = {"xycoords": "axes fraction", "gid": "category key"}
    for number, start, words, colour in placed:
        offset = (start, KEY_ROW * (line - number + 0.5))
        _style.note(ax, (0.0, 1.0), offset, words, color=colour, **style)
    return line + 1
