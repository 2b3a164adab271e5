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
from dspn.data import Sequences
from dspn.engine.arithmetic import NO_EDGES, Arithmetic, Linear, Logarithmic
from dspn.engine.blocks import Block, Segment, blocks
from dspn.engine.chain import ChainRun, is_chain
from dspn.engine.chain_ascent import ChainAscent, Room
from dspn.engine.chain_flows import ChainSums, add_chain
from dspn.engine.flow_sums import (
    NO_SEEDS,
    ExpectedFlows,
    NetworkFlows,
    ShardSums,
    Sums,
    add_seeds,
    finish_seeds,
)
from dspn.engine.job import Given, Job
from dspn.engine.kernels.chain_downward import LEAST_MASS
from dspn.engine.memo import Memo
from dspn.engine.passes import Ascent, Climber, doubtful_lanes
from dspn.engine.program import Program
from dspn.engine.records import Flows
from dspn.engine.threads import in_threads
from dspn.errors import EvidenceError

__all__ = ["ExpectedFlows", "FlowsAndLikelihood", "NetworkFlows", "expected_flows"]

_SHARDS: Final = 4


class FlowsAndLikelihood(NamedTuple):
    """Expected flows of a batch and the log-likelihood of each of its sequences."""

    flows: ExpectedFlows
    log_likelihood: Floats


def _add_general(shard: ShardSums, ascent: Ascent, weight: Floats, *, dry: bool = False) -> Floats:
    """Adds the flows of an ascent's block (unless dry); returns the least mass of each lane."""
    job, block, arithmetic = shard.job, ascent.block, ascent.arithmetic
    least = np.full(block.width, np.inf)
    state = arithmetic.top_derivatives(job.program, ascent.top.rows)
    if not dry:
        shard.add_top(arithmetic, ascent.top.rows, weight)
    by_slice = bool(job.numbers.size) and arithmetic.is_linear
    for segment, given, store in ascent.from_the_top():
        sums = shard.sums(segment)
        edges = sums.mix_edges if by_slice else sums.mix_edges._replace(coefficient=NO_SEEDS)
        wants_seed = not by_slice and not dry
        flows = arithmetic.new_flows(job.program, segment.length, block.width, seed=wants_seed)
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
    sums: Sums,
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
    shift = np.ascontiguousarray(given.coefficients.shift[:, numbers])
    seeds = np.ascontiguousarray(flows.seed[at, :, lane].T)
    if isinstance(arithmetic, Linear):
        add_seeds(sums, segment.bottom, own, shift, seeds)
        return
    found = arithmetic.slice_flows(
        job.program,
        segment.bottom,
        job.leaf_tables(arithmetic, segment.bottom, own).tables,
        job.coding.codes,
        own,
        shift,
        seeds,
        sums.slice_edges,
        weight[lane],
    )
    # Linear seeds carry the weight of their lane, logarithmic ones do not.
    sums.add_leaves(found.posterior * weight[lane], own)


class _ImpreciseError(Exception):
    """A mass came too near to zero after it had been added; the shard is done again with care."""


@final
@dataclass(frozen=True, eq=False)
class _Shard:
    """What one shard has added up: sums in the general layout, and those of a chain by `bottom`.

    `is_double` marks a shard that single precision did not hold; its columns are padded otherwise.
    """

    sums: ShardSums
    chains: dict[bool, ChainSums]
    is_double: bool

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
            yield from (own.dense, own.edge, own.coefficient, own.chunk)
        yield self.sums.top


