"""A DSPN compiled for the kernels: layouts of its structure, bound to the arrays of its parameters."""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.engine.layout import TemplateLayout, TopLayout, WeightMap, lay_out
from dspn.structure.network import DynamicNetwork
from dspn.structure.parameters import NetworkParameters


@final
@dataclass(frozen=True, eq=False)
class Weights:
    """Weights in the order of the operations and of the dense matrices, and their logarithms."""

    op: Floats
    mix: Floats

    @cached_property
    def logarithms(self) -> "Weights":
        """The same in log space; log 0 = -inf."""
        with np.errstate(divide="ignore"):
            return Weights(np.log(self.op), np.log(self.mix))


def _bind(weight_map: WeightMap, parameters: NetworkParameters) -> Weights:
    return Weights(*weight_map.scatter(parameters.weights))


@final
@dataclass(frozen=True, eq=False)
class Program:
    """What every query runs. `untied` is true when position 0 uses the bottom network's own parameters."""

    network: DynamicNetwork
    template: TemplateLayout
    top: TopLayout

    @property
    def untied(self) -> bool:
        """Whether the bottom network has its own parameters."""
        return self.network.parameters.bottom is not None

    @property
    def num_interfaces(self) -> int:
        """K, over all groups."""
        return self.template.operations.num_inputs

    @property
    def num_groups(self) -> int:
        """Number of interface groups."""
        return len(self.template.groups)

    @cached_property
    def template_weights(self) -> Weights:
        """Weights of the template."""
        return _bind(self.template.weights, self.network.parameters.template)

    @cached_property
    def bottom_weights(self) -> Weights:
        """Weights used at position 0."""
        own = self.network.parameters.bottom
        return self.template_weights if own is None else _bind(self.template.weights, own)

    @cached_property
    def top_weights(self) -> Weights:
        """Weights of the top network."""
        return _bind(self.top.weights, self.network.parameters.top)

    def leaf_parameters(self, bottom: bool) -> tuple[Floats, ...]:
        """Leaf parameters by bank, of the bottom network or of the template."""
        own = self.network.parameters.bottom
        return own.leaves if bottom and own is not None else self.network.parameters.template.leaves

    @cached_property
    def input_group(self) -> Ints:
        """The group of each input row."""
        sizes = [len(group) for group in self.template.groups]
        return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)

    @cached_property
    def top_groups(self) -> tuple[int, ...]:
        """The groups that the root reads."""
        read = set(self.top.operations.op_child.tolist())
        if self.top.root_row < self.num_interfaces:
            read.add(self.top.root_row)
        return tuple(
            sorted({int(self.input_group[row]) for row in read if row < self.num_interfaces})
        )

    @cached_property
    def every_group_is_read(self) -> bool:
        """Whether each group is part of the root at every slice, so that its mass is the likelihood."""
        operations = self.template.operations
        everything = set(range(self.num_groups))
        return (
            set(self.top_groups) == everything
            and set(operations.source_group.tolist()) == everything
        )

    @cached_property
    def variable_group(self) -> Ints:
        """The group whose outputs hold each variable."""
        operations = self.template.operations
        groups = np.zeros(len(self.network.schema), dtype=np.int64)
        loads = operations.num_inputs + np.arange(operations.num_loads)
        live = operations.row_group[loads] >= 0
        groups[self.template.load_bank[live]] = operations.row_group[loads[live]]
        return groups


def compile_program(network: DynamicNetwork) -> Program:
    """Lays out the structure of a DSPN and binds its parameters."""
    template, top = lay_out(network)
    return Program(network, template, top)
