"""Training of a net: passes over the data, and which of the nets on the way is kept."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor

from dspn._arguments import Floats
from dspn.learning.lstm.net import State, StepNet, detached
from dspn.learning.lstm.schedule import RATE_SHARE, Schedule, Update
from dspn.learning.lstm.session import require_device, torch_seed, torch_threads
from dspn.learning.lstm.steps import Steps, batches
from dspn.learning.run import Clock

# Without gradients a batch and its windows may be larger: sequences, and steps of each.
_SCORED_SEQUENCES: Final = 128
_SCORED_STEPS: Final = 200


@final
@dataclass(frozen=True, eq=False)
class Trained:
    """The best net, its validation score in nats per sequence, and the passes that were made.

    The score is minus infinity where time was up before there was one, or it was never a number.
    `was_cut` says whether time was up.
    """

    net: StepNet
    score: float
    num_epochs: int
    was_cut: bool


def train_net(
    net: StepNet,
    train: Steps,
    validation: Steps,
    schedule: Schedule,
    rng: np.random.Generator,
    clock: Clock,
) -> Trained:
    """Passes over the training steps until the schedule or the clock ends them."""
    best, best_score, stale, reductions = None, -np.inf, 0, 0
    optimiser = _optimiser(net, schedule, reductions)
    for epoch in range(schedule.max_epochs):
        if not _train_pass(net, optimiser, train, schedule, rng, clock):
            return _kept(net, best, best_score, epoch, was_cut=True)
        scores = step_sums(net, validation, clock)
        if scores is None:
            return _kept(net, best, best_score, epoch + 1, was_cut=True)
        score, stale = float(scores.mean()), stale + 1
        if score > best_score:
            best, best_score, stale = copy.deepcopy(net.state_dict()), score, 0
        if stale >= schedule.patience:
            if reductions == schedule.reductions:
                break
            reductions, stale = reductions + 1, 0
            net = _kept(net, best, best_score, epoch, was_cut=False).net
            optimiser = _optimiser(net, schedule, reductions)
    return _kept(net, best, best_score, epoch + 1, was_cut=False)


def train_nets(
    makers: Sequence[Callable[[], StepNet]],
    train: Steps,
    validation: Steps,
    schedule: Schedule,
    rng: Callable[[int], np.random.Generator],
    clock: Clock,
    *,
    num_threads: int,
    device: str,
) -> list[Trained]:
    """A trained net of each maker, in their order; those that are left share the time that is left.

    There is one at least, and fewer than makers where time is up. `rng` gives the randomness of
    each net by its number.
    """
    require_device(device)
    trained: list[Trained] = []
    with torch_threads(num_threads):
        for number, make in enumerate(makers):
            if trained and clock.is_due():
                break
            own = rng(number)
            with torch_seed(int(own.integers(2**31))):
                part = _share(clock, len(makers) - number)
                net = make().to(device)
                trained.append(train_net(net, train, validation, schedule, own, part))
    return trained


def _share(clock: Clock, num_left: int) -> Clock:
    """A clock for the next of several that are left."""
    if clock.limit is None:
        return Clock()
    return Clock(max((clock.limit - clock.seconds) / num_left, 1e-9))


def _kept(net: StepNet, best: Any, score: float, num_epochs: int, *, was_cut: bool) -> Trained:
    if best is not None:
        net.load_state_dict(best)
    return Trained(net, score, num_epochs, was_cut)


def _optimiser(net: StepNet, schedule: Schedule, reductions: int) -> torch.optim.Optimizer:
    rate = schedule.learning_rate * RATE_SHARE**reductions
    kind = torch.optim.AdamW if schedule.update is Update.ADAM else torch.optim.SGD
    return kind(net.parameters(), lr=rate, weight_decay=schedule.weight_decay)


def _train_pass(
    net: StepNet,
    optimiser: torch.optim.Optimizer,
    data: Steps,
    schedule: Schedule,
    rng: np.random.Generator,
    clock: Clock,
) -> bool:
    """One update for each window of each batch; False where time was up before the last."""
    net.train()
    for picked in batches(data.lengths, schedule.batch_size, rng):
        values, counted = padded(net, data, picked)
        state: State = None
        for start in range(0, values.shape[1], schedule.truncation):
            window = slice(start, start + schedule.truncation)
            log_prob, state = net(values[:, window], detached(state))
            share = counted[:, window]
            # The size of the loss is part of a plain gradient's rate, and backpropagation through
            # time sums over steps. Adam takes it away, but clipping wants one for any window.
            unit = picked.size if schedule.update is Update.GRADIENT else share.sum()
            _descend(net, optimiser, -(log_prob * share).sum() / unit, schedule.clip_norm)
            if clock.is_due():
                return False
    return True


def _descend(
    net: StepNet, optimiser: torch.optim.Optimizer, loss: Tensor, clip_norm: float | None
) -> None:
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    if clip_norm is not None:
        torch.nn.utils.clip_grad_norm_(net.parameters(), clip_norm)
    optimiser.step()


def padded(net: StepNet, data: Steps, picked: Any) -> tuple[Tensor, Tensor]:
    """Steps, where the net is, and one for each step of a sequence, zero behind its end."""
    device = next(net.parameters()).device
    lengths = torch.from_numpy(data.lengths[picked])
    counted = (torch.arange(int(lengths.max())) < lengths[:, None]).float()
    return torch.from_numpy(data.padded(picked)).to(device), counted.to(device)


def step_sums(net: StepNet, data: Steps, clock: Clock | None = None) -> Floats | None:
    """Log P(all steps) of each sequence; None where time is up before the last is known."""
    net.eval()
    found = np.empty(data.lengths.size)
    with torch.no_grad():
        for picked in batches(data.lengths, _SCORED_SEQUENCES, None):
            values, counted = padded(net, data, picked)
            total = torch.zeros(picked.size, dtype=torch.float64, device=values.device)
            state: State = None
            for start in range(0, values.shape[1], _SCORED_STEPS):
                window = slice(start, start + _SCORED_STEPS)
                log_prob, state = net(values[:, window], state)
                total += (log_prob * counted[:, window]).sum(dim=1)
                if clock is not None and clock.is_due():
                    return None
            found[picked] = total.cpu().numpy()
    return found
