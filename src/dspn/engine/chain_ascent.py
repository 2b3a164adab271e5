"""Upward passes of chains whose vectors are kept for a pass down again."""

from collections.abc import Iterator
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn.engine.blocks import Block, Segment
from dspn.engine.chain import NO_STORES, ChainGiven, ChainRun, Real, full_vectors
from dspn.engine.records import ChainState
from dspn.engine.totals import rounded


@final
class Room:
    """Memory for the vectors of a segment, which the blocks of one thread use in turn.

    To ask for it block by block costs a good part of what it takes to fill it.
    """

    def __init__(self) -> None:
        self._held = np.zeros(0, np.uint8)

    def take(self, shape: tuple[int, ...], dtype: Real) -> Floats:
        """An array of some numbers; it takes the place of the last one."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if self._held.size < size:
            self._held = np.zeros(size, np.uint8)
        return self._held[:size].view(dtype).reshape(shape)


@final
class ChainAscent:
    """An upward pass of a chain that remembers the state below every segment.

    From there each segment can be run again on the way down.
    """

    def __init__(self, run: ChainRun, block: Block, room: Room | None = None) -> None:
        self.run = run
        self.block = block
        self.room = Room() if room is None else room
        self.segments = run.kept_segments(block)
        self.below: list[ChainState] = []
        self.lossy = False
        # A single segment is kept as it is climbed; of several, each is climbed again going down.
        one = len(self.segments) == 1
        self._only = self._new_store(self.segments[0]) if one else NO_STORES[run.dtype]
        state = run.start(block.width)
        for segment in self.segments:
            self.below.append(state.copy())
            self._given = run.given(block, segment)
            self.lossy = run.upward(block, segment, self._given, state, self._only) or self.lossy
        self.least = state.exponents[run.job.program.num_groups :].min(axis=0)
        self.top = run.arithmetic.top(run.job.program, run.to_state(state, block.width))
        self.lossy = self.lossy or self.top.lossy

    @property
    def log_values(self) -> Floats:
        """Log-likelihoods of the lanes."""
        return rounded(self.top.total)

    def _new_store(self, segment: Segment) -> Floats:
        rows = full_vectors(self.block.width, self.run.dtype)
        shape = (segment.length + 1, rows, self.run.chain.shape.width)
        return self.room.take(shape, self.run.dtype)

    def from_the_top(self) -> Iterator[tuple[Segment, ChainGiven, Floats]]:
        """Segments from the topmost down, with coefficients and the vectors around positions."""
        for segment, below in zip(reversed(self.segments), reversed(self.below), strict=True):
            topmost = segment is self.segments[-1]
            given = self._given if topmost else self.run.given(self.block, segment)
            store = self._only
            if not store.size:
                store = self._new_store(segment)
                self.run.upward(self.block, segment, given, below.copy(), store)
            yield segment, given, store
