"""What the numbers of a column look like: whether they count or rise, and which leaves may fit.

A proposal names a leaf family and its reason, in words; nothing is changed by it.
"""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.data.schema import Kind, Variable

MOST_COUNTED: Final = 1_000
"""Whole-number columns with larger values are not taken for counts."""

# Counts vary at least about as much as their mean; below this share of it, numbers are readings.
_LEAST_DISPERSION: Final = 0.5
_FEWEST: Final = 50
# Distinct values, and entries for each of them, from which on their frequencies have a shape.
_FEWEST_SPREAD: Final = 5
_FEWEST_EACH: Final = 10
_FEWEST_RISES: Final = 5
_MOST_LOOKED_AT: Final = 4_000
# A Poisson count whose variance is this many times its mean is a poor description.
_DISPERSED: Final = 2.0
_SKEWED: Final = 1.0
# In normal deviations, by the median; a normal variable is never so far out.
_FAR: Final = 6.0
_MOST_FAR: Final = 0.05
_NORMAL_DEVIATION: Final = 0.6744897501960817
_DIRECTION: Final = re.compile(r"dir\b|direction|bearing|heading|azimuth|angle")
# A part of a name, the least and largest value, what the largest value at least is, and the family.
_CIRCLES: Final = (
    (re.compile(r"hour|\bhr\b|\bhod\b"), 0.0, 24.0, 12.0, "von_mises:24"),
    (re.compile(r"minute\b"), 0.0, 60.0, 30.0, "von_mises:60"),
    (_DIRECTION, 0.0, 2 * math.pi, math.pi, "von_mises"),
    (_DIRECTION, 0.0, 360.0, 180.0, "von_mises:360"),
    (_DIRECTION, -180.0, 180.0, 90.0, "von_mises:360:-180"),
)


@final
class Whole(NamedTuple):
    """What is known of a column of whole numbers: number, sum, squares, divisor and extremes."""

    number: int
    total: float
    squares: float
    divisor: int
    low: float
    high: float

    @classmethod
    def of(cls, values: Floats) -> Whole:
        """That of values without gaps."""
        total, squares = float(np.sum(values)), float(np.sum(values * values))
        divisor = int(np.gcd.reduce(values.astype(np.int64)))
        return cls(values.size, total, squares, divisor, float(values.min()), float(values.max()))

    def plus(self, other: Whole) -> Whole:
        """That of both columns together."""
        return Whole(
            self.number + other.number,
            self.total + other.total,
            self.squares + other.squares,
            math.gcd(self.divisor, other.divisor),
            min(self.low, other.low),
            max(self.high, other.high),
        )

    def objection(self, name: str) -> str:
        """Why the numbers are no counts; empty where they may be."""
        mean = self.total / self.number
        variance = max(self.squares / self.number - mean * mean, 0.0)
        circle = circle_of(name, self.low, self.high)
        if circle:
            return f"whole numbers whose name and range are those of a circle ({circle})"
        if self.high > MOST_COUNTED:
            return f"whole numbers up to {self.high:,.0f}, larger than counts usually are"
        if self.divisor > 1:
            return f"whole numbers that are all multiples of {self.divisor}, as counts are not"
        if variance < _LEAST_DISPERSION * mean:
            rule = f"variance {variance:.3g}, mean {mean:.3g}"
            return f"whole numbers that vary less than counts do ({rule})"
        return ""


def circle_of(name: str, low: float, high: float) -> str:
    """The von Mises family for a column with the name and the extremes of hours or directions."""
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", name).replace("_", " ").lower()
    for pattern, least, most, reached, family in _CIRCLES:
        if pattern.search(words) and least <= low and reached < high <= most:
            return family
    return ""


def is_doubtful(variable: Variable, codes: Floats) -> bool:
    """Whether categories are whole numbers spread as counts are, or counts as labels are.

    The frequencies of counts above 0 differ little from number to number and end in a tail.
    """
    labels = variable.categories
    if variable.kind is Kind.CONTINUOUS or not all(type(item) is int for item in labels):
        return False
    seen = codes[~np.isnan(codes)].astype(np.int64)
    values = np.array(labels)[seen] if labels else seen
    distinct = np.unique(values).size
    if distinct < _FEWEST_SPREAD or values.size < _FEWEST_EACH * distinct:
        return False
    low = int(values.min())
    if low < 0 or values.max() > MOST_COUNTED:
        return False
    found = np.append(np.bincount(values)[max(1, low - 1) :], 0)
    is_smooth = np.square(np.diff(found)).sum() < np.square(found - found.mean()).sum()
    is_counted = is_smooth and 2 * found[-2] * distinct < values.size
    return bool(is_counted == bool(labels))


def rises(values: Floats, owners: Ints) -> bool:
    """Whether each value is larger than the one before it in its sequence; `owners` names these."""
    within = np.diff(owners) == 0
    return within.sum() >= _FEWEST_RISES and bool((np.diff(values)[within] > 0).all())


@final
class Proposal(NamedTuple):
    """A leaf family that may fit a variable better than the usual one, and why."""

    family: str
    reason: str


def propose(variable: Variable, values: Floats) -> Proposal | None:
    """The family that numbers or counts suggest by their moments; None where the usual one does."""
    if variable.kind is Kind.CATEGORICAL or variable.leaf is not None:
        return None
    seen = values[:: max(1, values.size // _MOST_LOOKED_AT)]
    if seen.size < values.size:  # the extremes are looked at in any case
        seen = np.append(seen, [np.fmin.reduce(values), np.fmax.reduce(values)])
    seen = seen[np.isfinite(seen)]
    if seen.size < _FEWEST or seen.min() == seen.max():
        return None
    with np.errstate(all="ignore"):
        return (_of_counts if variable.kind is Kind.COUNT else _of_numbers)(variable.name, seen)


def _of_counts(name: str, values: Floats) -> Proposal | None:
    mean, variance = float(values.mean()), float(values.var())
    if variance < _DISPERSED * mean:
        return None
    zeros, size = float(np.mean(values == 0)), mean * mean / (variance - mean)
    # The zeros that a negative binomial distribution of the same mean and variance has.
    usual = (size / (size + mean)) ** size
    if zeros > usual + 0.1:
        return Proposal("zero_inflated_poisson", f"{100 * zeros:.0f} % are 0")
    return Proposal("negative_binomial", f"variance {variance / mean:.1f} times the mean")


def _of_numbers(name: str, values: Floats) -> Proposal | None:
    circle = circle_of(name, float(values.min()), float(values.max()))
    if circle:
        return Proposal(circle, "name and range are those of a circle")
    median = float(np.median(values))
    deviation = float(np.median(np.abs(values - median))) / _NORMAL_DEVIATION
    distances = np.abs(values - median)
    near = values[distances <= _FAR * deviation]
    far = 1.0 - near.size / values.size
    usual = near if 0 < far < _MOST_FAR else values  # a few values must not make the shape
    skew = _skewness(usual)
    if values.min() > 0 and skew > _SKEWED:
        of_logs = _skewness(np.log(usual))
        if abs(of_logs) < skew:
            family = "log_normal" if of_logs > -0.5 else "gamma"
            return Proposal(family, f"positive with a long upper tail, skewness {skew:.1f}")
    if 0 < far < _MOST_FAR and deviation > 0:
        farthest = float(distances.max()) / deviation
        return Proposal("student_t", f"values up to {farthest:,.0f} deviations from the median")
    return None


def _skewness(values: Floats) -> float:
    standard = values - values.mean()
    spread = float(np.sqrt(np.mean(standard * standard)))
    return float(np.mean((standard / spread) ** 3)) if spread > 0 else 0.0
