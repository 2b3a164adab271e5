import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dspn
from dspn.models import DSPN

Run = Any

EM = ("--learner", "em", "--interfaces", 2)


def test_fit_shows_what_it_understood_and_remembers_the_keys(command: Run, long: Path) -> None:
    found = command("fit", long, "-s", "day", "-t", "hour", *EM, "-o", "m.dspn", "--json")
    assert found.status == 0, found.err
    shown = found.err.splitlines()
    assert shown[1].split()[:4] == ["sky", "categorical", "clear,", "rain"]
    assert "continuous" in shown[2] and "numbers with fractions" in shown[2]
    assert "count" in shown[3]
    assert json.loads(found.out)["interfaces"] == 2
    model = dspn.load("m.dspn")
    assert model.provenance["table"] == {"sequence": "day", "order": "hour"}
    assert command("score", "m.dspn", long).status == 0


def test_the_same_seed_gives_the_same_bytes(command: Run, long: Path) -> None:
    for name in ("a.dspn", "b.dspn"):
        found = command("fit", long, "-s", "day", "-t", "hour", *EM, "-o", name, "--quiet")
        assert (found.status, found.out, found.err) == (0, "", "")
    assert Path("a.dspn").read_bytes() == Path("b.dspn").read_bytes()


def test_kinds_and_variables_are_as_told(command: Run, long: Path) -> None:
    found = command(
        *("fit", long, "-s", "day", "--variables", "visitors,sky", "--kind", "visitors=continuous"),
        *("--kind", "sky=binary", *EM, "-o", "m.dspn", "-q"),
    )
    assert found.status == 0, found.err
    schema = dspn.load("m.dspn").schema
    assert [(own.name, str(own.kind)) for own in schema] == [
        ("visitors", "continuous"),
        ("sky", "categorical"),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--kind", "sky=count"), ("'sky'", "row 1", "--kind says count")),
        (("--kind", "Sky=binary"), ("'Sky'", "did you mean 'sky'?")),
        (("--kind", "wind=count"), ("'wind'", "sky, celsius, visitors")),
        (("--kind", "celsius=count"), ("'celsius'", "counts")),
        (("--kind", "visitors=binary"), ("'visitors'", "two categories")),
        (("--variables", "sky,celcius"), ("'celcius'", "did you mean 'celsius'?")),
        (("--variables", "day"), ("'day'", "key")),
        (("--validation", "none.csv"), ("none.csv",)),
        (("--validation", "2"), ("validation_fraction",)),
    ],
)
def test_wrong_options_of_data_are_named(
    command: Run, long: Path, words: tuple[str, ...], said: tuple[str, ...]
) -> None:
    found = command("fit", long, "-s", "day", "-t", "hour", *EM, "-o", "m.dspn", "-q", *words)
    assert found.status == 1
    assert len(found.err.splitlines()) == 1
    for word in said:
        assert word in found.err
    assert not Path("m.dspn").exists()


def test_numbers_and_words_in_one_column_are_refused(command: Run) -> None:
    text = "id,x\na,1\na,2\nb,warm\nb,4\n"
    found = command("fit", "-", "-s", "id", *EM, "-o", "m.dspn", "-q", piped=text)
    assert found.status == 1
    assert "'x'" in found.err and "row 3" in found.err and "'warm'" in found.err
    found = command(
        *("fit", "-", "-s", "id", *EM, "-o", "m.dspn", "-q", "--kind", "x=categorical"), piped=text
    )
    assert found.status == 0
    assert dspn.load("m.dspn").schema[0].categories == ("1", "2", "4", "warm")


def test_a_table_in_parquet_and_another_for_validation(command: Run, long: Path) -> None:
    from pyarrow import csv

    table = csv.read_csv(long, convert_options=csv.ConvertOptions(strings_can_be_null=True))
    table = table.append_column("wet", pa.array([row % 3 == 0 for row in range(table.num_rows)]))
    pq.write_table(table, "long.parquet")
    found = command(
        *("fit", "long.parquet", "-s", "day", "-t", "hour", *EM, "-o", "m.dspn", "-q"),
        *("--validation", "long.parquet"),
    )
    assert found.status == 0, found.err
    assert dspn.load("m.dspn").schema[3].categories == (False, True)
    assert command("score", "m.dspn", "long.parquet").status == 0


def test_a_checkpoint_is_taken_up_by_the_same_command(command: Run, long: Path) -> None:
    words = ("fit", long, "-s", "day", "-t", "hour", "--effort", 0.02, "--checkpoint", "run", "-q")
    assert command(*words, "-o", "a.dspn").status == 0
    assert command(*words, "-o", "b.dspn").status == 0
    assert Path("a.dspn").read_bytes() == Path("b.dspn").read_bytes()
    other = command(*words, "-o", "c.dspn", "--seed", 5)
    assert other.status == 1 and len(other.err.splitlines()) == 1


def test_an_interruption_without_a_model_writes_nothing(
    command: Run, long: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DSPN, "fit", interrupted)
    found = command("fit", long, "-s", "day", "-o", "m.dspn", "-q")
    assert found.status == 130
    assert found.err == "interrupted; no output file was written.\n"
    assert not Path("m.dspn").exists()


def test_warnings_of_the_library_are_notes(command: Run) -> None:
    rows = "".join(f"s{number},{number},7\n" for number in range(10))
    found = command("fit", "-", "-s", "id", *EM, "-o", "m.dspn", piped="id,x,y\n" + rows)
    notes = [line for line in found.err.splitlines() if line.startswith("note: ")]
    assert found.status == 0
    assert any("same value" in line for line in notes)
