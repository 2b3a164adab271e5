"""Growth and search as one run: its result, its limits, its files and what it refuses."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dspn
from dspn import Model, Schema, Sequences, Variable
from dspn.data.sequences import joined
from dspn.errors import DataError, ModelFileError, StructureError
from dspn.learning import (
    ConditionalLikelihood,
    EmOptions,
    Likelihood,
    Score,
    em,
    em_step,
    learner,
    run,
)
from dspn.learning.growth import GrowthOptions
from dspn.learning.learner import Learned, Plan, learn
from dspn.learning.run import Ending, Report
from dspn.learning.search import SearchOptions
from dspn.structure.validity import violations
from shaped import Shaped

SCHEMA = Schema((Variable.binary("x"), Variable.categorical("y", ("a", "b", "c"))))
PLANTED = Model.from_hmm(
    [0.5, 0.5],
    [[0.9, 0.1], [0.2, 0.8]],
    {"x": [[0.9, 0.1], [0.2, 0.8]], "y": [[0.6, 0.3, 0.1], [0.1, 0.1, 0.8]]},
    schema=SCHEMA,
)
EM = EmOptions(max_steps=3)


# Three nodes are the best, and the fourth is tried in vain.
PLAN = Plan(
    growth=GrowthOptions(max_interfaces=9, patience=1, num_starts=1, num_random=1, em=EM),
    search=SearchOptions(
        max_neighbours=10, round_size=3, caution=0.0, new_part=EmOptions(max_steps=1), whole=EM
    ),
    refit=None,
    score=Shaped((0.0, 10.0, 20.0, 0.0)),
)
FATES = [True, True, True, False]


def drawn(seed: int, count: int) -> Sequences:
    rng = np.random.default_rng([3, seed])
    return PLANTED.sample(count, rng.integers(1, 9, count), rng=rng)


# More than one block of lanes each, so that several threads have something to do.
TRAIN, VALIDATION = drawn(0, 150), drawn(1, 70)


def learned(**settings: Any) -> Learned:
    return learn(TRAIN, VALIDATION, **{"seed": 1, "plan": PLAN, "executor": "threads", **settings})


def outcome(found: Learned) -> tuple[object, ...]:
    """All that a result says, less the time it took."""
    history = tuple(replace(report, seconds=0.0, limit=None) for report in found.history)
    return (
        found.network.fingerprint,
        found.score,
        found.ending,
        found.growth,
        found.tried,
        found.accepted,
        history,
    )


@pytest.fixture(scope="module")
def plain() -> Learned:
    return learned()


# The result.


def test_result_is_the_best_network_with_its_score_and_its_way(plain: Learned) -> None:
    assert plain.ending is Ending.FINISHED
    assert violations(plain.network.template, plain.network.top) == ()
    expected = PLAN.score.mean(Model(plain.network).program, VALIDATION)
    np.testing.assert_allclose(plain.score, expected, rtol=1e-12)
    assert [step.num_interfaces for step in plain.growth] == [1, 2, 3, 4]
    assert [step.accepted for step in plain.growth] == FATES
    assert plain.network.num_interfaces == 3
    assert plain.tried == 10 and 1 <= plain.accepted <= 4


def test_history_tells_the_best_score_against_time(plain: Learned) -> None:
    history = plain.history
    assert [report.stage for report in history] == ["growth"] * len(plain.growth) + ["search"] * 4
    scores = [report.score for report in history]
    assert scores == sorted(scores) and scores[-1] == plain.score
    seconds = [report.seconds for report in history]
    assert seconds == sorted(seconds) and seconds[0] > 0
    last = history[-1]
    template = plain.network.template
    assert (last.tried, last.accepted, last.limit) == (10, plain.accepted, None)
    assert (last.num_interfaces, last.num_nodes, last.num_edges) == (
        template.num_interfaces,
        len(template.nodes),
        template.num_edges,
    )
    grown = history[len(plain.growth) - 1]
    assert grown.tried == len(plain.growth) - 1
    assert grown.accepted == sum(step.accepted for step in plain.growth[1:])


def test_reporter_is_told_every_state_as_it_comes() -> None:
    told: list[Report] = []
    found = learned(report=told.append)
    assert tuple(told) == found.history


def test_growth_alone_where_the_plan_has_no_search() -> None:
    found = learned(plan=replace(PLAN, search=None))
    assert (found.tried, found.accepted, found.ending) == (0, 0, Ending.FINISHED)
    best = [step for step in found.growth if step.accepted][-1]
    assert (found.network.num_interfaces, found.score) == (best.num_interfaces, best.score)


def test_search_alone_where_growth_stays_at_one_node() -> None:
    found = learned(plan=replace(PLAN, growth=replace(PLAN.growth, max_interfaces=1)))
    assert len(found.growth) == 1 and found.tried == 10


@pytest.mark.parametrize(("root", "tied"), [("first", False), ("last", True)])
def test_root_and_bottom_are_those_of_the_plan(root: str, tied: bool) -> None:
    found = learned(plan=replace(PLAN, root=root, tied=tied))
    assert found.network.root == root and found.network.parameters.tied == tied


def test_literal_readings_follow_one_another() -> None:
    plan = Plan(
        growth=GrowthOptions(mode="literal", em=EM, max_interfaces=5),
        search=SearchOptions(mode="literal", whole=EM),
        refit=None,
    )
    found = learned(plan=plan)
    assert found.ending is Ending.FINISHED
    assert all(step.accepted for step in found.growth[:-1])
    assert found.tried - found.accepted == 1


@pytest.mark.parametrize("score", [Likelihood(), ConditionalLikelihood(("y",))])
def test_score_is_the_one_that_the_plan_names(score: Score) -> None:
    found = learned(plan=replace(PLAN, score=score), num_jobs=2)
    expected = score.mean(Model(found.network).program, VALIDATION)
    np.testing.assert_allclose(found.score, expected, rtol=1e-12)


def test_result_is_trained_on_all_data_in_the_end_where_the_plan_says_so(
    plain: Learned, tmp_path: Path
) -> None:
    plan = replace(PLAN, refit=EmOptions(max_steps=3, min_steps=3))
    path = tmp_path / "state.dspn"
    found = learned(plan=plan, checkpoint=path)
    assert outcome(found)[1:] == outcome(plain)[1:]  # as scored before
    everything = joined([TRAIN, VALIDATION])
    network = plain.network
    for _ in range(3):
        network = em_step(network, everything).network
    assert found.network.fingerprint == network.fingerprint
    # The state to go on from is the one before.
    assert dspn.load(path).network.fingerprint == plain.network.fingerprint
    again = learned(plan=plan, checkpoint=path, resume=True)
    assert outcome(again)[:-1] == outcome(found)[:-1]


def test_result_is_not_trained_on_data_twice_where_both_sets_are_one() -> None:
    plan = replace(PLAN, search=None, refit=EmOptions(max_steps=1, min_steps=1))
    before = learn(TRAIN, TRAIN, seed=1, plan=replace(plan, refit=None)).network
    found = learn(TRAIN, TRAIN, seed=1, plan=plan)
    assert found.network.fingerprint == em_step(before, TRAIN).network.fingerprint


def test_network_that_rules_out_a_validation_sequence_is_left_as_it_is() -> None:
    plan = replace(PLAN, score=Shaped((-np.inf,) * 9), search=None)
    before = learned(plan=plan)
    assert before.score == -np.inf and before.ending is Ending.FINISHED
    found = learned(plan=replace(plan, refit=EmOptions(max_steps=3, min_steps=3)))
    assert found.network.fingerprint == before.network.fingerprint


def test_ctrl_c_during_the_last_training_returns_what_was_found(
    plain: Learned, monkeypatch: pytest.MonkeyPatch
) -> None:
    refit, fit_em = EmOptions(), em.fit_em

    def interrupted(*data: Any, **settings: Any) -> object:
        if settings["options"] is refit:
            raise KeyboardInterrupt
        return fit_em(*data, **settings)

    monkeypatch.setattr(em, "fit_em", interrupted)
    found = learned(plan=replace(PLAN, refit=refit))
    assert found.ending is Ending.INTERRUPTED
    assert found.network.fingerprint == plain.network.fingerprint


# What the result follows from.


@pytest.mark.parametrize(("jobs", "threads"), [(1, 2), (2, 1), (3, 2)])
def test_result_does_not_depend_on_jobs_or_threads(
    jobs: int, threads: int, plain: Learned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSPN_NUM_THREADS", str(threads))
    assert outcome(learned(num_jobs=jobs)) == outcome(plain)


def test_another_seed_gives_another_network(plain: Learned) -> None:
    assert learned(seed=2).network.fingerprint != plain.network.fingerprint


def test_ids_do_not_matter(plain: Learned) -> None:
    named = Sequences.from_codes(TRAIN.values, TRAIN.offsets, SCHEMA, ids=range(len(TRAIN)))
    found = learn(named, VALIDATION, seed=np.int64(1), plan=PLAN)  # type: ignore[arg-type]
    assert outcome(found) == outcome(plain)


# Time.


class Ticking:
    """A clock that goes on by a second whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


