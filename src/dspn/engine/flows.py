"""Expected flows: how often every edge and leaf is used under the posterior, summed over a batch.

`expected_flows` is pure and its results add up over shards of the data, so threads, processes or
machines can share the work. A batch is cut into a fixed number of shards whatever the number of
threads, and sums run in the order of the shards, so the result does not depend on how the work was
spread.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.engine.arithmetic import NO_EDGES, Arithmetic, Linear, Logarithmic, new_flows
from dspn.engine.blocks import Block, Segment, blocks
from dspn.engine.chain import ChainAscent, ChainRun, is_chain
from dspn.engine.job import Given, Job
from dspn.engine.kernels.chain import LEAST_MASS, chain_downward
from dspn.engine.kernels.products import add_to_chunks
from dspn.engine.passes import Ascent, Climber, doubtful_lanes
from dspn.engine.program import Program
from dspn.engine.records import ChainFlows, EdgeFlows, Flows
from dspn.engine.threads import in_threads
from dspn.errors import EvidenceError
from dspn.sequences import Sequences

_SHARDS: Final = 4
_NONE: Final = np.empty(0)


@final
@dataclass(frozen=True, eq=False)
class NetworkFlows:
    """Expected counts of sum edges in the order of the weights, and expected statistics of leaves.

    `leaves` has a (leaves, statistics) array for each bank.
    """

    weights: Floats
    leaves: tuple[Floats, ...]

    def __add__(self, other: "NetworkFlows") -> "NetworkFlows":
        """Flows of two shards together."""
        leaves = tuple(a + b for a, b in zip(self.leaves, other.leaves, strict=True))
        return NetworkFlows(self.weights + other.weights, leaves)


@final
@dataclass(frozen=True, eq=False)
class ExpectedFlows:
    """Flows of the template, of the top, and of a bottom network with its own parameters."""

    template: NetworkFlows
    top: NetworkFlows
    bottom: NetworkFlows | None

    def __add__(self, other: "ExpectedFlows") -> "ExpectedFlows":
        """Flows of two shards together."""
        bottom = None
        if self.bottom is not None and other.bottom is not None:
            bottom = self.bottom + other.bottom
        return ExpectedFlows(self.template + other.template, self.top + other.top, bottom)


class FlowsAndLikelihood(NamedTuple):
    """Expected flows of a batch and the log-likelihood of each of its sequences."""

    flows: ExpectedFlows
    log_likelihood: Floats


def _times_weight(use: Floats, weight: Floats) -> Floats:
    """Expected use of each edge; one of weight zero is never used, however large its derivative."""
    out = np.zeros(use.shape)
    np.multiply(use, weight, out=out, where=weight > 0)
    return out


@final
class _Sums:
    """Flows of the template's (or bottom network's) two parts while they are being summed."""

    def __init__(self, job: Job) -> None:
        program = job.program
        template = program.template
        self.job = job
        self.mix_op = np.zeros(template.mix_part.weights.num_op_weights)
        self.mix = np.zeros(template.mix_part.weights.num_mix_weights)
        self.slice_op = np.zeros(template.slice_part.weights.num_op_weights)
        # A chain keeps the sums of its distinct slices in columns of its own.
        by_slice = job.numbers.size and not is_chain(program)
        count = job.coding.distinct.rows.size if by_slice else 0
        self.coefficient = np.zeros(count * program.num_coefficients)
        self.leaves = [
            np.zeros((len(bank.nodes), bank.family.num_statistics))
            for bank in program.network.template.banks
        ]

    @property
    def mix_edges(self) -> EdgeFlows:
        """Where the mix part's flows are added."""
        return EdgeFlows(self.mix_op, self.mix, self.coefficient)

    @property
    def slice_edges(self) -> EdgeFlows:
        """Where the slice part's flows are added."""
        return EdgeFlows(self.slice_op, _NONE, _NONE) if self.slice_op.size else NO_EDGES

    def add_leaves(self, posterior: Floats, rows: Ints) -> None:
        """Adds posteriors (loads, slices) times the statistics of the slices' values."""
        layout = self.job.program.template
        for variable, bank in enumerate(self.job.program.network.template.banks):
            loads = np.flatnonzero(layout.load_bank == variable)
            statistics = bank.family.statistics(self.job.data.values[rows, variable])
            self.leaves[variable][layout.load_member[loads]] += posterior[loads] @ statistics

    def add_outputs(self, variable: int, posterior: Floats, values: Floats, factors: Ints) -> None:
        """Adds posteriors of outputs times the statistics of values to one variable's leaves.

        `posterior` is (values, outputs); output o is a product of leaves, `factors[o, v]` of
        variable v.
        """
        layout = self.job.program.template
        used = factors[:, variable] >= 0
        if used.any():
            statistics = self.job.program.network.template.banks[variable].family.statistics(values)
            members = layout.load_member[factors[used, variable]]
            np.add.at(self.leaves[variable], members, posterior[:, used].T @ statistics)

    def network_flows(self, bottom: bool) -> NetworkFlows:
        """All sums in the order of the network's parameters; those of edges times their weights."""
        template = self.job.program.template
        weights = np.zeros(self.job.program.network.template.num_weights)
        own = self.job.program.weights(bottom)
        for part, given, op, mix in (
            (template.slice_part, own.slice_part, self.slice_op, _NONE),
            (template.mix_part, own.mix_part, self.mix_op, self.mix),
        ):
            places = part.weights
            weights[places.op_edge] += _times_weight(op, given.op)[places.op_position]
            if places.mix_edge.size:
                weights[places.mix_edge] += _times_weight(mix, given.mix)[places.mix_position]
        return NetworkFlows(weights, tuple(self.leaves))


