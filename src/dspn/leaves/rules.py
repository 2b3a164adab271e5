"""Rules from what a leaf is told to the parameters of a plain family: regressions and tables.

A rule sees standardised features X (V, F), whose first column is 1, and works on standardised
parameters; `dspn.leaves.told` translates from and to the units of the data. A table sees the number
of a combination of categories in place of features. `reference` is what the prior of a rule is
centred on, taken from data by `refer`; c is the number of pseudo-observations.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, final

import numpy as np
from scipy.special import gammaln, log_softmax, softmax, xlogy

from dspn._arguments import Bools, Floats, Ints
from dspn.leaves.base import FREE_LIMIT, NO_WEIGHT, Family
from dspn.leaves.categorical import Categorical
from dspn.leaves.gaussian import Gaussian
from dspn.leaves.poisson import Poisson
from dspn.leaves.student_t import StudentT, log_density
from dspn.options import Checked, number_field, whole_field

_LOG_TWO_PI = math.log(2.0 * math.pi)
_LARGEST = 1e140
# The narrowest leaf has a hundredth of the standard deviation that the features leave over.
_RELATIVE_FLOOR = 1e-4
_LEAST_RESIDUAL = 1e-12
_LARGEST_LOG_RATE = 30.0
# Newton's step never lowers a Poisson likelihood where no log rate moves by more than this: the
# curvature grows by at most 2 (e^c - 1 - c) / c^2 < 2 on the way.
_SAFE_MOVE = 1.5
# Slices whose statistics are held at a time.
_ROWS = 4096


class Rule(Checked, ABC):
    """p(y | features): how the parameters of a plain family follow from what a leaf is told."""

    name: ClassVar[str]
    has_features: ClassVar[bool] = True  # a table has combinations of categories instead
    is_stepped: ClassVar[bool] = False  # whether there are no sufficient statistics
    pseudo_count: ClassVar[float]  # of the default prior

    @property
    @abstractmethod
    def plain(self) -> Family:
        """The family whose parameters the rule gives."""

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """m, the width of the coefficients of a feature; rows begin with F m coefficients."""

    @abstractmethod
    def width(self, num_features: int) -> int:
        """Parameters of a leaf."""

    @abstractmethod
    def size(self, num_features: int) -> int:
        """Statistics of a leaf, of which the first is the weight."""

    @abstractmethod
    def scaled_to(self, values: Floats) -> Rule:
        """The rule at the scale of data."""

    def standard(self, rows: Floats, num_features: int) -> Floats:
        """Rows of parameters in standard units of y."""
        return rows

    def original(self, rows: Floats, num_features: int) -> Floats:
        """Rows of parameters in the units of y."""
        return rows

    @abstractmethod
    def counted(self, values: Floats) -> Bools:
        """Which values are observed and within the support."""

    @abstractmethod
    def resolve(self, rows: Floats, features: Floats) -> Floats:
        """Parameters of the plain family for rows (..., p) and features (..., F)."""

    @abstractmethod
    def log_prob(self, rows: Floats, features: Floats, values: Floats) -> Floats:
        """Log p(y | features) of observed values under each leaf, (V, L)."""

    @abstractmethod
    def statistics(
        self, features: Floats, values: Floats, num_features: int, reference: Floats
    ) -> Floats:
        """Statistics (V, S) of counted values, at the parameters that the reference stands for."""

    def expected(
        self,
        rows: Floats,
        features: Floats,
        values: Floats,
        counts: Floats,
        num_features: int,
        reference: Floats,
    ) -> Floats:
        """Sum of counts (L, V) times statistics, at the parameters `rows` where they matter."""
        found = np.zeros((len(counts), self.size(num_features)))
        for start in range(0, len(values), _ROWS):
            part = slice(start, start + _ROWS)
            own = self.statistics(features[part], values[part], num_features, reference)
            found += counts[:, part] @ own
        return found

    @abstractmethod
    def maximise(
        self, statistics: Floats, num_features: int, reference: Floats, c: float
    ) -> Floats:
        """Parameters that are best, or better than those the statistics were taken at."""

    @abstractmethod
    def log_prior(
        self, rows: Floats, num_features: int, reference: Floats, c: float
    ) -> tuple[Floats, Floats]:
        """Log prior of each row without the terms of exact zeros, and its free gradient."""

    @abstractmethod
    def gradient(self, rows: Floats, statistics: Floats, num_features: int) -> Floats:
        """Gradient of the expected log-likelihood in the free coordinates."""

    def free(self, rows: Floats, num_features: int) -> Floats:
        """Unconstrained coordinates of each row."""
        return rows

    def from_free(self, free: Floats, num_features: int) -> Floats:
        """Rows at free coordinates."""
        return free

    def free_bounds(self, num_features: int, reference: Floats) -> tuple[Floats, Floats]:
        """Least and largest free coordinates."""
        limit = np.full(self.width(num_features), FREE_LIMIT)
        return -limit, limit

    @abstractmethod
    def refer(self, features: Floats, values: Floats, num_features: int) -> tuple[float, ...]:
        """What the prior is centred on, from counted values (or none)."""

    @abstractmethod
    def spread(
        self,
        rows: Floats,
        num_features: int,
        reference: Floats,
        rng: np.random.Generator,
        noise: float,
    ) -> Floats:
        """Rows with random differences, for starting points."""

    @abstractmethod
    def problems(self, rows: Floats, num_features: int) -> list[str]:
        """What is wrong with each row; empty where nothing is."""

    def to_json(self) -> dict[str, Any]:
        """Name and fields, without those that are None."""
        known = {item.name: getattr(self, item.name) for item in fields(self)}
        return {"name": self.name, **{k: own for k, own in known.items() if own is not None}}


def _outer(features: Floats) -> Floats:
    """X x' of each row, flat."""
    count, width = features.shape
    return np.asarray(np.einsum("vf,vg->vfg", features, features).reshape(count, width * width))


