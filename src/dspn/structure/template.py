"""The template network, repeated once per slice, and the top network that caps the stack."""

import reprlib
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import final

from dspn.data import Schema, Variable
from dspn.errors import StructureError
from dspn.leaves import Family, family_for
from dspn.structure.nodes import Input, Leaf, Node, Sum, check_children, topological_order


@final
@dataclass(frozen=True, slots=True)
class Bank:
    """The leaves of one variable and family; their parameters are the rows of one array."""

    variable: int
    family: Family
    nodes: tuple[int, ...]


def edge_offsets(nodes: tuple[Node, ...]) -> dict[int, int]:
    """Where the weights of each sum begin in the flat weight vector: sums in node order."""
    sums = [
        (index, len(node.children)) for index, node in enumerate(nodes) if isinstance(node, Sum)
    ]
    starts = accumulate((width for _, width in sums), initial=0)
    return {index: start for (index, _), start in zip(sums, starts, strict=False)}


def _input_nodes(nodes: tuple[Node, ...], num_inputs: int, network: str) -> tuple[int, ...]:
    found: dict[int, int] = {}
    for index, node in enumerate(nodes):
        if not isinstance(node, Input):
            continue
        if not 0 <= node.position < num_inputs:
            raise StructureError(
                f"input node {index} of the {network} network has position {node.position}, but "
                f"positions run from 0 to {num_inputs - 1}, one for each output."
            )
        if node.position in found:
            raise StructureError(
                f"input nodes {found[node.position]} and {index} of the {network} network share "
                f"position {node.position}; f must be a bijection."
            )
        found[node.position] = index
    missing = [position for position in range(num_inputs) if position not in found]
    if missing:
        raise StructureError(
            f"the {network} network has {num_inputs} interfaces but no input node for position(s) "
            f"{reprlib.repr(missing)}; f must be a bijection."
        )
    return tuple(found[position] for position in range(num_inputs))


def _check_leaves(schema: Schema, nodes: tuple[Node, ...]) -> None:
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
        if first == index:
            _check_family(variable, family, index)


def _check_family(variable: Variable, family: Family, index: int) -> None:
    """Raises unless the family is that of the variable's kind; its reference values are free."""
    usual = family_for(variable)
    if type(family) is not type(usual) or (variable.num_categories and family != usual):
        size = f" with {variable.num_categories} categories" if variable.num_categories else ""
        raise StructureError(
            f"leaf {index} of variable {variable.name!r} is {family}, but the variable is "
            f"of the kind {variable.kind}{size}; use {usual}."
        )


@final
@dataclass(frozen=True)
class Template:
    """The network of one slice: leaves over its variables, k inputs and k outputs.

    `outputs[i]` is the output interface node f(i) of the input at position i. Nodes may stand in
    any order; a node may have several parents.
    """

    schema: Schema
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    def __post_init__(self) -> None:
        check_children(self.nodes, "template")
        if not self.outputs:
            raise StructureError("`outputs` is empty; a template needs at least one interface.")
        bad = [output for output in self.outputs if not 0 <= output < len(self.nodes)]
        if bad or len(set(self.outputs)) != len(self.outputs):
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
    def order(self) -> tuple[int, ...]:
        """All nodes, children first."""
        return topological_order(self.nodes, "template")

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The input node of each position."""
        return _input_nodes(self.nodes, len(self.outputs), "template")

    @cached_property
    def edge_offsets(self) -> dict[int, int]:
        """Where the weights of each sum begin in the flat weight vector."""
        return edge_offsets(self.nodes)

    @cached_property
    def num_weights(self) -> int:
        """Number of sum edges."""
        return sum(len(node.children) for node in self.nodes if isinstance(node, Sum))

    @cached_property
    def num_edges(self) -> int:
        """Number of all edges, the measure of the template's size."""
        return sum(len(getattr(node, "children", ())) for node in self.nodes)

    @cached_property
    def banks(self) -> tuple[Bank, ...]:
        """The leaves by variable and family, in order of first appearance within the variable."""
        members: dict[tuple[int, Family], list[int]] = {}
        for index, node in enumerate(self.nodes):
            if isinstance(node, Leaf):
                members.setdefault((node.variable, node.family), []).append(index)
        keys = sorted(members, key=lambda key: key[0])
        return tuple(
            Bank(variable, family, tuple(members[variable, family])) for variable, family in keys
        )


@final
@dataclass(frozen=True)
class Top:
    """The rooted network of sums and products over the interface nodes that caps the stack."""

    num_inputs: int
    nodes: tuple[Node, ...]
    root: int

    def __post_init__(self) -> None:
        check_children(self.nodes, "top")
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
    def order(self) -> tuple[int, ...]:
        """All nodes, children first."""
        return topological_order(self.nodes, "top")

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The input node of each position."""
        return _input_nodes(self.nodes, self.num_inputs, "top")

    @cached_property
    def edge_offsets(self) -> dict[int, int]:
        """Where the weights of each sum begin in the flat weight vector."""
        return edge_offsets(self.nodes)

    @cached_property
    def num_weights(self) -> int:
        """Number of sum edges."""
        return sum(len(node.children) for node in self.nodes if isinstance(node, Sum))
