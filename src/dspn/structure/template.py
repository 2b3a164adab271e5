"""The template network, repeated once per slice, and the top network that caps the stack."""

import reprlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import ClassVar, final

import numpy as np

from dspn._arguments import Ints
from dspn.data.schema import Schema
from dspn.errors import StructureError
from dspn.leaves import Family, family_for
from dspn.leaves.told import check_told
from dspn.structure.nodes import Input, Leaf, Node, Sum, check_children, topological_order


@final
@dataclass(frozen=True, slots=True)
class Bank:
    """The leaves of one variable and family; their parameters are the rows of one array."""

    variable: int
    family: Family
    nodes: tuple[int, ...]


class _Layer(ABC):
    """What the template and the top have in common: nodes in order, inputs and sum weights."""

    nodes: tuple[Node, ...]
    _name: ClassVar[str]

    @cached_property
    def order(self) -> tuple[int, ...]:
        """All nodes, children first."""
        return topological_order(self.nodes, self._name)

    @abstractmethod
    def num_tables(self, node: Node) -> int:
        """How many tables of weights a sum has: one for each value of the input it depends on."""

    @cached_property
    def _sizes(self) -> dict[int, int]:
        return {
            i: len(node.children) * self.num_tables(node)
            for i, node in enumerate(self.nodes)
            if isinstance(node, Sum)
        }

    @cached_property
    def edge_offsets(self) -> dict[int, int]:
        """Where the weights of each sum begin in the flat weight vector: sums in node order.

        The tables of a sum follow each other.
        """
        return dict(zip(self._sizes, accumulate(self._sizes.values(), initial=0), strict=False))

    @cached_property
    def num_weights(self) -> int:
        """Number of weights: of sum edges, in all their tables."""
        return sum(self._sizes.values())

    @cached_property
    def has_tables(self) -> bool:
        """Whether the weights of a sum depend on an input."""
        return any(isinstance(node, Sum) and node.by is not None for node in self.nodes)

    @cached_property
    def table_places(self) -> tuple[Ints, ...]:
        """Places (sums, tables, children) of weights that depend on an input, by their shape."""
        found: dict[tuple[int, int], list[int]] = {}
        for index, start in self.edge_offsets.items():
            node = self.nodes[index]
            if isinstance(node, Sum) and node.by is not None:
                shape = (self.num_tables(node), len(node.children))
                found.setdefault(shape, []).append(start)
        return tuple(
            np.array(starts)[:, None, None] + np.arange(tables * width).reshape(1, tables, width)
            for (tables, width), starts in found.items()
        )

    def _input_nodes(self, count: int) -> tuple[int, ...]:
        """The input node of each position; raises unless there is exactly one for each."""
        node_of: dict[int, int] = {}
        for index, node in enumerate(self.nodes):
            if not isinstance(node, Input):
                continue
            if not 0 <= node.position < count:
                raise StructureError(
                    f"input node {index} of the {self._name} network has position {node.position}, "
                    f"but positions run from 0 to {count - 1}, one for each output."
                )
            if node_of.setdefault(node.position, index) != index:
                raise StructureError(
                    f"input nodes {node_of[node.position]} and {index} of the {self._name} network "
                    f"share position {node.position}; f must be a bijection."
                )
        missing = [position for position in range(count) if position not in node_of]
        if missing:
            raise StructureError(
                f"the {self._name} network has {count} interfaces but no input node for "
                f"position(s) {reprlib.repr(missing)}; f must be a bijection."
            )
        return tuple(node_of[position] for position in range(count))


def _check_leaves(schema: Schema, nodes: tuple[Node, ...]) -> None:
    """Raises unless leaves are of one family for each variable, that of the variable's kind.

    Reference values of the family are free.
    """
    families: dict[int, tuple[int, Family]] = {}
    for index, node in enumerate(nodes):
        if not isinstance(node, Leaf):
            continue
        if not 0 <= node.variable < len(schema):
            raise StructureError(
                f"leaf {index} of the template network is over variable {node.variable}, but "
                f"the schema has {len(schema)} variables."
            )
        variable = schema[node.variable]
        first, family = families.setdefault(node.variable, (index, node.family))
        if node.family != family:
            raise StructureError(
                f"leaves {first} and {index} of variable {variable.name!r} are of different "
                f"families, {family} and {node.family}; all leaves of a variable share one family."
            )
        if first != index:
            continue
        usual, categories = family_for(variable), variable.num_categories
        if family.sources or usual.sources:
            check_told(family, variable)
            continue
        if type(family) is not type(usual) or (categories and family != usual):
            size = f" with {categories} categories" if categories else ""
            raise StructureError(
                f"leaf {index} of variable {variable.name!r} is {family}, but the variable is "
                f"of the kind {variable.kind}{size}; use {usual}."
            )


