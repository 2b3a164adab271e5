"""Small networks of binary variables that tests of pictures draw."""

import numpy as np

from dspn.data import Schema, Variable
from dspn.structure import DynamicNetwork, NetworkBuilder, assemble, initial_network


def bits(num_variables: int) -> Schema:
    return Schema(tuple(Variable.binary(f"x{number}") for number in range(num_variables)))


def initial(num_variables: int, num_interfaces: int) -> DynamicNetwork:
    return initial_network(bits(num_variables), num_interfaces, rng=np.random.default_rng(0))


def delay_line(num_interfaces: int) -> DynamicNetwork:
    """Group 1 is leaves that are outputs, and begins afresh; group 0 reads both groups."""
    builder = NetworkBuilder(bits(2))
    own, other = builder.inputs(num_interfaces), builder.inputs(num_interfaces)
    even = np.full(num_interfaces, 1.0 / num_interfaces)
    outputs = [
        builder.product(
            [builder.leaf(0, [0.5, 0.5]), builder.sum(own, even), builder.sum(other, even)]
        )
        for _ in own
    ]
    outputs += [builder.leaf(1, [0.2, 0.8]) for _ in other]
    top = NetworkBuilder(builder.schema)
    inputs = top.inputs(2 * num_interfaces)
    halves = [top.sum(inputs[:num_interfaces], even), top.sum(inputs[num_interfaces:], even)]
    return assemble(builder.template(outputs), top.top(top.product(halves)))


def has_gpu() -> bool:
    """Whether CuPy and a GPU that it can use are there."""
    try:
        import cupy
    except ImportError:
        return False
    try:
        return bool(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return False
