"""Models that cannot be built: the argument at fault is named, whoever lays down the nodes."""

from typing import Any

import numpy as np
import pytest

from dspn import DbnStructure, DbnTables, DynamicNetwork, Model, Schema, Variable
from dspn.errors import DspnError, StructureError
from dspn.leaves import Categorical, Gaussian, Poisson
from dspn.structure import (
    Input,
    Leaf,
    NetworkBuilder,
    NetworkParameters,
    Parameters,
    Product,
    Template,
    assemble,
    grouped_network,
    initial_network,
    mixture_top,
    random_tables,
)

BITS = Schema((Variable.binary("bit"),))
LEVELS = Schema((Variable.continuous("level"),))
COUNTS = Schema((Variable.count("calls"),))
TWO = Schema((Variable.binary("a"), Variable.continuous("x")))
START, TRANSITION = [0.6, 0.4], [[0.7, 0.3], [0.2, 0.8]]
EMISSIONS: dict[str, Any] = {"bit": np.array([[0.9, 0.1], [0.2, 0.8]])}
NAN, INF = float("nan"), float("inf")


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def hmm(**changed: Any) -> Model:
    given = {"start": START, "transition": TRANSITION, "emissions": EMISSIONS, "schema": BITS}
    return Model.from_hmm(**{**given, **changed})


BAD_HMMS: list[tuple[str, Any]] = [
    ("start", None),
    ("start", "ab"),
    ("start", ["a", "b"]),
    ("start", {0: 1.0}),
    ("start", []),
    ("start", 0.5),
    ("start", [[0.6, 0.4]]),
    ("start", [1.2, -0.2]),
    ("start", [0.6, 0.5]),
    ("start", [0.6 + 1e-6, 0.4]),
    ("start", [0.0, 0.0]),
    ("start", [NAN, 1.0]),
    ("start", [INF, 0.0]),
    ("transition", None),
    ("transition", "ab"),
    ("transition", [["a", "b"], ["c", "d"]]),
    ("transition", [[0.7, 0.3], [1.0]]),
    ("transition", [0.7, 0.3]),
    ("transition", [[0.7, 0.2], [0.3, 0.8]]),
    ("transition", [[1.2, -0.2], [0.2, 0.8]]),
    ("transition", [[0.7, 0.3 + 1e-6], [0.2, 0.8]]),
    ("transition", [[NAN, 0.3], [0.2, 0.8]]),
    ("emissions", None),
    ("emissions", np.eye(2)),
    ("emissions", {}),
    ("emissions", {**EMISSIONS, "other": 1}),
    ("emissions", {**EMISSIONS, 0: 1}),
    ("emissions", {"bit": None}),
    ("emissions", {"bit": "x"}),
    ("emissions", {"bit": [[0.9, 0.1], [1.0]]}),
    ("emissions", {"bit": [[0.9, 0.1]]}),
    ("emissions", {"bit": [0.9, 0.1]}),
    ("root", "middle"),
    ("root", None),
    ("schema", None),
    ("schema", [Variable.binary("bit")]),
]


@pytest.mark.parametrize(("argument", "value"), BAD_HMMS, ids=repr)
def test_a_bad_argument_of_from_hmm_is_named(argument: str, value: Any) -> None:
    with pytest.raises(DspnError, match=f"`{argument}"):
        hmm(**{argument: value})


