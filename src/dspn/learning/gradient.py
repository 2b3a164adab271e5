"""Gradients in free coordinates: the logits of sums, and those of the leaf families.

The expected flow n_e of a sum edge is the derivative of the log-likelihood in log w_e, and weights
are the softmax of logits, so the derivative in a logit is n_e - w_e sum n over the sum's edges; for
leaves it follows from their expected statistics. Both are linear in the flows: the gradient of a
conditional likelihood is the difference of those of evidence with and without the class variables.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, final

import numpy as np

from dspn._arguments import Bools, Floats, float_array, require_type
from dspn.data.sequences import Sequences, sequences_of
from dspn.engine import ExpectedFlows, NetworkFlows, Program, compile_program
from dspn.errors import StructureError
from dspn.learning.em import Part
from dspn.learning.priors import Priors, Section, checked_learnable, sections
from dspn.learning.scores import LIKELIHOOD, ConditionalLikelihood, Likelihood, Score
from dspn.leaves.base import FREE_LIMIT
from dspn.structure.network import DynamicNetwork
from dspn.structure.parameters import NetworkParameters, Parameters


class ScoreGradient(NamedTuple):
    """A number that depends on a network's parameters, and its gradient in free coordinates."""

    value: float
    gradient: Floats


# A section has a block of coordinates for the logits of its sum edges, and one for each bank.


def _coordinates(own: Section) -> Iterator[Floats]:
    """Where the parameters are; -inf for an exact zero."""
    with np.errstate(divide="ignore"):
        yield np.log(own.parameters.weights)
    for bank, rows in zip(own.banks, own.parameters.leaves, strict=True):
        yield bank.family.free(rows).ravel()


def _learnable(own: Section) -> Iterator[Bools]:
    """Whether each coordinate belongs to a node that may be learned."""
    yield own.edges
    for bank, mask in zip(own.banks, own.leaves, strict=True):
        yield np.repeat(mask, bank.family.num_free)


def _bounds(own: Section, priors: Priors) -> Iterator[Floats]:
    """Least and largest coordinates that an ascent may try, (2, coordinates)."""
    yield np.outer([-FREE_LIMIT, FREE_LIMIT], np.ones(own.edges.size))
    for bank in own.banks:
        bounds = np.stack(bank.family.free_bounds(priors.leaf(bank.family, bank.variable)))
        yield np.tile(bounds, len(bank.nodes))


def _parameters_at(own: Section, blocks: Iterator[Floats]) -> NetworkParameters:
    """The parameters at the next blocks; what may not be learned stays bit for bit."""
    logits = next(blocks)
    shares = np.exp(logits - own.reduce(np.maximum, logits))
    shares /= own.reduce(np.add, shares)
    leaves = []
    for bank, mask, old in zip(own.banks, own.leaves, own.parameters.leaves, strict=True):
        free = next(blocks).reshape(mask.size, bank.family.num_free)
        leaves.append(np.where(mask[:, None], bank.family.from_free(free), old))
    weights = np.where(own.edges, shares, own.parameters.weights)
    return NetworkParameters(weights, tuple(leaves))


def _logit_gradient(own: Section, counts: Floats) -> Floats:
    """n_e - w_e sum n, over the edges of each sum that are not fixed at zero."""
    weights = own.parameters.weights
    counts = np.where(weights > 0, counts, 0.0)
    return counts - weights * own.reduce(np.add, counts)


def _gradient(own: Section, flows: NetworkFlows) -> Iterator[Floats]:
    """Gradient of the expected complete log-likelihood in all coordinates."""
    yield _logit_gradient(own, flows.weights)
    for bank, rows, found in zip(own.banks, own.parameters.leaves, flows.leaves, strict=True):
        yield bank.family.free_gradient(rows, found).ravel()


def _log_prior(own: Section, priors: Priors) -> Iterator[ScoreGradient]:
    """The log prior of what may be learned and is not fixed at zero, block by block."""
    weights = own.parameters.weights
    there = replace(own, edges=own.edges & (weights > 0))
    counts = np.broadcast_to(own.pseudo_counts(priors), weights.shape)
    yield ScoreGradient(there.log_prior_of_weights(priors), _logit_gradient(own, counts))
    for bank, rows, mask in zip(own.banks, own.parameters.leaves, own.leaves, strict=True):
        gradient = np.zeros((mask.size, bank.family.num_free))
        prior = priors.leaf(bank.family, bank.variable)
        value, gradient[mask] = bank.family.free_log_prior(rows[mask], prior)
        yield ScoreGradient(value, gradient.ravel())


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

    def _sections(self, network: DynamicNetwork | None = None) -> list[Section]:
        return sections(network or self.network, self.learnable)

    @cached_property
    def _blocks(self) -> list[Floats]:
        return [block for own in self._sections() for block in _coordinates(own)]

    @cached_property
    def _moves(self) -> Bools:
        learnable = [block for own in self._sections() for block in _learnable(own)]
        return np.concatenate(learnable) & np.isfinite(np.concatenate(self._blocks))

    @cached_property
    def vector(self) -> Floats:
        """Where the network is."""
        return np.concatenate(self._blocks)[self._moves]

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
        full = np.concatenate(self._blocks)
        full[self._moves] = vector
        blocks = iter(np.split(full, np.cumsum([block.size for block in self._blocks])[:-1]))
        new = {own.name: _parameters_at(own, blocks) for own in self._sections()}
        return self.network.with_parameters(Parameters(**new))

    def gradient(self, network: DynamicNetwork, flows: ExpectedFlows) -> Floats:
        """Gradient of the log-likelihood, summed as the flows are, at a network made by `at`."""
        parts = [_gradient(own, getattr(flows, own.name)) for own in self._sections(network)]
        return np.concatenate([block for part in parts for block in part])[self._moves]

    def log_prior(self, network: DynamicNetwork, priors: Priors) -> ScoreGradient:
        """The log prior of what moves, and its gradient, at a network made by `at`."""
        parts = [part for own in self._sections(network) for part in _log_prior(own, priors)]
        gradient = np.concatenate([part.gradient for part in parts])[self._moves]
        return ScoreGradient(sum(part.value for part in parts), gradient)

    def bounds(self, priors: Priors) -> Floats:
        """Between these, (2, coordinates), the log prior and every log weight are finite."""
        blocks = [block for own in self._sections() for block in _bounds(own, priors)]
        return np.concatenate(blocks, axis=1)[:, self._moves]


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
    """Sum over the sequences of weight times score, and its gradient in `free_parameters`.

    Args:
        network: Where the gradient is taken.
        data: The sequences.
        score: A likelihood or a conditional likelihood.
        sample_weights: How often each sequence counts.
        learnable: Nodes of the template whose parameters count; all by default.
    """
    coordinates = coordinates_of(network, learnable)
    check_score(score, network)
    part = Part.of(sequences_of(data, network.schema, "data"), sample_weights)
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
