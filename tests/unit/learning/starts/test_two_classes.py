import math

import numpy as np

from dspn.learning.starts.clusters import category_block
from dspn.learning.starts.informed import Rows, number_block, two_classes


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_category_block_has_an_indicator_and_nothing_where_missing() -> None:
    found = category_block(np.array([1.0, np.nan, 0.0]), 2)
    np.testing.assert_array_equal(found, [[0, 1], [0, 0], [1, 0]])


def test_number_block_is_standardised_by_weight() -> None:
    values, weights = np.array([1e6, 1e6 + 2, np.nan, 1e6 + 7]), np.array([1.0, 3.0, 9.0, 0.5])
    found = number_block(values, weights)
    np.testing.assert_array_equal(found[2], 0.0)
    seen = [0, 1, 3]
    total = weights[seen].sum()
    np.testing.assert_allclose(weights[seen] @ found[seen], [total, 0.0, total], atol=1e-9)


def test_number_block_of_a_constant_or_of_nothing_is_zero() -> None:
    np.testing.assert_array_equal(number_block(np.full(3, 5.0), np.ones(3))[:, 1:], 0.0)
    np.testing.assert_array_equal(number_block(np.full(3, np.nan), np.ones(3)), 0.0)


def test_coefficients_give_the_log_likelihood_of_the_best_fit() -> None:
    weights = rng(1).uniform(0.5, 2.0, 400)
    codes, numbers = rng(2).integers(3, size=400).astype(float), rng(3).normal(size=400) * 4 + 7
    block = number_block(numbers, weights)
    rows = Rows.of([category_block(codes, 3), np.zeros((400, 0))], [block], weights)
    found = rows.features @ rows.coefficients(weights @ rows.features)
    shares = np.bincount(codes.astype(int), weights) / weights.sum()
    z = block[:, 1]
    expected = np.log(shares)[codes.astype(int)] - 0.5 * z * z
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_two_kinds_gain_what_the_mixture_says_and_one_kind_nothing() -> None:
    kind = rng(1).random(1000) < 0.4
    bits = np.where(kind[:, None], 0.9, 0.1) > rng(2).random((1000, 6))
    alone = rng(3).random((1000, 6)) < 0.5
    gains = []
    for values in (bits, alone):
        blocks = [category_block(column.astype(float), 2) for column in values.T]
        gains.append(two_classes(Rows.of(blocks, [], np.ones(1000)), rng()))
    agreement = np.mean(gains[0][1] == kind)
    assert max(agreement, 1 - agreement) > 0.95
    likely = [np.where(bits, p, 1 - p).prod(axis=1) for p in (0.9, 0.1)]
    mixture = np.log(0.4 * likely[0] + 0.6 * likely[1]).sum()
    share = bits.mean(axis=0)
    single = np.log(np.where(bits, share, 1 - share)).sum()
    assert math.isclose(gains[0][0], mixture - single, rel_tol=0.02)
    assert gains[1][0] < 0.02 * gains[0][0]


def test_two_humps_of_a_single_number_are_seen() -> None:
    kind = rng(1).random(600) < 0.5
    values = rng(2).normal(size=600) + 8.0 * kind
    rows = Rows.of([], [number_block(values, np.ones(600))], np.ones(600))
    found = two_classes(rows, rng())
    assert found[0] > 100
    assert np.mean(found[1] == kind) in (0.0, 1.0)
