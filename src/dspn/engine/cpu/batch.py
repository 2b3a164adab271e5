"""A batch under a program: sequences in blocks of lanes, positions in segments, shared tables."""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final, NamedTuple, TypeVar, final

import numpy as np

from dspn._arguments import Bools, Floats, Ints
from dspn.data.sequences import Sequences
from dspn.engine.base import check_time, is_one_thread, time_limit, until
from dspn.engine.cpu import kernel_cache
from dspn.engine.cpu.arithmetic import Arithmetic
from dspn.engine.cpu.program import CpuProgram, Memo
from dspn.engine.cpu.records import (
    LARGE_SCALE,
    LONG_SEQUENCE,
    Batch,
    Codes,
    Coefficients,
    LeafFlows,
    LeafTables,
    Segment,
    Slices,
    Span,
)
from dspn.engine.cpu.tables import Coding, coding_of, encode, tabulate, with_dense
from dspn.errors import DspnError
from dspn.leaves.told import require_told, sources_of, told_values
from dspn.structure.network import Root

Item = TypeVar("Item")
Result = TypeVar("Result")

LANES: Final = 64
_VARIABLE: Final = "DSPN_NUM_THREADS"
_MOST_TABLE_BYTES: Final = 64 << 20
_NO_NUMBERS: Final = np.empty(0, dtype=np.int32)


@cache
def announce_compilation() -> None:
    """Prints one line when the first evaluation of this process has to compile its kernels."""
    if kernel_cache.is_on_disk("dspn.engine.cpu.kernels.general.upward"):
        return
    sentence = "compiling kernels for this machine, once; this takes a minute or two."
    if kernel_cache.folder() is None:
        sentence = (
            "compiling kernels for this process alone, because no folder to keep them can be "
            "written; set NUMBA_CACHE_DIR to one that can."
        )
    print(f"dspn: {sentence}", file=sys.stderr, flush=True)


def num_threads() -> int:
    """The environment variable DSPN_NUM_THREADS, else the processors this process may run on."""
    given = os.environ.get(_VARIABLE)
    if given is None:
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
    if not (given.isascii() and given.isdigit()) or int(given) < 1:
        raise DspnError(
            f"the environment variable {_VARIABLE} must be a whole number of at least 1, but is "
            f"{given!r}."
        )
    return int(given)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that stay, because starting them costs as much as a small pass."""
    return ThreadPoolExecutor(threads, thread_name_prefix="dspn")


if hasattr(os, "register_at_fork"):
    # A forked process has the pool but none of its threads, and would wait for them for ever.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int | None = None
) -> list[Result]:
    """work(item) for every item, in their order; kernels release the interpreter's lock."""
    threads = min(threads or num_threads(), len(items))
    if threads <= 1 or is_one_thread():
        return [work(item) for item in items]
    is_due = time_limit()
    if is_due is None:
        return list(_pool(threads).map(work, items))

    def limited(item: Item) -> Result:
        with until(is_due):
            check_time()
            return work(item)

    return list(_pool(threads).map(limited, items))


