"""Draws a template too large for single nodes: blocks with counts and a picture of the mix."""

from collections import Counter
from collections.abc import Sequence
from typing import final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle

from dspn.plotting import _style
from dspn.plotting._style import write
from dspn.plotting._summary import group_variables, mix_picture, summarise
from dspn.structure import DynamicNetwork, Input

_MAX_GROUPS = 4
_MAX_LINES = 16
_LINE = 13.0
_BLOCK = 30.0
_OUTPUTS = 38.0
_GAP = 18.0
_CAPTION = 40.0
_HEADING = 24.0
_PADDING = 5.0
_TOP = 84.0
_REST = 110.0
_SMALLEST_PICTURE = 16.0
_KEY = "Mix: a row for each sum, a column for each input it reads; darker is a larger weight."

Box = tuple[float, float, float, float]
"""Left, bottom, right and upper edge."""


def _shown_groups(network: DynamicNetwork) -> int:
    count = len(network.groups)
    return count if count <= _MAX_GROUPS else _MAX_GROUPS - 1


def blocks_size(network: DynamicNetwork, *, top: bool) -> tuple[float, float]:
    """Width and height in inches."""
    lines = max(len(group_variables(network, group)) for group in range(_shown_groups(network)))
    height = max(4.2, 2.4 + min(lines, _MAX_LINES) * _LINE / 72.0)
    return (9.0 if len(network.groups) == 1 else 12.0), height + (_TOP / 72.0 if top else 0.0)


def draw_blocks(ax: Axes, network: DynamicNetwork, *, top: bool) -> None:
    """One column for each group, up to four; the outputs are on top as in the full drawing."""
    width, height = _style.size_in_points(ax)
    ax.set_xlim(0.0, width)
    ax.set_ylim(0.0, height)
    ax.set_axis_off()
    shown = _shown_groups(network)
    rest = network.groups[shown:]
    room = (width - (_REST if rest else 0.0)) / shown
    reach = min(0.5 * room - 10.0, 250.0)
    ceiling = height - (_TOP if top else 4.0)
    columns = [
        _Column(ax, network, group, room * (group + 0.5), reach, ceiling) for group in range(shown)
    ]
    for column in columns:
        column.draw()
    if rest:
        words = f"and {len(rest):,} more groups\nwith {sum(map(len, rest)):,} interfaces"
        middle = width - 0.5 * _REST
        write(ax, middle, 0.5 * ceiling, words, size=_style.TEXT_SIZE, colour=_style.MUTED)
    if top:
        _draw_top(ax, network, [(c.left, c.right) for c in columns], ceiling, (width, height))
    if any(column.summary.mixes for column in columns):
        key = _style.broken(_KEY.split(), _style.SMALL_SIZE, width)
        write(ax, 0.5 * width, -4.0, key, colour=_style.MUTED, va="top")


def kinds_in_words(counts: Counter[str]) -> str:
    """Numbers of nodes by their kind: 6 leaves, 2 products."""
    return ", ".join(_style.counted(counts[kind], kind) for kind in sorted(counts))


def _draw_top(
    ax: Axes,
    network: DynamicNetwork,
    outputs: Sequence[tuple[float, float]],
    ceiling: float,
    size: tuple[float, float],
) -> None:
    """The grey strip of the top network: its nodes in one block over all outputs."""
    width, height = size
    strip = Rectangle((0.0, ceiling + 14.0), width, height - ceiling - 14.0)
    strip.set(facecolor=_style.PAPER, edgecolor="none", zorder=0, gid="top")
    ax.add_patch(strip)
    inner = [node for node in network.top.nodes if not isinstance(node, Input)]
    counts = Counter(type(node).__name__.lower() for node in inner)
    upper = height - 14.0
    reach = min(90.0, 0.25 * width)
    box = (0.5 * width - reach, upper - _BLOCK, 0.5 * width + reach, upper)
    for left, right in outputs:
        ribbon(ax, (left, right, ceiling), (box[0], box[2], box[1]), _style.LINE)
    block(ax, box, _style.LINE, kinds_in_words(counts) or "1 interface")
    write(ax, 4.0, upper - 0.5 * _BLOCK, "top network", colour=_style.MUTED, ha="left")


def _frame(ax: Axes, box: Box, face: str, edge: str, width: float = 1.0) -> None:
    left, bottom, right, upper = box
    patch = FancyBboxPatch((left, bottom), right - left, upper - bottom)
    patch.set_boxstyle("round", pad=0.0, rounding_size=5.0)
    patch.set(facecolor=face, edgecolor=edge, linewidth=width, zorder=3, gid="block")
    ax.add_patch(patch)


