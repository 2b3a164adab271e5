"""Surprises of a mixture, from those of its components and their posteriors at every slice."""

from typing import NamedTuple

import numpy as np

from dspn._arrays import Bools, Floats
from dspn.engine import Program, compile_program
from dspn.engine.arithmetic import Logarithmic
from dspn.engine.blocks import Block
from dspn.engine.job import Job
from dspn.engine.prefixes import missing_slice, step_up
from dspn.engine.surprises import slice_surprises
from dspn.inference._entry_surprises import entry_surprises
from dspn.inference._left_out import left_out_of_impossible
from dspn.inference.mixed import (
    MixedProgram,
    for_each_component,
    log_joint,
    log_shares,
    log_sum,
    rows_of,
)
from dspn.sequences import Sequences
from dspn.structure import Parameters
from dspn.structure.network import Root


class _Prefixes(NamedTuple):
    """-log P_t(x_t | x_1..x_{t-1}) and log P_t(x_1..x_{t-1}) for every slice of a batch."""

    surprises: Floats
    log_past: Floats


def mixed_slice_surprises(program: MixedProgram, data: Sequences) -> Floats:
    """-log P_t(x_t | x_1..x_{t-1}): the components' predictions, weighted by P_t(c | past).

    It is +inf for an impossible slice and NaN where the past is impossible in all components.
    """
    surprises = np.zeros((len(program.programs), data.total_slices))
    log_past = np.full_like(surprises, -np.inf)
    for c, log_weight, own in program.parts:
        found = _prefixes(own, data)
        surprises[c], log_past[c] = found.surprises, log_weight + found.log_past
    shares = log_shares(log_past, axis=0)
    possible = shares > -np.inf
    terms = np.where(possible, shares - np.where(possible, surprises, 0.0), -np.inf)
    return np.where(possible.any(axis=0), -log_sum(terms, axis=0), np.nan)


def mixed_entry_surprises(program: MixedProgram, data: Sequences) -> Floats:
    """-log P(entry | all others) = log sum_c P(c | all) P_c(all others) / P_c(all).

    A component that holds the sequence impossible may hold it possible, and likely, without an
    entry.
    """
    joint = log_joint(program, data)
    total = log_sum(joint)
    possible = total > -np.inf
    shares = log_shares(joint)
    out = np.full(data.values.shape, -np.inf)

    def add(c: int, own: Program, part: Sequences, mask: Bools) -> None:
        rows = rows_of(data, mask)
        share = np.repeat(shares[mask, c], part.lengths)[:, None]
        found = entry_surprises(own, part)
        out[rows] = np.logaddexp(out[rows], share + np.where(np.isnan(found), -np.inf, found))

    def add_left_out(c: int, own: Program, part: Sequences, mask: Bools) -> None:
        found = left_out_of_impossible(own, part)
        evidence = np.repeat(total[mask], part.lengths)[found.rows]
        log_ratio = program.log_weights[c] + found.log_values - evidence
        places = rows_of(data, mask)[found.rows], found.variables
        out[places] = np.logaddexp(out[places], log_ratio)

    for_each_component(program, data, joint > -np.inf, add)
    for_each_component(program, data, (joint == -np.inf) & possible[:, None], add_left_out)
    known = ~np.isnan(data.values) & np.repeat(possible, data.lengths)[:, None]
    return np.where(known, out, np.nan)


def _prefixes(program: Program, data: Sequences) -> _Prefixes:
    if program.network.root == Root.LAST:
        return _prefixes_from_below(program, data)
    surprises = slice_surprises(program, data)
    # The slices before the newest are the template's, as in the network with a tied bottom, whose
    # surprises add up.
    agreeing = slice_surprises(_tied(program), data) if program.untied else surprises
    return _Prefixes(surprises, -_sums_before(agreeing, data))


def _tied(program: Program) -> Program:
    """The same template and top with a tied bottom."""
    network = program.network
    own = Parameters(network.parameters.template, network.parameters.top)
    return program.kept("tied", lambda: compile_program(network.with_parameters(own)))


def _sums_before(surprises: Floats, data: Sequences) -> Floats:
    """The sum of the surprises before each slice of its sequence; inf after an impossible one."""
    known = np.where(np.isfinite(surprises), surprises, 0.0)
    steps = known.copy()
    # Each sequence begins at zero again, so that sums stay as small as those of one sequence.
    steps[data.offsets[1:-1]] -= np.add.reduceat(known, data.offsets[:-1])[:-1]
    return np.where(np.isnan(surprises), np.inf, np.cumsum(steps) - known)


def _prefixes_from_below(program: Program, data: Sequences) -> _Prefixes:
    """Root at the last slice: each slice enters on top of the vector of those before it.

    In logarithms throughout, as they alone carry no scale of their own from slice to slice.
    """
    job, missing = Job(program, data), Job(program, missing_slice(program))
    arithmetic = Logarithmic()
    job.prepare(arithmetic)
    log_seen, log_past = np.empty(data.total_slices), np.empty(data.total_slices)

    def work(block: Block) -> None:
        state = arithmetic.start(program, block.width)
        for segment in job.segments(block, keep_flows=True):
            given = job.given(arithmetic, block, segment)
            store = np.zeros((segment.length, program.num_interfaces, block.width))
            batch = block.batch(job.numbers)
            arithmetic.upward(program, given.coefficients, batch, segment, state, store)
            rows, active = block.rows(segment.p0, segment.p1)
            at, lane = np.nonzero(active)
            v, own = np.ascontiguousarray(store[at, :, lane].T), rows[active]
            seen = step_up(job, arithmetic, own, v, bottom=segment.bottom)
            unseen = step_up(missing, arithmetic, np.zeros_like(own), v, bottom=segment.bottom)
            log_seen[own] = arithmetic.top(program, seen.state).log_value
            log_past[own] = arithmetic.top(program, unseen.state).log_value

    job.over_blocks(work)
    with np.errstate(invalid="ignore"):
        return _Prefixes(log_past - log_seen, log_past)
