"""Gamma leaves for positive numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv

from dspn._arguments import Floats
from dspn.errors import StructureError
from dspn.leaves.base import FREE_LIMIT, FREE_ROUNDING, NO_WEIGHT, Family, Prior, chosen_prior
from dspn.leaves.log_normal import logarithms
from dspn.leaves.special import deviance, digamma_gap, shape_of_gap, stirling_error
from dspn.options import number_field

_LARGEST_MEAN = 1e140
_LARGEST_SHAPE = 1e12
_EPS = float(np.finfo(np.float64).eps)


@final
@dataclass(frozen=True)
class GammaPrior(Prior):
    """`pseudo_count` observations of a gamma distribution, and the largest shape of a leaf.

    The log density is c E[log p(x | leaf)] under the distribution of `mean` and `shape`, and -inf
    where a leaf's shape is above `max_shape`.
    """

    mean: float = number_field(1.0, above=0)
    shape: float = number_field(1.0, least=1)
    pseudo_count: float = number_field(0.01, least=0)
    max_shape: float = number_field(1e4, above=1, most=_LARGEST_SHAPE)


@final
@dataclass(frozen=True)
class Gamma(Family):
    """p(x) ~ x^(shape - 1) exp(-shape x / mean) for x > 0; columns mean > 0 and shape >= 1.

    Shape 1 is the exponential distribution; with a smaller one the density would be infinite at 0,
    and a mixture of exponentials does as well. The standard deviation is mean / sqrt(shape). Zero
    and negative numbers are impossible. `reference_mean` and `reference_shape` are those of the
    default prior, whose largest shape is 10,000 times the reference: a leaf as narrow as a
    hundredth of the data. `scaled_to` takes them from data.
    """

    reference_mean: float = number_field(1.0, above=0)
    reference_shape: float = number_field(1.0, least=1, most=1e-4 * _LARGEST_SHAPE)

    name = "gamma"
    num_parameters = 2  # mean and shape
    num_statistics = 3  # the weight, z and log z with z = x / reference_mean
    num_free = 2  # the logarithms of mean / reference_mean and of variance / mean^2

    def _check(self) -> None:
        if not 1.0 / _LARGEST_MEAN <= self.reference_mean <= _LARGEST_MEAN:
            raise StructureError(
                f"`reference_mean` of Gamma must lie between {1.0 / _LARGEST_MEAN:g} and "
                f"{_LARGEST_MEAN:g}, but is {self.reference_mean!r}. Change the unit."
            )

    @property
    def default_prior(self) -> GammaPrior:
        """A hundredth of an observation at the reference."""
        shape = self.reference_shape
        return GammaPrior(mean=self.reference_mean, shape=shape, max_shape=1e4 * shape)

    def scaled_to(self, values: Floats) -> Gamma:
        """The reference has the mean of the data, and its shape by the variance."""
        observed = self._observed(values)
        observed = observed[observed > 0]
        if observed.size == 0:
            return self
        mean = min(max(float(np.mean(observed / observed.size) * observed.size), 1e-140), 1e140)
        spread = float(np.std(observed / mean))
        shape = 1.0 if spread <= 8.0 * _EPS else min(max(spread**-2.0, 1.0), 1e-4 * _LARGEST_SHAPE)
        return Gamma(mean, shape)

    def coordinates(self, values: Floats) -> Floats:
        """Log x."""
        return logarithms(values)[:, None]

    def _ratios(self, values: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """X / reference_mean, 1 where x is no value of the family, and where it is one."""
        values = np.asarray(values, dtype=np.float64)
        with np.errstate(all="ignore"):
            ratios = values / self.reference_mean
        possible = (values > 0) & (ratios > 0) & (ratios <= _LARGEST_MEAN)
        return np.where(possible, ratios, 1.0), possible

    def log_prob(self, parameters: Floats, values: Floats) -> Floats:
        """-shape (x / mean - 1 - log(x / mean)) - log x + log(shape / 2 pi) / 2 - ..., (V, L)."""
        values = np.asarray(values, dtype=np.float64)
        means, shapes = parameters.T
        possible = (values > 0) & (values < np.inf)
        points = np.where(possible, values, 1.0)
        with np.errstate(all="ignore"):
            # shape times the deviance of 1 from x / mean
            table = -(shapes / means) * deviance(means, points[:, None])
            table -= np.log(points)[:, None]
            table += 0.5 * np.log(shapes / (2.0 * math.pi)) - stirling_error(shapes)
        table[~possible] = -np.inf
        table[np.isnan(values)] = 0.0
        return np.asarray(table)

    def statistics(self, values: Floats) -> Floats:
        """(1, z, log z) with z = x / reference_mean."""
        ratios, possible = self._ratios(values)
        return np.column_stack([possible, np.where(possible, ratios, 0.0), np.log(ratios)])

    def _pseudo(self, prior: GammaPrior) -> Floats:
        """The statistics of the pseudo-observations."""
        ratio = prior.mean / self.reference_mean
        log = math.log(ratio) - float(digamma_gap(np.array(prior.shape)))
        return prior.pseudo_count * np.array([1.0, ratio, log])

    def maximise(self, statistics: Floats, prior: Prior | None = None) -> Floats:
        """The mean, and the shape with log(shape) - digamma(shape) = log(mean) - mean of logs."""
        chosen = chosen_prior(prior, self.default_prior)
        empty = statistics[:, 0] < NO_WEIGHT
        own = np.where(empty[:, None], [1.0, 1.0, -1.0], statistics + self._pseudo(chosen))
        average = own[:, 1] / own[:, 0]
        gap = np.log(average) - own[:, 2] / own[:, 0]
        # A gap below that of the largest shape, or lost to rounding, has the largest one.
        shapes = shape_of_gap(np.maximum(gap, 0.25 / chosen.max_shape))
        shapes = np.clip(shapes, 1.0, chosen.max_shape)
        means = np.where(empty, chosen.mean, average * self.reference_mean)
        floor = min(chosen.shape, chosen.max_shape)
        return np.column_stack([means, np.where(empty, floor, shapes)])

    def log_prior(self, parameters: Floats, prior: Prior | None = None) -> float:
        """C sum_l E[log p(x | l)] under the prior's distribution, without a constant."""
        chosen = chosen_prior(prior, self.default_prior)
        means, shapes = parameters.T
        if np.any(shapes > chosen.max_shape):
            return -math.inf
        if chosen.pseudo_count == 0:
            return 0.0
        gap = float(digamma_gap(np.array(chosen.shape)))
        with np.errstate(over="ignore"):
            own = deviance(means, np.array(chosen.mean)) / means + gap
            total = 0.5 * np.log(shapes) - stirling_error(shapes) - shapes * own
        return float(chosen.pseudo_count * np.sum(total))

    def free(self, parameters: Floats) -> Floats:
        """(log(mean / reference_mean), -log shape)."""
        return np.log(parameters) * [1.0, -1.0] - [math.log(self.reference_mean), 0.0]

    def from_free(self, free: Floats) -> Floats:
        """The exponentials."""
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(free * [1.0, -1.0] + [math.log(self.reference_mean), 0.0])

    def free_gradient(self, parameters: Floats, statistics: Floats) -> Floats:
        """Sum over z of shape (z / m - 1) in log m, and of the derivative in -log shape."""
        weight, first, logs = statistics.T
        means, shapes = parameters[:, 0] / self.reference_mean, parameters[:, 1]
        with np.errstate(over="ignore", under="ignore"):
            excess = first / means - weight
            slope = weight * (digamma_gap(shapes) - np.log(means)) + logs - excess
            return np.column_stack([shapes * excess, -shapes * slope])

    def free_log_prior(
        self, parameters: Floats, prior: Prior | None = None
    ) -> tuple[float, Floats]:
        """`log_prior` and its gradient: that of the pseudo-observations."""
        chosen = chosen_prior(prior, self.default_prior)
        statistics = np.tile(self._pseudo(chosen), (len(parameters), 1))
        return self.log_prior(parameters, chosen), self.free_gradient(parameters, statistics)

    def free_bounds(self, prior: Prior | None = None) -> tuple[Floats, Floats]:
        """Means within a factor exp(50) of the reference; shapes from 1 to the prior's largest."""
        largest = chosen_prior(prior, self.default_prior).max_shape
        lower = min(FREE_ROUNDING - math.log(largest), -0.5 * math.log(largest))
        return np.array([-FREE_LIMIT, lower]), np.array([FREE_LIMIT, 0.0])

    def sample(self, parameters: Floats, rng: np.random.Generator) -> Floats:
        """Mean / shape times a standard gamma number; one that no float holds is the smallest."""
        means, shapes = parameters.T
        draws = means / shapes * rng.standard_gamma(shapes)
        return np.asarray(np.maximum(draws, np.finfo(np.float64).smallest_subnormal))

    def mode(self, parameters: Floats) -> Floats:
        """Mean (1 - 1 / shape); for shape 1, where that is 0, the mean times 2**-52."""
        means, shapes = parameters.T
        return np.asarray(means * np.maximum(1.0 - 1.0 / shapes, _EPS))

    def mean(self, parameters: Floats) -> Floats:
        """E[x | leaf], the first column."""
        return np.array(parameters[:, 0])

    def variance(self, parameters: Floats) -> Floats:
        """mean^2 / shape."""
        return np.asarray(parameters[:, 0] ** 2 / parameters[:, 1])

    def cdf(self, parameters: Floats, values: Floats) -> Floats:
        """Regularised lower incomplete gamma function P(shape, shape x / mean), (V, L)."""
        return np.asarray(gammainc(parameters[:, 1], self._points(parameters, values)))

    def sf(self, parameters: Floats, values: Floats) -> Floats:
        """Regularised upper incomplete gamma function Q(shape, shape x / mean), (V, L)."""
        return np.asarray(gammaincc(parameters[:, 1], self._points(parameters, values)))

    @staticmethod
    def _points(parameters: Floats, values: Floats) -> Floats:
        values = np.asarray(values, dtype=np.float64)
        with np.errstate(over="ignore", under="ignore"):
            rates = parameters[:, 1] / parameters[:, 0]
            return np.multiply.outer(np.where(values < 0, 0.0, values), rates)

    def quantile_bounds(self, parameters: Floats, levels: Floats) -> tuple[Floats, Floats]:
        """The inverses of the incomplete gamma functions, in the nearer tail."""
        means, shapes = parameters.T
        levels = levels[:, None]
        lower = gammaincinv(shapes, np.minimum(levels, 0.5))
        upper = gammainccinv(shapes, np.minimum(1.0 - levels, 0.5))
        quantiles = np.where(levels <= 0.5, lower, upper) * (means / shapes)
        return quantiles, quantiles

    def average(self, one: Floats, other: Floats, share: Floats) -> Floats:
        """Mean and shape with the mean and variance of the mixtures."""
        means = share * one[:, :1] + (1.0 - share) * other[:, :1]
        own = [(rows[:, :1] / means) ** 2 for rows in (one, other)]
        squares = share * own[0] * (1.0 + 1.0 / one[:, 1:])
        squares += (1.0 - share) * own[1] * (1.0 + 1.0 / other[:, 1:])
        return np.column_stack([means, np.maximum(1.0 / np.maximum(squares - 1.0, _EPS), 1.0)])

    def random(
        self, num_leaves: int, rng: np.random.Generator, values: Floats | None = None
    ) -> Floats:
        """Means half-way between the mean and a random observation, the shape of the data."""
        observed = self._observed(values)
        observed = observed[observed > 0]
        reference = self.scaled_to(observed)
        means = np.full(num_leaves, reference.reference_mean)
        if observed.size:
            means = 0.5 * (means + rng.choice(observed, size=num_leaves))
        means *= rng.gamma(16.0, 1.0 / 16.0, size=num_leaves)
        return np.column_stack([means, np.full(num_leaves, reference.reference_shape)])

    def violations(self, parameters: Floats) -> list[str]:
        """Every row whose mean is not positive and finite, or whose shape is not allowed."""
        found = self._shape_violations(parameters)
        if found:
            return found
        means, shapes = parameters.T
        for row in range(len(parameters)):
            if not 0 < means[row] < np.inf:
                found.append(f"row {row}: mean must be positive and finite, but is {means[row]}")
            if not 1 <= shapes[row] <= _LARGEST_SHAPE:
                rule = f"shape must lie between 1 and {_LARGEST_SHAPE:g}"
                found.append(f"row {row}: {rule}, but is {shapes[row]}")
        return found