@final
class _ShardSums:
    """What one shard adds up: template, bottom where it differs, and top."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.template = _Sums(job)
        self.bottom = _Sums(job) if job.program.untied else None
        self.top = np.zeros(job.program.network.top.num_weights)

    def sums(self, segment: Segment) -> _Sums:
        """The sums a segment adds to."""
        return self.bottom if segment.bottom and self.bottom is not None else self.template

    def expected(self) -> ExpectedFlows:
        """The flows as a value."""
        bottom = None if self.bottom is None else self.bottom.network_flows(True)
        top = NetworkFlows(self.top, ())
        return ExpectedFlows(self.template.network_flows(False), top, bottom)

    def add_top(self, arithmetic: Arithmetic, rows: Floats, weight: Floats) -> None:
        """Adds the flows of the top network's sums: w D v / root."""
        program = self.job.program
        part, ops = program.top.part, program.top.part.operations
        places = part.weights.op_position
        if not places.size:
            return
        derivatives = arithmetic.top_row_derivatives(program, rows)
        parents = np.repeat(ops.op_row, np.diff(ops.op_start))[places]
        children, root = ops.op_child[places], rows[program.top.root_row]
        if arithmetic.is_linear:
            used = (derivatives[parents] * rows[children]) @ (weight / root)
        else:
            used = np.exp(derivatives[parents] + rows[children] - root) @ weight
        self.top[part.weights.op_edge] += used * program.top_weights.op[places]


def _add_general(shard: _ShardSums, ascent: Ascent, weight: Floats, *, dry: bool = False) -> Floats:
    """Adds the flows of an ascent's block (unless dry); returns the least mass of each lane."""
    job, block, arithmetic = shard.job, ascent.block, ascent.arithmetic
    least = np.full(block.width, np.inf)
    state = arithmetic.top_derivatives(job.program, ascent.top_values)
    if not dry:
        shard.add_top(arithmetic, ascent.top_values, weight)
    by_slice = bool(job.numbers.size) and arithmetic.is_linear
    for segment, given, store in ascent.from_the_top():
        sums = shard.sums(segment)
        edges = sums.mix_edges if by_slice else sums.mix_edges._replace(coefficient=_NONE)
        wants_seed = not by_slice and not dry
        flows = new_flows(job.program, segment.length, block.width, seed=wants_seed)
        arithmetic.downward(
            job.program,
            given.coefficients,
            ascent.batch,
            segment,
            state,
            store,
            flows,
            weight,
            NO_EDGES if dry else edges,
        )
        rows, active = block.rows(segment.p0, segment.p1)
        if arithmetic.is_linear:
            masses = np.where(active[:, None, :], flows.mass, np.inf)
            least = np.minimum(least, masses.min(axis=(0, 1)))
        if wants_seed:
            places = np.nonzero(active)
            _add_places(sums, arithmetic, segment, given, rows, places, flows, weight)
    return least


