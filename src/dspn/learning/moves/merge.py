"""Merging: two interface nodes with nearly the same distributions become one.

What is lost is what the leaves and transitions of the two say differently, weighed by how often
each is used. A node that only repeats another one costs time and takes data away from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._checks import float_array, indices, require_type, whole_number
from dspn.engine import ExpectedFlows, NetworkFlows
from dspn.errors import StructureError
from dspn.learning.moves.edges import check_flows, input_visits
from dspn.leaves import Categorical, Family, Gaussian
from dspn.structure import DynamicNetwork, Input, Leaf, Product, Sum, Template
from dspn.structure.edit import Entry, reduce_network, template_entries, top_entries
from dspn.structure.nodes import children_of
from dspn.structure.validity import network_scopes

Pair = tuple[int, int]
Shape = tuple[tuple[str | int, ...], ...]

# Expected counts below this are taken for none; they cost less than a hundredth of a nat.
_LEAST_COUNT: Final = 1e-3


# Interface nodes whose outputs have the same shape, so that their parameters can be compared.


def _sums_of(template: Template, children: Iterable[int]) -> frozenset[int]:
    """The sums all of whose children are among these nodes."""
    among = frozenset(children)
    return frozenset(
        index
        for index, node in enumerate(template.nodes)
        if isinstance(node, Sum) and among.issuperset(node.children)
    )


def _shared_nodes(template: Template) -> frozenset[int]:
    """The nodes, other than inputs, that stand below several outputs or are one of them."""
    owners = [0] * len(template.nodes)  # a bit for each output at or above the node
    transitions = _sums_of(template, template.inputs)
    for position, output in enumerate(template.outputs):
        owners[output] |= 1 << position
    for index in reversed(template.order):
        if index not in transitions:
            for child in children_of(template.nodes[index]):
                owners[child] |= owners[index]
    several = (index for index, bits in enumerate(owners) if bits.bit_count() > 1)
    return frozenset(several) - frozenset(template.inputs)


@final
class _Shapes:
    """Reads the shapes of a network's outputs, down to inputs and to nodes that outputs share.

    A choice, a sum of such nodes, counts as one place whatever its children are, so that
    transitions that were pruned differently have one shape.
    """

    def __init__(self, network: DynamicNetwork) -> None:
        template = network.template
        marks = [0] * template.num_interfaces
        for group, positions in enumerate(network.groups, start=len(template.schema)):
            for position in positions:
                marks[position] = 1 << group
        self.network = network
        self.scopes = network_scopes(template.nodes, template.order, marks)
        self.shared = _shared_nodes(template)
        self.choices = _sums_of(template, self.shared | frozenset(template.inputs))

    def shape(self, position: int) -> tuple[Shape, list[int]]:
        """The shape below an output, and its leaves and sums in the order of their places.

        Factors of a product are ordered by their scopes. A node that is met again is named by its
        place, so that equal shapes have equal places.
        """
        nodes = self.network.template.nodes
        seen: dict[int, int] = {}
        words: list[tuple[str | int, ...]] = []
        places: list[int] = []
        waiting = [self.network.template.outputs[position]]
        while waiting:
            index = waiting.pop()
            node = nodes[index]
            if index in seen:
                words.append(("again", seen[index]))
                continue
            seen[index] = len(seen)
            if isinstance(node, Input) or index in self.shared:
                words.append(("common", index))
                continue
            if isinstance(node, Product):
                words.append(("product", len(node.children)))
                waiting.extend(sorted(node.children, key=lambda child: -self.scopes[child]))
                continue
            places.append(index)
            if isinstance(node, Leaf):
                words.append(("leaf", node.variable))
            elif index in self.choices:
                words.append(("choice", self.scopes[index]))
            else:
                words.append(("sum", len(node.children)))
                waiting.extend(reversed(node.children))
        return tuple(words), places

    def alike(self) -> list[tuple[list[int], Ints]]:
        """Positions of one group and shape, and their leaves and sums, (positions, places)."""
        members: dict[tuple[int, Shape], list[tuple[int, list[int]]]] = {}
        for number, group in enumerate(self.network.groups):
            for position in group:
                shape, places = self.shape(position)
                members.setdefault((number, shape), []).append((position, places))
        return [
            ([position for position, _ in own], np.array([p for _, p in own], dtype=np.int64))
            for own in members.values()
        ]


# What one distribution in place of two costs: the fall of the largest log-likelihood, in nats.


def _joined(counts: Floats) -> Floats:
    """Sum_j g(x_aj + x_bj) - g(x_aj) - g(x_bj) with g(x) = x log x, (rows, rows); a < b only.

    A column in which one of the two is zero adds nothing, so sparse rows cost what they hold.
    """
    own = counts * np.log(np.where(counts > 0, counts, 1.0))
    losses = np.zeros((len(counts), len(counts)))
    for row in range(len(counts) - 1):
        places = np.flatnonzero(counts[row])
        both = counts[row + 1 :, places] + counts[row, places]
        single = own[row + 1 :, places].sum(axis=1) + own[row].sum()
        losses[row, row + 1 :] = (both * np.log(both)).sum(axis=1) - single
    return losses


def _count_losses(counts: Sequence[Floats]) -> Floats:
    """Loss of categorical distributions over pairs of rows, summed over tables (rows, categories).

    n_a KL(p_a | p_ab) + n_b KL(p_b | p_ab) for two rows of counts whose shares are p_a and p_b and
    together p_ab; upper triangle.
    """
    tables = [np.where(table < _LEAST_COUNT, 0.0, table) for table in counts]
    totals = np.stack([table.sum(axis=1) for table in tables], axis=1)
    return np.maximum(_joined(totals) - _joined(np.concatenate(tables, axis=1)), 0.0)


def _leaf_losses(family: Family, statistics: Floats) -> Floats:
    """Loss of Gaussian or Poisson leaves over pairs of rows of statistics; upper triangle."""
    own = _largest(family, statistics)
    both = statistics[:, None, :] + statistics[None, :, :]
    losses = own[:, None] + own[None, :] - _largest(family, both)
    return np.triu(np.maximum(losses, 0.0), 1)


def _largest(family: Family, statistics: Floats) -> Floats:
    """The largest log-likelihood, up to terms that are linear in the statistics, (...,)."""
    weight, first = statistics[..., 0], statistics[..., 1]
    divisor = np.where(weight > 0, weight, 1.0)
    if isinstance(family, Gaussian):
        floor = family.default_prior.min_variance / family.scale**2
        spread = (statistics[..., 2] - first * first / divisor) / divisor
        return np.asarray(-0.5 * weight * np.log(np.maximum(spread, floor)))
    total = np.maximum(first, 0.0)
    rate = np.where(total > 0, total / divisor, 1.0)
    return np.asarray(total * np.log(rate))


def _choice_counts(shapes: _Shapes, flows: NetworkFlows, nodes: Sequence[int]) -> Floats:
    """Expected counts of the children of the sums at one place, (members, children)."""
    template = shapes.network.template
    below = [np.array(children_of(template.nodes[node])) for node in nodes]
    widths = [own.size for own in below]
    within = np.concatenate([np.arange(width) for width in widths])
    column = within
    if nodes[0] in shapes.choices:
        column = np.unique(np.concatenate(below), return_inverse=True)[1]
    starts = np.repeat([template.edge_offsets[node] for node in nodes], widths)
    counts = np.zeros((len(nodes), int(column.max()) + 1))
    counts[np.repeat(np.arange(len(nodes)), widths), column] = flows.weights[starts + within]
    return counts


def _losses(shapes: _Shapes, flows: NetworkFlows, nodes: Ints) -> Floats:
    """What merging each two of the members may lose, (members, members); upper triangle."""
    template = shapes.network.template
    row_of = {node: row for bank in template.banks for row, node in enumerate(bank.nodes)}
    losses = np.zeros((len(nodes), len(nodes)))
    tables: list[Floats] = []
    for place in nodes.T.tolist():
        first = template.nodes[place[0]]
        if not isinstance(first, Leaf):
            tables.append(_choice_counts(shapes, flows, place))
            continue
        statistics = flows.leaves[first.variable][[row_of[node] for node in place]]
        if isinstance(first.family, Categorical):
            tables.append(statistics[:, 1:])
        else:
            losses += _leaf_losses(first.family, statistics)
    return losses + _count_losses(tables) if tables else losses


class SimilarInterfaces(NamedTuple):
    """Disjoint pairs of interface nodes, the more used one first, and what each merge may lose.

    Losses are in nats over all the data, in rising order.
    """

    pairs: tuple[Pair, ...]
    losses: tuple[float, ...]


def similar_interfaces(
    network: DynamicNetwork, flows: ExpectedFlows, count: int
) -> SimilarInterfaces:
    """Up to `count` disjoint pairs of one group whose merge is estimated to lose least.

    The loss is the fall of the expected log-likelihood of what happens at the visits of the two:
    values at leaves, and choices of sums, the nodes of the next slice among them, when one
    distribution has to fit the visits of both. Outputs of different shapes are not compared; nodes
    that outputs share cost nothing.

    Args:
        network: The network whose interface nodes are compared.
        flows: Its expected flows on the training set.
        count: The largest number of pairs.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    check_flows(network, flows)
    wanted = whole_number(count, "count", StructureError)
    own = flows.template if flows.bottom is None else flows.template + flows.bottom
    shapes = _Shapes(network)
    pairs, losses = [np.zeros((0, 2), np.int64)], [np.zeros(0)]
    for positions, nodes in shapes.alike():
        rows, columns = np.triu_indices(len(positions), 1)
        pairs.append(np.array(positions)[np.stack([rows, columns], axis=1)])
        losses.append(_losses(shapes, own, nodes)[rows, columns])
    loss = np.concatenate(losses)
    order = np.argsort(loss, kind="stable")
    visits = input_visits(network, flows)
    taken: set[int] = set()
    chosen: list[Pair] = []
    costs: list[float] = []
    for (a, b), cost in zip(
        np.concatenate(pairs)[order].tolist(), loss[order].tolist(), strict=True
    ):
        if len(chosen) == wanted:
            break
        if taken.isdisjoint((a, b)):
            taken |= {a, b}
            chosen.append((b, a) if visits[b] > visits[a] else (a, b))
            costs.append(cost)
    return SimilarInterfaces(tuple(chosen), tuple(costs))


