"""What each variable of a slice is: its name, its kind and its categories."""

from __future__ import annotations

import enum
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, final

import numpy as np

from dspn.errors import DataError

Category: TypeAlias = str | int | float | bool

LARGEST_WHOLE = 2**53
"""Whole numbers below this are held exactly by float64."""


@final
class Kind(enum.StrEnum):
    """The three kinds of variable."""

    CATEGORICAL = "categorical"
    CONTINUOUS = "continuous"
    COUNT = "count"


@final
@dataclass(frozen=True)
class Variable:
    """One variable of the slice; a categorical one has its categories in the order of their codes.

    The categories are all strings, all booleans, or all finite numbers. `leaf` is the family of
    its leaves in models, where that is not the usual one of the kind (see `dspn.leaves.Family`).
    """

    name: str
    kind: Kind
    categories: tuple[Category, ...] = ()
    leaf: Any = None

    def __post_init__(self) -> None:
        """Check the rules of a variable and bring its fields to plain Python types."""
        if not isinstance(self.name, str) or not self.name:
            raise DataError(
                f"`name` of a variable must be a non-empty string, found {self.name!r}."
            )
        try:
            kind = Kind(self.kind)
        except ValueError:
            raise DataError(
                f"`kind` of variable {self.name!r} must be one of "
                f"{', '.join(repr(str(kind)) for kind in Kind)}, found {self.kind!r}."
            ) from None
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "categories", _plain_categories(self.name, self.categories))
        if kind is Kind.CATEGORICAL and not self.categories:
            raise DataError(
                f"`categories` of categorical variable {self.name!r} must hold at least one "
                "category, found none."
            )
        if kind is not Kind.CATEGORICAL and self.categories:
            raise DataError(
                f"`categories` belong to categorical variables only, but variable {self.name!r} "
                f"is {kind} and has {len(self.categories)}; leave them out."
            )
        is_family = not isinstance(self.leaf, type) and hasattr(self.leaf, "log_prob")
        if self.leaf is not None and (kind is Kind.CATEGORICAL or not is_family):
            raise DataError(
                f"`leaf` of variable {self.name!r} must be a value of a `dspn.leaves.Family`, for "
                f"a continuous variable or a count, found {self.leaf!r} for a {kind} variable."
            )

    @classmethod
    def categorical(cls, name: str, categories: Iterable[Category]) -> Variable:
        """A variable with one of the categories in each slice; codes follow the order given."""
        return cls(name, Kind.CATEGORICAL, _plain_categories(name, categories))

    @classmethod
    def binary(cls, name: str) -> Variable:
        """A categorical variable with the categories 0 and 1."""
        return cls(name, Kind.CATEGORICAL, (0, 1))

    @classmethod
    def continuous(cls, name: str, *, leaf: Any = None) -> Variable:
        """A real-valued variable; its leaves are Gaussian unless another family is given."""
        return cls(name, Kind.CONTINUOUS, leaf=leaf)

    @classmethod
    def count(cls, name: str, *, leaf: Any = None) -> Variable:
        """A variable with values 0, 1, 2, ...; Poisson leaves unless another family is given."""
        return cls(name, Kind.COUNT, leaf=leaf)

    def identity(self) -> tuple[Any, ...]:
        """What tells this variable from others, the same in every process."""
        leaf = () if self.leaf is None else (sorted(self.leaf.to_json().items()),)
        return (self.name, str(self.kind), self.categories, *leaf)

    @property
    def num_categories(self) -> int:
        """Number of categories; 0 when the variable is not categorical."""
        return len(self.categories)


@final
@dataclass(frozen=True)
class Schema:
    """The variables of a slice, in the order of the columns."""

    variables: tuple[Variable, ...]
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _columns: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check that there is at least one variable and that no name is used twice."""
        variables = tuple(self.variables)
        for variable in variables:
            if not isinstance(variable, Variable):
                raise DataError(
                    f"`variables` of a schema must be Variable objects, found {variable!r}."
                )
        if not variables:
            raise DataError("`variables` of a schema must hold at least one variable, found none.")
        names = tuple(variable.name for variable in variables)
        columns = {name: column for column, name in enumerate(names)}
        if len(columns) < len(names):
            repeated = sorted({name for at, name in enumerate(names) if columns[name] != at})
            raise DataError(
                "`variables` of a schema must have different names, but "
                f"{reprlib.repr(repeated)} occur twice."
            )
        object.__setattr__(self, "variables", variables)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "_columns", columns)

    @property
    def num_variables(self) -> int:
        """Number of variables in a slice."""
        return len(self.variables)

    def __len__(self) -> int:
        """Number of variables in a slice."""
        return len(self.variables)

    def __iter__(self) -> Iterator[Variable]:
        """Variables in the order of the columns."""
        return iter(self.variables)

    def __getitem__(self, column: int) -> Variable:
        """Variable of a column."""
        return self.variables[column]

    def index(self, name: str) -> int:
        """Column of the variable with this name."""
        try:
            return self._columns[name]
        except (KeyError, TypeError):
            raise DataError(
                f"`name` must be a variable of the schema ({', '.join(self.names)}), "
                f"found {name!r}."
            ) from None

    def without_leaves(self) -> Schema:
        """The same variables with the usual leaf families: all that the data depend on."""
        return Schema(tuple(replace(variable, leaf=None) for variable in self.variables))

    def select(self, names: Iterable[str]) -> Schema:
        """Schema of the named variables, in the order named."""
        if isinstance(names, str):
            raise DataError(f"`names` must be a list of names; write [{names!r}].")
        return Schema(tuple(self.variables[self.index(name)] for name in names))


def _plain_categories(name: str, categories: Iterable[Category]) -> tuple[Category, ...]:
    if isinstance(categories, str):
        raise DataError(
            f"`categories` of variable {name!r} must be a sequence of categories, found the "
            f"string {categories!r}; write [{categories!r}] for a single category."
        )
    plain = tuple(item.item() if isinstance(item, np.generic) else item for item in categories)
    for item in plain:
        if not isinstance(item, str | int | float):
            raise DataError(
                f"`categories` of variable {name!r} must be strings, booleans or numbers, "
                f"found {item!r}."
            )
        if not isinstance(item, str) and not abs(item) < LARGEST_WHOLE:
            raise DataError(
                f"`categories` of variable {name!r} must be finite numbers below 2**53, "
                f"found {item!r}."
            )
    families = {"string" if isinstance(c, str) else _number_family(c) for c in plain}
    if len(families) > 1:
        raise DataError(
            f"`categories` of variable {name!r} must be all strings, all booleans or all numbers, "
            f"found a mixture: {plain!r}."
        )
    if len(set(plain)) < len(plain):
        raise DataError(f"`categories` of variable {name!r} must differ, found {plain!r}.")
    return plain


def _number_family(category: int | float) -> str:
    return "boolean" if isinstance(category, bool) else "number"