@pytest.mark.parametrize(
    ("schema", "rows", "text"),
    [
        (BITS, [[0.9, 0.2], [0.2, 0.8]], "sum to 1"),
        (BITS, [[0.9, 0.1 + 1e-6], [0.2, 0.8]], "sum to 1"),
        (BITS, [[1.1, -0.1], [0.2, 0.8]], "not negative"),
        (BITS, [[NAN, 1.0], [0.2, 0.8]], "finite"),
        (BITS, [[0.9, 0.05, 0.05], [0.2, 0.4, 0.4]], "2 parameters, but 3"),
        (LEVELS, [[0.0, 0.0], [1.0, 1.0]], "variance .*positive"),
        (LEVELS, [[0.0, INF], [1.0, 1.0]], "variance .*finite"),
        (LEVELS, [[NAN, 1.0], [1.0, 1.0]], "mean .*finite"),
        (LEVELS, [[0.0], [1.0]], "2 parameters, but 1"),
        (COUNTS, [[-1.0], [1.0]], "rate .*not negative"),
        (COUNTS, [[INF], [1.0]], "rate .*finite"),
    ],
)
def test_parameters_that_are_no_distribution_are_refused(
    schema: Schema, rows: Any, text: str
) -> None:
    name = schema.names[0]
    with pytest.raises(StructureError, match=text) as caught:
        hmm(schema=schema, emissions={name: rows})
    assert repr(name) in str(caught.value)


def test_weights_within_rounding_of_a_distribution_are_accepted() -> None:
    assert hmm(start=[0.6 + 1e-10, 0.4]).network.num_interfaces == 2


@pytest.mark.parametrize("transition", [[[0.5, 0.4], [0.5, 0.6]], [[0.5, 0.0], [0.5, 1.0]]])
def test_rows_that_are_no_distributions_are_refused_when_the_chain_is_reversed(
    transition: list[list[float]],
) -> None:
    start = np.array([0.5, 0.5])
    np.testing.assert_allclose(start @ np.array(transition), start)
    with pytest.raises(StructureError, match="transition"):
        hmm(start=start, transition=transition, root="last")


def test_a_start_that_is_not_stationary_cannot_be_reversed() -> None:
    with pytest.raises(StructureError, match=r"stationary.*root='first'"):
        hmm(root="last")


# Dynamic Bayesian networks.

CHAIN: dict[str, Any] = {
    "sizes": {"h": 2, "o": 2},
    "observed": ["o"],
    "within": [("h", "o")],
    "between": [("h", "h")],
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sizes", None),
        ("sizes", {"h": 0, "o": 2}),
        ("sizes", {"h": -1, "o": 2}),
        ("sizes", {"h": 2.5, "o": 2}),
        ("sizes", {"h": "2", "o": 2}),
        ("observed", []),
        ("observed", ["z"]),
        ("observed", "o"),
        ("observed", ["o", "o"]),
        ("within", [("h", "z")]),
        ("within", [("h", "o", "o")]),
        ("within", ["ho"]),
        ("within", [("h", "o"), ("h", "o")]),
        ("within", [("h", "o"), ("o", "h")]),
        ("within", [("h", "h")]),
        ("between", None),
        ("between", [("h", "h"), ("h", "h")]),
    ],
    ids=repr,
)
def test_a_dbn_structure_that_is_none_is_refused(field: str, value: Any) -> None:
    with pytest.raises(DspnError):
        structure = DbnStructure(**{**CHAIN, field: value})
        Model.from_dbn(structure, random_tables(structure, generator()))


def tables(**changed: Any) -> DbnTables:
    drawn = random_tables(DbnStructure(**CHAIN), generator())
    return DbnTables(
        {**drawn.first, **changed.get("first", {})}, {**drawn.later, **changed.get("later", {})}
    )


@pytest.mark.parametrize(
    ("part", "node", "table"),
    [
        ("first", "h", None),
        ("first", "h", "ab"),
        ("first", "h", ["a", "b"]),
        ("first", "h", [0.5, 0.4]),
        ("first", "h", [0.5, 0.5 + 1e-6]),
        ("first", "h", [1.5, -0.5]),
        ("first", "h", [NAN, 1.0]),
        ("first", "h", [0.2, 0.3, 0.5]),
        ("first", "o", [[0.5, 0.5], [1.0]]),
        ("first", "z", [0.5, 0.5]),
        ("later", "h", [0.5, 0.5]),
        ("later", "o", [[0.0, 1.0], [0.0, 1.0]]),
    ],
    ids=repr,
)
def test_a_dbn_table_that_does_not_fit_is_named(part: str, node: str, table: Any) -> None:
    given = table if not isinstance(table, list) or node == "o" else np.array(table)
    with pytest.raises(StructureError, match=rf"`{part}.*{node}"):
        Model.from_dbn(DbnStructure(**CHAIN), tables(**{part: {node: given}}))


