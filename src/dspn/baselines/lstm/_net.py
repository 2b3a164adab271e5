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


def detached(state: State) -> State:
    """The same state, through which no gradient goes back."""
    if isinstance(state, tuple):
        return tuple(detached(part) for part in state)
    return None if state is None else state.detach()
