"""Models and data to try the library on."""

from dspn.datasets.water import WATER, water_model

__all__ = ["WATER", "water_model"]