def _add_places(
    sums: _Sums,
    arithmetic: Arithmetic,
    segment: Segment,
    given: Given,
    rows: Ints,
    places: tuple[Ints, ...],
    flows: Flows,
    weight: Floats,
) -> None:
    """Carries the seeds of the places of a segment down to their leaves."""
    job = sums.job
    at, lane = places
    own = rows[at, lane]
    numbers = job.numbers[own] if job.numbers.size else at * rows.shape[1] + lane
    found = arithmetic.slice_flows(
        job.program,
        segment.bottom,
        job.leaf_tables(arithmetic, segment.bottom, own).tables,
        job.coding.codes,
        own,
        np.ascontiguousarray(given.coefficients.shift[:, numbers]),
        np.ascontiguousarray(flows.seed[at, :, lane].T),
        sums.slice_edges,
        weight[lane],
    )
    # Linear seeds carry the weight of their lane, logarithmic ones do not.
    posterior = found.posterior if arithmetic.is_linear else found.posterior * weight[lane]
    sums.add_leaves(posterior, own)


def _finish_seeds(sums: _Sums, seeds: Floats, bottom: bool) -> None:
    """Carries the summed seeds (slices, coefficients) of all distinct slices down to the leaves."""
    job, linear = sums.job, Linear()
    rows = job.coding.distinct.rows
    found = linear.slice_flows(
        job.program,
        bottom,
        job.leaf_tables(linear, bottom, rows).tables,
        job.coding.codes,
        rows,
        job.shared_given(linear, bottom).coefficients.shift,
        np.ascontiguousarray(seeds.T),
        sums.slice_edges,
    )
    sums.add_leaves(found.posterior, rows)


@final
class _ChainSums:
    """Flows of a chain's matrices and of its distinct slices while they are being summed."""

    def __init__(self, run: ChainRun) -> None:
        self.run = run
        shape = run.chain.shape
        count = run.job.coding.distinct.rows.size if run.job.numbers.size else 0
        self.matrix = np.zeros(int((run.chain.sizes**2).sum()))
        self.coefficient = np.zeros((count, shape.width))
        coding = run.job.coding
        self.by_chunk = run.job.program.template.factors is not None and coding.is_complete
        sizes = [int(np.prod(coding.widths[list(chunk)])) for chunk in coding.chunks]
        self.first = np.cumsum([0, *sizes])
        self.chunk = np.zeros((int(self.first[-1]) if self.by_chunk else 0, shape.width))

    def add_rows(self, posterior: Floats, rows: Ints) -> None:
        """Adds posteriors of some slices of the data to the sums by joint code of each chunk."""
        numbers = self.run.job.coding.row_chunks
        add_to_chunks(posterior, self.first[:-1], numbers, rows, self.chunk)

    def finish(self, sums: _Sums, bottom: bool) -> None:
        """Adds everything to the sums of the general layout."""
        chain, job = self.run.chain, self.run.job
        start = 0
        for group, size in enumerate(chain.sizes.tolist()):
            operations = job.program.template.mix_part.operations
            count, first = int(operations.mix_size[group]), int(operations.mix_start[group])
            own = self.matrix[start : start + size * size].reshape(size, size)[:count, :count]
            sums.mix[first : first + count * count] += own.ravel()
            start += size * size
        if self.by_chunk:
            self._finish_by_chunks(sums)
        elif job.numbers.size:
            self._finish_by_seeds(sums, bottom)

    def _finish_by_seeds(self, sums: _Sums, bottom: bool) -> None:
        """Adds the flows of the leaves from seeds, which are posteriors over coefficients.

        Outputs that share a coefficient add up to its seed.
        """
        chain = self.run.chain
        given = self.run.shared(bottom).values
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(self.coefficient > 0, self.coefficient / given, 0.0)
        seeds = np.zeros((len(given), self.run.job.program.num_coefficients))
        np.add.at(seeds.T, chain.loads, ratio[:, chain.columns].T)
        _finish_seeds(sums, seeds, bottom)

    def _finish_by_chunks(self, sums: _Sums) -> None:
        """Adds the flows of the leaves of products: posteriors by joint code, then by variable."""
        chain, job = self.run.chain, self.run.job
        factors = job.program.template.factors
        assert factors is not None
        chunks = job.coding.chunks
        widths = [job.coding.widths[list(chunk)].tolist() for chunk in chunks]
        if job.numbers.size:
            numbers = job.coding.distinct_chunks
            every = np.arange(len(numbers))
            add_to_chunks(self.coefficient, self.first[:-1], numbers, every, self.chunk)
        for number, (chunk, own) in enumerate(zip(chunks, widths, strict=True)):
            table = self.chunk[self.first[number] : self.first[number + 1]][:, chain.columns]
            joint = table.reshape(*own, -1)
            for axis, factor in enumerate(chunk):
                others = tuple(i for i in range(len(own)) if i != axis)
                sums.add_outputs(
                    job.coding.factor_of.index(factor),
                    joint.sum(axis=others),
                    job.coding.values[factor][: own[axis]],
                    factors[chain.loads],
                )


