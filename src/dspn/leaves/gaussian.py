"""Gaussian leaves for continuous variables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import ndtr, ndtri

from dspn._arguments import Floats
from dspn.errors import StructureError
from dspn.leaves.base import FREE_ROUNDING, NO_WEIGHT, Family, Prior, chosen_prior
from dspn.options import number_field

_LOG_TWO_PI = math.log(2.0 * math.pi)

# Weak enough to leave a leaf of a hundred slices alone, strong enough to hold an empty one.
_PSEUDO_COUNT = 0.01
# The narrowest leaf has a hundredth of the standard deviation of the data.
_RELATIVE_FLOOR = 1e-4
LARGEST_SCALE = 1e140
_LARGEST_VARIANCE = 1e300


@final
@dataclass(frozen=True)
class GaussianPrior(Prior):
    """`pseudo_count` observations of the given mean and variance, and a floor under the variance.

    The log density is c E[log N(x; mean_l, variance_l)] under N(mean, variance), a
    normal-inverse-gamma prior, and -inf where a leaf's variance is below `min_variance`.
    """

    mean: float = number_field(0.0)
    variance: float = number_field(1.0, above=0)
    pseudo_count: float = number_field(_PSEUDO_COUNT, least=0)
    min_variance: float = number_field(_RELATIVE_FLOOR, above=0)


@final
@dataclass(frozen=True)
class Gaussian(Family):
    """p(x) = N(x; mean, variance), with the columns mean and variance > 0.

    `location` and `scale` are where the data lie. They do not change what parameters mean; the
    statistics are moments of z = (x - location) / scale, so that the difference of moments which
    is the variance keeps its digits for any unit of the data, mean 1e6 and standard deviation 1
    included. The loss that remains is about 1e-16 (mean_l - location)^2 / variance_l, and the
    default prior's floor of 1e-4 scale^2 keeps it near 1e-10 for a leaf ten scales away.
    `scaled_to` takes both from data.
    """

    location: float = number_field(0.0)
    scale: float = number_field(1.0, above=0)

    name = "gaussian"
    num_parameters = 2  # mean and variance
    num_statistics = 3  # the weight, z and z^2
    num_free = 2  # the standardised mean and the log of the standardised variance

    def _check(self) -> None:
        if not 1.0 / LARGEST_SCALE <= self.scale <= LARGEST_SCALE:
            raise StructureError(
                f"`scale` of Gaussian must lie between {1.0 / LARGEST_SCALE:g} and "
                f"{LARGEST_SCALE:g}, so that variances fit into a float, but is {self.scale!r}. "
                "Change the unit of the variable."
            )

    @property
    def default_prior(self) -> GaussianPrior:
        """A hundredth of an observation at location and scale, variances above 1e-4 scale^2."""
        variance = self.scale * self.scale
        return GaussianPrior(
            mean=self.location, variance=variance, min_variance=_RELATIVE_FLOOR * variance
        )

    def scaled_to(self, values: Floats) -> Gaussian:
        """Location and scale are mean and standard deviation of the data (scale 1 if constant)."""
        observed = self._observed(values)
        if observed.size == 0:
            return self
        # Mean of differences to one value: no overflow of the sum, no loss for a far location.
        reference = float(np.median(observed))
        deviations = observed - reference
        location = reference + float(np.mean(deviations))
        scale = float(np.std(deviations))
        constant = scale <= 8.0 * np.finfo(np.float64).eps * abs(location)
        return Gaussian(location=location, scale=1.0 if constant else scale)

    def log_prob(self, parameters: Floats, values: Floats) -> Floats:
        """-(x - mean)^2 / (2 variance) - log(2 pi variance) / 2, (V, L)."""
        values = np.asarray(values, dtype=np.float64)
        means, variances = parameters[:, 0], parameters[:, 1]
        with np.errstate(all="ignore"):
            table = np.subtract.outer(values, means)
            table *= math.sqrt(0.5) / np.sqrt(variances)
            np.multiply(table, table, out=table)
            np.subtract(-0.5 * (_LOG_TWO_PI + np.log(variances)), table, out=table)
        table[np.isnan(values)] = 0.0
        return table

    def statistics(self, values: Floats) -> Floats:
        """(1, z, z^2) with z = (x - location) / scale."""
        values = np.asarray(values, dtype=np.float64)
        with np.errstate(over="ignore", under="ignore"):
            standard = (values - self.location) / self.scale
            # NaN and infinity fail the test, and so do values whose square no float holds.
            counted = np.abs(standard) <= LARGEST_SCALE
            standard = np.where(counted, standard, 0.0)
            return np.column_stack([counted, standard, standard * standard])

    def maximise(self, statistics: Floats, prior: Prior | None = None) -> Floats:
        """Mean and variance of the observations and pseudo-observations, the variance floored.

        The penalised likelihood rises in the variance up to its unconstrained maximum and falls
        beyond, so the floor itself is the maximum where it lies higher. A row without weight
        takes the mean and variance of the prior.
        """
        chosen = chosen_prior(prior, self.default_prior)
        count = chosen.pseudo_count
        weight = statistics[:, 0]
        empty = weight < NO_WEIGHT
        divisor = np.where(empty, 1.0, weight)
        # Everything in units of z; `spread` is sum_n w_n (z_n - average)^2.
        average = np.where(empty, 0.0, statistics[:, 1] / divisor)
        spread = np.maximum(statistics[:, 2] - average * statistics[:, 1], 0.0)
        reference = (chosen.mean - self.location) / self.scale
        reference_variance = chosen.variance / self.scale / self.scale
        share = count / (divisor + count)
        between = divisor * share * (average - reference) ** 2
        means = average + share * (reference - average)
        variances = (spread + between + count * reference_variance) / (divisor + count)
        means = np.where(empty, chosen.mean, self.location + self.scale * means)
        variances = np.where(empty, chosen.variance, variances * self.scale * self.scale)
        return np.column_stack([means, np.maximum(variances, chosen.min_variance)])

    def log_prior(self, parameters: Floats, prior: Prior | None = None) -> float:
        """-c/2 sum_l log(2 pi v_l) + (v_0 + (m_l - m_0)^2) / v_l; -inf below the floor."""
        chosen = chosen_prior(prior, self.default_prior)
        means, variances = parameters[:, 0], parameters[:, 1]
        if np.any(variances < chosen.min_variance):
            return -math.inf
        if chosen.pseudo_count == 0:
            return 0.0
        with np.errstate(over="ignore"):
            moments = (chosen.variance + (means - chosen.mean) ** 2) / variances
            total = np.sum(_LOG_TWO_PI + np.log(variances) + moments)
        return float(-0.5 * chosen.pseudo_count * total)

    def free(self, parameters: Floats) -> Floats:
        """(m, u) with m = (mean - location) / scale and u = log(variance / scale^2)."""
        with np.errstate(over="ignore", under="ignore"):
            means = (parameters[:, 0] - self.location) / self.scale
        logs = np.log(parameters[:, 1]) - 2.0 * math.log(self.scale)
        return np.column_stack([means, logs])

    def from_free(self, free: Floats) -> Floats:
        """Mean location + scale m and variance exp(u) scale^2."""
        with np.errstate(over="ignore", under="ignore"):
            means = self.location + self.scale * free[:, 0]
            return np.column_stack([means, np.exp(free[:, 1] + 2.0 * math.log(self.scale))])

    def free_gradient(self, parameters: Floats, statistics: Floats) -> Floats:
        """Sum over z of (z - m) / e^u in m, of ((z - m)^2 / e^u - 1) / 2 in u."""
        weight, first, second = statistics.T
        with np.errstate(over="ignore", under="ignore"):
            means = (parameters[:, 0] - self.location) / self.scale
            variances = parameters[:, 1] / self.scale / self.scale
            spread = second - means * (2.0 * first - means * weight)
            slope = (first - means * weight) / variances
            return np.column_stack([slope, 0.5 * (spread / variances - weight)])

    def free_log_prior(
        self, parameters: Floats, prior: Prior | None = None
    ) -> tuple[float, Floats]:
        """`log_prior`, and its gradient: that of c observations of the prior's moments."""
        chosen = chosen_prior(prior, self.default_prior)
        first = (chosen.mean - self.location) / self.scale
        second = chosen.variance / self.scale / self.scale + first * first
        moments = np.array([1.0, first, second]) if chosen.pseudo_count else np.zeros(3)
        statistics = np.tile(chosen.pseudo_count * moments, (len(parameters), 1))
        return self.log_prior(parameters, chosen), self.free_gradient(parameters, statistics)

    def free_bounds(self, prior: Prior | None = None) -> tuple[Floats, Floats]:
        """Any mean; variances from the prior's floor to 1e300."""
        floor = chosen_prior(prior, self.default_prior).min_variance
        shift = 2.0 * math.log(self.scale)
        lower = np.array([-np.inf, math.log(floor) - shift + FREE_ROUNDING])
        return lower, np.array([np.inf, math.log(_LARGEST_VARIANCE) - shift])

    def sample(self, parameters: Floats, rng: np.random.Generator) -> Floats:
        """Mean plus standard deviation times a standard normal number."""
        draws = rng.standard_normal(len(parameters))
        return np.asarray(parameters[:, 0] + np.sqrt(parameters[:, 1]) * draws)

    def mean(self, parameters: Floats) -> Floats:
        """E[x | leaf], the first column."""
        return np.array(parameters[:, 0])

    mode = mean

    def variance(self, parameters: Floats) -> Floats:
        """Var[x | leaf], the second column."""
        return np.array(parameters[:, 1])

    def cdf(self, parameters: Floats, values: Floats) -> Floats:
        """Phi((x - mean) / standard deviation), (V, L)."""
        return self._tail(parameters, values, 1.0)

    def sf(self, parameters: Floats, values: Floats) -> Floats:
        """Phi((mean - x) / standard deviation), (V, L)."""
        return self._tail(parameters, values, -1.0)

    def _tail(self, parameters: Floats, values: Floats, sign: float) -> Floats:
        with np.errstate(all="ignore"):
            table = np.subtract.outer(np.asarray(values, dtype=np.float64), parameters[:, 0])
            table /= sign * np.sqrt(parameters[:, 1])
            return np.asarray(ndtr(table, out=table))

    def quantile_bounds(self, parameters: Floats, levels: Floats) -> tuple[Floats, Floats]:
        """The quantiles mean + standard deviation times that of the standard normal."""
        quantiles = parameters[:, 0] + np.sqrt(parameters[:, 1]) * ndtri(levels)[:, None]
        return quantiles, quantiles

    def average(self, one: Floats, other: Floats, share: Floats) -> Floats:
        """Mean and variance of the mixtures."""
        rows = super().average(one, other, share)
        rows[:, 1:] += share * (1.0 - share) * (one[:, :1] - other[:, :1]) ** 2
        return rows

    def largest_log_likelihood(self, statistics: Floats) -> Floats:
        """-n/2 log of the variance, which is floored."""
        weight, first = statistics[..., 0], statistics[..., 1]
        divisor = np.where(weight > 0, weight, 1.0)
        floor = self.default_prior.min_variance / self.scale**2
        spread = (statistics[..., 2] - first * first / divisor) / divisor
        return np.asarray(-0.5 * weight * np.log(np.maximum(spread, floor)))

    def random(
        self, num_leaves: int, rng: np.random.Generator, values: Floats | None = None
    ) -> Floats:
        """Means at random observations moved by a tenth of a scale, variances that of the data.

        Without data the means are draws from N(location, scale^2).
        """
        observed = self._observed(values)
        return self.scaled_to(observed).drawn_near(observed, num_leaves, rng)

    def drawn_near(self, observed: Floats, num_leaves: int, rng: np.random.Generator) -> Floats:
        """Rows as `random` draws them, where location and scale are those of the observations."""
        noise = self.scale * rng.standard_normal(num_leaves)
        means = self.location + noise
        if observed.size:
            means = rng.choice(observed, size=num_leaves) + 0.1 * noise
        return np.column_stack([means, np.full(num_leaves, self.scale * self.scale)])

    def violations(self, parameters: Floats) -> list[str]:
        """Every row whose mean is not finite or whose variance is not positive and finite."""
        found = self._shape_violations(parameters)
        if found:
            return found
        wrong_mean = ~np.isfinite(parameters[:, 0])
        wrong_variance = ~(np.isfinite(parameters[:, 1]) & (parameters[:, 1] > 0))
        for row in np.flatnonzero(wrong_mean | wrong_variance):
            mean, variance = parameters[row].tolist()
            if wrong_mean[row]:
                found.append(f"row {row}: mean must be finite, but is {mean}")
            if wrong_variance[row]:
                found.append(f"row {row}: variance must be finite and positive, but is {variance}")
        return found
