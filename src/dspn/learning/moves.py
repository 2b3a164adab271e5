"""Changes of a template that keep what was learned and still makes sense.

Edges by their use: the transitions of a large trained template are mostly empty. Those that the
data hardly use are pruned, which leaves room for more interface nodes; those that the data would
use are regrown. Merging: of two interface nodes with nearly the same distributions one is enough.
What a merge loses is what leaves and transitions of the two say differently, weighed by how often
each is used.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, compress
from typing import Final, NamedTuple, final

import numpy as np

from dspn._arguments import Bools, Floats, Ints, float_array, indices, require_type, whole_number
from dspn.data.sequences import Sequences
from dspn.engine import ExpectedFlows, NetworkFlows, Program, compile_program
from dspn.errors import DataError, StructureError
from dspn.inference.marginals import interface_posteriors
from dspn.leaves.categorical import Categorical
from dspn.options import require_number
from dspn.structure.chain import transition_sums
from dspn.structure.edit import Entry, reduce_network, template_entries, top_entries
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.nodes import Input, Leaf, Product, Sum, children_of
from dspn.structure.parameters import pooled_weights
from dspn.structure.template import Template, Top
from dspn.structure.validity import group_scopes

Pair = tuple[int, int]
Shape = tuple[tuple[str | int, ...], ...]

# New edges have at most this share of a sum's weight: what was learned stays nearly as it is.
_MOST_WEIGHT: Final = 0.05
# Posteriors of this many slices times interface nodes are held at a time.
_NUMBERS_AT_ONCE: Final = 1 << 24
# Expected counts below this are taken for none; they cost less than a hundredth of a nat.
_LEAST_COUNT: Final = 1e-3


def check_flows(network: DynamicNetwork, flows: ExpectedFlows) -> None:
    """Raises unless the flows have the shapes of the network's weights and leaves."""
    require_type(flows, ExpectedFlows, "flows", StructureError, remedy="see `expected_flows`")
    parts = network.template, network.top
    sizes = [*(part.num_weights for part in parts), *(len(b.nodes) for b in parts[0].banks)]
    arrays = [flows.template.weights, flows.top.weights, *flows.template.leaves]
    is_tied = network.parameters.tied
    if [len(own) for own in arrays] != sizes or (flows.bottom is None) != is_tied:
        raise StructureError(
            "`flows` must be the expected flows of `network`, but they are those of a network of "
            "another structure; compute them again with `expected_flows`."
        )


def sum_edges(part: Template | Top) -> tuple[Ints, Ints]:
    """Parent and child of every edge below a sum, in the order of the weights."""
    sums, count = list(part.edge_offsets), part.num_weights
    widths = np.diff([*part.edge_offsets.values(), count])
    nodes = (part.nodes[index] for index in sums)
    children = chain.from_iterable(children_of(node) * part.num_tables(node) for node in nodes)
    parent = np.repeat(np.array(sums, dtype=np.int64), widths)
    return parent, np.fromiter(children, dtype=np.int64, count=count)


def input_visits(network: DynamicNetwork, flows: ExpectedFlows) -> Floats:
    """Expected visits of each interface node through the sums above its inputs, (k,)."""

    def visits(part: Template | Top, own: Floats) -> Floats:
        use = np.bincount(sum_edges(part)[1], own, len(part.nodes)).astype(np.float64)
        return use[list(part.inputs)]

    return visits(network.template, flows.template.weights) + visits(network.top, flows.top.weights)


def posterior_runs(
    program: Program, data: Sequences, most_numbers: int = _NUMBERS_AT_ONCE
) -> Iterator[tuple[Ints, Sequences, Floats]]:
    """Runs of sequences whose interface posteriors fit in memory: members, data and posteriors."""
    run = (np.cumsum(data.lengths) - data.lengths) // max(most_numbers // program.num_interfaces, 1)
    for members in np.split(np.arange(len(data)), np.flatnonzero(np.diff(run)) + 1):
        part = data[members]
        yield members, part, interface_posteriors(program, part)


def adjacent_rows(data: Sequences, root: Root) -> tuple[Ints, Ints]:
    """Rows of neighbouring slices of a sequence: those nearer to the root, and those below."""
    later = np.setdiff1d(np.arange(data.total_slices), data.offsets)
    return (later - 1, later) if root == Root.FIRST else (later, later - 1)


# Pruning.


def _used_edges(part: Template | Top, flows: Floats, least: float) -> Bools:
    """The edges of sums that are used, and the most used one of every sum and of every input."""
    parent, child = sum_edges(part)
    # Rounding may leave a flow just below zero.
    used = np.maximum(flows, 0.0)
    kept = used >= least
    order = np.argsort(-used, kind="stable")
    kept[order[np.unique(parent[order], return_index=True)[1]]] = True
    products = (children_of(node) for node in part.nodes if isinstance(node, Product))
    order = order[np.isin(child[order], sorted(set(part.inputs).difference(*products)))]
    kept[order[np.unique(child[order], return_index=True)[1]]] = True
    return kept


