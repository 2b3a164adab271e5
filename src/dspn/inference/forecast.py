"""Exact distributions of the slices that follow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arguments import Bools, whole_number
from dspn.data.sequences import Sequences
from dspn.engine.base import Program
from dspn.errors import DataError
from dspn.inference.marginals import Marginals, checked_levels, marginals_at
from dspn.inference.sampling import sample_given


@final
@dataclass(frozen=True, eq=False, repr=False)
class Forecast:
    """The data with `steps` missing slices appended, and the marginals of the new slices."""

    steps: int
    sequences: Sequences
    marginals: Marginals

    def __repr__(self) -> str:
        return (
            f"Forecast(steps={self.steps}, num_sequences={len(self.sequences)}, "
            f"num_variables={self.sequences.num_variables})"
        )

    @property
    def future(self) -> Bools:
        """Which slices of `sequences` are new."""
        ends = np.repeat(self.sequences.offsets[1:], self.sequences.lengths)
        rows = np.arange(self.sequences.values.shape[0])
        return rows >= ends - self.steps


def forecast(
    program: Program, data: Sequences, steps: int, *, quantiles: Sequence[float] = (0.05, 0.5, 0.95)
) -> Forecast:
    """P(x_{T+1}..x_{T+steps} | x_1..x_T), entry by entry.

    With the root at the first slice and a tied bottom the answer does not depend on the horizon;
    otherwise the model of T + steps slices is asked.
    """
    levels = checked_levels(quantiles)
    ahead = whole_number(steps, "steps", DataError)
    longer = data.extended(ahead)
    blank = Forecast(ahead, longer, Marginals(data.schema, np.empty(0), ()))
    wanted = np.repeat(blank.future[:, None], len(data.schema), axis=1)
    return Forecast(ahead, longer, marginals_at(program, longer, wanted, levels))


def sample_futures(
    program: Program, data: Sequences, steps: int, *, rng: np.random.Generator
) -> Sequences:
    """One drawn continuation of each sequence (its missing entries are drawn along with it)."""
    ahead = whole_number(steps, "steps", DataError)
    return sample_given(program, data.extended(ahead), rng=rng)
