"""Algorithm 2's move: a product node is replaced by a product of naive Bayes models over its scope.

The input interface of a group counts as one more variable of the scope; its univariate
distribution is a sum over all the group's inputs. The scope of the product does not change, so
neither does that of any node above it, and a valid template stays valid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from dspn._arrays import Bools, Floats
from dspn._checks import checked_rng, require_type, whole_number
from dspn.errors import StructureError
from dspn.learning.independence import Column
from dspn.learning.partitions import Partition, PartitionOptions, Positions, next_partition
from dspn.learning.slice_posteriors import SlicePosteriors
from dspn.leaves import Family
from dspn.structure import (
    DynamicNetwork,
    Interface,
    Leaf,
    NetworkParameters,
    Node,
    Parameters,
    Product,
    Sum,
    Template,
)
from dspn.structure.build import ScopeItem
from dspn.structure.nodes import reachable
from dspn.structure.validity import interface_groups, network_scopes


def _item_scopes(template: Template, groups: Sequence[Sequence[int]]) -> list[int]:
    """Scope of every node as bits: v for variable v, num_variables + g for group g."""
    marks = [0] * template.num_interfaces
    for number, positions in enumerate(groups):
        for position in positions:
            marks[position] = 1 << (len(template.schema) + number)
    return network_scopes(template.nodes, template.order, marks)


def _items(scope: int) -> tuple[int, ...]:
    return tuple(bit for bit in range(scope.bit_length()) if scope >> bit & 1)


def product_nodes(template: Template) -> tuple[int, ...]:
    """The products below the outputs with at least two items in scope: those that can be replaced.

    A product over a single item has one partition only, the one that it has.
    """
    require_type(template, Template, "template", StructureError)
    scopes = _item_scopes(template, interface_groups(template))
    used = reachable(template.nodes, template.outputs)
    return tuple(
        index
        for index, node in enumerate(template.nodes)
        if isinstance(node, Product) and index in used and scopes[index].bit_count() > 1
    )


def scope_numbers(network: DynamicNetwork, node: int) -> tuple[int, ...]:
    """Items of a product's scope: v for variable v, num_variables + g for the inputs of group g."""
    require_type(network, DynamicNetwork, "network", StructureError)
    index = whole_number(node, "node", StructureError, least=0)
    nodes = network.template.nodes
    if index >= len(nodes) or not isinstance(nodes[index], Product):
        found = type(nodes[index]).__name__.lower() if index < len(nodes) else "not there"
        raise StructureError(
            f"`node` must be a product of the template, but node {index} is {found}; choose one of "
            "`product_nodes`."
        )
    return _items(_item_scopes(network.template, network.groups)[index])


def _item(network: DynamicNetwork, number: int) -> ScopeItem:
    n = len(network.schema)
    if number < n:
        return number
    positions = network.groups[number - n]
    return Interface(tuple(network.template.inputs[position] for position in positions))


def scope_items(network: DynamicNetwork, node: int) -> tuple[ScopeItem, ...]:
    """The scope of a product: its variables in rising order, then the interfaces of its groups."""
    return tuple(_item(network, number) for number in scope_numbers(network, node))


@final
@dataclass(frozen=True, eq=False)
class Neighbour:
    """A template with one product replaced.

    `node` is the product in the new numbering, `new_nodes` the new sums and leaves: what has to be
    learned first.
    """

    network: DynamicNetwork
    node: int
    new_nodes: frozenset[int]


@final
class _Draft:
    """New nodes beyond those of a template, with the weights of the sums among them."""

    def __init__(self, template: Template, rng: np.random.Generator) -> None:
        self.families: dict[int, Family] = {b.variable: b.family for b in template.banks}
        self.rng = rng
        self.base = len(template.nodes)
        self.nodes: list[Node] = []
        self.weights: list[Floats] = []

    def _append(self, node: Node) -> int:
        self.nodes.append(node)
        return self.base + len(self.nodes) - 1

    def _sum(self, children: tuple[int, ...]) -> int:
        self.weights.append(self.rng.dirichlet(np.ones(len(children))))
        return self._append(Sum(children))

    def _univariate(self, item: ScopeItem) -> int:
        if isinstance(item, Interface):
            return self._sum(item.inputs)
        return self._append(Leaf(item, self.families[item]))

    def block(self, items: Sequence[ScopeItem], num_classes: int) -> int:
        """A univariate distribution over one item, a naive Bayes model over several."""
        if len(items) == 1:
            return self._univariate(items[0])
        classes = [
            self._append(Product(tuple(self._univariate(item) for item in items)))
            for _ in range(num_classes)
        ]
        return self._sum(tuple(classes))

    def leaves(self, values: Floats | None) -> dict[int, Floats]:
        """Random parameters of the new leaves of each variable, spread like its values."""
        if values is not None and (values.ndim != 2 or values.shape[1] != len(self.families)):
            raise StructureError(
                f"`values` must have a column for each of the {len(self.families)} variables, but "
                f"has shape {values.shape}; give the `values` of a Sequences."
            )
        counts: dict[int, int] = {}
        for node in self.nodes:
            if isinstance(node, Leaf):
                counts[node.variable] = counts.get(node.variable, 0) + 1
        return {
            variable: self.families[variable].random(
                count, self.rng, None if values is None else values[:, variable]
            )
            for variable, count in sorted(counts.items())
        }


