"""Growing by splitting: an interface node becomes two that begin as near copies of each other.

A split changes the distribution little or, without noise, not at all, so everything learned so far
is kept, and the new node begins where the data are instead of at random.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._checks import checked_rng, indices, require_type
from dspn.engine import Program
from dspn.errors import StructureError
from dspn.inference import interface_posteriors
from dspn.learning.starts._doubling import (
    Doubled,
    doubled_template,
    doubled_top,
    doubled_weights,
)
from dspn.leaves import Family
from dspn.sequences import Sequences
from dspn.structure import (
    DynamicNetwork,
    NetworkParameters,
    Parameters,
    Product,
    Sum,
    Template,
    Top,
)

_MOST_DRAWS: Final = 10_000
# Posteriors are held for this many slices at a time.
_SLICES_AT_ONCE: Final = 1 << 16


def _below_sums_only(network: Template | Top) -> bool:
    """Whether the flows of sums say how often every input was visited."""
    inputs = set(network.inputs)
    return not any(
        isinstance(node, Product) and not inputs.isdisjoint(node.children) for node in network.nodes
    )


def _input_flows(network: Template | Top, flows: Floats) -> Floats:
    """Expected visits of each input through the sums above it."""
    position = np.full(len(network.nodes), -1, dtype=np.int64)
    position[list(network.inputs)] = np.arange(len(network.inputs))
    children = [child for node in network.nodes if isinstance(node, Sum) for child in node.children]
    target = position[children]
    used = target >= 0
    visits = np.bincount(target[used], flows[used], minlength=len(network.inputs))
    return visits.astype(np.float64)


def interface_use(
    program: Program, data: Sequences, sample_weights: Floats | None = None
) -> Floats:
    """Expected visits of each interface node: sum over slices of P(node | evidence), (k,).

    Over the nodes of a group that every slice reads, it adds up to the number of slices, each
    counted with the weight of its sequence.
    """
    network = program.network
    top = network.top
    if _below_sums_only(network.template) and _below_sums_only(top) and top.root not in top.inputs:
        flows = program.expected_flows(data, sample_weights).flows
        return _input_flows(network.template, flows.template.weights) + _input_flows(
            top, flows.top.weights
        )
    # Below a product an input has no edge of its own to count; posteriors are right everywhere.
    weights = np.ones(len(data)) if sample_weights is None else np.asarray(sample_weights)
    use = np.zeros(network.num_interfaces)
    for members in _runs_of_sequences(data.lengths):
        part = data[members]
        use += np.repeat(weights[members], part.lengths) @ interface_posteriors(program, part)
    return use


def _runs_of_sequences(lengths: Ints) -> list[Ints]:
    """Sequences in order, in runs of about `_SLICES_AT_ONCE` slices."""
    run = (np.cumsum(lengths) - lengths) // _SLICES_AT_ONCE
    return np.split(np.arange(lengths.size), np.flatnonzero(np.diff(run)) + 1)


def _refitted(family: Family, rows: Floats, rng: np.random.Generator, noise: float) -> Floats:
    """Leaves fitted to 1 / noise^2 draws from themselves.

    A mean moves by about `noise` standard deviations, a probability by `noise` sqrt(p (1 - p)):
    every family has its own scale, and a leaf that is certain stays nearly so.
    """
    if noise == 0 or not len(rows):
        return rows
    count = min(math.ceil(noise**-2), _MOST_DRAWS)
    values = family.sample(np.repeat(rows, count, axis=0), rng)
    statistics = family.statistics(values).reshape(len(rows), count, -1).sum(axis=1)
    return family.maximise(statistics)


def _split_parameters(
    template: Template,
    old: NetworkParameters,
    doubled: Doubled,
    rng: np.random.Generator,
    noise: float,
) -> NetworkParameters:
    leaves = []
    for bank, rows in zip(template.banks, old.leaves, strict=True):
        row_of = {node: row for row, node in enumerate(bank.nodes)}
        copied = [row_of[node] for node in doubled.original if node in row_of]
        leaves.append(np.concatenate([rows, _refitted(bank.family, rows[copied], rng, noise)]))
    weights = doubled_weights(old.weights, doubled.edges, rng, noise)
    return NetworkParameters(weights, tuple(leaves))


def split_interfaces(
    network: DynamicNetwork,
    positions: Sequence[int],
    rng: np.random.Generator,
    noise: float = 0.1,
) -> DynamicNetwork:
    """Each interface node at `positions` becomes two of the same group, k -> k + len(positions).

    The sub-network of the output is copied down to the inputs, which are shared; the copy is the
    output of a new last position, and the new input stands wherever the old one stood: beside it
    below a sum, where the two share its weight, and with it in a sum of two below a product. Nodes
    that were there keep their numbers.

    With `noise=0` both halves of every weight are equal and the distribution is that of `network`.
    Otherwise weights of the copies are multiplied by exp(noise N(0, 1)), shared weights are divided
    in odds of exp(noise N(0, 1)), and copied leaves are fitted again to 1 / noise^2 draws from
    themselves, under the default prior of their family.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    checked_rng(rng, StructureError)
    chosen = _checked_positions(positions, network.num_interfaces)
    if not (isinstance(noise, int | float) and 0.0 <= noise <= 1.0):
        raise StructureError(
            f"`noise` must be a number between 0 and 1, but is {noise!r}; 0.1 is usual."
        )
    template, doubled = doubled_template(network.template, chosen)
    top, doubled_cap = doubled_top(network.top, chosen)
    old = network.parameters
    own = None
    if old.bottom is not None:
        own = _split_parameters(network.template, old.bottom, doubled, rng, noise)
    parameters = Parameters(
        _split_parameters(network.template, old.template, doubled, rng, noise),
        NetworkParameters(doubled_weights(old.top.weights, doubled_cap.edges, rng, noise)),
        own,
    )
    return DynamicNetwork(template, top, parameters, network.root)


def split_interface(
    network: DynamicNetwork, position: int, rng: np.random.Generator, noise: float = 0.1
) -> DynamicNetwork:
    """One interface node becomes two, k -> k + 1; see `split_interfaces`."""
    return split_interfaces(network, (position,), rng, noise)


def _checked_positions(positions: Sequence[int], num_interfaces: int) -> tuple[int, ...]:
    chosen = indices(positions, "positions", StructureError)
    fits = all(0 <= position < num_interfaces for position in chosen)
    if not chosen or not fits or len(set(chosen)) != len(chosen):
        raise StructureError(
            "`positions` must name different interface nodes, at least one, by numbers from 0 to "
            f"{num_interfaces - 1}, but is {chosen}."
        )
    return chosen
