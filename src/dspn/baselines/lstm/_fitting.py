"""The best of several nets, and the distribution that it stands for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn.baselines.base import Ending, FittedBaseline, Task
from dspn.baselines.lstm._encoding import Encoding, require_complete
from dspn.baselines.lstm._net import StepNet
from dspn.baselines.lstm._session import require_device, torch_seed, torch_threads
from dspn.baselines.lstm._training import Trained, step_sums, train_net
from dspn.baselines.lstm.schedule import Schedule
from dspn.errors import NumericalError
from dspn.learning.clock import Clock
from dspn.sequences import Schema, Sequences
from dspn.sequences.reading import sequences_of


@final
@dataclass(frozen=True, eq=False)
class FittedLstm(FittedBaseline):
    """P(sequence) as the product of the conditionals of a trained net, over its steps.

    `iterations` are passes over the training sequences, of all nets that were tried.
    """

    net: StepNet
    encoding: Encoding
    schema: Schema
    num_threads: int

    def log_likelihood(self, data: Sequences) -> Floats:
        """Log P(sequence) of each complete sequence, (N,)."""
        read = sequences_of(data, self.schema, "data")
        require_complete(read, "data")
        with torch_threads(self.num_threads):
            found = step_sums(self.net, self.encoding.steps(read))
        assert found is not None
        return found + self.encoding.log_unit * read.lengths


def fit_best(
    task: Task,
    encoding: Encoding,
    makers: Sequence[Callable[[], StepNet]],
    schedule: Schedule,
    num_threads: int,
    device: str = "cpu",
) -> FittedLstm:
    """The net with the best validation score; those that are left share the time that is left."""
    require_device(device)
    train, validation = encoding.steps(task.train), encoding.steps(task.validation)
    trained: list[Trained] = []
    with torch_threads(num_threads):
        for number, make in enumerate(makers):
            if trained and task.clock.is_due():
                break
            rng = task.rng(number)
            with torch_seed(int(rng.integers(2**31))):
                clock = _share(task.clock, len(makers) - number)
                net = make().to(device)
                trained.append(train_net(net, train, validation, schedule, rng, clock))
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
    )


def _share(clock: Clock, num_left: int) -> Clock:
    """A clock for the next of several that are left."""
    if clock.limit is None:
        return Clock()
    return Clock(max((clock.limit - clock.seconds) / num_left, 1e-9))
