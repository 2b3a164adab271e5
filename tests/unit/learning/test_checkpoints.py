"""Learning's state in a file, and every way in which a file can be another one."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dspn
from dspn import Model
from dspn.data import Sequences
from dspn.errors import ModelFileError, StructureError
from dspn.executors import Serial
from dspn.io import load_network, save_network
from dspn.learning import NO_PRIORS, ConditionalLikelihood, EmOptions, run
from dspn.learning.growth import GrowthOptions, GrowthState, GrowthStep
from dspn.learning.learner import Plan, _Run, _State
from dspn.learning.partitions import Positions
from dspn.learning.search import SearchOptions, SearchState
from dspn.structure import initial_network
from strategies import random_case, schema_of

SCHEMA = schema_of(("binary", "ternary"))
NETWORK = initial_network(SCHEMA, 3, rng=np.random.default_rng(0))
GROWTH = GrowthOptions(patience=3, em=EmOptions(max_steps=100))
PLAN = Plan(growth=GROWTH, search=SearchOptions(mode="anytime"), refit=None, root="first")
TRAIN = Model(NETWORK).sample(3, 4, rng=np.random.default_rng(1))
VALIDATION = Model(NETWORK).sample(2, 4, rng=np.random.default_rng(2))
TRAIL = (GrowthStep(1, -np.inf, True), GrowthStep(2, -3.3, True), GrowthStep(3, -0.1, True))
POSITIONS = Positions({(0, 1, 2): (0, 1, 1), (0, 2): (0, 0)})
SEARCH = SearchState(NETWORK, 0.1 + 0.2, 7, 12, 5, 3, POSITIONS)


class Checkpoints:
    """The checkpoint file of a run, with the states that go to it and come from it."""

    def __init__(
        self,
        path: str | Path,
        plan: Plan = PLAN,
        seed: int = 7,
        train: Sequences = TRAIN,
        validation: Sequences = VALIDATION,
        every: float = 60.0,
    ) -> None:
        self.run = _Run(train, validation, plan, seed, Serial(), run.Clock())
        description = run.describe_run(train, validation, seed, plan=plan.to_json())
        self.file = run.CheckpointFile(path, description, every)

    def save(self, state: _State, *, now: bool = True) -> None:
        self.file.save(state.best.network, state.to_json(), now=now)

    def load(self) -> _State | None:
        return self.file.load(self.run.read_state)


def in_growth(score: float, count: int) -> _State:
    return _State(GrowthState(NETWORK, score, 7, TRAIL[:count], NETWORK))


def in_search(**changes: Any) -> _State:
    return in_growth(0.0, 3)._replace(search=replace(SEARCH, **changes))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint of a search."""
    path = tmp_path / "state.dspn"
    Checkpoints(path).save(in_search())
    return path


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """A checkpoint with other provenance, whole and with the right checksum."""
    found = load_network(path)
    said = json.loads(json.dumps(found.provenance))
    change(said)
    save_network(found.network, path, provenance=said)


def test_search_comes_back_as_it_was(saved: Path) -> None:
    found = Checkpoints(saved).load()
    assert found is not None and found.search is not None
    assert found.search.network.fingerprint == NETWORK.fingerprint
    assert found.search.score == 0.1 + 0.2
    assert found.growth.trail == TRAIL
    own = ("seed", "tried", "accepted", "failures", "positions")
    assert [getattr(found.search, name) for name in own] == [7, 12, 5, 3, POSITIONS]


def test_growth_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state.dspn"
    Checkpoints(path).save(in_growth(-np.inf, 1))
    found = Checkpoints(path).load()
    assert found is not None
    assert (found.growth.score, found.growth.trail, found.search) == (-np.inf, TRAIL[:1], None)
    assert found.growth.current is found.growth.network


def test_networks_of_every_shape_come_back_bit_for_bit(tmp_path: Path) -> None:
    for number in range(20):
        network, _, data = random_case(number)
        file = Checkpoints(tmp_path / f"{number}.dspn", train=data, validation=data)
        file.save(in_search(network=network))
        found = file.load()
        assert found is not None
        assert found.best.network.fingerprint == network.fingerprint


def test_checkpoint_is_a_model(saved: Path) -> None:
    model = dspn.load(saved)
    np.testing.assert_array_equal(model.log_likelihood(TRAIN), Model(NETWORK).log_likelihood(TRAIN))
    assert "learning" in model.provenance


def test_same_state_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.dspn"
    Checkpoints(again).save(in_search())
    assert again.read_bytes() == saved.read_bytes()


def test_no_file_is_no_checkpoint(tmp_path: Path) -> None:
    file = Checkpoints(tmp_path / "state.dspn")
    file.file.require_absent()
    assert file.load() is None


def test_file_that_is_there_is_refused_and_left_as_it_is(saved: Path) -> None:
    before = saved.read_bytes(), saved.stat().st_mtime_ns
    with pytest.raises(ModelFileError, match=r"state\.dspn' already; go on .*`resume=True`"):
        Checkpoints(saved).file.require_absent()
    assert (saved.read_bytes(), saved.stat().st_mtime_ns) == before


# When it is written.


def test_checkpoint_is_written_when_the_last_one_is_old_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    path = tmp_path / "state.dspn"
    file = Checkpoints(path, every=10)

    def written(at: float, tried: int) -> int | None:
        now[0] = at
        file.save(in_search(tried=tried), now=False)
        found = file.load()
        return None if found is None or found.search is None else found.search.tried

    times = [(105.0, 1), (109.9, 2), (110.0, 3), (119.9, 4), (120.0, 5), (200.0, 6), (209.0, 7)]
    assert [written(at, tried) for at, tried in times] == [None, None, 3, 3, 5, 6, 6]


