"""The choice among layouts: its formula, its bounds, and that it never becomes worse."""

import numpy as np
import pytest
from scipy.special import logsumexp

from dspn import Schema, Variable
from dspn.learning.auto import Auto
from dspn.learning.auto.base import Block, Candidate, Recipe
from dspn.learning.auto.choice import Choice, Chooser, Pool
from dspn.learning.auto.moves import CLUSTERS
from dspn.learning.dependence import Layout
from dspn.structure import initial_network

NETWORK = initial_network(Schema((Variable.binary("x"),)), 1, rng=np.random.default_rng(0))
LAYOUTS: tuple[Layout, ...] = (
    ((0,), (1,), (2,)),
    ((0, 1, 2),),
    ((0, 1), (2,)),
    ((0, 2), (1,)),
    ((0,), (1, 2)),
)
NUM_SEQUENCES = 9


def candidate(block: Block, validation: np.ndarray, number: int) -> Candidate:
    return Candidate(number, block, NETWORK, Recipe(CLUSTERS, 1, 0.3), validation, 1, 0.1)


def drawn_pool(rng: np.random.Generator, blocks: list[Block]) -> Pool:
    pool = Pool()
    for number, block in enumerate(blocks):
        own = len(block) * rng.normal(-5, 1, size=NUM_SEQUENCES)
        pool = pool.with_candidates(candidate(block, own, number))
    return pool


BLOCKS = sorted({block for layout in LAYOUTS for block in layout})


def expected_validation(choice: Choice) -> np.ndarray:
    """Log sum over layouts of weight times the product over blocks of the mixture of members."""
    columns = []
    for layout in choice.layouts:
        column = np.zeros(NUM_SEQUENCES)
        for block in layout:
            model = choice.models[block]
            table = np.stack([member.validation for member in model.members], axis=1)
            column += logsumexp(table, axis=1, b=model.weights)
        columns.append(column)
    return np.asarray(logsumexp(np.stack(columns, axis=1), axis=1, b=choice.weights))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_choice_is_a_mixture_of_products_of_mixtures(seed: int, most: int) -> None:
    pool = drawn_pool(np.random.default_rng(seed), BLOCKS * 3)
    choice = Chooser(Auto(max_layouts=most, max_members=2)).choice(pool, LAYOUTS)
    assert 1 <= len(choice.layouts) <= most and set(choice.layouts) <= set(LAYOUTS)
    assert len(set(choice.layouts)) == len(choice.layouts)
    assert all(len(model.members) <= 2 for model in choice.models.values())
    assert choice.weights.sum() == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(choice.validation, expected_validation(choice), rtol=1e-12)
    assert choice.score == pytest.approx(choice.validation.mean(), rel=1e-12)
    assert set(choice.models) == {block for layout in choice.layouts for block in layout}