def _thin(entries: Sequence[Entry], kept: Bools) -> list[Entry]:
    """The entries with some edges of sums; weights of a sum that lost one add up to 1 again."""
    thinned = []
    start = 0
    for node, values in entries:
        if isinstance(node, Sum):
            size, width = values.shape[1], len(node.children)
            stays: Bools = np.any(kept[start : start + size].reshape(-1, width), axis=0)
            start += size
            if not stays.all():
                node = replace(node, children=tuple(compress(node.children, stays)))
                tables = values.reshape(-1, width)
                # Added up as flat weights are, so that the last bits are the same.
                total = np.add.reduceat(np.where(stays, tables, 0.0), [0], axis=1)
                tables = tables[:, stays]
                # Where all that is left weighs nothing, no edge is better than another.
                equal = np.full_like(tables, 1.0 / len(node.children))
                tables = np.divide(tables, total, out=equal, where=total > 0)
                values = tables.reshape(len(values), -1)
        thinned.append(Entry(node, values))
    return thinned


def pruned(network: DynamicNetwork, flows: ExpectedFlows, least: float) -> DynamicNetwork:
    """The network without the edges of sums that fewer than `least` slices are expected to use.

    Every sum keeps its most used edge, and every input the most used edge that leads to it; weights
    of a sum that lost edges are divided by their sum. Nodes that nothing leads to any more are left
    out. An edge stays where either the template or an untied bottom network uses it.

    Args:
        network: The network before.
        flows: Its expected flows on the training set.
        least: Expected uses below which an edge is removed.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    check_flows(network, flows)
    require_number("pruned", "least", least, least=0)
    used = flows.template.weights
    if flows.bottom is not None:
        used = used + flows.bottom.weights
    return reduce_network(
        network,
        _thin(template_entries(network), _used_edges(network.template, used, least)),
        _thin(top_entries(network), _used_edges(network.top, flows.top.weights, least)),
    )


# Regrowing.


def regrown(network: DynamicNetwork, data: Sequences, count: int) -> DynamicNetwork:
    """The network with up to `count` more transitions: those that the data would use most.

    The use of an edge from output i to input j that is not there is estimated as the sum over
    neighbouring slices of P(i at the upper | evidence) P(j at the lower | evidence). A new edge
    has its share of the use of all inputs as its weight, and the new edges of a sum at most a
    twentieth together; the weights of the old edges are scaled down to make room. One step of EM
    then shows what each is worth. Edges without use are not added, and outputs other than products
    of one sum of inputs and the slice's own nodes stay as they are.

    Args:
        network: The network before.
        data: The training set.
        count: The largest number of edges to add.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    require_type(data, Sequences, "data", DataError)
    wanted = whole_number(count, "count", StructureError, least=0)
    if not wanted:
        return network
    template, size = network.template, network.num_interfaces
    group_of = {position: group for group in network.groups for position in group}
    position_of = {node: position for position, node in enumerate(template.inputs)}
    above: dict[int, list[int]] = {}
    for position, parent in transition_sums(template).items():
        above.setdefault(parent, []).append(position)
    parents = sorted(above)
    use = np.zeros((size, size))
    for _, part, posteriors in posterior_runs(compile_program(network), data):
        upper, lower = adjacent_rows(part, network.root)
        use += posteriors[upper].T @ posteriors[lower]
    # Only inputs of the group that a sum reads count; a sum of several outputs has the use of all.
    table = np.zeros((len(parents), size))
    absent = np.zeros_like(table)
    for row, parent in enumerate(parents):
        present = [position_of[child] for child in children_of(template.nodes[parent])]
        members = list(group_of[present[0]])
        table[row, members] = use[np.ix_(above[parent], members)].sum(axis=0)
        absent[row] = table[row]
        absent[row, present] = 0.0
    best = np.argsort(-absent, axis=None, kind="stable")[:wanted]
    chosen = np.sort(best[absent.ravel()[best] > 0])
    if not chosen.size:
        return network
    rows, positions = np.divmod(chosen, size)
    share = table.ravel()[chosen] / table.sum(axis=1)[rows]
    total = np.bincount(rows, share, minlength=len(parents))
    share *= np.minimum(1.0, _MOST_WEIGHT / np.maximum(total, _MOST_WEIGHT))[rows]
    room = 1.0 - np.bincount(rows, share, minlength=len(parents))
    entries = template_entries(network)
    for row in np.unique(rows).tolist():
        node, values = entries[parents[row]]
        new = np.flatnonzero(rows == row)
        inputs = (template.inputs[position] for position in positions[new].tolist())
        assert isinstance(node, Sum)
        tables = values.reshape(-1, len(node.children))
        added = np.tile(share[new], (len(tables), 1))
        weights = np.concatenate([tables * room[row], added], axis=1).reshape(len(values), -1)
        grown = replace(node, children=(*node.children, *inputs))
        entries[parents[row]] = Entry(grown, weights)
    return reduce_network(network, entries, top_entries(network))


