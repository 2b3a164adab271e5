"""What is wrong with a table is said in one sentence with the row, the column and the value."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dspn import Model
from dspn.cli.options import Reading, Target
from dspn.cli.sink import write_table
from dspn.cli.source import open_table
from dspn.data.chunks import chunks
from dspn.data.order import Keys
from dspn.errors import DataError

Run = Any

HEADER = "day,hour,sky,celsius,visitors\n"
BAD = {
    "mixed types": (
        HEADER + "a,1,rain,20,9\na,2,rain,warm,9\n",
        ("'celsius'", "row 2", "'warm'"),
    ),
    "unknown category": (
        HEADER + "a,1,rain,20,9\na,2,snow,20,9\n",
        ("'sky'", "row 2", "'snow'", "'clear', 'rain'"),
    ),
    "no count": (HEADER + "a,1,rain,20,9.5\n", ("'visitors'", "row 1", "9.5")),
    "negative count": (HEADER + "a,1,rain,20,-1\n", ("'visitors'", "row 1", "-1")),
    "infinite": (HEADER + "a,1,rain,inf,9\n", ("'celsius'", "row 1", "inf", "finite")),
    "duplicate pair": (
        HEADER + "a,1,rain,20,9\na,2,rain,20,9\na,1,rain,20,9\n",
        ("day = 'a'", "hour = '1'", "row 1", "row 3"),
    ),
    "comes back": (
        HEADER + "a,1,rain,20,9\nb,2,rain,20,9\na,3,rain,20,9\n",
        ("day = 'a'", "row 1", "row 3", "--sort"),
    ),
    "no id": (HEADER + "a,1,rain,20,9\n,2,rain,20,9\n", ("'day'", "row 2")),
    "no order": (HEADER + "a,1,rain,20,9\na,,rain,20,9\n", ("'hour'", "row 2")),
    "order is nan": (HEADER + "a,1,rain,20,9\na,nan,rain,20,9\n", ("'hour'", "row 2")),
    "ragged": (HEADER + "a,1,rain,20,9\na,2,rain\n", ("row 2", "Expected 5 columns, got 3")),
    "empty": ("", ("empty",)),
    "blank": ("\n\n", ("empty",)),
    "header only": (HEADER, ("header", "no rows")),
    "two columns of a name": ("day,day\n1,2\n", ("'day'", "2 times")),
    "near miss": (
        HEADER.replace("celsius", "Celsius") + "a,1,rain,20,9\n",
        ("'celsius'", "did you mean 'Celsius'?", "day, hour, sky, Celsius, visitors"),
    ),
    "no such key": (
        "Tag,hour,sky,celsius,visitors\na,1,rain,20,9\n",
        ("'day'", "the model was fitted with it", "--sequence"),
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("piped", [False, True])
def test_bad_tables_are_named_in_one_sentence(
    command: Run, model: Path, tmp_path: Path, case: str, piped: bool
) -> None:
    text, words = BAD[case]
    (tmp_path / "bad.csv").write_text(text)
    (tmp_path / "out.csv").write_text("old")
    if piped:
        found = command("score", model, "-", "-o", "out.csv", piped=text)
    else:
        found = command("score", model, "bad.csv", "-o", "out.csv")
    assert found.status == 1
    assert found.err.startswith("error: ")
    assert len(found.err.splitlines()) == 1
    for word in words:
        assert word in found.err
    assert (tmp_path / "out.csv").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["bad.csv", "out.csv", "weather.dspn"]


def test_rows_that_lie_apart_are_sorted_on_demand(command: Run, model: Path, days: Path) -> None:
    header, *rows = days.read_text().splitlines(keepends=True)
    apart = "".join([header, rows[3], rows[0], rows[2], rows[4], rows[1]])
    found = command("impute", model, "--sort", piped=apart).out.splitlines()
    whole = command("impute", model, days).out.splitlines()
    assert found == [whole[0], whole[4], whole[1], whole[3], whole[5], whole[2]]
    scores = command("score", model, "--sort", piped=apart).rows()
    assert [row[0] for row in scores[1:]] == ["tue", "mon"]
    assert command("score", model, piped=apart).status == 1


def test_a_sequence_that_comes_back_in_a_later_chunk_is_found(command: Run, model: Path) -> None:
    rows = "".join(f"s{number},1,rain,20,9\n" for number in range(60))
    sizes = ("--chunk-rows", 4, "--block-size", 64)
    found = command("score", model, *sizes, piped=HEADER + rows + "s3,2,rain,20,9\n")
    assert found.status == 1
    assert "day = 's3' begins in row 4 and comes back in row 61" in found.err


def test_numbers_sort_as_numbers_and_words_among_them_are_named(command: Run, model: Path) -> None:
    rows = "".join(f"a,{number},,{number},\n" for number in (10, 9, 100))
    found = command("impute", model, piped=HEADER + rows)
    assert found.status == 0
    rows = "".join(f"a{number},{number},,,\n" for number in range(1200))
    found = command("score", model, piped=HEADER + rows + "b,late,,,\n")
    assert found.status == 1
    assert "'hour'" in found.err and "row 1201" in found.err and "'late'" in found.err


def test_missing_words_can_be_chosen(command: Run, model: Path) -> None:
    text = HEADER + "a,1,NA,n/a,\na,2,rain,-,9\n"
    assert "'celsius'" in command("score", model, piped=text).err
    found = command("score", model, "--missing", "-,NA,n/a", piped=text)
    assert found.status == 0


def test_a_word_that_is_a_category_is_not_missing(command: Run, tmp_path: Path) -> None:
    from dspn import Schema, Variable

    schema = Schema((Variable.categorical("land", ["DE", "NA"]),))
    own = Model.from_hmm([1.0], [[1.0]], {"land": [[0.75, 0.25]]}, schema=schema)
    own.save(tmp_path / "land.dspn")
    found = command("impute", "land.dspn", "-s", "id", piped="id,land\na,NA\nb,\n")
    assert found.out == "id,land\na,NA\nb,DE\n"


def test_a_file_that_changes_while_it_is_read_leaves_no_output(tmp_path: Path, days: Path) -> None:
    output = tmp_path / "scores.csv"
    with (
        pytest.raises(DataError, match="changed while it was being read"),
        open_table(str(days), Reading(block_size=70)) as source,
        write_table(Target(str(output)), "csv") as sink,
    ):
        # The chunk is small, so that there is something left to read when the file has grown.
        for chunk in chunks(source, Keys("day"), ["sky"], chunk_rows=2):
            with days.open("a") as file:
                file.write("wed,1,,,\n")
            sink.write(chunk.table)
    assert not output.exists()


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(
    command: Run, model: Path, days: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    Path("scores.csv").write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"dspn.cli.sink.os.{call}", full)
    before = sorted(os.listdir())
    found = command("score", model, days, "-o", "scores.csv")
    assert found.status == 1
    assert "no space left on device" in found.err and "unchanged" in found.err
    assert Path("scores.csv").read_text() == "old"
    assert sorted(os.listdir()) == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device /dev/full")
def test_a_device_without_room_is_named(command: Run, model: Path, days: Path) -> None:
    found = command("score", model, days, "-o", "/dev/full", "--format", "csv")
    assert found.status == 1
    assert "/dev/full" in found.err and "no space left" in found.err


def test_the_input_may_be_the_output(command: Run, model: Path, days: Path) -> None:
    expected = command("impute", model, days).out
    assert command("impute", model, days, "-o", days).status == 0
    assert days.read_text() == expected


def test_usage_is_told_from_data(command: Run, model: Path, days: Path) -> None:
    for words in (
        ("score",),
        ("score", model, days, "--by", "x"),
        ("surprise", model, days, "--by", "week"),
        ("forecast", model, days, "--steps", "0"),
        ("forecast", model, days, "--levels", "5,x"),
        ("fit", days, "-o", "m.dspn", "--kind", "sky"),
        ("fit", days, "-o", "m.dspn", "--learner", "em"),
        ("fit", days, "-o", "m.csv"),
        ("classify", "fit", days, "--label", "sky", "-o", "m"),
        ("plot", "nothing", model, "-o", "x.png"),
        ("unknown",),
    ):
        found = command(*words)
        assert found.status == 2, words
        assert found.err.startswith("usage: ") and len(found.err.splitlines()) == 1
    assert "'KIND'" in command("plot").err
    for words, said in (
        (("--kind", "sky=cuont"), "is 'sky=cuont' (did you mean 'count'?)"),
        (("--time-limit", "0"), "--time-limit must be more than 0 seconds, but is 0; leave it out"),
    ):
        found = command("fit", days, "-o", "m.dspn", *words)
        assert found.status == 2 and said in found.err
    found = command("fit", days, "-o", "m.dspn", "--input", "houre")
    assert (
        found.status == 1 and "'houre' is no column of the table (did you mean 'hour'" in found.err
    )
    assert command("score", model, days, "-o", "nowhere/x.csv").status == 1
    assert command("score", model, days, "-o", "x.doc").status == 1
    assert command("score", model, "table.doc").status == 1
    assert command("score", "none.dspn", days).status == 1


def test_debug_shows_where(command: Run, model: Path) -> None:
    from dspn.errors import DataError

    with pytest.raises(DataError):
        command("score", model, "none.csv", "--debug")


@pytest.mark.parametrize(
    ("column", "cells", "words"),
    [
        ("day", [1.0, float("nan")], "row 2 has no value"),
        ("hour", [float("nan"), 1.5], "row 1 has no value"),
        ("day", [[1], [2]], "but is of type list"),
    ],
)
def test_keys_without_a_value_are_named(
    command: Run, model: Path, column: str, cells: list[Any], words: str
) -> None:
    keys = {"day": [1, 1], "hour": [1, 2], column: cells}
    variables = {"sky": ["rain"] * 2, "celsius": [20.0] * 2, "visitors": [9] * 2}
    pq.write_table(pa.table({**keys, **variables}), "in.parquet")
    found = command("score", model, "in.parquet")
    assert found.status == 1
    assert f"column '{column}'" in found.err and words in found.err


@pytest.mark.parametrize("exists", [False, True])
def test_a_directory_that_may_not_be_written_is_named_before_any_work(
    command: Run, model: Path, days: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    if exists:
        Path("scores.csv").write_text("old")
    directory = os.getcwd()
    monkeypatch.setattr("dspn.cli.sink.os.access", lambda path, _: path != directory)
    for words in (("score", model, days, "-o", "scores.csv"), ("fit", days, "-o", "m.dspn")):
        found = command(*words)
        assert found.status == 1
        assert f"permission denied in {directory!r}" in found.err
    monkeypatch.setattr("dspn.cli.sink.os.access", lambda path, _: path != "/dev")
    assert command("score", model, days, "-o", os.devnull, "--format", "csv").status == 0


@pytest.mark.parametrize("typed", [False, True])
def test_counts_reach_up_to_the_last_whole_number_that_floats_tell_apart(
    command: Run, model: Path, tmp_path: Path, typed: bool
) -> None:
    last = next(n for n in (2**k - 1 for k in range(40, 64)) if float(n + 1) == float(n + 2))
    table = {"day": ["a"], "hour": [1], "sky": ["rain"], "celsius": [20.0]}
    for count, status in ((0, 0), (last, 0), (last + 1, 1), (last + 2, 1)):
        if typed:
            pq.write_table(pa.table({**table, "visitors": [count]}), tmp_path / "t.parquet")
            found = command("score", model, "t.parquet")
        else:
            found = command("score", model, "-", piped=f"{HEADER}a,1,rain,20,{count}\n")
        assert found.status == status, found.err
        if status:
            assert "'visitors' must hold counts" in found.err and "row 1" in found.err
