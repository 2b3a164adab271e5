"""Expectation maximisation: expected flows, then the weights and leaves that fit them best."""

from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn.engine import Program, compile_program
from dspn.engine.flows import ExpectedFlows, NetworkFlows, expected_flows
from dspn.leaves import Prior
from dspn.sequences import Sequences
from dspn.structure import DynamicNetwork, NetworkParameters, Parameters
from dspn.structure.template import Template, Top


@final
@dataclass(frozen=True)
class Priors:
    """The pseudo-count of every sum edge, and the prior of the leaves (None: the family's own)."""

    sum_pseudo_count: float = 0.0
    leaf: Prior | None = None


DEFAULT_PRIORS = Priors()


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
    starts = np.array(list(network.edge_offsets.values()), dtype=np.int64)
    if not starts.size:
        return old
    counts = flows + pseudo_count
    totals = np.add.reduceat(counts, starts)
    widths = np.diff(np.append(starts, counts.size))
    spread = np.repeat(totals, widths)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(spread > 0, counts / spread, old)
    return weights


def _new_parameters(
    template: Template, old: NetworkParameters, flows: NetworkFlows, priors: Priors
) -> NetworkParameters:
    weights = _new_weights(template, old.weights, flows.weights, priors.sum_pseudo_count)
    leaves = tuple(
        bank.family.maximise(statistics, priors.leaf)
        for bank, statistics in zip(template.banks, flows.leaves, strict=True)
    )
    return NetworkParameters(weights, leaves)


def maximise(network: DynamicNetwork, flows: ExpectedFlows, priors: Priors) -> DynamicNetwork:
    """Argmax of the expected complete log-likelihood plus the log prior."""
    old = network.parameters
    top = _new_weights(network.top, old.top.weights, flows.top.weights, priors.sum_pseudo_count)
    bottom = None
    if old.bottom is not None and flows.bottom is not None:
        bottom = _new_parameters(network.template, old.bottom, flows.bottom, priors)
    template = _new_parameters(network.template, old.template, flows.template, priors)
    return network.with_parameters(Parameters(template, NetworkParameters(top), bottom))


def em_step(
    network: DynamicNetwork,
    data: Sequences,
    *,
    priors: Priors = DEFAULT_PRIORS,
    weights: Floats | None = None,
    program: Program | None = None,
) -> EmStep:
    """One full-batch step of expectation maximisation."""
    found = expected_flows(program or compile_program(network), data, weights)
    return EmStep(maximise(network, found.flows, priors), found.log_likelihood)
