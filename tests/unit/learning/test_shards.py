"""Expectation maximisation on shards: the same as in memory, with every executor and resumption."""

import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dspn import HMM, Model, Sequences
from dspn.data import dataset
from dspn.data.dataset import Dataset
from dspn.data.prepare import prepare
from dspn.data.sequences import data_fingerprint, joined
from dspn.errors import DataError, ModelFileError
from dspn.executors import Executor, Processes, Serial, Threads
from dspn.learning import (
    DEFAULT_PRIORS,
    NO_PRIORS,
    ConditionalLikelihood,
    EmOptions,
    Ending,
    fit_em,
)
from dspn.learning.em import EmState
from dspn.learning.run import Clock
from dspn.learning.scores import LIKELIHOOD, FitRecord, StopReason
from dspn.learning.shards import ShardedFit, ShardedPart, StateFile, fit_shards, hold_out
from dspn.structure import Mixture, initial_network
from strategies import schema_of

SCHEMA = schema_of(("binary", "continuous", "count"))
FULL = EmOptions(max_steps=4, tolerance=0.0)
BATCHES = EmOptions(max_steps=3, batch_size=14, tolerance=0.0)


def network(seed: int, num_interfaces: int = 2) -> Any:
    return initial_network(SCHEMA, num_interfaces, rng=np.random.default_rng(seed))


