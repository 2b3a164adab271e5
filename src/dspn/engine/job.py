"""A program and a batch, with the tables that all blocks share."""

from collections.abc import Callable
from functools import cached_property
from typing import Final, NamedTuple, TypeVar, final

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn.data import Sequences
from dspn.engine.announce import announce_compilation
from dspn.engine.arithmetic import Arithmetic
from dspn.engine.blocks import LANES, Block, Segment, blocks, segments
from dspn.engine.coding import Codes, Coding, coding_of, encode
from dspn.engine.memo import Memo
from dspn.engine.program import Program
from dspn.engine.records import LARGE_SCALE, LONG_SEQUENCE, Coefficients, LeafTables
from dspn.engine.tables import DenseTables, tabulate, with_dense
from dspn.engine.threads import check_time, in_threads

Result = TypeVar("Result")

_MOST_TABLE_BYTES: Final = 64 << 20
_NO_NUMBERS: Final = np.empty(0, dtype=np.int32)


class Given(NamedTuple):
    """Coefficients for the slices of a segment, and whether the range of numbers lost an entry."""

    coefficients: Coefficients
    lossy: bool


def _blank(program: Program, count: int, *, by_slice: bool, arithmetic: Arithmetic) -> Coefficients:
    """Room for the coefficients of `count` slices.

    They lie slice after slice (`by_slice`) or coefficient after coefficient.
    """
    rows = program.num_coefficients
    return Coefficients(
        np.empty(rows * count),
        np.empty(0 if arithmetic.is_linear else rows * count),
        1 if by_slice else count,
        rows if by_slice else 1,
        0 if by_slice else 1,
        np.zeros((2, count)),
        1,
        np.zeros((program.num_groups, count), dtype=np.int64),
    )


