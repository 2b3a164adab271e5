"""How unexpected each slice and each entry is."""

from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn.engine import Program, SegmentFlows, likelihood, posterior_flows
from dspn.engine.surprises import slice_surprises
from dspn.sequences import Sequences


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
    return Surprise(slice_surprises(program, data), entries)
