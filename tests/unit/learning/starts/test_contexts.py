"""Chains of runs, against Markov chains of variable order that are computed by hand."""

from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dspn import DSPN, Auto, Schema, Sequences, Variable
from dspn.engine import compile_program
from dspn.errors import DataError
from dspn.learning.auto import learn_auto
from dspn.learning.auto.moves import CONTEXTS
from dspn.learning.priors import Priors
from dspn.learning.starts.contexts import context_network, count_runs, pooled_rows
from dspn.leaves.categorical import CategoricalPrior
from dspn.structure import violations

SCHEMA = Schema((Variable.categorical("x", range(3)),))
PRIORS = Priors(sum_pseudo_count=0.5, by_variable=(CategoricalPrior(1e-12),))


def drawn(count: int, length: int, seed: int = 0, delay: int = 2) -> Sequences:
    """Symbols that are mostly those `delay` slices before."""
    rng = np.random.default_rng(seed)
    values = rng.integers(3, size=(count, length)).astype(np.float64)
    copied = rng.random(values.shape) < 0.8
    for t in range(delay, length):
        values[:, t] = np.where(copied[:, t], values[:, t - delay], values[:, t])
    return Sequences.from_codes(values.reshape(-1, 1), np.arange(count + 1) * length, SCHEMA)


def rows_of(data: Sequences) -> list[list[int]]:
    values = data.values[:, 0].astype(int).tolist()
    return [values[a:b] for a, b in zip(data.offsets[:-1], data.offsets[1:], strict=True)]


@pytest.mark.parametrize(("order", "least"), [(1, 1), (2, 1), (3, 1), (3, 9), (4, 12), (5, 6)])
def test_likelihoods_are_those_of_a_markov_chain_of_variable_order(order: int, least: int) -> None:
    train, test = drawn(30, 12), drawn(10, 15, 1)
    counts = Counter(
        tuple(row[end - length : end])
        for row in rows_of(train)
        for length in range(1, order + 1)
        for end in range(length, len(row) + 1)
    )
    assert len(counts) == count_runs(train, order)
    # All runs of one slice, and those that occur so often.
    nodes = {run for run, own in counts.items() if len(run) == 1 or own >= least}
    network = context_network(train, len(nodes), order, priors=PRIORS)
    assert network.num_interfaces == len(nodes)
    assert not violations(network.template, network.top)

    def context(row: list[int]) -> tuple[int, ...]:
        """The longest end that is a node."""
        return next(own for n in range(order, 0, -1) if (own := tuple(row[-n:])) in nodes)

    follows, begins = {run: np.full(3, 0.5) for run in nodes}, np.ones(3)
    for row in rows_of(train):
        begins[row[0]] += 1
        for t in range(1, len(row)):
            follows[context(row[:t])][row[t]] += 1
    wanted = []
    for row in rows_of(test):
        total = np.log(begins[row[0]] / begins.sum())
        for t in range(1, len(row)):
            own = follows[context(row[:t])]
            total += np.log(own[row[t]] / own.sum())
        wanted.append(total)
    assert_allclose(compile_program(network).log_likelihood(test), wanted, rtol=1e-9)


def test_a_missing_entry_ends_a_run() -> None:
    data = Sequences.from_codes(
        np.array([[0.0], [1.0], [np.nan], [1.0], [2.0]]), np.array([0, 5]), SCHEMA
    )
    assert (count_runs(data, 1), count_runs(data, 2), count_runs(data, 3)) == (3, 5, 5)
    network = context_network(data, 5, 3, priors=PRIORS)
    assert np.isfinite(compile_program(network).log_likelihood(data)).all()


def test_what_cannot_be_such_a_chain_is_refused() -> None:
    with pytest.raises(DataError, match="up to 2 different slices"):
        context_network(drawn(3, 5), 2, 1)
    numbers = Sequences.from_arrays([np.ones((3, 1))], schema=Schema((Variable.continuous("x"),)))
    with pytest.raises(DataError, match="categorical variables only"):
        context_network(numbers, 4, 1)


