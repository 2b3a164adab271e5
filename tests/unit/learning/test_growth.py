"""Algorithm 1: both readings, what each size begins from, and when it ends."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import final

import numpy as np
import pytest
from numpy.typing import NDArray

from dspn import Model
from dspn.data import Schema, Sequences
from dspn.engine import Program
from dspn.errors import StructureError
from dspn.learning import DEFAULT_PRIORS, LIKELIHOOD, EmOptions, Score, em, growth
from dspn.learning.growth import (
    GrowthOptions,
    GrowthState,
    GrowthStep,
    GrowthTask,
    first_growth,
    next_growth,
)
from dspn.structure import DynamicNetwork, Root
from dspn.structure.validity import violations
from strategies import arbitrary_sequence, as_sequences, hide, schema_of

Floats = NDArray[np.float64]
MIXED = schema_of(("binary", "ternary", "continuous", "count"))
BINARY = schema_of(("binary",))
ONE_STEP = EmOptions(max_steps=1)


def some_data(schema: Schema = MIXED, seed: int = 0, count: int = 8) -> Sequences:
    """Ragged sequences with gaps; one of a single slice, one with nothing observed."""
    rng = np.random.default_rng([5, seed])
    arrays = [hide(arbitrary_sequence(schema, 1 + i % 5, rng), rng, 0.2) for i in range(count)]
    arrays.append(np.full((3, len(schema)), np.nan))
    return as_sequences(schema, arrays)


@final
@dataclass(frozen=True)
class BySize(Score):
    """A score that a network of k interface nodes has whatever its parameters: row k - 1.

    A row has a number for each sequence, or one for all.
    """

    rows: tuple[tuple[float, ...] | float, ...]

    def check(self, schema: Schema) -> None:
        """Nothing to ask for."""

    def sequence_scores(self, program: Program, data: Sequences) -> Floats:
        """The row of the network's size."""
        own = self.rows[program.network.num_interfaces - 1]
        return np.array(np.broadcast_to(own, len(data)), dtype=np.float64)


def task_of(
    score: Score = LIKELIHOOD, data: Sequences | None = None, **options: object
) -> GrowthTask:
    own = some_data() if data is None else data
    chosen = GrowthOptions(**{"em": ONE_STEP, "num_starts": 1, "num_random": 1, **options})  # type: ignore[arg-type]
    return GrowthTask(own, own, score, DEFAULT_PRIORS, chosen)


def grown(
    task: GrowthTask, *, seed: int = 0, root: Root = Root.FIRST, tied: bool = True
) -> list[GrowthState]:
    """All states of growth."""
    states = [first_growth(task, seed=seed, root=root, tied=tied)]
    while not states[-1].is_over(task.options):
        after = next_growth(states[-1], task)
        assert after is not None
        states.append(after)
    return states


def scripted(*scores: float, **options: object) -> list[GrowthState]:
    """Growth where the sizes 1, 2, ... have these scores."""
    return grown(task_of(BySize(scores), some_data(BINARY), **options))


Starts = list[DynamicNetwork]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Starts:
    """What training begins from, as it comes."""
    starts: Starts = []
    fit_em = em.fit_em

    def seen(network: DynamicNetwork, *data: object, **settings: object) -> object:
        starts.append(network)
        return fit_em(network, *data, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(em, "fit_em", seen)
    return starts


# Options.


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("mode", "greedy"),
        ("mode", None),
        ("min_interfaces", 0),
        ("max_interfaces", 0),
        ("max_interfaces", 2.5),
        ("patience", 0),
        ("num_starts", 0),
        ("num_random", -1),
        ("at_once", -0.1),
        ("at_once", 1.1),
        ("at_once", float("nan")),
        ("at_once", "0.5"),
        ("caution", -1.0),
        ("caution", float("inf")),
        ("em", None),
    ],
)
def test_option_out_of_range_is_refused(name: str, bad: object) -> None:
    with pytest.raises(StructureError, match=f"`{name}`.* must be"):
        GrowthOptions(**{name: bad})  # type: ignore[arg-type]


def test_least_size_above_the_largest_is_refused() -> None:
    with pytest.raises(StructureError, match=r"`min_interfaces` must be at most .* 5 and 4"):
        GrowthOptions(min_interfaces=5, max_interfaces=4)


# Algorithm 1 as printed.


def test_literal_growth_ends_at_the_first_worse_size_and_keeps_the_one_before() -> None:
    states = scripted(-5.0, -4.0, -3.0, -3.5, -1.0, mode="literal", patience=9)
    assert states[-1].trail == (
        GrowthStep(1, -5.0, True),
        GrowthStep(2, -4.0, True),
        GrowthStep(3, -3.0, True),
        GrowthStep(4, -3.5, False),
    )
    assert states[-1].network is states[-2].network
    assert states[-1].network.num_interfaces == 3
    assert states[-1].score == -3.0


