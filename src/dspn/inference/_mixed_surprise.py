"""Surprises of a mixture, from those of its components and their posteriors."""

import numpy as np

from dspn._arrays import Bools, Floats
from dspn.data import Sequences
from dspn.engine import Program
from dspn.engine.surprises import prefixes
from dspn.engine.totals import TERMS, difference, log_shares, plus
from dspn.inference._entry_surprises import entry_surprises
from dspn.inference._left_out import left_out_of_impossible
from dspn.inference.mixed import MixedProgram, for_each_component, log_joint, rows_of


def mixed_slice_surprises(program: MixedProgram, data: Sequences) -> Floats:
    """-log P_t(x_t | x_1..x_{t-1}), with P_t the weighted sum of the components.

    It is +inf for an impossible slice and NaN where the past is impossible in all components.
    """
    seen = np.zeros((TERMS, len(program.programs), data.total_slices))
    seen[0] = -np.inf
    unseen = seen.copy()
    for c, log_weight, own in program.parts:
        found = prefixes(own, data)
        seen[:, c] = plus(found.log_seen, log_weight)
        unseen[:, c] = plus(found.log_unseen, log_weight)
    return -difference(log_shares(seen, axis=0)[1], log_shares(unseen, axis=0)[1])


def mixed_entry_surprises(program: MixedProgram, data: Sequences) -> Floats:
    """-log P(entry | all others) = log sum_c P(c | all) P_c(all others) / P_c(all).

    A component that holds the sequence impossible may hold it possible, and likely, without an
    entry.
    """
    joint = log_joint(program, data)
    shares, total = log_shares(joint)
    possible = total[0] > -np.inf
    out = np.full(data.values.shape, -np.inf)

    def add(c: int, own: Program, part: Sequences, mask: Bools) -> None:
        rows = rows_of(data, mask)
        share = np.repeat(shares[mask, c], part.lengths)[:, None]
        found = entry_surprises(own, part)
        out[rows] = np.logaddexp(out[rows], share + np.where(np.isnan(found), -np.inf, found))

    def add_left_out(c: int, own: Program, part: Sequences, mask: Bools) -> None:
        found = left_out_of_impossible(own, part)
        evidence = np.repeat(total[:, mask], part.lengths, axis=1)[:, found.rows]
        log_ratio = difference(plus(found.log_values, program.log_weights[c]), evidence)
        places = rows_of(data, mask)[found.rows], found.variables
        out[places] = np.logaddexp(out[places], log_ratio)

    is_possible = joint[0] > -np.inf
    for_each_component(program, data, is_possible, add)
    for_each_component(program, data, ~is_possible & possible[:, None], add_left_out)
    known = ~np.isnan(data.values) & np.repeat(possible, data.lengths)[:, None]
    return np.where(known, out, np.nan)