def block(
    ax: Axes,
    box: Box,
    colour: str,
    words: str,
    *,
    small: str = "",
    interface: bool = False,
    scale: float = 1.0,
) -> None:
    """A rounded block with a count in it; a red rim marks interface nodes."""
    left, bottom, right, upper = box
    rim = (_style.INTERFACE, 2.0) if interface else (colour, 1.0)
    _frame(ax, box, _style.tint(colour, 0.22), *rim)
    middle, tall = 0.5 * (left + right), upper - bottom
    size = scale * _style.NODE_SIZE
    # What is too wide for one line is broken behind a comma.
    pieces = [f"{piece}," for piece in words.split(", ")]
    lines = _style.broken([*pieces[:-1], pieces[-1][:-1]], size, right - left - 4.0)
    write(ax, middle, bottom + (0.66 if small else 0.5) * tall, lines, size=size)
    if small:
        size = scale * _style.SMALL_SIZE
        write(ax, middle, bottom + 0.27 * tall, small, size=size, colour=_style.MUTED)


def ribbon(
    ax: Axes, lower: tuple[float, float, float], upper: tuple[float, float, float], colour: str
) -> None:
    """A pale band for many edges at once, from (left, right, height) to the same above."""
    (left, right, bottom), (upper_left, upper_right, above) = lower, upper
    corners = [(left, bottom), (right, bottom), (upper_right, above), (upper_left, above)]
    band = Polygon(corners, closed=True)
    band.set(facecolor=_style.tint(colour, 0.16), edgecolor="none", zorder=1)
    ax.add_patch(band)


