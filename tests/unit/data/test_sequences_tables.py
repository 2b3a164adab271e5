"""Long tables of pandas, polars and Arrow."""

from __future__ import annotations

import datetime
import time
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dspn.data import Kind, Schema, Sequences, Variable
from dspn.errors import DataError

LIBRARIES = ["pandas", "polars", "pyarrow"]
NAN = np.nan


def make_table(library: str, columns: dict[str, list[Any]]) -> Any:
    if library == "pandas":
        return pd.DataFrame(columns)
    return pl.DataFrame(columns) if library == "polars" else pa.table(columns)


def columns_of(table: Any) -> dict[str, list[Any]]:
    if isinstance(table, pd.DataFrame):
        return {
            str(name): [None if pd.isna(item) else item for item in table[name].tolist()]
            for name in table
        }
    return table.to_dict(as_series=False) if isinstance(table, pl.DataFrame) else table.to_pydict()


COLUMNS: dict[str, list[Any]] = {
    "id": ["b", "a", "b", "a", "b"],
    "time": [3, 1, 1, 2, 2],
    "colour": ["red", None, "blue", "red", "red"],
    "level": [0.5, 1.5, None, 3.5, 4.5],
    "flag": [True, False, None, True, True],
    "stage": [2, 2, 7, None, 7],
}
SORTED: dict[str, list[Any]] = {
    "id": ["b", "b", "b", "a", "a"],
    "time": [1, 2, 3, 1, 2],
    "colour": ["blue", "red", "red", None, "red"],
    "level": [None, 4.5, 0.5, 1.5, 3.5],
    "flag": [None, True, True, False, True],
    "stage": [7, 7, 2, 2, None],
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_are_sorted_by_first_appearance_and_order(library: str) -> None:
    batch = Sequences.from_table(make_table(library, COLUMNS), sequence="id", order="time")
    assert batch.ids == ("b", "a")
    assert batch.lengths.tolist() == [3, 2]
    assert batch.schema == Schema(
        (
            Variable.categorical("colour", ["blue", "red"]),
            Variable.continuous("level"),
            Variable.categorical("flag", [False, True]),
            Variable.categorical("stage", [2, 7]),
        )
    )
    np.testing.assert_array_equal(
        batch.values,
        [[0, NAN, NAN, 1], [1, 4.5, 1, 1], [1, 0.5, 1, 0], [NAN, 1.5, 0, 0], [1, 3.5, 1, NAN]],
    )


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("target", LIBRARIES)
def test_table_round_trip_between_libraries_is_exact(library: str, target: str) -> None:
    batch = Sequences.from_table(make_table(library, COLUMNS), sequence="id", order="time")
    table = batch.to_table(target)
    assert columns_of(table) == SORTED
    again = Sequences.from_table(table, sequence="id", order="time")
    np.testing.assert_array_equal(again.values, batch.values)
    assert (again.ids, again.schema) == (batch.ids, batch.schema)


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_keep_their_order_without_an_order_column(library: str) -> None:
    table = make_table(library, {"id": [2, 1, 2, 1], "x": [0.5, 1.5, 2.5, 3.5]})
    batch = Sequences.from_table(table, sequence="id")
    assert batch.ids == (2, 1)
    assert batch.values[:, 0].tolist() == [0.5, 2.5, 1.5, 3.5]
    assert columns_of(batch.to_table(library)) == {
        "id": [2, 2, 1, 1],
        "x": [0.5, 2.5, 1.5, 3.5],
    }
    assert columns_of(batch.to_table(library, order="t"))["t"] == [0, 1, 0, 1]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "order",
    [
        [datetime.datetime(2020, 1, day) for day in (3, 1, 2)],
        [datetime.datetime(2020, 1, day, tzinfo=ZoneInfo("Europe/Rome")) for day in (3, 1, 2)],
        [datetime.timedelta(hours=hours) for hours in (3, 1, 2)],
        ["c", "a", "b"],
        [0.3, 0.1, 0.2],
    ],
)
def test_order_column_of_any_sortable_type_comes_back(library: str, order: list[Any]) -> None:
    table = make_table(library, {"id": [1, 1, 1], "when": order, "x": [0.5, 1.5, 2.5]})
    batch = Sequences.from_table(table, sequence="id", order="when")
    assert batch.values[:, 0].tolist() == [1.5, 2.5, 0.5]
    again = batch.to_table(library)
    assert columns_of(again)["when"] == sorted(order)
    if library == "pandas":
        assert again.dtypes["when"] == table.dtypes["when"]
    elif library == "polars":
        assert again.schema == table.schema
    else:
        assert again.schema.types == table.schema.types


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_dates_come_back_as_dates(library: str) -> None:
    days = [datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)]
    table = make_table(library, {"id": [1, 1], "day": days, "x": [0.5, 1.5]})
    batch = Sequences.from_table(table, sequence="id", order="day")
    assert columns_of(batch.to_table(library))["day"] == days[::-1]


