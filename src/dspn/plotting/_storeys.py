"""Draws an unrolled network too large for single nodes: a row of blocks for each slice."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, final

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from dspn.plotting import _style
from dspn.plotting._blocks import Box, block, kinds_in_words, ribbon
from dspn.plotting._summary import group_variables
from dspn.plotting._unrolled import slice_number
from dspn.structure import DynamicNetwork, Input
from dspn.structure.nodes import Node, reachable
from dspn.structure.validity import bottom_nodes

_MAX_GROUPS: Final = 4
_MOST_SHOWN: Final = 5
_LABEL: Final = 74.0
_MARGIN: Final = 12.0
_ROW: Final = 86.0
_GAP_ROW: Final = 44.0
_TOP_ROW: Final = 62.0
_FOOT: Final = 26.0
_BLOCK_SHARE: Final = 0.52
_SMALLEST: Final = 0.7


def _shown_levels(num_slices: int) -> list[int | None]:
    """Levels of the stack from the bottom up; None stands for all between the two ends."""
    if num_slices <= _MOST_SHOWN:
        return list(range(num_slices))
    return [0, 1, None, num_slices - 2, num_slices - 1]


def _foot(network: DynamicNetwork) -> float:
    return _FOOT if len(network.groups) > 1 else 0.0


def _asked_heights(network: DynamicNetwork, num_slices: int) -> list[float]:
    """Points that each row asks for, from the bottom up, the top network last."""
    levels = _shown_levels(num_slices)
    rows = [_GAP_ROW if level is None else _ROW for level in levels]
    return [*rows, _TOP_ROW]


def storeys_size(network: DynamicNetwork, num_slices: int) -> tuple[float, float]:
    """Width and height in inches."""
    asked = sum(_asked_heights(network, num_slices)) + _foot(network)
    return (8.0 if len(network.groups) == 1 else 10.0), asked / 72.0


def draw_storeys(ax: Axes, network: DynamicNetwork, num_slices: int) -> None:
    """The slices from the bottom network up; of many the first two and the last two."""
    width, height = _style.size_in_points(ax)
    ax.set_xlim(0.0, width)
    ax.set_ylim(0.0, height)
    ax.set_axis_off()
    asked = _asked_heights(network, num_slices)
    scale = (height - _foot(network)) / sum(asked)
    columns = _columns(network, width)
    bottom, below = _foot(network), None
    for level, tall in zip(_shown_levels(num_slices), asked, strict=False):
        room = (bottom, bottom + scale * tall)
        if level is None:
            hidden = f"… {num_slices - 4:,} more\n{'slice' if num_slices == 5 else 'slices'}"
            _style.write(ax, 4.0, sum(room) / 2, hidden, colour=_style.MUTED, ha="left")
        else:
            number = slice_number(network, level, num_slices)
            draw_band(ax, room, number, level)
            storey = _Row(ax, network, columns, room, at_bottom=level == 0)
            storey.draw()
            _join(ax, network, below, storey.boxes)
            below = storey.boxes
        bottom = room[1]
    assert below is not None
    _draw_top(ax, network, below, (bottom, height), width)
    if len(network.groups) > 1:
        _label_groups(ax, network, columns)


def draw_band(ax: Axes, room: tuple[float, float], number: int, level: int) -> None:
    """The band of a slice between two heights, shaded at every other level, with its name."""
    bottom, upper = room
    width = ax.get_xlim()[1]
    band = Rectangle((0.0, bottom), width, upper - bottom)
    face = _style.PAPER if level % 2 == 0 else "white"
    band.set(facecolor=face, edgecolor="none", zorder=0, gid="slice")
    ax.add_patch(band)
    ax.hlines(room, 0.0, width, colors=_style.FAINT, linewidths=0.6, zorder=0)
    middle, size = 0.5 * (bottom + upper), _style.TEXT_SIZE
    said = "bottom\nnetwork" if level == 0 else "template"
    _style.write(ax, 4.0, middle + 2.0, f"slice {number}", size=size, ha="left", va="bottom")
    _style.write(ax, 4.0, middle, said, colour=_style.MUTED, ha="left", va="top")


def _columns(network: DynamicNetwork, width: float) -> list[tuple[float, float]]:
    """Left and right edge of each group's blocks; beyond four groups the last is all the rest."""
    count = min(len(network.groups), _MAX_GROUPS)
    room = (width - _LABEL - _MARGIN) / count
    gap = 0.06 * room if count > 1 else 0.15 * room
    lefts = [_LABEL + room * number for number in range(count)]
    return [(left + gap, left + room - gap) for left in lefts]


def _members(network: DynamicNetwork, column: int) -> range:
    """The groups in a column."""
    last = _MAX_GROUPS - 1
    if column < last or len(network.groups) <= _MAX_GROUPS:
        return range(column, column + 1)
    return range(last, len(network.groups))


