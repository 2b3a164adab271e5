"""Texts of the data sets, in small."""

import numpy as np
import pytest

from dspn.data import Schema, Variable
from dspn.errors import DataError
from experiments.datasets.real._blocks import blocks
from experiments.datasets.real.base import RealData, counted, split_at
from experiments.datasets.real.pen_digits import trajectories
from experiments.datasets.real.vicon import _frames

ONE = Schema((Variable.continuous("x"),))


def test_blocks_are_set_apart_by_blank_lines() -> None:
    values, lengths = blocks(b"      \n1 2\n-3 4e1 \n\n  \n5 6\n\n", 2, "Tiny")
    np.testing.assert_array_equal(values, [[1, 2], [-3, 40], [5, 6]])
    assert lengths.tolist() == [2, 1]


def test_blocks_end_with_the_text() -> None:
    _, lengths = blocks(b"1\n\n2\n3", 1, "Tiny")
    assert lengths.tolist() == [1, 2]


def test_lines_with_too_few_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="Tiny must have 2 numbers in a line"):
        blocks(b"1 2\n3\n", 2, "Tiny")


def test_trajectories_have_points_strokes_and_labels() -> None:
    text = (
        b".HIERARCHY DIGIT\n\n"
        b'.SEGMENT DIGIT    0 ? "8"\n.COMMENT 8 12  224\n.PEN_DOWN\n 1  2\n 3  4\n.PEN_UP\n'
        b".PEN_DOWN\n 5  6\n.PEN_UP\n.DT 100\n\n"
        b'.SEGMENT DIGIT    1 ? "0"\n.PEN_DOWN\n 7  8\n.PEN_UP\n.DT 100\n'
    )
    points, lengths, labels = trajectories(text)
    np.testing.assert_array_equal(points, [[1, 2, 1], [3, 4, 0], [5, 6, 1], [7, 8, 1]])
    assert lengths.tolist() == [3, 1]
    assert labels.tolist() == [8, 0]
    with pytest.raises(DataError, match="two numbers in a line of a point"):
        trajectories(text.replace(b" 5  6", b" 5"))


def test_frames_are_thousandths_without_their_counter() -> None:
    row = " ".join(f"{-2 + 0.123 * i:.3f}" for i in range(27))
    frames = _frames(f"0 {row}\n1  {row}".encode(), "a.txt")
    np.testing.assert_array_equal(frames, [[float(text) for text in row.split()]] * 2)
    with pytest.raises(DataError, match=r"recording a\.txt .* has 27 numbers"):
        _frames(f"{row}\n".encode(), "a.txt")


def test_counts_that_do_not_fit_are_refused() -> None:
    values, lengths = np.zeros((3, 1)), np.array([1, 2])
    assert len(counted("Tiny", values, lengths, ONE, num_sequences=2, slices=3)) == 2
    with pytest.raises(DataError, match="Tiny must hold 3 sequences with 3 slices in all"):
        counted("Tiny", values, lengths, ONE, num_sequences=3, slices=3)
    with pytest.raises(DataError, match="2 sequences with 4 slices in all, but hold 2 with 3"):
        counted("Tiny", values, lengths, ONE, num_sequences=2, slices=4)


def test_real_data_cannot_be_written_to() -> None:
    sequences = counted("Tiny", np.zeros((3, 1)), np.array([1, 2]), ONE, num_sequences=2, slices=3)
    data = RealData("Tiny", sequences, np.array([0, 1]), *split_at(1, 2))
    for array in (data.labels, data.train, data.test):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5  # type: ignore[index]
    assert repr(data) == "RealData('Tiny': 2 sequences of 1 variables, 2 classes, split 1 / 1)"
    assert repr(RealData("Tiny", sequences)) == "RealData('Tiny': 2 sequences of 1 variables)"
