"""Vicon Physical Action: markers on ten people who perform twenty actions."""

import os
from typing import Final

import numpy as np

from dspn._arguments import Floats
from dspn.data import Schema, Variable
from dspn.errors import DataError
from experiments.datasets.real._vicon_files import RECORDINGS
from experiments.datasets.real.base import RealData, counted
from experiments.datasets.real.files import DataFile, Source, verified_contents


def _recording(line: str) -> DataFile:
    path, size, sha256 = line.split()
    return DataFile(f"sub{path}.txt", int(size), sha256)


SOURCE: Final = Source(
    "Vicon",
    "vicon",
    "the UCI Machine Learning Repository, Vicon Physical Action Data Set, or "
    "https://github.com/semnan-university-ai/Vicon-Physical-Action (sub10 has no Waving; its "
    "'Running  [worse].txt' is called Running_worse.txt here)",
    tuple(map(_recording, RECORDINGS.strip().split("\n"))),
)

_COLUMNS: Final = 28
_NUM_FRAMES: Final = 605381
_LIMBS: Final = ("elbow", "wrist"), ("knee", "ankle")
_MARKERS: Final = (
    "head",
    *(f"{side}_{joint}" for pair in _LIMBS for side in ("left", "right") for joint in pair),
)
_SCHEMA: Final = Schema(
    tuple(Variable.continuous(f"{marker}_{axis}") for marker in _MARKERS for axis in "xyz")
)


def _frames(content: bytes, path: str) -> Floats:
    """Positions in millimetres, (frames, 27).

    Every position has three decimals: read as whole thousandths, five times as fast as decimals,
    and divided, it is the same float64.
    """
    thousandths = np.fromstring(content.replace(b".", b""), dtype=np.int64, sep=" ")
    rows, left_over = divmod(thousandths.size, _COLUMNS)
    if left_over or content.count(b".") != rows * (_COLUMNS - 1):
        raise DataError(
            f"the recording {path} of the data set {SOURCE.name} must have lines of a counter and "
            f"{_COLUMNS - 1} decimal numbers, but has {thousandths.size} numbers, "
            f"{content.count(b'.')} of them decimal."
        )
    found: Floats = thousandths.reshape(rows, _COLUMNS)[:, 1:] / 1000.0
    return found


def read_vicon(directory: str | os.PathLike[str] | None = None) -> RealData:
    """200 recordings of 783 to 6,780 slices: x, y and z of nine markers in millimetres.

    The label is the action, the id of a sequence its person, kind and action
    ("sub1/aggressive/Elbowing"). The tenth person runs twice, the second time badly, and does not
    wave. Of two neighbouring values about 82 % are equal, as markers are refreshed more slowly than
    frames are written. There is no official split.
    """
    values = np.empty((_NUM_FRAMES, _COLUMNS - 1))
    lengths = np.zeros(len(SOURCE.files), dtype=np.int64)
    for index, content in enumerate(verified_contents(SOURCE, directory)):
        frames = _frames(content, SOURCE.files[index].path)
        begin = int(lengths.sum())
        values[begin : begin + len(frames)] = frames
        lengths[index] = len(frames)
    sequences = counted(
        SOURCE.name, values, lengths, _SCHEMA, num_sequences=200, slices=_NUM_FRAMES
    )
    ids = [file.path.removesuffix(".txt") for file in SOURCE.files]
    labels = np.array([name.rsplit("/", 1)[1].removesuffix("_worse") for name in ids])
    return RealData(SOURCE.name, sequences.with_ids(ids), labels)
