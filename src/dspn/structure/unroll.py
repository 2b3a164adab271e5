"""The static network of a given number of slices, and its scopes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arguments import Floats, require_type, whole_number
from dspn.errors import StructureError
from dspn.structure.edit import Entry, template_entries, top_entries
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.nodes import Input, Leaf, Node, Product, Sum


@final
@dataclass(frozen=True, eq=False)
class StaticNetwork:
    """A sum-product network over num_slices * num_variables variables.

    Variable v of slice t (counted from 0) has index t * num_variables + v. `weights[i]` holds the
    weights of node i when it is a sum, `leaf_parameters[i]` its parameters when it is a leaf, None
    otherwise. Children stand before their parents.
    """

    num_slices: int
    num_variables: int
    nodes: tuple[Node, ...]
    root: int
    weights: tuple[Floats | None, ...]
    leaf_parameters: tuple[Floats | None, ...]

    def scopes(self) -> list[frozenset[int]]:
        """Scope of every node as a set of variable indices."""
        scopes: list[frozenset[int]] = []
        for node in self.nodes:
            if isinstance(node, Leaf):
                scopes.append(frozenset([node.variable]))
            else:
                assert isinstance(node, Sum | Product)
                scopes.append(frozenset().union(*(scopes[child] for child in node.children)))
        return scopes


def unroll(network: DynamicNetwork, num_slices: int, inputs: Floats | None = None) -> StaticNetwork:
    """Stacks num_slices - 1 templates on the bottom network and caps them with the top network.

    Where weights depend on inputs, `inputs` has their codes, (num_slices, inputs), and every sum
    has the weights of its slice.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    num_slices = whole_number(num_slices, "num_slices", StructureError)
    told = np.empty((num_slices, 0)) if inputs is None else inputs
    if network.template.has_tables and told.shape != (num_slices, len(network.schema.inputs)):
        raise StructureError(
            f"`inputs` must have a row for each of the {num_slices} slices and a column for each "
            f"of the {len(network.schema.inputs)} inputs, as weights depend on them, but has shape "
            f"{told.shape}."
        )
    n = len(network.schema)
    nodes: list[Node] = []
    values: list[Floats] = []

    def lay(
        entries: Sequence[Entry], order: Sequence[int], place: int, inputs: list[int], shift: int
    ) -> dict[int, int]:
        """Lays down a copy of the entries with the parameters of one set; numbers of its nodes.

        Without inputs it is the bottom network: nodes that have no leaf below them are left out.
        """
        number: dict[int, int] = {}
        for index in order:
            node, own = entries[index]
            edges = own[place]
            if isinstance(node, Input):
                if inputs:
                    number[index] = inputs[node.position]
                continue
            if isinstance(node, Leaf):
                node = Leaf(shift + node.variable, node.family)
            else:
                there = [child in number for child in node.children]
                if not any(there):
                    continue
                if isinstance(node, Sum):
                    width = len(node.children)
                    table = 0 if node.by is None else int(told[shift // n, node.by])
                    edges = edges[table * width : (table + 1) * width][there]
                node = type(node)(tuple(number[c] for c in node.children if c in number))
            number[index] = len(nodes)
            nodes.append(node)
            values.append(edges)
        return number

    template, interface = template_entries(network), list[int]()
    for position in range(num_slices):
        at = num_slices - 1 - position if network.root == Root.FIRST else position
        place = 0 if position else len(template[0].values) - 1
        number = lay(template, network.template.order, place, interface, at * n)
        interface = [number[output] for output in network.template.outputs]
    number = lay(top_entries(network), network.top.order, 0, interface, 0)
    pairs = list(zip(nodes, values, strict=True))
    weights, leaves = (
        tuple(own if isinstance(node, kind) else None for node, own in pairs)
        for kind in (Sum, Leaf)
    )
    root = number[network.top.root]
    return StaticNetwork(num_slices, n, tuple(nodes), root, weights, leaves)
