"""Pen-Based Recognition of Handwritten Digits: eight points of each, or all that were recorded."""

import os
from typing import Final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.data import Schema, Variable
from dspn.errors import DataError
from experiments.datasets.real.base import RealData, counted, split_at
from experiments.datasets.real.files import DataFile, Source, verified_contents

_ORIGIN: Final = (
    "the UCI Machine Learning Repository, Pen-Based Recognition of Handwritten Digits, "
    "https://archive.ics.uci.edu/dataset/81/pen+based+recognition+of+handwritten+digits"
)

SOURCE: Final = Source(
    "PenDigits",
    "pendigits",
    _ORIGIN,
    (
        DataFile(
            "pendigits.tra",
            502098,
            "e2b9eb9f0d0467e2b64a4816a3420edf2b8043447576f4b84337aba44a9f97d3",
        ),
        DataFile(
            "pendigits.tes",
            234366,
            "8bd03229c5c5291fefe43e45465dd948d2645bf23328b9d993e0b777666b2015",
        ),
    ),
)
TRAJECTORIES: Final = Source(
    "PenDigits (trajectories)",
    "pendigits",
    f"{_ORIGIN} (there as .Z, to be unpacked)",
    (
        DataFile(
            "pendigits-orig.tra",
            3641673,
            "a66225d68d7d68591e62944df1ad33b3f5aa608e2df2505844b41f5568a80da4",
        ),
        DataFile(
            "pendigits-orig.tes",
            1661044,
            "ddb1c19e277a56c7ffe682cc024d6ab73696f9adcc1643ef9ed5aa753007e081",
        ),
    ),
)

_NUM_TRAIN, _NUM_DIGITS, _NUM_POINTS = 7494, 10992, 8
_NUM_RECORDED_POINTS: Final = 442794
_POINT: Final = (Variable.continuous("x"), Variable.continuous("y"))


def read_pen_digits(directory: str | os.PathLike[str] | None = None) -> RealData:
    """10,992 digits of 8 slices: points x, y from 0 to 100, evenly spaced along the pen's path.

    The label is the digit; 7,494 digits are for training, the 3,498 of other writers for testing.
    """
    text = b",".join(part.replace(b"\n", b",") for part in verified_contents(SOURCE, directory))
    numbers = np.fromstring(text.replace(b",", b" "), dtype=np.float64, sep=" ")
    columns = 2 * _NUM_POINTS + 1
    if numbers.size != columns * _NUM_DIGITS:
        raise DataError(
            f"the files of the data set {SOURCE.name} must hold {_NUM_DIGITS} lines of {columns} "
            f"numbers, but hold {numbers.size} numbers."
        )
    rows = numbers.reshape(_NUM_DIGITS, columns)
    sequences = counted(
        SOURCE.name,
        rows[:, :-1].reshape(-1, 2),
        np.full(_NUM_DIGITS, _NUM_POINTS),
        Schema(_POINT),
        num_sequences=_NUM_DIGITS,
        slices=_NUM_DIGITS * _NUM_POINTS,
    )
    labels = rows[:, -1].astype(np.int64)
    return RealData(SOURCE.name, sequences, labels, *split_at(_NUM_TRAIN, _NUM_DIGITS))


def trajectories(content: bytes) -> tuple[Floats, Ints, Ints]:
    """Points (x, y, first of its stroke), lengths and labels of the digits of a UNIPEN text."""
    lines = content.split(b"\n")
    is_point = np.array([bool(line.strip()) and not line.startswith(b".") for line in lines])
    segments = [i for i, line in enumerate(lines) if line.startswith(b".SEGMENT DIGIT")]
    strokes = [i for i, line in enumerate(lines) if line.startswith(b".PEN_DOWN")]
    before = np.concatenate([[0], np.cumsum(is_point)])
    total = int(before[-1])
    points = np.zeros((total, 3))
    text = b" ".join(line for line, found in zip(lines, is_point, strict=True) if found)
    coordinates = np.fromstring(text, dtype=np.float64, sep=" ")
    if coordinates.size != 2 * total:
        raise DataError(
            f"the files of the data set {TRAJECTORIES.name} must have two numbers in a line of a "
            f"point, but {total} such lines have {coordinates.size}."
        )
    points[:, :2] = coordinates.reshape(-1, 2)
    firsts = before[strokes]
    points[firsts[firsts < total], 2] = 1.0
    lengths = np.diff(np.append(before[segments], total))
    labels = np.array([int(lines[i].split(b'"')[1]) for i in segments], dtype=np.int64)
    return points, lengths, labels


def read_pen_trajectories(directory: str | os.PathLike[str] | None = None) -> RealData:
    """The same digits in the same order as they were recorded: 9 to 231 slices, ten a second.

    A slice is a point x, y on the tablet (500 x 500), and whether it is the first of a stroke.
    """
    parts = [trajectories(content) for content in verified_contents(TRAJECTORIES, directory)]
    values, lengths, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    sequences = counted(
        TRAJECTORIES.name,
        values,
        lengths,
        Schema((*_POINT, Variable.binary("starts_stroke"))),
        num_sequences=_NUM_DIGITS,
        slices=_NUM_RECORDED_POINTS,
    )
    return RealData(TRAJECTORIES.name, sequences, labels, *split_at(_NUM_TRAIN, _NUM_DIGITS))
