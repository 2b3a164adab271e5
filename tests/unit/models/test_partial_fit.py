"""`partial_fit` of every estimator: scikit-learn's conventions, files, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import dspn
from dspn import DataError, Model, OnlineOptions, Schema, StructureError, Variable
from dspn.data.sequences import Sequences, joined
from dspn.learning import EmOptions
from dspn.learning.online import OnlineState
from dspn.models import DSPN, HMM, HMMSPN, DSPNClassifier, Em
from dspn.models.estimator import SequenceEstimator

SCHEMA = Schema((Variable.categorical("sky", ["clear", "rain"]), Variable.continuous("celsius")))
STATION = Model.from_hmm(
    start=[0.6, 0.4],
    transition=[[0.9, 0.1], [0.3, 0.7]],
    emissions={"sky": [[0.9, 0.1], [0.3, 0.7]], "celsius": [[20.0, 9.0], [14.0, 4.0]]},
    schema=SCHEMA,
)
HARBOUR = Model.from_hmm(
    start=[0.5, 0.5],
    transition=[[0.6, 0.4], [0.4, 0.6]],
    emissions={"sky": [[0.5, 0.5], [0.2, 0.8]], "celsius": [[24.0, 2.0], [10.0, 2.0]]},
    schema=SCHEMA,
)
FEW = EmOptions(max_steps=5)
pytestmark = pytest.mark.filterwarnings("ignore:expectation maximisation ended")


def batches(count: int, seed: int = 0, size: int = 14, model: Model = STATION) -> list[Sequences]:
    rng = np.random.default_rng(seed)
    return [model.sample(size, rng.integers(4, 9, size), rng=rng) for _ in range(count)]


ESTIMATORS: dict[str, Any] = {
    "DSPN": lambda: DSPN(dspn.Auto(effort=0.01), random_state=0),
    "DSPN untied": lambda: DSPN(Em(2, FEW), tied=False, root="last", random_state=0),
    "HMM": lambda: HMM(2, em=FEW, random_state=0),
    "HMMSPN": lambda: HMMSPN(2, em=FEW, random_state=0),
}


def states(estimator: Any) -> list[Any]:
    """Everything that further learning goes on from."""
    models = estimator.models_ if hasattr(estimator, "models_") else [estimator.model_]
    found = [model.mixture.fingerprint for model in models]
    return found + [
        (name, array.tobytes()) for model in models for name, array in sorted(model.online.items())
    ]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_goes_on_from_its_file_bit_for_bit(name: str, tmp_path: Path) -> None:
    first, second, third, fourth = batches(4)
    made = ESTIMATORS[name]().partial_fit(first).partial_fit(second)
    made.save(tmp_path / "own.dspn")
    again = dspn.load(tmp_path / "own.dspn")
    assert type(again) is type(made)
    for batch in (third, fourth):
        made.partial_fit(batch)
        again.partial_fit(batch)
        assert states(made) == states(again)
    made.save(tmp_path / "one.dspn")
    again.save(tmp_path / "other.dspn")
    assert (tmp_path / "one.dspn").read_bytes() == (tmp_path / "other.dspn").read_bytes()
    assert len(made.batches_) == 4 and len(again.batches_) == 2


def test_every_kind_of_estimator_is_among_them() -> None:
    below = SequenceEstimator.__subclasses__()
    kinds = {kind.__name__ for own in below for kind in own.__subclasses__() or [own]}
    assert kinds <= ESTIMATORS.keys()


def test_the_same_batches_give_the_same_model() -> None:
    one, other = (ESTIMATORS["HMM"]() for _ in range(2))
    for batch in batches(3):
        one.partial_fit(batch)
        other.partial_fit(batch)
    assert states(one) == states(other)


def test_the_first_batch_is_a_fit_and_its_statistics_are_kept() -> None:
    (first,) = batches(1)
    online = ESTIMATORS["HMM"]().partial_fit(first)
    fitted = ESTIMATORS["HMM"]().fit(first)
    assert online.mixture_.fingerprint == fitted.mixture_.fingerprint
    assert online.validation_score_ == fitted.validation_score_
    wanted = OnlineState.of_data(fitted.mixture_, first).arrays()
    for name, array in online.model_.online.items():
        assert_array_equal(array, wanted[name])
    (record,) = online.batches_
    assert (record.batch, record.share, record.num_sequences) == (1, 1.0, 14.0)


def test_a_fitted_model_weighs_as_many_sequences_as_it_was_fitted_to(tmp_path: Path) -> None:
    first, second = joined(batches(3)), batches(1, seed=5)[0]
    fitted = ESTIMATORS["HMM"]().fit(first)
    assert not fitted.model_.online
    assert fitted.model_.provenance["trained_on"] == {
        "sequences": 42.0,
        "slices": float(first.total_slices),
    }
    fitted.save(tmp_path / "own.dspn")
    again = dspn.load(tmp_path / "own.dspn")
    for own in (fitted, again):
        own.partial_fit(second)
    assert states(fitted) == states(again)
    assert fitted.batches_[-1].share == OnlineOptions().share(42, 14)
    assert fitted.model_.provenance["online"] == {
        "batches": 1,
        "sequences": 56.0,
        "interfaces_added": 0,
    }
    assert fitted.validation_score_ is None
    # A second fit begins anew.
    assert not fitted.fit(first).model_.online and fitted.batches_ == ()


def test_options_are_parameters(tmp_path: Path) -> None:
    options = OnlineOptions(step_power=0.9, inner_steps=2, growth=False)
    made = HMM(2, em=FEW, online=options, random_state=0).partial_fit(batches(1)[0])
    made.save(tmp_path / "own.dspn")
    assert dspn.load(tmp_path / "own.dspn").online == options
    assert clone(made).set_params(online__step_power=0.8).online.step_power == 0.8
    made.partial_fit(batches(1, seed=1)[0])
    assert_allclose(made.batches_[-1].share, 4**-0.9, rtol=1e-14)
    with pytest.raises(StructureError, match="online"):
        HMM(2, online="fast").partial_fit(batches(1)[0])  # type: ignore[arg-type]


def test_rows_with_lengths_and_weights() -> None:
    first, second = batches(2)
    one, other = (HMM(2, em=FEW, schema=SCHEMA, random_state=0) for _ in range(2))
    counts = np.tile([1, 0, 2], 14)[:14]
    for batch in (first, second):
        rows, lengths = batch.to_concatenated(decode=True)
        one.partial_fit(rows, lengths=lengths, sample_weight=counts.astype(float))
        kept = np.flatnonzero(counts)
        other.partial_fit(batch[kept], sample_weight=counts[kept].astype(float))
    assert states(one) == states(other)


def test_later_batches_must_have_the_variables_of_the_first() -> None:
    first, second = batches(2)
    online = ESTIMATORS["HMM"]().partial_fit(first)
    before = states(online)
    with pytest.raises(DataError, match="variables of the model"):
        online.partial_fit(second.select(["sky"]))
    snow = [np.array([["snow", 3.0]], dtype=object)]
    with pytest.raises(DataError, match="snow"):
        online.partial_fit(snow)
    with pytest.raises(DataError, match="sample_weight"):
        online.partial_fit(second, sample_weight=[1.0])
    with pytest.raises(DataError, match="sample_weight"):
        online.partial_fit(second, sample_weight=np.zeros(14))
    assert states(online) == before and len(online.batches_) == 1


def test_kinds_are_inferred_from_the_first_batch() -> None:
    rng = np.random.default_rng(0)
    online = HMM(2, em=FEW, random_state=0)
    online.partial_fit(rng.integers(0, 2, (12, 5, 1)))
    assert online.schema_[0].categories == (0, 1)
    with pytest.raises(DataError, match="2"):
        online.partial_fit(np.full((12, 5, 1), 2))


def labelled(count: int, seed: int = 0) -> list[tuple[Sequences, Any]]:
    pairs = zip(batches(count, seed), batches(count, seed + 1, model=HARBOUR), strict=True)
    return [(joined([one, other]), np.repeat(["inland", "sea"], 14)) for one, other in pairs]


def test_a_classifier_learns_each_class_by_itself(tmp_path: Path) -> None:
    first, second, third = labelled(3)
    made = DSPNClassifier(HMM(2, em=FEW), random_state=0)
    made.partial_fit(*first, classes=["sea", "inland"])
    some = np.arange(20)
    made.partial_fit(second[0][some], second[1][some])
    assert_allclose(np.exp(made.class_log_prior_), [28 / 48, 20 / 48], rtol=1e-12)
    assert made.classes_.tolist() == ["inland", "sea"]
    assert made.score(*third) > 0.7
    for estimator, data in zip(made.estimators_, (first[0][:14], first[0][14:]), strict=True):
        alone = clone(estimator).partial_fit(data)
        assert alone.batches_ == estimator.batches_[:1]
    made.save(tmp_path / "own.dspn")
    again = dspn.load(tmp_path / "own.dspn")
    for own in (made, again):
        own.partial_fit(*third)
    assert states(made) == states(again)
    assert_array_equal(made.class_log_prior_, again.class_log_prior_)


def test_a_fitted_classifier_goes_on(tmp_path: Path) -> None:
    first, second = labelled(2)
    made = DSPNClassifier(HMM(2, em=FEW), random_state=0).fit(*first)
    made.save(tmp_path / "own.dspn")
    again = dspn.load(tmp_path / "own.dspn")
    for own in (made, again):
        own.partial_fit(second[0][:14], second[1][:14])
        assert_allclose(np.exp(own.class_log_prior_), [2 / 3, 1 / 3], rtol=1e-12)
    assert states(made) == states(again)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda own, X, y: DSPNClassifier().partial_fit(X, y), "`classes` must be given"),
        (lambda own, X, y: DSPNClassifier().partial_fit(X, y, ["sea"]), "at least two classes"),
        (
            lambda own, X, y: DSPNClassifier().partial_fit(X, y, ["sea", "inland", "lake"]),
            "none of 'lake'",
        ),
        (lambda own, X, y: DSPNClassifier().partial_fit(X, y, ["sea", "lake"]), "has 'inland'"),
        (lambda own, X, y: own.partial_fit(X, y, ["sea", "lake"]), "those of the first call"),
        (lambda own, X, y: own.partial_fit(X, np.where(y == "sea", "lake", y)), "has 'lake'"),
        (lambda own, X, y: own.partial_fit(X, y[:3]), "a label for each"),
        (
            lambda own, X, y: DSPNClassifier(mode="discriminative").partial_fit(X, y, ["a", "b"]),
            "generative",
        ),
    ],
)
def test_wrong_batches_of_a_classifier_are_refused(make: Any, said: str) -> None:
    first, second = labelled(2)
    own = DSPNClassifier(HMM(2, em=FEW), random_state=0).partial_fit(*first, ["sea", "inland"])
    before = states(own)
    with pytest.raises((DataError, StructureError), match=said):
        make(own, *second)
    assert states(own) == before


def test_old_files_and_files_with_statistics_have_their_versions(tmp_path: Path) -> None:
    from dspn.io.files import unpack

    first, second = batches(2)
    made = ESTIMATORS["HMM"]().fit(first)
    made.save(tmp_path / "own.dspn")
    assert unpack((tmp_path / "own.dspn").read_bytes()).version == 1
    made.partial_fit(second).save(tmp_path / "own.dspn")
    found = unpack((tmp_path / "own.dspn").read_bytes())
    assert found.version == 4
    assert {name for name in found.tensors if name.startswith("online.")} == {
        f"online.{name}" for name in made.model_.online
    }
    bare = Model.load(tmp_path / "own.dspn")
    bare.save(tmp_path / "bare.dspn")
    assert dspn.load(tmp_path / "bare.dspn").online.keys() == made.model_.online.keys()
