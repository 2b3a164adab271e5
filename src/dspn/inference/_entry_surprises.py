"""-log P(entry | all others) under one network, from one pass up and one down."""

import numpy as np

from dspn._arrays import Floats
from dspn.data import Sequences
from dspn.engine import Program, SegmentFlows, likelihood, posterior_flows


def entry_surprises(program: Program, data: Sequences) -> Floats:
    """Surprise of every entry; NaN where it is missing or the sequence is impossible."""
    entries = np.full(data.values.shape, np.nan)
    observed = ~np.isnan(data.values)
    possible = likelihood(program, data) > -np.inf
    observed &= np.repeat(possible, data.lengths)[:, None]

    def collect(segment: SegmentFlows) -> None:
        at, lane = np.nonzero(segment.active)
        rows = segment.rows[at, lane]
        found = segment.leaves(at, lane)
        entries[rows] = np.where(observed[rows], found.surprise.T, np.nan)

    posterior_flows(program, data, collect)
    return entries
