"""Readers of recorded data sets, from the files as their authors published them."""

from experiments.datasets.real.arabic_digits import read_arabic_digits
from experiments.datasets.real.base import RealData
from experiments.datasets.real.files import data_directory
from experiments.datasets.real.japanese_vowels import read_japanese_vowels
from experiments.datasets.real.ozone import read_ozone
from experiments.datasets.real.packaged import PUBLIC_SETS
from experiments.datasets.real.pen_digits import read_pen_digits, read_pen_trajectories
from experiments.datasets.real.vicon import read_vicon

__all__ = [
    "PUBLIC_SETS",
    "RealData",
    "data_directory",
    "read_arabic_digits",
    "read_japanese_vowels",
    "read_ozone",
    "read_pen_digits",
    "read_pen_trajectories",
    "read_vicon",
]
