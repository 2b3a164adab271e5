"""A DSPN compiled for the kernels: layouts of its structure, bound to arrays of its parameters."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.engine.layout import TemplateLayout, TopLayout, WeightMap, lay_out
from dspn.engine.memo import Memo
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


@final
@dataclass(frozen=True, eq=False)
class TemplateWeights:
    """Weights of the slice part and of the mix part."""

    slice_part: Weights
    mix_part: Weights

    @cached_property
    def logarithms(self) -> "TemplateWeights":
        """The same in log space."""
        return TemplateWeights(self.slice_part.logarithms, self.mix_part.logarithms)


def _bind(weight_map: WeightMap, parameters: NetworkParameters) -> Weights:
    return Weights(*weight_map.scatter(parameters.weights))


def _bind_template(layout: TemplateLayout, parameters: NetworkParameters) -> TemplateWeights:
    return TemplateWeights(
        _bind(layout.slice_part.weights, parameters), _bind(layout.mix_part.weights, parameters)
    )


@final
@dataclass(frozen=True, eq=False)
class Program:
    """What every query runs: a network and the layouts of its template and top.

    With `single` the passes over chains compute in single precision where its range suffices, and
    in double precision where it does not. `kept` holds what follows from the network alone.
    """

    network: DynamicNetwork
    template: TemplateLayout
    top: TopLayout
    single: bool = False
    kept: Memo = field(default_factory=Memo, repr=False)

    def rebound(self, network: DynamicNetwork) -> "Program":
        """The same layouts with another network of the same structure, as learning makes them."""
        assert network.template is self.network.template
        assert network.top is self.network.top
        return Program(network, self.template, self.top, self.single)

    @cached_property
    def double(self) -> "Program":
        """The same program in double precision."""
        return Program(self.network, self.template, self.top) if self.single else self

    @property
    def untied(self) -> bool:
        """Whether the bottom network has its own parameters."""
        return self.network.parameters.bottom is not None

    @property
    def num_interfaces(self) -> int:
        """Number of interface nodes, over all groups."""
        return self.template.mix_part.operations.num_inputs

    @property
    def num_groups(self) -> int:
        """Number of interface groups."""
        return len(self.template.groups)

    @property
    def num_coefficients(self) -> int:
        """How many numbers the slice part hands to the mix part for each slice."""
        return self.template.mix_part.operations.num_loads

    @cached_property
    def _template_weights(self) -> TemplateWeights:
        return _bind_template(self.template, self.network.parameters.template)

    @cached_property
    def _bottom_weights(self) -> TemplateWeights:
        own = self.network.parameters.bottom
        return self._template_weights if own is None else _bind_template(self.template, own)

    def weights(self, bottom: bool) -> TemplateWeights:
        """Weights of the bottom network or of the template."""
        return self._bottom_weights if bottom else self._template_weights

    @cached_property
    def top_weights(self) -> Weights:
        """Weights of the top network."""
        return _bind(self.top.part.weights, self.network.parameters.top)

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
        read = {*self.top.part.operations.op_child.tolist(), self.top.root_row}
        own = {int(self.input_group[row]) for row in read if row < self.num_interfaces}
        return tuple(sorted(own))

    @cached_property
    def every_group_is_read(self) -> bool:
        """Whether the root reads each group at every slice, so that its mass is the likelihood."""
        everything = set(range(self.num_groups))
        sources = set(self.template.mix_part.operations.source_group.tolist())
        return set(self.top_groups) == everything and sources == everything

    @cached_property
    def widest(self) -> int:
        """The greatest number of children of an operation."""
        parts = (self.template.slice_part, self.template.mix_part, self.top.part)
        return int(max(np.diff(part.operations.op_start).max(initial=1) for part in parts))


def compile_program(network: DynamicNetwork, *, single: bool = False) -> Program:
    """Lays out the structure of a DSPN and binds its parameters; see `Program` for `single`."""
    template, top = lay_out(network)
    return Program(network, template, top, single)