@pytest.mark.parametrize("target", ["polars", "pyarrow"])
def test_times_of_pandas_in_seconds_can_be_written_by_every_library(target: str) -> None:
    when = pd.Series(np.array(["2020-01-02", "2020-01-01"], dtype="datetime64[s]"))
    frame = pd.DataFrame({"id": [1, 1], "when": when, "x": [0.5, 1.5]})
    batch = Sequences.from_table(frame, sequence="id", order="when")
    found = columns_of(batch.to_table(target))["when"]
    assert found == [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2)]


def night_of_the_clock_change(library: str, instants: list[str | None]) -> Any:
    """Rows at these times of UTC, told in Berlin, where the hour after 02:00 comes twice."""
    days = [None if instant is None else f"2024-10-27T{instant}" for instant in instants]
    utc = pd.Series(np.array(days, dtype="datetime64[us]")).dt.tz_localize("UTC")
    levels = 0.5 + np.arange(len(instants))
    frame = pd.DataFrame({"id": 1, "when": utc.dt.tz_convert("Europe/Berlin"), "x": levels})
    if library == "pandas":
        return frame
    table = pa.Table.from_pandas(frame)
    return table if library == "pyarrow" else pl.from_arrow(table)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("instants", [["00:50", "01:10"], ["00:10", "01:10"]])
def test_times_with_a_zone_are_ordered_as_instants(library: str, instants: list[Any]) -> None:
    table = night_of_the_clock_change(library, instants)
    batch = Sequences.from_table(table, sequence="id", order="when")
    assert batch.values[:, 0].tolist() == [0.5, 1.5]
    found = [time.astimezone(datetime.UTC) for time in columns_of(batch.to_table(library))["when"]]
    assert [f"{time:%H:%M}" for time in found] == instants
    turned = night_of_the_clock_change(library, instants[::-1])
    assert Sequences.from_table(turned, sequence="id", order="when").values[0, 0] == 1.5


@pytest.mark.parametrize("library", LIBRARIES)
def test_times_with_a_zone_that_are_missing_or_repeated_are_refused(library: str) -> None:
    with pytest.raises(DataError, match="row 1 has no value"):
        Sequences.from_table(
            night_of_the_clock_change(library, ["00:10", None]), sequence="id", order="when"
        )
    with pytest.raises(
        DataError, match=r"when = 2024-10-27 02:10:00\+01:00 is in row 0 and in row 1"
    ):
        Sequences.from_table(
            night_of_the_clock_change(library, ["01:10", "01:10"]), sequence="id", order="when"
        )


def test_order_values_follow_a_selection_and_are_dropped_by_extension() -> None:
    frame = pd.DataFrame(COLUMNS)
    batch = Sequences.from_table(frame, sequence="id", order="time", variables=["level"])
    assert columns_of(batch[[1, 0]].to_table())["time"] == [1, 2, 1, 2, 3]
    assert columns_of(batch[1:].to_table())["time"] == [1, 2]
    assert columns_of(batch[1:].extended(1).to_table())["time"] == [0, 1, 2]


def test_order_values_follow_the_slices_that_are_kept() -> None:
    table = pd.DataFrame({"id": [1, 1, 2, 2], "t": [5, 6, 7, 8], "x": [0, 1, 1, 0]})
    kept = Sequences.from_table(table, sequence="id", order="t").slices(1)
    assert kept.to_table()["t"].tolist() == [6, 8]


def test_ordered_categories_sort_an_order_column() -> None:
    months = ["Mar", "Jan", "Feb"]
    calendar = ["Jan", "Feb", "Mar"]
    ordered = pd.Categorical(months, categories=calendar, ordered=True)
    frames = [
        pd.DataFrame({"id": 1, "month": ordered, "x": [2.5, 0.5, 1.5]}),
        pl.DataFrame(
            {"id": [1, 1, 1], "month": months, "x": [2.5, 0.5, 1.5]},
            schema_overrides={"month": pl.Enum(calendar)},
        ),
        pa.table({"id": [1, 1, 1], "month": pa.array(ordered), "x": [2.5, 0.5, 1.5]}),
    ]
    for frame in frames:
        batch = Sequences.from_table(frame, sequence="id", order="month")
        assert batch.values[:, 0].tolist() == [0.5, 1.5, 2.5]
        assert columns_of(batch.to_table())["month"] == calendar