def test_every_state_is_written_with_a_pause_of_zero(tmp_path: Path) -> None:
    path = tmp_path / "state.dspn"
    file = Checkpoints(path, every=0)
    for tried in range(3):
        file.save(in_search(tried=tried), now=False)
        found = file.load()
        assert found is not None and found.search is not None and found.search.tried == tried
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.dspn"]


@pytest.mark.parametrize("every", [-1, float("nan"), "60", None, True])
def test_pause_that_is_no_number_of_seconds_is_refused(every: Any, tmp_path: Path) -> None:
    with pytest.raises(StructureError, match="`checkpoint_every` must be a number of seconds"):
        Checkpoints(tmp_path / "state.dspn", every=every)


def test_place_that_cannot_hold_a_file_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"directory '.*nowhere' does not exist; create"):
        Checkpoints(tmp_path / "nowhere" / "state.dspn")
    for bad in (None, 5, ["state.dspn"]):
        with pytest.raises(ModelFileError, match="`path` must be the name of a file"):
            Checkpoints(bad)  # type: ignore[arg-type]


# Files of another run.


def other_value() -> Sequences:
    values = TRAIN.values.copy()
    values[0, 0] = 1 - values[0, 0]
    return TRAIN.with_values(values)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 8}, "its `seed` is 7 where this run has 8"),
        ({"train": other_value()}, "its `train` holds other data"),
        ({"train": TRAIN[np.array([0, 1])]}, "its `train` holds other data"),
        ({"validation": TRAIN}, "its `validation` holds other data"),
        (
            {"plan": replace(PLAN, growth=replace(GROWTH, patience=5))},
            "its `plan.growth.patience` is 3 where this run has 5",
        ),
        (
            {"plan": replace(PLAN, growth=replace(GROWTH, em=EmOptions(max_steps=9)))},
            "its `plan.growth.em.max_steps` is 100 where this run has 9",
        ),
        (
            {"plan": replace(PLAN, search=SearchOptions(mode="literal"))},
            "its `plan.search.mode` is 'anytime' where this run has 'literal'",
        ),
        (
            {"plan": replace(PLAN, search=None)},
            "its `plan.search` is SearchOptions where this run has None",
        ),
        (
            {"plan": replace(PLAN, refit=EmOptions())},
            "its `plan.refit` is None where this run has EmOptions",
        ),
        (
            {"plan": replace(PLAN, priors=NO_PRIORS)},
            "its `plan.priors.sum_pseudo_count` is 0.1 where this run has 0.0",
        ),
        (
            {"plan": replace(PLAN, score=ConditionalLikelihood(("x0",)))},
            "its `plan.score.class` is 'Likelihood' where this run has 'ConditionalLikelihood'",
        ),
        ({"plan": replace(PLAN, root="last")}, "its `plan.root` is 'first' where this run has"),
        ({"plan": replace(PLAN, tied=False)}, "its `plan.tied` is True where this run has False"),
    ],
)
def test_checkpoint_of_another_run_is_refused_with_what_differs(
    changes: dict[str, Any], said: str, saved: Path
) -> None:
    before = saved.read_bytes()
    with pytest.raises(ModelFileError) as raised:
        Checkpoints(saved, **changes).load()
    message = str(raised.value)
    assert "belongs to another run" in message and said in message
    assert str(saved) in message and "at another path" in message
    assert saved.read_bytes() == before


def test_everything_that_differs_is_said_at_once(saved: Path) -> None:
    plan = replace(PLAN, growth=replace(GROWTH, patience=5), tied=False)
    with pytest.raises(ModelFileError) as raised:
        Checkpoints(saved, plan=plan, seed=1, validation=TRAIN).load()
    for name in ("plan.growth.patience", "plan.tied", "seed", "validation"):
        assert f"`{name}`" in str(raised.value)


def test_checkpoint_of_another_version_is_refused(saved: Path) -> None:
    rewritten(saved, lambda said: said["learning"].update(version=99))
    with pytest.raises(ModelFileError, match="is of version 99, but this release reads version 1"):
        Checkpoints(saved).load()


def test_model_without_a_state_of_learning_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.dspn"
    Model(NETWORK, provenance={"seed": 7}).save(path)
    with pytest.raises(ModelFileError, match=r"is a model, but no checkpoint .*how far"):
        Checkpoints(path).load()


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said.update(learning="yes"),
        lambda said: said.update(learning=[1]),
        lambda said: said["learning"].pop("version"),
        lambda said: said["learning"].pop("run"),
        lambda said: said["learning"]["run"].pop("seed"),
        lambda said: said["learning"].pop("score"),
        lambda said: said["learning"].update(score="high"),
        lambda said: said["learning"].update(trail=[]),
        lambda said: said["learning"].update(trail=[[1]]),
        lambda said: said["learning"].update(trail=None),
        lambda said: said["learning"].update(search=[]),
        lambda said: said["learning"]["search"].pop("tried"),
        lambda said: said["learning"]["search"].update(positions=[[[0, 1], [1, 0]]]),
        lambda said: said["learning"]["search"].update(positions=3),
        lambda said: said["learning"]["search"].update(failures="none"),
    ],
)
def test_state_that_cannot_be_read_is_refused(
    change: Callable[[dict[str, Any]], object], saved: Path
) -> None:
    rewritten(saved, change)
    with pytest.raises(ModelFileError):
        Checkpoints(saved).load()


def test_file_that_was_cut_short_is_refused(saved: Path) -> None:
    whole = saved.read_bytes()
    for size in (0, 1, 8, 9, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match="cannot load"):
            Checkpoints(saved).load()


def test_directory_in_its_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="it is a directory"):
        Checkpoints(tmp_path).load()
