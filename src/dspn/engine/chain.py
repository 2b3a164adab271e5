"""Chains: templates whose mix part is a coefficient times a matrix product (`kernels.chain`)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, cast, final

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn.engine.arithmetic import Arithmetic, Linear
from dspn.engine.blocks import Block, Segment, segments
from dspn.engine.chain_matrix import chain_matrix
from dspn.engine.coding import Codes
from dspn.engine.job import Given, Job
from dspn.engine.kernels import chain, chain_best, products
from dspn.engine.kernels.chain_downward import LEAST_MASS
from dspn.engine.kernels.vectors import VECTOR, VECTOR_SINGLE
from dspn.engine.program import Program, Weights
from dspn.engine.records import ChainMatrix, ChainShape, ChainState, LeafTables, State
from dspn.engine.threads import check_time
from dspn.engine.totals import TERMS
from dspn.engine.transitions import Transitions
from dspn.engine.underflow import underflows

# Coefficients that cannot get smaller than this need no rescaling of their own.
_SMALL: Final = 1e-30
_SMALL_SINGLE: Final = 1e-10
# Smaller groups than this are no faster in single precision.
_FEWEST_SINGLE: Final = VECTOR_SINGLE
# In single precision flows are found with this floor, and a mass below the second number may owe
# too much to it; see `engine.passes`.
_FLOOR_SINGLE: Final = 1e-34
_LEAST_MASS_SINGLE: Final = 1e-18

Real = type[np.float64]
DOUBLE: Final[Real] = np.float64
SINGLE: Final = cast(Real, np.float32)  # kernels take either, and types cannot say so
_NO_SHIFT: Final = np.empty((0, 0), dtype=np.int64)
NO_STORES: Final = {real: np.empty((0, 0, 0), real) for real in (DOUBLE, SINGLE)}


def _runs_single(program: Program) -> bool:
    """Whether a chain is run in single precision, which small groups would only be padded for."""
    sizes = np.diff(program.template.mix_part.operations.group_start)
    return program.single and int(sizes.max()) >= _FEWEST_SINGLE


def full_vectors(count: int, dtype: Real) -> int:
    """The count rounded up to full vectors of the kernels."""
    vector = VECTOR if dtype is DOUBLE else VECTOR_SINGLE
    return -(-count // vector) * vector


def _is_lost(values: Floats, dtype: Real) -> bool:
    """Whether the type is too narrow for one of some non-negative numbers."""
    if dtype is DOUBLE:
        return False
    return bool(((values > 0) & (values < np.finfo(dtype).tiny)).any())


def is_chain(program: Program) -> bool:
    """Whether each output is one coefficient times one sum over its own group's inputs."""
    return program.template.transitions is not None


def runs_sparse(program: Program) -> bool:
    """Whether a program is a chain with a sparse matrix."""
    transitions = program.template.transitions
    return transitions is not None and bool(transitions.is_sparse.any())


