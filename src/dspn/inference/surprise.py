"""How unexpected each slice and each entry is."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.data.sequences import Sequences
from dspn.engine.base import TERMS, NetworkProgram, Program, Want, difference, log_shares, plus
from dspn.inference.likelihood import bounded_runs

_MOST_SLICES: Final = 1 << 18


@final
@dataclass(frozen=True, eq=False, repr=False)
class Surprise:
    """Surprises in nats.

    `slices[t]` = -log P_t(x_t | x_1..x_{t-1}), P_t being the network of t slices; with the root at
    the first slice and a tied bottom they add up to -log P of the sequence. An impossible slice has
    +inf, those after it NaN. `variables[t, v]` = -log P(x_v^t | every other observed entry of the
    sequence), NaN where the entry is missing or the sequence is impossible.
    """

    slices: Floats
    variables: Floats

    def __repr__(self) -> str:
        total, variables = self.variables.shape
        return f"Surprise(total_slices={total}, num_variables={variables})"


def surprise(program: Program, data: Sequences) -> Surprise:
    """Surprise by slice (given the past) and by entry (given everything else)."""
    return Surprise(_slice_surprises(program, data), _entry_surprises(program, data))


def _slice_surprises(program: Program, data: Sequences) -> Floats:
    """-log P_t(x_t | x_1..x_{t-1}), with P_t the weighted sum of the components.

    It is +inf for an impossible slice and NaN where the past is impossible in all components.
    """
    found = [(log_weight, own.prefixes(data)) for _, log_weight, own in program.parts]
    if len(found) == 1:
        return -difference(*found[0][1])
    seen, unseen = (
        log_shares(np.stack([plus(own[i], weight) for weight, own in found], axis=1), axis=0)[1]
        for i in (0, 1)
    )
    return -difference(seen, unseen)


def _entry_surprises(program: Program, data: Sequences) -> Floats:
    """-log P(entry | all others) = log sum_c P(c | all) P_c(all others) / P_c(all).

    A component that holds the sequence impossible may hold it possible, and likely, without an
    entry.
    """
    found = {c: own.posteriors(data, Want(surprises=True)) for c, _, own in program.parts}
    joint = np.stack([plus(found[c].log_values, weight) for c, weight, _ in program.parts], axis=2)
    shares, total = log_shares(joint)
    possible = total[0] > -np.inf
    out = np.full(data.values.shape, -np.inf)
    for place, (c, log_weight, own) in enumerate(program.parts):
        share = np.repeat(shares[:, place], data.lengths)[:, None]
        entries = found[c].surprises
        usable = (share > -np.inf) & ~np.isnan(entries)
        out = np.logaddexp(out, np.where(usable, share + np.where(usable, entries, 0.0), -np.inf))
        ruled_out = possible & (joint[0, :, place] == -np.inf)
        if ruled_out.any():
            rows = np.flatnonzero(np.repeat(ruled_out, data.lengths))
            slices, variables, log_values = _left_out(own, data[ruled_out])
            evidence = np.repeat(total, data.lengths, axis=1)[:, rows[slices]]
            log_ratio = difference(plus(log_values, log_weight), evidence)
            places = rows[slices], variables
            out[places] = np.logaddexp(out[places], log_ratio)
    known = ~np.isnan(data.values) & np.repeat(possible, data.lengths)[:, None]
    return np.where(known, out, np.nan)


def _left_out(program: NetworkProgram, data: Sequences) -> tuple[Ints, Ints, Floats]:
    """Slices, variables and log P(all other entries) of entries of impossible sequences.

    They are those without which the sequence is possible; log P is a total. Less evidence is never
    less probable: where a sequence stays impossible without a whole range of entries, none of them
    matters, and a range that does is halved. The number of ranges looked at is that of the entries
    found times the logarithm of the length, unless several entries contradict each other.
    """
    observed = ~np.isnan(data.values)
    counts = np.add.reduceat(observed.sum(axis=1), data.offsets[:-1])
    sequence = np.arange(len(data))
    low, high = np.zeros_like(counts), counts
    singles, found = [], []
    while sequence.size:
        log_values = _without(program, data, sequence, low, high)
        hit = log_values[0] > -np.inf
        sequence, low, high, log_values = sequence[hit], low[hit], high[hit], log_values[:, hit]
        single = high - low == 1
        singles.append((np.cumsum(counts) - counts)[sequence[single]] + low[single])
        found.append(log_values[:, single])
        sequence, low, high = sequence[~single], low[~single], high[~single]
        middle = (low + high) // 2
        sequence = np.concatenate([sequence, sequence])
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
    places = np.flatnonzero(observed.ravel())[np.concatenate(singles)]
    slices, variables = np.divmod(places, data.num_variables)
    return slices, variables, np.concatenate(found, axis=1)


def _without(
    program: NetworkProgram, data: Sequences, sequence: Ints, low: Ints, high: Ints
) -> Floats:
    """Log P of sequence[i] less its observed entries low[i] .. high[i] - 1, for every i."""
    log_values = np.empty((TERMS, sequence.size))
    for run in bounded_runs(data.lengths[sequence], _MOST_SLICES):
        part = data[sequence[run]]
        observed = ~np.isnan(part.values)
        number = (np.cumsum(observed.ravel()) - 1).reshape(observed.shape)
        first = np.append(0, np.cumsum(observed.sum(axis=1)))[part.offsets[:-1]]
        since, until = (
            np.repeat(first + bound[run], part.lengths)[:, None] for bound in (low, high)
        )
        taken = (number >= since) & (number < until)
        values = np.where(taken, np.nan, part.values)
        log_values[:, run] = program.log_totals(part.with_values(values))
    return log_values
