"""What every baseline has to keep: normalised, exact with gaps, the same by seed, in time."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dspn.data import Schema, Sequences, Variable
from dspn.errors import DataError, StructureError
from dspn.learning.slice_spn import SliceSpnOptions
from experiments.baselines import (
    Baseline,
    Ending,
    FittedBaseline,
    HmmBaseline,
    HmmOptions,
    HmmSpnBaseline,
    HmmSpnOptions,
    LearnSpnBaseline,
    LearnSpnOptions,
    RevealBaseline,
    RevealOptions,
    SearchScoreBaseline,
    SearchScoreOptions,
)

SCHEMA = Schema((Variable.binary("a"), Variable.categorical("b", ("u", "v", "w"))))
LENGTH = 2

BASELINES: dict[str, Baseline] = {
    "HMM": HmmBaseline(HmmOptions(states=(2, 3))),
    "HMM-SPN": HmmSpnBaseline(HmmSpnOptions(HmmOptions((2,)), SliceSpnOptions(min_slices=20))),
    "LearnSPN": LearnSpnBaseline(LearnSpnOptions(alphas=(0.05,), penalties=(0.2,))),
    "Reveal DBN": RevealBaseline(RevealOptions(penalties=(0.1,))),
    "Search-Score DBN": SearchScoreBaseline(
        SearchScoreOptions(num_hidden=1, max_rounds=3, penalty=0.1)
    ),
}


def drawn(num_sequences: int, seed: int) -> Sequences:
    """A hidden bit that lasts, seen through both variables; b also follows a."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(num_sequences):
        bit = rng.integers(2)
        for _ in range(LENGTH):
            bit ^= rng.random() < 0.2
            a = bit ^ (rng.random() < 0.1)
            rows.append([a, min(a + (rng.random() < 0.3) + (rng.random() < 0.1), 2)])
    values = np.array(rows, dtype=float)
    return Sequences.from_codes(values, np.arange(0, len(rows) + 1, LENGTH), SCHEMA)


def every_sequence() -> Sequences:
    """All sequences of two slices."""
    slices = list(itertools.product(range(2), range(3)))
    rows = [pair for pairs in itertools.product(slices, repeat=LENGTH) for pair in pairs]
    offsets = np.arange(0, len(rows) + 1, LENGTH)
    return Sequences.from_codes(np.array(rows, dtype=float), offsets, SCHEMA)


@pytest.fixture(scope="module")
def fitted() -> dict[str, FittedBaseline]:
    train, validation = drawn(150, 0), drawn(30, 1)
    return {name: own.fit(train, validation, seed=0) for name, own in BASELINES.items()}


@pytest.mark.parametrize("name", BASELINES)
def test_probabilities_of_all_sequences_sum_to_one(
    name: str, fitted: dict[str, FittedBaseline]
) -> None:
    every = every_sequence()
    assert_allclose(np.exp(fitted[name].log_likelihood(every)).sum(), 1.0, rtol=1e-10)


