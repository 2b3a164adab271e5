"""Preparations of recorded data: bits, bins, filled gaps.

The paper states none. Those named here put its own baselines near its printed figures.
"""

from typing import Final

from dspn.datasets.preparation.base import Chain, FittedPreparation, Fixed, Preparation
from dspn.datasets.preparation.bins import Bins, EqualWidthBins, QuantileBins
from dspn.datasets.preparation.bits import integer_bits, median_bits
from dspn.datasets.preparation.filling import HourFilling, HourMeans
from dspn.sequences import Sequences


def unchanged(data: Sequences) -> Sequences:
    """The sequences as they are."""
    return data


RAW: Final = Fixed(unchanged)
"""Nothing is done."""

MEDIAN_BITS: Final = Fixed(median_bits)
"""For JapaneseVowels, ArabicDigits and Vicon."""

SEVEN_BITS: Final = Fixed(integer_bits)
"""For PenDigits: 16 slices of seven bits."""

FILLED_BINS: Final = Chain((HourMeans(), EqualWidthBins(7)))
"""For ozLevel: missing hours filled, then seven bins of one width for each variable."""

BINS: Final = EqualWidthBins(7)
"""For ozLevel with missing hours kept missing."""

__all__ = [
    "BINS",
    "FILLED_BINS",
    "MEDIAN_BITS",
    "RAW",
    "SEVEN_BITS",
    "Bins",
    "Chain",
    "EqualWidthBins",
    "FittedPreparation",
    "Fixed",
    "HourFilling",
    "HourMeans",
    "Preparation",
    "QuantileBins",
    "integer_bits",
    "median_bits",
    "unchanged",
]