def test_declared_categories_are_kept_with_their_order_and_unused_ones() -> None:
    sizes = ["S", "M", "L"]
    categorical = pd.Categorical(["M", None, "S"], categories=sizes, ordered=True)
    frames = [
        pd.DataFrame({"id": 1, "size": categorical}),
        pl.DataFrame(
            {"id": [1, 1, 1], "size": ["M", None, "S"]},
            schema_overrides={"size": pl.Enum(sizes)},
        ),
        pa.table({"id": [1, 1, 1], "size": pa.array(categorical)}),
    ]
    for frame in frames:
        batch = Sequences.from_table(frame, sequence="id")
        assert batch.schema[0].categories == ("S", "M", "L")
        np.testing.assert_array_equal(batch.values[:, 0], [1, NAN, 0])


def test_numeric_categorical_of_pandas_is_categorical() -> None:
    frame = pd.DataFrame({"id": 1, "x": pd.Categorical([3, 1, 3])})
    batch = Sequences.from_table(frame, sequence="id")
    assert batch.schema[0].categories == (1, 3)
    assert batch.values[:, 0].tolist() == [1, 0, 1]


def test_unordered_dictionaries_and_chunks_of_arrow_are_text() -> None:
    chunks = pa.chunked_array(
        [pa.array(["b", "a"]).dictionary_encode(), pa.array(["c", None]).dictionary_encode()]
    )
    batch = Sequences.from_table(pa.table({"id": [1, 1, 1, 1], "x": chunks}), sequence="id")
    assert batch.schema[0].categories == ("a", "b", "c")
    np.testing.assert_array_equal(batch.values[:, 0], [1, 0, 2, NAN])


