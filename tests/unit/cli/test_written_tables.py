"""Tables as people write them: each is read as it is meant, or refused with the option to say."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dspn.data.dataset import Dataset
from dspn.data.prepare import prepare

from .conftest import Run

FIT = ("fit", "-", "-s", "id", "--learner", "em", "--interfaces", 1, "--validation", 0)


def table(*cells: str) -> str:
    rows = (f'{"ab"[row % 2]},"{cell}",0.{row}1\n' for row, cell in enumerate(cells))
    return "id,x,y\n" + "".join(sorted(rows))


@pytest.mark.parametrize(
    ("cells", "remedies"),
    [
        (["1,5", "2,25", "3,75"], ["decimal commas", "--decimal ,", "--kind x=categorical"]),
        (["1.234,5", "12,5"], ["--decimal ,"]),
        (["1,234.5", "12,345,678.0"], ["signs between thousands", "--decimal ."]),
        (["1,234", "5,678"], ["--decimal , or --decimal ., as the decimal sign is"]),
        (["1 234,5", "2 345,5"], ["--decimal ,"]),
        (["12 %", "7.5%"], ["numbers with %: take the sign out"]),
        (["$12.50", "€7"], ["numbers with $ and €"]),
        (["12,5 EUR", "7 EUR"], ["numbers with EUR"]),
        (["5", "1,5", "2"], ["numbers or words, but not both", "--decimal ,"]),
    ],
)
def test_numbers_with_signs_do_not_become_categories(
    command: Run, tmp_path: Path, cells: list[str], remedies: list[str]
) -> None:
    output = tmp_path / "x.dspn"
    found = command(*FIT, "-o", output, piped=table(*cells))
    assert found.status == 1 and len(found.err.splitlines()) == 1
    assert all(remedy in found.err for remedy in ("'x'", *remedies))
    said = command(*FIT, "--kind", "x=categorical", "-o", output, piped=table(*cells))
    assert said.status == 0


@pytest.mark.parametrize(
    ("decimal", "cells", "values"),
    [
        (",", ["1,5", "1.234,25", "-12.345.678", "7", "1 000,5", ",5"], None),
        (".", ["1.5", "1,234.25", "-12,345,678", "7", "1'000.5", ".5"], None),
    ],
)
def test_the_decimal_sign_says_what_a_number_is(
    command: Run, tmp_path: Path, decimal: str, cells: list[str], values: Any
) -> None:
    text = "x\n" + "".join(f'"{cell}"\n' for cell in cells)
    (tmp_path / "x.csv").write_text(text)
    data = prepare(tmp_path / "x.csv", tmp_path / "shards", decimal=decimal)
    (found,) = data
    np.testing.assert_array_equal(
        found.values[:, 0], [1.5, 1234.25, -12345678, 7, 1000.5, 0.5], strict=True
    )
    wrong = "1.5" if decimal == "," else "1,5"
    said = command("validate", "-", "--decimal", decimal, piped=f'x\n"{cells[0]}"\n"{wrong}"\n')
    assert said.status == 1 and repr(wrong) in said.out and "row 2" in said.out


def test_gaps_are_filled_with_the_decimal_sign_of_the_table(command: Run, tmp_path: Path) -> None:
    text, model = 'id;x\na;"1,5"\na;\nb;"2,5"\nb;"1,0"\n', tmp_path / "x.dspn"
    how = ("--delimiter", ";")
    assert command(*FIT, *how, "--decimal", ",", "-o", model, piped=text).status == 0
    found = command("impute", model, *how, "--digits", 3, piped=text)
    assert found.out.splitlines()[:3] == ["id;x", "a;1,5", "a;1,67"]
    assert "--decimal ,, as the model was fitted" in found.err


def test_a_model_remembers_the_words_for_missing_values_and_bands_have_the_sign(
    command: Run, tmp_path: Path
) -> None:
    rows = "".join(f"{'ab'[n // 6]};{n % 6};{n},{n}5\n" for n in range(12))
    (tmp_path / "x.csv").write_text("id;t;x\n" + rows + "b;6;n.v.\n")
    words = ("--delimiter", ";", "--decimal", ",", "--missing", "n.v.")
    fit = ("fit", "x.csv", "-s", "id", "-t", "t", "--learner", "em", "--interfaces", 2)
    assert command(*fit, *words, "-o", "x.dspn", "-q").status == 0
    found = command("impute", "x.dspn", "x.csv", "--delimiter", ";", "--levels", "0.1")
    assert "--decimal , --missing n.v., as the model was fitted" in found.err
    last = list(csv.reader(found.out.splitlines(), delimiter=";"))[-1]
    assert len(last) == 4 and all("," in cell and "." not in cell for cell in last[2:])


@pytest.fixture
def comma(command: Run, tmp_path: Path) -> tuple[str, str]:
    """The same table with decimal commas and with points; models of both are in tmp_path."""
    rng = np.random.default_rng(0)
    cells = ((i, t, x) for i in "ab" for t, x in enumerate(rng.normal(1500, 400, 12)))
    text = "id;t;x\n" + "".join(f"{i};{t};{x:.3f}\n" for i, t, x in cells) + "b;12;\n"
    texts = text.replace(".", ","), text
    for name, own, sign in zip(("comma", "point"), texts, ",.", strict=True):
        (tmp_path / f"{name}.csv").write_text(own)
        how = ("--delimiter", ";", "--decimal", sign, "--learner", "em", "--interfaces", 2)
        keys = ("-s", "id", "-t", "t", "--seed", 0, "-q")
        assert command("fit", f"{name}.csv", *keys, *how, "-o", f"{name}.dspn").status == 0
    return texts


@pytest.mark.parametrize(
    "query",
    [
        "forecast --steps 2",
        "impute --levels 0.1,0.9",
        "complete",
        "score",
        "surprise",
        "surprise --by sequence",
        "surprise --top 3",
        "evaluate",
        "backtest --steps 2",
        "sample",
        "watch",
    ],
)
def test_answers_are_written_as_the_table_is_read(
    command: Run, comma: tuple[str, str], query: str
) -> None:
    name, *options = query.split()
    found = []
    for table, text in zip(("comma", "point"), comma, strict=True):
        given: tuple[Any, ...] = (f"{table}.csv", "--delimiter", ";")
        piped = text if name == "watch" else None
        if piped:
            given = ("--delimiter", ";")
        elif name == "sample":
            given = ("--seed", 0, "-n", 3)
        asked = command(name, f"{table}.dspn", *given, *options, "-q", piped=piped)
        assert asked.status == 0, asked.err
        found.append(asked.out)
    with_commas, with_points = (own.splitlines() for own in found)
    rows = [line.split(",") for line in with_points[1:]]
    assert with_commas[0].split(";") == with_points[0].split(",")
    assert [line.split(";") for line in with_commas[1:]] == [
        [cell.replace(".", ",") for cell in row] for row in rows
    ]
    assert "," in "".join(with_commas[1:])


@pytest.mark.parametrize("query", ["forecast", "impute", "impute --levels 0.1"])
def test_numbers_are_numbers_in_formats_that_have_them(
    command: Run, comma: tuple[str, str], query: str
) -> None:
    name, *options = query.split()
    both = [
        command(name, f"{own}.dspn", f"{own}.csv", "--delimiter", ";", *options, "--json", "-q")
        for own in ("comma", "point")
    ]
    assert both[0].status == 0 and both[0].out == both[1].out
    assert isinstance(json.loads(both[0].out.splitlines()[-1])["x"], float)


def test_answers_about_a_table_with_decimal_commas_can_be_read_again(
    command: Run, comma: tuple[str, str]
) -> None:
    how = ("--delimiter", ";", "--decimal", ",", "-q")
    assert command("impute", "comma.dspn", "comma.csv", *how, "-o", "whole.csv").status == 0
    assert command("score", "comma.dspn", "whole.csv", *how).status == 0
    quoted = "id,t,x\n" + "".join(f'a,{t},"1,{t}5"\n' for t in range(4)) + "a,4,\n"
    found = command("impute", "comma.dspn", "-", "--decimal", ",", "--digits", 3, piped=quoted)
    assert found.out.splitlines()[1] == 'a,0,"1,05"'


@pytest.mark.parametrize(
    ("first", "second", "form"),
    [
        ("Jan 1 2000", "Feb 1 2000", "%b %d %Y"),
        ("January 1, 2000", "February 1, 2000", "%B %d, %Y"),
        ("1-Jan-2000 10:30", "1-Feb-2000 10:30", "%d-%b-%Y %H:%M"),
    ],
)
def test_months_by_name_do_not_sort_as_text(
    command: Run, first: str, second: str, form: str
) -> None:
    text = f'id,when,x\na,"{first}",1.5\na,"{second}",2.5\n'
    found = command("validate", "-", "-s", "id", "-t", "when", piped=text)
    assert found.status == 1 and f"--dates '{form}'" in found.out
    said = command("validate", "-", "-s", "id", "-t", "when", "--dates", form, piped=text)
    assert said.status == 0 and "31 d" in said.err
    words = command("validate", "-", "-s", "id", "-t", "when", piped="id,when,x\na,may day,1\n")
    assert words.status == 0


def test_a_remedy_can_be_pasted_into_a_shell(command: Run) -> None:
    found = command("validate", "-", piped="Temp C\n1.5\nwarm\n")
    assert found.status == 1 and "--kind 'Temp C=categorical'" in found.out


def test_what_was_expected_has_the_digits_that_are_asked_for(
    command: Run, comma: tuple[str, str]
) -> None:
    asked = ("surprise", "comma.dspn", "comma.csv", "--delimiter", ";", "--top", 2, "-q")
    rows = command(*asked, "--digits", 3).out.splitlines()[1:]
    assert all(len(row.split(";")[5].replace(",", "").strip("-0")) <= 3 for row in rows)


def test_a_comment_in_place_of_the_header_is_named(command: Run) -> None:
    found = command("validate", "-", piped="# from a vendor\nid,x\na,1\n")
    assert "must be the header, but is a comment, '# from a vendor'" in found.out


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_text_of_other_encodings_is_read_when_it_is_named(
    command: Run, tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("id,größe\na,kühl\na,warm\n".encode(encoding))
    found = command("validate", path, "-s", "id", "--encoding", encoding)
    assert found.status == 0 and "größe" in found.err and "kühl" in found.err
    plain = command("validate", path, "-s", "id")
    assert plain.status == 1 and "--encoding" in plain.out
    assert command("validate", path, "--encoding", "nothing").status == 1


def test_all_columns_that_are_wrong_are_named_at_once(command: Run, tmp_path: Path) -> None:
    text = 'id,x,y,z\na,1,2,"1,5"\na,b,2,"2,5"\na,1,c,"2,5"\n'
    found = command(*FIT, "-o", tmp_path / "x.dspn", piped=text)
    assert found.status == 1 and found.err.startswith("error: 3 columns cannot be read: (1)")
    assert all(f"({n}) column {name!r}" in found.err for n, name in enumerate("xyz", 1))
    assert command(*FIT, "--exclude", "x", "-o", tmp_path / "x.dspn", piped=text).err.startswith(
        "error: 2 columns"
    )


HOURS = """id,when,x,sky
a,2024-10-27T01:00,1,clear
a,2024-10-27T02:00,2,clear
a,2024-10-27T02:00,4,rain
a,2024-10-27T05:00,8,clear
b,2024-10-27T03:00,1,
"""


@pytest.mark.parametrize(
    ("rule", "kept"), [("first", ["2", "clear"]), ("last", ["4", "rain"]), ("mean", ["3", "clear"])]
)
@pytest.mark.parametrize("form", ["csv", "parquet", "shards", "shards apart"])
def test_repeats_and_missing_slices_follow_the_rules_that_are_said(
    command: Run, tmp_path: Path, rule: str, kept: list[str], form: str
) -> None:
    refused = command("validate", "-", "-s", "id", "-t", "when", piped=HOURS)
    assert refused.status == 1 and "--duplicates first, last or mean" in refused.out
    path, keys = tmp_path / "x.csv", ("-s", "id", "-t", "when", "--kind", "x=continuous")
    text = HOURS
    if form == "shards apart":
        lines = HOURS.splitlines(keepends=True)
        text = "".join(
            [lines[0], lines[-1], *lines[1:4], lines[-1].replace("03:", "04:"), lines[4]]
        )
    path.write_text(text)
    if form == "parquet":
        cells = pa.csv.read_csv(path)
        path = tmp_path / "x.parquet"
        pq.write_table(cells, path)
    how = ("--every", "1h", "--duplicates", rule)
    if form.startswith("shards"):
        made = command("prepare", path, *keys, *how, "-o", tmp_path / "shards")
        assert made.status == 0, made.err
        data = Dataset.open(tmp_path / "shards")
        (shard,) = data.shards
        chunk, found = shard.chunk(data.keys)
        (place,) = (n for n, own in enumerate(found.ids or ()) if own == "a")
        values = found[place]
        sky = data.schema[1].categories[int(values[1, 1])]
        assert [f"{values[1, 0]:g}", sky] == kept
        assert np.isnan(values[2:4]).all() and values[4, 0] == 8
        order = chunk.table["when"].to_pylist()[found.offsets[place] : found.offsets[place + 1]]
        assert [str(own)[11:16] for own in order] == ["01:00", "02:00", "03:00", "04:00", "05:00"]
        return
    model = tmp_path / "x.dspn"
    fitted = command("fit", path, *keys, *how, *FIT[4:], "-o", model)
    assert fitted.status == 0 and "2 sequences of 1 to 5 slices, 6 in all" in fitted.err
    found = command("impute", model, path)
    assert "--duplicates" in found.err and "--every 1h" in found.err
    rows = found.rows()
    assert [row[2:] for row in rows[1:3]] == [["1", "clear"], kept]
    assert [row[1][11:16] for row in rows[1:6]] == ["01:00", "02:00", "03:00", "04:00", "05:00"]
    assert all(row[2] and row[3] for row in rows[1:])


@pytest.mark.parametrize(
    ("every", "finding"),
    [
        ("2h", "must go on by 2 h from the first slice of each sequence, but row 2"),
        ("1", "times; say the unit"),
        ("1x", "must be a step such as '1h'"),
        ("1us", "would make"),
    ],
)
def test_steps_that_do_not_fit_are_refused(command: Run, every: str, finding: str) -> None:
    how = ("-s", "id", "-t", "when", "--duplicates", "first", "--every", every)
    found = command("validate", "-", *how, piped=HOURS)
    assert found.status == 1 and finding in found.out


@pytest.mark.parametrize(
    ("form", "texts"),
    [
        ("%d.%m.%Y %H:%M", ["09.03.2024 23:00", "10.03.2024 00:00", "10.03.2024 02:00"]),
        ("%m/%d/%y", ["12/30/23", "12/31/23", "01/02/24"]),
        ("%d.%m.%Y %H:%M%z", ["27.10.2024 02:00+0200", "27.10.2024 02:00+0100"]),
    ],
)
def test_dates_are_read_and_written_in_their_format(
    command: Run, form: str, texts: list[str]
) -> None:
    rows = "".join(f"a,{text},{row}.5\n" for row, text in enumerate(texts))
    text = f"id,when,x\n{rows}"
    assert "--dates" in command("validate", "-", "-s", "id", "-t", "when", piped=text).out
    how = ("-s", "id", "-t", "when", "--dates", form)
    found = command("validate", "-", *how, piped=text)
    assert found.status == 0, found.out
    if len(texts) == 3:
        assert "puts in 1 slice" in found.err
    else:
        assert "steps of 'when' are all 1 h" in found.err
    wrong = command("validate", "-", *how, piped=text + "a,yesterday,1.5\n")
    assert wrong.status == 1 and "'yesterday' in row" in wrong.out


def test_validate_says_what_fit_would_say(command: Run) -> None:
    text = "id,when,x,n\n" + "".join(f"a,{when},0.5,{when % 3}\n" for when in (1, 2, 3, 5))
    found = command("validate", "-", "-s", "id", "-t", "when", piped=text)
    for part in (
        "continuous",
        "few whole numbers",
        "1 sequence of 4 slices",
        "--every 1 puts in 1",
    ):
        assert part in found.err
    told = command("validate", "-", "-s", "id", "-t", "when", "--json", piped=text)
    assert '"kind": "continuous"' in told.out and '"gaps": 1' in told.out
    assert '"absent": 1' in told.out
