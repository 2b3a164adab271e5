"""Colours, type sizes and small drawing helpers that all plots share.

Every palette can be told apart by colour-blind readers. Lengths are points.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Text
from matplotlib.textpath import text_to_path

INK = "#222222"
MUTED = "#6b6b6b"
LINE = "#8c8c8c"
FAINT = "#d9d9d9"
PAPER = "#f4f4f2"
BAR = "#9aa5b1"
HATCH = "#c4c4c4"
INTERFACE = "#c8102e"
"""The red of the interface nodes in the paper's Figure 2."""
ALARM = "#d55e00"

TITLE_SIZE = 11.0
TEXT_SIZE = 9.0
SMALL_SIZE = 8.0
NODE_SIZE = 10.0
PIXELS_WIDE = 1200
"""Width of a figure that a plot makes for itself, at its own resolution."""

# Okabe and Ito's palette without vermilion, which is too near the red of the interface.
_GROUPS: Final = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#7f6a3f"]
_LIGHTER: Final = ["#0072b2", "#f0c55c", "#009e73", "#d98cb3", "#56b4e9"]
_CATEGORIES: Final = [*_LIGHTER, "#a0522d", "#3b3b6d", "#b5c99a"]
_BINARY: Final = ("#b5d0e6", "#1f5f99")
# Room of the mark of a legend entry with the space around it.
_HANDLE_ROOM: Final = 38.0

Style = dict[str, Any]
"""Settings of an artist of matplotlib by name."""
# Dollar signs in names are plain text.
_PLAIN: Style = {"size": SMALL_SIZE, "va": "center", "parse_math": False}
_TEXT: Style = _PLAIN | {"color": INK, "ha": "center", "zorder": 5.0, "in_layout": False}
_NOTE: Style = _PLAIN | {"color": MUTED, "textcoords": "offset points"}

Box = tuple[float, float, float, float]
"""Left, bottom, right and upper edge."""
Handle = tuple[Patch | Line2D, ...]
"""Marks that are drawn over each other in one entry of a legend."""


def tint(colour: str, amount: float) -> str:
    """The colour mixed with white; amount 1 is the colour itself, 0 is white."""
    red, green, blue = (1.0 - amount * (1.0 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def dark(colour: str) -> str:
    """The colour made dark enough to read as text on white."""
    red, green, blue = (0.62 * part for part in to_rgb(colour))
    return to_hex((red, green, blue))


def group_colour(group: int | None) -> str:
    """The colour of an interface group; None, for what several groups share, is grey."""
    return LINE if group is None else _GROUPS[group % len(_GROUPS)]


def category_colours(num_categories: int) -> Sequence[str]:
    """One colour for each category: light and dark for two, hues for a few, else a scale."""
    if num_categories <= 2:
        return _BINARY[:num_categories]
    if num_categories <= len(_CATEGORIES):
        return _CATEGORIES[:num_categories]
    scale = colormaps["viridis"]
    return [to_hex(scale(code / (num_categories - 1))) for code in range(num_categories)]


def shades(colour: str) -> LinearSegmentedColormap:
    """A colour map from white to a colour, for weights and probabilities."""
    steps = ["#ffffff", tint(colour, 0.5), colour, dark(colour)]
    return LinearSegmentedColormap.from_list("shades", steps)


def text_width(text: str, size: float) -> float:
    """Width of a text of one line, as it would be drawn."""
    if not text:
        return 0.0
    # Dollar signs would be read as mathematics; a letter of like width stands for them.
    plain, font = text.replace("$", "S"), FontProperties(size=size)
    return float(text_to_path.get_text_width_height_descent(plain, font, False)[0])


def shortened(text: str, size: float, room: float) -> str:
    """The text, cut and ended by an ellipsis where it is wider than `room`."""
    if text_width(text, size) <= room:
        return text
    longest = bisect_right(
        range(1, len(text)), room, key=lambda length: text_width(text[:length] + "…", size)
    )
    return text[:longest].rstrip(" ,") + "…"


def broken(pieces: Sequence[str], size: float, room: float) -> str:
    """The pieces joined by spaces, in lines that are at most `room` wide."""
    lines = [""]
    for word in pieces:
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 leaf, 256 inputs, 12,288 leaves."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """The plural of a word of the glossary."""
    irregular = {"leaf": "leaves", "entry": "entries", "category": "categories"}
    return irregular.get(noun, f"{noun}s")


def size_in_points(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes at the figure's present size."""
    box, scale = ax.get_window_extent(), 72.0 / figure_of(ax).dpi
    return max(float(box.width) * scale, 1.0), max(float(box.height) * scale, 1.0)


def new_axes(width: float, height: float) -> Axes:
    """Axes of a size in inches that fill a new figure but for the title and the key."""
    figure = Figure(figsize=(width, height + 0.85), dpi=PIXELS_WIDE / width)
    side, below, above = 0.2 / width, 0.4 / (height + 0.85), 0.45 / (height + 0.85)
    return figure.add_axes((side, below, 1.0 - 2 * side, 1.0 - below - above))


def figure_of(ax: Axes) -> Figure:
    """The figure that holds the axes, through all subfigures."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def write(ax: Axes, x: float, y: float, text: str, **style: Any) -> Text:
    """A text at a place of the axes; dollar signs are plain, the figure's layout ignores it."""
    return ax.text(x, y, text, **(_TEXT | style))


def note(
    ax: Axes, place: tuple[float, float], offset: tuple[float, float], text: str, **style: Any
) -> None:
    """A text at an offset from a place of the axes; dollar signs are plain."""
    ax.annotate(text, place, xytext=offset, **(_NOTE | style))


def set_title(ax: Axes, pieces: Sequence[str], size: float, pad: float) -> None:
    """The pieces as a title at the left, in lines that fit the width of the axes."""
    title = broken(pieces, size, size_in_points(ax)[0])
    ax.set_title(title, size=size, color=INK, loc="left", pad=pad, parse_math=False)


def draw_rectangle(ax: Axes, box: Box, **style: Any) -> None:
    """A rectangle without an edge unless `style` gives one."""
    left, bottom, right, upper = box
    style = {"edgecolor": "none"} | style
    ax.add_patch(Rectangle((left, bottom), right - left, upper - bottom, **style))


def draw_polygons(ax: Axes, corners: Any, **style: Any) -> None:
    """Polygons, (count, corners, 2); the limits of the axes are not changed."""
    polygons = PolyCollection(corners)
    polygons.set(**({"facecolor": "none", "edgecolor": "none", "linewidth": 0.0} | style))
    ax.add_collection(polygons, autolim=False)


def legend_columns(labels: Collection[str], room: float) -> int:
    """How many entries of a legend in small type stand side by side in `room`."""
    widths = [text_width(label, SMALL_SIZE) + _HANDLE_ROOM for label in labels]
    if sum(widths) <= room:
        return max(len(widths), 1)
    return max(min(int(room / max(widths)), len(widths) - 1), 1)


def draw_legend(ax: Axes, key: Mapping[str, Handle], **place: Any) -> None:
    """The meaning of each mark in small type without a frame."""
    place |= {"frameon": False, "fontsize": SMALL_SIZE, "labelcolor": MUTED}
    place["handler_map"] = {tuple: HandlerTuple(ndivide=1, pad=0.0)}
    ax.legend(list(key.values()), list(key), **place)