def test_nullable_types_of_pandas_are_read_and_written() -> None:
    frame = pd.DataFrame(
        {
            "id": pd.array([1, 1, 2], dtype="Int64"),
            "t": pd.array([2, 1, 1], dtype="Int64"),
            "n": pd.array([30, None, 5], dtype="Int64"),
            "b": pd.array([True, None, False], dtype="boolean"),
            "x": pd.array([0.5, None, 1.5], dtype="Float64"),
            "s": pd.array(["u", None, "v"], dtype="string"),
        }
    )
    batch = Sequences.from_table(frame, sequence="id", order="t")
    np.testing.assert_array_equal(
        batch.values, [[NAN, NAN, NAN, NAN], [1, 1, 0.5, 0], [0, 0, 1.5, 1]]
    )
    table = batch.to_table()
    assert [str(table.dtypes[name]) for name in "nbx"] == ["Int64", "boolean", "float64"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_written_types_are_those_of_the_values(library: str) -> None:
    schema = Schema(
        (
            Variable.count("n"),
            Variable.binary("bit"),
            Variable.categorical("step", [0.5, 1]),
            Variable.categorical("word", ["u"]),
        )
    )
    batch = Sequences.from_codes(np.array([[4, 1, 1, 0], [NAN] * 4]), [0, 2], schema)
    assert columns_of(batch.to_table(library)) == {
        "sequence": [0, 0],
        "slice": [0, 1],
        "n": [4, None],
        "bit": [1, None],
        "step": [1.0, None],
        "word": ["u", None],
    }
    table = batch[:1].to_table("polars")
    assert table.dtypes == [pl.Int64] * 4 + [pl.Float64, pl.String]


def test_column_of_nothing_but_missing_entries_is_continuous_and_comes_back() -> None:
    for library in LIBRARIES:
        table = make_table(library, {"id": [1, 1], "x": [None, None]})
        batch = Sequences.from_table(table, sequence="id")
        assert batch.schema[0].kind is Kind.CONTINUOUS
        assert columns_of(batch.to_table(library))["x"] == [None, None]


def test_lazy_frame_and_record_batch_are_read() -> None:
    columns = {"id": [1, 1], "x": [0.5, 1.5]}
    for table in (pl.LazyFrame(columns), pa.RecordBatch.from_pydict(columns)):
        assert Sequences.from_table(table, sequence="id").values.tolist() == [[0.5], [1.5]]


def test_columns_named_by_numbers_are_found_by_their_text() -> None:
    batch = Sequences.from_table(pd.DataFrame([[1, 0.5], [1, 1.5]]), sequence="0")
    assert batch.schema.names == ("1",)


def test_schema_names_the_variables() -> None:
    schema = Schema((Variable.categorical("colour", ["red", "blue", "green"]),))
    batch = Sequences.from_table(pd.DataFrame(COLUMNS), sequence="id", order="time", schema=schema)
    assert batch.schema is schema
    assert batch.inference_notes == ()
    np.testing.assert_array_equal(batch.values[:, 0], [1, 0, 0, NAN, 0])


def test_ids_of_many_types_come_back() -> None:
    for ids in ([1.5, 2.5], [True, False], ["u", "v"], [10, 20]):
        batch = Sequences.from_arrays([[0.5], [1.5]], ids=ids)
        for library in LIBRARIES:
            again = Sequences.from_table(batch.to_table(library), sequence="sequence")
            assert again.ids == tuple(ids)


def read(columns: dict[str, list[Any]], **options: Any) -> Any:
    return lambda library: Sequences.from_table(make_table(library, columns), **options)


BITS = Schema((Variable.binary("x"),))
GOOD: dict[str, list[Any]] = {"id": [1, 1], "t": [1, 2], "x": [0, 1]}
BAD = [
    (
        read(GOOD, sequence="who"),
        "`table` has no column 'who', its columns are id, t, x; .*reset_index",
    ),
    (read(GOOD, sequence="id", order="when"), "has no column 'when'"),
    (read(GOOD, sequence="id", variables=["y"]), "has no column 'y'"),
    (read(GOOD, sequence="id", variables="x"), r"write \['x'\]"),
    (read(GOOD, sequence="id", variables=[]), "at least one column"),
    (read(GOOD, sequence="id", variables=["x", "x"]), "different names"),
    (read(GOOD, sequence="id", variables=["id"]), "both a variable and a key"),
    (read(GOOD, sequence="id", schema=Schema((Variable.count("y"),))), "has no column 'y'"),
    (read(GOOD, sequence="id", schema=BITS, variables=["t"]), "must be those of `schema`"),
    (read(GOOD, sequence="id", schema="x"), "`schema` must be a Schema"),
    (read({"id": [1, 1]}, sequence="id"), "at least one column"),
    (read({"id": [], "x": []}, sequence="id"), "at least one row"),
    (read({**GOOD, "id": [1, None]}, sequence="id"), "row 1 has no value"),
    (read({**GOOD, "id": [1.5, NAN]}, sequence="id"), "row 1 has no value"),
    (
        read({**GOOD, "t": [None, 1]}, sequence="id", order="t"),
        "'t' must have a value in every row, but row 0 has no value",
    ),
    (
        read({**GOOD, "t": [5, 5]}, sequence="id", order="t"),
        "id = 1 with t = 5 is in row 0 and in row 1",
    ),
    (
        read(
            {"id": ["a", "b", "a"], "t": ["u", "u", "u"], "x": [1, 1, 1]}, sequence="id", order="t"
        ),
        "id = 'a' with t = 'u' is in row 0 and in row 2",
    ),
    (read({**GOOD, "x": [0, 2]}, sequence="id", schema=BITS), r"sequence 0 \(id 1\), slice 1"),
    (read({**GOOD, "x": ["a", "b"]}, sequence="id", schema=BITS), "categories 0, 1, but is 'a'"),
    (read({**GOOD, "x": [0.5, float("inf")]}, sequence="id"), "'x' must hold finite numbers"),
    (
        read({**GOOD, "x": [datetime.datetime(2020, 1, 1)] * 2}, sequence="id", variables=["x"]),
        "'x' must hold numbers, booleans or strings",
    ),
]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("reading", "text"), BAD)
def test_wrong_table_is_refused(library: str, reading: Any, text: str) -> None:
    with pytest.raises(DataError, match=text):
        reading(library)


def test_mixed_and_repeated_columns_of_pandas_are_refused() -> None:
    with pytest.raises(DataError, match="'x' must hold values of one type"):
        Sequences.from_table(pd.DataFrame({"id": 1, "x": ["a", 1]}), sequence="id")
    repeated = pd.DataFrame([[1, 2, 3]], columns=["id", "x", "x"])
    with pytest.raises(DataError, match=r"different column names, but 'x' occurs 2 times"):
        Sequences.from_table(repeated, sequence="id")
    unhashable = pd.DataFrame({"id": [[1], [2]], "x": 0.5})
    with pytest.raises(DataError, match="hashable"):
        Sequences.from_table(unhashable, sequence="id")
    unsortable = pd.DataFrame({"id": [1, 1], "t": ["a", 1], "x": 0.5})
    with pytest.raises(DataError, match="sortable"):
        Sequences.from_table(unsortable, sequence="id", order="t")