@final
class Job:
    """What a pass works on: a program, a batch, and the tables and coefficients its blocks share.

    With `best` a missing entry has the density of its leaf's mode. Where all variables are
    tabulated and slices repeat, coefficients are computed once for every distinct slice, and
    `numbers` gives the distinct slice at each row.
    """

    def __init__(
        self,
        program: Program,
        data: Sequences,
        *,
        best: bool = False,
        coding: Coding | None = None,
    ) -> None:
        announce_compilation()
        self.program = program
        self.data = data
        self.best = best
        self.coding = coding_of(data) if coding is None else coding
        self._kept = Memo()
        self.numbers: Codes = _NO_NUMBERS
        if coding is None and self._repeats():
            self.numbers = self.coding.distinct.numbers

    @classmethod
    def for_stream(cls, program: Program, data: Sequences) -> "Job":
        """A job whose tables do not depend on the data, so that `on` can take other slices."""
        return cls(program, data, coding=encode(data, counts=False))

    def on(self, data: Sequences) -> "Job":
        """The same job of a stream on other slices, with the same tables."""
        other = Job(self.program, data, best=self.best, coding=self.coding.of(data.values))
        other._kept = self._kept
        return other

    def _repeats(self) -> bool:
        """Whether slices repeat enough, and fit into a table that is not too large."""
        total = len(self.data.values)
        if not self.coding.is_complete or total < 2:
            return False
        count = self.coding.distinct.rows.size
        width = self.program.num_coefficients + 8 * self.program.num_groups  # chains are padded
        return 2 * count <= total and 8 * count * width <= _MOST_TABLE_BYTES

    def prepare(self, *arithmetics: Arithmetic) -> None:
        """Makes what all blocks share, so that threads only read it."""
        for arithmetic in arithmetics:
            for bottom in {False, self.program.untied}:
                self.shared_tables(arithmetic, bottom)
                if self.numbers.size:
                    self.shared_given(arithmetic, bottom)

    def shared_tables(self, arithmetic: Arithmetic, bottom: bool) -> tuple[LeafTables, bool]:
        """Leaf tables of the tabulated variables, and whether one lost an entry."""
        key = (arithmetic.is_linear, bottom)

        def make() -> tuple[LeafTables, bool]:
            return tabulate(
                self.program,
                self.coding,
                bottom=bottom,
                linear=arithmetic.is_linear,
                best=self.best,
            )

        if self.coding.follows_schema:
            return self.program.kept(("leaf tables", self.coding.factor_of, self.best, *key), make)
        return self._kept(("leaf tables", *key), make)

    def shared_given(self, arithmetic: Arithmetic, bottom: bool) -> Given:
        """Coefficients of all distinct slices; only where `numbers` is not empty."""

        def make() -> Given:
            tables, lossy = self.shared_tables(arithmetic, bottom)
            rows = self.coding.distinct.rows
            out = _blank(self.program, rows.size, by_slice=True, arithmetic=arithmetic)
            codes = self.coding.codes
            lost = arithmetic.slice_values(self.program, bottom, tables, codes, rows, out)
            return Given(out._replace(large=self.is_large(out.scale)), lossy or lost)

        return self._kept(("coefficients", arithmetic, bottom), make)

    def leaf_tables(self, arithmetic: Arithmetic, bottom: bool, rows: Ints) -> DenseTables:
        """Leaf densities for the slices `rows`, whose places are their order."""
        shared, lossy = self.shared_tables(arithmetic, bottom)
        if self.coding.is_complete:
            return DenseTables(shared, lossy, {})
        dense = with_dense(
            shared,
            self.program,
            self.coding,
            self.data.values[rows].T,
            bottom=bottom,
            linear=arithmetic.is_linear,
            best=self.best,
        )
        return dense._replace(lossy=dense.lossy or lossy)

    def given(self, arithmetic: Arithmetic, block: Block, segment: Segment) -> Given:
        """Coefficients for one segment of one block: of all distinct slices, or of its places."""
        check_time()
        if self.numbers.size:
            return self.shared_given(arithmetic, segment.bottom)
        rows = block.rows(segment.p0, segment.p1)[0].ravel()
        tables = self.leaf_tables(arithmetic, segment.bottom, rows)
        out = _blank(self.program, rows.size, by_slice=False, arithmetic=arithmetic)
        lost = arithmetic.slice_values(
            self.program, segment.bottom, tables.tables, self.coding.codes, rows, out
        )
        return Given(out._replace(large=self.is_large(out.scale)), tables.lossy or lost)

    def is_large(self, scale: Floats) -> int:
        """Whether sums of some slices' log divisors may round something off; see `Coefficients`."""
        largest = float(np.abs(scale[0]).max(initial=0.0))
        return int(largest >= LARGE_SCALE or self._is_long)

    @cached_property
    def _is_long(self) -> bool:
        return int(self.data.lengths.max()) >= LONG_SEQUENCE

    @property
    def has_missing(self) -> Bools:
        """Which slices have a missing entry."""
        if self.coding.is_complete:
            return self.coding.incomplete
        return np.asarray(np.isnan(self.data.values).any(axis=1))

    def log_divisors(self, tables: DenseTables, variable: int, rows: Ints) -> Floats:
        """Logarithms by which a variable's densities were divided at the slices `rows`."""
        factor = self.coding.factor_of[variable]
        if factor < 0:
            found = tables.divisors.get(variable)
            return np.zeros(rows.size) if found is None else found
        start = tables.tables.divisor_start[factor]
        known: Floats = tables.tables.divisors[start + self.coding.codes[rows, factor]]
        return known

    def segments(self, block: Block, *, keep_flows: bool) -> list[Segment]:
        """Segments whose working arrays stay within a fixed size."""
        program = self.program
        floats = program.num_interfaces + program.num_coefficients if keep_flows else 0
        if not self.numbers.size:
            floats += program.num_coefficients
            if not self.coding.is_complete:
                floats += program.template.slice_part.operations.num_loads
        return segments(block, floats, untied=program.untied, cached=not keep_flows)

    def over_blocks(self, work: Callable[[Block], Result], *, lanes: int = LANES) -> list[Result]:
        """work(block) for every block, in their order, however many threads there are."""
        return in_threads(work, blocks(self.data, self.program.network.root, lanes))