@cache
def stopped_after(count: int) -> Learned:
    """The run interrupted by the report of state number `count`."""
    left = iter(range(count - 1))

    def stop(_: Report) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return learned(report=stop)


def test_time_limit_returns_the_best_of_what_was_finished(
    plain: Learned, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = set()
    for limit in (1, 40, 80, 5000):
        monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=Ticking().monotonic))
        found = learned(time_limit=limit)
        count = len(found.history)
        lengths.add(count)
        assert found.ending is (Ending.FINISHED if limit == 5000 else Ending.TIME_LIMIT)
        assert all(report.limit == limit for report in found.history)
        expected = replace(stopped_after(count), ending=found.ending)
        assert outcome(found) == outcome(expected)
        assert outcome(found)[-1] == outcome(plain)[-1][:count]  # type: ignore[index]
    assert len(lengths) == 4


def test_limit_that_passes_during_the_first_node_still_gives_a_trained_node() -> None:
    found = learned(time_limit=1e-9)
    assert found.ending is Ending.TIME_LIMIT
    assert found.network.num_interfaces == 1 and len(found.history) == 1
    assert found.growth[0].score == found.score
    assert outcome(found)[0] == outcome(stopped_after(1))[0]


def test_run_that_was_finished_in_time_says_so_however_late_it_is(
    plain: Learned, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = SimpleNamespace(now=0.0)
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: hand.now))

    def late(report: Report) -> None:
        if report.tried == 10 and report.stage == "search":
            hand.now = 1000.0

    found = learned(time_limit=10, report=late)
    assert found.ending is Ending.FINISHED
    assert found.network.fingerprint == plain.network.fingerprint


