"""How a batch is cut: sequences into blocks of lanes of similar length, positions into segments."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arrays import Bools, Ints
from dspn.data import Sequences
from dspn.engine.coding import Codes
from dspn.engine.records import Batch
from dspn.structure.network import Root

LANES: Final = 64
_SEGMENT_BYTES: Final = 8 << 20  # for what passes keep of a segment
_CACHED_BYTES: Final = 1 << 20  # for what is computed for a segment and read right after


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

    def batch(self, numbers: Codes) -> Batch:
        """The block with the numbers of its data's distinct slices (empty: numbered by place)."""
        return Batch(numbers, self.base, self.stride, self.lengths)

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
    """All sequences, longest first, in blocks of `lanes`.

    Position 0 is the slice farthest from the root.
    """
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


def slices_as_lanes(rows: Ints) -> Block:
    """One lane of one slice for each row of the data."""
    return Block(rows, np.ones(rows.size, dtype=np.int64), rows, 1)


@final
@dataclass(frozen=True)
class Segment:
    """Positions p0 .. p1 - 1, with the bottom network's own parameters or the template's."""

    p0: int
    p1: int
    bottom: bool

    @property
    def length(self) -> int:
        """Number of positions."""
        return self.p1 - self.p0


def segments(
    block: Block, floats_per_slice: int, *, untied: bool, cached: bool = False
) -> list[Segment]:
    """The positions of a block in segments of at most a fixed number of bytes.

    A slice counts as `floats_per_slice` numbers. Where the bottom network is untied, position 0 is
    a segment of its own.
    """
    found = [Segment(0, 1, True)] if untied else []
    most = _CACHED_BYTES if cached else _SEGMENT_BYTES
    step = max(1, most // (8 * block.width * max(floats_per_slice, 1)))
    if floats_per_slice == 0:
        step = block.num_positions
    for p0 in range(len(found), block.num_positions, step):
        found.append(Segment(p0, min(p0 + step, block.num_positions), False))
    return found
