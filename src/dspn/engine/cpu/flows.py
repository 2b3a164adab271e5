"""Expected flows: how often every edge and leaf is used under the posterior, summed over a batch.

Results add up over shards of the data, so threads, processes or machines can share the work. A
batch is cut into a fixed number of shards whatever the number of threads, and sums run in the order
of the shards, so the result does not depend on how the work was spread.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.data.sequences import Sequences
from dspn.engine.base import ExpectedFlows, NetworkFlows, difference, plus, total_of
from dspn.engine.cpu.arithmetic import LINEAR, LOGARITHMIC, NO_EDGES, Arithmetic
from dspn.engine.cpu.batch import Job, LaneBlock, in_threads
from dspn.engine.cpu.chain import ChainRun, is_chain
from dspn.engine.cpu.kernels.chain import LEAST_MASS, chain_downward
from dspn.engine.cpu.kernels.coding import add_to_chunks, split_chunks
from dspn.engine.cpu.passes import Ascent, Climber, GeneralRun, Room
from dspn.engine.cpu.program import CpuProgram, Memo
from dspn.engine.cpu.records import ChainFlows, EdgeFlows, LeafTables, Segment
from dspn.engine.cpu.tables import alike_banks
from dspn.errors import EvidenceError

_SHARDS: Final = 4
_NONE: Final = np.empty(0)
_NO_SEEDS: Final = np.empty((0, 0))


def _times_weight(use: Floats, weight: Floats) -> Floats:
    """Expected use of each edge; one of weight zero is never used, however large its derivative."""
    out = np.zeros(use.shape)
    np.multiply(use, weight, out=out, where=weight > 0)
    return out


@final
class _Sums:
    """Flows of the template, or of an untied bottom network, while they are being summed.

    Edges of the mix part, of its matrices and of the slice part, seeds of the coefficients of every
    distinct slice, and statistics of the leaves. A chain sums its matrices, the posteriors of its
    outputs by distinct slice, and those by joint code of each chunk in columns of its own.
    """

    def __init__(self, job: Job, run: ChainRun | None, *, bottom: bool) -> None:
        program, template, coding = job.program, job.program.template, job.coding
        self.job = job
        self.run = run
        self.bottom = bottom
        self.mix_op = np.zeros(template.mix_part.weights.num_op_weights)
        self.mix = np.zeros(template.mix_part.weights.num_mix_weights)
        self.slice_op = np.zeros(template.slice_part.weights.num_op_weights)
        self.leaves = [
            np.zeros((len(bank.nodes), bank.family.num_statistics))
            for bank in program.network.template.banks
        ]
        count = coding.distinct.rows.size if job.numbers.size else 0
        if run is None:
            self.by_slice = np.zeros((count, program.num_coefficients))
            return
        width = run.chain.shape.width
        self.dense = np.zeros(run.matrix(False, transposed=True).dense.size, run.dtype)
        self.edge = np.zeros(run.matrix(False, transposed=True).weight.size)
        self.by_slice = np.zeros((count, width), run.dtype)
        self.by_chunk = template.factors is not None and coding.is_complete
        self.chunk = np.zeros((int(coding.chunk_first[-1]) if self.by_chunk else 0, width))

    def arrays(self) -> Iterator[Floats]:
        """Everything that adds up over shards."""
        yield from (self.mix_op, self.mix, self.slice_op, self.by_slice, *self.leaves)
        if self.run is not None:
            yield from (self.dense, self.edge, self.chunk)

    @property
    def slice_edges(self) -> EdgeFlows:
        """Where the slice part's flows are added."""
        return EdgeFlows(self.slice_op, _NONE, _NO_SEEDS) if self.slice_op.size else NO_EDGES

    def add_leaves(self, posterior: Floats, rows: Ints) -> None:
        """Adds posteriors (loads, slices) times the statistics of the slices' values."""
        program = self.job.program
        for variable, (loads, members) in enumerate(program.leaves):
            values = self.job.values_at(variable, rows)
            self._add_statistics([variable], values, [members], [posterior[loads]])

    def _add_counts(self, tables: LeafTables, counts: Floats) -> None:
        """Adds the statistics of values, each as often as a leaf was used with its code."""
        program, coding = self.job.program, self.job.coding
        for _, banks in alike_banks(program, coding):
            values = coding.values[coding.factor_of[banks[0]]]
            loads, members = zip(*(program.leaves[bank] for bank in banks), strict=True)
            places = [tables.start[own][:, None] + np.arange(values.size) for own in loads]
            self._add_statistics(banks, values, members, [counts[own] for own in places])

    def add_moments(self, rows: Ints, posterior: Floats) -> set[int]:
        """Adds the statistics of Gaussian variables, from posteriors (slices, outputs) of a chain.

        Returns these variables.
        """
        assert self.run is not None
        found = set[int]()
        for group in self.run.densities.get(self.bottom, ()):
            for variable, own in group.moments(rows, posterior).items():
                np.add.at(self.leaves[variable], group.members[variable], own)
                found.add(variable)
        return found

    def add_outputs(self, banks: list[int], values: Floats, counts: list[Floats]) -> None:
        """Adds the statistics of values, which output o of a chain has `counts[bank][o]` times."""
        assert self.run is not None
        used, members = zip(*(self.run.chain.outputs_of[bank] for bank in banks), strict=True)
        own = [each[outputs] for each, outputs in zip(counts, used, strict=True)]
        self._add_statistics(banks, values, members, own)

    def _add_statistics(
        self, banks: list[int], values: Floats, members: Sequence[Ints], counts: list[Floats]
    ) -> None:
        """Adds the expected statistics of values to members of banks of one family."""
        program = self.job.program
        leaves = program.parameters(self.bottom).leaves
        rows = [leaves[bank][own] for bank, own in zip(banks, members, strict=True)]
        family = program.network.template.banks[banks[0]].family
        seen = family.expected_statistics(np.concatenate(rows), values, np.concatenate(counts))
        ends = np.cumsum([len(own) for own in members])
        for bank, own, part in zip(banks, members, np.split(seen, ends[:-1]), strict=True):
            np.add.at(self.leaves[bank], own, part)

    def add_seeds(self, rows: Ints, shift: Ints, seeds: Floats) -> None:
        """Carries linear seeds (coefficients, slices) of some slices down to their leaves."""
        complete, own = self.job.coding.is_complete, (LINEAR, self.bottom, rows, shift, seeds)
        found, tables = self.job.slice_flows(*own, edges=self.slice_edges, counted=complete)
        if complete:
            self._add_counts(tables.slices.tables, found.counts)
        else:
            self.add_leaves(found.posterior, rows)

    def seeds_of_outputs(self, posterior: Floats, values: Floats) -> Floats:
        """Seeds (coefficients, slices) from posteriors of a chain's outputs (slices, columns).

        A posterior over its coefficient is a seed; outputs that share a coefficient add up.
        """
        assert self.run is not None
        chain = self.run.chain
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(posterior > 0, posterior / values, 0.0)
        seeds = np.zeros((self.job.program.num_coefficients, len(posterior)))
        np.add.at(seeds, chain.transitions.loads, ratio[:, chain.columns].T)
        return seeds

    def finish(self) -> NetworkFlows:
        """All sums in the order of the network's parameters; those of edges times their weights."""
        job, template = self.job, self.job.program.template
        if self.run is not None:
            places, use = self.run.chain.use_by_place(self.dense, self.edge)
            every = np.bincount(places, use, minlength=self.mix_op.size + self.mix.size)
            self.mix_op += every[: self.mix_op.size]
            self.mix += every[self.mix_op.size :]
        if self.run is not None and self.by_chunk:
            self._finish_by_chunks()
        elif job.numbers.size:
            seeds = self.by_slice.T
            if self.run is not None:
                given = self.run.shared[self.bottom].values
                seeds = self.seeds_of_outputs(self.by_slice, given)
            shift = job.shared_given(LINEAR, self.bottom)[0].shift
            self.add_seeds(job.coding.distinct.rows, shift, seeds)
        weights = np.zeros(job.program.network.template.num_weights)
        own = job.program.weights(self.bottom)
        for part, given_weights, op, mix in (
            (template.slice_part, own.slice_part, self.slice_op, _NONE),
            (template.mix_part, own.mix_part, self.mix_op, self.mix),
        ):
            at = part.weights
            weights[at.op_edge] += _times_weight(op, given_weights.op)[at.op_position]
            if at.mix_edge.size:
                weights[at.mix_edge] += _times_weight(mix, given_weights.mix)[at.mix_position]
        return NetworkFlows(weights, tuple(self.leaves))

    def _finish_by_chunks(self) -> None:
        """Adds the flows of the leaves of products: posteriors by joint code, then by variable."""
        assert self.run is not None
        coding = self.job.coding
        if self.job.numbers.size:
            numbers = coding.distinct_chunks
            every = np.arange(len(numbers))
            add_to_chunks(self.by_slice, coding.chunk_first, numbers, every, self.chunk)
        start = np.cumsum([0, *coding.widths.tolist()])
        by_code = np.zeros((int(start[-1]), self.chunk.shape[1]))
        split_chunks(self.chunk, coding.widths, coding.chunk_of, coding.chunk_first, start, by_code)
        posterior = by_code[:, self.run.chain.columns].T
        for _, banks in alike_banks(self.job.program, coding):
            values = coding.values[coding.factor_of[banks[0]]][:-1]
            firsts = [start[coding.factor_of[bank]] for bank in banks]
            counts = [posterior[:, first : first + values.size] for first in firsts]
            self.add_outputs(banks, values, counts)


