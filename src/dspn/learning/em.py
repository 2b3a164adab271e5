"""Expectation maximisation: expected flows, then the weights and leaves that fit them best."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn.engine import ExpectedFlows, NetworkFlows, Program, compile_program
from dspn.learning._learnable import checked_learnable, learnable_edges, learnable_leaves
from dspn.learning.diagnosis import check_finite
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.leaves.base import NO_WEIGHT
from dspn.sequences import Sequences
from dspn.structure import DynamicNetwork, NetworkParameters, Parameters
from dspn.structure.parameters import sum_starts
from dspn.structure.template import Template, Top


@final
@dataclass(frozen=True, eq=False)
class EmStep:
    """The network after one step, and the log-likelihoods of the sequences before it."""

    network: DynamicNetwork
    log_likelihood: Floats


def _new_weights(
    network: Template | Top, old: Floats, flows: Floats, pseudo_count: float
) -> Floats:
    """Flows plus pseudo-counts, normalised at each sum.

    A sum that nothing flowed through, with no pseudo-counts, keeps its weights.
    """
    starts = sum_starts(network)
    if not starts.size:
        return old
    counts = np.maximum(flows, 0.0) + pseudo_count
    totals = np.add.reduceat(counts, starts)
    widths = np.diff(np.append(starts, counts.size))
    spread = np.repeat(totals, widths)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A total that is not a number fails the test, so that what came of it is found out.
        return np.where(spread < NO_WEIGHT, old, counts / spread)


def _new_parameters(
    template: Template,
    old: NetworkParameters,
    flows: NetworkFlows,
    priors: Priors,
    learnable: frozenset[int] | None,
) -> NetworkParameters:
    weights = _new_weights(template, old.weights, flows.weights, priors.sum_pseudo_count)
    leaves = tuple(
        bank.family.maximise(statistics, priors.leaf(bank.family))
        for bank, statistics in zip(template.banks, flows.leaves, strict=True)
    )
    if learnable is not None:
        weights = np.where(learnable_edges(template, learnable), weights, old.weights)
        chosen = learnable_leaves(template, learnable)
        leaves = tuple(
            np.where(mask[:, None], new, kept)
            for mask, new, kept in zip(chosen, leaves, old.leaves, strict=True)
        )
    return NetworkParameters(weights, leaves)


def maximise(
    network: DynamicNetwork,
    flows: ExpectedFlows,
    priors: Priors = DEFAULT_PRIORS,
    learnable: Collection[int] | None = None,
) -> DynamicNetwork:
    """Argmax of the expected complete log-likelihood plus the log prior.

    Where `learnable` names nodes of the template, only their parameters change, in the template and
    in a bottom network of its own; all others and the top network stay as they are, bit for bit.
    """
    old = network.parameters
    chosen = checked_learnable(network.template, learnable)
    top = old.top
    if chosen is None:
        count = priors.sum_pseudo_count
        top = NetworkParameters(
            _new_weights(network.top, old.top.weights, flows.top.weights, count)
        )
    bottom = None
    if old.bottom is not None and flows.bottom is not None:
        bottom = _new_parameters(network.template, old.bottom, flows.bottom, priors, chosen)
    template = _new_parameters(network.template, old.template, flows.template, priors, chosen)
    parameters = Parameters(template, top, bottom)
    check_finite(network, parameters)
    return network.with_parameters(parameters)


def em_step(
    network: DynamicNetwork,
    data: Sequences,
    *,
    priors: Priors = DEFAULT_PRIORS,
    weights: Floats | None = None,
    program: Program | None = None,
    learnable: Collection[int] | None = None,
) -> EmStep:
    """One full-batch step of expectation maximisation."""
    found = (program or compile_program(network)).expected_flows(data, weights)
    return EmStep(maximise(network, found.flows, priors, learnable), found.log_likelihood)
