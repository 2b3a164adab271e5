"""Sequences as blocks of lines, set apart by lines without anything but blanks."""

import itertools

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.errors import DataError


def numbers(content: bytes, columns: int, name: str) -> Floats:
    """All numbers of a text with `columns` of them in each line, blank lines left out."""
    values = np.fromstring(content, dtype=np.float64, sep=" ")
    if values.size % columns:
        raise DataError(
            f"the files of the data set {name} must have {columns} numbers in a line, but the "
            f"{values.size} numbers of one do not divide by that."
        )
    return values.reshape(-1, columns)


def block_lengths(content: bytes) -> Ints:
    """The number of lines of each block."""
    is_blank = [not line.strip() for line in content.split(b"\n")]
    return np.array(
        [len(list(lines)) for blank, lines in itertools.groupby(is_blank) if not blank],
        dtype=np.int64,
    )


def blocks(content: bytes, columns: int, name: str) -> tuple[Floats, Ints]:
    """Numbers of all blocks one below the other, and the length of each block."""
    return numbers(content, columns, name), block_lengths(content)