@final
class _Shard:
    """What one shard adds up: template, bottom where it differs, and top.

    `is_double` marks a shard that single precision did not hold; its columns are padded otherwise.
    """

    def __init__(self, job: Job, run: ChainRun | None) -> None:
        self.job = job
        self.sums = [
            _Sums(job, run, bottom=bottom) for bottom in (False, True)[: 1 + job.program.untied]
        ]
        self.top = np.zeros(job.program.network.top.num_weights)
        self.is_double = not job.program.single

    def of(self, segment: Segment) -> _Sums:
        """The sums a segment adds to."""
        return self.sums[segment.bottom]

    def add(self, other: "_Shard") -> None:
        """Adds another shard's sums to these."""
        self.top += other.top
        for sums, theirs in zip(self.sums, other.sums, strict=True):
            for mine, array in zip(sums.arrays(), theirs.arrays(), strict=True):
                mine += array

    def finish(self) -> ExpectedFlows:
        """The flows as a value."""
        template, *bottom = (sums.finish() for sums in self.sums)
        return ExpectedFlows(template, NetworkFlows(self.top, ()), bottom[0] if bottom else None)

    def add_top(self, arithmetic: Arithmetic, rows: Floats, weight: Floats) -> None:
        """Adds the flows of the top network's sums: w D v / root."""
        program = self.job.program
        part, ops = program.top.part, program.top.part.operations
        places = part.weights.op_position
        if not places.size:
            return
        derivatives = arithmetic.top_row_derivatives(program, rows)
        parents = np.repeat(ops.op_row, np.diff(ops.op_start))[places]
        children, root = ops.op_child[places], program.top.root_row
        if arithmetic.is_linear:
            used = (derivatives[parents] * rows[children]) @ (weight / rows[root])
        else:
            logs = plus(
                total_of(derivatives[0, parents]), derivatives[1, parents], *rows[:, children]
            )
            used = np.exp(difference(logs, plus(total_of(rows[0, root]), rows[1, root]))) @ weight
        self.top[part.weights.op_edge] += used * program.top_weights().op[places]

    def add_general(self, ascent: Ascent, weight: Floats, *, dry: bool) -> Floats:
        """Adds the flows of a block (unless dry); returns the least mass of each lane."""
        job, block, arithmetic = self.job, ascent.block, ascent.run.arithmetic
        least = np.full(block.width, np.inf)
        state = arithmetic.top_derivatives(job.program, ascent.top.rows)
        # Linear seeds are summed by distinct slice where there are such.
        by_slice = bool(job.numbers.size) and arithmetic.is_linear
        for segment, given, store in ascent.from_the_top():
            sums = self.of(segment)
            edges = EdgeFlows(sums.mix_op, sums.mix, sums.by_slice if by_slice else _NO_SEEDS)
            flows = arithmetic.new_flows(job.program, given.span, seed=not (by_slice or dry))
            at_span = (job.program, given.span, state, store, flows)
            arithmetic.downward(*at_span, weight, NO_EDGES if dry else edges)
            rows, active = block.rows(segment)
            if arithmetic.is_linear:
                masses = np.where(active[:, None, :], flows.mass, np.inf)
                least = np.minimum(least, masses.min(axis=(0, 1)))
            if flows.seed.size:
                at, lane = np.nonzero(active)
                slices = rows[at, lane]
                shift = job.shifts(given.span, slices, at, lane)
                seeds = flows.seed[at, :, lane].T
                if arithmetic.is_linear:
                    sums.add_seeds(slices, shift, seeds)
                    continue
                # Linear seeds carry the weight of their lane, logarithmic ones do not.
                own = (arithmetic, sums.bottom, slices, shift, seeds)
                edges, by_lane = sums.slice_edges, weight[lane]
                found, _ = job.slice_flows(*own, edges=edges, weight=by_lane)
                sums.add_leaves(found.posterior * by_lane, slices)
        return least

    def add_chain(self, ascent: Ascent, weight: Floats, *, dry: bool) -> Floats:
        """Adds the flows of a chain's block (unless dry); returns the least mass of each lane."""
        job, block, run = self.job, ascent.block, ascent.run
        least = np.full(block.width, np.inf)
        state = run.top_derivatives(ascent.top, block.width)
        by_slice = bool(job.numbers.size)
        for segment, given, store in ascent.from_the_top():
            sums = self.of(segment)
            posterior = sums.by_slice
            if not by_slice:
                posterior = np.zeros((len(given.values), run.chain.shape.width), run.dtype)
            flows = ChainFlows(posterior, sums.dense, sums.edge, least)
            if dry:
                posterior, dense, edge = (np.zeros_like(own) for own in flows[:3])
                flows = ChainFlows(posterior, dense, edge, least)
            chain_downward(
                *(run.matrix(segment.bottom, transposed=True), given.values),
                *(block.batch(job.numbers, job.inputs), segment, state, store, weight),
                *(flows, run.rescale_every, run.least_mass, run.has_floor),
            )
            if not (dry or by_slice):
                self._add_chain_places(sums, block, segment, posterior, given.values)
        return least

    def _add_chain_places(
        self, sums: _Sums, block: LaneBlock, segment: Segment, posterior: Floats, values: Floats
    ) -> None:
        """Adds the posteriors of a chain's outputs at the places of a segment to their leaves."""
        job, program = self.job, self.job.program
        rows, active = block.rows(segment)
        if sums.by_chunk:
            numbers, first = job.coding.row_chunks, job.coding.chunk_first
            add_to_chunks(posterior, first, numbers, rows.ravel(), sums.chunk)
            return
        places = np.flatnonzero(active)
        own = rows.ravel()[places]
        assert sums.run is not None
        if program.template.factors is not None:
            by_output = posterior[places][:, sums.run.chain.columns]
            added = sums.add_moments(own, by_output)
            for variable in range(len(program.network.template.banks)):
                if variable not in added:
                    sums.add_outputs([variable], job.values_at(variable, own), [by_output.T])
            return
        seeds = sums.seeds_of_outputs(posterior[places], values[places])
        shift = job.given(LINEAR, block, segment).span.given.shift[:, places]
        sums.add_seeds(own, shift, seeds)


