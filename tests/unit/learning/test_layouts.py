"""Layouts are partitions whatever is done to them, and the ways between them are complete."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dspn.errors import DataError, StructureError
from dspn.learning.dependence import (
    Layout,
    layout_neighbours,
    layout_of,
    layouts_by_dependence,
    one_block,
    singletons,
)

Floats = NDArray[np.float64]


def is_layout(blocks: Layout, num_variables: int) -> bool:
    flat = [variable for block in blocks for variable in block]
    return (
        sorted(flat) == list(range(num_variables))
        and all(block and list(block) == sorted(block) for block in blocks)
        and [block[0] for block in blocks] == sorted(block[0] for block in blocks)
    )


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    labels = draw(st.lists(st.integers(0, 5), min_size=1, max_size=8))
    blocks = [[i for i, own in enumerate(labels) if own == label] for label in set(labels)]
    return layout_of(draw(st.permutations(blocks)))


@st.composite
def matrices(draw: st.DrawFn, size: int | None = None) -> Floats:
    count = draw(st.integers(1, 8)) if size is None else size
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    matrix = rng.random((count, count)) * (rng.random((count, count)) < 0.7)
    return matrix + matrix.T


@given(layouts())
def test_layout_is_canonical(layout: Layout) -> None:
    size = sum(map(len, layout))
    assert is_layout(layout, size)
    shuffled = [list(reversed(block)) for block in reversed(layout)]
    assert layout_of(shuffled) == layout


@given(matrices(), st.sampled_from(["average", "maximum"]))
def test_hierarchy_goes_from_singletons_to_one_block_by_joins(matrix: Floats, linkage: str) -> None:
    size = len(matrix)
    found = layouts_by_dependence(matrix, linkage=linkage)
    assert [len(layout) for layout in found] == list(range(size, 0, -1))
    assert found[0] == singletons(size)
    assert found[-1] == one_block(size)
    for before, after in pairwise(found):
        assert is_layout(after, size)
        gone = set(before) - set(after)
        assert len(gone) == 2
        (made,) = set(after) - set(before)
        assert sorted(variable for block in gone for variable in block) == list(made)
        assert link(matrix, *gone, linkage) == pytest.approx(
            max(link(matrix, a, b, linkage) for a in before for b in before if a != b)
        )
    assert found == layouts_by_dependence(matrix, linkage=linkage)


def link(matrix: Floats, one: tuple[int, ...], other: tuple[int, ...], linkage: str) -> float:
    own = matrix[np.ix_(one, other)]
    return float(own.mean() if linkage == "average" else own.max())


def test_blocks_that_depend_are_joined_first() -> None:
    matrix = np.zeros((5, 5))
    for i, j, value in ((0, 3, 0.9), (1, 4, 0.8), (0, 2, 0.5), (2, 3, 0.1)):
        matrix[i, j] = matrix[j, i] = value
    found = layouts_by_dependence(matrix)
    assert found[1] == ((0, 3), (1,), (2,), (4,))
    assert found[2] == ((0, 3), (1, 4), (2,))
    assert found[3] == ((0, 2, 3), (1, 4))


@given(layouts())
def test_neighbours_are_every_layout_one_step_away(layout: Layout) -> None:
    size = sum(map(len, layout))
    found = layout_neighbours(layout)
    assert len(set(found)) == len(found)
    assert layout not in found
    assert all(is_layout(own, size) for own in found)
    expected = set()
    for i in range(len(layout)):
        for j in range(i):
            rest = [block for place, block in enumerate(layout) if place not in (i, j)]
            expected.add(layout_of([*rest, layout[i] + layout[j]]))
    for variable in range(size):
        rest = [tuple(own for own in block if own != variable) for block in layout]
        for place in range(len(layout)):
            moved = [
                (*block, variable) if number == place else block
                for number, block in enumerate(rest)
            ]
            expected.add(layout_of([block for block in moved if block]))
        expected.add(layout_of([*(block for block in rest if block), (variable,)]))
    assert set(found) == expected - {layout}
    # A way back leads from every neighbour to the layout, unless a join has to be undone.
    for own in found:
        assert layout in layout_neighbours(own) or len(own) < len(layout)


def test_single_variable_has_one_layout() -> None:
    assert singletons(1) == one_block(1) == ((0,),)
    assert layout_neighbours(((0,),)) == ()
    assert layouts_by_dependence(np.zeros((1, 1))) == (((0,),),)


@pytest.mark.parametrize(
    "blocks", [[], [[]], [[0], []], [[0], [2]], [[0], [0]], [[1, 2]], [["a"]], [0, 1], 3]
)
def test_blocks_that_are_no_partition_are_refused(blocks: object) -> None:
    with pytest.raises(StructureError, match="`blocks` must"):
        layout_of(blocks)  # type: ignore[arg-type]


def test_arguments_that_do_not_fit_are_refused() -> None:
    for wrong in (np.zeros((2, 3)), np.zeros(4), np.zeros((0, 0))):
        with pytest.raises(DataError, match="`dependence` must have a row"):
            layouts_by_dependence(wrong)
    with pytest.raises(DataError, match="finite"):
        layouts_by_dependence(np.full((2, 2), np.nan))
    with pytest.raises(DataError, match="symmetric"):
        layouts_by_dependence(np.array([[0.0, 1.0], [0.0, 0.0]]))
    with pytest.raises(StructureError, match="`linkage` must be"):
        layouts_by_dependence(np.zeros((2, 2)), linkage="single")
