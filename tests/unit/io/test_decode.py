"""Contents that fit their checksum, and yet are no valid model."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspn.data import Schema, Variable
from dspn.errors import ModelFileError
from dspn.io.codec import LoadedMixture, decode, encode
from dspn.io.files import Contents, pack, unpack
from dspn.structure import (
    DynamicNetwork,
    Mixture,
    Parameters,
    grouped_network,
)

SCHEMA = Schema(
    (
        Variable.categorical("weather", ("dry", "wet", "snow")),
        Variable.continuous("level"),
        Variable.count("calls"),
    )
)


def small_network() -> DynamicNetwork:
    rng = np.random.default_rng(3)
    groups = [[0, 2], [1]]
    network, other = (
        grouped_network(SCHEMA, groups, [2, 1], num_products=2, rng=rng) for _ in range(2)
    )
    own = Parameters(network.parameters.template, network.parameters.top, other.parameters.template)
    return network.with_parameters(own)


CONTENTS = encode(Mixture.of(small_network()), {"seed": 3, "notes": ["a", {"b": 0.5}]})


def changed() -> tuple[dict[str, Any], dict[str, Any]]:
    """Copies of tensors and metadata that a test may spoil."""
    metadata: dict[str, Any] = copy.deepcopy(CONTENTS.metadata)
    return {name: array.copy() for name, array in CONTENTS.tensors.items()}, metadata


def sealed(tensors: dict[str, Any], metadata: dict[str, Any]) -> LoadedMixture:
    return decode(unpack(pack(Contents(tensors, metadata))))


def test_decode_is_the_inverse_of_encode() -> None:
    loaded = decode(CONTENTS)
    again = encode(loaded.mixture, loaded.provenance)
    assert again.metadata == CONTENTS.metadata
    assert again.tensors.keys() == CONTENTS.tensors.keys()
    for name, array in CONTENTS.tensors.items():
        assert again.tensors[name].tobytes() == array.tobytes()
        assert again.tensors[name].dtype == array.dtype


def test_tensors_are_the_parameters_of_the_network() -> None:
    network = small_network()
    tensors = CONTENTS.tensors
    assert tensors["0.template.weights"] is not network.parameters.template.weights
    np.testing.assert_array_equal(
        tensors["0.template.weights"], network.parameters.template.weights
    )
    np.testing.assert_array_equal(tensors["0.top.weights"], network.parameters.top.weights)
    assert network.parameters.bottom is not None
    for variable in range(3):
        np.testing.assert_array_equal(
            tensors[f"0.bottom.leaves.{variable}"], network.parameters.bottom.leaves[variable]
        )


def set_entry(name: str, place: Any, value: float) -> Callable[[dict[str, Any]], None]:
    def change(tensors: dict[str, Any]) -> None:
        tensors[name][place] = value

    return change


def set_tensor(name: str, make: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    def change(tensors: dict[str, Any]) -> None:
        tensors[name] = np.ascontiguousarray(make(tensors[name]))

    return change


TENSOR_CHANGES = {
    "NaN weight": (set_entry("0.template.weights", 1, np.nan), "template.weights' has 1 of .* NaN"),
    "infinite leaf": (set_entry("0.bottom.leaves.1", (0, 0), np.inf), "bottom.leaves.1' has 1 of"),
    "NaN in the top": (set_entry("0.top.weights", 0, np.nan), "0.top.weights' has 1 of"),
    "negative weight": (set_entry("0.template.weights", 0, -0.5), "not valid: sum .* not negative"),
    "unnormalised weight": (set_entry("0.top.weights", 0, 0.9), "sum .* weights that sum to"),
    "impossible leaf": (set_entry("0.template.leaves.1", (0, 1), -1.0), "variance must be"),
    "short weights": (set_tensor("0.template.weights", lambda a: a[:-1]), "weights` has shape"),
    "weights as a matrix": (set_tensor("0.template.weights", lambda a: a[None]), "has shape"),
    "leaves turned": (set_tensor("0.template.leaves.0", lambda a: a.T), "parameters of shape"),
    "weights of float32": (
        set_tensor("0.template.weights", lambda a: a.astype(np.float32)),
        "must be of type float64, but is float32",
    ),
    "outputs of int64": (
        set_tensor("0.template.outputs", lambda a: a.astype(np.int64)),
        "must be a vector of type int32, but is of type int64",
    ),
    "kinds of int32": (
        set_tensor("0.top.kinds", lambda a: a.astype(np.int32)),
        "must be a vector of type uint8",
    ),
    "degrees as a matrix": (set_tensor("0.top.degrees", lambda a: a[None]), "must be a vector"),
    "missing tensor": (
        lambda tensors: tensors.pop("0.top.weights"),
        r"missing \['0.top.weights'\]",
    ),
    "unknown tensor": (
        lambda tensors: tensors.update({"1.top.weights": np.zeros(2)}),
        r"unknown \['1.top.weights'\]",
    ),
    "unknown kind": (set_entry("0.template.kinds", 0, 4), "template node 0 has kind 4"),
    "input of two positions": (
        set_entry("0.template.kinds", -1, 0),
        r"has kind 0 and \d+ references",
    ),
    "negative degree": (set_entry("0.template.degrees", 0, -1), "do not fit together"),
    "large degree": (set_entry("0.template.degrees", 0, 2**31 - 1), "do not fit together"),
    "too few kinds": (set_tensor("0.template.kinds", lambda a: a[:-1]), "do not fit together"),
    "too few references": (set_tensor("0.top.references", lambda a: a[:-1]), "do not fit together"),
    "child that does not exist": (set_entry("0.template.references", -1, 999), "names child 999"),
    "negative child": (set_entry("0.template.references", -1, -2), "names child -2"),
    "output that does not exist": (set_entry("0.template.outputs", 0, 99), "`outputs` must name"),
    "no outputs": (set_tensor("0.template.outputs", lambda a: a[:0]), "`outputs` is empty"),
    "position that does not exist": (set_entry("0.template.references", 0, 7), "has position 7"),
    "leaf in the top": (set_entry("0.top.kinds", 0, 1), "top network has no variables of its own"),
    "sum made a product": (
        lambda tensors: tensors["0.template.kinds"].__setitem__(
            tensors["0.template.kinds"] == 3, 2
        ),
        "template is not valid",
    ),
}


@pytest.mark.parametrize("which", TENSOR_CHANGES)
def test_tensor_that_does_not_fit_is_refused(which: str) -> None:
    change, said = TENSOR_CHANGES[which]
    tensors, metadata = changed()
    change(tensors)
    with pytest.raises(ModelFileError, match=said):
        sealed(tensors, metadata)


def test_leaf_of_a_variable_that_does_not_exist_is_refused() -> None:
    tensors, metadata = changed()
    starts = np.cumsum(tensors["0.template.degrees"]) - tensors["0.template.degrees"]
    leaf = np.flatnonzero(tensors["0.template.kinds"] == 1)[0]
    tensors["0.template.references"][starts[leaf]] = 3
    with pytest.raises(ModelFileError, match="leaf of variable 3, but variables are 0 to 2"):
        sealed(tensors, metadata)


def test_cycle_is_refused() -> None:
    tensors, metadata = changed()
    starts = np.cumsum(tensors["0.template.degrees"]) - tensors["0.template.degrees"]
    node = int(tensors["0.template.outputs"][0])
    tensors["0.template.references"][starts[node]] = node
    with pytest.raises(ModelFileError, match="has a cycle through nodes"):
        sealed(tensors, metadata)


def set_value(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(metadata: dict[str, Any]) -> None:
        place: Any = metadata
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


METADATA_CHANGES = {
    "no schema": (lambda metadata: metadata.pop("schema"), r"misses \['schema'\]"),
    "unknown entry": (set_value("code", value="print()"), r"has \['code'\] besides"),
    "empty schema": (set_value("schema", value=[]), "missing|at least one variable"),
    "schema no list": (set_value("schema", value="x"), "`schema` must be a list"),
    "unknown kind": (set_value("schema", 0, "kind", value="complex"), "not valid: `kind` of"),
    "kind a list": (set_value("schema", 0, "kind", value=[]), "kind of variable 'weather' must be"),
    "name a number": (set_value("schema", 0, "name", value=3), "name of a variable must be text"),
    "names repeated": (set_value("schema", 1, "name", value="weather"), "different names"),
    "one category more": (
        set_value("schema", 0, "categories", value=["dry", "wet", "snow", "hail"]),
        "the variable is of the kind categorical with 4",
    ),
    "category an object": (set_value("schema", 0, "categories", value=[{}]), "must be strings"),
    "categories text": (set_value("schema", 0, "categories", value="dry"), "must be a list"),
    "no component": (set_value("components", value=[]), "it has 0 components"),
    "two components": (set_value("components", value=[{}, {}]), "it has 2 components"),
    "component a number": (set_value("components", 0, value=3), "a component must be an object"),
    "unknown root": (set_value("components", 0, "root", value="middle"), "`root` must be 'first'"),
    "unknown bottom": (set_value("components", 0, "bottom", value=True), "must be 'tied' or 'own'"),
    "bottom said to be tied": (
        set_value("components", 0, "bottom", value="tied"),
        "4 are unknown",
    ),
    "other groups": (set_value("components", 0, "groups", value=[0, 0, 0]), "`groups` are not"),
    "root that is no node": (set_value("components", 0, "top_root", value=99), "`root` must be a"),
    "root not whole": (set_value("components", 0, "top_root", value=0.0), "a whole number"),
    "family missing": (set_value("components", 0, "families", value=[]), "0 leaf families, but 3"),
    "family unknown": (
        set_value("components", 0, "families", 1, value={"name": "cauchy"}),
        "cauchy",
    ),
    "family of strange fields": (
        set_value("components", 0, "families", 1, value={"name": "gaussian", "scale": "wide"}),
        "gaussian",
    ),
    "provenance a list": (set_value("provenance", value=[]), "`provenance` must be an object"),
}


@pytest.mark.parametrize("which", METADATA_CHANGES)
def test_metadata_that_does_not_fit_is_refused(which: str) -> None:
    change, said = METADATA_CHANGES[which]
    tensors, metadata = changed()
    change(metadata)
    with pytest.raises(ModelFileError, match=said):
        sealed(tensors, metadata)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value within a JSON value is."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        inner = list(value.items() if isinstance(value, dict) else enumerate(value))
    return [here, *(path for key, item in inner for path in paths(item, (*here, key)))]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**64, 10**400, 1e308, -0.0, "", "tied", "categorical", 0, 1, 2])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=6,
)


@given(path=st.sampled_from(paths(CONTENTS.metadata)[1:]), value=json_values)
def test_any_metadata_is_a_network_or_refused(path: tuple[Any, ...], value: Any) -> None:
    tensors, metadata = changed()
    set_value(*path, value=value)(metadata)
    try:
        loaded = sealed(tensors, metadata)
    except ModelFileError:
        return
    assert isinstance(loaded.mixture, Mixture)
    assert pack(encode(loaded.mixture, loaded.provenance))


@given(data=st.data())
def test_any_tensors_are_a_network_or_refused(data: st.DataObject) -> None:
    tensors, metadata = changed()
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(tensors)))
        array = tensors[name]
        if array.size == 0 or data.draw(st.booleans()):
            shape = data.draw(st.lists(st.integers(0, 4), max_size=3))
            tensors[name] = np.ones(shape, dtype=data.draw(st.sampled_from(["f8", "i4", "u1"])))
            continue
        place = data.draw(st.integers(0, array.size - 1))
        low, high = (0, 255) if array.dtype == np.uint8 else (-(2**31), 2**31 - 1)
        number = (
            st.floats() if array.dtype == np.float64 else st.integers(low, high) | st.integers(0, 9)
        )
        array.reshape(-1)[place] = data.draw(number)
    try:
        loaded = sealed(tensors, metadata)
    except ModelFileError:
        return
    assert isinstance(loaded.mixture, Mixture)


def test_provenance_that_cannot_be_written_again_is_refused() -> None:
    tensors, metadata = changed()
    metadata["provenance"]["score"] = float("1e999")
    with pytest.raises(ModelFileError, match=r"`provenance` must hold .* finite numbers"):
        decode(Contents(tensors, metadata))
