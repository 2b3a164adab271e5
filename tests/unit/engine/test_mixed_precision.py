"""Shards that single precision does not hold, beside shards that it does."""

import numpy as np
import pytest

from dspn import Schema, Sequences, Variable
from dspn.engine import compile_program
from dspn.learning.starts.random import randomised
from dspn.structure import from_hmm, initial_network


def test_a_shard_in_double_precision_adds_up_with_others_in_single() -> None:
    rng = np.random.default_rng(0)
    # 20 nodes are padded to another number of columns in single precision than in double.
    schema = Schema(tuple(Variable.continuous(f"x{i}") for i in range(3)))
    usual = rng.normal(size=(600, 4, 3))
    usual[3] = rng.normal(scale=60.0, size=(4, 3))
    data = Sequences.from_padded(usual, np.full(600, 4), schema=schema)
    network = randomised(initial_network(schema, 20, rng=rng), data, rng)
    single = compile_program(network, precision="single").expected_flows(data)
    double = compile_program(network).expected_flows(data)
    np.testing.assert_allclose(single.log_likelihood, double.log_likelihood, rtol=1e-5)
    np.testing.assert_allclose(
        single.flows.template.weights, double.flows.template.weights, rtol=2e-3, atol=1e-3
    )


@pytest.mark.parametrize("weight", [1e-20, 1e-44, 1e-46, 1e-60, 1e-200])
def test_a_transition_below_the_range_of_single_precision_is_not_lost(weight: float) -> None:
    """Sixteen states in two halves, and one way from the first half to the second."""
    half = 8
    transition = np.kron(np.eye(2), np.full((half, half), 1 / half))
    transition[0, half] = weight
    transition /= transition.sum(axis=1, keepdims=True)
    start = np.repeat([1 / half, 0.0], half)
    emissions = np.repeat(np.eye(2), half, axis=0)
    schema = Schema((Variable.binary("x"),))
    network = from_hmm(start, transition, {"x": emissions}, schema=schema)
    values = np.repeat([0.0, 1.0], 5)[:, None]
    data = Sequences.from_arrays([values], schema=schema)
    # Four steps before the bridge, each into one of eight states; nothing is uncertain after it.
    expected = np.log(weight / half)
    for precision in ("double", "single"):
        found = compile_program(network, precision=precision).log_likelihood(data)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    flows = compile_program(network, precision="single").expected_flows(data)
    np.testing.assert_allclose(flows.log_likelihood, expected, rtol=1e-6)
