"""How long inference takes when one variable is observed and the others are hidden."""

import time
from typing import Any, Final

import numpy as np

from dspn.baselines import FittedBaseline
from dspn.sequences import Sequences

_FIRST: Final = 8
_REPEATS: Final = 5


def first_variable_alone(data: Sequences) -> Sequences:
    """The sequences with all variables but the first hidden."""
    values = np.full_like(data.values, np.nan)
    values[:, 0] = data.values[:, 0]
    return data.with_values(values)


def inference_seconds(
    fitted: FittedBaseline, data: Sequences, budget: float = 20.0
) -> dict[str, Any]:
    """Seconds for the likelihoods of all sequences, the least of several repeats.

    Where a few sequences show that all would take longer than the budget, as many as it allows are
    measured, and the time is scaled by the number of slices; `share` says which part was measured.
    """

    def seconds(part: Sequences) -> float:
        start = time.perf_counter()
        fitted.log_likelihood(part)
        return time.perf_counter() - start

    order = np.random.default_rng(0).permutation(len(data))
    few = data[order[:_FIRST]]
    seconds(few)  # compiles what is compiled at the first call
    needed = seconds(few) * data.total_slices / few.total_slices
    count = len(data) if needed <= budget else max(_FIRST, int(len(data) * budget / needed))
    part = data if count >= len(data) else data[order[:count]]
    least, spent = np.inf, 0.0
    for _ in range(_REPEATS):
        took = seconds(part)
        least, spent = min(least, took), spent + took
        if spent + took > budget:
            break
    share = part.total_slices / data.total_slices
    return {"seconds": least / share, "share": share}
