"""Structural EM against enumeration of all hidden states."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dspn.data import Schema, Sequences, Variable
from dspn.errors import DataError, StructureError
from experiments.baselines import Ending, SearchScoreBaseline, SearchScoreOptions
from experiments.baselines._dbn_families import Prior, all_counts, cost, neighbours
from experiments.baselines._dbn_inference import Evidence, dbn_log_likelihood, posterior
from experiments.baselines._dbn_model import Dbn, Nodes, Parents
from experiments.baselines.base import task_of
from experiments.baselines.search_score import Climb, first_parents

SCHEMA = Schema((Variable.binary("a"), Variable.categorical("b", ("u", "v", "w"))))
# Nodes 0 and 1 are a and b, nodes 2 and 3 are hidden.
NODES = Nodes(SCHEMA, 2)
PARENTS = (
    Parents((1, 3), (2,)),
    Parents((), (0, 2, 3)),
    Parents((2, 0), ()),
    Parents((1, 2), (2,)),
)


def random_dbn(seed: int, nodes: Nodes = NODES, parents: tuple[Parents, ...] = PARENTS) -> Dbn:
    rng = np.random.default_rng(seed)

    def table(node: int, *, is_first: bool) -> np.ndarray:
        shape = nodes.shape(parents[node].scope(node, is_first=is_first))
        draws = rng.gamma(0.7, size=shape) + 1e-3
        return draws / draws.sum(axis=-1, keepdims=True)

    first = tuple(table(node, is_first=True) for node in range(len(parents)))
    later = tuple(
        table(node, is_first=False) if own.between else None for node, own in enumerate(parents)
    )
    return Dbn(nodes, parents, first, later)


def random_data(seed: int, lengths: tuple[int, ...] = (3, 1, 2, 3)) -> Sequences:
    rng = np.random.default_rng(seed)
    values = np.stack([rng.integers(2, size=sum(lengths)), rng.integers(3, size=sum(lengths))], 1)
    return Sequences.from_codes(values.astype(float), np.cumsum([0, *lengths]), SCHEMA)


def joint(dbn: Dbn, states: list[tuple[int, ...]]) -> float:
    """Product of the conditional probabilities of every node at every slice."""
    total = 1.0
    for t, now in enumerate(states):
        for node, own in enumerate(dbn.parents):
            later = dbn.later[node]
            if t == 0 or later is None:
                index = (*(now[p] for p in own.within), now[node])
                total *= float(dbn.first[node][index])
            else:
                before = tuple(states[t - 1][p] for p in own.between)
                total *= float(later[(*before, *(now[p] for p in own.within), now[node])])
    return total


def explanations(dbn: Dbn, sequence: np.ndarray) -> list[tuple[list[tuple[int, ...]], float]]:
    """Every way to fill in the hidden nodes and what is missing, with its probability."""
    sizes = dbn.nodes.sizes
    per_slice = []
    for row in sequence:
        allowed = [
            [int(x)] if not math.isnan(x) else range(sizes[v]) for v, x in enumerate(row)
        ] + [range(2)] * dbn.nodes.num_hidden
        per_slice.append(list(itertools.product(*allowed)))
    return [(list(s), joint(dbn, list(s))) for s in itertools.product(*per_slice)]


@pytest.mark.parametrize("seed", range(3))
def test_likelihood_is_the_sum_over_all_hidden_states(seed: int) -> None:
    dbn, data = random_dbn(seed), random_data(seed)
    expected = [math.log(math.fsum(p for _, p in explanations(dbn, own))) for own in data]
    assert_allclose(dbn_log_likelihood(dbn, data), expected, rtol=1e-10)


def test_likelihood_with_gaps_is_the_sum_over_what_is_missing() -> None:
    dbn, data = random_dbn(5), random_data(5, (2, 2, 1))
    values = data.values.copy()
    values[0] = np.nan
    values[3, 1] = np.nan
    gappy = data.with_values(values)
    expected = [math.log(math.fsum(p for _, p in explanations(dbn, own))) for own in gappy]
    assert_allclose(dbn_log_likelihood(dbn, gappy), expected, rtol=1e-10)


def test_likelihood_of_a_long_sequence_agrees_with_elimination() -> None:
    dbn, data = random_dbn(6), random_data(6, (2000, 3))
    expected = dbn.marginal_log_likelihood(data)
    assert expected[0] < -1000
    assert_allclose(dbn_log_likelihood(dbn, data), expected, rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_expected_counts_are_those_of_all_explanations(seed: int) -> None:
    dbn, data = random_dbn(seed), random_data(seed)
    families = [*enumerate(PARENTS), (0, Parents()), (3, Parents((3,), ())), (1, Parents((0, 2)))]
    evidence = Evidence.of(data)
    counts = all_counts(families, NODES, evidence, posterior(dbn, evidence))
    assert counts is not None
    for node, parents in families:
        shape = NODES.shape(parents.scope(node, is_first=True))
        first = np.zeros(shape)
        later = np.zeros(NODES.shape(parents.scope(node, is_first=False)))
        for own in data:
            ways = explanations(dbn, own)
            total = math.fsum(p for _, p in ways)
            for states, p in ways:
                for t, now in enumerate(states):
                    inner = (*(now[i] for i in parents.within), now[node])
                    if t == 0 or not parents.between:
                        first[inner] += p / total
                    else:
                        outer = tuple(states[t - 1][i] for i in parents.between)
                        later[outer + inner] += p / total
        found = counts[node, parents]
        assert_allclose(found.first, first, rtol=1e-9, atol=1e-12)
        if parents.between:
            assert found.later is not None
            assert_allclose(found.later, later, rtol=1e-9, atol=1e-12)
        else:
            assert found.later is None


def lasting_bits(num_sequences: int, length: int, seed: int) -> Sequences:
    """A hidden bit that lasts, and a and b that show it; b also follows the a before."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(num_sequences):
        bit, last = rng.integers(2), 0
        for _ in range(length):
            bit ^= rng.random() < 0.1
            a = bit ^ (rng.random() < 0.15)
            rows.append([a, bit + last if rng.random() < 0.8 else rng.integers(3)])
            last = a
    offsets = np.arange(0, len(rows) + 1, length)
    return Sequences.from_codes(np.array(rows, dtype=float), offsets, SCHEMA)