def _add_chain(
    shard: _ShardSums,
    totals: dict[bool, _ChainSums],
    ascent: ChainAscent,
    weight: Floats,
    *,
    dry: bool = False,
) -> Floats:
    """Adds the flows of a chain's block (unless dry); returns the least mass of each lane."""
    job, block, run = shard.job, ascent.block, ascent.run
    program, shape = job.program, run.chain.shape
    least = np.full(block.width, np.inf)
    state = run.start(block.width)
    run.chain.with_vectors(state, run.arithmetic.top_derivatives(program, ascent.top_values).v)
    if not dry:
        shard.add_top(run.arithmetic, ascent.top_values, weight)
    for segment, given, store in ascent.from_the_top():
        sums, own = shard.sums(segment), totals[segment.bottom]
        by_slice = bool(job.numbers.size)
        coefficient = own.coefficient if by_slice else np.zeros((len(given.values), shape.width))
        flows = ChainFlows(coefficient, own.matrix, least)
        if dry:
            flows = ChainFlows(np.zeros_like(coefficient), np.zeros_like(own.matrix), least)
        chain_downward(
            shape,
            run.matrix(segment.bottom, transposed=True),
            given.values,
            block.batch(job.numbers),
            segment.p0,
            segment.p1,
            state,
            store,
            weight,
            flows,
        )
        if dry or by_slice:
            continue
        if own.by_chunk:
            rows = block.rows(segment.p0, segment.p1)[0].ravel()
            own.add_rows(coefficient, rows)
        else:
            _add_chain_places(sums, ascent, segment, coefficient, given.values)
    return least


def _add_chain_places(
    sums: _Sums, ascent: ChainAscent, segment: Segment, posterior: Floats, values: Floats
) -> None:
    """Adds the posteriors of the places of a segment to the flows of their leaves."""
    job, chain = sums.job, ascent.run.chain
    rows, active = ascent.block.rows(segment.p0, segment.p1)
    places = np.flatnonzero(active)
    own = rows.ravel()[places]
    factors = job.program.template.factors
    if factors is not None:
        by_output = posterior[places][:, chain.columns]
        for variable in range(len(job.program.network.schema)):
            column = job.data.values[own, variable]
            sums.add_outputs(variable, by_output, column, factors[chain.loads])
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(posterior > 0, posterior / values, 0.0)[places]
    seeds = np.zeros((places.size, job.program.num_coefficients))
    np.add.at(seeds.T, chain.loads, ratio[:, chain.columns].T)
    linear = Linear()
    given = job.given(linear, ascent.block, segment).coefficients
    found = linear.slice_flows(
        job.program,
        segment.bottom,
        job.leaf_tables(linear, segment.bottom, own).tables,
        job.coding.codes,
        own,
        np.ascontiguousarray(given.shift[:, places]),
        np.ascontiguousarray(seeds.T),
        sums.slice_edges,
    )
    sums.add_leaves(found.posterior, own)


class _ImpreciseError(Exception):
    """A mass came too near to zero after it had been added; the shard is done again with care."""


@final
@dataclass(frozen=True, eq=False)
class _Shard:
    """What one shard has added up: sums in the general layout, and those of a chain by `bottom`."""

    sums: _ShardSums
    chains: dict[bool, _ChainSums]

    def add(self, other: "_Shard") -> None:
        """Adds another shard's sums to these."""
        for mine, theirs in zip(self._arrays(), other._arrays(), strict=True):
            mine += theirs

    def _arrays(self) -> Iterator[Floats]:
        for sums in (self.sums.template, self.sums.bottom):
            if sums is not None:
                yield from (sums.mix_op, sums.mix, sums.slice_op, sums.coefficient, *sums.leaves)
        for bottom in sorted(self.chains):
            own = self.chains[bottom]
            yield from (own.matrix, own.coefficient, own.chunk)
        yield self.sums.top


