"""A program and a batch, with the tables that all blocks share."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import NamedTuple, TypeVar, final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.engine.arithmetic import Arithmetic
from dspn.engine.blocks import Block, Segment, blocks, segments
from dspn.engine.coding import Coding, code
from dspn.engine.program import Program
from dspn.engine.tables import Tables, tabulate, with_dense
from dspn.engine.threads import num_threads
from dspn.sequences import Sequences

Result = TypeVar("Result")


class SegmentTables(NamedTuple):
    """Tables of one segment, whether they lost an entry, and log divisors of the dense variables."""

    tables: Tables
    lossy: bool
    divisors: dict[int, Floats]


@final
class Job:
    """What a pass works on. With `best` a missing entry has the density of its leaf's mode."""

    def __init__(
        self, program: Program, data: Sequences, *, best: bool = False, tabulate_counts: bool = True
    ) -> None:
        self.program = program
        self.data = data
        self.best = best
        self.coding: Coding = code(data, counts=tabulate_counts)
        self._shared: dict[tuple[bool, bool], tuple[Tables, bool]] = {}

    def on(self, data: Sequences) -> "Job":
        """The same job on other data, with the same tables; only where counts are not tabulated."""
        other = Job(self.program, data, best=self.best, tabulate_counts=False)
        other._shared = self._shared
        return other

    @cached_property
    def is_dense(self) -> bool:
        """Whether some variable is evaluated slice by slice."""
        return min(self.coding.factor_of) < 0

    def prepare(self, *arithmetics: Arithmetic) -> None:
        """Makes the shared tables, so that threads only read them."""
        for arithmetic in arithmetics:
            for bottom in {False, self.program.untied}:
                self._shared_tables(arithmetic, bottom)

    def _shared_tables(self, arithmetic: Arithmetic, bottom: bool) -> tuple[Tables, bool]:
        key = (arithmetic.is_linear, bottom)
        if key not in self._shared:
            self._shared[key] = tabulate(
                self.program,
                self.coding,
                bottom=bottom,
                linear=arithmetic.is_linear,
                best=self.best,
            )
        return self._shared[key]

    def tables(self, arithmetic: Arithmetic, block: Block, segment: Segment) -> SegmentTables:
        """Tables for one segment of one block."""
        shared, lossy = self._shared_tables(arithmetic, segment.bottom)
        if not self.is_dense:
            return SegmentTables(shared, lossy, {})
        rows, active = block.rows(segment.p0, segment.p1)
        columns = np.where(active.ravel(), self.data.values[rows.ravel()].T, np.nan)
        dense = with_dense(
            shared,
            self.program,
            self.coding,
            columns,
            bottom=segment.bottom,
            linear=arithmetic.is_linear,
            best=self.best,
        )
        return SegmentTables(dense.tables, lossy or bool(dense.lossy.any()), dense.divisors)

    def log_divisors(self, tables: SegmentTables, variable: int, rows: Ints) -> Floats:
        """Logarithms by which the table entries of a variable were divided, for the slices of a segment."""
        factor = self.coding.factor_of[variable]
        if factor < 0:
            found = tables.divisors.get(variable)
            return np.zeros(rows.shape) if found is None else found.reshape(rows.shape)
        start = tables.tables.scale_start[factor]
        return tables.tables.scales[start + self.coding.codes[rows, factor]]

    def segments(self, block: Block, *, keep_flows: bool) -> list[Segment]:
        """Segments whose working arrays stay within a fixed size."""
        operations = self.program.template.operations
        rows = operations.num_inputs if keep_flows else 0
        if keep_flows or self.is_dense:
            rows += operations.num_loads
        return list(segments(self.program, block, rows))

    def over_blocks(self, work: Callable[[Block], Result]) -> list[Result]:
        """work(block) for every block, in the order of the blocks whatever the number of threads."""
        every = blocks(self.data, self.program.network.root)
        threads = min(num_threads(), len(every))
        if threads <= 1:
            return [work(block) for block in every]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, every))
