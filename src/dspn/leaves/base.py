"""What a leaf family is: a univariate distribution over one variable of a slice."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dspn.errors import StructureError
from dspn.leaves.quantiles import NO_WEIGHT, mixture_quantiles
from dspn.options import Checked

__all__ = ["FREE_LIMIT", "FREE_ROUNDING", "NO_WEIGHT", "Family", "FloatArray", "Prior"]

FloatArray = NDArray[np.float64]

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
    def scaled_to(self, values: FloatArray) -> Family:
        """The same family with the reference of its default prior and statistics taken from data.

        Parameters mean the same before and after. Statistics of differently scaled families must
        not be added.
        """

    @abstractmethod
    def log_prob(self, parameters: FloatArray, values: FloatArray) -> FloatArray:
        """Log p(value | leaf), (V, L); 0 for a missing value, -inf for an impossible one."""

    @abstractmethod
    def statistics(self, values: FloatArray) -> FloatArray:
        """Sufficient statistics of shape (V, S), the first column being 1.

        A row is zero where the value is missing, or outside the support: no leaf has made it. A
        family without sufficient statistics gives those from which `maximise` makes leaves to
        start with, by their moments for example; see `expected_statistics`.
        """

    def expected_statistics(
        self, parameters: FloatArray, values: FloatArray, counts: FloatArray
    ) -> FloatArray:
        """Sum over values of counts times statistics, for counts (L, V) -> (L, S).

        A family with a latent variable, as the scale of a Student t distribution is one, replaces
        the statistics by their expectations given value and leaf.
        """
        return counts @ self.statistics(values)

    @abstractmethod
    def maximise(self, statistics: FloatArray, prior: Prior | None = None) -> FloatArray:
        """Argmax of expected log-likelihood plus `log_prior`, leaf by leaf, (L, S) -> (L, P).

        A row without weight takes the maximum of the prior, or the prior's reference where the
        pseudo-count is zero as well.
        """

    @abstractmethod
    def log_prior(self, parameters: FloatArray, prior: Prior | None = None) -> float:
        """Log prior density of all rows, up to a constant: the penalty that `maximise` adds."""

    @property
    @abstractmethod
    def num_free(self) -> int:
        """F, the number of free coordinates of a leaf; see `free`."""

    @abstractmethod
    def free(self, parameters: FloatArray) -> FloatArray:
        """Unconstrained coordinates of each leaf, (L, P) -> (L, F); -inf for an exact zero."""

    @abstractmethod
    def from_free(self, free: FloatArray) -> FloatArray:
        """The parameters at free coordinates, (L, F) -> (L, P); -inf gives an exact zero."""

    @abstractmethod
    def free_gradient(self, parameters: FloatArray, statistics: FloatArray) -> FloatArray:
        """Gradient of the expected log-likelihood in the free coordinates, (L, S) -> (L, F).

        It is linear in the statistics, which may be differences of sums and are those expected at
        the same parameters. A coordinate at -inf is fixed: it has gradient 0, and statistics that
        only it could explain do not count.
        """

    @abstractmethod
    def free_log_prior(
        self, parameters: FloatArray, prior: Prior | None = None
    ) -> tuple[float, FloatArray]:
        """`log_prior` without the terms of fixed coordinates, and its gradient (L, F)."""

    @abstractmethod
    def free_bounds(self, prior: Prior | None = None) -> tuple[FloatArray, FloatArray]:
        """Least and largest free coordinates (F,) that an ascent may try.

        Between them the parameters are allowed, and the log prior is finite.
        """

    @abstractmethod
    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> FloatArray:
        """One draw for each row of parameters, (M, P) -> (M,)."""

    @abstractmethod
    def mode(self, parameters: FloatArray) -> FloatArray:
        """Argmax of p(x | leaf), (L,)."""

    @abstractmethod
    def mean(self, parameters: FloatArray) -> FloatArray:
        """E[x | leaf], (L,)."""

    @abstractmethod
    def variance(self, parameters: FloatArray) -> FloatArray:
        """Var[x | leaf], (L,)."""

    @abstractmethod
    def cdf(self, parameters: FloatArray, values: FloatArray) -> FloatArray:
        """P(X <= value | leaf) of shape (V, L); NaN for a missing value."""

    def sf(self, parameters: FloatArray, values: FloatArray) -> FloatArray:
        """P(X > value | leaf) of shape (V, L); override it where digits of small ones matter."""
        return 1.0 - self.cdf(parameters, values)

    @abstractmethod
    def quantile_bounds(
        self, parameters: FloatArray, levels: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Bounds of the quantiles of each leaf, lower and upper, (R, L) both.

        A continuous family gives the quantile for both, a discrete one integers with
        P(X <= lower) < level <= P(X <= upper). Level 0 asks for the lower end of the support,
        level 1 for the upper end.
        """

    @final
    def mixture_quantiles(
        self, parameters: FloatArray, weights: FloatArray, levels: FloatArray
    ) -> FloatArray:
        """The smallest x with sum_l w_l P(X <= x | l) >= level, (Q, L) and (R,) -> (Q, R).

        Rows of weights are normalised. For a discrete family a cdf within a few units of rounding
        of the level counts as having reached it.
        """
        return mixture_quantiles(self, parameters, weights, levels)

    @abstractmethod
    def random(
        self, num_leaves: int, rng: np.random.Generator, values: FloatArray | None = None
    ) -> FloatArray:
        """Random starting parameters (L, P), spread like the data where `values` are given."""

    @abstractmethod
    def violations(self, parameters: FloatArray) -> list[str]:
        """Every row that is no distribution of the family, named; empty when all are valid."""

    def average(self, one: FloatArray, other: FloatArray, share: FloatArray) -> FloatArray:
        """Rows that stand for the mixtures `share` one + (1 - `share`) other, (L, 1) -> (L, P)."""
        return share * one + (1.0 - share) * other

    def largest_log_likelihood(self, statistics: FloatArray) -> FloatArray:
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


def shape_violations(parameters: FloatArray, width: int) -> list[str]:
    """The breach, if any, of the rule that parameters are a (leaves, width) array."""
    shape = np.shape(parameters)
    if len(shape) == 2 and shape[1] == width:
        return []
    return [f"parameters must have shape (leaves, {width}), but have shape {shape}"]


def finite_values(values: FloatArray | None) -> FloatArray:
    """The observed values: those that are neither missing nor infinite."""
    if values is None:
        return np.empty(0)
    flat = np.asarray(values, dtype=np.float64).ravel()
    return flat[np.isfinite(flat)]
