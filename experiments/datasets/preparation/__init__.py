"""Preparations of recorded data: bits, bins, filled gaps, changes from slice to slice.

The paper states none. Bits and bins put its own baselines near its printed figures; centred values
and differences are for classification.
"""

from typing import Final

from dspn.data import Sequences
from experiments.datasets.preparation.base import Chain, Fixed
from experiments.datasets.preparation.bins import EqualWidthBins, QuantileBins
from experiments.datasets.preparation.bits import integer_bits, median_bits
from experiments.datasets.preparation.centring import centred
from experiments.datasets.preparation.differences import forward_differences, regression_deltas
from experiments.datasets.preparation.filling import HourMeans


def unchanged(data: Sequences) -> Sequences:
    """The sequences as they are."""
    return data


RAW: Final = Fixed(unchanged)
"""Nothing is done."""

MEDIAN_BITS: Final = Fixed(median_bits)
"""For JapaneseVowels, ArabicDigits and Vicon."""

OVERALL_BITS: Final = QuantileBins(2)
"""One bit: above the median of the variable over the training data; there is nothing to count."""

SEVEN_BITS: Final = Fixed(integer_bits)
"""For PenDigits: 16 slices of seven bits."""

FILLED_BINS: Final = Chain((HourMeans(), EqualWidthBins(7)))
"""For ozLevel: missing hours filled, then seven bins of one width for each variable."""

BINS: Final = EqualWidthBins(7)
"""For ozLevel with missing hours kept missing."""

CENTRED: Final = Fixed(centred)
"""Each variable less its mean over the sequence."""

CENTRED_DELTAS: Final = Chain((CENTRED, Fixed(regression_deltas)))
"""For classes of ArabicDigits: centred coefficients, and the slope of each."""

STEPS: Final = Fixed(forward_differences)
"""For classes of PenDigits: points, and the way to the next one."""
