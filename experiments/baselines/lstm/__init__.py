"""Recurrent nets to compare with: the paper's, bit by bit, and one that reads whole slices.

They need PyTorch 2.4 or later, `pip install torch`, once they are fitted.
"""

from dspn.learning.lstm.schedule import SliceNetSize, Update
from experiments.baselines.lstm.bits import BitLstm, BitLstmOptions
from experiments.baselines.lstm.slices import SliceLstm, SliceLstmOptions

__all__ = [
    "BitLstm",
    "BitLstmOptions",
    "SliceLstm",
    "SliceLstmOptions",
    "SliceNetSize",
    "Update",
]
