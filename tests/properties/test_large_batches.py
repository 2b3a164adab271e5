"""Many ragged sequences at once: blocks, segments, repeated slices, lanes of different length."""

import numpy as np
import pytest

from dspn import Model, Sequences
from dspn.errors import EvidenceError
from dspn.structure import DynamicNetwork
from properties.log_space import LogSpace
from strategies import as_sequences, draw_sequence, hide, random_network, random_recipe

KINDS = [
    ("binary",),
    ("ternary", "binary"),
    ("binary", "continuous"),
    ("count", "binary", "single"),
]


def large_case(seed: int) -> tuple[DynamicNetwork, list[np.ndarray], Sequences]:
    """150 sequences of 1 to 15 slices; categorical ones repeat few distinct slices."""
    network = random_network(random_recipe(seed, kinds=KINDS[seed % 4]))
    rng = np.random.default_rng([29, seed])
    lengths = rng.integers(1, 16, size=150).tolist()
    arrays = [hide(draw_sequence(network, length, rng), rng, 0.2) for length in lengths]
    return network, arrays, as_sequences(network.schema, arrays)


@pytest.mark.parametrize("seed", range(16))
def test_every_query_of_a_large_batch_agrees_with_log_space(seed: int) -> None:
    network, arrays, data = large_case(seed)
    model = Model(network)
    references = [LogSpace(network, values) for values in arrays]
    expected = [reference.log_likelihood for reference in references]
    np.testing.assert_allclose(model.log_likelihood(data), expected, rtol=1e-9, atol=1e-12)
    best = [reference.best_completion for reference in references]
    np.testing.assert_allclose(model.complete(data).log_prob, best, rtol=1e-9, atol=1e-12)
    posteriors = [reference.posteriors for reference in references]
    chosen = np.concatenate([interfaces for interfaces, _ in posteriors])
    np.testing.assert_allclose(model.interface_posteriors(data), chosen, rtol=1e-9, atol=1e-12)
    marginals = model.marginals(data)
    for v, variable in enumerate(network.schema):
        mixed = [
            weights @ rows
            for values, reference, (_, leaves) in zip(arrays, references, posteriors, strict=True)
            for t in np.flatnonzero(np.isnan(values[:, v])).tolist()
            for weights, rows in [reference.mixture(t, v, leaves)]
        ]
        own = marginals[variable.name]
        found = own.probabilities if variable.num_categories else own.mean[:, None]
        width = found.shape[1]
        np.testing.assert_allclose(found, np.array(mixed)[:, :width], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("query", ["marginals", "complete", "interface_posteriors", "impute"])
def test_query_given_an_impossible_sequence_is_refused_and_the_sequence_named(query: str) -> None:
    schema = random_network(random_recipe(0, kinds=("binary",))).schema
    model = Model.from_hmm([1.0], [[1.0]], {"x0": np.array([[1.0, 0.0]])}, schema=schema)
    arrays = [np.zeros((3, 1)), np.array([[0.0], [np.nan], [1.0]]), np.zeros((2, 1))]
    with pytest.raises(EvidenceError, match=r"sequence 1\b.*slice 2\b"):
        getattr(model, query)(as_sequences(schema, arrays))


def test_conditional_sample_of_an_impossible_sequence_is_refused() -> None:
    schema = random_network(random_recipe(0, kinds=("binary",))).schema
    model = Model.from_hmm([1.0], [[1.0]], {"x0": np.array([[1.0, 0.0]])}, schema=schema)
    data = as_sequences(schema, [np.array([[1.0], [np.nan]])])
    with pytest.raises(EvidenceError, match=r"sequence 0\b.*slice 0\b"):
        model.sample_given(data, rng=np.random.default_rng(0))
