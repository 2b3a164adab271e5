"""Every form in which data may be given means the same sequences."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal

import dspn
from dspn import HMM, DSPNClassifier, EmOptions, Schema, Sequences, Variable
from dspn.errors import DataError
from dspn.models.training import TrainingData, rng_of, seed_of

FAST = EmOptions(max_steps=3, tolerance=0.5)
LENGTHS = [4, 3, 5, 4, 2, 6]
BITS = Schema((Variable.binary("a"), Variable.binary("b")))


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(length, 2)) for length in LENGTHS]


def hmm(**options: Any) -> HMM:
    return HMM(2, em=FAST, random_state=0, **options)


@pytest.mark.parametrize("lengths", [LENGTHS, np.array(LENGTHS), pd.Series(LENGTHS)])
def test_rows_with_lengths_are_the_same_data_as_a_list_of_arrays(lengths: Any) -> None:
    listed = hmm().fit(arrays())
    rows = np.concatenate(arrays())
    joined = hmm().fit(rows, lengths=lengths)
    batch = hmm().fit(Sequences.from_arrays(arrays()))
    expected = listed.score_samples(arrays())
    assert expected.shape == (6,)
    assert_array_equal(joined.score_samples(rows, lengths=lengths), expected)
    assert_array_equal(batch.score_samples(Sequences.from_arrays(arrays())), expected)
    assert_array_equal(joined.score_samples(arrays()), expected)
    assert listed.score(rows, lengths=lengths) == pytest.approx(expected.mean(), rel=1e-12)


def test_an_array_of_three_dimensions_has_a_sequence_in_each_layer() -> None:
    cube = np.random.default_rng(1).normal(size=(5, 4, 2))
    fitted = hmm().fit(cube)
    assert_array_equal(fitted.score_samples(cube), fitted.score_samples(list(cube)))
    assert fitted.n_features_in_ == 2


def test_an_array_of_rows_alone_is_one_sequence_with_a_warning_that_none_is_held_out() -> None:
    rows = np.concatenate(arrays())
    with pytest.warns(dspn.ConvergenceWarning, match="single sequence"):
        fitted = hmm().fit(rows)
    assert fitted.score_samples(rows).shape == (1,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        without = hmm(validation_fraction=0).fit(rows)
    assert without.validation_score_ is None
    assert without.score_samples([rows]).shape == (1,)


def test_an_array_of_rows_alone_is_a_slice_in_each_sequence_for_a_classifier() -> None:
    rng = np.random.default_rng(2)
    rows, labels = rng.normal(size=(40, 2)), np.repeat([0, 1], 20)
    rows[20:] += 4.0
    own = DSPNClassifier(hmm(), random_state=0)
    fitted = own.fit(rows, labels)
    assert fitted.predict(rows).shape == (40,)
    assert fitted.score(rows, labels) > 0.9
    single = [row[None] for row in rows]
    assert_array_equal(fitted.predict_proba(rows), fitted.predict_proba(single))


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_columns_of_a_table_give_the_variables_their_names(library: Callable[..., Any]) -> None:
    rows = np.concatenate(arrays())
    table = library({"speed": rows[:, 0], "height": rows[:, 1]})
    fitted = hmm().fit(table, lengths=LENGTHS)
    assert fitted.schema_.names == ("speed", "height")
    assert list(fitted.feature_names_in_) == ["speed", "height"]
    assert_array_equal(fitted.score_samples(table, lengths=LENGTHS), fitted.score_samples(arrays()))


def test_names_of_sequences_are_kept_and_forgotten_by_a_fit_without_them() -> None:
    data = Sequences.from_arrays(arrays(), names=["speed", "height"])
    fitted = hmm().fit(data)
    assert list(fitted.feature_names_in_) == ["speed", "height"]
    fitted.fit(arrays())
    assert not hasattr(fitted, "feature_names_in_")


def test_a_schema_says_how_arrays_are_read() -> None:
    bits = [(array > 0).astype(float) for array in arrays()]
    fitted = hmm(schema=BITS).fit(bits)
    assert fitted.schema_ == BITS
    with pytest.raises(DataError, match="variables of the model"):
        hmm(schema=BITS).fit(Sequences.from_arrays(arrays()))


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("names", [("b", "a"), ("a", "c"), ("a", "b", "c")])
def test_columns_that_are_not_those_of_the_schema_are_refused(
    library: Callable[..., Any], names: tuple[str, ...]
) -> None:
    bits = (np.concatenate(arrays())[:, 0] > 0).astype(float)
    table = library(dict.fromkeys(names, bits))
    told = r"`X` must have the columns of the schema in its order, \['a', 'b'\], but has \["
    with pytest.raises(DataError, match=told):
        hmm(schema=BITS).fit(table, lengths=LENGTHS)
    with pytest.raises(DataError, match=told):
        DSPNClassifier(hmm(schema=BITS)).fit(table, np.arange(len(table)) % 2)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_columns_in_the_order_of_the_schema_are_read_by_it(library: Callable[..., Any]) -> None:
    bits = (np.concatenate(arrays()) > 0).astype(float)
    table = library({"a": bits[:, 0], "b": bits[:, 1]})
    fitted = hmm(schema=BITS).fit(table, lengths=LENGTHS)
    assert fitted.schema_ == BITS and list(fitted.feature_names_in_) == ["a", "b"]
    plain = hmm(schema=BITS).fit(bits, lengths=LENGTHS)
    assert fitted.score(table, lengths=LENGTHS) == plain.score(bits, lengths=LENGTHS)
    unnamed = hmm(schema=BITS).fit(pd.DataFrame(bits), lengths=LENGTHS)
    assert unnamed.schema_ == BITS


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.bool_, object])
def test_masked_entries_of_rows_are_missing(kind: type) -> None:
    codes = np.array([[1, 0], [1, 1], [0, 1], [0, 0], [1, 1], [0, 1]]).astype(kind)
    hidden = np.zeros(codes.shape, dtype=bool)
    hidden[1, 0] = hidden[4, 1] = True
    masked = np.ma.array(codes, mask=hidden)
    with_gaps = codes.astype(object)
    with_gaps[hidden] = None
    fitted = hmm().fit(masked, lengths=[3, 3])
    expected = hmm().fit(with_gaps, lengths=[3, 3])
    assert fitted.schema_ == expected.schema_
    scores = fitted.score_samples(masked, lengths=[3, 3])
    assert_array_equal(scores, expected.score_samples(with_gaps, lengths=[3, 3]))
    assert_array_equal(codes, masked.data)


def test_a_masked_number_is_not_fitted() -> None:
    rows = np.ma.array([[1.5], [999.0], [2.5]], mask=[[False], [True], [False]])
    fitted = hmm(validation_fraction=0).fit(rows)
    expected = hmm(validation_fraction=0).fit([np.array([[1.5], [np.nan], [2.5]])])
    assert_array_equal(fitted.score_samples(rows), expected.score_samples([rows.filled(np.nan)]))


@pytest.mark.parametrize("nullable", ["Int64", "Float64", "boolean"])
def test_text_categories_may_stand_beside_nullable_types_of_pandas(nullable: str) -> None:
    numbers = pd.array([1, 0, None, 1, 0, 1], dtype=nullable)
    words = ["u", "v", None, "u", "v", "u"]
    own = pd.DataFrame({"n": numbers, "word": pd.Categorical(words)})
    plain = pd.DataFrame({"n": numbers, "word": pd.Series(words, dtype=object)})
    fitted = hmm().fit(own, lengths=[3, 3])
    expected = hmm().fit(plain, lengths=[3, 3])
    assert fitted.schema_ == expected.schema_
    assert fitted.schema_[1].categories == ("u", "v")
    scores = fitted.score_samples(own, lengths=[3, 3])
    assert_array_equal(scores, expected.score_samples(plain, lengths=[3, 3]))


def test_missing_entries_and_text_are_taken_in_every_form() -> None:
    rows = np.array(
        [["red", 1.5], ["blue", None], [None, 0.5], ["red", 2.5], ["red", 1.0], ["blue", 0.1]],
        dtype=object,
    )
    fitted = hmm().fit(rows, lengths=[3, 3])
    assert fitted.schema_[0].categories == ("blue", "red")
    assert np.isfinite(fitted.score_samples([rows[:3], rows[3:]])).all()


@pytest.mark.parametrize("state", [7, np.int64(7)])
def test_a_whole_number_is_its_own_seed(state: Any) -> None:
    assert seed_of(state) == 7


def test_generators_give_seeds_in_turn() -> None:
    one, other = np.random.default_rng(3), np.random.default_rng(3)
    first, second = seed_of(one), seed_of(one)
    assert first == seed_of(other) and first != second
    old, same = np.random.RandomState(3), np.random.RandomState(3)
    assert seed_of(old) == seed_of(same)
    assert rng_of(one) is one
    assert rng_of(5).integers(1000) == np.random.default_rng(5).integers(1000)


def test_no_random_state_follows_the_global_seed_as_in_scikit_learn() -> None:
    np.random.seed(11)
    first = seed_of(None)
    np.random.seed(11)
    assert seed_of(None) == first


@pytest.mark.parametrize(
    ("size", "fraction", "held"), [(2, 0.1, 1), (2, 0.9, 1), (10, 0.1, 1), (10, 0.25, 2)]
)
def test_at_least_one_sequence_is_held_out_and_never_all(
    size: int, fraction: float, held: int
) -> None:
    data = Sequences.from_arrays([np.full((1, 1), 0.5 + index) for index in range(size)])
    parts = TrainingData.split(data, None, None, fraction, 4)
    assert parts.validation is not None
    assert (len(parts.train), len(parts.validation)) == (size - held, held)
    both = np.concatenate([parts.train.values, parts.validation.values])
    assert_array_equal(np.sort(both, axis=0), data.values)


def test_sequences_of_no_weight_are_neither_learned_from_nor_held_out() -> None:
    data = Sequences.from_arrays([np.full((1, 1), 0.5 + index) for index in range(9)])
    weights = np.array([0.0, 2, 2, 0, 2, 2, 0, 2, 2])
    parts = TrainingData.split(data, weights, None, 0.3, 1)
    assert parts.validation is not None and parts.weights is not None
    assert_allclose(parts.weights, 2.0, rtol=0)
    both = np.concatenate([parts.train.values, parts.validation.values])
    assert_array_equal(np.sort(both[:, 0]), data.values[weights > 0, 0])


@pytest.mark.parametrize(
    ("method", "names"),
    [
        (dspn.Model.impute, {"lengths", "inputs", "reading"}),
        (dspn.Model.forecast, {"lengths", "inputs", "reading"}),
        (HMM.fit, {"lengths", "inputs", "reading"}),
        (HMM.partial_fit, {"lengths", "inputs", "reading"}),
        (DSPNClassifier.predict, {"lengths", "reading"}),
    ],
)
def test_help_names_the_arguments_of_reading(method: Callable[..., Any], names: set[str]) -> None:
    shown = inspect.signature(method).parameters
    assert shown.keys() & {"lengths", "inputs", "reading", "given"} == names


def test_scikit_learn_can_pass_lengths_along() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        for model in (hmm(), DSPNClassifier(hmm())):
            told = model.set_score_request(lengths=True).set_fit_request(lengths=True)
            assert told.get_metadata_routing().score.requests["lengths"] is True


def test_arguments_that_no_method_has_are_refused() -> None:
    model = hmm().fit(arrays())
    for name in ("length", "argument"):
        with pytest.raises(TypeError, match=f"no argument '{name}'"):
            model.impute(arrays(), **{name: None})
    classifier = DSPNClassifier(hmm()).fit(arrays(), np.arange(6) % 2)
    with pytest.raises(TypeError, match="no argument 'inputs'"):
        classifier.predict(arrays(), inputs=[])
