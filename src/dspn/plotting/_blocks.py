"""Draws networks too large for single nodes: blocks with counts, ribbons for many edges at once.

A template shows the parts of each group with a picture of the weights of its mix; an unrolled
network shows a row of blocks for each slice. Both have a column for each of the first groups.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from dspn._arrays import Floats
from dspn.plotting import _style
from dspn.plotting._graph import group_variables, kind_of, nodes_below, reads_input, slice_number
from dspn.plotting._style import Box, counted, new_axes, write
from dspn.structure import DynamicNetwork, Input, Leaf, Product, Sum
from dspn.structure.nodes import Node, children_of
from dspn.structure.validity import bottom_nodes

_FINEST, _MAX_GROUPS, _MAX_LINES, _MAX_ROWS = 128, 4, 16, 5
# Lengths in points.
_LABEL, _MARGIN, _FOOT = 74.0, 12.0, 28.0
_TOP, _OUTPUTS, _BLOCK, _CAPTION, _GAP = 84.0, 38.0, 30.0, 40.0, 18.0
_HEADING, _LINE, _PADDING = 24.0, 13.0, 5.0
_SLICE_ROW, _HIDDEN_ROW, _TOP_ROW = 86.0, 44.0, 62.0
_SMALLEST_PICTURE, _SMALLEST_SCALE = 16.0, 0.7
_KEY: Final = (
    "Mix: a row for each sum, a column for each input it reads; darker is a larger weight."
)

_Span = tuple[float, float, float]
"""Left and right end of a level line, and its height."""


@final
class GroupSummary(NamedTuple):
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


def group_label(network: DynamicNetwork, group: int, size: float, room: float) -> str:
    """The number of a group with as many of its variables as there is room for."""
    start = f"group {group}"
    names = ", ".join(network.schema.names[v] for v in group_variables(network, group))
    words = _style.shortened(f"{start}: {names}", size, room)
    return start if words.endswith("…") and len(words) <= len(start) + 3 else words


def _in_words(counts: Counter[str]) -> str:
    """Numbers of nodes by their kind: 6 leaves, 2 products."""
    return ", ".join(counted(counts[kind], kind) for kind in sorted(counts))


def _kinds(nodes: Iterable[Node]) -> str:
    """Numbers of the nodes that are not inputs, in words."""
    return _in_words(Counter(kind_of(node) for node in nodes if not isinstance(node, Input)))


@final
class _Column:
    """Room for the blocks of one group, or of all groups that are left in the last column."""

    def __init__(
        self, ax: Axes, groups: Sequence[int], left: float, right: float, colour: str
    ) -> None:
        self.ax, self.groups, self.colour = ax, groups, colour
        self.left, self.right, self.centre = left, right, 0.5 * (left + right)

    def frame(self, box: Box, face: str, edge: str, width: float = 1.0) -> None:
        """A rounded frame."""
        left, bottom, right, upper = box
        patch = FancyBboxPatch((left, bottom), right - left, upper - bottom)
        patch.set_boxstyle("round", pad=0.0, rounding_size=5.0)
        patch.set(facecolor=face, edgecolor=edge, linewidth=width, zorder=3, gid="block")
        self.ax.add_patch(patch)

    def block(self, box: Box, words: str, scale: float, small: str = "", rim: str = "") -> None:
        """A rounded block with a count in it; a rim in the red of the interface is wider."""
        left, bottom, right, upper = box
        edge = (rim, 2.0) if rim else (self.colour, 1.0)
        self.frame(box, _style.tint(self.colour, 0.22), *edge)
        middle, tall = 0.5 * (left + right), upper - bottom
        size = scale * _style.NODE_SIZE
        # What is too wide for one line is broken behind a comma.
        pieces = words.replace(", ", ",\n").split("\n")
        lines = _style.broken(pieces, size, right - left - 4.0)
        write(self.ax, middle, bottom + (0.66 if small else 0.5) * tall, lines, size=size)
        if small:
            style = {"size": scale * _style.SMALL_SIZE, "color": _style.MUTED}
            write(self.ax, middle, bottom + 0.27 * tall, small, **style)

    def ribbon(self, lower: _Span, upper: _Span) -> None:
        """A pale band for many edges at once."""
        (left, right, bottom), (upper_left, upper_right, above) = lower, upper
        corners = [(left, bottom), (right, bottom), (upper_right, above), (upper_left, above)]
        face = _style.tint(self.colour, 0.16)
        _style.draw_polygons(self.ax, [corners], facecolor=face, zorder=1)


def _columns(ax: Axes, network: DynamicNetwork, left: float, right: float) -> list[_Column]:
    """A column for each group, labelled at the foot where there are several."""
    count = min(len(network.groups), _MAX_GROUPS)
    room = (right - left) / count
    reach, size = min(0.46 * room, 250.0), _style.TEXT_SIZE
    columns = []
    for number in range(count):
        groups = range(number, number + 1 if number < count - 1 else len(network.groups))
        colour = _style.group_colour(number if len(groups) == 1 else None)
        middle = left + room * (number + 0.5)
        columns.append(_Column(ax, groups, middle - reach, middle + reach, colour))
        words = _style.shortened(f"{len(groups)} more groups", size, 2 * reach)
        if len(groups) == 1:
            words = group_label(network, number, size, 2 * reach)
        if count > 1:
            write(ax, middle, 0.5 * _FOOT, words, size=size, color=_style.dark(colour))
    return columns


def _draw_fan(below: Sequence[_Column], height: float, above: _Span) -> None:
    """Ribbons from the columns `below`, which end at a height, side by side to a line above."""
    left, right, upper = above
    ends = np.linspace(left, right, len(below) + 1).tolist()
    for column, start, end in zip(below, ends[:-1], ends[1:], strict=True):
        column.ribbon((column.left, column.right, height), (start, end, upper))


def _draw_top(network: DynamicNetwork, columns: Sequence[_Column], below: float, box: Box) -> None:
    """The nodes of the top network in one block of a height, joined to all columns below it."""
    left, bottom, right, upper = box
    middle, reach = 0.5 * (left + right), min(90.0, 0.25 * (right - left))
    ax = columns[0].ax
    _draw_fan(columns, below, (middle - reach, middle + reach, bottom))
    top = _Column(ax, (), middle - reach, middle + reach, _style.LINE)
    words = _kinds(network.top.nodes) or "1 interface"
    top.block((top.left, bottom, top.right, upper), words, 1.0)
    write(ax, 4.0, 0.5 * (bottom + upper), "top network", color=_style.MUTED, ha="left")


def prepare(ax: Axes) -> tuple[float, float]:
    """Makes points the units of the axes and hides their frame; returns width and height."""
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


def draw_unrolled_blocks(ax: Axes | None, network: DynamicNetwork, num_slices: int) -> Axes:
    """The slices from the bottom network up; of many the first two and the last two."""
    levels: list[int | None] = list(range(num_slices))
    if num_slices > _MAX_ROWS:
        levels[2:-2] = [None]
    rows = [_HIDDEN_ROW if level is None else _SLICE_ROW for level in levels]
    single = len(network.groups) == 1
    bottom = 0.0 if single else _FOOT
    total = sum(rows) + _TOP_ROW
    ax = new_axes(8.0 if single else 10.0, (total + bottom) / 72.0) if ax is None else ax
    width, height = prepare(ax)
    scale = (height - bottom) / total
    columns = _columns(ax, network, _LABEL, width - _MARGIN)
    below = bottom
    for level, row in zip(levels, rows, strict=True):
        upper = bottom + scale * row
        if level is None:
            words = f"… {num_slices - 4:,} more\nslices"
            write(ax, 4.0, 0.5 * (bottom + upper), words, color=_style.MUTED, ha="left")
        else:
            draw_band(ax, (bottom, upper), slice_number(network, level, num_slices), level)
            pad = 0.24 * (upper - bottom)
            for column in columns:
                box = (column.left, bottom + pad, column.right, upper - pad)
                _draw_slice(network, column, box, level)
                sources = {s for group in column.groups for s in network.group_sources[group]}
                if level > 0:
                    read = [own for own in columns if sources.intersection(own.groups)]
                    _draw_fan(read, below, (column.left, column.right, bottom + pad))
            below = upper - pad
        bottom = upper
    rest = height - bottom
    _draw_top(
        network,
        columns,
        below,
        (_LABEL, bottom + 0.25 * rest, width - _MARGIN, height - 0.12 * rest),
    )
    return ax


def _draw_slice(network: DynamicNetwork, column: _Column, box: Box, level: int) -> None:
    """The block of one column in one slice: its interfaces, and its other nodes in small type."""
    below = nodes_below(network, column.groups)
    # The template, which is never smaller than the bottom network, sets the type size of both.
    widest = _kinds(network.template.nodes[i] for i in below)
    room = column.right - column.left - 8.0
    width = max(_style.text_width(widest, _style.SMALL_SIZE), 1.0)
    scale = max(min(1.0, room / width), _SMALLEST_SCALE)
    nodes = bottom_nodes(network.template) if level == 0 else network.template.nodes
    small = _style.shortened(_kinds(nodes[i] for i in below), scale * _style.SMALL_SIZE, room)
    words = counted(sum(len(network.groups[group]) for group in column.groups), "interface")
    column.block(box, words, scale, small, _style.INTERFACE)


def draw_template_blocks(ax: Axes | None, network: DynamicNetwork, *, top: bool) -> Axes:
    """Inputs and leaves at the bottom of each column and its outputs on top."""
    count = len(network.groups)
    if ax is None:
        lines = max(len(group_variables(network, group)) for group in range(count))
        height = max(4.2, 2.4 + min(lines, _MAX_LINES) * _LINE / 72.0) + _TOP / 72.0 * top
        ax = new_axes(9.0 if count == 1 else 12.0, height)
    width, height = prepare(ax)
    ceiling = height - (_TOP if top else 4.0)
    columns = _columns(ax, network, 0.0, width)
    parts = [_TemplateColumn(network, column) for column in columns]
    for part in parts:
        part.draw(ceiling)
    if top:
        strip = (0.0, ceiling + 14.0, width, height)
        _style.draw_rectangle(ax, strip, facecolor=_style.PAPER, zorder=0, gid="top")
        box = (0.0, height - 14.0 - _BLOCK, width, height - 14.0)
        _draw_top(network, columns, ceiling, box)
    if any(part.summary.mixes for part in parts):
        key = _style.broken(_KEY.split(), _style.SMALL_SIZE, width)
        write(ax, 0.5 * width, -4.0, key, color=_style.MUTED, va="top")
    return ax


@final
class _TemplateColumn:
    """The blocks of one column: leaves on the left, inputs and mix on the right, outputs across."""

    def __init__(self, network: DynamicNetwork, column: _Column) -> None:
        self.network, self.column, self.ax = network, column, column.ax
        self.summary = summarise(network, column.groups)
        self.base = 10.0 if len(network.groups) == 1 else _FOOT + 6.0
        self.scale = float(np.clip((column.right - column.left) / 230.0, 0.5, 1.0))

    def draw(self, ceiling: float) -> None:
        """Outputs first, then down from there."""
        column, summary = self.column, self.summary
        left, right = column.left, column.right
        kinds = summary.outputs
        small = _style.plural(next(iter(kinds))) if len(kinds) == 1 else _in_words(kinds)
        floor = ceiling - _OUTPUTS
        words = counted(summary.num_inputs, "output")
        column.block((left, floor, right, ceiling), words, self.scale, small, _style.INTERFACE)
        if summary.joining:
            upper = floor - _GAP
            box = (left, upper - _BLOCK, right, upper)
            column.block(box, _in_words(summary.joining), self.scale)
            column.ribbon((left, right, upper), (left, right, floor))
            floor = upper - _BLOCK
        self._draw_leaves(left, column.centre - 10.0, floor)
        self._draw_mix(column.centre + 10.0, right, floor)

    def _draw_leaves(self, left: float, right: float, ceiling: float) -> None:
        """Leaves by variable as a list with bars; above it the nodes over leaves alone."""
        alone = _in_words(self.summary.alone)
        room = ceiling - self.base - (_BLOCK + _GAP if alone else 0.0) - _HEADING - _PADDING
        most = max(min(int(room / _LINE), _MAX_LINES), 1)
        names, leaves = self.network.schema.names, self.summary.leaves
        lines = [(names[variable], leaves[variable]) for variable in sorted(leaves)]
        rest = lines[most - 1 :]
        if len(rest) > 1:
            lines[most - 1 :] = [(f"… {len(rest)} more", sum(count for _, count in rest))]
        upper = self.base + _HEADING + _LINE * len(lines) + _PADDING
        self.column.frame((left, self.base, right, upper), "white", self.column.colour)
        total = counted(sum(leaves.values()), "leaf")
        size = self.scale * _style.NODE_SIZE
        write(self.ax, 0.5 * (left + right), upper - 12.0, total, size=size)
        for number, (name, count) in enumerate(lines):
            y = upper - _HEADING - _LINE * (number + 0.5)
            self._draw_leaf_line(left, right, y, name, count)
        if alone:
            box = (left, upper + _GAP, right, upper + _GAP + _BLOCK)
            self.column.ribbon((left, right, upper), (left, right, box[1]))
            self.column.block(box, alone, self.scale)
            upper = box[3]
        self.column.ribbon((left, right, upper), (left, self.column.centre, ceiling))

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
            start, face = left + middle, _style.tint(self.column.colour, 0.55)
            bar = (start, y - 3.0, start + max(0.0, room) * share, y + 3.0)
            _style.draw_rectangle(self.ax, bar, facecolor=face, zorder=4)

    def _draw_mix(self, left: float, right: float, ceiling: float) -> None:
        """Inputs, and above them the mix; groups that begin afresh read none."""
        network, column = self.network, self.column
        upper = self.base + _BLOCK
        words = counted(self.summary.num_inputs, "input")
        column.block((left, self.base, right, upper), words, self.scale, rim=_style.INTERFACE)
        sources = sorted({s for group in column.groups for s in network.group_sources[group]})
        above = (column.centre, column.right, ceiling)
        if self.summary.mixes:
            bottom = upper + _CAPTION
            side = min(right - left, ceiling - _GAP - bottom)
            if side >= _SMALLEST_PICTURE:
                start = 0.5 * (left + right - side)
                self._draw_picture((start, bottom, start + side, bottom + side))
                column.ribbon((start, start + side, bottom + side), above)
                above = (start, start + side, bottom)
            read = sum(len(network.groups[source]) for source in sources)
            words = f"{len(self.summary.mixes):,} × {read:,} mix"
            if len(sources) > 1 and len(column.groups) == 1:
                words += f" of groups {', '.join(map(str, sources))}"
            size = self.scale * _style.NODE_SIZE
            write(self.ax, 0.5 * (left + right), upper + 0.5 * _CAPTION, words, size=size)
        if set(column.groups).intersection(sources):
            column.ribbon((left, right, upper), above)

    def _draw_picture(self, box: Box) -> None:
        """The weights of the mix, darker for larger ones."""
        weights = np.sqrt(mix_picture(self.network, self.summary.mixes))
        limits = {"xlim": self.ax.get_xlim(), "ylim": self.ax.get_ylim()}
        colour = self.column.colour
        image = self.ax.imshow(weights, cmap=_style.shades(colour), vmin=0.0, aspect="auto")
        image.set(extent=(box[0], box[2], box[1], box[3]), interpolation="antialiased")
        image.set(zorder=3, gid="mix")
        self.ax.set(**limits)
        rim: _style.Style = {"facecolor": "none", "edgecolor": colour, "linewidth": 1.0}
        _style.draw_rectangle(self.ax, box, zorder=4, **rim)
