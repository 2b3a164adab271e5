"""Passes over whole batches: blocks in threads, segments in turn, and lost precision made good.

Linear arithmetic is fast and loses values below about 1e-308 of the largest. Every pass knows when
that can have mattered and repeats the lanes concerned in log space:

- upward: when the processor reports an underflow, the pass is repeated with a floor of 1e-300 under
  every value. All weights are non-negative, so that is an upper bound; where it equals the first
  result, apart from the divisors that both share, nothing was lost. Lanes whose root is at least
  exp(-600), those divisors apart, need no bound: densities are at most 1 once they are divided and
  weights add up to 1, so that a value below exp(-690) that is lost takes no more than that from it.
- downward: given an upward pass that lost nothing, the values v and derivatives d of a slice are
  scaled to at most 1, so a mass sum_i v_i d_i of at least 1e-250 bounds what the derivatives can
  have lost by 1e-50 of the result.

Single precision would report an underflow nearly always where few edges lead from likely nodes to
unlikely ones. So expected flows are found there with a floor f of 1e-34 under every value of the
upward pass, which is more than what an underflow loses, in products or in coefficients that are
densities of numbers: these are at most 1 and lost below exp(-87). The root is then too large by the
sum over slices of f (1 + c_i) d_i over the outputs i, in the scale of a slice; what the derivatives
lack of it is no more than they lost, times v_i, which is far less. Derivatives are at most the
number k of nodes, so a slice adds less than 2 k^2 f / mass of the result: with masses of at least
1e-18, a thousand nodes and a thousand slices, 2e-7 at worst. Otherwise the work is repeated in
double precision.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Bools, Floats, Ints
from dspn.data.sequences import Sequences
from dspn.engine.base import TERMS, Choices, Posteriors, Want, rounded
from dspn.engine.cpu.arithmetic import BEST, BOUND, LINEAR, LOGARITHMIC, Arithmetic, TopValues
from dspn.engine.cpu.batch import LANES, Given, Job, LaneBlock
from dspn.engine.cpu.chain import Chain, ChainRun, is_chain
from dspn.engine.cpu.kernels import LOG_TWO, choices
from dspn.engine.cpu.kernels.chain import LEAST_MASS, chain_best_descend, chain_posteriors
from dspn.engine.cpu.program import CpuProgram, Memo
from dspn.engine.cpu.records import Chosen, Segment, State

AGREEMENT: Final = 1e-12
_PLAIN: Final = -600.0
# A sum of logarithms below this may lack 1e-10 of what was added to it.
_LEAST_IN_ONE_FLOAT: Final = -1e6
_NO_CHOICES: Final = np.empty((0, 0), dtype=np.int64)


@final
class GeneralRun:
    """Upward passes over a job in one arithmetic, as `ChainRun` has them for chains."""

    no_store: Final = np.empty((0, 0, 0))

    def __init__(self, job: Job, arithmetic: Arithmetic) -> None:
        self.job = job
        self.arithmetic = arithmetic
        job.prepare(arithmetic)

    def segments(self, block: LaneBlock, *, keep: bool) -> list[Segment]:
        """Segments whose working arrays stay within a fixed size."""
        return self.job.segments(block, keep_flows=keep)

    def start(self, width: int) -> State:
        """The state below position 0: every input at 1."""
        return self.arithmetic.start(self.job.program, width)

    def given(self, block: LaneBlock, segment: Segment) -> Given:
        """Coefficients for one segment of one block."""
        return self.job.given(self.arithmetic, block, segment)

    def new_store(self, segment: Segment, width: int, room: Callable[..., Floats]) -> Floats:
        """Room for the input vectors of every position of a segment."""
        rows = self.arithmetic.num_rows(self.job.program)
        return np.zeros((segment.p1 - segment.p0, rows, width))

    def upward(
        self, block: LaneBlock, segment: Segment, given: Given, state: State, store: Floats
    ) -> bool:
        """Moves the state up through a segment; returns whether a value may have been lost."""
        lost = self.arithmetic.upward(self.job.program, given.span, state, store)
        return lost or given.lossy

    def top(self, state: State, width: int) -> TopValues:
        """The root's value for each lane."""
        return self.arithmetic.top(self.job.program, state)


Run = GeneralRun | ChainRun


