"""The contract of leaf families and `scipy.stats`, over the families that a variable may name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from dspn.leaves import (
    Gamma,
    GammaPrior,
    GaussianPrior,
    LogNormal,
    LogNormalPrior,
    NegativeBinomial,
    NegativeBinomialPrior,
    StudentT,
    VonMises,
    VonMisesPrior,
    ZeroInflatedPoisson,
    ZeroInflatedPoissonPrior,
)
from dspn.leaves.contract import CLAUSES, Case

COUNTS = {"grid": np.arange(0.0, 3000.0), "impossible": (-1.0, 2.5, -1e9, np.inf, -np.inf)}
POSITIVE = (0.0, -1.0, -1e300, np.inf, -np.inf)


@dataclass(frozen=True)
class InflatedPoisson:
    """SciPy has no zero-inflated Poisson distribution, but all that it is made of."""

    share: float
    rate: float

    def _mixed(self, zero: Any, other: Any) -> Any:
        return self.share * zero + (1 - self.share) * other

    def logpmf(self, x: Any) -> Any:
        zero = np.log(self._mixed(1.0, math.exp(-self.rate)))
        others = math.log1p(-self.share) + stats.poisson(self.rate).logpmf(x)
        return np.where(np.equal(x, 0), zero, others)

    def cdf(self, x: Any) -> Any:
        return self._mixed(np.greater_equal(x, 0), stats.poisson(self.rate).cdf(x))

    def mean(self) -> float:
        return (1 - self.share) * self.rate

    def var(self) -> float:
        second = (1 - self.share) * (self.rate + self.rate**2)
        return second - self.mean() ** 2

    def ppf(self, levels: Any) -> Any:
        inner = np.maximum(np.asarray(levels) - self.share, 0) / (1 - self.share)
        return np.maximum(stats.poisson(self.rate).ppf(inner), 0)


@dataclass(frozen=True)
class CutCircle:
    """SciPy's von Mises distribution of numbers from `low` to `low + period`."""

    location: float
    concentration: float
    period: float
    low: float

    @property
    def line(self) -> Any:
        scale = self.period / (2 * math.pi)
        return stats.vonmises(self.concentration, self.location, scale)

    def logpdf(self, x: Any) -> Any:
        return self.line.logpdf(x)

    def _density(self, x: float) -> float:
        cosine = math.cos((x - self.location) * 2 * math.pi / self.period)
        scale = self.period * special.i0e(self.concentration)
        return math.exp(self.concentration * (cosine - 1)) / scale

    def _between(self, start: float, end: float) -> float:
        cuts = [self.location] if start < self.location < end else []
        edges = [start, *cuts, end]
        options: Any = {"epsabs": 1e-16, "epsrel": 1e-13, "limit": 200}
        parts = pairwise(edges)
        return sum(integrate.quad(self._density, a, b, **options)[0] for a, b in parts)

    def cdf(self, x: Any) -> Any:
        ends = np.clip(x, self.low, self.low + self.period)
        return np.array([self._between(self.low, end) for end in ends])

    def mean(self) -> float:
        return self.location

    def var(self) -> float:
        def square(x: float) -> float:
            return float(stats.vonmises(self.concentration).pdf(x)) * x * x

        whole = 2 * integrate.quad(square, 0, math.pi, epsabs=0, epsrel=1e-13, limit=200)[0]
        return whole * (self.period / (2 * math.pi)) ** 2

    def ppf(self, levels: Any) -> Any:
        low, high = self.low, self.low + self.period

        def excess(x: float, level: float) -> float:
            if level > 0.5:  # the upper tail, which has more digits there
                return (1.0 - level) - self._between(x, high)
            return self._between(low, x) - level

        return np.array([optimize.brentq(excess, low, high, args=(p,), xtol=1e-14) for p in levels])


