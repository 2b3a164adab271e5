import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspn.errors import ModelFileError
from dspn.io.json_values import MAX_DEPTH, compact, fields, items, parse, plain, text, whole

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**130), 2**130)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=()))
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(values)
def test_parse_gives_back_value_and_types(value: object) -> None:
    written = compact(plain(value, "it"))
    assert written.isascii()
    read = parse(written)
    # repr tells 1, 1.0 and True apart, and -0.0 from 0.0.
    assert repr(plain(read, "it")) == repr(parse(compact(read)))
    assert compact(read) == written
    assert read == value


@pytest.mark.parametrize("value", [1, 1.0, True, "1", -0.0, 0.1 + 0.2, 2**100, None])
def test_scalar_keeps_its_type(value: object) -> None:
    read = parse(compact(plain(value, "it")))
    assert type(read) is type(value)
    assert repr(read) == repr(value)


def test_spelling_does_not_depend_on_the_order_of_entries() -> None:
    assert compact({"a": 1, "b": 2}) == compact({"b": 2, "a": 1}) == '{"a":1,"b":2}'


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, np.int64(3), np.zeros(2), {1, 2}, b"bytes", 2**5000, object()],
)
@pytest.mark.parametrize("place", [lambda x: x, lambda x: [1, x], lambda x: {"a": {"b": x}}])
def test_value_that_is_not_json_is_refused(value: object, place: object) -> None:
    with pytest.raises(ModelFileError, match=r"`provenance` must hold text.*convert"):
        plain(place(value), "`provenance`")  # type: ignore[operator]


def test_key_that_is_not_text_is_refused() -> None:
    with pytest.raises(ModelFileError, match="text as keys, but 3 is one"):
        plain({"a": {3: 1}}, "`provenance`")


def test_value_that_contains_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ModelFileError, match="nested more than 64"):
        plain(endless, "`provenance`")


def test_deepest_value_that_is_taken_can_be_read() -> None:
    value: object = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert plain(parse(compact(plain(value, "it"))), "it") == value


@pytest.mark.parametrize(
    "written",
    ["", "{", "nul", "NaN", "[Infinity]", "[" * 100_000, "1" * 10_000, '{"a":1,}', "\ufeff1"],
)
def test_text_that_is_not_json_is_refused(written: str) -> None:
    with pytest.raises(ModelFileError, match="not readable JSON"):
        parse(written)


@pytest.mark.parametrize(
    ("read", "wrong"),
    [(text, 1), (text, None), (whole, "1"), (whole, 1.0), (whole, True), (items, {}), (fields, [])],
)
def test_value_of_another_type_is_refused(read: object, wrong: object) -> None:
    with pytest.raises(ModelFileError, match=r"`root` must be (text|a whole number|a list|an obj)"):
        read(wrong, "`root`")  # type: ignore[operator]


def test_object_with_other_entries_is_refused() -> None:
    with pytest.raises(ModelFileError, match=r"misses \['a'\] and has \['c'\] besides"):
        fields({"b": 1, "c": 2}, "it", ("a", "b"))
