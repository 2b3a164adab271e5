"""Gradients in free coordinates: the logits of sums, and those of the leaf families.

The expected flow n_e of a sum edge is the derivative of the log-likelihood in log w_e, and weights
are the softmax of logits, so the derivative in a logit is n_e - w_e sum n over the sum's edges; for
leaves it follows from their expected statistics. Both are linear in the flows: the gradient of a
conditional likelihood is the difference of those of evidence with and without the class variables.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
from scipy.special import xlogy

from dspn._arrays import Bools, Floats, Ints
from dspn._checks import float_array, require_type
from dspn.engine import ExpectedFlows, NetworkFlows, Program, compile_program
from dspn.errors import StructureError
from dspn.learning._learnable import checked_learnable, learnable_edges, learnable_leaves
from dspn.learning._stages import Part, weighted_part
from dspn.learning.priors import Priors
from dspn.learning.scores import LIKELIHOOD, ConditionalLikelihood, Likelihood, Score
from dspn.leaves.base import FREE_LIMIT
from dspn.sequences import Sequences
from dspn.sequences.reading import sequences_of
from dspn.structure import DynamicNetwork, NetworkParameters, Parameters
from dspn.structure.parameters import sum_starts
from dspn.structure.template import Bank, Template, Top


class ScoreGradient(NamedTuple):
    """A number that depends on a network's parameters, and its gradient in free coordinates."""

    value: float
    gradient: Floats


@final
@dataclass(frozen=True, eq=False)
class _Section:
    """Coordinates of one network: logits of its sum edges, then those of its leaves by bank.

    An exact zero has the coordinate -inf. `edges` and `leaves` say what may be learned.
    """

    network: Template | Top
    parameters: NetworkParameters
    edges: Bools
    leaves: tuple[Bools, ...]

    @property
    def banks(self) -> tuple[Bank, ...]:
        return self.network.banks if isinstance(self.network, Template) else ()

    @cached_property
    def starts(self) -> Ints:
        return sum_starts(self.network)

    def spread(self, of_sums: Floats) -> Floats:
        """A number for each sum, given to each of its edges."""
        return np.repeat(of_sums, np.diff(np.append(self.starts, self.parameters.weights.size)))

    def coordinates(self) -> Floats:
        """All coordinates, the fixed ones among them."""
        with np.errstate(divide="ignore"):
            parts = [np.log(self.parameters.weights)]
        for bank, rows in zip(self.banks, self.parameters.leaves, strict=True):
            parts.append(bank.family.free(rows).ravel())
        return np.concatenate(parts)

    def learned(self) -> Bools:
        """Whether each coordinate belongs to a node that may be learned."""
        parts = [self.edges]
        for bank, mask in zip(self.banks, self.leaves, strict=True):
            parts.append(np.repeat(mask, bank.family.num_free))
        return np.concatenate(parts)

    def at(self, coordinates: Floats) -> NetworkParameters:
        """The parameters at all coordinates; what may not be learned stays bit for bit."""
        weights, leaves = self.parameters.weights, list(self.parameters.leaves)
        used = weights.size
        if used:
            logits = coordinates[:used] - self.spread(
                np.maximum.reduceat(coordinates[:used], self.starts)
            )
            shares = np.exp(logits)
            shares /= self.spread(np.add.reduceat(shares, self.starts))
            weights = np.where(self.edges, shares, weights)
        for number, (bank, mask) in enumerate(zip(self.banks, self.leaves, strict=True)):
            size = mask.size * bank.family.num_free
            free = coordinates[used : used + size].reshape(mask.size, bank.family.num_free)
            leaves[number] = np.where(mask[:, None], bank.family.from_free(free), leaves[number])
            used += size
        return NetworkParameters(weights, tuple(leaves))

    def gradient(self, flows: NetworkFlows) -> Floats:
        """Gradient of the expected complete log-likelihood in all coordinates."""
        parts = [self._logit_gradient(flows.weights)]
        for bank, rows, statistics in zip(
            self.banks, self.parameters.leaves, flows.leaves, strict=True
        ):
            parts.append(bank.family.free_gradient(rows, statistics).ravel())
        return np.concatenate(parts)

    def log_prior(self, priors: Priors) -> ScoreGradient:
        """The log prior of what may be learned and is not fixed at zero."""
        weights, count = self.parameters.weights, priors.sum_pseudo_count
        value = float(np.sum(xlogy(count, weights[self.edges & (weights > 0)])))
        parts = [self._logit_gradient(np.full(weights.size, count))]
        for bank, rows, mask in zip(self.banks, self.parameters.leaves, self.leaves, strict=True):
            own = np.zeros((mask.size, bank.family.num_free))
            added, own[mask] = bank.family.free_log_prior(rows[mask], priors.leaf(bank.family))
            value += added
            parts.append(own.ravel())
        return ScoreGradient(value, np.concatenate(parts))

    def bounds(self, priors: Priors) -> Floats:
        """Least and largest coordinates that an ascent may try, (2, coordinates)."""
        size = self.parameters.weights.size
        parts = [np.stack([np.full(size, -FREE_LIMIT), np.full(size, FREE_LIMIT)])]
        for bank in self.banks:
            own = np.stack(bank.family.free_bounds(priors.leaf(bank.family)))
            parts.append(np.tile(own, len(bank.nodes)))
        return np.concatenate(parts, axis=1)

    def _logit_gradient(self, counts: Floats) -> Floats:
        """n_e - w_e sum n, over the edges of each sum that are not fixed at zero."""
        weights = self.parameters.weights
        if not weights.size:
            return weights
        counts = np.where(weights > 0, counts, 0.0)
        return counts - weights * self.spread(np.add.reduceat(counts, self.starts))