def student_case() -> Case:
    rows = np.array([[0.0, 1.0], [-3.0, 0.25], [2.0, 9.0]])
    grid = np.concatenate([-np.geomspace(4000, 40, 20_000), np.linspace(-40, 40, 40_001)[1:-1]])
    grid = np.concatenate([grid, np.geomspace(40, 4000, 20_000)])
    return Case(
        StudentT(df=3.5),
        rows,
        grid,
        priors=(GaussianPrior(0.0, 1.0, 0.0, 1e-6), GaussianPrior(1.0, 2.0, 5.0, 0.3)),
        oracles=tuple(stats.t(3.5, m, v**0.5) for m, v in rows),
    )


def log_normal_case() -> Case:
    rows = np.array([[0.0, 0.3], [1.0, 0.01], [-0.5, 0.5]])
    return Case(
        LogNormal(),
        rows,
        np.linspace(1e-6, 80, 400_001),
        impossible=POSITIVE,
        priors=(LogNormalPrior(0.0, 1.0, 0.0, 1e-6), LogNormalPrior(1.0, 2.0, 5.0, 0.3)),
        oracles=tuple(stats.lognorm(v**0.5, scale=math.exp(m)) for m, v in rows),
    )


def gamma_case() -> Case:
    rows = np.array([[1.0, 7.0], [3.0, 40.0], [0.7, 9.0], [2.0, 2500.0]])
    return Case(
        Gamma(),
        rows,
        np.linspace(1e-9, 10, 40_001),
        impossible=POSITIVE,
        priors=(GammaPrior(2.0, 3.0, 0.0, 1e5), GammaPrior(2.0, 3.0, 5.0, 50.0)),
        oracles=tuple(stats.gamma(k, scale=m / k) for m, k in rows),
        tolerance=1e-5,
    )


def negative_binomial_case() -> Case:
    rows = np.array([[0.0, 1.0], [0.8, 0.4], [6.0, 2.5], [20.0, 50.0], [40.0, 1e5]])
    return Case(
        NegativeBinomial(),
        rows,
        **COUNTS,
        priors=(NegativeBinomialPrior(2.0, 3.0, 0.0), NegativeBinomialPrior(7.0, 0.5, 4.0)),
        oracles=tuple(stats.nbinom(r, r / (m + r)) for m, r in rows),
    )


def zero_inflated_case() -> Case:
    rows = np.array([[0.0, 3.0], [0.3, 2.0], [0.85, 30.0], [1e-4, 0.2]])
    priors = (
        ZeroInflatedPoissonPrior(0.5, 2.0, 0.0),
        ZeroInflatedPoissonPrior(0.7, 4.0, 3.0),
    )
    oracles = tuple(InflatedPoisson(share, rate) for share, rate in rows)
    return Case(ZeroInflatedPoisson(), rows, **COUNTS, priors=priors, oracles=oracles)


def von_mises_case(family: VonMises, rows: list[list[float]]) -> Case:
    low, period = family.low, family.period
    outside = low - 0.1 * period, low + 1.1 * period, np.inf, -np.inf
    return Case(
        family,
        np.array(rows),
        np.linspace(low, low + period, 201),
        impossible=outside,
        priors=(VonMisesPrior(0.0), VonMisesPrior(5.0, 20.0)),
        oracles=tuple(CutCircle(m, k, period, low) for m, k in rows),
    )


CASES = {
    "student_t": student_case(),
    "log_normal": log_normal_case(),
    "gamma": gamma_case(),
    "negative_binomial": negative_binomial_case(),
    "zero_inflated_poisson": zero_inflated_case(),
    "hours": von_mises_case(VonMises(24.0), [[23.5, 2.0], [1.0, 30.0], [12.0, 0.3]]),
    "degrees": von_mises_case(VonMises(360.0, -180.0), [[-170.0, 5.0], [30.0, 200.0]]),
}


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_families_keep_the_contract(clause: Callable[[Case], None], case: Case) -> None:
    clause(case)
