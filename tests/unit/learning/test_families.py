"""Leaf families that held-out data choose, and those that real data ask for, in learned models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import dspn
from dspn.data import Kind, Schema, Sequences, Variable
from dspn.errors import DataError, StructureError
from dspn.learning import em_step
from dspn.learning.families import choose_families
from dspn.learning.priors import DEFAULT_PRIORS, log_prior
from dspn.learning.starts.clusters import clustered_network
from dspn.leaves import Gamma, StudentT

LEAVES = {
    "heavy": "student_t:3",
    "price": "log_normal",
    "load": "gamma",
    "hour": "von_mises:24",
    "trips": "negative_binomial",
    "alarms": "zero_inflated_poisson",
}


def drawn(num_sequences: int, num_slices: int = 25, seed: int = 0) -> Sequences:
    """Sequences of a chain of two states whose leaves are of all families, with gaps."""
    rng = np.random.default_rng(seed)
    shape = num_sequences, num_slices
    high = np.cumsum(rng.random(shape) < 0.1, axis=1) % 2
    columns = [
        np.where(high, 1.0, -1.0) + 0.3 * rng.standard_t(3, size=shape),
        np.exp(np.where(high, 1.0, -1.0) + 0.8 * rng.standard_normal(shape)),
        rng.gamma(2.0, np.where(high, 3.0, 0.5)),
        (np.where(high, 23.5, 9.0) + 4.0 * rng.vonmises(0.0, 8.0, size=shape)) % 24,
        rng.poisson(rng.gamma(1.5, np.where(high, 40.0, 8.0))),
        np.where(rng.random(shape) < 0.5, 0, rng.poisson(np.where(high, 9.0, 4.0))),
    ]
    values = np.stack(columns, axis=2).astype(float)
    values[rng.random(values.shape) < 0.1] = np.nan
    plain = Schema(tuple(Variable.of_kind(*own) for own in LEAVES.items())).without_leaves()
    return Sequences.from_arrays(list(values), schema=plain)


def test_em_never_falls_with_any_family_and_queries_are_those_of_its_leaves(tmp_path: Path) -> None:
    schema = Schema(tuple(Variable.of_kind(*own) for own in LEAVES.items()))
    data = drawn(12)
    model = dspn.HMM(2, schema=schema, random_state=0).fit(data)
    network = clustered_network(
        Sequences.from_codes(data.values, data.offsets, schema), 2, rng=np.random.default_rng(1)
    )
    before = -np.inf
    for _ in range(15):
        step = em_step(network, data)
        score = float(step.log_likelihood.sum()) + log_prior(network, DEFAULT_PRIORS)
        assert score >= before - 1e-9 * abs(score)
        before, network = score, step.network
    model.save(tmp_path / "model.dspn")
    assert dspn.load(tmp_path / "model.dspn").score(data) == model.score(data)
    ahead = model.forecast(data, steps=1).marginals
    for variable in schema:
        own = ahead[variable.name]
        assert np.all(np.diff(own.quantiles, axis=1) >= 0) and np.all(own.variance > 0)
    assert np.all((ahead["hour"].mean >= 0) & (ahead["hour"].mean < 24))
    assert np.all(ahead["price"].quantiles > 0)
    assert model.score(model.sample(20, 10, random_state=0)) > -np.inf


def test_held_out_data_choose_families_and_keep_the_usual_ones_otherwise() -> None:
    names = ["load", "hour", "trips"]
    data = drawn(100).select(names)
    schema, choices = choose_families(data[:70], data[70:], np.random.default_rng(0))
    assert [choice.family for choice in choices] == ["gamma", "von_mises:24", "negative_binomial"]
    assert schema[0].leaf == Gamma()
    again, _ = choose_families(data[:70], data[70:], np.random.default_rng(0))
    assert again == schema
    rng = np.random.default_rng(1)
    plain = np.stack([rng.normal(size=(40, 25)), rng.poisson(40, size=(40, 25))], axis=2)
    usual = Sequences.from_arrays(list(plain))
    assert [variable.kind for variable in usual.schema] == [Kind.CONTINUOUS, Kind.COUNT]
    assert choose_families(usual, None, np.random.default_rng(0))[0] == usual.schema


def test_estimators_choose_families_where_they_are_asked() -> None:
    data = drawn(40).select(["trips"])
    chosen = dspn.HMM(2, random_state=0, families="auto").fit(data)
    assert chosen.families_[0].family == chosen.schema_[0].leaf.name == "negative_binomial"
    assert dspn.HMM(2, random_state=0).fit(data).families_ == ()
    with pytest.raises(StructureError, match="`families` must be None or 'auto'"):
        dspn.HMM(2, families="all").fit(data)


def test_one_wrong_reading_does_not_bend_student_t_leaves() -> None:
    rng = np.random.default_rng(3)
    high = np.cumsum(rng.random((30, 30)) < 0.1, axis=1) % 2
    values = np.where(high, 1.0, -1.0) + 0.3 * rng.standard_normal(high.shape)
    found = []
    for wrong in (values[3, 4], 1e12):
        values[3, 4] = wrong
        schema = Schema((Variable.continuous("x", leaf=StudentT()),))
        model = dspn.HMM(2, schema=schema, random_state=0).fit(list(values[:, :, None]))
        rows = model.emissions_["x"]
        found.append(rows[np.argsort(rows[:, 0])])
    assert_allclose(found[0], found[1], atol=0.03)


def test_values_that_a_family_cannot_have_are_refused_by_their_place() -> None:
    schema = Schema((Variable.continuous("rain", leaf="gamma"),))
    with pytest.raises(DataError, match=r"'rain'.*'gamma'.*is 0 in sequence 1, slice 2 \("):
        dspn.HMM(2, schema=schema).fit([np.ones((4, 1)), np.array([[1.0], [2.0], [0.0]])])