def _sections(network: DynamicNetwork, learnable: frozenset[int] | None) -> tuple[_Section, ...]:
    """Template, bottom where it has its own parameters, top."""
    template, own = network.template, network.parameters
    if learnable is None:
        edges = np.ones(template.num_weights, dtype=np.bool_)
        leaves = tuple(np.ones(len(bank.nodes), dtype=np.bool_) for bank in template.banks)
    else:
        edges = learnable_edges(template, learnable)
        leaves = learnable_leaves(template, learnable)
    of_top = np.full(own.top.weights.size, learnable is None)
    made = [_Section(template, own.template, edges, leaves)]
    if own.bottom is not None:
        made.append(_Section(template, own.bottom, edges, leaves))
    return (*made, _Section(network.top, own.top, of_top, ()))


@final
@dataclass(frozen=True, eq=False)
class FreeCoordinates:
    """The coordinates of a network that can be moved, as one vector of any real numbers.

    Template, bottom where it has its own parameters, and top follow each other; each has the logits
    of its sum edges and then the free coordinates of its leaves, bank by bank. Left out is what
    stays: weights, probabilities and rates that are exactly zero, and, where `learnable` names
    nodes of the template, the parameters of all others and of the top network.
    """

    network: DynamicNetwork
    learnable: frozenset[int] | None = None

    @cached_property
    def _sections(self) -> tuple[_Section, ...]:
        return _sections(self.network, self.learnable)

    @cached_property
    def _all(self) -> Floats:
        return np.concatenate([section.coordinates() for section in self._sections])

    @cached_property
    def _moves(self) -> Bools:
        learned = np.concatenate([section.learned() for section in self._sections])
        return learned & np.isfinite(self._all)

    @cached_property
    def vector(self) -> Floats:
        """Where the network is."""
        return self._all[self._moves]

    def at(self, vector: Floats) -> DynamicNetwork:
        """The network of the same structure, with the same zeros, at another vector."""
        vector = float_array(vector, "vector", StructureError)
        if vector.shape != self.vector.shape or not np.all(np.isfinite(vector)):
            raise StructureError(
                f"`vector` must hold {self.vector.size} finite numbers, one for each free "
                f"coordinate of the network, but has shape {vector.shape} and "
                f"{int(np.sum(~np.isfinite(vector)))} that are not finite; start from "
                "`free_parameters` of the same network."
            )
        full = self._all.copy()
        full[self._moves] = vector
        ends = np.cumsum([section.learned().size for section in self._sections])[:-1]
        made = [
            section.at(part)
            for section, part in zip(self._sections, np.split(full, ends), strict=True)
        ]
        template, top = made[0], made[-1]
        return self.network.with_parameters(
            Parameters(template, top, made[1] if len(made) == 3 else None)
        )

    def gradient(self, network: DynamicNetwork, flows: ExpectedFlows) -> Floats:
        """Gradient of the log-likelihood, summed as the flows are, at a network made by `at`."""
        by_section = [flows.template, flows.top]
        if flows.bottom is not None:
            by_section.insert(1, flows.bottom)
        sections = _sections(network, self.learnable)
        parts = [section.gradient(own) for section, own in zip(sections, by_section, strict=True)]
        return np.concatenate(parts)[self._moves]

    def log_prior(self, network: DynamicNetwork, priors: Priors) -> ScoreGradient:
        """The log prior of what moves, and its gradient, at a network made by `at`."""
        parts = [section.log_prior(priors) for section in _sections(network, self.learnable)]
        gradient = np.concatenate([part.gradient for part in parts])[self._moves]
        return ScoreGradient(sum(part.value for part in parts), gradient)

    def bounds(self, priors: Priors) -> tuple[Floats, Floats]:
        """Least and largest coordinates at which the log prior and every log weight are finite."""
        both = np.concatenate([section.bounds(priors) for section in self._sections], axis=1)
        lower, upper = both[:, self._moves]
        return lower, upper