def test_literal_growth_goes_on_for_as_long_as_no_size_is_worse() -> None:
    # The printed condition is "until new < old": a tie goes on, and the larger network is taken.
    states = scripted(-5.0, -5.0, -5.0, -6.0, mode="literal")
    assert [state.network.num_interfaces for state in states] == [1, 2, 3, 3]


def test_literal_growth_has_no_caution() -> None:
    rows = (tuple(range(9)), (9.0, *range(1, 9)))  # much better by one sequence, alike by others
    task = task_of(BySize(rows), some_data(BINARY), mode="literal", caution=5.0, max_interfaces=2)
    assert grown(task)[-1].network.num_interfaces == 2


def rows_of(weights: Floats, size: int) -> Floats:
    return weights.reshape(-1, size)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("root", list(Root))
def test_literal_growth_adds_a_random_factored_node_and_keeps_what_was_learned(
    root: Root, tied: bool, trained: Starts
) -> None:
    task = task_of(BySize((-3.0, -2.0, -1.0)), mode="literal", max_interfaces=3)
    states = grown(task, root=root, tied=tied)
    assert [network.num_interfaces for network in trained] == [1, 2, 3]
    for state, start in zip(states, trained[1:], strict=False):
        size = start.num_interfaces
        assert start.root == root and start.parameters.tied == tied
        assert len(start.template.nodes) == size * (1 + len(MIXED) + 1 + 1)
        before, after = state.network.parameters, start.parameters
        share = (size - 1) / size
        np.testing.assert_allclose(after.top.weights[:-1], before.top.weights * share, rtol=1e-15)
        np.testing.assert_allclose(after.top.weights[-1], 1 / size, rtol=1e-15)
        parts = [(before.template, after.template)]
        if before.bottom is not None and after.bottom is not None:
            parts.append((before.bottom, after.bottom))
        for old, new in parts:
            kept = rows_of(new.weights, size)[:-1]
            old_rows = rows_of(old.weights, size - 1)
            np.testing.assert_allclose(kept[:, :-1], old_rows * share, rtol=1e-15)
            np.testing.assert_allclose(kept[:, -1], 1 / size, rtol=1e-15)
            for one, other in zip(old.leaves, new.leaves, strict=True):
                np.testing.assert_array_equal(other[:-1], one)


# The default reading.


def test_split_growth_ends_after_patience_sizes_in_a_row_that_were_no_better() -> None:
    states = scripted(-5.0, -4.0, -6.0, -3.0, -9.0, -3.0, -3.1, 0.0, patience=3)
    trail = states[-1].trail
    assert [step.num_interfaces for step in trail] == [1, 2, 3, 4, 5, 6, 7]
    assert [step.accepted for step in trail] == [True, True, False, True, False, False, False]
    assert [state.failures for state in states] == [0, 0, 1, 0, 1, 2, 3]
    assert states[-1].network is states[3].network
    assert states[-1].score == -3.0


def test_split_growth_goes_on_from_the_last_size_not_from_the_best() -> None:
    states = scripted(-3.0, -4.0, -5.0, -1.0, patience=3, max_interfaces=4)
    assert [state.current.num_interfaces for state in states] == [1, 2, 3, 4]
    assert [state.network.num_interfaces for state in states] == [1, 1, 1, 4]


def test_growth_ends_at_the_largest_size() -> None:
    for mode in ("split", "literal"):
        states = scripted(*range(9), mode=mode, max_interfaces=3)
        assert states[-1].network.num_interfaces == 3
    assert len(scripted(0.0, 1.0, max_interfaces=1)) == 1


def test_no_size_below_the_least_ends_growth_or_is_chosen() -> None:
    for mode in ("split", "literal"):
        states = scripted(
            -1.0, -2.0, -3.0, -4.0, -5.0, -6.0, mode=mode, min_interfaces=4, patience=1
        )
        assert [step.num_interfaces for step in states[-1].trail] == [1, 2, 3, 4, 5]
        assert states[-1].network.num_interfaces == 4
        assert states[-1].score == -4.0


def test_larger_size_has_to_be_better_by_more_than_its_standard_error() -> None:
    gains = np.array([0.0, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0, 2.0, 1.0])  # mean 1, error 1/3
    rows = (0.0, tuple(gains.tolist()))
    data = some_data(BINARY)
    for caution, accepted in ((0.0, True), (1.0, True), (2.9, True), (3.1, False)):
        task = task_of(BySize(rows), data, caution=caution, max_interfaces=2)
        assert grown(task)[-1].trail[1].accepted == accepted


