"""Von Mises leaves for angles, directions and hours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import i0e, i1e

from dspn._arguments import Floats
from dspn.leaves.base import NO_WEIGHT, Family, Prior, chosen_prior
from dspn.options import number_field

_LARGEST_CONCENTRATION: Final = 1e6
# Nodes and weights on [0, 1]; enough for a normal density over fourteen standard deviations.
_NODES, _WEIGHTS = (0.5 * part for part in np.polynomial.legendre.leggauss(64))
# Beyond this many 1 / sqrt(concentration) a density is below 1e-17 of what it was.
_REACH: Final = math.pi * math.sqrt(39.0 / 2.0)


@final
@dataclass(frozen=True)
class VonMisesPrior(Prior):
    """`pseudo_count` observations in all directions, and the largest concentration of a leaf."""

    pseudo_count: float = number_field(0.1, least=0)
    max_concentration: float = number_field(1e4, above=0, most=_LARGEST_CONCENTRATION)


@final
@dataclass(frozen=True)
class VonMises(Family):
    """p(x) ~ exp(concentration cos(x - location)) on a circle; columns location, concentration.

    The circle has the circumference `period`: 24 for hours, 360 for degrees, 2 pi by default. A
    value is a number from `low` to `low + period`, of which both ends are the same point; others
    are impossible. Concentration 0 is the uniform distribution.

    Distribution functions and quantiles are those of numbers from `low` up: the circle is cut
    there. Mean and variance are not: the mean is the mean direction, and the variance is the
    expected square of the distance from it the shorter way round, as SciPy has them.
    """

    period: float = number_field(2.0 * math.pi, above=0)
    low: float = number_field(0.0)

    name = "von_mises"
    num_parameters = 2  # location and concentration
    num_statistics = 3  # the weight, cos and sin of the angle
    num_free = 2  # concentration times cos and sin of the location

    @property
    def default_prior(self) -> VonMisesPrior:
        """A tenth of an observation in all directions."""
        return VonMisesPrior()

    def scaled_to(self, values: Floats) -> VonMises:
        """The family itself: the period is its scale."""
        return self

    def coordinates(self, values: Floats) -> Floats:
        """Cos and sin of the angle."""
        angles = self._angles(np.asarray(values, dtype=np.float64))
        return np.column_stack([np.cos(angles), np.sin(angles)])

    def _angles(self, values: Floats) -> Floats:
        """Angles from `low`."""
        with np.errstate(under="ignore"):
            return (values - self.low) * (2.0 * math.pi / self.period)

    def _wrapped(self, angles: Floats) -> Floats:
        """Values of angles from `low`, at least that and below `low + period`."""
        turns = np.mod(angles / (2.0 * math.pi), 1.0)
        return self.low + self.period * np.where(turns < 1.0, turns, 0.0)

    def _is_possible(self, values: Floats) -> NDArray[np.bool_]:
        return np.asarray((values >= self.low) & (values <= self.low + self.period))

    def log_prob(self, parameters: Floats, values: Floats) -> Floats:
        """Concentration (cos(x - location) - 1) and the constant, (V, L)."""
        values = np.asarray(values, dtype=np.float64)
        possible = self._is_possible(values)
        points = np.where(possible, values, self.low)
        table = np.subtract.outer(points, parameters[:, 0])
        table = np.sin(table * (math.pi / self.period))
        table *= table * (-2.0 * parameters[:, 1])
        table -= np.log(self.period * i0e(parameters[:, 1]))
        table[~possible] = -np.inf
        table[np.isnan(values)] = 0.0
        return table

    def statistics(self, values: Floats) -> Floats:
        """(1, cos, sin) of the angle from `low`."""
        values = np.asarray(values, dtype=np.float64)
        possible = self._is_possible(values)
        angles = self._angles(np.where(possible, values, self.low))
        with np.errstate(under="ignore"):
            parts = [possible, possible * np.cos(angles), possible * np.sin(angles)]
            return np.column_stack(parts)

    def maximise(self, statistics: Floats, prior: Prior | None = None) -> Floats:
        """The direction of the sum, and the concentration with its mean length."""
        chosen = chosen_prior(prior, self.default_prior)
        weight, cosine, sine = statistics.T
        empty = weight < NO_WEIGHT
        total = np.where(empty, 1.0, weight + chosen.pseudo_count)
        length = np.where(empty, 0.0, np.hypot(cosine, sine) / total)
        locations = np.where(empty, self.low, self._wrapped(np.arctan2(sine, cosine)))
        concentrations = np.minimum(_concentration(length), chosen.max_concentration)
        return np.column_stack([locations, concentrations])

    def log_prior(self, parameters: Floats, prior: Prior | None = None) -> float:
        """-c sum_l log I0(concentration_l); -inf above the largest concentration."""
        chosen = chosen_prior(prior, self.default_prior)
        concentrations = parameters[:, 1]
        if np.any(concentrations > chosen.max_concentration):
            return -math.inf
        return float(-chosen.pseudo_count * np.sum(np.log(i0e(concentrations)) + concentrations))

    def free(self, parameters: Floats) -> Floats:
        """Concentration (cos, sin) of the location."""
        angles = self._angles(parameters[:, 0])
        return np.asarray(parameters[:, 1:] * np.column_stack([np.cos(angles), np.sin(angles)]))

    def from_free(self, free: Floats) -> Floats:
        """Direction and length of the vector."""
        locations = self._wrapped(np.arctan2(free[:, 1], free[:, 0]))
        return np.column_stack([locations, np.hypot(free[:, 0], free[:, 1])])

    def free_gradient(self, parameters: Floats, statistics: Floats) -> Floats:
        """Sum over x of (cos, sin) - E[(cos, sin) | leaf]."""
        angles = self._angles(parameters[:, :1])
        lengths = statistics[:, :1] * _mean_length(parameters[:, 1:])
        own = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
        return np.asarray(statistics[:, 1:] - lengths * own)

    def free_log_prior(
        self, parameters: Floats, prior: Prior | None = None
    ) -> tuple[float, Floats]:
        """`log_prior` and its gradient."""
        chosen = chosen_prior(prior, self.default_prior)
        statistics = np.tile([chosen.pseudo_count, 0.0, 0.0], (len(parameters), 1))
        return self.log_prior(parameters, chosen), self.free_gradient(parameters, statistics)

    def free_bounds(self, prior: Prior | None = None) -> tuple[Floats, Floats]:
        """A square in the circle of the largest concentration."""
        largest = chosen_prior(prior, self.default_prior).max_concentration
        side = np.full(2, largest * (math.sqrt(0.5) - 1e-12))
        return -side, side

    def sample(self, parameters: Floats, rng: np.random.Generator) -> Floats:
        """One angle for each row, from `low` up."""
        angles = rng.vonmises(self._angles(parameters[:, 0]), parameters[:, 1])
        return self._wrapped(angles)

    def mode(self, parameters: Floats) -> Floats:
        """The location, which is also the mean direction."""
        return np.array(parameters[:, 0])

    mean = mode

    def variance(self, parameters: Floats) -> Floats:
        """E of the squared distance from the location, the shorter way round."""
        concentrations = parameters[:, 1]
        width = np.minimum(math.pi, _REACH / np.sqrt(np.maximum(concentrations, NO_WEIGHT)))
        total = np.zeros_like(width)
        for node, share in zip(_NODES + 0.5, _WEIGHTS, strict=True):
            angle = width * node
            height = np.exp(-2.0 * concentrations * np.sin(0.5 * angle) ** 2)
            total += share * angle * angle * height
        total *= width / (math.pi * i0e(concentrations))
        return np.asarray(total * (self.period / (2.0 * math.pi)) ** 2)

    def mixture_moments(self, parameters: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Mean direction of each mixture, and the expected squared distance from it.

        The square of a leaf's distance is that of its location and its own variance, which is exact
        unless the leaf reaches round to the other side.
        """
        angles, lengths = self._angles(parameters[:, 0]), _mean_length(parameters[:, 1])
        cosine = (weights * (lengths * np.cos(angles))).sum(axis=1)
        sine = (weights * (lengths * np.sin(angles))).sum(axis=1)
        means = self._wrapped(np.arctan2(sine, cosine))
        turns = (parameters[:, 0] - means[:, None]) / self.period
        shorter = (turns - np.round(turns)) * self.period
        return means, (weights * (shorter * shorter + self.variance(parameters))).sum(axis=1)

    def cdf(self, parameters: Floats, values: Floats) -> Floats:
        """P(low <= X <= x), (V, L)."""
        return self._between(parameters, values, 1.0)

    def sf(self, parameters: Floats, values: Floats) -> Floats:
        """P(x < X <= low + period), (V, L)."""
        return self._between(parameters, values, -1.0)

    def _between(self, parameters: Floats, values: Floats, sign: float) -> Floats:
        values = np.asarray(values, dtype=np.float64)
        points = np.clip(values, self.low, self.low + self.period)[:, None]
        return self._mass(parameters, points, sign)

    def _mass(self, parameters: Floats, points: Floats, sign: float) -> Floats:
        """The probability from the cut up to points (..., L), or down to them."""
        concentrations = parameters[:, 1]
        start = np.mod(-self._angles(parameters[:, 0]) + math.pi, 2.0 * math.pi) - math.pi
        ends = start + self._angles(points)
        # Angles run from the leaf's location; an end beyond pi has gone round the far side.
        far = ends > math.pi
        ends = np.where(far, ends - 2.0 * math.pi, ends)
        first, last = (start, ends) if sign > 0 else (ends, start)
        to_last, from_first = (_lower_tail(own, concentrations) for own in (last, -first))
        # Both ends on one side of the location: the difference of two small tails.
        to_first, from_last = (_lower_tail(own, concentrations) for own in (first, -last))
        inside = np.where(first > 0, from_first - from_last, to_last - to_first)
        found = np.where(far if sign > 0 else ~far, from_first + to_last, inside)
        return np.clip(found, 0.0, 1.0)

    def quantile_bounds(self, parameters: Floats, levels: Floats) -> tuple[Floats, Floats]:
        """Quantiles on the cut circle, by bisection in the nearer tail."""
        shape = len(levels), len(parameters)
        low, high = np.full(shape, self.low), np.full(shape, self.low + self.period)
        wide = levels[:, None]
        upper_tail = np.broadcast_to(wide > 0.5, shape)
        for _ in range(60):
            middle = 0.5 * (low + high)
            below = self._mass(parameters, middle, 1.0) < wide
            if upper_tail.any():
                above = self._mass(parameters, middle, -1.0) > 1.0 - wide
                below = np.where(upper_tail, above, below)
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        found = np.where(wide == 0, self.low, np.where(wide == 1, self.low + self.period, high))
        return found, np.array(found)

    def average(self, one: Floats, other: Floats, share: Floats) -> Floats:
        """Direction and concentration with the mean cos and sin of the mixtures."""
        parts = []
        for rows in (one, other):
            angles = self._angles(rows[:, :1])
            both = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
            parts.append(_mean_length(rows[:, 1:]) * both)
        cosine, sine = (share * parts[0] + (1.0 - share) * parts[1]).T
        own = np.column_stack([np.ones_like(sine), cosine, sine])
        return self.maximise(own, VonMisesPrior(0.0, _LARGEST_CONCENTRATION))

    def random(
        self, num_leaves: int, rng: np.random.Generator, values: Floats | None = None
    ) -> Floats:
        """Locations at random observations, moved a little; concentrations as of the data."""
        observed = self._observed(values)
        observed = observed[self._is_possible(observed)]
        angles = rng.uniform(0.0, 2.0 * math.pi, size=num_leaves)
        concentration = 1.0
        if observed.size:
            angles = self._angles(rng.choice(observed, size=num_leaves))
            total = self.statistics(observed).sum(axis=0, keepdims=True)
            concentration = float(np.clip(self.maximise(total)[0, 1], 1.0, 1e4))
        angles += 0.1 * rng.standard_normal(num_leaves) / math.sqrt(concentration)
        return np.column_stack([self._wrapped(angles), np.full(num_leaves, concentration)])

    def violations(self, parameters: Floats) -> list[str]:
        """Every row whose location is not on the circle or whose concentration is not allowed."""
        found = self._shape_violations(parameters)
        if found:
            return found
        possible = self._is_possible(parameters[:, 0])
        for row, (location, concentration) in enumerate(parameters.tolist()):
            if not possible[row]:
                rule = f"location must lie between {self.low:g} and {self.low + self.period:g}"
                found.append(f"row {row}: {rule}, but is {location}")
            if not 0 <= concentration <= _LARGEST_CONCENTRATION:
                rule = f"concentration must lie between 0 and {_LARGEST_CONCENTRATION:g}"
                found.append(f"row {row}: {rule}, but is {concentration}")
        return found