def coordinates_of(
    network: DynamicNetwork, learnable: Collection[int] | None = None
) -> FreeCoordinates:
    """The free coordinates of a network, or of some nodes of its template."""
    require_type(network, DynamicNetwork, "network", StructureError)
    return FreeCoordinates(network, checked_learnable(network.template, learnable))


def free_parameters(network: DynamicNetwork, learnable: Collection[int] | None = None) -> Floats:
    """The free coordinates of a network as one vector; see `FreeCoordinates` for their order."""
    return coordinates_of(network, learnable).vector.copy()


def with_free_parameters(
    network: DynamicNetwork, vector: Floats, learnable: Collection[int] | None = None
) -> DynamicNetwork:
    """The network of the same structure and zeros whose free coordinates are the vector."""
    return coordinates_of(network, learnable).at(vector)


def gradient(
    network: DynamicNetwork,
    data: Sequences,
    score: Score = LIKELIHOOD,
    *,
    sample_weights: Floats | None = None,
    learnable: Collection[int] | None = None,
) -> ScoreGradient:
    """Sum over the sequences of weight times score, and its gradient in `free_parameters`."""
    coordinates = coordinates_of(network, learnable)
    check_score(score, network)
    part = weighted_part(sequences_of(data, network.schema, "data"), sample_weights)
    return score_gradient(coordinates, compile_program(network), part, score)


def log_prior_gradient(
    network: DynamicNetwork, priors: Priors, learnable: Collection[int] | None = None
) -> ScoreGradient:
    """The log prior without what exact zeros add to it, and its gradient in `free_parameters`.

    The zeros stay, so that they would add the same (minus infinity, given pseudo-counts) always.
    """
    return coordinates_of(network, learnable).log_prior(network, priors)


def check_score(score: Score, network: DynamicNetwork) -> None:
    """Raises unless the gradient of the score is known, and it fits the network's variables."""
    if not isinstance(score, Likelihood | ConditionalLikelihood):
        raise StructureError(
            "`score` must be a Likelihood or a ConditionalLikelihood, whose gradients are known, "
            f"but is a {type(score).__name__}. Use one of these."
        )
    score.check(network.schema)


def score_gradient(
    coordinates: FreeCoordinates, program: Program, part: Part, score: Score
) -> ScoreGradient:
    """Weighted sum of scores and its gradient, at a program of a network made by `at`.

    One flow pass for the likelihood; a conditional likelihood takes off that of its evidence.
    """
    found = part.flows(program)
    values, total = found.log_likelihood, coordinates.gradient(program.network, found.flows)
    if isinstance(score, ConditionalLikelihood):
        evidence = Part(score.evidence(part.data), part.weights, part.places).flows(program)
        values = values - evidence.log_likelihood
        total -= coordinates.gradient(program.network, evidence.flows)
    return ScoreGradient(float(values @ part.weights), total)
