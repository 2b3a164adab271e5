"""Order columns go on with the step that they have."""

from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dspn.data.order import (
    Grouping,
    Keys,
    describe_steps,
    group_rows,
    next_values,
    order_goes_on,
    with_order_type,
)
from dspn.errors import DataError

KEYS = Keys("id", "when")


def uneven_steps(order: Any, keys: Keys, grouping: Grouping) -> str | None:
    found = describe_steps(order, keys, grouping)
    return found and found.uneven


def prepared(ids: list[str], order: Any) -> tuple[Keys, Grouping]:
    keys = with_order_type(KEYS, order)
    return keys, group_rows(len(ids), pa.array(ids), order, keys, 1, sort=False)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (pa.array([1, 3, 5], pa.int8()), [7, 9]),
        (pa.array(["1", "3", "5"]), ["7", "9"]),
        (pa.array(["5", "1", "3"]), ["7", "9"]),
        (pa.array(["2024-02-27", "2024-02-28", "2024-02-29"]), ["2024-03-01", "2024-03-02"]),
        (
            pa.array(["2024-03-01 22:00", "2024-03-01 22:30", "2024-03-01 23:00"]),
            ["2024-03-01 23:30", "2024-03-02 00:00"],
        ),
        (
            pa.array(["2024-03-01T00:00:01", "2024-03-01T00:00:02", "2024-03-01T00:00:03"]),
            ["2024-03-01T00:00:04", "2024-03-01T00:00:05"],
        ),
        (
            pa.array([date(2024, 2, 27), date(2024, 2, 28), date(2024, 2, 29)]),
            [date(2024, 3, 1), date(2024, 3, 2)],
        ),
        (
            pa.array([datetime(2024, 3, 1, hour) for hour in (20, 21, 22)], pa.timestamp("ms")),
            [datetime(2024, 3, 1, 23), datetime(2024, 3, 2)],
        ),
        (pa.array([1, 2, 4]), [None, None]),
        (pa.array(["1", "2.5", "4"]), [None, None]),
    ],
)
def test_the_next_values_are_those_of_a_constant_step(order: Any, expected: list[Any]) -> None:
    keys, grouping = prepared(["a", "a", "a"], order)
    assert order_goes_on(order, keys)
    found = next_values(order, keys, grouping, 2)
    assert found.to_pylist() == expected
    wide = pa.int64() if pa.types.is_integer(order.type) else order.type
    assert found.type == wide


def test_every_sequence_has_a_step_of_its_own() -> None:
    order = pa.array([1, 2, 10, 20, 30, 5, 1, 2, 9])
    keys, grouping = prepared(list("aabbbcddd"), order)
    found = next_values(order, keys, grouping, 2)
    assert found.to_pylist() == [3, 4, 40, 50, None, None, None, None]


def test_unequal_steps_go_on_with_the_step_of_the_majority() -> None:
    order = pa.array([1, 2, 3, 9, 10, 0, 5, 10, 11, 12, 7, 8, 20, 21, 33])
    keys, grouping = prepared(list("aaaaabbbbbccccc"), order)
    found = next_values(order, keys, grouping, 2)
    assert found.to_pylist() == [11, 12, None, None, None, None]


@pytest.mark.parametrize("order", [pa.array(["a", "b"]), pa.array([0.5, 1.0])])
def test_other_orders_do_not_go_on(order: Any) -> None:
    keys, grouping = prepared(["a", "a"], order)
    assert not order_goes_on(order, keys)
    assert uneven_steps(order, keys, grouping) is None


def test_steps_are_told_in_the_unit_of_the_column() -> None:
    times = np.array([0, 90, 180, 186], dtype="datetime64[s]")
    for unit in ("s", "ms", "us", "ns"):
        order = pa.array(times.astype(f"datetime64[{unit}]"))
        keys, grouping = prepared(list("aaaa"), order)
        assert uneven_steps(order, keys, grouping) == "90 s, 6 s"
    days = pa.array([date(2024, 3, day) for day in (1, 4, 7, 18)])
    keys, grouping = prepared(list("aaaa"), days)
    assert uneven_steps(days, keys, grouping) == "3 d, 11 d"
    fine = pa.array(np.array([0, 1, 2, 2502], dtype="datetime64[ms]"))
    keys, grouping = prepared(list("aaaa"), fine)
    assert uneven_steps(fine, keys, grouping) == "0.001 s, 2.5 s"


def test_times_with_offsets_sort_by_what_they_are_in_utc() -> None:
    texts = ["2024-10-27T02:00+01:00", "2024-10-27T02:00+02:00", "2024-10-27T05:00+01:00"]
    order = pa.array(texts, pa.large_string())
    keys, grouping = prepared(list("aaa"), order)
    assert grouping.rows.tolist() == [1, 0, 2]
    assert uneven_steps(order, keys, grouping) == "1 h, 3 h"
    assert not order_goes_on(order, keys)
    same = pa.array(["2024-10-27 02:00:00+02:00", "2024-10-27 00:00:00Z"])
    with pytest.raises(DataError, match="row 1 and in row 2"):
        prepared(list("aa"), same)


def test_a_later_time_without_an_offset_is_named() -> None:
    keys = with_order_type(KEYS, pa.array(["2024-10-27T02:00+01:00"]))
    later = pa.array(["2024-10-27T02:00+01:00", "2024-10-27T03:00"])
    with pytest.raises(DataError, match=r"'when' .* is '2024-10-27T03:00' in row 6"):
        group_rows(2, pa.array(["b", "b"]), later, keys, 5, sort=False)


def test_ordered_dictionaries_sort_by_their_categories_in_every_chunk() -> None:
    def months(cells: list[str], categories: list[str]) -> Any:
        words = pa.array(categories)
        places = pa.array([categories.index(cell) for cell in cells])
        return pa.DictionaryArray.from_arrays(places, words, ordered=True)

    calendar = ["Jan", "Feb", "Mar"]
    parts = [months(["Mar", "Jan"], calendar), months(["Feb"], calendar)]
    order = pa.chunked_array(parts)
    _, grouping = prepared(list("aaa"), order)
    assert grouping.rows.tolist() == [1, 2, 0]
