"""What `fit` returned and what `load` returns answer the same calls, bit for bit."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import dspn
from dspn import (
    DSPN,
    HMM,
    HMMSPN,
    Auto,
    ConditionalLikelihood,
    DSPNClassifier,
    Em,
    EmOptions,
    Model,
    ModelFileError,
    Paper,
    Priors,
)
from dspn.learning import GrowthOptions, SearchOptions
from dspn.learning.run import describe_options
from dspn.leaves import GaussianPrior
from dspn.models.estimator import SequenceEstimator

SCHEMA = dspn.Schema((dspn.Variable.categorical("sky", ("dry", "wet")), dspn.Variable.count("n")))
_RNG = np.random.default_rng(0)
ROWS = np.stack([_RNG.integers(2, size=90), _RNG.poisson(4, size=90)], axis=1)
TEXT = [[["dry" if a == 0 else "wet", int(b)] for a, b in part] for part in np.split(ROWS, 9)]
DATA = dspn.Sequences.from_arrays(TEXT, schema=SCHEMA)
GAPS = dspn.Sequences.from_arrays([[["dry", 3], [None, 5], ["wet", None]]], schema=SCHEMA)
QUERY = dspn.Sequences.from_arrays([[[None, None], ["wet", None], [None, 4]]], schema=SCHEMA)
FEW = EmOptions(max_steps=4, min_steps=4)
LABELS = ["a", "b", "c"] * 3

pytestmark = pytest.mark.filterwarnings("ignore::dspn.ConvergenceWarning")


def paper() -> DSPN:
    growth = GrowthOptions(max_interfaces=2, em=FEW)
    search = SearchOptions(max_neighbours=2, max_failures=1)
    return DSPN(Paper(growth, search), random_state=1)


MADE: dict[str, Callable[[], Any]] = {
    "DSPN": lambda: DSPN(Auto(effort=1e-3), random_state=0).fit(DATA),
    "DSPN of the paper": lambda: paper().fit(DATA),
    "HMM": lambda: HMM(
        [1, 2], em=FEW, priors=Priors(0.5, (GaussianPrior(1.0),)), random_state=0
    ).fit(DATA),
    "HMMSPN": lambda: HMMSPN(2, em=FEW, random_state=0).fit(DATA),
    "DSPNClassifier": lambda: DSPNClassifier(HMM(2, em=FEW, random_state=0)).fit(DATA, LABELS),
    "Model": lambda: HMM(2, em=FEW, random_state=0).fit(DATA).model_,
}

# How each query is asked; a method that is not here has to be put here.
ASKED: dict[str, Callable[[Any], Any]] = {
    "score_samples": lambda own: own.score_samples(GAPS),
    "score": lambda own: own.score(DATA, LABELS),
    "log_likelihood": lambda own: own.log_likelihood(GAPS),
    "log_prob": lambda own: own.log_prob(QUERY, GAPS),
    "marginals": lambda own: own.marginals(GAPS, quantiles=(0.1, 0.9)),
    "interface_posteriors": lambda own: own.interface_posteriors(GAPS),
    "component_posteriors": lambda own: own.component_posteriors(GAPS),
    "impute": lambda own: own.impute(GAPS),
    "impute_with_bands": lambda own: own.impute_with_bands(GAPS),
    "transform": lambda own: own.transform(GAPS),
    "evaluate": lambda own: own.evaluate(DATA, seed=3),
    "backtest": lambda own: own.backtest(DATA, 2),
    "complete": lambda own: own.complete(GAPS),
    "surprise": lambda own: own.surprise(DATA),
    "forecast": lambda own: own.forecast(DATA, 3),
    "filter": lambda own: own.filter().update(["dry", 4]),
    "sample": lambda own: own.sample(4, 5, **seeded(own)),
    "sample_given": lambda own: own.sample_given(GAPS, **seeded(own)),
    "sample_futures": lambda own: own.sample_futures(DATA, 2, **seeded(own)),
    "over": lambda own: own.over(["n"]).log_likelihood([[[3.0]]]),
    "predict": lambda own: own.predict(DATA),
    "predict_proba": lambda own: own.predict_proba(DATA),
    "predict_log_proba": lambda own: own.predict_log_proba(DATA),
}
MAKERS = {"fit", "fit_transform", "partial_fit", "load", "save", "from_hmm", "from_dbn", "to"}
NOT_KEPT = {"history_", "dead_", "trail_", "tables_", "growth_", "estimators_"}


def seeded(own: Any) -> dict[str, Any]:
    return {"rng": np.random.default_rng(5)} if isinstance(own, Model) else {"random_state": 5}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        if one.dtype == object:
            return same(one.tolist(), other.tolist())
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, dspn.Mixture | dspn.DynamicNetwork):
        return one.fingerprint == other.fingerprint
    if isinstance(one, Model):
        told = one.provenance == other.provenance
        return told and same(one.mixture, other.mixture) and same(one.online, other.online)
    if isinstance(one, dspn.Sequences):
        return same(one.values, other.values) and same(one.lengths, other.lengths)
    if is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other or (one != one and other != other))


@pytest.fixture(scope="module", params=MADE)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = MADE[request.param]()
    path = tmp_path_factory.mktemp("saved") / "own.dspn"
    made.save(path)
    return made, dspn.load(path), path


def test_every_estimator_is_among_them() -> None:
    below = SequenceEstimator.__subclasses__()
    kinds = {kind.__name__ for own in below for kind in own.__subclasses__() or [own]}
    assert {*kinds, "DSPNClassifier", "Model"} <= MADE.keys()


def test_a_loaded_model_is_of_the_class_that_was_saved(pair: Any) -> None:
    made, again, path = pair
    assert type(again) is type(made)
    assert type(type(made).load(path)) is type(made)


def test_a_loaded_model_answers_every_query_bit_for_bit(pair: Any) -> None:
    made, again, _ = pair
    queries = {
        name
        for name in dir(made)
        if not name.startswith(("_", "get_", "set_"))
        and callable(getattr(type(made), name, None))
        and name not in MAKERS
    }
    assert queries and queries <= ASKED.keys()
    for name in sorted(queries):
        assert same(ASKED[name](made), ASKED[name](again)), name


def test_a_loaded_model_has_what_was_learned(pair: Any) -> None:
    made, again, _ = pair
    learned = {name for name in dir(made) if name[0] != "_" and name[-1] == "_"} - NOT_KEPT
    for name in sorted(learned):
        assert same(getattr(made, name), getattr(again, name)), name


def test_a_loaded_model_is_saved_as_it_was(pair: Any, tmp_path: Path) -> None:
    _, again, path = pair
    again.save(tmp_path / "again.dspn")
    assert (tmp_path / "again.dspn").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["DSPN of the paper", "HMM"])
def test_a_loaded_estimator_learns_the_same_again(name: str, tmp_path: Path) -> None:
    made = MADE[name]()
    made.save(tmp_path / "own.dspn")
    again = clone(dspn.load(tmp_path / "own.dspn"))
    given, found = made.get_params(), again.get_params()
    assert found.pop("schema") == SCHEMA
    assert found == {key: value for key, value in given.items() if key != "schema"}
    assert again.fit(DATA).model_.mixture.fingerprint == made.mixture_.fingerprint


def test_an_estimator_of_nameless_columns_stays_so(tmp_path: Path) -> None:
    rows = ROWS.astype(float)
    made = HMM(2, em=FEW, random_state=0).fit(rows, lengths=[10] * 9)
    made.save(tmp_path / "own.dspn")
    again = dspn.load(tmp_path / "own.dspn")
    assert not hasattr(again, "feature_names_in_") and again.n_features_in_ == 2
    one, other = made.score_samples(rows, lengths=[90]), again.score_samples(rows, lengths=[90])
    assert same(one, other)
    assert same(made.model_.score_samples(rows, lengths=[90]), one)
    assert made.model_.score(rows, lengths=[90]) == made.score(rows, lengths=[90])


def test_the_model_of_an_estimator_is_saved_as_a_model(tmp_path: Path) -> None:
    made = MADE["HMM"]()
    made.save(tmp_path / "hmm.dspn")
    made.model_.save(tmp_path / "model.dspn")
    assert type(dspn.load(tmp_path / "model.dspn")) is Model
    bare = Model.load(tmp_path / "hmm.dspn")
    assert type(bare) is Model and bare.provenance == made.model_.provenance
    # A file of a release that kept the model alone can be taken for its estimator.
    old = HMM.load(tmp_path / "model.dspn")
    assert same(old.transition_matrix_, made.transition_matrix_)


EM = EmOptions(max_steps=9)
# Parameters as files had them before learners were objects.
OLD_PARAMETERS = [
    (
        {"learner": "auto", "effort": 0.5, "max_interfaces": 6, "auto": None},
        Auto(0.5, max_interfaces=6),
    ),
    (
        {"learner": "auto", "effort": None, "auto": {"class": "AutoOptions", "patience": 3}},
        Auto(patience=3),
    ),
    (
        {"learner": "paper", "n_interfaces": 3, "growth": None, "search": False},
        Paper(GrowthOptions(min_interfaces=3, max_interfaces=3), None),
    ),
    (
        {
            "learner": "paper",
            "growth": {"class": "GrowthOptions", "max_interfaces": 5, "em": describe_options(EM)},
            "search": {"class": "SearchOptions", "max_failures": 7},
            "scoring": {"class": "ConditionalLikelihood", "class_variables": ["sky"]},
            "checkpoint_every": 30.0,
        },
        Paper(
            GrowthOptions(max_interfaces=5, em=EM),
            SearchOptions(max_failures=7),
            ConditionalLikelihood(("sky",)),
            30.0,
        ),
    ),
    ({"learner": "em", "n_interfaces": 3, "em": describe_options(EM), "growth": None}, Em(3, EM)),
]


@pytest.mark.parametrize(("parameters", "learner"), OLD_PARAMETERS)
def test_options_of_files_of_before_become_those_of_the_learner(
    parameters: Any, learner: Any, tmp_path: Path
) -> None:
    told = {"estimator": "DSPN", "fitted": {}, "parameters": {**parameters, "root": "last"}}
    Model(MADE["Model"]().mixture, provenance=told).save(tmp_path / "old.dspn")
    again = dspn.load(tmp_path / "old.dspn")
    assert again.learner == learner
    assert again.root == "last"


def test_an_estimator_of_another_class_is_refused(tmp_path: Path) -> None:
    MADE["HMM"]().save(tmp_path / "hmm.dspn")
    with pytest.raises(ModelFileError, match=r"hmm.dspn' as DSPN: no DSPN has learned"):
        DSPN.load(tmp_path / "hmm.dspn")


@pytest.mark.parametrize(
    "told",
    [
        {"estimator": "HMM", "fitted": {"validation_scores_": {"x": None}, "model_": 3}},
        {"estimator": "HMM", "fitted": {}, "parameters": {"em": {"class": "eval"}, "n_states": {}}},
        {"estimator": "HMM", "fitted": {}, "parameters": [1], "seed": "x", "ending": ["x"]},
        {"estimator": "DSPN", "fitted": {}, "parameters": {"learner": "auto", "auto": 3}},
        {"estimator": "DSPN", "fitted": {}, "parameters": {"learner": "em", "em": [1]}},
        {"estimator": "DSPN", "fitted": {}, "parameters": {"priors": {"class": "Priors", "x": 1}}},
    ],
)
def test_what_a_file_tells_of_an_estimator_is_not_trusted(told: Any, tmp_path: Path) -> None:
    model = MADE["Model"]()
    Model(model.mixture, provenance=told).save(tmp_path / "own.dspn")
    again = dspn.load(tmp_path / "own.dspn")
    assert type(again).__name__ == told["estimator"]
    assert same(again.score_samples(GAPS), model.score_samples(GAPS))
