"""Interface nodes whose outputs have the same shape, so that their parameters can be compared."""

from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Ints
from dspn.structure import DynamicNetwork, Input, Leaf, Product, Sum, Template
from dspn.structure.validity import network_scopes

Shape = tuple[tuple[str | int, ...], ...]


@final
@dataclass(frozen=True, eq=False)
class Alike:
    """Positions of one group whose outputs have one shape.

    `nodes[m, p]` is the leaf or sum at place p of the shape below the output of member m.
    """

    positions: tuple[int, ...]
    nodes: Ints


def sums_of_inputs(template: Template) -> frozenset[int]:
    """The sums all of whose children are inputs: the transitions."""
    inputs = frozenset(template.inputs)
    return frozenset(
        index
        for index, node in enumerate(template.nodes)
        if isinstance(node, Sum) and inputs.issuperset(node.children)
    )


@final
class Shapes:
    """Reads the shapes of a network's outputs.

    A sum of inputs counts as one place whatever its inputs are, so that transitions that were
    pruned differently have one shape.
    """

    def __init__(self, network: DynamicNetwork) -> None:
        template = network.template
        first = len(template.schema)
        marks = [0] * template.num_interfaces
        for group, positions in enumerate(network.groups):
            for position in positions:
                marks[position] = 1 << (first + group)
        self.network = network
        self.scopes = network_scopes(template.nodes, template.order, marks)
        self.transitions = sums_of_inputs(template)

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
            if isinstance(node, Input):
                words.append(("input", node.position))
                continue
            if isinstance(node, Product):
                words.append(("product", len(node.children)))
                waiting.extend(sorted(node.children, key=lambda c: -self.scopes[c]))
                continue
            places.append(index)
            if isinstance(node, Leaf):
                words.append(("leaf", node.variable))
            elif index in self.transitions:
                words.append(("transition", self.scopes[index]))
            else:
                words.append(("sum", len(node.children)))
                waiting.extend(reversed(node.children))
        return tuple(words), places

    def alike(self) -> list[Alike]:
        """The positions by group and shape."""
        found: list[Alike] = []
        for group in self.network.groups:
            members: dict[Shape, list[tuple[int, list[int]]]] = {}
            for position in group:
                shape, places = self.shape(position)
                members.setdefault(shape, []).append((position, places))
            for own in members.values():
                nodes = np.array([places for _, places in own], dtype=np.int64)
                found.append(Alike(tuple(position for position, _ in own), nodes))
        return found
