"""Shards that single precision does not hold, beside shards that it does."""

import numpy as np

from dspn import Schema, Sequences, Variable
from dspn.engine import compile_program
from dspn.engine.flows import expected_flows
from dspn.learning.starts.random import randomised
from dspn.structure import initial_network


def test_a_shard_in_double_precision_adds_up_with_others_in_single() -> None:
    rng = np.random.default_rng(0)
    # 20 nodes are padded to another number of columns in single precision than in double.
    schema = Schema(tuple(Variable.continuous(f"x{i}") for i in range(3)))
    usual = rng.normal(size=(600, 4, 3))
    usual[3] = rng.normal(scale=60.0, size=(4, 3))
    data = Sequences.from_padded(usual, np.full(600, 4), schema=schema)
    network = randomised(initial_network(schema, 20, rng=rng), data, rng)
    single = expected_flows(compile_program(network, single=True), data)
    double = expected_flows(compile_program(network), data)
    np.testing.assert_allclose(single.log_likelihood, double.log_likelihood, rtol=1e-5)
    np.testing.assert_allclose(
        single.flows.template.weights, double.flows.template.weights, rtol=2e-3, atol=1e-3
    )