def _renumbered(nodes: Sequence[Node], kept: Sequence[int]) -> tuple[tuple[Node, ...], list[int]]:
    """The kept nodes in their order, and the new place of each old one (-1: dropped)."""
    place = [-1] * len(nodes)
    for new, old in enumerate(kept):
        place[old] = new
    moved: list[Node] = []
    for old in kept:
        node = nodes[old]
        if isinstance(node, Sum | Product):
            node = type(node)(tuple(place[child] for child in node.children))
        moved.append(node)
    return tuple(moved), place


def _carried(
    template: Template, old: Parameters, dropped: Bools, draft: _Draft, values: Floats | None
) -> Parameters:
    """What is kept of the old parameters, bit for bit, and the new behind it."""
    new_weights = np.concatenate([np.zeros(0), *draft.weights])
    new_leaves = draft.leaves(values)
    widths = np.diff([*template.edge_offsets.values(), template.num_weights])
    kept_edges = ~np.repeat(dropped[list(template.edge_offsets)], widths)

    def carried(own: NetworkParameters) -> NetworkParameters:
        rows = [
            np.concatenate([table[~dropped[list(bank.nodes)]], new_leaves[bank.variable]])
            if bank.variable in new_leaves
            else table[~dropped[list(bank.nodes)]]
            for bank, table in zip(template.banks, own.leaves, strict=True)
        ]
        return NetworkParameters(
            np.concatenate([own.weights[kept_edges], new_weights]), tuple(rows)
        )

    bottom = None if old.bottom is None else carried(old.bottom)
    return Parameters(carried(old.template), old.top, bottom)


def _checked_partition(
    network: DynamicNetwork, node: int, partition: Sequence[Sequence[ScopeItem]]
) -> list[tuple[ScopeItem, ...]]:
    scope = scope_items(network, node)
    if node not in reachable(network.template.nodes, network.template.outputs):
        raise StructureError(
            f"`node` must be in use, but no output of the template reaches node {node}; choose one "
            "of `product_nodes`."
        )
    blocks = [tuple(block) for block in partition]
    flat = [item for block in blocks for item in block]
    if not all(blocks) or len(flat) != len(scope) or set(flat) != set(scope):
        raise StructureError(
            f"`partition` must share out the scope of node {node}, {list(scope)}, into blocks that "
            f"are not empty, but is {blocks}; see `scope_items`."
        )
    return blocks


def replace_product(
    network: DynamicNetwork,
    node: int,
    partition: Sequence[Sequence[ScopeItem]],
    rng: np.random.Generator,
    values: Floats | None = None,
    *,
    num_classes: int = 2,
) -> Neighbour:
    """The network with a product replaced by a product of naive Bayes models over a partition.

    The node is replaced for all its parents, and as an output if it is one. A block of several
    items becomes a sum of `num_classes` factored distributions, a block of one a univariate
    distribution. Weights start at Dirichlet(1), leaves at `Family.random` of the data's `values`
    (slices, variables), the same in a bottom network with its own parameters. Nodes that nothing
    refers to any more are dropped; all others keep their order and their parameters.
    """
    checked_rng(rng, StructureError)
    classes = whole_number(num_classes, "num_classes", StructureError)
    blocks = _checked_partition(network, node, partition)
    template, old = network.template, network.parameters
    draft = _Draft(template, rng)
    product = Product(tuple(draft.block(block, classes) for block in blocks))
    nodes = [*template.nodes, *draft.nodes]
    nodes[node] = product
    kept = sorted(reachable(nodes, template.outputs) | set(template.inputs))
    moved, place = _renumbered(nodes, kept)
    parameters = _carried(template, old, np.array(place[: draft.base]) < 0, draft, values)
    outputs = tuple(place[output] for output in template.outputs)
    after = DynamicNetwork(
        Template(network.schema, moved, outputs), network.top, parameters, network.root
    )
    fresh = range(len(kept) - len(draft.nodes), len(kept))
    learnable = frozenset(index for index in fresh if not isinstance(moved[index], Product))
    return Neighbour(after, place[node], learnable)


class Proposal(NamedTuple):
    """A neighbour, the partition it was made from, and the positions to go on from."""

    neighbour: Neighbour
    partition: Partition
    positions: Positions


def propose(
    posteriors: SlicePosteriors,
    node: int,
    positions: Positions,
    options: PartitionOptions,
    rng: np.random.Generator,
) -> Proposal:
    """One pass through the loop of Algorithm 2: a partition by Algorithm 3, and its neighbour.

    Independence is tested on the slices of the data, weighted by the posterior of the product; an
    interface takes part with its posterior. Product and interface enter with their marginal
    posteriors, as if independent given the evidence.
    """
    require_type(posteriors, SlicePosteriors, "posteriors", StructureError)
    require_type(options, PartitionOptions, "options", StructureError)
    network = posteriors.network
    scope = scope_numbers(network, node)
    columns: list[Column] = []
    weights = None
    if len(scope) > options.threshold:
        weights = posteriors.product(node)
        columns = [posteriors.column(number, weights) for number in scope]
    partition, positions = next_partition(scope, columns, weights, positions, options, rng)
    blocks = [[_item(network, number) for number in block] for block in partition]
    neighbour = replace_product(network, node, blocks, rng, posteriors.data.values)
    return Proposal(neighbour, partition, positions)
