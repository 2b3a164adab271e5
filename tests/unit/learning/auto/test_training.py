"""One try: whatever the move, a valid network whose likelihood is what the candidate says."""

from dataclasses import replace

import numpy as np
import pytest

from dspn import EmOptions, Schema, Sequences, Variable
from dspn.engine import compile_program
from dspn.executors import Serial
from dspn.learning import Priors
from dspn.learning.auto import Auto, Move
from dspn.learning.auto.base import AutoTask, Candidate, Recipe, Try
from dspn.learning.auto.moves import (
    CLUSTERS,
    REGROUP,
    HiddenTree,
    Merge,
    OtherPrior,
    Regrow,
    SharedMixture,
    Split,
)
from dspn.learning.auto.training import attempted
from dspn.learning.auto.work import start_work, work_of
from dspn.learning.run import Clock
from dspn.leaves import Categorical, CategoricalPrior
from dspn.structure import Root
from dspn.structure.validity import violations
from oracles import slice_by_slice

SCHEMA = Schema(
    (
        Variable.categorical("mode", ("a", "b", "c")),
        Variable.continuous("level"),
        Variable.count("calls"),
        Variable.binary("flag"),
    )
)
EVERY = (0, 1, 2, 3)
OPTIONS = Auto(em=EmOptions(max_steps=3, tolerance=0.0))


