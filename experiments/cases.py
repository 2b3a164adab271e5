"""Data sets as experiments use them: how they are prepared, and what a fold may cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

import numpy as np

from dspn.data import Sequences
from dspn.data.inputs import Position
from experiments import datasets
from experiments.datasets import Preparation, RealData
from experiments.folds import Fold, folds_of

FOLD_SEED: Final = 0


@final
@dataclass(frozen=True)
class RealCase:
    """Recorded data with a preparation; the effort of the automatic learner and a limit for others.

    `time_limit` is in seconds for a fold, for whatever model is not bound by effort. With
    `positions` above 0 the position of a slice is an input of as many values.
    """

    title: str
    read: Callable[[Path | None], RealData]
    preparation: Preparation
    prepared: str
    effort: float
    time_limit: float
    positions: int = 0


@final
@dataclass(frozen=True, eq=False)
class FoldData:
    """What a fold is, prepared by what its training and validation sequences say."""

    train: Sequences
    validation: Sequences
    test: Sequences


def folds_for(data: RealData) -> tuple[Fold, ...]:
    """The ten folds of a data set, the same for every model."""
    return folds_of(len(data.sequences), rng=np.random.default_rng(FOLD_SEED))


def prepared(case: RealCase, data: RealData, fold: Fold) -> FoldData:
    """The fold's sequences; nothing is learned from those that are tested."""
    seen = np.concatenate([fold.train, fold.validation])
    preparation = case.preparation.fit(data.sequences[seen])
    parts = [
        preparation.apply(data.sequences[part]) for part in (fold.train, fold.validation, fold.test)
    ]
    if case.positions:
        parts = [part.with_rule(Position(case.positions)) for part in parts]
    return FoldData(*parts)


TABLE_CASES: Final = {
    "ozone": RealCase(
        "ozLevel", datasets.read_ozone, datasets.FILLED_BINS, "bins, filled", 500, 300
    ),
    "pen": RealCase("PenDigits", datasets.read_pen_digits, datasets.SEVEN_BITS, "7 bits", 400, 600),
    "arabic": RealCase(
        "ArabicDigits",
        datasets.read_arabic_digits,
        datasets.MEDIAN_BITS,
        "median bits",
        900,
        600,
    ),
    "vowels": RealCase(
        "JapaneseVowels",
        datasets.read_japanese_vowels,
        datasets.MEDIAN_BITS,
        "median bits",
        400,
        300,
    ),
    "vicon": RealCase("Vicon", datasets.read_vicon, datasets.MEDIAN_BITS, "median bits", 1000, 300),
}
"""The paper's data, in the order of its tables."""

FURTHER_CASES: Final = {
    "ozone-missing": RealCase(
        "ozLevel", datasets.read_ozone, datasets.BINS, "bins, missing kept", 200, 300
    ),
    "ozone-hour": RealCase(
        "ozLevel",
        datasets.read_ozone,
        datasets.FILLED_BINS,
        "bins, filled; hour known",
        300,
        300,
        24,
    ),
    "pen-position": RealCase(
        "PenDigits",
        datasets.read_pen_digits,
        datasets.SEVEN_BITS,
        "7 bits; position as input",
        300,
        600,
        16,
    ),
    "vowels-overall": RealCase(
        "JapaneseVowels",
        datasets.read_japanese_vowels,
        datasets.OVERALL_BITS,
        "bits by the overall median",
        80,
        300,
    ),
    "arabic-overall": RealCase(
        "ArabicDigits",
        datasets.read_arabic_digits,
        datasets.OVERALL_BITS,
        "bits by the overall median",
        900,
        600,
    ),
    "vowels-raw": RealCase(
        "JapaneseVowels", datasets.read_japanese_vowels, datasets.RAW, "raw", 80, 300
    ),
    "arabic-raw": RealCase(
        "ArabicDigits", datasets.read_arabic_digits, datasets.RAW, "raw", 60, 600
    ),
}
"""The same data prepared in other ways: gaps kept, inputs, bits that cannot be counted, numbers.

Where positions are known the effort is that of the default options.
"""

CASES: Final = {**TABLE_CASES, **FURTHER_CASES}


@final
@dataclass(frozen=True)
class Sizes:
    """How much data the tables are about; smaller sizes are for trials.

    A model that takes more than `short_seconds` on the first fold is run on the fewest folds only.
    """

    cases: Mapping[str, RealCase] = field(default_factory=lambda: CASES)
    fewest_folds: int = 3
    all_folds: int = 10
    short_seconds: float = 300.0
    num_sequences: int = 100
    num_slices: int = 100
    interfaces: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512)


@final
@dataclass(frozen=True)
class Spending:
    """Where data and folds are, and what a fold may take: a share of the usual effort and time."""

    folds_directory: Path
    data_directory: Path | None = None
    num_jobs: int = 1
    share: float = 1.0
    device: str = "cpu"
    sizes: Sizes = field(default_factory=Sizes)