def mixture(num_components: int) -> Mixture:
    weights = np.arange(1.0, num_components + 1)
    return Mixture(tuple(network(own) for own in range(num_components)), weights / weights.sum())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Seventy sequences with gaps, in shards of seven."""
    place = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(1)
    drawn = Model(network(9, 3)).sample(70, 4, rng=rng)
    values = np.where(rng.random(drawn.values.shape) < 0.1, np.nan, drawn.values)
    table = drawn.with_values(values).to_table(sequence="id", order="t")
    with pa.ipc.new_file(place / "in.arrow", pa.table(table).schema) as writer:
        writer.write_table(pa.table(table))
    options: Any = {"sequence": "id", "order": "t", "schema": SCHEMA, "shard_slices": 28}
    found = prepare(place / "in.arrow", place / "out", **options)
    assert len(found.shards) == 10  # more than are added in a row
    return found


@pytest.fixture
def whole(data: Dataset) -> Sequences:
    return in_memory(data)


def in_memory(data: Dataset) -> Sequences:
    return joined(list(data))


def fit(data: Dataset, start: Mixture, options: EmOptions = FULL, **settings: Any) -> ShardedFit:
    settings = {"validation": None, "priors": DEFAULT_PRIORS, "seed": 0, **settings}
    return fit_shards(start, data, settings.pop("validation"), options=options, **settings)


def curve(history: Any) -> np.ndarray:
    return np.array([[own.train, own.penalised] for own in history])


def assert_identical(one: ShardedFit, other: ShardedFit) -> None:
    assert one.mixture.fingerprint == other.mixture.fingerprint
    assert one.history == other.history
    assert (one.score, one.ending) == (other.score, other.ending)


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("is_judged", [False, True])
def test_steps_on_shards_are_those_in_memory(
    data: Dataset, whole: Sequences, components: int, is_judged: bool
) -> None:
    start = mixture(components)
    held = whole[:8] if is_judged else None
    found = fit(data, start, validation=held)
    expected = fit_em(start, whole, validation=held, options=FULL)
    np.testing.assert_allclose(curve(found.history), curve(expected.history), rtol=1e-12)
    np.testing.assert_allclose(found.mixture.weights, expected.mixture.weights, rtol=1e-10)
    np.testing.assert_allclose(found.score, expected.score, rtol=1e-12)
    assert (found.ending, found.dead) == (expected.stopped, expected.dead)
    scores = [Model(own).log_likelihood(whole) for own in (found.mixture, expected.mixture)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-10)


@pytest.mark.parametrize("priors", [DEFAULT_PRIORS, NO_PRIORS], ids=["default", "none"])
@pytest.mark.parametrize("components", [1, 3])
def test_every_step_raises_the_penalised_likelihood(
    data: Dataset, components: int, priors: Any
) -> None:
    options = EmOptions(max_steps=8, tolerance=0.0)
    history = fit(data, mixture(components), options, priors=priors).history
    assert len(history) == 9
    rises = np.diff(curve(history)[:, 1])
    assert (rises > -1e-10).all()
    assert rises[0] > 1e-3


def test_flows_and_scores_of_shards_add_up_to_those_of_all(data: Dataset, whole: Sequences) -> None:
    part, program = ShardedPart.of(data), Model(mixture(2)).compiled
    found = part.flows(program)
    expected = program.expected_flows(whole)
    np.testing.assert_allclose(found.counts, expected.counts, rtol=1e-12)
    for one, other in zip(found.components, expected.components, strict=True):
        np.testing.assert_allclose(one.template.weights, other.template.weights, rtol=1e-9)
    mean = expected.log_likelihood.mean()
    for values in (found.log_likelihood, part.log_likelihood(program)):
        assert part.mean(values) == pytest.approx(mean, rel=1e-12)
    for score in (LIKELIHOOD, ConditionalLikelihood(SCHEMA.names[:1])):
        expected_score = score.mean(program, whole)
        assert part.score(score, program) == pytest.approx(expected_score, rel=1e-12)


@pytest.mark.parametrize("options", [FULL, BATCHES], ids=["full", "batches"])
def test_every_executor_makes_the_same_model(data: Dataset, options: EmOptions) -> None:
    start = mixture(2)
    rest, held = hold_out(data, 0.2, 0)
    expected = fit(rest, start, options, validation=held)
    executors: list[Executor] = [Serial(), Threads(3), Processes(2)]
    for executor in executors:
        again, same = hold_out(data, 0.2, 0, executor)
        assert held is not None
        assert same is not None
        np.testing.assert_array_equal(same.values, held.values)
        assert_identical(fit(again, start, options, validation=same, executor=executor), expected)


def test_batches_of_shards_hold_every_shard_once(data: Dataset) -> None:
    part = ShardedPart.of(data.hold_out(0.2, 0))
    total = part.weights.sum()
    for size in (1, 12, 30, 1000):
        batches = part.batches(size, np.random.default_rng(0))
        paths = [own.path for batch, _ in batches for own in batch.shards]  # type: ignore[attr-defined]
        assert sorted(paths) == sorted(own.path for own in part.shards)
        for batch, factor in batches:
            assert factor == pytest.approx(total / batch.weights.sum(), rel=1e-12)
        assert len(batches) == min(len(part.shards), max(1, round(total / size)))


def test_passes_over_batches_come_near_the_maximum(data: Dataset) -> None:
    start = mixture(1)
    options = EmOptions(max_steps=15, tolerance=0.0)
    full = fit(data, start, options)
    some = fit(data, start, replace(options, batch_size=15))
    assert some.score > full.score - 0.1
    assert some.score > full.history[0].train + 0.1


# Resumption.


def states_of(data: Dataset, start: Mixture, options: EmOptions, **settings: Any) -> list[EmState]:
    states: list[EmState] = []
    fit_em(
        start,
        ShardedPart.of(data),
        options=options,
        rng=np.random.default_rng([0, 19]),
        on_state=states.append,
        **settings,
    )
    return states


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (FULL, 0),
        (FULL, 2),
        (FULL, -1),
        (BATCHES, 0),
        (BATCHES, 1),
        (BATCHES, -1),
    ],
)
def test_a_fit_that_goes_on_from_a_state_is_the_uninterrupted_one(
    data: Dataset, tmp_path: Path, options: EmOptions, place: int
) -> None:
    start = mixture(2)
    rest, held = hold_out(data, 0.2, 0)
    states = states_of(rest, start, options, validation=held)
    assert len(states) == options.max_steps + 1
    checkpoint = str(tmp_path / "model.em")
    expected = fit(rest, start, options, validation=held, checkpoint=checkpoint)
    written = Path(checkpoint).read_bytes()
    file_of(checkpoint, start, rest, held, options).save(states[place])
    found = fit(rest, start, options, validation=held, checkpoint=checkpoint, resume=True)
    assert_identical(found, expected)
    assert Path(checkpoint).read_bytes() == written


def file_of(
    path: str, start: Mixture, data: Dataset, held: Sequences | None, options: EmOptions
) -> StateFile:
    counted = None if held is None else data_fingerprint(held).hex()
    run = {"data": data.origin, "validation": counted, "options": options}
    return StateFile(path, start, seed=0, priors=DEFAULT_PRIORS, **run)


def test_a_state_comes_back_as_it_was(data: Dataset, tmp_path: Path) -> None:
    start = mixture(2)
    for options in (FULL, BATCHES):
        state = states_of(data, start, options)[2]
        file = StateFile(tmp_path / str(options.batch_size), start, seed=0)
        assert file.load() is None
        file.save(state)
        found = file.load()
        assert found is not None
        assert found.mixture.fingerprint == state.mixture.fingerprint
        assert found.best.fingerprint == state.best.fingerprint
        assert (found.history, found.num_batches) == (state.history, state.num_batches)
        assert found.rng_state == state.rng_state
        for one, other in zip(arrays_of(found), arrays_of(state), strict=True):
            np.testing.assert_array_equal(one, other)


def arrays_of(state: EmState) -> Iterator[np.ndarray]:
    if state.statistics is not None:
        yield state.statistics.counts
        for flows in state.statistics.components:
            yield flows.template.weights
            yield flows.top.weights
            yield from flows.template.leaves


def test_ctrl_c_keeps_the_best_so_far_and_the_checkpoint_goes_on(
    data: Dataset, tmp_path: Path
) -> None:
    start, checkpoint = mixture(1), str(tmp_path / "model.em")
    expected = fit(data, start)

    def interrupt(record: FitRecord) -> None:
        if record.step == 3:
            raise KeyboardInterrupt

    stopped = fit(data, start, checkpoint=checkpoint, on_step=interrupt)
    assert stopped.ending == Ending.INTERRUPTED
    assert stopped.history == expected.history[:3]
    assert_identical(fit(data, start, checkpoint=checkpoint, resume=True), expected)
    with pytest.raises(ModelFileError, match=r"there is a checkpoint at .* already"):
        fit(data, start, checkpoint=checkpoint)


def test_a_time_limit_ends_the_fit_with_the_best_so_far(data: Dataset) -> None:
    found = fit(data, mixture(1), EmOptions(max_steps=10**6, tolerance=0.0), clock=Clock(0.2))
    assert found.ending == StopReason.DEADLINE
    assert found.score >= found.history[0].train


@pytest.mark.parametrize(
    "damage", ["cut off", "empty", "other options", "other start", "other data"]
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    data: Dataset, tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "model.em"
    options = replace(FULL, max_steps=1)
    start = mixture(1)
    fit(data, start, options, checkpoint=str(path))
    if damage in ("cut off", "empty"):
        path.write_bytes(path.read_bytes()[: 100 if damage == "cut off" else 0])
    options = FULL if damage == "other options" else options
    start = Mixture.of(network(5)) if damage == "other start" else start
    other = replace(data, origin="other") if damage == "other data" else data
    with pytest.raises(ModelFileError, match=r"cannot go on from '.*model\.em': ") as error:
        fit(other, start, options, checkpoint=str(path), resume=True)
    if damage.startswith("other"):
        assert "it belongs to a fit of other data, options or another start" in str(error.value)


# What is held out, and bad input.


def test_what_is_held_out_is_not_learned_from(data: Dataset) -> None:
    rest, held = hold_out(data, 0.3, 0)
    assert held is not None
    train = in_memory(rest)
    assert len(train) + len(held) == len(data)
    assert {own.tobytes() for own in train}.isdisjoint(own.tobytes() for own in held)
    found = fit(rest, mixture(1), validation=held)
    expected = fit_em(mixture(1), train, validation=held, options=FULL)
    np.testing.assert_allclose(found.score, expected.score, rtol=1e-12)
    assert hold_out(data, 0.0, 0) == (data, None)
    everything, none = hold_out(data, 1.0, 0)  # nothing would be left to learn from
    assert none is None
    assert everything is data
    with pytest.raises(DataError, match="holds no sequence to learn from"):
        ShardedPart.of(data.hold_out(1.0, 0))


@pytest.mark.parametrize("executor", [Serial(), Threads(2), Processes(2)])
def test_a_damaged_shard_ends_the_fit_with_its_name(data: Dataset, executor: Executor) -> None:
    path = Path(data.shards[3].path)
    content = path.read_bytes()
    start = Mixture.of(network(0))
    try:
        path.write_bytes(content[:-1])
        dataset._decoded.clear()
        shards = tuple(replace(own, checksum=own.checksum.upper()) for own in data.shards)
        fresh = replace(data, shards=data.shards[:3] + shards[3:4])
        with pytest.raises(DataError, match=rf"the shard '.*{path.name}' is damaged"):
            fit(fresh, start, executor=executor)
        path.unlink()
        with pytest.raises(
            DataError, match=rf"the shard '.*{path.name}' cannot be read: is missing"
        ):
            fit(fresh, start, executor=executor)
    finally:
        path.write_bytes(content)
    fit(data, start, replace(FULL, max_steps=1), executor=executor)


def test_sequences_that_are_impossible_are_counted_with_their_shard(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,x\na,0\na,1\nb,1\nb,0\n")
    data = prepare(tmp_path / "in.csv", tmp_path / "out", sequence="id", shard_slices=2)
    emissions = {"x": [[1.0, 0.0], [0.0, 1.0]]}
    model = Model.from_hmm([1.0, 0.0], [[0.5, 0.5]] * 2, emissions, schema=data.schema)
    with pytest.raises(DataError, match=r"1 of the sequences of the shard '.*' have probability"):
        fit(data, model.mixture)


def test_a_model_of_other_variables_is_refused(data: Dataset) -> None:
    other = initial_network(schema_of(("binary",)), 2, rng=np.random.default_rng(0))
    with pytest.raises(DataError, match="must have the variables of the model"):
        fit(data, Mixture.of(other))


FIT = """
import sys, warnings, dspn
warnings.simplefilter("ignore")
em = dspn.EmOptions(max_steps=5, tolerance=0)
options = {"checkpoint": sys.argv[2], "resume": True} if sys.argv[2:] else {}
model = dspn.DSPN(dspn.Em(3, em), random_state=0, verbose=1, validation_fraction=0, **options)
model.fit(dspn.Dataset.open(sys.argv[1])).save(sys.argv[1] + "/model.dspn")
"""


def test_a_killed_fit_goes_on_from_its_checkpoint_and_writes_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    rows = [f"{number // 6},{bit}" for number, bit in enumerate(rng.integers(0, 2, 600))]
    (tmp_path / "bits.csv").write_text("id,bit\n" + "\n".join(rows) + "\n")
    shards, checkpoint = tmp_path / "shards", str(tmp_path / "run")
    prepare(tmp_path / "bits.csv", shards, sequence="id", shard_slices=100)
    call, written = [sys.executable, "-c", FIT, str(shards)], shards / "model.dspn"
    monkeypatch.setattr(sys, "argv", call[2:])
    with warnings.catch_warnings():
        exec(FIT, {})
    whole = written.read_bytes()
    written.unlink()
    with subprocess.Popen([*call, checkpoint], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("step 3 on all shards"):  # steps 0 to 2 are kept
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert not written.exists()
    found = subprocess.run([*call, checkpoint], check=True, capture_output=True, text=True)
    assert found.stderr.count(" on all shards: ") < 6
    assert written.read_bytes() == whole


def test_inputs_of_a_data_set_are_those_it_was_prepared_with(data: Dataset) -> None:
    with pytest.raises(DataError, match=r"`inputs`.* must be left out with a Dataset"):
        HMM(2).fit(data, inputs=np.zeros(data.total_slices))
