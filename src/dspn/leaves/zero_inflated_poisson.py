"""Zero-inflated Poisson leaves for counts with many zeros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import xlogy

from dspn._arguments import Floats
from dspn.data.schema import LARGEST_WHOLE
from dspn.leaves.base import NO_WEIGHT, Family, Prior, chosen_prior
from dspn.leaves.poisson import Poisson, is_count
from dspn.leaves.special import truncated_rate
from dspn.options import number_field


@final
@dataclass(frozen=True)
class ZeroInflatedPoissonPrior(Prior):
    """`pseudo_count` observations, a share `zeros` of them 0, with the mean `mean`.

    The log density is c ((1 - zeros) log(1 - share_l) + zeros log P(0 | l) + mean log rate_l -
    (1 - zeros) rate_l).
    """

    zeros: float = number_field(0.5, least=0, below=1)
    mean: float = number_field(1.0, least=0)
    pseudo_count: float = number_field(0.1, least=0)


@final
@dataclass(frozen=True)
class ZeroInflatedPoisson(Family):
    """0 with probability `share`, otherwise a Poisson count; columns share and rate.

    Share 0 is a Poisson leaf, and it is below 1. What can be seen of a leaf are the zeros, the
    other counts and their sum, which are sufficient. `reference_zeros` and `reference_mean` are
    those of the default prior; `scaled_to` takes them from data.
    """

    reference_zeros: float = number_field(0.5, least=0, below=1)
    reference_mean: float = number_field(1.0, above=0)

    name = "zero_inflated_poisson"
    is_discrete = True
    num_parameters = 2  # the share of zeros that are not Poisson's, and the rate
    num_statistics = 3  # the weight, the zeros and x
    num_free = 2  # log(share / (1 - share)) and the log rate

    @property
    def default_prior(self) -> ZeroInflatedPoissonPrior:
        """A tenth of an observation at the reference."""
        return ZeroInflatedPoissonPrior(self.reference_zeros, self.reference_mean)

    def scaled_to(self, values: Floats) -> ZeroInflatedPoisson:
        """Zeros and mean of the data, with half an observation more of either kind."""
        observed = self._observed(values)
        if observed.size == 0:
            return self
        zeros = (float(np.sum(observed == 0)) + 0.5) / (observed.size + 1.0)
        return ZeroInflatedPoisson(zeros, Poisson().scaled_to(observed).reference_rate)

    def log_prob(self, parameters: Floats, values: Floats) -> Floats:
        """Log P(0), or log(1 - share) and that of a Poisson leaf, (V, L)."""
        values = np.asarray(values, dtype=np.float64)
        table = Poisson().log_prob(parameters[:, 1:], values)
        with np.errstate(divide="ignore"):
            table += np.where(np.isnan(values), 0.0, 1.0)[:, None] * np.log1p(-parameters[:, 0])
        table[values == 0] = self._log_zero(parameters)
        return table

    @staticmethod
    def _log_zero(parameters: Floats) -> Floats:
        """Log P(0 | leaf) = log(share + (1 - share) exp(-rate))."""
        shares, rates = parameters.T
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp(np.log(shares), np.log1p(-shares) - rates))

    def statistics(self, values: Floats) -> Floats:
        """(1, whether x is 0, x)."""
        values = np.asarray(values, dtype=np.float64)
        counted = is_count(values)
        return np.column_stack([counted, counted & (values == 0), np.where(counted, values, 0.0)])

    @staticmethod
    def _pseudo(prior: ZeroInflatedPoissonPrior) -> Floats:
        return prior.pseudo_count * np.array([1.0, prior.zeros, prior.mean])

    def maximise(self, statistics: Floats, prior: Prior | None = None) -> Floats:
        """The rate of counts that have lost their zeros, and the zeros that it lacks.

        Where Poisson's zeros are more than there are, the maximum is the Poisson leaf.
        """
        chosen = chosen_prior(prior, self.default_prior)
        weight, zeros, total = np.maximum(statistics + self._pseudo(chosen), 0.0).T
        empty = statistics[:, 0] + chosen.pseudo_count < NO_WEIGHT
        weight = np.where(empty, 1.0, weight)
        weight, zeros, total = np.where(
            empty, [[1.0], [chosen.zeros], [chosen.mean]], [weight, zeros, total]
        )
        others = np.maximum(weight - zeros, 0.0)
        means = total / weight
        some = (others > NO_WEIGHT) & (total > others)
        rates = truncated_rate(np.where(some, total / np.where(some, others, 1.0), 2.0))
        missing = -np.expm1(-rates)
        # P(0) = share + (1 - share) exp(-rate) is to be the share of zeros.
        shares = 1.0 - others / weight / missing
        inflated = some & (shares > 0)
        return np.column_stack([np.where(inflated, shares, 0.0), np.where(inflated, rates, means)])

    def _log_likelihood(self, parameters: Floats, statistics: Floats) -> Floats:
        weight, zeros, total = statistics.T
        shares, rates = parameters.T
        others = weight - zeros
        own = xlogy(total, rates) - others * rates + others * np.log1p(-shares)
        return np.asarray(own + zeros * self._log_zero(parameters))

    def log_prior(self, parameters: Floats, prior: Prior | None = None) -> float:
        """The log-likelihood of the pseudo-observations, without constants."""
        pseudo = self._pseudo(chosen_prior(prior, self.default_prior))
        return float(np.sum(self._log_likelihood(parameters, pseudo[None])))

    def free(self, parameters: Floats) -> Floats:
        """(log(share / (1 - share)), log rate)."""
        shares, rates = parameters.T
        with np.errstate(divide="ignore"):
            return np.column_stack([np.log(shares) - np.log1p(-shares), np.log(rates)])

    def from_free(self, free: Floats) -> Floats:
        """Shares by the logistic function, rates by the exponential one."""
        with np.errstate(over="ignore", under="ignore"):
            return np.column_stack([1.0 / (1.0 + np.exp(-free[:, 0])), np.exp(free[:, 1])])

    def free_gradient(self, parameters: Floats, statistics: Floats) -> Floats:
        """Derivatives of the log-likelihood in both; 0 for a share or a rate that is 0."""
        weight, zeros, total = statistics.T
        shares, rates = parameters.T
        others = weight - zeros
        inflated = shares / np.exp(self._log_zero(parameters))  # P(not Poisson's | x = 0)
        slope = zeros * inflated * (1.0 - shares) * -np.expm1(-rates) - others * shares
        own = total - rates * (others + zeros * (1.0 - inflated))
        gradient = np.column_stack([slope, own])
        return np.where((rates[:, None] > 0) & (parameters > 0), gradient, 0.0)

    def free_log_prior(
        self, parameters: Floats, prior: Prior | None = None
    ) -> tuple[float, Floats]:
        """`log_prior` of the leaves of positive rate, and its gradient."""
        chosen = chosen_prior(prior, self.default_prior)
        statistics = np.tile(self._pseudo(chosen), (len(parameters), 1))
        value = self.log_prior(parameters[parameters[:, 1] > 0], chosen)
        return value, self.free_gradient(parameters, statistics)

    def free_bounds(self, prior: Prior | None = None) -> tuple[Floats, Floats]:
        """Shares whose odds lie between exp(-30) and exp(30); rates as of `Poisson`."""
        lower, upper = Poisson(self.reference_mean).free_bounds()
        return np.append(-30.0, lower), np.append(30.0, upper)

    def sample(self, parameters: Floats, rng: np.random.Generator) -> Floats:
        """A Poisson count, or 0."""
        shares, rates = parameters.T
        counts = rng.poisson(rates)
        return np.where(rng.random(len(parameters)) < shares, 0, counts).astype(np.float64)

    def mode(self, parameters: Floats) -> Floats:
        """The mode of the Poisson count, or 0 if that is likelier."""
        modes = Poisson().mode(parameters[:, 1:])
        at_modes = np.diagonal(self.log_prob(parameters, modes))
        return np.where(at_modes > self._log_zero(parameters), modes, 0.0)

    def mean(self, parameters: Floats) -> Floats:
        """(1 - share) rate."""
        return np.asarray((1.0 - parameters[:, 0]) * parameters[:, 1])

    def variance(self, parameters: Floats) -> Floats:
        """(1 - share) rate (1 + share rate)."""
        shares, rates = parameters.T
        return np.asarray((1.0 - shares) * rates * (1.0 + shares * rates))

    def cdf(self, parameters: Floats, values: Floats) -> Floats:
        """Share + (1 - share) times that of a Poisson leaf, (V, L)."""
        shares, below = parameters[:, 0], np.less(values, 0)[:, None]
        table = Poisson().cdf(parameters[:, 1:], values)
        return np.where(below, 0.0, shares + (1.0 - shares) * table)

    def sf(self, parameters: Floats, values: Floats) -> Floats:
        """(1 - share) times that of a Poisson leaf, (V, L)."""
        shares, below = parameters[:, 0], np.less(values, 0)[:, None]
        return np.where(below, 1.0, (1.0 - shares) * Poisson().sf(parameters[:, 1:], values))

    def quantile_bounds(self, parameters: Floats, levels: Floats) -> tuple[Floats, Floats]:
        """-1, and the upper bound of a Poisson leaf, which has its mass further up."""
        lower, upper = Poisson().quantile_bounds(parameters[:, 1:], levels)
        return np.where(levels[:, None] == 1, lower, -1.0), upper

    def largest_log_likelihood(self, statistics: Floats) -> Floats:
        """That of the best leaf."""
        rows = statistics.reshape(-1, self.num_statistics)
        best = self.maximise(rows, ZeroInflatedPoissonPrior(pseudo_count=0.0))
        return np.reshape(self._log_likelihood(best, rows), statistics.shape[:-1])

    def random(
        self, num_leaves: int, rng: np.random.Generator, values: Floats | None = None
    ) -> Floats:
        """Rates as of `Poisson` for what is not 0, and a share of half of the zeros."""
        observed = self._observed(values)
        reference = self.scaled_to(observed)
        rates = Poisson(self.reference_mean).random(num_leaves, rng, observed[observed > 0])
        return np.column_stack([np.full(num_leaves, 0.5 * reference.reference_zeros), rates])

    def violations(self, parameters: Floats) -> list[str]:
        """Every row whose share is not in [0, 1) or whose rate is no rate of a Poisson leaf."""
        found = self._shape_violations(parameters)
        if found:
            return found
        shares, rates = parameters.T
        for row in range(len(parameters)):
            if not 0 <= shares[row] < 1:
                found.append(f"row {row}: share must lie in [0, 1), but is {shares[row]}")
            if not 0 <= rates[row] < LARGEST_WHOLE:
                rule = "rate must be finite, not negative and below 2**53"
                found.append(f"row {row}: {rule}, but is {rates[row]}")
        return found
