"""A template or top network that is no network at all is refused before its validity is asked."""

import pytest

from dspn.data import Schema, Variable
from dspn.errors import StructureError
from dspn.leaves import Categorical, Gaussian, Poisson
from dspn.structure import Input, Leaf, NetworkBuilder, Product, Sum, Template, Top

B = Categorical(2)
X = Leaf(0, B)
SCHEMA = Schema((Variable.binary("x"), Variable.continuous("y")))


def refused(message: str, nodes: tuple[object, ...], outputs: tuple[int, ...] = (2,)) -> None:
    with pytest.raises(StructureError, match=message):
        Template(SCHEMA, nodes, outputs)  # type: ignore[arg-type]


def test_cycle_is_refused_and_its_nodes_named() -> None:
    nodes = (Input(0), X, Product((1, 3)), Sum((4,)), Sum((2, 0)))
    refused(r"template network has a cycle through nodes 2 -> 3 -> 4 -> 2", nodes)


def test_node_that_is_its_own_child_is_refused() -> None:
    refused(r"cycle through nodes 2 -> 2", (Input(0), X, Product((1, 0, 2))))


def test_cycle_that_no_output_reaches_is_refused() -> None:
    refused(r"cycle", (Input(0), X, Product((1, 0)), Sum((4,)), Sum((3,))))


def test_cycle_in_the_top_is_refused() -> None:
    with pytest.raises(StructureError, match=r"top network has a cycle through nodes 1 -> 2 -> 1"):
        Top(1, (Input(0), Sum((0, 2)), Sum((1,))), 1)


def test_long_chain_of_nodes_does_not_exhaust_the_stack() -> None:
    chain = tuple(Sum((i + 1,)) for i in range(1, 20_000))
    template = Template(SCHEMA, (Input(0), *chain, Product((20_001, 0)), X), (1,))
    assert template.order[-1] == 1


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((Input(0), X, Product(())), r"product 2 of the template network has no children"),
        ((Input(0), X, Sum(())), r"sum 2 of the template network has no children"),
        ((Input(0), X, Product((1, 0, 7))), r"product 2 .* names child 7.*nodes 0 to 2"),
        ((Input(0), X, Product((1, -3))), r"product 2 .* names child -3"),
        ((Input(0), X, Product((1, 1, 0))), r"product 2 .* names a child twice"),
        ((Input(0), X, Sum((1, 1))), r"sum 2 .* names a child twice"),
        ((Input(1), X, Product((1, 0))), r"input node 0 .* position 1"),
        ((Input(-1), X, Product((1, 0))), r"input node 0 .* position -1"),
        ((X, X, Product((1,))), r"no input node for position\(s\) \[0\]"),
        ((Input(0), X, Product((1, 0)), Input(0)), r"input nodes 0 and 3 .* share position 0"),
        ((Input(0), Leaf(2, B), Product((1, 0))), r"leaf 1 .* variable 2.*2 variables"),
        ((Input(0), Leaf(-1, B), Product((1, 0))), r"leaf 1 .* variable -1"),
        ((Input(0), Leaf(0, Categorical(3)), Product((1, 0))), r"leaf 1 .*'x'.*2 categories"),
        ((Input(0), Leaf(0, Gaussian()), Product((1, 0))), r"leaf 1 .*'x'.*2 categories"),
        (
            (Input(0), Leaf(1, Gaussian()), Product((1, 0)), Leaf(1, Poisson())),
            r"leaves 1 and 3 of variable 'y' are of different families",
        ),
    ],
)
def test_malformed_node_is_refused(nodes: tuple[object, ...], message: str) -> None:
    refused(message, nodes)


@pytest.mark.parametrize("outputs", [(), (2, 2), (3,), (-1,)])
def test_outputs_that_are_no_bijection_are_refused(outputs: tuple[int, ...]) -> None:
    refused("`outputs`", (Input(0), X, Product((1, 0))), outputs)


def test_top_with_a_leaf_is_refused() -> None:
    with pytest.raises(StructureError, match=r"top network has no variables.*\[1\]"):
        Top(1, (Input(0), X, Product((0, 1))), 2)


@pytest.mark.parametrize("root", [-1, 2])
def test_top_whose_root_is_no_node_is_refused(root: int) -> None:
    with pytest.raises(StructureError, match=rf"`root`.*{root}"):
        Top(1, (Input(0), Sum((0,))), root)


def test_top_must_have_one_input_for_each_position() -> None:
    with pytest.raises(
        StructureError, match=r"top network has 2 interfaces but no input node.*\[1\]"
    ):
        Top(2, (Input(0), Sum((0,))), 1)


def test_order_puts_children_first_whatever_the_numbering() -> None:
    nodes = (Product((3, 1)), Sum((2, 4)), Input(1), Leaf(0, B), Input(0), Product((1, 3)))
    template = Template(SCHEMA, nodes, (0, 5))
    place = {node: at for at, node in enumerate(template.order)}
    assert sorted(place) == list(range(6))
    assert all(place[c] < place[i] for i, n in enumerate(nodes) for c in getattr(n, "children", ()))
    assert template.inputs == (4, 2)
    assert [bank.nodes for bank in template.banks] == [(3,)]


def test_weights_lie_sum_by_sum_in_the_order_of_the_nodes() -> None:
    nodes = (Sum((1, 2)), Input(1), Input(0), X, Product((3, 0)), Sum((1,)), Product((3, 5)))
    template = Template(SCHEMA, nodes, (4, 6))
    assert (template.edge_offsets, template.num_weights, template.num_edges) == ({0: 0, 5: 2}, 3, 7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: b.leaf(2, [0.5, 0.5]), r"`variable` must be between 0 and 1.*2"),
        (lambda b: b.leaf("x", [0.5, 0.2, 0.3]), r"'x' needs 2 parameters, but 3"),
        (lambda b: b.indicator("x", 2), r"`code` must be between 0 and 1.*2"),
        (lambda b: b.indicator("x", -1), r"`code` must be a whole number of at least 0.*-1"),
        (lambda b: b.indicator("x", "no"), r"`code` must be a whole number.*'no'"),
        (lambda b: b.inputs(0), r"`count` must be a whole number of at least 1, but is 0"),
        (lambda b: b.product([0, "a"]), r"`children` must be a list of whole numbers"),
        (lambda b: b.indicator("y", 0), r"`variable` must be categorical.*'y' is continuous.*leaf"),
        (lambda b: b.leaf("y", [0.0, 1.0], "gaussian"), r"`family` must be a Family, found str"),
        (lambda b: b.sum([0], [0.5, 0.5]), r"`weights` must have one entry for each of the 1"),
    ],
)
def test_builder_refuses_what_does_not_fit(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(StructureError, match=message):
        call(NetworkBuilder(SCHEMA))
