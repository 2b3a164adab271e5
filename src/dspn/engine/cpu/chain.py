"""Chains (`structure.chain`): a slice is a coefficient for each output times a matrix product.

The groups of a chain lie side by side in padded columns, which the kernels of chains read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, cast, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.base import TERMS, check_time
from dspn.engine.cpu.arithmetic import LINEAR, Arithmetic, TopValues, underflows
from dspn.engine.cpu.batch import Job, LaneBlock
from dspn.engine.cpu.densities import GroupDensities
from dspn.engine.cpu.kernels.chain import LEAST_MASS, chain_upward
from dspn.engine.cpu.kernels.coding import join_leaves, multiply_chunks
from dspn.engine.cpu.kernels.sparse import EDGES
from dspn.engine.cpu.kernels.tiles import VECTOR, VECTOR_SINGLE
from dspn.engine.cpu.layout import Transitions
from dspn.engine.cpu.program import CpuProgram
from dspn.engine.cpu.records import (
    ChainGiven,
    ChainMatrix,
    ChainShape,
    Chunks,
    Codes,
    Coefficients,
    LeafTables,
    Segment,
    State,
)

# Coefficients that cannot get smaller than this need no rescaling of their own.
_SMALL: Final = 1e-30
_SMALL_SINGLE: Final = 1e-10
# In single precision flows are found with this floor, and a mass below the second number may owe
# too much to it; see `passes`.
_FLOOR_SINGLE: Final = 1e-34
_LEAST_MASS_SINGLE: Final = 1e-18
# Logarithms of the least coefficients over the largest of a slice, in double and single precision.
_LEAST_LOG: Final = -708.0
_LEAST_LOG_SINGLE: Final = -87.0

Real = type[np.float64]
DOUBLE: Final[Real] = np.float64
SINGLE: Final = cast(Real, np.float32)  # kernels take either, and types cannot say so
_NO_SHIFT: Final = np.empty((0, 0), dtype=np.int64)
_NO_STORES: Final = {real: np.empty((0, 0, 0), real) for real in (DOUBLE, SINGLE)}


def is_chain(program: CpuProgram) -> bool:
    """Whether a program runs as a chain."""
    return program.template.transitions is not None


def _runs_single(program: CpuProgram) -> bool:
    """Whether a chain is run in single precision, which small groups would only be padded for."""
    sizes = np.diff(program.template.mix_part.operations.group_start)
    return program.single and int(sizes.max()) >= program.paths.fewest_single


def _full_vectors(counts: Any, is_single: bool) -> Any:
    """Counts rounded up to full vectors of the kernels."""
    vector = VECTOR_SINGLE if is_single else VECTOR
    return -(-counts // vector) * vector


def _is_lost(values: Floats, dtype: Real) -> bool:
    """Whether the type is too narrow for one of some non-negative numbers."""
    if dtype is DOUBLE:
        return False
    return bool(((values > 0) & (values < np.finfo(dtype).tiny)).any())


class _ChunkTables(NamedTuple):
    """Products of the leaves of a chunk for each of its joint codes.

    `values[first[q] + code]` is the row of chunk q at a joint code. `divisors[0, first[q] + code]`
    is the sum of its leaves' log divisors, and `divisors[1]` what that has rounded off. No product
    of all chunks is less than `smallest`, unless it is 0.
    """

    values: Floats
    first: Ints
    divisors: Floats
    smallest: float
    lossy: bool


@final
@dataclass(frozen=True, eq=False)
class Chain:
    """A program's mix part in padded columns; `columns[i]` is that of input i and output i."""

    program: CpuProgram

    @cached_property
    def transitions(self) -> Transitions:
        """The edges of the mix part."""
        found = self.program.template.transitions
        assert found is not None
        return found

    @cached_property
    def shape(self) -> ChainShape:
        """Columns and matrices of the groups."""
        own = np.diff(self.program.template.mix_part.operations.group_start)
        sizes = _full_vectors(own, _runs_single(self.program))
        is_sparse = self.transitions.is_sparse
        column = np.concatenate([[0], np.cumsum(sizes)])
        start = np.concatenate([[0], np.cumsum(np.where(is_sparse, 0, sizes**2))])
        return ChainShape(int(column[-1]), column, start, is_sparse.astype(np.int64))

    @cached_property
    def columns(self) -> Ints:
        """Column of each input row, and of the output row of the same number."""
        first = self.shape.column[:-1] - self.program.template.mix_part.operations.group_start[:-1]
        found: Ints = first[self.program.input_group] + np.arange(self.program.num_interfaces)
        return found

    @cached_property
    def _ranges(self) -> list[tuple[slice, slice]]:
        """Input rows and columns of each group."""
        starts = self.program.template.mix_part.operations.group_start.tolist()
        firsts = self.shape.column.tolist()
        return [
            (slice(begin, end), slice(column, column + end - begin))
            for begin, end, column in zip(starts[:-1], starts[1:], firsts[:-1], strict=True)
        ]

    @cached_property
    def outputs_of(self) -> list[tuple[Ints, Ints]]:
        """For each variable the outputs that have a leaf of it, and the leaves' places in its bank.

        Only where coefficients are products of leaves.
        """
        layout = self.program.template
        assert layout.factors is not None
        loads = layout.factors[self.transitions.loads].T
        outputs = [np.flatnonzero(own >= 0) for own in loads]
        return [
            (own, layout.load_member[row[own]]) for own, row in zip(outputs, loads, strict=True)
        ]

    @cached_property
    def members(self) -> list[dict[int, Ints]] | None:
        """For each group its variables, and their leaves' places in the bank, output after output.

        None where groups share a variable, or coefficients are no products of leaves.
        """
        if self.program.template.factors is None:
            return None
        found: list[dict[int, Ints]] = [{} for _ in self._ranges]
        for variable, (outputs, members) in enumerate(self.outputs_of):
            group = int(self.program.input_group[outputs[0]]) if outputs.size else 0
            rows = self._ranges[group][0]
            if not np.array_equal(outputs, np.arange(rows.start, rows.stop)):
                return None
            found[group][variable] = members
        return found

    def densities(self, job: Job, bottom: bool) -> list[GroupDensities]:
        """The leaves of each group; none where coefficients are no products of its own leaves."""
        found = [
            GroupDensities(job, bottom, *ranges, members)
            for ranges, members in zip(self._ranges, self.members or (), strict=False)
        ]
        for own in found:
            _ = own.leaves  # threads only read them
        return found

    def _find_dense_places(self, transposed: bool) -> tuple[Ints, Ints]:
        """The edges of dense matrices and their places; rows are inputs or, transposed, outputs."""
        own, shape = self.transitions, self.shape
        group = np.repeat(np.arange(own.is_sparse.size), np.diff(own.group_start))
        edges = np.flatnonzero(~own.is_sparse[group])
        group = group[edges]
        row, column = self.columns[own.source[edges]], self.columns[own.target[edges]]
        if transposed:
            row, column = column, row
        first, size = shape.column[group], np.diff(shape.column)[group]
        places: Ints = shape.start[group] + (row - first) * size + column - first
        return edges, places

    def _find_sparse_places(self, transposed: bool) -> tuple[Ints, Ints, Ints]:
        """Where the row of each column begins and ends, and the place of each edge.

        Rows are padded to full tiles; edges are in the order of `Transitions`.
        """
        own = self.transitions
        if transposed:
            row = self.columns[own.source[own.sparse_edges_by_input]]
        else:
            row = self.columns[own.target[own.sparse_edges]]
        counts = np.bincount(row, minlength=self.shape.width)
        start = np.concatenate([[0], np.cumsum(-(-counts // EDGES) * EDGES)])
        # Edges lie row by row, whichever order the columns have.
        first = np.flatnonzero(np.diff(row, prepend=-1))
        within = np.arange(row.size) - np.repeat(first, np.diff(np.append(first, row.size)))
        return start, start[:-1] + counts, start[row] + within

    def _places(self, transposed: bool) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints, Ints]]:
        """The places of dense and of sparse edges; they follow from the structure."""

        def make() -> tuple[tuple[Ints, Ints], tuple[Ints, Ints, Ints]]:
            return self._find_dense_places(transposed), self._find_sparse_places(transposed)

        return self.program.places((Chain, transposed), make)

    def matrix(
        self, arithmetic: Arithmetic, bottom: bool, *, transposed: bool, dtype: Real
    ) -> ChainMatrix:
        """The weights of the edges, padded, of the bottom network or of the template.

        A product with it leads from inputs to outputs or, transposed, from outputs to inputs.
        """

        def make() -> ChainMatrix:
            own = self.transitions
            weights = self.program.weights(bottom, arithmetic.is_linear).mix_part
            by_edge = np.concatenate([weights.op, weights.mix])[own.tables]
            (edges, places), (start, end, sparse) = self._places(transposed)
            padding = 0.0 if arithmetic.is_linear else -np.inf
            dense = np.full((len(own.tables), int(self.shape.start[-1])), padding, dtype)
            dense[:, places] = by_edge[:, edges]
            edges = own.sparse_edges_by_input if transposed else own.sparse_edges
            read = self.columns[(own.target if transposed else own.source)[edges]]
            source, weight = np.zeros(int(start[-1]), np.int32), np.zeros(int(start[-1]), dtype)
            group = np.searchsorted(self.shape.column, read, side="right") - 1
            source[sparse] = read - self.shape.column[group]
            weight[sparse] = by_edge[0, edges]
            return ChainMatrix(self.shape, dense.ravel(), start, end, source, weight, own.by)

        return self.program.matrices((arithmetic.is_linear, bottom, transposed, dtype), make)

    def use_by_place(self, dense: Floats, edge: Floats) -> tuple[Ints, Floats]:
        """Places of weights and the use of their edges, from the sums of a downward pass.

        `dense` is in the order of the transposed matrix's squares and `edge` in that of its edges.
        """
        own = self.transitions
        (edges, places), (_, _, sparse) = self._places(True)
        use = dense.reshape(len(own.tables), -1)[:, places].astype(np.float64)
        found = np.concatenate([use.ravel(), edge[sparse]])
        return np.concatenate(
            [own.tables[:, edges].ravel(), own.place[own.sparse_edges_by_input]]
        ), found

    def leaf_places(self, factor_of: tuple[int, ...], leaf: LeafTables) -> Ints:
        """Where the densities of each factor's leaf begin, (factors, columns).

        -1 where the output of a column does not have the variable.
        """
        factors = self.program.template.factors
        assert factors is not None
        variables = np.flatnonzero(np.array(factor_of) >= 0)
        loads = factors[self.transitions.loads][:, variables].T
        places = np.full((variables.size, self.shape.width), -1)
        places[:, self.columns] = np.where(loads >= 0, leaf.start[loads], -1)
        return places

    def put_vectors(self, state: State, v: Floats) -> None:
        """Writes interface vectors (interfaces, lanes) into a state."""
        for rows, columns in self._ranges:
            state.v[: v.shape[1], columns] = v[rows].T

    def vectors(self, state: State, width: int) -> Floats:
        """Interface vectors as (interfaces, lanes)."""
        out = np.empty((self.program.num_interfaces, width))
        for rows, columns in self._ranges:
            out[rows] = state.v[:width, columns].T
        return out


@final
class ChainRun:
    """Upward passes over a job of a chain in one arithmetic (see `passes.Run`).

    For flows in single precision, every value of an upward pass has a floor. With `transposed` it
    has what downward passes need, too.
    """

    def __init__(
        self, job: Job, arithmetic: Arithmetic, *, transposed: bool = False, for_flows: bool = False
    ) -> None:
        self.job = job
        self.arithmetic = arithmetic
        self.chain = job.program.matrices(Chain, lambda: Chain(job.program))
        self.padding = 0.0 if arithmetic.is_linear else -np.inf
        self.is_single = _runs_single(job.program) and arithmetic == LINEAR
        self.dtype = SINGLE if self.is_single else DOUBLE
        self.rescale_every = 2 if self.is_single else 8
        self.least_mass = _LEAST_MASS_SINGLE if self.is_single else LEAST_MASS
        self.has_floor = for_flows and self.is_single
        self.no_store = _NO_STORES[self.dtype]
        self.shared: dict[bool, ChainGiven] = {}
        self.densities: dict[bool, list[GroupDensities]] = {}
        self._loses_weights: dict[bool, bool] = {}
        for bottom in {False, job.program.untied}:
            self._prepare(bottom, transposed)

    def _prepare(self, bottom: bool, transposed: bool) -> None:
        """Makes what all blocks share, so that threads only read it."""
        job = self.job
        for way in {False, transposed}:
            self.matrix(bottom, transposed=way)
        # A weight may be too small for single precision; under a floor that is no loss.
        weights = job.program.weights(bottom).mix_part
        lost = _is_lost(weights.op, self.dtype) or _is_lost(weights.mix, self.dtype)
        self._loses_weights[bottom] = lost and not self.has_floor
        if not job.numbers.size:
            job.shared_tables(self.arithmetic, bottom)
            if job.coding.is_complete:
                _ = job.coding.row_chunks
            elif self.arithmetic.is_linear:
                self.densities[bottom] = self.chain.densities(job, bottom)
        elif job.program.template.factors is None:
            given = job.shared_given(self.arithmetic, bottom)
            self.shared[bottom] = self._expand(*given)
        else:
            numbers = job.coding.distinct_chunks
            self.shared[bottom] = self._products(bottom, numbers, np.arange(len(numbers)))

    def _products(self, bottom: bool, numbers: Codes, rows: Ints) -> ChainGiven:
        """Coefficients that are products of leaves, from the joint codes by chunk at some rows."""
        job, shape, linear = self.job, self.chain.shape, self.arithmetic.is_linear
        tables = self._chunk_tables(bottom)
        out = np.empty((rows.size, shape.width), self.dtype)
        scale, shift = np.zeros((2, rows.size)), _NO_SHIFT
        if linear and tables.smallest < (_SMALL_SINGLE if self.is_single else _SMALL):
            shift = np.zeros((job.program.num_groups, rows.size), dtype=np.int64)
        chunks = Chunks(tables.values, tables.first, tables.divisors, numbers, rows)
        own = (shape, chunks, out, scale, shift, self.arithmetic.floor, linear)
        lossy = underflows(multiply_chunks, *own) or tables.lossy
        return ChainGiven(out, scale, job.is_large(scale), shift, linear and lossy)

    def _chunk_tables(self, bottom: bool) -> _ChunkTables:
        """Products of the leaves of each chunk for all its joint codes."""
        coding = self.job.coding
        if not coding.follows_schema:
            return self._make_chunk_tables(bottom)
        key = (self.arithmetic, bottom, self.dtype, *coding.widths.tolist())
        return self.job.program.chunk_tables(key, lambda: self._make_chunk_tables(bottom))

    def _make_chunk_tables(self, bottom: bool) -> _ChunkTables:
        job, chain, linear = self.job, self.chain, self.arithmetic.is_linear
        leaf, lossy = job.shared_tables(self.arithmetic, bottom)
        coding, width = job.coding, chain.shape.width
        values = np.empty((int(coding.chunk_first[-1]) + 1, width))
        values[-1] = 1.0 if linear else 0.0
        divisors = np.empty((2, len(values) - 1))
        lost = underflows(
            join_leaves,
            leaf.values,
            chain.leaf_places(coding.factor_of, leaf),
            *(coding.widths, coding.chunk_of, coding.chunk_first, leaf.divisor_start),
            *(leaf.divisors, linear, self.arithmetic.floor, values, divisors),
        )
        smallest = np.where(values[:-1] > 0, values[:-1], 1.0).min(axis=1, initial=1.0)
        least = float(np.prod(np.minimum.reduceat(smallest, coding.chunk_first[:-1])))
        padding = np.ones(width, dtype=np.bool_)
        padding[chain.columns] = False
        values[:, padding] = self.padding
        lossy = lossy or (linear and lost) or _is_lost(values, self.dtype)
        narrow = values.astype(self.dtype, copy=False)
        return _ChunkTables(narrow, coding.chunk_first[:-1], divisors, least, lossy)

    def _multiply(self, groups: Sequence[GroupDensities], rows: Ints) -> ChainGiven:
        """Coefficients that are products of leaves, from the logarithms of their densities."""
        out = np.full((rows.size, self.chain.shape.width), self.padding, self.dtype)
        least = _LEAST_LOG_SINGLE if self.is_single else _LEAST_LOG
        scale = np.zeros((2, rows.size))
        lost = [own.multiply(rows, least, self.arithmetic.floor, out, scale) for own in groups]
        # Under a floor, what is less than the floor is no loss.
        lossy = any(lost) and not self.has_floor
        return ChainGiven(out, scale, self.job.is_large(scale), _NO_SHIFT, lossy)

    def _expand(self, own: Coefficients, lossy: bool) -> ChainGiven:
        """Coefficients of every slice in the padded columns of its outputs."""
        chain, count = self.chain, own.scale.shape[1]
        by_slice = own.values.reshape(count, -1)
        if own.row_step != 1:
            by_slice = own.values.reshape(-1, count).T
        out = np.full((count, chain.shape.width), self.padding, self.dtype)
        out[:, chain.columns] = by_slice[:, chain.transitions.loads]
        lossy = lossy or _is_lost(by_slice, self.dtype)
        return ChainGiven(out, own.scale, own.large, own.shift, lossy)

    def matrix(self, bottom: bool, *, transposed: bool) -> ChainMatrix:
        """Matrices of the bottom network or of the template."""
        return self.chain.matrix(self.arithmetic, bottom, transposed=transposed, dtype=self.dtype)

    def given(self, block: LaneBlock, segment: Segment) -> ChainGiven:
        """Coefficients for one segment of one block: of all distinct slices, or of its places."""
        check_time()
        job = self.job
        if job.numbers.size:
            return self.shared[segment.bottom]
        if job.coding.is_complete and job.program.template.factors is not None:
            rows = block.rows(segment)[0].ravel()
            return self._products(segment.bottom, job.coding.row_chunks, rows)
        if groups := self.densities.get(segment.bottom):
            return self._multiply(groups, block.rows(segment)[0].ravel())
        span, lossy = job.given(self.arithmetic, block, segment)
        return self._expand(span.given, lossy)

    def segments(self, block: LaneBlock, *, keep: bool) -> list[Segment]:
        """Segments whose vectors, and coefficients and posteriors by place, stay within a size."""
        job = self.job
        if not keep:
            return job.segments(block, keep_flows=False)
        rows = 1 if job.numbers.size else 3
        floats = rows * self.chain.shape.width // (2 if self.is_single else 1)
        if not job.coding.is_complete:
            floats += job.program.template.slice_part.operations.num_loads
        return block.segments(
            max(floats, 1), job.program.paths.segment_bytes, untied=job.program.untied
        )

    def start(self, width: int) -> State:
        """The state below position 0: every input at 1."""
        own = self.arithmetic.start(self.job.program, width)
        lanes = _full_vectors(width, self.is_single)
        v = np.full((lanes, self.chain.shape.width), self.padding, self.dtype)
        v[:width, self.chain.columns] = own.v[0, 0]
        return State(v, own.exponents, np.zeros((TERMS, width)))

    def new_store(self, segment: Segment, width: int, room: Callable[..., Floats]) -> Floats:
        """Room for the vectors around every position of a segment."""
        lanes = _full_vectors(width, self.is_single)
        return room((segment.p1 - segment.p0 + 1, lanes, self.chain.shape.width), self.dtype)

    def upward(
        self, block: LaneBlock, segment: Segment, given: ChainGiven, state: State, store: Floats
    ) -> bool:
        """Moves the state up through a segment; returns whether a coefficient lost an entry."""
        floor = _FLOOR_SINGLE if self.has_floor else self.arithmetic.floor
        best = not self.arithmetic.is_linear
        lossy = underflows(
            chain_upward,
            self.matrix(segment.bottom, transposed=False),
            *(given, block.batch(self.job.numbers, self.job.inputs), segment, state, store),
            *(floor, self.rescale_every, best),
        )
        # What underflowed under a floor is less than the floor, and logarithms do not.
        lossy = lossy and not (self.has_floor or best)
        return given.lossy or lossy or self._loses_weights[segment.bottom]

    def top(self, own: State, width: int) -> TopValues:
        """The root's value for each lane, from the vectors above the topmost slices."""
        program = self.job.program
        exponents = own.exponents.copy()
        exponents[program.num_groups :] = 0
        state = self.arithmetic.start(program, width)
        state.v[: program.num_interfaces] = self.chain.vectors(own, width)
        state = state._replace(exponents=exponents, scale=own.scale.copy())
        return self.arithmetic.top(program, state)

    def top_derivatives(self, top: TopValues, width: int) -> State:
        """Derivatives of the root at the outputs of the topmost slices."""
        state = self.start(width)
        found = self.arithmetic.top_derivatives(self.job.program, top.rows)
        self.chain.put_vectors(state, found.v)
        return state
