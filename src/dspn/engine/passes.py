"""Passes over whole batches: blocks in threads, segments in turn, and lost precision made good.

Linear arithmetic is fast and loses values below about 1e-308 of the largest. Every pass knows when
that can have mattered and repeats the lanes concerned in log space:

- upward: when the processor reports an underflow, the pass is repeated with a floor of 1e-300 under
  every value. All weights are non-negative, so that is an upper bound; where it equals the first
  result, apart from the divisors that both share, nothing was lost.
- downward: given an upward pass that lost nothing, the values v and derivatives d of a slice are
  scaled to at most 1, so a mass sum_i v_i d_i of at least 1e-250 bounds what the derivatives can
  have lost by 1e-50 of the result.

Single precision would report an underflow nearly always where few edges lead from likely nodes to
unlikely ones. So expected flows are found there with a floor f of 1e-34 under every value of the
upward pass, which is more than what an underflow loses. The root is then too large by the sum over
slices of f (1 + c_i) d_i over the outputs i, in the scale of a slice; what the derivatives lack of
it is no more than they lost, times v_i, which is far less. Derivatives are at most the number k of
nodes, so a slice adds less than 2 k^2 f / mass of the result: with masses of at least 1e-18, a
thousand nodes and a thousand slices, 2e-7 at worst. Otherwise the work is repeated in double
precision.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dspn._arrays import Bools, Floats, Ints
from dspn.data import Sequences
from dspn.engine.arithmetic import Arithmetic, Linear, Logarithmic, TopValues
from dspn.engine.blocks import LANES, Block, Segment
from dspn.engine.chain import ChainRun, is_chain, runs_sparse
from dspn.engine.chain_ascent import ChainAscent
from dspn.engine.job import Given, Job
from dspn.engine.kernels import descent
from dspn.engine.kernels._options import LOG_TWO
from dspn.engine.kernels.chain_best import chain_best_descend
from dspn.engine.kernels.chain_downward import LEAST_MASS
from dspn.engine.memo import Memo
from dspn.engine.program import Program
from dspn.engine.records import Choices, Flows, State
from dspn.engine.totals import TERMS, rounded

BOUND: Final = Linear(1e-300)
AGREEMENT: Final = 1e-12
# A sum of logarithms below this may lack 1e-10 of what was added to it.
_LEAST_IN_ONE_FLOAT: Final = -1e6
_NONE: Final = np.empty(0)
_NO_STORE: Final = np.empty((0, 0, 0))


@final
class Climber:
    """Upward passes of a job by the fastest kernels that apply; only the last state is kept."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._kept = Memo()

    def prepare(self, arithmetic: Linear) -> None:
        """Makes what all blocks share."""
        if is_chain(self.job.program):
            self._run(arithmetic)
        else:
            self.job.prepare(arithmetic)

    def _run(self, arithmetic: Linear) -> ChainRun:
        def make() -> ChainRun:
            run = ChainRun(self.job, arithmetic)
            run.prepare()
            return run

        return self._kept(arithmetic, make)

    @property
    def double(self) -> "Climber":
        """The same passes in double precision, for what single precision does not hold."""

        def make() -> Climber:
            climb = Climber(Job(self.job.program.double, self.job.data))
            climb.prepare(Linear())
            return climb

        return self._kept("double", make)

    @property
    def lanes(self) -> int:
        """Sequences to a block: more where interface vectors are short, to keep each call long."""
        return (
            max(LANES, 4096 // self.job.program.num_interfaces)
            if is_chain(self.job.program)
            else LANES
        )

    def __call__(self, arithmetic: Arithmetic, block: Block) -> tuple[State, bool]:
        """The state above the topmost slice, and whether a coefficient lost an entry."""
        if isinstance(arithmetic, Linear) and is_chain(self.job.program):
            return self._run(arithmetic).climb(block)
        return _climb(self.job, arithmetic, block)


def _climb(job: Job, arithmetic: Arithmetic, block: Block) -> tuple[State, bool]:
    """The state above the topmost slice by the general kernels, and whether an entry was lost."""
    state = arithmetic.start(job.program, block.width)
    batch = block.batch(job.numbers)
    lossy = False
    for segment in job.segments(block, keep_flows=False):
        given = job.given(arithmetic, block, segment)
        lost = arithmetic.upward(job.program, given.coefficients, batch, segment, state, _NO_STORE)
        lossy = lossy or lost or given.lossy
    return state, lossy


def doubtful_lanes(climb: Climber, block: Block, top: TopValues) -> Bools:
    """Lanes whose likelihood may lack what underflowed, as a floor under every value raises it.

    `top` is that of the pass in doubt.
    """
    highest = BOUND.top(climb.job.program, climb(BOUND, block)[0])
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = np.log(highest.value) - np.log(top.value)
        excess += (highest.powers - top.powers) * LOG_TWO
        return np.asarray(~(excess <= AGREEMENT))


def _block_likelihood(climb: Climber, block: Block) -> TopValues:
    """The root's values for a block's lanes; those in doubt come from log space."""
    program, arithmetic, exact = climb.job.program, Linear(), Logarithmic()
    state, lossy = climb(arithmetic, block)
    top = arithmetic.top(program, state)
    if not (lossy or top.lossy):
        return top
    if program.single:
        return _block_likelihood(climb.double, block)
    doubtful = doubtful_lanes(climb, block, top)
    if doubtful.any():
        again = exact.top(program, climb(exact, block.only(doubtful))[0])
        top.value[doubtful], top.powers[doubtful] = again.value, again.powers
        top.scale[:, doubtful] = again.scale
    return top


def likelihood_totals(program: Program, data: Sequences) -> Floats:
    """Log P(observed entries) of each sequence, as totals."""
    if runs_sparse(program):
        # Entries few edges away from likely ones differ too much for the range of float32.
        program = program.double
    job = Job(program, data)
    climb = Climber(job)
    climb.prepare(Linear())
    count = data.num_sequences
    found = TopValues(
        np.empty(count), np.empty(count, dtype=np.int64), np.empty((TERMS, count)), _NONE, False
    )

    def work(block: Block) -> None:
        own = _block_likelihood(climb, block)
        found.value[block.members], found.powers[block.members] = own.value, own.powers
        found.scale[:, block.members] = own.scale

    job.over_blocks(work, lanes=climb.lanes)
    return found.total


def likelihood(program: Program, data: Sequences) -> Floats:
    """Log P(observed entries) of each sequence."""
    return rounded(likelihood_totals(program, data))


class LeafPosteriors(NamedTuple):
    """Posteriors of the leaves, and surprises of the entries, of some slices.

    `posterior[i, s]` is that of load i at slice s; `surprise[v, s]` = -log P(entry of variable v |
    all other entries).
    """

    posterior: Floats
    surprise: Floats


@final
@dataclass(frozen=True, eq=False)
class SegmentFlows:
    """Flows of one segment of one block.

    `rows[p, l]` is the slice of lane l at position p of the segment, `active[p, l]` whether there
    is one.
    """

    job: Job
    arithmetic: Arithmetic
    rows: Ints
    active: Bools
    flows: Flows
    given: Given
    bottom: bool

    def leaves(self, at: Ints, lane: Ints) -> LeafPosteriors:
        """Posteriors of all leaves at some places of the segment."""
        job, arithmetic = self.job, self.arithmetic
        rows = self.rows[at, lane]
        numbers = job.numbers[rows] if job.numbers.size else at * self.rows.shape[1] + lane
        tables = job.leaf_tables(arithmetic, self.bottom, rows)
        found = arithmetic.slice_flows(
            job.program,
            self.bottom,
            tables.tables,
            job.coding.codes,
            rows,
            np.ascontiguousarray(self.given.coefficients.shift[:, numbers]),
            np.ascontiguousarray(self.flows.seed[at, :, lane].T),
        )
        # P(rest) / P(all) was found with divided densities; the divisor of the entry belongs to
        # P(all).
        for variable in range(len(job.program.network.schema)):
            found.leave_out[variable] -= job.log_divisors(tables, variable, rows)
        return LeafPosteriors(found.posterior, found.leave_out)


@final
class Ascent:
    """An upward pass that remembers the state below every segment.

    From there each segment can be run again on the way down.
    """

    def __init__(self, job: Job, arithmetic: Arithmetic, block: Block) -> None:
        self.job = job
        self.arithmetic = arithmetic
        self.block = block
        self.batch = block.batch(job.numbers)
        self.segments = job.segments(block, keep_flows=True)
        self.below: list[State] = []
        self.lossy = False
        # A single segment is kept as it is climbed; of several, each is climbed again going down.
        self._only = self._new_store(self.segments[0]) if len(self.segments) == 1 else _NO_STORE
        state = arithmetic.start(job.program, block.width)
        for segment in self.segments:
            self.below.append(state.copy())
            self._given = job.given(arithmetic, block, segment)
            lost = arithmetic.upward(
                job.program, self._given.coefficients, self.batch, segment, state, self._only
            )
            self.lossy = self.lossy or lost or self._given.lossy
        self.top = arithmetic.top(job.program, state)
        self.lossy = self.lossy or self.top.lossy

    @property
    def log_values(self) -> Floats:
        """Log-likelihoods of the lanes."""
        return rounded(self.top.total)

    def _new_store(self, segment: Segment) -> Floats:
        rows = self.arithmetic.num_rows(self.job.program)
        return np.zeros((segment.length, rows, self.block.width))

    def from_the_top(self) -> Iterator[tuple[Segment, Given, Floats]]:
        """Segments from the topmost down, with coefficients and the inputs of every position."""
        for segment, below in zip(reversed(self.segments), reversed(self.below), strict=True):
            topmost = segment is self.segments[-1]
            given = self._given if topmost else self.job.given(self.arithmetic, self.block, segment)
            store = self._only
            if not store.size:
                store = self._new_store(segment)
                self.arithmetic.upward(
                    self.job.program, given.coefficients, self.batch, segment, below.copy(), store
                )
            yield segment, given, store


def _block_flows(
    job: Job,
    block: Block,
    arithmetic: Arithmetic,
    consume: Callable[[SegmentFlows], None],
    leaves: bool,
) -> tuple[Floats, Bools]:
    """Log-likelihoods of the block's lanes, and the lanes whose flows cannot be trusted."""
    ascent = Ascent(job, arithmetic, block)
    doubtful = np.zeros(block.width, dtype=np.bool_)
    if arithmetic.is_linear and ascent.lossy:
        doubtful |= doubtful_lanes(Climber(job), block, ascent.top)
    state = arithmetic.top_derivatives(job.program, ascent.top.rows)
    for segment, given, store in ascent.from_the_top():
        flows = arithmetic.new_flows(
            job.program, segment.length, block.width, interface=True, seed=leaves
        )
        arithmetic.downward(
            job.program, given.coefficients, ascent.batch, segment, state, store, flows
        )
        rows, active = block.rows(segment.p0, segment.p1)
        if arithmetic.is_linear:
            doubtful |= (~(flows.mass >= LEAST_MASS) & active[:, None, :]).any(axis=(0, 1))
        consume(SegmentFlows(job, arithmetic, rows, active, flows, given, segment.bottom))
    return ascent.log_values, doubtful


def posterior_flows(
    program: Program,
    data: Sequences,
    consume: Callable[[SegmentFlows], None],
    *,
    leaves: bool = True,
) -> Floats:
    """Log-likelihoods by both passes, which hand the flows of every segment to `consume`.

    `consume` runs in several threads, for disjoint slices; where linear arithmetic lost something
    it is called again for the same slices, and the later call counts. Impossible sequences have
    undefined flows.
    """
    job = Job(program, data)
    exact, linear = Logarithmic(), Linear()
    job.prepare(linear)
    log_values = np.empty(data.num_sequences)

    def work(block: Block) -> tuple[Block, Floats]:
        if not program.every_group_is_read:
            return block, _block_flows(job, block, exact, consume, leaves)[0]
        values, doubtful = _block_flows(job, block, linear, consume, leaves)
        if doubtful.any():
            again = block.only(doubtful)
            values[doubtful] = _block_flows(job, again, exact, consume, leaves)[0]
        return block, values

    for block, values in job.over_blocks(work):
        log_values[block.members] = values
    return log_values


def _block_descent(
    job: Job, ascent: Ascent, mode: int, seeds: NDArray[np.uint64], out: Choices
) -> Floats:
    """Writes the choices of every lane from the root down; returns the log values of the ascent."""
    program, block, arithmetic = job.program, ascent.block, ascent.arithmetic
    own_seeds = np.ascontiguousarray(seeds[block.members])
    chosen = np.empty((program.num_groups, block.width), dtype=np.int64)
    top = program.top_weights if arithmetic.is_linear else program.top_weights.logarithms
    top_rows = ascent.top.rows
    descent.top_descend(
        program.top.part.operations,
        top.op,
        np.stack([top_rows, np.zeros_like(top_rows)]) if arithmetic.is_linear else top_rows,
        program.top.root_row,
        mode,
        own_seeds,
        program.input_group,
        chosen,
    )
    for segment, given, store in ascent.from_the_top():
        weights = arithmetic.weights(program, segment.bottom)
        rows, active = block.rows(segment.p0, segment.p1)
        marks = np.zeros((rows.size, program.num_coefficients), dtype=np.bool_)
        slice_seeds = np.zeros(rows.size, dtype=np.uint64)
        descent.descend(
            program.template.mix_part.operations,
            weights.mix_part.op,
            weights.mix_part.mix,
            given.coefficients,
            ascent.batch,
            segment.p0,
            segment.p1,
            store,
            mode,
            own_seeds,
            program.input_group,
            chosen,
            out,
            marks,
            slice_seeds,
        )
        places = np.flatnonzero(active)
        own_rows = rows.ravel()[places]
        descent.slice_descend(
            program.template.slice_part.operations,
            weights.slice_part.op,
            job.leaf_tables(arithmetic, segment.bottom, own_rows).tables,
            job.coding.codes,
            own_rows,
            marks[places],
            mode,
            slice_seeds[places],
            out,
        )
    return ascent.log_values


def _new_choices(program: Program, data: Sequences) -> Choices:
    total = data.values.shape[0]
    return Choices(
        np.full((total, program.num_groups), -1, dtype=np.int64),
        np.full((total, len(program.network.schema)), -1, dtype=np.int64),
    )


def _chain_best(run: ChainRun, block: Block, out: Choices) -> tuple[Floats, Bools]:
    """The best path of every lane through a chain; returns its log density.

    Also returns the lanes in which one float has not room for all that a slice adds up.
    """
    program, chain = run.job.program, run.chain
    ascent = ChainAscent(run, block)
    chosen = np.empty((program.num_groups, block.width), dtype=np.int64)
    descent.top_descend(
        program.top.part.operations,
        program.top_weights.logarithms.op,
        ascent.top.rows,
        program.top.root_row,
        descent.LOG_BEST,
        np.zeros(block.width, dtype=np.uint64),
        program.input_group,
        chosen,
    )
    columns = chain.columns[chosen]
    for segment, _, store in ascent.from_the_top():
        chain_best_descend(
            chain.shape,
            run.matrix(segment.bottom, transposed=False),
            run.matrix(segment.bottom, transposed=True).dense,
            block.batch(run.job.numbers),
            segment.p0,
            segment.p1,
            store,
            columns,
            out.interfaces,
        )
    return ascent.log_values, ascent.least < _LEAST_IN_ONE_FLOAT


def _chain_best_choices(program: Program, data: Sequences) -> tuple[Choices, Floats]:
    """Best paths of a chain whose coefficients are products of leaves, and their log densities.

    The leaves follow from the interface nodes.
    """
    job = Job(program, data, best=True)
    run = ChainRun(job, Logarithmic(maximise=True))
    run.prepare(transposed=True)
    total = data.values.shape[0]
    interfaces = np.empty((total, program.num_groups), dtype=np.int64)
    columns = Choices(interfaces, np.empty((0, 0), dtype=np.int64))
    log_values = np.empty(data.num_sequences)

    def work(block: Block) -> tuple[Block, Floats]:
        values, doubtful = _chain_best(run, block, columns)
        if doubtful.any():
            again = block.only(doubtful)
            exact, seeds = _new_choices(program, data), np.zeros(len(data), dtype=np.uint64)
            ascent = Ascent(job, run.arithmetic, again)
            values[doubtful] = _block_descent(job, ascent, descent.LOG_BEST, seeds, exact)
            rows, active = again.rows(0, again.num_positions)
            interfaces[rows[active]] = run.chain.columns[exact.interfaces[rows[active]]]
        return block, values

    for block, values in job.over_blocks(work, lanes=Climber(job).lanes):
        log_values[block.members] = values
    row_of = np.zeros(run.chain.shape.width, dtype=np.int64)
    row_of[run.chain.columns] = np.arange(program.num_interfaces)
    if not np.array_equal(run.chain.columns, np.arange(program.num_interfaces)):
        interfaces = row_of[interfaces]
    incomplete = np.flatnonzero(job.has_missing)
    num_variables = len(program.network.schema)
    loads = np.full((total if incomplete.size else 0, num_variables), -1, dtype=np.int64)
    factors = program.template.factors
    assert factors is not None
    for group in range(program.num_groups if incomplete.size else 0):
        own = factors[run.chain.loads[interfaces[incomplete, group]]]
        loads[incomplete] = np.where(own >= 0, own, loads[incomplete])
    return Choices(interfaces, loads), log_values


def best_choices(program: Program, data: Sequences) -> tuple[Choices, Floats]:
    """The induced tree and missing values of greatest joint density, and the log of that density.

    Leaves are named for slices with missing entries; elsewhere they may be left out (-1), and where
    nothing is missing at all there may be no rows of leaves.
    """
    if is_chain(program) and program.template.factors is not None:
        return _chain_best_choices(program, data)
    job = Job(program, data, best=True)
    arithmetic = Logarithmic(maximise=True)
    job.prepare(arithmetic)
    out = _new_choices(program, data)
    seeds = np.zeros(data.num_sequences, dtype=np.uint64)
    log_values = np.empty(data.num_sequences)

    def work(block: Block) -> tuple[Block, Floats]:
        ascent = Ascent(job, arithmetic, block)
        return block, _block_descent(job, ascent, descent.LOG_BEST, seeds, out)

    for block, values in job.over_blocks(work):
        log_values[block.members] = values
    return out, log_values


def drawn_choices(
    program: Program, data: Sequences, rng: np.random.Generator
) -> tuple[Choices, Floats]:
    """One induced tree for each sequence, drawn from the posterior given its observed entries.

    Also returns the log-likelihoods.
    """
    job = Job(program, data)
    linear, exact = Linear(), Logarithmic()
    job.prepare(linear)
    out = _new_choices(program, data)
    seeds = rng.integers(0, 2**64, size=data.num_sequences, dtype=np.uint64)
    log_values = np.empty(data.num_sequences)

    def work(block: Block) -> tuple[Block, Floats]:
        ascent = Ascent(job, linear, block)
        values = _block_descent(job, ascent, descent.LINEAR_DRAW, seeds, out)
        if ascent.lossy:
            doubtful = doubtful_lanes(Climber(job), block, ascent.top)
            if doubtful.any():
                again = Ascent(job, exact, block.only(doubtful))
                values[doubtful] = _block_descent(job, again, descent.LOG_DRAW, seeds, out)
        return block, values

    for block, values in job.over_blocks(work):
        log_values[block.members] = values
    return out, log_values
