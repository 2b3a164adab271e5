"""Ozone Level Detection: a day of hourly wind speed and temperature for each sequence."""

import os
from typing import Final

import numpy as np

from dspn._arguments import Floats
from dspn.data import Schema, Sequences, Variable
from dspn.errors import DataError
from experiments.datasets.real.base import RealData
from experiments.datasets.real.files import DataFile, Source, verified_contents

SOURCE: Final = Source(
    "ozLevel",
    "ozone",
    "the UCI Machine Learning Repository, Ozone Level Detection, "
    "https://archive.ics.uci.edu/dataset/172/ozone+level+detection",
    (
        DataFile(
            "eighthr.data",
            818328,
            "0c10d1e216db3249c565e3ed5474302032067f6df0ea6fd49e6f06ec061f83a9",
        ),
    ),
)

_NUM_DAYS: Final = 2534
_NUM_HOURS: Final = 24
_NUM_FIELDS: Final = 74
# Field 0 is the date; each of the two has its peak and its mean behind its hours.
_WIND, _TEMPERATURE = slice(1, 25), slice(27, 51)
_SCHEMA: Final = Schema((Variable.continuous("wind_speed"), Variable.continuous("temperature")))


def _fields(content: bytes) -> list[list[str]]:
    """The fields of every day."""
    days = [line.split(",") for line in content.decode("ascii").split()]
    if len(days) != _NUM_DAYS or any(len(day) != _NUM_FIELDS for day in days):
        raise DataError(
            f"the file of the data set {SOURCE.name} must have {_NUM_DAYS} lines of {_NUM_FIELDS} "
            f"fields, but has {len(days)} lines or other fields."
        )
    return days


def _hourly(days: list[list[str]], hours: slice) -> Floats:
    """(days, 24) values, NaN where the file has a question mark."""
    text = np.array([day[hours] for day in days])
    return np.where(text == "?", "nan", text).astype(np.float64)


def read_ozone(directory: str | os.PathLike[str] | None = None) -> RealData:
    """2,534 days of 24 slices: hourly wind speed and temperature; NaN where an hour is missing.

    The label is 1 on a day of high ozone (eight hour peak), the id of a sequence its date. The
    paper counts 2,533: the last line of the file has no end of line. 175 days have no value at all.
    There is no official split.
    """
    (content,) = verified_contents(SOURCE, directory)
    days = _fields(content)
    values = np.stack([_hourly(days, _WIND), _hourly(days, _TEMPERATURE)], axis=-1)
    sequences = Sequences.from_codes(
        values.reshape(-1, len(_SCHEMA)),
        np.arange(_NUM_DAYS + 1) * _NUM_HOURS,
        _SCHEMA,
        [day[0] for day in days],
    )
    labels = np.array([float(day[-1]) for day in days]).astype(np.int64)
    return RealData(SOURCE.name, sequences, labels)
