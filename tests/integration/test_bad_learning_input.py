"""What a user gets wrong about learning: refused or said by name, before the long work begins."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import StratifiedKFold, cross_val_score

import dspn.learning.em
import dspn.learning.learner
from dspn import (
    DSPN,
    HMM,
    HMMSPN,
    AscentOptions,
    ConditionalLikelihood,
    ConvergenceWarning,
    DSPNClassifier,
    Em,
    EmOptions,
    GrowthOptions,
    Model,
    Paper,
    Priors,
    Schema,
    SearchOptions,
    Sequences,
    SliceSpnOptions,
    Variable,
)
from dspn.errors import DataError, DspnError, ModelFileError, StructureError

QUICK = EmOptions(max_steps=3, tolerance=0.5)
COLOURS = Schema((Variable.categorical("colour", ("red", "blue", "green")), Variable.binary("b")))


def arrays(count: int = 6, width: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(4, width)) for _ in range(count)]


def coloured(codes: list[int], count: int = 6) -> Sequences:
    values = np.stack([np.resize(codes, 4 * count), np.arange(4 * count) % 2], axis=1)
    return Sequences.from_codes(values.astype(float), np.arange(0, 4 * count + 1, 4), COLOURS)


@pytest.fixture
def no_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expectation maximisation is out of reach: whoever gets there has begun the long work."""

    def begun(*_: Any, **__: Any) -> None:
        raise AssertionError("the long work has begun")

    monkeypatch.setattr(dspn.learning.em.Part, "flows", begun)


