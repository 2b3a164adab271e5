"""A mixture of networks from named arrays and a JSON object that anybody may have written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dspn._arrays import Floats
from dspn.data import Schema, Variable
from dspn.errors import DataError, ModelFileError, StructureError
from dspn.io.container import Contents, Tensors
from dspn.io.encode import MIXTURE_VERSION, ROOT_WEIGHTS, NodeKind, tensor_names
from dspn.io.json_values import JSON, fields, items, plain, text, whole
from dspn.leaves import Family, family_from_json
from dspn.structure import (
    DynamicNetwork,
    Input,
    Leaf,
    Mixture,
    NetworkParameters,
    Node,
    Parameters,
    Product,
    Sum,
    Template,
    Top,
)


@final
@dataclass(frozen=True, eq=False)
class LoadedMixture:
    """A mixture that passed every check, and what was said of its origin when it was saved."""

    mixture: Mixture
    provenance: dict[str, JSON]


@final
@dataclass(frozen=True, eq=False)
class LoadedNetwork:
    """A network that passed every check, and what was said of its origin when it was saved."""

    network: DynamicNetwork
    provenance: dict[str, JSON]


def decode(contents: Contents) -> LoadedMixture:
    """The inverse of `encode`; raises with the reason where the contents are no valid model."""
    if "classes" in contents.metadata:
        raise ModelFileError(
            "it is a classifier, which has a model for each class; it is for `dspn.load`, `dspn "
            "classify predict` and `dspn inspect`"
        )
    metadata = fields(contents.metadata, "its metadata", ("components", "provenance", "schema"))
    components = items(metadata["components"], "`components`")
    _check_count(len(components), contents.version)
    provenance = fields(plain(metadata["provenance"], "`provenance`"), "`provenance`")
    try:
        schema = _schema(metadata["schema"])
        mixture = _mixture(schema, components, contents.tensors)
    except (StructureError, DataError) as error:
        raise ModelFileError(f"it holds a model that is not valid: {error}") from error
    return LoadedMixture(mixture, provenance)


def _check_count(count: int, version: int) -> None:
    """Raises unless the file has as many components as its version says: one, or several."""
    rule = "one" if version < MIXTURE_VERSION else "at least two"
    if count < 1 or (count > 1) != (version >= MIXTURE_VERSION):
        raise ModelFileError(
            f"it has {count} components, but format version {version} has {rule}; it is damaged"
        )


def _mixture(schema: Schema, components: list[JSON], tensors: Tensors) -> Mixture:
    described = [_component(value) for value in components]
    several = len(described) > 1
    expected = {ROOT_WEIGHTS} if several else set()
    for index, component in enumerate(described):
        expected |= tensor_names(str(index), len(schema), tied=component["bottom"] == "tied")
    _check_names(tensors, expected)
    networks = []
    for index, component in enumerate(described):
        try:
            networks.append(_network(schema, component, tensors, str(index)))
        except (StructureError, DataError) as error:
            raise type(error)(f"component {index}: {error}" if several else str(error)) from error
    weights = _finite_numbers(tensors, ROOT_WEIGHTS) if several else np.ones(1)
    return Mixture(tuple(networks), weights)


def _component(value: JSON) -> dict[str, JSON]:
    component = fields(value, "a component", ("bottom", "families", "groups", "root", "top_root"))
    if component["bottom"] not in ("tied", "own"):
        raise ModelFileError("the `bottom` of a component must be 'tied' or 'own'")
    return component


def _schema(value: JSON) -> Schema:
    variables = [
        fields(item, "a variable of the schema", ("categories", "kind", "name"))
        for item in items(value, "`schema`")
    ]
    return Schema(tuple(_variable(variable) for variable in variables))


def _variable(variable: dict[str, JSON]) -> Variable:
    name = text(variable["name"], "the name of a variable")
    kind = text(variable["kind"], f"the kind of variable {name!r}")
    # `Variable` checks what the kind and the categories are.
    categories: list[Any] = items(variable["categories"], f"the categories of variable {name!r}")
    return Variable(name, kind, tuple(categories))  # type: ignore[arg-type]


def _network(
    schema: Schema, component: dict[str, JSON], tensors: Tensors, prefix: str
) -> DynamicNetwork:
    own_bottom = component["bottom"] == "own"
    families = _families(schema, component["families"])
    outputs = _whole_numbers(tensors, f"{prefix}.template.outputs").tolist()
    template = Template(schema, _nodes(tensors, f"{prefix}.template", families), tuple(outputs))
    top_nodes = _nodes(tensors, f"{prefix}.top", families)
    top = Top(
        len(outputs), top_nodes, whole(component["top_root"], "the `top_root` of a component")
    )
    parameters = Parameters(
        _parameters(tensors, f"{prefix}.template", len(schema)),
        _parameters(tensors, f"{prefix}.top", 0),
        _parameters(tensors, f"{prefix}.bottom", len(schema)) if own_bottom else None,
    )
    root = text(component["root"], "the `root` of a component")
    network = DynamicNetwork(template, top, parameters, root)  # type: ignore[arg-type]
    _check_groups(network, component["groups"])
    return network


def _check_names(tensors: Tensors, expected: set[str]) -> None:
    missing, unknown = sorted(expected - tensors.keys()), sorted(tensors.keys() - expected)
    if missing or unknown:
        raise ModelFileError(
            f"its tensors are not those of its schema and structure: {len(missing)} are missing "
            f"{missing[:5]}, {len(unknown)} are unknown {unknown[:5]}"
        )


def _families(schema: Schema, value: JSON) -> list[Family]:
    described = items(value, "the `families` of a component")
    if len(described) != len(schema):
        raise ModelFileError(
            f"it has {len(described)} leaf families, but {len(schema)} variables; each variable "
            "has one"
        )
    return [family_from_json(fields(family, "a leaf family")) for family in described]


def _check_groups(network: DynamicNetwork, value: JSON) -> None:
    group_of = [0] * network.num_interfaces
    for group, positions in enumerate(network.groups):
        for position in positions:
            group_of[position] = group
    if value != group_of:
        raise ModelFileError("its interface `groups` are not those of its template")


def _whole_numbers(tensors: Tensors, name: str, dtype: str = "i4") -> NDArray[Any]:
    array = tensors[name]
    if array.dtype != np.dtype(dtype) or array.ndim != 1:
        raise ModelFileError(
            f"tensor {name!r} must be a vector of type {np.dtype(dtype).name}, "
            f"but is of type {array.dtype.name} and shape {array.shape}"
        )
    return array


def _finite_numbers(tensors: Tensors, name: str) -> Floats:
    array = tensors[name]
    if array.dtype != np.float64:
        raise ModelFileError(f"tensor {name!r} must be of type float64, but is {array.dtype.name}")
    wrong = array.size - int(np.count_nonzero(np.isfinite(array)))
    if wrong:
        raise ModelFileError(
            f"tensor {name!r} has {wrong} of {array.size} entries that are NaN or infinite"
        )
    return array


def _parameters(tensors: Tensors, prefix: str, num_variables: int) -> NetworkParameters:
    weights = _finite_numbers(tensors, f"{prefix}.weights")
    leaves = [_finite_numbers(tensors, f"{prefix}.leaves.{i}") for i in range(num_variables)]
    return NetworkParameters(weights, tuple(leaves))


def _nodes(tensors: Tensors, prefix: str, families: Sequence[Family]) -> tuple[Node, ...]:
    kinds = _whole_numbers(tensors, f"{prefix}.kinds", "u1")
    degrees = _whole_numbers(tensors, f"{prefix}.degrees")
    references = _whole_numbers(tensors, f"{prefix}.references")
    ends = np.cumsum(degrees, dtype=np.int64)
    total = int(ends[-1]) if ends.size else 0
    if kinds.shape != degrees.shape or np.any(degrees < 0) or total != references.size:
        raise ModelFileError(
            f"tensors '{prefix}.kinds', '{prefix}.degrees' and '{prefix}.references' do not fit "
            f"together: {kinds.size} kinds, {degrees.size} degrees that must not be negative and "
            f"sum to {total}, {references.size} references"
        )
    flat = references.tolist()
    nodes: list[Node] = []
    start = 0
    for kind, end in zip(kinds.tolist(), ends.tolist(), strict=True):
        nodes.append(_node(kind, tuple(flat[start:end]), families, f"{prefix} node {len(nodes)}"))
        start = end
    return tuple(nodes)


def _node(kind: int, references: tuple[int, ...], families: Sequence[Family], where: str) -> Node:
    if kind == NodeKind.SUM:
        return Sum(references)
    if kind == NodeKind.PRODUCT:
        return Product(references)
    if kind not in (NodeKind.INPUT, NodeKind.LEAF) or len(references) != 1:
        raise ModelFileError(
            f"{where} has kind {kind} and {len(references)} references; kinds are 0 to 3, and "
            "inputs and leaves have one reference"
        )
    if kind == NodeKind.INPUT:
        return Input(references[0])
    if not 0 <= references[0] < len(families):
        raise ModelFileError(
            f"{where} is a leaf of variable {references[0]}, but variables are 0 to "
            f"{len(families) - 1}"
        )
    return Leaf(references[0], families[references[0]])
