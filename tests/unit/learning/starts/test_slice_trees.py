import math

import numpy as np
import pytest

from dspn.data import Schema, Sequences, Variable
from dspn.learning.dependence import pairwise_information
from dspn.learning.starts.hidden_trees import slice_tree
from strategies import Floats, as_sequences, schema_of


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def binary(values: Floats) -> Sequences:
    return as_sequences(schema_of(("binary",) * values.shape[1]), [values.astype(np.float64)])


def noisy(values: Floats, share: float, seed: int) -> Floats:
    """The bits, some of them turned over."""
    return np.where(rng(seed).random(values.shape) < share, 1 - values, values)


def path_of_four(count: int = 4000) -> Floats:
    """x2 - x0 - x3 - x1, each a noisy copy of the one before."""
    columns = np.empty((count, 4))
    columns[:, 2] = rng().integers(2, size=count)
    columns[:, 0] = noisy(columns[:, 2], 0.1, 1)
    columns[:, 3] = noisy(columns[:, 0], 0.05, 2)
    columns[:, 1] = noisy(columns[:, 3], 0.2, 3)
    return columns


def edges(data: Sequences, variables: list[int]) -> set[frozenset[int]]:
    tree = slice_tree(data, variables)
    assert sorted(tree.variables) == sorted(variables)
    assert tree.parents[0] == -1
    assert all(0 <= parent < place for place, parent in enumerate(tree.parents) if place)
    return {
        frozenset((tree.variables[place], tree.variables[parent]))
        for place, parent in enumerate(tree.parents)
        if place
    }


def test_tree_of_a_path_is_the_path_and_its_root_is_inside() -> None:
    data = binary(path_of_four())
    assert edges(data, [0, 1, 2, 3]) == {frozenset(e) for e in ((0, 2), (0, 3), (1, 3))}
    tree = slice_tree(data, [0, 1, 2, 3])
    assert tree.variables[0] in (0, 3)
    assert set(tree.neighbours(0)) == {2, 3} if tree.variables[0] == 0 else {0, 1}
    assert tree.neighbours(tree.variables.index(1)) == (3,)


def test_tree_has_the_variables_asked_for() -> None:
    data = binary(path_of_four())
    assert edges(data, [3, 2, 1]) == {frozenset(e) for e in ((2, 3), (1, 3))}
    assert slice_tree(data, [2]).variables == (2,)
    assert slice_tree(data, [2]).neighbours(0) == ()


def test_ties_go_to_the_variable_named_first() -> None:
    data = binary(np.zeros((50, 4)))
    tree = slice_tree(data, [2, 0, 3, 1])
    assert tree.variables == (2, 0, 3, 1)
    assert tree.parents == (-1, 0, 0, 0)


def test_information_is_that_of_the_table_less_its_mean_excess() -> None:
    values = path_of_four(500)[:, :2]
    counts = np.zeros((2, 2))
    np.add.at(counts, tuple(values.astype(int).T), 1)
    shares = counts / counts.sum()
    own = shares * np.log(shares / shares.sum(1, keepdims=True) / shares.sum(0, keepdims=True))
    found = pairwise_information(binary(values), [0, 1])
    assert found[0, 1] == pytest.approx(own.sum() - 0.5 / 500, rel=1e-9)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diag(found), 0.0)


def test_pairs_with_a_missing_entry_are_left_out() -> None:
    values = path_of_four(600)
    values[:200, 0] = np.nan
    values[100:300, 1] = np.nan
    found = pairwise_information(binary(values), [0, 1])
    expected = pairwise_information(binary(values[300:]), [0, 1])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["binary", "single", "continuous", "count"])
def test_variable_that_is_never_seen_or_never_changes_tells_nothing(kind: str) -> None:
    for value in (np.nan, 0.0):
        values = np.stack([np.full(40, value), np.arange(40) % 2], axis=1)
        data = as_sequences(schema_of((kind, "binary")), [values])
        np.testing.assert_allclose(pairwise_information(data, [0, 1]), 0.0, atol=1e-12)
        assert len(slice_tree(data, [0, 1]).variables) == 2


def test_numbers_are_compared_by_their_quantiles() -> None:
    draws = rng(4).normal(size=3000)
    columns = [draws, np.exp(3 * draws), rng(5).normal(size=3000), rng(6).poisson(3, size=3000)]
    data = as_sequences(
        schema_of(("continuous", "continuous", "continuous", "count")), [np.stack(columns, axis=1)]
    )
    found = pairwise_information(data, [0, 1, 2, 3])
    assert found[0, 1] == pytest.approx(math.log(5), rel=0.01)
    np.testing.assert_allclose(found[2, [0, 1, 3]], 0.0, atol=0.01)


def test_rare_ones_of_many_categories_count_as_one() -> None:
    schema = Schema((Variable.categorical("a", range(1000)), Variable.categorical("b", range(40))))
    first = rng(1).zipf(1.5, size=2000) % 1000
    data = as_sequences(schema, [np.stack([first, first % 40], axis=1).astype(float)])
    found = pairwise_information(data, [0, 1])
    assert 0.5 < found[0, 1] < math.log(16)
