import gzip
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

import dspn
from dspn.cli.source import open_table
from dspn.data.chunks import chunks
from dspn.data.order import Keys

Run = Any


@pytest.fixture
def expected(command: Run, model: Path, days: Path) -> str:
    out: str = command("score", model, days).out
    return out


def test_other_spellings_of_csv_read_the_same(
    command: Run, model: Path, days: Path, expected: str, tmp_path: Path
) -> None:
    text = days.read_text()
    (tmp_path / "days.csv.gz").write_bytes(gzip.compress(text.encode()))
    plain = text.replace('"c, d"', "c")
    (tmp_path / "days.tsv").write_text(plain.replace(",", "\t"))
    (tmp_path / "crlf.csv").write_bytes(text.replace("\n", "\r\n").encode())
    (tmp_path / "mark.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    (tmp_path / "lines.csv").write_text(text.replace('"c, d"', '"c\n""d"""'))
    (tmp_path / "blank.csv").write_text("\n" + text)
    (tmp_path / "returns.csv").write_bytes(text.replace("\n", "\r").encode())
    (tmp_path / "spaces.csv").write_text(text.replace("21.5", " 21.5 "))
    for name in (
        "days.csv.gz",
        "days.tsv",
        "crlf.csv",
        "mark.csv",
        "lines.csv",
        "spaces.csv",
        "returns.csv",
    ):
        found = command("score", model, name)
        assert (found.status, found.out) == (0, expected), (name, found.err)
    filled = command("impute", model, "lines.csv").out
    assert '"c\n""d"""' in filled


@pytest.mark.parametrize(("mark", "said"), [(";", "';'"), ("\t", "tab"), ("|", "'|'")])
def test_another_delimiter_is_told(
    command: Run, model: Path, days: Path, expected: str, mark: str, said: str
) -> None:
    text = days.read_text().replace('"c, d"', "c").replace(",", mark)
    Path("other.csv").write_text(text)
    for words, piped in ((("other.csv",), None), ((), text)):
        found = command("score", model, *words, piped=piped)
        assert found.status == 1 and len(found.err.splitlines()) == 1
        assert f"--delimiter {said}" in found.err
        told = command("score", model, *words, "--delimiter", said.strip("'"), piped=piped)
        assert (told.status, told.out) == (0, expected), told.err
    assert command("validate", "other.csv", "--delimiter", mark, "--model", model).status == 0
    for wrong in ("", ";;", '"'):
        assert command("score", model, "other.csv", "--delimiter", wrong).status == 2


def test_a_delimiter_that_is_told_is_believed(command: Run) -> None:
    words = ("fit", "-", "--learner", "em", "--interfaces", 1, "-o", "m.dspn", "-q")
    text = "a;b\n1.5\n2.5\n"
    assert command(*words, piped=text).status == 1
    assert command(*words, "--delimiter", ",", piped=text).status == 0
    assert command("inspect", "m.dspn").status == 0


def test_typed_tables_in_pipes_are_told_by_their_beginning(
    command: Run, model: Path, days: Path, expected: str
) -> None:
    from pyarrow import csv, ipc

    table = csv.read_csv(days, convert_options=csv.ConvertOptions(strings_can_be_null=True))
    parquet, arrow = pa.BufferOutputStream(), pa.BufferOutputStream()
    pq.write_table(table, parquet)
    with ipc.new_file(arrow, table.schema) as writer:
        writer.write_table(table)
    for stream in (parquet, arrow):
        found = command("score", model, piped=stream.getvalue().to_pybytes())
        assert (found.status, found.out) == (0, expected), found.err


def test_streams_of_arrow_and_dictionaries_are_read(
    command: Run, model: Path, days: Path, expected: str
) -> None:
    from pyarrow import csv, ipc

    table = csv.read_csv(days, convert_options=csv.ConvertOptions(strings_can_be_null=True))
    for name in ("day", "sky"):
        number = table.column_names.index(name)
        table = table.set_column(number, name, table.column(number).dictionary_encode())
    with ipc.new_stream("days.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    found = command("score", model, "days.arrow")
    assert (found.status, found.out) == (0, expected), found.err
    assert command("impute", model, "days.arrow").out.startswith("day,hour,sky")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes that have a name")
def test_a_pipe_with_a_name_is_read(
    command: Run, model: Path, days: Path, expected: str, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    sender = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[days.read_bytes()])
    sender.start()
    found = command("score", model, "pipe")
    sender.join()
    assert (found.status, found.out) == (0, expected), found.err


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("x.csv", b"day,sky\na,\xff\n", ("row 1", "UTF8")),
        ("x.csv", b"d\xffy,sky\na,b\n", ("UTF-8", "header")),
        ("x.parquet", b"PAR1 but no more", ("cannot be read",)),
        ("x.arrow", b"nothing of that kind", ("cannot be read",)),
        ("x.arrow", b"ARROW1\0\0 but no more", ("not an Arrow file",)),
        ("x.csv.gz", b"not packed", ("cannot be read",)),
        ("x.parquet", b"", ("empty",)),
        ("directory.csv", None, ("directory",)),
        ("directory", None, ("is a directory; name a table in it",)),
    ],
)
def test_damaged_files_are_named(
    command: Run, model: Path, name: str, data: bytes | None, words: tuple[str, ...]
) -> None:
    if data is None:
        Path(name).mkdir()
    else:
        Path(name).write_bytes(data)
    found = command("validate", name, "-s", "day")
    assert found.status == 1
    assert len(found.out.splitlines()) == 1
    assert f"'{name}'" in found.out
    for word in words:
        assert word in found.out


