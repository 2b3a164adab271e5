"""Options as immutable values: each field states its rule once, and every error names the field."""

import operator
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from math import inf
from typing import Any, Final, Self

import numpy as np

from dspn._arguments import require_type, whole_number
from dspn.errors import StructureError

_BOUNDS: Final = {
    "least": (">=", operator.ge),
    "above": (">", operator.gt),
    "most": ("<=", operator.le),
    "below": ("<", operator.lt),
}
# From the name of a class, the name of a field and its value to the value that is stored.
Rule = Callable[[str, str, Any], Any]


def _field(default: Any, rule: Rule, optional: bool) -> Any:
    def check(owner: str, name: str, value: Any) -> Any:
        return None if value is None and optional else rule(owner, name, value)

    return field(default=default, metadata={"check": check})


def whole_field(default: Any = MISSING, *, least: int = 1) -> Any:
    """A field that is a whole number of at least `least`, or None where that is the default."""

    def check(owner: str, name: str, value: Any) -> int:
        return whole_number(value, name, StructureError, least=least)

    return _field(default, check, default is None)


def number_field(default: Any = MISSING, **bounds: float) -> Any:
    """A field that is a finite number, or None where that is the default.

    Args:
        default: The value where none is given.
        bounds: `least` or `above`, and `most` or `below`; with the last of either pair the bound
            itself is not allowed.
    """

    def check(owner: str, name: str, value: Any) -> Any:
        # Small integers and floats of NumPy overflow, and JSON cannot hold them.
        value = value.item() if isinstance(value, np.generic) else value
        require_number(owner, name, value, **bounds)
        return value

    return _field(default, check, default is None)


def choice_field(default: StrEnum) -> Any:
    """A field that is a member of the enumeration of its default, or the text of one."""
    kind = type(default)

    def check(owner: str, name: str, value: Any) -> StrEnum:
        try:
            return kind(value)
        except ValueError:
            rule = f"`{name}` must be {' or '.join(repr(str(member)) for member in kind)}"
            raise StructureError(f"{rule}, but is {value!r}; choose one.") from None

    return _field(default, check, False)


def part_field(default: Any = MISSING, kind: type | None = None, *, optional: bool = False) -> Any:
    """A field of the type of its default, or of `kind`; also None where it is `optional`."""
    expected: type = kind or type(default)

    def check(owner: str, name: str, value: Any) -> Any:
        require_type(value, expected, name, StructureError)
        return value

    return _field(default, check, optional or default is None)


def require_number(owner: str, name: str, value: Any, **bounds: float) -> None:
    """Raises unless the field of an owner is a finite number within bounds; see `number_field`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    rules = [(*_BOUNDS[rule], bound) for rule, bound in bounds.items()]
    if not (is_number and -inf < value < inf and all(holds(value, b) for _, holds, b in rules)):
        limits = " and ".join(f"{sign} {bound:g}" for sign, _, bound in rules)
        rule = f"`{name}` of {owner} must be a finite number {limits}".rstrip()
        raise StructureError(f"{rule}, but is {value!r}. Give such a number.")


@dataclass(frozen=True)
class Checked:
    """Base of values whose fields are declared by `whole_field`, `number_field` and the like."""

    def __post_init__(self) -> None:
        owner: Any = type(self)
        for name, check in _checks_of(owner):
            object.__setattr__(self, name, check(owner.__name__, name, getattr(self, name)))
        self._check()

    def _check(self) -> None:
        """Raises where fields contradict each other; most classes have no such rule."""


@cache
def _checks_of(kind: type[Any]) -> list[tuple[str, Rule]]:
    found = ((item.name, item.metadata.get("check")) for item in fields(kind))
    return [(name, check) for name, check in found if check is not None]


@dataclass(frozen=True)
class Options(Checked):
    """Options of a learner, with scikit-learn's names for the fields of nested options."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The fields by name; those of options within as `name__field`."""
        own = {item.name: getattr(self, item.name) for item in fields(self)}
        for name, value in list(own.items()) if deep else ():
            if isinstance(value, Options):
                own |= {f"{name}__{key}": item for key, item in value.get_params().items()}
        return own

    def with_params(self, **params: Any) -> Self:
        """The same options with other values, named as `get_params` names them."""
        changed: dict[str, Any] = {}
        for path, value in params.items():
            name, _, rest = path.partition("__")
            known = {item.name for item in fields(self)}
            if name not in known:
                raise StructureError(
                    f"{type(self).__name__} has no option {name!r}; it has {sorted(known)}."
                )
            old = changed.get(name, getattr(self, name))
            changed[name] = old.with_params(**{rest: value}) if rest else value
        return replace(self, **changed)
