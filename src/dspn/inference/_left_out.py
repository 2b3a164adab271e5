"""Single entries that alone make a sequence impossible, found by halving."""

from typing import Final, NamedTuple

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.data import Sequences
from dspn.engine import Program, likelihood_totals
from dspn.engine.totals import TERMS
from dspn.inference.mixed import bounded_runs

_MOST_SLICES: Final = 1 << 18


class LeftOut(NamedTuple):
    """Log P(all other entries) for entries at the slices `rows`; that of all others is zero.

    `log_values` are totals.
    """

    rows: Ints
    variables: Ints
    log_values: Floats


def left_out_of_impossible(program: Program, data: Sequences) -> LeftOut:
    """Log P(rest) of each observed entry of impossible sequences, where it is not zero.

    Less evidence is never less probable: where a sequence stays impossible without a whole range of
    entries, none of them matters, and a range that does is halved. The number of ranges looked at
    is that of the entries found times the logarithm of the length, unless several entries
    contradict each other.
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
    rows, variables = np.divmod(places, data.num_variables)
    return LeftOut(rows, variables, np.concatenate(found, axis=1))


def _without(program: Program, data: Sequences, sequence: Ints, low: Ints, high: Ints) -> Floats:
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
        log_values[:, run] = likelihood_totals(program, part.with_values(values))
    return log_values