def test_ctrl_c_returns_the_best_so_far(plain: Learned) -> None:
    for count in range(1, len(plain.history) + 1, 2):
        found = stopped_after(count)
        assert found.ending is Ending.INTERRUPTED
        assert len(found.history) == count
        assert found.score == plain.history[count - 1].score


def test_other_failures_are_not_swallowed(tmp_path: Path) -> None:
    def fail(_: Report) -> None:
        raise RuntimeError("no paper left")

    with pytest.raises(RuntimeError, match="no paper left"):
        learned(report=fail, checkpoint=tmp_path / "state.dspn", checkpoint_every=0)
    assert dspn.load(tmp_path / "state.dspn").network.num_interfaces == 1


# Files.


def test_checkpoint_changes_nothing_and_is_the_model_in_the_end(
    plain: Learned, tmp_path: Path
) -> None:
    for every in (0.0, 1e9):
        path = tmp_path / f"{every}.dspn"
        assert outcome(learned(checkpoint=str(path), checkpoint_every=every)) == outcome(plain)
        assert dspn.load(path).network.fingerprint == plain.network.fingerprint
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("has_search", [True, False])
def test_finished_run_is_not_run_again(
    has_search: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = PLAN if has_search else replace(PLAN, search=None)
    path = tmp_path / "state.dspn"
    once = learned(plan=plan, checkpoint=path)
    content = path.read_bytes()
    for name in ("first_growth", "next_growth", "next_round"):
        monkeypatch.setattr(learner, name, None)
    again = learned(plan=plan, checkpoint=path, resume=True)
    assert outcome(again)[:-1] == outcome(once)[:-1]
    assert path.read_bytes() == content


def test_growth_that_is_over_is_not_run_again(
    plain: Learned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.dspn"

    def stop(report: Report) -> None:
        if report.tried == len(FATES) - 1:
            raise KeyboardInterrupt

    assert learned(checkpoint=path, report=stop).ending is Ending.INTERRUPTED
    monkeypatch.setattr(learner, "next_growth", None)
    found = learned(checkpoint=path, resume=True)
    assert outcome(found)[:-1] == outcome(plain)[:-1]


def test_resume_without_a_file_begins_anew(plain: Learned, tmp_path: Path) -> None:
    path = tmp_path / "state.dspn"
    assert outcome(learned(checkpoint=path, resume=True)) == outcome(plain)
    assert path.exists()


def test_resume_may_use_another_number_of_jobs_and_another_limit(
    plain: Learned, tmp_path: Path
) -> None:
    path = tmp_path / "state.dspn"
    learned(checkpoint=path, time_limit=1e-9)
    found = learned(checkpoint=path, resume=True, num_jobs=2, time_limit=600, checkpoint_every=0)
    assert outcome(found)[:-1] == outcome(plain)[:-1]


def test_file_that_is_there_is_refused_before_anything_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner, "first_growth", None)
    path = tmp_path / "state.dspn"
    path.write_text("my only copy")
    with pytest.raises(ModelFileError, match="already; go on from it with `resume=True`"):
        learned(checkpoint=path)
    with pytest.raises(ModelFileError, match="cannot load"):
        learned(checkpoint=path, resume=True)
    assert path.read_text() == "my only copy"


def test_checkpoint_of_another_run_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.dspn"
    learned(checkpoint=path, time_limit=1e-9)
    content = path.read_bytes()
    others: list[dict[str, Any]] = [
        {"seed": 2},
        {"plan": replace(PLAN, tied=False)},
        {"plan": replace(PLAN, search=None)},
    ]
    for other in others:
        with pytest.raises(ModelFileError, match="belongs to another run"):
            learned(checkpoint=path, resume=True, **other)
    with pytest.raises(ModelFileError, match="its `train` holds other data"):
        learn(VALIDATION, VALIDATION, seed=1, plan=PLAN, checkpoint=path, resume=True)
    assert path.read_bytes() == content


# Arguments.


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"plan": None}, StructureError, "`plan` must be a Plan"),
        ({"seed": -1}, StructureError, "`seed` must be a whole number of at least 0"),
        ({"seed": 1.5}, StructureError, "`seed` must be a whole number"),
        ({"seed": None}, StructureError, "`seed` must be a whole number"),
        ({"num_jobs": 0}, StructureError, "`num_jobs` must be a whole number of at least 1"),
        ({"time_limit": 0}, StructureError, "`time_limit` must be a positive number"),
        ({"resume": True}, StructureError, "`resume` needs a `checkpoint`"),
        ({"checkpoint": 5}, ModelFileError, "must be the name of a file"),
        (
            {"plan": replace(PLAN, score=ConditionalLikelihood(("z",)))},
            DataError,
            "`class_variables` must be variables of the data",
        ),
    ],
)
def test_wrong_argument_is_refused_before_anything_is_learned(
    settings: dict[str, Any], error: type, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner, "first_growth", None)
    with pytest.raises(error, match=said):
        learned(**settings)


