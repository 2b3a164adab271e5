"""Parameters for slices whose lags are missing, learned from all slices."""

from typing import Final

import numpy as np

from dspn._arguments import Floats
from dspn.data.sequences import Sequences, drawn_places
from dspn.engine import compile_program
from dspn.engine.base import Want
from dspn.inference.likelihood import bounded_runs
from dspn.learning.priors import Priors
from dspn.leaves.base import NO_WEIGHT
from dspn.leaves.told import Told, has_lags, told_values
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork
from dspn.structure.parameters import NetworkParameters, Parameters

# Slices that are learned from, and weights of leaves that are held at a time.
_MOST_SLICES: Final = 50_000
_MOST_WEIGHTS: Final = 1 << 22
# All slices together count as many as this that have no lags, for each leaf; and as many that have
# some, which in training are often the second slices of sequences only.
_WEIGHT: Final = 5.0
_WEIGHT_OF_STEPS: Final = 50.0
# Steps of a rule without sufficient statistics.
_STEPS: Final = 20


def learn_unlagged(
    model: DynamicNetwork | Mixture, data: Sequences, priors: Priors, rng: np.random.Generator
) -> DynamicNetwork | Mixture:
    """The model with new parameters for slices whose leaves are not told all entries.

    In training these may be few, such as the first slices of sequences, while gaps come anywhere.
    So all slices, as if no leaf were told an entry, count as five more of them for each leaf, and
    as fifty where leaves are told some. What leaves do with all of their lags stays as it is.
    """
    if not has_lags(model.schema):
        return model
    data = data[drawn_places(data, _MOST_SLICES, rng)]
    if isinstance(model, Mixture):
        changed = tuple(_relearn(own, data, priors) for own in model.components)
        return Mixture(changed, model.weights)
    return _relearn(model, data, priors)


def _relearn(network: DynamicNetwork, data: Sequences, priors: Priors) -> DynamicNetwork:
    banks, own = network.template.banks, network.parameters
    program = compile_program(network)
    every = np.ones(data.values.shape, dtype=np.bool_)
    costs = data.lengths * sum(len(bank.nodes) for bank in banks)
    found: list[list[Floats]] = [[] for _ in banks]
    for run in bounded_runs(costs, _MOST_WEIGHTS):
        rows = slice(data.offsets[run.start], data.offsets[run.stop])
        posteriors = program.posteriors(data[run], Want(leaves=every[rows])).leaves
        for parts, weights in zip(found, posteriors, strict=True):
            parts.append(np.nan_to_num(weights))
    leaves = list(own.template.leaves)
    for number, bank in enumerate(banks):
        if not isinstance(bank.family, Told) or not bank.family.is_told_values:
            continue
        counts = np.concatenate(found[number]).T
        values = told_values(data, bank.variable)
        # The untied bottom network has leaves of its own, which stand on one slice each.
        parameters, prior = leaves[number], priors.leaf(bank.family, bank.variable)
        for _ in range(_STEPS if bank.family.is_stepped else 1):
            statistics = bank.family.expected_statistics(parameters, values, counts)
            for step, told in enumerate(bank.family.shortened(values)):
                everywhere = bank.family.expected_statistics(parameters, told, counts)
                weight = _WEIGHT_OF_STEPS if step else _WEIGHT
                statistics += everywhere * np.minimum(
                    1.0, weight / np.maximum(everywhere[:, :1], NO_WEIGHT)
                )
            parameters = bank.family.with_unlagged(parameters, statistics, prior)
        leaves[number] = parameters
    template = NetworkParameters(own.template.weights, tuple(leaves))
    return network.with_parameters(Parameters(template, own.top, own.bottom))
