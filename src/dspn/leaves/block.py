"""Gaussian leaves with a full covariance, over a block of continuous variables of a slice.

The first variable of a block carries it: its leaves have the means and the covariance of all, and
the density of whatever is observed of the block. The leaves of the other variables are silent: they
have no parameters and the density 1. Every variable of a block is told the entries of the others,
as kind "member" of `dspn.leaves.told.Source`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from dspn._arguments import Bools, Floats, Ints
from dspn.data.schema import Kind, Schema, Variable
from dspn.errors import DataError, StructureError
from dspn.leaves.base import FREE_ROUNDING, NO_WEIGHT, Contextual, Family, Prior, chosen_prior
from dspn.leaves.gaussian import LARGEST_SCALE, Gaussian
from dspn.leaves.told import Source, sources_of
from dspn.options import number_field

_LOG_TWO_PI = math.log(2.0 * math.pi)
# Numbers (slice, leaf, variable) that are held at a time: 32 MiB.
_MOST_CELLS = 1 << 22
# Correlation matrices whose least eigenvalue is below this are not told from singular ones.
_LEAST_EIGENVALUE = 1e-12


@final
@dataclass(frozen=True)
class GaussianBlockPrior(Prior):
    """`pseudo_count` observations of the means and variances of all data, without correlation.

    `min_variance` is the least variance of a variable given those before it in the block, in units
    of its variance in all data; the log prior is -inf below it.
    """

    pseudo_count: float = number_field(0.01, least=0)
    min_variance: float = number_field(1e-4, above=0)


@final
@dataclass(frozen=True)
class GaussianBlock(Contextual):
    """p(x_1..x_m) = N(x; mean, covariance) over a block of variables, for one of its members.

    A row of parameters of the first member has the m means and the lower triangle of the covariance
    row by row; those of the others are empty. Values come with those of the other members, in the
    order of the block (`dspn.leaves.told.told_values`).

    Attributes:
        columns: The variables of the block, by their numbers in the schema.
        member: Which of them the leaves are of.
        location: Means of all data, and `scale` their standard deviations: statistics and priors
            are of standardised values. `scaled_to` takes them from data.
    """

    columns: tuple[int, ...]
    member: int = 0
    location: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    name = "gaussian_block"

    def _check(self) -> None:
        columns = tuple(int(own) for own in self.columns)
        if len(columns) < 2 or len(set(columns)) < len(columns):
            raise StructureError(
                f"`columns` of GaussianBlock must be two or more different variables, but are "
                f"{self.columns!r}."
            )
        if self.member not in range(len(columns)):
            raise StructureError(
                f"`member` of GaussianBlock must be a number from 0 to {len(columns) - 1}, but is "
                f"{self.member!r}."
            )
        object.__setattr__(self, "columns", columns)
        for name, usual in (("location", 0.0), ("scale", 1.0)):
            own = tuple(float(value) for value in getattr(self, name)) or (usual,) * len(columns)
            if len(own) != len(columns):
                raise StructureError(f"`{name}` of GaussianBlock must have {len(columns)} numbers.")
            object.__setattr__(self, name, own)
        if not all(1.0 / LARGEST_SCALE <= own <= LARGEST_SCALE for own in self.scale):
            raise StructureError(
                f"`scale` of GaussianBlock must be positive numbers below {LARGEST_SCALE:g}, but "
                f"is {self.scale}. Change the unit of the variable."
            )

    @property
    def size(self) -> int:
        """m, the number of variables of the block."""
        return len(self.columns)

    @property
    def carrier(self) -> int:
        """The variable whose leaves have the parameters."""
        return self.columns[0]

    @property
    def is_silent(self) -> bool:
        """Whether the leaves have no parameters, and the density 1."""
        return self.member > 0

    @property
    def sources(self) -> tuple[Source, ...]:  # type: ignore[override]
        """The other members of the slice."""
        return tuple(Source("member", own, 0, 0) for own in np.delete(self.columns, self.member))

    def moved(self, places: Mapping[int, int]) -> GaussianBlock:
        """The same block in a schema where variables have other places."""
        return replace(self, columns=tuple(places[own] for own in self.columns))

    @property
    def plain(self) -> Gaussian:
        """What a member is given the others."""
        return Gaussian(self.location[self.member], self.scale[self.member])

    @property
    def num_parameters(self) -> int:
        """Means, and the lower triangle of the covariance."""
        return 0 if self.is_silent else self.size + self.size * (self.size + 1) // 2

    @property
    def num_statistics(self) -> int:
        """The weight, z and z z'."""
        return 1 if self.is_silent else 1 + self.size + self.size * self.size

    @property
    def num_free(self) -> int:
        """As many as parameters."""
        return self.num_parameters

    @property
    def default_prior(self) -> GaussianBlockPrior:
        """A hundredth of an observation, variances above 1e-4 of those of all data."""
        return GaussianBlockPrior()

    # Values and parameters in standard units

    @cached_property
    def _lower(self) -> tuple[Ints, Ints]:
        """Rows and columns of the lower triangle, row by row."""
        return np.tril_indices(self.size)

    def _standard_values(self, values: Floats) -> Floats:
        """(x - location) / scale of the whole block, (V, m); a vector has no other members."""
        values = np.asarray(values, dtype=np.float64)
        found = np.full((len(values), self.size), np.nan)
        others = np.delete(np.arange(self.size), self.member)
        if values.ndim == 1:
            found[:, self.member] = values
        else:
            found[:, self.member], found[:, others] = values[:, 0], values[:, 1:]
        with np.errstate(all="ignore"):
            return np.asarray((found - np.array(self.location)) / np.array(self.scale))

    def moments(self, parameters: Floats) -> tuple[Floats, Floats]:
        """Means (L, m) and covariances (L, m, m) of rows of the first member."""
        covariance = np.empty((len(parameters), self.size, self.size))
        rows, columns = self._lower
        covariance[:, rows, columns] = covariance[:, columns, rows] = parameters[:, self.size :]
        return np.array(parameters[:, : self.size]), covariance

    def from_moments(self, means: Floats, covariances: Floats) -> Floats:
        """Rows of parameters of the first member from means (L, m) and covariances (L, m, m)."""
        return np.concatenate([means, covariances[:, self._lower[0], self._lower[1]]], axis=1)

    def _standard(self, parameters: Floats) -> tuple[Floats, Floats]:
        means, covariance = self.moments(parameters)
        scale = np.array(self.scale)
        return (means - np.array(self.location)) / scale, covariance / scale / scale[:, None]

    def _original(self, means: Floats, covariance: Floats) -> Floats:
        scale = np.array(self.scale)
        moved = np.array(self.location) + scale * means
        return self.from_moments(moved, covariance * scale * scale[:, None])

    def scaled_to(self, values: Floats) -> GaussianBlock:
        """Location and scale are means and standard deviations of the data."""
        plain = replace(self, location=(), scale=())
        found = [Gaussian().scaled_to(own) for own in plain._standard_values(values).T]
        return replace(
            self,
            location=tuple(own.location for own in found),
            scale=tuple(own.scale for own in found),
        )

    # A member given others

    def _given(self, parameters: Floats, known: Ints) -> tuple[Floats, Floats, Floats]:
        """A member given others of the block: constant (L,), slopes (L, o) and variance (L,)."""
        means, covariance = self._standard(parameters)
        chosen = np.append(known, self.member)
        factor = np.linalg.cholesky(covariance[:, chosen[:, None], chosen])
        inner, last = factor[:, :-1, :-1], factor[:, -1, :-1, None]
        slopes = np.linalg.solve(np.swapaxes(inner, 1, 2), last)[:, :, 0]
        constant = means[:, self.member] - (slopes * means[:, known]).sum(axis=1)
        return constant, slopes, np.asarray(factor[:, -1, -1] ** 2)

    def given(self, parameters: Floats, values: Floats) -> tuple[Family, Floats]:
        """The member given what is known of the others, (V, L, 2), from rows of the first."""
        z = self._standard_values(values)
        z[:, self.member] = np.nan
        found = np.empty((len(z), len(parameters), 2))
        for rows, known in _patterns(z):
            constant, slopes, variance = self._given(parameters, known)
            found[rows, :, 0] = constant + z[np.ix_(rows, known)] @ slopes.T
            found[rows, :, 1] = variance
        return self.plain, self._in_units(found)

    def resolve(self, parameters: Floats, context: Floats) -> Floats:
        """The member given its context, (M, 2), each with its own row of the first member."""
        z = self._standard_values(np.column_stack([np.full(len(context), np.nan), context]))
        found = np.empty((len(z), 2))
        for rows, known in _patterns(z):
            constant, slopes, variance = self._given(parameters[rows], known)
            found[rows, 0] = constant + (slopes * z[np.ix_(rows, known)]).sum(axis=1)
            found[rows, 1] = variance
        return self._in_units(found)

    def _in_units(self, found: Floats) -> Floats:
        location, scale = self.location[self.member], self.scale[self.member]
        found[..., 0] = location + scale * found[..., 0]
        found[..., 1] *= scale * scale
        return found

    def restricted(self, members: Sequence[int], columns: Sequence[int]) -> list[Family]:
        """The families of some members by themselves, as variables of other numbers."""
        location, scale = (tuple(own[m] for m in members) for own in (self.location, self.scale))
        if len(members) == 1:
            return [Gaussian(location[0], scale[0])]
        count = range(len(members))
        return [GaussianBlock(tuple(columns), member, location, scale) for member in count]

    def restricted_rows(self, parameters: Floats, members: Sequence[int]) -> Floats:
        """Rows of the first member as those of some members by themselves."""
        means, covariance = self.moments(parameters)
        chosen = np.array(members)
        rows, columns = np.tril_indices(len(members))
        own = covariance[:, chosen[rows], chosen[columns]]
        return np.concatenate([means[:, chosen], own], axis=1)

    # Densities and learning

    def log_prob(self, parameters: Floats, values: Floats) -> Floats:
        """Log density of what is observed of the block, (V, L)."""
        found = np.zeros((len(values), len(parameters)))
        if self.is_silent:
            return found
        z = self._standard_values(values)
        means, covariance = self._standard(parameters)
        for rows, known in _patterns(z):
            if not known.size:
                continue
            inverse = np.linalg.inv(np.linalg.cholesky(covariance[:, known[:, None], known]))
            log_scale = np.log(np.array(self.scale)[known]).sum() + 0.5 * known.size * _LOG_TWO_PI
            constant = np.log(np.diagonal(inverse, axis1=1, axis2=2)).sum(axis=1) - log_scale
            offset = np.einsum("lpo,lo->lp", inverse, means[:, known])
            flat = inverse.reshape(-1, known.size).T
            height = max(1, _MOST_CELLS // max(1, flat.shape[1]))
            for start in range(0, len(rows), height):
                part = rows[start : start + height]
                with np.errstate(all="ignore"):
                    left = (z[np.ix_(part, known)] @ flat).reshape(len(part), *offset.shape)
                    left -= offset
                    own = constant - 0.5 * np.einsum("vlp,vlp->vl", left, left)
                found[part] = np.nan_to_num(own, nan=-np.inf, posinf=-np.inf, neginf=-np.inf)
        return found

    def log_peak(self, parameters: Floats, values: Floats) -> Floats:
        """The largest log density of the block with what is observed of it, (V, L)."""
        found = self.log_prob(parameters, values)
        if self.is_silent:
            return found
        _, covariance = self._standard(parameters)
        scale = np.log(np.array(self.scale))
        for rows, known in _patterns(self._standard_values(values)):
            missing = np.delete(np.arange(self.size), known)
            inner = covariance[:, known[:, None], known]
            # det(all) / det(known) is the determinant of the missing given the known.
            left = np.linalg.slogdet(covariance)[1] - np.linalg.slogdet(inner)[1]
            constant = 0.5 * missing.size * _LOG_TWO_PI + scale[missing].sum()
            found[rows] -= 0.5 * left + constant
        return found

    def is_missing(self, values: Floats) -> Bools:
        """Where the first member has to be completed: any member is missing."""
        if self.is_silent:
            return np.zeros(len(values), dtype=np.bool_)
        return np.asarray(np.isnan(self._standard_values(values)).any(axis=1))

    def _counted(self, z: Floats) -> Bools:
        """Slices with an entry, all of whose entries have a square that a float holds."""
        with np.errstate(invalid="ignore"):
            return np.asarray(~np.isnan(z).all(axis=1) & ~(np.abs(z) > LARGEST_SCALE).any(axis=1))

    def statistics(self, values: Floats) -> Floats:
        """(1, z, z z'), a missing entry being that of a standard normal number by itself."""
        z = self._standard_values(values)
        if self.is_silent:
            return np.isfinite(z[:, [self.member]]).astype(np.float64)
        counted, missing = self._counted(z), np.isnan(z)
        filled = np.where(missing | ~counted[:, None], 0.0, z)
        squares = filled[:, :, None] * filled[:, None]
        places = np.arange(self.size)
        squares[:, places, places] += missing
        found = np.concatenate([np.ones((len(z), 1)), filled, squares.reshape(len(z), -1)], axis=1)
        return np.where(counted[:, None], found, 0.0)

    def expected_statistics(self, parameters: Floats, values: Floats, counts: Floats) -> Floats:
        """Sums of counts times E[(1, z, z z') | what is observed, leaf].

        A slice without any entry of the block says nothing of it and is left out.
        """
        if self.is_silent:
            return counts @ self.statistics(values)
        z = self._standard_values(values)
        z = np.where(self._counted(z)[:, None], z, np.nan)
        means, covariance = self._standard(parameters)
        count, size = len(counts), self.size
        found = np.zeros((count, self.num_statistics))
        for rows, known in _patterns(z):
            if not known.size:
                continue
            own, seen = counts[:, rows], z[np.ix_(rows, known)]
            weight, first = own.sum(axis=1), own @ seen
            products = (seen[:, :, None] * seen[:, None]).reshape(len(seen), -1)
            second = (own @ products).reshape(count, known.size, known.size)
            if known.size < size:
                slopes, left = _completion(covariance, known)
                offset = means - np.einsum("lmo,lo->lm", slopes, means[:, known])
                moved = np.einsum("lmo,lo->lm", slopes, first)
                cross = offset[:, :, None] * moved[:, None]
                second = slopes @ second @ np.swapaxes(slopes, 1, 2)
                second += cross + np.swapaxes(cross, 1, 2)
                constant = left + offset[:, :, None] * offset[:, None]
                second += weight[:, None, None] * constant
                first = weight[:, None] * offset + moved
            found[:, 0] += weight
            found[:, 1 : 1 + size] += first
            found[:, 1 + size :] += second.reshape(count, -1)
        return found

    def mean_statistics(self, parameters: Floats) -> Floats:
        """E[(1, z, z z')] of each leaf of the first member, (L, S)."""
        means, covariance = self._standard(parameters)
        second = covariance + means[:, :, None] * means[:, None]
        ones = np.ones((len(means), 1))
        return np.concatenate([ones, means, second.reshape(len(means), -1)], axis=1)

    def _sums(self, statistics: Floats) -> tuple[Floats, Floats, Floats]:
        """Weights (L,), sums of z (L, m) and of z z' (L, m, m)."""
        second = statistics[:, 1 + self.size :].reshape(-1, self.size, self.size)
        return statistics[:, 0], statistics[:, 1 : 1 + self.size], second

    def maximise(self, statistics: Floats, prior: Prior | None = None) -> Floats:
        """Mean and covariance of observations and pseudo-observations, variances floored.

        The likelihood is a product of regressions of each member on those before it, whose residual
        variances are free of each other: where one lies below the floor, the floor is the maximum.
        """
        chosen = chosen_prior(prior, self.default_prior)
        if self.is_silent:
            return np.empty((len(statistics), 0))
        c = chosen.pseudo_count
        statistics = np.where(statistics[:, :1] < NO_WEIGHT, 0.0, statistics)
        weight, first, second = self._sums(statistics)
        total = weight + c
        empty = total < NO_WEIGHT
        total = np.where(empty, 1.0, total)
        unit = np.eye(self.size)
        means = first / total[:, None]
        spread = (second + c * unit) / total[:, None, None] - means[:, :, None] * means[:, None]
        spread = np.where(empty[:, None, None], unit, spread)
        triangle, residual = _decompose(0.5 * (spread + np.swapaxes(spread, 1, 2)))
        low = (residual < chosen.min_variance).any(axis=1)
        if low.any():
            residual = np.maximum(residual[low], chosen.min_variance)
            own = triangle[low]
            spread[low] = (own * residual[:, None]) @ np.swapaxes(own, 1, 2)
        return self._original(means, spread)

    def log_prior(self, parameters: Floats, prior: Prior | None = None) -> float:
        """-c/2 sum_l log det(2 pi C_l) + tr(C_l^-1 (1 + m_l m_l')); -inf below the floor."""
        return self.free_log_prior(parameters, prior)[0]

    def free(self, parameters: Floats) -> Floats:
        """Means, slopes of each member on those before it, and the logs of residual variances."""
        if self.is_silent:
            return np.empty((len(parameters), 0))
        means, covariance = self._standard(parameters)
        triangle, residual = _decompose(covariance)
        return self._pack(means, np.asarray(np.linalg.inv(triangle)), np.log(residual))

    def _pack(self, means: Floats, lower: Floats, logs: Floats) -> Floats:
        rows, columns = np.tril_indices(self.size, -1)
        return np.concatenate([means, lower[:, rows, columns], logs], axis=1)

    def from_free(self, free: Floats) -> Floats:
        """The parameters at free coordinates."""
        if self.is_silent:
            return np.empty((len(free), 0))
        size = self.size
        inverse = np.tile(np.eye(size), (len(free), 1, 1))
        rows, columns = np.tril_indices(size, -1)
        inverse[:, rows, columns] = free[:, size:-size]
        triangle = np.asarray(np.linalg.inv(inverse))
        with np.errstate(over="ignore", under="ignore"):
            covariance = (triangle * np.exp(free[:, None, -size:])) @ np.swapaxes(triangle, 1, 2)
        return self._original(free[:, :size], covariance)

    def free_gradient(self, parameters: Floats, statistics: Floats) -> Floats:
        """With residuals e = B (z - mean) of variance d: B'(e / d), -e (z - mean)' / d, e^2 / d."""
        if self.is_silent:
            return np.empty((len(parameters), 0))
        means, covariance = self._standard(parameters)
        triangle, residual = _decompose(covariance)
        lower = np.linalg.inv(triangle)
        weight, first, second = self._sums(statistics)
        left = first - weight[:, None] * means
        cross = means[:, :, None] * first[:, None]
        square = second - cross - np.swapaxes(cross, 1, 2)
        square = square + weight[:, None, None] * (means[:, :, None] * means[:, None])
        moved = lower @ square
        by_mean = np.einsum("lji,lj->li", lower, (lower @ left[:, :, None])[:, :, 0] / residual)
        by_log = 0.5 * (np.einsum("lij,lij->li", moved, lower) / residual - weight[:, None])
        return self._pack(by_mean, -moved / residual[:, :, None], by_log)

    def free_log_prior(
        self, parameters: Floats, prior: Prior | None = None
    ) -> tuple[float, Floats]:
        """`log_prior`, and its gradient: that of c observations of the prior's moments."""
        chosen = chosen_prior(prior, self.default_prior)
        c = chosen.pseudo_count
        if self.is_silent:
            return 0.0, np.empty((len(parameters), 0))
        means, covariance = self._standard(parameters)
        triangle, residual = _decompose(covariance)
        moments = np.concatenate([[1.0], np.zeros(self.size), np.eye(self.size).ravel()])
        statistics = np.tile(c * moments, (len(parameters), 1))
        slope = self.free_gradient(parameters, statistics)
        # Standard rows come from those in the units of the data and may be off by rounding.
        if (residual < chosen.min_variance * (1.0 - 1e-9)).any():
            return -math.inf, slope
        lower = np.linalg.inv(triangle)
        squares = (lower * lower).sum(axis=2) + (lower @ means[:, :, None])[:, :, 0] ** 2
        total = np.sum(_LOG_TWO_PI + np.log(residual) + squares / residual)
        return float(-0.5 * c * total) if c else 0.0, slope

    def free_bounds(self, prior: Prior | None = None) -> tuple[Floats, Floats]:
        """Any means and slopes; residual variances above the floor."""
        floor = chosen_prior(prior, self.default_prior).min_variance
        lower, upper = np.full((2, self.num_free), np.inf) * np.array([[-1.0], [1.0]])
        if not self.is_silent:
            lower[-self.size :] = math.log(floor) + 1e3 * FREE_ROUNDING
            upper[-self.size :] = 300.0
        return lower, upper

    def average(self, one: Floats, other: Floats, share: Floats) -> Floats:
        """Means and covariances of the mixtures."""
        rows = super().average(one, other, share)
        if not self.is_silent:
            gap = one[:, : self.size] - other[:, : self.size]
            own = (gap[:, :, None] * gap[:, None])[:, self._lower[0], self._lower[1]]
            rows[:, self.size :] += share * (1.0 - share) * own
        return rows

    def largest_log_likelihood(self, statistics: Floats) -> Floats:
        """-n/2 log of the determinant of the covariance."""
        shape = statistics.shape[:-1]
        rows = statistics.reshape(-1, self.num_statistics)
        if self.is_silent:
            return np.zeros(shape)
        _, residual = _decompose(self._standard(self.maximise(rows))[1])
        return np.reshape(-0.5 * rows[:, 0] * np.log(residual).sum(axis=1), shape)

    def random(
        self, num_leaves: int, rng: np.random.Generator, values: Floats | None = None
    ) -> Floats:
        """Means at random slices moved by a tenth of a scale, variances those of the data."""
        own = self if values is None else self.scaled_to(values)
        if self.is_silent:
            return np.empty((num_leaves, 0))
        means = rng.standard_normal((num_leaves, self.size))
        if values is not None:
            z = own._standard_values(values)
            z = z[np.isfinite(z).any(axis=1)]
            if len(z):
                drawn = z[rng.integers(0, len(z), size=num_leaves)]
                means = np.where(np.isfinite(drawn), drawn, 0.0) + 0.1 * means
        return own._original(means, np.tile(np.eye(self.size), (num_leaves, 1, 1)))

    def spread(self, rows: Floats, rng: np.random.Generator, noise: float) -> Floats:
        """Leaves whose means are moved by `noise` standard deviations."""
        if self.is_silent:
            return rows
        means, covariance = self._standard(rows)
        step = np.linalg.cholesky(covariance) @ rng.standard_normal((*means.shape, 1))
        return self._original(means + noise * step[:, :, 0], covariance)

    def violations(self, parameters: Floats) -> list[str]:
        """Every row whose means are not finite or whose covariance is not positive definite."""
        found = self._shape_violations(parameters)
        if found or self.is_silent:
            return found
        means, covariance = self.moments(parameters)
        for row, (mean, own) in enumerate(zip(means, covariance, strict=True)):
            if not np.isfinite(mean).all():
                found.append(f"row {row}: means must be finite, but are {mean.tolist()}")
            variances = np.diagonal(own)
            if not (np.isfinite(own).all() and (variances > 0).all()):
                found.append(f"row {row}: variances must be positive, but are {variances.tolist()}")
                continue
            least = np.linalg.eigvalsh(own / np.sqrt(np.outer(variances, variances)))[0]
            if least < _LEAST_EIGENVALUE:
                found.append(
                    f"row {row}: the covariance must be positive definite, but the correlation "
                    f"matrix has the eigenvalue {least:.3g}"
                )
        return found

    # A leaf without its context: a member by itself. Rows of a silent leaf say nothing.

    def _alone(self, parameters: Floats) -> Floats:
        if parameters.shape[1] == 0:
            return np.full((len(parameters), 2), np.nan)
        return self.restricted_rows(parameters, [self.member])

    def sample(self, parameters: Floats, rng: np.random.Generator) -> Floats:
        """Draws of the member."""
        return self.plain.sample(self._alone(parameters), rng)

    def mean(self, parameters: Floats) -> Floats:
        """The mean of the member."""
        return self._alone(parameters)[:, 0]

    mode = mean

    def variance(self, parameters: Floats) -> Floats:
        """The variance of the member."""
        return self._alone(parameters)[:, 1]

    def cdf(self, parameters: Floats, values: Floats) -> Floats:
        """P(X <= value) of the member."""
        return self.plain.cdf(self._alone(parameters), values)

    def sf(self, parameters: Floats, values: Floats) -> Floats:
        """P(X > value) of the member."""
        return self.plain.sf(self._alone(parameters), values)

    def quantile_bounds(self, parameters: Floats, levels: Floats) -> tuple[Floats, Floats]:
        """Quantiles of the member."""
        return self.plain.quantile_bounds(self._alone(parameters), levels)


def _patterns(z: Floats) -> Iterator[tuple[Ints, Ints]]:
    """The slices of each pattern of missing entries, and the members that are known in them."""
    known = ~np.isnan(z)
    if known.all():
        if len(z):
            yield np.arange(len(z)), np.arange(z.shape[1])
        return
    patterns, number = np.unique(known, axis=0, return_inverse=True)
    number = number.ravel()
    for index, pattern in enumerate(patterns):
        yield np.flatnonzero(number == index), np.flatnonzero(pattern)


def _completion(covariance: Floats, known: Ints) -> tuple[Floats, Floats]:
    """E[z | known] = mean + slopes (z - mean)_known, (L, m, o), and the covariance left over."""
    size = covariance.shape[1]
    missing = np.delete(np.arange(size), known)
    inner = covariance[:, known[:, None], known]
    across = covariance[:, known[:, None], missing]
    own = np.swapaxes(np.linalg.solve(inner, across), 1, 2)
    slopes = np.zeros((len(covariance), size, known.size))
    slopes[:, known, np.arange(known.size)] = 1.0
    slopes[:, missing] = own
    left = np.zeros(covariance.shape)
    left[:, missing[:, None], missing] = covariance[:, missing[:, None], missing] - own @ across
    return slopes, left


def _decompose(covariance: Floats) -> tuple[Floats, Floats]:
    """T with ones on its diagonal and d with T diag(d) T' the matrix; zeros where d is zero."""
    left, size = covariance.copy(), covariance.shape[1]
    triangle = np.tile(np.eye(size), (len(left), 1, 1))
    residual = np.zeros(left.shape[:2])
    for j in range(size):
        own = np.maximum(left[:, j, j], 0.0)
        residual[:, j] = own
        # What is left of a member that those before it explain is rounding.
        some = own > 1e-14 * covariance[:, j, j]
        column = left[:, j + 1 :, j] / np.where(some, own, 1.0)[:, None]
        triangle[:, j + 1 :, j] = np.where(some[:, None], column, 0.0)
        left[:, j + 1 :, j + 1 :] -= (
            triangle[:, j + 1 :, None, j] * triangle[:, None, j + 1 :, j] * own[:, None, None]
        )
    return triangle, residual


# Schemas


def carrier_of(schema: Schema, variable: int) -> int:
    """The variable whose leaves have the parameters of a variable: itself unless in a block."""
    leaf = schema[variable].leaf
    return leaf.carrier if isinstance(leaf, GaussianBlock) else variable


def has_blocks(schema: Schema) -> bool:
    """Whether some variables have a covariance."""
    return any(isinstance(variable.leaf, GaussianBlock) for variable in schema)


def with_blocks(schema: Schema, covariance: str | Iterable[Sequence[str]]) -> Schema:
    """The schema with Gaussian leaves of a full covariance over blocks of variables.

    Args:
        schema: The variables.
        covariance: "full" for one block of all continuous variables without a leaf family of their
            own; or a list of blocks, each a list of names; "diag" for none.
    """
    if isinstance(covariance, str):
        if covariance not in ("auto", "diag", "full"):
            raise DataError(
                "`covariance` must be 'diag', 'full' or a list of blocks of names such as "
                f"[('x', 'y')], but is {covariance!r}."
            )
        every = [own.name for own in schema if own.kind == Kind.CONTINUOUS and own.leaf is None]
        told = [own.name for own in schema if sources_of(own)]
        if covariance == "full" and told and not has_blocks(schema):
            raise DataError(
                f"the leaves of {told[0]!r} are told lags or inputs, and cannot have a covariance "
                "as well; leave `covariance` out, or `lags`, `within` and `leaf_inputs`."
            )
        if covariance == "full" and len(every) < 2 and not has_blocks(schema):
            raise DataError(
                "`covariance='full'` needs two or more continuous variables with Gaussian leaves, "
                f"but the data have {len(every)}; leave it out."
            )
        blocks: list[Any] = [every] if covariance == "full" and len(every) > 1 else []
    else:
        blocks = list(covariance)
    variables = list(schema)
    for block in blocks:
        if isinstance(block, str) or len(block) < 2 or len(set(block)) < len(block):
            raise DataError(
                "each block of `covariance` must be a list of two or more different names, but "
                f"one is {block!r}."
            )
        columns = tuple(schema.index(name) for name in block)
        for member, column in enumerate(columns):
            variables[column] = _in_block(variables[column], GaussianBlock(columns, member))
    return replace(schema, variables=tuple(variables))


def _in_block(variable: Variable, leaf: GaussianBlock) -> Variable:
    if variable.kind != Kind.CONTINUOUS:
        raise DataError(
            f"variable {variable.name!r} of a block of `covariance` must be continuous, but is "
            f"{variable.kind}; leave it out."
        )
    own = variable.leaf
    if isinstance(own, GaussianBlock) and own.columns == leaf.columns:
        return replace(variable, leaf=leaf)
    if isinstance(own, GaussianBlock):
        raise DataError(
            f"variable {variable.name!r} is in two blocks of `covariance`; put it into one."
        )
    if own is not None and not isinstance(own, Gaussian):
        raise DataError(
            f"variable {variable.name!r} of a block of `covariance` must have Gaussian leaves, but "
            f"has the family {own.name!r}; leave `leaf`, `lags` and `leaf_inputs` out, or the "
            "variable out of the block."
        )
    return replace(variable, leaf=leaf)
