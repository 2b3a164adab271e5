"""Expected flows of a chain: its matrices' edges, and posteriors of its outputs by slice."""

from typing import final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.engine.arithmetic import Linear
from dspn.engine.blocks import Segment
from dspn.engine.chain import ChainRun
from dspn.engine.chain_ascent import ChainAscent
from dspn.engine.chain_matrix import use_by_place
from dspn.engine.flow_sums import ShardSums, Sums, add_seeds, finish_seeds
from dspn.engine.kernels.chain_downward import chain_downward
from dspn.engine.kernels.products import add_to_chunks, split_chunks
from dspn.engine.records import ChainFlows
from dspn.engine.tables import alike_banks


@final
class ChainSums:
    """Flows of a chain's matrices and of its distinct slices while they are being summed."""

    def __init__(self, run: ChainRun) -> None:
        self.run = run
        shape = run.chain.shape
        count = run.job.coding.distinct.rows.size if run.job.numbers.size else 0
        self.dense = np.zeros(int(shape.start[-1]), run.dtype)
        self.edge = np.zeros(run.matrix(False, transposed=True).weight.size)
        self.coefficient = np.zeros((count, shape.width), run.dtype)
        coding = run.job.coding
        self.by_chunk = run.job.program.template.factors is not None and coding.is_complete
        rows = int(coding.chunk_first[-1]) if self.by_chunk else 0
        self.chunk = np.zeros((rows, shape.width))

    def add_rows(self, posterior: Floats, rows: Ints) -> None:
        """Adds posteriors of some slices of the data to the sums by joint code of each chunk."""
        numbers = self.run.job.coding.row_chunks
        add_to_chunks(posterior, self.run.job.coding.chunk_first, numbers, rows, self.chunk)

    def finish(self, sums: Sums, bottom: bool) -> None:
        """Adds everything to the sums of the general layout."""
        chain, job = self.run.chain, self.run.job
        places, use = use_by_place(
            chain.shape, chain.transitions, chain.columns, self.dense, self.edge
        )
        every = np.bincount(places, use, minlength=sums.mix_op.size + sums.mix.size)
        sums.mix_op += every[: sums.mix_op.size]
        sums.mix += every[sums.mix_op.size :]
        if self.by_chunk:
            self._finish_by_chunks(sums)
        elif job.numbers.size:
            self._finish_by_seeds(sums, bottom)

    def _finish_by_seeds(self, sums: Sums, bottom: bool) -> None:
        """Adds the flows of the leaves from seeds, which are posteriors over coefficients.

        Outputs that share a coefficient add up to its seed.
        """
        chain = self.run.chain
        given = self.run.shared(bottom).values
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(self.coefficient > 0, self.coefficient / given, 0.0)
        seeds = np.zeros((len(given), self.run.job.program.num_coefficients))
        np.add.at(seeds.T, chain.loads, ratio[:, chain.columns].T)
        finish_seeds(sums, seeds, bottom)

    def _finish_by_chunks(self, sums: Sums) -> None:
        """Adds the flows of the leaves of products: posteriors by joint code, then by variable."""
        chain, job = self.run.chain, self.run.job
        factors = job.program.template.factors
        assert factors is not None
        coding = job.coding
        if job.numbers.size:
            numbers = coding.distinct_chunks
            every = np.arange(len(numbers))
            add_to_chunks(self.coefficient, coding.chunk_first, numbers, every, self.chunk)
        start = np.cumsum([0, *coding.widths.tolist()])
        by_code = np.zeros((int(start[-1]), self.chunk.shape[1]))
        split_chunks(self.chunk, coding.widths, coding.chunk_of, coding.chunk_first, start, by_code)
        posterior, own = by_code[:, chain.columns].T, factors[chain.loads]
        for _, banks in alike_banks(job.program, coding):
            values = coding.values[coding.factor_of[banks[0]]][:-1]
            firsts = [start[coding.factor_of[bank]] for bank in banks]
            counts = [posterior[:, first : first + values.size] for first in firsts]
            sums.add_outputs(banks, values, counts, own)


def add_chain(
    shard: ShardSums,
    totals: dict[bool, ChainSums],
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
    run.chain.with_vectors(state, run.arithmetic.top_derivatives(program, ascent.top.rows).v)
    if not dry:
        shard.add_top(run.arithmetic, ascent.top.rows, weight)
    for segment, given, store in ascent.from_the_top():
        sums, own = shard.sums(segment), totals[segment.bottom]
        by_slice = bool(job.numbers.size)
        coefficient = own.coefficient
        if not by_slice:
            coefficient = np.zeros((len(given.values), shape.width), run.dtype)
        flows = ChainFlows(coefficient, own.dense, own.edge, least)
        if dry:
            unused = np.zeros_like(coefficient), np.zeros_like(own.dense), np.zeros_like(own.edge)
            flows = ChainFlows(*unused, least)
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
            run.rescale_every,
            run.least_mass,
            run.has_floor,
        )
        if dry or by_slice:
            continue
        if own.by_chunk:
            rows = block.rows(segment.p0, segment.p1)[0].ravel()
            own.add_rows(coefficient, rows)
        else:
            _add_places(sums, ascent, segment, coefficient, given.values)
    return least


def _add_places(
    sums: Sums, ascent: ChainAscent, segment: Segment, posterior: Floats, values: Floats
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
            values = job.data.values[own, variable]
            sums.add_outputs([variable], values, [by_output.T], factors[chain.loads])
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(posterior > 0, posterior / values, 0.0)[places]
    seeds = np.zeros((places.size, job.program.num_coefficients))
    np.add.at(seeds.T, chain.loads, ratio[:, chain.columns].T)
    given = job.given(Linear(), ascent.block, segment).coefficients
    shift = np.ascontiguousarray(given.shift[:, places])
    add_seeds(sums, segment.bottom, own, shift, np.ascontiguousarray(seeds.T))
