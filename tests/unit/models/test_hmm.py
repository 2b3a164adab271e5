import numpy as np
import pytest
from hmmlearn.hmm import GaussianHMM
from numpy.testing import assert_allclose, assert_array_equal

import dspn
from dspn import HMM, ConvergenceWarning, EmOptions, Model, Priors, Schema, Sequences, Variable
from dspn.learning import StopReason

MIXED = Schema(
    (
        Variable.categorical("colour", ("red", "blue", "green")),
        Variable.continuous("level"),
        Variable.count("calls"),
    )
)
TRUTH = Model.from_hmm(
    [0.7, 0.3],
    [[0.9, 0.1], [0.2, 0.8]],
    {
        "colour": [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]],
        "level": [[-2.0, 1.0], [2.0, 0.5]],
        "calls": [[1.0], [6.0]],
    },
    schema=MIXED,
)


def drawn(num_sequences: int, seed: int, length: int = 12) -> Sequences:
    return TRUTH.sample(num_sequences, length, rng=np.random.default_rng(seed))


def test_learned_hmm_is_as_likely_as_the_one_that_made_the_data() -> None:
    fitted = HMM(2, random_state=0).fit(drawn(300, 1))
    fresh = drawn(200, 2)
    assert fitted.score(fresh) == pytest.approx(TRUTH.log_likelihood(fresh).mean(), abs=0.15)
    order = np.argsort(fitted.emissions_["level"][:, 0])
    assert_allclose(fitted.emissions_["level"][order], [[-2, 1], [2, 0.5]], atol=0.1)
    assert_allclose(fitted.emissions_["calls"][order], [[1], [6]], atol=0.3)
    assert_allclose(
        fitted.emissions_["colour"][order], [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]], atol=0.04
    )
    assert_allclose(
        fitted.transition_matrix_[np.ix_(order, order)], [[0.9, 0.1], [0.2, 0.8]], atol=0.05
    )
    assert_allclose(fitted.start_probabilities_[order], [0.7, 0.3], atol=0.1)


@pytest.mark.parametrize("n_states", [1, 2, 5])
def test_attributes_build_the_same_hmm_again(n_states: int) -> None:
    data = drawn(30, 3)
    fitted = HMM(n_states, random_state=0).fit(data)
    again = Model.from_hmm(
        fitted.start_probabilities_,
        fitted.transition_matrix_,
        fitted.emissions_,
        schema=fitted.schema_,
    )
    assert fitted.n_states_ == n_states
    assert_allclose(again.log_likelihood(data), fitted.score_samples(data), rtol=1e-10)


def test_attributes_give_the_same_likelihood_in_another_library() -> None:
    rng = np.random.default_rng(4)
    arrays = [rng.normal(size=(9, 2)) + rng.integers(3, size=(9, 1)) for _ in range(20)]
    fitted = HMM(3, random_state=1).fit(arrays)
    other = GaussianHMM(3, covariance_type="diag")
    other.startprob_ = fitted.start_probabilities_
    other.transmat_ = fitted.transition_matrix_
    rows = np.stack(list(fitted.emissions_.values()), axis=2)
    other.means_, other.covars_ = rows[:, 0], rows[:, 1]
    assert_allclose(
        fitted.score_samples(arrays), [other.score(array) for array in arrays], rtol=1e-9
    )


def test_the_number_of_states_is_chosen_by_the_validation_set() -> None:
    fitted = HMM([1, 2, 6], random_state=0).fit(drawn(60, 5))
    assert set(fitted.validation_scores_) == {1, 2, 6}
    assert fitted.validation_scores_[1] < fitted.validation_scores_[2] - 1
    best = max(fitted.validation_scores_, key=fitted.validation_scores_.__getitem__)
    assert fitted.n_states_ == best
    assert fitted.validation_score_ == fitted.validation_scores_[best]


def test_more_starts_are_never_worse_on_the_validation_set() -> None:
    data = drawn(40, 6)
    scores = [
        HMM(4, n_starts=count, random_state=0).fit(data).validation_score_ for count in (1, 2, 4)
    ]
    assert None not in scores and scores == sorted(scores)


@pytest.mark.parametrize("options", [{}, {"n_starts": 3}, {"em": EmOptions(batch_size=8)}])
def test_the_same_random_state_gives_the_same_model_bit_for_bit(options: dict) -> None:
    data = drawn(40, 7)
    one, other = (HMM(3, random_state=5, **options).fit(data) for _ in range(2))
    assert one.network_.fingerprint == other.network_.fingerprint
    different = HMM(3, random_state=6, **options).fit(data)
    assert one.network_.fingerprint != different.network_.fingerprint


def test_given_validation_sequences_take_the_place_of_held_out_ones() -> None:
    data, held = drawn(40, 8), drawn(20, 9)
    fitted = HMM(2, random_state=0).fit(data, validation=held)
    assert fitted.validation_score_ == pytest.approx(fitted.score(held), rel=1e-12)
    listed = HMM(2, random_state=0, schema=MIXED).fit(
        data.to_arrays(decode=True), validation=held.to_arrays(decode=True)
    )
    assert listed.network_.fingerprint == fitted.network_.fingerprint


