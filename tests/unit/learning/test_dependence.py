"""Dependence of pairs of variables: against sums over cells, and near zero where there is none."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dspn import Schema, Sequences, Variable
from dspn.errors import DataError
from dspn.learning.dependence import dependence

Floats = NDArray[np.float64]


def categorical(num_variables: int, size: int) -> Schema:
    letters = tuple("abcdefghijklmnopqrstuvwxyz"[:size])
    return Schema(tuple(Variable.categorical(f"x{i}", letters) for i in range(num_variables)))


def batch(values: Floats, lengths: list[int], schema: Schema) -> Sequences:
    return Sequences.from_codes(values, np.cumsum([0, *lengths]), schema)


# The estimate written down by its definition, over Counters.


def entropy(items: list[object]) -> float:
    """N times the plug-in entropy."""
    counts = Counter(items).values()
    return math.log(len(items)) * len(items) - sum(c * math.log(c) for c in counts)


def information(one: list[object], other: list[object]) -> float:
    """N times the plug-in mutual information."""
    return entropy(one) + entropy(other) - entropy(list(zip(one, other, strict=True)))


def freedom(one: list[object], other: list[object], given_by: list[object]) -> int:
    found = 0
    for stratum in set(given_by):
        rows = [i for i, own in enumerate(given_by) if own == stratum]
        found += (len({one[i] for i in rows}) - 1) * (len({other[i] for i in rows}) - 1)
    return found


def by_definition(columns: tuple[Floats, Floats], lengths: list[int]) -> float:
    """Nats per slice lost by two separate chains, for codes that need no merging."""
    first: list[tuple[float, float]] = []
    later: list[tuple[float, float, float, float]] = []
    start = 0
    for length in lengths:
        x, y = (column[start : start + length].tolist() for column in columns)
        start += length
        first.append((x[0], y[0]))
        later.extend((x[t - 1], x[t], y[t - 1], y[t]) for t in range(1, length))
    first = [row for row in first if not any(map(math.isnan, row))]
    later = [row for row in later if not any(map(math.isnan, row))]
    total = 0.0
    if first:
        x, y = (list(own) for own in zip(*first, strict=True))
        total += information(x, y) - freedom(x, y, [0] * len(x)) / 2
    if later:
        u, x, v, y = (list(own) for own in zip(*later, strict=True))
        total += information(list(zip(u, x, strict=True)), list(zip(v, y, strict=True)))
        total -= information(u, v)
        both = list(zip(u, v, strict=True))
        total -= (freedom(x, v, u) + freedom(y, u, v) + freedom(x, y, both)) / 2
    count = len(first) + len(later)
    return max(total / count, 0.0) if count else 0.0


@pytest.mark.parametrize("seed", range(20))
def test_dependence_agrees_with_its_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, size=20).tolist()
    values = rng.integers(2, size=(sum(lengths), 3)).astype(np.float64)
    values[:, 1] = np.where(rng.random(len(values)) < 0.3, values[:, 0], values[:, 1])
    values[1:, 2] = np.where(rng.random(len(values) - 1) < 0.3, values[:-1, 0], values[1:, 2])
    values[rng.random(values.shape) < [0.0, 0.2][seed % 2]] = np.nan
    found = dependence(batch(values, lengths, categorical(3, 2)))
    for i in range(3):
        for j in range(i):
            expected = by_definition((values[:, i], values[:, j]), lengths)
            np.testing.assert_allclose(found[i, j], expected, rtol=1e-9, atol=1e-12)


@given(st.integers(0, 10_000))
@settings(max_examples=40)
def test_dependence_is_symmetric_finite_and_not_negative(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = Schema(
        (
            Variable.binary("a"),
            Variable.continuous("b"),
            Variable.count("c"),
            Variable.categorical("d", tuple(range(20))),
            Variable.categorical("e", ("only",)),
        )
    )
    lengths = rng.integers(1, 8, size=rng.integers(1, 10)).tolist()
    count = sum(lengths)
    columns = [
        rng.integers(2, size=count),
        rng.normal(size=count),
        rng.poisson(0.5, size=count),
        rng.integers(20, size=count),
        np.zeros(count),
    ]
    values = np.stack(columns, axis=1).astype(np.float64)
    values[rng.random(values.shape) < rng.choice([0.0, 0.3, 1.0])] = np.nan
    found = dependence(batch(values, lengths, schema))
    assert found.shape == (5, 5)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diag(found), 0.0)
    np.testing.assert_array_equal(found[4], 0.0)


def sticky(rng: np.random.Generator, shape: tuple[int, int, int], size: int) -> Floats:
    """Independent chains that stay where they are nine times in ten."""
    sequences, length, variables = shape
    values = np.empty(shape)
    now = rng.integers(size, size=(sequences, variables))
    for t in range(length):
        moves = rng.random(now.shape) < 0.1
        now = np.where(moves, rng.integers(size, size=now.shape), now)
        values[:, t] = now
    return values.reshape(-1, variables)


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("shape", [(1, 400), (40, 50), (500, 2), (1000, 1)])
def test_independent_slow_chains_come_out_near_zero(size: int, shape: tuple[int, int]) -> None:
    values = sticky(np.random.default_rng(size), (*shape, 8), size)
    found = dependence(batch(values, [shape[1]] * shape[0], categorical(8, size)))
    pairs = found[np.triu_indices(8, 1)]
    # A thousand slices: an estimate is off by about one nat in all.
    assert pairs.mean() < 4.0 / len(values)


def test_dependence_within_the_slice_and_across_slices_is_found() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(2, size=(5000, 4)).astype(np.float64)
    values[:, 1] = np.where(rng.random(5000) < 0.9, values[:, 0], 1 - values[:, 0])
    values[1:, 3] = np.where(rng.random(4999) < 0.9, values[:-1, 2], 1 - values[:-1, 2])
    found = dependence(batch(values, [100] * 50, categorical(4, 2)))
    capacity = math.log(2) + 0.9 * math.log(0.9) + 0.1 * math.log(0.1)
    np.testing.assert_allclose(found[0, 1], capacity, rtol=0.1)
    np.testing.assert_allclose(found[2, 3], 0.99 * capacity, rtol=0.1)
    assert found[:2, 2:].max() < 0.01


def test_single_slices_have_the_part_within_the_slice() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(3, size=3000)
    y = np.where(rng.random(3000) < 0.5, x, rng.integers(3, size=3000))
    values = np.stack([x, y], axis=1).astype(np.float64)
    found = dependence(batch(values, [1] * 3000, categorical(2, 3)))
    expected = (information(x.tolist(), y.tolist()) - 2) / 3000
    np.testing.assert_allclose(found[0, 1], expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["continuous", "count", "numbers", "letters"])
def test_variables_of_every_kind_show_their_dependence(kind: str) -> None:
    rng = np.random.default_rng(2)
    walk = rng.normal(size=(4000, 2))
    walk[:, 1] = 0.9 * walk[:, 0] + math.sqrt(0.19) * walk[:, 1]
    noise = rng.normal(size=(4000, 1))
    whole = np.clip(np.floor(4 * np.concatenate([walk, noise], axis=1)) + 13, 0, 25)
    make = {
        "continuous": (Variable.continuous, np.concatenate([walk, noise], axis=1)),
        "count": (Variable.count, whole),
        "numbers": (lambda name: Variable.categorical(name, range(26)), whole),
        "letters": (
            lambda name: Variable.categorical(name, tuple("zyxwvutsrqponmlkji")),
            np.clip(whole - 4, 0, 17),
        ),
    }
    variable, values = make[kind]
    schema = Schema(tuple(variable(f"x{i}") for i in range(3)))  # type: ignore[operator]
    found = dependence(batch(values, [40] * 100, schema))
    least = 0.05 if kind == "letters" else 0.3
    assert found[0, 1] > least
    assert found[0, 2] < 0.03
    assert found[1, 2] < 0.03


def test_pair_that_is_never_observed_together_counts_as_independent() -> None:
    values = np.zeros((100, 2))
    values[::2] = 1.0
    values[:50, 0] = np.nan
    values[50:, 1] = np.nan
    assert dependence(batch(values, [10] * 10, categorical(2, 2))).max() == 0.0


def test_data_of_another_type_are_refused() -> None:
    with pytest.raises(DataError, match="`data` must be a Sequences"):
        dependence(np.zeros((3, 2)))  # type: ignore[arg-type]
