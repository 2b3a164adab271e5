"""Chains of their own with joint starts, and chains of many nodes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dspn import EmOptions, Model, Schema, Sequences, Variable
from dspn.executors import Serial
from dspn.learning.auto import Auto, AutoLearned, base, learn_auto
from dspn.learning.auto.base import AutoTask, BlockRecord, Candidate, Recipe, Try
from dspn.learning.auto.choice import BlockModel, Choice
from dspn.learning.auto.learner import build_mixture
from dspn.learning.auto.moves import CLUSTERS, DEFAULT_MOVES, JOINT_STARTS, REGROUP, Training
from dspn.learning.auto.run import AutoRun
from dspn.learning.auto.training import attempted
from dspn.learning.auto.work import expected_work, start_work, work_of
from dspn.learning.run import Clock
from dspn.structure import Root
from dspn.structure.validity import violations
from oracles import likelihood as enumerated

SCHEMA = Schema(tuple(Variable.binary(f"x{i}") for i in range(5)))
EVERY = tuple(range(5))
APART = tuple((i,) for i in EVERY)
PAIRED = ((0, 3), (1,), (2, 4))


def drawn(num_sequences: int, seed: int, *, length: int = 12, kinds: int = 4) -> Sequences:
    """A kind for each sequence, which says about when each variable turns from 0 to 1."""
    turns = np.random.default_rng(9).integers(0, length, size=(kinds, len(EVERY)))
    rng = np.random.default_rng(seed)
    moved = turns[rng.integers(0, kinds, num_sequences)]
    moved += rng.integers(-2, 3, moved.shape)
    rows = np.arange(length)[None, :, None] >= moved[:, None, :]
    rows ^= rng.random(rows.shape) < 0.02
    offsets = np.arange(num_sequences + 1) * length
    return Sequences.from_codes(rows.reshape(-1, len(EVERY)).astype(float), offsets, SCHEMA)


def task(**settings: object) -> AutoTask:
    options = Auto(effort=4.0, em=EmOptions(max_steps=2))
    train, validation = drawn(120, 0), drawn(30, 1)
    own = AutoTask(train, validation, options, None, 0, Root.FIRST, True, Serial(), Clock())
    return replace(own, _restricted={}, **settings)  # type: ignore[arg-type]


def begun(own: AutoTask, layout: tuple[tuple[int, ...], ...], amount: int = 3) -> Candidate:
    recipe = Recipe(JOINT_STARTS, amount, 0.1, 0, ahead=4, leaf=1.0, layout=layout, products=3)
    found = attempted(Try(0, EVERY, recipe), own)
    assert found is not None
    return found


@pytest.mark.parametrize(("root", "tied"), [("first", True), ("last", False)])
@pytest.mark.parametrize("layout", [APART, PAIRED])
def test_chains_are_those_of_the_layout_with_joint_starts(
    root: str, tied: bool, layout: tuple[tuple[int, ...], ...]
) -> None:
    own = begun(task(root=Root(root), tied=tied), layout)
    network = own.network
    assert network.group_variables == layout and not own.is_single
    assert {len(group) for group in network.groups} == {3}
    assert len(network.top.nodes[network.top.root].children) == 3  # type: ignore[union-attr]
    assert violations(network.template, network.top) == () and network.parameters.tied is tied
    few = Sequences.from_codes(drawn(1, 5, length=3).values, [0, 1, 3], SCHEMA)
    cut = [few.values[:1], few.values[1:]]
    expected = np.log([enumerated(network, values) for values in cut])
    np.testing.assert_allclose(Model(network).log_likelihood(few), expected, rtol=1e-9)


def test_a_variable_may_be_constant_in_the_few_slices_that_are_looked_at() -> None:
    train = drawn(120, 0)
    values = train.values.copy()
    values[:, 1] = 0.0
    rare = Sequences.from_codes(values, train.offsets, SCHEMA)
    own = begun(task(train=rare), PAIRED)
    assert own.network.group_variables == PAIRED


def test_constant_variables_are_left_out_of_the_chains() -> None:
    train = drawn(120, 0)
    values = train.values.copy()
    values[:, 1] = 0.0
    still = Sequences.from_codes(values, train.offsets, SCHEMA)
    own = task(train=still)
    assert own.varying == (0, 2, 3, 4)
    recipe = Recipe(JOINT_STARTS, 2, 0.1, layout=((0, 3), (2,), (4,)), products=2)
    found = attempted(Try(0, own.varying, recipe), own)
    assert found is not None
    assert found.network.group_variables == ((0, 2), (1,), (3,))


def test_a_mixture_has_a_component_for_each_member_of_several_chains() -> None:
    own = task()
    single = [attempted(Try(n, EVERY, Recipe(CLUSTERS, n + 1, 0.3)), own) for n in (1, 2)]
    members = (single[0], replace(begun(own, PAIRED), number=7), single[1])
    weights = np.array([0.3, 0.5, 0.2])
    model = BlockModel(members, weights, np.zeros(30))  # type: ignore[arg-type]
    choice = Choice(((EVERY,),), np.ones(1), {EVERY: model}, np.zeros(30))
    mixture = build_mixture(choice, own, refit=False)
    assert len(mixture) == 2
    np.testing.assert_allclose(mixture.weights, [0.5, 0.5])
    each = [Model(own.network).log_likelihood(drawn(6, 3)) for own in members]  # type: ignore[union-attr]
    expected = np.log(np.exp(np.stack(each, axis=1)) @ weights)
    np.testing.assert_allclose(Model(mixture).log_likelihood(drawn(6, 3)), expected, rtol=1e-9)


def test_few_sequences_have_no_joint_starts() -> None:
    assert JOINT_STARTS.first(task(train=drawn(39, 0)), APART) == []
    for count, wanted in ((40, 2), (200, 8), (600, 10), (6000, 64)):
        found = JOINT_STARTS.first(task(train=drawn(count, 0)), APART)
        assert {own.products for own in found} == {wanted}
        assert len({(own.width, own.ahead) for own in found}) == len(found) > 1


def test_what_follows_is_larger_or_other_and_within_bounds() -> None:
    own = task()
    assert JOINT_STARTS.recipes(BlockRecord(own, EVERY, ())) == []
    first = begun(own, APART)
    found = JOINT_STARTS.recipes(BlockRecord(own, EVERY, (first,)))
    assert found[0].amount == 6 and found[0].concentration == pytest.approx(0.05)
    assert all(recipe.amount <= 144 and recipe.parent is None for recipe in found)
    joined = {recipe.layout for recipe in found} - {APART}
    assert joined and all(len(layout) == 4 for layout in joined)
    assert all(sorted(sum(layout, ())) == list(EVERY) for layout in joined)
    whole = replace(first, recipe=replace(first.recipe, layout=((0, 1, 2), (3, 4))))
    after = JOINT_STARTS.recipes(BlockRecord(own, EVERY, (whole,)))
    assert all(len(recipe.layout) > 1 for recipe in after)


def test_training_goes_on_where_it_was_cut_short() -> None:
    own = task()
    first = begun(own, APART)
    assert first.steps == 2 and first.is_cut
    more = Training().recipes(BlockRecord(own, EVERY, (first,)))
    assert [recipe.parent for recipe in more] == [0] and more[0].layout == APART
    found = attempted(Try(1, EVERY, more[0], first), own)
    assert found is not None and found.network.template is first.network.template
    data = own.train
    before, after = (Model(it.network).log_likelihood(data).mean() for it in (first, found))
    assert after > before
    done = replace(first, is_cut=False)
    assert Training().recipes(BlockRecord(own, EVERY, (done,))) == []


def test_work_is_expected_as_it_is_counted() -> None:
    own = task()
    for layout in (APART, PAIRED):
        found = begun(own, layout, amount=16)
        data = own.data(EVERY)
        counted = work_of(found.network, data, 2) + start_work(own, EVERY, found.recipe)
        expected = expected_work(own, EVERY, found.recipe, None, 2)
        assert expected == pytest.approx(counted, rel=0.1)


# The learner.


def learned(moves: object = None, **settings: object) -> AutoLearned:
    options = Auto(effort=12.0, moves=moves)  # type: ignore[arg-type]
    arguments = {"seed": 0, "options": options, "refit": False, **settings}
    return learn_auto(drawn(400, 0), drawn(80, 1), **arguments)  # type: ignore[arg-type]


def test_the_learner_finds_that_sequences_are_of_different_kinds(tmp_path: Path) -> None:
    with_them = learned()
    others = [move for move in DEFAULT_MOVES if move != JOINT_STARTS]
    without = learned(others)
    test = drawn(200, 2)
    mean = [Model(own.mixture).log_likelihood(test).mean() for own in (with_them, without)]
    assert mean[0] > mean[1] + 0.2
    assert any(not own.is_single for own in with_them.choice.members.values())
    assert "joint starts" in with_them.explanation()
    assert "joint starts" not in without.explanation()
    again = learned(num_jobs=2, executor="threads", checkpoint=tmp_path / "run")
    assert again.mixture.fingerprint == with_them.mixture.fingerprint
    resumed = learned(checkpoint=tmp_path / "run", resume=True)
    assert resumed.mixture.fingerprint == with_them.mixture.fingerprint


def test_variables_that_change_by_themselves_get_chains_of_their_own() -> None:
    """Long sequences of many variables: the effort does not go into templates of all of them."""
    schema = Schema(tuple(Variable.binary(f"x{i}") for i in range(10)))
    stay = [[0.99, 0.01], [0.01, 0.99]]
    sticky = Model.from_hmm([0.5, 0.5], stay, {"x0": stay}, schema=Schema((schema[0],)))

    def columns(count: int, first: int) -> Sequences:
        own = [
            sticky.sample(count, 600, rng=np.random.default_rng(first + i)).values
            for i in range(len(schema))
        ]
        return Sequences.from_codes(np.hstack(own), np.arange(count + 1) * 600, schema)

    found = learn_auto(columns(40, 0), columns(6, 50), seed=0, options=Auto(effort=25.0))
    best = found.choice.layouts[int(found.choice.weights.argmax())]
    assert len(best) >= 8
    assert not any(item.move == REGROUP and len(item.candidate.block) > 5 for item in found.tried)
    assert found.work <= 25.0


# Rungs of many nodes.


def test_chains_of_many_clusters_are_thinned_after_a_few_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "_LARGE", 64)
    monkeypatch.setattr(base, "_MANY_SLICES", 20)
    own = task(options=Auto(effort=4.0, em=EmOptions(max_steps=4)))
    recipe = Recipe(CLUSTERS, 64, 0.2, leaf=1.0)
    assert own.is_thinned(recipe)
    for other in (
        replace(recipe, per_edge=True),
        replace(recipe, amount=63),
        replace(recipe, amount=128),  # 11 slices for each
        replace(recipe, parent=0),
        replace(recipe, layout=APART),
    ):
        assert not own.is_thinned(other)
    thin, dense = (
        attempted(Try(0, EVERY, it), own) for it in (recipe, replace(recipe, per_edge=True))
    )
    assert thin is not None and dense is not None
    assert thin.network.template.num_edges < 0.25 * dense.network.template.num_edges
    assert violations(thin.network.template, thin.network.top) == ()
    assert np.isfinite(thin.validation).all()
    few = Sequences.from_codes(drawn(1, 5, length=3).values, [0, 1, 3], SCHEMA)
    expected = np.log([enumerated(thin.network, it) for it in (few.values[:1], few.values[1:])])
    np.testing.assert_allclose(Model(thin.network).log_likelihood(few), expected, rtol=1e-9)


def test_a_rung_that_was_cut_short_is_given_time_where_it_was_ahead() -> None:
    own = task()
    run = AutoRun(own)
    (state,) = run._begin()

    def other(number: int, amount: int, score: float, steps: int, parent: int | None) -> Candidate:
        recipe = Recipe(CLUSTERS, amount, 0.3)
        found = attempted(Try(number, EVERY, recipe), own)
        assert found is not None
        told = replace(found, recipe=replace(recipe, parent=parent), steps=steps)
        return replace(told, validation=np.full(30, score))

    def followed(score: float) -> list[Recipe]:
        """What is tried after a rung of 8 nodes with this score after 4 steps."""
        known = [
            other(1, 4, -20.0, 5, None),
            other(2, 4, -10.0, 40, 1),
            other(3, 8, score, 4, None),
        ]
        run._state = replace(state, pool=state.pool.with_candidates(*known))
        run._cut_short = {3}
        tried = [it.trail[-1].candidate.recipe for it in run._give_time(EVERY, 8, 4.0)]
        run._state = state
        return tried

    assert [recipe.parent for recipe in followed(-15.0)] == [3]
    assert followed(-25.0) == []
