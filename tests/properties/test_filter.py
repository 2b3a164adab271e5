from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dspn import DynamicNetwork, FilterState, Model
from dspn.errors import EvidenceError
from oracles import log_likelihood, surprise_of_slice
from properties.exact_mixtures import assert_marginals
from strategies import as_sequences, random_case, random_network, random_recipe

Floats = NDArray[np.float64]


def given_rows(network: DynamicNetwork, values: Floats) -> list[Any]:
    """Coded slices as a user gives them: categories by their names."""
    return list(as_sequences(network.schema, [values]).to_arrays(decode=True)[0])


@pytest.mark.parametrize("seed", range(150))
def test_filter_gives_the_surprises_of_the_batch_for_root_first_tied(seed: int) -> None:
    network, arrays, data = random_case(seed, root="first", tied=True)
    model = Model(network)
    batch = model.surprise(data).slices
    for number, values in enumerate(arrays):
        stream = model.filter()
        steps = [stream.update(row) for row in given_rows(network, values)]
        surprises = [step.surprise for step in steps]
        start = int(data.offsets[number])
        np.testing.assert_allclose(
            surprises, batch[start : start + len(values)], rtol=1e-9, atol=1e-12
        )
        for t, step in enumerate(steps):
            expected = log_likelihood(network, values[: t + 1])
            np.testing.assert_allclose(step.log_likelihood, expected, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(
                step.surprise, surprise_of_slice(network, values, t), rtol=1e-9, atol=1e-11
            )
        np.testing.assert_allclose(
            -sum(surprises), log_likelihood(network, values), rtol=1e-10, atol=1e-11
        )


@pytest.mark.parametrize("seed", range(100))
def test_filter_predicts_the_next_slice(seed: int) -> None:
    network, arrays, _ = random_case(seed, root="first", tied=True)
    stream = Model(network).filter()
    values = max(arrays, key=len)
    rows = given_rows(network, values)
    for t in range(len(values) + 1):
        batch = as_sequences(
            network.schema, [np.vstack([values[:t], np.full((1, values.shape[1]), np.nan)])]
        )
        predicted = stream.predict()
        for v, variable in enumerate(network.schema):
            own = predicted[variable.name]
            assert len(own.slices) == 1, (t, v)
        _assert_next(network, batch, predicted, t)
        if t < len(values):
            stream.update(rows[t])


def _assert_next(network, batch, predicted, t: int) -> None:  # type: ignore[no-untyped-def]
    class Shifted:
        """The prediction, with its one slice counted as the last of the batch."""

        def __init__(self, own) -> None:  # type: ignore[no-untyped-def]
            self.variable, self.probabilities = own.variable, own.probabilities
            self.mean, self.variance = own.mean, own.variance
            self.levels, self.quantiles = own.levels, own.quantiles
            self.slices = np.array([t])

    shifted = {variable.name: Shifted(predicted[variable.name]) for variable in network.schema}
    assert_marginals(network, batch, shifted, rows={t})


@pytest.mark.parametrize("seed", range(60))
def test_filter_continues_from_a_saved_state(seed: int) -> None:
    network, arrays, _ = random_case(seed, root="first", tied=True)
    model = Model(network)
    rows = given_rows(network, max(arrays, key=len))
    whole, begun = model.filter(), model.filter()
    half = len(rows) // 2
    for row in rows[:half]:
        whole.update(row)
        begun.update(row)
    resumed = model.filter(FilterState.from_arrays(begun.state().to_arrays()))
    for row in rows[half:]:
        expected, found = whole.update(row), resumed.update(row)
        assert (found.surprise, found.log_likelihood) == (
            expected.surprise,
            expected.log_likelihood,
        )


@pytest.mark.parametrize("seed", range(150))
def test_filter_gives_the_surprise_of_the_network_of_its_length_for_any_root(seed: int) -> None:
    network, arrays, _ = random_case(seed)
    model = Model(network)
    for values in arrays:
        expected = [surprise_of_slice(network, values, t) for t in range(len(values))]
        if np.isfinite(expected).all():
            rows = given_rows(network, values)
            found = [step.surprise for step in map(model.filter().update, rows)]
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_stream_ends_at_an_impossible_slice() -> None:
    schema = random_network(random_recipe(0, kinds=("binary",))).schema
    model = Model.from_hmm([1.0], [[1.0]], {"x0": np.array([[1.0, 0.0]])}, schema=schema)
    stream = model.filter()
    assert stream.update(["no"]).surprise == 0.0
    step = stream.update(["yes"])
    assert (step.surprise, step.log_likelihood) == (np.inf, -np.inf)
    with pytest.raises(EvidenceError, match="slice 1"):
        stream.update(["no"])


def test_filters_of_one_model_do_not_disturb_each_other() -> None:
    network, arrays, _ = random_case(1, root="first", tied=True)
    model = Model(network)
    rows = given_rows(network, max(arrays, key=len))
    alone = [step.surprise for step in map(model.filter().update, rows)]
    one, other = model.filter(), model.filter()
    mixed = []
    for row in rows:
        mixed.append(one.update(row).surprise)
        other.update(np.full(len(row), np.nan))
    assert mixed == alone
