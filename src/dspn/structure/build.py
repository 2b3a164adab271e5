"""Networks built node by node, and the paper's basic networks (Figure 1) and templates (Figure 2a).

The input interface of a group counts as one more variable of a scope: its univariate distribution
is a sum over the group's input nodes. A scope is therefore a sequence of variable indices and
`Interface`s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arguments import (
    Floats,
    Ints,
    checked_rng,
    float_array,
    indices,
    require_type,
    whole_number,
    whole_numbers,
)
from dspn.data.schema import Schema
from dspn.errors import StructureError
from dspn.leaves import Family, family_for
from dspn.structure.edit import (
    Entry,
    add_node,
    categorical_input,
    checked_partition,
    pack_parameters,
    with_tables_by,
)
from dspn.structure.network import DynamicNetwork, Root, checked_root
from dspn.structure.nodes import Input, Leaf, Node, Product, Sum
from dspn.structure.parameters import NetworkParameters, Parameters
from dspn.structure.template import Template, Top
from dspn.structure.transitions import Transitions, checked_transitions, sum_layers


def _number_below(value: int, argument: str, count: int) -> int:
    number = whole_number(value, argument, StructureError, least=0)
    if number >= count:
        raise StructureError(f"`{argument}` must be between 0 and {count - 1}, but is {number}.")
    return number


@final
class NetworkBuilder:
    """Collects nodes with their weights and leaf parameters; methods return a new node's index."""

    def __init__(self, schema: Schema) -> None:
        require_type(schema, Schema, "schema", StructureError)
        self.schema = schema
        self._entries: list[Entry] = []
        self._num_inputs = 0

    def _index(self, variable: int | str) -> int:
        """The column of a variable given by name or number."""
        if isinstance(variable, str):
            return self.schema.index(variable)
        return _number_below(variable, "variable", len(self.schema))

    def input(self) -> int:
        """The input interface node of the next position."""
        self._num_inputs += 1
        return add_node(self._entries, Input(self._num_inputs - 1))

    def inputs(self, count: int) -> list[int]:
        """`count` input interface nodes."""
        return [self.input() for _ in range(whole_number(count, "count", StructureError))]

    def leaf(
        self,
        variable: int | str,
        parameters: Sequence[float] | Floats,
        family: Family | None = None,
    ) -> int:
        """A leaf over a variable; `parameters` is one row of its family (see `dspn.leaves`)."""
        index = self._index(variable)
        if family is None:
            family = family_for(self.schema[index])
        require_type(family, Family, "family", StructureError, remedy="see `dspn.leaves`")
        row = float_array(parameters, "parameters", StructureError).reshape(-1)
        if row.shape != (family.num_parameters,):
            raise StructureError(
                f"a {family.name} leaf of variable {self.schema[index].name!r} needs "
                f"{family.num_parameters} parameters, but {row.size} are given."
            )
        return add_node(self._entries, Leaf(index, family), row)

    def indicator(self, variable: int | str, code: int) -> int:
        """The indicator of one category: a categorical leaf with all its mass there."""
        index = self._index(variable)
        own = self.schema[index]
        if not own.num_categories:
            raise StructureError(
                f"`variable` must be categorical to have indicators, but {own.name!r} is "
                f"{own.kind}; use `leaf`."
            )
        place = _number_below(code, "code", own.num_categories)
        return self.leaf(index, np.eye(own.num_categories)[place])

    def product(self, children: Sequence[int]) -> int:
        """A product of nodes with disjoint scopes."""
        return add_node(self._entries, Product(indices(children, "children", StructureError)))

    def sum(
        self,
        children: Sequence[int],
        weights: Sequence[float] | Sequence[Sequence[float]] | Floats,
        by: int | str | None = None,
    ) -> int:
        """A sum of nodes with the same scope; weights are non-negative and add up to 1.

        With `by`, a categorical input by name or number, `weights` has a row for each of its
        values, or one row for all.
        """
        own = float_array(weights, "weights", StructureError)
        below = indices(children, "children", StructureError)
        column = None if by is None else categorical_input(self.schema, by)
        tables = 1 if column is None else self.schema.inputs[column].num_categories
        if column is not None and own.ndim == 1:
            own = np.tile(own, (tables, 1))
        if own.size != tables * len(below) or (column is not None and own.shape[0] != tables):
            each = "" if column is None else f" and each of the {tables} values of its input"
            raise StructureError(
                f"`weights` must have one entry for each of the {len(below)} children{each}, but "
                f"has {own.size}."
            )
        return add_node(self._entries, Sum(below, column), own.reshape(-1))

    def _nodes(self) -> tuple[Node, ...]:
        return tuple(entry.node for entry in self._entries)

    def template(self, outputs: Sequence[int]) -> tuple[Template, NetworkParameters]:
        """The template with `outputs[i]` = f(input i), and its parameters."""
        named = indices(outputs, "outputs", StructureError)
        template = Template(self.schema, self._nodes(), named)
        return template, pack_parameters(template, self._entries)

    def top(self, root: int) -> tuple[Top, NetworkParameters]:
        """The top network with the given root, and its parameters."""
        index = whole_number(root, "root", StructureError, least=0)
        top = Top(self._num_inputs, self._nodes(), index)
        return top, pack_parameters(top, self._entries)


