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

from dspn._arguments import Floats
from dspn.plotting import _style
from dspn.plotting._graph import kind_of, nodes_below, reads_input, slice_number
from dspn.plotting._style import Box, counted, new_axes, write
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Input, Leaf, Node, Product, Sum, children_of
from dspn.structure.parameters import pooled_weights
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

_Ends = tuple[float, float]
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
    reads = reads_input(network.template)
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
        # Where weights depend on an input, the mean of their tables is shown.
        weights = pooled_weights(template, network.parameters.template.weights, index)
        weights = weights / template.num_tables(template.nodes[index])
        np.add.at(total[down[place]], across[np.searchsorted(read, reads[index])], weights)
    mean: Floats = total / np.outer(np.bincount(down), np.bincount(across))
    return mean


def group_label(network: DynamicNetwork, group: int, size: float, room: float) -> str:
    """The number of a group with as many of its variables as there is room for."""
    start = f"group {group}"
    names = ", ".join(network.schema.names[v] for v in network.group_variables[group])
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
        self, ax: Axes, network: DynamicNetwork, groups: Sequence[int], ends: _Ends, colour: str
    ) -> None:
        self.ax, self.network, self.groups, self.colour = ax, network, groups, colour
        self.left, self.right = ends
        self.centre = 0.5 * (self.left + self.right)
        self.base = 10.0 if len(network.groups) == 1 else _FOOT + 6.0
        self.scale = float(np.clip((self.right - self.left) / 230.0, 0.5, 1.0))
        self.sources = sorted({s for group in groups for s in network.group_sources[group]})
        self.summary = summarise(network, groups)

    def frame(self, box: Box, face: str, edge: str, width: float = 1.0) -> None:
        """A rounded frame."""
        left, bottom, right, upper = box
        patch = FancyBboxPatch((left, bottom), right - left, upper - bottom)
        patch.set_boxstyle("round", pad=0.0, rounding_size=5.0)
        patch.set(facecolor=face, edgecolor=edge, linewidth=width, zorder=3, gid="block")
        self.ax.add_patch(patch)

    def block(self, box: Box, words: str, small: str = "", rim: str = "") -> None:
        """A rounded block with a count in it; a rim in the red of the interface is wider."""
        left, bottom, right, upper = box
        edge = (rim, 2.0) if rim else (self.colour, 1.0)
        self.frame(box, _style.tint(self.colour, 0.22), *edge)
        middle, tall, size = 0.5 * (left + right), upper - bottom, self.scale * _style.NODE_SIZE
        # What is too wide for one line is broken behind a comma.
        pieces = words.replace(", ", ",\n").split("\n")
        lines = _style.broken(pieces, size, right - left - 4.0)
        write(self.ax, middle, bottom + (0.66 if small else 0.5) * tall, lines, size=size)
        if small:
            style = {"size": self.scale * _style.SMALL_SIZE, "color": _style.MUTED}
            write(self.ax, middle, bottom + 0.27 * tall, small, **style)

    def ribbon(self, lower: _Span, upper: _Span) -> None:
        """A pale band for many edges at once."""
        (left, right, bottom), (upper_left, upper_right, above) = lower, upper
        corners = [(left, bottom), (right, bottom), (upper_right, above), (upper_left, above)]
        face = _style.tint(self.colour, 0.16)
        _style.draw_polygons(self.ax, [corners], facecolor=face, zorder=1)

    def draw_slice(self, bottom: float, upper: float, level: int) -> None:
        """One block for a slice: its interfaces, and its other nodes in small type."""
        template = self.network.template
        below = nodes_below(self.network, self.groups)
        # The template, which is never smaller than the bottom network, sets the type size of both.
        widest = _kinds(template.nodes[i] for i in below)
        room = self.right - self.left - 8.0
        width = max(_style.text_width(widest, _style.SMALL_SIZE), 1.0)
        self.scale = max(min(1.0, room / width), _SMALLEST_SCALE)
        nodes = bottom_nodes(template) if level == 0 else template.nodes
        size = self.scale * _style.SMALL_SIZE
        small = _style.shortened(_kinds(nodes[i] for i in below), size, room)
        words = counted(sum(len(self.network.groups[group]) for group in self.groups), "interface")
        self.block((self.left, bottom, self.right, upper), words, small, _style.INTERFACE)

    def draw_template(self, ceiling: float) -> None:
        """Leaves on the left, inputs and mix on the right, outputs across."""
        left, right, summary = self.left, self.right, self.summary
        kinds = summary.outputs
        small = _style.plural(next(iter(kinds))) if len(kinds) == 1 else _in_words(kinds)
        floor = ceiling - _OUTPUTS
        words = counted(summary.num_inputs, "output")
        self.block((left, floor, right, ceiling), words, small, _style.INTERFACE)
        if summary.joining:
            upper = floor - _GAP
            self.block((left, upper - _BLOCK, right, upper), _in_words(summary.joining))
            self.ribbon((left, right, upper), (left, right, floor))
            floor = upper - _BLOCK
        self._draw_leaves(floor)
        self._draw_mix(floor)

    def _draw_leaves(self, ceiling: float) -> None:
        """Leaves by variable as a list with bars; above it the nodes over leaves alone.

        A line that adds up several variables has no bar.
        """
        ax, base, left, right = self.ax, self.base, self.left, self.centre - 10.0
        alone, leaves = _in_words(self.summary.alone), self.summary.leaves
        room = ceiling - base - (_BLOCK + _GAP if alone else 0.0) - _HEADING - _PADDING
        most = max(min(int(room / _LINE), _MAX_LINES), 1)
        names = self.network.schema.names
        lines = [(names[variable], leaves[variable]) for variable in sorted(leaves)]
        rest = lines[most - 1 :]
        if len(rest) > 1:
            lines[most - 1 :] = [(f"… {len(rest)} more", sum(count for _, count in rest))]
        upper = base + _HEADING + _LINE * len(lines) + _PADDING
        self.frame((left, base, right, upper), "white", self.colour)
        total, size = counted(sum(leaves.values()), "leaf"), self.scale * _style.NODE_SIZE
        write(ax, 0.5 * (left + right), upper - 12.0, total, size=size)
        middle, size, margin = 0.52 * (right - left), self.scale * _style.SMALL_SIZE, self.scale * 8
        for line, (name, count) in enumerate(lines):
            y = upper - _HEADING - _LINE * (line + 0.5)
            share, number = count / max(leaves.values()), f"{count:,}"
            style = {"size": size, "color": _style.INK if share <= 1.0 else _style.MUTED}
            words = _style.shortened(name, size, middle - margin)
            write(ax, left + margin, y, words, ha="left", **style)
            write(ax, right - margin, y, number, ha="right", **style)
            if share <= 1.0:
                taken = middle + margin + _style.text_width(number, size) + 3.0
                longest = max(0.0, min(0.28 * (right - left), right - left - taken))
                bar = (left + middle, y - 3.0, left + middle + longest * share, y + 3.0)
                face = _style.tint(self.colour, 0.55)
                _style.draw_rectangle(ax, bar, facecolor=face, zorder=4)
        if alone:
            box = (left, upper + _GAP, right, upper + _GAP + _BLOCK)
            self.ribbon((left, right, upper), (left, right, box[1]))
            self.block(box, alone)
            upper = box[3]
        self.ribbon((left, right, upper), (left, self.centre, ceiling))

    def _draw_mix(self, ceiling: float) -> None:
        """Inputs, and above them the mix; groups that begin afresh read none."""
        left, right, upper = self.centre + 10.0, self.right, self.base + _BLOCK
        words = counted(self.summary.num_inputs, "input")
        self.block((left, self.base, right, upper), words, rim=_style.INTERFACE)
        above = (self.centre, right, ceiling)
        if self.summary.mixes:
            bottom = upper + _CAPTION
            side = min(right - left, ceiling - _GAP - bottom)
            if side >= _SMALLEST_PICTURE:
                start = 0.5 * (left + right - side)
                self._draw_picture((start, bottom, start + side, bottom + side))
                self.ribbon((start, start + side, bottom + side), above)
                above = (start, start + side, bottom)
            read = sum(len(self.network.groups[source]) for source in self.sources)
            words = f"{len(self.summary.mixes):,} × {read:,} mix"
            if len(self.sources) > 1 and len(self.groups) == 1:
                words += f" of groups {', '.join(map(str, self.sources))}"
            middle, size = 0.5 * (left + right), self.scale * _style.NODE_SIZE
            write(self.ax, middle, upper + 0.5 * _CAPTION, words, size=size)
        if set(self.groups).intersection(self.sources):
            self.ribbon((left, right, upper), above)

    def _draw_picture(self, box: Box) -> None:
        """The weights of the mix, darker for larger ones."""
        weights = np.sqrt(mix_picture(self.network, self.summary.mixes))
        limits = {"xlim": self.ax.get_xlim(), "ylim": self.ax.get_ylim()}
        cmap = _style.shades(self.colour)
        image = self.ax.imshow(weights, cmap=cmap, vmin=0.0, aspect="auto", zorder=3, gid="mix")
        image.set(extent=(box[0], box[2], box[1], box[3]), interpolation="antialiased")
        self.ax.set(**limits)
        rim: _style.Style = {"facecolor": "none", "edgecolor": self.colour, "linewidth": 1.0}
        _style.draw_rectangle(self.ax, box, zorder=4, **rim)


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
        columns.append(_Column(ax, network, groups, (middle - reach, middle + reach), colour))
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
    top = _Column(ax, network, (), (middle - reach, middle + reach), _style.LINE)
    words = _kinds(network.top.nodes) or "1 interface"
    top.scale = 1.0
    top.block((top.left, bottom, top.right, upper), words)
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
                column.draw_slice(bottom + pad, upper - pad, level)
                if level > 0:
                    read = [own for own in columns if set(column.sources).intersection(own.groups)]
                    _draw_fan(read, below, (column.left, column.right, bottom + pad))
            below = upper - pad
        bottom = upper
    rest = height - bottom
    box = (_LABEL, bottom + 0.25 * rest, width - _MARGIN, height - 0.12 * rest)
    _draw_top(network, columns, below, box)
    return ax


def draw_template_blocks(ax: Axes | None, network: DynamicNetwork, *, top: bool) -> Axes:
    """Inputs and leaves at the bottom of each column and its outputs on top."""
    count = len(network.groups)
    if ax is None:
        lines = max(map(len, network.group_variables))
        height = max(4.2, 2.4 + min(lines, _MAX_LINES) * _LINE / 72.0) + _TOP / 72.0 * top
        ax = new_axes(9.0 if count == 1 else 12.0, height)
    width, height = prepare(ax)
    ceiling = height - (_TOP if top else 4.0)
    columns = _columns(ax, network, 0.0, width)
    for column in columns:
        column.draw_template(ceiling)
    if top:
        strip = (0.0, ceiling + 14.0, width, height)
        _style.draw_rectangle(ax, strip, facecolor=_style.PAPER, zorder=0, gid="top")
        box = (0.0, height - 14.0 - _BLOCK, width, height - 14.0)
        _draw_top(network, columns, ceiling, box)
    if any(column.summary.mixes for column in columns):
        key = _style.broken(_KEY.split(), _style.SMALL_SIZE, width)
        write(ax, 0.5 * width, -4.0, key, color=_style.MUTED, va="top")
    return ax
