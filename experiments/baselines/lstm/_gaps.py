"""Likelihood of sequences with gaps: what is missing is drawn from the net, step by step."""

import hashlib
from itertools import pairwise
from typing import Final

import numpy as np
import torch
from torch import Tensor

from dspn._arguments import Floats
from dspn.learning.lstm.net import State, StepNet
from dspn.learning.lstm.steps import Singles, Steps, batches
from dspn.learning.lstm.training import padded

# Draws of one sequence that share a generator: a change of it changes what is drawn.
_BLOCK: Final = 128
# Draws of all sequences that go through a net together: they bound memory, and change nothing.
_ROWS: Final = 2048


def drawn_sums(net: StepNet, data: Steps, period: int, *, num_draws: int, seed: int) -> Floats:
    """Log of the mean, over draws of what is missing, of P(each observed step | all before).

    Args:
        period: How many steps in a row are a slice.
    """
    net.eval()
    total: Floats = np.full(data.lengths.size, -np.inf)
    keys = [_key(data.values[start:end]) for start, end in pairwise(data.offsets)]
    with torch.no_grad():
        for first in range(0, num_draws, _BLOCK):
            size = min(_BLOCK, num_draws - first)
            for picked in batches(data.lengths, max(1, _ROWS // size), None):
                rngs = [np.random.default_rng([seed, keys[index], first]) for index in picked]
                weights = _log_weights(net, *padded(net, data, picked), period, size, rngs)
                block = torch.logsumexp(weights, dim=1).cpu().numpy()
                total[picked] = np.logaddexp(total[picked], block)
    total -= np.log(num_draws)
    return total


def _key(values: Singles) -> int:
    """What tells a sequence from others; the bits of a missing entry do not count."""
    plain = np.where(np.isnan(values), np.nan, values + 0.0)
    return int.from_bytes(hashlib.sha256(plain.astype("<f4").tobytes()).digest())


def _log_weights(
    net: StepNet,
    values: Tensor,
    counted: Tensor,
    period: int,
    size: int,
    rngs: list[np.random.Generator],
) -> Tensor:
    """Log P(observed steps) of each draw, (sequences, draws)."""
    total = torch.zeros(len(values) * size, dtype=torch.float64, device=values.device)
    state: State = None
    for start in range(0, values.shape[1], period):
        part = values[:, start : start + period]
        shape = (size, *part.shape[1:])
        uniforms = torch.from_numpy(np.concatenate([rng.random(shape) for rng in rngs]))
        log_prob, state = net.drawn(
            part.repeat_interleave(size, dim=0), uniforms.to(values.device), state
        )
        total += log_prob * counted[:, start].repeat_interleave(size)
    return total.unflatten(0, (len(values), size))
