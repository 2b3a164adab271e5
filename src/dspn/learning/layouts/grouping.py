"""Layouts: which variables share an interface group, and the ways from one layout to others."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import combinations
from typing import Any, Final, NamedTuple

import numpy as np

from dspn._arrays import Floats
from dspn._checks import float_array, indices, whole_number
from dspn.errors import DataError, StructureError

Layout = tuple[tuple[int, ...], ...]
"""Blocks of variables by number, each in rising order, in the order of their first members."""

_SYMMETRY_TOLERANCE: Final = 1e-9


class Linkage(StrEnum):
    """How the dependence of two blocks follows from that of their variables."""

    AVERAGE = "average"
    MAXIMUM = "maximum"


class BlockPair(NamedTuple):
    """Two blocks of a layout by their places in it, and the dependence between them."""

    first: int
    second: int
    dependence: float


def layout_of(blocks: Sequence[Sequence[int]]) -> Layout:
    """The blocks as a layout; raises unless they share out the variables 0, 1, ..., n - 1."""
    try:
        members = [tuple(sorted(indices(block, "blocks", StructureError))) for block in blocks]
    except TypeError:
        raise StructureError(
            "`blocks` must be a list of lists of variables by number, such as [[0, 1], [2]], but "
            f"is {blocks!r}."
        ) from None
    flat = sorted(variable for block in members for variable in block)
    if not flat or flat != list(range(len(flat))) or not all(members):
        raise StructureError(
            "`blocks` must hold each variable exactly once, by numbers from 0 without gaps, and no "
            f"empty block, but is {members}."
        )
    return tuple(sorted(members))


def one_block(num_variables: int) -> Layout:
    """All variables together."""
    return (tuple(range(whole_number(num_variables, "num_variables", StructureError))),)


def singletons(num_variables: int) -> Layout:
    """Every variable by itself."""
    count = whole_number(num_variables, "num_variables", StructureError)
    return tuple((variable,) for variable in range(count))


def _checked(dependence: Any, num_variables: int | None = None) -> Floats:
    """The matrix, square, symmetric and finite; of `num_variables` where that is known."""
    matrix = float_array(dependence, "dependence", DataError)
    size = num_variables or (len(matrix) if matrix.ndim == 2 else 1)
    if matrix.shape != (size, size) or not size:
        raise DataError(
            f"`dependence` must have a row and a column for each of the {size} variables, but has "
            f"shape {matrix.shape}."
        )
    if not np.isfinite(matrix).all():
        raise DataError("`dependence` must be finite, but some entries are not; estimate it again.")
    if not np.allclose(matrix, matrix.T, rtol=_SYMMETRY_TOLERANCE, atol=_SYMMETRY_TOLERANCE):
        raise DataError(
            "`dependence` must be symmetric, but is not; give the average of it and its transpose."
        )
    return 0.5 * (matrix + matrix.T)


def layouts_by_dependence(
    dependence: Floats, *, linkage: Linkage | str = Linkage.AVERAGE
) -> tuple[Layout, ...]:
    """Layouts from n blocks to one, each the one before with its two most dependent blocks joined.

    The dependence of two blocks is the average, or the largest, of that of their variables; of
    equal pairs the first is joined.
    """
    matrix = _checked(dependence)
    try:
        rule = Linkage(linkage)
    except ValueError:
        raise StructureError(
            f"`linkage` must be 'average' or 'maximum', but is {linkage!r}."
        ) from None
    blocks = list(singletons(len(matrix)))
    links = matrix
    np.fill_diagonal(links, -np.inf)
    found = [layout_of(blocks)]
    while len(blocks) > 1:
        i, j = divmod(int(np.argmax(links)), len(blocks))
        one, other = len(blocks[i]), len(blocks[j])
        joined = np.maximum(links[i], links[j])
        if rule == Linkage.AVERAGE:
            joined = (one * links[i] + other * links[j]) / (one + other)
        links[i] = links[:, i] = joined
        links[i, i] = -np.inf
        links = np.delete(np.delete(links, j, axis=0), j, axis=1)
        blocks[i] += blocks.pop(j)
        found.append(layout_of(blocks))
    return tuple(found)


def merge_candidates(layout: Layout, dependence: Floats) -> tuple[BlockPair, ...]:
    """All pairs of blocks with the sum of dependence over pairs of variables, largest first."""
    own = layout_of(layout)
    size = sum(map(len, own))
    matrix = _checked(dependence, size)
    member = np.zeros((len(own), size))
    for number, block in enumerate(own):
        member[number, list(block)] = 1.0
    totals = member @ matrix @ member.T
    pairs = [BlockPair(i, j, float(totals[i, j])) for i, j in combinations(range(len(own)), 2)]
    return tuple(sorted(pairs, key=lambda pair: -pair.dependence))


def _checked_place(layout: Layout, place: int, argument: str) -> int:
    number = whole_number(place, argument, StructureError, least=0)
    if number >= len(layout):
        raise StructureError(
            f"`{argument}` must be the place of a block of the layout (0 to {len(layout) - 1}), "
            f"but is {number}."
        )
    return number


def _without(layout: Layout, variable: int) -> list[tuple[int, ...]]:
    """The blocks less a variable; one that it was alone in stays, empty."""
    number = whole_number(variable, "variable", StructureError, least=0)
    if not any(number in block for block in layout):
        raise StructureError(
            f"`variable` must be in a block of the layout {layout}, but {number} is in none."
        )
    return [tuple(own for own in block if own != number) for block in layout]


def with_merged(layout: Layout, first: int, second: int) -> Layout:
    """The layout with two blocks, given by their places, joined."""
    own = layout_of(layout)
    i = _checked_place(own, first, "first")
    j = _checked_place(own, second, "second")
    if i == j:
        raise StructureError(f"`first` and `second` must be two blocks, but both are {i}.")
    rest = [block for place, block in enumerate(own) if place not in (i, j)]
    return layout_of([*rest, own[i] + own[j]])


def with_moved(layout: Layout, variable: int, block: int) -> Layout:
    """The layout with a variable in another block; one that it was alone in is gone."""
    own = layout_of(layout)
    place = _checked_place(own, block, "block")
    blocks = _without(own, variable)
    blocks[place] += (int(variable),)
    return layout_of([left for left in blocks if left])


def with_split(layout: Layout, variable: int) -> Layout:
    """The layout with a variable in a block of its own."""
    blocks = _without(layout_of(layout), variable)
    return layout_of([*(block for block in blocks if block), (int(variable),)])


def layout_neighbours(layout: Layout) -> tuple[Layout, ...]:
    """Every other layout that two blocks joined, one variable moved or one split off lead to.

    Joins come first, then moves, then splits; each layout comes once.
    """
    own = layout_of(layout)
    found = dict.fromkeys(_reached(own))
    found.pop(own, None)
    return tuple(found)


def _reached(layout: Layout) -> Iterator[Layout]:
    size = sum(map(len, layout))
    for i, j in combinations(range(len(layout)), 2):
        yield with_merged(layout, i, j)
    for variable in range(size):
        for place in range(len(layout)):
            yield with_moved(layout, variable, place)
    for variable in range(size):
        yield with_split(layout, variable)