def _lower_tail(angles: Floats, concentrations: Floats) -> Floats:
    """P(-pi < angle from the location <= angles), by quadrature up to the nearer end.

    The density falls away from the location, so a few of its widths next to the end are enough; all
    terms are positive, and small probabilities keep their digits.
    """
    nearer = -np.abs(angles)
    reach = _REACH / np.sqrt(np.maximum(concentrations, NO_WEIGHT))
    width = np.minimum(nearer + math.pi, reach)
    total = np.zeros(np.broadcast_shapes(np.shape(angles), np.shape(concentrations)))
    for node, share in zip(_NODES + 0.5, _WEIGHTS, strict=True):
        height = np.sin(0.5 * (nearer - width * node))
        total += share * np.exp(-2.0 * concentrations * height * height)
    total *= width / (2.0 * math.pi * i0e(concentrations))
    return np.where(angles > 0, 1.0 - total, total)


def _mean_length(concentrations: Floats) -> Floats:
    """E[cos(x - location)] = I1(concentration) / I0(concentration)."""
    return np.asarray(i1e(concentrations) / i0e(concentrations))


def _concentration(lengths: Floats) -> Floats:
    """The concentration whose mean length is given: Fisher's approximation, then Newton's steps."""
    rest = np.maximum(1.0 - lengths, 0.5 / _LARGEST_CONCENTRATION)
    lengths = np.minimum(np.maximum(lengths, 0.0), 1.0 - rest)
    found = lengths * (2.0 - lengths * lengths) / (rest * (1.0 + lengths))
    for _ in range(8):
        own = _mean_length(found)
        with np.errstate(all="ignore"):
            slope = 1.0 - own * own - np.where(found > 1e-8, own / found, 0.5)
        step = (lengths - own) / np.maximum(slope, 1e-300)
        found = np.clip(found + step, 0.5 * found, 2.0 * found + 1e-300)
    return found