def test_data_that_do_not_go_together_are_refused() -> None:
    other = Schema((SCHEMA[0], Variable.categorical("y", ("a", "b"))))
    values = VALIDATION.values.copy()
    values[:, 1] = 0
    validation = Sequences.from_codes(values, VALIDATION.offsets, other)
    with pytest.raises(DataError, match="`validation` must have the variables and categories of"):
        learn(TRAIN, validation, seed=0, plan=PLAN)
    with pytest.raises(DataError, match="`train` must be a Sequences, found list"):
        learn([TRAIN.values], VALIDATION, seed=0, plan=PLAN)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="`validation` must be a Sequences, found NoneType"):
        learn(TRAIN, None, seed=0, plan=PLAN)  # type: ignore[arg-type]


def test_continuous_and_count_variables_with_gaps_are_learned() -> None:
    schema = Schema((Variable.continuous("x"), Variable.count("n")))
    rng = np.random.default_rng(0)
    arrays = [
        np.stack([rng.normal(1e4, 10.0, t), rng.poisson(3, t)], axis=1) for t in (1, 1, 7, 9, 4)
    ]
    for array in arrays[2:]:
        array[rng.random(array.shape) < 0.3] = np.nan
    arrays.append(np.full((3, 2), np.nan))
    data = Sequences.from_arrays(arrays, schema=schema)
    for settings in ({"root": "first", "tied": True}, {"root": "last", "tied": False}):
        plan = replace(PLAN, score=Likelihood(), refit=None, **settings)  # type: ignore[arg-type]
        found = learn(data, data, seed=0, plan=plan)
        assert found.ending is Ending.FINISHED
        expected = Model(found.network).log_likelihood(data).mean()
        np.testing.assert_allclose(found.score, expected, rtol=1e-12)
