"""The best of several nets, and the distribution that it stands for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dspn._arguments import Floats
from dspn.data import Schema, Sequences
from dspn.data.sequences import sequences_of
from dspn.errors import NumericalError
from dspn.learning.lstm.net import StepNet
from dspn.learning.lstm.schedule import Schedule
from dspn.learning.lstm.session import torch_threads
from dspn.learning.lstm.steps import Encoding
from dspn.learning.lstm.training import step_sums, train_nets
from experiments.baselines.base import Ending, FittedBaseline, Task
from experiments.baselines.lstm._gaps import drawn_sums


@final
@dataclass(frozen=True, eq=False)
class FittedLstm(FittedBaseline):
    """P(sequence) as the product of the conditionals of a trained net, over its steps.

    `iterations` are passes over the training sequences, of all nets that were tried; `seed` and
    `num_draws` are those of the draws for sequences with gaps.
    """

    net: StepNet
    encoding: Encoding
    schema: Schema
    num_threads: int
    seed: int
    num_draws: int

    @property
    def details(self) -> dict[str, Any]:
        """Where the net was trained, and the size that was chosen."""
        own = list(self.net.parameters())
        return {"device": own[0].device.type, "parameters": sum(part.numel() for part in own)}

    def log_likelihood(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence, (N,): exact without gaps, else estimated.

        A net has no sum over what is missing, so that importance sampling takes its place: missing
        entries are drawn one after the other from the net's own conditionals, the weight of a draw
        is the product of the conditionals of the observed entries, and the mean weight of
        `num_draws` draws is an unbiased estimate of P(observed entries). Its logarithm, which is
        returned, is too low on average (Jensen's inequality), the more so the fewer the draws and
        the more the weights differ. Slices behind the last observed entry are left out, as they
        sum to one: a sequence that is complete up to there needs no draws.

        The draws are those of `seed` and of the sequence itself: other sequences in `data` and
        their order change an estimate by no more than rounding does, and equal sequences have
        equal estimates. Time is that of `num_draws` passes over the sequence, step by step;
        memory does not grow with `num_draws`.
        """
        read = sequences_of(data, self.schema, "data")
        period = self.encoding.steps_per_slice
        steps = self.encoding.steps(read).until_observed(period)
        gaps = steps.have_gaps
        found = np.empty(len(read))
        with torch_threads(self.num_threads):
            exact = step_sums(self.net, steps.select(~gaps))
            assert exact is not None
            found[~gaps] = exact
            found[gaps] = drawn_sums(
                self.net, steps.select(gaps), period, num_draws=self.num_draws, seed=self.seed
            )
        return found + _log_units_of(read, self.encoding.log_units)


def _log_units_of(data: Sequences, log_units: Floats) -> Floats:
    """What the units of the observed entries add to the log density of each sequence."""
    num_observed = np.zeros((len(data), log_units.size))
    owner = np.repeat(np.arange(len(data)), data.lengths)
    np.add.at(num_observed, owner, ~np.isnan(data.values))
    is_complete = (num_observed == data.lengths[:, np.newaxis]).all(axis=1)
    return np.where(is_complete, data.lengths * log_units.sum(), num_observed @ log_units)


def fit_best(
    task: Task,
    encoding: Encoding,
    makers: Sequence[Callable[[], StepNet]],
    schedule: Schedule,
    *,
    num_threads: int = 1,
    device: str = "cpu",
    num_draws: int = 100,
) -> FittedLstm:
    """The net with the best validation score; those that are left share the time that is left."""
    steps = encoding.steps(task.train), encoding.steps(task.validation)
    trained = train_nets(
        makers, *steps, schedule, task.rng, task.clock, num_threads=num_threads, device=device
    )
    best = max(trained, key=lambda one: one.score)
    was_cut = len(trained) < len(makers) or any(one.was_cut for one in trained)
    if not was_cut and best.score == -np.inf:
        raise NumericalError(
            "no net had a finite likelihood on `validation` after any pass over `train`; give a "
            "smaller `learning_rate`."
        )
    return FittedLstm(
        seconds=task.clock.seconds,
        # A pass that was cut short is one where there is no other, so that seconds have a divisor.
        iterations=max(1, sum(one.num_epochs for one in trained)),
        ending=Ending.TIME_LIMIT if was_cut else Ending.FINISHED,
        net=best.net.requires_grad_(False),
        encoding=encoding,
        schema=task.schema,
        num_threads=num_threads,
        seed=task.seed,
        num_draws=num_draws,
    )
