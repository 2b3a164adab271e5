"""A leaf family from outside the library, that of the page on extending it, in every part."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import dspn
from dspn import (
    DSPN,
    HMM,
    HMMSPN,
    Auto,
    DSPNClassifier,
    Em,
    EmOptions,
    GrowthOptions,
    Model,
    Paper,
    SearchOptions,
)
from dspn.errors import DataError, ModelFileError
from dspn.learning import em_step, log_prior
from dspn.learning.priors import DEFAULT_PRIORS
from dspn.structure import grouped_network
from integration.docs_pages import Session, examples

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
SESSION = Session(PAGE)
SESSION.run(next(one for one in examples(PAGE) if "class StudentT" in one.source))
StudentT: Any = SESSION.namespace["StudentT"]

SCHEMA = dspn.Schema((dspn.Variable.continuous("x", leaf=StudentT(3.0)), dspn.Variable.binary("b")))
_RNG = np.random.default_rng(0)
_HIGH = np.cumsum(_RNG.random((24, 15)) < 0.15, axis=1) % 2
_NOISE = 0.3 * _RNG.standard_t(3.0, size=_HIGH.shape)
X = [
    np.stack(rows, axis=1) for rows in zip(np.where(_HIGH, 1.0, -1.0) + _NOISE, _HIGH, strict=True)
]
GAPS = [np.where(_RNG.random(one.shape) < 0.3, np.nan, one) for one in X[:4]]
FEW = EmOptions(max_steps=4, min_steps=4)
ESTIMATORS: dict[str, Any] = {
    "auto": DSPN(Auto(effort=1e-3), schema=SCHEMA, random_state=0),
    "paper": DSPN(
        Paper(GrowthOptions(max_interfaces=2, em=FEW), SearchOptions(max_neighbours=2)),
        schema=SCHEMA,
        random_state=0,
    ),
    "em": DSPN(Em(2, FEW), root="last", tied=False, schema=SCHEMA, random_state=0),
    "hmm": HMM(2, em=FEW, schema=SCHEMA, random_state=0),
    "hmm-spn": HMMSPN(2, em=FEW, schema=SCHEMA, random_state=0),
}

pytestmark = pytest.mark.filterwarnings("ignore::dspn.ConvergenceWarning")


@pytest.fixture(scope="module", params=ESTIMATORS)
def fitted(request: pytest.FixtureRequest) -> Any:
    return ESTIMATORS[request.param].fit(X)


def test_every_learner_uses_the_family_of_the_variable(fitted: Any) -> None:
    for network in fitted.mixture_:
        assert isinstance(network.template.banks[0].family, StudentT)
    plain = dspn.Sequences.from_arrays(X, schema=SCHEMA.without_leaves())
    assert_allclose(fitted.score_samples(plain), fitted.score_samples(X), rtol=0)


def test_queries_agree_with_the_density_of_the_family(fitted: Any) -> None:
    """P(x | rest) of one gap, by log-likelihoods on a grid."""
    gap = X[0][:5].copy()
    gap[2, 0] = np.nan
    grid = np.linspace(-40.0, 40.0, 8001)
    whole = [np.where(np.isnan(gap), value, gap) for value in grid]
    density = np.exp(fitted.score_samples(whole) - fitted.score_samples([gap]))
    assert_allclose(np.trapezoid(density, grid), 1.0, rtol=1e-4)
    found = fitted.marginals([gap], quantiles=[0.1, 0.9])["x"]
    below = [np.trapezoid(np.where(grid <= q, density, 0.0), grid) for q in found.quantiles[0]]
    assert_allclose(below, [0.1, 0.9], atol=5e-3)
    assert_allclose(np.trapezoid(grid * density, grid), found.mean[0], atol=1e-3)
    drawn = fitted.sample_given([gap] * 3000, random_state=0).values[2::5, 0]
    assert_allclose(np.mean(drawn <= found.quantiles[0][0]), 0.1, atol=0.03)
    completed = fitted.complete([gap]).sequences.values[2, 0]
    networks = [network.parameters for network in fitted.mixture_]
    parts = [part for own in networks for part in (own.template, own.bottom) if part is not None]
    assert completed in np.concatenate([part.leaves[0][:, 0] for part in parts])


def test_files_name_the_family_and_load_with_its_class(fitted: Any, tmp_path: Path) -> None:
    path = tmp_path / "own.dspn"
    fitted.save(path)
    with pytest.raises(ModelFileError, match=r"'student-t'.*families="):
        dspn.load(path)
    for families in ([StudentT], [StudentT(9.0)]):
        again = dspn.load(path, families=families)
        assert type(again) is type(fitted) and again.schema_ == SCHEMA
        assert again.mixture_.fingerprint == fitted.mixture_.fingerprint
        assert_allclose(again.score_samples(GAPS), fitted.score_samples(GAPS), rtol=0)
    assert Model.load(path, families=[StudentT]).schema[0].leaf == StudentT(3.0)


def test_classifiers_and_checkpoints_take_the_family(tmp_path: Path) -> None:
    classifier = DSPNClassifier(ESTIMATORS["hmm"]).fit(X, [0, 1] * 12)
    classifier.save(tmp_path / "classes.dspn")
    again = dspn.load(tmp_path / "classes.dspn", families=[StudentT])
    assert_allclose(again.predict_proba(GAPS), classifier.predict_proba(GAPS), rtol=0)
    for name in ("auto", "paper"):
        place = tmp_path / name
        first, second = (
            DSPN(
                ESTIMATORS[name].learner, schema=SCHEMA, random_state=0, checkpoint=place, resume=on
            )
            for on in (False, True)
        )
        assert first.fit(X).mixture_.fingerprint == second.fit(X).mixture_.fingerprint


@pytest.mark.parametrize("tied", [True, False])
def test_no_step_of_em_lowers_the_penalised_likelihood(tied: bool) -> None:
    rng = np.random.default_rng(1)
    data = dspn.Sequences.from_arrays([*X, *GAPS], schema=SCHEMA)
    groups = ((0,), (1,))
    chains = HMM(3, em=FEW, schema=SCHEMA, random_state=0).fit(X).network_
    grouped = grouped_network(SCHEMA, groups=groups, num_interfaces=2, num_products=2, rng=rng)
    for network in (chains, grouped):
        network = network if tied else network.untied()
        before = -np.inf
        for _ in range(12):
            step = em_step(network, data)
            score = float(step.log_likelihood.sum()) + log_prior(network, DEFAULT_PRIORS)
            assert score >= before - 1e-9 * abs(score)
            before, network = score, step.network


@pytest.mark.parametrize("leaf", ["t", StudentT, 3])
def test_a_leaf_that_is_no_family_is_refused(leaf: Any) -> None:
    with pytest.raises(DataError, match=r"`leaf` of variable 'x' must be a value of a `dspn.leave"):
        dspn.Variable.continuous("x", leaf=leaf)
    with pytest.raises(DataError, match="for a categorical variable"):
        dspn.Variable("x", dspn.Kind.CATEGORICAL, (0, 1), StudentT())