def text_of(offsets: list[int], data: bytes) -> Any:
    """A column of text whose buffers nobody has checked."""
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


DAMAGED = {
    "offset": text_of([0, 4, 2**30, 8], b"rainrain"),
    "UTF8": text_of([0, 4, 5, 9], b"rain\xffrain"),
    "indices": pa.DictionaryArray.from_arrays([0, 9, 1], ["clear", "rain"], safe=False),
    "dictionary": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 1]), text_of([0, 2**30, 8], b"rainrain"), safe=False
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
@pytest.mark.parametrize("column", ["day", "hour", "sky"])
@pytest.mark.parametrize("make", [ipc.new_file, ipc.new_stream])
def test_damaged_columns_are_named_before_they_are_touched(
    command: Run, model: Path, case: str, column: str, make: Any
) -> None:
    good = {"day": ["a"] * 3, "hour": [1, 2, 3], "sky": ["rain"] * 3, "note": [None] * 3}
    table = pa.table({**good, "celsius": [20.0] * 3, "visitors": [9] * 3, column: DAMAGED[case]})
    with make("x.arrow", table.schema) as writer:
        writer.write_table(table)
    data = ("x.arrow", "-s", "day")
    for words in (
        ("score", model, *data),
        ("impute", model, *data),
        ("fit", *data, "-o", "m.dspn"),
        ("classify", "fit", *data, "--label", "sky", "-o", "m.dspn"),
        ("validate", *data),
        ("plot", "imputed", model, "x.arrow", "-o", "x.png"),
        ("report", model, "x.arrow", "-o", "x.html"),
    ):
        found = command(*words, "-q")
        said = found.out if words[0] == "validate" else found.err
        assert found.status == 1
        assert len(said.splitlines()) == 1
        assert f"column '{column}' of 'x.arrow' is damaged: " in said
        assert case in said or case == "dictionary"


