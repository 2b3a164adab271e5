"""Tables into shards: the same sequences as `Sequences.from_table` makes of the same rows."""

import datetime
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from dspn import Schema, Sequences, Variable
from dspn.data.dataset import Dataset, Shard
from dspn.data.files import find_tables
from dspn.data.layout import Writing
from dspn.data.order import Keys
from dspn.data.prepare import _Coding, _deal_piece, _sort_part, prepare
from dspn.data.scan import hash_ids
from dspn.errors import DataError
from dspn.executors import Processes, Threads

NOON = datetime.datetime(2024, 3, 31, 12, tzinfo=None)


def rows(num_sequences: int = 12, seed: int = 0) -> pa.Table:
    """Sequences of one to six slices, with gaps; the last of them is the longest."""
    rng = np.random.default_rng(seed)
    lengths = [*rng.integers(1, 6, num_sequences - 1), 9]
    owners = np.repeat(np.arange(num_sequences), lengths)
    count = owners.size

    def gaps() -> np.ndarray:
        return rng.random(count) < 0.2

    slices = np.concatenate([np.arange(own) for own in lengths])
    return pa.table(
        {
            "id": 100 + 7 * owners,
            "t": 2 * slices,
            "flag": pa.array(rng.integers(0, 2, count), mask=gaps()),
            "level": pa.array(rng.integers(3, 6, count), mask=gaps()),
            "size": pa.array(rng.integers(0, 300, count), mask=gaps()),
            "heat": pa.array(np.round(rng.standard_normal(count), 3), mask=gaps()),
            "word": pa.array(rng.choice(["up", "down", "l,eft"], count), mask=gaps()),
        }
    )


def shuffled(table: pa.Table, seed: int = 1) -> pa.Table:
    return table.take(pa.array(np.random.default_rng(seed).permutation(table.num_rows)))


def split(table: pa.Table, count: int) -> list[pa.Table]:
    cuts = np.linspace(0, table.num_rows, count + 1).astype(int).tolist()
    return [table.slice(a, b - a) for a, b in pairwise(cuts)]


def write(directory: Path, parts: Sequence[pa.Table], ending: str) -> Path:
    directory.mkdir(exist_ok=True)
    for number, part in enumerate(parts):
        path = directory / f"{number:03d}.{ending}"
        if ending == "parquet":
            pq.write_table(part, path)
        elif ending == "arrow":
            with pa.ipc.new_file(path, part.schema) as writer:
                writer.write_table(part)
        else:
            pa.csv.write_csv(part, path)
    return directory


def by_id(batches: Sequence[tuple[Sequence[Any], Sequences]]) -> dict[Any, np.ndarray]:
    pairs = [pair for ids, data in batches for pair in zip(ids, data, strict=True)]
    found = dict(pairs)
    assert len(found) == len(pairs), "a sequence is there twice"
    return found


def ids_of(data: Dataset, shard: Any) -> list[Any]:
    return list(shard.chunk(data.keys)[1].ids)


def assert_holds(data: Dataset, expected: Sequences, *, text_ids: bool = False) -> None:
    """The shards hold the sequences in memory, whatever their order, and nothing else."""
    assert data.schema == expected.schema
    found = by_id([(ids_of(data, own), own.load()) for own in data.shards])
    assert expected.ids is not None
    ids = [str(own) if text_ids else own for own in expected.ids]
    assert set(found) == set(ids)
    for name, values in zip(ids, expected, strict=True):
        np.testing.assert_array_equal(found[name], values)
    assert (len(data), data.total_slices) == (len(expected), expected.total_slices)