# Interface nodes whose outputs have the same shape, so that their parameters can be compared.


def _sums_of(template: Template, among: frozenset[int]) -> frozenset[int]:
    """The sums all of whose children are among these nodes."""
    nodes = enumerate(template.nodes)
    return frozenset(i for i, own in nodes if isinstance(own, Sum) and among >= set(own.children))


def _shared_nodes(template: Template) -> frozenset[int]:
    """The nodes, other than inputs, that stand below several outputs or are one of them."""
    owners = [0] * len(template.nodes)  # a bit for each output at or above the node
    transitions = _sums_of(template, frozenset(template.inputs))
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
        self.network = network
        self.scopes = group_scopes(network.template)
        self.shared = _shared_nodes(network.template)
        common = self.shared | frozenset(network.template.inputs)
        self.choices = _sums_of(network.template, common)

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
            elif isinstance(node, Product):
                words.append(("product", len(node.children)))
                waiting.extend(sorted(node.children, key=lambda child: -self.scopes[child]))
            else:
                places.append(index)
                is_whole = isinstance(node, Leaf) or index in self.choices
                size = self.scopes[index] if is_whole else len(children_of(node))
                by = node.by if isinstance(node, Sum) else None
                words.append((type(node).__name__, is_whole, size, -1 if by is None else by))
                waiting.extend(() if is_whole else reversed(children_of(node)))
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


def _choice_counts(shapes: _Shapes, flows: NetworkFlows, nodes: Sequence[int]) -> Floats:
    """Expected counts of the children of the sums at one place, (members, children)."""
    template = shapes.network.template
    below = [np.array(children_of(template.nodes[node])) for node in nodes]
    widths = [own.size for own in below]
    within = np.concatenate([np.arange(width) for width in widths])
    column = within
    if nodes[0] in shapes.choices:
        column = np.unique(np.concatenate(below), return_inverse=True)[1]
    counts = np.zeros((len(nodes), int(column.max()) + 1))
    own = np.concatenate([pooled_weights(template, flows.weights, node) for node in nodes])
    counts[np.repeat(np.arange(len(nodes)), widths), column] = own
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
            continue
        own = first.family.largest_log_likelihood(statistics)
        both = statistics[:, None, :] + statistics[None, :, :]
        fall = own[:, None] + own[None, :] - first.family.largest_log_likelihood(both)
        losses += np.triu(np.maximum(fall, 0.0), 1)
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
    chosen: dict[Pair, float] = {}
    for (a, b), cost in zip(np.concatenate(pairs)[order].tolist(), loss[order], strict=True):
        if len(chosen) < wanted and taken.isdisjoint((a, b)):
            taken |= {a, b}
            chosen[(b, a) if visits[b] > visits[a] else (a, b)] = float(cost)
    return SimilarInterfaces(tuple(chosen), tuple(chosen.values()))


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
    template, shapes = template_entries(network), _Shapes(network)
    for (kept, removed), share in zip(chosen, _shares(network, chosen, weights), strict=True):
        (shape, places), (other, given) = shapes.shape(kept), shapes.shape(removed)
        if shape == other:
            for one, two in zip(places, given, strict=True):
                is_choice = one in shapes.choices
                template[one] = _average(template[one], template[two], share, is_choice)
    inputs, tops = network.template.inputs, network.top.inputs
    template = _lead(template, {inputs[removed]: inputs[kept] for kept, removed in chosen})
    above = {tops[removed]: tops[kept] for kept, removed in chosen}
    stays = sorted(set(range(network.num_interfaces)) - {removed for _, removed in chosen})
    root = above.get(network.top.root, network.top.root)
    return reduce_network(network, template, _lead(top_entries(network), above), stays, root)


def _average(one: Entry, other: Entry, share: float, is_choice: bool) -> Entry:
    """A leaf with the moments of the mixture of two; a sum with the edges of both.

    A choice has the children that either has; other sums match child by child.
    """
    node = one.node
    if isinstance(node, Leaf):
        shares = np.full((len(one.values), 1), share)
        return Entry(node, node.family.average(one.values, other.values, shares))
    assert isinstance(node, Sum) and isinstance(other.node, Sum)
    theirs = other.node.children if is_choice else node.children
    count = len(one.values)
    mine, others = (own.values.reshape(-1, len(children_of(own.node))) for own in (one, other))
    values = np.concatenate([share * mine, (1.0 - share) * others], axis=1)
    return Entry(replace(node, children=node.children + theirs), values.reshape(count, -1))


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
                tables = values.reshape(-1, len(below))
                added: Floats = np.stack([np.bincount(target, own) for own in tables])
                values = added.reshape(len(values), -1)
            node = replace(node, children=tuple(place))
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
