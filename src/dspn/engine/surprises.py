"""-log P_t(x_t | x_1..x_{t-1}) for every slice of a batch, in passes over blocks."""

from collections.abc import Callable

import numpy as np

from dspn._arrays import Floats
from dspn.engine.arithmetic import Arithmetic, Linear, Logarithmic, new_flows
from dspn.engine.blocks import Block
from dspn.engine.job import Job
from dspn.engine.passes import likelihood
from dspn.engine.prefixes import (
    TopTerms,
    missing_slice,
    paired,
    reads_one_group_each,
    starting_forms,
    step_up,
    summed_terms,
    top_terms,
)
from dspn.engine.program import Program
from dspn.sequences import Sequences
from dspn.structure.network import Root

_SurpriseOfBlock = Callable[[Job, Block, Arithmetic, Floats], bool]


def _from_below(job: Job, block: Block, arithmetic: Arithmetic, out: Floats) -> bool:
    """Root at the last slice: each slice enters on top of the vector of those before it."""
    program = job.program
    missing = Job(program, missing_slice(program))
    state = arithmetic.start(program, block.width)
    batch = block.batch(job.numbers)
    lossy = False
    for segment in job.segments(block, keep_flows=True):
        given = job.given(arithmetic, block, segment)
        store = np.zeros((segment.length, program.num_interfaces, block.width))
        lost = arithmetic.upward(program, given.coefficients, batch, segment, state, store)
        rows, active = block.rows(segment.p0, segment.p1)
        at, lane = np.nonzero(active)
        v = np.ascontiguousarray(store[at, :, lane].T)
        bottom = segment.p0 == 0 and segment.p1 == 1
        seen = step_up(job, arithmetic, rows[active], v, bottom=bottom)
        unseen = step_up(missing, arithmetic, np.zeros_like(rows[active]), v, bottom=bottom)
        after, before = (arithmetic.top(program, step.state) for step in (seen, unseen))
        out[rows[active]] = before.log_value - after.log_value
        lossy = any((lossy, lost, given.lossy, seen.lossy, unseen.lossy, after.lossy, before.lossy))
    return lossy


def _from_above(terms: TopTerms) -> _SurpriseOfBlock:
    """Root at the first slice: the top network's forms move down through the slices seen."""

    def surprise(job: Job, block: Block, arithmetic: Arithmetic, out: Floats) -> bool:
        program, count = job.program, terms.coefficients.size
        # Every sequence has a lane for each term. Kernels want lengths to fall, so terms run
        # fastest here; afterwards they are brought to the front: all places for the first term,
        # then for the second, ...
        wide = Block(
            np.repeat(block.members, count),
            np.repeat(block.lengths, count),
            np.repeat(block.base, count),
            -1,
        )
        forms = starting_forms(program, arithmetic, terms, 1)
        forms = arithmetic.start(program, wide.width)._replace(v=np.tile(forms.v, (1, block.width)))
        batch = wide.batch(job.numbers)
        lossy = False
        for segment in reversed(job.segments(wide, keep_flows=True)):
            given = job.given(arithmetic, wide, segment)
            below = np.tile(arithmetic.start(program, wide.width).v, (segment.length, 1, 1))
            flows = new_flows(program, segment.length, wide.width, derivative=True)
            lost = arithmetic.downward(
                program, given.coefficients, batch, segment, forms, below, flows
            )
            rows, active = block.rows(segment.p0, segment.p1)
            at, lane = np.nonzero(active)
            derivative, exponents, where = [], [], rows[active]
            for term in range(count):
                derivative.append(flows.derivative[at, :, lane * count + term].T)
                exponents.append(flows.exponents[at, :, lane * count + term].T)
            every = np.ascontiguousarray(np.concatenate(derivative, axis=1))
            shifts = np.concatenate(exponents, axis=1)
            ones = arithmetic.start(program, count * where.size).v
            seen = step_up(job, arithmetic, np.tile(where, count), ones, bottom=True)
            lossy = lossy or lost or given.lossy or seen.lossy
            now = summed_terms(terms, paired(program, arithmetic, every, shifts, seen.state))
            before = summed_terms(terms, paired(program, arithmetic, every, shifts, None))
            out[where] = before - now
        return lossy

    return surprise


def _prefix_by_prefix(program: Program, data: Sequences, out: Floats) -> None:
    """Surprises from every prefix as a sequence of its own, with its last slice and without.

    The cost is quadratic in length.
    """
    for index in range(data.num_sequences):
        values = data[index]
        length = len(values)
        offsets = np.concatenate([[0], np.cumsum(np.arange(1, length + 1))])
        rows = np.concatenate([np.arange(t) for t in range(1, length + 1)])
        seen = values[rows]
        unseen = seen.copy()
        unseen[offsets[1:] - 1] = np.nan
        schema = data.schema
        now = likelihood(program, Sequences.from_codes(seen, offsets, schema))
        before = likelihood(program, Sequences.from_codes(unseen, offsets, schema))
        out[data.offsets[index] : data.offsets[index + 1]] = before - now


def slice_surprises(program: Program, data: Sequences) -> Floats:
    """-log P_t(x_t | x_1..x_{t-1}) for every slice.

    It is +inf for an impossible slice and NaN for those after it.
    """
    out = np.full(data.values.shape[0], np.nan)
    if program.network.root == Root.FIRST and not reads_one_group_each(program):
        with np.errstate(invalid="ignore"):
            _prefix_by_prefix(program, data, out)
        return out
    surprise = _from_below if program.network.root == Root.LAST else _from_above(top_terms(program))
    job = Job(program, data)
    linear = Linear()
    job.prepare(linear)

    def work(block: Block) -> None:
        with np.errstate(invalid="ignore"):
            if surprise(job, block, linear, out):
                surprise(job, block, Logarithmic(), out)

    job.over_blocks(work)
    return out