def digests(directory: Path) -> dict[str, str]:
    return {
        own.name: hashlib.sha256(own.read_bytes()).hexdigest()
        for own in sorted(directory.iterdir())
        if own.is_file()
    }


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
@pytest.mark.parametrize("form", ["sorted", "split over files", "unsorted", "rows reversed"])
@pytest.mark.parametrize("shard_slices", [1, 10])
@pytest.mark.filterwarnings("ignore:sequence .* of a shard")
def test_shards_hold_what_the_table_holds(
    tmp_path: Path, ending: str, form: str, shard_slices: int
) -> None:
    table = rows()
    given = {
        "sorted": table,
        "split over files": table,
        "unsorted": shuffled(table),
        "rows reversed": table.take(pa.array(np.arange(table.num_rows)[::-1])),
    }[form]
    source = write(tmp_path / "in", split(given, 1 if form == "sorted" else 3), ending)
    options: Any = {"sequence": "id", "order": "t", "shard_slices": shard_slices}
    data = prepare(source, tmp_path / "out", **options)
    expected = Sequences.from_table(table, sequence="id", order="t")
    assert_holds(data, expected, text_ids=ending == "csv")
    assert not (tmp_path / "out" / "work").exists()
    if shard_slices == 1:
        assert [own.num_sequences for own in data.shards] == [1] * len(data)
    if shard_slices == 10:
        sizes = [own.num_slices for own in data.shards]
        assert min(sizes[:-1]) >= 10
        assert max(sizes) < 10 + expected.lengths.max()
    if form == "sorted" and ending != "csv":
        assert [name for own in data.shards for name in ids_of(data, own)] == list(expected.ids)


def test_rows_that_are_dealt_into_parts_are_all_there(tmp_path: Path) -> None:
    table = rows(30)
    source = write(tmp_path / "in", split(shuffled(table), 4), "parquet")
    expected = Sequences.from_table(table, sequence="id", order="t")
    (tmp_path / "work").mkdir()
    schema, keys = expected.schema, Keys("id", "t")
    code = _Coding(str(tmp_path), str(tmp_path / "work"), keys, schema, Writing(()), 10)
    files = find_tables(source, None)
    owners = [
        np.array(_deal_piece(code, 5, own))
        for own in ((0, files[:1]), (1, files[1:3]), (2, files[3:]))
    ]
    found = {}
    for part in range(5):
        batches = [np.flatnonzero(own == part).tolist() for own in owners]
        for told in _sort_part(code, (part, batches))["shards"]:
            counts = told["sequences"], told["slices"], told["checksum"]
            shard = Shard(str(tmp_path / told["file"]), 0, *counts, schema)
            found.update(by_id([(list(shard.chunk(keys)[1].ids), shard.load())]))
    assert found.keys() == set(expected.ids)
    for name, values in zip(expected.ids, expected, strict=True):
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("form", ["sorted", "unsorted"])
def test_without_an_order_column_rows_stay_in_their_order(tmp_path: Path, form: str) -> None:
    table = rows().drop_columns("t")
    ids = table["id"].to_numpy()
    if form == "unsorted":  # every second row of a sequence in another file
        odd = np.arange(ids.size) % 2
        table = table.take(pa.array(np.argsort(odd, kind="stable")))
    source = write(tmp_path / "in", split(table, 2), "parquet")
    data = prepare(source, tmp_path / "out", sequence="id", shard_slices=10)
    assert_holds(data, Sequences.from_table(table, sequence="id"))


def test_a_table_without_a_sequence_column_is_one_sequence(tmp_path: Path) -> None:
    table = rows(3).drop_columns("id").set_column(0, "t", pa.array(np.arange(rows(3).num_rows)))
    write(tmp_path / "in", [shuffled(table)], "parquet")
    data = prepare(tmp_path / "in" / "000.parquet", tmp_path / "out", order="t")
    one = table.add_column(0, "id", pa.array([0] * table.num_rows))
    expected = Sequences.from_table(one, sequence="id", order="t")
    assert data.schema == expected.schema
    ((values,),) = list(data)
    np.testing.assert_array_equal(values, expected[0])
    write(tmp_path / "in", [table, table], "parquet")
    with pytest.raises(DataError, match=r"`sequence` must name the column .* of 2 files apart"):
        prepare(tmp_path / "in", tmp_path / "two", order="t")
    assert not (tmp_path / "two").exists()


