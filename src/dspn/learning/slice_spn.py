"""Sum-product networks over the variables of one slice, learned from weighted slices.

The recursion of LearnSPN: variables that fall into independent subsets become a product, one factor
for each subset; where they do not, the slices are clustered and become a sum, one child for each
cluster. A single variable is a leaf, and too few slices are a product of leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, final

import numpy as np
from scipy.special import softmax

from dspn._arguments import Floats, Ints, checked_rng, float_array, require_type
from dspn.data.sequences import Sequences
from dspn.errors import DataError, StructureError
from dspn.learning.dependence import Column, independent_subsets
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.leaves.base import Family
from dspn.leaves.told import told_values
from dspn.options import Options, number_field, whole_field
from dspn.structure.build import NetworkBuilder, assemble, mixture_top
from dspn.structure.network import DynamicNetwork

# A slice of less weight says nothing about structure that others do not say.
_LEAST_WEIGHT: Final = 1e-3


@final
@dataclass(frozen=True)
class SliceSpnOptions(Options):
    """How far the networks of slices are taken apart.

    Variables are called dependent at level `alpha`. Slices are clustered into `num_clusters` by a
    naive Bayes model, by `num_steps` steps of expectation maximisation. Slices that weigh less than
    `min_slices` together are not taken apart further.
    """

    alpha: float = number_field(0.001, above=0, below=1)
    num_clusters: int = whole_field(2, least=2)
    num_steps: int = whole_field(20)
    min_slices: float = number_field(100.0, above=0)


DEFAULT_SLICE_SPN: Final = SliceSpnOptions()


class _Part(NamedTuple):
    """Some slices, by their rows and weights, and some variables of them."""

    rows: Ints
    weights: Floats
    variables: tuple[int, ...]


@final
@dataclass(frozen=True, eq=False)
class SliceLearner:
    """Lays down networks over the slices of a data set, one for each set of weights.

    `families` has the leaf family of each variable, scaled to the data.
    """

    builder: NetworkBuilder
    data: Sequences
    families: Sequence[Family]
    options: SliceSpnOptions = DEFAULT_SLICE_SPN
    priors: Priors = DEFAULT_PRIORS

    def __post_init__(self) -> None:
        require_type(self.data, Sequences, "data", DataError)
        require_type(self.options, SliceSpnOptions, "options", StructureError)
        require_type(self.priors, Priors, "priors", StructureError)

    @cached_property
    def _statistics(self) -> list[Floats]:
        """The statistics of every slice, variable by variable."""
        columns = enumerate(self.families)
        return [family.statistics(told_values(self.data, v)) for v, family in columns]

    def factors(self, weights: Floats, rng: np.random.Generator) -> list[int]:
        """Nodes whose product is a distribution over the variables of the weighted slices.

        `weights` has an entry for each slice of the data.
        """
        checked_rng(rng, StructureError)
        own = float_array(weights, "weights", DataError)
        if own.shape != (self.data.total_slices,) or not np.all(own >= 0):
            raise DataError(
                f"`weights` must have a number that is not negative for each of the "
                f"{self.data.total_slices} slices, but has shape {own.shape}."
            )
        rows = np.flatnonzero(own > _LEAST_WEIGHT)
        return self._factors(_Part(rows, own[rows], tuple(range(len(self.families)))), rng)

    def _factors(self, part: _Part, rng: np.random.Generator) -> list[int]:
        """A node for each independent subset of the variables."""
        schema, values = self.data.schema, self.data.values
        if len(part.variables) == 1 or part.weights.sum() < self.options.min_slices:
            return self._leaves(part)
        columns = [
            Column.of_variable(schema[variable], values[part.rows, variable], part.weights)
            for variable in part.variables
        ]
        nodes = []
        for subset in independent_subsets(columns, part.weights, self.options.alpha):
            own = part._replace(variables=tuple(part.variables[place] for place in subset))
            nodes.extend(self._leaves(own) if len(subset) == 1 else [self._mixture(own, rng)])
        return nodes

    def _mixture(self, part: _Part, rng: np.random.Generator) -> int:
        """A sum over clusters of the slices; a product of leaves where there is one cluster."""
        clusters = self._clusters(part, rng)
        if len(clusters) == 1:
            return self.builder.product(self._leaves(part))
        children = [self.builder.product(self._factors(own, rng)) for own in clusters]
        totals = np.array([own.weights.sum() for own in clusters])
        return self.builder.sum(children, totals / totals.sum())

    def _leaves(self, part: _Part) -> list[int]:
        """The best leaf of each variable."""
        fitted = [(v, self._fit_leaves(v, part.rows, part.weights[None])) for v in part.variables]
        return [self.builder.leaf(v, rows[0], self.families[v]) for v, rows in fitted]

    def _fit_leaves(self, variable: int, rows: Ints, weights: Floats) -> Floats:
        """The best leaf of a variable for each row of weights of the slices."""
        family = self.families[variable]
        statistics = weights @ self._statistics[variable][rows]
        return family.maximise(statistics, self.priors.leaf(family, variable))

    def _clusters(self, part: _Part, rng: np.random.Generator) -> list[_Part]:
        """The slices by their most probable class in a naive Bayes model; empty classes left out.

        Missing entries do not count.
        """
        size = self.options.num_clusters
        shares = rng.dirichlet(np.ones(size), size=part.rows.size)
        for _ in range(self.options.num_steps):
            shares = self._class_shares(part, shares)
        best = shares.argmax(axis=1)
        return [
            part._replace(rows=part.rows[best == cluster], weights=part.weights[best == cluster])
            for cluster in np.unique(best)
        ]

    def _class_shares(self, part: _Part, shares: Floats) -> Floats:
        """P(class | slice) after one step of expectation maximisation, (slices, classes)."""
        counts = part.weights[:, None] * shares
        totals = counts.sum(axis=0) + self.priors.sum_pseudo_count
        with np.errstate(divide="ignore"):
            joint = np.log(totals / totals.sum()) + np.zeros_like(shares)
        for variable in part.variables:
            leaves = self._fit_leaves(variable, part.rows, counts.T)
            values = self.data.values[part.rows, variable]
            joint += self.families[variable].log_prob(leaves, values)
        joint[np.all(joint == -np.inf, axis=1)] = 0.0
        return np.asarray(softmax(joint, axis=1))


def spn_emissions(
    data: Sequences,
    families: Sequence[Family],
    start: Floats,
    transition: Floats,
    posteriors: Floats,
    *,
    options: SliceSpnOptions = DEFAULT_SLICE_SPN,
    priors: Priors = DEFAULT_PRIORS,
    rng: np.random.Generator,
) -> DynamicNetwork:
    """A hidden Markov model whose state i emits a slice by a network of its own.

    That network is learned from the slices weighted by `posteriors[:, i]`. `start` and `transition`
    are those of the chain of states.
    """
    builder = NetworkBuilder(data.schema)
    learner = SliceLearner(builder, data, families, options=options, priors=priors)
    inputs = builder.inputs(start.size)
    outputs = []
    for state, own in enumerate(posteriors.T):
        factors = learner.factors(own, rng)
        outputs.append(builder.product([*factors, builder.sum(inputs, transition[state])]))
    return assemble(builder.template(outputs), mixture_top(data.schema, start))
