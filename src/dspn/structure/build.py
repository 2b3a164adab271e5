"""The paper's basic networks (Figure 1) and templates (Figure 2a), with random parameters.

The input interface of a group counts as one more variable of the scope: its univariate distribution
is a sum over the group's input nodes. A scope is therefore a sequence of variable indices and
`Interface`s.
"""

import operator
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn._checks import (
    checked_rng,
    float_array,
    require_type,
    whole_number,
    whole_numbers,
)
from dspn.data import Schema
from dspn.errors import StructureError
from dspn.leaves import family_for
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
    checked_rng(rng, StructureError)
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
    count = whole_number(num_classes, "num_classes", StructureError)
    classes = [factored(builder, scope, rng) for _ in range(count)]
    return builder.sum(classes, _weights(count, rng))


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
    own = float_array(weights, "weights", StructureError).reshape(-1)
    inputs = builder.inputs(own.size)
    return builder.top(builder.sum(inputs, own))


def initial_network(
    schema: Schema,
    num_interfaces: int,
    *,
    rng: np.random.Generator,
    root: Root | str = Root.FIRST,
) -> DynamicNetwork:
    """Figure 2a: each of k outputs is a factored model of the variables and the input interface."""
    require_type(schema, Schema, "schema", StructureError)
    size = whole_number(num_interfaces, "num_interfaces", StructureError)
    every = tuple(range(len(schema)))
    return grouped_network(schema, [every], size, rng=rng, root=root)


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

    The top network is a sum of `num_products` products with one factor, a sum over its interface
    nodes, from each group; with a single group it is the paper's root sum.
    """
    builder = NetworkBuilder(schema)
    members = _checked_groups(schema, groups)
    sizes = _sizes(num_interfaces, len(members))
    count = whole_number(num_products, "num_products", StructureError)
    inputs = [builder.inputs(size) for size in sizes]
    outputs = [
        factored(builder, [*group, Interface(tuple(own))], rng)
        for group, own in zip(members, inputs, strict=True)
        for _ in own
    ]
    top = _grouped_top(schema, sizes, count, rng)
    return assemble(builder.template(outputs), top, root=root)


def _checked_groups(schema: Schema, groups: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The groups of variable indices, none of them empty, that share out the variables."""
    try:
        members = [tuple(map(operator.index, group)) for group in groups]
    except TypeError:
        raise StructureError(
            "`groups` must be a list of lists of variables by number, such as [[0, 1], [2]], but "
            f"is {reprlib.repr(groups)}."
        ) from None
    flat = sorted(variable for group in members for variable in group)
    if flat != list(range(len(schema))) or not all(members):
        raise StructureError(
            f"`groups` must hold each of the {len(schema)} variables exactly once and no empty "
            f"group, but is {members}; variables are numbered from 0."
        )
    return members


def _sizes(num_interfaces: int | Sequence[int], num_groups: int) -> list[int]:
    """The number of interface nodes of each group."""
    if np.ndim(num_interfaces) == 0:
        return [whole_number(num_interfaces, "num_interfaces", StructureError)] * num_groups
    sizes: list[int] = whole_numbers(num_interfaces, "num_interfaces", StructureError).tolist()
    if len(sizes) != num_groups:
        raise StructureError(
            f"`num_interfaces` must be one number, or one for each of the {num_groups} groups, but "
            f"is {sizes}."
        )
    return sizes


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
