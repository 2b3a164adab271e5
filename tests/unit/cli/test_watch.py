import csv
import json
from pathlib import Path
from typing import Any

import pytest

import dspn

Run = Any

HEADER = "day,sky,celsius,visitors\n"


def test_every_slice_is_answered_as_a_filter_does(command: Run, model: Path) -> None:
    text = HEADER + "a,clear,21.5,11\nb,,14,\na,rain,,3\n"
    found = command("watch", model, "-s", "day", piped=text)
    assert found.status == 0
    rows = list(csv.DictReader(found.out.splitlines()))
    own = dspn.load(model)
    one, other = own.filter(), own.filter()
    slices: list[tuple[dspn.Filter, Any]] = [
        (one, ["clear", 21.5, 11]),
        (other, [None, 14.0, None]),
        (one, ["rain", None, 3]),
    ]
    steps = [stream.update(values) for stream, values in slices]
    assert [(row["day"], row["slice"]) for row in rows] == [("a", "0"), ("b", "0"), ("a", "1")]
    assert [float(row["surprise"]) for row in rows] == [step.surprise for step in steps]
    probabilities = one.predict()["sky"].probabilities
    assert probabilities is not None
    assert float(rows[2]["sky=rain"]) == probabilities[0, 1]


def test_json_in_and_out(command: Run, model: Path) -> None:
    lines = '{"sky": "rain", "celsius": 14}\n\n{"visitors": 3, "celsius": null}\n'
    found = command("watch", model, "--json", piped=lines)
    rows = [json.loads(line) for line in found.out.splitlines()]
    assert [row["slice"] for row in rows] == [0, 1]
    assert set(rows[0]["next"]) >= {"sky", "sky=rain", "celsius", "celsius@0.05", "visitors"}


def test_streams_are_told_apart_by_what_the_model_remembers(command: Run, model: Path) -> None:
    text = HEADER + "a,clear,21.5,11\nb,,14,\na,rain,,3\n"
    told = command("watch", model, "-s", "day", piped=text)
    assert told.err == ""
    found = command("watch", model, piped=text)
    assert found.out == told.out
    assert found.err == "note: streams by 'day', as the model was fitted; -s names another.\n"
    assert command("watch", model, "-q", piped=text).err == ""
    other = command("watch", model, piped=text.replace("day,", "week,"))
    assert [row[0] for row in other.rows()] == ["slice", "0", "1", "2"]


def test_unknown_categories_can_be_missing(command: Run, model: Path) -> None:
    text = "sky;celsius;visitors\nclear;20;9\nsnow;14;\n"
    words = ("watch", model, "--delimiter", ";")
    assert "--unknown missing" in command(*words, "--strict", piped=text).err
    found = command(*words, "--unknown", "missing", piped=text)
    assert found.out == command(*words, piped=text.replace("snow", "")).out
    assert found.err.startswith("note: row 2: 1 cell has a category")
    brief = command(*words, "--unknown", "missing", "--digits", 2, piped=text)
    assert brief.rows()[1][1] == f"{float(f'{float(found.rows()[1][1]):.2g}'):g}"


def test_slices_are_read_as_they_are_written(command: Run, model: Path, tmp_path: Path) -> None:
    usual = "day,sky,celsius,visitors\na,clear,21.5,11\na,rain,14.25,1200\n"
    given = usual.replace(",", ";").replace(".", ",").replace("1200", "1.200").encode("utf-16")
    words = ("--delimiter", ";", "--encoding", "utf-16")
    found = command("watch", model, "-q", *words, "--decimal", ",", piped=given)
    expected = command("watch", model, "-q", piped=usual).out
    assert found.out == expected.replace(",", ";").replace(".", ",").replace("@0,", "@0.")
    noted = command("watch", model, *words, piped=given)
    assert "row 1" in noted.err and "'21,5'" in noted.err and "--decimal ," in noted.err
    told = dspn.load(model)
    told.provenance = {**told.provenance, "table": {"sequence": "day", "decimal": ","}}
    told.save(tmp_path / "told.dspn")
    remembered = command("watch", "told.dspn", *words, piped=given)
    assert remembered.out == found.out
    assert "--decimal ,, as the model was fitted" in remembered.err
    assert "such as latin-1" in command("watch", model, "--encoding", "utf-99", piped=usual).err
    assert (
        "--encoding cp1252" in command("watch", model, piped="t\u00e4g,sky\n".encode("cp1252")).err
    )
    absent = command("watch", model, piped="sky\nrain\n")
    assert "note: standard input has no celsius, visitors, taken as missing." in absent.err


def test_the_name_of_a_stream_keeps_its_digits(command: Run, model: Path) -> None:
    found = command(
        "watch", model, "--json", "--digits", 1, "-q", piped='{"day": 1.25, "celsius": 9}\n'
    )
    assert json.loads(found.out)["day"] == 1.25


def test_an_impossible_slice_begins_the_stream_anew(command: Run, tmp_path: Path) -> None:
    schema = dspn.Schema((dspn.Variable.binary("x"),))
    sure = dspn.Model.from_hmm([1.0], [[1.0]], {"x": [[1.0, 0.0]]}, schema=schema)
    sure.save(tmp_path / "sure.dspn")
    found = command("watch", "sure.dspn", "--json", piped="x\n0\n1\n0\n")
    rows = [json.loads(line) for line in found.out.splitlines()]
    assert [(row["slice"], row["surprise"]) for row in rows] == [(0, 0.0), (1, "inf"), (0, 0.0)]
    assert "row 2" in found.err


