"""LSTMs that read slices: baselines of the experiments, and teachers of distillation.

They need PyTorch 2.4 or later once they are trained.
"""

from dspn.learning.lstm.schedule import Schedule, SliceNetSize, Update
from dspn.learning.lstm.teacher import Lstms, LstmTeacher

__all__ = ["LstmTeacher", "Lstms", "Schedule", "SliceNetSize", "Update"]
