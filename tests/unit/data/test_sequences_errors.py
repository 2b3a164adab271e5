"""Data that cannot be read are refused with the argument, the rule, the finding and the place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dspn.data import Schema, Sequences, Variable
from dspn.errors import DataError

INF = float("inf")
COLOURS = Schema((Variable.categorical("colour", ["red", "blue"]),))
LEVELS = Schema((Variable.categorical("level", [1, 2, 5]),))
BITS = Schema((Variable.binary("bit"),))
COUNTS = Schema((Variable.count("n"),))
NUMBERS = Schema((Variable.continuous("x"),))


def arrays(data: Any, **options: Any) -> Callable[[], Sequences]:
    return lambda: Sequences.from_arrays(data, **options)


def concatenated(x: Any, lengths: Any, **options: Any) -> Callable[[], Sequences]:
    return lambda: Sequences.from_concatenated(x, lengths, **options)


def padded(array: Any, lengths: Any, **options: Any) -> Callable[[], Sequences]:
    return lambda: Sequences.from_padded(array, lengths, **options)


def codes(values: Any, offsets: Any, schema: Any, **options: Any) -> Callable[[], Sequences]:
    return lambda: Sequences.from_codes(values, offsets, schema, **options)


SHAPES = [
    (arrays([]), "at least one sequence, found an empty list"),
    (arrays([[[1]], np.empty((0, 1)), [[1]]]), "at least one slice, but sequence 1 has none"),
    (arrays([[1], []], ids=["a", "b"]), r"but sequence 1 \(id 'b'\) has none"),
    (arrays([np.ones((2, 2)), np.ones((2, 3))]), "sequence 0 has 2 and sequence 1 has 3"),
    (arrays([np.ones((2, 0))]), "at least one column"),
    (arrays([np.ones((2, 2, 2))]), r"two dimensions.*shape \(2, 2, 2\)"),
    (arrays(np.ones((2, 2))), r"write \[array\] for a single sequence"),
    (arrays(np.ones(3)), "sequence 0 of `arrays` must have two dimensions"),
    (arrays("abc"), "list of .* arrays, found str"),
    (arrays({"a": [1]}), "found dict"),
    (arrays(7), "found int"),
    (arrays([[[1, 2], [3]]]), "sequence 0 of `arrays` .* same number of values in every slice"),
    (arrays([[1]], ids=["a", "b"]), "each of the 1 sequences, found 2"),
    (arrays([[1]], ids="a"), "`ids` must be a list"),
    (arrays([[1]], ids=5), "`ids` must be a list"),
    (arrays([[1]], ids=[[1]]), "`ids` must be hashable"),
    (
        arrays([[[1, 2]]], schema=BITS),
        "`arrays` must have a column .* has 2 columns where 1 are named: bit",
    ),
    (
        arrays([[[1, 2]]], names=["a"]),
        "`arrays` must have a column .* has 2 columns where 1 are named: a",
    ),
    (arrays([[1]], names="a"), r"write \['a'\]"),
    (arrays([[1]], names=["a"], schema=BITS), "`names` must be those of `schema`"),
    (arrays([[[1, 2]]], names=["a", "a"]), "different names"),
    (arrays([[1]], schema="x"), "`schema` must be a Schema, found str"),
    (concatenated(np.ones((3, 1)), [1, 1]), "sum to the number of rows of `x`, 3, but sum to 2"),
    (concatenated(np.ones((3, 1)), [3, 0]), "sequence 1 has none"),
    (
        concatenated(np.ones((3, 1)), [4, -1]),
        "`lengths` must be whole numbers .* but entry 1 is -1",
    ),
    (concatenated(np.ones((3, 1)), [1.5, 1.5]), "entry 0 is 1.5"),
    (concatenated(np.ones((3, 1)), [np.nan, 3]), "entry 0 is nan"),
    (concatenated(np.ones((3, 1)), [True, True]), "type bool"),
    (concatenated(np.ones((3, 1)), ["3"]), "`lengths` must be a one-dimensional list"),
    (concatenated(np.ones((3, 1)), 3), "`lengths` must be a one-dimensional list"),
    (concatenated(np.ones((3, 1)), [[1], [1, 2]]), "`lengths` must be a one-dimensional list"),
    (concatenated(np.ones((3, 1)), []), "`lengths` must hold at least one"),
    (
        padded(np.ones((2, 3, 1)), [3, 4]),
        "at most 3 .* `array`, found 2 of at most 4",
    ),
    (padded(np.ones((2, 3, 1)), [3]), "2 sequences of `array`, found 1 "),
    (padded(np.ones(3), [3]), r"three dimensions.*shape \(3,\)"),
    (padded(np.ones((2, 0, 1)), None), "sequence 0 has none"),
    (padded(np.ones((0, 2, 1)), None), "at least one sequence"),
    (codes([[1]], [0, 1], "x"), "`schema` must be a Schema"),
    (codes([1], [0, 1], BITS), r"shape \(1,\)"),
    (codes([[1, 1]], [0, 1], BITS), "1 columns"),
    (codes([["a"]], [0, 1], BITS), "`values` must be numbers, .*by their codes"),
    (codes([["1"]], [0, 1], BITS), "`values` must be numbers, .*by their codes"),
    (codes(np.array([[1j]]), [0, 1], BITS), "`values` must be numbers, .*by their codes"),
    (codes([[1], [1, 2]], [0, 1], BITS), "`values` must be numbers, .*by their codes"),
    (codes([[1]], [0, 2], BITS), "end at 1"),
    (codes([[1]], [1], BITS), "at least two"),
    (codes([[1]], [0.0, 1.0], BITS), "whole numbers"),
    (codes([[1], [1]], [0, 2, 2], BITS, ids=["a", "b"]), r"sequence 1 \(id 'b'\) has none"),
    (codes([[1], [1]], [0, 2, 1, 2], BITS), r"`offsets` must .*rise .* found \[0, 2, 1, 2\]"),
]

VALUES = [
    (arrays([[0], [0, 2]], schema=BITS), "'bit' .* 0 to 1 .* but is 2 in sequence 1, slice 1"),
    (arrays([[0], [0.5]], schema=BITS), "'bit' .* but is 0.5 in sequence 1, slice 0"),
    (arrays([[-1]], schema=BITS, ids=["a"]), r"but is -1 in sequence 0 \(id 'a'\), slice 0"),
    (arrays([[INF]], schema=BITS), "but is inf in sequence 0"),
    (arrays([[1], [2, 4]], schema=LEVELS), "categories 1, 2, 5, but is 4 .* if the numbers count"),
    (arrays([[0]], schema=LEVELS), "but is 0 in sequence 0, slice 0"),
    (arrays([[9]], schema=LEVELS), "but is 9 in sequence 0"),
    (arrays([["red"], ["green"]], schema=COLOURS), "'red', 'blue', but is 'green' in sequence 1"),
    (arrays([[None, 1]], schema=COLOURS), "'red', 'blue', but is 1 in .* slice 1 .*from_codes"),
    (
        arrays([[None, "a"]], schema=BITS),
        "'bit' must hold one of the categories 0, 1, but is 'a' in .* slice 1",
    ),
    (arrays([["a"]], schema=NUMBERS), "'x' must hold finite numbers, but is 'a'"),
    (arrays([[0.5, INF]]), "'x0' must hold finite numbers, but is inf in sequence 0, slice 1"),
    (arrays([[-INF]], schema=NUMBERS), "but is -inf"),
    (arrays([[1, -1]], schema=COUNTS), "'n' must hold counts, .* but is -1 in sequence 0, slice 1"),
    (arrays([[1.5]], schema=COUNTS), "'n' must hold counts, .* but is 1.5"),
    (arrays([[1e300]], schema=COUNTS), "below 2.*but is 1e"),
    (arrays([["a", 1]]), "'x0' must hold values of one type, .* int, str, .* 'a' and 1"),
    (arrays([np.array([True, 2.5], dtype=object)]), "mixture of bool, float"),
    (arrays([np.array([[1], [[2]]], dtype=object)[:, 0]]), "of type list"),
    (arrays([np.array([1, {}], dtype=object)]), "of type dict"),
    (arrays([np.array([1, 10**400], dtype=object)]), "range of float64"),
    (arrays([np.array([1j])]), "type complex128"),
    (arrays([np.array(["2020-01-01"], dtype="datetime64[D]")]), "type datetime64"),
    (arrays([np.array([b"a"])]), "found values of type"),
    (codes([[0], [2]], [0, 1, 2], BITS), "'bit' .* but is 2 in sequence 1, slice 0"),
    (codes([[0], [0.5]], [0, 2], COLOURS), "'colour' .* but is 0.5 in sequence 0, slice 1"),
    (codes([[INF]], [0, 1], NUMBERS), "'x' must hold finite numbers"),
]


@pytest.mark.parametrize(("read", "text"), SHAPES)
def test_wrong_shape_is_refused(read: Callable[[], Sequences], text: str) -> None:
    with pytest.raises(DataError, match=text):
        read()


@pytest.mark.parametrize(("read", "text"), VALUES)
def test_wrong_value_is_refused(read: Callable[[], Sequences], text: str) -> None:
    with pytest.raises(DataError, match=text):
        read()


def test_wrong_value_far_behind_is_found_at_its_place() -> None:
    column = np.zeros(20_000)
    column[15_003] = 7
    lengths = np.full(2000, 10)
    with pytest.raises(DataError, match="but is 7 in sequence 1500, slice 3 "):
        Sequences.from_concatenated(column, lengths, schema=BITS)


def test_missing_entries_break_no_rule() -> None:
    for schema in (BITS, LEVELS, COLOURS, COUNTS, NUMBERS):
        assert np.isnan(Sequences.from_arrays([[None, None]], schema=schema).values).all()


def test_repeated_ids_are_allowed() -> None:
    assert Sequences.from_arrays([[0.5], [1.5]], ids=["a", "a"]).ids == ("a", "a")
