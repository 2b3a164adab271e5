"""A naive Bayes model of two classes, by EM: are these slices of one kind, or of two?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from scipy.special import expit

from dspn._arrays import Bools, Floats, Ints

_STEPS: Final = 15
# Smoothing: of each share, and of numbers as if as many had been seen at their mean and variance.
_PSEUDO_COUNT: Final = 0.1
# Standardised numbers: how far they count, and the least variance of a class.
_FARTHEST: Final = 5.0
_LEAST_VARIANCE: Final = 1e-2


def category_block(codes: Floats, num_categories: int) -> Floats:
    """An indicator for each category, (rows, categories); zeros where the code is missing."""
    found = np.zeros((codes.size, num_categories))
    seen = np.flatnonzero(~np.isnan(codes))
    found[seen, codes[seen].astype(np.int64)] = 1.0
    return found


def number_block(values: Floats, weights: Floats) -> Floats:
    """(1, z, z^2) of numbers standardised over the rows; zeros where the number is missing."""
    found = np.zeros((values.size, 3))
    seen = np.flatnonzero(~np.isnan(values))
    if seen.size:
        known, own = values[seen], weights[seen]
        # Differences to one of the values: a far location costs no digits.
        known = known - known[0]
        known -= np.average(known, weights=own)
        scale = np.sqrt(np.average(known * known, weights=own))
        z = np.clip(known / scale, -_FARTHEST, _FARTHEST) if scale > 0 else np.zeros(seen.size)
        found[seen] = np.stack([np.ones(seen.size), z, z * z], axis=1)
    return found


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """What is seen of some slices, as statistics that log-likelihoods are linear in.

    First come `num_shares` columns of shares, in blocks that begin at `starts` and whose rows add
    up to 1, or to 0 where nothing is known; then three columns for each number.
    """

    features: Floats
    starts: Ints
    num_shares: int
    weights: Floats

    @classmethod
    def of(cls, shares: Sequence[Floats], numbers: Sequence[Floats], weights: Floats) -> "Rows":
        """Puts blocks of shares and of numbers side by side; those without columns are left out."""
        kept = [block for block in shares if block.shape[1]]
        widths = [block.shape[1] for block in kept]
        features = np.concatenate([*kept, *numbers], axis=1)
        starts = np.cumsum([0, *widths])[:-1]
        return cls(features, starts, sum(widths), weights)

    def coefficients(self, counts: Floats) -> Floats:
        """What to multiply features by for the log-likelihood under the best fit to `counts`."""
        shares = counts[: self.num_shares] + _PSEUDO_COUNT
        if self.starts.size:
            widths = np.diff(np.append(self.starts, self.num_shares))
            shares = shares / np.repeat(np.add.reduceat(shares, self.starts), widths)
        weight, first, second = counts[self.num_shares :].reshape(-1, 3).T
        mean = first / (weight + _PSEUDO_COUNT)
        variance = (second + _PSEUDO_COUNT) / (weight + _PSEUDO_COUNT) - mean * mean
        variance = np.maximum(variance, _LEAST_VARIANCE)
        constant = -0.5 * (mean * mean / variance + np.log(variance))
        numbers = np.stack([constant, mean / variance, -0.5 / variance], axis=1)
        return np.concatenate([np.log(shares), numbers.ravel()])

    def first_guess(self, rng: np.random.Generator) -> Floats:
        """The share of the first class in each row: how much nearer it is to one row than another.

        The two rows are drawn by weight; rows in the middle fall on a side by chance.
        """
        size = len(self.features)
        chances = self.weights / self.weights.sum()
        one, other = rng.choice(size, size=2, replace=False, p=chances)
        difference = self.features[one] - self.features[other]
        difference[self.num_shares + 2 :: 3] = 0.0
        nearer = self.features @ difference
        tilt = 2.0 * (nearer - np.median(nearer)) + 0.1 * rng.standard_normal(size)
        guess: Floats = expit(tilt)
        return guess


@final
@dataclass(frozen=True, eq=False)
class TwoClasses:
    """Which rows are more probably of the second class, and the log-likelihood gained by it."""

    gain: float
    second: Bools


def two_classes(rows: Rows, rng: np.random.Generator) -> TwoClasses:
    """Two classes in which what is seen is independent, after some steps of EM."""
    features, weights = rows.features, rows.weights
    total = weights.sum()
    counts = weights @ features
    single = float(counts @ rows.coefficients(counts))
    share = rows.first_guess(rng)
    for _ in range(_STEPS):
        own = (weights * share) @ features
        part = np.clip((weights @ share) / total, 1e-6, 1.0 - 1e-6)
        first = features @ rows.coefficients(own) + np.log(part)
        second = features @ rows.coefficients(_rest(counts, own, rows.num_shares))
        second += np.log1p(-part)
        both = np.logaddexp(first, second)
        share = np.exp(first - both)
    return TwoClasses(float(weights @ both) - single, second > first)


def _rest(counts: Floats, own: Floats, num_shares: int) -> Floats:
    """Counts of the other class; rounding must not leave less than nothing of a share."""
    rest = counts - own
    np.maximum(rest[:num_shares], 0.0, out=rest[:num_shares])
    np.maximum(rest[num_shares::3], 0.0, out=rest[num_shares::3])
    return rest
