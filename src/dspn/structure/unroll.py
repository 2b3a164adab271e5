"""The static network of a given number of slices, and its scopes."""

from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn._checks import require_type, whole_number
from dspn.errors import StructureError
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.nodes import Input, Leaf, Node, Product, Sum
from dspn.structure.parameters import NetworkParameters
from dspn.structure.validity import bottom_nodes


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


@final
class _Stack:
    """Nodes of the static network as they are laid down, from the bottom up."""

    def __init__(self, network: DynamicNetwork) -> None:
        self.network = network
        self.nodes: list[Node] = []
        self.weights: list[Floats | None] = []
        self.leaves: list[Floats | None] = []

    def _append(self, node: Node, weights: Floats | None, leaf: Floats | None) -> int:
        self.nodes.append(node)
        self.weights.append(weights)
        self.leaves.append(leaf)
        return len(self.nodes) - 1

    def slice_nodes(self, position: int, first_variable: int, inputs: list[int]) -> list[int]:
        """Lays one copy of the template (the bottom network at position 0); returns its outputs."""
        template = self.network.template
        at_bottom = position == 0
        own = self.network.parameters.bottom if at_bottom else None
        parameters = own or self.network.parameters.template
        nodes = bottom_nodes(template) if at_bottom else template.nodes
        rows = _leaf_rows(self.network, parameters)
        full = template.nodes
        place: dict[int, int] = {}
        for index in template.order:
            node = nodes[index]
            if isinstance(node, Input):
                if node.position >= 0:
                    place[index] = inputs[node.position]
            elif isinstance(node, Leaf):
                moved = Leaf(first_variable + node.variable, node.family)
                place[index] = self._append(moved, None, rows[index])
            elif isinstance(node, Product):
                children = tuple(place[child] for child in node.children)
                place[index] = self._append(Product(children), None, None)
            else:
                original = full[index]
                assert isinstance(original, Sum)
                start = template.edge_offsets[index]
                weights = np.array(
                    [
                        parameters.weights[start + edge]
                        for edge, child in enumerate(original.children)
                        if child in node.children
                    ]
                )
                children = tuple(place[child] for child in node.children)
                place[index] = self._append(Sum(children), weights, None)
        return [place[output] for output in template.outputs]

    def top_nodes(self, inputs: list[int]) -> int:
        """Lays the top network and returns the root."""
        top = self.network.top
        weights = self.network.parameters.top.weights
        place: dict[int, int] = {}
        for index in top.order:
            node = top.nodes[index]
            if isinstance(node, Input):
                place[index] = inputs[node.position]
                continue
            assert isinstance(node, Sum | Product)
            children = tuple(place[child] for child in node.children)
            if isinstance(node, Product):
                place[index] = self._append(Product(children), None, None)
            else:
                start = top.edge_offsets[index]
                own = np.array(weights[start : start + len(children)])
                place[index] = self._append(Sum(children), own, None)
        return place[top.root]


def _leaf_rows(network: DynamicNetwork, parameters: NetworkParameters) -> dict[int, Floats]:
    return {
        node: rows[row]
        for bank, rows in zip(network.template.banks, parameters.leaves, strict=True)
        for row, node in enumerate(bank.nodes)
    }


def unroll(network: DynamicNetwork, num_slices: int) -> StaticNetwork:
    """Stacks num_slices - 1 templates on the bottom network and caps them with the top network."""
    require_type(network, DynamicNetwork, "network", StructureError)
    num_slices = whole_number(num_slices, "num_slices", StructureError)
    n = len(network.schema)
    stack = _Stack(network)
    interface: list[int] = []
    for position in range(num_slices):
        at = num_slices - 1 - position if network.root == Root.FIRST else position
        interface = stack.slice_nodes(position, at * n, interface)
    root = stack.top_nodes(interface)
    return StaticNetwork(
        num_slices, n, tuple(stack.nodes), root, tuple(stack.weights), tuple(stack.leaves)
    )
