from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

from dspn import (
    DSPN,
    HMM,
    HMMSPN,
    AscentOptions,
    DSPNClassifier,
    Em,
    EmOptions,
    ImpossibleEvidenceWarning,
    Model,
    Schema,
    Sequences,
    Variable,
)
from dspn.learning import NO_PRIORS
from dspn.learning.priors import Priors
from dspn.leaves import GaussianPrior
from dspn.models.estimator import SequenceEstimator

SCHEMA = Schema((Variable.categorical("a", ("u", "v")), Variable.continuous("b")))


def process(shift: float, stay: float) -> Model:
    """Two states; classes differ in how long these last, and a little in their levels."""
    return Model.from_hmm(
        [0.5, 0.5],
        [[stay, 1 - stay], [1 - stay, stay]],
        {"a": [[0.8, 0.2], [0.3, 0.7]], "b": [[shift, 1.0], [2 + shift, 1.0]]},
        schema=SCHEMA,
    )


MODELS = {"calm": process(0.0, 0.9), "wild": process(0.3, 0.4), "other": process(0.8, 0.7)}


def labelled(num_each: int, seed: int) -> tuple[Sequences, np.ndarray]:
    rng = np.random.default_rng(seed)
    parts = [model.sample(num_each, 10, rng=rng) for model in MODELS.values()]
    values = np.concatenate([part.values for part in parts])
    data = Sequences.from_codes(values, np.arange(0, len(values) + 1, 10), SCHEMA)
    order = rng.permutation(len(data))
    return data[order], np.repeat(list(MODELS), num_each)[order]


def bayes_accuracy(data: Sequences, labels: np.ndarray) -> float:
    scores = np.stack([model.log_likelihood(data) for model in MODELS.values()], axis=1)
    return float(np.mean(np.array(list(MODELS))[scores.argmax(axis=1)] == labels))


@pytest.mark.parametrize("estimator", [None, HMM(2), HMMSPN(2), DSPN(Em(2))])
def test_classes_are_told_apart_nearly_as_well_as_by_the_true_models(
    estimator: SequenceEstimator | None,
) -> None:
    train, y = labelled(60, 0)
    test, truth = labelled(60, 1)
    fitted = DSPNClassifier(estimator, random_state=0).fit(train, y)
    assert_array_equal(fitted.classes_, ["calm", "other", "wild"])
    assert fitted.score(test, truth) > bayes_accuracy(test, truth) - 0.08


def test_probabilities_follow_bayes_rule() -> None:
    train, y = labelled(20, 2)
    rare = np.flatnonzero((y != "other") | (np.arange(60) % 3 == 0))
    train, y = train[rare], y[rare]
    fitted = DSPNClassifier(HMM(2), random_state=0).fit(train, y)
    names, counts = np.unique(y, return_counts=True)
    joint = np.stack([own.score_samples(train) for own in fitted.estimators_], axis=1)
    joint += np.log(counts / counts.sum())
    assert_allclose(fitted.predict_log_proba(train), log_softmax(joint, axis=1), rtol=1e-9)
    assert_allclose(fitted.predict_proba(train).sum(axis=1), np.ones(len(train)), rtol=1e-12)
    assert_array_equal(fitted.predict(train), names[joint.argmax(axis=1)])


def test_each_class_has_the_model_that_its_own_sequences_give_with_priors_of_all() -> None:
    train, y = labelled(15, 3)
    fitted = DSPNClassifier(HMM(2, validation_fraction=0), random_state=7).fit(train, y)
    every = train.values[:, 1]
    prior = GaussianPrior(every.mean(), every.var(), 1.0, 1e-4 * every.var())
    for name, own in zip(fitted.classes_, fitted.estimators_, strict=True):
        assert own.priors.by_variable[0] is None
        for field, value in asdict(own.priors.by_variable[1]).items():
            assert_allclose(value, getattr(prior, field), rtol=1e-12)
        seed = own.model_.provenance["seed"]
        alone = HMM(2, validation_fraction=0, random_state=seed, priors=own.priors).fit(
            train[np.flatnonzero(y == name)]
        )
        assert alone.network_.fingerprint == own.network_.fingerprint


