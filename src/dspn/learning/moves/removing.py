"""Removing: interface nodes that the data do not use are taken away."""

from collections.abc import Iterable

import numpy as np

from dspn._arrays import Bools, Floats
from dspn._checks import float_array, require_type
from dspn.errors import StructureError
from dspn.learning.moves._rewiring import SumEdges, thinned
from dspn.leaves.base import require_number
from dspn.structure import DynamicNetwork, Input, Product, Sum, Template, Top


def _possible(part: Template | Top, alive: Bools) -> Bools:
    """Whether each node can be evaluated with the inputs that are alive alone."""
    found = [True] * len(part.nodes)
    for index in part.order:
        node = part.nodes[index]
        if isinstance(node, Input):
            found[index] = bool(alive[node.position])
        elif isinstance(node, Sum):
            found[index] = any(found[child] for child in node.children)
        elif isinstance(node, Product):
            found[index] = all(found[child] for child in node.children)
    return np.array(found)


def _lacking(
    part: Template | Top, weights: Floats, possible: Bools, roots: Iterable[int]
) -> set[int]:
    """Positions without which the roots cannot be evaluated, by the heaviest edges of sums."""
    waiting = [root for root in roots if not possible[root]]
    seen: set[int] = set()
    found: set[int] = set()
    while waiting:
        index = waiting.pop()
        node = part.nodes[index]
        if index in seen or possible[index]:
            continue
        seen.add(index)
        if isinstance(node, Input):
            found.add(node.position)
        elif isinstance(node, Sum):
            start = part.edge_offsets[index]
            own = weights[start : start + len(node.children)]
            waiting.append(node.children[int(np.argmax(own))])
        elif isinstance(node, Product):
            waiting.extend(node.children)
    return found


def _alive(network: DynamicNetwork, use: Floats, least: float) -> Bools:
    """The nodes that are used, the most used of every group, and those that these cannot lack."""
    template, top, own = network.template, network.top, network.parameters
    alive = use >= least
    for group in network.groups:
        alive[group[int(np.argmax(use[list(group)]))]] = True
    while True:
        outputs = [template.outputs[position] for position in np.flatnonzero(alive)]
        lacking = _lacking(
            template, own.template.weights, _possible(template, alive), outputs
        ) | _lacking(top, own.top.weights, _possible(top, alive), [top.root])
        if not lacking:
            return alive
        alive[list(lacking)] = True


def without_dead(network: DynamicNetwork, use: Floats, least: float) -> DynamicNetwork:
    """The network without the interface nodes whose expected visits are below `least`.

    `use` has the visits of each node, such as those of `interface_use`. Every group keeps its most
    used node, and an output that is kept the inputs without which it would have none. Weights of
    sums that lost edges are divided by their sum; the order of positions is kept.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    require_number("without_dead", "least", least, least=0, open_end=False)
    visits = float_array(use, "use", StructureError)
    if visits.shape != (network.num_interfaces,) or np.isnan(visits).any():
        raise StructureError(
            f"`use` must have one number for each of the {network.num_interfaces} interface nodes, "
            f"but has shape {visits.shape}, {int(np.isnan(visits).sum())} of them missing; give "
            "`interface_use`."
        )
    alive = _alive(network, visits, least)
    kept = _possible(network.template, alive)[SumEdges.of(network.template).child]
    kept_top = _possible(network.top, alive)[SumEdges.of(network.top).child]
    return thinned(network, kept, kept_top, np.flatnonzero(alive).tolist())
