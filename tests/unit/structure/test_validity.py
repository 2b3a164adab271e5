"""Each kind of breach, planted in a small network, is reported by its name, nodes and variables."""

import re
from dataclasses import dataclass

import numpy as np
import pytest

from dspn.data import Schema, Variable
from dspn.errors import StructureError
from dspn.leaves import Categorical
from dspn.structure import (
    DynamicNetwork,
    Input,
    Leaf,
    NetworkParameters,
    Node,
    Parameters,
    Product,
    Rule,
    Sum,
    Template,
    Top,
    violations,
)

BINARY = Categorical(2)
X, Y = Leaf(0, BINARY), Leaf(1, BINARY)


@dataclass(frozen=True)
class Plant:
    """A network with one planted breach, and what must be said about it."""

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    top: tuple[Node, ...]
    rule: Rule
    concerned: set[int]
    variables: set[str]
    names: tuple[str, ...] = ("x", "y")

    def template(self) -> Template:
        return Template(
            Schema(tuple(Variable.binary(n) for n in self.names)), self.nodes, self.outputs
        )

    def cap(self) -> Top:
        num_inputs = sum(isinstance(node, Input) for node in self.top)
        return Top(num_inputs, self.top, len(self.top) - 1)


ONE = (Input(0),)
MIX = (Input(0), Input(1), Sum((0, 1)))
BOTH = (Input(0), Input(1), Product((0, 1)))
IN = (Input(0), Input(1))

