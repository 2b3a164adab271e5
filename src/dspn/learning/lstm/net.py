"""A product of conditionals, step by step: LSTM units over slices, a masked net within them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dspn._arguments import Bools, Ints
from dspn.data.schema import Schema
from dspn.learning.lstm.outputs import Categories, GaussianMixture, Output
from dspn.learning.lstm.schedule import SliceNetSize

State = Any
"""Nested tuples of tensors, or None before the first step."""


class StepNet(nn.Module, ABC):
    """P(steps) as the product of P(step | all before)."""

    @abstractmethod
    def forward(self, values: Tensor, state: State) -> tuple[Tensor, State]:
        """Log P(step | all before) of each step of a window, and the state after the last.

        Args:
            values: Steps of a window, (sequences, steps, width).
            state: What the window before gave; None for the first window.
        """

    @abstractmethod
    def drawn(self, values: Tensor, uniforms: Tensor, state: State) -> tuple[Tensor, State]:
        """Log P(observed part of a slice | all before it), and the state after the slice.

        What is missing is drawn from its distribution given all before it, and what is behind it,
        in the slice and in the state, is given the value drawn.

        Args:
            values: Steps of the slice, (sequences, steps, width), NaN where missing.
            uniforms: What the values are drawn by, as many as values, each uniform on [0, 1).
            state: What the slice before gave; None for the first slice.
        """


def detached(state: State) -> State:
    """The same state, through which no gradient goes back."""
    if isinstance(state, tuple):
        return tuple(detached(part) for part in state)
    return None if state is None else state.detach()


@final
@dataclass(frozen=True)
class Block:
    """Variables whose distributions are of one family, computed together."""

    output: Output
    columns: tuple[int, ...]


Place = tuple[Output, slice, slice]
"""A variable's family, and which features and which numbers of the head are its own."""


def blocks_of(schema: Schema, num_components: int) -> tuple[Block, ...]:
    """All variables, those of one family together."""
    columns: dict[Output, list[int]] = {}
    for column, variable in enumerate(schema):
        number = variable.num_categories
        output = Categories(number) if number else GaussianMixture(num_components)
        columns.setdefault(output, []).append(column)
    return tuple(Block(output, tuple(own)) for output, own in columns.items())


@final
class MaskedLinear(nn.Module):
    """A linear map without some of its edges: `mask[i, j]` says whether i reads j."""

    mask: Tensor

    def __init__(self, mask: Bools) -> None:
        super().__init__()
        self.linear = nn.Linear(mask.shape[1], mask.shape[0])
        self.register_buffer("mask", torch.from_numpy(mask.astype(np.float32)))

    def forward(self, values: Tensor) -> Tensor:
        """The weighted sums of what may be read."""
        return self.part(values, slice(None))

    def part(self, values: Tensor, own: slice) -> Tensor:
        """Some of the weighted sums."""
        weight, bias = self.linear.weight[own], self.linear.bias[own]
        return functional.linear(values, weight * self.mask[own], bias)


@final
class SliceHead(nn.Module):
    """Parameters of each variable from the past and the variables before it in the slice.

    A hidden unit of degree d reads the variables before the d-th; what belongs to variable j reads
    the units of degree j or less and, directly, the variables before j.
    """

    def __init__(self, context_size: int, features: Ints, parameters: Ints) -> None:
        super().__init__()
        self.num_variables = int(parameters.max()) + 1
        degrees = np.arange(max(context_size, self.num_variables)) % self.num_variables
        self.context = nn.Linear(context_size, degrees.size, bias=False)
        self.inside = MaskedLinear(features[None, :] < degrees[:, None])
        self.outside = MaskedLinear(degrees[None, :] <= parameters[:, None])
        self.direct = MaskedLinear(features[None, :] < parameters[:, None])
        self.past = nn.Linear(context_size, parameters.size, bias=False)

    def forward(self, context: Tensor, features: Tensor) -> Tensor:
        """The numbers of all distributions, along the last axis."""
        hidden = functional.relu(self.context(context) + self.inside(features))
        found: Tensor = self.outside(hidden) + self.direct(features) + self.past(context)
        return found

    def units_of(self, variable: int) -> slice:
        """The hidden units that read just the variables before this one."""
        return slice(variable, None, self.num_variables)


