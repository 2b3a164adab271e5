"""A template too large to draw node by node: blocks with counts and a picture of the mix, by group."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle

from dspn._arrays import Floats
from dspn.plotting import _style
from dspn.plotting._graph import reads_input
from dspn.structure import DynamicNetwork, Input, Leaf, Product, Sum
from dspn.structure.graph import reachable

_MAX_GROUPS = 4
_MAX_LINES = 16
_FINEST = 128
_LINE = 13.0
_BLOCK = 30.0
_GAP = 34.0
_PADDING = 5.0
_TOP = 84.0


@final
@dataclass(frozen=True)
class GroupSummary:
    """What stands below the outputs of one interface group.

    `leaves` counts leaves by variable, `alone` the sums and products that read no input, `mixes` are the
    sums over inputs only, `joining` counts what is between these and the outputs.
    """

    num_inputs: int
    outputs: Counter[str]
    leaves: Counter[int]
    alone: Counter[str]
    mixes: tuple[int, ...]
    joining: Counter[str]


def summarise(network: DynamicNetwork, group: int) -> GroupSummary:
    """Counts the nodes below one group's outputs by their part in the template."""
    nodes = network.template.nodes
    reads = reads_input(nodes, network.template.order)
    outputs = {network.template.outputs[position] for position in network.groups[group]}
    found = GroupSummary(len(outputs), Counter(), Counter(), Counter(), (), Counter())
    mixes = []
    for index in sorted(reachable(nodes, outputs)):
        node = nodes[index]
        kind = type(node).__name__.lower()
        if isinstance(node, Leaf):
            found.leaves[node.variable] += 1
        if index in outputs:
            found.outputs[kind] += 1
        elif isinstance(node, Sum) and all(isinstance(nodes[c], Input) for c in node.children):
            mixes.append(index)
        elif isinstance(node, Sum | Product):
            (found.joining if reads[index] else found.alone)[kind] += 1
    return GroupSummary(
        found.num_inputs, found.outputs, found.leaves, found.alone, tuple(mixes), found.joining
    )


def group_variables(network: DynamicNetwork, group: int) -> list[str]:
    """Names of the slice's variables below a group's outputs."""
    template = network.template
    outputs = [template.outputs[position] for position in network.groups[group]]
    nodes = [template.nodes[index] for index in reachable(template.nodes, outputs)]
    variables = {node.variable for node in nodes if isinstance(node, Leaf)}
    return [network.schema.names[variable] for variable in sorted(variables)]


def mix_picture(network: DynamicNetwork, mixes: Sequence[int]) -> tuple[Floats, int]:
    """Mean weights on a grid of at most 128 x 128 cells (sums down, inputs across), and the inputs read.

    Only the grid is held, whatever the size of the mix.
    """
    template = network.template
    weights = network.parameters.template.weights
    rows = [(template.nodes[index], template.edge_offsets[index]) for index in mixes]
    positions = [
        np.array([getattr(template.nodes[c], "position") for c in getattr(node, "children")])  # noqa: B009
        for node, _ in rows
    ]
    read = np.unique(np.concatenate(positions))
    height, width = min(len(rows), _FINEST), min(len(read), _FINEST)
    total = np.zeros((height, width))
    down = np.arange(len(rows)) * height // len(rows)
    across = np.arange(len(read)) * width // len(read)
    for place, (own, (_, start)) in enumerate(zip(positions, rows, strict=True)):
        cells = across[np.searchsorted(read, own)]
        np.add.at(total[down[place]], cells, weights[start : start + len(own)])
    total /= np.outer(np.bincount(down), np.bincount(across))
    return total, len(read)


def _shown_groups(network: DynamicNetwork) -> int:
    count = len(network.groups)
    return count if count <= _MAX_GROUPS else _MAX_GROUPS - 1


def summary_size(network: DynamicNetwork, *, top: bool) -> tuple[float, float]:
    """Width and height in inches."""
    lines = max(len(group_variables(network, group)) for group in range(_shown_groups(network)))
    height = max(4.2, 2.4 + min(lines, _MAX_LINES) * _LINE / 72.0)
    return (9.0 if len(network.groups) == 1 else 12.0), height + (_TOP / 72.0 if top else 0.0)