@final
class _Worker:
    """Adds up the flows of shards of one batch."""

    def __init__(self, program: Program, data: Sequences, weight: Floats) -> None:
        self.job = Job(program, data)
        self.weight = weight
        self.run = ChainRun(self.job, Linear()) if is_chain(program) else None
        self.climb = Climber(self.job)
        if self.run is None:
            self.job.prepare(Linear())
        else:
            self.run.prepare(transposed=True)

    def shard(self, own: list[Block], log_values: Floats) -> "_Shard":
        """Sums over some blocks; writes their log-likelihoods."""
        try:
            return self._shard(own, log_values, careful=False)
        except _ImpreciseError:
            return self._shard(own, log_values, careful=True)

    def _shard(self, own: list[Block], log_values: Floats, *, careful: bool) -> "_Shard":
        shard = _ShardSums(self.job)
        totals: dict[bool, _ChainSums] = {}
        if self.run is not None:
            bottoms = {False, self.job.program.untied}
            totals = {bottom: _ChainSums(self.run) for bottom in bottoms}
        for block in own:
            log_values[block.members] = self._block(shard, totals, block, careful)
        return _Shard(shard, totals)

    def finish(self, shards: list["_Shard"]) -> ExpectedFlows:
        """Adds up shards in their order and carries the sums of distinct slices to their leaves."""
        total = shards[0]
        for shard in shards[1:]:
            total.add(shard)
        sums = total.sums
        for bottom, chain in total.chains.items():
            own = sums.bottom if bottom and sums.bottom is not None else sums.template
            chain.finish(own, bottom)
        if self.run is None and self.job.numbers.size:
            count = self.job.coding.distinct.rows.size
            _finish_seeds(sums.template, sums.template.coefficient.reshape(count, -1), False)
            if sums.bottom is not None:
                _finish_seeds(sums.bottom, sums.bottom.coefficient.reshape(count, -1), True)
        return sums.expected()

    def _block(
        self, shard: _ShardSums, totals: dict[bool, _ChainSums], block: Block, careful: bool
    ) -> Floats:
        """Adds one block and returns its log-likelihoods.

        Lanes that may lack what underflowed are added in log space. With `careful` the masses are
        looked at before anything is added; otherwise one that is too small raises
        `_ImpreciseError`.
        """
        ascent = self._ascent(block)
        values = ascent.log_values
        doubtful = np.zeros(block.width, dtype=np.bool_)
        if not self.job.program.every_group_is_read:
            doubtful[:] = True
        elif ascent.lossy:
            doubtful = doubtful_lanes(self.climb, block, values)
        if careful and not doubtful.all():
            doubtful |= ~(self._add(shard, totals, ascent, dry=True) >= LEAST_MASS)
        if doubtful.any():
            exact = Ascent(self.job, Logarithmic(), block.only(doubtful))
            values = values.copy()
            values[doubtful] = exact.log_values
            self._require_possible(block, values)
            self._add(shard, totals, exact)
            if doubtful.all():
                return values
            ascent = self._ascent(block.only(~doubtful))
        self._require_possible(block, values)
        least = self._add(shard, totals, ascent)
        if not careful and not np.all(least >= LEAST_MASS):
            raise _ImpreciseError
        return values

    def _ascent(self, block: Block) -> "Ascent | ChainAscent":
        return (
            Ascent(self.job, Linear(), block) if self.run is None else ChainAscent(self.run, block)
        )

    def _add(
        self,
        shard: _ShardSums,
        totals: dict[bool, _ChainSums],
        ascent: "Ascent | ChainAscent",
        *,
        dry: bool = False,
    ) -> Floats:
        weight = self.weight[ascent.block.members]
        if isinstance(ascent, ChainAscent):
            return _add_chain(shard, totals, ascent, weight, dry=dry)
        return _add_general(shard, ascent, weight, dry=dry)

    def _require_possible(self, block: Block, values: Floats) -> None:
        if np.any(values == -np.inf):
            index = int(block.members[np.flatnonzero(values == -np.inf)[0]])
            raise EvidenceError(
                f"sequence {index} has probability zero under the model, so it has no expected "
                "flows. Leave it out, or start from parameters without zeros."
            )


def expected_flows(
    program: Program, data: Sequences, weights: Floats | None = None
) -> FlowsAndLikelihood:
    """Expected counts of every edge and leaf under p(latent | evidence), summed over sequences.

    `weights` count each sequence that many times; all must be positive.
    """
    own = np.ones(data.num_sequences) if weights is None else np.asarray(weights, dtype=np.float64)
    if own.shape != (data.num_sequences,) or not np.all(own > 0) or not np.all(np.isfinite(own)):
        raise EvidenceError(
            f"`weights` must hold a positive number for each of the {data.num_sequences} sequences."
        )
    worker = _Worker(program, data, own)
    log_values = np.empty(data.num_sequences)
    every = blocks(data, program.network.root, worker.climb.lanes)
    shards = [every[first::_SHARDS] for first in range(min(_SHARDS, len(every)))]
    found = in_threads(lambda shard: worker.shard(shard, log_values), shards)
    return FlowsAndLikelihood(worker.finish(found), log_values)
