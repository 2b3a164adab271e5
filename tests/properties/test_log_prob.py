import math
from itertools import product

import numpy as np
import pytest

from dspn import Model
from dspn.errors import EvidenceError
from oracles import likelihood
from strategies import as_sequences, draw_sequence, random_case, random_network, random_recipe


def split(
    values: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Query, evidence, and both together; some entries are in neither, some in both."""
    part = rng.choice(4, size=values.shape, p=[0.35, 0.35, 0.2, 0.1])
    query = np.where((part == 0) | (part == 3), values, np.nan)
    evidence = np.where((part == 1) | (part == 3), values, np.nan)
    return query, evidence, np.where(part == 2, np.nan, values)


@pytest.mark.parametrize("seed", range(150))
def test_log_prob_is_the_ratio_of_two_enumerations(seed: int) -> None:
    network = random_network(seed)
    rng = np.random.default_rng([17, seed])
    parts = [split(draw_sequence(network, int(rng.integers(1, 6)), rng), rng) for _ in range(4)]
    expected = [
        math.log(likelihood(network, both) / likelihood(network, evidence))
        for _, evidence, both in parts
    ]
    query, evidence = (as_sequences(network.schema, [part[i] for part in parts]) for i in (0, 1))
    found = Model(network).log_prob(query, evidence)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_log_probs_of_all_values_of_a_query_sum_to_one(seed: int) -> None:
    network, arrays, _ = random_case(seed, kinds=("ternary", "binary", "continuous"))
    evidence = max(arrays, key=len).copy()
    evidence[0, :2] = np.nan
    evidence[-1, 0] = np.nan
    choices = list(product(range(3), range(2), range(3) if len(evidence) > 1 else [0]))
    queries = []
    for first, second, last in choices:
        query = np.full_like(evidence, np.nan)
        query[-1, 0] = last
        query[0, :2] = first, second
        queries.append(query)
    batch = as_sequences(network.schema, queries)
    found = Model(network).log_prob(batch, as_sequences(network.schema, [evidence] * len(choices)))
    np.testing.assert_allclose(math.fsum(np.exp(found)), 1.0, rtol=1e-9)


def contradictory() -> tuple[Model, np.ndarray, np.ndarray]:
    network = random_network(random_recipe(2, kinds=("binary", "ternary"), zeros=0.0))
    query, evidence = np.full((3, 2), np.nan), np.full((3, 2), np.nan)
    return Model(network), query, evidence


def test_query_that_contradicts_the_evidence_is_refused_and_named() -> None:
    model, query, evidence = contradictory()
    query[1, 1], evidence[1, 1] = 2, 0
    sequences = [
        as_sequences(model.schema, [np.zeros((2, 2)), values]) for values in (query, evidence)
    ]
    with pytest.raises(EvidenceError, match="x1"):
        model.log_prob(*sequences)


def test_empty_query_has_probability_one() -> None:
    model, query, evidence = contradictory()
    evidence[0, 0] = 1
    found = model.log_prob(
        as_sequences(model.schema, [query]), as_sequences(model.schema, [evidence])
    )
    np.testing.assert_allclose(found, [0.0], rtol=0, atol=1e-12)


def test_query_and_evidence_of_different_shape_are_refused() -> None:
    model, query, evidence = contradictory()
    with pytest.raises(EvidenceError):
        model.log_prob(
            as_sequences(model.schema, [query[:2]]), as_sequences(model.schema, [evidence])
        )


def test_impossible_evidence_is_refused() -> None:
    model, query, evidence = impossible()
    evidence[0, 0] = 1
    with pytest.raises(EvidenceError):
        model.log_prob(as_sequences(model.schema, [query]), as_sequences(model.schema, [evidence]))


@pytest.mark.filterwarnings("ignore::dspn.errors.ImpossibleEvidenceWarning")
def test_impossible_query_given_possible_evidence_is_minus_infinity() -> None:
    model, query, evidence = impossible()
    query[0, 0], evidence[1, 0] = 1, 0
    found = model.log_prob(
        as_sequences(model.schema, [query]), as_sequences(model.schema, [evidence])
    )
    assert found.tolist() == [-math.inf]


def impossible() -> tuple[Model, np.ndarray, np.ndarray]:
    """A model of one binary variable that is never 1."""
    network = random_network(random_recipe(0, kinds=("binary",)))
    model = Model.from_hmm([1.0], [[1.0]], {"x0": np.array([[1.0, 0.0]])}, schema=network.schema)
    return model, np.full((2, 1), np.nan), np.full((2, 1), np.nan)
