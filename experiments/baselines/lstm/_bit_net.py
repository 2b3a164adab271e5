"""Bits one after the other, through one layer of LSTM units."""

from collections.abc import Sequence
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from dspn.learning.lstm.net import State, StepNet

# Before the first bit: neither of the two values.
_START: Final = 0.5


@final
class BitNet(StepNet):
    """P(next bit = 1) is the sigmoid of a weighted sum of the units that have read all before.

    `largest` are the bits of the largest code of each variable; see `BitCode`.
    """

    def __init__(self, hidden_size: int, largest: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self.largest = largest
        self.lstm = nn.LSTM(1, hidden_size, batch_first=True)
        self.output = nn.Linear(hidden_size, 1)

    def forward(self, values: Tensor, state: State) -> tuple[Tensor, State]:
        """Log P(bit | all before), zero where the bit was not free; see `BitCode`."""
        bits, free = values[..., 0], values[..., 1]
        last, units = (torch.full_like(bits[:, :1], _START), None) if state is None else state
        inputs = torch.cat([last, bits[:, :-1]], dim=1)
        hidden, units = self.lstm(inputs.unsqueeze(-1), units)
        logits = self.output(hidden).squeeze(-1)
        if not self.training:
            # Sums of many steps: what single precision loses in each would add up.
            logits, bits, free = logits.double(), bits.double(), free.double()
        log_prob = -functional.binary_cross_entropy_with_logits(logits, bits, reduction="none")
        return log_prob * free, (values[:, -1:, 0], units)

    def drawn(self, values: Tensor, uniforms: Tensor, state: State) -> tuple[Tensor, State]:
        """Log P(bits observed | all before), the others drawn one by one.

        Only a code that begins as the largest does could grow too large, by a one where that has
        a zero: such a bit is not free, and zero.
        """
        bits, free = values[..., 0], values[..., 1]
        last, units = (torch.full_like(bits[:, :1], _START), None) if state is None else state
        total, place = torch.zeros_like(uniforms[:, 0, 0]), 0
        for code in self.largest:
            is_largest = torch.ones_like(last[:, 0], dtype=torch.bool)
            for top in code:
                hidden, units = self.lstm(last.unsqueeze(-1), units)
                logits = self.output(hidden)[:, 0, 0].double()
                bit, missing = bits[:, place], bits[:, place].isnan()
                one = uniforms[:, place, 0] < torch.sigmoid(logits)
                bit = torch.where(missing, one if top else one & ~is_largest, bit)
                log_prob = -functional.binary_cross_entropy_with_logits(
                    logits, bit.double(), reduction="none"
                )
                total = total + torch.where(missing, 0.0, log_prob * free[:, place])
                is_largest = is_largest & (bit == top)
                last, place = bit.unsqueeze(-1), place + 1
        return total, (last, units)
