"""Japanese Vowels: utterances of /ae/ by nine speakers."""

import os
from typing import Final

import numpy as np

from dspn.data import Schema, Variable
from experiments.datasets.real._blocks import blocks
from experiments.datasets.real.base import RealData, counted, split_at
from experiments.datasets.real.files import DataFile, Source, verified_contents

SOURCE: Final = Source(
    "JapaneseVowels",
    "japanese_vowels",
    "the UCI Machine Learning Repository, Japanese Vowels, "
    "https://archive.ics.uci.edu/dataset/128/japanese+vowels (where a copy has a row of twelve "
    "ones behind each utterance, turn it into an empty line)",
    (
        DataFile(
            "ae.train", 496875, "46e559193b0ef4cbb2aec41a3be8ad7da9237fa274abf4c9047768fd1c6e3b29"
        ),
        DataFile(
            "ae.test", 660983, "c4c61d2fcd3fa6054978bb4e7a3ff38e96d7af41912101b75fde875a5b2432a6"
        ),
    ),
)

# Utterances of each speaker, in the order of the files.
_TRAIN_BY_SPEAKER: Final = (30,) * 9
_TEST_BY_SPEAKER: Final = (31, 35, 88, 44, 29, 24, 40, 50, 29)
_COLUMNS: Final = 12
_SCHEMA: Final = Schema(tuple(Variable.continuous(f"lpc{i}") for i in range(1, _COLUMNS + 1)))


def read_japanese_vowels(directory: str | os.PathLike[str] | None = None) -> RealData:
    """640 utterances of 7 to 29 slices: twelve LPC cepstrum coefficients.

    The label is the speaker, 1 to 9; 270 utterances are for training and 370 for testing.
    """
    parts = [blocks(text, _COLUMNS, SOURCE.name) for text in verified_contents(SOURCE, directory)]
    values, lengths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    sequences = counted(SOURCE.name, values, lengths, _SCHEMA, num_sequences=640, slices=9961)
    speakers = np.tile(np.arange(1, 10), 2)
    labels = np.repeat(speakers, (*_TRAIN_BY_SPEAKER, *_TEST_BY_SPEAKER))
    return RealData(SOURCE.name, sequences, labels, *split_at(270, 640))