@pytest.mark.parametrize(
    "base",
    [
        HMM(2, priors=Priors(leaves=(GaussianPrior(0.0, 1.0, 0.5, 1e-3),))),
        HMM(2, priors=Priors(by_variable=(None, GaussianPrior(0.0, 1.0, 0.5, 1e-3)))),
    ],
)
def test_priors_of_leaves_that_are_given_stay(base: HMM) -> None:
    train, y = labelled(5, 3)
    fitted = DSPNClassifier(base, random_state=7).fit(train, y)
    assert all(own.priors == base.priors for own in fitted.estimators_)


def test_a_value_that_a_class_never_had_does_not_rule_it_out() -> None:
    rng = np.random.default_rng(0)
    X = [rng.normal([at, at], [1.0, at], (5, 2)) for at in np.repeat([0.0, 3.0], 20)]
    assert not any(x[:, 1].any() for x in X[:20])
    y = np.repeat(["flat", "wide"], 20)
    fitted = DSPNClassifier(HMM(1), random_state=0).fit(X, y)
    every = np.concatenate(X)[:, 1]
    flat = fitted.estimators_[0].emissions_["x1"]
    # A hundred slices of zeros, and one observation of all data.
    mean, square = every.mean() / 101, (every**2).mean() / 101
    assert_allclose(flat, [[mean, square - mean**2]], rtol=1e-6)
    odd = X[0].copy()
    odd[2, 1] = 0.5  # one pixel that is not quite blank
    assert fitted.predict([odd])[0] == "flat"


def test_digits_are_told_apart_though_pixels_are_blank_in_a_class() -> None:
    images, y = load_digits(return_X_y=True)
    schema = Schema(tuple(Variable.continuous(f"x{i}") for i in range(8)))
    X = Sequences.from_arrays(list(images.reshape(-1, 8, 8)), schema=schema)
    fitted = DSPNClassifier(HMM(4), random_state=0).fit(X[:600], y[:600])
    assert fitted.score(X[600:1000], y[600:1000]) > 0.6


@pytest.mark.parametrize("mode", ["generative", "discriminative"])
def test_the_same_random_state_gives_the_same_probabilities(mode: str) -> None:
    train, y = labelled(10, 4)
    one, other = (DSPNClassifier(HMM(2), mode=mode, random_state=3).fit(train, y) for _ in range(2))
    inherited = DSPNClassifier(HMM(2, random_state=3), mode=mode).fit(train, y)
    expected = one.predict_proba(train)
    assert_array_equal(other.predict_proba(train), expected)
    assert_array_equal(inherited.predict_proba(train), expected)


def test_discriminative_steps_raise_the_conditional_likelihood_from_the_generative_start() -> None:
    train, y = labelled(30, 5)
    plain = HMM(2, validation_fraction=0)
    generative = DSPNClassifier(plain, random_state=0).fit(train, y)
    steps = AscentOptions(max_steps=15)
    fitted = DSPNClassifier(plain, mode="discriminative", ascent=steps, random_state=0)
    fitted.fit(train, y)
    own = np.arange(len(y)), np.searchsorted(fitted.classes_, y)
    before = generative.predict_log_proba(train)[own].mean()
    after = fitted.predict_log_proba(train)[own].mean()
    assert after > before + 0.05
    assert_allclose(
        [fitted.history_[0].train, fitted.history_[-1].train], [before, after], rtol=1e-9
    )
    assert np.all(np.diff([record.penalised for record in fitted.history_]) > 0)


