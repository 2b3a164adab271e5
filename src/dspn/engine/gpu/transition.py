"""What a slice of a chain does with its inputs, as data: a matrix, several, or layers of sums."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.gpu.device import Array, Device
from dspn.engine.gpu.layers import Layer, layers_of
from dspn.structure.chain import is_chain, reads_inputs
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Leaf, Product, Sum, children_of
from dspn.structure.template import Template

# Nodes of all chains, and of those whose transition is one matrix.
_WIDEST: Final = 32768
_WIDEST_CHAIN: Final = 8192
# Nodes for which a kernel reads a matrix for every slice; cells of all matrices by inputs.
WIDEST_TABLES: Final = 64
_MOST_CELLS: Final = 2**26
# From so many nodes on a matrix with a smaller share of edges is not made.
_FEWEST_SPARSE: Final = 1024
_DENSITY: Final = 0.2
# Chains of fewer nodes with several layers are faster as any other template.
_FEWEST_LAYERED: Final = 64


@final
@dataclass(frozen=True, eq=False)
class ChainLayout:
    """The structure of a chain of one group whose outputs are leaves times one sum over inputs.

    `edge[m, j, i]` is the place of the weight of input i in the sum of output j, -1 where there is
    none. Sums by inputs of the schema have a matrix m for each combination of the values of those
    inputs, whose columns and numbers of values are `by`. Output j has leaf `member[v][j]` of
    variable v, and its sum is node `sums[j]`.

    Transitions of few edges have `layers` instead of a matrix: `edge` are then the places of their
    weights, one after the other.
    """

    edge: Ints
    member: tuple[Ints, ...]
    sums: Ints
    by: tuple[tuple[int, int], ...] = ()
    layers: tuple[Layer, ...] = ()

    @property
    def num_nodes(self) -> int:
        """The number of interface nodes."""
        return len(self.sums)

    @cached_property
    def _places(self) -> tuple[Ints, Ints]:
        """Places of the weights and, as one index, of their entries in the matrices."""
        flat = self.edge.ravel()
        entries = np.flatnonzero(flat >= 0)
        kind = np.int32 if flat.size < 2**31 else np.int64  # they stay on the device
        return flat[entries].astype(kind), entries.astype(kind)

    @cached_property
    def _is_plain(self) -> bool:
        """Whether the weights are the matrix as it stands."""
        return bool(np.array_equal(self.edge.ravel(), np.arange(self.edge.size)))

    def dense(self, device: Device, weights: Array) -> Array:
        """The matrices (tables, outputs, inputs) of some weights, all on the device."""
        found = weights
        if not self._is_plain:
            places, entries = self._places
            flat = device.xp.zeros(self.edge.size)
            flat[device.keep(entries)] = found[device.keep(places)]
            found = flat
        return found.reshape(self.edge.shape)

    def sparse(self, device: Device, dense: Array, num_weights: int) -> Array:
        """Entries of such matrices added up by the weight that they have."""
        if self._is_plain:
            return dense.reshape(-1)
        places, entries = self._places
        own = dense.reshape(-1)[device.keep(entries)]
        if self.is_shared:  # a card would add in any order
            return device.there(np.bincount(places, device.here(own), minlength=num_weights))
        found = device.xp.zeros(num_weights)
        found[device.keep(places)] = own
        return found

    @cached_property
    def is_shared(self) -> bool:
        """Whether several entries have one weight."""
        return len(np.unique(self._places[0])) < len(self._places[0])

    def of_outputs(self, variable: int, by_leaf: Floats) -> Floats:
        """Columns of the leaves of a variable as those of the outputs that have them."""
        member = self.member[variable]
        if self._in_order[variable] and by_leaf.shape[1] == len(member):
            return by_leaf
        return by_leaf[:, member]

    def by_leaf(self, variable: int, by_output: Floats, leaves: int) -> Floats:
        """Rows of outputs added up by the leaf of a variable that they have."""
        member = self.member[variable]
        if self._in_order[variable] and leaves == len(member):
            return by_output
        found = np.zeros((leaves, by_output.shape[1]))
        np.add.at(found, member, by_output)
        return found

    @cached_property
    def _in_order(self) -> list[bool]:
        return [np.array_equal(own, np.arange(len(own))) for own in self.member]

    @classmethod
    def of(cls, network: DynamicNetwork) -> "ChainLayout | None":
        """The layout, where the network is such a chain."""
        template = network.template
        if len(network.groups) != 1 or template.num_interfaces > _WIDEST:
            return None
        found = _sums_and_leaves(template)
        if found is None:
            return None
        sums, member = found
        if is_chain(template):
            edge_and_by = _matrices(template, sums)
            if edge_and_by is not None:
                return cls(edge_and_by[0], member, np.array(sums), edge_and_by[1])
        layered = layers_of(template, sums)
        if layered is None or len(sums) < _FEWEST_LAYERED:
            return None
        layers, places = layered
        return cls(places, member, np.array(sums), layers=layers)


def _sums_and_leaves(template: Template) -> tuple[list[int], tuple[Ints, ...]] | None:
    """The sum of each output and its leaf of each variable, where it has nothing else."""
    nodes, reads = template.nodes, reads_inputs(template)
    place = {node: i for bank in template.banks for i, node in enumerate(bank.nodes)}
    member = np.full((len(template.banks), template.num_interfaces), -1, dtype=np.int64)
    sums: list[int] = []
    for j, output in enumerate(template.outputs):
        if not isinstance(nodes[output], Product):
            return None
        for child in children_of(nodes[output]):
            node = nodes[child]
            if isinstance(node, Leaf):
                member[node.variable, j] = place[child]
            elif isinstance(node, Sum) and reads[child] and len(sums) == j:
                sums.append(child)
            else:
                return None
        if len(sums) == j:
            return None
    return None if (member < 0).any() else (sums, tuple(member))


def _matrices(
    template: Template, sums: list[int]
) -> tuple[Ints, tuple[tuple[int, int], ...]] | None:
    """Places of the weights of all matrices, and the inputs that they are by; None if too many."""
    nodes, k = template.nodes, template.num_interfaces
    sizes = {
        node.by: template.num_tables(node)
        for node in (nodes[index] for index in sums)
        if isinstance(node, Sum) and node.by is not None
    }
    by = tuple(sorted(sizes.items()))
    tables = np.zeros((0, 1), dtype=np.int64)
    if by:
        tables = np.indices([size for _, size in by]).reshape(len(by), -1)
    count = tables.shape[1]
    if by and count * k * k > _MOST_CELLS:
        return None
    edges = sum(len(children_of(nodes[index])) for index in sums)
    if not by and (k > _WIDEST_CHAIN or (k >= _FEWEST_SPARSE and edges < _DENSITY * k * k)):
        return None
    position = np.full(len(nodes), -1, dtype=np.int64)
    position[list(template.inputs)] = np.arange(k)
    edge = np.full((count, k, k), -1, dtype=np.int64)
    last: tuple[int, ...] = ()
    for j, index in enumerate(sums):
        own, children = nodes[index], children_of(nodes[index])
        if children != last:
            columns, last = position[list(children)], children
        places = template.edge_offsets[index] + np.arange(len(children))
        if isinstance(own, Sum) and own.by is not None:
            value = tables[[column for column, _ in by].index(own.by)]
            places = places + len(children) * value[:, None]
        edge[:, j, columns] = places
    return edge, by
