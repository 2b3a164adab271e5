"""How unexpected each slice and each entry is."""

from dataclasses import dataclass
from typing import final

from dspn._arrays import Floats
from dspn.data import Sequences
from dspn.engine.surprises import slice_surprises
from dspn.inference._entry_surprises import entry_surprises
from dspn.inference._mixed_surprise import mixed_entry_surprises, mixed_slice_surprises
from dspn.inference.mixed import AnyProgram, MixedProgram


@final
@dataclass(frozen=True, eq=False, repr=False)
class Surprise:
    """Surprises in nats.

    `slices[t]` = -log P_t(x_t | x_1..x_{t-1}), P_t being the network of t slices; with the root at
    the first slice and a tied bottom they add up to -log P of the sequence. An impossible slice has
    +inf, those after it NaN. `variables[t, v]` = -log P(x_v^t | every other observed entry of the
    sequence), NaN where the entry is missing or the sequence is impossible.
    """

    slices: Floats
    variables: Floats

    def __repr__(self) -> str:
        total, variables = self.variables.shape
        return f"Surprise(total_slices={total}, num_variables={variables})"


def surprise(program: AnyProgram, data: Sequences) -> Surprise:
    """Surprise by slice (given the past) and by entry (given everything else)."""
    if isinstance(program, MixedProgram):
        return Surprise(mixed_slice_surprises(program, data), mixed_entry_surprises(program, data))
    entries = entry_surprises(program, data)
    return Surprise(slice_surprises(program, data), entries)