@final
class Room:
    """Memory for the vectors of a segment, which the blocks of one thread use in turn.

    To ask for it block by block costs a good part of what it takes to fill it.
    """

    def __init__(self) -> None:
        self._held = np.zeros(0, np.uint8)

    def __call__(self, shape: tuple[int, ...], dtype: type[np.float64]) -> Floats:
        """An array of some numbers; it takes the place of the last one."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if self._held.size < size:
            self._held = np.zeros(size, np.uint8)
        return self._held[:size].view(dtype).reshape(shape)


@final
class Ascent:
    """An upward pass that remembers the state below every segment.

    From there each segment can be run again on the way down, with its coefficients where there is
    room to keep those of all segments.
    """

    def __init__(self, run: Any, block: LaneBlock, room: Room | None = None) -> None:
        self.run = run
        self.block = block
        self.room = Room() if room is None else room
        self.segments: list[Segment] = run.segments(block, keep=True)
        self.below: list[Any] = [None] * len(self.segments)
        self.lossy = False
        # A single segment is kept as it is climbed; of several, each is climbed again going down.
        one = len(self.segments) == 1
        self._only = self._new_store(self.segments[0]) if one else run.no_store
        state = run.start(block.width)
        program = run.job.program
        size = 8 * block.width * block.num_positions * program.num_coefficients
        self._given: dict[int, Any] = {}
        for number, segment in enumerate(self.segments):
            if not one:
                self.below[number] = state.copy()
            given = run.given(block, segment)
            if size <= program.paths.segment_bytes or number + 1 == len(self.segments):
                self._given[number] = given
            self.lossy = run.upward(block, segment, given, state, self._only) or self.lossy
        self.state = state
        self.top: TopValues = run.top(state, block.width)
        self.lossy = self.lossy or self.top.lossy

    @cached_property
    def log_values(self) -> Floats:
        """Log-likelihoods of the lanes."""
        return rounded(self.top.total)

    def _new_store(self, segment: Segment) -> Floats:
        found: Floats = self.run.new_store(segment, self.block.width, self.room)
        return found

    def from_the_top(self) -> Iterator[tuple[Segment, Any, Floats]]:
        """Segments from the topmost down, with coefficients and the vectors at every position."""
        for number, segment in reversed([*enumerate(self.segments)]):
            below, given = self.below[number], self._given.get(number)
            if given is None:
                given = self.run.given(self.block, segment)
            store = self._only
            if not store.size:
                store = self._new_store(segment)
                self.run.upward(self.block, segment, given, below.copy(), store)
            yield segment, given, store


@final
class Climber:
    """Upward passes of a job by the fastest kernels that apply; only the root's value is kept."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._runs = Memo()

    @property
    def lanes(self) -> int:
        """Sequences to a block: more where interface vectors are short, to keep each call long."""
        program, transitions = self.job.program, self.job.program.template.transitions
        if transitions is None:
            return LANES
        # Lanes that read the same table run together.
        together = min(12 * len(transitions.tables), 512) if transitions.by >= 0 else LANES
        return max(together, 4096 // program.num_interfaces)

    def run(self, arithmetic: Arithmetic) -> Run:
        """What all blocks share in one arithmetic, made once."""

        def make() -> Run:
            if arithmetic.is_linear and is_chain(self.job.program):
                return ChainRun(self.job, arithmetic)
            return GeneralRun(self.job, arithmetic)

        return self._runs(arithmetic, make)

    @property
    def double(self) -> "Climber":
        """The same passes in double precision, for what single precision does not hold."""
        job = self.job
        return self._runs(Climber, lambda: Climber(Job(job.program.double, job.data)))

    def __call__(self, arithmetic: Arithmetic, block: LaneBlock) -> tuple[TopValues, bool]:
        """The root's values, and whether a value may have been lost."""
        run: Any = self.run(arithmetic)
        state, lossy = run.start(block.width), False
        for segment in run.segments(block, keep=False):
            given = run.given(block, segment)
            lossy = run.upward(block, segment, given, state, run.no_store) or lossy
        top: TopValues = run.top(state, block.width)
        return top, lossy or top.lossy

    def doubtful_lanes(self, block: LaneBlock, top: TopValues) -> Bools:
        """Lanes whose likelihood may lack what underflowed, as a floor under every value raises it.

        `top` is that of the pass in doubt.
        """
        always = self.job.program.paths.doubt
        with np.errstate(invalid="ignore", divide="ignore"):
            own = np.log(top.value)
            doubtful = np.asarray(~(own + top.powers * LOG_TWO >= _PLAIN)) | always
            if doubtful.any():
                highest, _ = self(BOUND, block.only(doubtful))
                excess = np.log(highest.value) - own[doubtful]
                excess += (highest.powers - top.powers[doubtful]) * LOG_TWO
                doubtful[doubtful] = ~(excess <= AGREEMENT) | always
        return doubtful


def _block_likelihood(climb: Climber, block: LaneBlock) -> TopValues:
    """The root's values for a block's lanes; those in doubt come from log space."""
    program = climb.job.program
    top, lossy = climb(LINEAR, block)
    if not (lossy or program.paths.doubt):
        return top
    if program.single:
        return _block_likelihood(climb.double, block)
    doubtful = climb.doubtful_lanes(block, top)
    if doubtful.any():
        again, _ = climb(LOGARITHMIC, block.only(doubtful))
        top.value[doubtful], top.powers[doubtful] = again.value, again.powers
        top.scale[:, doubtful] = again.scale
    return top


def log_totals(program: CpuProgram, data: Sequences) -> Floats:
    """Log P(observed entries) of each sequence, as totals."""
    transitions = program.template.transitions
    job = Job(program, data)
    is_sparse = transitions is not None and transitions.is_sparse.any()
    if program.single and (is_sparse or not job.coding.is_complete):
        # Entries few edges away from likely ones differ too much for the range of float32, and so
        # do densities of numbers.
        job = Job(program.double, data)
    climb, count = Climber(job), data.num_sequences
    climb.run(LINEAR)
    none = np.empty(0)
    powers = np.empty(count, dtype=np.int64)
    found = TopValues(np.empty(count), powers, np.empty((TERMS, count)), none, False)

    def work(block: LaneBlock) -> None:
        own = _block_likelihood(climb, block)
        found.value[block.members], found.powers[block.members] = own.value, own.powers
        found.scale[:, block.members] = own.scale

    job.over_blocks(work, lanes=climb.lanes)
    return found.total


@final
class _Posteriors:
    """Results of a batch while its blocks write them; what a block writes later counts."""

    def __init__(self, job: Job, want: Want) -> None:
        program, data = job.program, job.data
        self.job = job
        self.climb = Climber(job)
        self.want = want
        self.log_values = np.empty((TERMS, len(data)))
        self.by_leaf = want.leaves is not None or want.surprises
        self.order = program.template.input_order
        width = program.num_interfaces if want.interfaces else 0
        self.interfaces = np.zeros((data.total_slices if want.interfaces else 0, width))
        self.surprises = np.full(data.values.shape if want.surprises else (0, 0), np.nan)
        self.leaves: list[Floats] = []
        if want.leaves is not None:
            banks = program.network.template.banks
            self.entry_of = np.cumsum(want.leaves, axis=0) - 1
            counts = want.leaves.sum(axis=0).tolist()
            sizes = zip(counts, banks, strict=True)
            self.leaves = [np.zeros((count, len(bank.nodes))) for count, bank in sizes]

    def result(self) -> Posteriors:
        """What the blocks wrote."""
        return Posteriors(self.log_values, tuple(self.leaves), self.interfaces, self.surprises)

    def _wanted(self, rows: Ints, active: Bools) -> Bools:
        """Places of a segment whose leaves are asked for."""
        if self.want.surprises or self.want.leaves is None:
            return active
        found: Bools = active & self.want.leaves[rows].any(axis=2)
        return found

    def general(self, block: LaneBlock, arithmetic: Arithmetic) -> Bools:
        """Both passes over a block by the general kernels; lanes that cannot be trusted."""
        job, want, program = self.job, self.want, self.job.program
        ascent = Ascent(GeneralRun(job, arithmetic), block)
        doubtful = self._begin(ascent)
        state = arithmetic.top_derivatives(program, ascent.top.rows)
        for segment, given, store in ascent.from_the_top():
            asked = {"interface": want.interfaces, "seed": self.by_leaf}
            flows = arithmetic.new_flows(program, given.span, **asked)
            arithmetic.downward(program, given.span, state, store, flows)
            rows, active = block.rows(segment)
            if arithmetic.is_linear:
                doubtful |= (~(flows.mass >= LEAST_MASS) & active[:, None, :]).any(axis=(0, 1))
            if want.interfaces:
                at, lane = np.nonzero(active)
                self.interfaces[rows[active][:, None], self.order] = flows.interface[at, :, lane]
            wanted = self._wanted(rows, active)
            if self.by_leaf and wanted.any():
                at, lane = np.nonzero(wanted)
                own = rows[wanted]
                shift = job.shifts(given.span, own, at, lane)
                self._put_leaves(arithmetic, segment.bottom, own, shift, flows.seed[at, :, lane].T)
        return doubtful

    def _begin(self, ascent: Ascent) -> Bools:
        """Writes the likelihoods of an ascent; returns the lanes that may lack something."""
        block, paths = ascent.block, self.job.program.paths
        self.log_values[:, block.members] = ascent.top.total
        if ascent.run.arithmetic.is_linear and (ascent.lossy or paths.doubt):
            return self.climb.doubtful_lanes(block, ascent.top)
        return np.zeros(block.width, dtype=np.bool_)

    def _put_leaves(
        self, arithmetic: Arithmetic, bottom: bool, rows: Ints, shift: Ints, seeds: Floats
    ) -> None:
        """Carries seeds of the slices `rows` down to their leaves."""
        own, surprises = (arithmetic, bottom, rows, shift, seeds), self.want.surprises
        found, tables = self.job.slice_flows(*own, left_out=surprises)
        for variable, (loads, members) in enumerate(self.job.program.leaves):
            if surprises:
                # P(rest) / P(all) was found with divided densities; the divisor of the entry
                # belongs to P(all).
                divisors = self.job.log_divisors(tables, variable)
                self.surprises[rows, variable] = found.leave_out[variable] - divisors
            if self.want.leaves is not None:
                places = np.flatnonzero(self.want.leaves[rows, variable])
                # The loads of a variable are neighbours.
                by_leaf = found.posterior[loads[0] : loads[-1] + 1]
                self._put(variable, rows[places], members, by_leaf[:, places].T)

    def _put(self, variable: int, rows: Ints, members: Ints, posterior: Floats) -> None:
        """Writes posteriors (entries, members) of leaves of a variable at the slices `rows`."""
        entries, target = self.entry_of[rows, variable], self.leaves[variable]
        if np.array_equal(members, np.arange(target.shape[1])):
            target[entries] = posterior
        else:
            target[entries[:, None], members] = posterior

    def by_chain(self, run: ChainRun, block: LaneBlock, room: Room) -> Bools:
        """Both passes over a block of a chain; lanes that cannot be trusted."""
        chain = run.chain
        ascent = Ascent(run, block, room)
        doubtful = self._begin(ascent)
        state = run.top_derivatives(ascent.top, block.width)
        least = np.full(block.width, np.inf)
        for segment, given, store in ascent.from_the_top():
            posterior = np.zeros((len(store) - 1, block.width, chain.shape.width))
            chain_posteriors(
                *(run.matrix(segment.bottom, transposed=True), given.values),
                *(block.batch(self.job.numbers, self.job.inputs), segment, state, store),
                *(posterior, least, run.rescale_every),
            )
            rows, active = block.rows(segment)
            if self.want.interfaces:
                own = posterior[active][:, chain.columns]
                self.interfaces[rows[active][:, None], self.order] = own
            if self.want.leaves is not None:
                wanted = self._wanted(rows, active)
                self._put_outputs(chain, rows[wanted], posterior[wanted][:, chain.columns])
        return doubtful | ~(least >= LEAST_MASS)

    def _put_outputs(self, chain: Chain, rows: Ints, posterior: Floats) -> None:
        """Writes posteriors of outputs (slices, outputs), products of leaves, for their leaves."""
        assert self.want.leaves is not None
        for variable, (outputs, members) in enumerate(chain.outputs_of):
            places = np.flatnonzero(self.want.leaves[rows, variable])
            own = posterior[places[:, None], outputs]
            if np.any(np.diff(members) <= 0):
                order = np.argsort(members, kind="stable")
                first = np.flatnonzero(np.diff(members[order], prepend=-1))
                own = np.add.reduceat(own[:, order], first, axis=1)
                members = members[order][first]
            self._put(variable, rows[places], members, own)


def posteriors(program: CpuProgram, data: Sequences, want: Want) -> Posteriors:
    """What is wanted, by both passes; impossible sequences have undefined results."""
    program = program.double
    job = Job(program, data)
    out = _Posteriors(job, want)
    by_chain = is_chain(program) and program.template.factors is not None and not want.surprises
    run = ChainRun(job, LINEAR, transposed=True) if by_chain else GeneralRun(job, LINEAR)

    def work(block: LaneBlock) -> None:
        if not program.every_group_is_read:
            doubtful = np.ones(block.width, dtype=np.bool_)
        elif isinstance(run, ChainRun):
            doubtful = out.by_chain(run, block, Room())
        else:
            doubtful = out.general(block, LINEAR)
        if doubtful.any():
            out.general(block.only(doubtful), LOGARITHMIC)

    job.over_blocks(work, lanes=out.climb.lanes if by_chain else LANES)
    return out.result()


def _block_descent(ascent: Ascent, mode: int, seeds: NDArray[np.uint64], out: Chosen) -> Floats:
    """Writes the choices of every lane from the root down; returns the log values of the ascent."""
    job, block, arithmetic = ascent.run.job, ascent.block, ascent.run.arithmetic
    program, own_seeds = job.program, np.ascontiguousarray(seeds[block.members])
    chosen = _descend_top(ascent, mode, own_seeds)
    for segment, given, store in ascent.from_the_top():
        weights = program.weights(segment.bottom, arithmetic.is_linear)
        rows, active = block.rows(segment)
        marks = np.zeros((rows.size, program.num_coefficients), dtype=np.bool_)
        slice_seeds = np.zeros(rows.size, dtype=np.uint64)
        choices.descend(
            *(weights.mix_part, given.span, store, mode, own_seeds, program.input_group),
            *(chosen, out, marks, slice_seeds),
        )
        places = np.flatnonzero(active)
        own_rows = rows.ravel()[places]
        slices = job.leaf_tables(arithmetic, segment.bottom, own_rows).slices
        rest = (marks[places], mode, slice_seeds[places], out)
        choices.slice_descend(weights.slice_part, slices, *rest)
    return ascent.log_values


def _descend_top(ascent: Ascent, mode: int, seeds: NDArray[np.uint64]) -> Ints:
    """The input row of each group (groups, lanes) that the chosen tree goes through at the top."""
    program, width = ascent.run.job.program, ascent.block.width
    chosen = np.empty((program.num_groups, width), dtype=np.int64)
    rows, linear = ascent.top.rows, ascent.run.arithmetic.is_linear
    if linear:
        rows = np.stack([rows, np.zeros_like(rows)])
    own = (program.top_weights(linear), rows, program.top.root_row, mode, seeds)
    choices.top_descend(*own, program.input_group, chosen)
    return chosen


def _new_choices(program: CpuProgram, data: Sequences) -> Chosen:
    shapes = ((data.total_slices, program.num_groups), data.values.shape)
    return Chosen(*(np.full(shape, -1, dtype=np.int64) for shape in shapes))


def _choices(program: CpuProgram, chosen: Chosen, log_values: Floats) -> Choices:
    """Choices in the order of the structure: positions, and leaves of banks."""
    order = np.append(program.template.input_order, -1)
    interfaces = chosen.interfaces
    if not np.array_equal(order[:-1], np.arange(order.size - 1)):
        interfaces = order[interfaces]
    leaves = np.append(program.template.load_member, -1)[chosen.loads]
    return Choices(interfaces, leaves, log_values)


def _chain_best(run: ChainRun, block: LaneBlock, columns: Ints) -> tuple[Floats, Bools]:
    """The best path of every lane through a chain; returns its log density.

    Also returns the lanes in which one float has not room for all that a slice adds up.
    """
    chain, job = run.chain, run.job
    ascent = Ascent(run, block)
    seeds = np.zeros(block.width, dtype=np.uint64)
    chosen = chain.columns[_descend_top(ascent, choices.LOG_BEST, seeds)]
    for segment, _, store in ascent.from_the_top():
        chain_best_descend(
            run.matrix(segment.bottom, transposed=False),
            run.matrix(segment.bottom, transposed=True).dense,
            *(block.batch(job.numbers, job.inputs), segment, store, chosen, columns),
        )
    least = ascent.state.exponents[job.program.num_groups :].min(axis=0)
    return ascent.log_values, least < _LEAST_IN_ONE_FLOAT


def _chain_best_choices(program: CpuProgram, data: Sequences) -> Choices:
    """Best paths of a chain whose coefficients are products of leaves, and their log densities.

    The leaves follow from the interface nodes.
    """
    job = Job(program, data)
    run = ChainRun(job, BEST, transposed=True)
    general = Memo()
    total = data.total_slices
    interfaces = np.empty((total, program.num_groups), dtype=np.int64)
    log_values = np.empty(data.num_sequences)

    def work(block: LaneBlock) -> None:
        values, doubtful = _chain_best(run, block, interfaces)
        if doubtful.any():
            again = block.only(doubtful)
            exact, seeds = _new_choices(program, data), np.zeros(len(data), dtype=np.uint64)
            ascent = Ascent(general(0, lambda: GeneralRun(job, BEST)), again)
            values[doubtful] = _block_descent(ascent, choices.LOG_BEST, seeds, exact)
            rows, active = again.rows(Segment(0, again.num_positions, False))
            interfaces[rows[active]] = run.chain.columns[exact.interfaces[rows[active]]]
        log_values[block.members] = values

    job.over_blocks(work, lanes=Climber(job).lanes)
    if not np.array_equal(run.chain.columns, np.arange(program.num_interfaces)):
        row_of = np.zeros(run.chain.shape.width, dtype=np.int64)
        row_of[run.chain.columns] = np.arange(program.num_interfaces)
        interfaces = row_of[interfaces]
    incomplete = np.flatnonzero(job.has_missing)
    found = _choices(program, Chosen(interfaces, _NO_CHOICES), log_values)
    if not incomplete.size:
        return found
    member_of = np.full((program.num_interfaces, data.num_variables), -1, dtype=np.int64)
    for variable, (outputs, members) in enumerate(run.chain.outputs_of):
        member_of[outputs, variable] = members
    leaves = np.full(data.values.shape, -1, dtype=np.int64)
    # The outputs that have a leaf of a variable are all of one group.
    own = member_of[interfaces[incomplete, 0]]
    for group in range(1, program.num_groups):
        np.maximum(own, member_of[interfaces[incomplete, group]], out=own)
    leaves[incomplete] = own
    return found._replace(leaves=leaves)


def best(program: CpuProgram, data: Sequences) -> Choices:
    """The induced tree and missing values of greatest joint density."""
    if is_chain(program) and program.template.factors is not None:
        return _chain_best_choices(program, data)
    run = GeneralRun(Job(program, data), BEST)
    out, log_values = _new_choices(program, data), np.empty(data.num_sequences)
    seeds = np.zeros(data.num_sequences, dtype=np.uint64)

    def work(block: LaneBlock) -> None:
        ascent = Ascent(run, block)
        log_values[block.members] = _block_descent(ascent, choices.LOG_BEST, seeds, out)

    run.job.over_blocks(work)
    return _choices(program, out, log_values)


def draw(program: CpuProgram, data: Sequences, seeds: NDArray[np.uint64]) -> Choices:
    """One induced tree for each sequence, drawn from the posterior given its observed entries."""
    job = Job(program, data)
    run, climb = GeneralRun(job, LINEAR), Climber(job)
    out, log_values = _new_choices(program, data), np.empty(data.num_sequences)

    def work(block: LaneBlock) -> None:
        ascent = Ascent(run, block)
        values = _block_descent(ascent, choices.LINEAR_DRAW, seeds, out)
        if ascent.lossy or program.paths.doubt:
            doubtful = climb.doubtful_lanes(block, ascent.top)
            if doubtful.any():
                again = Ascent(GeneralRun(job, LOGARITHMIC), block.only(doubtful))
                values[doubtful] = _block_descent(again, choices.LOG_DRAW, seeds, out)
        log_values[block.members] = values

    job.over_blocks(work)
    return _choices(program, out, log_values)
