"""Slices one after the other through LSTM units, a slice's variables through a masked net."""

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dspn._arrays import Bools, Ints
from dspn.baselines.lstm._net import State, StepNet
from dspn.baselines.lstm._outputs import Categories, GaussianMixture, Output
from dspn.baselines.lstm.slices import SliceNetSize
from dspn.sequences import Schema


@final
@dataclass(frozen=True)
class Block:
    """Variables whose distributions are of one family, computed together."""

    output: Output
    columns: tuple[int, ...]


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
        return functional.linear(values, self.linear.weight * self.mask, self.linear.bias)


@final
class SliceHead(nn.Module):
    """Parameters of each variable from the past and the variables before it in the slice.

    A hidden unit of degree d reads the variables before the d-th; what belongs to variable j reads
    the units of degree j or less and, directly, the variables before j.
    """

    def __init__(self, context_size: int, features: Ints, parameters: Ints) -> None:
        super().__init__()
        num_variables = int(parameters.max()) + 1
        degrees = np.arange(max(context_size, num_variables)) % num_variables
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


@final
class SliceNet(StepNet):
    """P(slice | all before) by the chain rule over its variables."""

    def __init__(self, blocks: tuple[Block, ...], size: SliceNetSize) -> None:
        super().__init__()
        self.blocks = blocks
        features = _spread([block.output.num_features for block in blocks], blocks)
        parameters = _spread([block.output.num_parameters for block in blocks], blocks)
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
        start = self.start.expand(values.shape[0], 1, -1)
        last, units = (start, None) if state is None else state
        hidden, units = self.lstm(torch.cat([last, embedded[:, :-1]], dim=1), units)
        parameters = self.head(self.dropout(hidden), features)
        if not self.training:
            # Sums of many steps: what single precision loses in each would add up.
            parameters, values = parameters.double(), values.double()
        return self._log_prob(parameters, values), (embedded[:, -1:], units)

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
