"""`dspn prepare`, and queries about data sets: the answers are those about the table."""

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from dspn.data.dataset import Dataset

Run = Any


@pytest.fixture
def shards(command: Run, long: Path, tmp_path: Path) -> Path:
    out = tmp_path / "shards"
    words = ("prepare", long, "-o", out, "-s", "day", "-t", "hour", "--shard-slices", 60)
    found = command(*words, "--kind", "visitors=count", "-q")
    assert (found.status, found.out, found.err) == (0, "", "")
    assert len(Dataset.open(out).shards) == 4
    return out


def answers(directory: Path) -> pa.Table:
    files = sorted(directory.glob("part-*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files])


def digests(directory: Path) -> dict[str, str]:
    return {
        own.name: hashlib.sha256(own.read_bytes()).hexdigest()
        for own in sorted(directory.iterdir())
    }


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """Equal columns; numbers to the last bits, as sequences meet others in a chunk."""
    assert found.column_names == expected.column_names
    for name in found.column_names:
        one, other = found[name].to_pylist(), expected[name].to_pylist()
        if other and isinstance(other[0], float):
            np.testing.assert_allclose(
                np.array(one, dtype=float), np.array(other, dtype=float), rtol=1e-12
            )
        else:
            assert [str(own) for own in one] == [str(own) for own in other], name


def test_prepare_says_what_it_found(command: Run, long: Path, tmp_path: Path) -> None:
    words = ("prepare", long, "-o", tmp_path / "out", "-s", "day", "-t", "hour")
    found = command(*words, "--variables", "sky,celsius")
    assert found.status == 0
    assert "sky: categorical ('clear', 'rain'), inferred from text; " in found.err
    assert "celsius: continuous, inferred from numbers with fractions, from " in found.err
    assert f"wrote {tmp_path / 'out'}: 40 sequences, 240 slices, 1 shard" in found.err
    wrong = command("prepare", long, tmp_path / "no.csv", "-o", tmp_path / "more")
    assert wrong.status == 1
    assert "but there is no such file" in wrong.err
    wrong = command(*words, "--variables", "sky")
    assert wrong.status == 1
    assert "holds a data set of other files or options already" in wrong.err


@pytest.mark.parametrize(
    "words",
    [
        ("score",),
        ("impute",),
        ("complete",),
        ("surprise",),
        ("forecast", "--steps", "2"),
        ("score", "--digits", "4"),
        ("impute", "--digits", "4"),
    ],
    ids=" ".join,
)
def test_answers_about_shards_are_those_about_the_table(
    command: Run, model: Path, long: Path, shards: Path, tmp_path: Path, words: tuple[Any, ...]
) -> None:
    name, *options = words
    table, out = tmp_path / "table.parquet", tmp_path / "answers"
    assert command(name, model, long, *options, "-o", table).status == 0
    found = command(name, model, shards, *options, "-o", out)
    assert found.status == 0
    assert f"wrote {out}: 4 files" in found.err
    assert_same(answers(out), pq.read_table(table))
    assert pq.read_table(out).num_rows == pq.read_table(table).num_rows  # as a directory of tables
    assert [own.name for own in sorted(out.iterdir())][:2] == [
        "_answers.json",
        "part-000000.parquet",
    ]


def test_surprise_by_sequence_has_no_rank_but_the_same_rows(
    command: Run, model: Path, long: Path, shards: Path, tmp_path: Path
) -> None:
    table, out = tmp_path / "table.parquet", tmp_path / "answers"
    options = ("--by", "sequence", "-q")
    assert command("surprise", model, long, "-o", table, *options).status == 0
    assert command("surprise", model, shards, "-o", out, *options).status == 0
    ranked = answers(out)
    order = np.argsort(ranked["tail"].to_numpy(), kind="stable")
    assert_same(ranked.take(pa.array(order)), pq.read_table(table).drop_columns("rank"))


@pytest.mark.parametrize(
    ("form", "ending"), [("csv", "csv"), ("json", "jsonl"), ("arrow", "arrow")]
)
def test_answers_come_in_every_format(
    command: Run, model: Path, long: Path, shards: Path, tmp_path: Path, form: str, ending: str
) -> None:
    out = tmp_path / "answers"
    assert command("score", model, shards, "-o", out, "--format", form, "-j", 2).status == 0
    files = sorted(out.glob(f"part-*.{ending}"))
    assert len(files) == 4
    expected = [row[0] for row in command("score", model, long, "-q").rows()[1:]]
    if form == "csv":
        found = [line.split(",")[0] for file in files for line in file.read_text().split()[1:]]
    elif form == "json":
        found = [
            json.loads(line)["day"] for file in files for line in file.read_text().split("\n")[:-1]
        ]
    else:
        tables = [pa.ipc.open_file(file).read_all() for file in files]
        found = pa.concat_tables(tables)["day"].to_pylist()
    assert found == expected


def test_shards_of_unsorted_rows_have_the_same_answers(
    command: Run, model: Path, long: Path, tmp_path: Path
) -> None:
    header, *lines = long.read_text().splitlines()
    mixed = np.random.default_rng(0).permutation(lines).tolist()
    for number in range(3):
        (tmp_path / f"part{number}.csv").write_text("\n".join([header, *mixed[number::3], ""]))
    words = ("-o", tmp_path / "shards", "-s", "day", "-t", "hour", "--kind", "visitors=count")
    assert command("prepare", str(tmp_path / "part*.csv"), *words, "-j", 2, "-q").status == 0
    assert command("score", model, tmp_path / "shards", "-o", tmp_path / "out").status == 0
    assert command("score", model, long, "-o", tmp_path / "table.parquet").status == 0
    found, expected = answers(tmp_path / "out"), pq.read_table(tmp_path / "table.parquet")
    assert_same(found.sort_by("day"), expected.sort_by("day"))


def test_a_data_set_with_fewer_categories_is_answered(
    command: Run, model: Path, tmp_path: Path
) -> None:
    text = "day,hour,visitors,sky,celsius\nmon,1,3,clear,20.5\nmon,2,4,clear,18.5\ntue,1,,,1.5\n"
    (tmp_path / "fair.csv").write_text(text)
    shards, out = tmp_path / "shards", tmp_path / "out"
    command("prepare", "fair.csv", "-o", shards, "-s", "day", "-t", "hour")
    assert command("score", model, shards, "-o", out).status == 0
    assert command("score", model, "fair.csv", "-o", "table.parquet").status == 0
    assert_same(answers(out), pq.read_table(tmp_path / "table.parquet"))


def test_unknown_categories_are_errors_or_missing(
    command: Run, model: Path, tmp_path: Path
) -> None:
    text = "day,hour,sky,celsius,visitors\nmon,1,hail,20.5,3\nmon,2,clear,18.5,4\n"
    (tmp_path / "odd.csv").write_text(text)
    command("prepare", "odd.csv", "-o", "shards", "-s", "day", "-t", "hour", "-q")
    wrong = command("score", model, "shards", "-o", "out")
    assert wrong.status == 1
    assert "in the shard 'shards/shard-000000-00000.arrow', column 'sky'" in wrong.err
    assert "'hail'" in wrong.err
    found = command("score", model, "shards", "-o", "more", "--unknown", "missing")
    assert found.status == 0
    assert "1 cell has a category that the model does not know" in found.err
    assert command("score", model, "odd.csv", "--unknown", "missing", "-o", "t.parquet").status == 0
    assert_same(answers(tmp_path / "more"), pq.read_table(tmp_path / "t.parquet"))


def test_finished_parts_are_left_as_they_are(
    command: Run, model: Path, shards: Path, tmp_path: Path
) -> None:
    out = tmp_path / "answers"
    assert command("score", model, shards, "-o", out).status == 0
    whole = digests(out)
    (out / "part-000002.parquet").unlink()
    (out / ".dspn-0123456789abcdef.tmp").write_bytes(b"half a part")  # of a process that is gone
    kept = (out / "part-000000.parquet").stat()
    found = command("score", model, shards, "-o", out)
    assert "4 files, 3 of them from a run before" in found.err
    assert digests(out) == whole
    assert (out / "part-000000.parquet").stat().st_mtime_ns == kept.st_mtime_ns


SLOW = """
import sys, time
from dspn.cli import sink
from dspn.cli.app import run

write = sink.Sink.write

def slow(self, table):
    write(self, table)
    print("row", flush=True)
    time.sleep(0.2)

sink.Sink.write = slow
run(sys.argv[1:])
"""


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(
    command: Run, model: Path, shards: Path, tmp_path: Path
) -> None:
    assert command("score", model, shards, "-o", tmp_path / "whole").status == 0
    out = tmp_path / "answers"
    words = ["score", str(model), str(shards), "-o", str(out), "-q"]
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for number, _ in enumerate(process.stdout):
            if number == 1:
                process.send_signal(signal.SIGKILL)  # the second part is written, but has no name
                break
    assert process.returncode == -signal.SIGKILL
    assert [own.name for own in out.glob("part-*")] == ["part-000000.parquet"]
    assert command(*words).status == 0
    assert digests(out) == digests(tmp_path / "whole")
    days = answers(out)["day"].to_pylist()
    assert len(set(days)) == len(days) == 40


def test_bad_requests_are_refused_in_a_sentence(
    command: Run, model: Path, long: Path, shards: Path, tmp_path: Path
) -> None:
    command("score", model, shards, "-o", "used", "-q")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "diary.txt").touch()
    (tmp_path / "file").touch()
    for words, message in (
        (("score", model, shards), "files in a directory; name it with --output"),
        (("impute", model, shards, "-o", "used"), "'used' holds the answers to another query"),
        (("score", model, shards, "-o", "used", "--digits", 3), "answers to another query"),
        (("score", model, shards, "-o", "full"), "but holds 'diary.txt'; give another one"),
        (("score", model, shards, "-o", "file"), "cannot write answers to 'file': "),
        (
            ("score", model, shards, "-o", "new", "-s", "hour"),
            "--sequence says how a table is read",
        ),
        (("score", model, shards, "-o", "new", "--sort"), "--sort says how a table is read"),
        (("score", model, long, "-j", 2), "--jobs and --ray work on data sets in shards, but"),
        (("score", model, long, "--ray", "auto"), "--jobs and --ray work on data sets in shards"),
        (("plot", "surprise", model, shards, "-o", "a.svg"), "is a directory; name a table in it"),
    ):
        found = command(*words)
        assert found.status == 1, words
        assert found.out == ""
        assert message in found.err
        assert len(found.err.splitlines()) == 1
    assert not (tmp_path / "new").exists()
    assert command("score", model, shards, "-o", "new", "-s", "day", "-t", "hour").status == 0


def test_a_damaged_shard_is_named_and_the_others_are_answered(
    command: Run, model: Path, shards: Path, tmp_path: Path
) -> None:
    path = shards / "shard-000000-00002.arrow"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"!")
    found = command("score", model, shards, "-o", "out")
    assert found.status == 1
    assert f"the shard {str(path)!r} is damaged" in found.err
    path.write_bytes(content)
    again = command("score", model, shards, "-o", "out")
    assert "4 files, 2 of them from a run before" in again.err


