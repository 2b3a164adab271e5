import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import dspn
from dspn import Sequences

Run = Any


def read(path: Path, model: dspn.Model) -> Sequences:
    """The table as the library reads it."""
    options = pa.csv.ConvertOptions(strings_can_be_null=True)
    table = pa.csv.read_csv(path, convert_options=options)
    return Sequences.from_table(table, sequence="day", order="hour", schema=model.schema)


@pytest.fixture
def known(model: Path) -> dspn.Model:
    return dspn.load(model)


def test_score_has_a_row_for_each_sequence(
    command: Run, model: Path, days: Path, known: dspn.Model
) -> None:
    found = command("score", model, days)
    assert found.status == 0
    assert found.err == ""
    header, *rows = found.rows()
    assert header == ["day", "log_likelihood", "slices", "per_slice"]
    assert [(row[0], row[2]) for row in rows] == [("mon", "3"), ("tue", "2")]
    expected = known.log_likelihood(read(days, known))
    np.testing.assert_allclose([float(row[1]) for row in rows], expected, rtol=1e-12)
    np.testing.assert_allclose([float(row[3]) for row in rows], expected / [3, 2], rtol=1e-12)


def test_impute_keeps_what_was_observed_as_it_stood(
    command: Run, model: Path, days: Path, known: dspn.Model
) -> None:
    found = command("impute", model, days)
    lines = found.out.splitlines()
    filled = known.impute(read(days, known)).values
    assert lines[0] == "day,hour,sky,celsius,visitors,note"
    assert lines[1] == "mon,1,clear,21.5,11,a"
    assert lines[2].startswith("mon,2,clear,") and lines[2].endswith(",7,b")
    assert float(lines[2].split(",")[3]) == pytest.approx(filled[1, 1], rel=1e-12)
    assert lines[3] == f'mon,3,rain,15.1,{int(filled[2, 2])},"c, d"'
    assert lines[4] == f"tue,1,{['clear', 'rain'][int(filled[3, 0])]},14.80,5,"


def test_complete_fills_jointly(command: Run, model: Path, days: Path, known: dspn.Model) -> None:
    found = command("complete", model, days, "--json")
    rows = [json.loads(line) for line in found.out.splitlines()]
    best = known.complete(read(days, known)).sequences.to_table("pyarrow").to_pylist()
    for row, other in zip(rows, best, strict=True):
        assert row["sky"] == other["sky"]
        assert row["celsius"] == pytest.approx(other["celsius"], rel=1e-12)
        assert row["visitors"] == other["visitors"]
    assert rows[3]["note"] is None


def test_rows_that_are_not_sorted_are_answered_in_the_order_of_the_table(
    command: Run, model: Path, days: Path, tmp_path: Path
) -> None:
    header, *rows = days.read_text().splitlines(keepends=True)
    shuffled = tmp_path / "shuffled.csv"
    shuffled.write_text("".join([header, rows[2], rows[0], rows[1], rows[4], rows[3]]))
    for query in ("impute", "surprise"):
        whole = command(query, model, days).out.splitlines()
        other = command(query, model, shuffled).out.splitlines()
        assert other == [whole[0], whole[3], whole[1], whole[2], whole[5], whole[4]]


def test_surprise_adds_up_to_the_score(command: Run, model: Path, days: Path) -> None:
    header, *rows = command("surprise", model, days).rows()
    names = ["sky", "celsius", "visitors"]
    assert header == ["day", "hour", *names, "slice_surprise", "oddest", "tail"]
    assert rows[1][3] == ""  # missing entries have no surprise
    total = sum(float(row[5]) for row in rows if row[0] == "mon")
    score = float(command("score", model, days).rows()[1][1])
    assert total == pytest.approx(-score, rel=1e-10)