ORDERS = {
    "numbers in text": [str(own) for own in range(20)],
    "fractions in text": [f"{own / 3:.6f}" for own in range(20)],
    "words": [f"step {own:03d}" for own in range(20)],
    "times": [NOON + datetime.timedelta(hours=own) for own in range(20)],
    "dates": [NOON.date() + datetime.timedelta(days=own) for own in range(20)],
    "times in text": [(NOON + datetime.timedelta(hours=own)).isoformat() for own in range(20)],
}


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_order_columns_of_every_type_sort_as_they_do_in_memory(
    tmp_path: Path, name: str, ending: str
) -> None:
    table = rows()
    place = (table["t"].to_numpy() // 2).tolist()
    ordered = table.set_column(1, "t", pa.array([ORDERS[name][own] for own in place]))
    source = write(tmp_path / "in", split(shuffled(ordered), 2), ending)
    data = prepare(source, tmp_path / "out", sequence="id", order="t")
    # The numbers that the values stand for sort as the values do.
    expected = Sequences.from_table(table, sequence="id", order="t")
    assert_holds(data, expected, text_ids=ending == "csv")


def test_times_with_offsets_sort_as_instants(tmp_path: Path) -> None:
    texts = ["2024-03-31T03:30+02:00", "2024-03-31T01:00+00:00", "2024-03-31T01:10-01:00"]
    for number, text in enumerate(texts):  # 01:30, 01:00 and 02:10 in UTC
        (tmp_path / f"{number}.csv").write_text(f"id,t,x\na,{text},{number}.5\n")
    data = prepare(str(tmp_path / "*.csv"), tmp_path / "out", sequence="id", order="t")
    ((values,),) = list(data)
    assert values.ravel().tolist() == [1.5, 0.5, 2.5]


@pytest.mark.parametrize("kind", ["text", "large text", "small integers", "dictionary", "dates"])
def test_ids_of_every_type_name_sequences(tmp_path: Path, kind: str) -> None:
    table = rows()
    place = (table["id"].to_numpy() - 100) // 7
    ids: Any = {
        "text": pa.array([f"é {own}" for own in place]),
        "large text": pa.array([f"{own:03d}" for own in place], pa.large_string()),
        "small integers": pa.array(place - 6, pa.int8()),
        "dictionary": pa.array([f"é {own}" for own in place]).dictionary_encode(),
        "dates": pa.array([NOON.date() + datetime.timedelta(days=int(own)) for own in place]),
    }[kind]
    table = table.set_column(0, "id", ids)
    source = write(tmp_path / "in", split(shuffled(table), 3), "parquet")
    data = prepare(source, tmp_path / "out", sequence="id", order="t", shard_slices=10)
    assert_holds(data, Sequences.from_table(table, sequence="id", order="t"))


def test_keys_of_other_widths_are_the_same_keys(tmp_path: Path) -> None:
    one, other = split(rows(), 2)
    narrow = other.set_column(0, "id", other["id"].cast(pa.int16()))
    narrow = narrow.set_column(1, "t", narrow["t"].cast(pa.int32()))
    source = write(tmp_path / "in", [one, narrow], "parquet")
    data = prepare(source, tmp_path / "out", sequence="id", order="t")
    assert_holds(data, Sequences.from_table(rows(), sequence="id", order="t"))
    texts = [own.set_column(0, "id", own["id"].cast(pa.string())) for own in (one, other)]
    wide = texts[1].set_column(0, "id", texts[1]["id"].cast(pa.large_string()))
    source = write(tmp_path / "text", [texts[0], wide], "parquet")
    data = prepare(source, tmp_path / "more", sequence="id", order="t")
    assert_holds(data, Sequences.from_table(rows(), sequence="id", order="t"), text_ids=True)


def test_an_id_has_one_hash_whatever_the_others_are() -> None:
    ids = [3, 2**63 + 5, 2**64 - 1, -4]
    alone = [int(hash_ids([own])[0]) for own in ids]
    assert hash_ids(ids).tolist() == alone
    assert len(set(alone)) == len(ids)
    assert hash_ids(["a", "b"]).tolist() == [int(hash_ids([own])[0]) for own in "ab"]
    assert hash_ids([]).size == 0


@pytest.mark.parametrize(
    ("cells", "missing"),
    [(["1", "NA", "0", "", "1"], None), (["up", "?", "down", "", "-"], ("?", "-"))],
)
def test_missing_words_are_missing(
    tmp_path: Path, cells: list[str], missing: tuple[str, ...] | None
) -> None:
    lines = [f"{'ab'[n % 2]},{n},{cell}" for n, cell in enumerate(cells)]
    (tmp_path / "in.csv").write_text("\n".join(["id,t,x", *lines, ""]))
    more: Any = {} if missing is None else {"missing": missing}
    data = prepare(tmp_path / "in.csv", tmp_path / "out", sequence="id", order="t", **more)
    present = [None if own in ("", "NA", *(missing or ())) else own for own in cells]
    column = pa.array(present)
    column = column.cast(pa.int64()) if missing is None else column
    ids = [("ab"[n % 2]) for n in range(len(cells))]
    table = pa.table({"id": ids, "t": range(len(cells)), "x": column})
    assert_holds(data, Sequences.from_table(table, sequence="id", order="t"))


COLUMNS: dict[str, Any] = {
    "booleans": [True, None, False] * 20,
    "one boolean": [True] * 60,
    "nothing": [None] * 60,
    "zeros and ones": [0, 1, 1] * 20,
    "a constant": [4] * 60,
    "twenty whole numbers": [own % 20 for own in range(60)],
    "more whole numbers": [own % 21 for own in range(60)],
    "large whole numbers": [2**53 + own for own in range(60)],
    "negative": [own - 30 for own in range(60)],
    "one fraction": [*range(59), 58.5],
    "many fractions": [own / 7 for own in range(60)],
    "words": [f"w{own}" for own in range(60)],
}


@pytest.mark.parametrize("parts", [1, 5])
def test_the_schema_is_that_of_the_table_in_memory(tmp_path: Path, parts: int) -> None:
    table = pa.table({"id": np.repeat(np.arange(12), 5), **COLUMNS})
    table = table.set_column(3, "nothing", pa.array(COLUMNS["nothing"], pa.float64()))
    source = write(tmp_path / "in", split(table, parts), "parquet")
    data = prepare(source, tmp_path / "out", sequence="id")
    assert_holds(data, Sequences.from_table(table, sequence="id"))
    assert "one fraction: continuous, inferred from" in "\n".join(data.notes)
    share = dict(zip(COLUMNS, data.statistics, strict=True))
    assert share["booleans"]["missing"] == pytest.approx(1 / 3, rel=1e-12)
    assert share["negative"]["range"] == [-30, 29]
    assert "missing" in repr(data)


def test_kinds_and_variables_and_schemas_that_are_given_count(tmp_path: Path) -> None:
    table = rows()
    source = write(tmp_path / "in", split(table, 2), "csv")
    options: Any = {"sequence": "id", "order": "t"}
    kinds = {"flag": "count", "level": "continuous", "size": "categorical", "word": "categorical"}
    data = prepare(source, tmp_path / "kinds", kinds=kinds, **options)
    sizes = sorted(set(table["size"].drop_null().to_pylist()))
    schema = Schema(
        (
            Variable.count("flag"),
            Variable.continuous("level"),
            Variable.categorical("size", sizes),
            Variable.continuous("heat"),
            Variable.categorical("word", ["down", "l,eft", "up"]),
        )
    )
    expected = Sequences.from_table(table, sequence="id", order="t", schema=schema)
    assert_holds(data, expected, text_ids=True)
    chosen = Schema((Variable.categorical("word", ["up", "x", "l,eft", "down"]), schema[1]))
    data = prepare(source, tmp_path / "schema", schema=chosen, **options)
    few = table.select(["id", "t", "word", "level"])
    expected = Sequences.from_table(few, sequence="id", order="t", schema=chosen)
    assert_holds(data, expected, text_ids=True)
    data = prepare(source, tmp_path / "some", variables=["heat", "flag"], **options)
    few = table.select(["id", "t", "heat", "flag"])
    assert_holds(data, Sequences.from_table(few, sequence="id", order="t"), text_ids=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": {"wurd": "binary"}}, "says 'binary' for 'wurd'"),
        ({"kinds": {"word": "text"}}, "says 'text' for 'word'"),
        ({"kinds": {"word": "binary"}}, "must have two categories"),
        (
            {"kinds": {"flag": "count"}, "schema": Schema((Variable.binary("flag"),))},
            "left out where a `schema`",
        ),
        ({"schema": Schema((Variable.binary("size"),))}, r"in '.*000\.parquet', column 'size'"),
        ({"schema": Schema((Variable.binary("other"),))}, "has no column 'other'"),
        ({"variables": ["word", "id"]}, "cannot be both a variable and a key"),
        ({"order": "id"}, "cannot be both the sequence and the order"),
        ({"sequence": "Id"}, r"has no column 'Id' \(did you mean 'id'"),
        ({"shard_slices": 0}, "shard_slices"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: Any, message: str) -> None:
    source = write(tmp_path / "in", [rows()], "parquet")
    with pytest.raises(DataError, match=message):
        prepare(source, tmp_path / "out", **{"sequence": "id", "order": "t", **options})


def test_every_executor_writes_the_same_bytes(tmp_path: Path) -> None:
    source = write(tmp_path / "in", split(shuffled(rows(40)), 4), "parquet")
    options: Any = {"sequence": "id", "order": "t", "shard_slices": 9}
    prepare(source, tmp_path / "one", **options)
    for name, executor in (("two", Threads(3)), ("three", Processes(2))):
        prepare(source, tmp_path / name, executor=executor, **options)
        assert digests(tmp_path / name) == digests(tmp_path / "one")


def test_header_only_files_among_others_change_nothing(tmp_path: Path) -> None:
    table = rows()
    empty = table.slice(0, 0)
    for ending in ("csv", "parquet"):
        parts = [empty, *split(shuffled(table), 2), empty]
        source = write(tmp_path / ending, parts, ending)
        data = prepare(source, tmp_path / f"out {ending}", sequence="id", order="t")
        expected = Sequences.from_table(table, sequence="id", order="t")
        assert_holds(data, expected, text_ids=ending == "csv")
    source = write(tmp_path / "all", [empty, empty], "csv")
    with pytest.raises(DataError, match="have headers, but no rows; there is nothing to prepare"):
        prepare(source, tmp_path / "none", sequence="id", order="t", kinds={"word": "binary"})


def test_a_column_of_nulls_in_one_file_has_no_type(tmp_path: Path) -> None:
    one, other = split(rows(), 2)
    void = pa.nulls(one.num_rows)
    one = one.set_column(6, "word", void).set_column(5, "heat", void)
    source = write(tmp_path / "in", [one, other], "parquet")
    data = prepare(source, tmp_path / "out", sequence="id", order="t")
    whole = pa.concat_tables([one, other], promote_options="permissive")
    assert_holds(data, Sequences.from_table(whole, sequence="id", order="t"))


def test_a_sequence_larger_than_a_shard_is_warned_of(tmp_path: Path) -> None:
    table = rows()
    source = write(tmp_path / "in", [table], "parquet")
    options: Any = {"sequence": "id", "order": "t", "shard_slices": 8}
    with pytest.warns(UserWarning, match="sequence 177 has 9 slices, more than the 8 of a shard"):
        data = prepare(source, tmp_path / "out", **options)
    assert_holds(data, Sequences.from_table(table, sequence="id", order="t"))


# Bad input.


def csv_files(directory: Path, *texts: str) -> Path:
    directory.mkdir()
    for number, text in enumerate(texts):
        (directory / f"{number}.csv").write_text(text)
    return directory


GOOD = "id,t,x\na,1,0\na,2,1\nb,1,1\n"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([GOOD, "id,t,y\nc,1,0\n"], r"1\.csv' has no column 'x'"),
        ([GOOD, "id,t,x,y\nc,1,0,1\n"], r"1\.csv' has 'y', which .*0\.csv' has not"),
        ([GOOD, "id,t,x,x\nc,1,0,1\n"], r"1\.csv' must have different column names"),
        ([GOOD, "id,t,x\nc,1\n"], r"1\.csv' cannot be read: .*row 1"),
        ([GOOD, ""], r"1\.csv' is empty"),
        ([GOOD, "id,t,x\nc,1,up\n"], "column 'x' .* numbers in some rows or files and words"),
        ([GOOD, "id,t,x\nc,1,0\nc,2,up\n"], r"in '.*1\.csv', .*'x'.* row 2"),
        ([GOOD, "id,t,x\n,1,0\n"], r"in '.*1\.csv', column 'id' must name .* row 1 has no value"),
        ([GOOD, "id,t,x\nc,,0\nc,1,0\n"], r"in '.*1\.csv', column 't' must .* row 1 has no value"),
        ([GOOD, "id,t,x\na,,0\n"], r"in '.*1\.csv', column 't' must have .* row 1 has no value"),
        ([GOOD, "id,t,x\nc,1,0\nc,1,1\n"], r"in '.*1\.csv', the rows .* must differ in 't'"),
        ([GOOD, "id,t,x\na,2,0\n"], "must differ in 't', but id = 'a' with t = '2' occurs twice"),
        ([GOOD, "id,t,x\nc,late,0\n"], r"holds words in .*1\.csv' and numbers in .*0\.csv'"),
    ],
)
def test_bad_tables_are_refused_with_the_name_of_the_file(
    tmp_path: Path, texts: list[str], message: str
) -> None:
    source = csv_files(tmp_path / "in", *texts)
    with pytest.raises(DataError, match=message) as error:
        prepare(source, tmp_path / "out", sequence="id", order="t")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out" / "dataset.json").exists()


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        ("id", [f"{own}" for own in range(50)], "'id' must have one type .* string in .*int64 in"),
        ("id", [own / 2 for own in range(50)], "'id' must have one type .* double in .*int64 in"),
        ("t", [NOON] * 50, r"'t' must have one type .* timestamp\[us\] in .*int64 in"),
        ("flag", ["yes"] * 50, "'flag' must have one type .* string in .*int64 in"),
        ("flag", [True] * 50, "'flag' must have one type .* bool in .*int64 in"),
        ("flag", [[1]] * 50, "'flag' of .* must hold numbers, text, truths or times"),
        ("flag", [NOON] * 50, "column 'flag' must hold numbers, but is of type timestamp"),
    ],
)
def test_columns_of_another_type_are_refused(
    tmp_path: Path, column: str, cells: list[Any], message: str
) -> None:
    one, other = split(rows(), 2)
    place = other.column_names.index(column)
    other = other.set_column(place, column, pa.array(cells[: other.num_rows]))
    source = write(tmp_path / "in", [one, other], "parquet")
    with pytest.raises(DataError, match=message):
        prepare(source, tmp_path / "out", sequence="id", order="t")


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("damage", ["cut off", "overwritten", "empty"])
def test_a_damaged_file_among_others_is_named(tmp_path: Path, ending: str, damage: str) -> None:
    source = write(tmp_path / "in", split(rows(), 3), ending)
    file = source / f"001.{ending}"
    content = file.read_bytes()
    half = len(content) // 2
    file.write_bytes({"cut off": content[:half], "overwritten": b"\0" * half, "empty": b""}[damage])
    with pytest.raises(DataError, match=rf"001\.{ending}' (cannot be read|is empty)"):
        prepare(source, tmp_path / "out", sequence="id", order="t", executor=Threads(2))