class ChainGiven(NamedTuple):
    """Coefficients in padded columns; `scale`, `large` and `shift` as in `Coefficients`.

    `shift` may be empty. `lossy` says whether a coefficient was lost to the range of numbers.
    """

    values: Floats
    scale: Floats
    large: int
    shift: Ints
    lossy: bool


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
    """A program's mix part in padded columns: what the kernels of chains read."""

    program: Program

    @cached_property
    def sizes(self) -> Ints:
        """Padded size of each group."""
        own = np.diff(self.program.template.mix_part.operations.group_start)
        vector = VECTOR_SINGLE if _runs_single(self.program) else VECTOR
        return -(-own // vector) * vector

    @cached_property
    def shape(self) -> ChainShape:
        """Columns and matrices of the groups."""
        is_sparse = self.transitions.is_sparse
        column = np.concatenate([[0], np.cumsum(self.sizes)])
        start = np.concatenate([[0], np.cumsum(np.where(is_sparse, 0, self.sizes**2))])
        return ChainShape(int(column[-1]), column, start, is_sparse.astype(np.int64))

    @property
    def transitions(self) -> Transitions:
        """The edges of the mix part."""
        found = self.program.template.transitions
        assert found is not None
        return found

    @cached_property
    def columns(self) -> Ints:
        """Column of each input row, and of the output row of the same number."""
        starts = self.program.template.mix_part.operations.group_start
        own = [
            self.shape.column[g] + np.arange(starts[g + 1] - starts[g])
            for g in range(len(starts) - 1)
        ]
        return np.concatenate(own)

    @cached_property
    def _ranges(self) -> list[tuple[slice, slice]]:
        """Input rows and columns of each group."""
        starts = self.program.template.mix_part.operations.group_start.tolist()
        first = self.shape.column.tolist()
        return [
            (slice(begin, end), slice(column, column + end - begin))
            for begin, end, column in zip(starts[:-1], starts[1:], first[:-1], strict=True)
        ]

    @property
    def loads(self) -> Ints:
        """The coefficient of each output row."""
        return self.transitions.loads

    def matrix(
        self, weights: Weights, *, transposed: bool, padding: float, dtype: Real
    ) -> ChainMatrix:
        """The matrices of all groups; see `chain_matrix`."""
        return chain_matrix(
            self.shape,
            self.transitions,
            self.columns,
            weights,
            transposed=transposed,
            padding=padding,
            dtype=dtype,
        )

    def expanded(self, given: Given, padding: float, dtype: Real = DOUBLE) -> ChainGiven:
        """Coefficients of every slice in the padded columns of its outputs."""
        values = given.coefficients.values
        count = given.coefficients.scale.shape[1]
        by_slice = (
            values.reshape(count, -1)
            if given.coefficients.row_step == 1
            else values.reshape(-1, count).T
        )
        out = np.full((count, self.shape.width), padding, dtype)
        out[:, self.columns] = by_slice[:, self.loads]
        own = given.coefficients
        lossy = given.lossy or _is_lost(by_slice, dtype)
        return ChainGiven(out, own.scale, own.large, own.shift, lossy)

    def products(
        self,
        job: Job,
        arithmetic: Arithmetic,
        bottom: bool,
        numbers: Codes,
        rows: Ints,
        dtype: Real = DOUBLE,
    ) -> ChainGiven:
        """Coefficients that are products of leaves, from the joint codes by chunk at some rows."""

        def make() -> _ChunkTables:
            found = self._chunk_tables(job, arithmetic, bottom)
            lossy = found.lossy or _is_lost(found.values, dtype)
            return found._replace(values=found.values.astype(dtype, copy=False), lossy=lossy)

        if job.coding.follows_schema:
            key = ("chunks", arithmetic, bottom, job.best, dtype, *job.coding.widths.tolist())
            tables = self.program.kept(key, make)
        else:
            tables = make()
        out = np.empty((rows.size, self.shape.width), dtype)
        scale = np.zeros((2, rows.size))
        chunks = (self.shape, tables.values, tables.first, numbers, rows, tables.divisors)
        if not isinstance(arithmetic, Linear):
            products.add_chunks(*chunks, out, scale)
            return ChainGiven(out, scale, job.is_large(scale), _NO_SHIFT, False)
        rescale = tables.smallest < (_SMALL if dtype is DOUBLE else _SMALL_SINGLE)
        shift = _NO_SHIFT
        if rescale:
            shift = np.zeros((self.program.num_groups, rows.size), dtype=np.int64)
        lossy = underflows(
            products.multiply_chunks, *chunks, out, scale, shift, arithmetic.floor, rescale
        )
        return ChainGiven(out, scale, job.is_large(scale), shift, lossy or tables.lossy)

    def _chunk_tables(self, job: Job, arithmetic: Arithmetic, bottom: bool) -> _ChunkTables:
        """Products of the leaves of each chunk for all its joint codes; padding has density 0."""
        leaf, lossy = job.shared_tables(arithmetic, bottom)
        coding, linear = job.coding, arithmetic.is_linear
        values = np.empty((int(coding.chunk_first[-1]) + 1, self.shape.width))
        values[-1] = 1.0 if linear else 0.0
        divisors = np.empty((2, len(values) - 1))
        lost = underflows(
            products.join_leaves,
            leaf.values,
            self._leaf_places(job, leaf),
            coding.widths,
            coding.chunk_of,
            coding.chunk_first,
            leaf.divisor_start,
            leaf.divisors,
            linear,
            arithmetic.floor if isinstance(arithmetic, Linear) else 0.0,
            values,
            divisors,
        )
        smallest = np.where(values[:-1] > 0, values[:-1], 1.0).min(axis=1, initial=1.0)
        least = float(np.prod(np.minimum.reduceat(smallest, coding.chunk_first[:-1])))
        values[:, self._padding] = 0.0 if linear else -np.inf
        return _ChunkTables(
            values, coding.chunk_first[:-1], divisors, least, lossy or (linear and lost)
        )

    @cached_property
    def _padding(self) -> Bools:
        """Columns of no output."""
        padding = np.ones(self.shape.width, dtype=np.bool_)
        padding[self.columns] = False
        return padding

    def _leaf_places(self, job: Job, leaf: LeafTables) -> Ints:
        """Where the densities of each factor's leaf begin, (factors, columns).

        -1 where the output of a column does not have the variable.
        """
        factors = self.program.template.factors
        assert factors is not None
        variables = np.flatnonzero(np.array(job.coding.factor_of) >= 0)
        loads = factors[self.loads][:, variables].T
        places = np.full((variables.size, self.shape.width), -1)
        places[:, self.columns] = np.where(loads >= 0, leaf.start[loads], -1)
        return places

    def start(
        self, width: int, value: float, padding: float, dtype: Real, exponents: Ints | Floats
    ) -> ChainState:
        """The state below position 0, with every input at `value`."""
        row = np.full(self.shape.width, padding, dtype)
        row[self.columns] = value
        v = np.full((full_vectors(width, dtype), self.shape.width), padding, dtype)
        v[:width] = row
        return ChainState(v, exponents, np.zeros((TERMS, width)))

    def vectors(self, state: ChainState, width: int) -> Floats:
        """Interface vectors as (interfaces, lanes)."""
        out = np.empty((self.program.num_interfaces, width))
        for rows, columns in self._ranges:
            out[rows] = state.v[:width, columns].T
        return out

    def with_vectors(self, state: ChainState, v: Floats) -> None:
        """Writes interface vectors (interfaces, lanes) into a state."""
        for rows, columns in self._ranges:
            state.v[: v.shape[1], columns] = v[rows].T


@final
class ChainRun:
    """A job of a chain in one arithmetic: its matrices, and its coefficients by segment.

    For flows in single precision, every value of an upward pass has a floor.
    """

    def __init__(self, job: Job, arithmetic: Arithmetic, *, for_flows: bool = False) -> None:
        self.job = job
        self.arithmetic = arithmetic
        self.chain = job.program.kept("chain", lambda: Chain(job.program))
        self.padding = 0.0 if arithmetic.is_linear else -np.inf
        self.single = _runs_single(job.program) and arithmetic == Linear()
        self.dtype = SINGLE if self.single else DOUBLE
        self.rescale_every = 2 if self.single else 8
        self.least_mass = _LEAST_MASS_SINGLE if self.single else LEAST_MASS
        self.has_floor = for_flows and self.single
        self._shared: dict[bool, ChainGiven] = {}

    def prepare(self, *, transposed: bool = False) -> None:
        """Makes what all blocks share, so that threads only read it.

        With `transposed` it makes what downward passes need, too.
        """
        job, factors = self.job, self.job.program.template.factors
        for bottom in {False, job.program.untied}:
            for way in {False, transposed}:
                self.matrix(bottom, transposed=way)
            if not job.numbers.size:
                job.shared_tables(self.arithmetic, bottom)
                if job.coding.is_complete:
                    _ = job.coding.row_chunks
            elif factors is None:
                given = job.shared_given(self.arithmetic, bottom)
                self._shared[bottom] = self.chain.expanded(given, self.padding, self.dtype)
            else:
                numbers = job.coding.distinct_chunks
                every = np.arange(len(numbers))
                self._shared[bottom] = self.chain.products(
                    job, self.arithmetic, bottom, numbers, every, self.dtype
                )

    def matrix(self, bottom: bool, *, transposed: bool) -> ChainMatrix:
        """Matrices of the bottom network or of the template."""

        def make() -> ChainMatrix:
            weights = self.arithmetic.weights(self.job.program, bottom).mix_part
            return self.chain.matrix(
                weights, transposed=transposed, padding=self.padding, dtype=self.dtype
            )

        key = ("matrix", self.arithmetic.is_linear, bottom, transposed, self.dtype)
        return self.job.program.kept(key, make)

    def given(self, block: Block, segment: Segment) -> ChainGiven:
        """Coefficients for one segment of one block: of all distinct slices, or of its places."""
        check_time()
        job = self.job
        if job.numbers.size:
            return self._shared[segment.bottom]
        if job.coding.is_complete and job.program.template.factors is not None:
            rows = block.rows(segment.p0, segment.p1)[0].ravel()
            numbers = job.coding.row_chunks
            return self.chain.products(
                job, self.arithmetic, segment.bottom, numbers, rows, self.dtype
            )
        given = job.given(self.arithmetic, block, segment)
        return self.chain.expanded(given, self.padding, self.dtype)

    def kept_segments(self, block: Block) -> list[Segment]:
        """Segments whose vectors, and coefficients and posteriors by place, stay within a size."""
        rows = 1 if self.job.numbers.size else 3
        floats = rows * self.chain.shape.width // (2 if self.single else 1)
        if not self.job.coding.is_complete:
            floats += self.job.program.template.slice_part.operations.num_loads
        return segments(block, floats, untied=self.job.program.untied)

    def shared(self, bottom: bool) -> ChainGiven:
        """Coefficients of all distinct slices."""
        return self._shared[bottom]

    def start(self, width: int) -> ChainState:
        """The state below position 0."""
        own = self.arithmetic.start(self.job.program, width)
        value = 1.0 if self.arithmetic.is_linear else 0.0
        return self.chain.start(width, value, self.padding, self.dtype, own.exponents)

    def upward(
        self,
        block: Block,
        segment: Segment,
        given: ChainGiven,
        state: ChainState,
        store: Floats | None = None,
    ) -> bool:
        """Moves the state up through a segment; returns whether a coefficient lost an entry."""
        if store is None:
            store = NO_STORES[self.dtype]
        matrix = self.matrix(segment.bottom, transposed=False)
        batch = block.batch(self.job.numbers)
        shape = self.chain.shape
        lossy = False
        if isinstance(self.arithmetic, Linear):
            lossy = underflows(
                chain.chain_upward,
                shape,
                matrix,
                given.values,
                given.scale,
                given.large,
                given.shift,
                batch,
                segment.p0,
                segment.p1,
                state,
                store,
                _FLOOR_SINGLE if self.has_floor else self.arithmetic.floor,
                self.rescale_every,
            )
            # What underflowed under a floor is less than the floor.
            lossy = lossy and not self.has_floor
        else:
            chain_best.chain_best_upward(
                shape,
                matrix,
                given.values,
                given.scale,
                given.large,
                batch,
                segment.p0,
                segment.p1,
                state,
                store,
            )
        return given.lossy or lossy or self._loses_weights(segment.bottom)

    def _loses_weights(self, bottom: bool) -> bool:
        """Whether a weight is too small for single precision; under a floor that is no loss."""
        if not self.single or self.has_floor:
            return False

        def make() -> bool:
            weights = self.arithmetic.weights(self.job.program, bottom).mix_part
            return _is_lost(weights.op, self.dtype) or _is_lost(weights.mix, self.dtype)

        return self.job.program.kept(("lost weights", bottom), make)

    def to_state(self, own: ChainState, width: int) -> State:
        """The state of the general engine with the same vectors."""
        exponents = own.exponents.copy()
        exponents[self.job.program.num_groups :] = 0
        state = self.arithmetic.start(self.job.program, width)
        state.v[: self.job.program.num_interfaces] = self.chain.vectors(own, width)
        return state._replace(exponents=exponents, scale=own.scale.copy())

    def climb(self, block: Block) -> tuple[State, bool]:
        """The state above the topmost slice, and whether a coefficient lost an entry."""
        state = self.start(block.width)
        lossy = False
        for segment in self.job.segments(block, keep_flows=False):
            lossy = self.upward(block, segment, self.given(block, segment), state) or lossy
        return self.to_state(state, block.width), lossy