def test_dbn_tables_may_be_nested_lists() -> None:
    drawn = tables()
    lists = DbnTables(
        {node: np.asarray(table).tolist() for node, table in drawn.first.items()},
        {node: np.asarray(table).tolist() for node, table in drawn.later.items()},
    )
    found = Model.from_dbn(DbnStructure(**CHAIN), lists).network.parameters
    expected = Model.from_dbn(DbnStructure(**CHAIN), drawn).network.parameters
    np.testing.assert_array_equal(found.template.weights, expected.template.weights)


@pytest.mark.parametrize(
    "given", [(None, tables()), (DbnStructure(**CHAIN), None), (DbnStructure(**CHAIN), {})]
)
def test_anything_but_structure_and_tables_is_refused_by_from_dbn(given: tuple[Any, Any]) -> None:
    with pytest.raises(DspnError):
        Model.from_dbn(*given)


def test_a_dbn_with_too_many_states_is_refused_with_its_size() -> None:
    hidden = {f"h{i}": 2 for i in range(11)}
    structure = DbnStructure(
        {**hidden, "o": 2}, ["o"], [("h0", "o")], [(name, name) for name in hidden]
    )
    with pytest.raises(StructureError, match="2048"):
        Model.from_dbn(structure, random_tables(structure, generator()))


# Grouped networks.


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("groups", None),
        ("groups", [0, 1]),
        ("groups", [[0]]),
        ("groups", [[0, 1], [1]]),
        ("groups", [[0, 2]]),
        ("groups", [["a", 0]]),
        ("groups", [[0, 1], []]),
        ("num_interfaces", 0),
        ("num_interfaces", 2.5),
        ("num_interfaces", None),
        ("num_interfaces", "2"),
        ("num_interfaces", [2]),
        ("num_interfaces", [2, 0]),
        ("num_interfaces", [2.5, 2]),
        ("num_products", 0),
        ("num_products", 1.5),
        ("num_products", None),
        ("rng", None),
        ("rng", 3),
        ("root", "middle"),
        ("schema", None),
    ],
    ids=repr,
)
def test_a_bad_argument_of_a_grouped_network_is_named(argument: str, value: Any) -> None:
    given: dict[str, Any] = {
        "schema": TWO,
        "groups": [[0], [1]],
        "num_interfaces": 2,
        "rng": generator(),
    }
    with pytest.raises(DspnError, match=f"`{argument}`"):
        grouped_network(**{**given, argument: value})


def test_whole_numbers_of_numpy_count_interfaces() -> None:
    network = initial_network(TWO, np.int64(3), rng=generator())  # type: ignore[arg-type]
    assert network.num_interfaces == 3


# Nodes laid down by hand.


def laid_out(
    weights: Any = (0.5, 0.5), leaf: Any = (0.5, 0.5), children: Any = None
) -> tuple[Template, NetworkParameters]:
    builder = NetworkBuilder(BITS)
    inputs = builder.inputs(2)
    mixed = builder.sum(inputs if children is None else children, weights)
    return builder.template(
        [builder.product([builder.leaf("bit", row), mixed]) for row in (leaf, (0.2, 0.8))]
    )


