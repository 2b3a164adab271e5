"""Log-normal leaves for positive numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import final

import numpy as np

from dspn._arguments import Floats
from dspn.leaves.base import Family, Prior, chosen_prior
from dspn.leaves.gaussian import Gaussian, GaussianPrior
from dspn.options import number_field


@final
@dataclass(frozen=True)
class LogNormalPrior(Prior):
    """`pseudo_count` observations whose logarithms have the given mean and variance.

    `min_variance` is the floor under the variance of logarithms; see `GaussianPrior`.
    """

    mean: float = number_field(0.0)
    variance: float = number_field(1.0, above=0)
    pseudo_count: float = number_field(0.01, least=0)
    min_variance: float = number_field(1e-4, above=0)


@final
@dataclass(frozen=True)
class LogNormal(Family):
    """log x is N(mean, variance), for x > 0, with the columns mean and variance of log x.

    Zero and negative numbers are impossible. `location` and `scale` are mean and standard
    deviation of the logarithms of the data; see `Gaussian`, which all the rest is taken from.
    """

    location: float = number_field(0.0)
    scale: float = number_field(1.0, above=0)

    name = "log_normal"
    num_parameters = 2  # mean and variance of log x
    num_statistics = 3  # the weight, z and z^2 with z = (log x - location) / scale
    num_free = 2  # as of Gaussian

    def _check(self) -> None:
        Gaussian(self.location, self.scale)

    @property
    def _normal(self) -> Gaussian:
        """The family of log x."""
        return Gaussian(self.location, self.scale)

    def _normal_prior(self, prior: Prior | None) -> GaussianPrior:
        """The prior of leaves over log x."""
        return GaussianPrior(**asdict(chosen_prior(prior, self.default_prior)))

    @property
    def default_prior(self) -> LogNormalPrior:
        """That of a Gaussian leaf over log x."""
        return LogNormalPrior(**asdict(self._normal.default_prior))

    def scaled_to(self, values: Floats) -> LogNormal:
        """Location and scale are mean and standard deviation of log x (scale 1 if constant)."""
        normal = self._normal.scaled_to(logarithms(values))
        return LogNormal(normal.location, normal.scale)

    def coordinates(self, values: Floats) -> Floats:
        """Log x."""
        return logarithms(values)[:, None]

    def log_prob(self, parameters: Floats, values: Floats) -> Floats:
        """Log N(log x; mean, variance) - log x, (V, L)."""
        values = np.asarray(values, dtype=np.float64)
        logs = logarithms(values)
        table = self._normal.log_prob(parameters, logs)
        table -= np.nan_to_num(logs)[:, None]
        table[np.isnan(logs) & ~np.isnan(values)] = -np.inf
        return table

    def statistics(self, values: Floats) -> Floats:
        """(1, z, z^2) with z = (log x - location) / scale."""
        return self._normal.statistics(logarithms(values))

    def maximise(self, statistics: Floats, prior: Prior | None = None) -> Floats:
        """Mean and variance of log x; see `Gaussian`."""
        return self._normal.maximise(statistics, self._normal_prior(prior))

    def log_prior(self, parameters: Floats, prior: Prior | None = None) -> float:
        """That of a Gaussian leaf over log x."""
        return self._normal.log_prior(parameters, self._normal_prior(prior))

    def free(self, parameters: Floats) -> Floats:
        """Those of `Gaussian`."""
        return self._normal.free(parameters)

    def from_free(self, free: Floats) -> Floats:
        """Those of `Gaussian`."""
        return self._normal.from_free(free)

    def free_gradient(self, parameters: Floats, statistics: Floats) -> Floats:
        """That of `Gaussian`: the Jacobian does not depend on the parameters."""
        return self._normal.free_gradient(parameters, statistics)

    def free_log_prior(
        self, parameters: Floats, prior: Prior | None = None
    ) -> tuple[float, Floats]:
        """That of a Gaussian leaf over log x."""
        return self._normal.free_log_prior(parameters, self._normal_prior(prior))

    def free_bounds(self, prior: Prior | None = None) -> tuple[Floats, Floats]:
        """Those of a Gaussian leaf over log x."""
        return self._normal.free_bounds(self._normal_prior(prior))

    def sample(self, parameters: Floats, rng: np.random.Generator) -> Floats:
        """The exponential of a normal number."""
        return _exponential(self._normal.sample(parameters, rng))

    def mode(self, parameters: Floats) -> Floats:
        """exp(mean - variance)."""
        return _exponential(parameters[:, 0] - parameters[:, 1])

    def mean(self, parameters: Floats) -> Floats:
        """exp(mean + variance / 2); infinite where no float holds it."""
        return _exponential(parameters[:, 0] + 0.5 * parameters[:, 1])

    def variance(self, parameters: Floats) -> Floats:
        """(exp(variance) - 1) exp(2 mean + variance); infinite where no float holds it."""
        means, variances = parameters.T
        with np.errstate(all="ignore"):
            small = np.minimum(variances, 700.0)
            logs = np.log(np.expm1(small)) + (variances - small)
            return _exponential(logs + 2.0 * means + variances)

    def cdf(self, parameters: Floats, values: Floats) -> Floats:
        """Phi((log x - mean) / standard deviation), (V, L)."""
        return self._normal.cdf(parameters, _ends(values))

    def sf(self, parameters: Floats, values: Floats) -> Floats:
        """Phi((mean - log x) / standard deviation), (V, L)."""
        return self._normal.sf(parameters, _ends(values))

    def quantile_bounds(self, parameters: Floats, levels: Floats) -> tuple[Floats, Floats]:
        """The exponential of the quantiles of log x."""
        quantiles = _exponential(self._normal.quantile_bounds(parameters, levels)[0])
        return quantiles, quantiles

    def average(self, one: Floats, other: Floats, share: Floats) -> Floats:
        """Mean and variance of log x under the mixtures."""
        return self._normal.average(one, other, share)

    def largest_log_likelihood(self, statistics: Floats) -> Floats:
        """That of `Gaussian`, but for the Jacobian, which is linear."""
        return self._normal.largest_log_likelihood(statistics)

    def random(
        self, num_leaves: int, rng: np.random.Generator, values: Floats | None = None
    ) -> Floats:
        """Random Gaussian leaves over log x."""
        logs = None if values is None else logarithms(values)
        return self._normal.random(num_leaves, rng, logs)

    def violations(self, parameters: Floats) -> list[str]:
        """Every row whose mean is not finite or whose variance is not positive and finite."""
        return self._normal.violations(parameters)


def logarithms(values: Floats) -> Floats:
    """Log x; NaN where x is missing or impossible."""
    values = np.asarray(values, dtype=np.float64)
    possible = (values > 0) & (values < np.inf)
    return np.where(possible, np.log(np.where(possible, values, 1.0)), np.nan)


def _ends(values: Floats) -> Floats:
    """Log x, and -inf below the support."""
    values = np.asarray(values, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.log(np.where(values < 0, 0.0, values))


def _exponential(values: Floats) -> Floats:
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(values)
