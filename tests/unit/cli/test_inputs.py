"""Inputs on the command line: columns and rules that are given, and those of slices ahead."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pv
import pytest

import dspn
from dspn import DSPN, Model, Schema, Sequences, Variable, inputs

Run = Any

KEYS = ("-s", "id", "-t", "time")
EM = ("--learner", "em", "--interfaces", 2, "--leaf-inputs", "-q")
BEGIN = datetime(2024, 1, 1, 20)


def table(names: str, slices: int, seed: int = 0) -> str:
    rng, lines = np.random.default_rng(seed), ["id,time,machine,dose,x"]
    for name in names:
        for t in range(slices):
            machine, dose = rng.choice(["drill", "lathe"]), rng.normal()
            x = 2 * dose + (machine == "lathe") + 0.1 * rng.normal()
            time = (BEGIN + timedelta(hours=t)).isoformat()
            lines.append(f"{name},{time},{machine},{dose:.4f},{x:.4f}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(table("abcdefgh", 12))
    Path("now.csv").write_text(table("pq", 9, seed=1))
    ahead = ["q,lathe,1.5", "q,drill,-1", "p,drill,0.25", "p,drill,2"]
    Path("ahead.csv").write_text("\n".join(["id,machine,dose", *ahead]) + "\n")


RULES = (inputs.Calendar("hour").named("hour"), inputs.Phase(3).named("phase:3"))
NAMES = ("--input", "machine", "--input", "dose", "--input", "hour", "--input", "phase:3")


def test_fit_and_queries_are_those_of_python(command: Run, files: None) -> None:
    """A table with inputs gives the same model, scores and forecasts as the library."""
    found = command("fit", "a.csv", *KEYS, *NAMES, *EM, "-o", "m.dspn")
    assert found.status == 0, found.err
    how: dict[str, Any] = {"sequence": "id", "order": "time"}
    data = Sequences.from_table(pv.read_csv("a.csv"), inputs=["machine", "dose", *RULES], **how)
    model = dspn.load("m.dspn")
    assert model.schema.inputs == data.schema.inputs
    learned = DSPN(dspn.models.Em(2), leaf_inputs=True, random_state=0).fit(data).model_
    assert model.mixture.fingerprint == learned.mixture.fingerprint

    now = Sequences.from_table(pv.read_csv("now.csv"), schema=learned.schema, **how)
    scored = command("score", "m.dspn", "now.csv", "-q")
    np.testing.assert_allclose(
        [float(row[1]) for row in scored.rows()[1:]], learned.log_likelihood(now), rtol=1e-12
    )
    # The second table has its sequences in another order, and no order column.
    given = [np.array(own, dtype=object) for own in (
        [["drill", 0.25], ["drill", 2.0]], [["lathe", 1.5], ["drill", -1.0]],
    )]  # fmt: skip
    expected = learned.forecast(now, 2, inputs=given).marginals.variables[0].point()
    ahead = command("forecast", "m.dspn", "now.csv", "--steps", 2, "--inputs", "ahead.csv", "-q")
    assert ahead.status == 0, ahead.err
    assert [row[:3] for row in ahead.rows()[1:3]] == [
        ["p", "1", "2024-01-02T05:00:00"],
        ["p", "2", "2024-01-02T06:00:00"],
    ]
    np.testing.assert_allclose([float(row[3]) for row in ahead.rows()[1:]], expected, rtol=1e-12)
    filled = command("impute", "m.dspn", "now.csv", "-q")
    assert filled.out.splitlines() == Path("now.csv").read_text().splitlines()
    shown = command("inspect", "m.dspn")
    assert "categorical, input" in shown.out + shown.err


def machines(*own: Variable) -> Model:
    schema = Schema((Variable.continuous("x"),), own)
    known = Model.from_hmm(
        start=[0.5, 0.5],
        transition=[[0.9, 0.1], [0.3, 0.7]],
        emissions={"x": [[0.0, 1.0], [2.0, 1.0]]},
        schema=schema,
    )
    return Model(known.mixture, provenance={"table": {"sequence": "id", "order": "time"}})


GIVEN = Variable.categorical("machine", ["drill", "lathe"])
HOUR = inputs.Calendar("hour").named("hour")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--input", "machin"), ("'machin'", "did you mean 'machine'?", "phase:24")),
        (("--input", "phase:x"), ("--input phase:x", "number", "phase:24")),
        (("--input", "phase:1"), ("--input phase:1", "at least 2")),
        (("--input", "id"), ("'id'", "key", "--input")),
        (("--input", "dose", "--variables", "x,dose"), ("'dose'", "both a variable", "--input")),
        (("--input", "dose", "--input", "dose"), ("--input dose", "twice")),
        (("--input", "dose", "--kind", "dose=count"), ("dose=count", "categorical, binary or")),
        (("--input", "dose", "--learner", "em", "--interfaces", 2), ("--leaf-inputs",)),
        (("--input", "dose", "--continue", "m.dspn"), ("--input", "--continue")),
    ],
)
def test_wrong_inputs_of_fit(command: Run, files: None, words: Any, said: Any) -> None:
    found = command("fit", "a.csv", *KEYS, *words, "-o", "out.dspn", "-q")
    assert found.status in (1, 2) and not Path("out.dspn").exists()
    for part in said:
        assert part in " ".join(found.err.split()), found.err


def test_rules_of_times_need_an_order_column_of_times(command: Run, files: None) -> None:
    found = command("fit", "a.csv", "-s", "id", "--input", "hour", *EM, "-o", "m.dspn")
    assert found.status == 1 and "--input hour" in found.err and "--order" in found.err
    found = command("fit", "a.csv", "-s", "id", "-t", "dose", "--input", "hour", "--sort", *EM,
                    "-o", "m.dspn")  # fmt: skip
    assert found.status == 1 and "--order" in found.err and "hour" in found.err


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        ("id,machine\np,drill\np,drill\nq,lathe\n", "has 1 for sequence 'q'"),
        ("id,machine\np,drill\np,drill\n", "has none for sequence 'q'"),
        ("id,engine\np,drill\np,drill\n", "no column 'machine'"),
        ("id,machine\np,drill\np,saw\nq,lathe\nq,lathe\n", "'saw' in row 2"),
        ("id,machine\np,drill\np,\nq,lathe\nq,lathe\n", "must have a value in every slice"),
        (
            "id,time,machine\np,2024-01-02T05:00:00,drill\np,2024-01-02T09:00:00,drill\n"
            "q,2024-01-02T05:00:00,drill\nq,2024-01-02T06:00:00,drill\n",
            "sequence 'p' row 2 is 2024-01-02T09:00",
        ),
    ],
)
def test_wrong_inputs_of_slices_ahead(command: Run, files: None, ahead: str, said: str) -> None:
    machines(GIVEN, HOUR).save("m.dspn")
    Path("ahead.csv").write_text(ahead)
    asked = ("forecast", "m.dspn", "now.csv", "--steps", 2, "-q")
    found = command(*asked, "--inputs", "ahead.csv")
    assert (found.status, found.out) == (1, "")
    assert said in found.err
    found = command(*asked)
    assert found.status == 1 and "(machine)" in found.err and "--inputs" in found.err


def test_queries_with_inputs_that_are_not_there(command: Run, files: None) -> None:
    machines(GIVEN).save("m.dspn")
    Path("bare.csv").write_text("id,time,x\np,1,0.5\n")
    Path("odd.csv").write_text("id,time,machine,x\np,1,saw,0.5\n")
    found = command("score", "m.dspn", "bare.csv", "-q")
    assert found.status == 1 and "'machine'" in found.err and "input" in found.err
    found = command("score", "m.dspn", "odd.csv", "-q")
    assert found.status == 1 and "'saw' in row 1" in found.err
    Path("short.csv").write_text("id,time,x\np,1,0.5\np,2,0.5\n")
    assert command("prepare", "short.csv", *KEYS, "-o", "shards", "-q").status == 0
    for words, said in (
        (("watch", "m.dspn"), "`dspn watch`"),
        (("sample", "m.dspn"), "`dspn sample`"),
        (("score", "m.dspn", "shards", "-o", "out"), "--input machine"),
        (("forecast", "m.dspn", "shards", "-o", "out"), "forecast a table"),
        (("fit", "shards", "--input", "machine", "-o", "n.dspn"), "--input"),
        (("plot", "forecast", "m.dspn", "odd.csv", "-o", "f.png"), "--inputs"),
        (("report", "m.dspn", "odd.csv", "-o", "r.html"), "'saw' in row 1"),
    ):
        found = command(*words)
        assert found.status in (1, 2), words
        assert said in found.err and not Path("out").exists()


def test_rules_need_no_table_of_inputs(command: Run, files: None) -> None:
    machines(HOUR, inputs.Position(5).named("position:5")).save("m.dspn")
    assert command("forecast", "m.dspn", "now.csv", "--steps", 3, "-q").status == 0
    found = command("forecast", "m.dspn", "now.csv", "--steps", 2, "--inputs", "ahead.csv", "-q")
    assert found.status == 1 and "'hour'" in found.err
    machines().save("m.dspn")
    found = command("forecast", "m.dspn", "now.csv", "--steps", 2, "--inputs", "ahead.csv", "-q")
    assert found.status == 1 and "has none" in found.err
