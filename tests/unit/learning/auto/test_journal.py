"""The directory of a run: round trips, what it refuses, and what is left when it was killed."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

from dspn import EmOptions, Model, Schema, Sequences, Variable, atomic
from dspn.errors import ModelFileError, StructureError
from dspn.executors import Serial
from dspn.io import load_network, save_network
from dspn.learning.auto import Auto, AutoLearned, learn_auto
from dspn.learning.auto import run as running
from dspn.learning.auto.base import AutoTask, Candidate, Recipe, Try
from dspn.learning.auto.journal import Journal
from dspn.learning.auto.moves import CLUSTERS, REGROUP
from dspn.learning.auto.run import FIRST_ROUGH
from dspn.learning.auto.training import attempted
from dspn.learning.run import Clock, Ending
from dspn.structure import Root

SCHEMA = Schema(tuple(Variable.binary(f"x{i}") for i in range(3)))
PLANTED = Model.from_hmm(
    [0.5, 0.5],
    [[0.9, 0.1], [0.2, 0.8]],
    {name: [[0.9, 0.1], [0.2, 0.8]] for name in SCHEMA.names},
    schema=SCHEMA,
)
OPTIONS = Auto(effort=1e3, patience=3, em=EmOptions(max_steps=2), refit=EmOptions(max_steps=1))


def drawn(num_sequences: int, seed: int) -> Sequences:
    return PLANTED.sample(num_sequences, 5, rng=np.random.default_rng(seed))


TRAIN, VALIDATION = drawn(24, 0), drawn(8, 1)


def task(**settings: object) -> AutoTask:
    given = {"seed": 0, "options": OPTIONS, "priors": None, **settings}
    return AutoTask(
        TRAIN, VALIDATION, root=Root.FIRST, tied=True, executor=Serial(), clock=Clock(), **given
    )  # type: ignore[arg-type]


def learned(**settings: object) -> AutoLearned:
    arguments = {"seed": 0, "options": OPTIONS, **settings}
    return learn_auto(TRAIN, VALIDATION, **arguments)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole() -> AutoLearned:
    return learned()


@pytest.fixture
def directory(tmp_path: Path, ended: Path) -> Path:
    """That of a run that has ended, to be changed at will."""
    return copytree(ended, tmp_path / "run")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ended")
    learned(checkpoint=path)
    return path


ATTEMPT = Try(7, (0, 2), Recipe(CLUSTERS, 3, 0.3, width=1))


def made() -> Candidate:
    found = attempted(ATTEMPT, task())
    assert found is not None
    return found


def opened(path: Path | str, own: AutoTask, *, resume: bool) -> Journal:
    with Journal.held(path, own, resume=resume) as journal:
        return journal


# Candidates.


def test_a_candidate_comes_back_as_it_was(tmp_path: Path) -> None:
    own = task()
    journal = opened(tmp_path / "run", own, resume=False)
    assert journal.recall(ATTEMPT, own) is None
    candidate = made()
    journal.keep(candidate, own)
    again = opened(tmp_path / "run", own, resume=True).recall(ATTEMPT, own)
    assert again is not None
    assert again.network.fingerprint == candidate.network.fingerprint
    np.testing.assert_array_equal(again.validation, candidate.validation)
    names = ("number", "block", "recipe", "steps", "work")
    assert [getattr(again, name) for name in names] == [getattr(candidate, name) for name in names]


@pytest.mark.parametrize(
    "other",
    [
        Try(7, (0, 1), ATTEMPT.recipe),
        Try(7, (0, 2), Recipe(CLUSTERS, 3, 0.3, width=2)),
        Try(7, (0, 2), Recipe(REGROUP, 3, 0.3, width=1)),
        Try(7, (0, 2), Recipe(CLUSTERS, 3, 0.3, width=1, parent=2)),
    ],
)
def test_the_candidate_of_another_try_is_refused(tmp_path: Path, other: Try) -> None:
    journal = opened(tmp_path / "run", task(), resume=False)
    journal.keep(made(), task())
    with pytest.raises(ModelFileError, match="not the model that this run trained"):
        journal.recall(other, task())


@pytest.mark.parametrize("said", [None, {"learning": 3}, {"learning": {"steps": 1}}])
def test_a_model_that_is_no_candidate_is_refused(tmp_path: Path, said: dict | None) -> None:
    journal = opened(tmp_path / "run", task(), resume=False)
    save_network(made().network, tmp_path / "run" / "00007.dspn", provenance=said)
    with pytest.raises(ModelFileError, match="not the model that this run trained"):
        journal.recall(ATTEMPT, task())


def test_a_damaged_candidate_is_refused_by_name(tmp_path: Path) -> None:
    journal = opened(tmp_path / "run", task(), resume=False)
    journal.keep(made(), task())
    path = tmp_path / "run" / "00007.dspn"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ModelFileError, match=r"00007\.dspn"):
        journal.recall(ATTEMPT, task())


# The directory.


def test_a_directory_is_made_with_its_parents_and_tells_its_run(tmp_path: Path) -> None:
    path = tmp_path / "some" / "where"
    opened(path, task(), resume=False)
    told = json.loads((path / "run.json").read_text(encoding="utf-8"))
    assert told["seed"] == 0 and told["options"]["patience"] == 3
    opened(str(path), task(), resume=True)


@pytest.mark.parametrize("resume", [False, True])
def test_an_empty_directory_may_be_begun_in(tmp_path: Path, resume: bool) -> None:
    opened(tmp_path, task(), resume=resume)
    assert (tmp_path / "run.json").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"seed": 1}, "seed"),
        ({"options": Auto(effort=2e3)}, "options"),
    ],
)
def test_another_run_is_refused(tmp_path: Path, settings: dict, said: str) -> None:
    opened(tmp_path, task(), resume=False)
    with pytest.raises(ModelFileError, match=f"another one: its `{said}"):
        opened(tmp_path, task(**settings), resume=True)


@pytest.mark.parametrize("text", ["", '{"seed": ', "\xff\xfe", "[1]"])
def test_a_damaged_description_of_the_run_is_refused(tmp_path: Path, text: str) -> None:
    opened(tmp_path, task(), resume=False)
    (tmp_path / "run.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelFileError, match=r"begin anew"):
        opened(tmp_path, task(), resume=True)


def test_a_place_where_no_directory_can_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ModelFileError, match="cannot make the directory"):
        opened(tmp_path / "file" / "run", task(), resume=False)


def test_nothing_is_begun_where_arguments_are_refused(tmp_path: Path) -> None:
    for settings in ({"priors": 3}, {"tied": "yes"}, {"seed": -1}, {"time_limit": -1}):
        with pytest.raises(StructureError):
            learned(checkpoint=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


# Killed.


class Killed(BaseException):
    """Stands for the end of the process: nothing is tidied up after it."""


def killed_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends the process when the file `number` is written but has not yet its name."""
    count = 0
    plain = os.replace

    def replace(source: str, target: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise Killed
        plain(source, target)

    monkeypatch.setattr(atomic.os, "replace", replace)
    monkeypatch.setattr(atomic.os, "unlink", lambda path: None)


@pytest.mark.parametrize(("number", "num_jobs"), [(1, 1), (2, 2), (5, 1), (5, 2)])
def test_a_run_that_was_killed_while_writing_goes_on_to_the_same_model(
    tmp_path: Path, whole: AutoLearned, number: int, num_jobs: int
) -> None:
    directory = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        killed_at(number, patch)
        with pytest.raises(Killed):
            learned(checkpoint=directory, num_jobs=num_jobs, executor="threads")
    assert any(path.suffix == ".tmp" for path in directory.iterdir())
    resumed = learned(checkpoint=directory, resume=True)
    assert resumed.mixture.fingerprint == whole.mixture.fingerprint
    assert [str(item) for item in resumed.tried] == [str(item) for item in whole.tried]


def test_a_directory_in_which_nothing_was_written_whole_may_be_begun_in(tmp_path: Path) -> None:
    (tmp_path / ".dspn-0123.tmp").write_bytes(b"{")
    opened(tmp_path, task(), resume=False)
    assert (tmp_path / "run.json").exists()


def recorder(numbers: list[int]) -> Callable[[Try, AutoTask], Candidate | None]:
    def recorded(attempt: Try, own: AutoTask) -> Candidate | None:
        numbers.append(attempt.number)
        return attempted(attempt, own)

    return recorded


def test_what_is_in_the_directory_is_not_trained_again(
    directory: Path, whole: AutoLearned, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [own for own in sorted(directory.glob("*.dspn")) if int(own.stem) < FIRST_ROUGH]
    assert len(files) == len(whole.tried)
    for path, item in zip(files, whole.tried, strict=True):
        assert load_network(path).network.fingerprint == item.candidate.network.fingerprint
    files[2].unlink()
    trained: list[int] = []
    monkeypatch.setattr(running, "attempted", recorder(trained))
    again = learned(checkpoint=directory, resume=True)
    assert trained == [2]
    assert again.mixture.fingerprint == whole.mixture.fingerprint


def test_the_time_limit_does_not_hinder_reading(directory: Path, whole: AutoLearned) -> None:
    again = learned(checkpoint=directory, resume=True, time_limit=1e-9)
    assert again.mixture.fingerprint == whole.mixture.fingerprint


def test_what_the_clock_decided_at_the_beginning_is_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    schema = Schema((Variable.continuous("a"), Variable.continuous("b")))

    def moved(count: int) -> Sequences:
        noise = rng.normal(size=(count, 20, 1)) + 0.1 * rng.normal(size=(count, 20, 2))
        return Sequences.from_arrays(list(noise), schema=schema)

    sets, options = (moved(60), moved(20)), Auto(effort=5.0, patience=2)
    directory = tmp_path / "run"
    begun = learn_auto(*sets, seed=0, options=options, checkpoint=directory, time_limit=1e4)
    assert any(own.kept for own in begun.covariances)
    again = learn_auto(
        *sets, seed=0, options=options, checkpoint=directory, time_limit=1e-9, resume=True
    )
    assert again.covariances == begun.covariances
    assert again.mixture.fingerprint == begun.mixture.fingerprint


def test_a_run_with_covariances_is_not_one_without(tmp_path: Path) -> None:
    learned(checkpoint=tmp_path / "run", covariances=True)
    with pytest.raises(ModelFileError, match="another one: its `covariances` is True"):
        learned(checkpoint=tmp_path / "run", covariances=False, resume=True)


def test_a_full_disk_at_the_beginning_does_not_end_learning(
    tmp_path: Path, whole: AutoLearned, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.replace

    def replace(source: str, target: str) -> None:
        if target.endswith("beginning.json"):
            raise OSError(28, "No space left on device")
        plain(source, target)

    monkeypatch.setattr(atomic.os, "replace", replace)
    with pytest.warns(UserWarning, match="beginning.json.*learning goes on"):
        found = learned(checkpoint=tmp_path / "run")
    assert found.mixture.fingerprint == whole.mixture.fingerprint
    assert not (tmp_path / "run" / "beginning.json").exists()


def test_with_more_time_than_before_a_run_begins_anew(tmp_path: Path, whole: AutoLearned) -> None:
    directory = tmp_path / "run"
    short = learned(checkpoint=directory, time_limit=0.1)
    assert short.work < whole.work
    again = learned(checkpoint=directory, resume=True)
    assert again.mixture.fingerprint == whole.mixture.fingerprint


BEGINNING = {"timed": None, "tried": [], "work": 0.0}
TRIED = {"names": ["x0", "x1"], "gain": 1.0, "error": 0.1, "kept": True}


@pytest.mark.parametrize(
    "said",
    [
        [],
        {**BEGINNING, "timed": "long"},
        {**BEGINNING, "work": None},
        {**BEGINNING, "more": 1},
        {**BEGINNING, "tried": [{**TRIED, "kept": 1}]},
        {**BEGINNING, "tried": [{**TRIED, "names": ["y0", "y1"]}]},
        {**BEGINNING, "tried": [{**TRIED, "names": "x0"}]},
        {**BEGINNING, "tried": [TRIED]},  # not a number
    ],
)
def test_a_damaged_beginning_is_refused(directory: Path, said: object) -> None:
    (directory / "beginning.json").write_text(json.dumps(said), encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"beginning\.json.*begun with.*begin anew"):
        learned(checkpoint=directory, resume=True)


@pytest.mark.parametrize("number", [1, 2, 5, 7, 9, 10])
def test_time_that_is_up_in_the_middle_of_a_round_leaves_a_sound_directory(
    tmp_path: Path, whole: AutoLearned, number: int
) -> None:
    trained = 0

    def timed(attempt: Try, own: AutoTask) -> Candidate | None:
        nonlocal trained
        trained += 1
        found = attempted(attempt, own)
        if trained == number:
            own.clock.stop()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "attempted", timed)
        stopped = learned(checkpoint=tmp_path)
    assert stopped.ending is not Ending.FINISHED
    resumed = learned(checkpoint=tmp_path, resume=True)
    assert resumed.mixture.fingerprint == whole.mixture.fingerprint
