"""Readers of recorded data sets, from the files as their authors published them."""

from dspn.datasets.real.arabic_digits import read_arabic_digits
from dspn.datasets.real.base import RealData
from dspn.datasets.real.files import data_directory
from dspn.datasets.real.japanese_vowels import read_japanese_vowels
from dspn.datasets.real.ozone import read_ozone
from dspn.datasets.real.pen_digits import read_pen_digits, read_pen_trajectories
from dspn.datasets.real.vicon import read_vicon

__all__ = [
    "RealData",
    "data_directory",
    "read_arabic_digits",
    "read_japanese_vowels",
    "read_ozone",
    "read_pen_digits",
    "read_pen_trajectories",
    "read_vicon",
]
