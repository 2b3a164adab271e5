"""Which colour is which category: beside the rows where there is room, else in lines above."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from dspn._arrays import Floats
from dspn.data import Schema, Variable
from dspn.plotting import _style
from dspn.plotting._panels import KEY_ROW

_BESIDE_ROOM: Final = 150.0
_NAME_ROOM: Final = 160.0
_MOST_KEYS: Final = 5
_MARK: Final = 9.0
_SPACE: Final = 7.0

_Entry = tuple[str, str]
"""A colour and a name; without a colour it is a word between the others."""


def label_categories(ax: Axes, schema: Schema, edges: Floats) -> int:
    """Swatches at the right of a row, once for neighbours with the same categories.

    Those that do not fit there stand in lines above the axes, once for all variables that share
    them. Returns the number of these lines.
    """
    above = _above(schema)
    before: tuple[object, ...] = ()
    for column, variable in enumerate(schema):
        own = variable.categories
        if own and own != before and own not in above:
            middle = float((edges[column] + edges[column + 1]) / 2)
            _draw_beside(ax, _entries(variable), middle)
        before = own
    return _draw_above(ax, [_key(variables) for variables in above.values()])


def _above(schema: Schema) -> dict[tuple[object, ...], list[Variable]]:
    """The variables whose categories do not fit beside their rows, by their categories."""
    found: dict[tuple[object, ...], list[Variable]] = {}
    for variable in schema:
        if variable.categories in found:
            found[variable.categories].append(variable)
        elif (
            variable.categories
            and len(found) < _MOST_KEYS
            and sum(map(_width, _entries(variable))) > _BESIDE_ROOM
        ):
            found[variable.categories] = [variable]
    return found


def _entries(variable: Variable) -> list[_Entry]:
    """Colours and names; of many the first and the last, whose colours lie on a scale."""
    colours = _style.category_colours(variable.num_categories)
    entries = [(colours[code], str(name)) for code, name in enumerate(variable.categories)]
    return entries if len(entries) <= 8 else [entries[0], ("", "…"), entries[-1]]


def _width(entry: _Entry) -> float:
    return _MARK + _SPACE + _style.text_width(entry[1], _style.SMALL_SIZE)


def _pieces(entry: _Entry, room: float) -> Iterator[tuple[str, str, float]]:
    """Text, colour and width of a mark and its name."""
    colour, name = entry
    words = _style.shortened(name, _style.SMALL_SIZE, room)
    width = _style.text_width(words, _style.SMALL_SIZE)
    if colour:
        yield "■", colour, _MARK
    yield words, _style.MUTED, width + _SPACE


def _draw_beside(ax: Axes, entries: list[_Entry], height: float) -> None:
    room = np.inf
    if sum(map(_width, entries)) > _BESIDE_ROOM:
        room = max(_BESIDE_ROOM / len(entries) - _MARK - _SPACE, 16.0)
    start = 5.0
    for entry in entries:
        for words, colour, width in _pieces(entry, room):
            said = ax.annotate(
                words, (1.0, height), xycoords=ax.get_yaxis_transform(), parse_math=False
            )
            said.set(position=(start, 0.0), fontsize=_style.SMALL_SIZE, color=colour, va="center")
            said.set_anncoords("offset points")
            start += width


def _key(variables: list[Variable]) -> list[_Entry]:
    """The variables' names, without a colour, and then their categories."""
    names = [variable.name for variable in variables]
    if len(names) > 3:
        names = [*names[:2], f"{len(names) - 2} more"]
    return [("", ", ".join(names) + ":"), *_entries(variables[0])]


def _draw_above(ax: Axes, keys: list[list[_Entry]]) -> int:
    """Each key from the left edge on, in as many lines as it needs."""
    room = _style.size_in_points(ax)[0]
    placed: list[tuple[int, float, str, str]] = []
    line = -1
    for key in keys:
        line, start = line + 1, 0.0
        for entry in key:
            pieces = list(_pieces(entry, _NAME_ROOM))
            width = sum(piece[2] for piece in pieces)
            if start and start + width > room:
                line, start = line + 1, 0.0
            for words, colour, own in pieces:
                placed.append((line, start, words, colour))
                start += own
    for number, start, words, colour in placed:
        said = ax.annotate(words, (0.0, 1.0), xycoords="axes fraction", parse_math=False)
        said.set(position=(start, KEY_ROW * (line - number + 0.5)), color=colour, va="center")
        said.set(fontsize=_style.SMALL_SIZE, gid="category key")
        said.set_anncoords("offset points")
    return line + 1
