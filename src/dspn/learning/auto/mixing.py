"""Weights of a mixture whose members are already trained, learned on sequences they never saw."""

from typing import Final

import numpy as np
from scipy.special import logsumexp

from dspn._arrays import Floats
from dspn.errors import DataError

_MOST_STEPS: Final = 200
_TOLERANCE: Final = 1e-6


def mixture_weights(log_likelihoods: Floats, *, pseudo_count: float = 0.5) -> Floats:
    """The weights w that maximise sum_i log sum_c w_c exp(l[i, c]) + sum_c a log w_c, (C,).

    `log_likelihoods` is (sequences, members), and a is `pseudo_count` / C. The sum is concave in w,
    and steps of EM lead to its maximum.
    """
    if log_likelihoods.ndim != 2 or not log_likelihoods.shape[1]:
        raise DataError(
            "`log_likelihoods` must be an array of sequences and members, with one member at "
            f"least, but has shape {log_likelihoods.shape}."
        )
    count = log_likelihoods.shape[1]
    weights = np.full(count, 1.0 / count)
    possible = np.isfinite(log_likelihoods).any(axis=1)
    seen = log_likelihoods[possible]
    if count == 1 or not len(seen):
        return weights
    prior = pseudo_count / count
    shares = np.exp(seen - seen.max(axis=1, keepdims=True))
    for _ in range(_MOST_STEPS):
        joint = shares * weights
        posterior = joint / joint.sum(axis=1, keepdims=True)
        new = (posterior.sum(axis=0) + prior) / (len(seen) + pseudo_count)
        change = float(np.abs(new - weights).max())
        weights = new
        if change < _TOLERANCE:
            break
    normalised: Floats = weights / weights.sum()
    return normalised


def mixed(log_likelihoods: Floats, weights: Floats) -> Floats:
    """Log sum_c w_c exp(l[i, c]) of each sequence; -inf where every member says so."""
    with np.errstate(divide="ignore"):
        return np.asarray(logsumexp(log_likelihoods + np.log(weights), axis=1))


def kept_members(weights: Floats, least: float, most: int) -> list[int]:
    """The members worth keeping: the `most` heaviest at the most, none below `least`, never none.

    They are numbered in their own order.
    """
    order = np.argsort(-weights, kind="stable")[:most]
    kept = [int(member) for member in order if weights[member] >= least] or [int(order[0])]
    return sorted(kept)
