"""The paper's basic networks (Figure 1) and templates (Figure 2a), with random starting parameters.

The input interface of a group counts as one more variable of the scope: its univariate distribution is a
sum over the group's input nodes. A scope is therefore a sequence of variable indices and `Interface`s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn.errors import StructureError
from dspn.leaves import family_for
from dspn.sequences import Schema
from dspn.structure.builder import NetworkBuilder, assemble
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.parameters import NetworkParameters
from dspn.structure.template import Top


@final
@dataclass(frozen=True)
class Interface:
    """The input interface of one group, seen as one more variable: its input nodes."""

    inputs: tuple[int, ...]


ScopeItem = int | Interface


def _weights(count: int, rng: np.random.Generator) -> Floats:
    return rng.dirichlet(np.ones(count))


def univariate(builder: NetworkBuilder, item: ScopeItem, rng: np.random.Generator) -> int:
    """Figure 1a: a distribution over one variable, or over the input nodes of one group."""
    if isinstance(item, Interface):
        return builder.sum(item.inputs, _weights(len(item.inputs), rng))
    family = family_for(builder.schema[item])
    return builder.leaf(item, family.random(1, rng)[0], family)


def factored(builder: NetworkBuilder, scope: Sequence[ScopeItem], rng: np.random.Generator) -> int:
    """Figure 1b: a product of univariate distributions, one for each item of the scope."""
    return builder.product([univariate(builder, item, rng) for item in scope])


def naive_bayes(
    builder: NetworkBuilder,
    scope: Sequence[ScopeItem],
    rng: np.random.Generator,
    *,
    num_classes: int = 2,
) -> int:
    """Figure 1c: a sum of `num_classes` factored distributions over the scope."""
    classes = [factored(builder, scope, rng) for _ in range(num_classes)]
    return builder.sum(classes, _weights(num_classes, rng))


def product_of_naive_bayes(
    builder: NetworkBuilder,
    partition: Sequence[Sequence[ScopeItem]],
    rng: np.random.Generator,
    *,
    num_classes: int = 2,
) -> int:
    """Figure 1d: a product over the blocks of a partition; a block of one item is univariate."""
    blocks = [
        univariate(builder, block[0], rng)
        if len(block) == 1
        else naive_bayes(builder, block, rng, num_classes=num_classes)
        for block in partition
    ]
    return builder.product(blocks)


def mixture_top(schema: Schema, weights: Sequence[float] | Floats) -> tuple[Top, NetworkParameters]:
    """The paper's top network: a root sum over all interface nodes."""
    builder = NetworkBuilder(schema)
    inputs = builder.inputs(len(weights))
    return builder.top(builder.sum(inputs, weights))


def initial_network(
    schema: Schema,
    num_interfaces: int,
    *,
    rng: np.random.Generator,
    root: Root | str = Root.FIRST,
) -> DynamicNetwork:
    """Figure 2a: each of k outputs is a factored model of the slice's variables and the input interface."""
    every = tuple(range(len(schema)))
    return grouped_network(schema, [every], num_interfaces, rng=rng, root=root)


def grouped_network(
    schema: Schema,
    groups: Sequence[Sequence[int]],
    num_interfaces: int | Sequence[int],
    *,
    num_products: int = 1,
    rng: np.random.Generator,
    root: Root | str = Root.FIRST,
) -> DynamicNetwork:
    """One initial template for each group of variables; groups meet in the top network only.

    The top network is a sum of `num_products` products with one factor, a sum over its interface nodes,
    from each group; with a single group it is the paper's root sum.
    """
    flat = sorted(variable for group in groups for variable in group)
    if flat != list(range(len(schema))):
        raise StructureError(
            f"`groups` must hold each of the {len(schema)} variables exactly once, but holds {flat}."
        )
    sizes = (
        [num_interfaces] * len(groups) if isinstance(num_interfaces, int) else list(num_interfaces)
    )
    if len(sizes) != len(groups) or min(sizes) < 1 or num_products < 1:
        raise StructureError(
            f"`num_interfaces` must be at least 1 for each of the {len(groups)} groups and "
            f"`num_products` at least 1, but they are {num_interfaces} and {num_products}."
        )
    builder = NetworkBuilder(schema)
    inputs = [builder.inputs(size) for size in sizes]
    outputs = [
        factored(builder, [*group, Interface(tuple(own))], rng)
        for group, own in zip(groups, inputs, strict=True)
        for _ in own
    ]
    top = _grouped_top(schema, sizes, num_products, rng)
    return assemble(builder.template(outputs), top, root=root)


def _grouped_top(
    schema: Schema, sizes: Sequence[int], num_products: int, rng: np.random.Generator
) -> tuple[Top, NetworkParameters]:
    builder = NetworkBuilder(schema)
    inputs = [Interface(tuple(builder.inputs(size))) for size in sizes]
    if len(sizes) == 1:
        return builder.top(univariate(builder, inputs[0], rng))
    products = [factored(builder, inputs, rng) for _ in range(num_products)]
    root = products[0] if num_products == 1 else builder.sum(products, _weights(num_products, rng))
    return builder.top(root)
