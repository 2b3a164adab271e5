"""One fingerprint for one network, whatever way it was made."""

from pathlib import Path

import numpy as np
import pytest

from dspn import DynamicNetwork, Model, Schema, Variable, load
from dspn.structure import (
    Input,
    Leaf,
    NetworkBuilder,
    NetworkParameters,
    Parameters,
    Product,
    Sum,
    Template,
    assemble,
    initial_network,
    mixture_top,
)
from strategies import random_network

SCHEMA = Schema((Variable.categorical("x", ("a", "b")),))


def network(
    leaf: float = 0.9,
    weight: float = 0.8,
    start: float = 0.3,
    names: tuple[str, str] = ("a", "b"),
    root: str = "first",
    untied: bool = False,
) -> DynamicNetwork:
    schema = Schema((Variable.categorical("x", names),))
    builder = NetworkBuilder(schema)
    inputs = builder.inputs(2)
    outputs = [
        builder.product([builder.leaf("x", row), builder.sum(inputs, [weight, 1 - weight])])
        for row in ([leaf, 1 - leaf], [0.2, 0.8])
    ]
    template = builder.template(outputs)
    top = mixture_top(schema, [start, 1 - start])
    return assemble(template, top, bottom=template[1] if untied else None, root=root)


def test_equal_networks_have_equal_fingerprints() -> None:
    assert network().fingerprint == network().fingerprint
    assert len(network().fingerprint) == 32


@pytest.mark.parametrize(
    "change",
    [
        {"leaf": np.nextafter(0.9, 1)},
        {"weight": 0.7},
        {"start": 0.4},
        {"names": ("a", "c")},
        {"names": ("b", "a")},
        {"root": "last"},
        {"untied": True},
    ],
    ids=str,
)
def test_any_difference_gives_another_fingerprint(change) -> None:  # type: ignore[no-untyped-def]
    assert network(**change).fingerprint != network().fingerprint


def test_the_order_of_edges_is_part_of_the_fingerprint() -> None:
    made = network()
    nodes = list(made.template.nodes)
    place = next(index for index, node in enumerate(nodes) if isinstance(node, Sum))
    nodes[place] = Sum(nodes[place].children[::-1])  # type: ignore[union-attr]
    other = Template(made.schema, tuple(nodes), made.template.outputs)
    changed = DynamicNetwork(other, made.top, made.parameters)
    assert changed.fingerprint != made.fingerprint


def test_whole_numbers_of_numpy_leave_the_fingerprint_as_it_is() -> None:
    def made(number: type) -> DynamicNetwork:
        family = network().template.banks[0].family
        nodes = (Input(number(0)), Leaf(number(0), family), Product((number(0), number(1))))
        parameters = Parameters(
            NetworkParameters(np.zeros(0), (np.array([[0.5, 0.5]]),)), NetworkParameters([1.0])
        )
        top = mixture_top(SCHEMA, [1.0])[0]
        return DynamicNetwork(Template(SCHEMA, nodes, (number(2),)), top, parameters)

    assert made(np.int64).fingerprint == made(int).fingerprint


@pytest.mark.parametrize("seed", range(20))
def test_a_saved_network_keeps_its_fingerprint(seed: int, tmp_path: Path) -> None:
    model = Model(random_network(seed))
    model.save(tmp_path / "model.dspn")
    assert load(tmp_path / "model.dspn").network.fingerprint == model.network.fingerprint


def test_other_parameters_have_another_fingerprint() -> None:
    schema = Schema((Variable.binary("x"),))
    rng = np.random.default_rng(0)
    one, other = (initial_network(schema, 2, rng=rng) for _ in range(2))
    before = one.fingerprint
    moved = one.with_parameters(other.parameters)
    assert moved.fingerprint != before
    assert moved.with_parameters(one.parameters).fingerprint == before
