"""What each variable of a slice is: its name, its kind and its categories."""

from __future__ import annotations

import difflib
import enum
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
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
    its leaves in models, where that is not the usual one of the kind (see `dspn.leaves.Family`), or
    the name of one: "student_t", "student_t:3" with its first option, "von_mises:24". An input
    (`Schema.inputs`) may have a `rule` that computes it (see `dspn.inputs`), and a `default`, the
    value that it has where it is missing.
    """

    name: str
    kind: Kind
    categories: tuple[Category, ...] = ()
    leaf: Any = None
    rule: Any = None
    default: Category | None = None

    def __post_init__(self) -> None:
        """Check the rules of a variable and bring its fields to plain Python types."""
        if not isinstance(self.name, str) or not self.name:
            raise DataError(
                f"`name` of a variable must be a non-empty string, found {self.name!r}; name the "
                "column, or leave it out, as an index that was saved with a table (--exclude '')."
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
        if (kind is Kind.CATEGORICAL) != bool(self.categories):
            raise DataError(
                "`categories` must hold at least one category for categorical variables only, but "
                f"variable {self.name!r} is {kind} and has {len(self.categories)}."
            )
        if isinstance(self.leaf, str):
            # Leaves import this module and are loaded where a name asks for them.
            named = import_module("dspn.leaves").family_named(self.leaf)
            object.__setattr__(self, "leaf", named or self.leaf)
        is_family = not isinstance(self.leaf, type) and hasattr(self.leaf, "log_prob")
        is_plain = kind is Kind.CATEGORICAL and not getattr(self.leaf, "sources", ())
        if self.leaf is not None and (is_plain or not is_family):
            raise DataError(
                f"`leaf` of variable {self.name!r} must be a value of a `dspn.leaves.Family`, or "
                f"one of {', '.join(import_module('dspn.leaves').NAMES)}, for a continuous "
                f"variable or a count, found {self.leaf!r} for a {kind} variable."
            )
        if self.leaf is not None and self.leaf.is_discrete == (kind is Kind.CONTINUOUS):
            fitting = "count" if self.leaf.is_discrete else "continuous"
            raise DataError(
                f"`leaf` of variable {self.name!r} must be a family for {kind} variables, found "
                f"{self.leaf!r}, which is for {fitting} ones; use Variable.{fitting}(...)."
            )
        if self.rule is not None and (
            isinstance(self.rule, type) or not hasattr(self.rule, "codes")
        ):
            raise DataError(
                f"`rule` of variable {self.name!r} must be a rule of `dspn.inputs`, found "
                f"{self.rule!r}."
            )
        self._check_default()

    def _check_default(self) -> None:
        own = self.default
        fits = own in self.categories if self.categories else _is_finite(own)
        if own is not None and not fits:
            known = list_categories(self.categories) if self.categories else "a finite number"
            raise DataError(f"`default` of input {self.name!r} must be {known}, found {own!r}.")

    @classmethod
    def categorical(
        cls,
        name: str,
        categories: Iterable[Category],
        *,
        rule: Any = None,
        default: Category | None = None,
    ) -> Variable:
        """A variable with one of the categories in each slice; codes follow the order given."""
        own: Any = categories
        return cls(name, Kind.CATEGORICAL, own, rule=rule, default=default)

    @classmethod
    def binary(cls, name: str) -> Variable:
        """A categorical variable with the categories 0 and 1."""
        return cls(name, Kind.CATEGORICAL, (0, 1))

    @classmethod
    def continuous(
        cls, name: str, *, leaf: Any = None, rule: Any = None, default: float | None = None
    ) -> Variable:
        """A real-valued variable; its leaves are Gaussian unless another family is given."""
        return cls(name, Kind.CONTINUOUS, leaf=leaf, rule=rule, default=default)

    @classmethod
    def count(cls, name: str, *, leaf: Any = None) -> Variable:
        """A variable with values 0, 1, 2, ...; Poisson leaves unless another family is given."""
        return cls(name, Kind.COUNT, leaf=leaf)

    @classmethod
    def of_kind(cls, name: str, kind: str) -> Variable:
        """A variable of numbers: "continuous", "count", or the name of the family of its leaves."""
        if kind in tuple(Kind):
            return cls(name, Kind(kind))
        leaf = import_module("dspn.leaves").family_named(kind)
        own = Kind.COUNT if getattr(leaf, "is_discrete", False) else Kind.CONTINUOUS
        return cls(name, own, leaf=leaf or kind)

    def identity(self) -> tuple[Any, ...]:
        """What distinguishes this variable from others, the same in every process."""
        leaf = () if self.leaf is None else (sorted(self.leaf.to_json().items()),)
        rule = () if self.rule is None else ("rule", sorted(self.rule.to_json().items()))
        default = () if self.default is None else ("default", self.default)
        return (self.name, str(self.kind), self.categories, *leaf, *rule, *default)

    @property
    def num_categories(self) -> int:
        """Number of categories; 0 when the variable is not categorical."""
        return len(self.categories)


@final
@dataclass(frozen=True)
class Schema:
    """The variables of a slice, in the order of the columns, and its inputs.

    Inputs are categorical or continuous variables that are given at every slice, not modelled.
    """

    variables: tuple[Variable, ...]
    inputs: tuple[Variable, ...] = ()
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _columns: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check that there is at least one variable and that no name is used twice."""
        variables = tuple(self.variables)
        if not variables or not all(isinstance(item, Variable) for item in variables):
            raise DataError(
                "`variables` of a schema must be Variable objects, at least one variable, found "
                f"{reprlib.repr(variables)}."
            )
        names = tuple(variable.name for variable in variables)
        columns = {name: column for column, name in enumerate(names)}
        if len(columns) < len(names):
            repeated = sorted({name for at, name in enumerate(names) if columns[name] != at})
            raise DataError(
                "`variables` of a schema must have different names, but "
                f"{reprlib.repr(repeated)} occur twice."
            )
        object.__setattr__(self, "variables", variables)
        object.__setattr__(self, "inputs", _checked_inputs(variables, self.inputs, columns))
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "_columns", columns)

    @property
    def num_variables(self) -> int:
        """Number of variables in a slice."""
        return len(self.variables)

    @property
    def given_inputs(self) -> tuple[Variable, ...]:
        """The inputs that no rule computes."""
        return tuple(own for own in self.inputs if own.rule is None)

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
                f"`name` must be a variable of the schema ({list_names(self.names)}), "
                f"found {name!r}{near_misses(str(name), self.names)}."
            ) from None

    @property
    def families(self) -> tuple[Any, ...]:
        """The leaf families that variables name."""
        return tuple(variable.leaf for variable in self if variable.leaf is not None)

    def without_leaves(self) -> Schema:
        """The same variables with the usual leaf families: all that the data depend on."""
        own = tuple(replace(variable, leaf=None) for variable in self.variables)
        return Schema(own, self.inputs)

    def with_inputs(self, inputs: Iterable[Variable]) -> Schema:
        """The same variables with other inputs."""
        return Schema(self.variables, tuple(inputs))

    def input_index(self, name: str) -> int:
        """Column of the input with this name."""
        names = [own.name for own in self.inputs]
        if name not in names:
            raise DataError(
                f"there is no input {name!r}; the schema has "
                f"{list_names(names) if names else 'no inputs'}."
            )
        return names.index(name)

    def select(self, names: Iterable[str]) -> Schema:
        """Schema of the named variables, in the order named."""
        if isinstance(names, str):
            raise DataError(f"`names` must be a list of names; write [{names!r}].")
        columns = [self.index(name) for name in names]
        places = {column: place for place, column in enumerate(columns)}
        chosen = []
        for column in columns:
            variable = self.variables[column]
            sources = getattr(variable.leaf, "sources", ())
            told = {own.column for own in sources if own.kind != "input"}
            if not told <= places.keys():
                missing = self.names[min(told - places.keys())]
                raise DataError(
                    f"`names` must have {missing!r}, which the leaves of {variable.name!r} are "
                    "told; select before the schema has lags or covariances."
                )
            chosen.append(replace(variable, leaf=variable.leaf.moved(places)) if told else variable)
        return Schema(tuple(chosen), self.inputs)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))


