"""Lays down nodes and their parameters together, so that the two cannot get out of step."""

from collections.abc import Sequence
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn._checks import float_array, indices, require_type, whole_number
from dspn.data import Schema
from dspn.errors import StructureError
from dspn.leaves import Family, family_for
from dspn.structure.network import DynamicNetwork, Root, checked_root
from dspn.structure.nodes import Input, Leaf, Node, Product, Sum
from dspn.structure.parameters import NetworkParameters, Parameters
from dspn.structure.template import Template, Top


@final
class NetworkBuilder:
    """Collects nodes with their weights and leaf parameters; methods return a new node's index."""

    def __init__(self, schema: Schema) -> None:
        require_type(schema, Schema, "schema", StructureError)
        self.schema = schema
        self._nodes: list[Node] = []
        self._weights: dict[int, Floats] = {}
        self._leaves: dict[int, Floats] = {}
        self._num_inputs = 0

    def _append(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _index(self, variable: int | str) -> int:
        """The column of a variable given by name or number."""
        if isinstance(variable, str):
            return self.schema.index(variable)
        index = whole_number(variable, "variable", StructureError, least=0)
        if index >= len(self.schema):
            raise StructureError(
                f"`variable` must be between 0 and {len(self.schema) - 1}, but is {index}."
            )
        return index

    def input(self) -> int:
        """The input interface node of the next position."""
        self._num_inputs += 1
        return self._append(Input(self._num_inputs - 1))

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
        node = self._append(Leaf(index, family))
        self._leaves[node] = row
        return node

    def indicator(self, variable: int | str, code: int) -> int:
        """The indicator of one category: a categorical leaf with all its mass there."""
        index = self._index(variable)
        own = self.schema[index]
        if not own.num_categories:
            raise StructureError(
                f"`variable` must be categorical to have indicators, but {own.name!r} is "
                f"{own.kind}; use `leaf`."
            )
        place = whole_number(code, "code", StructureError, least=0)
        if place >= own.num_categories:
            raise StructureError(
                f"`code` must be a category code of {own.name!r} (0 to {own.num_categories - 1}), "
                f"but is {place}."
            )
        return self.leaf(index, np.eye(own.num_categories)[place])

    def product(self, children: Sequence[int]) -> int:
        """A product of nodes with disjoint scopes."""
        return self._append(Product(indices(children, "children", StructureError)))

    def sum(self, children: Sequence[int], weights: Sequence[float] | Floats) -> int:
        """A sum of nodes with the same scope; weights are non-negative and add up to 1."""
        own = float_array(weights, "weights", StructureError).reshape(-1)
        below = indices(children, "children", StructureError)
        if own.size != len(below):
            raise StructureError(
                f"`weights` must have one entry for each of the {len(below)} children, but has "
                f"{own.size}."
            )
        node = self._append(Sum(below))
        self._weights[node] = own
        return node

    def _flat_weights(self) -> Floats:
        rows = [self._weights[index] for index in sorted(self._weights)]
        return np.concatenate(rows) if rows else np.zeros(0)

    def template(self, outputs: Sequence[int]) -> tuple[Template, NetworkParameters]:
        """The template with `outputs[i]` = f(input i), and its parameters."""
        named = indices(outputs, "outputs", StructureError)
        template = Template(self.schema, tuple(self._nodes), named)
        banks = tuple(
            np.stack([self._leaves[node] for node in bank.nodes]) for bank in template.banks
        )
        return template, NetworkParameters(self._flat_weights(), banks)

    def top(self, root: int) -> tuple[Top, NetworkParameters]:
        """The top network with the given root, and its parameters."""
        index = whole_number(root, "root", StructureError, least=0)
        top = Top(self._num_inputs, tuple(self._nodes), index)
        return top, NetworkParameters(self._flat_weights())


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
