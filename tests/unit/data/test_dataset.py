"""Data sets in shards: what they hold, what is held out, what is drawn, and damaged files."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dspn import Sequences, Variable
from dspn.data import dataset
from dspn.data.dataset import Dataset, is_dataset
from dspn.data.prepare import prepare
from dspn.data.sequences import joined
from dspn.errors import DataError
from dspn.executors import Processes, Threads
from dspn.inputs import Calendar, Position
from dspn.models import HMM


def table(num_sequences: int = 60, name: str = "x") -> pa.Table:
    """Sequences of one to four slices that all differ."""
    lengths = 1 + np.arange(num_sequences) % 4
    ids = np.repeat(np.arange(num_sequences), lengths)
    return pa.table({"id": ids, name: 0.5 + np.arange(ids.size), "flag": ids % 2})


def made(directory: Path, rows: pa.Table | None = None, **options: Any) -> Dataset:
    directory.mkdir(parents=True, exist_ok=True)
    given = directory / "in.arrow"
    with pa.ipc.new_file(given, (rows or table()).schema) as writer:
        writer.write_table(rows or table())
    return prepare(given, directory / "out", **{"sequence": "id", "shard_slices": 12, **options})


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return made(tmp_path)


def firsts(batches: Any) -> list[float]:
    """The first value of each sequence, which names it."""
    return [float(own[0, 0]) for batch in batches if batch is not None for own in batch]


def test_a_data_set_that_is_opened_is_the_one_that_was_prepared(data: Dataset) -> None:
    again = Dataset.open(data.directory)
    assert is_dataset(data.directory)
    assert again.shards == data.shards
    assert (again.schema, again.keys, again.origin) == (data.schema, data.keys, data.origin)
    assert repr(again) == repr(data)
    assert repr(data).startswith(f"Dataset({str(data.directory)!r}: 60 sequences, 150 slices")
    assert len(data.shards) > 5
    expected = Sequences.from_table(table(), sequence="id")
    assert firsts(data) == firsts([expected])
    copy = pickle.loads(pickle.dumps(data))
    assert copy.shards == data.shards


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 1.0])
def test_what_is_held_out_and_the_rest_are_disjoint_and_complete(
    data: Dataset, share: float
) -> None:
    rest = data.hold_out(share, seed=3)
    trained = firsts(rest)
    held = firsts(own.load_held() for own in rest.shards)
    assert sorted(trained + held) == sorted(firsts(data))
    assert [own.num_trained for own in rest.shards] == [
        0 if part is None else len(part) for part in (own.load() for own in rest.shards)
    ]
    assert abs(len(held) / 60 - share) < 0.2
    assert firsts(data.hold_out(share, seed=3)) == trained
    if share == 0.3:
        assert firsts(data.hold_out(share, seed=4)) != trained
        assert set(firsts(data.hold_out(0.2, seed=3))) > set(trained)  # a larger share, more


def test_what_is_held_out_is_so_in_every_process(data: Dataset) -> None:
    rest = data.hold_out(0.4, seed=0)
    expected = [firsts([own.load_held()]) for own in rest.shards]
    for executor in (Threads(2), Processes(2)):
        found = executor.map(held_of, rest.shards)
        assert found == expected


def held_of(shard: Any) -> list[float]:
    return firsts([shard.load_held()])


@pytest.mark.parametrize("num_slices", [1, 20, 75, 149, 150, 10_000])
def test_a_sample_has_about_so_many_slices(data: Dataset, num_slices: int) -> None:
    found = data.sample(num_slices, seed=0)
    names = firsts([found])
    assert len(set(names)) == len(names)
    assert set(names) <= set(firsts(data))
    assert found.schema == data.schema
    if num_slices >= 150:
        assert sorted(names) == sorted(firsts(data))
    else:
        assert abs(found.total_slices - num_slices) <= 4
    np.testing.assert_array_equal(data.sample(num_slices, seed=0).values, found.values)


def test_a_sample_is_drawn_from_what_is_not_held_out(data: Dataset) -> None:
    rest = data.hold_out(0.5, seed=1)
    held = firsts(own.load_held() for own in rest.shards)
    assert not set(firsts([rest.sample(60, seed=0)])) & set(held)
    assert firsts([data.sample(60, seed=0)]) != firsts([data.sample(60, seed=1)])
    with pytest.raises(DataError, match="holds no sequence to learn from; hold out fewer"):
        data.hold_out(1.0, seed=0).sample(10, seed=0)


def test_every_sequence_has_the_same_chance_in_a_sample(data: Dataset) -> None:
    drawn = [firsts([data.sample(30, seed=seed)]) for seed in range(200)]
    names, counts = np.unique(np.concatenate(drawn), return_counts=True)
    assert names.size == 60
    assert counts.min() > 0.3 * counts.mean()


def test_equal_codes_of_other_variables_are_not_taken_for_each_other(tmp_path: Path) -> None:
    one = made(tmp_path / "one", table(name="x"))
    other = made(tmp_path / "other", table(name="y"))
    assert next(iter(one)).schema.names == ("x", "flag")
    assert next(iter(other)).schema.names == ("y", "flag")


def test_shards_that_many_threads_load_are_right(data: Dataset) -> None:
    dataset._decoded.clear()
    found = Threads(4).map(values_of, data.shards * 20)
    assert [own for part in found for own in part] == firsts(data) * 20


def values_of(shard: Any) -> list[float]:
    return firsts([shard.load()])


def test_missing_values_and_wide_categories_come_back(tmp_path: Path) -> None:
    words = [f"w{own:04d}" for own in range(300)]
    rows = pa.table(
        {
            "id": [own // 5 for own in range(300)],
            "word": [None if own % 7 == 0 else words[own] for own in range(300)],
            "count": [None if own % 11 == 0 else 10**12 + own for own in range(300)],
            "real": [None if own % 13 == 0 else own * 1e300 for own in range(300)],
        }
    )
    found = made(tmp_path, rows)
    expected = Sequences.from_table(rows, sequence="id")
    assert found.schema == expected.schema
    np.testing.assert_array_equal(np.concatenate([own.values for own in found]), expected.values)


# Damage.


def damaged(data: Dataset, damage: str) -> str:
    """The data set with a damaged shard that no process has read yet, and its name."""
    dataset._decoded.clear()
    shard = Path(data.shards[2].path)
    content = shard.read_bytes()
    if damage == "missing":
        shard.unlink()
    elif damage == "one bit":
        place = len(content) // 2
        flipped = bytes([content[place] ^ 1])
        shard.write_bytes(content[:place] + flipped + content[place + 1 :])
    else:
        shard.write_bytes({"cut off": content[:-9], "empty": b"", "replaced": b"x" * 99}[damage])
    return shard.name


@pytest.mark.parametrize("damage", ["missing", "one bit", "cut off", "empty", "replaced"])
def test_a_damaged_shard_is_named(data: Dataset, damage: str) -> None:
    name = damaged(data, damage)
    data.shards[1].load()
    finding = {"missing": "cannot be read: is missing"}
    for read in (data.shards[2].load, lambda: data.shards[2].chunk(data.keys), lambda: list(data)):
        with pytest.raises(DataError, match=f"{name}' {finding.get(damage, 'is damaged')}"):
            read()
    with pytest.raises(DataError, match="prepare the data set again"):
        Processes(2).map(values_of, data.shards)


def test_directories_that_hold_no_data_set_are_refused(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no data set: it has no dataset\.json"):
        Dataset.open(tmp_path)
    with pytest.raises(DataError, match=r"holds no data set: it has no dataset\.json"):
        Dataset.open(tmp_path / "nowhere")
    assert not is_dataset(tmp_path)
    manifest = data.directory / "dataset.json"
    told = json.loads(manifest.read_text())
    for content, message in (
        ("", "cannot be read"),
        ("[1]", "cannot be read"),
        (manifest.read_text()[:-20], "cannot be read"),
        (json.dumps({**told, "format": "other"}), "its format is 'other'"),
        (json.dumps({**told, "version": 3}), "is of version 3, but this release reads versions 1"),
        (json.dumps({key: told[key] for key in told if key != "shards"}), "cannot be read"),
        (json.dumps({**told, "schema": [{"name": "x", "kind": "odd"}]}), "cannot be read"),
    ):
        manifest.write_text(content)
        with pytest.raises(DataError, match=message) as error:
            Dataset.open(data.directory)
        assert str(data.directory) in str(error.value)


def table_with_inputs(num_sequences: int = 40) -> pa.Table:
    """Hourly sequences whose values follow from a dose, a machine and the hour."""
    rng = np.random.default_rng(4)
    ids = np.repeat(np.arange(num_sequences), 12)
    start = np.datetime64("2024-03-01T06:00", "us")
    times = start + np.tile(np.arange(12), num_sequences) * np.timedelta64(1, "h")
    dose = rng.normal(size=ids.size)
    machine = rng.choice(["old", "new"], size=ids.size)
    x = 2.0 * dose + (machine == "old") + 0.3 * rng.normal(size=ids.size)
    columns = {"id": ids, "time": times, "x": x, "flag": ids % 2, "dose": dose, "machine": machine}
    return pa.table(columns)


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_shards_hold_inputs_and_compute_those_with_rules(tmp_path: Path, is_shuffled: bool) -> None:
    rows = table_with_inputs()
    if is_shuffled:
        rows = rows.take(np.random.default_rng(0).permutation(rows.num_rows))
    asked = ["dose", "machine", Calendar("hour"), Position(5)]
    data = made(tmp_path, rows, order="time", inputs=asked, shard_slices=60)
    expected = Sequences.from_table(rows, sequence="id", order="time", inputs=asked)
    assert data.schema == expected.schema
    assert "input dose" in repr(data) and "input hour" in repr(data)
    number = {own: i for i, own in enumerate(expected.ids or ())}
    for shard in Dataset.open(data.directory).shards:
        chunk, batch = shard.chunk(data.keys)
        own = expected[[number[name] for name in chunk.grouping.ids]]
        np.testing.assert_allclose(batch.values, own.values)
        np.testing.assert_allclose(batch.inputs, own.inputs)
        again = chunk.sequences(data.schema)
        np.testing.assert_allclose(again.inputs, own.inputs)
    whole = joined(list(data))
    assert whole.inputs.shape == (480, 4)
    fitted = HMM(1, leaf_inputs=True, by="machine", random_state=0).fit(data)
    in_memory = HMM(1, leaf_inputs=True, by="machine", random_state=0).fit(expected)
    np.testing.assert_allclose(fitted.score(expected), in_memory.score(expected), rtol=0.05)
    by_rule = HMM(2, by=Position(3), random_state=0).fit(made(tmp_path / "plain"))
    assert [own.name for own in by_rule.model_.schema.inputs] == ["position"]


def test_inputs_of_shards_that_cannot_be_are_refused(tmp_path: Path) -> None:
    rows = table_with_inputs(4)
    holes = rows.set_column(4, "dose", pa.array([None, *rows["dose"].to_pylist()[1:]]))
    with pytest.raises(DataError, match=r"input 'dose' must have a value in every row.* row 1"):
        made(tmp_path / "a", holes, order="time", inputs=["dose"])
    filled = made(
        tmp_path / "b",
        holes,
        order="time",
        exclude=["machine"],
        inputs=[Variable.continuous("dose", default=7.0)],
    )
    assert joined(list(filled)).inputs[0, 0] == 7.0
    for inputs, match in (
        (["id"], "both a key and an input"),
        (["nothing"], "nothing"),
        ([Calendar("hour")], "`order`"),
    ):
        with pytest.raises(DataError, match=match):
            made(tmp_path / "c", rows, inputs=inputs)
    with pytest.raises(DataError, match="both a variable and an input"):
        made(tmp_path / "d", rows, variables=["x", "dose"], inputs=["dose"])
