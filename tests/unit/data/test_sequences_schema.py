"""Variables and schemas."""

from __future__ import annotations

import numpy as np
import pytest

from dspn.data import Kind, Schema, Variable
from dspn.errors import DataError, DspnError


def test_categories_keep_the_order_given() -> None:
    variable = Variable.categorical("colour", ["red", "blue"])
    assert variable.categories == ("red", "blue")
    assert variable.num_categories == 2


def test_binary_has_the_categories_zero_and_one() -> None:
    assert Variable.binary("bit") == Variable("bit", Kind.CATEGORICAL, (0, 1))


def test_num_categories_is_zero_without_categories() -> None:
    assert Variable.continuous("x").num_categories == 0
    assert Variable.count("x").num_categories == 0


def test_kind_given_as_a_string_becomes_a_kind() -> None:
    assert Variable("x", "count").kind is Kind.COUNT  # type: ignore[arg-type]


def test_numpy_categories_become_python_values() -> None:
    variable = Variable.categorical("x", np.array([1, 2]))
    assert [type(category) for category in variable.categories] == [int, int]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Variable.continuous(""), "non-empty string"),
        (lambda: Variable.continuous(3), "non-empty string"),  # type: ignore[arg-type]
        (lambda: Variable("x", "ordinal"), "must be one of"),  # type: ignore[arg-type]
        (lambda: Variable.categorical("x", []), "at least one"),
        (lambda: Variable("x", Kind.COUNT, (0, 1)), "categorical variables only"),
        (lambda: Variable.categorical("x", ["a", "a"]), "must differ"),
        (lambda: Variable.categorical("x", ["a", 1]), "mixture"),
        (lambda: Variable.categorical("x", [True, 2]), "mixture"),
        (lambda: Variable.categorical("x", [0, float("nan")]), "finite"),
        (lambda: Variable.categorical("x", [2**60]), "below 2"),
        (lambda: Variable.categorical("x", [10**400]), "below 2"),
        (lambda: Variable.categorical("x", [None]), "strings, booleans or numbers"),  # type: ignore[list-item]
        (lambda: Variable.categorical("x", "ab"), "sequence of categories"),
        (lambda: Schema(()), "at least one variable"),
        (lambda: Schema((Variable.count("x"), Variable.binary("x"))), "different names"),
        (lambda: Schema(("x",)), "Variable objects"),  # type: ignore[arg-type]
    ],
)
def test_broken_rule_is_refused_with_the_rule(make: object, text: str) -> None:
    with pytest.raises(DataError, match=text):
        make()  # type: ignore[operator]


def test_data_error_is_a_value_error_and_a_dspn_error() -> None:
    assert issubclass(DataError, ValueError)
    assert issubclass(DataError, DspnError)


def test_schema_gives_names_columns_and_variables() -> None:
    schema = Schema([Variable.binary("a"), Variable.count("b")])  # type: ignore[arg-type]
    assert schema.names == ("a", "b")
    assert len(schema) == schema.num_variables == 2
    assert [variable.name for variable in schema] == ["a", "b"]
    assert schema[1].kind is Kind.COUNT
    assert schema.index("b") == 1
    assert schema.select(["b"]).names == ("b",)
    assert hash(schema) == hash(Schema(schema.variables))


def test_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"\(a, b\), found 'c'"):
        Schema((Variable.binary("a"), Variable.count("b"))).index("c")