# The merge.


def merged_interfaces(
    network: DynamicNetwork, pairs: Sequence[Pair], *, weights: Floats | None = None
) -> DynamicNetwork:
    """Of each pair (a, b) of interface nodes of one group, b is removed and a replaces both.

    Every edge to input b leads to input a instead, and weights of edges that then lead from one sum
    to one input add up. Where the outputs of a and b have the same shape, the leaves and sums of a
    become averages of both; a transition has the inputs of either. Nodes that other outputs have
    as well stay as they are, and so does a where the shapes differ. The order of positions is kept.

    Args:
        network: The network before.
        pairs: Pairs of positions, each position in one pair at most.
        weights: Expected visits of each interface node, such as those of `interface_use`, that
            weigh the averages; by default both count alike.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    chosen = _checked_pairs(network, pairs)
    template, top = template_entries(network), top_entries(network)
    shapes = _Shapes(network)
    for (kept, removed), share in zip(chosen, _shares(network, chosen, weights), strict=True):
        (shape, places), (other, given) = shapes.shape(kept), shapes.shape(removed)
        if shape == other:
            for one, two in zip(places, given, strict=True):
                is_choice = one in shapes.choices
                template[one] = _average(template[one], template[two], share, is_choice)
    inputs = network.template.inputs
    template = _lead(template, {inputs[removed]: inputs[kept] for kept, removed in chosen})
    above = {network.top.inputs[b]: network.top.inputs[a] for a, b in chosen}
    gone = {removed for _, removed in chosen}
    stays = [position for position in range(network.num_interfaces) if position not in gone]
    root = above.get(network.top.root, network.top.root)
    return reduce_network(network, template, _lead(top, above), stays, root)


def _average(one: Entry, other: Entry, share: float, is_choice: bool) -> Entry:
    """A leaf with the moments of the mixture of two; a sum with the edges of both.

    A choice has the children that either has; other sums match child by child.
    """
    node = one.node
    if isinstance(node, Leaf):
        rows = share * one.values + (1.0 - share) * other.values
        if isinstance(node.family, Gaussian):
            rows[:, 1:] += share * (1.0 - share) * (one.values[:, :1] - other.values[:, :1]) ** 2
        return Entry(node, rows)
    theirs = children_of(other.node if is_choice else node)
    values = np.concatenate([share * one.values, (1.0 - share) * other.values], axis=1)
    return Entry(Sum(children_of(node) + theirs), values)


def _lead(entries: Sequence[Entry], replaced: Mapping[int, int]) -> list[Entry]:
    """Entries with edges to other children; of edges between the same two nodes weights add up."""
    changed = []
    for node, values in entries:
        if isinstance(node, Product):
            node = Product(tuple(replaced.get(child, child) for child in node.children))
        elif isinstance(node, Sum):
            below = [replaced.get(child, child) for child in node.children]
            place = {child: number for number, child in enumerate(dict.fromkeys(below))}
            if len(place) < len(below):
                target = [place[child] for child in below]
                values = np.stack([np.bincount(target, own) for own in values])
            node = Sum(tuple(place))
        changed.append(Entry(node, values))
    return changed


def _checked_pairs(network: DynamicNetwork, pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs as ints; raises unless each is of one group and none shares a node with another."""
    group_of = {own: number for number, group in enumerate(network.groups) for own in group}
    chosen: list[Pair] = []
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
        chosen.append((own[0], own[1]))
    flat = [position for pair in chosen for position in pair]
    if len(set(flat)) != len(flat):
        raise StructureError(
            f"`pairs` must name each interface node at most once, but is {chosen}; merge in turns."
        )
    return chosen


def _shares(network: DynamicNetwork, pairs: Sequence[Pair], weights: Floats | None) -> list[float]:
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
    return [float(use[a] / (use[a] + use[b])) if use[a] + use[b] > 0 else 0.5 for a, b in pairs]
