"""Lays down nodes and their parameters together, so that the two cannot get out of step."""

from collections.abc import Sequence
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn.errors import StructureError
from dspn.leaves import Family, family_for
from dspn.sequences import Schema
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.nodes import Input, Leaf, Node, Product, Sum
from dspn.structure.parameters import NetworkParameters, Parameters
from dspn.structure.template import Template, Top


@final
class NetworkBuilder:
    """Collects nodes with their weights and leaf parameters; every method returns the new node's index."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._nodes: list[Node] = []
        self._weights: dict[int, Floats] = {}
        self._leaves: dict[int, Floats] = {}
        self._num_inputs = 0

    def _append(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def input(self) -> int:
        """The input interface node of the next position."""
        self._num_inputs += 1
        return self._append(Input(self._num_inputs - 1))

    def inputs(self, count: int) -> list[int]:
        """`count` input interface nodes."""
        return [self.input() for _ in range(count)]

    def leaf(
        self,
        variable: int | str,
        parameters: Sequence[float] | Floats,
        family: Family | None = None,
    ) -> int:
        """A leaf over a variable; `parameters` is one row of its family (see `dspn.leaves`)."""
        index = self.schema.index(variable) if isinstance(variable, str) else variable
        if not 0 <= index < len(self.schema):
            raise StructureError(
                f"`variable` must be between 0 and {len(self.schema) - 1}, but is {variable}."
            )
        family = family or family_for(self.schema[index])
        row = np.asarray(parameters, dtype=np.float64).reshape(-1)
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
        index = self.schema.index(variable) if isinstance(variable, str) else variable
        row = np.zeros(max(self.schema[index].num_categories, 1))
        if not 0 <= code < self.schema[index].num_categories:
            raise StructureError(
                f"`code` must be a category code of {self.schema[index].name!r} (0 to "
                f"{self.schema[index].num_categories - 1}), but is {code}."
            )
        row[code] = 1.0
        return self.leaf(index, row)

    def product(self, children: Sequence[int]) -> int:
        """A product of nodes with disjoint scopes."""
        return self._append(Product(tuple(children)))

    def sum(self, children: Sequence[int], weights: Sequence[float] | Floats) -> int:
        """A sum of nodes with the same scope; weights are non-negative and add up to 1."""
        own = np.asarray(weights, dtype=np.float64).reshape(-1)
        if own.size != len(children):
            raise StructureError(
                f"`weights` must have one entry for each of the {len(children)} children, but has {own.size}."
            )
        node = self._append(Sum(tuple(children)))
        self._weights[node] = own
        return node

    def _flat_weights(self) -> Floats:
        rows = [self._weights[index] for index in sorted(self._weights)]
        return np.concatenate(rows) if rows else np.zeros(0)

    def template(self, outputs: Sequence[int]) -> tuple[Template, NetworkParameters]:
        """The template with `outputs[i]` = f(input i), and its parameters."""
        template = Template(self.schema, tuple(self._nodes), tuple(outputs))
        banks = tuple(
            np.stack([self._leaves[node] for node in bank.nodes]) for bank in template.banks
        )
        return template, NetworkParameters(self._flat_weights(), banks)

    def top(self, root: int) -> tuple[Top, NetworkParameters]:
        """The top network with the given root, and its parameters."""
        return Top(self._num_inputs, tuple(self._nodes), root), NetworkParameters(
            self._flat_weights()
        )


def assemble(
    template: tuple[Template, NetworkParameters],
    top: tuple[Top, NetworkParameters],
    *,
    bottom: NetworkParameters | None = None,
    root: Root | str = Root.FIRST,
) -> DynamicNetwork:
    """A checked DSPN from what the builders gave; `bottom` unties the bottom network's parameters."""
    return DynamicNetwork(
        template[0],
        top[0],
        Parameters(template[1], top[1], bottom),
        root,  # type: ignore[arg-type]
    )