@final
@dataclass(frozen=True, eq=False)
class LaneBlock:
    """Sequences that are evaluated together, one lane each, in order of falling length."""

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

    def batch(self, numbers: Codes, inputs: Codes) -> Batch:
        """The block with the numbers of its data's distinct slices (empty: numbered by place).

        `inputs` are those of all slices that weights depend on.
        """
        return Batch(numbers, self.base, self.stride, self.lengths, inputs)

    def only(self, lanes: Bools) -> "LaneBlock":
        """The block with some of its lanes."""
        return LaneBlock(self.members[lanes], self.lengths[lanes], self.base[lanes], self.stride)

    def rows(self, segment: Segment) -> tuple[Ints, Bools]:
        """Slice index of every (position, lane) of a segment, and where the lane takes part."""
        positions = np.arange(segment.p0, segment.p1)[:, None]
        active = positions < self.lengths
        return np.where(active, self.base + self.stride * positions, self.base), active

    def segments(self, floats_per_slice: int, most: int, *, untied: bool) -> list[Segment]:
        """The positions in segments of at most `most` bytes.

        A slice counts as `floats_per_slice` numbers. Where the bottom network is untied, position 0
        is a segment by itself.
        """
        found = [Segment(0, 1, True)] if untied else []
        step = self.num_positions
        if floats_per_slice:
            step = max(1, most // (8 * self.width * floats_per_slice))
        for p0 in range(len(found), self.num_positions, step):
            found.append(Segment(p0, min(p0 + step, self.num_positions), False))
        return found


class Given(NamedTuple):
    """Coefficients for the slices of a segment, and whether the range of numbers lost an entry."""

    span: Span
    lossy: bool


class SliceTables(NamedTuple):
    """Leaf densities of some slices, and the log divisors of the variables that are not tabulated.

    `lossy` says whether an entry was lost to the range of numbers.
    """

    slices: Slices
    lossy: bool
    divisors: dict[int, Floats]


@final
class Job:
    """What a pass works on: a program, a batch, and the tables and coefficients its blocks share.

    Where all variables are tabulated and slices repeat, coefficients are computed once for every
    distinct slice, and `numbers` gives the distinct slice at each row.
    """

    def __init__(self, program: CpuProgram, data: Sequences, coding: Coding | None = None) -> None:
        announce_compilation()
        self.program = program
        self.data = data
        self.coding = coding_of(data) if coding is None else coding
        # Columns of an array lie one after the other, and kernels are compiled for rows alone.
        self.inputs: Codes = np.ascontiguousarray(data.inputs[:, program.by_inputs], np.int32)
        self._tables = Memo()
        self._coefficients = Memo()
        self.numbers: Codes = _NO_NUMBERS
        require_told(program.network.schema, data.schema)
        self._told = {
            v: told_values(data, v) for v, own in enumerate(data.schema) if sources_of(own)
        }
        if coding is None and self._repeats():
            self.numbers = self.coding.distinct.numbers

    @classmethod
    def for_stream(cls, program: CpuProgram, data: Sequences) -> "Job":
        """A job whose tables do not depend on the data, so that `on` can take other slices."""
        return cls(program, data, encode(data, seen=False))

    def on(self, data: Sequences) -> "Job":
        """The same job of a stream on other slices, with the same tables."""
        other = Job(self.program, data, self.coding.of(data.values))
        other._tables, other._coefficients = self._tables, self._coefficients
        return other

    def values_at(self, variable: int, rows: Ints) -> Floats:
        """Values of a variable at some slices, with the context that its leaves are told."""
        told = self._told.get(variable)
        return np.asarray(self.data.values[rows, variable] if told is None else told[rows])

    def _repeats(self) -> bool:
        """Whether slices repeat enough, and fit into a table that is not too large."""
        total = len(self.data.values)
        if (self.program.template.slice_part.operations.op_by >= 0).any():
            return False
        if not (self.program.paths.distinct_slices and self.coding.is_complete) or total < 2:
            return False
        count = self.coding.distinct.rows.size
        width = self.program.num_coefficients + 8 * self.program.num_groups  # chains are padded
        return 2 * count <= total and 8 * count * width <= _MOST_TABLE_BYTES

    def prepare(self, arithmetic: Arithmetic) -> None:
        """Makes what all blocks share, so that threads only read it."""
        for bottom in {False, self.program.untied}:
            self.shared_tables(arithmetic, bottom)
            if self.numbers.size:
                self.shared_given(arithmetic, bottom)

    def shared_tables(self, arithmetic: Arithmetic, bottom: bool) -> tuple[LeafTables, bool]:
        """Leaf tables of the tabulated variables, and whether one lost an entry."""
        key = (arithmetic.is_linear, arithmetic.maximise, bottom)

        def make() -> tuple[LeafTables, bool]:
            return tabulate(self.program, self.coding, arithmetic, bottom)

        if self.coding.follows_schema:
            return self.program.leaf_tables((self.coding.factor_of, *key), make)
        return self._tables(key, make)

    def shared_given(self, arithmetic: Arithmetic, bottom: bool) -> tuple[Coefficients, bool]:
        """Coefficients of all distinct slices; only where `numbers` is not empty."""
        rows = self.coding.distinct.rows
        return self._coefficients(
            (arithmetic, bottom), lambda: self._given(arithmetic, bottom, rows, by_slice=True)
        )

    def _given(
        self, arithmetic: Arithmetic, bottom: bool, rows: Ints, *, by_slice: bool
    ) -> tuple[Coefficients, bool]:
        """Coefficients of the slices `rows`, and whether the range of numbers lost an entry.

        They lie slice after slice (`by_slice`) or coefficient after coefficient.
        """
        tables = self.leaf_tables(arithmetic, bottom, rows)
        size, count = self.program.num_coefficients, rows.size
        out = Coefficients(
            np.empty(size * count),
            np.empty(0 if arithmetic.is_linear else size * count),
            1 if by_slice else count,
            size if by_slice else 1,
            int(not by_slice),
            np.zeros((2, count)),
            1,
            np.zeros((self.program.num_groups, count), dtype=np.int64),
        )
        lost = arithmetic.slice_values(self.program, bottom, tables.slices, out)
        return out._replace(large=self.is_large(out.scale)), tables.lossy or lost

    def leaf_tables(self, arithmetic: Arithmetic, bottom: bool, rows: Ints) -> SliceTables:
        """Leaf densities for the slices `rows`, whose places are their order."""
        shared, lossy = self.shared_tables(arithmetic, bottom)
        divisors: dict[int, Floats] = {}
        if not self.coding.is_complete:
            columns = [self.values_at(v, rows) for v in range(self.data.num_variables)]
            own = (self.program, self.coding, arithmetic, bottom, columns)
            shared, lost, divisors = with_dense(shared, *own)
            lossy = lossy or lost
        return SliceTables(Slices(shared, self.coding.codes, rows, self.inputs), lossy, divisors)

    def slice_flows(
        self,
        arithmetic: Arithmetic,
        bottom: bool,
        rows: Ints,
        shift: Ints,
        seeds: Floats,
        **options: Any,
    ) -> tuple[LeafFlows, SliceTables]:
        """Posteriors of the leaves of the slices `rows` (`Arithmetic.slice_flows`), and tables."""
        tables = self.leaf_tables(arithmetic, bottom, rows)
        own = (tables.slices, np.ascontiguousarray(shift), np.ascontiguousarray(seeds))
        return arithmetic.slice_flows(self.program, bottom, *own, **options), tables

    def given(self, arithmetic: Arithmetic, block: LaneBlock, segment: Segment) -> Given:
        """Coefficients for one segment of one block: of all distinct slices, or of its places."""
        check_time()
        if self.numbers.size:
            found, lossy = self.shared_given(arithmetic, segment.bottom)
        else:
            rows = block.rows(segment)[0].ravel()
            found, lossy = self._given(arithmetic, segment.bottom, rows, by_slice=False)
        return Given(Span(found, block.batch(self.numbers, self.inputs), segment), lossy)

    def shifts(self, span: Span, rows: Ints, positions: Ints, lanes: Ints) -> Ints:
        """Shifts (groups, slices) of the slices `rows`, at some positions and lanes of a span."""
        numbers = positions * span.batch.lengths.size + lanes
        found: Ints = span.given.shift[:, self.numbers[rows] if self.numbers.size else numbers]
        return found

    def is_large(self, scale: Floats) -> int:
        """Whether sums of some slices' log divisors may round something off; see `Coefficients`."""
        return int(float(np.abs(scale[0]).max(initial=0.0)) >= LARGE_SCALE or self._is_long)

    @cached_property
    def _is_long(self) -> bool:
        return int(self.data.lengths.max()) >= LONG_SEQUENCE

    @property
    def has_missing(self) -> Bools:
        """Which slices have a missing entry."""
        if self.coding.is_complete:
            return self.coding.incomplete
        return np.asarray(np.isnan(self.data.values).any(axis=1))

    def log_divisors(self, tables: SliceTables, variable: int) -> Floats:
        """Logarithms by which a variable's densities were divided at the slices of some tables."""
        factor = self.coding.factor_of[variable]
        if factor < 0:
            return tables.divisors[variable]
        own, codes, rows, _ = tables.slices
        known: Floats = own.divisors[own.divisor_start[factor] + codes[rows, factor]]
        return known

    def segments(self, block: LaneBlock, *, keep_flows: bool) -> list[Segment]:
        """Segments whose working arrays stay within a fixed size."""
        program = self.program
        floats = program.num_interfaces + program.num_coefficients if keep_flows else 0
        if not self.numbers.size:
            floats += program.num_coefficients
            if not self.coding.is_complete:
                floats += program.template.slice_part.operations.num_loads
        most = program.paths.segment_bytes if keep_flows else program.paths.cached_bytes
        return block.segments(floats, most, untied=program.untied)

    def blocks(self, lanes: int = LANES) -> list[LaneBlock]:
        """All sequences, longest first, in blocks of `lanes`, unless the paths say otherwise.

        Position 0 is the slice farthest from the root.
        """
        lanes, offsets = self.program.paths.lanes or lanes, self.data.offsets
        lengths = np.diff(offsets)
        order = np.argsort(-lengths, kind="stable")
        found = []
        for start in range(0, order.size, lanes):
            members = order[start : start + lanes]
            own = lengths[members]
            if self.program.network.root == Root.FIRST:
                found.append(LaneBlock(members, own, offsets[members] + own - 1, -1))
            else:
                found.append(LaneBlock(members, own, offsets[members], 1))
        return found

    def over_blocks(
        self, work: Callable[[LaneBlock], Result], *, lanes: int = LANES
    ) -> list[Result]:
        """work(block) for every block, in their order, however many threads there are."""
        return in_threads(work, self.blocks(lanes), self.program.paths.threads)
