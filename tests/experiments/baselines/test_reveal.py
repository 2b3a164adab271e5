import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dspn.data import Schema, Sequences, Variable
from dspn.errors import DataError, StructureError
from experiments.baselines import RevealBaseline, RevealOptions


def bits(count: int) -> Schema:
    return Schema(tuple(Variable.binary(f"x{i}") for i in range(count)))


def noisy_network(num_sequences: int, length: int, seed: int, noise: float = 0.0) -> Sequences:
    """x0 is drawn, x1 copies x0, x2 is x0 xor x1, x3 is x1 and x2, each of the slice before."""
    rng = np.random.default_rng(seed)
    values = rng.integers(2, size=(num_sequences, length, 4))
    for t in range(1, length):
        before = values[:, t - 1]
        values[:, t, 1] = before[:, 0]
        values[:, t, 2] = before[:, 0] ^ before[:, 1]
        values[:, t, 3] = before[:, 1] & before[:, 2]
        values[:, t, 1:] ^= rng.random((num_sequences, 3)) < noise
    offsets = np.arange(0, num_sequences * length + 1, length)
    return Sequences.from_codes(values.reshape(-1, 4).astype(float), offsets, bits(4))


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_parents_are_found(noise: float) -> None:
    train, validation = noisy_network(100, 12, 0, noise), noisy_network(20, 12, 1, noise)
    found = RevealBaseline(RevealOptions(penalties=(0.5,))).fit(train, validation, seed=0)
    assert found.parents == {"x0": (), "x1": ("x0",), "x2": ("x0", "x1"), "x3": ("x1", "x2")}


def score(data: Sequences, node: int, parents: tuple[int, ...], penalty: float) -> float:
    """Penalised log-likelihood of the later slices, one row after the other."""
    pairs = [
        (tuple(sequence[t - 1, list(parents)]), sequence[t, node])
        for sequence in data
        for t in range(1, len(sequence))
    ]
    joint: dict = {}
    margin: dict = {}
    for before, now in pairs:
        joint[before, now] = joint.get((before, now), 0) + 1
        margin[before] = margin.get(before, 0) + 1
    likelihood = math.fsum(math.log(joint[pair] / margin[pair[0]]) for pair in pairs)
    sizes = [variable.num_categories for variable in data.schema]
    free = math.prod(sizes[parent] for parent in parents) * (sizes[node] - 1)
    return likelihood - penalty * math.log(len(pairs)) * free


@pytest.mark.parametrize("penalty", [0.0, 0.05, 0.5])
def test_no_set_of_parents_scores_better_than_the_one_chosen(penalty: float) -> None:
    rng = np.random.default_rng(3)
    schema = Schema(
        (*bits(2), Variable.categorical("y", ("u", "v", "w")), Variable.categorical("z", ("o",)))
    )
    values = np.stack([rng.integers(size, size=60) for size in (2, 2, 3, 1)], axis=1).astype(float)
    values[1:, 2] = np.where(rng.random(59) < 0.6, values[:-1, 0] + values[:-1, 1], values[1:, 2])
    data = Sequences.from_codes(values, [0, 25, 26, 60], schema)
    options = RevealOptions(max_parents=3, penalties=(penalty,))
    found = RevealBaseline(options).fit(data, data, seed=0)
    for node, name in enumerate(schema.names):
        chosen = tuple(schema.index(parent) for parent in found.parents[name])
        best = max(
            score(data, node, parents, penalty)
            for size in range(4)
            for parents in itertools.combinations(range(4), size)
        )
        assert_allclose(score(data, node, chosen, penalty), best, rtol=1e-9, atol=1e-9)