def drawn(num_sequences: int, seed: int) -> Sequences:
    """Sequences of one to five slices with gaps, the last of them with nothing observed."""
    rng = np.random.default_rng(seed)
    arrays = []
    for _ in range(num_sequences):
        state = rng.integers(0, 3, size=int(rng.integers(1, 6)))
        columns = [state, rng.normal(4 * state), rng.poisson(1 + 4 * state), state // 2]
        rows = np.column_stack(columns).astype(float)
        rows[rng.random(rows.shape) < 0.1] = np.nan
        arrays.append(rows)
    arrays[-1][:] = np.nan
    offsets = np.cumsum([0, *map(len, arrays)])
    return Sequences.from_codes(np.concatenate(arrays), offsets, SCHEMA)


def task(**settings: object) -> AutoTask:
    own = AutoTask(drawn(40, 0), drawn(8, 1), OPTIONS, None, 0, Root.FIRST, True, Serial(), Clock())
    return replace(own, _restricted={}, **settings)  # type: ignore[arg-type]


def made(attempt: Try, own: AutoTask) -> Candidate:
    found = attempted(attempt, own)
    assert found is not None
    return found


def begun(own: AutoTask, block: tuple[int, ...] = EVERY, amount: int = 4) -> Candidate:
    return made(Try(0, block, Recipe(CLUSTERS, amount, 0.3)), own)


def continued(own: AutoTask, parent: Candidate, move: Move, amount: int) -> Candidate:
    return made(Try(1, parent.block, Recipe(move, amount, 0.3, parent=0), parent), own)


def check(found: Candidate, own: AutoTask) -> None:
    """The network is valid, and its likelihood, multiplied out, is that of the candidate."""
    network = found.network
    assert violations(network.template, network.top) == ()
    assert network.root == own.root
    assert network.parameters.tied is own.tied
    validation = own.data(found.block).validation
    values = [
        np.log(slice_by_slice(network, validation.values[start:end]))
        for start, end in zip(validation.offsets[:-1], validation.offsets[1:], strict=True)
    ]
    np.testing.assert_allclose(found.validation, values, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(
        found.validation, compile_program(network).log_likelihood(validation)
    )
    assert found.steps >= 0 and found.work > 0


MOVES = [
    (Split(), 4),
    (Split(), 1),
    (SharedMixture(), 3),
    (HiddenTree(), 2),
    (OtherPrior(), 4),
    (Merge(), 1),
    (Regrow(), 8),
]


@pytest.mark.parametrize(("move", "amount"), MOVES)
@pytest.mark.parametrize(("root", "tied"), [("first", True), ("last", False)])
def test_every_move_leads_to_a_valid_network_with_the_likelihood_it_says(
    move: Move, amount: int, root: str, tied: bool
) -> None:
    own = task(root=Root(root), tied=tied)
    parent = begun(own)
    check(parent, own)
    found = continued(own, parent, move, amount)
    check(found, own)
    sizes = {Split(): parent.size + amount, Merge(): parent.size - amount}
    assert found.size == sizes.get(move, parent.size)
    assert (found.number, found.block, found.recipe.parent) == (1, EVERY, 0)


@pytest.mark.parametrize("block", [(0,), (1,), (2, 3), (1, 3)])
@pytest.mark.parametrize("width", [0, 1, 3])
def test_a_block_begins_with_its_own_variables_only(block: tuple[int, ...], width: int) -> None:
    own = task()
    found = made(Try(2, block, Recipe(REGROUP, 3, 0.3, width)), own)
    check(found, own)
    assert found.network.schema.names == tuple(SCHEMA.names[variable] for variable in block)
    assert found.size == 3


def test_moves_can_follow_each_other() -> None:
    own = task()
    found = begun(own)
    for move, amount in ((Split(), 4), (SharedMixture(), 3), (OtherPrior(), 8), (Split(), 2)):
        found = continued(own, found, move, amount)
        check(found, own)


@pytest.mark.parametrize("parent", [48, 64])
def test_many_nodes_that_were_split_lose_the_edges_that_are_hardly_used(parent: int) -> None:
    own = task()
    found = continued(own, begun(own, amount=parent), Split(), 96 - parent)
    check(found, own)
    assert found.size == 96
    assert found.network.template.num_weights < 0.7 * 96 * 96


def test_an_untrained_network_is_a_candidate_as_well() -> None:
    own = task(options=Auto(em=EmOptions(max_steps=0)))
    found = begun(own)
    check(found, own)
    assert found.steps == 0


def test_work_follows_slices_and_steps() -> None:
    own = task()
    found = begun(own)
    assert found.steps == 3
    data = own.data(EVERY)
    begin = start_work(own, EVERY, found.recipe)
    assert found.work == pytest.approx(begin + work_of(found.network, data, 3), rel=1e-12)
    one, other = (work_of(found.network, data, steps) for steps in (0, 4))
    assert other == pytest.approx(5 * one, rel=1e-12)
    half = replace(data, train=own.train[np.arange(20)])
    assert work_of(found.network, half, 0) < one
    assert work_of(begun(own, amount=8).network, data, 0) > one
    # A number has a value of its own at every slice, and a table to be made for it.
    numbers, bits = (work_of(begun(own, (v,)).network, own.data((v,)), 0) for v in (1, 3))
    assert numbers > bits


@pytest.mark.parametrize("most", [0.0, 0.02, 0.03])
def test_no_more_steps_are_made_than_work_allows(most: float) -> None:
    own = task(options=Auto(em=EmOptions(max_steps=40, min_steps=40, tolerance=0.0, patience=40)))
    found = made(Try(0, EVERY, Recipe(CLUSTERS, 4, 0.3), None, most), own)
    assert 1 <= found.steps < 40
    assert found.steps == 1 or found.work <= most


def test_a_try_is_decided_by_seed_and_number() -> None:
    one, other = begun(task()), begun(task())
    assert one.network.fingerprint == other.network.fingerprint
    assert begun(task(seed=1)).network.fingerprint != one.network.fingerprint
    again = made(Try(5, EVERY, one.recipe), task())
    assert again.network.fingerprint != one.network.fingerprint


def test_no_try_where_time_is_up() -> None:
    clock = Clock()
    clock.stop()
    assert attempted(Try(0, EVERY, Recipe(CLUSTERS, 2, 0.3)), task(clock=clock)) is None


def test_batches_of_sequences_may_be_learned_from() -> None:
    own = task(options=Auto(em=EmOptions(max_steps=2, batch_size=7)))
    found = begun(own)
    check(found, own)
    assert found.network.fingerprint == begun(own).network.fingerprint


def test_given_priors_stay_and_others_follow_the_recipe() -> None:
    given = Priors(sum_pseudo_count=2.5)
    recipe = Recipe(CLUSTERS, 4, 0.3)
    assert task(priors=given).priors_of(recipe, 4, EVERY) is given
    assert task().priors_of(recipe, 4, EVERY).sum_pseudo_count == pytest.approx(0.075, rel=1e-12)
    each = task().priors_of(replace(recipe, per_edge=True), 4, EVERY)
    assert each.sum_pseudo_count == 0.3


def test_leaves_are_drawn_towards_the_frequencies_of_the_training_set() -> None:
    own = task()
    priors = own.priors_of(Recipe(CLUSTERS, 4, 0.3, leaf=2.0), 4, EVERY)
    modes = own.train.values[:, 0]
    counts = np.bincount(modes[~np.isnan(modes)].astype(int), minlength=3) + 0.5
    mode, level, calls, _ = priors.by_variable
    assert isinstance(mode, CategoricalPrior) and level is None and calls is None
    np.testing.assert_allclose(mode.counts, 2.0 * counts / counts.sum(), rtol=1e-12)
    family = Categorical(3)
    statistics = np.array([[4.0, 4.0, 0.0, 0.0]])
    expected = np.array([4.0, 0.0, 0.0]) + 0.01 + 2.0 * counts / counts.sum()
    np.testing.assert_allclose(
        family.maximise(statistics, mode)[0], expected / expected.sum(), rtol=1e-12
    )


def test_training_and_validation_may_be_one_set() -> None:
    data = drawn(10, 3)
    own = task(train=data, validation=data)
    check(begun(own, (1, 2)), own)
    both = own.data((1, 2))
    assert both.train is both.validation is both.everything
