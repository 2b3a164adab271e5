"""The estimator with its own learner: what it fits, answers, keeps, tells and refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import dspn
from dspn import DSPN, Auto, DSPNClassifier, Em, EmOptions, Paper, Schema, Variable
from dspn.errors import (
    ConvergenceWarning,
    DataError,
    EvidenceError,
    ModelFileError,
    StructureError,
)
from dspn.learning import Priors
from dspn.learning.run import Ending
from dspn.structure.validity import violations

BITS = Schema((Variable.binary("x"), Variable.binary("y")))
# Nodes of two chains, or of their pairs, but not of both: data of two kinds ask for two layouts.
AUTO = Auto(
    effort=1.0,
    max_interfaces=2,
    max_members=1,
    patience=2,
    em=EmOptions(max_steps=4),
    refit=EmOptions(max_steps=2),
)


def two_kinds(num_sequences: int, seed: int, length: int = 16) -> list[np.ndarray]:
    """By turns two slow chains by themselves, and one fast chain that is seen twice."""
    rng = np.random.default_rng(seed)
    arrays = []
    for number in range(num_sequences):
        if number % 2:
            rows = np.repeat(rng.integers(0, 2, (length, 1)), 2, axis=1)
        else:
            turns = np.cumsum(rng.random((length, 2)) < 0.05, axis=0)
            rows = (turns + rng.integers(0, 2, 2)) % 2
        arrays.append(rows.astype(float))
    return arrays


DATA = two_kinds(60, 0)
GAPS = [np.array([[0, 0], [np.nan, 1], [1, np.nan], [np.nan, np.nan]]), np.array([[1.0, np.nan]])]


def small(**options: Any) -> DSPN:
    given = {"learner": AUTO, "schema": BITS, "validation_fraction": 0.4, "random_state": 0}
    return DSPN(**{**given, **options})


@pytest.fixture(scope="module")
def mixed() -> DSPN:
    fitted = small().fit(DATA)
    assert len(fitted.mixture_) == 2, "the data are made to ask for two layouts"
    return fitted


def joint(fitted: DSPN, values: np.ndarray) -> float:
    """P(values) of one sequence, component by component."""
    logs = [dspn.Model(network).log_likelihood([values])[0] for network in fitted.mixture_]
    return float(np.exp(logsumexp(logs, b=fitted.mixture_.weights)))


# What is learned.


def test_the_automatic_learner_is_the_default() -> None:
    fitted = DSPN(Auto(effort=1e-6), random_state=0).fit(two_kinds(12, 1, 4))
    assert DSPN().learner == "auto"
    assert fitted.ending_ is Ending.FINISHED
    assert fitted.tried_ == len(fitted.trail_) >= 1
    assert 0 <= fitted.accepted_ <= fitted.tried_
    assert fitted.n_features_in_ == 2
    assert fitted.model_.provenance["parameters"]["learner"]["effort"] == 1e-6


def test_what_is_learned_is_valid_and_told(mixed: DSPN) -> None:
    for network in mixed.mixture_:
        assert violations(network.template, network.top) == ()
    assert f"{mixed.tried_} models were tried" in mixed.explanation_
    assert "2 blocks" in mixed.explanation_ and "1 block:" in mixed.explanation_
    assert f"{mixed.validation_score_:.3f} nats" in mixed.explanation_
    assert [item.candidate.number for item in mixed.trail_] == list(range(mixed.tried_))
    assert "clusters" in {item.move.name for item in mixed.trail_}
    assert mixed.history_[-1].score == mixed.validation_score_
    assert mixed.dead_ == ()
    with pytest.raises(StructureError, match="mixture of 2 components"):
        _ = mixed.network_


def test_no_model_of_a_block_has_more_interface_nodes_than_allowed(mixed: DSPN) -> None:
    assert all(item.candidate.size <= 2 for item in mixed.trail_)
    fitted = small(learner=Auto(effort=0.5, max_interfaces=3)).fit(DATA)
    assert all(item.candidate.size <= 3 for item in fitted.trail_)


def test_more_effort_tries_more() -> None:
    little, much = (
        small(learner=Auto(effort=effort, max_interfaces=4, em=AUTO.em)).fit(DATA)
        for effort in (1e-6, 0.5)
    )
    assert little.tried_ < much.tried_
    assert little.validation_score_ <= much.validation_score_


def test_the_same_model_whatever_the_number_of_jobs(mixed: DSPN) -> None:
    for jobs in (2, None):
        other = small(n_jobs=jobs).fit(DATA)
        assert other.mixture_.fingerprint == mixed.mixture_.fingerprint
        assert other.explanation_ == mixed.explanation_
    assert small(random_state=1).fit(DATA).mixture_.fingerprint != mixed.mixture_.fingerprint


def test_a_given_validation_set_is_not_learned_from() -> None:
    held = two_kinds(20, 5)
    fitted = small().fit(DATA, validation=held)
    assert fitted.validation_score_ == pytest.approx(fitted.score(held), rel=1e-9)


def test_what_was_held_out_is_learned_from_in_the_end(mixed: DSPN) -> None:
    scored = small(refit=False).fit(DATA)
    assert scored.validation_score_ == mixed.validation_score_
    assert mixed.score(DATA) > scored.score(DATA)


@pytest.mark.parametrize(("root", "tied"), [("last", True), ("first", False)])
def test_root_and_bottom_are_as_asked(root: str, tied: bool) -> None:
    fitted = small(root=root, tied=tied).fit(DATA)
    assert fitted.mixture_.root == root
    assert all(network.parameters.tied is tied for network in fitted.mixture_)


def test_a_time_limit_ends_learning() -> None:
    with pytest.warns(ConvergenceWarning, match="`time_limit=1e-09` ended learning before"):
        fitted = small(time_limit=1e-9).fit(DATA)
    assert fitted.ending_ is Ending.TIME_LIMIT
    assert np.isfinite(fitted.score(DATA))


def test_progress_and_explanation_are_shown_where_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    quick = Auto(effort=1e-6, em=EmOptions(max_steps=1))
    small(learner=quick).fit(DATA)
    assert capsys.readouterr().err == ""
    fitted = small(learner=quick, verbose=1).fit(DATA)
    assert fitted.explanation_ in capsys.readouterr().err


# Every query.


def test_every_entry_and_slice_is_answered_by_the_mixture(mixed: DSPN) -> None:
    scores = mixed.score_samples(GAPS)
    np.testing.assert_allclose(scores, [np.log(joint(mixed, own)) for own in GAPS], rtol=1e-9)
    assert mixed.score(GAPS) == pytest.approx(scores.mean(), rel=1e-12)
    query = [np.full((1, 2), np.nan)]
    query[0][0, 1] = 1
    evidence = [np.array([[1.0, np.nan]])]
    expected = joint(mixed, np.array([[1.0, 1.0]])) / joint(mixed, evidence[0])
    np.testing.assert_allclose(np.exp(mixed.log_prob(query, evidence)), [expected], rtol=1e-9)
    posterior = mixed.component_posteriors(GAPS)
    assert posterior.shape == (2, 2)
    np.testing.assert_allclose(posterior.sum(axis=1), [1.0, 1.0], rtol=1e-12)
    assert mixed.interface_posteriors(GAPS).shape == (5, mixed.mixture_.num_interfaces)
    surprise = mixed.surprise(GAPS)
    np.testing.assert_allclose(-np.nansum(surprise.slices[:4]), scores[0], rtol=1e-9)


def test_gaps_are_filled_and_futures_are_told(mixed: DSPN) -> None:
    own = mixed.marginals(GAPS)["y"]
    assert own.slices.tolist() == [2, 3, 4]
    assert own.probabilities is not None
    ones = joint(mixed, np.array([[1.0, 1.0]])) / joint(mixed, GAPS[1])
    np.testing.assert_allclose(own.probabilities[2], [1 - ones, ones], rtol=1e-9)
    for filled in (mixed.impute(GAPS), mixed.complete(GAPS).sequences):
        assert not np.isnan(filled.values).any()
    for drawn in (
        mixed.sample_given(GAPS, random_state=0),
        mixed.sample(3, [1, 4, 2], random_state=0),
        mixed.sample_futures(GAPS, 2, random_state=0),
    ):
        assert set(np.unique(drawn.values)) <= {0.0, 1.0}
    future = mixed.forecast(GAPS, 3).marginals["x"].probabilities
    assert future is not None
    np.testing.assert_allclose(future.sum(axis=1), np.ones(6), rtol=1e-12)
    stream = mixed.filter()
    surprises = [stream.update(row).surprise for row in GAPS[0]]
    np.testing.assert_allclose(-sum(surprises), mixed.score_samples(GAPS)[0], rtol=1e-9)


# Files.


def test_a_mixture_comes_back_from_its_file(mixed: DSPN, tmp_path: Path) -> None:
    mixed.save(tmp_path / "mixed.dspn")
    again = dspn.load(tmp_path / "mixed.dspn")
    assert again.mixture.fingerprint == mixed.mixture_.fingerprint
    assert again.provenance == mixed.model_.provenance
    assert again.provenance["parameters"]["learner"]["max_interfaces"] == 2
    np.testing.assert_array_equal(again.log_likelihood(GAPS), mixed.score_samples(GAPS))


def test_learning_goes_on_from_its_directory(mixed: DSPN, tmp_path: Path) -> None:
    first = small(checkpoint=tmp_path / "run").fit(DATA)
    assert first.mixture_.fingerprint == mixed.mixture_.fingerprint
    assert len(list((tmp_path / "run").glob("*.dspn"))) >= first.tried_
    with pytest.raises(ModelFileError, match="`resume=True`"):
        small(checkpoint=tmp_path / "run").fit(DATA)
    again = small(checkpoint=tmp_path / "run", resume=True, n_jobs=2).fit(DATA)
    assert again.mixture_.fingerprint == mixed.mixture_.fingerprint
    with pytest.raises(ModelFileError, match="another one"):
        small(checkpoint=tmp_path / "run", resume=True).fit(two_kinds(60, 1))


# Conventions.


def test_clones_have_the_same_parameters_and_no_model(mixed: DSPN) -> None:
    other = clone(mixed)
    assert other.get_params() == mixed.get_params()
    assert other.learner == AUTO and not hasattr(other, "model_")
    assert other.fit(DATA).mixture_.fingerprint == mixed.mixture_.fingerprint
    assert DSPN(**DSPN().get_params()).get_params() == DSPN().get_params()


def test_options_of_the_learner_are_parameters_too() -> None:
    assert DSPN().set_params(learner__effort=3.0).learner == Auto(effort=3.0)
    assert DSPN(Em(2)).set_params(learner="paper", learner__search=None).learner == Paper(
        search=None
    )
    nested = small().set_params(learner__em__max_steps=7, learner__effort=2.0)
    assert nested.get_params()["learner__em__max_steps"] == nested.learner.em.max_steps == 7
    assert nested.learner.effort == 2.0 and AUTO.em.max_steps == 4
    with pytest.raises(StructureError, match="Auto has no option 'growth'"):
        small().set_params(learner__growth=3)


def test_pipelines_and_cross_validation_take_lists_of_arrays(mixed: DSPN) -> None:
    pipeline = make_pipeline(FunctionTransformer(), small())
    pipeline.fit(DATA)
    assert pipeline[-1].mixture_.fingerprint == mixed.mixture_.fingerprint
    np.testing.assert_array_equal(pipeline.score_samples(GAPS), mixed.score_samples(GAPS))
    assert pipeline.score(GAPS) == mixed.score(GAPS)
    assert np.isfinite(cross_val_score(small(), DATA, cv=2)).all()


def test_a_single_sequence_is_divided_in_time_without_a_warning() -> None:
    fitted = small().fit(DATA[:1])
    assert np.isfinite(fitted.score(DATA[:1]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"effort": 0}, "`effort` of Auto must be a finite number > 0"),
        ({"effort": "much"}, "`effort` of Auto"),
        ({"exploration": 1.5}, "`exploration` of Auto must be a finite number >= 0 and <= 1"),
        ({"max_interfaces": 0}, "`max_interfaces` must be a whole number"),
        ({"em": 3}, "`em` must be a EmOptions"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(StructureError, match=said):
        Auto(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"learner": EmOptions()}, "`learner` must be 'auto', 'paper', 'em' or 'distilled'"),
        ({"time_limit": 0}, "`time_limit`"),
        ({"n_jobs": 0}, "`n_jobs`"),
        ({"tied": 1}, "`tied`"),
        ({"root": "middle"}, "`root`"),
        ({"priors": 1.0}, "`priors`"),
        ({"resume": True}, "`resume` needs"),
        ({"checkpoint": "run", "random_state": None}, "`random_state` must be a whole number"),
        ({"learner": "best"}, "`learner` must be 'auto', 'paper', 'em' or 'distilled'"),
    ],
)
def test_what_does_not_go_together_is_refused(
    options: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StructureError, match=said):
        small(**options).fit(DATA)
    assert not list(tmp_path.iterdir())


def test_what_structure_cannot_be_learned_from_is_refused() -> None:
    with pytest.raises(DataError, match="chooses structure by a validation set"):
        small(validation_fraction=0).fit(DATA)
    with pytest.raises(DataError, match="`sample_weight` must be left out"):
        small().fit(DATA, sample_weight=np.linspace(0.5, 2, 60))
    with pytest.raises((DataError, EvidenceError)):
        small().fit([])


def test_given_priors_are_the_only_ones() -> None:
    fitted = small(priors=Priors(sum_pseudo_count=0.5)).fit(DATA)
    assert "prior" not in {item.move.name for item in fitted.trail_}


# Classes.


def labelled() -> tuple[list[np.ndarray], np.ndarray]:
    slow, fast = two_kinds(40, 3)[::2], two_kinds(40, 4)[1::2]
    return [*slow, *fast], np.repeat(["slow", "fast"], 20)


def test_classes_are_told_apart_by_models_of_their_own() -> None:
    X, y = labelled()
    base = DSPN(Auto(effort=0.5), schema=BITS)
    fitted = DSPNClassifier(base, random_state=0).fit(X, y)
    assert fitted.score(X, y) > 0.9
    np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), np.ones(40), rtol=1e-12)
    scores = np.stack([own.score_samples(X) for own in fitted.estimators_], axis=1)
    expected = scores + fitted.class_log_prior_
    expected -= logsumexp(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.predict_log_proba(X), expected, rtol=1e-9, atol=1e-9)


def test_mixtures_are_classified_by_but_not_made_discriminative() -> None:
    X = two_kinds(120, 6)
    y = np.repeat(["one", "other"], 60)
    fitted = DSPNClassifier(small(random_state=None), random_state=0).fit(X, y)
    assert max(len(model.components) for model in fitted.models_) > 1
    assert fitted.predict(X).shape == (120,)
    with pytest.raises(StructureError, match=r"is a mixture of \d; use `mode='generative'`"):
        DSPNClassifier(small(), mode="discriminative", random_state=0).fit(X, y)
