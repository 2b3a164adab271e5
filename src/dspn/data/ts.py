"""Files of time series with classes (`.ts`), as the archives of aeon and sktime have them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from dspn.data.sequences import Sequences
from dspn.errors import DataError, plainly


def read_ts(path: str | os.PathLike[str], **options: Any) -> tuple[Sequences, Any]:
    """The series of a `.ts` file as sequences, and their classes as an array of text.

    There is a variable for each dimension, and a slice for each position; `?` is missing. The
    second is an array of numbers where the file has targets that are numbers, and None where it has
    neither. Series with time stamps are refused.

    Args:
        path: The file.
        options: Those of `Sequences.from_arrays`, such as `schema` or `names`.
    """
    name = os.fspath(path)
    try:
        with open(name, encoding="utf-8-sig") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name!r} cannot be read: {plainly(error)}.") from None
    told, rows = _header(lines, name)
    has_label = told.get("classlabel", "false") == "true"
    has_target = told.get("targetlabel", "false") == "true"
    arrays, labels = [], []
    for number, line in rows:
        parts = line.split(":")
        if has_label or has_target:
            *parts, label = parts
            labels.append(label.strip())
        arrays.append(_series(parts, f"line {number} of {name!r}"))
    if not arrays:
        raise DataError(f"{name!r} must have a line for each series below @data, but has none.")
    data = Sequences.from_arrays(arrays, **options)
    if not labels:
        return data, None
    return data, np.array(labels, dtype=np.float64 if has_target else None)


def _header(lines: list[str], name: str) -> tuple[dict[str, str], Iterator[tuple[int, str]]]:
    """What the lines with @ tell, in lower case, and the numbered lines below @data."""
    told: dict[str, str] = {}
    for number, line in enumerate(lines):
        if line.lower() == "@data":
            if told.get("timestamps", "false") == "true":
                raise DataError(f"{name!r} has time stamps, which are not read; leave them out.")
            below = enumerate(lines[number + 1 :], start=number + 2)
            return told, ((own, text) for own, text in below if text and text[0] not in "#%")
        if line.startswith("@"):
            word, _, rest = line[1:].partition(" ")
            told[word.lower()] = rest.strip().lower().partition(" ")[0]
    raise DataError(f"{name!r} must have a line @data, as .ts files do, but has none.")


def _series(parts: list[str], place: str) -> Any:
    """The dimensions of one series side by side, (slices, variables)."""
    try:
        columns = [
            [np.nan if cell.strip() in ("?", "NaN") else float(cell) for cell in part.split(",")]
            for part in parts
        ]
    except ValueError as error:
        raise DataError(f"{place} must hold numbers and ?, but does not: {error}.") from None
    if len(set(map(len, columns))) > 1:
        raise DataError(
            f"{place} must have dimensions of one length, but they have {[*map(len, columns)]}."
        )
    return np.array(columns).T
