"""What every net here is: a product of conditionals, step by step."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

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