def test_discriminative_models_are_the_best_of_the_validation_set() -> None:
    train, y = labelled(30, 6)
    held, truth = labelled(30, 7)
    fitted = DSPNClassifier(HMM(3), mode="discriminative", random_state=0)
    fitted.fit(train, y, validation=(held, truth))
    own = np.arange(len(truth)), np.searchsorted(fitted.classes_, truth)
    found = fitted.predict_log_proba(held)[own].mean()
    assert found == pytest.approx(max(r.validation for r in fitted.history_), rel=1e-9)


@pytest.mark.parametrize("mode", ["generative", "discriminative"])
def test_sequences_without_weight_do_not_count(mode: str) -> None:
    train, y = labelled(12, 8)
    weights = np.where(np.arange(36) % 4 == 0, 0.0, 1.0)
    weights[y == "other"] = 0.0
    kept = np.flatnonzero(weights)
    one = DSPNClassifier(HMM(2), mode=mode, random_state=0).fit(train, y, sample_weight=weights)
    other = DSPNClassifier(HMM(2), mode=mode, random_state=0).fit(train[kept], y[kept])
    assert_array_equal(one.classes_, ["calm", "wild"])
    assert_array_equal(one.predict_proba(train), other.predict_proba(train))


def test_weights_of_classes_are_their_prior() -> None:
    train, y = labelled(10, 9)
    weights = np.where(y == "calm", 4.0, 1.0)
    fitted = DSPNClassifier(HMM(2), random_state=0).fit(train, y, sample_weight=weights)
    assert_allclose(np.exp(fitted.class_log_prior_), [4 / 6, 1 / 6, 1 / 6], rtol=1e-12)


def test_a_sequence_that_no_class_can_make_has_the_prior_with_a_warning() -> None:
    schema = Schema((Variable.categorical("a", (0, 1, 2)),))
    arrays = [np.array([[0.0], [1.0]])] * 6 + [np.array([[1.0], [0.0]])] * 3
    estimator = HMM(1, priors=NO_PRIORS, schema=schema, em=EmOptions(max_steps=3, tolerance=1))
    fitted = DSPNClassifier(estimator, random_state=0).fit(arrays, [0] * 6 + [1] * 3)
    with pytest.warns(ImpossibleEvidenceWarning, match="sequence 1"):
        found = fitted.predict_proba([np.array([[0.0]]), np.array([[2.0]])])
    assert_allclose(found[1], [2 / 3, 1 / 3], rtol=1e-12)


def test_lengths_cut_rows_into_sequences() -> None:
    train, y = labelled(8, 10)
    rows, lengths = train.to_concatenated(decode=True)
    fitted = DSPNClassifier(HMM(2, schema=SCHEMA), random_state=0)
    fitted.fit(rows, y, lengths=lengths)
    expected = fitted.predict(train)
    assert_array_equal(fitted.predict(rows, lengths=lengths), expected)
    assert fitted.score(rows, y, lengths=lengths) == np.mean(expected == y)


def test_japanese_vowels_are_classified_by_speaker(data_directory) -> None:
    from experiments.datasets import read_japanese_vowels

    data = read_japanese_vowels(data_directory)
    fitted = DSPNClassifier(HMM(5), random_state=0)
    fitted.fit(data.sequences[data.train], data.labels[data.train])
    assert fitted.score(data.sequences[data.test], data.labels[data.test]) > 0.95


def test_a_saved_classifier_predicts_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    data = [rng.normal(loc=3.0 * (i % 2), size=(4 + i % 3, 2)) for i in range(24)]
    labels = np.array(["low", "high"])[np.arange(24) % 2]
    first = DSPNClassifier(HMM(2), random_state=0).fit(data, labels)
    first.save(tmp_path / "c.dspn", provenance={"who": "me"})
    again = DSPNClassifier.load(tmp_path / "c.dspn")
    np.testing.assert_array_equal(again.predict_proba(data), first.predict_proba(data))
    np.testing.assert_array_equal(again.predict(data), labels)
    assert again.provenance_ == {"who": "me"}
    assert again.score(data, labels) == 1.0
    with pytest.raises(NotFittedError):
        DSPNClassifier().save(tmp_path / "d.dspn")


