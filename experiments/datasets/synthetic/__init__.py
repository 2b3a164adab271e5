"""Processes to sample from whose exact likelihood is known."""

from experiments.datasets.synthetic.bat import BAT, bat_process
from experiments.datasets.synthetic.hmm import hmm_process, hmm_structure
from experiments.datasets.synthetic.process import DbnProcess
from experiments.datasets.synthetic.water import WATER, water_model, water_process

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
