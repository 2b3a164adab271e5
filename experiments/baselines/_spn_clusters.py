"""Clusters of instances by naive Bayes models, as many of them as a penalty allows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from scipy.special import log_softmax

from dspn._arguments import Floats, Ints
from dspn.data import Sequences
from dspn.learning.dependence import Column
from dspn.learning.priors import Priors
from dspn.leaves import Categorical, Family, family_for

_SHARE_PSEUDO_COUNT: Final = 1.0


@final
class Instances:
    """Instances of many variables, with what leaves and clusters need of them.

    Indicators of all categorical variables stand side by side; other kinds are kept apart.
    """

    def __init__(self, data: Sequences, priors: Priors) -> None:
        self.data = data
        self.priors = priors
        self.families: tuple[Family, ...] = tuple(
            family_for(own, data.values[:, column]) for column, own in enumerate(data.schema)
        )
        self._statistics = [
            family.statistics(data.values[:, column]) for column, family in enumerate(self.families)
        ]

    def leaf(self, rows: Ints, variable: int) -> Floats:
        """The parameters of the leaf that fits some instances best."""
        family = self.families[variable]
        totals = self._statistics[variable][rows].sum(axis=0)
        found: Floats = family.maximise(totals[None], self.priors.leaf(family))[0]
        return found

    def column(self, rows: Ints, variable: int) -> Column:
        """A variable of some instances, for tests of independence."""
        values, family = self.data.values[rows, variable], self.families[variable]
        if isinstance(family, Categorical):
            return Column.of_codes(values, family.num_categories)
        return Column.of_numbers(values)

    def part(self, rows: Ints, variables: Sequence[int]) -> "Part":
        """Some variables of some instances."""
        tables: list[Floats] = []
        counts: list[Floats] = []
        numbers = []
        for variable in variables:
            family = self.families[variable]
            if isinstance(family, Categorical):
                tables.append(self._statistics[variable][rows, 1:])
                prior = self.priors.leaf(family).pseudo_count
                counts.append(np.full(family.num_categories, prior))
            else:
                numbers.append(variable)
        sizes = np.array([table.shape[1] for table in tables], dtype=np.int64)
        indicators = np.concatenate(tables, axis=1) if tables else np.zeros((rows.size, 0))
        pseudo = np.concatenate(counts) if counts else np.zeros(0)
        return Part(self, rows, tuple(numbers), indicators, sizes, pseudo, len(variables))

    def log_prob(self, rows: Ints, variable: int, weights: Floats) -> Floats:
        """Log p(value | cluster) under leaves fitted to weighted instances, (rows, clusters)."""
        family = self.families[variable]
        totals = weights.T @ self._statistics[variable][rows]
        leaves = family.maximise(totals, self.priors.leaf(family))
        return family.log_prob(leaves, self.data.values[rows, variable])


@final
@dataclass(frozen=True, eq=False)
class Part:
    """Some variables of some instances: indicators side by side, and numbers by their columns."""

    source: Instances
    rows: Ints
    numbers: tuple[int, ...]
    indicators: Floats
    sizes: Ints
    pseudo_counts: Floats
    num_variables: int

    def log_joint(self, shares: Floats) -> Floats:
        """Log P(cluster, instance) of the naive Bayes model of soft clusters, (rows, clusters)."""
        totals = shares.sum(axis=0) + _SHARE_PSEUDO_COUNT
        found: Floats = np.log(totals / totals.sum()) + np.zeros_like(shares)
        if self.sizes.size:
            found = found + self.indicators @ self._log_tables(shares).T
        for variable in self.numbers:
            found = found + self.source.log_prob(self.rows, variable, shares)
        return found

    def _log_tables(self, shares: Floats) -> Floats:
        """Log P(category | cluster) of all categories side by side, (clusters, categories)."""
        counts = shares.T @ self.indicators + self.pseudo_counts
        starts = np.cumsum(self.sizes) - self.sizes
        totals = np.add.reduceat(counts, starts, axis=1).repeat(self.sizes, axis=1)
        found: Floats = np.log(np.maximum(counts, 1e-300)) - np.log(np.maximum(totals, 1e-300))
        return found


def _steps(part: Part, size: int, num_steps: int, rng: np.random.Generator) -> Floats:
    """Log P(cluster, instance) after some steps of expectation maximisation."""
    shares = rng.dirichlet(np.ones(size), size=part.rows.size)
    for _ in range(num_steps):
        shares = np.exp(log_softmax(part.log_joint(shares), axis=1))
    return part.log_joint(np.eye(size)[shares.argmax(axis=1)])


def clusters(
    part: Part,
    *,
    penalty: float,
    max_clusters: int,
    num_steps: int = 20,
    num_restarts: int = 2,
    rng: np.random.Generator,
    is_due: Callable[[], bool] = lambda: False,
) -> list[Ints]:
    """Rows by cluster: the hard clusters with the greatest penalised likelihood.

    A cluster costs `penalty` for each variable. Numbers of clusters are tried from 1 upwards until
    one more does not pay, or time is up.
    """
    cost = penalty * part.num_variables
    labels = np.zeros(part.rows.size, dtype=np.int64)
    best = float(part.log_joint(np.ones((part.rows.size, 1))).sum()) - cost
    for size in range(2, min(max_clusters, part.rows.size) + 1):
        tries = [_steps(part, size, num_steps, rng) for _ in range(num_restarts)]
        joint = max(tries, key=lambda own: float(own.max(axis=1).sum()))
        value = float(joint.max(axis=1).sum()) - cost * size
        if value <= best:
            break
        best, labels = value, joint.argmax(axis=1)
        if is_due():
            break
    found = [part.rows[labels == label] for label in range(int(labels.max(initial=0)) + 1)]
    return [rows for rows in found if rows.size]
