"""Mixtures in files: whole and bit for bit, or refused."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspn import Model, Schema, Variable, load
from dspn.errors import ModelFileError
from dspn.io import load_mixture, load_network, save_mixture, save_network
from dspn.io.codec import decode, encode
from dspn.io.files import Contents, pack, unpack
from dspn.leaves import Gaussian
from dspn.structure import (
    DynamicNetwork,
    Leaf,
    Mixture,
    Parameters,
    Template,
    grouped_network,
    initial_network,
)

SCHEMA = Schema((Variable.categorical("x", ("a", "b", "c")), Variable.continuous("y")))


def components() -> tuple[DynamicNetwork, DynamicNetwork, DynamicNetwork]:
    rng = np.random.default_rng(5)
    first, second = (initial_network(SCHEMA, 3, rng=rng) for _ in range(2))
    own = Parameters(first.parameters.template, first.parameters.top, second.parameters.template)
    nodes = tuple(
        Leaf(1, Gaussian(location=4.0, scale=3.0))
        if isinstance(node, Leaf) and node.variable == 1
        else node
        for node in second.template.nodes
    )
    template = Template(SCHEMA, nodes, second.template.outputs)
    scaled = DynamicNetwork(template, second.top, second.parameters)
    grouped = grouped_network(SCHEMA, [[0], [1]], num_interfaces=2, num_products=2, rng=rng)
    return first.with_parameters(own), scaled, grouped


MIXTURE = Mixture(components(), [0.1, 0.2, 0.7])
CONTENTS = encode(MIXTURE, {"seed": 5})


def test_a_mixture_comes_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "mixture.dspn"
    save_mixture(MIXTURE, path, provenance={"seed": 5})
    found = load_mixture(path)
    assert found.provenance == {"seed": 5}
    assert found.mixture.fingerprint == MIXTURE.fingerprint
    assert found.mixture.weights.tobytes() == MIXTURE.weights.tobytes()
    for own, other in zip(found.mixture, MIXTURE, strict=True):
        assert own.template == other.template
        assert own.groups == other.groups
    again = tmp_path / "again.dspn"
    save_mixture(found.mixture, again, provenance=found.provenance)
    assert again.read_bytes() == path.read_bytes()


def test_a_loaded_mixture_answers_as_before(tmp_path: Path) -> None:
    model = Model(MIXTURE, provenance={"a": [1]})
    model.save(tmp_path / "m.dspn")
    again = load(tmp_path / "m.dspn")
    data = model.sample(20, 5, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(again.log_likelihood(data), model.log_likelihood(data))
    assert again.provenance == {"a": [1]}
    assert repr(again) == repr(model)


def test_one_network_is_written_as_it_always_was(tmp_path: Path) -> None:
    network = MIXTURE.components[0]
    one, other = tmp_path / "one.dspn", tmp_path / "other.dspn"
    save_network(network, one)
    save_mixture(Mixture.of(network), other)
    assert one.read_bytes() == other.read_bytes()
    assert b'\\"format_version\\":1' in one.read_bytes()
    assert unpack(one.read_bytes()).version == 1
    assert load_mixture(one).mixture.only.fingerprint == network.fingerprint
    assert load_network(one).network.fingerprint == network.fingerprint


def test_a_mixture_is_no_single_network(tmp_path: Path) -> None:
    save_mixture(MIXTURE, tmp_path / "m.dspn")
    assert unpack((tmp_path / "m.dspn").read_bytes()).version == 2
    with pytest.raises(ModelFileError, match=r"m.dspn' as one network: .* a mixture of 3; use"):
        load_network(tmp_path / "m.dspn")


def changed() -> tuple[dict[str, Any], dict[str, Any]]:
    metadata: dict[str, Any] = copy.deepcopy(CONTENTS.metadata)
    return {name: array.copy() for name, array in CONTENTS.tensors.items()}, metadata


def sealed(tensors: dict[str, Any], metadata: dict[str, Any], version: int = 2) -> Mixture:
    return decode(unpack(pack(Contents(tensors, metadata, version)))).mixture


Change = Callable[[dict[str, Any], dict[str, Any]], object]

CHANGES: dict[str, tuple[Change, str]] = {
    "component missing": (lambda t, m: m["components"].pop(), "11 are unknown"),
    "component too many": (lambda t, m: m["components"].append(m["components"][0]), "missing"),
    "no component": (lambda t, m: m["components"].clear(), "has 0 components"),
    "tensor of a component missing": (lambda t, m: t.pop("1.top.weights"), "1.top.weights"),
    "weights missing": (lambda t, m: t.pop("weights"), r"missing \['weights'\]"),
    "a weight too few": (lambda t, m: t.update(weights=t["weights"][:2]), "each of the 3"),
    "weights that do not add up": (lambda t, m: t["weights"].__setitem__(0, 0.5), "sums to 1.4"),
    "a negative weight": (lambda t, m: t["weights"].__setitem__(0, -0.1), "not negative"),
    "a weight of NaN": (lambda t, m: t["weights"].__setitem__(0, np.nan), "'weights' has 1 of 3"),
    "weights of float32": (
        lambda t, m: t.update(weights=t["weights"].astype(np.float32)),
        "must be of type float64",
    ),
    "another root": (lambda t, m: m["components"][1].update(root="last"), "share one root"),
    "sum of a component": (
        lambda t, m: t["2.template.weights"].__setitem__(0, 0.99),
        "component 2: sum .* weights that sum to",
    ),
    "family of another kind": (
        lambda t, m: m["components"][1]["families"].__setitem__(1, {"name": "poisson"}),
        "component 1|poisson",
    ),
}


@pytest.mark.parametrize("which", CHANGES)
def test_a_mixture_that_does_not_fit_is_refused(which: str) -> None:
    change, said = CHANGES[which]
    tensors, metadata = changed()
    change(tensors, metadata)
    with pytest.raises(ModelFileError, match=said):
        sealed(tensors, metadata)


def test_the_version_tells_whether_there_are_several_components() -> None:
    tensors, metadata = changed()
    assert sealed(*changed()).fingerprint == MIXTURE.fingerprint
    with pytest.raises(ModelFileError, match="3 components, but format version 1 has one"):
        sealed(tensors, metadata, version=1)
    single = encode(Mixture.of(MIXTURE.components[0]))
    with pytest.raises(ModelFileError, match="1 components, but format version 2 has at least two"):
        sealed(single.tensors, single.metadata, version=2)
