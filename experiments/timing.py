"""How long inference takes when one variable is observed and the others are hidden."""

import time
from typing import Any, Final

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from dspn.engine import one_thread_each
from dspn.sequences import Sequences
from experiments.baselines import FittedBaseline

_FIRST: Final = 8
_GROWTH: Final = 4
_REPEATS: Final = 5


def first_variable_alone(data: Sequences) -> Sequences:
    """The sequences with all variables but the first hidden."""
    values = np.full_like(data.values, np.nan)
    values[:, 0] = data.values[:, 0]
    return data.with_values(values)


def inference_seconds(
    fitted: FittedBaseline, data: Sequences, budget: float = 20.0
) -> dict[str, Any]:
    """Seconds for the likelihoods of all sequences in one thread, the least of several repeats.

    Where the next larger part would take longer than the budget, that is the time of a part, scaled
    by the number of slices; `share` says which part was measured.
    """

    def seconds(part: Sequences) -> float:
        start = time.perf_counter()
        fitted.log_likelihood(part)
        return time.perf_counter() - start

    order = np.random.default_rng(0).permutation(len(data))
    count = min(_FIRST, len(data))
    with one_thread_each(), threadpool_limits(limits=1):
        seconds(data[order[:1]])  # compiles what is compiled at the first call
        while True:
            part = data if count == len(data) else data[order[:count]]
            least = spent = seconds(part)
            if count == len(data) or _GROWTH * spent > budget:
                break
            count = min(_GROWTH * count, len(data))
        for _ in range(_REPEATS - 1):
            if spent + least > budget:
                break
            took = seconds(part)
            least, spent = min(least, took), spent + took
    share = part.total_slices / data.total_slices
    return {"seconds": least / share, "share": share}
