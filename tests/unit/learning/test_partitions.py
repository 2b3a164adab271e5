"""Algorithm 3: which partition of a scope comes next."""

import json

import numpy as np
import pytest

from dspn.errors import DataError, ModelFileError, StructureError
from dspn.learning.growth_strings import all_strings, blocks
from dspn.learning.independence import Column
from dspn.learning.partitions import PartitionOptions, Positions, next_partition

OPTIONS = PartitionOptions()


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def columns_of(sources: list[int], seed: int, num_rows: int = 1000) -> list[Column]:
    """Noisy copies of hidden bits; columns with equal sources are dependent, others are not."""
    draw = rng(seed)
    bits = draw.integers(2, size=(max(sources) + 1, num_rows))
    return [
        Column.of_codes(
            np.where(draw.random(num_rows) < 0.2, draw.integers(2, size=num_rows), bits[s]) * 1.0, 2
        )
        for s in sources
    ]


def flat(partition: tuple[tuple[int, ...], ...]) -> list[int]:
    return sorted(item for block in partition for item in block)


def test_small_scope_is_searched_in_lexicographic_order_and_from_the_start_again() -> None:
    scope, positions = (2, 5, 9, 13), Positions()
    expected = [blocks(string, scope) for string in all_strings(4)]
    found = []
    for _ in range(2 * len(expected)):
        partition, positions = next_partition(scope, (), None, positions, OPTIONS, rng())
        found.append(partition)
    assert found == expected * 2


def test_each_scope_has_its_own_position() -> None:
    positions = Positions()
    for scope in [(0, 1), (1, 2), (0, 1), (1, 0)]:
        positions = next_partition(scope, (), None, positions, OPTIONS, rng()).positions
    assert dict(positions.strings) == {(0, 1): (0, 0), (1, 2): (0, 0)}
    assert next_partition([1, 0], (), None, positions, OPTIONS, rng()).partition == ((0,), (1,))


def test_single_item_has_one_partition() -> None:
    positions = Positions()
    for _ in range(3):
        partition, positions = next_partition((4,), (), None, positions, OPTIONS, rng())
        assert partition == ((4,),)


def test_positions_do_not_change_in_place() -> None:
    before = Positions()
    after = next_partition((0, 1), (), None, before, OPTIONS, rng()).positions
    assert not before.strings
    with pytest.raises(TypeError):
        after.strings[(0, 1)] = (0, 1)  # type: ignore[index]


def test_large_scope_is_split_into_independent_subsets_that_are_searched_on_their_own() -> None:
    sources = [0, 1, 0, 1, 0, 2, 1]
    columns = columns_of(sources, 1)
    positions = Positions()
    parts = [(0, 2, 4), (1, 3, 6), (5,)]
    for string in [*all_strings(3), (0, 0, 0)]:
        partition, positions = next_partition(range(7), columns, None, positions, OPTIONS, rng())
        expected = [block for part in parts[:2] for block in blocks(string, part)]
        assert partition == (*expected, (5,))
    assert set(positions.strings) == set(parts)


def test_large_dependent_scope_gets_random_partitions() -> None:
    columns = columns_of([0] * 7, 2)
    draw, seen = rng(3), set()
    for _ in range(50):
        partition, positions = next_partition(range(7), columns, None, Positions(), OPTIONS, draw)
        assert flat(partition) == list(range(7))
        assert positions == Positions()
        seen.add(partition)
    assert len(seen) > 40


def test_independent_subset_above_the_threshold_gets_a_random_partition() -> None:
    columns = columns_of([0, 0, 0, 0, 1, 1], 4)
    options = PartitionOptions(threshold=3)
    partition, positions = next_partition(range(6), columns, None, Positions(), options, rng(5))
    assert flat(partition) == list(range(6))
    assert all(set(block) <= {0, 1, 2, 3} or set(block) <= {4, 5} for block in partition)
    assert dict(positions.strings) == {(4, 5): (0, 0)}


def test_columns_belong_to_the_items_as_given() -> None:
    columns = columns_of([0, 1, 0, 1], 6)
    options = PartitionOptions(threshold=2)
    found = next_partition([7, 3, 5, 1], columns, None, Positions(), options, rng())
    assert found.partition == ((1, 3), (5, 7))


def test_weights_decide_which_rows_are_looked_at() -> None:
    one, other = columns_of([0, 0, 0], 7), columns_of([0, 1, 2], 8)
    columns = [
        Column(np.concatenate([a.membership, b.membership], axis=1))
        for a, b in zip(one, other, strict=True)
    ]
    options = PartitionOptions(threshold=2)
    only_other = np.repeat([0.0, 1.0], 1000)
    found = next_partition(range(3), columns, only_other, Positions(), options, rng())
    assert found.partition == ((0,), (1,), (2,))
    found = next_partition(range(3), columns, 1 - only_other, Positions(), options, rng())
    assert found.positions == Positions()


def test_same_seed_gives_the_same_partition() -> None:
    columns = columns_of([0] * 8, 9)
    calls = [
        next_partition(range(8), columns, None, Positions(), OPTIONS, rng(10)) for _ in range(2)
    ]
    assert calls[0] == calls[1]


def test_positions_survive_json() -> None:
    positions = Positions({(3, 1): (0, 1), (0, 2, 14): (0, 1, 1)})
    text = json.dumps(positions.to_json())
    assert Positions.from_json(json.loads(text)) == positions
    assert text == "[[[0, 2, 14], [0, 1, 1]], [[1, 3], [0, 1]]]"
    assert Positions.from_json(Positions().to_json()) == Positions()


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        {},
        [1],
        [[[0, 1]]],
        [[[0, 1], [0, 2]]],
        [[[0, 1], [0]]],
        [[[0, 0], [0, 1]]],
        [[[], []]],
        [[["a"], [0]]],
    ],
)
def test_damaged_positions_are_refused(damaged: object) -> None:
    with pytest.raises(ModelFileError, match="positions must be"):
        Positions.from_json(damaged)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: PartitionOptions(threshold=0), StructureError, "`threshold`"),
        (lambda: PartitionOptions(alpha=0.0), StructureError, "`alpha`"),
        (
            lambda: next_partition((), (), None, Positions(), OPTIONS, rng()),
            StructureError,
            "`scope` must hold at least one item",
        ),
        (
            lambda: next_partition((1, 1), (), None, Positions(), OPTIONS, rng()),
            StructureError,
            "none of them twice",
        ),
        (
            lambda: next_partition(range(7), (), None, Positions(), OPTIONS, rng()),
            DataError,
            "each of the 7 items of the scope, but has 0",
        ),
        (
            lambda: next_partition((0,), (), None, {}, OPTIONS, rng()),  # type: ignore[arg-type]
            StructureError,
            "`positions` must be a Positions",
        ),
        (
            lambda: next_partition((0,), (), None, Positions(), OPTIONS, 3),  # type: ignore[arg-type]
            StructureError,
            "`rng`",
        ),
    ],
)
def test_bad_arguments_are_refused_by_name(
    call: object, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        call()  # type: ignore[operator]
