"""What a leaf family is: a univariate distribution over one variable of a slice."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar, Self, TypeVar, final

import numpy as np

from dspn._arguments import Bools, Floats
from dspn.errors import EvidenceError, StructureError
from dspn.options import Checked

_EPS = float(np.finfo(np.float64).eps)

# A sum of weights below the smallest normal number carries no information that can be divided by.
NO_WEIGHT = float(np.finfo(np.float64).tiny)
# A sum of probabilities this close below a level, relatively, has reached it.
_ROUNDING = 64 * _EPS
_MAX_STEPS = 300
Evaluate = Callable[[Floats, Floats], tuple[Floats, Floats]]
_RESIDUAL = 1e-14

# An ascent that sends a probability below exp(-50) gains nothing that data could show.
FREE_LIMIT = 50.0
# Relative room for the rounding of an exponential of a logarithm, at the edge of what is allowed.
FREE_ROUNDING = 1e-12


class Prior(Checked, ABC):
    """Pseudo-observations added to the expected statistics of every leaf of a family.

    A prior is a frozen dataclass. All priors are conjugate and written as observations seen
    beforehand, so that the penalised maximum has a closed form. A `pseudo_count` of zero gives
    maximum likelihood.
    """

    pseudo_count: float  # the weight of the pseudo-observations, in units of one observed slice


PriorT = TypeVar("PriorT", bound=Prior)


class Family(Checked, ABC):
    """A univariate distribution p(x | parameters), for many leaves at once.

    A family is a hashable value, usually a frozen dataclass, and holds no parameters of leaves.
    Parameters are a float64 array with one row for each leaf, (L, P); values are a float64 vector
    (V,) in which NaN is missing. Values of a categorical variable are category codes. No method
    warns, whatever the numbers. `dspn.leaves.contract.check_family` tests a family of your own.

    Attributes:
        name: The word for the family in files and messages, different from that of all others.
        is_discrete: Whether the values are integers.
    """

    name: ClassVar[str]
    is_discrete: ClassVar[bool] = False
    sources: ClassVar[tuple[Any, ...]] = ()  # what leaves are told; see `dspn.leaves.told`

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """P, the width of a row of parameters."""

    @property
    @abstractmethod
    def num_statistics(self) -> int:
        """S, the width of a row of statistics, of which the first is the weight."""

    @property
    @abstractmethod
    def default_prior(self) -> Prior:
        """A weak prior at the scale of the family's reference; see `scaled_to`."""

    @abstractmethod
    def scaled_to(self, values: Floats) -> Family:
        """The same family with the reference of its default prior and statistics taken from data.

        Parameters mean the same before and after. Statistics of differently scaled families must
        not be added.
        """

    @abstractmethod
    def log_prob(self, parameters: Floats, values: Floats) -> Floats:
        """Log p(value | leaf), (V, L); 0 for a missing value, -inf for an impossible one."""

    def log_peak(self, parameters: Floats, values: Floats) -> Floats:
        """Log p(mode | leaf) in the context of each value, (V, L) or a row for all."""
        return np.diagonal(self.log_prob(parameters, self.mode(parameters)))[None]

    def is_missing(self, values: Floats) -> Bools:
        """Which values are missing, whatever their context, (V,)."""
        return np.asarray(np.isnan(values if values.ndim == 1 else values[:, 0]))

    @abstractmethod
    def statistics(self, values: Floats) -> Floats:
        """Sufficient statistics of shape (V, S), the first column being 1.

        A row is zero where the value is missing, or outside the support: no leaf has made it. A
        family without sufficient statistics gives those from which `maximise` makes leaves to
        start with, by their moments for example; see `expected_statistics`.
        """

    def expected_statistics(self, parameters: Floats, values: Floats, counts: Floats) -> Floats:
        """Sum over values of counts times statistics, for counts (L, V) -> (L, S).

        A family with a latent variable, as the scale of a Student t distribution is one, replaces
        the statistics by their expectations given value and leaf.
        """
        return counts @ self.statistics(values)

    @abstractmethod
    def maximise(self, statistics: Floats, prior: Prior | None = None) -> Floats:
        """Argmax of expected log-likelihood plus `log_prior`, leaf by leaf, (L, S) -> (L, P).

        A row without weight takes the maximum of the prior, or the prior's reference where the
        pseudo-count is zero as well.
        """

    @abstractmethod
    def log_prior(self, parameters: Floats, prior: Prior | None = None) -> float:
        """Log prior density of all rows, up to a constant: the penalty that `maximise` adds."""

    @property
    @abstractmethod
    def num_free(self) -> int:
        """F, the number of free coordinates of a leaf; see `free`."""

    @abstractmethod
    def free(self, parameters: Floats) -> Floats:
        """Unconstrained coordinates of each leaf, (L, P) -> (L, F); -inf for an exact zero."""

    @abstractmethod
    def from_free(self, free: Floats) -> Floats:
        """The parameters at free coordinates, (L, F) -> (L, P); -inf gives an exact zero."""

    @abstractmethod
    def free_gradient(self, parameters: Floats, statistics: Floats) -> Floats:
        """Gradient of the expected log-likelihood in the free coordinates, (L, S) -> (L, F).

        It is linear in the statistics, which may be differences of sums and are those expected at
        the same parameters. A coordinate at -inf is fixed: it has gradient 0, and statistics that
        only it could explain do not count.
        """

    @abstractmethod
    def free_log_prior(
        self, parameters: Floats, prior: Prior | None = None
    ) -> tuple[float, Floats]:
        """`log_prior` without the terms of fixed coordinates, and its gradient (L, F)."""

    @abstractmethod
    def free_bounds(self, prior: Prior | None = None) -> tuple[Floats, Floats]:
        """Least and largest free coordinates (F,) that an ascent may try.

        Between them the parameters are allowed, and the log prior is finite.
        """

    @abstractmethod
    def sample(self, parameters: Floats, rng: np.random.Generator) -> Floats:
        """One draw for each row of parameters, (M, P) -> (M,)."""

    @abstractmethod
    def mode(self, parameters: Floats) -> Floats:
        """Argmax of p(x | leaf), (L,)."""

    @abstractmethod
    def mean(self, parameters: Floats) -> Floats:
        """E[x | leaf], (L,)."""

    @abstractmethod
    def variance(self, parameters: Floats) -> Floats:
        """Var[x | leaf], (L,)."""

    def mixture_moments(self, parameters: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of each mixture of leaves, a row of weights, (Q, L) -> (Q,) and (Q,).

        Sums run row by row in the order of the leaves, so that a mixture's numbers do not depend on
        the others; a matrix product takes another order for another number of rows.
        """
        means = self.mean(parameters)
        mean = (weights * means).sum(axis=1)
        # The root of the weight comes first, so that a leaf without weight far away adds nothing;
        # a variance beyond the largest number is infinite.
        with np.errstate(over="ignore"):
            spread = (np.sqrt(weights) * (means - mean[:, None])) ** 2
        own = (weights * self.variance(parameters)).sum(axis=1)
        return mean, spread.sum(axis=1) + own

    def coordinates(self, values: Floats) -> Floats:
        """Values as points by whose distances slices are clustered, (V, D); NaN where missing."""
        return np.asarray(values, dtype=np.float64)[:, None]

    @abstractmethod
    def cdf(self, parameters: Floats, values: Floats) -> Floats:
        """P(X <= value | leaf) of shape (V, L); NaN for a missing value."""

    def sf(self, parameters: Floats, values: Floats) -> Floats:
        """P(X > value | leaf) of shape (V, L); override it where digits of small ones matter."""
        return 1.0 - self.cdf(parameters, values)

    @abstractmethod
    def quantile_bounds(self, parameters: Floats, levels: Floats) -> tuple[Floats, Floats]:
        """Bounds of the quantiles of each leaf, lower and upper, (R, L) both.

        A continuous family gives the quantile for both, a discrete one integers with
        P(X <= lower) < level <= P(X <= upper). Level 0 asks for the lower end of the support,
        level 1 for the upper end.
        """

    @final
    def mixture_quantiles(
        self, parameters: Floats, weights: Floats, levels: Floats, *, cells: int = 1 << 20
    ) -> Floats:
        """The smallest x with sum_l w_l P(X <= x | l) >= level, (Q, L) and (R,) -> (Q, R).

        It lies between the smallest and the largest quantile of the leaves of positive weight. For
        a discrete family a cdf within a few units of rounding of the level counts as having reached
        it.

        Args:
            parameters: The leaves.
            weights: A row for each mixture; rows are normalised.
            levels: Probabilities between 0 and 1.
            cells: How many (mixture, level, leaf) are computed together, which bounds memory.
        """
        weights, levels = _normalise(weights, levels)
        height = max(1, cells // max(1, len(parameters)))
        search = search_integers if self.is_discrete else search_reals
        result = np.empty((len(weights), len(levels)))
        with np.errstate(all="ignore"):
            lower, upper = self.quantile_bounds(parameters, levels)
            # Levels above one half are found in the upper tail, which has more digits there.
            for sign, in_tail in ((1.0, levels <= 0.5), (-1.0, levels > 0.5)):
                mixtures, columns = np.nonzero(np.broadcast_to(in_tail, result.shape))
                for start in range(0, mixtures.size, height):
                    places = mixtures[start : start + height], columns[start : start + height]
                    shares, level = weights[places[0]], levels[places[1]]
                    low = np.where(shares > 0, lower[places[1]], np.inf).min(axis=1)
                    high = np.where(shares > 0, upper[places[1]], -np.inf).max(axis=1)
                    mass = level if sign > 0 else 1.0 - level
                    evaluate = partial(_evaluate, self, parameters, sign)
                    result[places] = search(evaluate, shares, sign, mass, low, high)
        return result

    @abstractmethod
    def random(
        self, num_leaves: int, rng: np.random.Generator, values: Floats | None = None
    ) -> Floats:
        """Random starting parameters (L, P), spread like the data where `values` are given."""

    @abstractmethod
    def violations(self, parameters: Floats) -> list[str]:
        """Every row that is no distribution of the family, named; empty when all are valid."""

    def _shape_violations(self, parameters: Floats) -> list[str]:
        """The breach, if any, of the rule that parameters are a (leaves, P) array."""
        shape, width = np.shape(parameters), self.num_parameters
        if len(shape) == 2 and shape[1] == width:
            return []
        return [f"parameters must have shape (leaves, {width}), but have shape {shape}"]

    @staticmethod
    def _observed(values: Floats | None) -> Floats:
        """The values that are neither missing nor infinite."""
        flat = np.asarray([] if values is None else values, dtype=np.float64).ravel()
        return flat[np.isfinite(flat)]

    def average(self, one: Floats, other: Floats, share: Floats) -> Floats:
        """Rows that stand for the mixtures `share` one + (1 - `share`) other, (L, 1) -> (L, P)."""
        return share * one + (1.0 - share) * other

    def largest_log_likelihood(self, statistics: Floats) -> Floats:
        """The largest expected log-likelihood for statistics (..., S), up to linear terms.

        It says what one leaf in place of two loses. This one takes leaves for Gaussian ones of the
        same variance.
        """
        rows = statistics.reshape(-1, self.num_statistics)
        variance = np.nan_to_num(self.variance(self.maximise(rows)))
        return np.reshape(-0.5 * rows[:, 0] * np.log(variance + NO_WEIGHT), statistics.shape[:-1])

    def to_json(self) -> Mapping[str, Any]:
        """The family's name and fields, as `family_from_json` reads them."""
        return {"name": self.name, **{item.name: getattr(self, item.name) for item in fields(self)}}


class Contextual(Family):
    """A family whose leaves are told something: other entries, or inputs.

    Values come as a matrix (V, 1 + D), the value and its context; see `dspn.leaves.told`.
    """

    @property
    @abstractmethod
    def plain(self) -> Family:
        """The family whose parameters a context gives."""

    @abstractmethod
    def given(self, parameters: Floats, values: Floats) -> tuple[Family, Floats]:
        """The plain family and its parameters (V, L, P) in the context of each value."""

    @abstractmethod
    def resolve(self, parameters: Floats, context: Floats) -> Floats:
        """Parameters of the plain family for rows (M, P) in contexts (M, D)."""

    @abstractmethod
    def spread(self, rows: Floats, rng: np.random.Generator, noise: float) -> Floats:
        """Leaves near to some leaves; with a noise of 1 they differ much."""

    @abstractmethod
    def moved(self, places: Mapping[int, int]) -> Self:
        """The same family in a schema where variables have other places."""


def plain_family(family: Family) -> Family:
    """The family of a value once its context is known."""
    return family.plain if isinstance(family, Contextual) else family


def chosen_prior(prior: Prior | None, default: PriorT) -> PriorT:
    """The prior itself, the default in its absence; a prior of another family is refused."""
    if prior is None:
        return default
    if not isinstance(prior, type(default)):
        raise StructureError(
            f"`prior` must be a {type(default).__name__}, the prior of this leaf family, "
            f"but is a {type(prior).__name__}. Pass one, or None for the default."
        )
    return prior


def _normalise(weights: Floats, levels: Floats) -> tuple[Floats, Floats]:
    """Rows of weights divided by their sums, and the levels, both checked."""
    weights = np.asarray(weights, dtype=np.float64)
    levels = np.asarray(levels, dtype=np.float64)
    if levels.ndim != 1 or not np.all((levels >= 0) & (levels <= 1)):
        raise EvidenceError(
            "`levels` must be a vector of probabilities between 0 and 1, "
            f"but is {levels.tolist()}. Give for example [0.05, 0.5, 0.95]."
        )
    totals = weights.sum(axis=1, keepdims=True)
    allowed = np.all(weights >= 0, axis=1) & (totals[:, 0] > 0) & np.isfinite(totals[:, 0])
    if not allowed.all():
        row = int(np.argmin(allowed))
        raise EvidenceError(
            "`weights` of a mixture must be finite, not negative and not all zero, "
            f"but row {row} is {weights[row].tolist()}. Evidence of probability zero has no "
            "quantiles; leave such rows out."
        )
    return weights / totals, levels


def _evaluate(
    family: Family, parameters: Floats, sign: float, shares: Floats, points: Floats
) -> tuple[Floats, Floats]:
    """Tail probability and density of each mixture, a row of shares, at its point.

    The tail is the lower one where the sign is 1, the upper one where it is -1. Mixtures of a
    discrete family are searched without densities; these are left out.
    """
    tails = (family.cdf if sign > 0 else family.sf)(parameters, points)
    tail = np.asarray(np.einsum("al,al->a", shares, tails))
    if family.is_discrete:
        return tail, tail
    density = np.exp(family.log_prob(parameters, points))
    return tail, np.asarray(np.einsum("al,al->a", shares, density))


def search_reals(
    evaluate: Evaluate, shares: Floats, sign: float, mass: Floats, lower: Floats, upper: Floats
) -> Floats:
    """Roots of log(tail(x) / mass) in [lower, upper]: Newton's step, or the middle.

    Every third step is a bisection, so that no shape of the mixture can make the search crawl.
    """
    roots = np.where(lower == upper, lower, 0.5 * (lower + upper))
    active = np.flatnonzero(lower < upper)
    for step in range(_MAX_STEPS):
        if active.size == 0:
            break
        point = roots[active]
        tail, density = evaluate(shares[active], point)
        residual = np.log(tail / mass[active])
        beyond = sign * residual >= 0
        low = lower[active] = np.where(beyond, lower[active], point)
        high = upper[active] = np.where(beyond, point, upper[active])
        newton = point - sign * tail / density * residual
        inside = (newton >= low) & (newton <= high)
        middle = 0.5 * (low + high)
        exact = np.abs(residual) <= _RESIDUAL
        still = (np.abs(newton - point) <= 2 * _EPS * np.abs(point)) & (np.abs(residual) < 1e-10)
        narrow = high - low <= 2 * _EPS * np.maximum(np.abs(low), np.abs(high))
        ready = exact | (inside & still)
        # In a gap between leaves the density vanishes and a step from an exact point leads astray.
        settled = np.where(exact, point, np.where(inside, newton, middle))
        roots[active] = np.where(~ready & (step % 3 == 2), middle, settled)
        active = active[~(ready | narrow)]
    return roots


def search_integers(
    evaluate: Evaluate, shares: Floats, sign: float, mass: Floats, lower: Floats, upper: Floats
) -> Floats:
    """Bisection over the integers, with P(X <= lower) < level <= P(X <= upper) throughout."""
    target = np.maximum(mass * (1 - _ROUNDING), NO_WEIGHT) if sign > 0 else mass * (1 + _ROUNDING)
    active = np.flatnonzero(upper - lower > 1)
    while active.size:
        middle = np.floor(0.5 * (lower[active] + upper[active]))
        tail, _ = evaluate(shares[active], middle)
        reached = sign * tail >= sign * target[active]
        upper[active] = np.where(reached, middle, upper[active])
        lower[active] = np.where(reached, lower[active], middle)
        between = np.floor(0.5 * (lower[active] + upper[active]))
        active = active[(between > lower[active]) & (between < upper[active])]
    return upper