def test_surprise_by_sequence_ranks(command: Run, model: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.csv"
    odd.write_text(
        "day,hour,sky,celsius,visitors\na,1,clear,20,9\nb,5,clear,20,9\nb,7,clear,20,60\n"
    )
    header, first, second = command("surprise", model, odd, "--by", "sequence").rows()
    assert header[:2] == ["rank", "day"]
    assert (first[0], first[1], first[5]) == ("1", "b", "7")
    assert (second[0], second[1]) == ("2", "a")
    assert first[header.index("oddest") : header.index("oddest") + 2] == ["visitors", "7"]
    header, *cells = command("surprise", model, odd, "--top", 4).rows()
    assert header == (["rank", "day", "hour", "variable", "value", "expected", "tail", "surprise"])
    assert cells[0][:5] == ["1", "b", "7", "visitors", "60"]
    assert 5 <= float(cells[0][5]) <= 15
    assert [row[0] for row in cells] == ["1", "2", "3", "4"]
    tails = [float(row[6]) for row in cells]
    assert tails == sorted(tails)
    by_parts = command("surprise", model, odd, "--top", 4, "--chunk-rows", 1).rows()
    assert by_parts == [header, *cells]


def test_forecast_has_distributions(
    command: Run, model: Path, days: Path, known: dspn.Model
) -> None:
    found = command("forecast", model, days, "--steps", 2, "--levels", "0.1,0.9")
    header, *rows = found.rows()
    assert header[:2] == ["day", "step"]
    assert "celsius@0.5" not in header
    ahead = known.forecast(read(days, known), 2, quantiles=(0.1, 0.5, 0.9)).marginals
    assert [(row[0], row[1]) for row in rows] == [
        ("mon", "1"),
        ("mon", "2"),
        ("tue", "1"),
        ("tue", "2"),
    ]
    assert ahead["sky"].probabilities is not None
    rain = [float(row[header.index("sky=rain")]) for row in rows]
    np.testing.assert_allclose(rain, ahead["sky"].probabilities[:, 1], rtol=1e-12)
    high = [float(row[header.index("celsius@0.9")]) for row in rows]
    np.testing.assert_allclose(high, ahead["celsius"].quantiles[:, 2], rtol=1e-12)
    median = [float(row[header.index("visitors")]) for row in rows]
    np.testing.assert_array_equal(median, ahead["visitors"].quantiles[:, 1])


@pytest.mark.parametrize("query", ["score", "surprise", "forecast", "impute"])
def test_digits_are_as_many_as_asked_for(command: Run, model: Path, days: Path, query: str) -> None:
    exact = command(query, model, days).rows()
    short = command(query, model, days, "--digits", 3).rows()
    assert exact[0] == short[0]
    assert exact != short
    for row, other in zip(exact[1:], short[1:], strict=True):
        for cell, brief in zip(row, other, strict=True):
            if cell != brief:
                assert brief == f"{float(f'{float(cell):.3g}'):g}"
    # What was observed stands as it stood.
    assert query != "impute" or ["tue", "1", "rain", "14.80", "5", ""] in short
    assert command(query, model, days, "--digits", 18).status == 2


def test_samples_have_as_many_digits_as_asked_for(command: Run, model: Path) -> None:
    found = command("sample", model, "--seed", 1, "--digits", 2).rows()
    assert all(len(row[3].replace(".", "").lstrip("0")) <= 2 for row in found[1:])


def test_imputation_has_bands_and_marks(command: Run, model: Path, days: Path) -> None:
    plain = command("impute", model, days).rows()
    header, *rows = command("impute", model, days, "--levels", "0.1,0.9", "--mark").rows()
    bands = ["sky@p", "celsius@0.1", "celsius@0.9", "visitors@0.1", "visitors@0.9"]
    assert header == [*plain[0], *bands, "filled"]
    assert rows[0][-6:] == [""] * 6
    low, value, high = (
        float(rows[1][header.index(n)]) for n in ("celsius@0.1", "celsius", "celsius@0.9")
    )
    assert low < value < high
    assert [row[-1] for row in rows] == ["", "celsius", "visitors", "sky", "visitors"]
    assert 0.5 <= float(rows[3][header.index("sky@p")]) <= 1


def test_what_is_known_ahead_is_evidence(
    command: Run, model: Path, days: Path, tmp_path: Path, known: dspn.Model
) -> None:
    (tmp_path / "ahead.csv").write_text("day,hour,sky,visitors\nmon,4,rain,\nmon,5,,3\n")
    words = ("forecast", model, days, "--steps", 3, "--levels", "0.1,0.9")
    header, *rows = command(*words, "--known", "ahead.csv").rows()
    plain = command(*words).rows()
    assert header == plain[0]
    assert rows[3:] == plain[4:]  # nothing is known of the other day
    values = read(days, known)[:1]
    future = [[["rain", None, None], [None, None, 3]]]
    expected = known.forecast(values, 3, quantiles=(0.1, 0.9), known=future).marginals["celsius"]
    found = [float(row[header.index("celsius")]) for row in rows[:3]]
    np.testing.assert_allclose(found, expected.mean, rtol=1e-12)
    assert rows[0][header.index("sky")] == "rain" and rows[0][header.index("sky=rain")] == ""
    assert rows[1][header.index("visitors")] == "3"
    (tmp_path / "ahead.csv").write_text("day,hour,wind\nmon,4,1\n")
    assert "--known must have columns" in command(*words, "--known", "ahead.csv").err


def test_evaluations_are_tables_of_scores(command: Run, model: Path, tmp_path: Path) -> None:
    drawn = command("sample", model, "-n", 30, "--length", 20, "--seed", 1, "-o", "new.csv", "-q")
    assert drawn.status == 0
    found = command("evaluate", model, "new.csv", "--seed", 3, "--season", 5)
    header, *rows = found.rows()
    assert "hidden: 20 % of the entries at random, seed 3" in found.err
    methods = ["model", "mean", "last value", "interpolation", "seasonal naive"]
    assert [row[:2] for row in rows] == [
        [name, method] for name in ("sky", "celsius", "visitors") for method in methods
    ]
    rmse = [float(row[header.index("rmse")]) for row in rows[5:10]]
    assert rmse[0] == min(rmse)
    assert 0.6 < float(rows[5][header.index("coverage")]) < 0.95
    tested = command("backtest", model, "new.csv", "--steps", 2, "--origins", 3, "-q").rows()
    assert [row[:3] for row in tested[1:4]] == [
        ["sky", "1", "model"],
        ["sky", "1", "mean"],
        ["sky", "1", "last value"],
    ]
    assert command("evaluate", model, "new.csv", "--hide", "last", "--steps", 20).status == 1


def test_forecasts_say_where_the_order_goes_on(command: Run, model: Path, days: Path) -> None:
    header, *rows = command("forecast", model, days, "--steps", 2).rows()
    assert header[:3] == ["day", "step", "hour"]
    assert [row[2] for row in rows] == ["4", "5", "3", "4"]


def test_an_order_that_goes_on_only_in_a_later_chunk_is_written(command: Run, model: Path) -> None:
    rows = [f"s{day},2024-03-{day + 1:02d},rain,20,9\n" for day in range(9)]
    rows += [f"t,2024-03-{day:02d},rain,20,9\n" for day in (1, 3, 5)]
    text = "day,hour,sky,celsius,visitors\n" + "".join(rows)
    sizes = ("--chunk-rows", 2, "--block-size", 64)
    found = command("forecast", model, "--json", *sizes, piped=text)
    assert found.status == 0, found.err
    assert [json.loads(line)["hour"] for line in found.out.splitlines()] == (
        [None] * 9 + ["2024-03-07"]
    )


def test_unknown_categories_can_be_missing(command: Run, model: Path, days: Path) -> None:
    odd = days.read_text().replace("rain", "snow").replace("tue,1,,", "tue,1,fog,")
    gaps = odd.replace("snow", "").replace("fog", "")
    refused = command("score", model, piped=odd)
    assert refused.status == 1 and "--unknown missing" in refused.err
    found = command("score", model, "--unknown", "missing", piped=odd)
    assert found.out == command("score", model, piped=gaps).out
    assert found.err == (
        "note: 2 cells have categories that the model does not know, taken as missing: "
        "2 in 'sky'.\n"
    )
    quiet = command("impute", model, "--unknown", "missing", "-q", piped=odd)
    assert (quiet.out, quiet.err) == (command("impute", model, piped=gaps).out, "")


def test_unknown_numbers_and_truths_can_be_missing(command: Run, tmp_path: Path) -> None:
    schema = dspn.Schema(
        (dspn.Variable.categorical("n", [2, 5]), dspn.Variable.categorical("b", [False, True]))
    )
    own = dspn.Model.from_hmm(
        [1.0], [[1.0]], {"n": [[0.25, 0.75]], "b": [[0.5, 0.5]]}, schema=schema
    )
    own.save(tmp_path / "own.dspn")
    text = "id,n,b\na,3,maybe\na,5,true\n"
    words = ("score", "own.dspn", "-s", "id")
    assert command(*words, piped=text).status == 1
    found = command(*words, "--unknown", "missing", piped=text)
    assert float(found.rows()[1][1]) == pytest.approx(np.log(0.75 * 0.5), rel=1e-12)
    assert "1 in 'n', 1 in 'b'" in found.err


def test_a_file_that_was_written_is_named(command: Run, model: Path, days: Path) -> None:
    assert command("impute", model, days, "-o", "whole.csv").err == "wrote whole.csv: 5 rows\n"
    assert command("sample", model, "--seed", 1, "--length", 1, "-o", "one.parquet").err == (
        "wrote one.parquet: 1 row\n"
    )
    ranked = command("surprise", model, days, "--by", "sequence", "-o", "ranks.json")
    assert ranked.err == "wrote ranks.json: 2 rows\n"
    assert command("impute", model, days, "-q", "-o", "whole.csv").err == ""


def test_sample_is_repeated_by_its_seed(command: Run, model: Path) -> None:
    one = command("sample", model, "-n", 3, "--length", 2, "--seed", 7)
    assert one.out == command("sample", model, "-n", 3, "--length", 2, "--seed", 7).out
    assert one.rows()[0] == ["day", "hour", "sky", "celsius", "visitors"]
    assert [row[:2] for row in one.rows()[1:4]] == [["0", "0"], ["0", "1"], ["1", "0"]]
    assert "seed" in command("sample", model).err


def test_pipes_in_and_out(command: Run, model: Path, days: Path) -> None:
    filled = command("impute", model, "-", piped=days.read_bytes()).out
    assert filled == command("impute", model, days).out
    Path("filled.csv").write_text(filled)
    assert command("score", model, piped=filled).out == command("score", model, "filled.csv").out


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.arrow", "out.feather", "out.json"])
def test_formats_hold_the_same(command: Run, model: Path, days: Path, name: str) -> None:
    assert command("impute", model, days, "-o", name).status == 0
    if name.endswith("json"):
        rows = [json.loads(line) for line in Path(name).read_text().splitlines()]
        assert rows[0]["hour"] == 1
        return
    found = command("score", model, name)
    assert found.out == command("score", model, piped=command("impute", model, days).out).out


def test_types_of_keys_are_kept(command: Run, model: Path, tmp_path: Path) -> None:
    table = pa.table(
        {
            "day": pa.array([7, 7, 8], pa.int16()),
            "hour": pa.array([0, 1, 0], pa.timestamp("s")),
            "sky": pa.array(["rain", None, "clear"]).dictionary_encode(),
            "celsius": pa.array([None, 20, 21], pa.int32()),
            "visitors": pa.array([1, None, 3], pa.uint8()),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    assert command("impute", model, "in.parquet", "-o", "out.parquet").status == 0
    out = pq.read_table("out.parquet")
    assert out.schema.field("day").type == pa.int16()
    assert pa.types.is_timestamp(out.schema.field("hour").type)
    assert out.schema.field("celsius").type == pa.float64()  # a mean has a fraction
    assert out.schema.field("visitors").type == pa.int64()  # there has to be room for any count
    assert out["celsius"].to_pylist()[1:] == [20.0, 21.0]
    command("score", model, "in.parquet", "-o", "scores.feather")
    assert pyarrow.feather.read_table("scores.feather")["day"].to_pylist() == [7, 8]


def test_ids_with_leading_zeros_stay_text(command: Run, model: Path, days: Path) -> None:
    text = days.read_text().replace("mon", "007").replace("tue", "8")
    assert command("score", model, piped=text).out.splitlines()[1].startswith("007,")
    assert json.loads(command("score", model, "--json", piped=text).out.splitlines()[0])["day"] == (
        "007"
    )
    numbers = text.replace("007", "7")
    assert json.loads(command("score", model, "--json", piped=numbers).out.splitlines()[0])[
        "day"
    ] == (7)


def test_a_table_without_sequences_is_one(command: Run, tmp_path: Path) -> None:
    plain = dspn.Model.from_hmm(
        [1.0], [[1.0]], {"x": [[0.0, 1.0]]}, schema=dspn.Schema((dspn.Variable.continuous("x"),))
    )
    plain.save(tmp_path / "plain.dspn")
    found = command("score", "plain.dspn", piped="x\n1\n2\n")
    assert found.rows()[1][2] == "2"
    assert "one sequence" in found.err
    assert command("score", "plain.dspn", "-q", piped="x\n1\n").err == ""


def test_chunks_do_not_change_answers(command: Run, model: Path, long: Path) -> None:
    for query in ("score", "impute"):
        expected = command(query, model, long).rows()
        found = command(query, model, long, "--chunk-rows", 7, "--block-size", 200).rows()
        for row, other in zip(found, expected, strict=True):
            assert row[:3] == other[:3] or query == "score"
            assert row[0] == other[0]
            if row != other:  # but for the last digits
                np.testing.assert_allclose(float(row[3]), float(other[3]), rtol=1e-12)


def test_impossible_sequences_are_noted_by_id(command: Run, tmp_path: Path) -> None:
    sure = dspn.Model.from_hmm(
        [1.0], [[1.0]], {"x": [[1.0, 0.0]]}, schema=dspn.Schema((dspn.Variable.binary("x"),))
    )
    sure.save(tmp_path / "sure.dspn")
    found = command("score", "sure.dspn", "-s", "id", piped="id,x\na,0\nb,1\n")
    assert found.status == 0
    assert found.rows()[2][1] == "-inf"
    assert "sequence 'b'" in found.err and len(found.err.splitlines()) == 1
    as_json = command("score", "sure.dspn", "-s", "id", "--json", piped="id,x\nb,1\n")
    assert json.loads(as_json.out)["log_likelihood"] == "-inf"


def test_a_sequence_with_an_impossible_slice_is_infinitely_surprising(
    command: Run, tmp_path: Path
) -> None:
    """Nothing is known of what follows the impossible slice, and it does not hide the total."""
    sure = dspn.Model.from_hmm(
        [1.0], [[1.0]], {"x": [[1.0, 0.0]]}, schema=dspn.Schema((dspn.Variable.binary("x"),))
    )
    sure.save(tmp_path / "sure.dspn")
    table = "id,x\na,0\na,0\nb,0\nb,1\nb,0\n"
    found = command("surprise", "sure.dspn", "-s", "id", "--by", "sequence", piped=table)
    header, first, second = found.rows()
    assert header[:7] == ["rank", "id", "total", "slices", "per_slice", "worst", "worst_surprise"]
    assert first == ["1", "b", "inf", "3", "inf", "1", "inf", "x", "1", "inf", "0"]
    assert [*second[:2], float(second[2]), float(second[4])] == ["2", "a", 0.0, 0.0]


def test_the_worst_slice_is_that_of_the_order_in_rows_of_any_order(
    command: Run, model: Path
) -> None:
    table = "day,hour,sky,celsius,visitors\na,1,clear,20,9\nb,7,clear,20,60\nb,5,clear,20,9\n"
    found = command("surprise", model, "-", "--by", "sequence", piped=table)
    header, first, _ = found.rows()
    assert first[:2] == ["1", "b"]
    assert first[header.index("worst")] == "7"
    total, slices, per_slice = (
        float(first[header.index(name)]) for name in ("total", "slices", "per_slice")
    )
    assert per_slice == pytest.approx(total / slices, rel=1e-12)
    score = command("score", model, "-", piped=table).rows()[2]
    assert total == pytest.approx(-float(score[1]), rel=1e-10)
    assert float(score[3]) == pytest.approx(-per_slice, rel=1e-10)


def test_samples_stay_within_bounds(command: Run, model: Path) -> None:
    words = ("sample", model, "-n", 40, "--length", 5, "--seed", 7, "-q")
    free, kept = (
        command(*words),
        command(*words, "--bound", "celsius=16:", "--bound", "visitors=:9"),
    )
    place = free.rows()[0].index("celsius")
    celsius = [[float(row[place]) for row in found.rows()[1:]] for found in (free, kept)]
    assert min(celsius[0]) < 16 <= min(celsius[1])
    assert max(int(row[place + 1]) for row in kept.rows()[1:]) <= 9
    assert "it has sky, celsius, visitors" in command(*words, "--bound", "Celsius=1:2").err
    for wrong in ("celsius", "celsius=5", "celsius=a:b"):
        assert "NAME=LOW:HIGH" in command(*words, "--bound", wrong).err
