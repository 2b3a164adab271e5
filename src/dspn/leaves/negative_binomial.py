"""Negative binomial leaves for counts that vary more than Poisson counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import betainc

from dspn._arguments import Floats
from dspn.data.schema import LARGEST_WHOLE
from dspn.leaves.base import FREE_ROUNDING, NO_WEIGHT, Family, Prior, chosen_prior
from dspn.leaves.poisson import Poisson, is_count
from dspn.leaves.special import deviance, digamma_rise, stirling_error, truncated_rate
from dspn.options import number_field

# Below and above these sizes nothing that data could show changes any more.
_SMALLEST_SIZE = 1e-3
_LARGEST_SIZE = 1e6
# Leaves whose counts vary no more than Poisson counts begin with so many times their mean.
_NEARLY_POISSON = 100.0


@final
@dataclass(frozen=True)
class NegativeBinomialPrior(Prior):
    """`pseudo_count` observations of the given mean and size.

    The log density is c (y log size + size log(1 - p) + mean log p), in which p is the leaf's
    mean / (mean + size) and y the prior's size times log(1 + mean / size). Its maximum is the leaf
    of the prior's mean and size.
    """

    mean: float = number_field(1.0, above=0)
    size: float = number_field(1.0, least=_SMALLEST_SIZE, most=_LARGEST_SIZE)
    pseudo_count: float = number_field(0.1, least=0)


@final
@dataclass(frozen=True)
class NegativeBinomial(Family):
    """Counts of the given mean and variance mean + mean^2 / size; columns mean >= 0 and size.

    A Poisson count whose rate is gamma distributed, of which `size` is the shape: the larger it is,
    the nearer to a Poisson leaf. It lies between 0.001 and 1e6. Mean 0 is the leaf of zeros.
    `reference_mean` and `reference_size` are those of the default prior; `scaled_to` takes them
    from data.
    """

    reference_mean: float = number_field(1.0, above=0)
    reference_size: float = number_field(1.0, least=_SMALLEST_SIZE, most=_LARGEST_SIZE)

    name = "negative_binomial"
    is_discrete = True
    num_parameters = 2  # mean and size
    num_statistics = 4  # the weight, x, the expected clusters y (see below), and x^2 to start from
    num_free = 2  # the logarithms

    @property
    def default_prior(self) -> NegativeBinomialPrior:
        """A tenth of an observation at the reference."""
        return NegativeBinomialPrior(self.reference_mean, self.reference_size)

    def scaled_to(self, values: Floats) -> NegativeBinomial:
        """The reference has the mean of the data, and its size by the variance."""
        observed = self._observed(values)
        if observed.size == 0:
            return self
        mean = Poisson().scaled_to(observed).reference_rate
        excess = float(np.var(observed)) - mean
        size = mean * mean / excess if excess > 0 else _LARGEST_SIZE
        return NegativeBinomial(mean, min(max(size, 0.1), 100.0))

    def log_prob(self, parameters: Floats, values: Floats) -> Floats:
        """Log(Gamma(x + r) / (Gamma(r) x!) p^x (1 - p)^r) with p = mean / (mean + r), (V, L).

        By the saddle point, as a binomial probability: all digits whatever the size and the count.
        """
        values = np.asarray(values, dtype=np.float64)
        means, sizes = parameters.T
        possible = is_count(values)
        counts = np.where(possible, values, 0.0)[:, None]
        x = np.maximum(counts, 1.0)
        with np.errstate(all="ignore"):
            total = x + sizes
            share = total / (means + sizes)
            table = stirling_error(total) - stirling_error(sizes) - stirling_error(x)
            table -= deviance(np.broadcast_to(sizes, total.shape), sizes * share)
            table -= deviance(x, means * share)
            table += 0.5 * (np.log(sizes) - np.log(total) - np.log(2.0 * math.pi * x))
            table = np.where(counts > 0, table, -sizes * np.log1p(means / sizes))
        table[:, means == 0] = np.where(counts == 0, 0.0, -np.inf)
        table[~possible] = -np.inf
        table[np.isnan(values)] = 0.0
        return np.ascontiguousarray(table)

    # A count is a Poisson number of clusters of logarithmic sizes. With y clusters in all, the log
    # likelihood is y log(size) + w size log(1 - p) + x log(p) and what does not depend on the leaf.

    def statistics(self, values: Floats) -> Floats:
        """(1, x, 0, x^2), from which `maximise` takes the size by the variance."""
        values = np.asarray(values, dtype=np.float64)
        counted = is_count(values)
        x = np.where(counted, values, 0.0)
        return np.column_stack([counted, x, np.zeros_like(x), np.minimum(x, 1e150) ** 2])

    def expected_statistics(self, parameters: Floats, values: Floats, counts: Floats) -> Floats:
        """(1, x, y, 0) with y = E[clusters | x] = size (digamma(size + x) - digamma(size))."""
        plain = self.statistics(values)
        x, sizes = plain[:, 1], parameters[:, 1:]
        with np.errstate(all="ignore"):
            clusters = np.clip(sizes * digamma_rise(sizes, x), np.minimum(x, 1.0), x)
        found = counts @ plain
        found[:, 2], found[:, 3] = (counts * clusters).sum(axis=1), 0.0
        return found

    def _pseudo(self, prior: NegativeBinomialPrior) -> Floats:
        clusters = prior.size * math.log1p(prior.mean / prior.size)
        return prior.pseudo_count * np.array([1.0, prior.mean, clusters, 0.0])

    def maximise(self, statistics: Floats, prior: Prior | None = None) -> Floats:
        """The mean of the counts, and the size r with y / w = r log(1 + mean / r)."""
        chosen = chosen_prior(prior, self.default_prior)
        weight, total, clusters, squares = (statistics + self._pseudo(chosen)).T
        empty = weight < NO_WEIGHT
        means = np.maximum(total, 0.0) / np.where(empty, 1.0, weight)
        some = total > NO_WEIGHT
        share = np.where(some, clusters / np.where(some, total, 1.0), 1.0)
        share = np.clip(share, 1e-300, 1.0 - 1e-16)
        with np.errstate(all="ignore"):
            sizes = means / np.expm1(-truncated_rate(share))
            pseudo = chosen.mean * (1.0 + chosen.mean + chosen.mean / chosen.size)
            second = (squares + chosen.pseudo_count * pseudo) / weight
            excess = second - means * means - means
            by_variance = np.where(excess > 0, means * means / excess, _NEARLY_POISSON)
            by_variance = np.minimum(by_variance, _NEARLY_POISSON * np.maximum(means, 1.0))
            sizes = np.where(squares > 0, by_variance, sizes)
        # All sizes are the same to a leaf that is always 0.
        sizes = np.where(some, np.clip(sizes, _SMALLEST_SIZE, _LARGEST_SIZE), chosen.size)
        found = np.column_stack([means, sizes])
        return np.where(empty[:, None], [chosen.mean, chosen.size], found)

    def log_prior(self, parameters: Floats, prior: Prior | None = None) -> float:
        """C sum_l (y log size_l + size_l log(1 - p_l) + mean log p_l)."""
        return self._log_prior(parameters, chosen_prior(prior, self.default_prior))

    def _log_prior(self, parameters: Floats, prior: NegativeBinomialPrior) -> float:
        if prior.pseudo_count == 0:
            return 0.0
        _, mean, clusters, _ = self._pseudo(prior) / prior.pseudo_count
        means, sizes = parameters.T
        with np.errstate(divide="ignore"):
            shares = np.log(means) - np.log(means + sizes)
        own = clusters * np.log(sizes) - sizes * np.log1p(means / sizes) + mean * shares
        return float(prior.pseudo_count * np.sum(own))

    def free(self, parameters: Floats) -> Floats:
        """The logarithms of mean and size."""
        with np.errstate(divide="ignore"):
            return np.log(parameters)

    def from_free(self, free: Floats) -> Floats:
        """The exponentials."""
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(free)

    def free_gradient(self, parameters: Floats, statistics: Floats) -> Floats:
        """Sum of (x - mean) size / (size + mean), and the derivative in log size; 0 at mean 0."""
        weight, total, clusters, _ = statistics.T
        means, sizes = parameters.T
        slope = (total - weight * means) * (sizes / (sizes + means))
        own = clusters - weight * sizes * np.log1p(means / sizes) - slope
        return np.where(means[:, None] > 0, np.column_stack([slope, own]), 0.0)

    def free_log_prior(
        self, parameters: Floats, prior: Prior | None = None
    ) -> tuple[float, Floats]:
        """`log_prior` of the leaves of positive mean, and its gradient."""
        chosen = chosen_prior(prior, self.default_prior)
        statistics = np.tile(self._pseudo(chosen), (len(parameters), 1))
        value = self._log_prior(parameters[parameters[:, 0] > 0], chosen)
        return value, self.free_gradient(parameters, statistics)

    def free_bounds(self, prior: Prior | None = None) -> tuple[Floats, Floats]:
        """Means as the rates of `Poisson`; sizes from 0.001 to 1e6."""
        lower, upper = Poisson(self.reference_mean).free_bounds()
        sizes = math.log(_SMALLEST_SIZE) + FREE_ROUNDING, math.log(_LARGEST_SIZE) - FREE_ROUNDING
        return np.append(lower, sizes[0]), np.append(upper, sizes[1])

    def sample(self, parameters: Floats, rng: np.random.Generator) -> Floats:
        """A Poisson count at a rate drawn from the gamma distribution."""
        means, sizes = parameters.T
        rates = means / sizes * rng.standard_gamma(sizes)
        return np.asarray(rng.poisson(np.minimum(rates, LARGEST_WHOLE)).astype(np.float64))

    def mode(self, parameters: Floats) -> Floats:
        """The integer part of mean (1 - 1 / size), at least 0."""
        means, sizes = parameters.T
        return np.asarray(np.floor(np.maximum(means * (1.0 - 1.0 / sizes), 0.0)))

    def mean(self, parameters: Floats) -> Floats:
        """E[x | leaf], the first column."""
        return np.array(parameters[:, 0])

    def variance(self, parameters: Floats) -> Floats:
        """Mean + mean^2 / size."""
        means, sizes = parameters.T
        return np.asarray(means + means * (means / sizes))

    def cdf(self, parameters: Floats, values: Floats) -> Floats:
        """Regularised incomplete beta function I(size, floor(x) + 1) at 1 - p, (V, L)."""
        return self._tail(parameters, values, upper=False)

    def sf(self, parameters: Floats, values: Floats) -> Floats:
        """Regularised incomplete beta function I(floor(x) + 1, size) at p, (V, L)."""
        return self._tail(parameters, values, upper=True)

    def _tail(self, parameters: Floats, values: Floats, *, upper: bool) -> Floats:
        means, sizes = parameters.T
        floors = np.floor(np.asarray(values, dtype=np.float64))
        ends = np.where(floors >= 0, np.minimum(floors, 1e300), 0.0)[:, None] + 1.0
        total = means + sizes
        with np.errstate(all="ignore"):
            table = np.asarray(
                betainc(ends, sizes, means / total)
                if upper
                else betainc(sizes, ends, sizes / total)
            )
        table[floors < 0] = float(upper)
        table[floors == np.inf] = float(not upper)
        table[np.isnan(floors)] = np.nan
        return table

    def quantile_bounds(self, parameters: Floats, levels: Floats) -> tuple[Floats, Floats]:
        """Cantelli's bound: P(X >= mean + t) <= 1 / (1 + t^2 / variance)."""
        levels = levels[:, None]
        rest = np.maximum(1.0 - levels, np.finfo(np.float64).eps / 4)
        reach = np.sqrt(self.variance(parameters) * (1.0 / rest - 1.0))
        upper = np.ceil(parameters[:, 0] + reach) + 1.0
        end = np.where(parameters[:, 0] > 0, np.inf, 0.0)
        upper = np.where(levels == 0, 0.0, np.where(levels == 1, end, upper))
        return np.where(levels == 1, end - 1.0, -1.0), upper

    def random(
        self, num_leaves: int, rng: np.random.Generator, values: Floats | None = None
    ) -> Floats:
        """Means as the rates of `Poisson`, the size of the reference."""
        observed = self._observed(values)
        means = Poisson(self.reference_mean).random(num_leaves, rng, values)
        size = self.scaled_to(observed).reference_size
        return np.column_stack([means, np.full(num_leaves, size)])

    def violations(self, parameters: Floats) -> list[str]:
        """Every row whose mean or size is not allowed."""
        found = self._shape_violations(parameters)
        if found:
            return found
        means, sizes = parameters.T
        for row in range(len(parameters)):
            if not 0 <= means[row] < LARGEST_WHOLE:
                rule = "mean must be finite, not negative and below 2**53"
                found.append(f"row {row}: {rule}, but is {means[row]}")
            if not _SMALLEST_SIZE <= sizes[row] <= _LARGEST_SIZE:
                rule = f"size must lie between {_SMALLEST_SIZE:g} and {_LARGEST_SIZE:g}"
                found.append(f"row {row}: {rule}, but is {sizes[row]}")
        return found