def test_a_source_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for source in (tmp_path / "none.csv", str(tmp_path / "*.csv"), tmp_path):
        with pytest.raises(DataError, match="must be a table, a directory of tables or a pattern"):
            prepare(source, tmp_path / "out", sequence="id")
    (tmp_path / "a.csv").write_text(GOOD)
    with pytest.raises(DataError, match=r"named once, but '.*a\.csv' is named 2 times"):
        prepare([tmp_path / "a.csv", tmp_path / "*.csv"], tmp_path / "out", sequence="id")


def test_a_directory_is_used_for_one_data_set(tmp_path: Path) -> None:
    source, out = csv_files(tmp_path / "in", GOOD), tmp_path / "out"
    first = prepare(source, out, sequence="id", order="t")
    before = {own.name: own.stat().st_mtime_ns for own in out.iterdir()}
    again = prepare(source, out, sequence="id", order="t")
    assert again.origin == first.origin
    assert {own.name: own.stat().st_mtime_ns for own in out.iterdir()} == before
    with pytest.raises(DataError, match="holds a data set of other files or options already"):
        prepare(source, out, sequence="id")
    manifest = out / "dataset.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 7'))
    with pytest.raises(DataError, match="is of version 7, but this release reads versions 1 and 2"):
        prepare(source, out, sequence="id", order="t")
    full = tmp_path / "full"
    full.mkdir()
    (full / "diary.txt").touch()
    with pytest.raises(DataError, match=r"must be a new or an empty directory.*'diary\.txt'"):
        prepare(source, full, sequence="id", order="t")
    assert [own.name for own in full.iterdir()] == ["diary.txt"]
    with pytest.raises(DataError, match="cannot hold a data set: "):
        prepare(source, full / "diary.txt", sequence="id", order="t")