def _colour(network: DynamicNetwork, column: int) -> str:
    return _style.group_colour(column if len(_members(network, column)) == 1 else None)


def _nodes_below(nodes: Sequence[Node], outputs: Sequence[int]) -> Counter[str]:
    """Nodes of the slice at or below its outputs, by kind; inputs belong to the slice below."""
    found = (nodes[index] for index in reachable(nodes, outputs))
    return Counter(type(node).__name__.lower() for node in found if not isinstance(node, Input))


@final
class _Row:
    """The blocks of one slice, one for each column of groups, on a band with its name."""

    def __init__(
        self,
        ax: Axes,
        network: DynamicNetwork,
        columns: Sequence[tuple[float, float]],
        room: tuple[float, float],
        *,
        at_bottom: bool,
    ) -> None:
        self.ax, self.network = ax, network
        self.at_bottom = at_bottom
        bottom, upper = room
        pad = 0.5 * (1.0 - _BLOCK_SHARE) * (upper - bottom)
        self.boxes: list[Box] = [
            (left, bottom + pad, right, upper - pad) for left, right in columns
        ]

    def draw(self) -> None:
        template = self.network.template
        nodes = bottom_nodes(template) if self.at_bottom else template.nodes
        for column, box in enumerate(self.boxes):
            positions = [p for g in _members(self.network, column) for p in self.network.groups[g]]
            self._draw_block(column, box, nodes, [template.outputs[p] for p in positions])

    def _draw_block(
        self, column: int, box: Box, nodes: Sequence[Node], outputs: Sequence[int]
    ) -> None:
        words = _style.counted(len(outputs), "interface")
        small = kinds_in_words(_nodes_below(nodes, outputs))
        # The template, which is never smaller than the bottom, sets the size of both.
        widest = kinds_in_words(_nodes_below(self.network.template.nodes, outputs))
        room = box[2] - box[0] - 8.0
        asked = max(_style.text_width(widest, _style.SMALL_SIZE), 1.0)
        scale = max(min(1.0, room / asked), _SMALLEST)
        small = _style.shortened(small, scale * _style.SMALL_SIZE, room)
        colour = _colour(self.network, column)
        block(self.ax, box, colour, words, small=small, interface=True, scale=scale)


def _join(
    ax: Axes, network: DynamicNetwork, below: Sequence[Box] | None, above: Sequence[Box]
) -> None:
    """Ribbons from each group to the groups that read it one slice above."""
    if below is None:
        return
    for column, upper in enumerate(above):
        members = _members(network, column)
        sources = {source for group in members for source in network.group_sources[group]}
        read = [
            number
            for number in range(len(below))
            if sources.intersection(_members(network, number))
        ]
        _fan(ax, network, below, read, (upper[0], upper[2], upper[1]))


def _fan(
    ax: Axes,
    network: DynamicNetwork,
    below: Sequence[Box],
    read: Sequence[int],
    above: tuple[float, float, float],
) -> None:
    """Ribbons from the columns `read` to an edge above, side by side on it."""
    left, right, height = above
    share = (right - left) / max(len(read), 1)
    for place, number in enumerate(read):
        lower = below[number]
        end = (left + share * place, left + share * (place + 1), height)
        ribbon(ax, (lower[0], lower[2], lower[3]), end, _colour(network, number))


def _draw_top(
    ax: Axes,
    network: DynamicNetwork,
    below: Sequence[Box],
    room: tuple[float, float],
    width: float,
) -> None:
    inner = [node for node in network.top.nodes if not isinstance(node, Input)]
    words = kinds_in_words(Counter(type(node).__name__.lower() for node in inner))
    middle = 0.5 * (_LABEL + width - _MARGIN)
    reach = min(90.0, 0.25 * (width - _LABEL))
    bottom, upper = room[0] + 0.25 * (room[1] - room[0]), room[1] - 0.12 * (room[1] - room[0])
    box = (middle - reach, bottom, middle + reach, upper)
    _fan(ax, network, below, range(len(below)), (box[0], box[2], bottom))
    block(ax, box, _style.LINE, words or "1 interface")
    height = 0.5 * (bottom + upper)
    _style.write(ax, 4.0, height, "top network", colour=_style.MUTED, ha="left")


def _label_groups(
    ax: Axes, network: DynamicNetwork, columns: Sequence[tuple[float, float]]
) -> None:
    for column, (left, right) in enumerate(columns):
        members = _members(network, column)
        size, room = _style.TEXT_SIZE, right - left
        if len(members) == 1:
            names = group_variables(network, column)
            words = _style.group_label(column, names, size, room)
        else:
            words = _style.shortened(f"{len(members)} more groups", size, room)
        colour = _style.dark(_colour(network, column))
        _style.write(ax, 0.5 * (left + right), 0.5 * _FOOT, words, size=size, colour=colour)
