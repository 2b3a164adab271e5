"""The top network as products of linear forms."""

import tracemalloc

import numpy as np

from dspn import Schema, Variable
from dspn.engine.cpu import CpuEngine
from dspn.engine.cpu.stream import top_terms
from dspn.structure import initial_network

BIT = Schema((Variable.binary("x"),))


def test_a_sum_over_all_inputs_is_one_form_of_its_weights() -> None:
    network = initial_network(BIT, 5, rng=np.random.default_rng(0))
    found = top_terms(CpuEngine().compile(network, precision="double"))
    np.testing.assert_array_equal(found.coefficients, [1.0])
    np.testing.assert_array_equal(np.sort(found.forms[0]), np.sort(network.parameters.top.weights))


def test_memory_grows_with_the_inputs_not_with_their_square() -> None:
    network = initial_network(BIT, 400, rng=np.random.default_rng(0))
    program = CpuEngine().compile(network, precision="double")
    tracemalloc.start()
    try:
        top_terms(program)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 400 * 400 * 8
