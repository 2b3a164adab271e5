"""Growing by splitting: an interface node becomes two that begin as near copies of each other.

A split changes the distribution little or, without noise, not at all, so everything learned so far
is kept, and the new node begins where the data are instead of at random.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from dspn._arguments import Floats, checked_rng, indices, require_type
from dspn.data.sequences import Sequences
from dspn.engine.base import Program
from dspn.errors import StructureError
from dspn.learning.moves import input_visits, posterior_runs
from dspn.leaves.base import Contextual, Family
from dspn.structure.edit import Entry, build_network, template_entries, top_entries
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Input, Leaf, Node, Product, Sum, children_of, reachable
from dspn.structure.template import Template, Top

_MOST_DRAWS: Final = 10_000


def _below_sums_only(part: Template | Top) -> bool:
    """Whether the flows of sums say how often every input was visited."""
    products = (node.children for node in part.nodes if isinstance(node, Product))
    return set(part.inputs).isdisjoint(chain.from_iterable(products))


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
        return input_visits(network, program.expected_flows(data, sample_weights).flows)
    # Below a product an input has no edge of its own to count; posteriors are right everywhere.
    weights = np.ones(len(data)) if sample_weights is None else np.asarray(sample_weights)
    use = np.zeros(network.num_interfaces)
    for members, part, posteriors in posterior_runs(program, data):
        use += np.repeat(weights[members], part.lengths) @ posteriors
    return use


class _Split(NamedTuple):
    """Nodes after a split: old ones keep their numbers, new ones stand behind them.

    `origin` has the old node that each is or copies, -1 where there is none; `twins` the new input
    of each old one that was split; `ends` the copies of the outputs, or the root of the top.
    """

    nodes: list[Node]
    origin: list[int]
    twins: dict[int, int]
    ends: list[int]


def _split_nodes(part: Template | Top, positions: Sequence[int]) -> _Split:
    """A copy of each output at `positions`, and beside each of the inputs there a new one.

    The sub-network of an output is copied down to the inputs, which are shared. A new input stands
    beside the old one below sums, and with it in a sum of two below products.
    """
    old = part.nodes
    nodes, origin = list(old), list(range(len(old)))

    def add(node: Node, source: int = -1) -> int:
        nodes.append(node)
        origin.append(source)
        return len(nodes) - 1

    places = enumerate(positions, start=len(part.inputs))
    twins = {part.inputs[position]: add(Input(place)) for place, position in places}

    def copy(root: int) -> int:
        below = sorted(i for i in reachable(old, [root]) if not isinstance(old[i], Input))
        number = {node: len(nodes) + place for place, node in enumerate(below)}
        for index in below:
            node = old[index]
            if isinstance(node, Sum | Product):
                below_it = tuple(number.get(child, child) for child in node.children)
                node = replace(node, children=below_it)
            add(node, index)
        return number[root]

    def either(node: int) -> int:
        return add(Sum((node, twins[node]))) if node in twins else node

    ends = []
    if isinstance(part, Template):
        ends = [copy(part.outputs[position]) for position in positions]
    for number, node in enumerate(list(nodes)):
        if isinstance(node, Product):
            nodes[number] = Product(tuple(map(either, node.children)))
        elif isinstance(node, Sum):
            beside = tuple(twins[child] for child in node.children if child in twins)
            nodes[number] = replace(node, children=node.children + beside)
    if isinstance(part, Top):
        ends = [either(part.root)]
    return _Split(nodes, origin, twins, ends)


def _refit(family: Family, rows: Floats, rng: np.random.Generator, noise: float) -> Floats:
    """Leaves fitted to 1 / noise^2 draws from themselves.

    A mean moves by about `noise` standard deviations, a probability by `noise` sqrt(p (1 - p)):
    every family has its own scale, and a leaf that is certain stays nearly so.
    """
    if noise == 0:
        return rows
    if isinstance(family, Contextual):
        return family.spread(rows, rng, noise)
    count = min(math.ceil(noise**-2), _MOST_DRAWS)
    values = family.sample(np.repeat(rows, count, axis=0), rng)
    statistics = family.statistics(values).reshape(len(rows), count, -1).sum(axis=1)
    return family.maximise(statistics)


def _num_tables(split: _Split, index: int, old: Sequence[Floats]) -> int:
    """How many tables a sum has, from the number of its old weights."""
    origin = split.origin[index]
    if origin < 0:
        return 1
    twins = set(split.twins.values())
    children = children_of(split.nodes[index])
    return old[origin].size // sum(child not in twins for child in children)


def _split_values(
    split: _Split, old: Sequence[Floats], rng: np.random.Generator, noise: float
) -> list[Floats]:
    """The parameters of every node after a split, from those of the old nodes.

    Old weights are shared out between twins; those of copies are multiplied by exp(noise N(0, 1)).
    """
    values = [old[source] if source >= 0 else np.ones(0) for source in split.origin]
    copied = range(len(old), len(values))
    leaves: dict[tuple[int, Family], list[int]] = {}
    for index in copied:
        node = split.nodes[index]
        if isinstance(node, Leaf):
            leaves.setdefault((node.variable, node.family), []).append(index)
    for (_, family), members in sorted(leaves.items(), key=lambda item: item[0][0]):
        rows = np.stack([values[index] for index in members])
        for index, row in zip(members, _refit(family, rows, rng, noise), strict=True):
            values[index] = row
    sums = [(index, node) for index, node in enumerate(split.nodes) if isinstance(node, Sum)]
    beside = [np.flatnonzero([c in split.twins for c in node.children]) for _, node in sums]
    is_copy = [index in copied and split.origin[index] >= 0 for index, _ in sums]
    ends = np.cumsum([len(places) for places in beside])
    pairs = rng.standard_normal(ends[-1] if sums else 0)
    shares = iter(np.split(1.0 / (1.0 + np.exp(noise * pairs)), ends))
    widths = [
        len(node.children) * _num_tables(split, index, old)
        for (index, node), own in zip(sums, is_copy, strict=True)
        if own
    ]
    draws = np.exp(noise * rng.standard_normal(sum(widths)))
    factors = iter(np.split(draws, np.cumsum(widths, dtype=np.int64)))
    for (index, _), places, copy in zip(sums, beside, is_copy, strict=True):
        own = values[index] if split.origin[index] >= 0 else np.ones(1)
        own = own.reshape(_num_tables(split, index, old), -1)
        share = next(shares)
        weights = np.concatenate([own, own[:, places] * (1.0 - share)], axis=1)
        weights[:, places] *= share
        if copy:
            # Other sums add up to 1 as they did; dividing them would change their last bits. Added
            # up as flat weights are, so that the last bits are the same.
            weights *= next(factors).reshape(weights.shape)
            weights /= np.add.reduceat(weights, [0], axis=1)
        values[index] = weights.reshape(-1)
    return values


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

    Args:
        network: The network before.
        positions: The interface nodes to split, by number.
        rng: The source of randomness.
        noise: How far the copies differ, between 0 and 1. With 0 both halves of every weight are
            equal and the distribution is that of `network`. Otherwise weights of the copies are
            multiplied by exp(noise N(0, 1)), shared weights are divided in odds of exp(noise
            N(0, 1)), and copied leaves are fitted again to 1 / noise^2 draws from themselves, under
            the default prior of their family.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    checked_rng(rng, StructureError)
    chosen = indices(positions, "positions", StructureError)
    size = network.num_interfaces
    fits = all(0 <= position < size for position in chosen)
    if not chosen or not fits or len(set(chosen)) != len(chosen):
        raise StructureError(
            "`positions` must name different interface nodes, at least one, by numbers from 0 to "
            f"{size - 1}, but is {chosen}."
        )
    if not (isinstance(noise, int | float) and 0.0 <= noise <= 1.0):
        raise StructureError(
            f"`noise` must be a number between 0 and 1, but is {noise!r}; 0.1 is usual."
        )

    def halved(part: Template | Top, entries: Sequence[Entry]) -> tuple[list[Entry], list[int]]:
        split = _split_nodes(part, chosen)
        sets = range(len(entries[0].values))
        # The bottom network, the last set, is drawn before the template.
        columns = [
            _split_values(split, [entry.values[place] for entry in entries], rng, noise)
            for place in reversed(sets)
        ][::-1]
        values = map(np.stack, zip(*columns, strict=True))
        return list(map(Entry, split.nodes, values)), split.ends

    template, copies = halved(network.template, template_entries(network))
    top, (root,) = halved(network.top, top_entries(network))
    outputs = (*network.template.outputs, *copies)
    return build_network(network.schema, template, outputs, top, root, network.root)


def split_interface(
    network: DynamicNetwork, position: int, rng: np.random.Generator, noise: float = 0.1
) -> DynamicNetwork:
    """One interface node becomes two, k -> k + 1; see `split_interfaces`."""
    return split_interfaces(network, (position,), rng, noise)
