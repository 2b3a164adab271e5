"""Passes of large chains on the tensor cores of Hopper, each in one kernel: see `hopper.cu`."""

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from dspn.engine.gpu.device import HOPPER, Array
from dspn.engine.gpu.large import active_lanes, tables_of_heights

if TYPE_CHECKING:
    from dspn.engine.gpu.passes import ChainRun, Upward

# Nodes of a tile of vectors, nodes that a piece of work finds, and its sequences.
_DEPTH: Final = 32
_OUTPUTS: Final = 256
_PAIR: Final = 256
_THREADS: Final = 384
# Four stages, their barriers, and what threads have asked for.
_SHARED_BYTES: Final = 4 * (128 + 256) * 128 + 64 + 256 * 8 * 16 + 1024
# Nodes that are not there may be so many for each that is.
_MOST_PADDING: Final = 0.3
_OPTIONS: Final = ("-DREAL=float", HOPPER)


def serves(run: "ChainRun") -> bool:
    """Whether the kernels can take a run, and have work for a half of the card."""
    width, device = run.width, run.device
    if not run.narrow or run.layout.layers or width % 4 or not device.is_hopper:
        return False
    blocks = -(-width // _OUTPUTS)
    pieces = -(-len(run.batch) // _PAIR) * blocks
    is_full = blocks * _OUTPUTS - width <= _MOST_PADDING * width
    return is_full and 4 * pieces >= device.processors and tables_of_heights(run) is not None


@final
class HopperPasses:
    """Both passes of a run, and what they read in tiles."""

    def __init__(self, run: "ChainRun") -> None:
        self.run, self.device = run, run.device
        self.blocks, self.depths = -(-run.width // _OUTPUTS), -(-run.width // _DEPTH)
        self.pairs = -(-len(run.batch) // _PAIR)

    def rise(self, up: "Upward", under: float) -> None:
        """The way up: results, and vectors and exponents where they are kept."""
        run, xp, count = self.run, self.device.xp, len(self.run.batch)
        powers, least = xp.zeros(count, dtype=np.int64), xp.ones(count, dtype=np.float32)
        peaks = xp.zeros(run.batch.total_slices, dtype=np.int32)
        roots = xp.empty((self.blocks, count))
        self._launch(
            "rise_all", self._matrix, (run.tables.rows, run.tables.bottom_rows),
            (np.int32(count), np.int32(run.width), np.float32(under), run.form),
            (*((0, 0) if up.vectors is None else (up.vectors, up.exponents)),
             peaks, powers, least.view(np.int32), roots),
        )  # fmt: skip
        up.results[0] = roots.sum(axis=0)
        up.results[1], up.results[2] = powers, least

    def fall(
        self, up: "Upward", share: Array, posteriors: Array, uses: Array, highest: Array
    ) -> None:
        """The way down."""
        run, xp = self.run, self.device.xp
        factor = xp.where(share > 0, share / up.root, 0.0).astype(np.float32)
        self._launch(
            "fall_all", self._turned, (run.tables.rows,),
            (np.int32(len(run.batch)), np.int32(run.width), run.form),
            (factor, up.vectors, up.exponents, highest, posteriors, uses),
        )  # fmt: skip

    def _launch(
        self, name: str, matrix: Array, rows: tuple[Any, ...], sizes: tuple[Any, ...],
        more: tuple[Any, ...],
    ) -> None:  # fmt: skip
        run, xp, batch = self.run, self.device.xp, self.run.batch
        vectors = xp.empty((2, self.pairs * _PAIR * self.depths * _DEPTH), dtype=np.float32)
        done = xp.zeros(2 * self.pairs, dtype=np.int32)
        kernel = self.device.kernel("hopper", name, _OPTIONS)
        heights = np.int32(batch.longest)
        lanes = (run.first, run.lengths, self._active, heights, run.direction)
        blocks = 2 * min(self.pairs * self.blocks, self.device.processors // 2)
        kernel(
            (blocks,), (_THREADS,),
            (vectors[0], vectors[1], matrix, self._tables, *rows, run.chunks.slot, *lanes, *sizes,
             done, *more),
            shared_mem=self.device.give_shared_memory(kernel, _SHARED_BYTES),
        )  # fmt: skip

    @property
    def _active(self) -> Array:
        def make() -> Array:
            return self.device.there(np.array(active_lanes(self.run.batch), dtype=np.int32))

        return self.run.batch.keep("active there", make)

    @property
    def _tables(self) -> Any:
        run = self.run
        if not run.layout.by:
            return 0

        def make() -> Array:
            return self.device.there(np.array(tables_of_heights(run), dtype=np.int32))

        return run.batch.keep(("tables there", run.layout.by, int(run.direction)), make)

    @cached_property
    def _matrix(self) -> Array:
        return self._tiles(self.run.matrix)

    @cached_property
    def _turned(self) -> Array:
        return self._tiles(self.run.turned)

    def _tiles(self, matrix: Array) -> Array:
        parts = len(matrix) * self.blocks * _OUTPUTS * self.depths * (_DEPTH // 4)
        out = self.device.xp.empty(4 * parts, dtype=np.float32)
        sizes = (np.int32(self.run.width), np.int32(self.blocks), np.int32(self.depths))
        kernel = self.device.kernel("hopper", "arrange", _OPTIONS)
        kernel((-(-parts // 256),), (256,), (matrix, *sizes, np.int64(parts), out))
        return out
