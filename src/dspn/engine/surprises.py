"""Log P_t of every prefix of a batch, with its last slice and without it, in passes over blocks."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn.data import Sequences
from dspn.engine.arithmetic import Arithmetic, Linear, Logarithmic
from dspn.engine.blocks import Block
from dspn.engine.job import Job
from dspn.engine.passes import AGREEMENT, BOUND, likelihood_totals
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
from dspn.engine.records import State
from dspn.engine.totals import TERMS, difference
from dspn.structure.network import Root


class Prefixes(NamedTuple):
    """Log P_t(x_1..x_t) and log P_t(x_1..x_{t-1}) for every slice t, as totals.

    P_t is the network of t slices.
    """

    log_seen: Floats
    log_unseen: Floats


class _Part(NamedTuple):
    """The same for the slices `rows`, which lie in `lanes` of a block; `lossy` as everywhere."""

    rows: Ints
    lanes: Ints
    log_seen: Floats
    log_unseen: Floats
    lossy: bool


def _states(arithmetic: Arithmetic, v: Floats, exponents: Floats, scale: Floats) -> State:
    """Vectors, exponents and scales of some places (places, rows) as the state of as many lanes."""
    own, powers, scales = (np.ascontiguousarray(array.T) for array in (v, exponents, scale))
    return State(own, arithmetic.exponents(powers), scales)


def _from_below(job: Job, missing: Job, block: Block, arithmetic: Arithmetic) -> Iterator[_Part]:
    """Root at the last slice: each slice enters on top of the vector of those before it."""
    program = job.program
    state = arithmetic.start(program, block.width)
    batch = block.batch(job.numbers)
    inputs = arithmetic.num_rows(program)
    after = inputs + 2 * program.num_groups
    for segment in job.segments(block, keep_flows=True):
        given = job.given(arithmetic, block, segment)
        store = np.zeros((segment.length, after + TERMS, block.width))
        lost = arithmetic.upward(program, given.coefficients, batch, segment, state, store)
        every, active = block.rows(segment.p0, segment.p1)
        at, lanes = np.nonzero(active)
        found, rows = store[at, :, lanes], every[active]
        below = _states(arithmetic, found[:, :inputs], found[:, inputs:after], found[:, after:])
        seen = step_up(job, arithmetic, rows, below, bottom=segment.bottom)
        unseen = step_up(missing, arithmetic, np.zeros_like(rows), below, bottom=segment.bottom)
        now, before = (arithmetic.top(program, step.state) for step in (seen, unseen))
        lossy = any((lost, given.lossy, seen.lossy, unseen.lossy, now.lossy, before.lossy))
        yield _Part(rows, lanes, now.total, before.total, lossy)


def _from_above(job: Job, terms: TopTerms, block: Block, arithmetic: Arithmetic) -> Iterator[_Part]:
    """Root at the first slice: the top network's forms move down through the slices seen."""
    program, count = job.program, terms.coefficients.size
    # Every sequence has a lane for each term. Kernels want lengths to fall, so terms run fastest
    # here; afterwards they are brought to the front: all places for the first term, then for the
    # second, ...
    wide = Block(
        np.repeat(block.members, count),
        np.repeat(block.lengths, count),
        np.repeat(block.base, count),
        -1,
    )
    forms = starting_forms(program, arithmetic, terms, 1)
    forms = arithmetic.start(program, wide.width)._replace(v=np.tile(forms.v, (1, block.width)))
    batch = wide.batch(job.numbers)
    for segment in reversed(job.segments(wide, keep_flows=True)):
        given = job.given(arithmetic, wide, segment)
        below = np.tile(arithmetic.start(program, wide.width).v, (segment.length, 1, 1))
        flows = arithmetic.new_flows(program, segment.length, wide.width, derivative=True)
        lost = arithmetic.downward(program, given.coefficients, batch, segment, forms, below, flows)
        every, active = block.rows(segment.p0, segment.p1)
        at, lanes = np.nonzero(active)
        rows = every[active]
        places = np.tile(at, count), np.concatenate([lanes * count + r for r in range(count)])
        found = (flows.derivative, flows.exponents.astype(np.float64), flows.scale)
        moved = _states(arithmetic, *(array[places[0], :, places[1]] for array in found))
        ones = arithmetic.start(program, rows.size * count)
        seen = step_up(job, arithmetic, np.tile(rows, count), ones, bottom=True)
        now, before = (paired(program, arithmetic, moved, v) for v in (seen.state, None))
        log_seen, log_unseen = (summed_terms(terms, logs)[0] for logs in (now, before))
        lossy = lost or given.lossy or seen.lossy
        yield _Part(rows, lanes, log_seen, log_unseen, lossy)


def _prefix_by_prefix(program: Program, data: Sequences, out: Prefixes) -> None:
    """Every prefix as a sequence of its own, with its last slice and without.

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
        own = slice(data.offsets[index], data.offsets[index + 1])
        for target, known in ((out.log_seen, seen), (out.log_unseen, unseen)):
            every = Sequences.from_codes(known, offsets, data.schema)
            target[:, own] = likelihood_totals(program, every)


def prefixes(program: Program, data: Sequences) -> Prefixes:
    """The log probabilities of every prefix, with its last slice and without.

    What linear arithmetic may have lost is found by a floor, as for likelihoods (`engine.passes`).
    """
    out = Prefixes(*(np.empty((TERMS, data.total_slices)) for _ in range(2)))
    if program.network.root == Root.FIRST and not reads_one_group_each(program):
        _prefix_by_prefix(program, data, out)
        return out
    job = Job(program, data)
    job.prepare(Linear())
    run: Callable[[Block, Arithmetic], Iterator[_Part]]
    if program.network.root == Root.FIRST:
        run = partial(_from_above, job, top_terms(program))
    else:
        run = partial(_from_below, job, Job(program, missing_slice(program)))

    def put(block: Block, arithmetic: Arithmetic) -> tuple[bool, Bools]:
        """Whether a value may have been lost, and the lanes in which something is impossible."""
        lossy, impossible = False, np.zeros(block.width, dtype=np.bool_)
        for part in run(block, arithmetic):
            out.log_seen[:, part.rows] = part.log_seen
            out.log_unseen[:, part.rows] = part.log_unseen
            lossy = lossy or part.lossy
            impossible[part.lanes[np.isneginf(part.log_seen[0] + part.log_unseen[0])]] = True
        return lossy, impossible

    def work(block: Block) -> None:
        # What is impossible cannot be told from what was lost. Such lanes are always doubtful, so
        # that they do not depend on what the others of their block have lost.
        lossy, doubtful = put(block, Linear())
        for part in run(block, BOUND) if lossy else ():
            seen = difference(part.log_seen, out.log_seen[:, part.rows])
            unseen = difference(part.log_unseen, out.log_unseen[:, part.rows])
            doubtful[part.lanes[~(np.maximum(seen, unseen) <= AGREEMENT)]] = True
        if doubtful.any():
            put(block.only(doubtful), Logarithmic())

    job.over_blocks(work)
    return out


def slice_surprises(program: Program, data: Sequences) -> Floats:
    """-log P_t(x_t | x_1..x_{t-1}) for every slice.

    It is +inf for an impossible slice and NaN for those after it.
    """
    found = prefixes(program, data)
    return -difference(found.log_seen, found.log_unseen)
