"""Bits one after the other, through one layer of LSTM units."""

from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from dspn.baselines.lstm._net import State, StepNet

# Before the first bit: neither of the two values.
_START: Final = 0.5


@final
class BitNet(StepNet):
    """P(next bit = 1) is the sigmoid of a weighted sum of the units that have read all before."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
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