PLANTS = {
    "sum over leaves of different variables, seen in the bottom": Plant(
        (Input(0), X, Y, Sum((1, 2)), Product((3, 0))), (4,), ONE,
        Rule.BOTTOM_COMPLETE, {3, 1, 2}, {"x", "y"},
    ),
    "sum over leaves of different variables, seen in the template": Plant(
        (Input(0), X, Y, Sum((1, 2)), Product((3, 0))), (4,), ONE,
        Rule.COMPLETE, {3, 1, 2}, {"x", "y"},
    ),
    "product of two leaves of one variable, seen in the bottom": Plant(
        (Input(0), X, X, Y, Product((1, 3, 2, 0))), (4,), ONE,
        Rule.BOTTOM_DECOMPOSABLE, {4, 1, 2}, {"x"},
    ),
    "product of two leaves of one variable, seen in the template": Plant(
        (Input(0), X, X, Y, Product((1, 3, 2, 0))), (4,), ONE,
        Rule.DECOMPOSABLE, {4, 1, 2}, {"x"},
    ),
    "output without a leaf": Plant(
        (*IN, X, Y, Product((2, 3, 0)), Sum((0, 1))), (4, 5), MIX,
        Rule.BOTTOM_ROOTS, {5}, set(),
    ),
    "output that is an input": Plant(
        (*IN, X, Y, Product((2, 3, 0))), (4, 1), MIX,
        Rule.BOTTOM_ROOTS, {1}, set(),
    ),
    "outputs that overlap, seen in the bottom": Plant(
        (*IN, X, Y, X, Product((2, 3, 0)), Product((4, 1))), (5, 6), MIX,
        Rule.BOTTOM_SCOPES, {5, 6}, {"x"},
    ),
    "outputs that overlap, seen at the inputs": Plant(
        (*IN, X, Y, X, Product((2, 3, 0)), Product((4, 1))), (5, 6), MIX,
        Rule.INPUT_SCOPES, {0, 1}, {"x (slices below)"},
    ),
    "one of two alike outputs begins afresh": Plant(
        (*IN, X, X, Product((2, 0)), Product((3,))), (4, 5), MIX,
        Rule.SAME_SCOPE, {0, 1, 4, 5}, {"x (slices below)"}, ("x",),
    ),
    "two alike outputs read different groups": Plant(
        (Input(0), Input(1), Input(2), X, X, Y, Product((3, 0)), Product((4, 2)), Product((5,))),
        (6, 7, 8), (Input(0), Input(1), Input(2), Sum((0, 1)), Product((3, 2))),
        Rule.SAME_SCOPE, {0, 1, 6, 7}, {"x (slices below)", "y (slices below)"},
    ),
    "one group read by two": Plant(
        (*IN, X, Y, Product((2, 0, 1)), Product((3, 1))), (4, 5), BOTH,
        Rule.DISJOINT_SCOPE, {0, 1, 4, 5}, {"y (slices below)"},
    ),
    "sum over inputs of different groups": Plant(
        (*IN, X, X, Product((2, 0)), Product((3, 1)), Sum((4, 5)), Y), (6, 7), BOTH,
        Rule.COMPLETE, {6, 4, 5}, {"x (slices below)", "y (slices below)"},
    ),
    "sum over a leaf and an input": Plant(
        (Input(0), X, X, Sum((1, 0)), Product((2, 3))), (4,), ONE,
        Rule.COMPLETE, {3, 1, 0}, {"x", "x (slices below)"}, ("x",),
    ),
    "product of two inputs of one group": Plant(
        (*IN, X, X, Product((2, 0, 1)), Product((3, 1))), (4, 5), MIX,
        Rule.DECOMPOSABLE, {4, 0, 1}, {"x (slices below)"}, ("x",),
    ),
    "product of two sums over one group, in the depth": Plant(
        (*IN, X, X, Sum((0, 1)), Sum((1, 0)), Product((2, 4)), Product((6, 5)), Product((3, 4))),
        (7, 8), MIX, Rule.DECOMPOSABLE, {7, 6, 5}, {"x (slices below)"}, ("x",),
    ),
    "top sum over two groups": Plant(
        (*IN, X, Y, Product((2, 0)), Product((3, 1))), (4, 5), MIX,
        Rule.TOP_COMPLETE, {2, 0, 1}, {"x (slices below)", "y (slices below)"},
    ),
    "top product of two nodes of one group": Plant(
        (*IN, X, X, Product((2, 0)), Product((3, 1))), (4, 5), BOTH,
        Rule.TOP_DECOMPOSABLE, {2, 0, 1}, {"x (slices below)"}, ("x",),
    ),
    "top with too many inputs": Plant(
        (Input(0), X, Product((1, 0))), (2,), MIX, Rule.TOP_INPUTS, {0, 1}, set(), ("x",),
    ),
    "variable without a leaf": Plant(
        (Input(0), X, Product((1, 0))), (2,), ONE, Rule.COVERAGE, {0}, {"y"},
    ),
    "top that reads one of two groups": Plant(
        (*IN, X, Y, Product((2, 0)), Product((3, 1))), (4, 5), (Input(0), Input(1), Product((0,))),
        Rule.COVERAGE, {2}, {"y"},
    ),
    "group whose past nobody reads": Plant(
        (*IN, X, Y, Product((2, 0))), (4, 3), BOTH, Rule.COVERAGE, {2}, {"y"},
    ),
    "template that reads no input at all": Plant(
        (Input(0), X, Product((1,))), (2,), ONE, Rule.COVERAGE, {0}, {"x"}, ("x",),
    ),
}  # fmt: skip


def uniform(nodes: tuple[Node, ...]) -> np.ndarray:
    """Equal weights at each sum, in the order of the nodes."""
    sums = [len(node.children) for node in nodes if isinstance(node, Sum)]
    return np.concatenate([np.full(count, 1.0 / count) for count in sums] or [np.zeros(0)])


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS.keys())
def test_breach_is_reported_with_rule_nodes_and_variables(plant: Plant) -> None:
    found = [v for v in violations(plant.template(), plant.cap()) if v.rule is plant.rule]
    assert found, "the planted breach is not reported"
    assert any(
        set(violation.nodes) == plant.concerned and _plain(violation) == plant.variables
        for violation in found
    ), found


