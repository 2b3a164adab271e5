"""Exact distributions of the slices that follow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Bools
from dspn.engine import Program
from dspn.errors import DataError
from dspn.inference.marginals import Marginals, checked_levels, marginals_at
from dspn.inference.sampling import sample_given
from dspn.sequences import Sequences


@final
@dataclass(frozen=True, eq=False)
class Forecast:
    """`sequences` are the data with `steps` missing slices appended; `marginals` are those of the new slices."""

    steps: int
    sequences: Sequences
    marginals: Marginals

    @property
    def future(self) -> Bools:
        """Which slices of `sequences` are new."""
        ends = np.repeat(self.sequences.offsets[1:], self.sequences.lengths)
        rows = np.arange(self.sequences.values.shape[0])
        return rows >= ends - self.steps


def _checked_steps(steps: int) -> int:
    if steps < 1:
        raise DataError(f"`steps` must be at least 1, but is {steps}.")
    return steps


def forecast(
    program: Program, data: Sequences, steps: int, *, quantiles: Sequence[float] = (0.05, 0.5, 0.95)
) -> Forecast:
    """P(x_{T+1}..x_{T+steps} | x_1..x_T), entry by entry.

    With the root at the first slice and a tied bottom the answer does not depend on the horizon; otherwise the model
    of T + steps slices is asked.
    """
    longer = data.extended(_checked_steps(steps))
    blank = Forecast(steps, longer, Marginals(data.schema, np.empty(0), ()))
    wanted = np.repeat(blank.future[:, None], len(data.schema), axis=1)
    return Forecast(steps, longer, marginals_at(program, longer, wanted, checked_levels(quantiles)))


def sample_futures(
    program: Program, data: Sequences, steps: int, *, rng: np.random.Generator
) -> Sequences:
    """One drawn continuation of each sequence (its missing entries are drawn along with it)."""
    return sample_given(program, data.extended(_checked_steps(steps)), rng=rng)
