import numpy as np
import pytest
from numpy.testing import assert_allclose

from dspn import HMM, HMMSPN, Schema, Sequences, SliceSpnOptions, Variable
from dspn.learning import Priors

BITS = Schema(tuple(Variable.binary(f"x{i}") for i in range(4)))
SMALL = SliceSpnOptions(min_slices=20)


def parities(num_sequences: int, seed: int) -> Sequences:
    """Pairs of equal bits: x1 copies x0, and x3 copies x2, but for some noise."""
    rng = np.random.default_rng(seed)
    shape = (num_sequences, 8)
    first, third = rng.integers(2, size=shape), rng.integers(2, size=shape)
    noise = rng.random((*shape, 2)) < 0.05
    values = np.stack([first, first ^ noise[..., 0], third, third ^ noise[..., 1]], axis=2)
    return Sequences.from_arrays(list(values.astype(float)), schema=BITS)


def test_dependence_within_a_slice_is_learned_where_an_hmm_of_as_many_states_cannot() -> None:
    train, test = parities(150, 0), parities(100, 1)
    plain = HMM(1, random_state=0).fit(train)
    fitted = HMMSPN(1, random_state=0).fit(train)
    # The entropy of a slice: two fair bits, and two that are wrong once in twenty times.
    entropy = 2 * np.log(2) - 2 * (0.05 * np.log(0.05) + 0.95 * np.log(0.95))
    assert plain.score(test) == pytest.approx(-8 * 4 * np.log(2), rel=0.01)
    assert fitted.score(test) == pytest.approx(-8 * entropy, rel=0.03)


def test_slices_without_dependence_keep_the_product_of_an_hmm() -> None:
    rng = np.random.default_rng(2)
    arrays = list(rng.integers(2, size=(60, 6, 4)).astype(float))
    fitted = HMMSPN(2, random_state=0, schema=BITS).fit(arrays)
    assert fitted.network_.template.num_edges == 2 * (4 + 1 + 2)


def test_chain_of_states_is_a_distribution() -> None:
    fitted = HMMSPN(3, emission=SMALL, random_state=0).fit(parities(60, 3))
    assert_allclose(fitted.transition_matrix_.sum(axis=1), np.ones(3), rtol=1e-9)
    assert_allclose(fitted.start_probabilities_.sum(), 1.0, rtol=1e-9)


def test_every_step_raises_the_penalised_likelihood() -> None:
    fitted = HMMSPN(2, emission=SMALL, random_state=0, validation_fraction=0).fit(parities(60, 4))
    assert np.all(np.diff([record.penalised for record in fitted.history_]) >= -1e-9)


def test_the_same_random_state_gives_the_same_model() -> None:
    data = parities(60, 5)
    one, other = (HMMSPN(2, emission=SMALL, random_state=3).fit(data) for _ in range(2))
    assert one.network_.fingerprint == other.network_.fingerprint


def test_weights_and_gaps_and_all_kinds_of_variables_are_learned_from() -> None:
    rng = np.random.default_rng(6)
    arrays = []
    for length in rng.integers(1, 9, size=40):
        bit = rng.integers(2, size=length).astype(float)
        level = rng.normal(3 * bit)
        calls = rng.poisson(2 + 3 * bit).astype(float)
        values = np.stack([bit, level, calls], axis=1)
        values[rng.random(values.shape) < 0.2] = np.nan
        arrays.append(values)
    schema = Schema((Variable.binary("bit"), Variable.continuous("level"), Variable.count("calls")))
    data = Sequences.from_arrays(arrays, schema=schema)
    weights = rng.random(40)
    fitted = HMMSPN(2, emission=SMALL, priors=Priors(0.5), random_state=0)
    fitted.fit(data, sample_weight=weights)
    assert np.isfinite(fitted.score_samples(data)).all()
