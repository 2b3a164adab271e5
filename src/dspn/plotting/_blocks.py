"""Draws networks too large for single nodes: blocks with counts, ribbons for many edges at once.

A template shows the parts of each group with a picture of the weights of its mix; an unrolled
network shows a row of blocks for each slice. Both have a column for each of the first groups.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from dspn._arrays import Floats
from dspn.plotting import _style
from dspn.plotting._graph import group_variables, kind_of, nodes_below, reads_input, slice_number
from dspn.plotting._style import Box, write
from dspn.structure import DynamicNetwork, Input, Leaf, Product, Sum
from dspn.structure.nodes import Node, children_of
from dspn.structure.validity import bottom_nodes

_FINEST: Final = 128
_MAX_GROUPS: Final = 4
_MAX_LINES: Final = 16
_MAX_ROWS: Final = 5
_LABEL: Final = 74.0
_MARGIN: Final = 12.0
_LINE: Final = 13.0
_BLOCK: Final = 30.0
_OUTPUTS: Final = 38.0
_GAP: Final = 18.0
_CAPTION: Final = 40.0
_HEADING: Final = 24.0
_PADDING: Final = 5.0
_FOOT: Final = 28.0
_TOP: Final = 84.0
_SLICE_ROW: Final = 86.0
_HIDDEN_ROW: Final = 44.0
_TOP_ROW: Final = 62.0
_SMALLEST_PICTURE: Final = 16.0
_SMALLEST_SCALE: Final = 0.7
_KEY: Final = (
    "Mix: a row for each sum, a column for each input it reads; darker is a larger weight."
)


@final
@dataclass(frozen=True)
class GroupSummary:
    """What is below the outputs of some interface groups.

    `leaves` counts leaves by variable, `alone` the sums and products that read no input, `mixes`
    are the sums over inputs only, `joining` counts what is between these and the outputs.
    """

    num_inputs: int
    outputs: Counter[str]
    leaves: Counter[int]
    alone: Counter[str]
    mixes: tuple[int, ...]
    joining: Counter[str]


def summarise(network: DynamicNetwork, groups: Sequence[int]) -> GroupSummary:
    """Counts the nodes below the outputs of some groups by their part in the template."""
    nodes = network.template.nodes
    reads = reads_input(nodes, network.template.order)
    tops = {network.template.outputs[p] for group in groups for p in network.groups[group]}
    outputs, alone, joining = Counter[str](), Counter[str](), Counter[str]()
    leaves: Counter[int] = Counter()
    mixes = []
    for index in sorted(nodes_below(network, groups)):
        node = nodes[index]
        if isinstance(node, Leaf):
            leaves[node.variable] += 1
        if index in tops:
            outputs[kind_of(node)] += 1
        elif isinstance(node, Sum) and all(isinstance(nodes[c], Input) for c in node.children):
            mixes.append(index)
        elif isinstance(node, Sum | Product):
            (joining if reads[index] else alone)[kind_of(node)] += 1
    return GroupSummary(len(tops), outputs, leaves, alone, tuple(mixes), joining)


def mix_picture(network: DynamicNetwork, mixes: Sequence[int]) -> Floats:
    """Mean weights on a grid of at most 128 x 128 cells, sums down and the inputs read across.

    Sums are in the order of the first input they read. Only the grid is held, whatever the size of
    the mix.
    """
    template = network.template
    position = {node: position for position, node in enumerate(template.inputs)}
    reads = {i: np.array([position[c] for c in children_of(template.nodes[i])]) for i in mixes}
    read = np.unique(np.concatenate(list(reads.values())))
    height, width = min(len(mixes), _FINEST), min(len(read), _FINEST)
    total = np.zeros((height, width))
    down = np.arange(len(mixes)) * height // len(mixes)
    across = np.arange(len(read)) * width // len(read)
    for place, index in enumerate(sorted(mixes, key=lambda index: (reads[index].min(), index))):
        start = template.edge_offsets[index]
        weights = network.parameters.template.weights[start : start + len(reads[index])]
        np.add.at(total[down[place]], across[np.searchsorted(read, reads[index])], weights)
    mean: Floats = total / np.outer(np.bincount(down), np.bincount(across))
    return mean


@final
class _Column(NamedTuple):
    """Room for the blocks of one group; the last column holds all groups that are left."""

    groups: Sequence[int]
    colour: str
    left: float
    right: float


def _columns(network: DynamicNetwork, left: float, right: float) -> list[_Column]:
    count = min(len(network.groups), _MAX_GROUPS)
    room = (right - left) / count
    reach = min(0.46 * room, 250.0)
    columns = []
    for number in range(count):
        last = number + 1 if number < count - 1 else len(network.groups)
        groups = range(number, last)
        colour = _style.group_colour(number if len(groups) == 1 else None)
        middle = left + room * (number + 0.5)
        columns.append(_Column(groups, colour, middle - reach, middle + reach))
    return columns


def _foot(network: DynamicNetwork) -> float:
    """Room for the labels of the groups below all blocks."""
    return _FOOT if len(network.groups) > 1 else 0.0


def group_label(network: DynamicNetwork, group: int, size: float, room: float) -> str:
    """The number of a group with as many of its variables as there is room for."""
    start = f"group {group}"
    names = ", ".join(network.schema.names[v] for v in group_variables(network, group))
    words = _style.shortened(f"{start}: {names}", size, room)
    return start if words.endswith("…") and len(words) <= len(start) + 3 else words


def _label_groups(ax: Axes, network: DynamicNetwork, columns: Sequence[_Column]) -> None:
    size = _style.TEXT_SIZE
    for column in columns if len(network.groups) > 1 else ():
        room = column.right - column.left
        words = _style.shortened(f"{len(column.groups)} more groups", size, room)
        if len(column.groups) == 1:
            words = group_label(network, column.groups[0], size, room)
        middle = 0.5 * (column.left + column.right)
        write(ax, middle, 0.5 * _FOOT, words, size=size, color=_style.dark(column.colour))


def _in_words(counts: Counter[str]) -> str:
    """Numbers of nodes by their kind: 6 leaves, 2 products."""
    return ", ".join(_style.counted(counts[kind], kind) for kind in sorted(counts))


def _inner_kinds(nodes: Iterable[Node]) -> Counter[str]:
    return Counter(kind_of(node) for node in nodes if not isinstance(node, Input))


def _draw_frame(ax: Axes, box: Box, face: str, edge: str, width: float = 1.0) -> None:
    left, bottom, right, upper = box
    patch = FancyBboxPatch((left, bottom), right - left, upper - bottom)
    patch.set_boxstyle("round", pad=0.0, rounding_size=5.0)
    patch.set(facecolor=face, edgecolor=edge, linewidth=width, zorder=3, gid="block")
    ax.add_patch(patch)


def _draw_block(
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
    _draw_frame(ax, box, _style.tint(colour, 0.22), *rim)
    middle, tall = 0.5 * (left + right), upper - bottom
    size = scale * _style.NODE_SIZE
    # What is too wide for one line is broken behind a comma.
    pieces = words.replace(", ", ",\n").split("\n")
    lines = _style.broken(pieces, size, right - left - 4.0)
    write(ax, middle, bottom + (0.66 if small else 0.5) * tall, lines, size=size)
    if small:
        size = scale * _style.SMALL_SIZE
        write(ax, middle, bottom + 0.27 * tall, small, size=size, color=_style.MUTED)


_Span = tuple[float, float, float]
"""Left and right end of a level line, and its height."""


def _draw_ribbon(ax: Axes, lower: _Span, upper: _Span, colour: str) -> None:
    """A pale band for many edges at once."""
    (left, right, bottom), (upper_left, upper_right, above) = lower, upper
    corners = [(left, bottom), (right, bottom), (upper_right, above), (upper_left, above)]
    _style.draw_polygons(ax, [corners], facecolor=_style.tint(colour, 0.16), zorder=1)


def _draw_fan(ax: Axes, below: Sequence[_Column], height: float, above: _Span) -> None:
    """Ribbons from the columns `below`, which end at a height, side by side to a line above."""
    left, right, upper = above
    ends = np.linspace(left, right, len(below) + 1).tolist()
    for column, start, end in zip(below, ends[:-1], ends[1:], strict=True):
        span = (column.left, column.right, height)
        _draw_ribbon(ax, span, (start, end, upper), column.colour)


def _draw_top(
    ax: Axes,
    network: DynamicNetwork,
    columns: Sequence[_Column],
    below: float,
    ends: Sequence[float],
) -> None:
    """The nodes of the top network in one block between two heights, joined to all columns."""
    bottom, upper = ends
    left, right = columns[0].left, columns[-1].right
    middle, reach = 0.5 * (left + right), min(90.0, 0.25 * (right - left))
    box = (middle - reach, bottom, middle + reach, upper)
    _draw_fan(ax, columns, below, (box[0], box[2], bottom))
    words = _in_words(_inner_kinds(network.top.nodes))
    _draw_block(ax, box, _style.LINE, words or "1 interface")
    write(ax, 4.0, 0.5 * (bottom + upper), "top network", color=_style.MUTED, ha="left")


def prepare(ax: Axes) -> tuple[float, float]:
    """Empties the axes and makes points their units; returns their width and height."""
    width, height = _style.size_in_points(ax)
    ax.set(xlim=(0.0, width), ylim=(0.0, height))
    ax.set_axis_off()
    return width, height


def draw_band(ax: Axes, ends: tuple[float, float], number: int, level: int) -> None:
    """The band of a slice between two heights, shaded at every other level, with its name."""
    bottom, upper = ends
    width = ax.get_xlim()[1]
    face = _style.PAPER if level % 2 == 0 else "white"
    _style.draw_rectangle(ax, (0.0, bottom, width, upper), facecolor=face, zorder=0, gid="slice")
    ax.hlines(ends, 0.0, width, colors=_style.FAINT, linewidths=0.6, zorder=0)
    middle, size = 0.5 * (bottom + upper), _style.TEXT_SIZE
    part = "bottom\nnetwork" if level == 0 else "template"
    write(ax, 4.0, middle + 2.0, f"slice {number}", size=size, ha="left", va="bottom")
    write(ax, 4.0, middle, part, color=_style.MUTED, ha="left", va="top")


def _slice_rows(num_slices: int) -> list[tuple[int | None, float]]:
    """Levels from the bottom up with their heights; None stands for all between the two ends."""
    levels: list[int | None] = list(range(num_slices))
    if num_slices > _MAX_ROWS:
        levels[2:-2] = [None]
    return [(level, _HIDDEN_ROW if level is None else _SLICE_ROW) for level in levels]


def unrolled_size(network: DynamicNetwork, num_slices: int) -> tuple[float, float]:
    """Width and height in inches of the blocks of an unrolled network."""
    height = sum(tall for _, tall in _slice_rows(num_slices)) + _TOP_ROW + _foot(network)
    return (8.0 if len(network.groups) == 1 else 10.0), height / 72.0


def draw_unrolled_blocks(ax: Axes, network: DynamicNetwork, num_slices: int) -> None:
    """The slices from the bottom network up; of many the first two and the last two."""
    width, height = prepare(ax)
    rows = _slice_rows(num_slices)
    bottom = _foot(network)
    scale = (height - bottom) / (sum(tall for _, tall in rows) + _TOP_ROW)
    columns = _columns(network, _LABEL, width - _MARGIN)
    below = None
    for level, tall in rows:
        upper = bottom + scale * tall
        if level is None:
            words = f"… {num_slices - 4:,} more\n{_style.plural('slice')}"
            write(ax, 4.0, 0.5 * (bottom + upper), words, color=_style.MUTED, ha="left")
        else:
            draw_band(ax, (bottom, upper), slice_number(network, level, num_slices), level)
            pad = 0.24 * (upper - bottom)
            for column in columns:
                if below is not None:
                    read = _read_columns(network, columns, column)
                    _draw_fan(ax, read, below, (column.left, column.right, bottom + pad))
                _draw_slice(ax, network, column, (bottom + pad, upper - pad), level)
            below = upper - pad
        bottom = upper
    assert below is not None
    ends = (bottom + 0.25 * (height - bottom), height - 0.12 * (height - bottom))
    _draw_top(ax, network, columns, below, ends)
    _label_groups(ax, network, columns)


def _read_columns(
    network: DynamicNetwork, columns: Sequence[_Column], reader: _Column
) -> list[_Column]:
    """The columns with a group that a group of the reader reads one slice below."""
    sources = {source for group in reader.groups for source in network.group_sources[group]}
    return [column for column in columns if sources.intersection(column.groups)]


def _draw_slice(
    ax: Axes, network: DynamicNetwork, column: _Column, ends: tuple[float, float], level: int
) -> None:
    """The block of one column in one slice: its interfaces, and its other nodes in small type."""
    below = nodes_below(network, column.groups)
    # The template, which is never smaller than the bottom network, sets the type size of both.
    widest = _in_words(_inner_kinds(network.template.nodes[i] for i in below))
    room = column.right - column.left - 8.0
    width = max(_style.text_width(widest, _style.SMALL_SIZE), 1.0)
    scale = max(min(1.0, room / width), _SMALLEST_SCALE)
    small = widest
    if level == 0:
        bottom = bottom_nodes(network.template)
        small = _in_words(_inner_kinds(bottom[i] for i in below))
    words = _style.counted(sum(len(network.groups[g]) for g in column.groups), "interface")
    small = _style.shortened(small, scale * _style.SMALL_SIZE, room)
    box = (column.left, ends[0], column.right, ends[1])
    _draw_block(ax, box, column.colour, words, small=small, interface=True, scale=scale)


def template_size(network: DynamicNetwork, *, top: bool) -> tuple[float, float]:
    """Width and height in inches of the blocks of a template."""
    lines = max(len(group_variables(network, group)) for group in range(len(network.groups)))
    height = max(4.2, 2.4 + min(lines, _MAX_LINES) * _LINE / 72.0)
    return (9.0 if len(network.groups) == 1 else 12.0), height + (_TOP / 72.0 if top else 0.0)


def draw_template_blocks(ax: Axes, network: DynamicNetwork, *, top: bool) -> None:
    """Inputs and leaves at the bottom of each column and its outputs on top."""
    width, height = prepare(ax)
    ceiling = height - (_TOP if top else 4.0)
    columns = _columns(network, 0.0, width)
    parts = [_TemplateColumn(ax, network, column, ceiling) for column in columns]
    for part in parts:
        part.draw()
    if top:
        strip = (0.0, ceiling + 14.0, width, height)
        _style.draw_rectangle(ax, strip, facecolor=_style.PAPER, zorder=0, gid="top")
        upper = height - 14.0
        _draw_top(ax, network, columns, ceiling, (upper - _BLOCK, upper))
    _label_groups(ax, network, columns)
    if any(part.summary.mixes for part in parts):
        key = _style.broken(_KEY.split(), _style.SMALL_SIZE, width)
        write(ax, 0.5 * width, -4.0, key, color=_style.MUTED, va="top")


@final
class _TemplateColumn:
    """The blocks of one column: leaves on the left, inputs and mix on the right, outputs across."""

    def __init__(self, ax: Axes, network: DynamicNetwork, column: _Column, ceiling: float) -> None:
        self.ax, self.network, self.ceiling = ax, network, ceiling
        self.groups, self.colour, self.left, self.right = column
        self.summary = summarise(network, column.groups)
        self.centre = 0.5 * (self.left + self.right)
        self.base = 10.0 if len(network.groups) == 1 else _FOOT + 6.0
        self.scale = float(np.clip((self.right - self.left) / 230.0, 0.5, 1.0))

    def _block(self, box: Box, words: str, *, small: str = "", interface: bool = False) -> None:
        _draw_block(
            self.ax, box, self.colour, words, small=small, interface=interface, scale=self.scale
        )

    def _write(self, x: float, y: float, words: str) -> None:
        write(self.ax, x, y, words, size=self.scale * _style.NODE_SIZE)

    def draw(self) -> None:
        """Outputs first, then down from there."""
        left, right, summary = self.left, self.right, self.summary
        kinds = summary.outputs
        small = _style.plural(next(iter(kinds))) if len(kinds) == 1 else _in_words(kinds)
        floor = self.ceiling - _OUTPUTS
        words = _style.counted(summary.num_inputs, "output")
        self._block((left, floor, right, self.ceiling), words, small=small, interface=True)
        if summary.joining:
            upper = floor - _GAP
            self._block((left, upper - _BLOCK, right, upper), _in_words(summary.joining))
            _draw_ribbon(self.ax, (left, right, upper), (left, right, floor), self.colour)
            floor = upper - _BLOCK
        self._draw_leaves(left, self.centre - 10.0, floor)
        self._draw_mix(self.centre + 10.0, right, floor)

    def _draw_leaves(self, left: float, right: float, ceiling: float) -> None:
        """Leaves by variable as a list with bars; above it the nodes over leaves alone."""
        alone = _in_words(self.summary.alone)
        room = ceiling - self.base - (_BLOCK + _GAP if alone else 0.0) - _HEADING - _PADDING
        lines = self._leaf_lines(max(min(int(room / _LINE), _MAX_LINES), 1))
        upper = self.base + _HEADING + _LINE * len(lines) + _PADDING
        _draw_frame(self.ax, (left, self.base, right, upper), "white", self.colour)
        total = _style.counted(sum(count for _, count in lines), "leaf")
        self._write(0.5 * (left + right), upper - 12.0, total)
        for number, (name, count) in enumerate(lines):
            y = upper - _HEADING - _LINE * (number + 0.5)
            self._draw_leaf_line(left, right, y, name, count)
        if alone:
            box = (left, upper + _GAP, right, upper + _GAP + _BLOCK)
            _draw_ribbon(self.ax, (left, right, upper), (left, right, box[1]), self.colour)
            self._block(box, alone)
            upper = box[3]
        _draw_ribbon(self.ax, (left, right, upper), (left, self.centre, ceiling), self.colour)

    def _leaf_lines(self, most: int) -> list[tuple[str, int]]:
        """Variables with their numbers of leaves; the last line adds up those that do not fit."""
        names = self.network.schema.names
        lines = [(names[v], self.summary.leaves[v]) for v in sorted(self.summary.leaves)]
        rest = lines[most - 1 :]
        if len(rest) > 1:
            lines[most - 1 :] = [(f"… {len(rest)} more", sum(count for _, count in rest))]
        return lines

    def _draw_leaf_line(self, left: float, right: float, y: float, name: str, count: int) -> None:
        """Name, bar and number; a line that adds up several variables has no bar."""
        share = count / max(self.summary.leaves.values())
        middle = 0.52 * (right - left)
        size, margin = self.scale * _style.SMALL_SIZE, self.scale * 8.0
        style = {"size": size, "color": _style.INK if share <= 1.0 else _style.MUTED}
        words = _style.shortened(name, size, middle - margin)
        write(self.ax, left + margin, y, words, ha="left", **style)
        write(self.ax, right - margin, y, f"{count:,}", ha="right", **style)
        if share <= 1.0:
            number = _style.text_width(f"{count:,}", size)
            room = min(0.28 * (right - left), right - left - middle - margin - number - 3.0)
            start = left + middle
            bar = (start, y - 3.0, start + max(0.0, room) * share, y + 3.0)
            _style.draw_rectangle(self.ax, bar, facecolor=_style.tint(self.colour, 0.55), zorder=4)

    def _draw_mix(self, left: float, right: float, ceiling: float) -> None:
        """Inputs, and above them the mix; groups that begin afresh read none."""
        upper = self.base + _BLOCK
        words = _style.counted(self.summary.num_inputs, "input")
        self._block((left, self.base, right, upper), words, interface=True)
        sources = sorted({s for group in self.groups for s in self.network.group_sources[group]})
        above = (self.centre, self.right, ceiling)
        if self.summary.mixes:
            square = self._draw_picture(left, right, upper + _CAPTION, ceiling - _GAP)
            if square is not None:
                _draw_ribbon(self.ax, (square[0], square[2], square[3]), above, self.colour)
                above = (square[0], square[2], square[1])
            read = sum(len(self.network.groups[source]) for source in sources)
            words = f"{len(self.summary.mixes):,} × {read:,} mix"
            if len(sources) > 1 and len(self.groups) == 1:
                words += f" of groups {', '.join(map(str, sources))}"
            self._write(0.5 * (left + right), upper + 0.5 * _CAPTION, words)
        if set(self.groups).intersection(sources):
            _draw_ribbon(self.ax, (left, right, upper), above, self.colour)

    def _draw_picture(self, left: float, right: float, bottom: float, ceiling: float) -> Box | None:
        """The weights of the mix in a square that fits between, if it is large enough to see."""
        side = min(right - left, ceiling - bottom)
        if side < _SMALLEST_PICTURE:
            return None
        start = 0.5 * (left + right - side)
        box = (start, bottom, start + side, bottom + side)
        weights = np.sqrt(mix_picture(self.network, self.summary.mixes))
        limits = {"xlim": self.ax.get_xlim(), "ylim": self.ax.get_ylim()}
        image = self.ax.imshow(weights, cmap=_style.shades(self.colour), vmin=0.0, aspect="auto")
        image.set(extent=(box[0], box[2], box[1], box[3]), interpolation="antialiased")
        image.set(zorder=3, gid="mix")
        self.ax.set(**limits)
        rim = {"facecolor": "none", "edgecolor": self.colour, "linewidth": 1.0, "zorder": 4}
        _style.draw_rectangle(self.ax, box, **rim)
        return box