def test_an_unfinished_preparation_of_other_data_is_refused(tmp_path: Path) -> None:
    source, out = csv_files(tmp_path / "in", GOOD, "id,t,x\nc,1,up\n"), tmp_path / "out"
    with pytest.raises(DataError, match="words"):
        prepare(source, out, sequence="id", order="t")
    (source / "1.csv").unlink()
    with pytest.raises(DataError, match="holds the unfinished preparation of other files"):
        prepare(source, out, sequence="id", order="t")
    with pytest.raises(DataError, match="words"):
        (source / "1.csv").write_text("id,t,x\nc,1,up\n")
        os.utime(source / "1.csv", ns=(0, 0))
        prepare(source, tmp_path / "more", sequence="id", order="t")
    with pytest.raises(DataError, match="its preparation was not finished"):
        Dataset.open(out)


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("form", ["sorted", "unsorted"])
def test_preparation_goes_on_from_wherever_it_was_interrupted(tmp_path: Path, form: str) -> None:
    ids = rows(30)
    parts = split(shuffled(ids), 3)
    if form == "sorted":
        parts = [rows(10).set_column(0, "id", pc.add(rows(10)["id"], 1000 * n)) for n in range(3)]
    source = write(tmp_path / "in", parts, "parquet")
    options: Any = {"sequence": "id", "order": "t", "shard_slices": 10}
    told: list[str] = []
    prepare(source, tmp_path / "whole", on_progress=lambda own, *_: told.append(own), **options)
    assert told[:3] == ["scan"] * 3
    assert set(told[3:]) == ({"code"} if form == "sorted" else {"deal", "sort"})
    shares: list[float] = []
    prepare(source, tmp_path / "told", on_progress=lambda *own: shares.append(own[2]), **options)
    assert shares == sorted(shares) and 0 < shares[0] < 0.34 and shares[-1] == 1.0
    seen: list[str] = []

    def stop(stage: str, *_: Any) -> None:
        seen.append(stage)
        raise StoppedError

    out = tmp_path / "out"
    for _ in range(2):
        with pytest.raises(StoppedError):
            prepare(source, out, on_progress=stop, **options)
    again: list[str] = []

    def stop_later(stage: str, *_: Any) -> None:
        again.append(stage)
        if len(again) == 5:
            raise StoppedError

    with pytest.raises(StoppedError):
        prepare(source, out, on_progress=stop_later, **options)
    assert again == told[:5]
    last: list[str] = []
    prepare(source, out, on_progress=lambda own, *_: last.append(own), **options)
    assert last == told[3:]  # what was scanned is not scanned again
    assert digests(out) == digests(tmp_path / "whole")


SLOW = """
import sys, time
from dspn.data.prepare import prepare

def tell(stage, *_):
    print(stage, flush=True)
    time.sleep(0.02)

prepare(sys.argv[1], sys.argv[2], sequence="id", order="t", shard_slices=10, on_progress=tell)
"""


def test_a_killed_preparation_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    source = write(tmp_path / "in", split(shuffled(rows(60)), 6), "parquet")
    options: Any = {"sequence": "id", "order": "t", "shard_slices": 10}
    prepare(source, tmp_path / "whole", **options)
    out = tmp_path / "out"
    words = [sys.executable, "-c", SLOW, str(source), str(out)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for number, _ in enumerate(process.stdout):
            if number == 7:
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert not (out / "dataset.json").exists()
    assert_holds(prepare(source, out, **options), whole(source))
    assert digests(out) == digests(tmp_path / "whole")
    assert not (out / "work").exists()


def whole(source: Path) -> Sequences:
    table = pa.concat_tables([pq.read_table(own) for own in sorted(source.iterdir())])
    return Sequences.from_table(table, sequence="id", order="t")