@final
@dataclass(frozen=True)
class Template(_Layer):
    """The network of one slice: leaves over its variables, k inputs and k outputs.

    `outputs[i]` is the output interface node f(i) of the input at position i. Nodes may stand in
    any order; a node may have several parents.
    """

    schema: Schema
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    _name = "template"

    def __post_init__(self) -> None:
        check_children(self.nodes, self._name)
        if not self.outputs:
            raise StructureError("`outputs` is empty; a template needs at least one interface.")
        named = set(self.outputs)
        if len(named) < len(self.outputs) or not named <= set(range(len(self.nodes))):
            raise StructureError(
                f"`outputs` must name distinct nodes between 0 and {len(self.nodes) - 1}, "
                f"but is {reprlib.repr(self.outputs)}; f must be a bijection."
            )
        _check_leaves(self.schema, self.nodes)
        self._check_tables()
        _ = self.order, self.inputs

    def _check_tables(self) -> None:
        own = self.schema.inputs
        for index, node in enumerate(self.nodes):
            by = node.by if isinstance(node, Sum) else None
            if by is not None and not (0 <= by < len(own) and own[by].num_categories):
                known = [i for i, item in enumerate(own) if item.num_categories]
                raise StructureError(
                    f"sum {index} of the template network has weights by input {by}, but the "
                    f"schema's categorical inputs are {known or 'none'}; name one of them."
                )

    def num_tables(self, node: Node) -> int:
        """One, or the number of values of the input that the weights depend on."""
        by = node.by if isinstance(node, Sum) else None
        return 1 if by is None else self.schema.inputs[by].num_categories

    @property
    def num_interfaces(self) -> int:
        """k, the number of input (and of output) interface nodes."""
        return len(self.outputs)

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The input node of each position."""
        return self._input_nodes(len(self.outputs))

    @cached_property
    def num_edges(self) -> int:
        """Number of all edges, the measure of the template's size."""
        return sum(len(getattr(node, "children", ())) for node in self.nodes)

    @cached_property
    def banks(self) -> tuple[Bank, ...]:
        """The leaves of each variable, variables in the order of the schema."""
        members: dict[int, list[int]] = {}
        family_of: dict[int, Family] = {}
        for index, node in enumerate(self.nodes):
            if isinstance(node, Leaf):
                members.setdefault(node.variable, []).append(index)
                family_of[node.variable] = node.family
        return tuple(Bank(own, family_of[own], tuple(members[own])) for own in sorted(members))


@final
@dataclass(frozen=True)
class Top(_Layer):
    """The rooted network of sums and products over the interface nodes that caps the stack."""

    num_inputs: int
    nodes: tuple[Node, ...]
    root: int

    _name = "top"

    def __post_init__(self) -> None:
        check_children(self.nodes, self._name)
        if not 0 <= self.root < len(self.nodes):
            raise StructureError(
                f"`root` must be a node of the top network (0 to {len(self.nodes) - 1}), not "
                f"{self.root}."
            )
        if self.has_tables:
            raise StructureError(
                "the top network belongs to no slice, so that its sums cannot have weights by an "
                "input; leave out `by`."
            )
        leaves = [index for index, node in enumerate(self.nodes) if isinstance(node, Leaf)]
        if leaves:
            raise StructureError(
                f"the top network has no variables of its own, but nodes "
                f"{reprlib.repr(leaves)} are leaves."
            )
        _ = self.order, self.inputs

    def num_tables(self, node: Node) -> int:
        """One: the top network belongs to no slice."""
        return 1

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The input node of each position."""
        return self._input_nodes(self.num_inputs)
