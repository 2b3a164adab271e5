"""Where the slices of a data set go in a network: posteriors of products and interface nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn._checks import require_type
from dspn.engine import Program, Want
from dspn.errors import DataError, StructureError
from dspn.inference import interface_posteriors
from dspn.learning.independence import Column
from dspn.sequences import Kind, Sequences
from dspn.structure import DynamicNetwork, Input, Leaf, Root
from dspn.structure.graph import reachable
from dspn.structure.nodes import children_of


@final
@dataclass(frozen=True, eq=False)
class SlicePosteriors:
    """What the independence tests weigh the slices of a data set by, for one network.

    Serves every proposal from that network; each pass runs when it is first needed.
    """

    program: Program
    data: Sequences

    def __post_init__(self) -> None:
        require_type(self.program, Program, "program", StructureError)
        require_type(self.data, Sequences, "data", DataError)

    @property
    def network(self) -> DynamicNetwork:
        """The network of the program."""
        return self.program.network

    @cached_property
    def interface(self) -> Floats:
        """P(interface node on the induced tree at a slice | evidence), (slices, interfaces)."""
        return interface_posteriors(self.program, self.data)

    def below(self, group: int) -> Floats:
        """P(input node of a group | evidence): that of the output one slice below, (slices, size).

        NaN at the slice that is at the bottom, which has no inputs.
        """
        own = self.interface[:, list(self.network.groups[group])]
        found = np.full(own.shape, np.nan)
        if self.network.root == Root.FIRST:
            found[:-1] = own[1:]
            found[self.data.offsets[1:] - 1] = np.nan
        else:
            found[1:] = own[:-1]
            found[self.data.offsets[:-1]] = np.nan
        return found

    def product(self, node: int) -> Floats:
        """P(product on the induced tree at a slice | evidence), (slices,).

        For an output without parents that of the interface node, otherwise that of the leaves of a
        variable which stand below this product alone. A product that shares leaves of all its
        variables with others has the posterior of the outputs above it, an upper bound.
        """
        nodes, outputs = self.network.template.nodes, self.network.template.outputs
        # The rest of the network, with the product's own sub-network cut off.
        cut = [Input(-1) if index == node else own for index, own in enumerate(nodes)]
        rest = reachable(cut, outputs)
        if node in outputs and all(node not in children_of(nodes[other]) for other in rest):
            return np.asarray(self.interface[:, outputs.index(node)])
        leaves: dict[int, list[int]] = {}
        for index in reachable(nodes, [node]):
            own = nodes[index]
            if isinstance(own, Leaf):
                leaves.setdefault(own.variable, []).append(index)
        for variable, members in sorted(leaves.items()):
            if rest.isdisjoint(members):
                return self._leaves(variable, members)
        above = [i for i, output in enumerate(outputs) if node in reachable(nodes, [output])]
        return np.asarray(self.interface[:, above].sum(axis=1).clip(max=1.0))

    def _leaves(self, variable: int, members: Sequence[int]) -> Floats:
        """P(one of a variable's leaves on the induced tree at a slice | evidence), (slices,)."""
        bank = self.network.template.banks[variable]
        wanted = np.zeros(self.data.values.shape, dtype=np.bool_)
        wanted[:, variable] = True
        found = self.program.posteriors(self.data, Want(leaves=wanted)).leaves[variable]
        return np.asarray(found[:, np.isin(bank.nodes, members)].sum(axis=1))

    def column(self, number: int, weights: Floats) -> Column:
        """The rows of one item of a scope, numbered as in `partitions`."""
        schema = self.data.schema
        if number >= len(schema):
            return Column.of_posterior(self.below(number - len(schema)))
        variable, values = schema[number], self.data.values[:, number]
        if variable.kind == Kind.CATEGORICAL:
            return Column.of_codes(values, variable.num_categories)
        return Column.of_numbers(values, weights)
