import numpy as np
import pytest

from dspn.data import Schema, Variable
from dspn.errors import StructureError
from dspn.structure import NetworkBuilder, assemble, grouped_network, initial_network, marginal
from networks import bits, delay_line

MIXED = Schema((Variable.continuous("a"), Variable.binary("b"), Variable.count("c")))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_all_variables_leave_the_network_as_it_is() -> None:
    network = initial_network(MIXED, 3, rng=rng())
    assert marginal(network, [2, 0, 1]) is network


def test_groups_without_a_variable_go_with_their_cost() -> None:
    network = grouped_network(MIXED, [[0], [1, 2]], [4, 3], rng=rng())
    left = marginal(network, [0])
    assert left.schema.names == ("a",)
    assert left.num_interfaces == 4
    whole = initial_network(Schema((MIXED[0],)), 4, rng=rng())
    assert left.template.num_edges == whole.template.num_edges


def test_leaves_keep_their_parameters() -> None:
    network = grouped_network(MIXED, [[0], [1, 2]], [4, 3], rng=rng()).untied()
    left = marginal(network, [2, 0])
    assert left.schema.names == ("a", "c")
    for part in ("template", "bottom"):
        before = getattr(network.parameters, part).leaves
        after = getattr(left.parameters, part).leaves
        np.testing.assert_array_equal(after[0], before[0])
        np.testing.assert_array_equal(after[1], before[2])


@pytest.mark.parametrize("variables", [[], [0, 0], [3], [-1]])
def test_variables_that_are_not_there_or_twice_are_refused(variables: list[int]) -> None:
    with pytest.raises(StructureError, match="distinct numbers from 0 to 2"):
        marginal(initial_network(MIXED, 2, rng=rng()), variables)


def test_variables_are_numbers() -> None:
    with pytest.raises(StructureError, match="whole numbers"):
        marginal(initial_network(MIXED, 2, rng=rng()), ["a"])  # type: ignore[list-item]


def test_a_group_that_reads_what_is_kept_cannot_go() -> None:
    # Group 0 reads group 1 of the slice below, which alone has the second bit.
    with pytest.raises(StructureError, match=r"must have one of x0: .* keep one of them too"):
        marginal(delay_line(2), [1])
    assert marginal(delay_line(2), [0]).num_interfaces == 2


def test_shared_children_stay_apart() -> None:
    # Without the second bit both products have the same factors: their sum must not name one twice.
    builder = NetworkBuilder(bits(2))
    (below,) = builder.inputs(1)
    shared = builder.leaf(0, [0.3, 0.7])
    products = [builder.product([shared, builder.leaf(1, row)]) for row in ([0.5, 0.5], [0.1, 0.9])]
    output = builder.product([builder.sum(products, [0.4, 0.6]), below])
    top = NetworkBuilder(builder.schema)
    network = assemble(builder.template([output]), top.top(top.input()))
    left = marginal(network, [0])
    assert left.parameters.template.weights.tolist() == [0.4, 0.6]
    assert len(left.template.nodes) == len(network.template.nodes) - 2
