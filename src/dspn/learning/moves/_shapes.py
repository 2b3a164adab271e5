"""Interface nodes whose outputs have the same shape, so that their parameters can be compared."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arrays import Ints
from dspn.structure import DynamicNetwork, Input, Leaf, Product, Sum, Template
from dspn.structure.nodes import children_of
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


_NOBODY: Final = -1
_SEVERAL: Final = -2


def sums_of(template: Template, children: Collection[int]) -> frozenset[int]:
    """The sums all of whose children are among these nodes."""
    among = frozenset(children)
    return frozenset(
        index
        for index, node in enumerate(template.nodes)
        if isinstance(node, Sum) and among.issuperset(node.children)
    )


def _shared(template: Template) -> frozenset[int]:
    """The nodes, other than inputs, that stand below several outputs or are one of them."""
    owners = [_NOBODY] * len(template.nodes)
    transitions = sums_of(template, template.inputs)

    def claim(node: int, owner: int) -> None:
        owners[node] = owner if owners[node] in (_NOBODY, owner) else _SEVERAL

    for position, output in enumerate(template.outputs):
        claim(output, position)
    for index in reversed(template.order):
        if owners[index] != _NOBODY and index not in transitions:
            for child in children_of(template.nodes[index]):
                claim(child, owners[index])
    shared = frozenset(index for index, owner in enumerate(owners) if owner == _SEVERAL)
    return shared - frozenset(template.inputs)


@final
class Shapes:
    """Reads the shapes of a network's outputs, down to inputs and to nodes that outputs share.

    A choice, a sum of such nodes, counts as one place whatever its children are, so that
    transitions that were pruned differently have one shape.
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
        self.shared = _shared(template)
        self.choices = sums_of(template, self.shared | frozenset(template.inputs))

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
            elif isinstance(node, Leaf):
                words.append(("leaf", node.variable))
                places.append(index)
            elif index in self.choices:
                words.append(("choice", self.scopes[index]))
                places.append(index)
            else:
                words.append(("sum", len(node.children)))
                places.append(index)
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