@pytest.mark.parametrize("num_hidden", [0, 1, 2])
def test_no_step_lowers_the_score(num_hidden: int) -> None:
    data = lasting_bits(40, 6, 0)
    # A small penalty and a small prior leave much to change.
    options = SearchScoreOptions(num_hidden=num_hidden, penalty=0.02, pseudo_count=0.1)
    nodes = Nodes(SCHEMA, num_hidden)
    task = task_of(data, data, seed=0, time_limit=None)
    climb = Climb(Evidence.of(data), nodes, options)
    state = climb.state(random_dbn(1, nodes, first_parents(nodes, 4)))
    changes = 0
    for _ in range(6):
        for _ in range(3):
            before, state = state.score, climb.em_step(state)
            assert state.score >= before - 1e-9 * abs(before)
        changed = climb.structure_step(state, task)
        if changed is None:
            break
        assert changed.score > state.score
        assert changed.dbn.parents != state.dbn.parents
        changes += 1
        state = changed
    assert changes >= 2


def test_score_is_likelihood_with_prior_less_penalty() -> None:
    data, dbn = random_data(2), random_dbn(2)
    options = SearchScoreOptions(num_hidden=2, penalty=0.3, pseudo_count=0.2)
    state = Climb(Evidence.of(data), NODES, options).state(dbn)
    tables = [*dbn.first, *(table for table in dbn.later if table is not None)]
    free = [2 + 12, 2 * 8, 1 + 4, 2 + 12]
    expected = dbn_log_likelihood(dbn, data).sum()
    expected += 0.2 * sum(float(np.log(table).sum()) for table in tables)
    expected -= 0.3 * math.log(data.total_slices) * sum(free)
    assert_allclose(state.score, expected, rtol=1e-10)
    own = cost((0, PARENTS[0]), NODES, Prior(0.2, 0.3), data.total_slices)
    assert_allclose(own, 0.3 * math.log(data.total_slices) * free[0], rtol=1e-12)


def test_neighbours_differ_in_one_parent_and_have_no_cycles() -> None:
    for node, parents in enumerate(PARENTS):
        found = neighbours(NODES, (node, parents), 3, within=True)
        assert len(set(found)) == len(found)
        for other, changed in found:
            assert other == node and changed != parents
            gone, new = (
                set(parents.items) - set(changed.items),
                set(changed.items) - set(parents.items),
            )
            assert len(gone) <= 1 and len(new) <= 1
            assert len(changed.items) <= 3
            # Hidden nodes come first, then a, then b.
            order = {2: 0, 3: 1, 0: 2, 1: 3}
            assert all(order[parent] < order[node] for parent in changed.within)
    without = neighbours(NODES, (1, Parents()), 3, within=False)
    assert (1, Parents(within=(0,))) not in without
    assert (1, Parents(within=(2,))) in without
    assert (1, Parents(between=(0,))) in without