def test_rows_of_a_kind_share_what_they_have_in_common() -> None:
    rng = np.random.default_rng(0)
    kinds = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    true = kinds[rng.integers(3, size=90)]
    counts = np.stack([rng.multinomial(10, own) for own in true])
    rows = pooled_rows(counts, 0.1)
    assert_allclose(rows.sum(axis=1), 1.0)
    apart = (counts + 0.1) / (counts + 0.1).sum(axis=1, keepdims=True)
    losses = [float(-(true * np.log(own / true)).sum(axis=1).mean()) for own in (rows, apart)]
    assert losses[0] < 0.3 * losses[1]


def test_rows_that_lead_to_one_of_many_symbols_have_a_kind_for_each() -> None:
    # Fewer kinds than symbols are no better than one kind.
    rng = np.random.default_rng(2)
    true = (0.88 * np.eye(7) + 0.12 / 7)[rng.integers(7, size=240)]
    counts = np.stack([rng.multinomial(rng.integers(1, 30), own) for own in true])
    rows = pooled_rows(counts, 0.1)
    apart = (counts + 0.1) / (counts + 0.1).sum(axis=1, keepdims=True)
    losses = [float(-(true * np.log(own / true)).sum(axis=1).mean()) for own in (rows, apart)]
    assert losses[0] < 0.4 * losses[1]


def test_rows_of_no_kind_stay_what_they_are() -> None:
    rng = np.random.default_rng(1)
    true = rng.dirichlet(np.ones(4), 40)
    counts = np.stack([rng.multinomial(2_000, own) for own in true])
    assert_allclose(pooled_rows(counts, 0.1), (counts + 0.1) / 2_000.4, atol=0.01)


def test_a_single_row_and_rows_without_counts_have_distributions() -> None:
    for counts in (np.zeros((1, 3)), np.array([[0, 5, 0]]), np.array([[0, 0], [7, 1], [0, 0]])):
        rows = pooled_rows(counts, 0.1)
        assert_allclose(rows.sum(axis=1), 1.0)
        assert (rows > 0).all()


def test_pooled_chains_are_learned_from_all_data_in_the_end() -> None:
    train, test = drawn(60, 30, delay=3), drawn(40, 30, 1, delay=3)
    options = Auto(effort=2.0, moves=[CONTEXTS])
    one = learn_auto(train, drawn(40, 30, 2, delay=3), seed=0, options=options)
    found = [own for own in one.choice.members.values() if own.recipe.move == CONTEXTS]
    assert found and not any(own.steps for own in found)
    # Each is begun anew with the validation set as well: none of the components is one of those.
    known = {own.network.parameters.template.weights.tobytes() for own in found}
    last = {own.parameters.template.weights.tobytes() for own in one.mixture.components}
    assert not known & last
    plain = compile_program(context_network(train, 39, 3)).log_likelihood(test).mean()
    assert compile_program(one.mixture).log_likelihood(test).mean() > plain
    # Runs that a missing entry hides are learned by EM, and given priors are kept.
    values = train.values.copy()
    values[5] = np.nan
    holes = Sequences.from_codes(values, train.offsets, SCHEMA)
    for data, priors in ((holes, None), (train, Priors())):
        other = learn_auto(data, data, seed=0, options=options, priors=priors)
        assert any(own.candidate.steps for own in other.tried if own.move == CONTEXTS)


def test_the_automatic_learner_remembers_what_pays() -> None:
    train, test = drawn(80, 30, delay=3), drawn(40, 30, 1, delay=3)
    own = DSPN(Auto(effort=2.0), random_state=0).fit(train)
    assert "contexts" in own.explanation_
    chain = context_network(train, 39, 3)
    best = compile_program(chain).log_likelihood(test).mean()
    assert own.score(test) > best - 0.5
    told = DSPN(Auto(effort=1.0), random_state=0, lags=1).fit(train)
    assert "contexts" not in told.explanation_