def test_share_of_the_nodes_is_split_at_once() -> None:
    sizes = {
        share: [
            step.num_interfaces
            for step in scripted(*range(9), at_once=share, max_interfaces=7)[-1].trail
        ]
        for share in (0.0, 0.125, 0.5, 1.0)
    }
    assert sizes[0.0] == sizes[0.125] == [1, 2, 3, 4, 5, 6, 7]
    assert sizes[0.5] == [1, 2, 3, 4, 6, 7]
    assert sizes[1.0] == [1, 2, 4, 7]
    assert scripted(*range(9), at_once=1.0, max_interfaces=7, mode="literal")[-1].trail[2] == (
        GrowthStep(3, 2.0, True)
    )


def test_no_size_below_the_least_is_chosen_where_sizes_are_skipped() -> None:
    states = scripted(-1.0, -2.0, -3.0, -4.0, at_once=1.0, min_interfaces=3, max_interfaces=4)
    assert [state.network.num_interfaces for state in states] == [1, 2, 4]
    states = scripted(*-np.arange(9.0), at_once=1.0, min_interfaces=3, max_interfaces=8, patience=1)
    assert [step.accepted for step in states[-1].trail] == [True, True, True, False]
    assert states[-1].network.num_interfaces == 4


def test_every_size_begins_from_splits_and_a_small_one_in_other_ways_too(
    trained: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    split: list[tuple[DynamicNetwork, DynamicNetwork]] = []
    clustered: Starts = []
    informed_split, clustered_network = growth.informed_split, growth.clustered_network

    def seen(network: DynamicNetwork, *rest: object, **settings: object) -> DynamicNetwork:
        after = informed_split(network, *rest, **settings)  # type: ignore[arg-type]
        split.append((network, after))
        return after

    def made(*rest: object, **settings: object) -> DynamicNetwork:
        clustered.append(clustered_network(*rest, **settings))  # type: ignore[arg-type]
        return clustered[-1]

    monkeypatch.setattr(growth, "informed_split", seen)
    monkeypatch.setattr(growth, "clustered_network", made)
    # Of three splits the second is one of the busiest node.
    task = task_of(num_starts=3, num_random=3, max_interfaces=6, patience=9)
    states = grown(task)
    assert [before for before, _ in split] == [s.current for s in states[:-1] for _ in range(2)]
    prints = [network.fingerprint for network in trained]
    assert len(set(prints)) == len(prints)  # splits that are alike are trained once
    halves = {after.fingerprint for _, after in split}
    assert halves <= set(prints)
    assert [network.num_interfaces for network in clustered] == [2, 3, 4]
    made_so = halves | {network.fingerprint for network in clustered}
    assert made_so <= set(prints)
    fresh = [network.num_interfaces for network in trained if network.fingerprint not in made_so]
    assert fresh == [1, *[2] * 4, *[3] * 4, *[4] * 4, 5, 6]


def test_random_networks_begin_where_the_data_are(trained: Starts) -> None:
    rng = np.random.default_rng(0)
    values = [rng.normal(1e4, 5.0, (6, 1)) for _ in range(8)]
    data = as_sequences(schema_of(("continuous",)), values)
    for mode in ("split", "literal"):
        trained.clear()
        grown(task_of(data=data, mode=mode, max_interfaces=4))
        for network in trained:
            means = network.parameters.template.leaves[0][:, 0]
            assert np.all(np.abs(means - 1e4) < 50)


def test_best_of_the_starts_is_taken(trained: Starts) -> None:
    """The score of a size is the greatest of those that its starts reach."""
    task = task_of(num_starts=3, num_random=3, max_interfaces=2)
    best = grown(task)[1].trail[1].score
    starts = trained[1:]
    assert len(starts) >= 4
    again = [task.trained(network, np.random.default_rng(0)).score for network in starts]
    assert best == max(again) > min(again)


def test_split_keeps_what_was_learned() -> None:
    """On the training set no size is much worse than the one before, after a single step."""
    task = task_of(max_interfaces=6, patience=9, num_random=0)
    scores = [step.score for step in grown(task)[-1].trail]
    assert all(after >= before - 0.5 for before, after in pairwise(scores))


# What both have in common.


MODES = [
    pytest.param(mode, root, tied, id=f"{mode}-{root}-{'tied' if tied else 'own'}")
    for mode, root, tied in (
        ("split", Root.FIRST, True),
        ("split", Root.LAST, False),
        ("literal", Root.FIRST, False),
        ("literal", Root.LAST, True),
    )
]


@pytest.mark.parametrize(("mode", "root", "tied"), MODES)
def test_every_network_is_valid_and_has_the_score_it_says(
    mode: str, root: Root, tied: bool
) -> None:
    task = task_of(BySize((0.0, 1.0, 0.5, 2.0)), mode=mode, max_interfaces=4)
    states = grown(task, root=root, tied=tied)
    for state in states:
        for network in (state.network, state.current):
            assert violations(network.template, network.top) == ()
            assert len(network.groups) == 1
            assert network.root == root and network.parameters.tied == tied
    real = replace(task, score=LIKELIHOOD)
    for state in grown(real, root=root, tied=tied):
        expected = Model(state.network).log_likelihood(task.validation).mean()
        np.testing.assert_allclose(state.score, expected, rtol=1e-12)


@pytest.mark.parametrize(("mode", "root", "tied"), MODES)
def test_growth_follows_from_the_seed(mode: str, root: Root, tied: bool) -> None:
    task = task_of(mode=mode, max_interfaces=3, patience=9)

    def prints(seed: int) -> list[bytes]:
        return [s.current.fingerprint for s in grown(task, seed=seed, root=root, tied=tied)]

    assert prints(1) == prints(1)
    if mode == "literal":  # the data may leave no doubt about a split
        assert prints(1)[1:] != prints(2)[1:]


def test_randomness_of_a_size_does_not_depend_on_the_sizes_before_it() -> None:
    """A state that is read from elsewhere goes on as if growth had never stopped."""
    task = task_of(max_interfaces=4, patience=9)
    states = grown(task)
    middle = states[2]
    again = next_growth(replace(middle, trail=middle.trail), task)
    assert again is not None
    assert again.current.fingerprint == states[3].current.fingerprint


@pytest.mark.parametrize("root", list(Root))
def test_first_network_is_a_product_of_independent_variables_and_slices(root: Root) -> None:
    task = task_of(em=EmOptions())
    state = first_growth(task, seed=0, root=root, tied=True)
    assert state.trail == (GrowthStep(1, state.score, True),)
    entries = []
    for row in task.train.values:
        for variable in range(len(MIXED)):
            alone = np.full((1, len(MIXED)), np.nan)
            alone[0, variable] = row[variable]
            entries.append(alone)
    model = Model(state.network)
    parts = model.log_likelihood(as_sequences(MIXED, entries)).reshape(-1, len(MIXED))
    expected = np.add.reduceat(parts.sum(axis=1), task.train.offsets[:-1])
    np.testing.assert_allclose(model.log_likelihood(task.train), expected, rtol=1e-10, atol=1e-10)


def after_calls(count: int) -> Callable[[], bool]:
    """Says no `count` times, then yes."""
    left = iter([False] * count)
    return lambda: next(left, True)


@pytest.mark.parametrize("mode", ["split", "literal"])
def test_size_that_was_not_trained_in_time_is_given_up(mode: str) -> None:
    task = task_of(mode=mode, max_interfaces=3, em=EmOptions(max_steps=5, tolerance=0.0))
    state = first_growth(task, seed=0, root=Root.FIRST, tied=True)
    given_up = 0
    for calls in range(30):
        after = next_growth(state, replace(task, is_due=after_calls(calls)))
        if after is not None:
            break
        given_up += 1
    whole = next_growth(state, task)
    assert after is not None and whole is not None
    assert given_up > 5
    assert after.current.fingerprint == whole.current.fingerprint


def test_no_further_start_is_trained_once_time_is_up(trained: Starts) -> None:
    task = task_of(num_starts=4)
    state = first_growth(task, seed=0, root=Root.FIRST, tied=True)
    trained.clear()
    assert next_growth(state, replace(task, is_due=lambda: True)) is None
    assert len(trained) == 0
    assert next_growth(state, replace(task, is_due=after_calls(1))) is None
    assert len(trained) == 1


@pytest.mark.parametrize("mode", ["split", "literal"])
def test_mini_batches_are_drawn_from_the_seed(mode: str) -> None:
    em = EmOptions(max_steps=3, batch_size=2)
    task = task_of(mode=mode, em=em, max_interfaces=3, patience=9)
    one, other = (grown(task, seed=4)[-1].current.fingerprint for _ in range(2))
    assert one == other


@pytest.mark.parametrize(
    "data",
    [
        as_sequences(BINARY, [np.zeros((1, 1))]),
        as_sequences(BINARY, [np.zeros((4, 1)), np.full((2, 1), np.nan)]),
        as_sequences(BINARY, [np.full((3, 1), np.nan)]),
        as_sequences(schema_of(("single", "continuous")), [np.array([[0.0, 3.0]] * 4)] * 2),
    ],
    ids=["one-slice", "constant", "nothing-observed", "single-category"],
)
@pytest.mark.parametrize("mode", ["split", "literal"])
def test_poor_data_are_no_trouble(mode: str, data: Sequences) -> None:
    task = task_of(data=data, mode=mode, max_interfaces=3, em=EmOptions(max_steps=10))
    last = grown(task)[-1]
    expected = Model(last.network).log_likelihood(data).mean()
    np.testing.assert_allclose(last.score, expected, rtol=1e-12)