def test_hidden_node_and_edges_are_found() -> None:
    train, validation = lasting_bits(150, 10, 1), lasting_bits(50, 10, 2)
    test = lasting_bits(100, 10, 3)
    hidden = SearchScoreBaseline(SearchScoreOptions(num_hidden=1)).fit(train, validation, seed=0)
    plain = SearchScoreBaseline(SearchScoreOptions(num_hidden=0)).fit(train, validation, seed=0)
    assert hidden.edges["b"] == (("a",), ("hidden 0",))
    assert hidden.edges["a"] == ((), ("hidden 0",))
    assert hidden.edges["hidden 0"] == (("hidden 0",), ())
    assert hidden.log_likelihood(test).mean() > plain.log_likelihood(test).mean() + 0.2
    assert hidden.ending is Ending.FINISHED
    assert hidden.state_pairs > plain.state_pairs > 0


def test_cost_of_inference_is_four_to_the_number_of_hidden_nodes() -> None:
    data = random_data(0)
    for num_hidden in (0, 1, 2, 3):
        nodes = Nodes(SCHEMA, num_hidden)
        climb = Climb(Evidence.of(data), nodes, SearchScoreOptions(num_hidden=num_hidden))
        climb.state(random_dbn(0, nodes, first_parents(nodes, 4)))
        later = data.total_slices - len(data)
        assert climb.state_pairs == later * 4**num_hidden + len(data) * 2**num_hidden


def test_names_of_hidden_nodes_are_unlike_those_of_variables() -> None:
    schema = Schema((Variable.binary("hidden 0"), Variable.binary("_hidden")))
    names = Nodes(schema, 2).names
    assert len(set(names)) == 4


def test_variable_of_one_category_and_one_slice_are_no_trouble() -> None:
    schema = Schema((Variable.categorical("only", ("x",)), Variable.binary("a")))
    rng = np.random.default_rng(0)
    values = np.stack([np.zeros(12), rng.integers(2, size=12)], axis=1)
    data = Sequences.from_codes(values, np.arange(13), schema)
    found = SearchScoreBaseline(SearchScoreOptions(num_hidden=1)).fit(data, data, seed=0)
    share = np.exp(found.log_likelihood(data))
    ones = values[:, 1] == 1
    assert_allclose(share[ones][0] + share[~ones][0], 1.0, rtol=1e-10)


def test_gaps_in_training_are_refused() -> None:
    data = random_data(0)
    values = data.values.copy()
    values[4, 1] = np.nan
    with pytest.raises(DataError, match=r"without gaps.* 1 of 4 .* sequence 2; fill them in"):
        SearchScoreBaseline().fit(data.with_values(values), data, seed=0)


def test_validation_with_gaps_is_allowed() -> None:
    train, validation = lasting_bits(40, 4, 4), random_data(1)
    values = validation.values.copy()
    values[:3] = np.nan
    options = SearchScoreOptions(num_hidden=1, num_starts=1, max_rounds=1)
    found = SearchScoreBaseline(options).fit(train, validation.with_values(values), seed=0)
    assert np.isfinite(found.log_likelihood(validation)).all()


def test_too_many_hidden_nodes_are_refused() -> None:
    data = random_data(0)
    with pytest.raises(StructureError, match=r"`num_hidden`.* use fewer hidden nodes"):
        SearchScoreBaseline(SearchScoreOptions(num_hidden=14)).fit(data, data, seed=0)


def test_variables_that_are_not_categorical_are_refused() -> None:
    data = Sequences.from_codes([[0.5], [1.5]], [0, 2], Schema((Variable.continuous("x"),)))
    with pytest.raises(DataError, match=r"categorical variables only.* 'x' is continuous"):
        SearchScoreBaseline().fit(data, data, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_hidden": -1}, "`num_hidden` must be a whole number"),
        ({"max_parents": 0}, "`max_parents` must be a whole number"),
        ({"num_starts": 0}, "`num_starts` must be a whole number"),
        ({"penalty": -1.0}, "`penalty` of SearchScoreOptions"),
        ({"pseudo_count": 0.0}, "`pseudo_count` of SearchScoreOptions"),
        ({"within": 1}, "`within` must be a bool"),
    ],
)
def test_options_out_of_range_are_refused(options: dict, message: str) -> None:
    with pytest.raises(StructureError, match=message):
        SearchScoreOptions(**options)
