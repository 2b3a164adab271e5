"""Processes to sample from whose exact likelihood is known."""

from dspn.datasets.synthetic.bat import BAT, bat_process
from dspn.datasets.synthetic.hmm import hmm_process, hmm_structure
from dspn.datasets.synthetic.process import DbnProcess
from dspn.datasets.synthetic.water import WATER, water_model, water_process

__all__ = [
    "BAT",
    "WATER",
    "DbnProcess",
    "bat_process",
    "hmm_process",
    "hmm_structure",
    "water_model",
    "water_process",
]
