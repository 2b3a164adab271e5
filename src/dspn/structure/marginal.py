"""Some variables of a network alone: the others summed out of its structure, once and for all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn._checks import indices, require_type
from dspn.data import Schema
from dspn.errors import StructureError
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Input, Leaf, Node, Sum, children_of
from dspn.structure.parameters import NetworkParameters, Parameters
from dspn.structure.template import Template, Top


def marginal(network: DynamicNetwork, variables: Sequence[int]) -> DynamicNetwork:
    """P of some variables of every slice, exactly, as a network over them alone.

    A node over other variables only is worth 1 whatever is summed out, and goes: its parents lose
    a factor, or go with it. Interface groups that speak of other variables only go too, and with
    them their cost. `variables` are numbers of the schema, in any order; the new schema has them in
    that of the old.

    Raises:
        StructureError: Where a group has none of the variables in its own slice but reads some of
            the slice below: it would be left without a scope in the bottom network.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    kept = _checked_variables(network.schema, variables)
    if len(kept) == len(network.schema):
        return network
    groups = speaking_groups(network, kept)
    _require_own_variables(network, kept, groups)
    positions = sorted(position for group in groups for position in network.groups[group])
    template, top, own = network.template, network.top, network.parameters
    inside = _Part.of(template.nodes, template.order, positions, kept)
    above = _Part.of(top.nodes, top.order, positions, kept)
    schema = Schema(tuple(network.schema[variable] for variable in kept))
    outputs = tuple(inside.numbers[template.outputs[position]] for position in positions)
    return DynamicNetwork(
        Template(schema, inside.nodes, outputs),
        Top(len(positions), above.nodes, above.numbers[top.root]),
        Parameters(
            _parameters(template, inside, own.template, kept),
            NetworkParameters(above.weights(own.top.weights, top.edge_offsets)),
            None if own.bottom is None else _parameters(template, inside, own.bottom, kept),
        ),
        network.root,
    )


def speaking_groups(network: DynamicNetwork, variables: Iterable[int]) -> tuple[int, ...]:
    """The groups with one of the variables in their scope, in some slice."""
    asked = set(variables)
    found = {
        group for group, own in enumerate(network.group_variables) if not asked.isdisjoint(own)
    }
    while True:
        readers = {
            group
            for group, sources in enumerate(network.group_sources)
            if not found.isdisjoint(sources)
        }
        if readers <= found:
            return tuple(sorted(found))
        found |= readers


def _checked_variables(schema: Schema, variables: Sequence[int]) -> tuple[int, ...]:
    found = indices(variables, "variables", StructureError)
    if not found or len(set(found)) < len(found) or not set(found) <= set(range(len(schema))):
        raise StructureError(
            f"`variables` must be distinct numbers from 0 to {len(schema) - 1}, at least one, but "
            f"is {list(found)}."
        )
    return tuple(sorted(found))


def _require_own_variables(
    network: DynamicNetwork, kept: Sequence[int], groups: Iterable[int]
) -> None:
    for group in groups:
        own = network.group_variables[group]
        if set(own).isdisjoint(kept):
            names = ", ".join(network.schema[variable].name for variable in own)
            raise StructureError(
                f"`variables` must have one of {names}: their interface group reads variables that "
                "are kept from the slice below, and cannot go; keep one of them too."
            )


@final
@dataclass(frozen=True, eq=False)
class _Part:
    """The nodes that are left of a network; `numbers` are the new ones of the old nodes."""

    nodes: tuple[Node, ...]
    numbers: dict[int, int]

    @classmethod
    def of(
        cls,
        nodes: Sequence[Node],
        order: Sequence[int],
        positions: Sequence[int],
        variables: Sequence[int],
    ) -> "_Part":
        """What is left of the nodes when only some inputs and variables are."""
        position_of = {position: number for number, position in enumerate(positions)}
        variable_of = {variable: number for number, variable in enumerate(variables)}
        stays = [False] * len(nodes)
        for index in order:
            node = nodes[index]
            if isinstance(node, Input):
                stays[index] = node.position in position_of
            elif isinstance(node, Leaf):
                stays[index] = node.variable in variable_of
            else:
                stays[index] = any(stays[child] for child in node.children)
        left = [index for index, own in enumerate(stays) if own]
        numbers = {index: number for number, index in enumerate(left)}

        def renumbered(node: Node) -> Node:
            if isinstance(node, Input):
                return Input(position_of[node.position])
            if isinstance(node, Leaf):
                return Leaf(variable_of[node.variable], node.family)
            return type(node)(tuple(numbers[child] for child in node.children if stays[child]))

        return cls(tuple(renumbered(nodes[index]) for index in left), numbers)

    def weights(self, weights: Floats, starts: dict[int, int]) -> Floats:
        """Those of the sums that are left; a sum loses all of its children or none."""
        own = [
            weights[starts[index] : starts[index] + len(children_of(node))]
            for index, node in zip(self.numbers, self.nodes, strict=True)
            if isinstance(node, Sum)
        ]
        return np.concatenate(own) if own else np.zeros(0)


def _parameters(
    template: Template, part: _Part, own: NetworkParameters, kept: Sequence[int]
) -> NetworkParameters:
    leaves = tuple(
        rows for bank, rows in zip(template.banks, own.leaves, strict=True) if bank.variable in kept
    )
    return NetworkParameters(part.weights(own.weights, template.edge_offsets), leaves)