def test_tables_are_smoothed_counts() -> None:
    values = np.array([[0.0], [1.0], [1.0], [0.0], [1.0], [0.0]])
    data = Sequences.from_codes(values, [0, 4, 6], bits(1))
    options = RevealOptions(penalties=(0.0,), pseudo_count=0.5, refit=False)
    found = RevealBaseline(options).fit(data, data, seed=0)
    # From 0 to 1 once; from 1 to 1 once and to 0 twice; first slices are 0 and 1.
    first, after0, after1 = 0.5, [0.25, 0.75], [0.625, 0.375]
    expected = [
        math.log(first) + math.log(after0[1]) + math.log(after1[1]) + math.log(after1[0]),
        math.log(first) + math.log(after1[0]),
    ]
    assert_allclose(found.log_likelihood(data), expected, rtol=1e-12)


def test_penalty_is_chosen_by_validation_and_refit_sees_more() -> None:
    # With much noise and little data many parents fit the training set only.
    rng = np.random.default_rng(4)
    train, validation, test = (
        Sequences.from_codes(
            rng.integers(2, size=(size, 5)).astype(float), np.arange(0, size + 1, 20), bits(5)
        )
        for size in (200, 400, 400)
    )
    settings = {"penalties": (0.0, 1.0), "max_parents": 3}
    found = RevealBaseline(RevealOptions(**settings)).fit(train, validation, seed=0)
    assert found.penalty == 1.0
    alone = RevealBaseline(RevealOptions(**settings, refit=False)).fit(train, validation, seed=0)
    assert alone.parents == found.parents
    assert found.log_likelihood(test).mean() > alone.log_likelihood(test).mean()


def test_gaps_in_training_leave_the_parents_what_they_are() -> None:
    train, validation = noisy_network(150, 12, 5, 0.05), noisy_network(20, 12, 6, 0.05)
    values = train.values.copy()
    values[np.random.default_rng(0).random(values.shape) < 0.1] = np.nan
    options = RevealOptions(penalties=(0.5,), max_parents=2)
    found = RevealBaseline(options).fit(train.with_values(values), validation, seed=0)
    assert found.parents == {"x0": (), "x1": ("x0",), "x2": ("x0", "x1"), "x3": ("x1", "x2")}


def test_variable_that_is_never_observed_has_no_say() -> None:
    train = noisy_network(30, 8, 7)
    values = train.values.copy()
    values[:, 2] = np.nan
    found = RevealBaseline().fit(train.with_values(values), train, seed=0)
    assert found.parents["x2"] == ()
    assert all("x2" not in parents for parents in found.parents.values())


def test_likelihood_with_gaps_is_refused_where_it_is_too_large() -> None:
    size = 26
    rng = np.random.default_rng(8)
    values = rng.integers(2, size=(40, size)).astype(float)
    values[1::2] = values[::2]
    data = Sequences.from_codes(values, np.arange(0, 41, 2), bits(size))
    found = RevealBaseline(RevealOptions(max_parents=1)).fit(data, data, seed=0)
    assert np.isfinite(found.log_likelihood(data)).all()
    values[0, 0] = np.nan
    with pytest.raises(StructureError, match="needs a table of"):
        found.log_likelihood(data.with_values(values))


def test_variables_that_are_not_categorical_are_refused() -> None:
    data = Sequences.from_codes([[0.5], [1.5]], [0, 2], Schema((Variable.continuous("x"),)))
    with pytest.raises(DataError, match=r"categorical variables only.* 'x' is continuous"):
        RevealBaseline().fit(data, data, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_parents": -1}, "`max_parents` must be a whole number"),
        ({"penalties": ()}, "`penalties` must be a tuple of at least one number"),
        ({"penalties": 0.5}, "`penalties` must be a tuple"),
        ({"penalties": (-0.5,)}, "`penalties` of RevealOptions must be a finite number"),
        ({"pseudo_count": 0.0}, "`pseudo_count` of RevealOptions"),
        ({"refit": 1}, "`refit` must be a bool"),
    ],
)
def test_options_out_of_range_are_refused(options: dict, message: str) -> None:
    with pytest.raises(StructureError, match=message):
        RevealOptions(**options)
