"""Poisson leaves for counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, pdtr, pdtrc, xlogy

from dspn._arguments import Floats
from dspn.data.schema import LARGEST_WHOLE
from dspn.leaves.base import FREE_LIMIT, FREE_ROUNDING, NO_WEIGHT, Family, Prior, chosen_prior
from dspn.leaves.special import deviance
from dspn.options import number_field

# Above this count x log(rate) and log(x!) cancel too many digits to be subtracted.
_LARGE_COUNT = 1000.0


@final
@dataclass(frozen=True)
class PoissonPrior(Prior):
    """`pseudo_count` observations whose mean is `rate`: Gamma(1 + count rate, count)."""

    rate: float = number_field(1.0, least=0)
    pseudo_count: float = number_field(0.1, least=0)


@final
@dataclass(frozen=True)
class Poisson(Family):
    """p(x) = rate^x exp(-rate) / x! for x = 0, 1, ..., with the one column rate >= 0.

    Rate 0 is the leaf that is always 0, and rates are below 2**53, as counts are. A value that is
    negative or no integer is impossible.
    `reference_rate` is the rate of the default prior; `scaled_to` takes it from data.
    """

    reference_rate: float = number_field(1.0, above=0)

    name = "poisson"
    is_discrete = True
    num_parameters = 1  # the rate
    num_statistics = 2  # the weight and x
    num_free = 1  # the log rate

    @property
    def default_prior(self) -> PoissonPrior:
        """A tenth of an observation at the reference rate."""
        return PoissonPrior(rate=self.reference_rate)

    def scaled_to(self, values: Floats) -> Poisson:
        """The reference rate is the mean of the data, half a count in all if none was seen."""
        observed = self._observed(values)
        if observed.size == 0:
            return self
        return Poisson(reference_rate=max(float(np.mean(observed)), 0.5 / observed.size))

    def log_prob(self, parameters: Floats, values: Floats) -> Floats:
        """Log(rate^x exp(-rate) / x!), (V, L), to twelve digits whatever the count."""
        values = np.asarray(values, dtype=np.float64)
        rates = parameters[:, 0]
        possible = is_count(values)
        counts = np.where(possible, values, 0.0)
        with np.errstate(all="ignore"):
            table = np.multiply.outer(counts, np.log(rates))
            table -= rates
            table -= gammaln(counts + 1.0)[:, None]
            table[:, rates == 0] = np.where(counts == 0, 0.0, -np.inf)[:, None]
            large = np.flatnonzero(counts > _LARGE_COUNT)
            if large.size:
                table[large] = _log_prob_of_large_counts(rates, counts[large])
        table[~possible] = -np.inf
        table[np.isnan(values)] = 0.0
        return table

    def statistics(self, values: Floats) -> Floats:
        """(1, x)."""
        values = np.asarray(values, dtype=np.float64)
        counted = is_count(values)
        return np.column_stack([counted, np.where(counted, values, 0.0)])

    def maximise(self, statistics: Floats, prior: Prior | None = None) -> Floats:
        """Mean of the observations and pseudo-observations; the prior's rate without weight."""
        chosen = chosen_prior(prior, self.default_prior)
        weight = statistics[:, 0] + chosen.pseudo_count
        total = np.maximum(statistics[:, 1], 0.0) + chosen.pseudo_count * chosen.rate
        empty = weight < NO_WEIGHT
        rates = np.where(empty, chosen.rate, total / np.where(empty, 1.0, weight))
        return rates[:, None]

    def log_prior(self, parameters: Floats, prior: Prior | None = None) -> float:
        """Sum over leaves of c (rate_0 log rate_l - rate_l)."""
        chosen = chosen_prior(prior, self.default_prior)
        rates = parameters[:, 0]
        if chosen.pseudo_count == 0:
            return 0.0
        return float(chosen.pseudo_count * np.sum(xlogy(chosen.rate, rates) - rates))

    def free(self, parameters: Floats) -> Floats:
        """The log rate."""
        with np.errstate(divide="ignore"):
            return np.log(parameters)

    def from_free(self, free: Floats) -> Floats:
        """The exponential."""
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(free)

    def free_gradient(self, parameters: Floats, statistics: Floats) -> Floats:
        """Sum over x of x - rate; 0 at rate 0."""
        gradient = statistics[:, 1:] - parameters * statistics[:, :1]
        return np.where(parameters > 0, gradient, 0.0)

    def free_log_prior(
        self, parameters: Floats, prior: Prior | None = None
    ) -> tuple[float, Floats]:
        """Sum over leaves of positive rate of c (rate_0 log rate_l - rate_l), and its gradient."""
        chosen = chosen_prior(prior, self.default_prior)
        statistics = np.tile(
            chosen.pseudo_count * np.array([1.0, chosen.rate]), (len(parameters), 1)
        )
        value = self.log_prior(parameters[parameters[:, 0] > 0], chosen)
        return value, self.free_gradient(parameters, statistics)

    def free_bounds(self, prior: Prior | None = None) -> tuple[Floats, Floats]:
        """Rates from exp(-50) of the reference, or of 1 if that is less, to 2**53."""
        lower = min(math.log(self.reference_rate), 0.0) - FREE_LIMIT
        upper = math.log(LARGEST_WHOLE) - FREE_ROUNDING
        return np.array([lower]), np.array([upper])

    def sample(self, parameters: Floats, rng: np.random.Generator) -> Floats:
        """One Poisson count for each rate."""
        return rng.poisson(parameters[:, 0]).astype(np.float64)

    def mode(self, parameters: Floats) -> Floats:
        """The integer part of the rate; an integer rate is the larger of its two modes."""
        return np.floor(parameters[:, 0])

    def mean(self, parameters: Floats) -> Floats:
        """E[x | leaf] and Var[x | leaf], the rate."""
        return np.array(parameters[:, 0])

    variance = mean

    def cdf(self, parameters: Floats, values: Floats) -> Floats:
        """Regularised upper incomplete gamma function Q(floor(x) + 1, rate), (V, L)."""
        return self._tail(parameters, values, pdtr, 0.0)

    def sf(self, parameters: Floats, values: Floats) -> Floats:
        """Regularised lower incomplete gamma function P(floor(x) + 1, rate), (V, L)."""
        return self._tail(parameters, values, pdtrc, 1.0)

    def _tail(self, parameters: Floats, values: Floats, tail: np.ufunc, below: float) -> Floats:
        floors = np.floor(np.asarray(values, dtype=np.float64))
        # SciPy's functions overflow for the largest floats.
        bounded = np.where(floors >= 0, np.minimum(floors, 1e300), 0.0)
        table = np.asarray(tail(bounded[:, None], parameters[:, 0]))
        table[floors < 0] = below
        table[np.isnan(floors)] = np.nan
        return table

    def quantile_bounds(self, parameters: Floats, levels: Floats) -> tuple[Floats, Floats]:
        """Bernstein's bounds of the tails; 0 and, for a positive rate, infinity are the ends.

        P(X >= r + t) <= exp(-t^2 / (2 r + 2 t / 3)), P(X <= r - t) <= exp(-t^2 / 2 r).
        """
        rates, levels = parameters[:, 0], levels[:, None]
        above = -np.log(np.maximum(1.0 - levels, np.finfo(np.float64).eps / 4))
        below = -np.log(np.maximum(levels, NO_WEIGHT))
        reach = above / 3 + np.sqrt(above * above / 9 + 2 * above * rates)
        upper = np.ceil(rates + reach) + 1
        lower = np.maximum(np.floor(rates - np.sqrt(2 * below * rates)) - 1, -1)
        end = np.where(rates > 0, np.inf, 0.0)
        upper = np.where(levels == 0, 0.0, np.where(levels == 1, end, upper))
        return np.where(levels == 0, -1.0, np.where(levels == 1, end - 1, lower)), upper

    def largest_log_likelihood(self, statistics: Floats) -> Floats:
        """The sum of counts times the log of the mean."""
        total = np.maximum(statistics[..., 1], 0.0)
        rate = total / np.where(statistics[..., 0] > 0, statistics[..., 0], 1.0)
        return np.asarray(xlogy(total, rate))

    def random(
        self, num_leaves: int, rng: np.random.Generator, values: Floats | None = None
    ) -> Floats:
        """Rates half-way between the mean and a random observation, times Gamma(4) / 4.

        Without data the reference rate stands for both.
        """
        observed = self._observed(values)
        rates = np.full(num_leaves, self.scaled_to(observed).reference_rate)
        if observed.size:
            rates = 0.5 * (rates + np.maximum(rng.choice(observed, size=num_leaves), 0.0))
        rates *= rng.gamma(4.0, 0.25, size=num_leaves)
        return rates[:, None]

    def violations(self, parameters: Floats) -> list[str]:
        """Every row whose rate is negative, not finite, or beyond what a count can be."""
        found = self._shape_violations(parameters)
        if found:
            return found
        rates = parameters[:, 0]
        wrong = ~((rates >= 0) & (rates < LARGEST_WHOLE))
        return [
            f"row {row}: rate must be finite, not negative and below 2**53, but is {rates[row]}"
            for row in np.flatnonzero(wrong)
        ]


def is_count(values: Floats) -> NDArray[np.bool_]:
    """Whether each value is a finite integer >= 0."""
    return np.asarray(np.isfinite(values) & (values >= 0) & (values == np.floor(values)))


def _log_prob_of_large_counts(rates: Floats, counts: Floats) -> Floats:
    """Log p(x; x) - D(x, rate) with D = x log(x / rate) - x + rate (Loader's saddle point)."""
    counts = counts[:, None]
    table = -deviance(counts, rates)
    # Stirling's series; the next term is below 1e-18 for counts above 1000.
    stirling = (1.0 / 12.0 - 1.0 / (360.0 * counts * counts)) / counts
    table -= 0.5 * (math.log(2.0 * math.pi) + np.log(counts)) + stirling
    return table