def draw_summary(ax: Axes, network: DynamicNetwork, *, top: bool) -> None:
    """One column for each group, up to four; the outputs are on top as in the full drawing."""
    width, height = _style.size_in_points(ax)
    ax.set_xlim(0.0, width)
    ax.set_ylim(0.0, height)
    ax.set_axis_off()
    shown = _shown_groups(network)
    rest = len(network.groups) - shown
    room = (width - (110.0 if rest else 0.0)) / shown
    ceiling = height - (_TOP if top else 4.0)
    anchors = []
    for group in range(shown):
        middle = room * (group + 0.5)
        reach = min(0.5 * room - 10.0, 250.0)
        _Column(ax, network, group, middle - reach, middle + reach, ceiling).draw()
        anchors.append((middle - reach, middle + reach))
    if rest:
        words = f"and {rest:,} more groups\nwith {_rest_inputs(network, shown):,} interfaces"
        place = (width - 55.0, 0.5 * ceiling)
        ax.text(*place, words, size=_style.TEXT_SIZE, color=_style.MUTED, ha="center", va="center")
    if top:
        _draw_top(ax, network, anchors, ceiling, height, width)
    if any(summarise(network, group).mixes for group in range(shown)):
        key = "Mix: one row for each sum, one column for each input it reads; darker is a larger weight."
        ax.text(0.5 * width, -4.0, key, size=_style.SMALL_SIZE, color=_style.MUTED, ha="center", va="top")


def _rest_inputs(network: DynamicNetwork, shown: int) -> int:
    return sum(len(positions) for positions in network.groups[shown:])


def _kinds(counts: Counter[str]) -> str:
    return ", ".join(_style.counted(counts[kind], kind) for kind in sorted(counts))


def _draw_top(
    ax: Axes,
    network: DynamicNetwork,
    anchors: Sequence[tuple[float, float]],
    ceiling: float,
    height: float,
    width: float,
) -> None:
    """The grey strip of the top network: its nodes in one block over all outputs."""
    strip = Rectangle((0.0, ceiling + 14.0), width, height - ceiling - 14.0)
    strip.set(facecolor=_style.PAPER, edgecolor="none", zorder=0, gid="top")
    ax.add_patch(strip)
    counts = Counter(
        type(node).__name__.lower() for node in network.top.nodes if not isinstance(node, Input)
    )
    middle, reach, bottom = 0.5 * width, 90.0, height - 14.0 - _BLOCK
    for left, right in anchors:
        _ribbon(ax, (left, right, ceiling), (middle - reach, middle + reach, bottom), _style.LINE)
    words = _kinds(counts) or "1 interface"
    _block(ax, (middle - reach, bottom, 2 * reach, _BLOCK), _style.LINE, words, "")
    label = {"size": _style.SMALL_SIZE, "color": _style.MUTED, "va": "center"}
    ax.text(4.0, bottom + 0.5 * _BLOCK, "top network", **label)  # type: ignore[arg-type]


def _block(
    ax: Axes,
    box: tuple[float, float, float, float],
    colour: str,
    words: str,
    small: str,
    *,
    interface: bool = False,
) -> None:
    """A rounded block with a count in it; a red rim marks interface nodes."""
    x, y, width, height = box
    patch = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=5")
    patch.set(facecolor=_style.tint(colour, 0.22), zorder=3, gid="block")
    patch.set(edgecolor=_style.INTERFACE if interface else colour, linewidth=2.0 if interface else 1.0)
    ax.add_patch(patch)
    at = (x + 0.5 * width, y + (0.5 if not small else 0.66) * height)
    ax.text(*at, words, size=_style.NODE_SIZE, color=_style.INK, ha="center", va="center", zorder=4)
    if small:
        at = (x + 0.5 * width, y + 0.27 * height)
        size = _style.SMALL_SIZE
        ax.text(*at, small, size=size, color=_style.MUTED, ha="center", va="center", zorder=4)