@final
class _Worker:
    """Adds up the flows of shards of one batch."""

    def __init__(self, program: Program, data: Sequences, weight: Floats) -> None:
        self.job = Job(program, data)
        self.weight = weight
        self.run = ChainRun(self.job, Linear(), for_flows=True) if is_chain(program) else None
        self.climb = Climber(self.job)
        self._kept = Memo()
        if self.run is None:
            self.job.prepare(Linear())
        else:
            self.run.prepare(transposed=True)

    def shard(self, own: list[Block], log_values: Floats) -> "_Shard":
        """Sums over some blocks; writes their log-likelihoods."""
        try:
            return self._shard(own, log_values, careful=False)
        except _ImpreciseError:
            if self.job.program.single:
                return self._double.shard(own, log_values)
            return self._shard(own, log_values, careful=True)

    @property
    def _double(self) -> "_Worker":
        """The same in double precision, for what single precision does not hold."""
        return self._kept(
            "double", lambda: _Worker(self.job.program.double, self.job.data, self.weight)
        )

    def _shard(self, own: list[Block], log_values: Floats, *, careful: bool) -> "_Shard":
        # A chain keeps the sums of its distinct slices in columns of its own.
        by_slice = bool(self.job.numbers.size) and self.run is None
        shard = ShardSums(self.job, by_slice=by_slice)
        totals: dict[bool, ChainSums] = {}
        if self.run is not None:
            bottoms = {False, self.job.program.untied}
            totals = {bottom: ChainSums(self.run) for bottom in bottoms}
        room = Room()
        for block in own:
            log_values[block.members] = self._block(shard, totals, block, careful, room)
        return _Shard(shard, totals, is_double=not self.job.program.single)

    def finish(self, shards: list["_Shard"]) -> ExpectedFlows:
        """Adds up the flows of all shards, those of one precision after those of the other."""
        kinds = ([s for s in shards if not s.is_double], [s for s in shards if s.is_double])
        found = [self._finished(own) for own in kinds if own]
        return found[0] if len(found) == 1 else found[0] + found[1]

    def _finished(self, shards: list["_Shard"]) -> ExpectedFlows:
        """Adds up shards in their order and carries the sums of distinct slices to their leaves."""
        total = shards[0]
        for shard in shards[1:]:
            total.add(shard)
        sums = total.sums
        for bottom, chain in total.chains.items():
            own = sums.bottom if bottom and sums.bottom is not None else sums.template
            chain.finish(own, bottom)
        if self.run is None and self.job.numbers.size:
            finish_seeds(sums.template, sums.template.coefficient, False)
            if sums.bottom is not None:
                finish_seeds(sums.bottom, sums.bottom.coefficient, True)
        return sums.expected()

    def _block(
        self,
        shard: ShardSums,
        totals: dict[bool, ChainSums],
        block: Block,
        careful: bool,
        room: Room,
    ) -> Floats:
        """Adds one block and returns its log-likelihoods.

        Lanes that may lack what underflowed are added in log space. With `careful` the masses are
        looked at before anything is added; otherwise one that is too small raises
        `_ImpreciseError`.
        """
        ascent = self._ascent(block, room)
        values = ascent.log_values
        is_single = self.run is not None and self.run.single
        if is_single and (ascent.lossy or not np.isfinite(values).all()):
            raise _ImpreciseError
        doubtful = np.zeros(block.width, dtype=np.bool_)
        if not self.job.program.every_group_is_read:
            doubtful[:] = True
        elif ascent.lossy:
            doubtful = doubtful_lanes(self.climb, block, ascent.top)
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
            ascent = self._ascent(block.only(~doubtful), room)
        self._require_possible(block, values)
        least = self._add(shard, totals, ascent)
        least_mass = LEAST_MASS if self.run is None else self.run.least_mass
        if not careful and not np.all(least >= least_mass):
            raise _ImpreciseError
        return values

    def _ascent(self, block: Block, room: Room) -> "Ascent | ChainAscent":
        if self.run is None:
            return Ascent(self.job, Linear(), block)
        return ChainAscent(self.run, block, room)

    def _add(
        self,
        shard: ShardSums,
        totals: dict[bool, ChainSums],
        ascent: "Ascent | ChainAscent",
        *,
        dry: bool = False,
    ) -> Floats:
        weight = self.weight[ascent.block.members]
        if isinstance(ascent, ChainAscent):
            return add_chain(shard, totals, ascent, weight, dry=dry)
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
