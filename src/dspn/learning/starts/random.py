"""Random starting parameters for a given structure."""

import numpy as np

from dspn._arrays import Floats
from dspn._checks import checked_rng, require_type
from dspn.errors import StructureError
from dspn.learning.em import scaled_families
from dspn.sequences import Sequences
from dspn.structure import DynamicNetwork, NetworkParameters, Parameters, Template, Top
from dspn.structure.parameters import sum_starts

_SMALLEST = float(np.finfo(np.float64).tiny)


def random_weights(network: Template | Top, rng: np.random.Generator) -> Floats:
    """Weights of every sum from Dirichlet(1), in the order of the flat weight vector."""
    # Exponential draws, normalised; a draw of exactly zero must not leave a sum without weight.
    weights = rng.standard_exponential(network.num_weights) + _SMALLEST
    starts = sum_starts(network)
    if not starts.size:
        return weights
    widths = np.diff(np.append(starts, weights.size))
    shares: Floats = weights / np.repeat(np.add.reduceat(weights, starts), widths)
    return shares


def randomised(
    network: DynamicNetwork, data: Sequences, rng: np.random.Generator
) -> DynamicNetwork:
    """The same structure with random parameters: weights from Dirichlet(1), leaves near the data.

    Leaf families are scaled to the data, and leaves drawn as `Family.random` says. A bottom network
    of its own is drawn independently.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    checked_rng(rng, StructureError)
    scaled = scaled_families(network, data)
    template = scaled.template

    def drawn() -> NetworkParameters:
        leaves = tuple(
            bank.family.random(len(bank.nodes), rng, data.values[:, bank.variable])
            for bank in template.banks
        )
        return NetworkParameters(random_weights(template, rng), leaves)

    top = NetworkParameters(random_weights(scaled.top, rng))
    bottom = None if scaled.parameters.tied else drawn()
    return scaled.with_parameters(Parameters(drawn(), top, bottom))