def _ribbon(
    ax: Axes, lower: tuple[float, float, float], upper: tuple[float, float, float], colour: str
) -> None:
    """A pale band for many edges at once, between (left, right, height) and the same above."""
    (left, right, bottom), (upper_left, upper_right, above) = lower, upper
    corners = [(left, bottom), (right, bottom), (upper_right, above), (upper_left, above)]
    band = Polygon(corners, closed=True, facecolor=_style.tint(colour, 0.16), edgecolor="none")
    band.set_zorder(1)
    ax.add_patch(band)


@final
class _Column:
    """The blocks of one group: leaves on the left, inputs and mix on the right, outputs across."""

    def __init__(
        self, ax: Axes, network: DynamicNetwork, group: int, left: float, right: float, ceiling: float
    ) -> None:
        self.ax = ax
        self.network = network
        self.group = group
        self.summary = summarise(network, group)
        self.colour = _style.group_colour(group)
        self.left, self.right, self.ceiling = left, right, ceiling
        self.centre = 0.5 * (left + right)
        self.outputs_at = ceiling - _BLOCK - 8.0
        self.base = 10.0 if len(network.groups) == 1 else 34.0

    def draw(self) -> None:
        self._draw_group_label()
        count = _style.counted(self.summary.num_inputs, "output")
        box = (self.left, self.outputs_at, self.right - self.left, _BLOCK + 8.0)
        kinds = self.summary.outputs
        small = f"{next(iter(kinds))}s" if len(kinds) == 1 else _kinds(kinds)
        _block(self.ax, box, self.colour, count, small, interface=True)
        floor = self._draw_joining()
        self._draw_leaves(self.left, self.centre - 10.0, floor)
        self._draw_mix(self.centre + 10.0, self.right, floor)

    def _draw_group_label(self) -> None:
        if len(self.network.groups) == 1:
            return
        words = f"group {self.group}: " + ", ".join(group_variables(self.network, self.group))
        self.ax.text(
            self.centre,
            14.0,
            _style.shortened(words, _style.TEXT_SIZE, self.right - self.left),
            size=_style.TEXT_SIZE,
            color=_style.dark(self.colour),
            ha="center",
            va="center",
            parse_math=False,
        )

    def _draw_joining(self) -> float:
        """The block of nodes that join mix and slice, if there are any; what is below it ends there."""
        if not self.summary.joining:
            return self.outputs_at
        bottom = self.outputs_at - 0.5 * _GAP - _BLOCK
        box = (self.left, bottom, self.right - self.left, _BLOCK)
        _block(self.ax, box, self.colour, _kinds(self.summary.joining), "")
        ends = (self.left, self.right)
        _ribbon(self.ax, (*ends, bottom + _BLOCK), (*ends, self.outputs_at), self.colour)
        return bottom

    def _draw_leaves(self, left: float, right: float, ceiling: float) -> None:
        """Leaves by variable as a list with bars; above it the nodes over leaves alone."""
        lines = self._leaf_lines()
        bottom = self.base
        top = bottom + _LINE * len(lines) + 24.0 + _PADDING
        if self.summary.alone:
            box = (left, min(top + 0.5 * _GAP, ceiling - _BLOCK - 8.0), right - left, _BLOCK)
            _ribbon(self.ax, (left, right, top), (left, right, box[1]), self.colour)
            _block(self.ax, box, self.colour, _kinds(self.summary.alone), "")
            top = box[1] + _BLOCK
            _ribbon(self.ax, (left, right, top), (left, self.centre, ceiling), self.colour)
        else:
            _ribbon(self.ax, (left, right, top), (left, self.centre, ceiling), self.colour)
        self._draw_leaf_list(left, right, bottom, lines)

    def _leaf_lines(self) -> list[tuple[str, int]]:
        names = self.network.schema.names
        lines = [(names[v], self.summary.leaves[v]) for v in sorted(self.summary.leaves)]
        if len(lines) <= _MAX_LINES:
            return lines
        kept = lines[: _MAX_LINES - 1]
        rest = lines[_MAX_LINES - 1 :]
        return [*kept, (f"… {len(rest)} more", sum(count for _, count in rest))]

    def _draw_leaf_list(
        self, left: float, right: float, bottom: float, lines: Sequence[tuple[str, int]]
    ) -> None:
        height = _LINE * len(lines) + 24.0 + _PADDING
        frame = FancyBboxPatch((left, bottom), right - left, height)
        frame.set_boxstyle("round", pad=0.0, rounding_size=5.0)
        frame.set(facecolor="white", edgecolor=self.colour, linewidth=1.0, zorder=2, gid="block")
        self.ax.add_patch(frame)
        total = _style.counted(sum(count for _, count in lines), "leaf")
        heading = (0.5 * (left + right), bottom + height - 11.0)
        self.ax.text(
            *heading, total, size=_style.NODE_SIZE, color=_style.INK, ha="center", va="center", zorder=4
        )
        most = max(self.summary.leaves.values())
        for number, (name, count) in enumerate(lines):
            y = bottom + height - 24.0 - _LINE * (number + 0.5)
            self._draw_leaf_line(left, right, y, name, count, count / most)

    def _draw_leaf_line(
        self, left: float, right: float, y: float, name: str, count: int, share: float
    ) -> None:
        """Name, bar and number; the line that adds up further variables has no bar."""
        start, whole = 0.52 * (right - left), share <= 1.0
        ink = _style.INK if whole else _style.MUTED
        room = start - 10.0 if whole else right - left - 50.0
        words = _style.shortened(name, _style.SMALL_SIZE, room)
        style = {"size": _style.SMALL_SIZE, "color": ink, "va": "center", "zorder": 4}
        self.ax.text(left + 8.0, y, words, parse_math=False, **style)  # type: ignore[arg-type]
        self.ax.text(right - 8.0, y, f"{count:,}", ha="right", **style)  # type: ignore[arg-type]
        if whole:
            bar = Rectangle((left + start, y - 3.0), 0.28 * (right - left) * share, 6.0)
            bar.set(facecolor=_style.tint(self.colour, 0.55), edgecolor="none", zorder=3)
            self.ax.add_patch(bar)

    def _draw_mix(self, left: float, right: float, ceiling: float) -> None:
        inputs = _style.counted(self.summary.num_inputs, "input")
        _block(self.ax, (left, self.base, right - left, _BLOCK), self.colour, inputs, "", interface=True)
        bottom = self.base + _BLOCK
        sources = self.network.group_sources[self.group]
        if sources == (self.group,) and not self.summary.mixes:
            _ribbon(self.ax, (left, right, bottom), (self.centre, self.right, ceiling), self.colour)
        if not self.summary.mixes:
            return
        picture, num_read = mix_picture(self.network, self.summary.mixes)
        side = min(right - left, ceiling - bottom - 2 * _GAP)
        middle = 0.5 * (left + right)
        low = bottom + _GAP + 6.0
        high = ceiling - 0.6 * _GAP if ceiling - 0.6 * _GAP - low < side else low + side
        ends = (middle - 0.5 * (high - low), middle + 0.5 * (high - low))
        if self.group in sources:
            _ribbon(self.ax, (left, right, bottom), (*ends, low), self.colour)
        _ribbon(self.ax, (*ends, high), (self.centre, self.right, ceiling), self.colour)
        limits = self.ax.get_xlim(), self.ax.get_ylim()
        self.ax.imshow(
            np.sqrt(picture),
            cmap=_style.shades(self.colour),
            vmin=0.0,
            vmax=float(np.sqrt(picture.max())),
            extent=(*ends, low, high),
            aspect="auto",
            interpolation="antialiased",
            zorder=3,
            gid="mix",
        )
        self.ax.set(xlim=limits[0], ylim=limits[1])
        rim = Rectangle((ends[0], low), high - low, high - low)
        rim.set(facecolor="none", edgecolor=self.colour, linewidth=1.0, zorder=4)
        self.ax.add_patch(rim)
        words = f"{len(self.summary.mixes):,} × {num_read:,} mix"
        if sources != (self.group,):
            words += " of groups " + ", ".join(map(str, sources))
        place = (middle, bottom + 0.5 * (_GAP + 6.0))
        self.ax.text(
            *place, words, size=_style.NODE_SIZE, color=_style.INK, ha="center", va="center", zorder=4
        )
