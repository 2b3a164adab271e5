"""Irregular templates like those that structure search ends with."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np

import dspn
from dspn.structure import Input, Leaf, NetworkBuilder, Product, Sum, assemble, mixture_top
from dspn.structure.nodes import Node

NUM_INTERFACES: Final = 16
_SPLITS: Final = 44
_BLOCKS: Final = 42
_FEWEST_TO_SHARE: Final = 8


@final
@dataclass(frozen=True)
class Census:
    """How many nodes of each kind a template has, and its edges."""

    interface_sums: int
    leaf_products: int
    two_child_sums: int
    edges: int


@final
class _Grower:
    """Grows output after output: splits of what holds the interface, blocks of leaves beside it."""

    def __init__(self, schema: dspn.Schema, rng: np.random.Generator) -> None:
        self.builder = NetworkBuilder(schema)
        self.inputs = self.builder.inputs(NUM_INTERFACES)
        self.rng = rng

    def _leaf(self, variable: int) -> int:
        one = self.rng.uniform(0.1, 0.9)
        return self.builder.leaf(variable, [1.0 - one, one])

    def _leaves(self, variables: list[int]) -> int:
        """A product of leaves, or the leaf of a single variable."""
        leaves = [self._leaf(variable) for variable in variables]
        return leaves[0] if len(leaves) == 1 else self.builder.product(leaves)

    def _sum(self, children: list[int]) -> int:
        return self.builder.sum(children, self.rng.dirichlet(np.ones(len(children))))

    def part(self, variables: list[int], splits: int, blocks: int) -> int:
        """A distribution over the variables and the interface, with `splits` two-child sums.

        A split shares a few variables among both sides where there are many; without one, `blocks`
        pairs of variables are each a sum of two leaf products, the others one leaf product.
        """
        mixed = [int(v) for v in self.rng.permutation(variables)]
        if splits:
            shared = mixed[:2] if len(mixed) >= _FEWEST_TO_SHARE else []
            rest = mixed[len(shared) :]
            left = int(self.rng.binomial(splits - 1, 0.5))
            own = int(self.rng.binomial(blocks, (left + 1) / (splits + 1)))
            sides = [
                self.part(rest, left, own),
                self.part(rest, splits - 1 - left, blocks - own),
            ]
            children = [*(self._leaf(v) for v in shared), self._sum(sides)]
            return children[0] if len(children) == 1 else self.builder.product(children)
        blocks = min(blocks, (len(mixed) - 1) // 2)
        pairs = [mixed[2 * i : 2 * i + 2] for i in range(blocks)]
        children = [self._sum([self._leaves(pair), self._leaves(pair)]) for pair in pairs]
        children.append(self._leaves(mixed[2 * blocks :]))
        return self.builder.product([*children, self._sum(self.inputs)])


def irregular_network(
    schema: dspn.Schema, scale: float, *, rng: np.random.Generator
) -> dspn.DynamicNetwork:
    """A template of 16 interface nodes over binary variables.

    Scale 1 has about 60 interface sums, 145 leaf products and 85 two-child sums, other scales that
    many times as many.
    """
    even = np.full(NUM_INTERFACES, 1.0 / NUM_INTERFACES)
    splits = rng.multinomial(round(_SPLITS * scale), even)
    # A block goes where there is room for it: to outputs in proportion to their splits.
    share = (splits + 1.0) / (splits + 1.0).sum()
    blocks = rng.multinomial(round(_BLOCKS * scale), share)
    grower = _Grower(schema, rng)
    every = list(range(len(schema)))
    outputs = [
        grower.part(every, int(own), int(pairs)) for own, pairs in zip(splits, blocks, strict=True)
    ]
    top = mixture_top(schema, rng.dirichlet(np.ones(NUM_INTERFACES)))
    return assemble(grower.builder.template(outputs), top)


def census(template: dspn.Template) -> Census:
    """Counts of the nodes that the size of an irregular template is told by."""
    nodes = template.nodes

    def all_are(node: Node, kind: type[Node], *, of: type[Node]) -> bool:
        return isinstance(node, of) and all(isinstance(nodes[c], kind) for c in node.children)

    interface_sums = sum(all_are(node, Input, of=Sum) for node in nodes)
    leaf_products = sum(all_are(node, Leaf, of=Product) for node in nodes)
    pairs = sum(isinstance(node, Sum) and len(node.children) == 2 for node in nodes)
    return Census(interface_sums, leaf_products, pairs, template.num_edges)
