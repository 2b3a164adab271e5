import gzip
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dspn
from dspn.cli.sources import opened

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


def test_a_row_longer_than_a_block_is_named(
    command: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dspn.cli.sources._BLOCK", 64)
    text = "day,hour,sky,celsius,visitors\na,1,,,\na,2,," + "1" * 200 + ",\n"
    found = command("score", model, piped=text)
    assert found.status == 1
    assert "too long" in found.err


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("block", [5, 2**20])
def test_an_empty_line_of_one_column_is_a_missing_value(
    command: Run, monkeypatch: pytest.MonkeyPatch, end: str, block: int
) -> None:
    monkeypatch.setattr("dspn.cli.sources._BLOCK", block)
    schema = dspn.Schema((dspn.Variable.continuous("x"),))
    dspn.Model.from_hmm([1.0], [[1.0]], {"x": [[0.0, 1.0]]}, schema=schema).save("plain.dspn")
    lines = ["x", "", "1", "", "", "2", '""', "", ""]
    data = end.join([*lines, ""]).encode()
    Path("x.csv").write_bytes(data)
    for words, piped in ((("x.csv",), None), ((), data)):
        found = command("impute", "plain.dspn", *words, "-q", piped=piped)
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
        with pytest.raises(type(error), match="elsewhere"), opened(str(days)):
            raise error