def test_text_of_parquet_that_is_not_utf8_is_named(command: Run, model: Path) -> None:
    columns = {"day": ["a"], "hour": [1], "celsius": [20.0], "visitors": [9]}
    pq.write_table(pa.table({**columns, "sky": text_of([0, 4], b"rai\xff")}), "x.parquet")
    found = command("score", model, "x.parquet")
    assert found.status == 1
    assert "column 'sky' of 'x.parquet' is damaged: invalid UTF8" in found.err


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([[1], [2]]),
        pa.array([{"a": 1}] * 2),
        pa.array([b"a", b"b"]),
        pa.array([[("a", 1)]] * 2, pa.map_(pa.string(), pa.int64())),
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([[1], [2]])),
    ],
    ids=lambda cells: str(cells.type),
)
def test_columns_of_lists_and_the_like_are_named(command: Run, model: Path, cells: Any) -> None:
    columns = {"day": ["a"] * 2, "hour": [1, 2], "sky": ["rain"] * 2}
    numbers = {"celsius": [20.0] * 2, "visitors": [9] * 2}
    for column in ("day", "hour", "sky", "celsius"):
        table = pa.table({**columns, **numbers, column: cells})
        with ipc.new_file("x.arrow", table.schema) as writer:
            writer.write_table(table)
        for words in (("score", model, "x.arrow"), ("fit", "x.arrow", "-s", "day", "-o", "m.dspn")):
            found = command(*words, "-q")
            assert found.status == 1
            assert f"column '{column}' of 'x.arrow' must hold" in found.err
            assert f"of type {cells.type}" in found.err


def test_columns_that_are_no_variables_may_hold_lists(command: Run, model: Path) -> None:
    columns = {"day": ["a"], "hour": [1], "sky": ["rain"], "celsius": [20.0], "visitors": [9]}
    pq.write_table(pa.table({**columns, "tags": [[1, 2]]}), "x.parquet")
    assert command("impute", model, "x.parquet", "-o", "out.parquet").status == 0
    assert pq.read_table("out.parquet")["tags"].to_pylist() == [[1, 2]]
    found = command("impute", model, "x.parquet", "-o", "out.csv", "-q")
    assert found.status == 1
    assert "column 'tags' of type list" in found.err and "--format" in found.err


def test_text_that_is_always_missing_may_be_a_column_of_numbers(command: Run, model: Path) -> None:
    columns = {"day": ["a"], "hour": [1], "sky": [float("nan")], "celsius": [20.0], "visitors": [9]}
    pq.write_table(pa.table(columns), "x.parquet")
    found = command("impute", model, "x.parquet")
    assert found.out.splitlines()[1] == "a,1,clear,20,9", found.err


def test_a_whole_number_without_room_among_numbers_is_named(command: Run, model: Path) -> None:
    columns = {"day": ["a"], "hour": [1], "sky": ["rain"], "celsius": [2**53 + 1], "visitors": [9]}
    pq.write_table(pa.table(columns), "x.parquet")
    found = command("impute", model, "x.parquet")
    assert found.status == 1
    assert "column 'celsius' of type int64" in found.err and str(2**53 + 1) in found.err


def test_packed_tables_that_are_cut_off_or_damaged_are_named(
    command: Run, model: Path, days: Path
) -> None:
    data = gzip.compress(days.read_bytes() * 50, mtime=0)
    for cut in range(11, len(data), 13):
        Path("x.csv.gz").write_bytes(data[:cut])
        found = command("score", model, "x.csv.gz")
        assert found.status == 1
        assert found.err == "error: 'x.csv.gz' cannot be read: it is cut off; copy it again.\n"
    for place in range(10, len(data), 5):
        struck = bytearray(data)
        struck[place] ^= 255
        Path("x.csv.gz").write_bytes(struck)
        found = command("score", model, "x.csv.gz")
        assert found.status == 1
        assert "'x.csv.gz'" in found.err or "column" in found.err
        assert "--debug" not in found.err


def test_text_that_is_not_utf8_is_named_with_its_column(command: Run) -> None:
    Path("x.csv").write_bytes(b"day,sky,celsius\na,rain,1\na,\xff,2\n")
    found = command("validate", "x.csv", "-s", "day", "-q").out
    assert "'x.csv'" in found and "column 'sky'" in found and "row 2" in found
    Path("x.csv").write_bytes("day,sky\na,rain\n".encode("utf-16-le"))
    assert "UTF-16" in command("validate", "x.csv", "-q").out
    Path("x.csv").write_bytes(b"\xef\xbb\xbf")
    assert "is empty" in command("validate", "x.csv", "-q").out