def test_a_model_of_variables_that_the_data_set_lacks_is_refused(
    command: Run, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "few.csv").write_text("day,sky\nmon,clear\nmon,rain\n")
    command("prepare", "few.csv", "-o", "shards", "-s", "day", "-q")
    found = command("score", model, "shards", "-o", "out")
    assert found.status == 1
    assert "has no column 'celsius'" in found.err


def test_shards_with_inputs_answer_as_their_table(command: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=240)
    x = np.where(rng.random(240) < 0.1, np.nan, 2.0 * u + 0.1 * rng.normal(size=240))
    rows = pa.table({"id": np.repeat(np.arange(20), 12), "t": np.tile(np.arange(12), 20), "u": u})
    rows = rows.append_column("x", pa.array(x, from_pandas=True))
    long, shards, model = tmp_path / "long.csv", tmp_path / "shards", tmp_path / "m.dspn"
    pa.csv.write_csv(rows, long)
    keys = ("-s", "id", "-t", "t")
    words = ("prepare", long, *keys, "--input", "u", "--input", "phase:4", "-o", shards)
    found = command(*words, "--shard-slices", 60)
    assert found.status == 0 and "input u: continuous" in found.err
    learner = ("--learner", "em", "--interfaces", 1, "--leaf-inputs", "-o", model, "-q")
    assert command("fit", shards, *learner).status == 0
    for query in (("score",), ("impute",), ("surprise",)):
        out, told = tmp_path / query[0], tmp_path / f"{query[0]}.parquet"
        assert command(*query, model, shards, "-o", out, "-q").status == 0
        assert command(*query, model, long, *keys, "-o", told, "-q").status == 0
        expected = pq.read_table(told)
        assert_same(answers(out).select(expected.column_names), expected)
    wrong = command("forecast", model, shards, "--steps", 2, "-o", tmp_path / "f")
    assert wrong.status == 1 and "forecast a table" in wrong.err
    wrong = command("fit", shards, "--input", "u", *learner)
    assert wrong.status != 0 and "dspn prepare" in wrong.err