@final
class _Column:
    """The blocks of one group: leaves on the left, inputs and mix on the right, outputs across."""

    def __init__(
        self,
        ax: Axes,
        network: DynamicNetwork,
        group: int,
        centre: float,
        reach: float,
        ceiling: float,
    ) -> None:
        self.ax = ax
        self.network = network
        self.group = group
        self.summary = summarise(network, group)
        self.colour = _style.group_colour(group)
        self.left, self.centre, self.right = centre - reach, centre, centre + reach
        self.ceiling = ceiling
        self.base = 10.0 if len(network.groups) == 1 else 34.0
        self.scale = float(np.clip(reach / 115.0, 0.5, 1.0))

    def draw(self) -> None:
        """Outputs first, then from there down."""
        outputs = (self.left, self.ceiling - _OUTPUTS, self.right, self.ceiling)
        words = _style.counted(self.summary.num_inputs, "output")
        kinds = self.summary.outputs
        small = _style.plural(next(iter(kinds))) if len(kinds) == 1 else kinds_in_words(kinds)
        block(self.ax, outputs, self.colour, words, small=small, interface=True, scale=self.scale)
        floor = self._draw_joining(outputs[1])
        self._draw_slice_part(self.left, self.centre - 10.0, floor)
        self._draw_mix_part(self.centre + 10.0, self.right, floor)
        if len(self.network.groups) > 1:
            self._draw_group_label()

    def _draw_group_label(self) -> None:
        names = group_variables(self.network, self.group)
        room = self.right - self.left
        words = _style.group_label(self.group, names, _style.TEXT_SIZE, room)
        colour = _style.dark(self.colour)
        write(self.ax, self.centre, 14.0, words, size=_style.TEXT_SIZE, colour=colour)

    def _draw_joining(self, ceiling: float) -> float:
        """The nodes that join mix and slice, if any; returns where what they read ends."""
        if not self.summary.joining:
            return ceiling
        upper = ceiling - _GAP
        bottom = upper - _BLOCK
        words = kinds_in_words(self.summary.joining)
        block(self.ax, (self.left, bottom, self.right, upper), self.colour, words, scale=self.scale)
        ends = (self.left, self.right)
        ribbon(self.ax, (*ends, upper), (*ends, ceiling), self.colour)
        return bottom

    def _draw_slice_part(self, left: float, right: float, ceiling: float) -> None:
        """Leaves by variable as a list with bars; above it the nodes over leaves alone."""
        inner = _BLOCK + _GAP if self.summary.alone else 0.0
        room = ceiling - self.base - inner - _HEADING - _PADDING
        lines = self._leaf_lines(max(min(int(room / _LINE), _MAX_LINES), 1))
        upper = self.base + _HEADING + _LINE * len(lines) + _PADDING
        self._draw_leaf_list((left, self.base, right, upper), lines)
        if inner:
            box = (left, upper + _GAP, right, upper + _GAP + _BLOCK)
            ribbon(self.ax, (left, right, upper), (left, right, box[1]), self.colour)
            block(self.ax, box, self.colour, kinds_in_words(self.summary.alone), scale=self.scale)
            upper = box[3]
        ribbon(self.ax, (left, right, upper), (left, self.centre, ceiling), self.colour)

    def _leaf_lines(self, most: int) -> list[tuple[str, int]]:
        """Variables with their numbers of leaves; what does not fit adds up in the last line."""
        names = self.network.schema.names
        lines = [(names[v], self.summary.leaves[v]) for v in sorted(self.summary.leaves)]
        if len(lines) <= most:
            return lines
        rest = lines[most - 1 :]
        return [*lines[: most - 1], (f"… {len(rest)} more", sum(count for _, count in rest))]

    def _draw_leaf_list(self, box: Box, lines: Sequence[tuple[str, int]]) -> None:
        left, _, right, upper = box
        _frame(self.ax, box, "white", self.colour)
        total = _style.counted(sum(count for _, count in lines), "leaf")
        size = self.scale * _style.NODE_SIZE
        write(self.ax, 0.5 * (left + right), upper - 12.0, total, size=size)
        most = max(self.summary.leaves.values())
        for number, (name, count) in enumerate(lines):
            y = upper - _HEADING - _LINE * (number + 0.5)
            self._draw_leaf_line(left, right, y, name, count, count / most)

    def _draw_leaf_line(
        self, left: float, right: float, y: float, name: str, count: int, share: float
    ) -> None:
        """Name, bar and number; a line that adds up several variables has no bar."""
        single = share <= 1.0
        ink = _style.INK if single else _style.MUTED
        start = 0.52 * (right - left)
        size, margin = self.scale * _style.SMALL_SIZE, self.scale * 8.0
        words = _style.shortened(name, size, start - margin)
        write(self.ax, left + margin, y, words, size=size, colour=ink, ha="left")
        write(self.ax, right - margin, y, f"{count:,}", size=size, colour=ink, ha="right")
        if single:
            number = _style.text_width(f"{count:,}", size)
            room = min(0.28 * (right - left), right - left - start - margin - number - 3.0)
            bar = Rectangle((left + start, y - 3.0), max(0.0, room) * share, 6.0)
            bar.set(facecolor=_style.tint(self.colour, 0.55), edgecolor="none", zorder=4)
            self.ax.add_patch(bar)

    def _draw_mix_part(self, left: float, right: float, ceiling: float) -> None:
        """Inputs, and above them the mix; a group that begins afresh reads none."""
        upper = self.base + _BLOCK
        words = _style.counted(self.summary.num_inputs, "input")
        box = (left, self.base, right, upper)
        block(self.ax, box, self.colour, words, interface=True, scale=self.scale)
        sources = self.network.group_sources[self.group]
        above = (self.centre, self.right, ceiling)
        if self.summary.mixes:
            picture = self._draw_picture(left, right, upper + _CAPTION, ceiling - _GAP)
            if picture is not None:
                ribbon(self.ax, (picture[0], picture[2], picture[3]), above, self.colour)
                above = (picture[0], picture[2], picture[1])
            words = self._mix_in_words(sources)
            size = self.scale * _style.NODE_SIZE
            write(self.ax, 0.5 * (left + right), upper + 0.5 * _CAPTION, words, size=size)
        if self.group in sources:
            ribbon(self.ax, (left, right, upper), above, self.colour)

    def _mix_in_words(self, sources: Sequence[int]) -> str:
        read = sum(len(self.network.groups[source]) for source in sources)
        words = f"{len(self.summary.mixes):,} × {read:,} mix"
        return words if len(sources) == 1 else f"{words} of groups {', '.join(map(str, sources))}"

    def _draw_picture(self, left: float, right: float, bottom: float, ceiling: float) -> Box | None:
        """The weights of the mix in a square that fits between, if it is large enough to see."""
        side = min(right - left, ceiling - bottom)
        if side < _SMALLEST_PICTURE:
            return None
        middle = 0.5 * (left + right)
        box = (middle - 0.5 * side, bottom, middle + 0.5 * side, bottom + side)
        weights = np.sqrt(mix_picture(self.network, self.summary.mixes))
        limits = self.ax.get_xlim(), self.ax.get_ylim()
        self.ax.imshow(
            weights,
            cmap=_style.shades(self.colour),
            vmin=0.0,
            vmax=float(weights.max()),
            extent=(box[0], box[2], box[1], box[3]),
            aspect="auto",
            interpolation="antialiased",
            zorder=3,
            gid="mix",
        )
        self.ax.set(xlim=limits[0], ylim=limits[1])
        rim = Rectangle((box[0], bottom), side, side)
        rim.set(facecolor="none", edgecolor=self.colour, linewidth=1.0, zorder=4)
        self.ax.add_patch(rim)
        return box