def test_wide_tables_are_read_in_linear_time(tmp_path: Path) -> None:
    count = 60_000
    names = [f"x{number}" for number in range(count)]
    table = pa.table({"day": ["a"], **dict.fromkeys(names, pa.array([1.5]))})
    path = str(tmp_path / "wide.arrow")
    with ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    begun = time.process_time()
    with open_table(path) as source:
        (chunk,) = chunks(source, Keys("day"), names)
    schema = dspn.Schema(tuple(map(dspn.Variable.continuous, names)))
    found = chunk.sequences(schema).select(names[::-1])
    assert time.process_time() - begun < 15  # 3 s, and above 30 s where a step is quadratic
    assert found.values.shape == (1, count)


def test_wide_tables_are_written_in_linear_time(command: Run) -> None:
    names = [f"x{number}" for number in range(5_000)]
    schema = dspn.Schema(tuple(map(dspn.Variable.continuous, names)))
    emissions = {name: [[0.0, 1.0]] for name in names}
    dspn.Model.from_hmm([1.0], [[1.0]], emissions, schema=schema).save("wide.dspn")
    Path("wide.csv").write_text(",".join(names) + "\n" + "1.5," * 4_999 + "\n")
    for words in (("impute", "-o", "out.parquet"), ("surprise", "--digits", "3", "-o", "out.csv")):
        begun = time.process_time()
        found = command(words[0], "wide.dspn", "wide.csv", "-q", *words[1:])
        assert found.status == 0, found.err
        assert time.process_time() - begun < 15  # 2 s, and above 30 s where a step is quadratic


def test_a_header_that_does_not_end_is_refused_in_linear_time(command: Run) -> None:
    Path("x.csv").write_bytes(b'"day,sky\n' + b"a,1\n" * 400_000)
    begun = time.process_time()
    assert command("validate", "x.csv", "-q").status == 1
    assert time.process_time() - begun < 10


def test_a_row_longer_than_a_block_is_named(command: Run, model: Path) -> None:
    text = "day,hour,sky,celsius,visitors\na,1,,,\na,2,," + "1" * 200 + ",\n"
    found = command("score", model, "--block-size", 64, piped=text)
    assert found.status == 1
    assert "too long" in found.err


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("block", [5, 2**20])
def test_an_empty_line_of_one_column_is_a_missing_value(command: Run, end: str, block: int) -> None:
    schema = dspn.Schema((dspn.Variable.continuous("x"),))
    dspn.Model.from_hmm([1.0], [[1.0]], {"x": [[0.0, 1.0]]}, schema=schema).save("plain.dspn")
    lines = ["x", "", "1", "", "", "2", '""', "", ""]
    data = end.join([*lines, ""]).encode()
    Path("x.csv").write_bytes(data)
    for words, piped in ((("x.csv",), None), ((), data)):
        found = command("impute", "plain.dspn", *words, "-q", "--block-size", block, piped=piped)
        assert found.out == "x\n0\n1\n0\n0\n2\n0\n", found.err
    assert "no rows" in command("impute", "plain.dspn", piped=b"x" + 2 * end.encode()).err


def test_ids_that_python_hashes_alike_are_told_apart(command: Run, model: Path) -> None:
    columns = {"day": [-1, -2, 0], "hour": [1, 1, 1], "sky": ["rain"] * 3}
    numbers = {"celsius": [20.0] * 3, "visitors": [9] * 3}
    pq.write_table(pa.table({**columns, **numbers}), "in.parquet")
    found = command("score", model, "in.parquet")
    assert [row[0] for row in found.rows()[1:]] == ["-1", "-2", "0"], found.err


def test_what_fails_after_reading_does_not_blame_the_file(days: Path) -> None:
    for error in (pa.ArrowInvalid("elsewhere"), OSError("elsewhere")):
        with pytest.raises(type(error), match="elsewhere"), open_table(str(days)):
            raise error
