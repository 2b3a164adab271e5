"""Arrays and values as text that can stand inside a page."""

import base64
import json
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dspn.io import JSON

# A record is three streams, widest first, so that each begins where its type may be read.
_STREAMS: Final = ("<f4", "<u2", "u1")
_ESCAPES: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def singles(array: NDArray[Any]) -> NDArray[np.float32]:
    """The numbers as float32; what is too large is infinite, what is too small is zero."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(array, dtype="<f4")


def shares(array: NDArray[Any]) -> NDArray[np.uint16]:
    """Probabilities in steps of 1/65535."""
    steps: NDArray[np.uint16] = np.rint(np.clip(array, 0.0, 1.0) * 65535.0).astype("<u2")
    return steps


def packed_array(array: NDArray[Any], kind: str) -> str:
    """Base64 of the numbers as a little-endian array of one kind."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode("ascii")


def packed_record(arrays: Iterable[NDArray[Any]]) -> str:
    """Base64 of arrays of 4, 2 and 1 byte, each width one after the other behind three counts.

    A reader takes the numbers of each width in the order in which they were given.
    """
    streams: dict[int, list[bytes]] = {np.dtype(kind).itemsize: [] for kind in _STREAMS}
    for array in arrays:
        streams[array.dtype.itemsize].append(array.tobytes())
    joined = [b"".join(pieces) for pieces in streams.values()]
    counts = [len(own) // width for width, own in zip(streams, joined, strict=True)]
    head = np.array(counts, dtype="<u4").tobytes()
    return base64.b64encode(head + b"".join(joined)).decode("ascii")


def json_text(value: JSON) -> str:
    """JSON in which nothing can end a script element or open a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.translate(_ESCAPES)


def finite(number: float) -> float | None:
    """The number, or None where JSON has no word for it."""
    return float(number) if np.isfinite(number) else None