BAD_OPTIONS: dict[str, tuple[Any, str]] = {
    "no states": (HMM(0), "`n_states` must be a whole number of at least 1, but is 0"),
    "half a state": (HMM(2.5), "`n_states` must be a whole number"),
    "no number of states": (HMM([]), "`n_states` must hold at least one number"),
    "a state of none": (HMM([2, 0]), "`n_states`"),
    "no starts": (HMM(n_starts=0), "`n_starts`"),
    "em of another type": (HMM(em={"max_steps": 3}), "`em` must be a EmOptions, found dict"),
    "priors of another type": (HMM(priors=0.1), "`priors` must be a Priors, found float"),
    "a fraction of one": (
        HMM(validation_fraction=1.0),
        "must be a finite number >= 0 and < 1",
    ),
    "a fraction in text": (HMM(validation_fraction="0.1"), "`validation_fraction`"),
    "a negative seed": (HMM(random_state=-1), "`random_state`"),
    "a seed in text": (HMM(random_state="7"), "`random_state` must be a whole number"),
    "a schema of another type": (HMM(schema=["a", "b"]), "`schema` must be a Schema, found list"),
    "sizes that nothing chooses among": (HMM([2, 3], validation_fraction=0), "needs sequences"),
    "no states of an HMMSPN": (HMMSPN(0), "`n_states`"),
    "emission of another type": (HMMSPN(emission=2), "`emission` must be a SliceSpnOptions"),
    "an unknown learner": (
        DSPN(learner="magic"),
        "`learner` must be 'auto', 'paper', 'em' or 'distilled'",
    ),
    "an unknown root": (DSPN(root="middle"), "`root` must be 'first' or 'last'"),
    "tied in text": (DSPN(tied="yes"), "`tied` must be a bool"),
    "em with a checkpoint": (
        DSPN(Em(2), checkpoint="run.dspn"),
        "`checkpoint` is for learners of structure",
    ),
    "a continuous class variable": (
        DSPN(Paper(scoring=ConditionalLikelihood(("x0",)))),
        "must be categorical, but 'x0' is continuous",
    ),
    "an unknown class variable": (
        DSPN(Paper(scoring=ConditionalLikelihood(("y",)))),
        "'y' is none",
    ),
    "resume without a checkpoint": (DSPN(resume=True), "`resume` needs the `checkpoint`"),
    "a checkpoint without a seed": (
        DSPN(checkpoint="run.dspn"),
        "`random_state` must be a whole number where there is a `checkpoint`",
    ),
    "no time": (DSPN(time_limit=0), "`time_limit`"),
    "no jobs": (DSPN(n_jobs=0), "`n_jobs`"),
    "structure without validation": (DSPN(validation_fraction=0), "chooses structure"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
@pytest.mark.usefixtures("no_learning")
def test_options_are_refused_before_the_long_work(case: str) -> None:
    estimator, message = BAD_OPTIONS[case]
    with pytest.raises(DspnError, match=message.replace("(", r"\(")):
        estimator.fit(arrays())
    assert not hasattr(estimator, "model_")


BAD_DATA: dict[str, tuple[tuple[Any, dict[str, Any]], str]] = {
    "nothing": (([], {}), "at least one sequence"),
    "no data": ((None, {}), "`X` must be a list"),
    "a string": (("abc", {}), "`X` must be a list"),
    "columns that differ": (([np.zeros((2, 2)), np.zeros((3, 3))], {}), "same number of columns"),
    "channels first": (([np.zeros((2, 5)), np.zeros((2, 6))], {}), "layout='channels_first'"),
    "an empty sequence": (([np.zeros((0, 2))], {}), "at least one slice"),
    "infinity": (([np.array([[0.5], [np.inf]])], {}), "must hold finite numbers"),
    "lengths that do not add up": ((np.zeros((5, 2)), {"lengths": [2, 2]}), "`lengths` must sum"),
    "lengths of a list": ((arrays(), {"lengths": [4] * 6}), "`lengths` must be left out"),
    "lengths of sequences": ((coloured([0, 1]), {"lengths": [4] * 6}), "`lengths` must be left"),
    "too few weights": ((arrays(), {"sample_weight": [1.0]}), "each of the 6 sequences"),
    "a negative weight": ((arrays(), {"sample_weight": [1, 1, -1, 1, 1, 1]}), "entry 2 is -1"),
    "a weight that is missing": (
        (arrays(), {"sample_weight": [1, np.nan, 1, 1, 1, 1]}),
        "entry 1 is nan",
    ),
    "no weight at all": ((arrays(), {"sample_weight": np.zeros(6)}), "zero for all sequences"),
    "an empty validation set": ((arrays(), {"validation": []}), "`validation` must hold at least"),
    "validation with other columns": (
        (arrays(), {"validation": arrays(width=3)}),
        "`validation` must have a column for each variable",
    ),
    "validation of another schema": (
        (coloured([0, 1]), {"validation": Sequences.from_arrays(arrays())}),
        "`validation` must have the variables of the model",
    ),
}


@pytest.mark.parametrize("case", BAD_DATA)
@pytest.mark.usefixtures("no_learning")
def test_data_are_refused_before_the_long_work(case: str) -> None:
    (X, settings), message = BAD_DATA[case]
    with pytest.raises(DataError, match=message):
        HMM(2, em=QUICK, random_state=0).fit(X, **settings)


@pytest.mark.usefixtures("no_learning")
def test_categories_that_were_never_seen_are_named_where_the_schema_is_inferred() -> None:
    train = [np.array([["red"], ["blue"]], dtype=object)] * 4
    held = [np.array([["green"]], dtype=object)]
    with pytest.raises(DataError, match=r"must hold one of the categories.*'green'"):
        HMM(2, em=QUICK).fit(train, validation=held)


@pytest.mark.usefixtures("no_learning")
def test_weights_are_refused_by_the_learner_that_cannot_use_them() -> None:
    with pytest.raises(DataError, match="`sample_weight` must be left out"):
        DSPN(random_state=0).fit(arrays(), sample_weight=[1, 2, 1, 1, 1, 1])


def test_categories_of_the_validation_set_that_training_lacks_are_named() -> None:
    with pytest.warns(UserWarning, match=r"never occur in training \('colour': \['green'\]\)"):
        HMM(2, em=QUICK, random_state=0).fit(coloured([0, 1]), validation=coloured([0, 2]))


def test_constant_variables_are_named_and_learned_as_constant() -> None:
    values = [np.column_stack([array, np.full(4, 7.5)]) for array in arrays()]
    with pytest.warns(UserWarning, match="variables x2 have the same value"):
        fitted = HMM(2, em=QUICK, random_state=0).fit(values)
    gap = np.array([[0.0, 0.0, np.nan]])
    assert fitted.impute([gap]).values[0, 2] == pytest.approx(7.5, abs=1e-3)


def test_variables_that_were_never_observed_are_named() -> None:
    values = [np.column_stack([array, np.full(4, np.nan)]) for array in arrays()]
    with pytest.warns(UserWarning, match="variables x2 have no observed value"):
        fitted = HMM(2, em=QUICK, random_state=0).fit(values)
    assert np.isfinite(fitted.score(values))


def test_a_single_sequence_is_its_own_validation_set_with_a_warning() -> None:
    growth = GrowthOptions(max_interfaces=2, num_starts=1, em=QUICK)
    for estimator in (HMM(2, em=QUICK), DSPN(Paper(growth, None))):
        with pytest.warns(ConvergenceWarning, match="its own validation set"):
            estimator.set_params(random_state=0).fit(arrays(1))
        assert np.isfinite(estimator.validation_score_)


BAD_LABELS: dict[str, tuple[Any, str]] = {
    "too few": ([0, 1, 0], "label for each of the 6 sequences, but has 3"),
    "a missing one": ([0, 1, 0, np.nan, 1, 0], "entry 3 is"),
    "an absent one": (np.array(["a", "b", None, "a", "b", "a"], dtype=object), "entry 2 is None"),
    "an infinite one": ([0, 1, 0, np.inf, 1, 0], "entry 3 is"),
    "one class": (["a"] * 6, "at least two classes"),
    "numbers": (np.linspace(0.1, 0.7, 6), "Unknown label type: continuous"),
    "none": (None, "y should be a 1d array"),
    "two columns": (np.zeros((6, 2)), "y should be a 1d array"),
}


@pytest.mark.parametrize("case", BAD_LABELS)
@pytest.mark.usefixtures("no_learning")
def test_labels_are_refused_before_the_long_work(case: str) -> None:
    labels, message = BAD_LABELS[case]
    with pytest.raises(ValueError, match=message):
        DSPNClassifier(HMM(2)).fit(arrays(), labels)


@pytest.mark.parametrize(
    ("classifier", "message"),
    [
        (DSPNClassifier(HMM(2), mode="magic"), "`mode` must be 'generative' or"),
        (DSPNClassifier(HMM(2), ascent=AscentOptions()), "`ascent` must be None"),
        (DSPNClassifier(HMM(2), mode="discriminative", ascent=3), "`ascent` must be a Asc"),
        (DSPNClassifier("HMM"), "`estimator` must be a SequenceEstimator, found str"),
        (DSPNClassifier(HMM(0)), "`n_states`"),
        (DSPNClassifier(DSPN(checkpoint="a.dspn")), "`estimator` must have no `checkpoint`"),
    ],
)
@pytest.mark.usefixtures("no_learning")
def test_options_of_a_classifier_are_refused(classifier: DSPNClassifier, message: str) -> None:
    with pytest.raises(StructureError, match=message):
        classifier.fit(arrays(), [0, 1, 0, 1, 0, 1])


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        (arrays(), r"`validation` must be a pair \(X, y\)"),
        ((arrays(2), [0, 0]), "has none of 1"),
        ((arrays(2), [0, 7]), "must have the classes of `y`"),
        ((arrays(2), [0]), "label for each of the 2 sequences"),
    ],
)
@pytest.mark.usefixtures("no_learning")
def test_a_validation_set_of_a_classifier_has_labels(validation: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        DSPNClassifier(HMM(2)).fit(arrays(), [0, 1, 0, 1, 0, 1], validation=validation)


def test_a_class_with_a_single_sequence_is_named() -> None:
    with pytest.warns(ConvergenceWarning, match=r"classes \['rare'\] have a single sequence"):
        DSPNClassifier(HMM(2, em=QUICK)).fit(arrays(), ["often"] * 5 + ["rare"])


def test_fewer_sequences_than_folds_are_refused() -> None:
    with pytest.raises(ValueError, match="number of splits"):
        cross_val_score(HMM(2, em=QUICK), arrays(3), cv=5)
    with pytest.raises(ValueError, match="n_splits=3 cannot be greater"):
        cross_val_score(DSPNClassifier(HMM(2)), arrays(4), [0, 1, 0, 1], cv=StratifiedKFold(3))


def checkpointed(path: Path, **options: Any) -> DSPN:
    growth = GrowthOptions(max_interfaces=2, num_starts=1, em=QUICK)
    return DSPN(Paper(growth, None), checkpoint=path, **{"random_state": 0, **options})


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (arrays(7), {}, "other data"),
        (arrays(), {"random_state": 1}, "another run"),
        (arrays(), {"priors": Priors(0.5)}, "another run.*priors"),
        (arrays(), {"root": "last"}, "another run.*root"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(
    data: list[np.ndarray], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.dspn"
    checkpointed(path).fit(arrays())
    with pytest.raises(ModelFileError, match=message):
        checkpointed(path, resume=True, **options).fit(data)


def test_a_checkpoint_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.dspn"
    checkpointed(path).fit(arrays())
    before = path.read_bytes()
    with pytest.raises(ModelFileError, match="`resume=True`"):
        checkpointed(path).fit(arrays())
    assert path.read_bytes() == before


def test_a_model_without_a_search_state_is_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.dspn"
    HMM(2, em=QUICK, random_state=0).fit(arrays()).save(path)
    with pytest.raises(ModelFileError):
        checkpointed(path, resume=True).fit(arrays())


@pytest.mark.parametrize(
    "X", [np.zeros((4, 3)), [np.zeros((4, 3))], pd.DataFrame(np.zeros((4, 3)))]
)
def test_questions_with_other_columns_are_refused(X: Any) -> None:
    fitted = HMM(2, em=QUICK, random_state=0).fit(arrays())
    with pytest.raises(ValueError, match="3"):
        fitted.score(X)


def test_options_hold_their_own_rules() -> None:
    for make in (
        lambda: EmOptions(max_steps=-1),
        lambda: GrowthOptions(max_interfaces=0),
        lambda: SearchOptions(mode="fast"),
        lambda: Priors(-0.1),
        lambda: SliceSpnOptions(alpha=2),
        lambda: AscentOptions(patience=0),
    ):
        with pytest.raises(DspnError):
            make()


def test_a_failed_fit_leaves_the_last_model_as_it_was() -> None:
    fitted = HMM(2, em=QUICK, random_state=0).fit(arrays())
    model = fitted.model_
    with pytest.raises(DataError):
        fitted.fit(arrays(), validation=[])
    with pytest.raises(StructureError):
        fitted.set_params(n_states=0).fit(arrays())
    assert fitted.model_ is model
    assert isinstance(model, Model)
