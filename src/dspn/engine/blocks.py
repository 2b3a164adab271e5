"""How a batch is cut: sequences into blocks of lanes of similar length, positions into segments."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dspn._arrays import Bools, Ints
from dspn.engine.program import Program
from dspn.sequences import Sequences
from dspn.structure.network import Root

LANES: Final = 64
_SEGMENT_BYTES: Final = 8 << 20


class Batch(NamedTuple):
    """What the kernels read of a block: slice `base[l] + stride * position` is lane l's at a position."""

    codes: NDArray[np.int32]
    base: Ints
    stride: int
    lengths: Ints


@final
@dataclass(frozen=True, eq=False)
class Block:
    """Sequences that are evaluated together, in order of falling length."""

    members: Ints
    lengths: Ints
    base: Ints
    stride: int

    @property
    def width(self) -> int:
        """Number of lanes."""
        return self.members.size

    @property
    def num_positions(self) -> int:
        """Length of the longest sequence."""
        return int(self.lengths[0])

    def batch(self, codes: NDArray[np.int32]) -> Batch:
        """The block with the codes of its data set."""
        return Batch(codes, self.base, self.stride, self.lengths)

    def only(self, lanes: Bools) -> "Block":
        """The block with some of its lanes."""
        return Block(self.members[lanes], self.lengths[lanes], self.base[lanes], self.stride)

    def rows(self, p0: int, p1: int) -> tuple[Ints, Bools]:
        """Slice index of every (position, lane) of a segment, and where the lane takes part."""
        positions = np.arange(p0, p1)[:, None]
        active = positions < self.lengths
        rows = np.where(active, self.base + self.stride * positions, self.base)
        return rows, active


def blocks(data: Sequences, root: Root, lanes: int = LANES) -> list[Block]:
    """All sequences, longest first, in blocks of `lanes`; position 0 is the slice farthest from the root."""
    lengths = np.diff(data.offsets)
    order = np.argsort(-lengths, kind="stable")
    found = []
    for start in range(0, order.size, lanes):
        members = order[start : start + lanes]
        own = lengths[members]
        if root == Root.FIRST:
            found.append(Block(members, own, data.offsets[members] + own - 1, -1))
        else:
            found.append(Block(members, own, data.offsets[members], 1))
    return found


@final
@dataclass(frozen=True)
class Segment:
    """Positions p0 .. p1 - 1, with the bottom network's own parameters or the template's."""

    p0: int
    p1: int
    bottom: bool


def segments(program: Program, block: Block, rows_per_lane: int) -> Iterator[Segment]:
    """Cuts positions so that `rows_per_lane` float64 rows of all lanes stay within a fixed number of bytes."""
    start = 0
    if program.untied:
        yield Segment(0, 1, True)
        start = 1
    step = max(1, _SEGMENT_BYTES // (8 * block.width * max(rows_per_lane, 1)))
    for p0 in range(start, block.num_positions, step):
        yield Segment(p0, min(p0 + step, block.num_positions), False)
