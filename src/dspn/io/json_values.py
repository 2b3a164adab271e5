"""JSON as files hold it: one spelling for a value, and nothing read that was not asked for."""

import json
import math
import reprlib
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from dspn.errors import ModelFileError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

# Far above what a description of a run needs, and low enough for every parser.
MAX_DEPTH = 64
MAX_BITS = 4096


def refuse_if(condition: object, reason: str) -> None:
    """Raises a ModelFileError with the reason where the condition holds."""
    if condition:
        raise ModelFileError(reason)


def compact(value: JSON) -> str:
    """The one spelling of a value: sorted keys, no blanks, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse(text: str) -> JSON:
    """The value of a JSON text; numbers keep their type (1, 1.0 and true are three values)."""
    try:
        value: JSON = json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_without_repeats
        )
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"its header is not readable JSON ({error})") from error
    return value


def _refuse_constant(name: str) -> JSON:
    raise ValueError(f"{name} is no JSON value")


def _without_repeats(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    """An object; readers differ in which of two entries of one name they take."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("an object has two entries of one name")
    return value


def plain(value: object, where: str, depth: int = 0) -> JSON:
    """The value in lists, dicts with text keys, text, finite numbers, booleans and None only."""
    refuse_if(depth > MAX_DEPTH, f"{where} is nested more than {MAX_DEPTH} levels deep")
    match value:
        case None | bool() | str():
            return value
        case int() if value.bit_length() <= MAX_BITS:
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [plain(item, where, depth + 1) for item in value]
        case Mapping():
            for key in value:
                wrong = "" if isinstance(key, str) else f"but {_shorten(key)} is one; convert it"
                refuse_if(wrong, f"{where} must have text as keys, {wrong}")
            return {key: plain(item, where, depth + 1) for key, item in value.items()}
    raise ModelFileError(
        f"{where} must hold text, finite numbers, booleans, None, and lists and dicts of these, "
        f"but holds {_shorten(value)} of type {type(value).__name__}; convert or leave it out"
    )


def _shorten(value: object) -> str:
    # Python refuses to print a whole number of very many digits, and a value of very many levels.
    if isinstance(value, int) and value.bit_length() > 64:
        return "a very large number"
    text = reprlib.repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def text(value: JSON, where: str) -> str:
    """The value, which has to be text."""
    if isinstance(value, str):
        return value
    raise _misfit(value, "text", where)


def whole(value: JSON, where: str) -> int:
    """The value, which has to be a whole number; a boolean is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _misfit(value, "a whole number", where)


def number(value: JSON, where: str) -> float:
    """The value, which has to be a finite number; a boolean is none."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise _misfit(value, "a finite number", where)


def items(value: JSON, where: str) -> list[JSON]:
    """The value, which has to be a list."""
    if isinstance(value, list):
        return value
    raise _misfit(value, "a list", where)


def fields(value: JSON, where: str, names: Collection[str] | None = None) -> dict[str, JSON]:
    """The value, which has to be an object; with exactly the entries `names` where given."""
    if not isinstance(value, dict):
        raise _misfit(value, "an object", where)
    if names is not None and value.keys() != set(names):
        missing, unknown = sorted(set(names) - value.keys()), sorted(value.keys() - set(names))
        raise ModelFileError(
            f"{where} must have exactly the entries {sorted(names)}, but misses {missing} "
            f"and has {unknown[:5]} besides"
        )
    return value


def _misfit(value: JSON, kind: str, where: str) -> ModelFileError:
    return ModelFileError(f"{where} must be {kind}, but is {_shorten(value)}")