class _ImpreciseError(Exception):
    """A mass came too near to zero after it had been added; the shard is done again with care."""


@final
class _Worker:
    """Adds up the flows of shards of one batch."""

    def __init__(self, program: CpuProgram, data: Sequences, weight: Floats) -> None:
        self.job = Job(program, data)
        self.weight = weight
        self._made = Memo()
        self.climb = Climber(self.job)
        self.chain: ChainRun | None = None
        if is_chain(program):
            self.chain = ChainRun(self.job, LINEAR, transposed=True, for_flows=True)
        self.run: Any = self.chain or GeneralRun(self.job, LINEAR)
        self.least_mass = LEAST_MASS if self.chain is None else self.chain.least_mass

    @property
    def _double(self) -> "_Worker":
        """The same in double precision, for what single precision does not hold."""
        job = self.job
        return self._made(0, lambda: _Worker(job.program.double, job.data, self.weight))

    def shard(self, own: list[LaneBlock], log_values: Floats, *, careful: bool = False) -> _Shard:
        """Sums over some blocks; writes their log-likelihoods."""
        found, room = _Shard(self.job, self.chain), Room()
        try:
            for block in own:
                log_values[block.members] = self._block(found, block, careful, room)
        except _ImpreciseError:
            if self.job.program.single:
                return self._double.shard(own, log_values)
            return self.shard(own, log_values, careful=True)
        return found

    def _block(self, shard: _Shard, block: LaneBlock, careful: bool, room: Room) -> Floats:
        """Adds one block and returns its log-likelihoods.

        Lanes that may lack what underflowed are added in log space. With `careful` the masses are
        looked at before anything is added; otherwise one that is too small raises
        `_ImpreciseError`.
        """
        ascent = Ascent(self.run, block, room)
        values = ascent.log_values
        is_single = self.chain is not None and self.chain.is_single
        if is_single and (ascent.lossy or not np.isfinite(values).all()):
            raise _ImpreciseError
        doubtful = np.zeros(block.width, dtype=np.bool_)
        if not self.job.program.every_group_is_read:
            doubtful[:] = True
        elif ascent.lossy or self.job.program.paths.doubt:
            doubtful = self.climb.doubtful_lanes(block, ascent.top)
        if careful and not doubtful.all():
            doubtful |= ~(self._add(shard, ascent, dry=True) >= LEAST_MASS)
        if doubtful.any():
            exact = Ascent(GeneralRun(self.job, LOGARITHMIC), block.only(doubtful))
            values = values.copy()
            values[doubtful] = exact.log_values
            self._require_possible(block, values)
            self._add(shard, exact)
            if doubtful.all():
                return values
            ascent = Ascent(self.run, block.only(~doubtful), room)
        self._require_possible(block, values)
        least = self._add(shard, ascent)
        if not careful and not np.all(least >= self.least_mass):
            raise _ImpreciseError
        return values

    def _add(self, shard: _Shard, ascent: Ascent, *, dry: bool = False) -> Floats:
        weight = self.weight[ascent.block.members]
        if not dry:
            shard.add_top(ascent.run.arithmetic, ascent.top.rows, weight)
        add = shard.add_chain if isinstance(ascent.run, ChainRun) else shard.add_general
        return add(ascent, weight, dry=dry)

    def _require_possible(self, block: LaneBlock, values: Floats) -> None:
        if np.any(values == -np.inf):
            index = int(block.members[np.flatnonzero(values == -np.inf)[0]])
            raise EvidenceError(
                f"sequence {index} has probability zero under the model, so it has no expected "
                "flows. Leave it out, or start from parameters without zeros."
            )


def expected_flows(
    program: CpuProgram, data: Sequences, weights: Floats
) -> tuple[ExpectedFlows, Floats]:
    """Expected counts of every edge and leaf under p(latent | evidence), and log-likelihoods."""
    worker = _Worker(program, data, weights)
    log_values = np.empty(data.num_sequences)
    every = worker.job.blocks(worker.climb.lanes)
    parts = [every[first::_SHARDS] for first in range(min(_SHARDS, len(every)))]
    shards = in_threads(lambda own: worker.shard(own, log_values), parts, program.paths.threads)
    program.is_too_narrow = program.single and all(own.is_double for own in shards)
    # Shards of one precision are added up in their order, and then those of the other.
    kinds = ([s for s in shards if not s.is_double], [s for s in shards if s.is_double])
    found = []
    for own in filter(None, kinds):
        for shard in own[1:]:
            own[0].add(shard)
        found.append(own[0].finish())
    return (found[0] if len(found) == 1 else found[0] + found[1]), log_values