def test_a_loaded_classifier_refuses_columns_in_another_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    labels = np.arange(24) % 2
    table = pd.DataFrame({"a": rng.normal(size=24) + 3.0 * labels, "b": rng.normal(size=24)})
    first = DSPNClassifier(HMM(1), random_state=0).fit(table, labels)
    first.save(tmp_path / "c.dspn")
    again = DSPNClassifier.load(tmp_path / "c.dspn")
    assert again.n_features_in_ == 2 and list(again.feature_names_in_) == ["a", "b"]
    np.testing.assert_array_equal(again.predict_proba(table), first.predict_proba(table))
    with pytest.raises(ValueError, match="same order"):
        again.predict(table[["b", "a"]])


def test_a_loaded_classifier_of_unnamed_columns_knows_their_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows, labels = rng.normal(size=(24, 2)), np.arange(24) % 2
    DSPNClassifier(HMM(1), random_state=0).fit(rows, labels).save(tmp_path / "c.dspn")
    again = DSPNClassifier.load(tmp_path / "c.dspn")
    assert again.n_features_in_ == 2 and not hasattr(again, "feature_names_in_")
    assert again.predict(rows).shape == (24,)
    with pytest.raises(ValueError, match="expecting 2 features"):
        again.predict(rows[:, :1])


def test_what_a_class_held_out_is_learned_from_in_the_end() -> None:
    train, y = labelled(15, 11)
    fitted = DSPNClassifier(HMM(2), random_state=7).fit(train, y)
    for name, own in zip(fitted.classes_, fitted.estimators_, strict=True):
        sequences = train[np.flatnonzero(y == name)]
        seed = own.model_.provenance["seed"]
        whole, part = (
            HMM(2, random_state=seed, refit=refit, priors=own.priors) for refit in (True, False)
        )
        assert own.network_.fingerprint == whole.fit(sequences).network_.fingerprint
        assert own.network_.fingerprint != part.fit(sequences).network_.fingerprint


def test_what_was_held_out_chooses_among_discriminative_steps_and_is_not_learned_from() -> None:
    train, y = labelled(30, 12)
    start = DSPNClassifier(HMM(2, refit=False), random_state=0).fit(train, y)
    steps = AscentOptions(max_steps=3)
    fitted = DSPNClassifier(HMM(2), mode="discriminative", ascent=steps, random_state=0)
    fitted.fit(train, y)
    for own, other in zip(fitted.estimators_, start.estimators_, strict=True):
        assert own.network_.fingerprint == other.network_.fingerprint
    # A tenth of each class was held out, so that both means make up that of all sequences.
    own_class = np.arange(len(y)), np.searchsorted(start.classes_, y)
    whole = start.predict_log_proba(train)[own_class].mean()
    first = fitted.history_[0]
    assert 0.9 * first.train + 0.1 * first.validation == pytest.approx(whole, rel=1e-9)
    assert abs(first.train - whole) > 1e-4


def test_labels_and_keys_of_a_table_are_known_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ids = np.repeat(["d", "b", "c", "a"], 12)
    label = {"a": "low", "b": "low", "c": "high", "d": "high"}
    share = [0.9 if label[own] == "high" else 0.1 for own in ids]
    frame = pd.DataFrame({"run": ids, "x": np.where(rng.random(48) < share, "on", "off")})
    labels = pd.Series(label)  # in the order of the names, not of the rows
    found = DSPNClassifier(HMM(1), random_state=0).fit(frame, labels, sequence="run")
    assert found.predict(frame).tolist() == ["high", "low", "high", "low"]
    assert found.score(frame, labels) == 1.0
    found.save(tmp_path / "model.dspn")
    again = DSPNClassifier.load(tmp_path / "model.dspn")
    assert again.predict(frame).tolist() == found.predict(frame).tolist()
