"""Algorithm 2: both readings, what a round tries and takes, and when the search ends."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, final

import numpy as np
import pytest
from numpy.typing import NDArray

from dspn import Model
from dspn.data import Schema, Sequences
from dspn.engine import Program
from dspn.errors import StructureError
from dspn.executors import executor_of
from dspn.learning import (
    DEFAULT_PRIORS,
    LIKELIHOOD,
    EmFit,
    EmOptions,
    Score,
    StopReason,
    em,
    scaled_families,
    search,
)
from dspn.learning.partitions import PartitionOptions, all_strings, blocks
from dspn.learning.run import Clock
from dspn.learning.search import (
    SearchOptions,
    SearchState,
    SearchTask,
    next_round,
    product_nodes,
    scope_numbers,
)
from dspn.structure import DynamicNetwork, Mixture, grouped_network, initial_network
from dspn.structure.validity import network_scopes, violations
from strategies import arbitrary_sequence, as_sequences, hide, schema_of

Floats = NDArray[np.float64]
PAIR = schema_of(("binary", "ternary"))
MIXED = schema_of(("binary", "ternary", "continuous", "count"))
WIDE = schema_of(("binary", "ternary", "binary", "continuous", "count", "binary", "ternary"))
TINY: dict[str, Any] = {"new_part": EmOptions(max_steps=1), "whole": EmOptions(max_steps=1)}


def some_data(schema: Schema, seed: int = 0, count: int = 8) -> Sequences:
    """Ragged sequences with gaps; one of a single slice, one with nothing observed."""
    rng = np.random.default_rng([6, seed])
    arrays = [hide(arbitrary_sequence(schema, 1 + i % 5, rng), rng, 0.2) for i in range(count)]
    arrays.append(np.full((3, len(schema)), np.nan))
    return as_sequences(schema, arrays)


def begun(network: DynamicNetwork, data: Sequences, score: Score = LIKELIHOOD) -> SearchState:
    """A search from a network."""
    own = scaled_families(network, data)
    return SearchState(own, score.mean(Model(own).program, data), seed=3)


def task_of(data: Sequences, score: Score = LIKELIHOOD, **options: Any) -> SearchTask:
    return SearchTask(data, data, score, DEFAULT_PRIORS, SearchOptions(**{**TINY, **options}))


def rounds(state: SearchState, task: SearchTask) -> Iterator[SearchState]:
    """The states of a search after the first."""
    while not state.is_over(task.options):
        after = next_round(state, task)
        assert after is not None
        state = after
        yield state


def start(seed: int = 0, schema: Schema = PAIR, size: int = 2) -> DynamicNetwork:
    return initial_network(schema, size, rng=np.random.default_rng([1, seed]))


@final
@dataclass(frozen=True, eq=False)
class Script(Score):
    """Neighbours get these scores one after the other, whatever they are; the start has 0.

    Where `spread` is not 0 the scores of the sequences are that far from their mean.
    """

    scores: list[float]
    spread: float = 0.0
    known: dict[bytes, float] = field(default_factory=dict)

    def check(self, schema: Schema) -> None:
        """Nothing to ask for."""

    def sequence_scores(self, program: Program, data: Sequences) -> Floats:
        """The score of the network, by its fingerprint."""
        mean = self.known.get(program.network.fingerprint, 0.0)
        if mean == 0.0:
            return np.zeros(len(data))
        signs = np.resize([1.0, -1.0], len(data) // 2 * 2)
        return mean + self.spread * np.pad(signs, (0, len(data) % 2))

    def fit_em(self, network: DynamicNetwork, *data: Sequences, **settings: Any) -> EmFit:
        """In place of training: a fit whose score is the next of the script."""
        own = math.nan
        if settings.get("validation") is not None:
            own = self.known[network.fingerprint] = self.scores.pop(0)
        return EmFit(Mixture.of(network), (), own, StopReason.MAX_STEPS, ())


def scripted(
    monkeypatch: pytest.MonkeyPatch, *scores: float, spread: float = 0.0, **options: Any
) -> list[SearchState]:
    """All states of a search whose neighbours get these scores; there must be enough of them."""
    script = Script(list(scores), spread)
    monkeypatch.setattr(em, "fit_em", script.fit_em)
    data = some_data(PAIR)
    first = begun(start(), data, script)
    return [first, *rounds(first, task_of(data, script, **options))]


# Options.


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("mode", "greedy"),
        ("mode", None),
        ("max_neighbours", -1),
        ("max_neighbours", 2.5),
        ("max_failures", 0),
        ("round_size", 0),
        ("round_size", "4"),
        ("caution", -0.1),
        ("caution", float("nan")),
        ("partitions", 6),
        ("new_part", None),
        ("whole", 12),
    ],
)
def test_option_out_of_range_is_refused(name: str, bad: object) -> None:
    with pytest.raises(StructureError, match=f"`{name}`.* must be"):
        SearchOptions(**{name: bad})  # type: ignore[arg-type]


# Algorithm 2 as printed.


def test_literal_search_takes_each_neighbour_until_the_first_worse_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states = scripted(monkeypatch, 1.0, 1.0, 3.0, 2.5, 9.0, mode="literal", round_size=7)
    assert [state.score for state in states] == [0.0, 1.0, 1.0, 3.0, 3.0]
    assert [state.tried for state in states] == [0, 1, 2, 3, 4]
    assert [state.accepted for state in states] == [0, 1, 2, 3, 3]
    # A tie is not worse: the neighbour is taken.
    assert states[2].network is not states[1].network
    assert states[4].network is states[3].network
    assert not states[4].last_round[0].accepted


def test_literal_search_has_no_caution(monkeypatch: pytest.MonkeyPatch) -> None:
    states = scripted(monkeypatch, 1.0, -1.0, mode="literal", spread=100.0, caution=50.0)
    assert states[-1].accepted == 1


def test_literal_search_is_bounded_by_the_number_of_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    states = scripted(monkeypatch, *range(1, 20), mode="literal", max_neighbours=6)
    assert states[-1].tried == states[-1].accepted == 6


# The search that the text describes.


def test_best_of_a_round_is_taken_where_it_improves(monkeypatch: pytest.MonkeyPatch) -> None:
    states = scripted(
        monkeypatch, 1.0, 4.0, 4.0, 2.0, 3.0, 4.0, 3.5, 1.0, 3.0, 5.0, round_size=4,
        max_neighbours=10,
    )  # fmt: skip
    assert [state.score for state in states] == [0.0, 4.0, 4.0, 5.0]
    assert [state.accepted for state in states] == [0, 1, 1, 2]
    assert [state.failures for state in states] == [0, 0, 4, 0]
    fates = [[one.accepted for one in state.last_round] for state in states[1:]]
    assert fates == [[False, True, False, False], [False] * 4, [False, True]]
    assert [one.score for one in states[1].last_round] == [1.0, 4.0, 4.0, 2.0]
    assert states[2].network is states[1].network


def test_search_ends_after_the_tries_allowed_and_cuts_the_last_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states = scripted(monkeypatch, *range(1, 30), round_size=4, max_neighbours=10)
    assert [state.tried for state in states] == [0, 4, 8, 10]
    assert len(states[-1].last_round) == 2
    assert len(scripted(monkeypatch, max_neighbours=0)) == 1


def test_search_ends_after_failures_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [-1.0] * 6 + [1.0] + [0.5] * 50
    states = scripted(monkeypatch, *scores, round_size=1, max_failures=7)
    assert states[-1].tried == 14
    assert [state.failures for state in states][-1] == 7
    states = scripted(monkeypatch, *scores, round_size=3, max_failures=7)
    assert [state.failures for state in states] == [0, 3, 6, 0, 3, 6, 9]


def test_neighbour_of_equal_score_is_no_improvement(monkeypatch: pytest.MonkeyPatch) -> None:
    states = scripted(monkeypatch, 1.0, 1.0, 1.0, round_size=1, max_neighbours=3)
    assert [state.accepted for state in states] == [0, 1, 1, 1]


def test_improvement_has_to_exceed_its_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nine sequences at 1 +- 3, one of them at 1: a standard error of 1.
    for caution, accepted in ((0.0, 1), (0.9, 1), (1.1, 0)):
        states = scripted(monkeypatch, 1.0, spread=3.0, caution=caution, max_neighbours=1)
        assert states[-1].accepted == accepted


def test_impossible_neighbours_are_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    states = scripted(monkeypatch, *[-math.inf] * 4, max_neighbours=4)
    assert states[-1].score == 0.0 and states[-1].accepted == 0


# What a round tries.


@pytest.fixture
def proposed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[DynamicNetwork, int, Any]]:
    """Network, product and proposal of every try, as they come."""
    seen: list[tuple[DynamicNetwork, int, Any]] = []
    propose = search.propose

    def watched(posteriors: Any, node: int, *rest: Any) -> Any:
        proposal = propose(posteriors, node, *rest)
        seen.append((posteriors.network, node, proposal))
        return proposal

    monkeypatch.setattr(search, "propose", watched)
    return seen


def test_products_are_drawn_uniformly(
    monkeypatch: pytest.MonkeyPatch, proposed: list[tuple[DynamicNetwork, int, Any]]
) -> None:
    scripted(monkeypatch, *[-1.0] * 400, round_size=50, max_neighbours=400, max_failures=999)
    network = proposed[0][0]
    assert all(other is network for other, _, _ in proposed)
    drawn = Counter(node for _, node, _ in proposed)
    assert drawn.keys() == set(product_nodes(network.template))
    share = 400 / len(drawn)
    assert max(abs(count - share) for count in drawn.values()) < 4 * math.sqrt(share)


def test_partitions_of_a_small_scope_come_in_order_through_all_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # All products of the start have the scope (0, 1, 2), with the interface as item 2.
    states = scripted(monkeypatch, *[-1.0] * 13, round_size=4, max_neighbours=13)
    tried = [one.partition for state in states for one in state.last_round]
    order = [blocks(string, (0, 1, 2)) for string in all_strings(3)]
    assert len(order) == 5
    assert tried == [order[i % 5] for i in range(13)]
    assert list(states[-1].positions.strings) == [(0, 1, 2)]


def test_what_a_try_does_follows_from_the_seed_and_its_number(
    monkeypatch: pytest.MonkeyPatch, proposed: list[tuple[DynamicNetwork, int, Any]]
) -> None:
    """Where nothing is accepted the rounds do not matter."""
    prints = []
    for size in (1, 2, 5, 12):
        proposed.clear()
        scripted(monkeypatch, *[-1.0] * 12, round_size=size, max_neighbours=12)
        prints.append([p.neighbour.network.fingerprint for _, _, p in proposed])
    assert prints[0] == prints[1] == prints[2] == prints[3]
    assert len(set(prints[0])) == 12


def test_neighbour_is_trained_in_its_new_part_then_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, proposed: list[tuple[DynamicNetwork, int, Any]]
) -> None:
    calls: list[tuple[DynamicNetwork, dict[str, Any], EmFit]] = []
    fit_em = em.fit_em

    def seen(network: DynamicNetwork, *data: Sequences, **settings: Any) -> EmFit:
        fit = fit_em(network, *data, **settings)
        calls.append((network, settings, fit))
        return fit

    monkeypatch.setattr(em, "fit_em", seen)
    data = some_data(MIXED)
    options = {"new_part": EmOptions(max_steps=2), "whole": EmOptions(max_steps=3)}
    task = task_of(data, round_size=3, **options)
    state = begun(start(schema=MIXED), data)
    after = next_round(state, task)
    assert after is not None
    assert len(calls) == 6
    for number, (_, _, proposal) in enumerate(proposed):
        (new, first, started), (middle, second, _) = calls[2 * number : 2 * number + 2]
        assert new is proposal.neighbour.network and middle is started.network
        assert first["learnable"] == proposal.neighbour.new_nodes
        assert first["options"].max_steps == 2 and first.get("validation") is None
        assert second.get("learnable") is None
        assert second["options"].max_steps == 3 and second["validation"] is data
    scores = [calls[2 * number + 1][2].score for number in range(3)]
    assert [one.score for one in after.last_round] == scores


def test_mini_batches_are_drawn_from_the_seed() -> None:
    data = some_data(MIXED)
    em = EmOptions(max_steps=2, batch_size=3)
    prints = set()
    for jobs in (1, 2):
        task = replace(
            task_of(data, new_part=em, whole=em, max_neighbours=8, caution=0.0),
            executor=executor_of("threads", jobs),
        )
        last = list(rounds(begun(start(schema=MIXED), data), task))[-1]
        assert last.accepted
        prints.add(last.network.fingerprint)
    assert len(prints) == 1


# A long search.


def grouped(schema: Schema, groups: list[list[int]], *sizes: int) -> DynamicNetwork:
    return grouped_network(schema, groups, sizes, rng=np.random.default_rng(0), root="last")


STARTS = [
    pytest.param(start(schema=schema_of(("binary",)), size=3), 60, {}, id="one-variable"),
    pytest.param(start(schema=MIXED), 80, {}, id="in-order"),
    pytest.param(start(schema=MIXED).untied(), 40, {"threshold": 2}, id="drawn-own-bottom"),
    pytest.param(grouped(MIXED, [[0, 2], [1, 3]], 2, 2).untied(), 40, {}, id="two-groups"),
    pytest.param(start(schema=WIDE, size=1), 40, {"threshold": 3, "alpha": 0.2}, id="tests"),
]


@pytest.mark.parametrize(("network", "tries", "partitions"), STARTS)
def test_every_template_of_a_long_search_is_valid_and_keeps_its_scopes(
    network: DynamicNetwork,
    tries: int,
    partitions: dict[str, Any],
    proposed: list[tuple[DynamicNetwork, int, Any]],
) -> None:
    data = some_data(network.schema)
    task = task_of(
        data, max_neighbours=tries, max_failures=tries, caution=0.0,
        partitions=PartitionOptions(**partitions),
    )  # fmt: skip
    state = first = begun(network, data)
    scopes = output_scopes(first.network)
    for after in rounds(state, task):
        own = after.network
        assert violations(own.template, own.top) == ()
        assert output_scopes(own) == scopes
        assert own.groups == first.network.groups
        assert own.root == network.root and own.parameters.tied == network.parameters.tied
        assert own.top == first.network.top
        assert after.score >= state.score
        assert (after.score > state.score) == (after.accepted > state.accepted)
        state = after
    assert state.tried == len(proposed) == tries
    assert state.accepted >= 3
    expected = Model(state.network).log_likelihood(data).mean()
    np.testing.assert_allclose(state.score, expected, rtol=1e-12)
    for before, node, proposal in proposed:
        other = proposal.neighbour.network
        assert violations(other.template, other.top) == ()
        assert output_scopes(other) == scopes
        scope = scope_numbers(before, node)
        assert sorted(chain.from_iterable(proposal.partition)) == list(scope)
        assert scope_numbers(other, proposal.neighbour.node) == scope


def output_scopes(network: DynamicNetwork) -> list[int]:
    """Variables and inputs below each output, as bits."""
    template = network.template
    marks = [1 << (len(template.schema) + p) for p in range(template.num_interfaces)]
    # An output need not read every input of its group.
    for members in network.groups:
        group = sum(1 << (len(template.schema) + p) for p in members)
        for position in members:
            marks[position] = group
    scopes = network_scopes(template.nodes, template.order, marks)
    return [scopes[output] for output in template.outputs]


# Threads and time.


def test_search_does_not_depend_on_the_number_of_jobs() -> None:
    data = some_data(MIXED)
    found = []
    for jobs in (1, 2, 3):
        task = replace(
            task_of(data, max_neighbours=17, round_size=5), executor=executor_of("threads", jobs)
        )
        states = list(rounds(begun(start(schema=MIXED), data), task))
        found.append([(s.network.fingerprint, s.score, s.last_round) for s in states])
    assert found[0] == found[1] == found[2]
    assert len({network for network, _, _ in found[0]}) > 1


def test_failing_neighbour_ends_the_search_for_all_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(network: DynamicNetwork, *data: Sequences, **settings: Any) -> EmFit:
        raise ArithmeticError("one of them")

    monkeypatch.setattr(em, "fit_em", failing)
    data = some_data(PAIR)
    for jobs in (1, 3):
        task = replace(task_of(data), executor=executor_of("threads", jobs), clock=Clock())
        with pytest.raises(ArithmeticError, match="one of them"):
            next_round(begun(start(), data), task)
        assert task.clock.is_due() == (jobs > 1)


class Counted:
    """A clock that is due after a number of questions."""

    def __init__(self, count: int) -> None:
        self.left = count

    def is_due(self) -> bool:
        self.left -= 1
        return self.left < 0

    def stop(self) -> None:
        self.left = 0


def with_clock(task: SearchTask, count: int) -> SearchTask:
    return replace(task, clock=Counted(count))  # type: ignore[arg-type]


def test_round_that_was_not_finished_in_time_is_given_up() -> None:
    data = some_data(PAIR)
    task = task_of(data, round_size=3)
    state = begun(start(), data)
    whole = next_round(state, task)
    assert whole is not None
    given_up = 0
    while (after := next_round(state, with_clock(task, given_up))) is None:
        given_up += 1
        assert given_up < 100
    assert given_up > 6
    assert after.network.fingerprint == whole.network.fingerprint
    assert after.last_round == whole.last_round


@pytest.mark.parametrize("jobs", [1, 2])
def test_nothing_is_begun_once_time_is_up(
    jobs: int, monkeypatch: pytest.MonkeyPatch, proposed: list[Any]
) -> None:
    trained: list[DynamicNetwork] = []
    fit_em: Callable[..., EmFit] = em.fit_em

    def seen(network: DynamicNetwork, *data: Sequences, **settings: Any) -> EmFit:
        trained.append(network)
        return fit_em(network, *data, **settings)

    monkeypatch.setattr(em, "fit_em", seen)
    data = some_data(PAIR)
    task = replace(task_of(data), executor=executor_of("threads", jobs))
    assert next_round(begun(start(), data), with_clock(task, 0)) is None
    assert not proposed and not trained
    assert next_round(begun(start(), data), with_clock(task, 1)) is None
    assert len(proposed) == 4 and not trained
