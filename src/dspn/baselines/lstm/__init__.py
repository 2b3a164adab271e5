"""Recurrent nets to compare with: the paper's, bit by bit, and one that reads whole slices.

They need PyTorch, `pip install 'dspn[lstm]'`, once they are fitted.
"""

from dspn.baselines.lstm.bits import BitLstm, BitLstmOptions
from dspn.baselines.lstm.schedule import Update
from dspn.baselines.lstm.slices import SliceLstm, SliceLstmOptions, SliceNetSize

__all__ = [
    "BitLstm",
    "BitLstmOptions",
    "SliceLstm",
    "SliceLstmOptions",
    "SliceNetSize",
    "Update",
]
