"""Categorical leaves: the sum over the indicators of one variable."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax, xlogy

from dspn._arguments import Floats
from dspn.errors import StructureError
from dspn.leaves.base import FREE_LIMIT, NO_WEIGHT, Family, Prior, chosen_prior
from dspn.options import number_field, whole_field

_SUM_TOLERANCE = 1e-8


@final
@dataclass(frozen=True)
class CategoricalPrior(Prior):
    """Dirichlet(1 + c_j) on the probabilities: c_j pseudo-observations of category j.

    These are `pseudo_count` of each category, and `counts[j]` more where counts are given, such as
    a few that are spread like the values of the training set.
    """

    pseudo_count: float = number_field(0.1, least=0)
    counts: tuple[float, ...] = ()

    def _check(self) -> None:
        counts = tuple(float(own) for own in self.counts)
        if not all(0 <= own < math.inf for own in counts):
            raise StructureError(
                "`counts` of CategoricalPrior must be finite and not negative, but are "
                f"{counts}; leave them out for equal counts."
            )
        object.__setattr__(self, "counts", counts)

    def of_each(self, num_categories: int) -> Floats:
        """The pseudo-observations of each category, (num_categories,)."""
        if self.counts and len(self.counts) != num_categories:
            raise StructureError(
                f"`counts` of CategoricalPrior must have a number for each of the {num_categories} "
                f"categories, but has {len(self.counts)}."
            )
        return self.pseudo_count + np.asarray(self.counts or (0.0,) * num_categories)


@final
@dataclass(frozen=True)
class Categorical(Family):
    """p(x = j) = probability_j for the category codes j = 0 .. num_categories - 1.

    Probabilities may be zero. An indicator is the row with a single one. A value that is no
    category code is impossible.
    """

    num_categories: int = whole_field()

    name = "categorical"
    is_discrete = True

    @property
    def num_parameters(self) -> int:
        """One probability for each category."""
        return self.num_categories

    @property
    def num_statistics(self) -> int:
        """The weight and one indicator for each category."""
        return 1 + self.num_categories

    @property
    def default_prior(self) -> CategoricalPrior:
        """A tenth of an observation of each category."""
        return CategoricalPrior()

    def _pseudo_counts(self, prior: Prior | None) -> Floats:
        return chosen_prior(prior, self.default_prior).of_each(self.num_categories)

    def scaled_to(self, values: Floats) -> Categorical:
        """The family itself: category codes have no scale."""
        return self

    def log_prob(self, parameters: Floats, values: Floats) -> Floats:
        """Log of the probability of the value's category, (V, L)."""
        num_leaves = len(parameters)
        table = np.empty((self.num_categories + 2, num_leaves))
        with np.errstate(divide="ignore", invalid="ignore"):
            np.log(np.transpose(parameters), out=table[: self.num_categories])
        table[self.num_categories] = 0.0
        table[self.num_categories + 1] = -np.inf
        return np.take(table, self._codes(values), axis=0)

    def statistics(self, values: Floats) -> Floats:
        """(1, [x = 0], ..., [x = m - 1])."""
        codes = self._codes(values)
        rows = np.flatnonzero(codes < self.num_categories)
        statistics = np.zeros((len(codes), self.num_statistics))
        statistics[rows, 0] = 1.0
        statistics[rows, 1 + codes[rows]] = 1.0
        return statistics

    def maximise(self, statistics: Floats, prior: Prior | None = None) -> Floats:
        """(n_j + c) / sum_i (n_i + c); uniform where there is neither weight nor pseudo-count."""
        counts = np.maximum(statistics[:, 1:], 0.0) + self._pseudo_counts(prior)
        counts[counts.sum(axis=1) < NO_WEIGHT] = 1.0
        # The second division brings the sum to 1 where the first lost digits to a tiny total.
        counts /= counts.sum(axis=1, keepdims=True)
        counts /= counts.sum(axis=1, keepdims=True)
        return counts

    def log_prior(self, parameters: Floats, prior: Prior | None = None) -> float:
        """Sum over leaves and categories of c log probability_lj."""
        return float(np.sum(xlogy(self._pseudo_counts(prior), parameters)))

    @property
    def num_free(self) -> int:
        """One logit for each category."""
        return self.num_categories

    def free(self, parameters: Floats) -> Floats:
        """Logits: the log probabilities."""
        with np.errstate(divide="ignore"):
            return np.log(parameters)

    def from_free(self, free: Floats) -> Floats:
        """The softmax of each row."""
        with np.errstate(under="ignore"):
            return np.asarray(softmax(free, axis=1)) if len(free) else free

    def free_gradient(self, parameters: Floats, statistics: Floats) -> Floats:
        """n_j - probability_j sum_i n_i, over the possible categories."""
        counts = np.where(parameters > 0, statistics[:, 1:], 0.0)
        return np.asarray(counts - parameters * counts.sum(axis=1, keepdims=True))

    def free_log_prior(
        self, parameters: Floats, prior: Prior | None = None
    ) -> tuple[float, Floats]:
        """Sum over leaves and possible categories of c log probability_lj, and its gradient."""
        own = self._pseudo_counts(prior)
        value = float(np.sum(xlogy(np.where(parameters > 0, own, 0.0), parameters)))
        counts = np.tile(np.append(0.0, own), (len(parameters), 1))
        return value, self.free_gradient(parameters, counts)

    def free_bounds(self, prior: Prior | None = None) -> tuple[Floats, Floats]:
        """Logits between -50 and 50."""
        return np.full(self.num_free, -FREE_LIMIT), np.full(self.num_free, FREE_LIMIT)

    def sample(self, parameters: Floats, rng: np.random.Generator) -> Floats:
        """The first category whose cumulative probability is above a uniform number."""
        cumulative = np.cumsum(parameters, axis=1)
        total = cumulative[:, -1]
        # Rounding must not lift a draw to the total, past the last possible category.
        draw = np.minimum(rng.random(len(parameters)) * total, np.nextafter(total, 0.0))
        return np.asarray(np.argmax(cumulative > draw[:, None], axis=1), dtype=np.float64)

    def mode(self, parameters: Floats) -> Floats:
        """The most probable category code, the first one among equals."""
        return np.asarray(np.argmax(parameters, axis=1), dtype=np.float64)

    def mean(self, parameters: Floats) -> Floats:
        """E[code], of use where the order of the categories means something."""
        return np.asarray(parameters @ np.arange(self.num_categories, dtype=np.float64))

    def variance(self, parameters: Floats) -> Floats:
        """Var[code], of use where the order of the categories means something."""
        codes = np.arange(self.num_categories, dtype=np.float64)
        deviations = codes - self.mean(parameters)[:, None]
        return np.asarray(np.einsum("lj,lj->l", parameters, deviations * deviations))

    def cdf(self, parameters: Floats, values: Floats) -> Floats:
        """Sum of the probabilities of the categories up to the value, (V, L)."""
        below = np.minimum(np.cumsum(parameters, axis=1), 1.0)
        below[:, -1:] = 1.0
        return _at_floors(np.insert(below, 0, 0.0, axis=1), values)

    def sf(self, parameters: Floats, values: Floats) -> Floats:
        """Sum of the probabilities of the categories above the value, (V, L)."""
        above = np.minimum(np.cumsum(parameters[:, ::-1], axis=1)[:, ::-1], 1.0)
        above[:, :1] = 1.0
        return _at_floors(np.insert(above, self.num_categories, 0.0, axis=1), values)

    def quantile_bounds(self, parameters: Floats, levels: Floats) -> tuple[Floats, Floats]:
        """All categories."""
        shape = (len(levels), len(parameters))
        return np.full(shape, -1.0), np.full(shape, self.num_categories - 1.0)

    def random(
        self, num_leaves: int, rng: np.random.Generator, values: Floats | None = None
    ) -> Floats:
        """Probabilities proportional to frequency times Exp(1): Dirichlet(1) without data."""
        codes = self._codes(self._observed(values))
        counts = np.bincount(codes, minlength=self.num_categories)[: self.num_categories]
        weights = (counts + 1.0) * rng.standard_exponential((num_leaves, self.num_categories))
        weights += NO_WEIGHT
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def violations(self, parameters: Floats) -> list[str]:
        """Every row with a negative or non-finite probability, or a sum other than one."""
        found = self._shape_violations(parameters)
        if found:
            return found
        with np.errstate(invalid="ignore", over="ignore"):
            improper = ~np.all(np.isfinite(parameters) & (parameters >= 0), axis=1)
            totals = np.sum(parameters, axis=1)
            unnormalised = ~improper & (np.abs(totals - 1.0) > _SUM_TOLERANCE)
        for row in np.flatnonzero(improper | unnormalised):
            if improper[row]:
                found.append(
                    f"row {row}: probabilities must be finite and not negative, "
                    f"but are {parameters[row].tolist()}"
                )
            else:
                found.append(
                    f"row {row}: probabilities must sum to 1, but sum to {totals[row]:.9g}"
                )
        return found

    def _codes(self, values: Floats) -> NDArray[np.int64]:
        """Category codes as integers; m stands for missing, m + 1 for an impossible value."""
        values = np.asarray(values, dtype=np.float64)
        codes = np.full(values.shape, self.num_categories + 1, dtype=np.int64)
        valid = (values >= 0) & (values < self.num_categories) & (values == np.floor(values))
        np.copyto(codes, values, casting="unsafe", where=valid)
        codes[np.isnan(values)] = self.num_categories
        return codes


def _at_floors(table: Floats, values: Floats) -> Floats:
    """Columns of a table (L, m + 1) at 1 + floor(value), limited to the table; NaN if missing."""
    values = np.asarray(values, dtype=np.float64)
    missing = np.isnan(values)
    floors = np.clip(np.floor(np.where(missing, 0.0, values)), -1, table.shape[1] - 2)
    found = np.take(table.T, floors.astype(np.int64) + 1, axis=0)
    found[missing] = np.nan
    return found
