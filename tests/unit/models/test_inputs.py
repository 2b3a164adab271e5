"""Estimators with inputs: transitions by an input, queries, forecasts and files."""

from pathlib import Path

import numpy as np
import pytest

import dspn
from dspn import DSPN, HMM, Auto, DataError, EmOptions, StructureError
from dspn.inputs import Phase, Position

QUICK = EmOptions(max_steps=30)


def _switching(rng: np.random.Generator, count: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """A state that stays where the input says "stay" and changes where it says "change"."""
    arrays, inputs = [], []
    for _ in range(count):
        told = rng.choice(["stay", "change"], 20)
        state, values = rng.integers(2), []
        for word in told:
            values.append(float(rng.random() < (0.9 if state else 0.1)))
            state = state if (word == "stay") == (rng.random() < 0.95) else 1 - state
        arrays.append(np.array(values))
        inputs.append(told)
    return arrays, inputs


def test_transitions_by_an_input_are_learned_and_used_in_every_query(tmp_path: Path) -> None:
    X, known = _switching(np.random.default_rng(0), 120)
    test, told = _switching(np.random.default_rng(1), 60)
    plain = HMM(2, em=QUICK, random_state=0).fit(X)
    model = HMM(2, by="u0", em=QUICK, random_state=0).fit(X, inputs=known)
    assert model.score(test, inputs=told) > plain.score(test) + 1.0
    matrices = model.transition_matrix_
    assert matrices.shape == (2, 2, 2)  # a matrix for "change" and for "stay"
    assert np.diag(matrices[0]).mean() < 0.4 < 0.6 < np.diag(matrices[1]).mean()
    gaps = [own.copy() for own in test[:4]]
    for own in gaps:
        own[5:8] = np.nan
    filled = model.impute(gaps, inputs=told[:4])
    assert not np.isnan(filled.values).any()
    np.testing.assert_array_equal(filled.inputs, model._read(gaps, inputs=told[:4]).inputs)
    lengths = [len(own) for own in gaps]
    rows = model.log_likelihood(
        np.concatenate(gaps)[:, None], lengths=lengths, inputs=np.concatenate(told[:4])
    )
    np.testing.assert_allclose(rows, model.log_likelihood(gaps, inputs=told[:4]))
    data = dspn.Sequences.from_arrays(gaps, schema=model.schema_, inputs=told[:4])
    ahead = model.forecast(data, 2, inputs=np.array(["stay", "change"]))
    joined = model.marginals(data.extended(2, np.array(["stay", "change"])))
    np.testing.assert_allclose(
        ahead.marginals[0].probabilities[:2], joined[0].probabilities[3:5], rtol=1e-12
    )
    drawn = model.sample_futures(data, 2, inputs=np.array(["stay", "change"]), random_state=0)
    assert drawn.lengths.tolist() == [22] * 4
    sampled = model.sample(2, 3, inputs=np.array(["stay"] * 6), random_state=0)
    assert sampled.inputs[:, 0].tolist() == [1.0] * 6
    model.save(tmp_path / "model.dspn")
    again = dspn.load(tmp_path / "model.dspn")
    np.testing.assert_array_equal(again.log_likelihood(data), model.log_likelihood(data))
    for mistake, message in (
        (lambda: model.score(test), "`inputs` must have a column for each input"),
        (lambda: model.forecast(data, 2), "`inputs` of the 2 slices ahead must be given"),
        (lambda: model.forecast(data, 2, inputs=np.array(["stay"])), "each of the 2 slices ahead"),
    ):
        with pytest.raises(DataError, match=message):
            mistake()


def test_a_rule_needs_no_data_of_its_own() -> None:
    rng = np.random.default_rng(3)
    X = [((np.arange(12) // 3 + rng.integers(2)) % 2).astype(float) for _ in range(80)]
    model = HMM(2, by=Phase(3), em=QUICK, random_state=0).fit(X)
    plain = HMM(2, em=QUICK, random_state=0).fit(X)
    assert model.score(X) > plain.score(X) + 1.0
    assert model.forecast(X[:2], 3).sequences.inputs[12:15, 0].tolist() == [0.0, 1.0, 2.0]
    stream = model.filter()
    for value in X[0]:
        stream.predict()
        stream.update([value])
    assert stream.state().num_slices == 12


def test_an_input_that_is_not_there_is_refused() -> None:
    X = [np.arange(4.0) % 2] * 3
    with pytest.raises(DataError, match="no input 'hour'"):
        HMM(2, by="hour").fit(X)
    with pytest.raises(StructureError, match="categorical input"):
        HMM(2, by="u0").fit(X, inputs=[np.linspace(0, 1, 4)] * 3)
    assert HMM(2, by=Position(3)).get_params()["by"] == Position(3)


def test_the_automatic_learner_keeps_an_input_that_pays_and_no_other() -> None:
    X, known = _switching(np.random.default_rng(0), 150)
    test, told = _switching(np.random.default_rng(1), 60)
    rng = np.random.default_rng(2)

    def with_noise(inputs: list[np.ndarray]) -> list[np.ndarray]:
        noise = [rng.choice(["a", "b"], len(own)) for own in inputs]
        return [np.stack([a, b], axis=1).astype(object) for a, b in zip(noise, inputs, strict=True)]

    model = DSPN(Auto(effort=5, max_interfaces=2), random_state=0).fit(X, inputs=with_noise(known))
    assert [(own.name, own.kept) for own in model.tables_] == [("u0", False), ("u1", True)]
    told = with_noise(told)
    plain = DSPN(Auto(effort=5, max_interfaces=2), random_state=0).fit(X)
    assert model.score(test, inputs=told) > plain.score(test) + 1.0
