"""Interface nodes without use are taken away, and what the others need stays."""

import numpy as np
import pytest

from dspn import Schema, Variable
from dspn.errors import StructureError
from dspn.learning.moves import without_dead
from dspn.structure import NetworkBuilder, assemble, from_hmm, mixture_top
from oracles import likelihood

SCHEMA = Schema((Variable.binary("a"),))
ROWS = np.array([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
MATRIX = np.array([[0.8, 0.15, 0.05], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])


def test_rest_of_an_hmm_is_divided_by_its_sum() -> None:
    network = from_hmm([0.5, 0.3, 0.2], MATRIX, {"a": ROWS}, schema=SCHEMA)
    left = without_dead(network, np.array([5.0, 0.0, 3.0]), 1.0)
    matrix = MATRIX[np.ix_([0, 2], [0, 2])]
    expected = from_hmm(
        [0.5 / 0.7, 0.2 / 0.7],
        matrix / matrix.sum(axis=1, keepdims=True),
        {"a": ROWS[[0, 2]]},
        schema=SCHEMA,
    )
    for values in ([[0.0]], [[1.0], [0.0]], [[np.nan], [1.0], [1.0]]):
        array = np.array(values)
        np.testing.assert_allclose(likelihood(left, array), likelihood(expected, array), rtol=1e-12)


def test_group_keeps_its_most_used_node() -> None:
    network = from_hmm([0.5, 0.3, 0.2], MATRIX, {"a": ROWS}, schema=SCHEMA)
    left = without_dead(network, np.array([0.1, 0.3, 0.2]), 1.0)
    assert left.num_interfaces == 1
    (rows,) = left.parameters.template.leaves
    np.testing.assert_array_equal(rows, ROWS[[1]])


def test_input_that_an_output_cannot_do_without_stays() -> None:
    builder = NetworkBuilder(SCHEMA)
    first, second, third = builder.inputs(3)
    leaves = [builder.leaf("a", row) for row in ROWS]
    outputs = [
        builder.product([leaves[0], second]),
        builder.product([leaves[1], builder.sum([first, third], [0.4, 0.6])]),
        builder.product([leaves[2], builder.sum([third], [1.0])]),
    ]
    network = assemble(builder.template(outputs), mixture_top(SCHEMA, [0.2, 0.3, 0.5]))
    # Output 0 reads input 1 below a product, and output 1 can do with input 0 alone.
    assert without_dead(network, np.array([2.0, 0.0, 0.0]), 1.0).num_interfaces == 2
    # A sum without any input left gets the heaviest back.
    assert without_dead(network, np.array([0.0, 2.0, 0.0]), 1.0).num_interfaces == 2


def test_arguments_that_do_not_fit_are_refused() -> None:
    network = from_hmm([0.5, 0.3, 0.2], MATRIX, {"a": ROWS}, schema=SCHEMA)
    with pytest.raises(StructureError, match="`use` must have one number for each of the 3"):
        without_dead(network, np.ones(2), 1.0)
    with pytest.raises(StructureError, match="missing"):
        without_dead(network, np.full(3, np.nan), 1.0)
    with pytest.raises(StructureError, match="`least` of without_dead"):
        without_dead(network, np.ones(3), -1.0)
