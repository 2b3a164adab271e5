import json
from pathlib import Path
from typing import Any

import numpy as np
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


FIRST = ("-s", "day", "-t", "hour", *EM, "-o", "m.dspn", "-q")


def hotter(path: Path, shift: float = 25.0) -> Path:
    """The days of a table, with a third kind of hours in every other day."""
    lines = path.read_text().splitlines()
    changed = [lines[0]]
    for line in lines[1:]:
        day, hour, sky, celsius, visitors = line.split(",")
        if int(day[1:]) % 2 and int(hour) < 3 and celsius:
            celsius = f"{float(celsius) + shift:.1f}"
        changed.append(f"new{day},{hour},{sky},{celsius},{visitors}")
    new = path.with_name("new.csv")
    new.write_text("\n".join(changed) + "\n")
    return new


def test_continue_goes_on_with_new_data_alone(command: Run, long: Path) -> None:
    assert command("fit", long, *FIRST).status == 0
    before = Path("m.dspn").read_bytes()
    new = hotter(long)
    found = command("fit", "--continue", "m.dspn", new, "-o", "n.dspn", "--json")
    assert found.status == 0, found.err
    said = json.loads(found.out)
    assert (said["batches"], said["sequences"], said["model"]) == (1, 40, "n.dspn")
    assert said["interfaces_added"] >= 1 and said["interfaces"] == 2 + said["interfaces_added"]
    assert said["score_after"] > said["score_before"]
    assert "learned from 40 sequences in 1 batch: " in found.err
    assert "nats per slice before" in found.err and "interface node" in found.err
    assert Path("m.dspn").read_bytes() == before
    model = dspn.load("n.dspn")
    assert model.provenance["online"]["sequences"] == 80.0
    assert model.provenance["table"] == {"sequence": "day", "order": "hour"}
    assert model.provenance["trained_on"]["sequences"] == 40.0


def test_continue_writes_the_model_itself_by_default_and_reads_in_batches(
    command: Run, long: Path
) -> None:
    assert command("fit", long, *FIRST).status == 0
    before = Path("m.dspn").read_bytes()
    small = ("--chunk-rows", 60, "--block-size", 500)
    found = command("fit", "--continue", "m.dspn", hotter(long), *small)
    assert found.status == 0, found.err
    batches = dspn.load("m.dspn").provenance["online"]["batches"]
    assert batches > 2 and f"in {batches} batches" in found.err
    assert Path("m.dspn").read_bytes() != before
    assert command("score", "m.dspn", long).status == 0


def test_continue_keeps_an_estimator_and_knows_a_model_of_unknown_origin(
    command: Run, long: Path, model: Path
) -> None:
    found = command("fit", "--continue", model, long, "-o", "m.dspn")
    assert found.status == 0
    assert "does not say how many sequences" in found.err
    data = dspn.load("m.dspn").sample(30, 6, rng=np.random.default_rng(0))
    dspn.HMM(2, random_state=0).fit(data).save("hmm.dspn")
    assert command("fit", "--continue", "hmm.dspn", hotter(long), "-s", "day").status == 0
    again = dspn.load("hmm.dspn")
    assert isinstance(again, dspn.HMM) and again.model_.online


@pytest.mark.parametrize(
    ("old", "new", "words", "said"),
    [
        ("rain", "snow", (), ("'sky'", "'snow'")),
        ("celsius", "kelvin", (), ("'celsius'", "no column")),
        ("clear,", "clear,x", (), ("'celsius'", "'x")),
        ("", "", ("--kind", "sky=binary"), ("--kind", "left out")),
        ("", "", ("--interfaces", 3), ("--interfaces", "left out")),
        ("", "", ("-o", "m.txt"), (".dspn",)),
        ("day", "id", (), ("'day'", "fitted with it")),
    ],
)
def test_continue_refuses_what_does_not_fit_and_leaves_the_model(
    command: Run, long: Path, old: str, new: str, words: tuple[Any, ...], said: tuple[str, ...]
) -> None:
    assert command("fit", long, *FIRST).status == 0
    before = Path("m.dspn").read_bytes()
    table = hotter(long)
    table.write_text(table.read_text().replace(old, new) if old else table.read_text())
    found = command("fit", "--continue", "m.dspn", table, *words, "-q")
    assert found.status in (1, 2) and len(found.err.splitlines()) == 1
    assert all(word in found.err for word in said), found.err
    assert Path("m.dspn").read_bytes() == before
    assert command("fit", "--continue", "none.dspn", table).status == 1


def test_continue_takes_unknown_categories_as_missing_where_it_is_told(
    command: Run, long: Path
) -> None:
    assert command("fit", long, *FIRST).status == 0
    table = hotter(long)
    table.write_text(table.read_text().replace("rain", "snow"))
    found = command("fit", "--continue", "m.dspn", table, "--unknown", "missing")
    assert found.status == 0 and "does not know, taken as missing" in found.err
    assert "--continue" in command("fit", long, *FIRST, "--unknown", "missing").err


def test_continue_refuses_a_classifier_and_fit_needs_an_output(command: Run, long: Path) -> None:
    lines = long.read_text().splitlines()
    labels = ["who", *(f"w{int(line.split(',')[0][1:]) % 2}" for line in lines[1:])]
    rows = [f"{line},{label}" for line, label in zip(lines, labels, strict=True)]
    Path("l.csv").write_text("\n".join(rows) + "\n")
    fitted = command("classify", "fit", "l.csv", "-s", "day", "--label", "who", "-o", "c.dspn")
    assert fitted.status == 0, fitted.err
    found = command("fit", "--continue", "c.dspn", long)
    assert found.status == 1 and "classifier" in found.err
    found = command("fit", long)
    assert found.status == 2 and "--output" in found.err
