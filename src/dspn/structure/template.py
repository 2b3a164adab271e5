"""The template network, repeated once per slice, and the top network that caps the stack."""

import reprlib
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import ClassVar, final

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


class _Layer:
    """What the template and the top have in common: nodes in order, inputs and sum weights."""

    nodes: tuple[Node, ...]
    _name: ClassVar[str]

    @cached_property
    def order(self) -> tuple[int, ...]:
        """All nodes, children first."""
        return topological_order(self.nodes, self._name)

    @cached_property
    def edge_offsets(self) -> dict[int, int]:
        """Where the weights of each sum begin in the flat weight vector: sums in node order."""
        sums = {i: len(node.children) for i, node in enumerate(self.nodes) if isinstance(node, Sum)}
        return dict(zip(sums, accumulate(sums.values(), initial=0), strict=False))

    @cached_property
    def num_weights(self) -> int:
        """Number of sum edges."""
        return sum(len(node.children) for node in self.nodes if isinstance(node, Sum))

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
        _ = self.order, self.inputs

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
        leaves = [index for index, node in enumerate(self.nodes) if isinstance(node, Leaf)]
        if leaves:
            raise StructureError(
                f"the top network has no variables of its own, but nodes "
                f"{reprlib.repr(leaves)} are leaves."
            )
        _ = self.order, self.inputs

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The input node of each position."""
        return self._input_nodes(self.num_inputs)
