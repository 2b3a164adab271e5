"""Which interface nodes are alike: pairs that one node could stand for at little loss."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._checks import require_type, whole_number
from dspn.engine import ExpectedFlows, NetworkFlows
from dspn.errors import StructureError
from dspn.learning.moves._losses import count_losses, leaf_losses
from dspn.learning.moves._rewiring import SumEdges, checked_flows
from dspn.learning.moves._shapes import Alike, Shapes
from dspn.leaves import Categorical
from dspn.structure import DynamicNetwork, Leaf
from dspn.structure.nodes import children_of

Pair = tuple[int, int]


class SimilarInterfaces(NamedTuple):
    """Disjoint pairs of interface nodes, the more used one first, and what each merge may lose.

    Losses are in nats over all the data, in rising order.
    """

    pairs: tuple[Pair, ...]
    losses: tuple[float, ...]


def _place_counts(shapes: Shapes, flows: NetworkFlows, nodes: Sequence[int]) -> Floats:
    """Expected counts of the children of the sums at one place, (members, children)."""
    template = shapes.network.template
    below = [np.array(children_of(template.nodes[node])) for node in nodes]
    widths = np.array([own.size for own in below])
    starts = np.array([template.edge_offsets[node] for node in nodes])
    within = np.concatenate([np.arange(width) for width in widths])
    column = within
    if nodes[0] in shapes.choices:
        column = np.unique(np.concatenate(below), return_inverse=True)[1]
    counts = np.zeros((len(nodes), int(column.max()) + 1))
    counts[np.repeat(np.arange(len(nodes)), widths), column] = flows.weights[
        np.repeat(starts, widths) + within
    ]
    return counts


def _losses(shapes: Shapes, flows: NetworkFlows, alike: Alike) -> Floats:
    """What merging each two of the members may lose, (members, members); upper triangle."""
    template = shapes.network.template
    row_of = {node: row for bank in template.banks for row, node in enumerate(bank.nodes)}
    losses = np.zeros((len(alike.positions), len(alike.positions)))
    tables: list[Floats] = []
    for place in alike.nodes.T.tolist():
        first = template.nodes[place[0]]
        if isinstance(first, Leaf):
            statistics = flows.leaves[first.variable][[row_of[node] for node in place]]
            if isinstance(first.family, Categorical):
                tables.append(statistics[:, 1:])
            else:
                losses += leaf_losses(first.family, statistics)
        else:
            tables.append(_place_counts(shapes, flows, place))
    return losses + count_losses(tables) if tables else losses


def similar_interfaces(
    network: DynamicNetwork, flows: ExpectedFlows, count: int
) -> SimilarInterfaces:
    """Up to `count` disjoint pairs of one group whose merge is estimated to lose least.

    The loss is the fall of the expected log-likelihood of what happens at the visits of the two:
    values at leaves, and choices of sums, the nodes of the next slice among them, when one
    distribution has to fit the visits of both. `flows` are the expected flows on the training set.
    Outputs of different shapes are not compared; nodes that outputs share cost nothing.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    checked_flows(network, flows)
    wanted = whole_number(count, "count", StructureError)
    own = flows.template if flows.bottom is None else flows.template + flows.bottom
    shapes = Shapes(network)
    one, other, loss = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
    for alike in shapes.alike():
        rows, columns = np.triu_indices(len(alike.positions), 1)
        positions = np.array(alike.positions)
        one.append(positions[rows])
        other.append(positions[columns])
        loss.append(_losses(shapes, own, alike)[rows, columns])
    found = _disjoint(np.concatenate(one), np.concatenate(other), np.concatenate(loss), wanted)
    visits = _visits(network, flows)
    pairs = tuple((b, a) if visits[b] > visits[a] else (a, b) for a, b, _ in found)
    return SimilarInterfaces(pairs, tuple(value for _, _, value in found))


def _disjoint(one: Ints, other: Ints, loss: Floats, count: int) -> list[tuple[int, int, float]]:
    """The pairs of least loss, each node in one of them at most."""
    taken: set[int] = set()
    found: list[tuple[int, int, float]] = []
    for place in np.argsort(loss, kind="stable").tolist():
        if len(found) == count:
            break
        a, b = int(one[place]), int(other[place])
        if a not in taken and b not in taken:
            taken |= {a, b}
            found.append((a, b, float(loss[place])))
    return found


def _visits(network: DynamicNetwork, flows: ExpectedFlows) -> Floats:
    """Expected visits of each interface node through the sums above its inputs, (k,)."""
    found = np.zeros(network.num_interfaces)
    for part, own in (
        (network.template, flows.template.weights),
        (network.top, flows.top.weights),
    ):
        use = np.bincount(SumEdges.of(part).child, own, minlength=len(part.nodes))
        found += use[list(part.inputs)]
    return found