def _checked_inputs(
    variables: Sequence[Variable], inputs: Iterable[Variable], columns: dict[str, int]
) -> tuple[Variable, ...]:
    own = tuple(item.named() if hasattr(item, "named") else item for item in inputs)
    if not all(isinstance(item, Variable) for item in own):
        raise DataError(
            "`inputs` of a schema must be Variable objects or rules of `dspn.inputs`, found "
            f"{own!r}."
        )
    seen: set[str] = set()
    for item in own:
        if item.kind is Kind.COUNT or item.leaf is not None:
            raise DataError(
                f"input {item.name!r} must be categorical or continuous, without a leaf, but is "
                f"{item.kind}; declare a number as continuous."
            )
        if item.name in columns:
            raise DataError(
                f"{item.name!r} cannot be both a variable and an input; leave it out of one."
            )
        if item.name in seen:
            raise DataError(f"`inputs` must have different names, but {item.name!r} occurs twice.")
        seen.add(item.name)
    for variable in variables:
        if variable.rule is not None or variable.default is not None:
            raise DataError(
                f"variable {variable.name!r} has a `rule` or a `default`, which only inputs have; "
                "declare it in `inputs`."
            )
    return own


def _plain_categories(name: str, categories: Iterable[Category]) -> tuple[Category, ...]:
    if isinstance(categories, str):
        raise DataError(
            f"`categories` of variable {name!r} must be a sequence of categories, found the "
            f"string {categories!r}; write [{categories!r}] for a single category."
        )
    plain = tuple(item.item() if isinstance(item, np.generic) else item for item in categories)
    for item in plain:
        is_text = isinstance(item, str)
        if not is_text and not (isinstance(item, int | float) and abs(item) < LARGEST_WHOLE):
            raise DataError(
                f"`categories` of variable {name!r} must be strings, booleans or numbers that are "
                f"finite and below 2**53, found {item!r}."
            )
    families = {next(t for t in (str, bool, object) if isinstance(item, t)) for item in plain}
    if len(families) > 1:
        raise DataError(
            f"`categories` of variable {name!r} must be all strings, all booleans or all numbers, "
            f"found a mixture: {plain!r}."
        )
    if len(set(plain)) < len(plain):
        raise DataError(f"`categories` of variable {name!r} must differ, found {plain!r}.")
    return plain


def describe_variable(variable: Variable) -> str:
    """Kind of a variable, with its categories where it has some."""
    if not variable.categories:
        return str(variable.kind)
    return f"{variable.kind} ({list_categories(variable.categories)})"


def list_categories(categories: Sequence[Any], most: int = 6) -> str:
    """Categories as text, without the middle ones when there are many."""
    if len(categories) <= most:
        return ", ".join(map(repr, categories))
    return f"{', '.join(map(repr, categories[: most - 2]))}, ..., {categories[-1]!r}"


def near_misses(name: str, names: Sequence[str]) -> str:
    """A question with the most similar names, where there are any."""
    lower = [other for other in names if other.lower() == name.lower()]
    guess = list(dict.fromkeys([*lower, *difflib.get_close_matches(name, names, 3, 0.6)]))
    return f" (did you mean {' or '.join(map(repr, guess))}?)" if guess else ""


def list_names(names: Sequence[str], most: int = 50) -> str:
    """Names with commas between them; only the first of very many, and long ones cut short."""
    more = f", ... ({len(names):,} in all)" if len(names) > most else ""
    shown = [name if len(name) < 100 else f"{name[:96]}..." for name in names[:most]]
    return ", ".join(shown) + more