def assemble(
    template: tuple[Template, NetworkParameters],
    top: tuple[Top, NetworkParameters],
    *,
    bottom: NetworkParameters | None = None,
    root: Root | str = Root.FIRST,
) -> DynamicNetwork:
    """A checked DSPN from what the builders gave; `bottom` has the bottom's own parameters."""
    for argument, given, kind in (("template", template, Template), ("top", top, Top)):
        fits = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], kind)
        if not fits or not isinstance(given[1], NetworkParameters):
            raise StructureError(
                f"`{argument}` must be the pair ({kind.__name__}, NetworkParameters) that "
                f"`NetworkBuilder.{argument}` gives, found {type(given).__name__}."
            )
    parameters = Parameters(template[1], top[1], bottom)
    return DynamicNetwork(template[0], top[0], parameters, checked_root(root))


@final
@dataclass(frozen=True)
class Interface:
    """The input interface of one group, seen as one more variable: its input nodes.

    Sums over inputs of the group may stand for them.
    """

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
    transitions: Transitions | str = Transitions.DENSE,
    by: int | str | None = None,
    rng: np.random.Generator,
    root: Root | str = Root.FIRST,
) -> DynamicNetwork:
    """Figure 2a: each of k outputs is a factored model of the variables and the input interface.

    `transitions` says which inputs an output reads: all of them, or few by blocks
    (`dspn.structure.transitions`). With `by`, a categorical input of the schema, there is a table
    of their weights for each of its values; all begin alike.
    """
    require_type(schema, Schema, "schema", StructureError)
    size = whole_number(num_interfaces, "num_interfaces", StructureError)
    every = tuple(range(len(schema)))
    network = grouped_network(schema, [every], size, transitions=transitions, rng=rng, root=root)
    return network if by is None else with_tables_by(network, by)


def interfaces_read(
    builder: NetworkBuilder,
    inputs: Sequence[int],
    transitions: Transitions | str,
    rng: np.random.Generator,
) -> list[Interface]:
    """What each output of a group reads: inputs, or the sums over inputs that are added here."""
    below = list(inputs)
    *inner, last = sum_layers(checked_transitions(transitions), len(below))
    for layer in inner:
        reads = [Interface(tuple(below[place] for place in own)) for own in layer]
        below = [univariate(builder, own, rng) for own in reads]
    return [Interface(tuple(below[place] for place in own)) for own in last]


def grouped_network(
    schema: Schema,
    groups: Sequence[Sequence[int]],
    num_interfaces: int | Sequence[int],
    *,
    num_products: int = 1,
    transitions: Transitions | str = Transitions.DENSE,
    reads: Sequence[Sequence[Ints]] | None = None,
    rng: np.random.Generator,
    root: Root | str = Root.FIRST,
) -> DynamicNetwork:
    """One initial template for each group of variables; groups meet in the top network only.

    The top network is a sum of `num_products` products with one factor, a sum over its interface
    nodes, from each group; with a single group it is the paper's root sum. In place of
    `transitions`, `reads` gives for each group and output the numbers of the inputs that it reads;
    the sums of the top network then have those that none reads (`unread`).
    """
    builder = NetworkBuilder(schema)
    members = checked_partition(schema, groups, "groups")
    sizes = sizes_of_groups(num_interfaces, "num_interfaces", len(members))
    count = whole_number(num_products, "num_products", StructureError)
    inputs = [builder.inputs(size) for size in sizes]
    outputs = list[int]()
    for number, (group, own) in enumerate(zip(members, inputs, strict=True)):
        if reads is None:
            below = interfaces_read(builder, own, transitions, rng)
        else:
            below = [Interface(tuple(own[place] for place in places)) for places in reads[number]]
        outputs += [factored(builder, [*group, item], rng) for item in below]
    top = NetworkBuilder(schema)
    starts = [top.inputs(size) for size in sizes]
    if reads is not None:
        starts = [[own[i] for i in unread(of)] for own, of in zip(starts, reads, strict=True)]
    below = [Interface(tuple(own)) for own in starts]
    if len(sizes) == 1:
        apex = univariate(top, below[0], rng)
    else:
        products = [factored(top, below, rng) for _ in range(count)]
        apex = products[0] if count == 1 else top.sum(products, _weights(count, rng))
    return assemble(builder.template(outputs), top.top(apex), root=root)


def unread(reads: Sequence[Ints]) -> list[int]:
    """The inputs that no output reads; all of them where each is read."""
    found: list[int] = np.setdiff1d(np.arange(len(reads)), np.concatenate(reads)).tolist()
    return found or list(range(len(reads)))


def sizes_of_groups(sizes: int | Sequence[int], argument: str, num_groups: int) -> list[int]:
    """A number for each group, from one for all of them or from a list."""
    if np.ndim(sizes) == 0:
        return [whole_number(sizes, argument, StructureError)] * num_groups
    given: list[int] = whole_numbers(sizes, argument, StructureError).tolist()
    if len(given) != num_groups:
        raise StructureError(
            f"`{argument}` must be one number, or one for each of the {num_groups} groups, but is "
            f"{given}."
        )
    return given
