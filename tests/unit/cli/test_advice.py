"""What `dspn fit` says of a table before it learns."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dspn

Run = Any

FIT = ("fit", "-", "-s", "id", "--learner", "em", "--interfaces", 1, "-o", "m.dspn")


def table(header: str, rows: Iterable[str]) -> str:
    return "\n".join([header, *rows]) + "\n"


def notes(command: Run, text: str, *words: object) -> list[str]:
    """The notes of a fit that is done; with --quiet there are none."""
    found = command(*FIT, *words, piped=text)
    assert found.status == 0, found.err
    assert command(*FIT, *words, "-q", piped=text).err == ""
    return [line for line in found.err.splitlines() if line.startswith("note: ")]


def test_a_column_of_different_words_is_noted(command: Run) -> None:
    text = table("id,Note,x", (f"s{row % 5},note {row},0.{row % 4}1" for row in range(20)))
    rows = sorted(text.splitlines()[1:])
    (said,) = notes(command, table("id,Note,x", rows))
    assert said == (
        "note: column 'Note' has 20 different values in 20 rows; leave it out with --exclude Note, "
        "or it costs much and says nothing."
    )
    assert notes(command, table("id,Note,x", rows), "--variables", "x") == []


def test_more_than_a_thousand_categories_are_refused_unless_told(command: Run) -> None:
    text = table("id,Note", (f"s{row // 300},note {row}" for row in range(1200)))
    found = command(*FIT, "-q", piped=text)
    assert found.status == 1 and len(found.err.splitlines()) == 1
    assert "1,200 different values in 1,200 rows" in found.err
    assert "--kind Note=categorical" in found.err
    assert not Path("m.dspn").exists()
    assert command(*FIT, "-q", "--kind", "Note=categorical", piped=text).status == 0
    assert dspn.load("m.dspn").schema[0].num_categories == 1200


@pytest.mark.parametrize(
    "cell",
    ["2024-03-01 {:02d}:00", "2024-03-{:02d}", "{}/3/2024", "{}:15", "Mar {} 2024", "{}-mar-2024"],
)
def test_a_column_of_times_is_noted(command: Run, cell: str) -> None:
    rows = [f"s{hour % 2},{cell.format(hour)},{hour * 7 % 5}.5" for hour in range(1, 13)]
    text = table("id,Date and time,x", sorted(rows))
    (said,) = notes(command, text)
    assert said == (
        "note: column 'Date and time' looks like times; did you mean -t 'Date and time'?"
    )


def test_columns_that_are_keys_rather_than_variables_are_noted(command: Run) -> None:
    rows = [f"s{n // 6},{1990 + n},{100 + n // 6},{n * 7 % 5}.5" for n in range(12)]
    text = table("id,year,station,x", rows)
    fixed, rises = sorted(said for said in notes(command, text) if "few whole" not in said)
    assert rises == (
        "note: column 'year' has numbers that rise from row to row; if they are times or "
        "count the rows, say -t year."
    )
    assert fixed == (
        "note: column 'station' does not change within a sequence; if it names the sequence, leave "
        "it out with --exclude station."
    )
    dates = [f"a,202402{n:02d},{n * 7 % 5}.5" for n in (1, 2, 3, 5, 8)]
    said = notes(command, table("id,day,x", dates), "-t", "day")
    assert any(own.endswith("if these are dates, say --dates %Y%m%d.") for own in said)


def test_many_columns_of_one_shape_have_one_note(command: Run) -> None:
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(0, 1.2, (60, 3))).round(3)
    rows = [f"s{n // 20},{a},{b},{c}" for n, (a, b, c) in enumerate(values.tolist())]
    (said,) = notes(command, table("id,u,v,w", rows))
    assert said.startswith("note: columns 'u', 'v', 'w': ") and said.endswith("--families auto")


def test_very_many_times_are_refused_with_a_question(command: Run) -> None:
    rows = [f"a,2024-01-01 {row // 60:02d}:{row % 60:02d},1.5" for row in range(1200)]
    found = command(*FIT, "-q", piped=table("id,when,x", rows))
    assert found.status == 1
    assert "did you mean -t when?" in found.err


def test_few_whole_numbers_are_noted_with_what_to_say(command: Run) -> None:
    rows = [f"s{row % 2},{row % 4},{row // 2 % 2},{row % 3}" for row in range(12)]
    text = table("id,Trips per hour,wet,n", sorted(rows))
    (said,) = notes(command, text)
    assert said == (
        "note: columns 'Trips per hour', 'n' have few whole numbers, which are taken as "
        "categories; where they count something, say --kind 'Trips per hour=count' --kind n=count"
    )
    told = ("--kind", "Trips per hour=count", "--kind", "n=categorical")
    assert notes(command, text, *told) == []


def test_labels_that_are_taken_as_counts_are_noted(command: Run) -> None:
    rng = np.random.default_rng(0)
    values = zip(rng.integers(0, 30, 600).tolist(), rng.poisson(30, 600).tolist(), strict=True)
    rows = [f"s{n // 20},{shop},{calls}" for n, (shop, calls) in enumerate(values)]
    (said,) = (own for own in notes(command, table("id,shop,calls", rows)) if "labels" in own)
    assert said == (
        "note: column 'shop' has whole numbers that are taken as counts and are not spread as "
        "counts are; if they are labels, say --kind shop=categorical"
    )


@pytest.mark.parametrize(
    ("orders", "steps"),
    [
        (["1", "2", "3"], None),
        (["1", "2", "4"], "1, 2"),
        (["1", "2", "4", "9", "16"], "1, 2, 5, ..."),
        (["2024-03-01 01:00", "2024-03-01 02:00", "2024-03-01 04:00"], "1 h, 2 h"),
        (["2024-03-01", "2024-03-02", "2024-03-04"], "1 d, 2 d"),
        (["2024-03-01T00:00:00", "2024-03-01T00:00:01", "2024-03-01T00:00:02"], None),
        (["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"], None),
        (["a", "b", "d"], None),
        (["0.5", "1", "2"], None),
    ],
)
def test_steps_that_are_not_equal_are_noted_once(
    command: Run, orders: list[str], steps: str | None
) -> None:
    rows = [f"{name},{order},0.5" for name in "ab" for order in orders]
    found = notes(command, table("id,when,x", rows), "-t", "when")
    said = [line for line in found if "not all equal" in line]
    assert len(said) == (steps is not None)
    for line in said:
        assert f"steps of 'when' are not all equal ({steps}):" in line


def test_dates_that_do_not_sort_as_text_ask_for_their_format(command: Run) -> None:
    rows = [f"a,{day}/3/2024,0.5" for day in (8, 9, 10)]
    text = table("id,when,x", rows)
    found = command(*FIT, "-t", "when", piped=text)
    assert found.status == 1
    assert "say how they are written: --dates '%d/%m/%Y' or --dates '%m/%d/%Y'" in found.err
    said = command(*FIT, "-t", "when", "--dates", "%d/%m/%Y", piped=text)
    assert said.status == 0 and "not all equal" not in said.err


def test_nothing_is_held_out_of_a_single_sequence(command: Run) -> None:
    text = table("id,x", (f"a,0.{row}1" for row in range(9)))
    assert "nats per sequence" in command(*FIT, piped=text).err
    several = table("id,x", (f"s{row // 3},0.{row}1" for row in range(9)))
    found = command(*FIT, piped=several).err
    assert "nats per held-out sequence" in found and "3 sequences of 3 slices, 9 in all" in found
    assert "nats" not in command(*FIT, "--validation", 0, piped=several).err