@pytest.mark.parametrize("seed", range(5))
def test_blocks_count_so_that_every_variable_counts_once(seed: int) -> None:
    pool = drawn_pool(np.random.default_rng(seed), BLOCKS)
    weights = Chooser(Auto()).choice(pool, LAYOUTS).block_weights()
    for variable in range(3):
        own = sum(weight for block, weight in weights.items() if variable in block)
        assert own == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_more_candidates_and_layouts_never_make_the_choice_worse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chooser = Chooser(Auto(max_layouts=2, max_members=2, least_weight=0.1))
    pool = drawn_pool(rng, BLOCKS)
    scores = []
    for number in range(25):
        scores.append(chooser.choice(pool, LAYOUTS[: 1 + number // 5]).score)
        block = BLOCKS[int(rng.integers(len(BLOCKS)))]
        own = len(block) * rng.normal(-5, 1, size=NUM_SEQUENCES)
        pool = pool.with_candidates(candidate(block, own, 100 + number))
    assert scores == sorted(scores)
    assert scores[-1] > scores[0]


def test_layouts_that_explain_different_sequences_are_both_chosen() -> None:
    half = np.repeat([0.0, 1.0], [4, 5])
    pool = Pool()
    for number, block in enumerate([(0,), (1,), (2,)]):
        pool = pool.with_candidates(candidate(block, -1 - 9 * half, number))
    pool = pool.with_candidates(candidate((0, 1, 2), -3 - 27 * (1 - half), 3))
    choice = Chooser(Auto()).choice(pool, LAYOUTS[:2])
    assert set(choice.layouts) == set(LAYOUTS[:2])
    shares = dict(zip(choice.layouts, choice.weights.tolist(), strict=True))
    assert shares[LAYOUTS[0]] == pytest.approx(4 / 9, abs=0.02)


def test_a_block_without_news_is_not_mixed_again() -> None:
    pool = drawn_pool(np.random.default_rng(0), BLOCKS)
    chooser = Chooser(Auto())
    first = chooser.model(pool, (0,))
    more = pool.with_candidates(candidate((1,), np.full(NUM_SEQUENCES, -1.0), 99))
    assert chooser.model(more, (0,)) is first
    assert chooser.model(more, (1,)) is not chooser.model(pool, (1,))


def test_one_layout_has_all_the_weight() -> None:
    pool = drawn_pool(np.random.default_rng(0), [(0, 1, 2)])
    choice = Chooser(Auto()).choice(pool, (((0, 1, 2),),))
    np.testing.assert_array_equal(choice.weights, [1.0])
    assert choice.block_weights() == {(0, 1, 2): 1.0}


def test_impossible_sequences_leave_a_choice_that_says_so() -> None:
    rng = np.random.default_rng(0)
    pool = Pool()
    for number, block in enumerate(BLOCKS):
        own = rng.normal(-5, 1, size=NUM_SEQUENCES)
        own[0] = -np.inf
        pool = pool.with_candidates(candidate(block, own, number))
    choice = Chooser(Auto()).choice(pool, LAYOUTS)
    assert choice.score == -np.inf
    assert choice.validation[0] == -np.inf and np.isfinite(choice.validation[1:]).all()
    assert choice.weights.sum() == pytest.approx(1.0, rel=1e-12)


def test_a_layout_that_is_possible_where_the_others_are_not_is_chosen() -> None:
    impossible = np.full(NUM_SEQUENCES, -1.0)
    impossible[0] = -np.inf
    pool = Pool()
    for number, block in enumerate([(0,), (1,), (2,)]):
        pool = pool.with_candidates(candidate(block, impossible, number))
    pool = pool.with_candidates(candidate((0, 1, 2), np.full(NUM_SEQUENCES, -9.0), 3))
    choice = Chooser(Auto()).choice(pool, LAYOUTS[:2])
    assert LAYOUTS[1] in choice.layouts
    assert np.isfinite(choice.score)


@pytest.mark.parametrize("seed", range(3))
def test_independent_entries_get_their_share(seed: int) -> None:
    rng = np.random.default_rng(seed)
    guard = tuple(
        candidate(b, rng.normal(-9, 1, NUM_SEQUENCES), n) for n, b in enumerate(BLOCKS[:2])
    )
    before = Chooser(Auto()).choice(drawn_pool(rng, BLOCKS), LAYOUTS)
    after = before.guarded(guard, 0.1)
    exact = np.logaddexp(
        before.validation + np.log(0.9), sum(own.validation for own in guard) + np.log(0.1)
    )
    np.testing.assert_allclose(after.validation, exact, rtol=1e-12)
    assert after.weights.sum() + after.share == pytest.approx(1.0, rel=1e-12)
    assert set(after.members) == {*before.members, 0, 1}


def test_a_sequence_that_gains_very_much_does_not_speak_against_the_better_model() -> None:
    plain = np.full(NUM_SEQUENCES, -9.0)
    better = np.array([1.0, 2.0, 1.5, 0.5, 1.2, 1.8, 0.9, 1.1, 300.0])
    noise = np.array([1.0, -2.0, 1.5, -0.5, -1.2, 1.8, -0.9, 1.1, 300.0])
    for gains, is_chosen in ((better, True), (noise, False)):
        chooser = Chooser(Auto(max_members=1))
        pool = Pool().with_candidates(candidate((0,), plain, 0))
        chooser.choice(pool, [((0,),)])
        pool = pool.with_candidates(candidate((0,), plain + gains, 1))
        assert (1 in chooser.choice(pool, [((0,),)]).members) == is_chosen
