"""Edges by their use: those that the data hardly use are pruned, those that it would use regrown.

The transitions of a large trained template are mostly empty. Without them a slice costs as much as
the edges that are left, and there is room for more interface nodes.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, compress
from typing import Final

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn._checks import require_type, whole_number
from dspn.data import Sequences
from dspn.engine import ExpectedFlows, Program, compile_program
from dspn.errors import DataError, StructureError
from dspn.inference import interface_posteriors
from dspn.options import require_number
from dspn.structure import DynamicNetwork, Product, Root, Sum, Template, Top
from dspn.structure.chain import transition_sums
from dspn.structure.edit import Entry, reduce_network, template_entries, top_entries
from dspn.structure.nodes import children_of
from dspn.structure.parameters import sum_starts

# New edges have at most this share of a sum's weight: what was learned stays nearly as it is.
_MOST_WEIGHT: Final = 0.05
# Posteriors of this many slices times interface nodes are held at a time.
_NUMBERS_AT_ONCE: Final = 1 << 24


def check_flows(network: DynamicNetwork, flows: ExpectedFlows) -> None:
    """Raises unless the flows have the shapes of the network's weights and leaves."""
    require_type(flows, ExpectedFlows, "flows", StructureError, remedy="see `expected_flows`")
    template = network.template
    shapes = [(template.num_weights,), *((len(bank.nodes),) for bank in template.banks)]
    given = [flows.template.weights.shape, *(own.shape[:1] for own in flows.template.leaves)]
    tops = (network.top.num_weights,), flows.top.weights.shape
    if given != shapes or tops[0] != tops[1] or (flows.bottom is None) != network.parameters.tied:
        raise StructureError(
            "`flows` must be the expected flows of `network`, but they are those of a network of "
            "another structure; compute them again with `expected_flows`."
        )


def sum_edges(part: Template | Top) -> tuple[Ints, Ints]:
    """Parent and child of every edge below a sum, in the order of the weights."""
    sums, count = list(part.edge_offsets), part.num_weights
    widths = np.diff(np.append(sum_starts(part), count))
    children = chain.from_iterable(children_of(part.nodes[index]) for index in sums)
    parent = np.repeat(np.array(sums, dtype=np.int64), widths)
    return parent, np.fromiter(children, dtype=np.int64, count=count)


def input_visits(network: DynamicNetwork, flows: ExpectedFlows) -> Floats:
    """Expected visits of each interface node through the sums above its inputs, (k,)."""
    visits = np.zeros(network.num_interfaces)
    for part, own in (
        (network.template, flows.template.weights),
        (network.top, flows.top.weights),
    ):
        visits += np.bincount(sum_edges(part)[1], own, minlength=len(part.nodes))[list(part.inputs)]
    return visits


def posterior_runs(
    program: Program, data: Sequences, most_numbers: int = _NUMBERS_AT_ONCE
) -> Iterator[tuple[Ints, Sequences, Floats]]:
    """Runs of sequences whose interface posteriors fit in memory: members, data and posteriors."""
    run = (np.cumsum(data.lengths) - data.lengths) // max(most_numbers // program.num_interfaces, 1)
    for members in np.split(np.arange(len(data)), np.flatnonzero(np.diff(run)) + 1):
        part = data[members]
        yield members, part, interface_posteriors(program, part)


# Pruning.


def _used_edges(part: Template | Top, flows: Floats, least: float) -> Bools:
    """The edges of sums that are used, and the most used one of every sum and of every input."""
    parent, child = sum_edges(part)
    # Rounding may leave a flow just below zero.
    used = np.maximum(flows, 0.0)
    kept = used >= least
    order = np.argsort(-used, kind="stable")
    kept[order[np.unique(parent[order], return_index=True)[1]]] = True
    below_product = {
        below for node in part.nodes if isinstance(node, Product) for below in node.children
    }
    lonely = np.zeros(len(part.nodes), dtype=np.bool_)
    lonely[[node for node in part.inputs if node not in below_product]] = True
    order = order[lonely[child[order]]]
    kept[order[np.unique(child[order], return_index=True)[1]]] = True
    return kept


def _thin(entries: Sequence[Entry], kept: Bools) -> list[Entry]:
    """The entries with some edges of sums; weights of a sum that lost one add up to 1 again."""
    thinned = []
    start = 0
    for node, values in entries:
        if isinstance(node, Sum):
            stays = kept[start : start + len(node.children)]
            start += len(node.children)
            if not stays.all():
                node = Sum(tuple(compress(node.children, stays)))
                # Added up as flat weights are, so that the last bits are the same.
                total = np.add.reduceat(np.where(stays, values, 0.0), [0], axis=1)
                values = values[:, stays]
                # Where all that is left weighs nothing, no edge is better than another.
                equal = np.full_like(values, 1.0 / len(node.children))
                values = np.divide(values, total, out=equal, where=total > 0)
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


def _neighbouring_use(network: DynamicNetwork, data: Sequences) -> Floats:
    """Sum over neighbouring slices of P(i at the upper) P(j at the lower), (k, k)."""
    use = np.zeros((network.num_interfaces, network.num_interfaces))
    for _, part, posteriors in posterior_runs(compile_program(network), data):
        later = np.ones(part.total_slices, dtype=np.bool_)
        later[part.offsets[:-1]] = False
        lower = np.flatnonzero(later)
        upper = lower - 1
        if network.root == Root.LAST:
            upper, lower = lower, upper
        use += posteriors[upper].T @ posteriors[lower]
    return use


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
    use = _neighbouring_use(network, data)
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
        added = np.tile(share[new], (len(values), 1))
        weights = np.concatenate([values * room[row], added], axis=1)
        entries[parents[row]] = Entry(Sum((*children_of(node), *inputs)), weights)
    return reduce_network(network, entries, top_entries(network))