def test_an_empty_line_of_one_column_is_a_missing_value(command: Run, model: Path) -> None:
    found = command("watch", model, "--json", piped="celsius\n20\n\n21\n")
    rows = [json.loads(line) for line in found.out.splitlines()]
    assert [row["slice"] for row in rows] == [0, 1, 2]
    assert rows[1]["surprise"] == pytest.approx(0.0, abs=1e-12)
    several = command("watch", model, "--json", piped="celsius,sky\n20,rain\n\n21,rain\n")
    assert len(several.out.splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("nothing on standard input",)),
        ("day;sky\na;rain\n", ("several with ';'", "--delimiter ';'")),
        (HEADER + "a,clear,warm,1\n", ("'celsius'", "row 1", "'warm'")),
        (HEADER + "a,clear,1,1\na,clear\n", ("row 2", "4 cells")),
        (HEADER + ",clear,1,1\n", ("row 1", "'day'")),
        ('{"sky": "rain", "day": 1}\n[1]\n', ("row 2", "object")),
        ('{"sky": "rain", "day": 1}\n{\n', ("row 2", "JSON")),
        ('{"sky": ["rain"], "day": 1}\n', ("row 1", "'sky'")),
        (f'{{"celsius": {2**70}, "day": 1}}\n', ("row 1", "'celsius'", str(2**70))),
        ("day,wind\n1,2\n", ("variables of the model", "day, wind")),
        ("day,sky,sky\n1,rain,rain\n", ("'sky'", "2 times")),
        (HEADER + "a,clear," + "1" * 140_000 + ",1\n", ("row 1", "field larger")),
        (HEADER.encode() + b"a,clear,1,1\na,\xff,1,1\n", ("line 3", "UTF-8")),
        ('{"sky":' + "[" * 100_000 + "\n", ("row 1", "JSON")),
        ('{"sky": "\\ud800", "day": 1}\n', ("row 1", "'sky'")),
        ('{"sky": "rain", "day": "\\ud800"}\n', ("row 1", "'day'")),
    ],
    ids=range(16),
)
def test_bad_slices_are_named(
    command: Run, model: Path, text: str | bytes, words: tuple[str, ...]
) -> None:
    found = command("watch", model, "-s", "day", "--strict", piped=text)
    assert found.status == 1
    assert len(found.err.splitlines()) == 1
    for word in words:
        assert word in found.err


def test_what_cannot_be_read_is_noted_and_the_stream_goes_on(command: Run, model: Path) -> None:
    good = "a,clear,21.5,11\na,rain,14,3\n"
    bad = b"a,clear,21.5,11\na,rain\n,rain,1,1\na,snow,warm,\xff\na,rain,14,3\n"
    words = ("watch", model, "-s", "day")
    found = command(*words, piped=HEADER.encode() + bad)
    assert found.status == 0
    text = HEADER + good.replace("a,rain", "a,,,\na,rain")
    assert found.out == command(*words, piped=text).out
    lines = found.err.splitlines()
    assert len(lines) == 5
    assert "row 2 of standard input must have 4 cells" in lines[0] and "skipped" in lines[0]
    assert "row 3 of standard input must name its stream" in lines[1]
    for line, column in zip(lines[2:], ("sky", "celsius", "visitors"), strict=True):
        assert f"{column!r}" in line and "row 4" in line and "taken as missing" in line


def test_an_alarm_names_time_variable_and_value(command: Run, model: Path) -> None:
    text = "day,hour,sky,celsius,visitors\na,8,clear,21.5,11\na,9,clear,21,900\na,10,clear,20,9\n"
    found = command("watch", model, "-s", "day", "-t", "hour", "--alarm", "1e-6", piped=text)
    header, *rows = found.rows()
    assert header[:8] == [
        *("day", "hour", "slice", "surprise", "log_likelihood", "oddest", "tail", "alarm")
    ]
    assert [(row[1], row[5], row[7]) for row in rows][1] == ("9", "visitors", "1")
    assert [row[7] for row in rows] == ["0", "1", "0"]
    assert "row 2 of a, hour 9: 'visitors' is 900, tail" in found.err
    assert len(found.err.splitlines()) == 1
    assert command("watch", model, "--alarm", "2", piped=text).status == 2


def test_a_saved_state_goes_on_to_the_same_bytes(command: Run, model: Path, tmp_path: Path) -> None:
    rows = ["a,clear,21.5,11", "b,,14,", "a,rain,,3", "b,rain,13,2", "a,clear,20,9", "c,,,"]
    words = ("watch", model, "-s", "day", "--state", tmp_path / "streams")
    whole = command(*words[:4], piped=HEADER + "\n".join(rows) + "\n").out.splitlines()
    found = []
    for part in (rows[:3], rows[3:4], rows[4:]):
        run = command(*words, "-q", piped=HEADER + "\n".join(part) + "\n")
        assert run.status == 0
        found += run.out.splitlines()[1:]
    assert found == whole[1:]
    assert "goes on with 3 streams" in command(*words, piped=HEADER + rows[0] + "\n").err
    (tmp_path / "streams").write_bytes((tmp_path / "streams").read_bytes()[:-3])
    broken = command(*words, piped=HEADER + rows[0] + "\n")
    assert broken.status == 1 and "--state must be a file that `dspn watch` wrote" in broken.err