@final
class SliceNet(StepNet):
    """P(slice | all before) by the chain rule over its variables."""

    def __init__(self, blocks: tuple[Block, ...], size: SliceNetSize) -> None:
        super().__init__()
        self.blocks = blocks
        self.places = _places(blocks)
        features = _spread([block.output.num_features for block in blocks], blocks)
        parameters = _spread([block.output.num_parameters for block in blocks], blocks)
        self.num_features = features.size
        width, layers = size.hidden_size, size.num_layers
        self.embedding = nn.Linear(features.size, width)
        self.start = nn.Parameter(torch.zeros(width))
        self.dropout = nn.Dropout(size.dropout)
        between = size.dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=between)
        self.head = SliceHead(width, features, parameters)

    def forward(self, values: Tensor, state: State) -> tuple[Tensor, State]:
        """Log P(slice | all before)."""
        features = self._features(values)
        embedded = self.dropout(self.embedding(features))
        last, units = self._before(len(values), state)
        hidden, units = self.lstm(torch.cat([last, embedded[:, :-1]], dim=1), units)
        parameters = self.head(self.dropout(hidden), features)
        if not self.training:
            # Sums of many steps: what single precision loses in each would add up.
            parameters, values = parameters.double(), values.double()
        return self._log_prob(parameters, values), (embedded[:, -1:], units)

    def drawn(self, values: Tensor, uniforms: Tensor, state: State) -> tuple[Tensor, State]:
        """Log P(variables observed | all before), the others drawn one by one."""
        last, units = self._before(len(values), state)
        context, units = self.lstm(last, units)
        total, _, features = self._drawn_slice(context[:, 0], values[:, 0], uniforms[:, 0])
        return total, (self.embedding(features).unsqueeze(1), units)

    def sampled(self, uniforms: Tensor, state: State) -> tuple[Tensor, State]:
        """The next slice, drawn by uniform numbers (sequences, variables), and the state after."""
        last, units = self._before(len(uniforms), state)
        context, units = self.lstm(last, units)
        nothing = torch.full_like(uniforms, torch.nan)
        _, values, features = self._drawn_slice(context[:, 0], nothing, uniforms)
        return values, (self.embedding(features).unsqueeze(1), units)

    def memory(self, values: Tensor) -> Tensor:
        """What the units give on after each slice, (sequences, slices, units)."""
        first, _ = self._before(len(values), None)
        embedded = self.embedding(self._features(values))
        hidden: Tensor = self.lstm(torch.cat([first, embedded], dim=1))[0]
        return hidden[:, 1:]

    def _drawn_slice(
        self, context: Tensor, values: Tensor, uniforms: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log P(variables observed), the slice with nothing missing, and what the net reads of it.

        The head once, variable by variable: what a variable's numbers read is known before it.
        """
        head = self.head
        read, past = head.context(context), head.past(context)
        hidden, features = torch.zeros_like(read), read.new_zeros(len(read), self.num_features)
        total, filled = torch.zeros_like(uniforms[:, 0]), torch.zeros_like(uniforms)
        for column, (output, inputs, numbers) in enumerate(self.places):
            units = head.units_of(column)
            hidden[:, units] = functional.relu(read[:, units] + head.inside.part(features, units))
            parameters = head.outside.part(hidden, numbers) + head.direct.part(features, numbers)
            parameters = (parameters + past[:, numbers]).double()
            value, missing = values[:, column].double(), values[:, column].isnan()
            value = torch.where(missing, output.draw(parameters, uniforms[:, column]), value)
            total = total + torch.where(missing, 0.0, output.log_prob(parameters, value))
            filled[:, column] = value
            features[:, inputs] = output.features(value.float())
        return total, filled, features

    def _before(self, num_sequences: int, state: State) -> tuple[Tensor, State]:
        """What the units read next, and what they hold."""
        return (self.start.expand(num_sequences, 1, -1), None) if state is None else state

    def _features(self, values: Tensor) -> Tensor:
        parts = [block.output.features(values[..., list(block.columns)]) for block in self.blocks]
        return torch.cat([part.flatten(-2) for part in parts], dim=-1)

    def _log_prob(self, parameters: Tensor, values: Tensor) -> Tensor:
        total, used = torch.zeros_like(values[..., 0]), 0
        for block in self.blocks:
            shape = (len(block.columns), block.output.num_parameters)
            own = parameters[..., used : used + shape[0] * shape[1]].unflatten(-1, shape)
            total = total + block.output.log_prob(own, values[..., list(block.columns)]).sum(-1)
            used += shape[0] * shape[1]
        return total


def _spread(widths: list[int], blocks: tuple[Block, ...]) -> Ints:
    """The variable that each number belongs to, block by block."""
    parts = [np.repeat(block.columns, width) for block, width in zip(blocks, widths, strict=True)]
    return np.concatenate(parts).astype(np.int64)


def _places(blocks: tuple[Block, ...]) -> tuple[Place, ...]:
    """Where each variable is, in the order of the schema."""
    found: dict[int, Place] = {}
    inputs = numbers = 0
    for block in blocks:
        for column in block.columns:
            ends = inputs + block.output.num_features, numbers + block.output.num_parameters
            found[column] = (block.output, slice(inputs, ends[0]), slice(numbers, ends[1]))
            inputs, numbers = ends
    return tuple(found[column] for column in sorted(found))