def _solve(matrices: Floats, right: Floats) -> Floats:
    """Solutions of symmetric positive semidefinite systems, of least norm where there are many."""
    values, vectors = np.linalg.eigh(matrices)
    least = 1e-13 * np.maximum(values[:, -1:], NO_WEIGHT)
    inverse = np.where(values > least, 1.0 / np.where(values > least, values, 1.0), 0.0)
    moved = np.swapaxes(vectors, 1, 2) @ right
    return np.asarray(vectors @ (inverse[:, :, None] * moved))


def _not_finite(rows: Floats, what: str) -> list[str]:
    finite = np.asarray(np.isfinite(rows).all(axis=1)).tolist()
    return ["" if fine else f"{what} must be finite" for fine in finite]


@final
@dataclass(frozen=True)
class Linear(Rule):
    """y = b' x + noise: a Gaussian, or a Student t, whose mean is linear in the features.

    Rows are the coefficients and the variance, or the squared scale of Student t noise: a value has
    a precision then, as in `StudentT`, which is small far from the mean. The prior is c
    observations at the mean of the features, of the mean and the variance that a regression on all
    data leaves over, and a ridge: c observations of 0 for each coefficient but the first. Collinear
    features share what they explain.
    """

    location: float = number_field(0.0)
    scale: float = number_field(1.0, above=0)
    df: float | None = number_field(None, above=2)  # degrees of freedom of Student t noise

    name = "linear"
    pseudo_count = 0.01
    num_outputs = 1

    @property
    def plain(self) -> Gaussian | StudentT:
        """Leaves of the same scale and noise."""
        if self.df is None:
            return Gaussian(self.location, self.scale)
        return StudentT(self.df, self.location, self.scale)

    @property
    def is_stepped(self) -> bool:  # type: ignore[override]
        """Whether statistics have precisions, which depend on the parameters they are taken at."""
        return self.df is not None

    def width(self, num_features: int) -> int:
        """Coefficients and the variance."""
        return num_features + 1

    def size(self, num_features: int) -> int:
        """X'WX, X'Wz and z'Wz; for Student t noise also the weight, as W has the precisions."""
        return (num_features + 1) * num_features + (1 if self.df is None else 2)

    def scaled_to(self, values: Floats) -> Linear:
        """Location and scale of the values."""
        own = self.plain.scaled_to(values)
        return Linear(own.location, own.scale, self.df)

    def standard(self, rows: Floats, num_features: int) -> Floats:
        """Coefficients and variance of z = (y - location) / scale."""
        found = rows / self.scale
        found[..., 0] -= self.location / self.scale
        found[..., -1] /= self.scale
        return found

    def original(self, rows: Floats, num_features: int) -> Floats:
        """Coefficients and variance of y."""
        found = rows * self.scale
        found[..., 0] += self.location
        found[..., -1] *= self.scale
        return found

    def _z(self, values: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            return np.asarray((values - self.location) / self.scale)

    def counted(self, values: Floats) -> Bools:
        """Finite values whose square a float holds."""
        return np.asarray(np.abs(self._z(values)) <= _LARGEST)

    def resolve(self, rows: Floats, features: Floats) -> Floats:
        """Mean b' x and the variance, in the units of y."""
        mean = (rows[..., :-1] * features).sum(axis=-1)
        found = np.stack(np.broadcast_arrays(mean, rows[..., -1]), axis=-1)
        return np.asarray(self.original(found, 1))

    def log_prob(self, rows: Floats, features: Floats, values: Floats) -> Floats:
        """-(z - b' x)^2 / (2 v) - log(2 pi v) / 2 - log scale, or that of Student t noise."""
        variances = rows[:, -1]
        with np.errstate(all="ignore"):
            table = self._z(values)[:, None] - features @ rows[:, :-1].T
            if self.df is None:
                table *= np.sqrt(0.5 / variances)
                np.multiply(table, table, out=table)
                constant = -0.5 * (_LOG_TWO_PI + np.log(variances)) - math.log(self.scale)
                np.subtract(constant, table, out=table)
            else:
                table = log_density(np.abs(table), variances, self.df) - math.log(self.scale)
        return np.nan_to_num(table, copy=False, nan=-np.inf, posinf=np.inf, neginf=-np.inf)

    def statistics(
        self, features: Floats, values: Floats, num_features: int, reference: Floats
    ) -> Floats:
        """(x x', x z, z^2); of Student t noise with the precision u of `StudentT.statistics`."""
        z = self._z(values)[:, None]
        with np.errstate(under="ignore"):
            found = np.concatenate([_outer(features), features * z, z * z], axis=1)
        if self.df is None:
            return found
        return np.column_stack([(1.0 - 2.0 / self.df) * found, np.ones(len(found))])

    def expected(
        self,
        rows: Floats,
        features: Floats,
        values: Floats,
        counts: Floats,
        num_features: int,
        reference: Floats,
    ) -> Floats:
        """Those with E[u | y, leaf] = (df + 1) / (df + t^2)."""
        if self.df is None:
            return super().expected(rows, features, values, counts, num_features, reference)
        found = np.zeros((len(counts), self.size(num_features)))
        found[:, -1] = counts.sum(axis=1)
        for start in range(0, len(values), _ROWS):
            part = slice(start, start + _ROWS)
            x, z = features[part], self._z(values[part])[:, None]
            with np.errstate(over="ignore", under="ignore"):
                squares = (z.T - rows[:, :-1] @ x.T) ** 2 / rows[:, -1:]
                shares = counts[:, part] * ((self.df + 1.0) / (self.df + squares))
                own = np.concatenate([_outer(x), x * z, z * z], axis=1)
            found[:, :-1] += shares @ own
        return found

    def _parts(
        self, statistics: Floats, num_features: int
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """X'WX (L, F, F), X'Wz (L, F), z'Wz and the weight."""
        size = num_features * num_features
        last = size + num_features
        matrix = statistics[:, :size].reshape(len(statistics), num_features, num_features)
        weight = statistics[:, 0 if self.df is None else -1]
        return matrix, statistics[:, size:last], statistics[:, last], weight

    def maximise(
        self, statistics: Floats, num_features: int, reference: Floats, c: float
    ) -> Floats:
        """Ridge regression, and the mean square of what it leaves over."""
        statistics = np.where(statistics[:, :1] < NO_WEIGHT, 0.0, statistics)
        matrix, right, second, weight = self._parts(statistics, num_features)
        penalised = matrix + c * np.eye(num_features)
        right = right[:, :, None]
        coefficients = _solve(penalised, right)[:, :, 0]
        # The least eigenvalue may be lost without a prior, so the spread is taken as it is.
        squares = np.einsum("lf,lfg,lg->l", coefficients, penalised, coefficients)
        left = second - 2.0 * (coefficients * right[:, :, 0]).sum(axis=1) + squares
        weight = weight + c
        empty = weight < NO_WEIGHT
        left = np.maximum(left, 0.0) + c * reference[0]
        variances = np.where(empty, reference[0], left / np.where(empty, 1.0, weight))
        floor = _RELATIVE_FLOOR * reference[0]
        return np.column_stack([coefficients, np.maximum(variances, floor)])

    def log_prior(
        self, rows: Floats, num_features: int, reference: Floats, c: float
    ) -> tuple[Floats, Floats]:
        """-c/2 (log v + (v_0 + b'b) / v); -inf below the floor."""
        coefficients, variances = rows[:, :-1], rows[:, -1]
        # Standard rows come from those in the units of y and may be off by rounding.
        below = variances < _RELATIVE_FLOOR * reference[0] * (1.0 - 1e-9)
        with np.errstate(all="ignore"):
            squares = reference[0] + (coefficients * coefficients).sum(axis=1)
            found = -0.5 * c * (_LOG_TWO_PI + np.log(variances) + squares / variances)
            slope = np.column_stack(
                [
                    -c * coefficients / variances[:, None],
                    0.5 * c * (squares / variances - 1.0),
                ]
            )
        found = found if c else np.zeros(len(rows))
        return np.where(below, -np.inf, found), slope if c else np.zeros_like(slope)

    def gradient(self, rows: Floats, statistics: Floats, num_features: int) -> Floats:
        """Sum of x (z - b' x) / v, and of ((z - b' x)^2 / v - 1) / 2 in log v."""
        matrix, right, second, weight = self._parts(statistics, num_features)
        b, variances = rows[:, :-1], rows[:, -1]
        with np.errstate(over="ignore", under="ignore"):
            product = np.einsum("lfg,lg->lf", matrix, b)
            left = second - 2.0 * (b * right).sum(axis=1) + (b * product).sum(axis=1)
            slope = (right - product) / variances[:, None]
            return np.column_stack([slope, 0.5 * (left / variances - weight)])

    def free(self, rows: Floats, num_features: int) -> Floats:
        """Coefficients and the log of the variance."""
        return np.column_stack([rows[:, :-1], np.log(rows[:, -1])])

    def from_free(self, free: Floats, num_features: int) -> Floats:
        """Coefficients and the variance."""
        with np.errstate(over="ignore", under="ignore"):
            return np.column_stack([free[:, :-1], np.exp(free[:, -1])])

    def free_bounds(self, num_features: int, reference: Floats) -> tuple[Floats, Floats]:
        """Any coefficients that squares of can be added up; variances above the floor."""
        lower, upper = np.full((2, num_features + 1), np.inf) * np.array([[-1.0], [1.0]])
        lower[-1], upper[-1] = math.log(_RELATIVE_FLOOR * reference[0]) + 1e-9, 300.0
        return lower, upper

    def refer(self, features: Floats, values: Floats, num_features: int) -> tuple[float, ...]:
        """The variance that a regression on all values leaves over."""
        if len(values) <= num_features:
            return (1.0,)
        z = self._z(values)
        solution = np.linalg.lstsq(features, z, rcond=None)[0]
        return (float(np.clip(np.mean((z - features @ solution) ** 2), _LEAST_RESIDUAL, 1.0)),)

    def spread(
        self,
        rows: Floats,
        num_features: int,
        reference: Floats,
        rng: np.random.Generator,
        noise: float,
    ) -> Floats:
        """Coefficients moved in proportion to what they leave over."""
        found = rows.copy()
        size = noise * math.sqrt(reference[0]) * np.append(1.0, np.full(num_features - 1, 0.3))
        found[:, :-1] += size * rng.standard_normal((len(rows), num_features))
        return found

    def problems(self, rows: Floats, num_features: int) -> list[str]:
        """Coefficients that are not finite, variances that are not positive."""
        found = _not_finite(rows[:, :-1], "coefficients")
        for row, variance in enumerate(rows[:, -1].tolist()):
            if not 0 < variance < math.inf:
                text = f"variance must be finite and positive, but is {variance}"
                found[row] = f"{found[row]}; {text}".strip("; ")
        return found


class _Stepped(Rule):
    """Rules without sufficient statistics: weight, weight times coefficients, curvature, slope.

    The statistics are those of a second-order bound at the coefficients they were taken at, which
    they hold; `maximise` steps from there and never lowers the penalised likelihood.
    """

    is_stepped = True

    def width(self, num_features: int) -> int:
        """A coefficient for each feature and output."""
        return num_features * self.num_outputs

    def size(self, num_features: int) -> int:
        """Weight, coefficients, X'AX and the slope."""
        return 1 + 2 * self.width(num_features) + num_features * num_features

    def _start(self, num_features: int, reference: Floats) -> Floats:
        """The coefficients that `statistics` are taken at."""
        return np.zeros(self.width(num_features))

    @abstractmethod
    def _slopes(self, rows: Floats, features: Floats, values: Floats) -> tuple[Floats, Floats]:
        """Slopes of log p in the linear terms (V, L, m), and a bound of their curvature (V, L)."""

    @abstractmethod
    def _prior_curvature(self, rows: Floats, num_features: int, c: float) -> Floats:
        """A bound of the curvature of the log prior in each coefficient, (L, F)."""

    def _shortened(self, step: Floats, reference: Floats) -> Floats:
        """A step (L, F, m) that does not lower the penalised likelihood."""
        return step

    def statistics(
        self, features: Floats, values: Floats, num_features: int, reference: Floats
    ) -> Floats:
        """Those at the start."""
        start = self._start(num_features, reference)
        with np.errstate(under="ignore"):
            slopes, bound = self._slopes(start[None], features, values)
            own = (features[:, :, None] * slopes).reshape(len(values), start.size)
            ones = np.ones((len(values), 1))
            return np.concatenate([ones, ones * start, bound * _outer(features), own], axis=1)

    def expected(
        self,
        rows: Floats,
        features: Floats,
        values: Floats,
        counts: Floats,
        num_features: int,
        reference: Floats,
    ) -> Floats:
        """Slopes and curvatures at the leaves' own coefficients."""
        weight = counts.sum(axis=1, keepdims=True)
        curvature = np.zeros((len(rows), num_features**2))
        slope = np.zeros((len(rows), num_features, self.num_outputs))
        for start in range(0, len(values), _ROWS):
            part = slice(start, start + _ROWS)
            slopes, bound = self._slopes(rows, features[part], values[part])
            own = counts[:, part]
            slopes *= own.T[:, :, None]
            slope += np.einsum("vf,vlm->lfm", features[part], slopes, optimize=True)
            curvature += (own * bound.T) @ _outer(features[part])
        return np.concatenate([weight, weight * rows, curvature, slope.reshape(rows.shape)], axis=1)

    def maximise(
        self, statistics: Floats, num_features: int, reference: Floats, c: float
    ) -> Floats:
        """The maximum of the bound, from the coefficients that the statistics were taken at."""
        size, weight = self.width(num_features), statistics[:, :1]
        empty = weight < NO_WEIGHT
        rows = statistics[:, 1 : 1 + size] / np.where(empty, 1.0, weight)
        rows = np.where(empty, self._start(num_features, reference), rows)
        own = np.where(empty, 0.0, statistics)
        bound = own[:, 1 + size : -size].reshape(len(own), num_features, num_features).copy()
        places = np.arange(num_features)
        bound[:, places, places] += self._prior_curvature(rows, num_features, c)
        slope = own[:, -size:] + self.log_prior(rows, num_features, reference, c)[1]
        step = _solve(bound, slope.reshape(len(own), num_features, self.num_outputs))
        return np.asarray(rows + self._shortened(step, reference).reshape(rows.shape))

    def gradient(self, rows: Floats, statistics: Floats, num_features: int) -> Floats:
        """The slope."""
        return np.array(statistics[:, -self.width(num_features) :])

    def spread(
        self,
        rows: Floats,
        num_features: int,
        reference: Floats,
        rng: np.random.Generator,
        noise: float,
    ) -> Floats:
        """Coefficients moved by about a third."""
        return rows + 0.3 * noise * rng.standard_normal(rows.shape)

    def problems(self, rows: Floats, num_features: int) -> list[str]:
        """Coefficients that are not finite."""
        return _not_finite(rows, "coefficients")


@final
@dataclass(frozen=True)
class Softmax(_Stepped):
    """p(y = j) proportional to exp(b_j' x): multinomial logistic regression.

    A step of `maximise` goes to the maximum of Bohning's quadratic lower bound. The prior is c
    observations of each category at the mean of the features, and a ridge of 10 c.
    """

    num_categories: int = whole_field()

    name = "softmax"
    pseudo_count = 0.1

    @property
    def plain(self) -> Categorical:
        """Categorical leaves."""
        return Categorical(self.num_categories)

    @property
    def num_outputs(self) -> int:
        """A coefficient for each category."""
        return self.num_categories

    def scaled_to(self, values: Floats) -> Softmax:
        """The rule itself."""
        return self

    def counted(self, values: Floats) -> Bools:
        """Category codes."""
        return _are_codes(values, self.num_categories)

    def _logits(self, rows: Floats, features: Floats) -> Floats:
        shape = (*rows.shape[:-1], features.shape[-1], self.num_categories)
        return np.asarray((rows.reshape(shape) * features[..., None]).sum(axis=-2))

    def resolve(self, rows: Floats, features: Floats) -> Floats:
        """The softmax of b' x."""
        with np.errstate(under="ignore"):
            logits = self._logits(rows, features)
            return np.asarray(softmax(logits, axis=-1)) if logits.size else logits

    def _every(self, rows: Floats, features: Floats) -> Floats:
        """Log probabilities (V, L, K)."""
        coefficients = rows.reshape(len(rows), features.shape[1], self.num_categories)
        logits = np.einsum("vf,lfk->vlk", features, coefficients, optimize=True)
        return np.asarray(log_softmax(logits, axis=2)) if logits.size else logits

    def log_prob(self, rows: Floats, features: Floats, values: Floats) -> Floats:
        """The log probability of each value's category."""
        codes, counted = _codes(values, self.num_categories)
        found = np.take_along_axis(self._every(rows, features), codes[:, None, None], axis=2)
        return np.where(counted[:, None], found[:, :, 0], -np.inf)

    def _slopes(self, rows: Floats, features: Floats, values: Floats) -> tuple[Floats, Floats]:
        """Indicators less probabilities, and Bohning's bound."""
        codes, _ = _codes(values, self.num_categories)
        found = -np.exp(self._every(rows, features))
        found[np.arange(len(values)), :, codes] += 1.0
        return found, np.full(found.shape[:2], 0.5)

    def _prior_curvature(self, rows: Floats, num_features: int, c: float) -> Floats:
        """Bohning's bound for the first, the ridge for the others."""
        own = np.append(0.5 * c * self.num_categories, np.full(num_features - 1, 10.0 * c))
        return np.tile(own, (len(rows), 1))

    def log_prior(
        self, rows: Floats, num_features: int, reference: Floats, c: float
    ) -> tuple[Floats, Floats]:
        """C sum_j log p_j at the mean of the features, less 5 c b'b."""
        own = rows.reshape(len(rows), num_features, self.num_categories)
        logs = log_softmax(own[:, 0], axis=1) if len(own) else own[:, 0]
        rest = own[:, 1:]
        found = c * logs.sum(axis=1) - 5.0 * c * (rest * rest).sum(axis=(1, 2))
        slope = -10.0 * c * own
        slope[:, 0] = c * (1.0 - self.num_categories * np.exp(logs))
        return found, slope.reshape(rows.shape)

    def refer(self, features: Floats, values: Floats, num_features: int) -> tuple[float, ...]:
        """Nothing."""
        return ()


@final
@dataclass(frozen=True)
class LogLinear(_Stepped):
    """y is Poisson with log rate b' x, at most 30.

    `maximise` takes Newton's step, shortened to where it cannot lower the likelihood. The prior is
    c observations of the mean count at the mean of the features, and a ridge of c.
    """

    name = "log-linear"
    pseudo_count = 0.01
    num_outputs = 1

    @property
    def plain(self) -> Poisson:
        """Poisson leaves."""
        return Poisson()

    def scaled_to(self, values: Floats) -> LogLinear:
        """The rule itself."""
        return self

    def counted(self, values: Floats) -> Bools:
        """Whole numbers from 0 on."""
        with np.errstate(invalid="ignore"):
            return np.asarray((values >= 0) & (values < 2.0**53) & (values == np.floor(values)))

    def resolve(self, rows: Floats, features: Floats) -> Floats:
        """The rate."""
        logs = (rows * features).sum(axis=-1)
        return np.asarray(np.exp(np.minimum(logs, _LARGEST_LOG_RATE))[..., None])

    def log_prob(self, rows: Floats, features: Floats, values: Floats) -> Floats:
        """Y log rate - rate - log y!."""
        counted = self.counted(values)
        y = np.where(counted, values, 0.0)[:, None]
        with np.errstate(all="ignore"):
            logs = np.minimum(features @ rows.T, _LARGEST_LOG_RATE)
            found = y * logs - np.exp(logs) - gammaln(y + 1.0)
        return np.where(counted[:, None], found, -np.inf)

    def _start(self, num_features: int, reference: Floats) -> Floats:
        """The mean count."""
        return np.append(reference[0], np.zeros(num_features - 1))

    def _slopes(self, rows: Floats, features: Floats, values: Floats) -> tuple[Floats, Floats]:
        """Counts less rates, and the rates."""
        logs = features @ rows.T
        rates = np.exp(np.minimum(logs, _LARGEST_LOG_RATE))
        left = np.where(logs < _LARGEST_LOG_RATE, values[:, None] - rates, 0.0)
        return left[:, :, None], rates

    def _prior_curvature(self, rows: Floats, num_features: int, c: float) -> Floats:
        """The rate for the first, the ridge for the others."""
        first = np.exp(np.minimum(rows[:, :1], _LARGEST_LOG_RATE))
        return c * np.concatenate([first, np.ones((len(rows), num_features - 1))], axis=1)

    def _shortened(self, step: Floats, reference: Floats) -> Floats:
        """Newton's step, shortened to moves of at most 1.5 of any log rate."""
        move = np.einsum("lfm,f->lm", np.abs(step), np.append(1.0, reference[1:]))[:, :, None]
        return np.asarray(step * np.minimum(1.0, _SAFE_MOVE / np.maximum(move, NO_WEIGHT)))

    def log_prior(
        self, rows: Floats, num_features: int, reference: Floats, c: float
    ) -> tuple[Floats, Floats]:
        """C (rate_0 b_0 - exp b_0) less c/2 b'b."""
        first, rest = np.minimum(rows[:, 0], 700.0), rows[:, 1:]
        usual = math.exp(reference[0])
        found = c * (usual * first - np.exp(first)) - 0.5 * c * (rest * rest).sum(axis=1)
        return found, np.column_stack([c * (usual - np.exp(first)), -c * rest])

    def refer(self, features: Floats, values: Floats, num_features: int) -> tuple[float, ...]:
        """The log of the mean count, and the largest size of each feature."""
        reach = np.abs(features[:, 1:]).max(axis=0, initial=1.0)
        mean = max(float(values.mean()), 0.5 / len(values)) if len(values) else 1.0
        return (math.log(mean), *reach.tolist())


@final
@dataclass(frozen=True)
class Table(Rule):
    """A table of probabilities for each combination of the categories that a leaf is told.

    The prior of each is c observations of every category, and 10 c that are spread as the variable
    is in all data: rare combinations shrink to the pooled table.
    """

    num_categories: int = whole_field()

    name = "table"
    has_features = False
    pseudo_count = 0.1
    num_outputs = 1

    @property
    def plain(self) -> Categorical:
        """Categorical leaves."""
        return Categorical(self.num_categories)

    def width(self, num_features: int) -> int:
        """A probability for each combination and category."""
        return num_features * self.num_categories

    def size(self, num_features: int) -> int:
        """The weight and the counts."""
        return 1 + self.width(num_features)

    def scaled_to(self, values: Floats) -> Table:
        """The rule itself."""
        return self

    def counted(self, values: Floats) -> Bools:
        """Category codes."""
        return _are_codes(values, self.num_categories)

    def _tables(self, rows: Floats) -> Floats:
        count = rows.shape[-1] // self.num_categories
        return rows.reshape(*rows.shape[:-1], count, self.num_categories)

    def _places(self, features: Floats, values: Floats) -> tuple[Ints, Bools]:
        """The cell of each combination and category, and which values are categories."""
        codes, counted = _codes(values, self.num_categories)
        return features[:, 0].astype(np.int64) * self.num_categories + codes, counted

    def resolve(self, rows: Floats, features: Floats) -> Floats:
        """The probabilities at each combination."""
        tables = self._tables(rows)
        place = features[..., :1, None].astype(np.int64)
        shape = np.broadcast_shapes(tables.shape[:-2], place.shape[:-2])
        tables = np.broadcast_to(tables, (*shape, *tables.shape[-2:]))
        place = np.broadcast_to(place, (*shape, 1, self.num_categories))
        return np.take_along_axis(tables, place, axis=-2)[..., 0, :]

    def log_prob(self, rows: Floats, features: Floats, values: Floats) -> Floats:
        """The log probability at combination and category."""
        places, counted = self._places(features, values)
        with np.errstate(divide="ignore"):
            logs = np.ascontiguousarray(np.log(rows).T)
        return np.where(counted[:, None], np.take(logs, places, axis=0), -np.inf)

    def statistics(
        self, features: Floats, values: Floats, num_features: int, reference: Floats
    ) -> Floats:
        """(1, indicators of combination and category)."""
        places, _ = self._places(features, values)
        found = np.zeros((len(values), self.size(num_features)))
        found[:, 0] = 1.0
        found[np.arange(len(values)), 1 + places] = 1.0
        return found

    def maximise(
        self, statistics: Floats, num_features: int, reference: Floats, c: float
    ) -> Floats:
        """Counts and pseudo-counts, normalised; the pooled table where there are none."""
        counts = self._tables(np.maximum(statistics[:, 1:], 0.0)) + self._pseudo(reference, c)
        counts = np.where(counts.sum(axis=2, keepdims=True) < NO_WEIGHT, reference, counts)
        counts /= counts.sum(axis=2, keepdims=True)
        counts /= counts.sum(axis=2, keepdims=True)
        return np.asarray(counts.reshape(len(statistics), self.width(num_features)))

    def _pseudo(self, reference: Floats, c: float) -> Floats:
        return np.asarray(c + 10.0 * c * reference)

    def log_prior(
        self, rows: Floats, num_features: int, reference: Floats, c: float
    ) -> tuple[Floats, Floats]:
        """Sum of pseudo-counts times log probability."""
        pseudo = np.tile(self._pseudo(reference, c), num_features)
        found = np.where(rows > 0, xlogy(pseudo, np.where(rows > 0, rows, 1.0)), 0.0).sum(axis=1)
        counts = np.tile(np.append(0.0, pseudo), (len(rows), 1))
        return found, self.gradient(rows, counts, num_features)

    def gradient(self, rows: Floats, statistics: Floats, num_features: int) -> Floats:
        """N_j - probability_j sum_i n_i in every table, over the possible categories."""
        tables = self._tables(rows)
        counts = np.where(tables > 0, self._tables(statistics[:, 1:]), 0.0)
        found = counts - tables * counts.sum(axis=2, keepdims=True)
        return np.asarray(found.reshape(rows.shape))

    def free(self, rows: Floats, num_features: int) -> Floats:
        """Log probabilities."""
        with np.errstate(divide="ignore"):
            return np.log(rows)

    def from_free(self, free: Floats, num_features: int) -> Floats:
        """The softmax of each table."""
        with np.errstate(under="ignore"):
            found = softmax(self._tables(free), axis=2) if free.size else free
        return np.asarray(found).reshape(free.shape)

    def refer(self, features: Floats, values: Floats, num_features: int) -> tuple[float, ...]:
        """The pooled table, with one more observation spread over the categories."""
        codes = values.astype(np.int64)
        counts = np.bincount(codes, minlength=self.num_categories) + 1.0 / self.num_categories
        return tuple((counts / counts.sum()).tolist())

    def spread(
        self,
        rows: Floats,
        num_features: int,
        reference: Floats,
        rng: np.random.Generator,
        noise: float,
    ) -> Floats:
        """Probabilities times Exp(1)."""
        tables = self._tables(rows * rng.standard_exponential(rows.shape) ** noise + NO_WEIGHT)
        return np.asarray((tables / tables.sum(axis=2, keepdims=True)).reshape(rows.shape))

    def problems(self, rows: Floats, num_features: int) -> list[str]:
        """Tables that are no distributions."""
        found = []
        for row in self._tables(rows):
            wrong = Categorical(self.num_categories).violations(row)
            found.append(wrong[0].partition(": ")[2] if wrong else "")
        return found


def _are_codes(values: Floats, num_categories: int) -> Bools:
    with np.errstate(invalid="ignore"):
        return np.asarray((values >= 0) & (values < num_categories) & (values == np.floor(values)))


def _codes(values: Floats, num_categories: int) -> tuple[Ints, Bools]:
    """Category codes, 0 where a value is none, and which values are codes."""
    counted = _are_codes(values, num_categories)
    return np.where(counted, values, 0.0).astype(np.int64), counted


RULES: tuple[type[Rule], ...] = (Linear, LogLinear, Softmax, Table)