def test_what_was_held_out_is_learned_from_in_the_end() -> None:
    rng = np.random.default_rng(0)
    arrays = list(rng.normal(size=(10, 5, 1)))
    plain = Priors(leaf_pseudo_count=0.0)
    means = [
        HMM(1, priors=plain, validation_fraction=0.3, refit=refit, random_state=1)
        .fit(arrays)
        .emissions_["x0"][0, 0]
        for refit in (True, False)
    ]
    assert_allclose(means[0], np.mean(arrays), rtol=1e-9)
    assert abs(means[1] - np.mean(arrays)) > 1e-3


def test_without_validation_the_whole_data_are_learned_from() -> None:
    data = drawn(40, 10)
    fitted = HMM(2, validation_fraction=0, random_state=0).fit(data)
    assert fitted.validation_score_ is None
    assert fitted.history_[-1].train == pytest.approx(fitted.score(data), rel=1e-9)
    assert fitted.ending_ is StopReason.CONVERGED
    penalised = [record.penalised for record in fitted.history_]
    assert np.all(np.diff(penalised) >= -1e-9)


def test_sample_weights_move_the_model_towards_the_heavy_sequences() -> None:
    low, high = np.full((3, 4, 1), -1.0), np.full((3, 4, 1), 1.0)
    noise = np.random.default_rng(0).normal(scale=0.1, size=(6, 4, 1))
    data = list(np.concatenate([low, high]) + noise)
    weights = [9.0, 9.0, 9.0, 1.0, 1.0, 1.0]
    plain = Priors(leaf_pseudo_count=0.0)
    fitted = HMM(1, priors=plain, validation_fraction=0).fit(data, sample_weight=weights)
    expected = np.average([array.mean() for array in data], weights=weights)
    assert_allclose(fitted.emissions_["x0"][0, 0], expected, rtol=1e-9)


def test_a_sequence_of_no_weight_changes_nothing() -> None:
    data = drawn(20, 11)
    weights = np.ones(20)
    weights[[3, 7]] = 0.0
    kept = data[np.flatnonzero(weights)]
    one = HMM(2, random_state=0).fit(data, sample_weight=weights)
    other = HMM(2, random_state=0).fit(kept)
    assert one.network_.fingerprint == other.network_.fingerprint


def test_few_steps_end_with_a_warning_that_more_would_help() -> None:
    with pytest.warns(ConvergenceWarning, match="after 2 steps"):
        HMM(3, em=EmOptions(max_steps=2), random_state=0).fit(drawn(30, 12))


def test_sequences_of_one_slice_and_slices_without_values_are_learned_from() -> None:
    data = drawn(30, 13, length=1)
    fitted = HMM(2, random_state=0).fit(data)
    assert np.isfinite(fitted.score(data))
    values = drawn(10, 14).values.copy()
    values[::3] = np.nan
    blank = drawn(10, 14).with_values(values)
    fitted = HMM(2, random_state=0).fit(blank)
    assert np.isfinite(fitted.score(blank))


def test_provenance_tells_where_the_model_comes_from(tmp_path) -> None:
    data = drawn(30, 15)
    fitted = HMM(2, random_state=3).fit(data)
    fitted.save(tmp_path / "hmm.dspn")
    found = dspn.load(tmp_path / "hmm.dspn").provenance
    assert found["estimator"] == "HMM" and found["seed"] == 3
    assert found["dspn"] == dspn.__version__
    assert found["parameters"]["n_states"] == 2
    assert found["validation_score"] == pytest.approx(fitted.validation_score_, rel=1e-12)
    assert set(found["data"]) == {"train", "validation"}
    assert "random_state" not in found["parameters"]


def test_a_model_of_unknown_seed_is_learned_again_from_the_seed_it_recorded() -> None:
    data = drawn(30, 16)
    fitted = HMM(2).fit(data)
    seed = fitted.model_.provenance["seed"]
    again = HMM(2, random_state=seed).fit(data)
    assert again.network_.fingerprint == fitted.network_.fingerprint


def test_verbs_answer_as_the_model_does() -> None:
    data = drawn(20, 17)
    fitted = HMM(2, random_state=0).fit(data)
    model = fitted.model_
    gaps = data.with_values(
        np.where(np.arange(data.values.size).reshape(-1, 3) % 5, data.values, np.nan)
    )
    assert_array_equal(fitted.score_samples(gaps), model.log_likelihood(gaps))
    assert_array_equal(fitted.impute(gaps).values, model.impute(gaps).values)
    assert_array_equal(
        fitted.complete(gaps).sequences.values, model.complete(gaps).sequences.values
    )
    assert_array_equal(fitted.interface_posteriors(gaps), model.interface_posteriors(gaps))
    assert_array_equal(fitted.surprise(gaps).slices, model.surprise(gaps).slices)
    assert_array_equal(fitted.log_prob(data, gaps), model.log_prob(data, gaps))
    assert_array_equal(fitted.marginals(gaps)["level"].mean, model.marginals(gaps)["level"].mean)
    assert_array_equal(
        fitted.forecast(data, 2).marginals["colour"].probabilities,
        model.forecast(data, 2).marginals["colour"].probabilities,
    )
    assert fitted.filter().update(["red", 0.0, 1]).surprise > 0
    one, other = (fitted.sample(3, 4, random_state=1).values for _ in range(2))
    assert_array_equal(one, other)
    assert fitted.sample(2, [3, 4], random_state=np.random.default_rng(0)).total_slices == 7
    futures = fitted.sample_futures(data, 2, random_state=0)
    assert futures.total_slices == data.total_slices + 40
    assert not np.isnan(fitted.sample_given(gaps, random_state=0).values).any()
