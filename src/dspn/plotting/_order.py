"""What the slices of a sequence are called: by an order column of their table, or by number."""

import re
from collections.abc import Sequence
from datetime import date
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dspn.data import Sequences

# Dates and spans are said in the first of these units in which none loses anything.
_UNITS: Final = ("D", "m", "s", "ms", "us", "ns")
_SPANS: Final = ("D", "h", *_UNITS[1:])
_EMPTY_TIME: Final = re.compile(r"[ T]00:00(:00(\.0+)?)?$")
_EMPTY_SECONDS: Final = re.compile(r"(?<=\d\d:\d\d):00(\.0+)?$")
_STARTS: Final = (
    re.compile(r"\d{4}-\d\d-\d\d[ T](?=\d)"),
    re.compile(r"\d{4}-(?=\d\d-\d\d)"),
)


def order_texts(data: Sequences) -> list[str] | None:
    """The order column's value of each slice as a text; None where it is not known."""
    keys = data.table_keys
    if keys is None or keys.order is None or keys.order_values is None:
        return None
    return _texts(keys.order_values)


def _texts(values: NDArray[Any]) -> list[str]:
    """Dates without a time that all of them leave empty; numbers without needless digits."""
    if values.dtype.kind == "M":
        known = values[~np.isnat(values)]
        fits = (unit for unit in _UNITS if np.all(known == known.astype(f"M8[{unit}]")))
        whole = values.astype(f"M8[{next(fits, 'ns')}]")
        return [text.replace("T", " ") for text in whole.astype(str).tolist()]
    if values.dtype.kind == "m":
        exact = (unit for unit in _SPANS if np.all(values == values.astype(f"m8[{unit}]")))
        return [str(span) for span in values.astype(f"m8[{next(exact, 'ns')}]")]
    if values.dtype.kind == "f":
        return [f"{value:.12g}" for value in values.tolist()]
    own = values.tolist()
    texts = [str(value) for value in own]
    if all(isinstance(value, date) for value in own):
        for pattern in (_EMPTY_TIME, _EMPTY_SECONDS):
            if all(pattern.search(text) for text in texts):
                return [pattern.sub("", text) for text in texts]
    return texts


def shared_start(texts: Sequence[str]) -> str:
    """The day or the year that all dates begin with, which need not be said at each of them."""
    for pattern in _STARTS:
        found = pattern.match(texts[0])
        if found and all(text.startswith(found[0]) for text in texts):
            return found[0]
    return ""


def sequence_words(data: Sequences) -> str:
    """What a title says of whose sequence it is: " of day 3", or nothing without an id."""
    if data.ids is None:
        return ""
    own = data.ids[0]
    if isinstance(own, str):
        return f" of {own}"
    column = data.table_keys.sequence if data.table_keys else "sequence"
    return f" of {column} {own}"
