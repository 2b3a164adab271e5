"""Which inputs the outputs of a group read: all of them, or few by blocks.

With k nodes a dense transition has k^2 edges. The others have far fewer, and are ordinary sums:

- *block*: inputs and outputs are cut into blocks of 8. The outputs of a block read the inputs of
  their own block and of those 1, 2, 4, ... blocks further on, in a circle, so that every node is
  reached from every other within log2(k / 8) slices. That makes about 8 k log2(k / 4) edges.
- *Monarch*: inputs are cut into about sqrt(k) blocks. A first layer has a sum over the inputs of
  block i for every rank r; output o, of rank r(o) in its own block, is a sum over the blocks of
  their sums of its rank. About 2 k sqrt(k) edges make a full matrix, the product of two
  block-diagonal ones with a permutation between them (Dao et al. 2022; Zhang et al. 2025):

      P(j | o) = P(block i of j | o) P(j | i, r(o)).
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, final

import numpy as np

from dspn._arguments import Ints
from dspn.errors import StructureError

_BLOCK: Final = 8


@final
class Transitions(StrEnum):
    """Which inputs the outputs of a group read."""

    DENSE = "dense"
    BLOCK = "block"
    MONARCH = "monarch"


def checked_transitions(transitions: Transitions | str) -> Transitions:
    """The transitions by their name."""
    try:
        return Transitions(transitions)
    except ValueError:
        raise StructureError(
            f"`transitions` must be 'dense', 'block' or 'monarch', but is {transitions!r}; choose "
            "one."
        ) from None


def _blocks(size: int, count: int) -> list[Ints]:
    """The numbers below `size` in `count` runs of nearly the same length, the longest first."""
    return np.array_split(np.arange(size), count)


def sum_layers(transitions: Transitions, size: int) -> list[Sequence[Ints]]:
    """For each layer and sum of it, the nodes of the layer below that it reads, ascending.

    The lowest layer reads the inputs; the last one has a sum for each output.
    """
    if transitions is Transitions.DENSE:
        return [[np.arange(size)] * size]
    if transitions is Transitions.BLOCK:
        blocks = _blocks(size, -(-size // _BLOCK))
        steps = [0, *(1 << power for power in range((len(blocks) - 1).bit_length()))]
        read = [
            np.sort(np.concatenate([blocks[(own + step) % len(blocks)] for step in steps]))
            for own in range(len(blocks))
        ]
        return [[read[own] for own, block in enumerate(blocks) for _ in block]]
    blocks = _blocks(size, round(size**0.5))
    ranks, count = len(blocks[0]), len(blocks)
    of_rank = np.arange(ranks * count).reshape(ranks, count)
    return [blocks * ranks, [of_rank[rank] for block in blocks for rank in range(len(block))]]


def visited_sums(transitions: Transitions, size: int, above: Ints, below: Ints) -> list[Ints]:
    """The node of every layer, from inputs to outputs, on the way from each input to its output.

    Args:
        transitions: Which inputs are read.
        size: The number of inputs, and of outputs.
        above: Numbers of outputs.
        below: As many numbers of inputs.
    """
    if transitions is not Transitions.MONARCH:
        return [below, above]
    blocks = _blocks(size, round(size**0.5))
    block = np.repeat(np.arange(len(blocks)), [len(own) for own in blocks])
    rank = np.concatenate([np.arange(len(own)) for own in blocks])
    return [below, rank[above] * len(blocks) + block[below], above]
