"""A mixture of networks, or one network, as named arrays and a JSON object.

The metadata holds what is small and read by people: the schema, the families of the leaves (one for
each variable), the interface groups, the root and the provenance. What grows with the network is a
tensor, structure included: the 65,536 sum edges of an HMM with 256 states take 256 KiB and no
parsing. `0` in the names below is the index of the component.

- `0.template.kinds` (nodes,): the `NodeKind` of each node; `0.template.degrees` (nodes,): how many
  references it has; `0.template.references`: node after node, the children of a sum or product, the
  variable of a leaf, the position of an input; `0.template.outputs` (interfaces,).
- `0.template.weights` (sum edges,): the weights of all sums, node after node;
  `0.template.leaves.3` (leaves, parameters): the leaves of variable 3, in node order.
- `0.bottom.weights`, `0.bottom.leaves.3`: the same for a bottom network that is not tied.
- `0.top.kinds`, `0.top.degrees`, `0.top.references`, `0.top.weights`: the top network.
- `weights` (components,): the weights of the root sum; absent where there is one component.

Any addition raises `FORMAT_VERSION`: a file with an unknown entry is refused. A model of one
component is written as version 1, which has nothing else, a mixture of several as version 2.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dspn.data import Schema
from dspn.io.container import Contents, Tensors
from dspn.io.json_values import JSON, fields, plain
from dspn.structure import DynamicNetwork, Input, Leaf, Mixture, NetworkParameters, Node, Product

ROOT_WEIGHTS: Final = "weights"
MIXTURE_VERSION: Final = 2


class NodeKind(IntEnum):
    """The number of each kind of node in a file."""

    INPUT = 0
    LEAF = 1
    PRODUCT = 2
    SUM = 3


def encode(mixture: Mixture, provenance: Mapping[str, JSON] | None = None) -> Contents:
    """Everything a file says about the mixture; a function of mixture and provenance only."""
    metadata: dict[str, JSON] = {
        "components": [_component(network) for network in mixture],
        "provenance": fields(plain(provenance or {}, "`provenance`"), "`provenance`"),
        "schema": _schema(mixture.schema),
    }
    tensors: Tensors = {}
    for index, network in enumerate(mixture):
        tensors |= _tensors(network, str(index))
    if len(mixture) == 1:
        return Contents(tensors, metadata)
    return Contents({**tensors, ROOT_WEIGHTS: mixture.weights}, metadata, MIXTURE_VERSION)


def tensor_names(prefix: str, num_variables: int, *, tied: bool) -> set[str]:
    """The names of all tensors of one component."""
    parts = [
        *(f"{network}.{part}" for network in ("template", "top") for part in _STRUCTURE),
        "template.outputs",
        "top.weights",
    ]
    for network in ("template",) if tied else ("template", "bottom"):
        parts.append(f"{network}.weights")
        parts.extend(f"{network}.leaves.{variable}" for variable in range(num_variables))
    return {f"{prefix}.{part}" for part in parts}


_STRUCTURE = ("kinds", "degrees", "references")


def _schema(schema: Schema) -> JSON:
    return [
        {
            "categories": list(variable.categories),
            "kind": str(variable.kind),
            "name": variable.name,
        }
        for variable in schema
    ]


def _component(network: DynamicNetwork) -> JSON:
    group_of = {
        position: group for group, members in enumerate(network.groups) for position in members
    }
    return {
        "bottom": "tied" if network.parameters.tied else "own",
        "families": [dict(bank.family.to_json()) for bank in network.template.banks],
        "groups": [group_of[position] for position in range(network.num_interfaces)],
        "root": str(network.root),
        "top_root": network.top.root,
    }


def _tensors(network: DynamicNetwork, prefix: str) -> Tensors:
    parameters = network.parameters
    tensors = {
        **_structure(network.template.nodes, f"{prefix}.template"),
        **_structure(network.top.nodes, f"{prefix}.top"),
        **_parameters(parameters.template, f"{prefix}.template"),
        **_parameters(parameters.top, f"{prefix}.top"),
        f"{prefix}.template.outputs": np.array(network.template.outputs, dtype=np.int32),
    }
    if parameters.bottom is not None:
        tensors |= _parameters(parameters.bottom, f"{prefix}.bottom")
    return tensors


def _structure(nodes: tuple[Node, ...], prefix: str) -> Tensors:
    described = [_kind_and_references(node) for node in nodes]
    flat = [reference for _, references in described for reference in references]
    arrays: list[NDArray[Any]] = [
        np.array([kind for kind, _ in described], dtype=np.uint8),
        np.array([len(references) for _, references in described], dtype=np.int32),
        np.array(flat, dtype=np.int32),
    ]
    return {f"{prefix}.{part}": array for part, array in zip(_STRUCTURE, arrays, strict=True)}


def _kind_and_references(node: Node) -> tuple[NodeKind, tuple[int, ...]]:
    if isinstance(node, Input):
        return NodeKind.INPUT, (node.position,)
    if isinstance(node, Leaf):
        return NodeKind.LEAF, (node.variable,)
    return (NodeKind.PRODUCT if isinstance(node, Product) else NodeKind.SUM), node.children


def _parameters(parameters: NetworkParameters, prefix: str) -> Tensors:
    leaves = {f"{prefix}.leaves.{bank}": rows for bank, rows in enumerate(parameters.leaves)}
    return {f"{prefix}.weights": parameters.weights, **leaves}
