"""Candidates, their mixtures by block, and the pool that they are kept in."""

import numpy as np
import pytest
from scipy.special import logsumexp

from dspn import Schema, Variable
from dspn.learning.auto.base import Block, Candidate, Recipe
from dspn.learning.auto.choice import Pool, block_model
from dspn.learning.auto.moves import CLUSTERS
from dspn.structure import initial_network

NETWORK = initial_network(Schema((Variable.binary("x"),)), 2, rng=np.random.default_rng(0))


def candidate(
    validation: list[float] | np.ndarray, *, number: int = 0, block: Block = (0,)
) -> Candidate:
    recipe = Recipe(CLUSTERS, 2, 0.3, width=number)
    return Candidate(number, block, NETWORK, recipe, np.array(validation), 3, 0.5 + number)


def drawn(count: int, seed: int) -> tuple[Candidate, ...]:
    rng = np.random.default_rng(seed)
    return tuple(candidate(rng.normal(-9, 2, size=7), number=i) for i in range(count))


def test_score_is_the_mean_and_size_the_number_of_interface_nodes() -> None:
    own = candidate([-1.0, -3.0])
    assert own.score == -2.0
    assert own.size == 2


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("most", [1, 2, 4])
def test_a_block_model_is_the_mixture_of_its_members(seed: int, most: int) -> None:
    candidates = drawn(6, seed)
    model = block_model(candidates, most=most, least=0.05)
    assert 1 <= len(model.members) <= most
    assert [member.number for member in model.members] == sorted(
        {member.number for member in model.members}
    )
    assert model.weights.sum() == pytest.approx(1.0, rel=1e-12)
    table = np.stack([member.validation for member in model.members], axis=1)
    expected = logsumexp(table, axis=1, b=model.weights)
    np.testing.assert_allclose(model.validation, expected, rtol=1e-12)
    assert model.score == pytest.approx(expected.mean(), rel=1e-12)


def test_a_single_candidate_is_its_own_model() -> None:
    (own,) = drawn(1, 0)
    model = block_model((own,), most=4, least=0.05)
    assert model.members == (own,)
    np.testing.assert_array_equal(model.weights, [1.0])
    np.testing.assert_allclose(model.validation, own.validation, rtol=1e-12)


def test_equal_candidates_change_nothing() -> None:
    twins = (candidate([-1.0, -2.0]), candidate([-1.0, -2.0], number=1))
    np.testing.assert_allclose(
        block_model(twins, most=2, least=0.05).validation, [-1.0, -2.0], rtol=1e-12
    )


def test_candidates_that_explain_different_sequences_are_mixed() -> None:
    one, other = candidate([-1.0, -50.0]), candidate([-50.0, -1.0], number=1)
    model = block_model((one, other), most=4, least=0.05)
    np.testing.assert_allclose(model.weights, [0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(model.validation, [-1 - np.log(2)] * 2, rtol=1e-6)


def test_a_sequence_that_nobody_can_explain_stays_impossible() -> None:
    pair = (candidate([-np.inf, -2.0]), candidate([-np.inf, -1.0], number=1))
    model = block_model(pair, most=4, least=0.05)
    assert model.validation[0] == -np.inf and np.isfinite(model.validation[1])
    assert model.score == -np.inf


def test_a_pool_is_a_value_and_counts_all_work() -> None:
    empty = Pool()
    one = empty.with_candidates(candidate([-2.0]))
    pool = one.with_candidates(candidate([-1.0], number=1, block=(0, 1)))
    pool = pool.with_candidates(candidate([-1.0], number=2, block=(0, 1)))
    assert (0,) not in empty and (0,) in one and (0, 1) not in one and (0, 1) in pool
    assert [own.number for own in pool.by_block[(0, 1)]] == [1, 2]
    assert empty.work == 0
    assert pool.work == pytest.approx(0.5 + 1.5 + 2.5, rel=1e-12)
