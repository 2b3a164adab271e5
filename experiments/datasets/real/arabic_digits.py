"""Spoken Arabic Digit: utterances of the ten digits by 88 speakers."""

import os
from typing import Final

import numpy as np

from dspn.data import Schema, Variable
from experiments.datasets.real._blocks import blocks
from experiments.datasets.real.base import RealData, counted, split_at
from experiments.datasets.real.files import DataFile, Source, verified_contents

SOURCE: Final = Source(
    "ArabicDigits",
    "arabic_digits",
    "the UCI Machine Learning Repository, Spoken Arabic Digit, "
    "https://archive.ics.uci.edu/dataset/195/spoken+arabic+digit",
    (
        DataFile(
            "Train_Arabic_Digit.txt",
            28343795,
            "cecd3ee9951658e5391f0342e9b6467ba7c0e7ecff5c9012b9c1ed9f81b97bc6",
        ),
        DataFile(
            "Test_Arabic_Digit.txt",
            9371474,
            "de40eac66ce18fca8924bad592002ee7ef646fc84d48b065ce21ac9f88946922",
        ),
    ),
)

_TRAIN_BY_DIGIT: Final = 660
_TEST_BY_DIGIT: Final = 220
_COLUMNS: Final = 13
_SCHEMA: Final = Schema(tuple(Variable.continuous(f"mfcc{i}") for i in range(1, _COLUMNS + 1)))


def read_arabic_digits(directory: str | os.PathLike[str] | None = None) -> RealData:
    """8,800 utterances of 4 to 93 slices: thirteen mel frequency cepstral coefficients.

    The label is the digit. 6,600 utterances are for training, the 2,200 of other speakers for
    testing. Of the utterances of a digit in either part the first half is by men.
    """
    parts = [blocks(text, _COLUMNS, SOURCE.name) for text in verified_contents(SOURCE, directory)]
    values, lengths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    sequences = counted(SOURCE.name, values, lengths, _SCHEMA, num_sequences=8800, slices=350319)
    counts = np.repeat([_TRAIN_BY_DIGIT, _TEST_BY_DIGIT], 10)
    labels = np.repeat(np.tile(np.arange(10), 2), counts)
    return RealData(SOURCE.name, sequences, labels, *split_at(6600, 8800))