def _plain(violation) -> set[str]:  # type: ignore[no-untyped-def]
    # Scopes of the bottom's outputs may be told as the slice's own variables or as those below.
    if violation.rule in (Rule.BOTTOM_SCOPES, Rule.COVERAGE):
        return {name.removesuffix(" (slices below)") for name in violation.variables}
    return set(violation.variables)


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS.keys())
def test_breach_is_explained_when_a_network_is_built(plant: Plant) -> None:
    template, top = plant.template(), plant.cap()
    leaves = tuple(np.full((len(bank.nodes), 2), 0.5) for bank in template.banks)
    parameters = Parameters(
        NetworkParameters(uniform(template.nodes), leaves), NetworkParameters(uniform(top.nodes))
    )
    with pytest.raises(StructureError, match=re.escape(str(plant.rule))) as error:
        DynamicNetwork(template, top, parameters)
    assert all(name in str(error.value) for name in plant.variables)
    if plant.rule in (Rule.SAME_SCOPE, Rule.DISJOINT_SCOPE):
        assert "interfaces 0 and 1" in str(error.value)
    elif plant.rule is not Rule.TOP_INPUTS:
        assert all(re.search(rf"\b{node}\b", str(error.value)) for node in plant.concerned)


def test_every_rule_has_a_planted_breach() -> None:
    assert {plant.rule for plant in PLANTS.values()} == set(Rule)


def test_only_the_planted_breach_is_reported_where_it_is_the_only_one() -> None:
    alone = [
        "one of two alike outputs begins afresh",
        "one group read by two",
        "top sum over two groups",
        "top product of two nodes of one group",
        "top with too many inputs",
        "variable without a leaf",
        "group whose past nobody reads",
    ]
    for name in alone:
        found = violations(PLANTS[name].template(), PLANTS[name].cap())
        assert {violation.rule for violation in found} == {PLANTS[name].rule}, name


def test_message_says_sum_children_and_difference() -> None:
    plant = PLANTS["sum over leaves of different variables, seen in the template"]
    said = [str(v) for v in violations(plant.template(), plant.cap()) if v.rule is Rule.COMPLETE]
    assert said == [f"[{Rule.COMPLETE}] template sum 3: children 1 and 2 differ in {{x, y}}"]


def test_all_breaches_are_listed_and_not_only_the_first() -> None:
    nodes = (Input(0), X, Y, Sum((1, 2)), Sum((2, 1)), X, Product((3, 0, 5)), Product((4, 6)))
    template = Template(Schema((Variable.binary("x"), Variable.binary("y"))), nodes, (7,))
    found = violations(template, Top(1, ONE, 0))
    assert {v.nodes[0] for v in found if v.rule is Rule.COMPLETE} == {3, 4}
    assert {v.nodes[0] for v in found if v.rule is Rule.DECOMPOSABLE} == {6, 7}


@pytest.mark.parametrize(
    ("nodes", "outputs", "top", "groups", "sources"),
    [
        pytest.param(
            (*IN, X, Y, Product((2, 0, 1)), Product((3,))), (4, 5), BOTH,
            ((0,), (1,)), ((0, 1), ()), id="a group multiplies two, the other begins afresh",
        ),
        pytest.param(
            (*IN, X, Y, Product((2, 1)), Product((3, 0))), (4, 5), BOTH,
            ((0,), (1,)), ((1,), (0,)), id="groups swap",
        ),
        pytest.param(
            (*IN, X, Y, Product((2, 0, 1))), (4, 3), BOTH,
            ((0,), (1,)), ((0, 1), ()), id="a leaf is an output",
        ),
        pytest.param(
            (*IN, X, Y, Sum((0, 1)), Product((2, 3, 4)), Sum((5,))), (5, 6), MIX,
            ((0, 1),), ((0,),), id="an output below another",
        ),
    ],
)  # fmt: skip
def test_unusual_valid_template_is_accepted(nodes, outputs, top, groups, sources) -> None:  # type: ignore[no-untyped-def]
    schema = Schema((Variable.binary("x"), Variable.binary("y")))
    template, cap = Template(schema, nodes, outputs), Top(2, top, 2)
    assert violations(template, cap) == ()
    leaves = tuple(np.full((len(bank.nodes), 2), 0.5) for bank in template.banks)
    parameters = Parameters(
        NetworkParameters(uniform(nodes), leaves), NetworkParameters(uniform(top))
    )
    network = DynamicNetwork(template, cap, parameters)
    assert (network.groups, network.group_sources) == (groups, sources)