def test_other_objects_are_no_tables() -> None:
    for other in ({"id": [1]}, [[1]], pd.Series([1])):
        with pytest.raises(DataError, match="`table` must be a data frame"):
            Sequences.from_table(other, sequence="id")
    with pytest.raises(DataError, match=r"use `Sequences\.from_table`"):
        Sequences.from_arrays(pd.DataFrame({"x": [1]}))


def test_table_that_cannot_be_written_is_refused() -> None:
    batch = Sequences.from_arrays([[0.5], [1.5]], ids=["a", "a"], names=["x"])
    with pytest.raises(DataError, match="ids occur more than once"):
        batch.to_table()
    assert len(batch.with_ids(None).to_table()) == 2
    with pytest.raises(DataError, match="must differ from each other"):
        batch.with_ids(None).to_table(sequence="x")
    with pytest.raises(DataError, match="must be one of pandas, polars, pyarrow"):
        batch.to_table("excel")
    mixed = batch.with_ids(["a", 1])
    for library in ("polars", "pyarrow"):
        with pytest.raises(DataError, match="of one type"):
            mixed.to_table(library)


def test_library_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(DataError, match="pip install polars"):
        Sequences.from_arrays([[0.5]]).to_table("polars")


def text_of(offsets: list[int], data: bytes) -> Any:
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


DAMAGED = {
    "offset": text_of([0, 2**30, 2], b"ab"),
    "UTF8": text_of([0, 1, 2], b"a\xff"),
    "indices": pa.DictionaryArray.from_arrays([0, 9], ["a", "b"], safe=False),
}


@pytest.mark.parametrize("case", DAMAGED)
@pytest.mark.parametrize("column", ["id", "time", "x"])
@pytest.mark.parametrize("kind", ["table", "batch", "pandas"])
def test_damaged_buffers_are_refused_before_they_are_touched(
    case: str, column: str, kind: str
) -> None:
    columns = {"id": ["a", "a"], "time": [1, 2], "x": [0.5, 1.5], column: DAMAGED[case]}
    table: Any = pa.table(columns)
    if kind == "batch":
        (table,) = table.to_batches()
    if kind == "pandas":
        arrow = {name: pd.arrays.ArrowExtensionArray(table[name]) for name in table.column_names}
        table = pd.DataFrame({name: pd.Series(cells) for name, cells in arrow.items()})
    with pytest.raises(DataError, match=f"column '{column}' .* cannot be read: .*{case}"):
        Sequences.from_table(table, sequence="id", order="time")


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([[1], [2]]),
        pa.array([{"a": 1}] * 2),
        pa.array([b"a", b"b"]),
        pa.array([2**62, 2**62 + 1]).view(pa.timestamp("s")),
        pa.array([1, 2]).view(pa.timestamp("s", "Mars/Base")),
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([[1], [2]])),
    ],
    ids=lambda cells: str(cells.type),
)
def test_cells_that_are_no_values_are_refused_with_their_column(cells: Any) -> None:
    table = pa.table({"id": ["a", "a"], "time": [1, 2], "colour": cells})
    with pytest.raises(DataError, match="'colour'"):
        Sequences.from_table(table, sequence="id", order="time")


def test_text_in_runs_is_read_as_text() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["u", "v"])
    batch = Sequences.from_table(pa.table({"id": [1, 1, 1], "x": runs}), sequence="id")
    assert batch.schema[0].categories == ("u", "v")
    assert batch.values[:, 0].tolist() == [0, 0, 1]


@pytest.mark.parametrize("library", LIBRARIES)
def test_wide_tables_are_read_in_linear_time(library: str) -> None:
    count = 20_000
    columns = pa.table({"id": ["a"], **{f"x{j}": [1.5] for j in range(count)}})
    table = columns if library == "pyarrow" else pl.from_arrow(columns)
    if library == "pandas":
        table = columns.to_pandas()
    begun = time.process_time()
    assert Sequences.from_table(table, sequence="id").values.shape == (1, count)
    assert time.process_time() - begun < 15  # 2 s, and above 30 s where a step is quadratic
