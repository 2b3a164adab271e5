"""What comes next in a run: steps that are new, affordable and possible; and the run they make."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dspn import EmOptions, Model, Schema, Sequences, Variable
from dspn.engine import compile_program
from dspn.executors import Serial
from dspn.learning.auto import Auto, AutoLearned, learn_auto
from dspn.learning.auto.base import AutoTask, Recipe, restrict
from dspn.learning.auto.choice import Pool
from dspn.learning.auto.moves import CLUSTERS, DEFAULT_MOVES, REGROUP
from dspn.learning.auto.planner import AutoState, next_steps
from dspn.learning.auto.work import expected_work
from dspn.learning.dependence import layout_of
from dspn.learning.run import Clock
from dspn.structure import Root

SCHEMA = Schema(tuple(Variable.binary(f"x{i}") for i in range(4)))
PLANTED = Model.from_hmm(
    [0.5, 0.5],
    [[0.9, 0.1], [0.2, 0.8]],
    {name: [[0.9, 0.1], [0.2, 0.8]] for name in SCHEMA.names},
    schema=SCHEMA,
)
OPTIONS = Auto(effort=1.0, patience=6, em=EmOptions(max_steps=4, patience=2))


def drawn(num_sequences: int, seed: int) -> Sequences:
    return PLANTED.sample(num_sequences, 10, rng=np.random.default_rng(seed))


TRAIN, VALIDATION = drawn(30, 0), drawn(10, 1)
TASK = AutoTask(TRAIN, VALIDATION, OPTIONS, None, 0, Root.FIRST, True, Serial(), Clock())


def followed(**settings: object) -> tuple[AutoLearned, list[AutoState]]:
    states: list[AutoState] = []
    arguments = {"seed": 0, "options": OPTIONS, "refit": False, **settings}
    found = learn_auto(TRAIN, VALIDATION, on_state=states.append, **arguments)  # type: ignore[arg-type]
    return found, states


@pytest.fixture(scope="module")
def run() -> tuple[AutoLearned, list[AutoState]]:
    return followed()


@pytest.fixture(scope="module")
def states(run: tuple[AutoLearned, list[AutoState]]) -> list[AutoState]:
    return run[1]


# The next steps of a state.


def test_steps_are_new_and_start_from_what_is_there(states: list[AutoState]) -> None:
    for state in states:
        for step in next_steps(state, TASK, 100):
            for block, recipe, parent in step.parts:
                known = state.pool.by_block.get(block, ())
                assert recipe not in {candidate.recipe for candidate in known}
                assert recipe.move == step.move
                if parent is None:
                    assert recipe.parent is None
                else:
                    assert parent in known and recipe.parent == parent.number


def test_steps_of_one_round_are_different(states: list[AutoState]) -> None:
    for state in states:
        steps = next_steps(state, TASK, 100)
        parts = [(block, recipe) for step in steps for block, recipe, _ in step.parts]
        assert len(set(parts)) == len(parts)


def test_no_more_steps_than_asked_for_the_most_promising_first(states: list[AutoState]) -> None:
    for state in states:
        steps = [str(step.parts) for step in next_steps(state, TASK, 100)]
        for count in (0, 1, 2):
            few = [str(step.parts) for step in next_steps(state, TASK, count)]
            assert few == steps[:count]


def test_another_layout_is_new_and_its_unknown_blocks_are_tried(states: list[AutoState]) -> None:
    seen = 0
    for state in states:
        for step in next_steps(state, TASK, 100):
            assert (step.layout is not None) is (step.move == REGROUP)
            if step.layout is None:
                assert len(step.parts) == 1
                continue
            seen += 1
            assert layout_of(step.layout) == step.layout and step.layout not in state.layouts
            tried = {block for block, _, _ in step.parts}
            assert tried == {block for block in step.layout if block not in state.pool}
    assert seen


def test_layouts_stay_without_the_move(states: list[AutoState]) -> None:
    moves = [move for move in DEFAULT_MOVES if move != REGROUP]
    same = replace(TASK, options=replace(OPTIONS, moves=moves))
    for step in next_steps(states[-1], same, 100):
        assert step.move != REGROUP


def test_nothing_is_tried_that_is_too_much_for_the_effort(states: list[AutoState]) -> None:
    little = replace(TASK, options=replace(OPTIONS, effort=states[-1].pool.work * (1 + 1e-9)))
    assert next_steps(states[-1], little, 100) == []


def test_expected_work_grows_with_the_template_and_the_data() -> None:
    small, large = (
        expected_work(TASK, (0, 1), Recipe(CLUSTERS, amount, 0.3), None) for amount in (4, 32)
    )
    assert 0 < small < large
    half = replace(TASK, train=TRAIN[np.arange(15)])
    assert expected_work(half, (0, 1), Recipe(CLUSTERS, 4, 0.3), None) < small


# The run.


def test_no_recipe_is_tried_twice_for_a_block(states: list[AutoState]) -> None:
    tried = [(item.candidate.block, item.candidate.recipe) for item in states[-1].trail]
    assert len(set(tried)) == len(tried)
    assert [item.candidate.number for item in states[-1].trail] == list(range(len(tried)))


def test_the_score_never_falls_and_gains_add_up_to_it(states: list[AutoState]) -> None:
    scores = [state.choice.score for state in states]
    assert scores == sorted(scores)
    gains = sum(item.gain for item in states[-1].trail)
    # A gain that is hardly one counts as none.
    assert gains == pytest.approx(scores[-1] - scores[0], abs=0.02)
    assert all(item.gain >= 0 for item in states[-1].trail)


def test_candidates_say_the_likelihood_of_their_networks(states: list[AutoState]) -> None:
    for item in states[-1].trail:
        own = item.candidate
        expected = compile_program(own.network).log_likelihood(restrict(VALIDATION, own.block))
        np.testing.assert_allclose(own.validation, expected, rtol=1e-12)


def test_all_work_is_counted_and_within_the_effort_but_for_the_last_round(
    run: tuple[AutoLearned, list[AutoState]],
) -> None:
    found, states = run
    assert states[-1].pool.work == pytest.approx(found.work, rel=1e-12)
    assert found.work == pytest.approx(sum(item.candidate.work for item in found.tried), rel=1e-12)
    assert OPTIONS.effort is not None
    assert states[-1].work <= OPTIONS.effort


@pytest.mark.parametrize("effort", [1e-9, 0.1, 0.4])
def test_little_effort_ends_early(effort: float) -> None:
    options = replace(OPTIONS, effort=effort, patience=10**6)
    found, states = followed(options=options)
    rounds = [state.pool.work for state in states]
    # The first round is made in any case.
    assert all(work < effort for work in rounds[1:-1] if work > rounds[0])
    assert np.isfinite(found.score)


def test_states_are_values_of_their_own(states: list[AutoState]) -> None:
    sizes = [state.tried for state in states]
    assert sizes == sorted(sizes)
    for before, after in pairwise(states):
        assert after.trail[: before.tried] == before.trail
        assert after.layouts[: len(before.layouts)] == before.layouts
    pool = Pool()
    for item in states[-1].trail:
        pool = pool.with_candidates(item.candidate)
    assert pool.by_block == states[-1].pool.by_block


def test_a_run_ends_when_nothing_was_better_for_long() -> None:
    found, states = followed(options=replace(OPTIONS, effort=1e6, exploration=0.0, patience=1))
    assert states[-1].failures >= 1
    assert all(state.failures == 0 for state in states[:-1] if state.stage == "deepening")
    assert found.choice is states[-1].choice


def test_history_tells_every_state(run: tuple[AutoLearned, list[AutoState]]) -> None:
    found, states = run
    assert [report.score for report in found.history] == [state.choice.score for state in states]
    assert [report.tried for report in found.history] == [state.tried for state in states]
    assert [report.accepted for report in found.history] == [state.accepted for state in states]
    seconds = [report.seconds for report in found.history]
    assert seconds == sorted(seconds)


def test_every_try_is_told_in_words(states: list[AutoState]) -> None:
    for item in states[-1].trail:
        told = str(item)
        assert f"model {item.candidate.number} " in told and str(item.candidate.recipe) in told
