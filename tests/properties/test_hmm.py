"""An imported hidden Markov model against hmmlearn, on ragged data."""

import numpy as np
import pytest
from hmmlearn import hmm

from dspn import Model
from strategies import as_sequences, schema_of

LENGTHS = [1, 2, 17, 60, 5, 200]


def categorical(seed: int):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    theirs = hmm.CategoricalHMM(n_components=4, n_features=5, implementation="log")
    theirs.startprob_ = rng.dirichlet(np.ones(4))
    theirs.transmat_ = rng.dirichlet(np.full(4, 0.5), size=4)
    theirs.emissionprob_ = rng.dirichlet(np.full(5, 0.5), size=4)
    schema = _five_categories()
    ours = Model.from_hmm(
        theirs.startprob_, theirs.transmat_, {"x0": theirs.emissionprob_}, schema=schema
    )
    arrays = [rng.integers(5, size=(length, 1)).astype(float) for length in LENGTHS]
    return theirs, ours, [values.astype(int) for values in arrays], as_sequences(schema, arrays)


def _five_categories():  # type: ignore[no-untyped-def]
    from dspn import Schema, Variable

    return Schema((Variable.categorical("x0", ("v", "w", "x", "y", "z")),))


def gaussian(seed: int):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    theirs = hmm.GaussianHMM(n_components=3, covariance_type="diag", implementation="log")
    theirs.n_features = 2
    theirs.startprob_ = rng.dirichlet(np.ones(3))
    theirs.transmat_ = rng.dirichlet(np.full(3, 0.5), size=3)
    theirs.means_ = rng.normal(scale=2.0, size=(3, 2))
    theirs.covars_ = rng.uniform(0.3, 2.0, size=(3, 2))
    schema = schema_of(("continuous", "continuous"))
    variances = np.stack([np.diag(matrix) for matrix in theirs.covars_])
    emissions = {
        f"x{v}": np.stack([theirs.means_[:, v], variances[:, v]], axis=1) for v in range(2)
    }
    ours = Model.from_hmm(theirs.startprob_, theirs.transmat_, emissions, schema=schema)
    arrays = [rng.normal(scale=2.0, size=(length, 2)) for length in LENGTHS]
    return theirs, ours, arrays, as_sequences(schema, arrays)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [categorical, gaussian])
def test_log_likelihood_is_that_of_hmmlearn(kind, seed: int) -> None:  # type: ignore[no-untyped-def]
    theirs, ours, arrays, data = kind(seed)
    expected = [theirs.score(values) for values in arrays]
    np.testing.assert_allclose(ours.log_likelihood(data), expected, rtol=1e-8)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [categorical, gaussian])
def test_state_posteriors_are_those_of_hmmlearn(kind, seed: int) -> None:  # type: ignore[no-untyped-def]
    theirs, ours, arrays, data = kind(seed)
    expected = np.concatenate([theirs.predict_proba(values) for values in arrays])
    np.testing.assert_allclose(ours.interface_posteriors(data), expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [categorical, gaussian])
def test_completion_is_the_viterbi_path_of_hmmlearn(kind, seed: int) -> None:  # type: ignore[no-untyped-def]
    theirs, ours, arrays, data = kind(seed)
    decoded = [theirs.decode(values, algorithm="viterbi") for values in arrays]
    completion = ours.complete(data)
    np.testing.assert_allclose(completion.log_prob, [score for score, _ in decoded], rtol=1e-8)
    # Paths of exactly equal probability are equally good: each must attain hmmlearn's score.
    with np.errstate(divide="ignore"):
        log_start, log_moves = np.log(theirs.startprob_), np.log(theirs.transmat_)
    for index, values in enumerate(arrays):
        path = completion.interfaces[data.offsets[index] : data.offsets[index + 1], 0]
        seen = theirs._compute_log_likelihood(values)[np.arange(len(values)), path].sum()
        attained = log_start[path[0]] + log_moves[path[:-1], path[1:]].sum() + seen
        np.testing.assert_allclose(attained, decoded[index][0], rtol=1e-12)
