"""Colours and type sizes that all plots share; every palette is safe for colour-blind readers."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.textpath import text_to_path

INK = "#222222"
MUTED = "#6b6b6b"
LINE = "#8c8c8c"
FAINT = "#d9d9d9"
PAPER = "#f4f4f2"
INTERFACE = "#c8102e"
"""The red of the interface nodes in the paper's Figure 2."""
ALARM = "#d55e00"

TITLE_SIZE = 11.0
TEXT_SIZE = 9.0
SMALL_SIZE = 8.0
NODE_SIZE = 10.0

# The mark of an entry of a legend with the space around it.
_HANDLE_ROOM = 38.0

PIXELS_WIDE = 1200
"""Width of a figure that a plot makes for itself, at its own resolution."""

# Okabe and Ito's palette less vermilion, which is too near the red of the interface.
_GROUPS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#7f6a3f")
_CATEGORIES = (
    "#0072b2",
    "#f0c55c",
    "#009e73",
    "#d98cb3",
    "#56b4e9",
    "#a0522d",
    "#3b3b6d",
    "#b5c99a",
)
_BINARY = ("#b5d0e6", "#1f5f99")


def tint(colour: str, amount: float) -> str:
    """The colour mixed with white; amount 1 is the colour itself, 0 is white."""
    red, green, blue = (1.0 - amount * (1.0 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def dark(colour: str) -> str:
    """The colour as ink: dark enough to read as text on white."""
    red, green, blue = (0.62 * part for part in to_rgb(colour))
    return to_hex((red, green, blue))


def group_colour(group: int | None) -> str:
    """The colour of an interface group; None, for what several groups share, is grey."""
    return LINE if group is None else _GROUPS[group % len(_GROUPS)]


def category_colours(num_categories: int) -> tuple[str, ...]:
    """One colour for each category: light and dark for two, hues for a few, else a scale."""
    if num_categories <= 2:
        return _BINARY[:num_categories]
    if num_categories <= len(_CATEGORIES):
        return _CATEGORIES[:num_categories]
    scale = colormaps["viridis"]
    return tuple(to_hex(scale(code / (num_categories - 1))) for code in range(num_categories))


def shades(colour: str) -> LinearSegmentedColormap:
    """From white to a colour, for weights and probabilities."""
    steps = ["#ffffff", tint(colour, 0.5), colour, dark(colour)]
    return LinearSegmentedColormap.from_list("shades", steps)


def text_width(text: str, size: float) -> float:
    """Width in points of a text without line breaks, as it would be drawn."""
    if not text:
        return 0.0
    # Dollar signs would be read as mathematics, and letters are all that is measured.
    plain, font = text.replace("$", "S"), FontProperties(size=size)
    return float(text_to_path.get_text_width_height_descent(plain, font, False)[0])


def shortened(text: str, size: float, room: float) -> str:
    """The text, cut and ended by an ellipsis where it is wider than `room` points."""
    if text_width(text, size) <= room:
        return text
    longest = bisect_right(
        range(1, len(text)), room, key=lambda length: text_width(text[:length] + "…", size)
    )
    return text[:longest].rstrip(" ,") + "…"


def write(
    ax: Axes,
    x: float,
    y: float,
    text: str,
    *,
    size: float = SMALL_SIZE,
    colour: str = INK,
    ha: Literal["left", "center", "right"] = "center",
    va: Literal["top", "center", "bottom", "center_baseline"] = "center",
    zorder: float = 5.0,
) -> Text:
    """A text at a place of the axes that takes no part in the figure's layout.

    Dollar signs are dollar signs.
    """
    said = ax.text(
        x, y, text, size=size, color=colour, ha=ha, va=va, zorder=zorder, parse_math=False
    )
    said.set_in_layout(False)
    return said


def broken(pieces: Sequence[str], size: float, room: float) -> str:
    """The pieces with spaces between them, in lines of at most `room` points."""
    lines = [""]
    for word in pieces:
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def network_title(ax: Axes, pieces: Sequence[str]) -> None:
    """The pieces as the title of a drawn network, in lines that fit its width."""
    title = broken(pieces, TITLE_SIZE, size_in_points(ax)[0])
    ax.set_title(title, size=TITLE_SIZE, color=INK, loc="left", pad=8.0)


def legend_columns(labels: Sequence[str], room: float) -> int:
    """How many entries of a legend in small type stand side by side in `room` points."""
    widths = [text_width(label, SMALL_SIZE) + _HANDLE_ROOM for label in labels]
    if sum(widths) <= room:
        return max(len(widths), 1)
    return max(min(int(room / max(widths)), len(widths) - 1), 1)


def size_in_points(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes in points, at the figure's present size."""
    box = ax.get_window_extent()
    figure = ax.get_figure(root=True)
    assert figure is not None
    scale = 72.0 / figure.dpi
    return max(float(box.width) * scale, 1.0), max(float(box.height) * scale, 1.0)


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 leaf, 256 inputs, 12,288 leaves."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def group_label(group: int, names: Sequence[str], size: float, room: float) -> str:
    """The number of a group with as many of its variables as there is room for."""
    start = f"group {group}"
    words = shortened(f"{start}: {', '.join(names)}", size, room)
    return start if words.endswith("…") and len(words) <= len(start) + 3 else words


def plural(noun: str) -> str:
    """The plural of a word of the glossary."""
    return "leaves" if noun == "leaf" else f"{noun}s"
