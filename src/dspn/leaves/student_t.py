"""Student t leaves for continuous variables with outliers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import gammaln, stdtr, stdtrit

from dspn._arguments import Floats
from dspn.leaves.base import NO_WEIGHT, Family, Prior, chosen_prior
from dspn.leaves.gaussian import LARGEST_SCALE, Gaussian, GaussianPrior
from dspn.options import number_field

# Median absolute deviation of a normal distribution with standard deviation 1.
_NORMAL_DEVIATION = 0.6744897501960817
_LARGE = 1e150


def log_density(distances: Floats, squares: Floats, df: float) -> Floats:
    """Log density at distances from the location, with squared scales; arrays that broadcast."""
    constant = float(gammaln(0.5 * (df + 1.0)) - gammaln(0.5 * df)) - 0.5 * math.log(df * math.pi)
    scales = np.sqrt(df * squares)
    ratios = distances / scales
    # The square of a ratio beyond 1e150 is beyond the largest float, its logarithm is not.
    far = 2.0 * (np.log(distances) - np.log(scales))
    table = np.where(ratios < _LARGE, np.log1p(ratios * ratios), far)
    table *= -0.5 * (df + 1.0)
    table += constant - 0.5 * np.log(squares)
    return table


@final
@dataclass(frozen=True)
class StudentT(Family):
    """x = location_l + scale_l t with t of `df` degrees of freedom; columns location and scale^2.

    A value far from a leaf has little weight in its location and scale, so that a few wrong
    readings do not bend a fit. `df` is the same for all leaves and is not learned: 4 is usual, 3 is
    for very heavy tails, and from 30 on the distribution is nearly normal. `location` and `scale`
    are median and spread of the data, as of `Gaussian`; `scaled_to` takes them from data by
    quantiles, which outliers do not move.
    """

    df: float = number_field(4.0, above=2)  # above 2, where there is a variance
    location: float = number_field(0.0)
    scale: float = number_field(1.0, above=0)

    name = "student_t"
    num_parameters = 2  # location and squared scale
    num_statistics = 4  # the weight, u, u z and u z^2, where u is the precision of a value
    num_free = 2  # as of Gaussian

    def _check(self) -> None:
        Gaussian(self.location, self.scale)

    @property
    def _normal(self) -> Gaussian:
        """The family whose prior, coordinates and bounds location and squared scale have."""
        return Gaussian(self.location, self.scale)

    @property
    def default_prior(self) -> GaussianPrior:
        """That of a Gaussian leaf, for location and squared scale."""
        return self._normal.default_prior

    def scaled_to(self, values: Floats) -> StudentT:
        """Median, and median absolute deviation over that of a normal distribution.

        Where more than half of the values are equal the standard deviation is the scale.
        """
        observed = self._observed(values)
        if observed.size == 0:
            return self
        location = float(np.median(observed))
        scale = float(np.median(np.abs(observed - location))) / _NORMAL_DEVIATION
        if scale <= 8.0 * np.finfo(np.float64).eps * abs(location):
            scale = Gaussian().scaled_to(observed).scale
        return StudentT(self.df, location, scale)

    def coordinates(self, values: Floats) -> Floats:
        """The value, but not farther than ten scales from the median of the data."""
        reference = self.scaled_to(values)
        ends = reference.location + np.array([-10.0, 10.0]) * reference.scale
        return np.clip(np.asarray(values, dtype=np.float64), *ends)[:, None]

    def _distances(self, parameters: Floats, values: Floats) -> Floats:
        with np.errstate(all="ignore"):
            table = np.subtract.outer(np.asarray(values, dtype=np.float64), parameters[:, 0])
            table /= np.sqrt(parameters[:, 1])
            return table

    def log_prob(self, parameters: Floats, values: Floats) -> Floats:
        """-(df + 1) / 2 log(1 + t^2 / df) and the constant, (V, L)."""
        values = np.asarray(values, dtype=np.float64)
        with np.errstate(all="ignore"):
            distances = np.abs(np.subtract.outer(values, parameters[:, 0]))
            table = log_density(distances, parameters[:, 1], self.df)
        table[np.isnan(values)] = 0.0
        return table

    def _moments(
        self, values: Floats, weights: Floats | float, precisions: Floats | float
    ) -> Floats:
        values = np.asarray(values, dtype=np.float64)
        with np.errstate(all="ignore"):
            standard = (values - self.location) / self.scale
            counted = np.abs(standard) <= LARGEST_SCALE
            standard = np.where(counted, standard, 0.0)
            shares = np.where(counted, precisions, 0.0) * weights
            parts = [counted * weights, shares, shares * standard, shares * standard * standard]
            return np.stack(parts, axis=-1)

    def statistics(self, values: Floats) -> Floats:
        """(1, u, u z, u z^2) with the u that gives a leaf the variance of its values."""
        return self._moments(values, 1.0, 1.0 - 2.0 / self.df)

    def expected_statistics(self, parameters: Floats, values: Floats, counts: Floats) -> Floats:
        """Those with E[u | x, leaf] = (df + 1) / (df + t^2)."""
        with np.errstate(all="ignore"):
            distances = self._distances(parameters, values).T
            precisions = (self.df + 1.0) / (self.df + distances * distances)
        return np.asarray(self._moments(values, counts, precisions).sum(axis=1))

    def maximise(self, statistics: Floats, prior: Prior | None = None) -> Floats:
        """Means weighted by precision, with the pseudo-observations; the scale is floored."""
        chosen = chosen_prior(prior, self.default_prior)
        mean = (chosen.mean - self.location) / self.scale
        variance = chosen.variance / self.scale / self.scale
        pseudo = chosen.pseudo_count * np.array([1.0, 1.0, mean, variance + mean * mean])
        empty = statistics[:, 0] < NO_WEIGHT
        weight, shares, first, second = np.where(empty, 1.0, (statistics + pseudo).T)
        # All values of a leaf may be so far away that none has a precision above 0.
        average = np.where(shares > 0, first / np.where(shares > 0, shares, 1.0), mean)
        spread = np.maximum(second - average * (2.0 * first - average * shares), 0.0) / weight
        locations = np.where(empty, chosen.mean, self.location + self.scale * average)
        squares = np.where(empty, chosen.variance, spread * self.scale * self.scale)
        return np.column_stack([locations, np.maximum(squares, chosen.min_variance)])

    def log_prior(self, parameters: Floats, prior: Prior | None = None) -> float:
        """That of `Gaussian`."""
        return self._normal.log_prior(parameters, prior)

    def free(self, parameters: Floats) -> Floats:
        """Those of `Gaussian`."""
        return self._normal.free(parameters)

    def from_free(self, free: Floats) -> Floats:
        """Those of `Gaussian`."""
        return self._normal.from_free(free)

    def free_gradient(self, parameters: Floats, statistics: Floats) -> Floats:
        """Sum over z of u (z - m) / e^v in m, of (u (z - m)^2 / e^v - 1) / 2 in v."""
        weight, shares, first, second = statistics.T
        means, logs = self.free(parameters).T
        with np.errstate(over="ignore", under="ignore"):
            squares = np.exp(logs)
            spread = second - means * (2.0 * first - means * shares)
            slope = (first - means * shares) / squares
            return np.column_stack([slope, 0.5 * (spread / squares - weight)])

    def free_log_prior(
        self, parameters: Floats, prior: Prior | None = None
    ) -> tuple[float, Floats]:
        """That of `Gaussian`."""
        return self._normal.free_log_prior(parameters, prior)

    def free_bounds(self, prior: Prior | None = None) -> tuple[Floats, Floats]:
        """Those of `Gaussian`."""
        return self._normal.free_bounds(prior)

    def sample(self, parameters: Floats, rng: np.random.Generator) -> Floats:
        """Location plus scale times a number of the standard distribution."""
        draws = rng.standard_t(self.df, size=len(parameters))
        return np.asarray(parameters[:, 0] + np.sqrt(parameters[:, 1]) * draws)

    def mean(self, parameters: Floats) -> Floats:
        """E[x | leaf], the location."""
        return np.array(parameters[:, 0])

    mode = mean

    def variance(self, parameters: Floats) -> Floats:
        """scale^2 df / (df - 2)."""
        return np.asarray(parameters[:, 1] * (self.df / (self.df - 2.0)))

    def cdf(self, parameters: Floats, values: Floats) -> Floats:
        """P(T <= t), (V, L)."""
        return np.asarray(stdtr(self.df, self._distances(parameters, values)))

    def sf(self, parameters: Floats, values: Floats) -> Floats:
        """P(T <= -t), (V, L)."""
        return np.asarray(stdtr(self.df, -self._distances(parameters, values)))

    def quantile_bounds(self, parameters: Floats, levels: Floats) -> tuple[Floats, Floats]:
        """Location plus scale times the quantile of the standard distribution."""
        # The quantile in the lower tail, which has more digits.
        with np.errstate(all="ignore"):
            standard = stdtrit(self.df, np.minimum(levels, 1.0 - levels))
        standard = np.where(levels > 0.5, -standard, standard)
        ends = np.where(levels == 0, -np.inf, np.where(levels == 1, np.inf, standard))
        quantiles = parameters[:, 0] + np.sqrt(parameters[:, 1]) * ends[:, None]
        return quantiles, quantiles

    def average(self, one: Floats, other: Floats, share: Floats) -> Floats:
        """Location and squared scale with the mean and variance of the mixtures."""
        rows = super().average(one, other, share)
        factor = (self.df - 2.0) / self.df
        rows[:, 1:] += factor * share * (1.0 - share) * (one[:, :1] - other[:, :1]) ** 2
        return rows

    def random(
        self, num_leaves: int, rng: np.random.Generator, values: Floats | None = None
    ) -> Floats:
        """Locations at random observations moved by a tenth of a scale, scales that of the data."""
        observed = self._observed(values)
        return self.scaled_to(observed)._normal.drawn_near(observed, num_leaves, rng)

    def violations(self, parameters: Floats) -> list[str]:
        """Every row whose location is not finite or whose squared scale is not positive."""
        return [
            text.replace("mean", "location").replace("variance", "squared scale")
            for text in self._normal.violations(parameters)
        ]
