"""Processes to sample from, readers of recorded data, and ways to prepare them."""

from experiments.datasets.preparation import (
    BINS,
    CENTRED,
    CENTRED_DELTAS,
    FILLED_BINS,
    MEDIAN_BITS,
    OVERALL_BITS,
    RAW,
    SEVEN_BITS,
    STEPS,
    unchanged,
)
from experiments.datasets.preparation.base import Chain, FittedPreparation, Fixed, Preparation
from experiments.datasets.preparation.bins import Bins, EqualWidthBins, QuantileBins
from experiments.datasets.preparation.bits import integer_bits, median_bits
from experiments.datasets.preparation.centring import centred
from experiments.datasets.preparation.differences import forward_differences, regression_deltas
from experiments.datasets.preparation.filling import HourFilling, HourMeans
from experiments.datasets.real.arabic_digits import read_arabic_digits
from experiments.datasets.real.base import RealData
from experiments.datasets.real.files import data_directory
from experiments.datasets.real.japanese_vowels import read_japanese_vowels
from experiments.datasets.real.ozone import read_ozone
from experiments.datasets.real.packaged import PUBLIC_SETS
from experiments.datasets.real.pen_digits import read_pen_digits, read_pen_trajectories
from experiments.datasets.real.vicon import read_vicon
from experiments.datasets.synthetic.bat import BAT, bat_process
from experiments.datasets.synthetic.hmm import hmm_process, hmm_structure
from experiments.datasets.synthetic.process import DbnProcess
from experiments.datasets.synthetic.water import WATER, water_model, water_process

__all__ = [
    "BAT",
    "BINS",
    "CENTRED",
    "CENTRED_DELTAS",
    "FILLED_BINS",
    "MEDIAN_BITS",
    "OVERALL_BITS",
    "PUBLIC_SETS",
    "RAW",
    "SEVEN_BITS",
    "STEPS",
    "WATER",
    "Bins",
    "Chain",
    "DbnProcess",
    "EqualWidthBins",
    "FittedPreparation",
    "Fixed",
    "HourFilling",
    "HourMeans",
    "Preparation",
    "QuantileBins",
    "RealData",
    "bat_process",
    "centred",
    "data_directory",
    "forward_differences",
    "hmm_process",
    "hmm_structure",
    "integer_bits",
    "median_bits",
    "read_arabic_digits",
    "read_japanese_vowels",
    "read_ozone",
    "read_pen_digits",
    "read_pen_trajectories",
    "read_vicon",
    "regression_deltas",
    "unchanged",
    "water_model",
    "water_process",
]