@pytest.mark.parametrize("name", BASELINES)
def test_missing_entries_are_summed_out(name: str, fitted: dict[str, FittedBaseline]) -> None:
    every = every_sequence()
    joint = np.exp(fitted[name].log_likelihood(every))
    table = every.values.reshape(len(every), -1)
    for gaps in ([0], [3], [0, 1], [1, 2], [0, 1, 2, 3]):
        values = table[10].copy()
        values[gaps] = np.nan
        agrees = np.all(np.isnan(values) | (values == table), axis=1)
        one = Sequences.from_codes(values.reshape(LENGTH, 2), [0, LENGTH], SCHEMA)
        found = fitted[name].log_likelihood(one)
        assert_allclose(found, [np.log(joint[agrees].sum())], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", BASELINES)
def test_order_of_the_sequences_is_kept(name: str, fitted: dict[str, FittedBaseline]) -> None:
    test = drawn(20, 2)
    values = test.values.copy()
    values[::7] = np.nan
    test = test.with_values(values)
    both = fitted[name].log_likelihood(test)
    one_by_one = [fitted[name].log_likelihood(test[[i]])[0] for i in range(len(test))]
    assert_allclose(both, one_by_one, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", BASELINES)
def test_dependence_between_and_within_slices_is_learned(
    name: str, fitted: dict[str, FittedBaseline]
) -> None:
    train, test = drawn(150, 0), drawn(300, 3)
    counts = [np.bincount(train.values[:, v].astype(int), minlength=2 + v) for v in range(2)]
    alone = sum(
        np.log(counts[v] / counts[v].sum())[test.values[:, v].astype(int)].sum() for v in range(2)
    )
    # Reveal has no edges within a slice, and has the least to gain.
    assert fitted[name].log_likelihood(test).mean() > alone / len(test) + 0.03


@pytest.mark.parametrize("name", BASELINES)
def test_same_seed_gives_the_same_model(name: str, fitted: dict[str, FittedBaseline]) -> None:
    again = BASELINES[name].fit(drawn(150, 0), drawn(30, 1), seed=0)
    test = drawn(10, 4)
    assert_array_equal(again.log_likelihood(test), fitted[name].log_likelihood(test))
    assert again.iterations == fitted[name].iterations >= 1


@pytest.mark.parametrize("name", BASELINES)
def test_ending_and_time_are_told(name: str, fitted: dict[str, FittedBaseline]) -> None:
    assert BASELINES[name].name == name
    assert fitted[name].ending is Ending.FINISHED
    assert 0 < fitted[name].seconds < 600


@pytest.mark.parametrize("name", BASELINES)
def test_time_limit_leaves_a_model_that_is_normalised(name: str) -> None:
    found = BASELINES[name].fit(drawn(150, 0), drawn(30, 1), seed=0, time_limit=1e-9)
    assert found.ending is Ending.TIME_LIMIT
    total = np.exp(found.log_likelihood(every_sequence())).sum()
    assert_allclose(total, 1.0, rtol=1e-10)


@pytest.mark.parametrize("name", BASELINES)
def test_single_sequences_of_one_slice_are_enough(name: str) -> None:
    one = Sequences.from_codes([[1.0, 2.0]], [0, 1], SCHEMA)
    found = BASELINES[name].fit(one, one, seed=0)
    slices = np.array(list(itertools.product(range(2), range(3))), dtype=float)
    every = Sequences.from_codes(slices, np.arange(7), SCHEMA)
    assert_allclose(np.exp(found.log_likelihood(every)).sum(), 1.0, rtol=1e-10)


@pytest.mark.parametrize("name", BASELINES)
def test_arguments_that_do_not_fit_are_refused(
    name: str, fitted: dict[str, FittedBaseline]
) -> None:
    train = drawn(5, 0)
    other = Sequences.from_codes([[1.0]], [0, 1], Schema((Variable.binary("z"),)))
    baseline = BASELINES[name]
    with pytest.raises(DataError, match=r"`validation` must have the variables of the model"):
        baseline.fit(train, other, seed=0)
    with pytest.raises(DataError, match=r"`data` must have the variables of the model"):
        fitted[name].log_likelihood(other)
    with pytest.raises(DataError, match="`train` must be a Sequences, found list"):
        baseline.fit([[0.0]], train, seed=0)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="`seed` must be a whole number"):
        baseline.fit(train, train, seed=0.5)  # type: ignore[arg-type]
    with pytest.raises(StructureError, match="`time_limit` must be a positive number"):
        baseline.fit(train, train, seed=0, time_limit=0.0)
    with pytest.raises(StructureError, match="`options` must be a"):
        type(baseline)(3)  # type: ignore[call-arg]


def test_states_are_chosen_by_validation() -> None:
    # Two states tell everything; the validation set has no use for more.
    baseline = HmmBaseline(HmmOptions(states=(1, 2), refit=False))
    found = baseline.fit(drawn(200, 5), drawn(60, 6), seed=0)
    assert found.network.num_interfaces == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"states": ()}, "`states` must hold at least one number"),
        ({"states": (0,)}, "`states` must be a whole number of at least 1"),
        ({"em": 3}, "`em` must be a EmOptions"),
        ({"refit": 1}, "`refit` must be a bool"),
    ],
)
def test_options_of_hidden_markov_models_are_checked(options: dict, message: str) -> None:
    with pytest.raises(StructureError, match=message):
        HmmOptions(**options)


def test_one_number_of_states_may_stand_alone() -> None:
    assert HmmOptions(states=4).states == (4,)  # type: ignore[arg-type]