GOOD = laid_out()
TOP = mixture_top(BITS, [0.5, 0.5])


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("weights", [1.5, -0.5]),
        ("weights", [0.5, 0.5 + 1e-6]),
        ("weights", [NAN, 1.0]),
        ("weights", ["a", "b"]),
        ("weights", [1.0]),
        ("weights", [[1.0], [0.5, 0.5]]),
        ("weights", None),
        ("children", 3),
        ("children", [0, 99]),
        ("children", [0, 0]),
        ("children", [0.5, 1]),
        ("children", ["a", "b"]),
        ("leaf", [0.5, 0.6]),
        ("leaf", [NAN, 1.0]),
        ("leaf", ["a", "b"]),
        ("leaf", [0.5]),
        ("leaf", [[0.5], [0.5, 1.0]]),
    ],
    ids=repr,
)
def test_bad_nodes_are_refused_when_the_network_is_made(argument: str, value: Any) -> None:
    with pytest.raises(StructureError):
        assemble(laid_out(**{argument: value}), TOP)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("leaf", (None, [0.5, 0.5])),
        ("leaf", (0.5, [0.5, 0.5])),
        ("leaf", ("a", [0.5, 0.5], "categorical")),
        ("indicator", ("a", 0.5)),
        ("indicator", ("a", "yes")),
        ("indicator", (7, 0)),
        ("inputs", (-1,)),
        ("inputs", ("2",)),
        ("product", (3,)),
        ("top", (None,)),
        ("template", (None,)),
        ("template", (["a"],)),
    ],
    ids=repr,
)
def test_builders_refuse_arguments_of_the_wrong_type(method: str, arguments: Any) -> None:
    with pytest.raises(DspnError):
        getattr(NetworkBuilder(TWO), method)(*arguments)


@pytest.mark.parametrize(
    ("template", "top", "bottom", "argument"),
    [
        (None, TOP, None, "template"),
        (GOOD, None, None, "top"),
        (TOP, GOOD, None, "template"),
        (GOOD[0], TOP[0], None, "template"),
        (GOOD, TOP, "x", "bottom"),
        (GOOD, TOP, GOOD, "bottom"),
        (GOOD, TOP, TOP[1], "bottom"),
    ],
)
def test_assemble_names_the_part_that_does_not_fit(
    template: Any, top: Any, bottom: Any, argument: str
) -> None:
    with pytest.raises(StructureError, match=argument):
        assemble(template, top, bottom=bottom)


def test_a_network_of_parts_of_the_wrong_type_is_refused() -> None:
    for given in (
        (None, None, None),
        (GOOD[0], TOP[0], None),
        (TOP[0], GOOD[0], Parameters(GOOD[1], TOP[1])),
    ):
        with pytest.raises(StructureError):
            DynamicNetwork(*given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schema", "family"),
    [(COUNTS, Gaussian()), (LEVELS, Poisson()), (LEVELS, Categorical(3)), (COUNTS, Categorical(2))],
)
def test_a_leaf_of_another_kind_than_its_variable_is_refused(schema: Schema, family: Any) -> None:
    with pytest.raises(StructureError, match=repr(schema.names[0])):
        Template(schema, (Input(0), Leaf(0, family), Product((0, 1))), (2,))


def test_cycles_and_breaches_of_invariance_are_named_with_their_nodes() -> None:
    leaf = Leaf(0, Categorical(2))
    with pytest.raises(StructureError, match="cycle through nodes 2 -> 3 -> 2"):
        Template(BITS, (Input(0), leaf, Product((1, 3)), Product((0, 2))), (2,))
    builder = NetworkBuilder(TWO)
    inputs = builder.inputs(2)
    crossed = [
        builder.product([builder.leaf("a", [0.5, 0.5]), inputs[0]]),
        builder.product([builder.leaf("x", [0.0, 1.0]), inputs[0]]),
    ]
    top = NetworkBuilder(TWO)
    with pytest.raises(StructureError, match="invariance") as caught:
        assemble(builder.template(crossed), top.top(top.product(top.inputs(2))))
    assert "interfaces 0 and 1" in str(caught.value)
