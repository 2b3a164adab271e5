"""Types of arguments, and rules that many share; every error names the argument that breaks one."""

import operator
import reprlib
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from dspn.errors import DspnError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# How messages call types whose own name does not say enough.
_WORDS: Final[dict[type, str]] = {
    Iterable: "list",
    Mapping: "dict",
    np.random.Generator: "numpy.random.Generator",
}


def require_type(
    value: object, kind: type, argument: str, error: type[DspnError], *, remedy: str = ""
) -> None:
    """Raises unless the value is of the type; `remedy` says where to get one."""
    if not isinstance(value, kind):
        name = _WORDS.get(kind, kind.__name__)
        hint = f"; {remedy}" if remedy else ""
        raise error(f"`{argument}` must be a {name}, found {type(value).__name__}{hint}.")


def checked_rng(rng: Any, error: type[DspnError]) -> np.random.Generator:
    """The generator; a seed or a generator of NumPy's older kind is refused."""
    remedy = "give numpy.random.default_rng(seed)"
    require_type(rng, np.random.Generator, "rng", error, remedy=remedy)
    return cast(np.random.Generator, rng)


def is_number(value: object) -> bool:
    """Whether the value is a real number, of Python or of NumPy; a truth value is none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def whole_number(
    value: Any, argument: str, error: type[DspnError], *, least: int | None = 1
) -> int:
    """The value as an int; integers of NumPy are allowed, floats are not, whatever their value."""
    bound = "" if least is None else f" of at least {least}"
    rule = f"`{argument}` must be a whole number{bound}"
    try:
        number = operator.index(value)
    except TypeError:
        kind = type(value).__name__
        raise error(f"{rule}, but is {reprlib.repr(value)} of type {kind}; give an int.") from None
    if least is not None and number < least:
        raise error(f"{rule}, but is {number}; give a larger one.")
    return number


def whole_numbers(values: Any, argument: str, error: type[DspnError], *, least: int = 1) -> Ints:
    """A one-dimensional array of whole numbers; floats without a fraction count as whole."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError):
        array = np.empty((0, 0))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise error(
            f"`{argument}` must be a one-dimensional list of whole numbers, found "
            f"{type(values).__name__} of shape {array.shape} and type {array.dtype}."
        )
    allowed = np.isfinite(array) & (array == np.floor(array)) & (array >= least)
    _require_all(allowed, array, f"`{argument}` must be whole numbers of at least {least}", error)
    return array.astype(np.int64)


def _require_all(allowed: Bools, array: Any, rule: str, error: type[DspnError]) -> None:
    """Raises, with the first entry that is not allowed, unless all are."""
    if not allowed.all():
        index = int(np.argmin(allowed))
        raise error(f"{rule}, but entry {index} is {array[index]}; correct it.")


def indices(values: Iterable[int], argument: str, error: type[DspnError]) -> tuple[int, ...]:
    """The values as a tuple of ints."""
    try:
        return tuple(map(operator.index, values))
    except TypeError as reason:
        raise error(
            f"`{argument}` must be a list of whole numbers, but is {reprlib.repr(values)} "
            f"({reason}); give ints."
        ) from None


def float_array(values: Any, argument: str, error: type[DspnError], *, remedy: str = "") -> Floats:
    """The values as a float64 array, NaN where masked; the array itself where it is one."""
    try:
        if isinstance(values, np.ma.MaskedArray):
            values = np.ma.filled(values.astype(np.float64), np.nan)
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"their type is {array.dtype}")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as reason:
        hint = f"; {remedy}" if remedy else ""
        raise error(
            f"`{argument}` must be numbers, as many in every row, but cannot be read as such: "
            f"{str(reason).rstrip('.')}{hint}."
        ) from None


def sequence_weights(
    values: Any, argument: str, error: type[DspnError], num_sequences: int
) -> Floats:
    """How often each sequence counts: finite, not negative, and not zero for all."""
    weights = float_array(values, argument, error)
    if weights.shape != (num_sequences,):
        raise error(
            f"`{argument}` must have one number for each of the {num_sequences} sequences, but has "
            f"shape {weights.shape}."
        )
    allowed = np.isfinite(weights) & (weights >= 0)
    _require_all(allowed, weights, f"`{argument}` must be finite and not negative", error)
    if not weights.any():
        raise error(
            f"`{argument}` must not be zero for all sequences, but is; give at least one a weight."
        )
    return weights


def read_only(array: Floats) -> Floats:
    """A C-contiguous float64 copy that nobody can write to."""
    copy = np.array(array, dtype=np.float64, order="C", copy=True)
    copy.flags.writeable = False
    return copy
