"""Likelihood and draws of a DBN that is not compiled, against enumeration and `from_dbn`."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from dspn import Model
from dspn.data import Sequences
from dspn.errors import DataError, ImpossibleEvidenceWarning, StructureError
from dspn.structure import DbnStructure, DbnTables, random_tables
from experiments.datasets import DbnProcess, hmm_process, hmm_structure, water_process

STRUCTURES = {
    "hidden Markov model": hmm_structure(3, 2),
    "hidden node that does not persist": DbnStructure(
        {"h": 2, "u": 3, "s": 2, "r": 2},
        ["s", "r"],
        [("h", "u"), ("u", "s"), ("u", "r")],
        [("h", "h")],
    ),
    "two chains that meet in a sensor, edges out of order": DbnStructure(
        {"s": 3, "b": 2, "a": 2},
        ["s"],
        [("b", "s"), ("a", "s"), ("a", "b")],
        [("b", "a"), ("a", "b")],
    ),
    "observed chain that drives a hidden node": DbnStructure(
        {"o": 2, "h": 2, "s": 2}, ["o", "s"], [("o", "h"), ("h", "s")], [("o", "o"), ("h", "h")]
    ),
    "nothing persists, nothing is hidden": DbnStructure({"a": 2, "b": 3}, ["b", "a"], [], []),
    "a node with one value, a node nobody sees": DbnStructure(
        {"one": 1, "h": 2, "unseen": 2, "s": 2},
        ["s", "one"],
        [("h", "s"), ("one", "h"), ("h", "unseen")],
        [("h", "h"), ("one", "one")],
    ),
}


def joint(process: DbnProcess, states: list[dict[str, int]]) -> float:
    """Product of the conditional probabilities of every node at every slice."""
    structure, tables = process.structure, process.tables
    total = 1.0
    for t, state in enumerate(states):
        for node in structure.sizes:
            between = structure.parents_between(node) if t else ()
            table = tables.later[node] if between else tables.first[node]
            index = (
                *(states[t - 1][p] for p in between),
                *(state[p] for p in structure.parents_within(node)),
                state[node],
            )
            total *= float(table[index])
    return total


def brute_force(process: DbnProcess, values: np.ndarray) -> float:
    """Sum of the joint over everything that was not observed."""
    structure = process.structure
    column = {node: index for index, node in enumerate(structure.observed)}
    per_slice = []
    for row in values:
        allowed = [
            [int(row[column[node]])]
            if node in column and not math.isnan(row[column[node]])
            else list(range(size))
            for node, size in structure.sizes.items()
        ]
        per_slice.append(
            [dict(zip(structure.sizes, choice, strict=True)) for choice in product(*allowed)]
        )
    return math.fsum(joint(process, list(states)) for states in product(*per_slice))


def process_of(structure: DbnStructure, seed: int, concentration: float | None) -> DbnProcess:
    rng = np.random.default_rng(seed)
    return DbnProcess(structure, random_tables(structure, rng, concentration=concentration))


def with_gaps(data: Sequences, rng: np.random.Generator, share: float = 0.25) -> Sequences:
    return data.with_values(np.where(rng.random(data.values.shape) < share, np.nan, data.values))


@pytest.mark.parametrize("concentration", [None, 0.3])
@pytest.mark.parametrize("name", STRUCTURES)
def test_likelihood_is_the_sum_of_the_joint(name: str, concentration: float | None) -> None:
    process = process_of(STRUCTURES[name], len(name), concentration)
    rng = np.random.default_rng(1)
    data = with_gaps(process.sample(9, [1, 3, 2] * 3, rng=rng), rng)
    expected = [math.log(brute_force(process, values)) for values in data]
    np.testing.assert_allclose(process.log_likelihood(data), expected, rtol=1e-10, atol=1e-12)


@st.composite
def structures(draw: st.DrawFn) -> DbnStructure:
    """Three to five nodes of up to three values with any edges, at least one of them observed."""
    names = [f"n{i}" for i in range(draw(st.integers(3, 5)))]
    sizes = {name: draw(st.integers(1, 3)) for name in draw(st.permutations(names))}
    some = st.lists(st.booleans(), min_size=25, max_size=25)
    pairs = list(product(names, names))
    forward = [pair for pair in pairs if pair[0] < pair[1]]
    within = [pair for pair, taken in zip(forward, draw(some), strict=False) if taken]
    between = [pair for pair, taken in zip(pairs, draw(some), strict=False) if taken]
    observed = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    return DbnStructure(sizes, observed, draw(st.permutations(within)), between)


@settings(max_examples=25)
@given(structures(), st.integers(0, 2**32 - 1))
def test_likelihood_is_that_of_the_compiled_network(structure: DbnStructure, seed: int) -> None:
    process = process_of(structure, seed, 0.5)
    rng = np.random.default_rng(seed)
    data = with_gaps(process.sample(5, [1, 4, 30, 2, 7], rng=rng), rng)
    compiled = Model.from_dbn(structure, process.tables)
    np.testing.assert_allclose(
        process.log_likelihood(data), compiled.log_likelihood(data), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("concentration", [None, 0.3])
def test_likelihood_of_water_is_that_of_the_compiled_network(concentration: float | None) -> None:
    process = water_process(np.random.default_rng(0), concentration=concentration)
    rng = np.random.default_rng(1)
    data = with_gaps(process.sample(7, [1, 50, 20, 100, 3, 2, 40], rng=rng), rng)
    compiled = Model.from_dbn(process.structure, process.tables)
    np.testing.assert_allclose(
        process.log_likelihood(data), compiled.log_likelihood(data), rtol=1e-11
    )


def test_likelihood_does_not_depend_on_the_blocks() -> None:
    process = water_process(np.random.default_rng(0))
    rng = np.random.default_rng(1)
    # A block has 128 sequences of Water, whose largest table has 2048 entries.
    data = process.sample(140, rng.integers(1, 5, size=140), rng=rng)
    expected = process.log_likelihood(data)
    parts = [process.log_likelihood(part) for part in (data[:60], data[60:])]
    np.testing.assert_allclose(np.concatenate(parts), expected, rtol=1e-13)
    alone = [process.log_likelihood(data[[index]])[0] for index in range(120, 140)]
    np.testing.assert_allclose(alone, expected[120:], rtol=1e-13)


def test_sequences_with_nothing_observed_are_certain() -> None:
    process = hmm_process(np.random.default_rng(0), num_states=4, num_values=3)
    blank = [np.full((length, 1), np.nan) for length in (1, 5)]
    np.testing.assert_allclose(process.log_likelihood(blank), [0.0, 0.0], atol=1e-14)


def chains_apart() -> DbnProcess:
    """Two states that are never left and prefer one of two values each."""
    return DbnProcess(
        hmm_structure(2, 2),
        DbnTables(
            {"state": [0.5, 0.5], "x": [[0.9, 0.1], [0.1, 0.9]]},  # type: ignore[dict-item]
            {"state": np.eye(2)},
        ),
    )


def test_a_state_too_improbable_for_a_float_can_come_back() -> None:
    process = chains_apart()
    values = np.repeat([0.0, 1.0], [1500, 2500])[:, None]
    short = values[:3]
    expected = math.log(0.5) + 2500 * math.log(0.9) + 1500 * math.log(0.1)
    found = process.log_likelihood([values, short])
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)
    np.testing.assert_allclose(found[1], math.log(0.5 * (0.9**3 + 0.1**3)), rtol=1e-12)


def test_impossible_sequences_are_named_with_their_slice() -> None:
    structure = hmm_structure(2, 2)
    tables = DbnTables({"state": np.array([1.0, 0.0]), "x": np.eye(2)}, {"state": np.eye(2)})
    process = DbnProcess(structure, tables)
    zeros, ones = np.zeros((4, 1)), np.ones((2, 1))
    late = np.array([[0.0], [np.nan], [1.0], [0.0]])
    with pytest.warns(
        ImpossibleEvidenceWarning, match="sequence 1 at slice 0, sequence 2 at slice 2"
    ):
        found = process.log_likelihood([zeros, ones, late])
    np.testing.assert_array_equal(found, [0.0, -np.inf, -np.inf])
    with pytest.warns(ImpossibleEvidenceWarning, match="sequence 4 at slice 0 and 2 more"):
        process.log_likelihood([ones] * 7)


def test_a_network_whose_tables_would_not_fit_into_memory_is_refused() -> None:
    names = [f"h{i:02}" for i in range(25)]
    structure = DbnStructure(
        {**dict.fromkeys(names, 2), "s": 2}, ["s"], [("h00", "s")], [(name, name) for name in names]
    )
    process = process_of(structure, 0, None)
    data = process.sample(2, 3, rng=np.random.default_rng(0))
    with pytest.raises(StructureError, match=r"table of \d+ entries for each sequence"):
        process.log_likelihood(data)


# Draws


@pytest.mark.parametrize("name", STRUCTURES)
def test_draws_have_the_frequencies_of_the_likelihood(name: str) -> None:
    process = process_of(STRUCTURES[name], len(name), 0.5)
    num_slices, count = 2, 6000
    drawn = process.sample(count, num_slices, rng=np.random.default_rng(5))
    ranges = [range(process.structure.sizes[node]) for node in process.structure.observed]
    cells = list(product(product(*ranges), repeat=num_slices))
    possible = Sequences.from_arrays(np.array(cells, dtype=float), schema=process.schema)
    expected = count * np.exp(process.log_likelihood(possible))
    index = {cell: i for i, cell in enumerate(cells)}
    found = np.zeros(len(cells))
    for values in drawn:
        found[index[tuple(tuple(row) for row in values.astype(int).tolist())]] += 1
    assert expected.sum() == pytest.approx(count)
    common = expected >= 5
    statistic = np.sum((found - expected)[common] ** 2 / expected[common])
    assert statistic < chi2.ppf(1 - 1e-4, df=common.sum())
    assert abs(found[~common].sum() - expected[~common].sum()) < 5 * math.sqrt(5 * len(cells))


def test_draws_agree_with_those_of_the_compiled_network() -> None:
    process = process_of(STRUCTURES["two chains that meet in a sensor, edges out of order"], 1, 0.5)
    own = process.sample(4000, 5, rng=np.random.default_rng(0))
    compiled = Model.from_dbn(process.structure, process.tables)
    other = compiled.sample(4000, 5, rng=np.random.default_rng(1))
    first, later = (draws.values.reshape(4000, 5) for draws in (own, other))
    for t in range(1, 5):
        pairs = [
            np.bincount((3 * x[:, 0] + x[:, t]).astype(int), minlength=9) for x in (first, later)
        ]
        np.testing.assert_allclose(pairs[0] / 4000, pairs[1] / 4000, atol=0.04)


def test_draws_are_those_of_the_generator_and_of_the_lengths_asked_for() -> None:
    process = hmm_process(np.random.default_rng(0))
    lengths = [3, 1, 7, 1]
    once = process.sample(4, lengths, rng=np.random.default_rng(9))
    again = process.sample(4, lengths, rng=np.random.default_rng(9))
    np.testing.assert_array_equal(once.values, again.values)
    assert once.lengths.tolist() == lengths
    assert once.schema == process.schema
    assert process.sample(2, 4, rng=np.random.default_rng(0)).lengths.tolist() == [4, 4]


def test_values_without_probability_are_never_drawn() -> None:
    row = np.array([0.1] * 10 + [0.0])
    row[:10] /= row[:10].sum() * (1 + 1e-12)
    row /= row.sum()
    structure = DbnStructure({"x": 11}, ["x"], [], [])
    process = DbnProcess(structure, DbnTables({"x": row}, {}))
    drawn = process.sample(100, 100, rng=np.random.default_rng(0))
    assert set(np.unique(drawn.values)) == set(range(10))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 5), "`num_sequences` must be a whole number of at least 1"),
        ((2, 0), "`length` must be a whole number of at least 1"),
        ((2, [1, 2, 3]), "`length` must be one number, or one for each of the 2 sequences"),
        ((2, "ab"), "`length` must be a whole number"),
        ((2, 2.5), "`length` must be a whole number"),
    ],
)
def test_draws_of_no_shape_are_refused(arguments: tuple[Any, Any], message: str) -> None:
    process = hmm_process(np.random.default_rng(0))
    with pytest.raises(DataError, match=message):
        process.sample(*arguments, rng=np.random.default_rng(0))


def test_a_seed_in_place_of_a_generator_is_refused() -> None:
    process = hmm_process(np.random.default_rng(0))
    with pytest.raises(DataError, match=r"`rng` must be a numpy\.random\.Generator"):
        process.sample(1, 1, rng=0)  # type: ignore[arg-type]


def test_a_process_of_parts_that_do_not_fit_is_refused() -> None:
    structure = hmm_structure(2, 2)
    good = random_tables(structure, np.random.default_rng(0))
    with pytest.raises(StructureError, match="`structure` must be a DbnStructure"):
        DbnProcess(None, good)  # type: ignore[arg-type]
    with pytest.raises(StructureError, match="`tables` must be a DbnTables"):
        DbnProcess(structure, {})  # type: ignore[arg-type]
    with pytest.raises(StructureError, match="`later` has no table for node 'state'"):
        DbnProcess(structure, DbnTables(good.first, {}))
    with pytest.raises(StructureError, match=r"`first\['x'\]` must have shape \(2, 2\)"):
        DbnProcess(structure, DbnTables({**good.first, "x": np.ones((2, 1))}, good.later))
    with pytest.raises(StructureError, match=r"`first\['x'\]` must hold distributions"):
        DbnProcess(structure, DbnTables({**good.first, "x": np.ones((2, 2))}, good.later))
    with pytest.raises(StructureError, match="`num_states` must be a whole number"):
        hmm_structure(0)


def test_data_of_other_variables_are_refused() -> None:
    data = hmm_process(np.random.default_rng(0), num_values=3).sample(
        1, 2, rng=np.random.default_rng(0)
    )
    with pytest.raises(DataError, match="`data` must have the variables of the model"):
        hmm_process(np.random.default_rng(0)).log_likelihood(data)
