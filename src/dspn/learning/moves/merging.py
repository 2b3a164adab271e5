"""Merging: two interface nodes that say nearly the same become one.

What is lost is what the leaves and transitions of the two say differently, weighed by how often
each is used. A node that only stands for another one costs time and takes data away from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._checks import float_array, indices, require_type
from dspn.errors import StructureError
from dspn.learning.moves._rewiring import SumEdges, rebuilt, rewired
from dspn.learning.moves._shapes import Shapes
from dspn.structure import (
    DynamicNetwork,
    Leaf,
    NetworkParameters,
    Parameters,
    Sum,
    Template,
    Top,
)
from dspn.structure.nodes import children_of

Pair = tuple[int, int]


@final
@dataclass(frozen=True)
class _Counterpart:
    """A leaf or sum that stays, the one at its place in an output that goes, and its share."""

    kept: int
    removed: int
    share: float


def _counterparts(shapes: Shapes, pairs: Sequence[Pair], shares: Floats) -> list[_Counterpart]:
    """Leaves and sums of the outputs that stay and of those that go, where both have one shape."""
    found: list[_Counterpart] = []
    for (kept, removed), share in zip(pairs, shares.tolist(), strict=True):
        shape, places = shapes.shape(kept)
        other, given = shapes.shape(removed)
        if shape == other:
            found.extend(
                _Counterpart(one, two, share) for one, two in zip(places, given, strict=True)
            )
    return found


def _replaced(part: Template | Top, pairs: Sequence[Pair]) -> dict[int, int]:
    """The input that takes the place of each input that goes."""
    return {part.inputs[removed]: part.inputs[kept] for kept, removed in pairs}


def _renamed(edges: SumEdges, replaced: Mapping[int, int], num_nodes: int) -> SumEdges:
    """The edges with every child that is replaced by another led to that one."""
    name = np.arange(num_nodes)
    name[list(replaced)] = list(replaced.values())
    return SumEdges(edges.source, edges.parent, name[edges.child])


def _shared_edges(
    shapes: Shapes, template: Template, edges: SumEdges, sums: Sequence[_Counterpart]
) -> tuple[SumEdges, Floats]:
    """The edges with those of each counterpart beside the ones that stay, and the share of each."""
    factor = np.ones(edges.source.size)
    parts, shares = [edges], [factor]
    for own in sums:
        mine, theirs = (
            template.edge_offsets[node] + np.arange(len(children_of(template.nodes[node])))
            for node in (own.kept, own.removed)
        )
        factor[mine] = own.share
        # A choice has the children that either has; other sums match child by child.
        child = edges.child[theirs if own.kept in shapes.choices else mine]
        parts.append(SumEdges(theirs, np.full(theirs.size, own.kept), child))
        shares.append(np.full(theirs.size, 1.0 - own.share))
    return SumEdges.together(parts), np.concatenate(shares)


def _averaged_leaves(
    template: Template, rows: Sequence[Floats], leaves: Sequence[_Counterpart]
) -> tuple[Floats, ...]:
    """Parameters of all leaves, those with counterparts averaged with them."""
    share_of = {own.kept: own for own in leaves}
    found = []
    for bank, own in zip(template.banks, rows, strict=True):
        row_of = {node: row for row, node in enumerate(bank.nodes)}
        pairs = [share_of[node] for node in bank.nodes if node in share_of]
        if pairs:
            kept = [row_of[pair.kept] for pair in pairs]
            removed = [row_of[pair.removed] for pair in pairs]
            share = np.array([[pair.share] for pair in pairs])
            own = own.copy()
            own[kept] = bank.family.average(own[kept], own[removed], share)
        found.append(own)
    return tuple(found)


def merged_interfaces(
    network: DynamicNetwork, pairs: Sequence[Pair], *, weights: Floats | None = None
) -> DynamicNetwork:
    """Of each pair (a, b) of interface nodes of one group, b is taken away and a stands for both.

    Every edge to input b leads to input a instead, and weights of edges that then lead from one sum
    to one input add up. Where the outputs of a and b have the same shape, the leaves and sums of a
    become averages of both, weighted by `weights`: expected visits of each interface node, such as
    those of `interface_use`, or equal ones; a transition has the inputs of either. Nodes that other
    outputs have as well stay as they are, and so does a where the shapes differ. The order of
    positions is kept.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    chosen = _checked_pairs(network, pairs)
    template, top, old = network.template, network.top, network.parameters
    shapes = Shapes(network)
    found = _counterparts(shapes, chosen, _shares(network, chosen, weights))
    leaves = [own for own in found if isinstance(template.nodes[own.kept], Leaf)]
    sums = [own for own in found if isinstance(template.nodes[own.kept], Sum)]
    replaced, replaced_top = _replaced(template, chosen), _replaced(top, chosen)
    stays, positions = _remaining(network, chosen)
    outputs = [template.outputs[position] for position in stays]
    own_edges = _renamed(SumEdges.of(template), replaced, len(template.nodes))
    edges, factor = _shared_edges(shapes, template, own_edges, sums)
    new = rewired(template, edges, outputs, positions, replaced)
    top_edges = _renamed(SumEdges.of(top), replaced_top, len(top.nodes))
    root = replaced_top.get(top.root, top.root)
    new_top = rewired(top, top_edges, [root], positions, replaced_top)

    def joined(own: NetworkParameters) -> NetworkParameters:
        rows = new.leaves(template, _averaged_leaves(template, own.leaves, leaves))
        return NetworkParameters(new.weights(factor * own.weights[edges.source]), rows)

    parameters = Parameters(
        joined(old.template),
        NetworkParameters(new_top.weights(old.top.weights)),
        None if old.bottom is None else joined(old.bottom),
    )
    return rebuilt(network, new, new_top, outputs, root, parameters)


