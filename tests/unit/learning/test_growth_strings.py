"""Partitions by their restricted growth strings: how many, in which order, drawn how often."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from dspn.errors import StructureError
from dspn.learning.partitions import (
    all_strings,
    blocks,
    first,
    random_string,
    string_of,
    successor,
)

BELL = (1, 1, 2, 5, 15, 52, 203, 877, 4140)


@pytest.mark.parametrize("n", range(1, 9))
def test_strings_are_all_partitions_in_lexicographic_order(n: int) -> None:
    strings = list(all_strings(n))
    assert len(strings) == BELL[n]
    assert strings == sorted(set(strings))
    partitions = {frozenset(map(frozenset, blocks(string, range(n)))) for string in strings}
    assert len(partitions) == BELL[n]


@pytest.mark.parametrize("n", range(1, 9))
def test_after_the_last_string_comes_the_first(n: int) -> None:
    assert first(n) == (0,) * n
    assert successor(tuple(range(n))) == first(n)


def test_successor_raises_the_last_entry_that_may_rise() -> None:
    assert successor((0, 0, 0, 0)) == (0, 0, 0, 1)
    assert successor((0, 0, 1, 2)) == (0, 1, 0, 0)
    assert successor((0, 1, 1, 2)) == (0, 1, 2, 0)
    assert successor(np.array([0, 1, 1, 1])) == (0, 1, 1, 2)


def test_blocks_share_out_the_items_in_order() -> None:
    assert blocks((0, 1, 0, 2), "abcd") == (("a", "c"), ("b",), ("d",))
    assert blocks((0,), [7]) == ((7,),)


def test_string_of_labels_numbers_blocks_by_their_first_items() -> None:
    assert string_of([5, 2, 5, 0]) == (0, 1, 0, 2)


@pytest.mark.parametrize(("n", "seed"), [(2, 0), (3, 1), (4, 2), (5, 3)])
def test_random_strings_are_uniform_over_partitions(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = Counter(random_string(n, rng) for _ in range(200 * BELL[n]))
    assert set(counts) == set(all_strings(n))
    assert chisquare(list(counts.values())).pvalue > 0.01


@pytest.mark.parametrize("n", [1, 30, 400])
def test_random_string_of_any_length_is_a_growth_string(n: int) -> None:
    rng = np.random.default_rng(n)
    drawn = [random_string(n, rng) for _ in range(20)]
    assert all(string_of(string) == string and len(string) == n for string in drawn)
    assert drawn[0] == random_string(n, np.random.default_rng(n))


def test_mean_number_of_blocks_of_many_items_is_that_of_the_uniform_law() -> None:
    # The mean number of blocks is Bell(n + 1) / Bell(n) - 1; here n = 60.
    bell = [[1]]
    while len(bell) < 61:
        row = [bell[-1][-1]]
        for above in bell[-1]:
            row.append(row[-1] + above)
        bell.append(row)
    expected = bell[60][-1] / bell[59][-1] - 1
    rng = np.random.default_rng(0)
    sizes = [max(random_string(60, rng)) + 1 for _ in range(4000)]
    standard_error = np.std(sizes) / np.sqrt(len(sizes))
    assert abs(np.mean(sizes) - expected) < 4 * standard_error


@pytest.mark.parametrize("string", [(), (1,), (0, 2), (0, -1), (0, 1, 3)])
def test_what_is_no_growth_string_is_refused(string: tuple[int, ...]) -> None:
    with pytest.raises(StructureError, match="`string`"):
        successor(string)


def test_bad_arguments_are_refused_by_name() -> None:
    with pytest.raises(StructureError, match="`num_items`"):
        first(0)
    with pytest.raises(StructureError, match="`rng`"):
        random_string(3, 0)  # type: ignore[arg-type]
    with pytest.raises(StructureError, match="each of the 2 items"):
        blocks((0, 1, 0), "ab")
    with pytest.raises(StructureError, match="`string`"):
        successor((0, 0.5))  # type: ignore[arg-type]
