"""Poisson leaves for counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, pdtr, xlogy

from dspn.data.schema import LARGEST_WHOLE
from dspn.leaves._mixtures import poisson_mixture_quantiles
from dspn.leaves.base import (
    FREE_LIMIT,
    FREE_ROUNDING,
    NO_WEIGHT,
    Family,
    FloatArray,
    Prior,
    chosen_prior,
    finite_values,
    keep_number,
    shape_violations,
)

# Above this count x log(rate) and log(x!) cancel too many digits to be subtracted.
_LARGE_COUNT = 1000.0
# Up to this (x - rate) / (x + rate) the series of so many terms has all digits.
_NEAR = 0.1
_SERIES_TERMS = 8


@final
@dataclass(frozen=True)
class PoissonPrior(Prior):
    """`pseudo_count` observations whose mean is `rate`: Gamma(1 + count rate, count)."""

    rate: float = 1.0
    pseudo_count: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a negative rate or count."""
        keep_number(self, "rate", least=0, open_end=False)
        keep_number(self, "pseudo_count", least=0, open_end=False)


@final
@dataclass(frozen=True)
class Poisson(Family):
    """p(x) = rate^x exp(-rate) / x! for x = 0, 1, ..., with the one column rate >= 0.

    Rate 0 is the leaf that is always 0, and rates are below 2**53, as counts are. A value that is
    negative or no integer is impossible.
    `reference_rate` is the rate of the default prior; `scaled_to` takes it from data.
    """

    reference_rate: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a reference rate that is not positive."""
        keep_number(self, "reference_rate", least=0, open_end=True)

    @property
    def name(self) -> str:
        """The word for the family in files and messages."""
        return "poisson"

    @property
    def num_parameters(self) -> int:
        """The rate."""
        return 1

    @property
    def num_statistics(self) -> int:
        """The weight and x."""
        return 2

    @property
    def default_prior(self) -> PoissonPrior:
        """A tenth of an observation at the reference rate."""
        return PoissonPrior(rate=self.reference_rate)

    def scaled_to(self, values: FloatArray) -> Poisson:
        """The reference rate is the mean of the data, half a count in all if none was seen."""
        observed = finite_values(values)
        if observed.size == 0:
            return self
        return Poisson(reference_rate=max(float(np.mean(observed)), 0.5 / observed.size))

    def log_prob(self, parameters: FloatArray, values: FloatArray) -> FloatArray:
        """Log(rate^x exp(-rate) / x!), (V, L), to twelve digits whatever the count."""
        values = np.asarray(values, dtype=np.float64)
        rates = parameters[:, 0]
        possible = _is_count(values)
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

    def statistics(self, values: FloatArray) -> FloatArray:
        """(1, x)."""
        values = np.asarray(values, dtype=np.float64)
        rows = np.flatnonzero(_is_count(values))
        statistics = np.zeros((len(values), 2))
        statistics[rows, 0] = 1.0
        statistics[rows, 1] = values[rows]
        return statistics

    def maximise(self, statistics: FloatArray, prior: Prior | None = None) -> FloatArray:
        """Mean of the observations and pseudo-observations; the prior's rate without weight."""
        chosen = chosen_prior(prior, self.default_prior)
        weight = statistics[:, 0] + chosen.pseudo_count
        total = np.maximum(statistics[:, 1], 0.0) + chosen.pseudo_count * chosen.rate
        empty = weight < NO_WEIGHT
        rates = np.where(empty, chosen.rate, total / np.where(empty, 1.0, weight))
        return rates[:, None]

    def log_prior(self, parameters: FloatArray, prior: Prior | None = None) -> float:
        """Sum over leaves of c (rate_0 log rate_l - rate_l)."""
        chosen = chosen_prior(prior, self.default_prior)
        rates = parameters[:, 0]
        if chosen.pseudo_count == 0:
            return 0.0
        return float(chosen.pseudo_count * np.sum(xlogy(chosen.rate, rates) - rates))

    @property
    def num_free(self) -> int:
        """The log rate."""
        return 1

    def free(self, parameters: FloatArray) -> FloatArray:
        """The log rate."""
        with np.errstate(divide="ignore"):
            return np.log(parameters)

    def from_free(self, free: FloatArray) -> FloatArray:
        """The exponential."""
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(free)

    def free_gradient(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        """Sum over x of x - rate; 0 at rate 0."""
        gradient = statistics[:, 1:] - parameters * statistics[:, :1]
        return np.where(parameters > 0, gradient, 0.0)

    def free_log_prior(
        self, parameters: FloatArray, prior: Prior | None = None
    ) -> tuple[float, FloatArray]:
        """Sum over leaves of positive rate of c (rate_0 log rate_l - rate_l), and its gradient."""
        chosen = chosen_prior(prior, self.default_prior)
        statistics = np.empty((len(parameters), 2))
        statistics[:] = chosen.pseudo_count, chosen.pseudo_count * chosen.rate
        value = self.log_prior(parameters[parameters[:, 0] > 0], chosen)
        return value, self.free_gradient(parameters, statistics)

    def free_bounds(self, prior: Prior | None = None) -> tuple[FloatArray, FloatArray]:
        """Rates from exp(-50) of the reference, or of 1 if that is less, to 2**53."""
        lower = min(math.log(self.reference_rate), 0.0) - FREE_LIMIT
        upper = math.log(LARGEST_WHOLE) - FREE_ROUNDING
        return np.array([lower]), np.array([upper])

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> FloatArray:
        """One Poisson count for each rate."""
        return rng.poisson(parameters[:, 0]).astype(np.float64)

    def mode(self, parameters: FloatArray) -> FloatArray:
        """The integer part of the rate; an integer rate is the larger of its two modes."""
        return np.floor(parameters[:, 0])

    def mean(self, parameters: FloatArray) -> FloatArray:
        """E[x | leaf], the rate."""
        return np.array(parameters[:, 0])

    def variance(self, parameters: FloatArray) -> FloatArray:
        """Var[x | leaf], the rate."""
        return np.array(parameters[:, 0])

    def cdf(self, parameters: FloatArray, values: FloatArray) -> FloatArray:
        """Regularised upper incomplete gamma function Q(floor(x) + 1, rate), (V, L)."""
        floors = np.floor(np.asarray(values, dtype=np.float64))
        rates = parameters[:, 0]
        # pdtr itself overflows for the largest floats.
        bounded = np.where(floors >= 0, np.minimum(floors, 1e300), 0.0)
        table = np.asarray(pdtr(bounded[:, None], rates[None, :]))
        table[floors < 0] = 0.0
        table[np.isnan(floors)] = np.nan
        return table

    def mixture_quantiles(
        self, parameters: FloatArray, weights: FloatArray, levels: FloatArray
    ) -> FloatArray:
        """The smallest count at which the mixture's cdf reaches the level, (Q, R); inf at 1."""
        return poisson_mixture_quantiles(parameters[:, 0], weights, levels)

    def random(
        self, num_leaves: int, rng: np.random.Generator, values: FloatArray | None = None
    ) -> FloatArray:
        """Rates half-way between the mean and a random observation, times Gamma(4) / 4.

        Without data the reference rate stands for both.
        """
        observed = finite_values(values)
        rates = np.full(num_leaves, self.scaled_to(observed).reference_rate)
        if observed.size:
            rates = 0.5 * (rates + np.maximum(rng.choice(observed, size=num_leaves), 0.0))
        rates *= rng.gamma(4.0, 0.25, size=num_leaves)
        return rates[:, None]

    def violations(self, parameters: FloatArray) -> list[str]:
        """Every row whose rate is negative, not finite, or beyond what a count can be."""
        found = shape_violations(parameters, 1)
        if found:
            return found
        rates = parameters[:, 0]
        wrong = ~((rates >= 0) & (rates < LARGEST_WHOLE))
        return [
            f"row {row}: rate must be finite, not negative and below 2**53, but is {rates[row]}"
            for row in np.flatnonzero(wrong)
        ]

    def to_json(self) -> dict[str, str | int | float]:
        """The family's name and reference rate."""
        return {"name": self.name, "reference_rate": float(self.reference_rate)}


def _is_count(values: FloatArray) -> NDArray[np.bool_]:
    """Whether each value is a finite integer >= 0."""
    return np.asarray(np.isfinite(values) & (values >= 0) & (values == np.floor(values)))


def _log_prob_of_large_counts(rates: FloatArray, counts: FloatArray) -> FloatArray:
    """Log p(x; x) - D(x, rate) with D = x log(x / rate) - x + rate (Loader's saddle point).

    D is small where the probability is not. With v = (x - rate) / (x + rate) it is (x - rate) v +
    2 x v^3 (1/3 + v^2/5 + ...), which cancels nothing.
    """
    counts = counts[:, None]
    excess = counts - rates
    ratio = excess / (counts + rates)
    squared = ratio * ratio
    series = np.zeros_like(ratio)
    for term in range(_SERIES_TERMS, 0, -1):
        series = (series + 1.0 / (2 * term + 1)) * squared
    near = ratio * (excess + 2.0 * counts * series)
    far = counts * (np.log(counts) - np.log(rates)) - excess
    table = -np.where(np.abs(ratio) < _NEAR, near, far)
    # Stirling's series; the next term is below 1e-18 for counts above 1000.
    stirling = (1.0 / 12.0 - 1.0 / (360.0 * counts * counts)) / counts
    table -= 0.5 * (math.log(2.0 * math.pi) + np.log(counts)) + stirling
    return table