def _remaining(network: DynamicNetwork, pairs: Sequence[Pair]) -> tuple[list[int], Ints]:
    """The positions that stay, and the new position of each, -1 for one that goes."""
    gone = {removed for _, removed in pairs}
    stays = [position for position in range(network.num_interfaces) if position not in gone]
    positions = np.full(network.num_interfaces, -1, dtype=np.int64)
    positions[stays] = np.arange(len(stays))
    return stays, positions


def _checked_pairs(network: DynamicNetwork, pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs as ints; raises unless each is of one group and none shares a node with another."""
    group_of = {own: number for number, group in enumerate(network.groups) for own in group}
    found: list[Pair] = []
    for pair in pairs:
        own = indices(pair, "pairs", StructureError)
        if len(own) != 2 or any(position not in group_of for position in own):
            raise StructureError(
                "`pairs` must hold pairs of interface nodes by numbers from 0 to "
                f"{network.num_interfaces - 1}, but has {pair!r}; give (a, b)."
            )
        if group_of[own[0]] != group_of[own[1]]:
            raise StructureError(
                f"`pairs` must hold two nodes of one group, but {own[0]} and {own[1]} are of "
                "different groups; see `network.groups`."
            )
        found.append((own[0], own[1]))
    flat = [position for pair in found for position in pair]
    if len(set(flat)) != len(flat):
        raise StructureError(
            f"`pairs` must name each interface node at most once, but is {found}; merge in turns."
        )
    return found


def _shares(network: DynamicNetwork, pairs: Sequence[Pair], weights: Floats | None) -> Floats:
    """The share of the first of each pair in the use of both."""
    use = np.ones(network.num_interfaces)
    if weights is not None:
        use = float_array(weights, "weights", StructureError)
        if use.shape != (network.num_interfaces,) or not np.all(np.isfinite(use) & (use >= 0)):
            raise StructureError(
                f"`weights` must have one finite number that is not negative for each of the "
                f"{network.num_interfaces} interface nodes, but is of shape {use.shape} and runs "
                f"from {np.min(use, initial=np.inf)} to {np.max(use, initial=-np.inf)}; give "
                "`interface_use`."
            )
    one, other = (np.array([use[pair[i]] for pair in pairs]) for i in (0, 1))
    total = one + other
    return np.where(total > 0, one / np.where(total > 0, total, 1.0), 0.5)
